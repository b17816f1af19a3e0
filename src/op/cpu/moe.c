/* moe.c - choosing experts, gathering rows by expert and putting them back (docs/exactness.md, rule 5).
 * Ties go to the lower id; weights and sums over the chosen run in ascending id, so the batch
 * and the cut of experts over ranks are invisible. */
#include "op/cpu/chain.h"

#include <math.h>
#include <string.h>

enum { MAX_E = 4096 };

/* The k largest of t[0..n), -inf excluded by the caller's counts; marks them; ties to the lower index. */
static void mark_top(bool *on, const float *t, int n, int k) {
    memset(on, 0, (size_t)n);
    for (int j = 0; j < k; j++) {
        int best = -1;
        for (int e = 0; e < n; e++)
            if (!on[e] && (best < 0 || t[e] > t[best])) best = e;
        on[best] = true;
    }
}
static float two_largest(const float *t, int n) {
    float a = -INFINITY, b = -INFINITY;
    for (int i = 0; i < n; i++)
        if (t[i] > a) b = a, a = t[i];
        else if (t[i] > b) b = t[i];
    return n > 1 ? a + b : a;
}
static void softmax(float *p, const float *l, int64_t n, const Kern *k) {
    float m = k->max(l, n), sum = 0;
    for (int64_t e = 0; e < n; e++) p[e] = l[e] - m;
    k->exp(p, p, n);
    for (int64_t e = 0; e < n; e++) sum += p[e];
    for (int64_t e = 0; e < n; e++) p[e] = p[e] / sum;
}
static void sigmoid(float *s, const float *l, int64_t n, const Kern *k) {
    for (int64_t e = 0; e < n; e++) s[e] = l[e] > 88 ? -88 : l[e] < -88 ? 88 : -l[e];
    k->exp(s, s, n);
    for (int64_t e = 0; e < n; e++) s[e] = 1.0f / (1.0f + s[e]);
}
/* Scores that weigh: probabilities or sigmoids. */
static void scores(float *s, const Route *r, int64_t t, const Kern *k) {
    (r->kind == ROUTE_SOFTMAX ? softmax : sigmoid)(s, f32_row(r->logits, t), r->logits.cols, k);
}

static void route_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Route *r = arg;
    int E = (int)r->logits.cols;
    float *s = work, *t = work + MAX_E;
    bool on[MAX_E], open[MAX_E];
    for (int64_t row = r0; row < r1; row++) {
        scores(s, r, row, k);
        for (int e = 0; e < E; e++) t[e] = r->bias.data ? s[e] + ((const float *)r->bias.data)[e] : s[e];
        if (r->groups > 1) {
            int each = E / r->groups;
            float best[MAX_E];
            for (int g = 0; g < r->groups; g++)
                best[g] = r->kind == ROUTE_SOFTMAX ? k->max(t + g * each, each) : two_largest(t + g * each, each);
            mark_top(open, best, r->groups, r->group_topk);
            for (int e = 0; e < E; e++)
                if (!open[e / each]) t[e] = -INFINITY;
        }
        mark_top(on, t, E, r->topk);
        int32_t *pick = i32_row(r->pick, row);
        float *w = f32_row(r->weight, row), sum = 0;
        int j = 0;
        for (int e = 0; e < E; e++)
            if (on[e]) pick[j] = e, w[j++] = s[e];
        for (j = 0; j < r->topk; j++) sum += w[j];
        if (r->kind == ROUTE_SIGMOID) sum += 1e-20f;
        for (j = 0; j < r->topk; j++) w[j] = (r->renorm ? w[j] / sum : w[j]) * r->factor;
    }
}
void cpu_route(Dev *d, const Route *r) {
    CPU_CALL(d, r->logits.rows, (double)r->logits.cols * (r->topk + 2), route_rows, *r, writes(r->pick),
             writes(r->weight), reads(r->logits));
}

typedef struct {
    Tensor dl, dw;
    Route r;
} RouteBack;
static void route_bwd_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const RouteBack *b = arg;
    const Route *r = &b->r;
    int64_t E = r->logits.cols;
    float *s = work;
    for (int64_t row = r0; row < r1; row++) {
        float *dl = f32_row(b->dl, row), sum = 0, dot = 0;
        const float *q = f32_row(b->dw, row);
        const int32_t *pick = i32_row(r->pick, row);
        scores(s, r, row, k);
        for (int j = 0; j < r->topk; j++) sum += s[pick[j]];
        if (r->kind == ROUTE_SIGMOID) sum += 1e-20f;
        float over = r->renorm ? sum : 1;
        for (int j = 0; j < r->topk; j++) dot = fmaf(s[pick[j]] / over, q[j] * r->factor, dot);
        memset(dl, 0, (size_t)E * 4);
        if (r->kind == ROUTE_SOFTMAX && !r->renorm) /* every logit is in the sum below the softmax */
            for (int64_t e = 0; e < E; e++) dl[e] = -(s[e] * dot);
        for (int j = 0; j < r->topk; j++) {
            int e = pick[j];
            float n = s[e] / over, g = q[j] * r->factor;
            if (r->kind == ROUTE_SOFTMAX) dl[e] = n * (g - dot);
            else dl[e] = (r->renorm ? (g - dot) / over : g) * (s[e] * (1.0f - s[e]));
        }
    }
}
void cpu_route_bwd(Dev *d, Tensor dlogits, Tensor dweight, const Route *r) {
    RouteBack b = { dlogits, dweight, *r };
    CPU_CALL(d, r->logits.rows, (double)r->logits.cols * 4, route_bwd_rows, b, writes(dlogits), reads(dweight),
             reads(r->logits), reads(r->pick));
}

/* Rows sorted by expert, tokens ascending within one: counting sort, which is stable. */
void cpu_moe_sort(Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int experts) {
    int32_t *a = at.data, *f = from.data;
    (void)d;
    memset(a, 0, (size_t)(experts + 1) * 4);
    for (int64_t t = 0; t < pick.rows; t++)
        for (int64_t j = 0; j < pick.cols; j++) {
            int32_t e = i32_row(pick, t)[j];
            CHECK(e >= 0 && e < experts, "token %ld chose expert %d of %d", (long)t, e, experts);
            a[e + 1]++;
        }
    for (int e = 0; e < experts; e++) a[e + 1] += a[e];
    for (int64_t t = 0; t < pick.rows; t++) /* a[e] runs to the end of expert e ... */
        for (int64_t j = 0; j < pick.cols; j++) {
            int32_t s = a[i32_row(pick, t)[j]]++;
            f[s] = (int32_t)t, i32_row(slot, t)[j] = s;
        }
    memmove(a + 1, a, (size_t)experts * 4); /* ... which is the start of the next */
    a[0] = 0;
}

/* ---- rows to experts and back */
typedef struct {
    Tensor y, x, ix, w, z, dw;
} Rows;
static int64_t index_at(int64_t i, int64_t rows) {
    CHECK(i >= 0 && i < rows, "row %ld of %ld", (long)i, (long)rows);
    return i;
}
static void permute_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Rows *p = arg;
    (void)k, (void)work;
    for (int64_t r = r0; r < r1; r++)
        memcpy(f32_row(p->y, r), f32_row(p->x, index_at(((const int32_t *)p->ix.data)[r], p->x.rows)),
               (size_t)p->y.cols * 4);
}
void cpu_permute(Dev *d, Tensor y, Tensor x, Tensor from) {
    Rows p = { .y = y, .x = x, .ix = from };
    CPU_CALL(d, y.rows, (double)y.cols / 4, permute_rows, p, writes(y), reads_any(x), reads(from));
}
static void permute_bwd_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Rows *p = arg;
    (void)work;
    for (int64_t t = r0; t < r1; t++) {
        float *dx = f32_row(p->y, t);
        memset(dx, 0, (size_t)p->y.cols * 4);
        for (int64_t j = 0; j < p->ix.cols; j++)
            k->add(dx, dx, f32_row(p->x, index_at(i32_row(p->ix, t)[j], p->x.rows)), p->y.cols);
    }
}
void cpu_permute_bwd(Dev *d, Tensor dx, Tensor dy, Tensor slot) {
    Rows p = { .y = dx, .x = dy, .ix = slot };
    CPU_CALL(d, dx.rows, (double)(dx.cols * slot.cols) / 4, permute_bwd_rows, p, writes(dx), reads_any(dy),
             reads(slot));
}
static void combine_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Rows *p = arg;
    (void)work;
    for (int64_t t = r0; t < r1; t++) {
        float *y = f32_row(p->y, t);
        memset(y, 0, (size_t)p->y.cols * 4);
        for (int64_t j = 0; j < p->ix.cols; j++)
            k->axpy(y, f32_row(p->w, t)[j], f32_row(p->x, index_at(i32_row(p->ix, t)[j], p->x.rows)), p->y.cols);
    }
}
void cpu_combine(Dev *d, Tensor y, Tensor rows, Tensor slot, Tensor weight) {
    Rows p = { .y = y, .x = rows, .ix = slot, .w = weight };
    CPU_CALL(d, y.rows, (double)(y.cols * slot.cols) / 4, combine_rows, p, writes(y), reads_any(rows), reads(slot),
             reads(weight));
}
static void combine_bwd_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Rows *p = arg;
    (void)work;
    for (int64_t t = r0; t < r1; t++)
        for (int64_t j = 0; j < p->ix.cols; j++) {
            int64_t s = index_at(i32_row(p->ix, t)[j], p->x.rows);
            const float *dy = f32_row(p->z, t);
            float w = f32_row(p->w, t)[j];
            f32_row(p->dw, t)[j] = k->dot(dy, f32_row(p->x, s), p->x.cols);
            k->scale(f32_row(p->y, s), dy, p->x.cols, w);
        }
}
void cpu_combine_bwd(Dev *d, Tensor drows, Tensor dweight, Tensor dy, Tensor rows, Tensor slot, Tensor weight) {
    Rows p = { .y = drows, .x = rows, .ix = slot, .w = weight, .z = dy, .dw = dweight };
    Touch back = reads_any(drows); /* each row of it is written by one token, anywhere */
    back.writes = true;
    CPU_CALL(d, dy.rows, (double)(dy.cols * slot.cols) / 2, combine_bwd_rows, p, back, writes(dweight), reads(dy),
             reads_any(rows), reads(slot), reads(weight));
}
static void scatter_piece(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Rows *p = arg;
    (void)k, (void)work;
    for (int64_t r = r0; r < r1; r++)
        memcpy(f32_row(p->x, index_at(((const int32_t *)p->ix.data)[r], p->x.rows)), f32_row(p->y, r),
               (size_t)p->y.cols * 4);
}
void cpu_scatter_rows(Dev *d, Tensor x, Tensor y, Tensor from) {
    Rows p = { .y = y, .x = x, .ix = from };
    cpu_zero(d, x);
    cpu_rows(d, y.rows, (double)y.cols / 4, scatter_piece, &p);
}
