/* policy.c - a model that learns: what it owns, its micro-batches, gradients and updates. */
#include "train/policy_int.h"

#include <math.h>
#include <string.h>

/* Activations first, then what others may overwrite only when it is of no use or parked. */
static void open_block(Policy *p, const PolicySizes *s, Mem *mem) {
    Model *m = p->m;
    const PolicyConf *c = &p->c;
    Arena memory = s->weights ? c->block : dev_arena(m->dev, "activations", s->block);
    CHECK(memory.size == s->block, "a block of %zu bytes, planned for %zu", memory.size, s->block);
    p->block = (Block){ .memory = memory,
                        .shared = c->room > 0,
                        .dev = m->dev,
                        .weights = &m->w,
                        .grads = &p->grads,
                        .states = c->no_steps ? NULL : &p->opt };
    if (s->weights) m->w.offloaded = mem_push(mem, s->weights);
    p->act = arena_over("activations", memory.base, s->act);
    char *at = memory.base + arena_round(s->act);
    m->again = arena_over("recomputed", at, s->again); /* one backward at a time */
    at += s->again;
    if (s->shares)
        params_open_in(&p->grads, p->w->model, &m->shard, arena_over("gradients", at, s->grads), DT_F32, true, mem);
    else params_open(&p->grads, p->w->model, &m->shard, m->dev, DT_F32, true, "gradients", mem);
    if (c->no_steps) return;
    if (s->offloaded)
        optim_open_in(&p->opt, p->w, &p->grads, m->dev, c->states, c->offload,
                      arena_over("optimizer", at + s->grads, s->offloaded), mem_push(mem, s->offloaded));
    else optim_open(&p->opt, p->w, &p->grads, m->dev, c->states, c->offload);
}

void policy_open(Policy *p, Model *m, const PolicyConf *c, Mem *mem) {
    PolicySizes s = policy_sizes(m->desc, &m->shard, c, model_kind(m));
    TokenFlops f = token_flops(&m->desc->d);
    *p = (Policy){ .m = m, .w = model_trained(m), .c = *c, .cost = { 6 * f.linear, 3 * f.pair }, .flops = f };
    m->trained = c->trained;
    if (c->trains) open_block(p, &s, mem);
    p->io = dev_arena(m->dev, "train io", s.io);
    p->host = arena_on_host("train host", s.host, mem);
    size_t before = p->io.size - s.ways;
    if (c->trains) {
        int flights = pipeline_flights(&m->shard);
        size_t each = policy_io_bytes(c, m->desc, &m->shard), slots = (size_t)flights * each;
        Arena out = arena_over("gradients sent", p->io.base + slots, before - slots);
        pipeline_open(&p->pipe, m, &p->act, &out, mem);
        p->slot = MEM_ARRAY(mem, struct MicroSlot, (size_t)flights);
        for (int i = 0; i < p->pipe.flights; i++) {
            p->slot[i].io = arena_over("train io", (char *)p->io.base + (size_t)i * each, each);
            p->slot[i].host =
                arena_over("train host", arena_push(&p->host, policy_slot_bytes(c)), policy_slot_bytes(c));
        }
    }
    Arena way = arena_over("activations sent", p->io.base + before, s.ways);
    pipeline_open_ways(&p->pipe, m, &way, mem);
    p->sort = arena_on_host("packing", s.sort, mem);
}

void policy_close(Policy *p) {
    if (p->c.trains) {
        if (!p->c.no_steps) optim_close(&p->opt, p->m->dev);
        params_close(&p->grads, p->m->dev);
        dev_free(p->m->dev, p->block.memory.base);
    }
    dev_free(p->m->dev, p->io.base);
}

/* ---- micro-batches */
bool micro_pack(Policy *p, const TrainSeq *seqs, int n, Pack *out, Err *err) {
    CHECK(n <= p->c.max_seqs, "%d sequences, planned for %d", n, p->c.max_seqs);
    if (!n) return *out = (Pack){ .imbalance = 1, .spread = 1 }, true;
    int64_t *lens = arena_push(&p->host, (size_t)n * 8);
    for (int i = 0; i < n; i++) lens[i] = seqs[i].n;
    const Shard *s = &p->m->shard;
    PackConf c = { p->c.micro_tokens, p->cost, s->g.dp, s->at.dp };
    return pack(out, lens, n, &c, &p->host, &p->sort, err);
}

Micro micro_put(Policy *p, const TrainSeq *seqs, const Pack *pk, int64_t which, Arena *io, Arena *at) {
    Micro mb = { 0 };
    if (which < pk->n_micro)
        mb.n = (int)(pk->first[which + 1] - pk->first[which]), mb.item = pk->item + pk->first[which];
    mb.at = arena_push(at, (size_t)(mb.n + 1) * 8);
    size_t mark = arena_mark(&p->host);
    PackSeq *ps = arena_push(&p->host, (size_t)mb.n * sizeof *ps);
    mb.at[0] = 0;
    for (int i = 0; i < mb.n; i++) {
        const TrainSeq *s = &seqs[mb.item[i]];
        ps[i] = (PackSeq){
            .tokens = s->tokens, .n = s->n, .from = s->prompt, .draw = s->draw, .kept = s->kept, .spans = s->spans
        };
        mb.at[i + 1] = mb.at[i] + s->n - s->prompt;
    }
    batch_put_part(&mb.batch, p->m->dev, io, &p->host, ps, mb.n, &p->m->par.cp);
    model_put_images(p->m, &mb.batch, io, ps, mb.n, CLIP_RULE);
    if (p->c.kept) batch_keep(&mb.batch, p->m->dev, io, &p->host, ps, mb.n, p->m->desc->d.vocab);
    mb.lp = tensor_push(io, DT_F32, mb.batch.outputs, 1);
    mb.ent = tensor_push(io, DT_F32, mb.batch.outputs, 1);
    arena_pop(&p->host, mark);
    return mb;
}

bool micro_go_on(const Policy *p) {
    if (!p->c.go_on) return true;
    const Groups *g = &p->m->par;
    return comm_max(&g->pp, comm_max(&g->dense, comm_max(&g->tp, !p->c.go_on(p->c.user)))) == 0;
}

bool micro_passes(const Policy *p, const Pack *pk, int64_t k) {
    return pk->first[k] == pk->first[k + 1] && p->m->shard.g.ep * p->m->shard.g.etp == 1;
}

void micro_given(const Policy *p, const TrainSeq *seqs, const Micro *mb, const float *lp, bool keeps) {
    Given g = { seqs, mb->item, mb->at, lp, mb->n, keeps };
    if (p->c.given) p->c.given(p->c.user, &g);
}

/* The sequences' columns side by side, in the order of the outputs. */
enum { COL_OLD, COL_ADV, COL_REF, COL_WEIGHT, COL_COUNT };
static const float *column_of(const TrainSeq *s, int col) {
    return col == COL_OLD ? s->old : col == COL_ADV ? s->adv : col == COL_REF ? s->ref : s->weight;
}

static const float *column(Policy *p, const TrainSeq *seqs, const Micro *mb, int col) {
    if (!mb->n || !column_of(&seqs[mb->item[0]], col)) return NULL;
    float *x = arena_push(&p->host, (size_t)mb->batch.outputs * 4);
    for (int i = 0; i < mb->n; i++)
        memcpy(x + mb->at[i], column_of(&seqs[mb->item[i]], col), (size_t)(mb->at[i + 1] - mb->at[i]) * 4);
    return x;
}

static const uint8_t *bytes_column(Policy *p, const TrainSeq *seqs, const Micro *mb, bool pick) {
    const TrainSeq *first = mb->n ? &seqs[mb->item[0]] : NULL;
    if (!first || !(pick ? first->pick : first->mask)) return NULL;
    uint8_t *x = arena_push(&p->host, (size_t)mb->batch.outputs);
    for (int i = 0; i < mb->n; i++) {
        const TrainSeq *s = &seqs[mb->item[i]];
        memcpy(x + mb->at[i], pick ? s->pick : s->mask, (size_t)(mb->at[i + 1] - mb->at[i]));
    }
    return x;
}

/* The loss of a micro-batch whose log-probs are there; they become their gradients where it teaches. */
static void judge(Policy *p, const TrainSeq *seqs, const Micro *mb, bool teaches, const LossConf *c,
                  const LossCounts *counts, LossSum *sum) {
    if (!mb->n) return; /* computed for others' experts: nothing is said of it */
    Dev *d = p->m->dev;
    size_t mark = arena_mark(&p->host), bytes = (size_t)mb->batch.outputs * 4;
    float *lp = arena_push(&p->host, bytes), *ent = arena_push(&p->host, bytes);
    float *dlp = arena_push(&p->host, bytes), *dent = arena_push(&p->host, bytes);
    op_get(d, lp, mb->lp);
    op_get(d, ent, mb->ent);
    micro_given(p, seqs, mb, lp, teaches);
    LossIn in = {
        .a = { mb->n, mb->at, mb->at + 1, bytes_column(p, seqs, mb, false) },
        .lp = lp,
        .entropy = ent,
        .old = column(p, seqs, mb, COL_OLD),
        .adv = column(p, seqs, mb, COL_ADV),
        .ref = column(p, seqs, mb, COL_REF),
        .weight = column(p, seqs, mb, COL_WEIGHT),
        .pick = bytes_column(p, seqs, mb, true),
    };
    loss_piece(sum, dlp, dent, c, counts, &in);
    if (teaches) op_put(d, mb->lp, dlp), op_put(d, mb->ent, dent);
    arena_pop(&p->host, mark);
}

static LossCounts count_all(const TrainSeq *seqs, int n) {
    LossCounts counts = { 0 };
    for (int i = 0; i < n; i++) {
        int64_t at[2] = { 0, seqs[i].n - seqs[i].prompt };
        Answers one = { 1, at, at + 1, seqs[i].mask };
        loss_count(&counts, &one);
    }
    return counts;
}

/* ---- what a sequence costs */
typedef enum { TEACHES, SILENT, KNOWN, COSTS } Cost; /* forward and backward; forward; nothing: lp is old */

static Cost cost_of(const TrainSeq *s, const LossConf *c) {
    int64_t at[2] = { 0, s->n - s->prompt };
    Answers one = { 1, at, at + 1, s->mask };
    return !loss_is_silent(c, &one, s->adv) ? TEACHES : s->ent ? KNOWN : SILENT;
}

/* Each kind's sequences side by side, in the order they came: kind k is out[first[k]] .. out[first[k+1]-1]. */
static void part_by_cost(TrainSeq *out, int *first, const TrainSeq *seqs, int n, const LossConf *c) {
    int k = 0;
    for (int cost = 0; cost < COSTS; cost++) {
        first[cost] = k;
        for (int i = 0; i < n; i++)
            if ((int)cost_of(&seqs[i], c) == cost) out[k++] = seqs[i];
    }
    first[COSTS] = k;
}

/* ---- a pack: through the pipeline where it teaches, only forward where it does not */
typedef struct {
    Policy *p;
    const TrainSeq *seqs;
    const Pack *pk;
    const LossConf *c;
    const LossCounts *counts;
    LossSum *sum;
} Lesson;

static void lesson_put(void *user, int slot, int64_t micro, const Batch **b, Tensor *lp, Tensor *ent) {
    Lesson *l = user;
    struct MicroSlot *s = &l->p->slot[slot];
    if (!s->there) s->mb = micro_put(l->p, l->seqs, l->pk, micro, &s->io, &s->host), s->there = true;
    *b = &s->mb.batch, *lp = s->mb.lp, *ent = s->mb.ent;
}
static void lesson_judge(void *user, int slot) {
    Lesson *l = user;
    judge(l->p, l->seqs, &l->p->slot[slot].mb, true, l->c, l->counts, l->sum);
}
static void empty(struct MicroSlot *s) { s->io.used = s->host.used = 0, s->there = false; }
static void lesson_done(void *user, int slot) {
    Policy *p = ((Lesson *)user)->p;
    empty(&p->slot[slot]);
    p->grads.fresh = false;
}
static bool lesson_go_on(void *user) { return micro_go_on(((Lesson *)user)->p); }

/* An arena that others lie in is as full as they are. */
static void filled(Arena *whole, const Arena *in) {
    size_t end = in->peak ? (size_t)(in->base - whole->base) + in->peak : 0;
    if (end > whole->peak) whole->peak = end;
}

static bool teach(Policy *p, const TrainSeq *seqs, const Pack *pk, const LossConf *c, const LossCounts *counts,
                  LossSum *sum) {
    Lesson l = { p, seqs, pk, c, counts, sum };
    PipelineCalls calls = { &l, lesson_put, lesson_judge, lesson_done, lesson_go_on };
    int64_t n = pk->n_micro;
    if (p->m->shard.g.pp > 1 && !micro_go_on(p))
        return false; /* stages are at different turns: they ask together, once */
    while (n && micro_passes(p, pk, n - 1)) n--;
    for (int i = 0; i < p->pipe.flights; i++) empty(&p->slot[i]);
    bool going = pipeline_run(&p->pipe, p->m, &p->grads, n, c->entropy_coef != 0, &calls, &p->host);
    for (; p->m->shard.g.pp == 1 && going && n < pk->n_micro; n++)
        going = micro_go_on(p); /* others have more: all ask alike */
    for (int i = 0; i < p->pipe.flights; i++) filled(&p->act, &p->pipe.flight[i].act), filled(&p->io, &p->slot[i].io);
    int last = (grid_chunks(&p->m->shard.g) - 1) % p->m->shard.g.pp; /* who judged */
    comm_broadcast(&p->m->par.pp, last, sum, sizeof *sum);
    return going;
}

static bool look(Policy *p, const TrainSeq *seqs, const Pack *pk, const LossConf *c, const LossCounts *counts,
                 LossSum *sum) {
    for (int64_t k = 0; k < pk->n_micro; k++) {
        if (!micro_go_on(p)) return false;
        if (micro_passes(p, pk, k)) continue;
        size_t host = arena_mark(&p->host), io = arena_mark(&p->io);
        Micro mb = micro_put(p, seqs, pk, k, &p->io, &p->host);
        model_score(p->m, &mb.batch, mb.lp, mb.ent);
        judge(p, seqs, &mb, false, c, counts, sum);
        arena_pop(&p->host, host);
        arena_pop(&p->io, io);
    }
    return true;
}

/* Of frozen weights there is the product forward and the one back, and none of their gradient; an adapter's own are not
 * counted, as they are few. */
static double flops_of(const Policy *p, bool teaches, int64_t len, int64_t answer) {
    bool frozen = p->m->desc->adapter != NULL;
    if (teaches && !frozen) return flops_train(&p->flops, &len, 1, answer);
    return (teaches ? 2 : 1) * flops_forward(&p->flops, &len, 1, answer);
}

static void run_pack(Policy *p, const TrainSeq *seqs, const Pack *pk, bool teaches, const LossConf *c,
                     const LossCounts *counts, UpdateStats *st) {
    if (st->given_up) return;
    st->given_up = !(teaches ? teach : look)(p, seqs, pk, c, counts, &st->loss);
    for (int64_t i = 0; pk->n_micro && i < pk->first[pk->n_micro]; i++) {
        const TrainSeq *s = &seqs[pk->item[i]];
        int64_t len = s->n, answer = s->n - s->prompt, at[2] = { 0, answer };
        st->compared += answer_len(&(Answers){ 1, at, at + 1, s->mask }, 0);
        st->flops += flops_of(p, teaches, len, answer);
        st->flops_verl += flops_verl(&p->flops, &len, 1) / (teaches ? 1 : 3);
    }
    st->micros += pk->n_micro;
    if (pk->max_tokens > st->max_micro) st->max_micro = pk->max_tokens;
    if (pk->imbalance > st->imbalance) st->imbalance = pk->imbalance;
    if (pk->spread > st->spread) st->spread = pk->spread;
    if (teaches) st->part_most = pk->part_most, st->part_least = pk->part_least;
}

/* The metrics of a silent sequence whose numbers the sampler wrote down. */
static void run_known(Policy *p, const TrainSeq *s, const LossConf *c, const LossCounts *counts, LossSum *sum) {
    int64_t at[2] = { 0, s->n - s->prompt };
    size_t host = arena_mark(&p->host);
    float *dlp = arena_push(&p->host, (size_t)at[1] * 4);
    LossIn in = { .a = { 1, at, at + 1, s->mask },
                  .lp = s->old,
                  .entropy = s->ent,
                  .old = s->old,
                  .adv = s->adv,
                  .ref = s->ref,
                  .weight = s->weight };
    loss_piece(sum, dlp, NULL, c, counts, &in);
    arena_pop(&p->host, host);
}

/* What the ranks of dp computed, each its own sequences, in the order of ranks. */
static void add_over_ranks(Policy *p, UpdateStats *st) {
    typedef struct {
        LossSum loss;
        int64_t compared;
        double flops, flops_verl;
    } Own;
    const Comm *dp = &p->m->par.dp;
    size_t mark = arena_mark(&p->host);
    Own own = { st->loss, st->compared, st->flops, st->flops_verl },
        *all = arena_push(&p->host, (size_t)dp->size * sizeof *all);
    comm_gather_host(dp, all, &own, sizeof own);
    own = all[0];
    for (int r = 1; r < dp->size; r++) {
        loss_add(&own.loss, &all[r].loss);
        own.compared += all[r].compared, own.flops += all[r].flops, own.flops_verl += all[r].flops_verl;
    }
    st->loss = own.loss, st->compared = own.compared, st->flops = own.flops, st->flops_verl = own.flops_verl;
    arena_pop(&p->host, mark);
}

/* What the first micro-batch writes need not be zero; without one all is, and on several ranks, where a rank may have
 * none, or a layer's experts come in rounds, and where several micro-batches are under way. */
static void zero_grads(Policy *p, bool runs) {
    Dev *d = p->m->dev;
    p->grads.fresh = runs;
    if (!runs) op_zero(d, p->grads.flat);
    for (int i = 0; i < p->grads.n && runs; i++)
        if (!p->grads.at[i].desc->one_product) op_zero(d, p->grads.at[i].t);
}

bool policy_grads(Policy *p, const TrainSeq *seqs, int n, const LossConf *c, UpdateStats *st, Err *err) {
    Pack pk[KNOWN];
    int first[COSTS + 1];
    size_t all = arena_mark(&p->host);
    CHECK(n <= p->c.max_seqs, "%d sequences, planned for %d", n, p->c.max_seqs);
    TrainSeq *part = arena_push(&p->host, (size_t)n * sizeof *part);
    part_by_cost(part, first, seqs, n, c);
    for (int k = 0; k < KNOWN; k++) TRY(micro_pack(p, part + first[k], first[k + 1] - first[k], &pk[k], err));
    block_for(&p->block, BLOCK_UPDATE);
    LossCounts counts = count_all(seqs, n);
    *st = (UpdateStats){ .seqs = n, .silent = n - first[SILENT] };
    for (int i = 0; i < n; i++) st->tokens += seqs[i].n;
    zero_grads(p, pk[TEACHES].n_micro > 0 && grid_ranks(&p->m->shard.g) * grid_chunks(&p->m->shard.g) == 1);
    for (int k = 0; k < KNOWN; k++) run_pack(p, part + first[k], &pk[k], k == TEACHES, c, &counts, st);
    if (p->grads.fresh) zero_grads(p, false); /* none ran */
    for (int i = first[KNOWN] + p->m->shard.at.dp; i < n; i += p->m->shard.g.dp)
        run_known(p, &part[i], c, &counts, &st->loss);
    arena_pop(&p->host, all);
    if (st->given_up) return true;
    add_over_ranks(p, st);
    st->total = loss_total(&st->loss, c);
    return true;
}

void policy_step(Policy *p, const AdamConf *adam, bool only_grads, UpdateStats *st) {
    Dev *d = p->m->dev;
    if (st->given_up) return;
    reduce_grads(&p->grads, &p->m->par, d);
    st->grad_norm = reduce_norm(&p->grads, &p->m->par, d);
    st->finite = isfinite(st->total) && isfinite(st->grad_norm);
    if (!st->finite || only_grads) return;
    CHECK(!p->c.no_steps, "an update by a policy that takes none");
    CHECK(!p->block.saving, "an update while the weights of update %lld are being saved", (long long)p->opt.step);
    optim_step(&p->opt, p->w, &p->grads, &p->m->par, d, adam, st->grad_norm);
    st->stepped = true;
}

bool policy_update(Policy *p, const TrainSeq *seqs, int n, const LossConf *c, const AdamConf *adam, bool only_grads,
                   UpdateStats *st, Err *err) {
    TRY(policy_grads(p, seqs, n, c, st, err));
    policy_step(p, adam, only_grads, st);
    return true;
}
