/* test_head.c - rules 3 and 8: log-prob, entropy, truncation, gradients, drawing.  Values against double with the kept
 * set found by sorting; sample's lp and entropy are logprob's bits; every instruction set, thread count and batch. */
#include "head_fixture.h"

/* ---- in double --------------------------------------------------------------------------------------------------- */
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

/* ---- the op ------------------------------------------------------------------------------------------------------ */
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

/* lp, ent and gradients: instruction sets, threads, logits kept, one row alone, rows in two micro-batches */
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
        if (i >= 0 && i % 2) m.h.logits = rig_put_ld(&r, DT_F32, T, V, V + 3, NULL); /* kept for backward */
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
    /* clang-format off */
    static const Kind told[] = {
        { 1,     0.9f,   0,        0, false, false, false, true },
        { 0.7f,  1,      0.05f,    7, true,  true,  true,  true },
        { 0.7f,  1,      0,        0, false, false, false, true },      /* nothing is cut: the sets are not looked at */
    };
    /* clang-format on */
    parts(&kind[0]);
    parts(&kind[1]);
    for (size_t i = 0; i < COUNT(told); i++) {
        gradients(&told[i]);
        bits(&told[i]);
    }
    for (size_t i = 0; i < COUNT(kind); i++) {
        if (kind[i].top_k != 1) gradients(&kind[i]); /* with one id kept every gradient is zero */
        bits(&kind[i]);
        draws(&kind[i], false);
        draws(&kind[i], true);
        if (!kind[i].ban && kind[i].top_k != 1) frequencies(&kind[i]);
    }
    return test_end();
}
