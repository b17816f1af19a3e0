/* policy.c - a model that learns: log-probs, gradients, an update. */
#include "train/policy.h"

#include <math.h>
#include <string.h>

/* Of one micro-batch on the device: where sequences begin, ids and positions; rows, targets, log-prob and entropy of
 * each output, and the distribution it was drawn from (its temperature, or all four settings, and the kept set). */
static size_t io_size(const PolicyConf *c, const ModelDesc *m, const Shard *shard) {
    PicturesShape none = { 0 };
    int64_t vocab = m->d.vocab;
    size_t tokens = arena_round((size_t)c->micro_tokens * 4), outputs = arena_round((size_t)(c->micro_tokens - 1) * 4);
    size_t sets = c->kept ? arena_round((size_t)(c->micro_tokens - 1) * (size_t)kept_words(vocab) * 4) : 0;
    size_t part = shard->g.cp > 1 ? batch_part_bytes(c->micro_tokens, c->max_seqs) : 0;
    return arena_round((size_t)(c->max_seqs + 1) * 4) + 2 * tokens + (c->truncated ? 8 : 5) * outputs + sets + part
           + batch_images_bytes(shard->at.pp ? &none : &c->pictures, c->micro_tokens, &m->d);
}

/* Of a micro-batch that is under way: where each sequence's outputs begin. */
static size_t slot_host_size(const PolicyConf *c) { return arena_round((size_t)(c->max_seqs + 1) * 8); }

static size_t host_size(const PolicyConf *c, int64_t vocab, const Shard *shard) {
    size_t n = (size_t)c->max_seqs;
    size_t micro = batch_host_bytes(c->micro_tokens, c->max_seqs) + 10 * arena_round((size_t)c->micro_tokens * 4)
                   + arena_round(n * sizeof(PackSeq)) + slot_host_size(c);
    if (c->trains)
        micro += pipeline_list_bytes(shard, c->max_seqs) + (size_t)pipeline_flights(shard) * slot_host_size(c);
    size_t packs = 2 * (arena_round(n * 8) + pack_keep((int64_t)n)); /* what teaches and what is silent lie apart */
    return micro + packs + arena_round(n * sizeof(TrainSeq)) + (c->kept ? batch_keep_host_bytes(vocab) : 0);
}

static ModelShape shape_of(const PolicyConf *c, const Shard *shard, DevKind like) {
    int longest = (int)c->micro_tokens, seqs = c->max_seqs < longest ? c->max_seqs : longest;
    return (ModelShape){ .tokens = c->micro_tokens,
                         .outputs = c->micro_tokens - 1,
                         .seqs = seqs,
                         .longest = longest,
                         .backward = c->trains,
                         .truncated = c->truncated,
                         .trained = c->trained,
                         .like = like,
                         .shard = shard,
                         .pictures = c->pictures };
}

PolicySizes policy_sizes(const ModelDesc *m, const Shard *shard, const PolicyConf *c, DevKind like) {
    ModelShape shape = shape_of(c, shard, like);
    ModelSizes s = model_sizes(m, &shape);
    Shard one = shard_whole(m);
    const Shard *at = shard ? shard : &one;
    int flights = c->trains ? pipeline_flights(at) : 1;
    size_t ways = (size_t)pipeline_ways(at) * s.way;
    PolicySizes out = { .ways = ways,
                        .act = flights == 1 ? s.flight : (size_t)flights * s.kept,
                        .again = flights == 1 ? 0 : s.again,
                        .tmp = s.tmp,
                        .io = (size_t)flights * io_size(c, m, at) + (c->trains ? (size_t)pipeline_outs(at) * s.out : 0)
                              + ways,
                        .host = host_size(c, m->d.vocab, at),
                        .sort = pack_scratch(c->max_seqs, shard ? shard->g.dp : 1) };
    if (c->trains) {
        int64_t own = reduce_own_count(m, shard);
        out.grads = params_bytes(m, shard, DT_F32, true);
        out.optim_dev = c->no_steps ? 0 : optim_bytes(own, c->states, c->offload, false);
        out.optim_host = c->no_steps ? 0 : optim_bytes(own, c->states, c->offload, true);
        size_t reduce = reduce_tmp(m, shard, like);
        if (reduce > out.tmp) out.tmp = reduce;
        out.shares = c->room > 0;
        out.offloaded = out.shares && c->park_states ? out.optim_dev : 0;
        out.weights = out.shares && c->park_weights ? params_bytes(m, shard, c->states.weights, false) : 0;
        out.block = arena_round(out.act) + out.again + (out.shares ? out.grads : 0) + out.offloaded + out.weights;
        if (out.block < c->room) out.block = c->room;
    }
    return out;
}

typedef struct {
    Batch batch;
    int n;
    const int32_t *item; /* [n] which sequences */
    int64_t *at;         /* [n+1] where each one's outputs begin */
    Tensor lp, ent;
} Micro;

/* A micro-batch from its first forward to its last backward. */
struct MicroSlot {
    Arena io, host;
    Micro mb;
    bool there;
};

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
        params_open_in(&p->grads, m->desc, &m->shard, arena_over("gradients", at, s->grads), DT_F32, true, mem);
    else params_open(&p->grads, m->desc, &m->shard, m->dev, DT_F32, true, "gradients", mem);
    if (c->no_steps) return;
    if (s->offloaded)
        optim_open_in(&p->opt, &m->w, &p->grads, m->dev, c->states, c->offload,
                      arena_over("optimizer", at + s->grads, s->offloaded), mem_push(mem, s->offloaded));
    else optim_open(&p->opt, &m->w, &p->grads, m->dev, c->states, c->offload);
}

void policy_open(Policy *p, Model *m, const PolicyConf *c, Mem *mem) {
    PolicySizes s = policy_sizes(m->desc, &m->shard, c, model_kind(m));
    TokenFlops f = token_flops(&m->desc->d);
    *p = (Policy){ .m = m, .c = *c, .cost = { 6 * f.linear, 3 * f.pair }, .flops = f };
    m->trained = c->trained;
    if (c->trains) open_block(p, &s, mem);
    p->io = dev_arena(m->dev, "train io", s.io);
    p->host = arena_on_host("train host", s.host, mem);
    size_t before = p->io.size - s.ways;
    if (c->trains) {
        int flights = pipeline_flights(&m->shard);
        size_t each = io_size(c, m->desc, &m->shard), slots = (size_t)flights * each;
        Arena out = arena_over("gradients sent", p->io.base + slots, before - slots);
        pipeline_open(&p->pipe, m, &p->act, &out, mem);
        p->slot = MEM_ARRAY(mem, struct MicroSlot, (size_t)flights);
        for (int i = 0; i < p->pipe.flights; i++) {
            p->slot[i].io = arena_over("train io", (char *)p->io.base + (size_t)i * each, each);
            p->slot[i].host = arena_over("train host", arena_push(&p->host, slot_host_size(c)), slot_host_size(c));
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
static bool pack_seqs(Policy *p, const TrainSeq *seqs, int n, Pack *out, Err *err) {
    CHECK(n <= p->c.max_seqs, "%d sequences, planned for %d", n, p->c.max_seqs);
    if (!n) return *out = (Pack){ .imbalance = 1, .spread = 1 }, true;
    int64_t *lens = arena_push(&p->host, (size_t)n * 8);
    for (int i = 0; i < n; i++) lens[i] = seqs[i].n;
    const Shard *s = &p->m->shard;
    PackConf c = { p->c.micro_tokens, p->cost, s->g.dp, s->at.dp };
    return pack(out, lens, n, &c, &p->host, &p->sort, err);
}

/* Its device part lies in io, what the host remembers in 'at'. */
static Micro put_micro(Policy *p, const TrainSeq *seqs, const Pack *pk, int64_t which, Arena *io, Arena *at) {
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

/* Ranks give up together or not at all: whoever went on alone would wait for the others. */
static bool go_on(const Policy *p) {
    if (!p->c.go_on) return true;
    const Groups *g = &p->m->par;
    return comm_max(&g->pp, comm_max(&g->dense, comm_max(&g->tp, !p->c.go_on(p->c.user)))) == 0;
}

/* A rank that has no micro-batch left has nothing to do, unless others need its experts. */
static bool passes(const Policy *p, const Pack *pk, int64_t k) {
    return pk->first[k] == pk->first[k + 1] && p->m->shard.g.ep * p->m->shard.g.etp == 1;
}

/* Columns of the sequences of a part, from one rank of a group to all of it, through one
 * micro-batch's worth of memory. */
static void hand_round(Policy *p, const Comm *c, int root, int part, const Pack *pk, const TrainSeq *seqs, int n,
                       float *const *out) {
    size_t mark = arena_mark(&p->host);
    int64_t room = p->c.micro_tokens;
    float *buf = arena_push(&p->host, (size_t)room * 4);
    for (int i = 0, next; i < n; i = next) {
        int64_t used = 0;
        for (next = i; next < n; next++) { /* as many as fit */
            int64_t len = seqs[next].n - seqs[next].prompt;
            if (pk->part[next] != part) continue;
            if (used + len > room) break;
            if (c->rank == root) memcpy(buf + used, out[next], (size_t)len * 4);
            used += len;
        }
        if (used) comm_broadcast(c, root, buf, (size_t)used * 4);
        used = 0;
        for (int j = i; j < next; j++) {
            int64_t len = seqs[j].n - seqs[j].prompt;
            if (pk->part[j] != part) continue;
            if (c->rank != root) memcpy(out[j], buf + used, (size_t)len * 4);
            used += len;
        }
    }
    arena_pop(&p->host, mark);
}

/* The last stage of each part of dp computed its sequences; now all have all. */
static void share(Policy *p, const Pack *pk, const TrainSeq *seqs, int n, float *const *out) {
    const Comm *dp = &p->m->par.dp, *pp = &p->m->par.pp;
    if (pp->size > 1) hand_round(p, pp, pp->size - 1, p->m->shard.at.dp, pk, seqs, n, out);
    for (int r = 0; r < dp->size && dp->size > 1; r++) hand_round(p, dp, r, r, pk, seqs, n, out);
}

typedef void Scored(void *user, const Micro *mb, const float *lp, const float *ent);

static void score_micro(Policy *p, const TrainSeq *seqs, const Pack *pk, int64_t k, int v, Scored *scored, void *user) {
    Dev *d = p->m->dev;
    size_t host = arena_mark(&p->host), io = arena_mark(&p->io);
    Micro mb = put_micro(p, seqs, pk, k, &p->io, &p->host);
    pipeline_forward(&p->pipe, p->m, (int)k, v, &mb.batch, mb.lp, mb.ent);
    if (model_ends(p->m, v)) {
        size_t bytes = (size_t)mb.batch.outputs * 4;
        float *lp = arena_push(&p->host, bytes), *ent = arena_push(&p->host, bytes);
        op_get(d, lp, mb.lp);
        op_get(d, ent, mb.ent);
        scored(user, &mb, lp, ent);
    }
    arena_pop(&p->host, host);
    arena_pop(&p->io, io);
}

/* Every micro-batch of this rank's part, each told where the model ends.  Between stages several are under way, and
 * whether to go on is asked once. */
static bool score_pack(Policy *p, const TrainSeq *seqs, const Pack *pk, Scored *scored, void *user) {
    const Shard *s = &p->m->shard;
    int run = pipeline_run_of(s);
    bool going = true;
    block_for(&p->block, BLOCK_SCORE);
    for (int64_t from = 0; from < pk->n_micro; from += run) {
        if ((s->g.pp == 1 || !from) && !(going = go_on(p))) break;
        for (int v = 0; v < s->g.vpp; v++)
            for (int64_t k = from; k < from + run && k < pk->n_micro; k++)
                if (!passes(p, pk, k)) score_micro(p, seqs, pk, k, v, scored, user);
    }
    pipeline_sent(&p->pipe);
    return going;
}

typedef struct {
    float *const *lp, *const *ent;
} Columns;
static void to_columns(void *user, const Micro *mb, const float *lp, const float *ent) {
    const Columns *c = user;
    for (int i = 0; i < mb->n; i++) {
        size_t one = (size_t)(mb->at[i + 1] - mb->at[i]) * 4;
        memcpy(c->lp[mb->item[i]], lp + mb->at[i], one);
        if (c->ent) memcpy(c->ent[mb->item[i]], ent + mb->at[i], one);
    }
}

bool policy_logprob(Policy *p, const TrainSeq *seqs, int n, float *const *lp, float *const *ent, Err *err) {
    Pack pk;
    Columns out = { lp, ent };
    size_t all = arena_mark(&p->host);
    TRY(pack_seqs(p, seqs, n, &pk, err));
    if (score_pack(p, seqs, &pk, to_columns, &out) && n) {
        share(p, &pk, seqs, n, lp);
        if (ent) share(p, &pk, seqs, n, ent);
    }
    arena_pop(&p->host, all);
    return true;
}

/* NaN stays. */
static void raise_to(double *most, double x) {
    if (!(x <= *most) && !isnan(*most)) *most = x;
}

static void given(const Policy *p, const TrainSeq *seqs, const Micro *mb, const float *lp, bool keeps) {
    Given g = { seqs, mb->item, mb->at, lp, mb->n, keeps };
    if (p->c.given) p->c.given(p->c.user, &g);
}

typedef struct {
    const Policy *p;
    const TrainSeq *seqs;
    Exact sum;
} Comparing;
static void compare_micro(void *user, const Micro *mb, const float *lp, const float *ent) {
    Comparing *c = user;
    (void)ent;
    given(c->p, c->seqs, mb, lp, false);
    for (int i = 0; i < mb->n; i++) {
        const TrainSeq *s = &c->seqs[mb->item[i]];
        for (int64_t t = mb->at[i], k = 0; t < mb->at[i + 1]; t++, k++) {
            if (s->mask && !s->mask[k]) continue;
            raise_to(&c->sum.max_diff, fabs((double)lp[t] - (double)s->old[k]));
            c->sum.tokens++;
        }
    }
}

bool policy_compare(Policy *p, const TrainSeq *seqs, int n, Exact *sum, Err *err) {
    Pack pk;
    Comparing own = { .p = p, .seqs = seqs };
    const Groups *g = &p->m->par;
    size_t all = arena_mark(&p->host);
    TRY(pack_seqs(p, seqs, n, &pk, err));
    score_pack(p, seqs, &pk, compare_micro, &own);
    arena_pop(&p->host, all);
    sum->tokens += comm_sum_i64(&g->pp, comm_sum_i64(&g->dp, own.sum.tokens));
    raise_to(&sum->max_diff, comm_max(&g->pp, comm_max(&g->dp, own.sum.max_diff)));
    return true;
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
    given(p, seqs, mb, lp, teaches);
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
    if (!s->there) s->mb = put_micro(l->p, l->seqs, l->pk, micro, &s->io, &s->host), s->there = true;
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
static bool lesson_go_on(void *user) { return go_on(((Lesson *)user)->p); }

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
    if (p->m->shard.g.pp > 1 && !go_on(p)) return false; /* stages are at different turns: they ask together, once */
    while (n && passes(p, pk, n - 1)) n--;
    for (int i = 0; i < p->pipe.flights; i++) empty(&p->slot[i]);
    bool going = pipeline_run(&p->pipe, p->m, &p->grads, n, c->entropy_coef != 0, &calls, &p->host);
    for (; p->m->shard.g.pp == 1 && going && n < pk->n_micro; n++)
        going = go_on(p); /* others have more: all ask alike */
    for (int i = 0; i < p->pipe.flights; i++) filled(&p->act, &p->pipe.flight[i].act), filled(&p->io, &p->slot[i].io);
    int last = (grid_chunks(&p->m->shard.g) - 1) % p->m->shard.g.pp; /* who judged */
    comm_broadcast(&p->m->par.pp, last, sum, sizeof *sum);
    return going;
}

static bool look(Policy *p, const TrainSeq *seqs, const Pack *pk, const LossConf *c, const LossCounts *counts,
                 LossSum *sum) {
    for (int64_t k = 0; k < pk->n_micro; k++) {
        if (!go_on(p)) return false;
        if (passes(p, pk, k)) continue;
        size_t host = arena_mark(&p->host), io = arena_mark(&p->io);
        Micro mb = put_micro(p, seqs, pk, k, &p->io, &p->host);
        model_score(p->m, &mb.batch, mb.lp, mb.ent);
        judge(p, seqs, &mb, false, c, counts, sum);
        arena_pop(&p->host, host);
        arena_pop(&p->io, io);
    }
    return true;
}

static void run_pack(Policy *p, const TrainSeq *seqs, const Pack *pk, bool teaches, const LossConf *c,
                     const LossCounts *counts, UpdateStats *st) {
    if (st->given_up) return;
    st->given_up = !(teaches ? teach : look)(p, seqs, pk, c, counts, &st->loss);
    for (int64_t i = 0; pk->n_micro && i < pk->first[pk->n_micro]; i++) {
        const TrainSeq *s = &seqs[pk->item[i]];
        int64_t len = s->n, answer = s->n - s->prompt;
        st->compared += answer;
        st->flops += (teaches ? flops_train : flops_forward)(&p->flops, &len, 1, answer);
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
    for (int k = 0; k < KNOWN; k++) TRY(pack_seqs(p, part + first[k], first[k + 1] - first[k], &pk[k], err));
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
    optim_step(&p->opt, &p->m->w, &p->grads, &p->m->par, d, adam, st->grad_norm);
    st->stepped = true;
}

bool policy_update(Policy *p, const TrainSeq *seqs, int n, const LossConf *c, const AdamConf *adam, bool only_grads,
                   UpdateStats *st, Err *err) {
    TRY(policy_grads(p, seqs, n, c, st, err));
    policy_step(p, adam, only_grads, st);
    return true;
}
