/* head.c - log-probs, entropies, their gradients, and drawing, from hidden rows and the
 * head's weights; [T,V] exists only where Head.logits has room for it.
 *
 * Scoring goes over blocks of 128 rows and pieces of 512 ids, keeping three numbers per leaf and row.  A truncated row
 * needs its whole distribution at once: such blocks hold a few rows of logits in d->tmp, as drawing does.  Both ways
 * give an untruncated row the same bits, because both end in head_leaves over the same leaf sums.  Where there is room
 * for logits (Head.logits) they stay there shaped, and backward only copies them. */
#include "base/mathx.h"
#include "op/cpu/head.h"

#include <math.h>
#include <string.h>

enum { BACK_ROWS = 256, BACK_COLS = 2048 };

static int64_t full_rows(int64_t vocab) { return vocab <= 32768 ? 64 : vocab <= 1 << 20 ? 32 : 8; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t leaves_of(int64_t V) { return (V + LEAF - 1) / LEAF; }

static bool cuts(const Dist *p) { return p->top_k.data || p->top_p.data || p->min_p.data; }

static size_t tmp_of(int64_t rows, int64_t vocab, bool whole_rows) {
    size_t full = whole_rows ? (size_t)least(rows, full_rows(vocab)) * (size_t)vocab * 4 : 0;
    size_t leaf = (size_t)least(rows, HEAD_ROWS) * (size_t)leaves_of(vocab) * 12;
    return arena_round(full > leaf ? full : leaf) + arena_round((size_t)HEAD_ROWS * 4);
}
size_t cpu_tmp_logprob(Dev *d, const Head *h) {
    (void)d;
    return tmp_of(h->h.rows, h->w.rows, cuts(&h->dist));
}
size_t cpu_tmp_sample(Dev *d, const Sample *s) {
    (void)d;
    return tmp_of(s->h.rows, s->w.rows, true);
}
size_t cpu_tmp_logprob_bwd(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h) {
    (void)d, (void)dh, (void)dw, (void)dlp, (void)dent;
    return arena_round((size_t)(least(h->h.rows, BACK_ROWS) * least(h->w.rows, BACK_COLS)) * 4);
}

typedef struct {
    Dev *d;
    const Head *h;
    const Sample *s;
    const Dist *dist;
    Tensor banned, ban;
    Prod g;                   /* logits of this block of rows; c and ldc say where */
    int64_t t0, n, V, v0, vn; /* rows; ids of a chunk */
    int stripes;              /* pieces of ids are cut into so many by rows */
    float *logits, *target;   /* [n,V], rows ld apart; logit of the wanted id */
    int64_t ld;
    float (*st)[3]; /* [n][leaves][3] */
    Tensor dlp, dent;
} Job;

static Prod logits_prod(Tensor h, Tensor w, int64_t t0, int64_t n, float *c, int64_t ldc) {
    Prod g = { .c = c,
               .ldc = ldc,
               .a = f32_row(h, t0),
               .lda = h.ld,
               .b = w.data,
               .ldb = w.ld,
               .M = n,
               .N = w.rows,
               .K = h.cols,
               .b_turned = true,
               .b_bf16 = w.dtype == DT_BF16 };
    prod_leaves(&g, leaves_one(h.cols));
    return g;
}
static bool row_banned(const Job *j, int64_t t) { return j->ban.data && *i32_row(j->ban, t); }

/* Logits v0..v0+n of row t as the distribution has them: times inv_temp, -inf where banned. */
static void shape_logits(const Job *j, float *l, int64_t t, int64_t v0, int64_t n, const Kern *k) {
    float f = head_inv_temp(j->dist, t);
    if (f != 1) k->scale(l, l, n, f);
    if (row_banned(j, t))
        for (int64_t i = 0; i < j->banned.rows; i++) {
            int64_t id = *i32_row(j->banned, i) - v0;
            if (id >= 0 && id < n) l[id] = -INFINITY;
        }
}
/* Shaped logits v0..v0+n of row t, kept for backward. */
static float *kept_logits(const Head *h, int64_t t, int64_t v0) { return f32_row(h->logits, t) + v0; }

static const uint32_t *given(const Head *h, int64_t t) { return (const uint32_t *)i32_row(h->kept, t); }
static int64_t words(const Head *h) { return h->vocab.of ? h->vocab.of : h->w.rows; }
static int32_t wanted(const Head *h, int64_t t) {
    int32_t id = *i32_row(h->ids, t);
    CHECK(id >= -1 && id < words(h), "row %ld wants the log-prob of id %d; the vocabulary ends at %ld", (long)t, id,
          (long)words(h));
    return id;
}

/* lp, ent and stat of row t, whose distribution is known and whose wanted logit is l */
static void put_row(const Job *j, HeadRow *r, int64_t t, float l) {
    const Head *h = j->h;
    int32_t id = wanted(h, t);
    r->inv_temp = head_inv_temp(j->dist, t), r->ban = row_banned(j, t);
    r->chosen = id >= 0 && l > -INFINITY;
    *f32_row(h->lp, t) = id < 0 ? 0 : r->chosen || head_none(r) ? head_lp(r, l) : -INFINITY;
    if (h->ent.data) *f32_row(h->ent, t) = head_ent(r);
    if (h->stat.data) memcpy((char *)h->stat.data + t * h->stat.ld, r, sizeof *r);
}

/* A small vocabulary has too few pieces for the threads: rows are cut too. */
static int stripes(const Dev *d, int pieces, int64_t rows) {
    int threads = threads_count(d->threads), want = pieces >= 2 * threads ? 1 : (2 * threads + pieces - 1) / pieces;
    return rows / 32 < want ? (int)(rows / 32 ? rows / 32 : 1) : want;
}

/* ---- whole distributions: pieces of ids, then rows */
static void leaf_piece(void *arg, int i, int worker) {
    const Job *j = arg;
    const Kern *k = cpu_kern(j->d);
    float *work = cpu_work(j->d, worker), *l = work + HEAD_AT;
    int64_t v0 = (int64_t)(i / j->stripes) * HEAD_COLS, n = least(j->V - v0, HEAD_COLS), leaves = leaves_of(j->V);
    int64_t t0 = j->n * (i % j->stripes) / j->stripes, t1 = j->n * (i % j->stripes + 1) / j->stripes;
    Prod g = j->g;
    g.a += t0 * g.lda, g.M = t1 - t0;
    g.b = (const char *)g.b + v0 * g.ldb * (g.b_bf16 ? 2 : 4);
    g.N = n, g.c = l, g.ldc = HEAD_COLS;
    cpu_prod_at(k, &g, work);
    for (int64_t t = t0; t < t1; t++, l += HEAD_COLS) {
        shape_logits(j, l, j->t0 + t, j->h->vocab.first + v0, n, k);
        if (j->h->logits.data) memcpy(kept_logits(j->h, j->t0 + t, v0), l, (size_t)n * 4);
        for (int64_t v = 0; v < n; v += LEAF) k->leaf(j->st[t * leaves + (v0 + v) / LEAF], l + v, least(n - v, LEAF));
        int64_t id = wanted(j->h, j->t0 + t) - j->h->vocab.first - v0;
        if (id >= 0 && id < n) j->target[t] = l[id];
    }
}
static void leaf_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Job *j = arg;
    int64_t leaves = leaves_of(j->V);
    (void)work;
    for (int64_t t = r0; t < r1; t++) {
        HeadRow r = { .max = 0 };
        head_leaves(&r, k, (const float(*)[3])j->st + t * leaves, leaves);
        put_row(j, &r, j->t0 + t, j->target[t]);
    }
}

/* ---- rows whose whole distribution is in memory */
/* shaped logits l [V] -> the row's distribution; leaf sums are made in scratch a few at a time */
static void whole(HeadRow *r, const Kern *k, const float *l, int64_t V, float *work) {
    float(*st)[3] = (float(*)[3])(void *)work;
    int64_t leaves = leaves_of(V);
    CHECK(leaves * 3 <= CPU_WORK, "a vocabulary of %ld is larger than this build's scratch", (long)V);
    for (int64_t i = 0; i < leaves; i++) k->leaf(st[i], l + i * LEAF, least(V - i * LEAF, LEAF));
    head_leaves(r, k, (const float(*)[3])st, leaves);
}
static void score_row(void *arg, int i, int worker) {
    const Job *j = arg;
    const Kern *k = cpu_kern(j->d);
    float *l = j->logits + i * j->ld, *work = cpu_work(j->d, worker);
    int64_t t = j->t0 + i;
    HeadRow r = { .max = 0 };
    int32_t id = wanted(j->h, t);
    shape_logits(j, l, t, 0, j->V, k);
    if (j->h->logits.data) memcpy(kept_logits(j->h, t, 0), l, (size_t)j->V * 4);
    Trunc cut = head_trunc(j->dist, t);
    if (trunc_off(cut)) whole(&r, k, l, j->V, work);
    else if (j->h->kept.data) head_given(&r, k, l, given(j->h, t), j->V, work);
    else head_keep(&r, k, l, j->V, cut, work);
    float x = id < 0 ? 0 : l[id];
    if (id >= 0 && r.cut == CUT_FOUND) head_mask(&r, k, &x, id, 1, work);
    put_row(j, &r, t, x);
}

/* The leaves of a block of rows, j.st and j.target filled. */
static void leaf_sums(Job *j) {
    const Head *h = j->h;
    j->g = logits_prod(h->h, h->w, j->t0, j->n, NULL, 0);
    int cols = (int)((j->V + HEAD_COLS - 1) / HEAD_COLS);
    j->stripes = stripes(j->d, cols, j->n);
    cpu_run(j->d, cols * j->stripes, (double)(j->n * j->V) * (0.5 + (double)h->h.cols / 40), leaf_piece, j);
}

void cpu_logprob(Dev *d, const Head *h) {
    int64_t T = h->h.rows, V = h->w.rows;
    size_t mark = arena_mark(&d->tmp);
    Job j = { .d = d, .h = h, .dist = &h->dist, .banned = h->banned, .ban = h->ban, .V = V };
    j.target = arena_push(&d->tmp, HEAD_ROWS * 4);
    size_t mark2 = arena_mark(&d->tmp);
    for (int64_t t = 0; t < T; t += j.n) {
        bool cut = false;
        j.t0 = t, j.n = least(T - t, HEAD_ROWS);
        for (int64_t i = 0; i < j.n; i++) cut |= !trunc_off(head_trunc(&h->dist, t + i));
        if (cut) {
            j.n = least(j.n, full_rows(V));
            j.logits = arena_push(&d->tmp, (size_t)(j.n * V) * 4), j.ld = V;
            j.g = logits_prod(h->h, h->w, t, j.n, j.logits, V);
            cpu_prod(d, &j.g);
            cpu_run(d, (int)j.n, (double)(j.n * V), score_row, &j);
        } else {
            j.st = arena_push(&d->tmp, (size_t)(j.n * leaves_of(V)) * sizeof *j.st);
            leaf_sums(&j);
            cpu_rows(d, j.n, (double)leaves_of(V) * 4, leaf_rows, &j);
        }
        arena_pop(&d->tmp, mark2);
    }
    arena_pop(&d->tmp, mark);
}

/* Rows whose logits are there: nothing but the rows' own work. */
void cpu_logprob_rows(Dev *d, Tensor logits, const Head *h) {
    Head all = *h;
    all.vocab = (Part){ 0, logits.cols };
    Job j = { .d = d, .h = &all, .dist = &all.dist, .banned = h->banned, .ban = h->ban, .V = logits.cols };
    j.logits = logits.data, j.ld = logits.ld, j.n = logits.rows;
    if (j.n) cpu_run(d, (int)j.n, (double)(j.n * j.V), score_row, &j);
}

/* ---- a vocabulary in parts: this rank's leaves, then everybody's */
void cpu_logprob_part(Dev *d, Tensor part, const Head *h) {
    int64_t T = h->h.rows, V = h->w.rows, leaves = leaves_of(V);
    size_t mark = arena_mark(&d->tmp);
    Job j = { .d = d, .h = h, .dist = &h->dist, .banned = h->banned, .ban = h->ban, .V = V };
    j.target = arena_push(&d->tmp, HEAD_ROWS * 4);
    j.st = arena_push(&d->tmp, (size_t)(least(T, HEAD_ROWS) * leaves) * sizeof *j.st);
    for (j.t0 = 0; j.t0 < T; j.t0 += j.n) {
        j.n = least(T - j.t0, HEAD_ROWS);
        for (int64_t i = 0; i < j.n; i++) j.target[i] = 0;
        if (V) leaf_sums(&j);
        for (int64_t i = 0; i < j.n; i++) {
            float *to = f32_row(part, j.t0 + i);
            memcpy(to, j.st + i * leaves, (size_t)leaves * sizeof *j.st);
            to[3 * leaves] = j.target[i];
        }
    }
    arena_pop(&d->tmp, mark);
}
size_t cpu_tmp_logprob_part(Dev *d, Tensor part, const Head *h) {
    (void)d, (void)part;
    return arena_round(HEAD_ROWS * 4) + arena_round((size_t)(least(h->h.rows, HEAD_ROWS) * leaves_of(h->w.rows)) * 12);
}

void cpu_logprob_end(Dev *d, const Tensor *part, int n, const Head *h) {
    int64_t T = h->h.rows, all = leaves_of(words(h));
    size_t mark = arena_mark(&d->tmp);
    Job j = { .d = d, .h = h, .dist = &h->dist, .banned = h->banned, .ban = h->ban };
    float(*st)[3] = arena_push(&d->tmp, (size_t)all * sizeof *st);
    for (int64_t t = 0; t < T; t++) {
        int64_t at = 0, id = wanted(h, t);
        float target = 0;
        for (int p = 0; p < n; p++) {
            int64_t leaves = (part[p].cols - 1) / 3;
            const float *from = f32_row(part[p], t);
            memcpy(st + at, from, (size_t)leaves * sizeof *st);
            if (id >= at * LEAF && id < (at + leaves) * LEAF) target = from[3 * leaves];
            at += leaves;
        }
        HeadRow r = { .max = 0 };
        head_leaves(&r, cpu_kern(d), (const float(*)[3])st, all);
        put_row(&j, &r, t, target);
    }
    arena_pop(&d->tmp, mark);
}
size_t cpu_tmp_logprob_end(Dev *d, const Tensor *part, int n, const Head *h) {
    (void)d, (void)part, (void)n;
    return arena_round((size_t)leaves_of(words(h)) * 12);
}

/* ---- drawing */
static void sample_row(void *arg, int i, int worker) {
    const Job *j = arg;
    const Sample *s = j->s;
    const Kern *k = cpu_kern(j->d);
    float *l = j->logits + i * j->ld, *work = cpu_work(j->d, worker);
    int64_t t = j->t0 + i;
    bool greedy = s->greedy.data && *i32_row(s->greedy, t);
    HeadRow r = { .max = 0 };
    int32_t id = -1;
    if (greedy) { /* of the raw logits: a temperature could make ties */
        Job raw = *j;
        Dist none = { .inv_temp = TENSOR_NONE };
        raw.dist = &none;
        shape_logits(&raw, l, t, 0, j->V, k);
        float m = k->max(l, j->V);
        for (id = 0; id < j->V - 1 && !(l[id] == m); id++) {}
    }
    shape_logits(j, l, t, 0, j->V, k);
    Trunc cut = head_trunc(j->dist, t);
    if (greedy || trunc_off(cut)) whole(&r, k, l, j->V, work);
    else head_keep(&r, k, l, j->V, cut, work);
    if (s->kept.data) head_bits((uint32_t *)i32_row(s->kept, t), &r, k, l, j->V, work);
    if (!greedy) id = head_pick(&r, k, l, j->V, (uint64_t)((const int64_t *)s->random.data)[t * s->random.ld], work);
    if (head_none(&r)) id = -1;
    *i32_row(s->id, t) = id;
    if (s->next.data) *i32_row(s->next, t) = id < 0 ? 0 : id;
    *f32_row(s->lp, t) = head_lp(&r, id < 0 ? 0 : l[id]);
    if (s->ent.data) *f32_row(s->ent, t) = head_ent(&r);
}
void cpu_sample(Dev *d, const Sample *s) {
    int64_t B = s->h.rows, V = s->w.rows;
    size_t mark = arena_mark(&d->tmp);
    Job j = { .d = d, .s = s, .dist = &s->dist, .banned = s->banned, .ban = s->ban, .V = V };
    j.logits = arena_push(&d->tmp, (size_t)(least(B, full_rows(V)) * V) * 4), j.ld = V;
    for (int64_t t = 0; t < B; t += j.n) {
        j.t0 = t, j.n = least(B - t, full_rows(V));
        j.g = logits_prod(s->h, s->w, t, j.n, j.logits, V);
        cpu_prod(d, &j.g);
        cpu_run(d, (int)j.n, (double)(j.n * V), sample_row, &j);
    }
    arena_pop(&d->tmp, mark);
}

void cpu_sample_rows(Dev *d, Tensor logits, const Sample *s) {
    Job j = { .d = d, .s = s, .dist = &s->dist, .banned = s->banned, .ban = s->ban, .V = logits.cols };
    j.logits = logits.data, j.ld = logits.ld, j.n = logits.rows;
    if (j.n) cpu_run(d, (int)j.n, (double)(j.n * j.V), sample_row, &j);
}

/* ---- backward */
/* Logits of some ids of the chunk once more, made or copied, turned into their gradients where they lie. */
enum { GRAD_COLS = 240 };
static void grad_piece(void *arg, int i, int worker) {
    const Job *j = arg;
    const Kern *k = cpu_kern(j->d);
    float *work = cpu_work(j->d, worker);
    int64_t c0 = (int64_t)(i / j->stripes) * GRAD_COLS, n = least(j->vn - c0, GRAD_COLS), v0 = j->v0 + c0;
    int64_t t0 = j->n * (i % j->stripes) / j->stripes, t1 = j->n * (i % j->stripes + 1) / j->stripes;
    Prod g = j->g;
    g.a += t0 * g.lda, g.M = t1 - t0;
    g.b = (const char *)g.b + v0 * g.ldb * (g.b_bf16 ? 2 : 4);
    g.N = n, g.c = j->logits + t0 * j->vn + c0, g.ldc = j->vn;
    bool kept = j->h->logits.data;
    if (!kept) cpu_prod_at(k, &g, work);
    for (int64_t t = t0; t < t1; t++) {
        float *l = j->logits + t * j->vn + c0;
        HeadRow r;
        memcpy(&r, (const char *)j->h->stat.data + (j->t0 + t) * j->h->stat.ld, sizeof r);
        if (kept) memcpy(l, kept_logits(j->h, j->t0 + t, v0), (size_t)n * 4);
        else shape_logits(j, l, j->t0 + t, j->h->vocab.first + v0, n, k);
        int64_t first = j->h->vocab.first + v0;
        if (r.cut == CUT_FOUND) head_mask(&r, k, l, first, n, work);
        if (r.cut == CUT_GIVEN) head_mask_given(given(j->h, j->t0 + t), l, first, n);
        if (head_none(&r)) { /* nor has it a gradient */
            for (int64_t v = 0; v < n; v++) l[v] = NAN;
            continue;
        }
        double z = (double)r.z * (1.0 / (double)HEAD_ONE);
        HeadGrad a = {
            .max = r.max,
            .inv_z = (float)(1 / z),
            .log_z = (float)mx_log(z),
            .ent = head_ent(&r),
            .inv_temp = r.inv_temp,
            .dlp = r.chosen ? *f32_row(j->dlp, j->t0 + t) : 0,
            .dent = j->dent.data ? *f32_row(j->dent, j->t0 + t) : 0,
        };
        k->head_grad(l, n, &a);
        int64_t id = *i32_row(j->h->ids, j->t0 + t) - j->h->vocab.first - v0;
        if (r.chosen && id >= 0 && id < n) l[id] += a.dlp * a.inv_temp;
    }
}
void cpu_logprob_bwd(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h) {
    int64_t T = h->h.rows, V = h->w.rows, H = h->h.cols;
    size_t mark = arena_mark(&d->tmp);
    Job j = { .d = d, .h = h, .dist = &h->dist, .banned = h->banned, .ban = h->ban, .V = V, .dlp = dlp, .dent = dent };
    j.logits = arena_push(&d->tmp, (size_t)(least(T, BACK_ROWS) * least(V, BACK_COLS)) * 4);
    cpu_zero(d, dh);
    for (j.t0 = 0; j.t0 < T; j.t0 += j.n) {
        j.n = least(T - j.t0, BACK_ROWS);
        for (j.v0 = 0; j.v0 < V; j.v0 += j.vn) {
            j.vn = least(V - j.v0, BACK_COLS);
            j.g = logits_prod(h->h, h->w, j.t0, j.n, NULL, 0);
            int cols = (int)((j.vn + GRAD_COLS - 1) / GRAD_COLS);
            j.stripes = stripes(d, cols, j.n);
            cpu_run(d, cols * j.stripes, (double)(j.n * j.vn) * (0.5 + (double)H / 40), grad_piece, &j);
            Prod x = {
                .c = f32_row(dh, j.t0),
                .ldc = dh.ld,
                .a = j.logits,
                .lda = j.vn,
                .M = j.n,
                .N = H,
                .K = j.vn,
                .ldb = h->w.ld,
                .b = (const char *)h->w.data + (size_t)(j.v0 * h->w.ld) * dtype_size(h->w.dtype),
                .b_bf16 = h->w.dtype == DT_BF16,
                .more = true,
                .nseg = 1,
                .cut = { 0, j.vn },
            };
            cpu_prod(d, &x);
            Prod w = {
                .c = dw.data ? f32_row(dw, j.v0) : NULL,
                .ldc = dw.ld,
                .a = j.logits,
                .lda = j.vn,
                .a_turned = true,
                .M = j.vn,
                .N = H,
                .K = j.n,
                .b = f32_row(h->h, j.t0),
                .ldb = h->h.ld,
                .more = true,
                .nseg = 1,
                .cut = { 0, j.n },
            };
            if (dw.data) cpu_prod(d, &w);
        }
    }
    arena_pop(&d->tmp, mark);
}
