/* test_head_ends.c - the head's ends: rows that have no distribution (NaN, no id left, a temperature of nothing), and a
 * vocabulary larger than a worker's scratch. */
#include "head_fixture.h"

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

/* ---- a vocabulary larger than a worker's scratch: logits are one number of h times w, so they are known here */
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

int main(int argc, char **argv) {
    optest_begin(argc, argv);
    no_row_left();
    huge_vocabulary();
    for (size_t i = 0; i < COUNT(kind); i++) broken_rows(&kind[i], i % 2);
    return test_end();
}
