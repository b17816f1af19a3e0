/* test_head.c - rules 3 and 8: log-prob, entropy, truncation, gradients, drawing.  Values against double with the kept
 * set found by sorting; sample's lp and entropy are logprob's bits; every instruction set, thread count and batch. */
#include "optest.h"

enum { T = 23, H = 19, V = 413 };
typedef struct {
    float temp, top_p, min_p;
    int top_k;
    bool ties, ban, bf16;
    bool given; /* the kept sets are given: chosen() */
} Kind;
static bool cuts(const Kind *k) { return k->top_k > 0 || k->top_p < 1 || k->min_p > 0; }

/* Sets that no rule would keep; a row's wanted id is in it, but for one row in six. */
static bool chosen(const int32_t *ids, int t, int v) {
    if (v == ids[t]) return t % 6 != 2;
    return mix((uint64_t)(t * V + v) + 99) % (t % 2 ? 40 : 2) == 0;
}

/* ---- in double
 * ------------------------------------------------------------------------------------------------------------- */
typedef struct {
    double *h, *w;
    const Kind *k;
    const int32_t *ids;
    const float *c, *e; /* loss = sum c lp + e ent */
    bool kept[T][V];    /* the set is held while differences are taken */
    int from, to;       /* rows the loss is taken of */
} Fn;
static void logits(const Fn *f, int t, double *l) {
    for (int v = 0; v < V; v++) {
        l[v] = 0;
        for (int i = 0; i < H; i++) l[v] += f->h[t * H + i] * f->w[v * H + i];
        l[v] /= (double)f->k->temp;
        if (f->k->ban && t % 2 && (v == 3 || v == 200)) l[v] = -INFINITY;
    }
}
static void keep(Fn *f, int t) {
    double l[V], z = 0, m = -INFINITY, mass = 0, all = 0;
    int order[V], n = V;
    logits(f, t, l);
    for (int v = 0; v < V; v++) order[v] = v, m = fmax(m, l[v]);
    for (int i = 1; i < V; i++) /* by logit descending, id ascending: insertion keeps ties in order */
        for (int j = i; j > 0 && l[order[j]] > l[order[j - 1]] + 1e-9; j--) {
            int x = order[j];
            order[j] = order[j - 1], order[j - 1] = x;
        }
    for (int v = 0; v < V; v++) z += exp(l[v] - m);
    (void)z;
    while (n > 1 && (exp(l[order[n - 1]] - m) < (double)f->k->min_p || (f->k->top_k > 0 && n > f->k->top_k))) n--;
    for (int i = 0; i < n; i++) all += exp(l[order[i]] - m);
    if (f->k->top_p < 1) {
        int i = 0;
        while (i < n && mass < (double)f->k->top_p * all) mass += exp(l[order[i++]] - m);
        n = i;
    }
    for (int v = 0; v < V; v++) f->kept[t][v] = f->k->given && cuts(f->k) && chosen(f->ids, t, v);
    for (int i = 0; i < n && !(f->k->given && cuts(f->k)); i++) f->kept[t][order[i]] = true;
}
static void eval(const Fn *f, int t, double *lp, double *ent) {
    double l[V], z = 0, u = 0, m = -INFINITY;
    logits(f, t, l);
    for (int v = 0; v < V; v++) m = fmax(m, f->kept[t][v] ? l[v] : -INFINITY);
    for (int v = 0; v < V; v++)
        if (f->kept[t][v] && l[v] > -INFINITY) z += exp(l[v] - m), u += (l[v] - m) * exp(l[v] - m);
    *lp = f->ids[t] < 0 ? 0 : f->kept[t][f->ids[t]] ? l[f->ids[t]] - m - log(z) : -INFINITY;
    *ent = log(z) - u / z;
}
static double loss(void *arg) {
    const Fn *f = arg;
    double s = 0;
    for (int t = f->from; t < f->to; t++) {
        double lp, ent;
        eval(f, t, &lp, &ent);
        if (lp > -INFINITY) s += (double)f->c[t] * lp;
        s += (double)f->e[t] * ent;
    }
    return s;
}

/* ---- the op
 * ------------------------------------------------------------------------------------------------------------------ */
typedef struct {
    Head h;
    float *x, *w;
    int32_t ids[T];
} Made;
static Tensor same_f(Rig *r, float x, int n, bool off) {
    float v[64];
    for (int t = 0; t < n; t++) v[t] = x;
    return off ? TENSOR_NONE : rig_put(r, DT_F32, n, 1, v);
}
static Dist dist_of(Rig *r, const Kind *k, int n) {
    int32_t tk[64];
    for (int t = 0; t < n; t++) tk[t] = k->top_k;
    return (Dist){ same_f(r, 1 / k->temp, n, k->temp == 1), k->top_k ? rig_put(r, DT_I32, n, 1, tk) : TENSOR_NONE,
                   same_f(r, k->top_p, n, k->top_p >= 1), same_f(r, k->min_p, n, k->min_p <= 0) };
}
static Made make(Rig *r, const Kind *k, int first, int n) {
    static const int32_t banned[] = { 3, 200 };
    int32_t ban[T];
    Made m = { .x = rnds(&r->m, T * H, 1, 1), .w = rnds(&r->m, V * H, 2, 2) };
    for (int t = 0; t < T; t++) m.ids[t] = t % 7 == 3 ? -1 : (int32_t)(mix((uint64_t)t + 5) % V), ban[t] = t % 2;
    if (k->ties) /* equal rows of w give equal logits */
        for (int v = 0; v < V; v++) memcpy(m.w + v * H, m.w + v % 50 * H, H * 4);
    uint16_t *w16 = bf16s(&r->m, m.w, V * H);
    for (int t = 0; t < T; t += 4) { /* some ids that every truncation keeps */
        double best = -1e30;
        for (int v = 0; v < V; v++) {
            double l = 0;
            for (int i = 0; i < H; i++) l += (double)m.x[t * H + i] * (double)m.w[v * H + i];
            if (l > best + 1e-9 && !(k->ban && (v == 3 || v == 200))) best = l, m.ids[t] = v;
        }
    }
    uint32_t sets[T][(V + 31) / 32] = { { 0 } };
    for (int t = 0; t < T; t++)
        for (int v = 0; v < V; v++) sets[t][v / 32] |= (uint32_t)chosen(m.ids, t, v) << v % 32;
    Tensor tb = rig_put(r, DT_I32, 2, 1, banned);
    m.h = (Head){
        .h = rig_put_ld(r, DT_F32, n, H, H + 3, m.x + first * H),
        .w = k->bf16 ? rig_put(r, DT_BF16, V, H, w16) : rig_put(r, DT_F32, V, H, m.w),
        .ids = rig_put(r, DT_I32, n, 1, m.ids + first),
        .dist = dist_of(r, k, n),
        .lp = rig_put(r, DT_F32, n, 1, NULL),
        .ent = rig_put(r, DT_F32, n, 1, NULL),
        .stat = rig_put(r, DT_U8, n, HEAD_STAT, NULL),
        .banned = tb,
        .ban = k->ban ? rig_put(r, DT_I32, n, 1, ban + first) : TENSOR_NONE,
        .kept = k->given ? rig_put_ld(r, DT_I32, n, kept_words(V), kept_words(V) + 2, sets[first]) : TENSOR_NONE,
    };
    return m;
}

static void gradients(const Kind *k) {
    Rig r;
    rig_open(&r, 2, ISA_BEST, 8 << 20);
    Made m = make(&r, k, 0, T);
    float *c = rnds(&r.m, T, 7, 1), *e = rnds(&r.m, T, 8, 1);
    Fn *f = MEM_NEW(&r.m, Fn);
    *f = (Fn){ .h = doubles(&r.m, m.x, T * H), .w = doubles(&r.m, m.w, V * H), .k = k, .ids = m.ids, .c = c, .e = e };
    for (int t = 0; t < T; t++) keep(f, t);
    size_t peak = r.d.tmp.peak, promised = r.d.ops->tmp.logprob(&r.d, &m.h);
    op_logprob(&r.d, &m.h);
    EXPECT(r.d.tmp.peak - peak <= promised, "logprob took %zu bytes of tmp, %zu promised", r.d.tmp.peak, promised);
    float *lp = rig_get(&r, m.h.lp), *ent = rig_get(&r, m.h.ent);
    double *wl = MEM_ARRAY(&r.m, double, T), *we = MEM_ARRAY(&r.m, double, T);
    for (int t = 0; t < T; t++) {
        eval(f, t, &wl[t], &we[t]);
        if (wl[t] > -INFINITY) continue;
        EXPECT(lp[t] == -INFINITY, "row %d: an id outside the kept set has lp %g", t, (double)lp[t]);
        lp[t] = 0, wl[t] = 0;
    }
    EXPECT_GRAD(&r, "logprob", lp, wl, T, 2e-6);
    EXPECT_GRAD(&r, "entropy", ent, we, T, 2e-6);
    float *dw0 = rnds(&r.m, V * H, 9, 0.01f);
    Tensor dh = rig_put_ld(&r, DT_F32, T, H, H + 1, NULL), dw = rig_put(&r, DT_F32, V, H, dw0);
    op_logprob_bwd(&r.d, dh, dw, rig_put(&r, DT_F32, T, 1, c), rig_put(&r, DT_F32, T, 1, e), &m.h);
    float *gw = rig_get(&r, dw);
    for (int i = 0; i < V * H; i++) gw[i] -= dw0[i];
    double *want = MEM_ARRAY(&r.m, double, T *H);
    for (int t = 0; t < T; t++) { /* a row of h is in one row's loss only */
        f->from = t, f->to = t + 1;
        memcpy(want + t * H, differences(&r.m, f->h + t * H, H, loss, f), H * sizeof(double));
    }
    EXPECT_GRAD(&r, "head's dh", (float *)rig_get(&r, dh), want, T * H, 1e-5);
    f->from = 0, f->to = T;
    int n = 5 * H; /* differences by w are slow: the first 5 ids do */
    EXPECT_GRAD(&r, "head's dw", gw, differences(&r.m, f->w, n, loss, f), n, 1e-5);
    rig_close(&r);
}

static bool same(const void *a, const void *b, size_t n) { return !memcmp(a, b, n); }

/* lp, ent and gradients: instruction sets, threads, one row alone, rows in two micro-batches */
static void bits(const Kind *k) {
    static const int threads[] = { 1, 2, 3, 7 };
    Rig ref;
    rig_open(&ref, 1, ISA_C, 8 << 20);
    float *c = rnds(&ref.m, T, 7, 1), *want[4] = { 0 };
    for (int i = -1; i < 2 * (cpu_isa_best() - ISA_C + 1); i++) {
        Rig r;
        int isa = i < 0 ? ISA_C : ISA_C + i / 2, th = i < 0 ? 1 : threads[i * 3 % 4];
        rig_open(&r, th, isa, 8 << 20);
        Made m = make(&r, k, 0, T);
        Tensor dh = rig_put(&r, DT_F32, T, H, NULL), dw = rig_put(&r, DT_F32, V, H, NULL);
        op_logprob(&r.d, &m.h);
        op_logprob_bwd(&r.d, dh, dw, rig_put(&r, DT_F32, T, 1, c), TENSOR_NONE, &m.h);
        float *got[4] = { rig_get(&r, m.h.lp), rig_get(&r, m.h.ent), rig_get(&r, dh), rig_get(&r, dw) };
        size_t n[4] = { T * 4, T * 4, T * H * 4, V * H * 4 };
        for (int j = 0; j < 4; j++) {
            if (i < 0) want[j] = mem_copy(&ref.m, got[j], n[j]);
            EXPECT(same(got[j], want[j], n[j]), "head, output %d: isa %d, %d threads", j, isa, th);
        }
        Made one = make(&r, k, 9, 1);
        op_logprob(&r.d, &one.h);
        EXPECT(same(rig_get(&r, one.h.lp), want[0] + 9, 4) && same(rig_get(&r, one.h.ent), want[1] + 9, 4),
               "head: a row alone, isa %d", isa);
        Tensor dw2 = rig_put(&r, DT_F32, V, H, NULL);
        for (int b = 0; b < 2; b++) {
            int first = b ? 5 : 0, rows = b ? T - 5 : 5;
            Made half = make(&r, k, first, rows);
            op_logprob(&r.d, &half.h);
            op_logprob_bwd(&r.d, rig_put(&r, DT_F32, rows, H, NULL), dw2, rig_put(&r, DT_F32, rows, 1, c + first),
                           TENSOR_NONE, &half.h);
        }
        EXPECT(same(rig_get(&r, dw2), want[3], n[3]), "head's dw: two micro-batches, isa %d", isa);
        rig_close(&r);
    }
    rig_close(&ref);
}

/* The sets that sample says it drew from, against sorting in double. */
static void sets_of_draws(Rig *r, const Made *m, const Kind *k, Tensor kept, bool greedy) {
    const uint32_t *set = rig_get(r, kept);
    Fn *f = MEM_NEW(&r->m, Fn);
    *f = (Fn){ .h = doubles(&r->m, m->x, T * H), .w = doubles(&r->m, m->w, V * H), .k = k, .ids = m->ids };
    int wrong = 0, beyond = 0;
    for (int t = 0; t < T; t++) {
        keep(f, t);
        for (int v = 0; v < kept_words(V) * 32; v++) {
            bool in = set[t * kept_words(V) + v / 32] >> v % 32 & 1;
            if (v >= V) beyond += in;
            else wrong += in != (greedy || !cuts(k) || f->kept[t][v]);
        }
    }
    EXPECT(!wrong && !beyond, "%d bits of the kept sets are wrong, %d lie behind the vocabulary (top-k %d, greedy %d)",
           wrong, beyond, k->top_k, greedy);
}

/* With the products done, the same bits. */
static void by_rows(Rig *r, const Sample *drawn, const Head *scored, bool greedy) {
    Sample s = *drawn;
    Head h = *scored;
    s.id = rig_put(r, DT_I32, T, 1, NULL), s.lp = rig_put(r, DT_F32, T, 1, NULL),
    s.ent = rig_put(r, DT_F32, T, 1, NULL);
    s.kept = rig_put(r, DT_I32, T, kept_words(V), NULL);
    h.lp = rig_put(r, DT_F32, T, 1, NULL), h.ent = rig_put(r, DT_F32, T, 1, NULL);
    Tensor logits = rig_put_ld(r, DT_F32, T, V, V + 5, NULL);
    op_linear(&r->d, logits, s.h, s.w, TENSOR_NONE, leaves_one(H));
    op_sample_rows(&r->d, logits, &s);
    op_linear(&r->d, logits, h.h, h.w, TENSOR_NONE, leaves_one(H));
    op_logprob_rows(&r->d, logits, &h);
    EXPECT(same(rig_get(r, s.id), rig_get(r, drawn->id), T * 4) && same(rig_get(r, s.lp), rig_get(r, drawn->lp), T * 4)
               && same(rig_get(r, s.ent), rig_get(r, drawn->ent), T * 4)
               && same(rig_get(r, s.kept), rig_get(r, drawn->kept), T * (size_t)kept_words(V) * 4),
           "sample_rows is not sample (greedy %d)", greedy);
    EXPECT(same(rig_get(r, h.lp), rig_get(r, scored->lp), T * 4)
               && same(rig_get(r, h.ent), rig_get(r, scored->ent), T * 4),
           "logprob_rows is not logprob (greedy %d)", greedy);
}

/* What sample draws, logprob scores with the same bits. */
static void draws(const Kind *k, bool greedy) {
    EACH_ISA(isa) {
        Rig r;
        rig_open(&r, 1 + isa % 3, isa, 8 << 20);
        Made m = make(&r, k, 0, T);
        int64_t u[T];
        int32_t g[T];
        for (int t = 0; t < T; t++) u[t] = (int64_t)mix((uint64_t)t + 77), g[t] = greedy;
        Sample s = {
            .h = m.h.h,
            .w = m.h.w,
            .dist = m.h.dist,
            .random = rig_put(&r, DT_I64, T, 1, u),
            .greedy = rig_put(&r, DT_I32, T, 1, g),
            .banned = m.h.banned,
            .ban = m.h.ban,
            .id = rig_put(&r, DT_I32, T, 1, NULL),
            .lp = rig_put(&r, DT_F32, T, 1, NULL),
            .ent = rig_put(&r, DT_F32, T, 1, NULL),
            .kept = rig_put_ld(&r, DT_I32, T, kept_words(V), kept_words(V) + 1, NULL),
        };
        op_sample(&r.d, &s);
        int32_t *id = rig_get(&r, s.id);
        m.h.ids = s.id;
        sets_of_draws(&r, &m, k, s.kept, greedy);
        m.h.kept = isa % 2 ? s.kept : TENSOR_NONE; /* told, or found again: the same bits */
        if (greedy) m.h.dist = (Dist){ .inv_temp = m.h.dist.inv_temp };
        op_logprob(&r.d, &m.h);
        EXPECT(same(rig_get(&r, m.h.lp), rig_get(&r, s.lp), T * 4),
               "logprob of what was drawn is not what sample said (isa %d, greedy %d)", isa, greedy);
        EXPECT(same(rig_get(&r, m.h.ent), rig_get(&r, s.ent), T * 4), "entropy of what was drawn (isa %d, greedy %d)",
               isa, greedy);
        by_rows(&r, &s, &m.h, greedy);
        for (int t = 0; t < T; t++)
            EXPECT(!k->ban || t % 2 == 0 || (id[t] != 3 && id[t] != 200), "row %d drew a banned id", t);
        if (greedy)
            for (int t = 0; t < T; t++) {
                float best = -INFINITY;
                int at = 0;
                for (int v = 0; v < V; v++) {
                    float l = 0;
                    for (int i = 0; i < H; i++) l = fmaf(m.x[t * H + i], m.w[v * H + i], l);
                    if (k->ban && t % 2 && (v == 3 || v == 200)) continue;
                    if (l > best) best = l, at = v;
                }
                EXPECT(id[t] == at, "greedy takes %d, the largest is %d", id[t], at);
            }
        rig_close(&r);
    }
}

/* Frequencies of many draws from one row against its probabilities. */
static void frequencies(const Kind *k) {
    enum { N = 20000, B = 64 };
    Rig r;
    rig_open(&r, 2, ISA_BEST, 8 << 20);
    Made m = make(&r, k, 0, 1);
    float x[B * H];
    for (int t = 0; t < B; t++) memcpy(x + t * H, m.x, H * 4);
    static Fn f;
    f = (Fn){ .h = doubles(&r.m, m.x, H), .w = doubles(&r.m, m.w, V * H), .k = k, .ids = m.ids };
    keep(&f, 0);
    double l[V], z = 0, mx = -1e300, x2 = 0;
    logits(&f, 0, l);
    for (int v = 0; v < V; v++) mx = f.kept[0][v] ? fmax(mx, l[v]) : mx;
    for (int v = 0; v < V; v++) z += f.kept[0][v] ? exp(l[v] - mx) : 0;
    static int seen[V];
    memset(seen, 0, sizeof seen);
    Sample s = { .h = rig_put(&r, DT_F32, B, H, x),
                 .w = m.h.w,
                 .dist = dist_of(&r, k, B),
                 .random = rig_put(&r, DT_I64, B, 1, NULL),
                 .id = rig_put(&r, DT_I32, B, 1, NULL),
                 .lp = rig_put(&r, DT_F32, B, 1, NULL) };
    for (int i = 0; i < N; i += B) {
        int64_t u[B];
        for (int t = 0; t < B; t++) u[t] = (int64_t)mix((uint64_t)(i + t) * 31 + 7);
        op_put(&r.d, s.random, u);
        op_sample(&r.d, &s);
        int32_t id[B];
        op_get(&r.d, id, s.id);
        for (int t = 0; t < B; t++) seen[id[t]]++;
    }
    int n = (N + B - 1) / B * B, df = -1, outside = 0;
    double rest = 0, rest_seen = 0;
    for (int v = 0; v < V; v++) {
        double want = f.kept[0][v] ? exp(l[v] - mx) / z * n : 0;
        outside += !f.kept[0][v] && seen[v];
        if (want >= 5) x2 += (seen[v] - want) * (seen[v] - want) / want, df++;
        else rest += want, rest_seen += seen[v];
    }
    if (rest >= 5) x2 += (rest_seen - rest) * (rest_seen - rest) / rest, df++;
    EXPECT(outside == 0, "%d ids outside the kept set were drawn", outside);
    EXPECT(df > 0 && x2 < df + 5 * sqrt(2.0 * df), "chi-square %.1f on %d degrees of freedom", x2, df);
    rig_close(&r);
}

/* ---- rows that have no distribution
 * ------------------------------------------------------------------------------------------- */
/* What spoils row t's hidden state, or 0: a NaN (with any payload), infinities that add up to
 * one, a logit above all. */
static bool spoilt(float *x, int t) {
    static const uint32_t how[] = { 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FC001FF, 0x7F800000, 0xFF800000 };
    if (t % 3 != 1) return false;
    x[t % H] = bits_f32(how[t / 3 % COUNT(how)]);
    return true;
}
static void broken_rows(const Kind *k, bool greedy) {
    EACH_ISA(isa) {
        Rig r;
        rig_open(&r, 1 + isa % 3, isa, 8 << 20);
        Made good = make(&r, k, 0, T), bad = make(&r, k, 0, T);
        bool is[T];
        for (int t = 0; t < T; t++) is[t] = spoilt(bad.x + t * H, t);
        op_put(&r.d, bad.h.h, bad.x);
        op_logprob(&r.d, &good.h);
        op_logprob(&r.d, &bad.h);
        float *lp[2] = { rig_get(&r, good.h.lp), rig_get(&r, bad.h.lp) };
        float *ent[2] = { rig_get(&r, good.h.ent), rig_get(&r, bad.h.ent) };
        int64_t u[T];
        int32_t g[T], *id[2];
        float *slp[2], *sent[2];
        for (int t = 0; t < T; t++) u[t] = (int64_t)mix((uint64_t)t + 77), g[t] = greedy;
        for (int i = 0; i < 2; i++) {
            const Head *h = i ? &bad.h : &good.h;
            Sample s = { .h = h->h,
                         .w = h->w,
                         .dist = h->dist,
                         .banned = h->banned,
                         .ban = h->ban,
                         .random = rig_put(&r, DT_I64, T, 1, u),
                         .greedy = rig_put(&r, DT_I32, T, 1, g),
                         .id = rig_put(&r, DT_I32, T, 1, NULL),
                         .lp = rig_put(&r, DT_F32, T, 1, NULL),
                         .ent = rig_put(&r, DT_F32, T, 1, NULL) };
            op_sample(&r.d, &s);
            id[i] = rig_get(&r, s.id), slp[i] = rig_get(&r, s.lp), sent[i] = rig_get(&r, s.ent);
        }
        for (int t = 0; t < T; t++) {
            if (!is[t]) {
                EXPECT(same(&lp[0][t], &lp[1][t], 4) && same(&ent[0][t], &ent[1][t], 4) && id[0][t] == id[1][t]
                           && same(&slp[0][t], &slp[1][t], 4) && same(&sent[0][t], &sent[1][t], 4),
                       "row %d: a row beside it is broken, and it changed (isa %d)", t, isa);
                continue;
            }
            EXPECT((isnan(lp[1][t]) || bad.ids[t] < 0) && isnan(ent[1][t]), "row %d (isa %d): scored as %g, %g", t, isa,
                   (double)lp[1][t], (double)ent[1][t]);
            EXPECT(id[1][t] == -1 && isnan(slp[1][t]) && isnan(sent[1][t]), "row %d (isa %d): drew %d with %g, %g", t,
                   isa, id[1][t], (double)slp[1][t], (double)sent[1][t]);
        }
        float *c = rnds(&r.m, T, 7, 1);
        Tensor dh[2], dlp = rig_put(&r, DT_F32, T, 1, c);
        for (int i = 0; i < 2; i++) {
            dh[i] = rig_put(&r, DT_F32, T, H, NULL);
            op_logprob_bwd(&r.d, dh[i], TENSOR_NONE, dlp, TENSOR_NONE, i ? &bad.h : &good.h);
        }
        float *gh[2] = { rig_get(&r, dh[0]), rig_get(&r, dh[1]) };
        for (int t = 0; t < T; t++)
            EXPECT(is[t] ? isnan(gh[1][t * H]) : same(gh[0] + t * H, gh[1] + t * H, H * 4),
                   "row %d (isa %d): its gradient", t, isa);
        rig_close(&r);
    }
}
/* A temperature of nothing, and a row that may not take any id. */
static void no_row_left(void) {
    enum { N = 3, W = 130 };
    EACH_ISA(isa) {
        Rig r;
        rig_open(&r, 1, isa, 1 << 20);
        int32_t every[W], ban[N] = { 1, 0, 0 }, ids[N] = { 5, 5, 5 }, top_k[N] = { 7, 7, 7 };
        float inv[N] = { 1, INFINITY, 1 }, top_p[N] = { 1, 1, 1 };
        for (int v = 0; v < W; v++) every[v] = v;
        for (int cut = 0; cut < 2; cut++) {
            Head h = { .h = rig_put(&r, DT_F32, N, H, rnds(&r.m, N * H, 1, 1)),
                       .w = rig_put(&r, DT_F32, W, H, rnds(&r.m, W * H, 2, 1)),
                       .ids = rig_put(&r, DT_I32, N, 1, ids),
                       .lp = rig_put(&r, DT_F32, N, 1, NULL),
                       .ent = rig_put(&r, DT_F32, N, 1, NULL),
                       .dist = { .inv_temp = rig_put(&r, DT_F32, N, 1, inv) },
                       .banned = rig_put(&r, DT_I32, W, 1, every),
                       .ban = rig_put(&r, DT_I32, N, 1, ban) };
            if (cut) h.dist.top_k = rig_put(&r, DT_I32, N, 1, top_k), h.dist.top_p = rig_put(&r, DT_F32, N, 1, top_p);
            op_logprob(&r.d, &h);
            float *lp = rig_get(&r, h.lp), *ent = rig_get(&r, h.ent);
            EXPECT(isnan(lp[0]) && isnan(ent[0]), "every id is banned: %g, %g", (double)lp[0], (double)ent[0]);
            EXPECT(isnan(lp[1]) && isnan(ent[1]), "a temperature of 0: %g, %g", (double)lp[1], (double)ent[1]);
            EXPECT(!isnan(lp[2]) && isfinite(ent[2]), "the row beside them: %g, %g", (double)lp[2], (double)ent[2]);
        }
        rig_close(&r);
    }
}

/* ---- a vocabulary larger than a worker's scratch: logits are one number of h times w, so they are known here
 * --------------------- */
static const float *big_logits;
static int by_logit(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    float p = big_logits[x], q = big_logits[y];
    return p > q ? -1 : p < q ? 1 : x < y ? -1 : x > y;
}
static void huge_vocabulary(void) {
    enum { W = CPU_WORK / 2 + 77, B = 4 }; /* more than one piece, for the kept set and for drawing */
    static const struct {
        int top_k;
        float top_p, min_p;
    } cut[B] = { { 50, 1, 0 }, { 0, 0.9f, 0 }, { 0, 1, 0.02f }, { W - 5, 0.999f, 1e-6f } };
    Rig r;
    rig_open(&r, 2, ISA_BEST, (size_t)W * 4 * (B + 3));
    float *w = rnds(&r.m, W, 3, 4), h[B] = { 1, 1, 1, 1 }, top_p[B], min_p[B];
    for (int v = 0; v < W; v++) w[v] = roundf(w[v] * 4096) / 4096; /* many ties */
    int32_t top_k[B], ids[B];
    int *order = MEM_ARRAY(&r.m, int, W), n[B];
    for (int v = 0; v < W; v++) order[v] = v;
    big_logits = w;
    qsort(order, W, sizeof *order, by_logit);
    double z[B], mx = (double)w[order[0]];
    for (int b = 0; b < B; b++) {
        double all = 0, part = 0;
        top_k[b] = cut[b].top_k, top_p[b] = cut[b].top_p, min_p[b] = cut[b].min_p;
        n[b] = top_k[b] ? top_k[b] : W;
        while (min_p[b] > 0 && exp((double)w[order[n[b] - 1]] - mx) < (double)min_p[b]) n[b]--;
        for (int i = 0; i < n[b]; i++) all += exp((double)w[order[i]] - mx);
        for (int i = 0; top_p[b] < 1 && i < n[b]; i++)
            if ((part += exp((double)w[order[i]] - mx)) >= (double)top_p[b] * all) n[b] = i + 1;
        z[b] = 0;
        for (int i = 0; i < n[b]; i++) z[b] += exp((double)w[order[i]] - mx);
    }
    Head p = { .h = rig_put(&r, DT_F32, B, 1, h),
               .w = rig_put(&r, DT_F32, W, 1, w),
               .ids = rig_put(&r, DT_I32, B, 1, NULL),
               .dist = { .top_k = rig_put(&r, DT_I32, B, 1, top_k),
                         .top_p = rig_put(&r, DT_F32, B, 1, top_p),
                         .min_p = rig_put(&r, DT_F32, B, 1, min_p) },
               .lp = rig_put(&r, DT_F32, B, 1, NULL),
               .ent = rig_put(&r, DT_F32, B, 1, NULL) };
    for (int at = -2; at < 2;
         at++) { /* ranks around the last that is kept; mass is rounded to 2^-40, so two ranks off is off */
        for (int b = 0; b < B; b++) ids[b] = order[n[b] + (at < 0 ? at - 1 : at + 1)];
        op_put(&r.d, p.ids, ids);
        op_logprob(&r.d, &p);
        float *lp = rig_get(&r, p.lp);
        for (int b = 0; b < B; b++) {
            double want = at < 0 ? (double)w[ids[b]] - mx - log(z[b]) : -INFINITY;
            EXPECT(at < 0 ? fabs((double)lp[b] - want) < 1e-5 : lp[b] == -INFINITY,
                   "row %d, rank %d of %d kept: %g, not %g", b, n[b] + at, n[b], (double)lp[b], want);
        }
    }
    int64_t u[B];
    Sample s = { .h = p.h,
                 .w = p.w,
                 .dist = p.dist,
                 .random = rig_put(&r, DT_I64, B, 1, NULL),
                 .id = rig_put(&r, DT_I32, B, 1, NULL),
                 .lp = rig_put(&r, DT_F32, B, 1, NULL),
                 .ent = rig_put(&r, DT_F32, B, 1, NULL) };
    s.kept = rig_put(&r, DT_I32, B, kept_words(W), NULL);
    for (int i = 0; i < 20; i++) {
        for (int b = 0; b < B; b++)
            u[b] = i ? (int64_t)mix((uint64_t)(i * B + b)) : b % 2 ? -1 : 0; /* the ends of the range too */
        op_put(&r.d, s.random, u);
        op_sample(&r.d, &s);
        p.ids = s.id, p.kept = i % 2 ? s.kept : TENSOR_NONE; /* told, or found again */
        op_logprob(&r.d, &p);
        EXPECT(same(rig_get(&r, s.lp), rig_get(&r, p.lp), B * 4) && same(rig_get(&r, s.ent), rig_get(&r, p.ent), B * 4),
               "draw %d: what was drawn is scored otherwise", i);
        int32_t *id = rig_get(&r, s.id);
        for (int b = 0; b < B; b++)
            EXPECT(id[b] >= 0 && id[b] < W && isfinite(((float *)rig_get(&r, p.lp))[b]), "draw %d: id %d", i, id[b]);
    }
    rig_close(&r);
}

/* The vocabulary in parts, one of them empty: log-probs, entropies and what backward reads have the bits of the whole;
 * gradients of the parts' rows too, and those of h add up. */
static void parts(const Kind *k) {
    static const int64_t cut[] = { 0, 128, 128, 256, V };
    enum { N = COUNT(cut) - 1 };
    Rig r;
    rig_open(&r, 2, ISA_BEST, 64 << 20);
    Made m = make(&r, k, 0, T);
    op_logprob(&r.d, &m.h);
    float *lp = rig_get(&r, m.h.lp), *ent = rig_get(&r, m.h.ent), *dlp = rnds(&r.m, T, 7, 1);
    unsigned char *stat = rig_get(&r, m.h.stat);
    Tensor dh = rig_put(&r, DT_F32, T, H, NULL), dw = rig_put(&r, DT_F32, V, H, NULL),
           tdlp = rig_put(&r, DT_F32, T, 1, dlp), part[N];
    op_logprob_bwd(&r.d, dh, dw, tdlp, tdlp, &m.h);
    float *want_dw = rig_get(&r, dw), *want_dh = rig_get(&r, dh), *sum = MEM_ARRAY(&r.m, float, T *H);
    Head end = m.h;
    end.vocab = part_whole(V), end.lp = rig_put(&r, DT_F32, T, 1, NULL), end.ent = rig_put(&r, DT_F32, T, 1, NULL);
    end.stat = rig_put(&r, DT_U8, T, HEAD_STAT, NULL);
    Head h[N];
    for (int p = 0; p < N; p++) {
        h[p] = end, h[p].vocab.first = cut[p], h[p].w = tensor_rows(m.h.w, cut[p], cut[p + 1] - cut[p]);
        part[p] = rig_put(&r, DT_F32, T, 3 * ((h[p].w.rows + 127) / 128) + 1, NULL);
        op_logprob_part(&r.d, part[p], &h[p]);
    }
    op_logprob_end(&r.d, part, N, &end);
    EXPECT(!memcmp(rig_get(&r, end.lp), lp, T * 4) && !memcmp(rig_get(&r, end.ent), ent, T * 4),
           "a vocabulary in parts has other log-probs");
    EXPECT(!memcmp(rig_get(&r, end.stat), stat, T * HEAD_STAT),
           "a vocabulary in parts leaves other numbers for backward");
    for (int p = 0; p < N; p++) {
        int64_t n = cut[p + 1] - cut[p];
        Tensor some = rig_put(&r, DT_F32, T, H, NULL), rows = rig_put(&r, DT_F32, n, H, NULL);
        op_logprob_bwd(&r.d, some, rows, tdlp, tdlp, &h[p]);
        float *got = rig_get(&r, some);
        for (int i = 0; i < T * H; i++) sum[i] += got[i];
        EXPECT(!memcmp(rig_get(&r, rows), want_dw + cut[p] * H, (size_t)(n * H) * 4), "dw of part %d", p);
    }
    EXPECT_GRAD(&r, "dh of all parts", sum, doubles(&r.m, want_dh, T * H), T * H, 1e-5);
    rig_close(&r);
}

int main(int argc, char **argv) {
    optest_begin(argc, argv);
    no_row_left();
    huge_vocabulary();
    /* clang-format off */
    static const Kind kind[] = {
        /* temp  top_p   min_p  top_k  ties   ban    bf16 */
        { 1,     1,      0,        0, false, false, false },
        { 0.7f,  1,      0,        0, false, true,  false },
        { 1,     1,      0,        7, false, false, true  },
        { 1.3f,  0.8f,   0,        0, false, false, false },
        { 1,     1,      0.05f,    0, false, false, false },
        { 0.9f,  0.9f,   0.01f,   40, false, true,  false },
        { 1,     1,      0,       20, true,  false, false },
        { 1,     0.6f,   0,        0, true,  false, false },
        { 1,     1,      0,        1, false, false, false },
        { 1,     1,      0,     1000, false, false, false },      /* more than there are: everything is kept */
        { 0.9f,  0.999f, 1e-20f,   0, false, false, false },      /* a min-p below the masses' resolution */
    };
    parts(&kind[0]);
    parts(&kind[1]);    static const Kind told[] = {
        { 1,     0.9f,   0,        0, false, false, false, true },
        { 0.7f,  1,      0.05f,    7, true,  true,  true,  true },
        { 0.7f,  1,      0,        0, false, false, false, true },      /* nothing is cut: the sets are not looked at */
    };
    /* clang-format on */
    for (size_t i = 0; i < COUNT(told); i++) {
        gradients(&told[i]);
        bits(&told[i]);
    }
    for (size_t i = 0; i < COUNT(kind); i++) {
        if (kind[i].top_k != 1) gradients(&kind[i]); /* with one id kept every gradient is zero */
        bits(&kind[i]);
        draws(&kind[i], false);
        draws(&kind[i], true);
        broken_rows(&kind[i], i % 2);
        if (!kind[i].ban && kind[i].top_k != 1) frequencies(&kind[i]);
    }
    return test_end();
}
