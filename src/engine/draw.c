/* draw.c - the next token of every sequence that is due one: its distribution, its random number, and how the results
 * come back; a device that can is asked for them and not waited for. */
#include "engine/engine_int.h"
#include "base/rng.h"
#include "model/kept_set.h"

#include <string.h>

/* Of a prompt that comes again the sample has the lower half of its word (rollout.n is at most 65536): what comes once
 * has the names it would have in a step where nothing comes twice. */
static int64_t random_bits(const Feed *f, const Request *r, int sample, int pos) {
    uint64_t mixed = r->key * 0x9E3779B97F4A7C15u;
    uint64_t seed = r->opts->has_seed ? r->opts->seed : f->seed;
    return (int64_t)rng_u64(seed ^ (mixed & 0x00FFFFFF00000000u), RNG_SAMPLE, f->step, (uint32_t)(mixed ^ mixed >> 32),
                            (uint32_t)(r->first + sample) | r->again << 16, (uint32_t)pos);
}

static bool early(Engine *e, int seq) { /* stop tokens are not allowed yet */
    const Seq *q = sched_seq(e->s, seq);
    return q->n - q->prompt < request_of(e, seq)->opts->min_tokens;
}

/* Stop tokens that the answer may not take yet: its own list, so such a row is drawn by itself. */
Tensor banned_ids(Engine *e, const SampleOpts *o) {
    const Dims *d = &e->m->desc->d;
    int32_t *ids = stage_i32(e, d->special.n_eos + o->n_stop_ids + 1);
    int n = 0;
    for (int64_t i = 0; i < d->special.n_eos; i++) ids[n++] = (int32_t)d->special.eos[i];
    for (int i = 0; i < o->n_stop_ids; i++) ids[n++] = o->stop_ids[i];
    return stage_put(e, DT_I32, ids, n, 1);
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
    if (d->ops->ask) d->ops->ask(d, e->readback, got);
    else op_get(d, e->back + (size_t)e->readback * back_bytes(e->c.sched.max_seqs), got);
}
void draw_wait(Engine *e, int readback, int n) {
    Dev *d = e->m->dev;
    char *back = e->back + (size_t)readback * back_bytes(e->c.sched.max_seqs);
    if (d->ops->ask) d->ops->asked(d, readback, back, back_bytes(n));
    take_back(e, back, 0, n);
}

/* Draws tokens for draw[from..to) from rows from.. of h.  next: where the next step reads its ids, or none. */
static void sample_rows(Engine *e, const Feed *f, const Draw *draw, Tensor h, int from, int to, bool ban, Tensor next) {
    int n = to - from;
    size_t io = arena_mark(&e->io), host = arena_mark(&e->host);
    float *inv_temp = arena_push(&e->host, (size_t)n * 4), *top_p = arena_push(&e->host, (size_t)n * 4),
          *min_p = arena_push(&e->host, (size_t)n * 4);
    int32_t *top_k = stage_i32(e, n), *greedy = stage_i32(e, n), *one = stage_i32(e, n);
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
    if (!plain) s.dist.inv_temp = stage_put(e, DT_F32, inv_temp, n, 1);
    if (!whole) {
        s.dist.top_k = stage_put(e, DT_I32, top_k, n, 1);
        s.dist.top_p = stage_put(e, DT_F32, top_p, n, 1);
        s.dist.min_p = stage_put(e, DT_F32, min_p, n, 1);
    }
    if (any_greedy) s.greedy = stage_put(e, DT_I32, greedy, n, 1);
    if (ban) s.banned = banned_ids(e, request_of(e, draw[from].seq)->opts), s.ban = stage_put(e, DT_I32, one, n, 1);
    s.random = stage_put(e, DT_I64, random, n, 1);
    int64_t each = (int64_t)back_bytes(n) / 3;
    Tensor got = tensor_push(&e->io, DT_U8, 3, each);
    s.next = next;
    s.id = tensor_over(got.data, DT_I32, n, 1), s.lp = tensor_over(tensor_rows(got, 1, 1).data, DT_F32, n, 1);
    s.ent = tensor_over(tensor_rows(got, 2, 1).data, DT_F32, n, 1);
    if (f->kept) s.kept = tensor_push(&e->io, DT_I32, n, kept_words(e->m->desc->d.vocab));
    model_sample(e->m, &s);
    if (e->readback >= 0) ask_back(e, got);
    else op_get(e->m->dev, e->back, got), take_back(e, e->back, from, n);
    if (f->kept) tell_kept(e, f, draw, s.kept, from);
    for (int i = 0; i < n && e->readback < 0; i++)
        if (e->id[from + i] >= 0)
            tell_draw(e, f, &draw[from + i], s.h, i, ban, (Likely){ e->id[from + i], e->lp[from + i] });
    arena_pop(&e->io, io);
    arena_pop(&e->host, host);
}

/* Runs of rows that may be drawn together; a row with banned tokens stands alone. */
void draw_all(Engine *e, const Feed *f, const Step *st, Tensor h, Tensor ids) {
    if (e->readback >= 0) {
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
