/* test_moe.c - rule 5: choosing experts, gathering, putting back; gradients of the router by
 * differences with the choice held. */
#include "optest.h"

enum { T = 29, E = 12, K = 3 };

/* The weights of a row in double, the choice given. */
typedef struct {
    double *l;
    const int32_t *pick;
    const float *c;
    const Route *r;
} Fn;
static void weights(const Fn *f, int t, double *w) {
    double s[E], m = -1e30, z = 0, sum = 0;
    const double *l = f->l + t * E;
    bool soft = f->r->kind == ROUTE_SOFTMAX;
    for (int e = 0; e < E; e++) m = fmax(m, l[e]);
    for (int e = 0; e < E; e++) z += exp(l[e] - m);
    for (int e = 0; e < E; e++) s[e] = soft ? exp(l[e] - m) / z : 1 / (1 + exp(-l[e]));
    for (int j = 0; j < K; j++) sum += s[f->pick[t * K + j]];
    for (int j = 0; j < K; j++) w[j] = s[f->pick[t * K + j]] / (f->r->renorm ? sum : 1) * (double)f->r->factor;
}
static double loss(void *arg) {
    const Fn *f = arg;
    double w[K], sum = 0;
    for (int t = 0; t < T; t++) {
        weights(f, t, w);
        for (int j = 0; j < K; j++) sum += (double)f->c[t * K + j] * w[j];
    }
    return sum;
}

/* The choice by the book: sort by (score descending, id ascending), groups first. */
static void choose(const Route *r, const float *logit, const float *bias, int *pick) {
    double t[E];
    bool open[E], on[E] = { false };
    float z = 0, m = -INFINITY;
    for (int e = 0; e < E; e++) m = fmaxf(m, logit[e]);
    for (int e = 0; e < E; e++) z += expf(logit[e] - m);
    for (int e = 0; e < E; e++) {
        t[e] = r->kind == ROUTE_SOFTMAX ? (double)(expf(logit[e] - m) / z) : 1 / (1 + exp(-(double)logit[e]));
        t[e] += bias ? (double)bias[e] : 0;
        open[e] = true;
    }
    if (r->groups > 1) {
        int each = E / r->groups;
        for (int g = 0; g < r->groups; g++) open[g] = false;
        for (int k = 0; k < r->group_topk; k++) {
            int best = -1;
            double high = -1e30;
            for (int g = 0; g < r->groups; g++) {
                double a = -1e30, b = -1e30;
                for (int e = g * each; e < (g + 1) * each; e++)
                    if (t[e] > a) b = a, a = t[e];
                    else if (t[e] > b) b = t[e];
                if (!open[g] && a + b > high) high = a + b, best = g;
            }
            open[best] = true;
        }
        for (int e = E - 1; e >= 0; e--)
            if (!open[e / each]) t[e] = -INFINITY;
    }
    for (int k = 0; k < K; k++) {
        int best = -1;
        for (int e = 0; e < E; e++)
            if (!on[e] && (best < 0 || t[e] > t[best])) best = e;
        on[best] = true;
    }
    for (int e = 0, j = 0; e < E; e++)
        if (on[e]) pick[j++] = e;
}

static void route(RouteKind kind, bool renorm, int groups, bool bias) {
    Rig r;
    rig_open(&r, 2, ISA_BEST, 4 << 20);
    float *l = rnds(&r.m, T * E, 1 + (uint64_t)groups, 3), *b = rnds(&r.m, E, 2, 1), *c = rnds(&r.m, T * K, 3, 1);
    for (int e = 0; e < E; e++) b[e] -= 1; /* closed groups must not win by being 0 */
    Route q = {
        .kind = kind,
        .topk = K,
        .groups = groups,
        .group_topk = 2,
        .renorm = renorm,
        .factor = kind == ROUTE_SOFTMAX ? 1 : 2.5f,
        .logits = rig_put_ld(&r, DT_F32, T, E, E + 1, l),
        .bias = bias ? rig_put(&r, DT_F32, 1, E, b) : TENSOR_NONE,
        .pick = rig_put(&r, DT_I32, T, K, NULL),
        .weight = rig_put(&r, DT_F32, T, K, NULL),
    };
    op_route(&r.d, &q);
    int32_t *pick = rig_get(&r, q.pick);
    int bad = 0;
    for (int t = 0; t < T; t++) {
        int want[K];
        choose(&q, l + t * E, bias ? b : NULL, want);
        for (int j = 0; j < K; j++) bad += pick[t * K + j] != want[j];
    }
    EXPECT(bad == 0, "route kind %d, groups %d, bias %d: %d choices differ", (int)kind, groups, bias, bad);
    Fn f = { doubles(&r.m, l, T * E), pick, c, &q };
    double *w = MEM_ARRAY(&r.m, double, T *K);
    for (int t = 0; t < T; t++) weights(&f, t, w + t * K);
    EXPECT_GRAD(&r, "route's weights", (float *)rig_get(&r, q.weight), w, T * K, 1e-6);
    Tensor dl = rig_put(&r, DT_F32, T, E, NULL);
    op_route_bwd(&r.d, dl, rig_put(&r, DT_F32, T, K, c), &q);
    EXPECT_GRAD(&r, "route's logits", (float *)rig_get(&r, dl), differences(&r.m, f.l, T * E, loss, &f), T * E, 3e-6);
    rig_close(&r);
}
static void ties(void) {
    Rig r;
    rig_open(&r, 1, ISA_BEST, 4 << 20);
    float l[E] = { 0, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0 };
    Route q = { .kind = ROUTE_SOFTMAX,
                .topk = K,
                .groups = 1,
                .renorm = true,
                .factor = 1,
                .logits = rig_put(&r, DT_F32, 1, E, l),
                .pick = rig_put(&r, DT_I32, 1, K, NULL),
                .weight = rig_put(&r, DT_F32, 1, K, NULL) };
    op_route(&r.d, &q);
    int32_t *p = rig_get(&r, q.pick);
    EXPECT(p[0] == 1 && p[1] == 2 && p[2] == 3, "ties go to the lower id: %d %d %d", p[0], p[1], p[2]);
    rig_close(&r);
}

typedef struct {
    double *x, *w;
    const int32_t *slot;
    const float *c;
    int cols;
} Mix;
static double mix_loss(void *arg) { /* sum c . combine(x rows, w) */
    const Mix *f = arg;
    double l = 0;
    for (int t = 0; t < T; t++)
        for (int j = 0; j < K; j++)
            for (int i = 0; i < f->cols; i++)
                l += (double)f->c[t * f->cols + i] * f->w[t * K + j] * f->x[f->slot[t * K + j] * f->cols + i];
    return l;
}
static void experts(int threads) {
    enum { W = 21 };
    Rig r;
    rig_open(&r, threads, ISA_BEST, 4 << 20);
    int32_t pick[T * K];
    for (int t = 0; t < T; t++)
        for (int j = 0; j < K; j++)
            pick[t * K + j] = (int32_t)(mix((uint64_t)t) % 4) + 3 * j; /* some experts get nothing */
    Tensor tp = rig_put(&r, DT_I32, T, K, pick), at = rig_put(&r, DT_I32, 1, E + 1, NULL),
           from = rig_put(&r, DT_I32, T * K, 1, NULL);
    Tensor slot = rig_put(&r, DT_I32, T, K, NULL);
    op_moe_sort(&r.d, at, from, slot, tp, E);
    int32_t *a = rig_get(&r, at), *f = rig_get(&r, from), *s = rig_get(&r, slot);
    int bad = a[0] != 0 || a[E] != T * K;
    for (int e = 0; e < E; e++)
        for (int i = a[e]; i < a[e + 1]; i++) {
            int hit = 0;
            for (int j = 0; j < K; j++) hit += pick[f[i] * K + j] == e && s[f[i] * K + j] == i;
            bad += hit != 1 || (i > a[e] && f[i] < f[i - 1]);
        }
    EXPECT(bad == 0, "moe_sort: %d rows out of place", bad);

    float *x = rnds(&r.m, T * W, 1, 1), *c = rnds(&r.m, T * W, 2, 1), *w = rnds(&r.m, T * K, 3, 1);
    Tensor tx = rig_put_ld(&r, DT_F32, T, W, W + 1, x), rows = rig_put(&r, DT_F32, T * K, W, NULL),
           tc = rig_put(&r, DT_F32, T, W, c);
    Tensor tw = rig_put(&r, DT_F32, T, K, w), y = rig_put(&r, DT_F32, T, W, NULL),
           drows = rig_put(&r, DT_F32, T * K, W, NULL);
    Tensor dw = rig_put(&r, DT_F32, T, K, NULL), dx = rig_put_ld(&r, DT_F32, T, W, W + 3, NULL);
    op_permute(&r.d, rows, tx, from);
    float *gr = rig_get(&r, rows);
    for (int i = 0; i < T * K; i++) bad += memcmp(gr + i * W, x + f[i] * W, W * 4) != 0;
    EXPECT(bad == 0, "permute: %d rows differ", bad);
    op_permute_bwd(&r.d, dx, rows, slot);
    float *gx = rig_get(&r, dx);
    for (int i = 0; i < T * W; i++) bad += gx[i] != (x[i] + x[i]) + x[i];
    EXPECT(bad == 0, "permute_bwd: %d sums differ", bad);

    op_combine(&r.d, y, rows, slot, tw);
    float *gy = rig_get(&r, y);
    for (int t = 0; t < T; t++)
        for (int i = 0; i < W; i++) {
            float v = 0;
            for (int j = 0; j < K; j++) v = fmaf(w[t * K + j], x[t * W + i], v);
            bad += v != gy[t * W + i];
        }
    EXPECT(bad == 0, "combine: %d sums not in ascending order of experts", bad);
    op_combine_bwd(&r.d, drows, dw, tc, rows, slot, tw);
    Mix m = { doubles(&r.m, gr, T * K * W), doubles(&r.m, w, T * K), s, c, W };
    EXPECT_GRAD(&r, "combine's rows", (float *)rig_get(&r, drows), differences(&r.m, m.x, T * K * W, mix_loss, &m),
                T * K * W, 1e-6);
    EXPECT_GRAD(&r, "combine's weights", (float *)rig_get(&r, dw), differences(&r.m, m.w, T * K, mix_loss, &m), T * K,
                1e-6);

    int32_t to[3] = { 7, 0, 28 };
    op_scatter_rows(&r.d, y, rig_put(&r, DT_F32, 3, W, x), rig_put(&r, DT_I32, 3, 1, to));
    gy = rig_get(&r, y);
    for (int t = 0; t < T; t++)
        for (int i = 0; i < W; i++)
            bad += gy[t * W + i] != (t == 7 ? x[i] : t == 0 ? x[W + i] : t == 28 ? x[2 * W + i] : 0);
    EXPECT(bad == 0, "scatter_rows: %d values wrong", bad);
    rig_close(&r);
}

static void bits(void) {
    Rig ref;
    rig_open(&ref, 1, ISA_C, 4 << 20);
    float *l = rnds(&ref.m, T * E, 1, 3), *want = NULL;
    static const int threads[] = { 1, 2, 3, 7 };
    for (int pass = 0; pass < 2; pass++) EACH_ISA(isa)
    for (size_t i = 0; i < COUNT(threads); i++) {
        Rig r;
        rig_open(&r, threads[i], isa, 4 << 20);
        Route q = {
            .kind = pass ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
            .topk = K,
            .groups = 1,
            .renorm = true,
            .factor = 1,
            .logits = rig_put(&r, DT_F32, T, E, l),
            .pick = rig_put(&r, DT_I32, T, K, NULL),
            .weight = rig_put(&r, DT_F32, T, K, NULL),
        };
        op_route(&r.d, &q);
        float *w = rig_get(&r, q.weight);
        if (isa == ISA_C && i == 0) want = mem_copy(&ref.m, w, T * K * 4);
        EXPECT(!memcmp(w, want, T * K * 4), "route: isa %d, %d threads", isa, threads[i]);
        rig_close(&r);
    }
    rig_close(&ref);
}

int main(int argc, char **argv) {
    optest_begin(argc, argv);
    for (int renorm = 0; renorm < 2; renorm++) {
        route(ROUTE_SOFTMAX, renorm, 1, false);
        route(ROUTE_SIGMOID, renorm, 1, true);
        route(ROUTE_SIGMOID, renorm, 4, true);
        route(ROUTE_SIGMOID, renorm, 3, false);
    }
    ties();
    for (int threads = 1; threads <= 3; threads++) experts(threads);
    bits();
    return test_end();
}
