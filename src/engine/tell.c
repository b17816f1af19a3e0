/* tell.c - what is told of a token beside its own log-prob: the likeliest in its place, and the tokens of a prompt.
 *
 * A request that asks has its rows' logits made once more, side by side, a few rows at a time; each row's best ids are
 * picked on the host, and all log-probs come from one op over copies of the row, so that they have the bits of those
 * that are drawn and scored: a token is the likeliest exactly where its number equals the first one told. */
#include "engine/engine_int.h"

#include <math.h>

/* Logits on the device twice (rows, and their copies) and on the host; lists of both. */
size_t tell_bytes(const ModelDesc *m, const EngineConf *c) {
    if (!c->tells) return 0;
    size_t rows = (size_t)c->sched.max_rows, logits = arena_round((size_t)LIKELY_ROWS * (size_t)m->d.vocab * 4);
    return 2 * logits + 16 * arena_round(LIKELY_ROWS * 4) + 2 * arena_round(rows * 4)
           + arena_round(rows * (size_t)m->d.hidden * 4)
           + arena_round((size_t)(m->d.special.n_eos + c->max_ban + 1) * 4);
}

/* ---- which rows of a step are a prompt's that is told: all but its last, which is drawn from */
static int prompt_rows(Engine *e, const Piece *p) {
    const Seq *q = sched_seq(e->s, p->seq);
    if (q->sample || !e->c.tells || !request_of(e, p->seq)->opts->prompt || p->start >= q->prompt - 1) return 0;
    return p->start + p->rows < q->prompt ? p->rows : q->prompt - 1 - p->start;
}
int tell_rows(Engine *e, const Step *st) {
    int n = 0;
    for (int i = 0; i < st->n_pieces; i++) n += prompt_rows(e, &st->piece[i]);
    return n;
}
int tell_list(Engine *e, const Step *st, const int32_t *at, int32_t *rows) {
    int n = 0;
    for (int i = 0; i < st->n_pieces; i++)
        for (int k = 0, all = prompt_rows(e, &st->piece[i]); k < all; k++) rows[n++] = at[i] + k;
    return n;
}

/* ---- a few rows of one request */
typedef struct {
    const Request *r;
    int sample, place; /* of the first row's token */
    const int32_t *ids;
    bool ban;
} Telling;

static void forbid(float *logits, const Engine *e, const SampleOpts *o) {
    const Dims *d = &e->m->desc->d;
    for (int64_t i = 0; i < d->special.n_eos; i++) logits[d->special.eos[i]] = -INFINITY;
    for (int i = 0; i < o->n_stop_ids; i++) logits[o->stop_ids[i]] = -INFINITY;
}

/* The k largest, the lower id first among equals. */
static void pick(int32_t *best, int k, const float *logits, int64_t vocab) {
    int n = 0;
    for (int64_t v = 0; v < vocab; v++) {
        if (n == k && !(logits[v] > logits[best[k - 1]])) continue;
        int at = n < k ? n++ : k - 1;
        for (; at > 0 && logits[v] > logits[best[at - 1]]; at--) best[at] = best[at - 1];
        best[at] = (int32_t)v;
    }
}

static Tensor put_f32(Engine *e, float x, int n) {
    float *all = arena_push(&e->host, (size_t)n * 4);
    for (int i = 0; i < n; i++) all[i] = x;
    return stage_put(e, DT_F32, all, n, 1);
}
static Tensor put_i32(Engine *e, int32_t x, int n) {
    int32_t *all = stage_i32(e, n);
    for (int i = 0; i < n; i++) all[i] = x;
    return stage_put(e, DT_I32, all, n, 1);
}

/* The distribution that all these rows are drawn from, as draw.c has it. */
static Dist dist_of(Engine *e, const SampleOpts *o, int n) {
    const Drawing *d = &o->draw;
    Dist x = { 0 };
    if (d->temperature != 1) x.inv_temp = put_f32(e, 1.0f / d->temperature, n);
    if (o->greedy || (d->top_p >= 1 && d->min_p <= 0 && d->top_k <= 0)) return x;
    x.top_k = put_i32(e, d->top_k, n), x.top_p = put_f32(e, d->top_p, n), x.min_p = put_f32(e, d->min_p, n);
    return x;
}

static void tell(Engine *e, const Feed *f, const Telling *t, Tensor h) {
    Dev *d = e->m->dev;
    const SampleOpts *o = t->r->opts;
    int64_t V = e->m->desc->d.vocab;
    int n = (int)h.rows, k = o->top < V ? o->top : (int)V, each = k + 1, all = n * each;
    int32_t *want = stage_i32(e, all);
    Tensor logits = tensor_push(&e->io, DT_F32, n, V), copies = logits;
    model_rows_logits(e->m, logits, h);
    for (int i = 0; i < n; i++) want[i * each] = t->ids[i];
    if (k) {
        float *here = arena_push(&e->host, (size_t)(n * V) * 4);
        op_get(d, here, logits);
        copies = tensor_push(&e->io, DT_F32, all, V);
        for (int i = 0; i < n; i++) {
            if (t->ban) forbid(here + i * V, e, o);
            pick(want + i * each + 1, k, here + i * V, V);
            for (int j = 0; j < each; j++) op_copy(d, tensor_rows(copies, i * each + j, 1), tensor_rows(logits, i, 1));
        }
    }
    Tensor lp = tensor_push(&e->io, DT_F32, all, 1);
    Head head = { .ids = stage_put(e, DT_I32, want, all, 1), .dist = dist_of(e, o, all), .lp = lp };
    if (t->ban) head.banned = banned_ids(e, o), head.ban = put_i32(e, 1, all);
    model_rows_logprob(e->m, copies, &head);
    float got[LIKELY_ROWS];
    op_get(d, got, lp);
    for (int i = 0; i < n; i++) {
        Likely top[TOP_MOST];
        for (int j = 0; j < k; j++) top[j] = (Likely){ want[i * each + 1 + j], got[i * each + 1 + j] };
        f->told(f->user, t->r, t->sample, t->place + i, (Likely){ t->ids[i], got[i * each] }, top, k);
    }
}

static void tell_few(Engine *e, const Feed *f, Telling t, Tensor h) {
    int most = LIKELY_ROWS / (t.r->opts->top + 1);
    for (int i = 0; i < h.rows; i += most, t.ids += most, t.place += most) {
        size_t io = arena_mark(&e->io), host = arena_mark(&e->host);
        int64_t n = h.rows - i < most ? h.rows - i : most;
        tell(e, f, &t, tensor_rows(h, i, n));
        arena_pop(&e->io, io);
        arena_pop(&e->host, host);
    }
}

void tell_draw(Engine *e, const Feed *f, const Draw *draw, Tensor h, int row, bool ban, Likely token) {
    const Seq *q = sched_seq(e->s, draw->seq);
    Telling t = { &e->request[q->group], q->sample, q->n, &token.id, ban };
    if (f->told && t.r->opts->top > 0) tell_few(e, f, t, tensor_rows(h, row, 1));
}

void tell_prompts(Engine *e, const Feed *f, const Step *st, Tensor h) {
    int row = st->n_draws;
    for (int i = 0; i < st->n_pieces; i++) {
        const Piece *p = &st->piece[i];
        const Request *r = request_of(e, p->seq);
        int n = prompt_rows(e, p), place = p->start + 1;
        if (n && f->told) tell_few(e, f, (Telling){ r, 0, place, r->tokens + place, false }, tensor_rows(h, row, n));
        row += n;
    }
}
