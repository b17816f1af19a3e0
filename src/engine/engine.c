/* engine.c - the runner: turns a scheduler's step into tensors, runs the model and the
 * sampler, and hands tokens back. */
#include "engine/engine.h"
#include "engine/seen.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "model/kept_set.h"

#include <string.h>

struct Engine {
    Model *m;
    SchedConf c;
    Sched *s;
    Cache cache;
    bool own; /* the cache's memory */
    Arena io, host;
    Request *request; /* [max_seqs] by group */
    Request held;     /* taken from the feed, but there is no room for its pictures yet */
    bool holds;
    int32_t *id;
    float *lp, *ent;
    Finish *finish;
    bool *finished, *full; /* full: no room for another kept set */
    int max_pages;
    Seen *seen; /* pictures, or NULL: requests have none */
    struct Noted {
        int seen;
        void *calls;
    } * noted; /* [max_batch+1]: the calls of a step in which so many sequences decode */
    int n_noted;
    bool plain; /* nothing is noted: a rank is profiled, call by call, and NCCL wants all ranks of a call alike */
    bool ahead; /* engine_ahead */
    /* What was drawn by the step under way.  late: the device was asked for it (as number late), and not waited for. */
    struct Drawn {
        int seq, at; /* at: the token's place in it */
    } * drawn;
    int late;
    bool begun; /* the scheduler's step is under way already */
    char *back; /* ids, log-probs and entropies as they come back */
};
enum { NOT_LATE = -1 };

const char *finish_name(Finish f) {
    static const char *const name[] = { "stop", "length", "budget", "room", "broken" };
    return name[f];
}

void finish_broken(Err *err, int tokens) {
    err_set(err,
            "after %d tokens of the answer the model's numbers are not finite (NaN or infinite): its weights are too "
            "large for float32, or the temperature too small for them",
            tokens);
}

uint64_t request_key(const int32_t *tokens, int n) {
    uint64_t h = hash_ids(HASH_RUN, tokens, (size_t)n);
    return h ^ h >> 31;
}

static int max_pages(const SchedConf *c) { return (c->max_len + c->page - 1) / c->page; }

/* A step of decoding over ranks that share experts needs no counts (par.h) where the tokens of all of them are no more
 * than a rank has in the largest step: so it takes no more memory, and what it sends in vain is little.  Tokens of a
 * rank that are allowed for; 0: none. */
static int64_t most_each(const SchedConf *c, int ranks) {
    int tp = c->shard ? c->shard->g.tp : 1;
    int64_t fit = (c->max_rows + tp - 1) / tp / ranks, most = (c->max_batch + tp - 1) / tp;
    return !ep_is_even(ranks) ? 0 : fit < most ? fit : most;
}
static int ep_of(const Shard *s) { return s ? s->g.ep * s->g.etp : 1; }

size_t engine_tmp_bytes(const ModelDesc *m, const SchedConf *c, DevKind like) {
    ExtendShape s = { .rows = c->max_rows,
                      .outputs = c->max_seqs,
                      .seqs = c->max_batch,
                      .longest = c->max_rows,
                      .max_pages = max_pages(c),
                      .page = c->page,
                      .shard = c->shard,
                      .feats = c->feats };
    size_t rows = model_extend_tmp(m, &s, like), pictures = seen_tmp_bytes(m, c, like), even = 0;
    s.each = most_each(c, ep_of(c->shard));
    if (s.each) {
        int64_t most = s.each * c->shard->g.tp;
        s.seqs = (int)(most < c->max_batch ? most : c->max_batch), s.rows = s.outputs = s.seqs, s.longest = 1;
        even = model_extend_tmp(m, &s, like);
    }
    return rows > pictures && rows > even ? rows : pictures > even ? pictures : even;
}

enum { KEEP_ROWS = 64 }; /* rows drawn together when their kept sets are wanted */

/* Index lists of a step, and the sampler's rows with their hidden states and kept sets. */
size_t engine_io_bytes(const ModelDesc *m, const SchedConf *c) {
    size_t rows = arena_round((size_t)c->max_rows * 4), seqs = arena_round((size_t)(c->max_seqs + 1) * 8);
    size_t table = arena_round((size_t)c->max_batch * (size_t)max_pages(c) * 4),
           h = arena_round((size_t)c->max_seqs * (size_t)m->d.hidden * 4);
    size_t keep = (size_t)(c->max_seqs < KEEP_ROWS ? c->max_seqs : KEEP_ROWS);
    size_t banned = arena_round((size_t)(m->d.n_eos + c->max_ban + 1) * 4);
    size_t sets = arena_round(keep * (size_t)kept_words(m->d.vocab) * 4) + arena_round(kept_set_most(m->d.vocab, 0));
    size_t axes = m->d.vis.layers ? 3 + 1 : 0; /* two more positions, whose picture; what rounding adds */
    return (2 + axes) * rows + 14 * seqs + table + h + banned + sets;
}

size_t engine_pictures_bytes(const ModelDesc *m, const SchedConf *c, DevKind like) { return seen_bytes(m, c, like); }

/* Three columns that come back in one piece. */
static size_t back_bytes(int n) { return 3 * arena_round((size_t)n * 4); }

size_t engine_host_bytes(const ModelDesc *m, const SchedConf *c) {
    size_t seq = sizeof(struct Drawn) + sizeof(Request) + sizeof(int32_t) + 2 * sizeof(float) + sizeof(Finish)
                 + 2 * sizeof(bool);
    size_t noted = (size_t)(c->max_batch + 1) * sizeof(struct Noted);
    return sizeof(Engine) + sched_bytes(c) + cache_list_bytes(m) + (size_t)c->max_seqs * seq + noted
           + 2 * back_bytes(c->max_seqs) + engine_io_bytes(m, c) + ARENA_ALIGN + seen_host_bytes(c);
}

Engine *engine_open(Model *m, const SchedConf *c, Mem *mem) {
    size_t bytes = cache_bytes(m->desc, c, dev_kind(m->dev));
    Engine *e = engine_open_over(m, c, dev_arena(m->dev, "kv", bytes), mem);
    e->own = true;
    return e;
}

Engine *engine_open_over(Model *m, const SchedConf *c, Arena cache, Mem *mem) {
    Engine *e = MEM_NEW(mem, Engine);
    size_t n = (size_t)c->max_seqs;
    *e = (Engine){ .m = m, .c = *c, .s = sched_open(c, mem), .max_pages = max_pages(c) };
    cache_open(&e->cache, m, c, cache, mem);
    e->request = MEM_ARRAY(mem, Request, n);
    e->id = MEM_ARRAY(mem, int32_t, n);
    e->lp = MEM_ARRAY(mem, float, n);
    e->ent = MEM_ARRAY(mem, float, n);
    e->finish = MEM_ARRAY(mem, Finish, n);
    e->finished = MEM_ARRAY(mem, bool, n);
    e->full = MEM_ARRAY(mem, bool, n);
    e->noted = MEM_ARRAY(mem, struct Noted, (size_t)c->max_batch + 1);
    e->drawn = MEM_ARRAY(mem, struct Drawn, n);
    e->back = MEM_ARRAY(mem, char, 2 * back_bytes(c->max_seqs));
    e->ahead = m->dev->ops->ask != NULL;
    size_t io = engine_io_bytes(m->desc, c);
    e->host = arena_on_host("rollout host", io, mem);
    e->io = dev_arena(m->dev, "rollout io", io);
    if (c->feats) e->seen = seen_open(m, c, mem);
    return e;
}

void engine_close(Engine *e) {
    for (int i = 0; i <= e->c.max_batch; i++)
        if (e->noted[i].calls) e->m->dev->ops->forget(e->m->dev, e->noted[i].calls);
    if (e->own) dev_free(e->m->dev, e->cache.memory.base);
    if (e->seen) seen_close(e->seen);
    dev_free(e->m->dev, e->io.base);
}

void engine_ahead(Engine *e, bool on) { e->ahead = on; }

void engine_flush(Engine *e) {
    sched_flush(e->s);
    if (e->seen) seen_flush(e->seen);
}

/* ---- a step's tensors */
static Tensor put(Engine *e, DType t, const void *from, int64_t rows, int64_t cols) {
    Tensor x = tensor_push(&e->io, t, rows, cols);
    op_put(e->m->dev, x, from);
    return x;
}

static int32_t *host_i32(Engine *e, int64_t n) { return arena_push(&e->host, (size_t)n * 4); }

typedef struct {
    Paged paged;
    Tensor ids, pos, rows; /* rows [draws]: each draw's row, its piece's last */
    Pictures seen;
} Rows;

/* A list on both sides: the next of a run that lies in both arenas in the same way, so that
 * one put takes all of them. */
static int32_t *both(Engine *e, Tensor *t, int64_t rows, int64_t cols) {
    *t = tensor_push(&e->io, DT_I32, rows, cols);
    return host_i32(e, rows * cols);
}

/* fed: the ids are there, where the last step's sampler has left them. */
static Rows put_rows(Engine *e, const Step *st, bool fed) {
    int n = st->n_pieces, row = 0;
    Rows r = { .paged.rows.n = n };
    size_t io = arena_mark(&e->io), host = arena_mark(&e->host);
    int32_t *ids = both(e, &r.ids, st->n_rows, 1);
    int32_t *at = both(e, &r.paged.rows.at, n + 1, 1), *start = both(e, &r.paged.start, n, 1);
    int32_t *table = both(e, &r.paged.table, n, e->max_pages);
    int axes = e->m->desc->d.vis.layers ? 3 : 1;
    int32_t *pos = both(e, &r.pos, st->n_rows, axes), *rows = both(e, &r.rows, st->n_draws, 1);
    int32_t *from = e->seen ? both(e, &r.seen.from, st->n_rows, 1) : NULL;
    for (int i = 0; i < n; i++) {
        const Piece *p = &st->piece[i];
        const Seq *q = sched_seq(e->s, p->seq);
        at[i] = row, start[i] = p->start;
        for (int k = 0; k < p->rows; k++) {
            ids[row + k] = q->tokens[p->start + k];
            for (int a = 0; a < axes; a++) pos[(row + k) * axes + a] = p->start + k;
        }
        if (e->seen) seen_rows(e->seen, q->group, p->start, p->rows, ids + row, pos + 3 * row, from + row);
        row += p->rows;
        if (p->rows > r.paged.rows.longest) r.paged.rows.longest = p->rows;
        for (int k = 0; k < e->max_pages; k++) table[i * e->max_pages + k] = k < q->n_pages ? q->pages[k] : -1;
    }
    at[n] = row;
    for (int i = 0; i < st->n_draws; i++) rows[i] = at[st->draw[i].piece + 1] - 1;
    size_t bytes = e->io.used - io;
    CHECK(e->host.used - host == bytes, "lists of %zu bytes on the device, %zu on the host", bytes,
          e->host.used - host);
    char *to = fed ? r.paged.rows.at.data : r.ids.data, *end = (char *)e->io.base + e->io.used;
    op_put(e->m->dev, tensor_over(to, DT_U8, 1, end - to), fed ? at : ids);
    if (e->seen) r.seen.feats = seen_feats(e->seen), r.seen.tokens = r.seen.feats.rows;
    return r;
}

/* Of a prompt that comes again the sample has the lower half of its word (rollout.n is at most 65536): what comes once
 * has the names it would have in a step where nothing comes twice. */
static int64_t random_bits(const Feed *f, const Request *r, int sample, int pos) {
    uint64_t mixed = r->key * 0x9E3779B97F4A7C15u;
    uint64_t seed = r->opts->has_seed ? r->opts->seed : f->seed;
    return (int64_t)rng_u64(seed ^ (mixed & 0x00FFFFFF00000000u), RNG_SAMPLE, f->step, (uint32_t)(mixed ^ mixed >> 32),
                            (uint32_t)sample | r->again << 16, (uint32_t)pos);
}

static bool is_stop(const Engine *e, const SampleOpts *o, int32_t id) {
    const Dims *d = &e->m->desc->d;
    for (int64_t i = 0; i < d->n_eos && !o->ignore_eos; i++)
        if (d->eos[i] == id) return true;
    for (int i = 0; i < o->n_stop_ids; i++)
        if (o->stop_ids[i] == id) return true;
    return false;
}

static const Request *request_of(Engine *e, int seq) { return &e->request[sched_seq(e->s, seq)->group]; }

static bool early(Engine *e, int seq) { /* stop tokens are not allowed yet */
    const Seq *q = sched_seq(e->s, seq);
    return q->n - q->prompt < request_of(e, seq)->opts->min_tokens;
}

/* Stop tokens that the answer may not take yet: its own list, so such a row is drawn by itself. */
static Tensor banned_ids(Engine *e, const SampleOpts *o) {
    const Dims *d = &e->m->desc->d;
    int32_t *ids = host_i32(e, d->n_eos + o->n_stop_ids + 1);
    int n = 0;
    for (int64_t i = 0; i < d->n_eos; i++) ids[n++] = (int32_t)d->eos[i];
    for (int i = 0; i < o->n_stop_ids; i++) ids[n++] = o->stop_ids[i];
    return put(e, DT_I32, ids, n, 1);
}

/* The sets that rows from.. were drawn from go to whoever wants them. */
static void tell_kept(Engine *e, const Feed *f, const Draw *draw, Tensor kept, int from) {
    int64_t V = e->m->desc->d.vocab;
    uint32_t *bits = arena_push(&e->host, (size_t)(kept.rows * kept.cols) * 4);
    uint8_t *set = arena_push(&e->host, kept_set_most(V, 0));
    op_get(e->m->dev, bits, kept);
    for (int i = 0; i < kept.rows; i++) {
        const Seq *q = sched_seq(e->s, draw[from + i].seq);
        if (e->id[from + i] < 0) continue; /* there was none */
        size_t n = kept_set_put(set, bits + i * kept.cols, V);
        e->full[from + i] = f->kept(f->user, &e->request[q->group], q->sample, set, n);
    }
}

static void take_back(Engine *e, const char *back, int from, int n) {
    size_t each = back_bytes(n) / 3;
    memcpy(e->id + from, back, (size_t)n * 4);
    memcpy(e->lp + from, back + each, (size_t)n * 4);
    memcpy(e->ent + from, back + 2 * each, (size_t)n * 4);
}
/* The device is asked for them and works on; what cannot be asked is got at once. */
static void ask_back(Engine *e, Tensor got) {
    Dev *d = e->m->dev;
    size_t bytes = (size_t)(got.rows * got.cols);
    got = tensor_shape(got, 1, (int64_t)bytes);
    if (d->ops->ask) d->ops->ask(d, e->late, got);
    else op_get(d, e->back + (size_t)e->late * back_bytes(e->c.max_seqs), got);
}
static void wait_back(Engine *e, int late, int n) {
    Dev *d = e->m->dev;
    char *back = e->back + (size_t)late * back_bytes(e->c.max_seqs);
    if (d->ops->ask) d->ops->asked(d, late, back, back_bytes(n));
    take_back(e, back, 0, n);
}

/* Draws tokens for draw[from..to) from rows from.. of h.  next: where the next step reads its ids, or none. */
static void sample_rows(Engine *e, const Feed *f, const Draw *draw, Tensor h, int from, int to, bool ban, Tensor next) {
    int n = to - from;
    size_t io = arena_mark(&e->io), host = arena_mark(&e->host);
    float *inv_temp = arena_push(&e->host, (size_t)n * 4), *top_p = arena_push(&e->host, (size_t)n * 4),
          *min_p = arena_push(&e->host, (size_t)n * 4);
    int32_t *top_k = host_i32(e, n), *greedy = host_i32(e, n), *one = host_i32(e, n);
    int64_t *random = arena_push(&e->host, (size_t)n * 8);
    bool plain = true, whole = true, any_greedy = false;
    for (int i = 0; i < n; i++) {
        const Seq *q = sched_seq(e->s, draw[from + i].seq);
        const Request *r = &e->request[q->group];
        const Drawing *d = &r->opts->draw;
        inv_temp[i] = 1.0f / d->temperature, top_p[i] = d->top_p, min_p[i] = d->min_p, top_k[i] = d->top_k;
        greedy[i] = r->opts->greedy, one[i] = 1;
        random[i] = random_bits(f, r, q->sample, q->n);
        bool w = r->opts->greedy || (d->top_p >= 1 && d->min_p <= 0 && d->top_k <= 0);
        whole = whole && w, plain = plain && w && d->temperature == 1;
        any_greedy = any_greedy || r->opts->greedy;
    }
    Sample s = { .h = tensor_rows(h, from, n), .w = model_head(e->m) };
    if (!plain) s.dist.inv_temp = put(e, DT_F32, inv_temp, n, 1);
    if (!whole) {
        s.dist.top_k = put(e, DT_I32, top_k, n, 1);
        s.dist.top_p = put(e, DT_F32, top_p, n, 1);
        s.dist.min_p = put(e, DT_F32, min_p, n, 1);
    }
    if (any_greedy) s.greedy = put(e, DT_I32, greedy, n, 1);
    if (ban) s.banned = banned_ids(e, request_of(e, draw[from].seq)->opts), s.ban = put(e, DT_I32, one, n, 1);
    s.random = put(e, DT_I64, random, n, 1);
    int64_t each = (int64_t)back_bytes(n) / 3;
    Tensor got = tensor_push(&e->io, DT_U8, 3, each);
    s.next = next;
    s.id = tensor_over(got.data, DT_I32, n, 1), s.lp = tensor_over(tensor_rows(got, 1, 1).data, DT_F32, n, 1);
    s.ent = tensor_over(tensor_rows(got, 2, 1).data, DT_F32, n, 1);
    if (f->kept) s.kept = tensor_push(&e->io, DT_I32, n, kept_words(e->m->desc->d.vocab));
    model_sample(e->m, &s);
    if (e->late >= 0) ask_back(e, got);
    else op_get(e->m->dev, e->back, got), take_back(e, e->back, from, n);
    if (f->kept) tell_kept(e, f, draw, s.kept, from);
    arena_pop(&e->io, io);
    arena_pop(&e->host, host);
}

/* Runs of rows that may be drawn together; a row with banned tokens stands alone. */
static void sample_all(Engine *e, const Feed *f, const Step *st, Tensor h, Tensor ids) {
    if (e->late >= 0) {
        sample_rows(e, f, st->draw, h, 0, st->n_draws, false, ids);
        return;
    }
    int most = f->kept ? KEEP_ROWS : st->n_draws;
    for (int i = 0; i < st->n_draws;) {
        bool ban = early(e, st->draw[i].seq);
        int to = i + 1;
        while (!ban && to < st->n_draws && to - i < most && !early(e, st->draw[to].seq)) to++;
        sample_rows(e, f, st->draw, h, i, to, ban, TENSOR_NONE);
        i = to;
    }
}

/* A step in which every sequence has one row makes the same calls, over the same tensors, as the last one with as many:
 * a backend that can notes them and runs them at once, which spares the host a thousand launches.  Numbers of sequences
 * that come once are not worth it. */
enum { MOST_NOTED = 64, WORTH_NOTING = 3 };

/* Ranks that share experts: do all of them decode, and the same number of sequences?  Then all note it, or none.
 * *each: Ctx.each.  Of one replica they have the same step; several say what theirs is. */
static bool all_decode(const Engine *e, const Step *st, int64_t *each) {
    const Comm *c = &e->m->par.experts;
    const GridShape *g = &e->m->shard.g;
    int most = st->n_rows == st->n_pieces && st->n_draws == st->n_pieces ? st->n_rows : -1, least = most;
    int32_t all[LEAVES_MOST];
    *each = 0;
    if (c->size == 1) return most >= 0;
    if (!most_each(&e->c, c->size)) return false;
    if (g->tp % c->size) {
        comm_gather_host(c, all, &(int32_t){ most }, sizeof *all);
        for (int r = 0; r < c->size; r++) most = all[r] > most ? all[r] : most, least = all[r] < least ? all[r] : least;
    }
    if (least >= 0) *each = (most + g->tp - 1) / g->tp;
    if (*each > most_each(&e->c, c->size)) *each = 0;
    return *each && least == most;
}

static void extend(Engine *e, const Step *st, const Rows *r, Tensor h) {
    Dev *d = e->m->dev;
    struct Noted *n = &e->noted[st->n_pieces];
    int64_t each;
    bool decodes = all_decode(e, st, &each) && d->ops->record && !e->plain;
    if (decodes && !n->calls && ++n->seen >= WORTH_NOTING && e->n_noted < MOST_NOTED) {
        d->ops->record(d);
        model_extend(e->m, e->cache.kv, &r->paged, r->ids, r->pos, &r->seen, each, r->rows, h);
        n->calls = d->ops->recorded(d);
        e->n_noted++;
    }
    if (decodes && n->calls) d->ops->replay(d, n->calls);
    else model_extend(e->m, e->cache.kv, &r->paged, r->ids, r->pos, &r->seen, each, r->rows, h);
}

/* May the next step begin before the host knows what this one drew? */
static bool may_be_late(Engine *e, const Feed *f, const Step *st) {
    bool alone = e->m->par.tp.size == 1 && e->m->par.experts.size == 1;
    if (!e->ahead || !alone || f->kept || e->seen || e->plain) return false;
    if (st->n_rows != st->n_pieces || st->n_draws != st->n_pieces || back_bytes(st->n_draws) > DEV_ASK) return false;
    for (int i = 0; i < st->n_draws; i++)
        if (request_of(e, st->draw[i].seq)->opts->min_tokens > 0) return false; /* such rows may be drawn alone */
    return true;
}

static void compute(Engine *e, const Feed *f, const Step *st, bool fed) {
    size_t io = arena_mark(&e->io), host = arena_mark(&e->host);
    e->late = !may_be_late(e, f, st) ? NOT_LATE : e->late == 0;
    Rows r = put_rows(e, st, fed);
    Tensor h = tensor_push(&e->io, e->m->dev->act, st->n_draws, e->m->desc->d.hidden);
    extend(e, st, &r, h);
    for (int i = 0; i < st->n_copies; i++) cache_copy(&e->cache, e->m->dev, &st->copy[i]);
    sample_all(e, f, st, h, r.ids);
    arena_pop(&e->io, io);
    arena_pop(&e->host, host);
}

/* ---- the loop */
static void deliver(Engine *e, const Feed *f, int seq, Finish why, EngineStats *stats) {
    Seq *q = sched_seq(e->s, seq);
    Answer a = { .request = &e->request[q->group],
                 .sample = q->sample,
                 .n = q->n - q->prompt,
                 .tokens = q->tokens + q->prompt,
                 .lp = q->lp + q->prompt,
                 .ent = q->ent + q->prompt,
                 .finish = why };
    stats->answers++;
    f->answer(f->user, &a);
    int group = q->group;
    if (sched_finish(e->s, seq) && e->seen) seen_drop(e->seen, group);
}

/* Will every sequence of this step be in the next one, unless its answer ends with a token that nobody knows yet? */
static bool goes_on(Engine *e, const Feed *f, int n, const EngineStats *stats) {
    if (e->late < 0 || !sched_goes_on(e->s)) return false;
    for (int i = 0; i < n; i++) {
        const Seq *q = sched_seq(e->s, e->drawn[i].seq);
        if (q->state != SEQ_RUNNING || q->n + 1 >= q->limit) return false;
    }
    return !f->token_budget || stats->tokens + n < f->token_budget;
}

/* The next step begins; its ids are where this one's sampler leaves them, their places in the sequences are filled when
 * they are known. */
static void begin_next(Engine *e, const Feed *f, int n, EngineStats *stats) {
    for (int i = 0; i < n; i++) sched_token(e->s, e->drawn[i].seq, 0, 0, 0);
    sched_done(e->s);
    const Step *st = sched_next(e->s);
    CHECK(st->n_draws == n && st->n_rows == n, "a step of %d rows and %d draws was to have %d", st->n_rows, st->n_draws,
          n);
    compute(e, f, st, true);
    e->begun = true;
    stats->ahead++;
}

/* Returns how many tokens there were: answers that ended a step ago, when this one had begun, have none. */
static int take_tokens(Engine *e, const Feed *f, const Step *st, EngineStats *stats) {
    int n = st->n_draws, late = e->late, had = 0;
    for (int i = 0; i < n; i++) e->drawn[i] = (struct Drawn){ st->draw[i].seq, sched_seq(e->s, st->draw[i].seq)->n };
    e->begun = false;
    if (goes_on(e, f, n, stats)) begin_next(e, f, n, stats);
    if (late >= 0) wait_back(e, late, n);
    for (int i = 0; i < n; i++) {
        int seq = e->drawn[i].seq, at = e->drawn[i].at;
        Seq *q = sched_seq(e->s, seq);
        e->finished[i] = false;
        if (q->state != SEQ_RUNNING) continue;
        const Request *r = &e->request[q->group];
        if (e->id[i] < 0) {
            q->n = at;
            e->finished[i] = true, e->finish[i] = FINISH_BROKEN;
            stats->broken++;
            continue;
        }
        if (e->begun) q->tokens[at] = e->id[i], q->lp[at] = e->lp[i], q->ent[at] = e->ent[i];
        else sched_token(e->s, seq, e->id[i], e->lp[i], e->ent[i]);
        stats->tokens++, had++;
        bool text_stop = f->token && f->token(f->user, r, q->sample, e->id[i]);
        bool stop = text_stop || is_stop(e, r->opts, e->id[i]);
        bool full = f->kept && e->full[i];
        e->finished[i] = stop || full || q->n == q->limit;
        e->finish[i] = stop ? FINISH_STOP : q->n == q->limit ? FINISH_LENGTH : FINISH_ROOM;
    }
    if (!e->begun) sched_done(e->s);
    for (int i = 0; i < n; i++)
        if (e->finished[i]) deliver(e, f, e->drawn[i].seq, e->finish[i], stats);
    return had;
}

/* Everything that is under way or has not begun is cut here and handed out as it is. */
static void cut_all(Engine *e, const Feed *f, EngineStats *stats) {
    for (int i = 0; i < e->c.max_seqs; i++)
        if (sched_seq(e->s, i)->state != SEQ_IDLE) deliver(e, f, i, FINISH_BUDGET, stats);
    int group, sample;
    while (sched_cancel(e->s, &group, &sample)) {
        Answer a = { .request = &e->request[group], .sample = sample, .finish = FINISH_BUDGET };
        stats->answers++;
        f->answer(f->user, &a);
        if (e->seen && sched_over(e->s, group)) seen_drop(e->seen, group);
    }
}

/* A request whose pictures find no room waits, with those behind it, until others are done. */
static bool fill(Engine *e, const Feed *f, EngineStats *stats) {
    while (sched_room(e->s)) {
        Request r = e->held;
        if (!e->holds && !f->next(f->user, &r)) return false;
        CHECK(!r.n_pictures || e->seen, "a prompt with pictures, and the engine was opened for none");
        int g = sched_next_group(e->s);
        e->held = r, e->holds = e->seen && !seen_take(e->seen, g, &r);
        CHECK(!e->holds || !sched_idle(e->s), "a prompt's pictures find no room in %d rows", e->c.feats);
        if (e->holds) return true;
        sched_add(e->s, e->seen ? seen_tokens(e->seen, g) : r.tokens, r.n, r.samples, r.opts->max_tokens);
        e->request[g] = r;
        stats->prompt_tokens += r.n;
    }
    return true;
}

static SchedStats stats_since(SchedStats s, const SchedStats *before) {
    s.steps -= before->steps, s.rows -= before->rows, s.preempted -= before->preempted;
    s.prefix_tokens -= before->prefix_tokens, s.forks -= before->forks;
    return s;
}

static Join join(Engine *e, const Feed *f) {
    bool busy = !sched_idle(e->s);
    if (f->join) return f->join(f->user, busy);
    return busy ? JOIN_STEP : JOIN_END;
}

EngineStats engine_run(Engine *e, const Feed *f) {
    EngineStats stats = { 0 };
    SchedStats before = sched_stats(e->s);
    double t0 = clock_now();
    bool more = true;
    e->holds = e->begun = false;
    e->plain = comm_max(&e->m->par.experts, comm_max(&e->m->par.tp, e->m->dev->profile != NULL)) > 0;
    for (;;) {
        if (more) more = fill(e, f, &stats) || f->join; /* who joins others may be given more later */
        Join how = join(e, f);
        if (how == JOIN_AGAIN) continue;
        if (how == JOIN_CUT) cut_all(e, f, &stats);
        if (how != JOIN_STEP) break;
        const Step *st = e->begun ? sched_step(e->s) : sched_next(e->s);
        if (!e->begun) compute(e, f, st, false);
        int had = take_tokens(e, f, st, &stats);
        bool go_on = !f->tick || f->tick(f->user, stats.tokens, had);
        if ((f->token_budget && stats.tokens >= f->token_budget) || !go_on) {
            do { cut_all(e, f, &stats); } while (go_on && more && (more = fill(e, f, &stats), !sched_idle(e->s)));
            break;
        }
    }
    stats.seconds = clock_now() - t0;
    stats.sched = stats_since(sched_stats(e->s), &before);
    return stats;
}
