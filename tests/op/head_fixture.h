/* head_fixture.h - what the tests of the head share: kinds of distributions, and hidden rows, weights and ids
 * for them. */
#ifndef HEAD_FIXTURE_H
#define HEAD_FIXTURE_H

#include "optest.h"

enum { T = 23, H = 19, V = 413 };
typedef struct {
    float temp, top_p, min_p;
    int top_k;
    bool ties, ban, bf16;
    bool given; /* the kept sets are given: chosen() */
} Kind;
static inline bool cuts(const Kind *k) { return k->top_k > 0 || k->top_p < 1 || k->min_p > 0; }

/* Sets that no rule would keep; a row's wanted id is in it, but for one row in six. */
static inline bool chosen(const int32_t *ids, int t, int v) {
    if (v == ids[t]) return t % 6 != 2;
    return mix((uint64_t)(t * V + v) + 99) % (t % 2 ? 40 : 2) == 0;
}

typedef struct {
    Head h;
    float *x, *w;
    int32_t ids[T];
} Made;
static inline Tensor same_f(Rig *r, float x, int n, bool off) {
    float v[64];
    for (int t = 0; t < n; t++) v[t] = x;
    return off ? TENSOR_NONE : rig_put(r, DT_F32, n, 1, v);
}
static inline Dist dist_of(Rig *r, const Kind *k, int n) {
    int32_t tk[64];
    for (int t = 0; t < n; t++) tk[t] = k->top_k;
    return (Dist){ same_f(r, 1 / k->temp, n, k->temp == 1), k->top_k ? rig_put(r, DT_I32, n, 1, tk) : TENSOR_NONE,
                   same_f(r, k->top_p, n, k->top_p >= 1), same_f(r, k->min_p, n, k->min_p <= 0) };
}
static inline Made make(Rig *r, const Kind *k, int first, int n) {
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

static inline bool same(const void *a, const void *b, size_t n) { return !memcmp(a, b, n); }

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
/* clang-format on */

#endif
