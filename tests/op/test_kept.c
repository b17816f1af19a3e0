/* test_kept.c - the kept set of a cut distribution against sorting all ids, field by field, bit for bit: flat, steep,
 * tied and broken distributions, short lists and long ones, every instruction set that is here. */
#include "op/cpu/head.h"
#include "test.h"

#include <math.h>

enum { MOST = 9000 };
typedef enum { FLAT, NARROW, WIDE, TIED, EQUAL, HOLES, FAR, PEAK, HALVES, SHAPES } Shape;
static const char *const shape_name[] = { "flat", "narrow", "wide", "tied", "equal", "holes", "far", "peak", "halves" };

static float l[MOST];
static int64_t q[MOST];
static int32_t order[MOST];
static uint64_t state = 88172645463325252u;

static double uniform(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}
static float gauss(void) { return (float)(sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform())); }

static void fill(Shape s, int V) {
    for (int v = 0; v < V; v++) {
        float x = gauss();
        l[v] = s == FLAT     ? 0.02F * x
               : s == NARROW ? 5 + 1e-6F * x
               : s == WIDE   ? 4 * x
               : s == TIED   ? roundf(x * 2) / 2
               : s == EQUAL  ? -3
               : s == HOLES  ? (v % 3 ? -INFINITY : x)
               : s == FAR    ? x * 1e30F
               : s == PEAK   ? (v == V / 2 ? 40 : x)
                             : (v % 2 ? 0.0F : -0.0F) + (float)(v % 5 == 0) * 1e-3F * x;
    }
}

static int by_logit(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    uint32_t kx = head_key(l[x]), ky = head_key(l[y]);
    return kx != ky ? (kx < ky ? 1 : -1) : x < y ? -1 : 1;
}

static int64_t whole(double x) { return (int64_t)nearbyint(x); }

/* What docs/exactness.md, rule 3, says, by sorting. */
static HeadRow sorted(const Kern *k, int V, Trunc t) {
    HeadRow r = { .max = k->max(l, V), .cut = CUT_FOUND, .key = UINT32_MAX, .tie_last = -1 };
    r.qmin = t.min_p > 0 ? whole((t.min_p < 1 ? (double)t.min_p : 1) * (double)HEAD_ONE) : 0;
    k->mass(q, l, V, r.max);
    for (int v = 0; v < V; v++) order[v] = v;
    qsort(order, (size_t)V, sizeof *order, by_logit);
    bool by_k = t.top_k > 0 && t.top_k < V;
    int n = by_k ? t.top_k : V, cut = 0;
    while (n > 1 && q[order[n - 1]] < r.qmin) n--;
    int64_t mass = 0, some = 0;
    for (int i = 0; i < n; i++) mass += q[order[i]];
    int64_t part = whole((t.top_p > 0 ? (double)t.top_p : 0) * 4294967296.0);
    __extension__ typedef __int128 i128;
    int64_t want = (int64_t)(((i128)part * mass + 4294967295) >> 32);
    while (cut < n && (cut == 0 || some < want)) some += q[order[cut++]];
    if (t.top_p < 1 && (some < mass || (!by_k && !r.qmin))) n = cut;
    r.key = head_key(l[order[n - 1]]);
    for (int i = 0; i < n; i++) {
        int32_t id = order[i];
        r.z += q[id];
        if (q[id]) r.u += whole((double)(l[id] - r.max) * (double)q[id]);
        if (head_key(l[id]) == r.key && id > r.tie_last) r.tie_last = id;
    }
    return r;
}

static void check(const Kern *k, const char *isa, Shape s, int V, Trunc t, float *work) {
    HeadRow want = sorted(k, V, t), got = { 0 };
    if (s == FAR && t.min_p <= 0 && t.top_p >= 1) return; /* all of it is kept, and most has no mass */
    head_keep(&got, k, l, V, t, work);
    bool same = got.max == want.max && got.z == want.z && got.u == want.u && got.qmin == want.qmin
                && got.key == want.key && got.tie_last == want.tie_last && got.cut == want.cut;
    EXPECT(same,
           "%s, %s, %d ids, top-k %d, top-p %g, min-p %g: key %08x, %08x; last %d, %d; z %lld, %lld; u %lld, %lld", isa,
           shape_name[s], V, t.top_k, (double)t.top_p, (double)t.min_p, got.key, want.key, got.tie_last, want.tie_last,
           (long long)got.z, (long long)want.z, (long long)got.u, (long long)want.u);
    int wrong = 0; /* drawing keeps the same ids */
    for (int i = 0; i < 20; i++) {
        int32_t id = head_pick(&got, k, l, V, (uint64_t)i * 0x0CCCCCCCCCCCCCCCu, work);
        uint32_t key = head_key(l[id]);
        wrong += !(key > want.key || (key == want.key && id <= want.tie_last));
    }
    EXPECT(!wrong, "%s, %s: %d ids drawn that are not kept", isa, shape_name[s], wrong);
}

int main(void) {
    static const struct {
        const Kern *k;
        const char *name;
    } isa[] = { { &kern_c, "c" }, { &kern_avx2, "avx2" }, { &kern_avx512, "avx512" } };
    static const int size[] = { 1, 9, 700, 4096, MOST };
    static const Trunc cut[] = { { 0, 0.9F, 0 },    { 0, 0.5F, 0 },    { 0, 1e-6F, 0 },       { 0, 0.999999F, 0 },
                                 { 50, 0.9F, 0 },   { 5000, 0.3F, 0 }, { 0, 0.9F, 0.01F },    { 0, 1, 0.05F },
                                 { 50, 1, 0 },      { 4500, 1, 0 },    { 1, 1, 0 },           { 0, 0, 0 },
                                 { 3, 0.5F, 0.5F }, { 0, 1, 1 },       { 8000, 0.99F, 1e-4F } };
    float *work = aligned_alloc(64, (size_t)CPU_WORK * 4);
    CHECK(work, "no memory for a worker's scratch");
    for (size_t i = 0; i < COUNT(isa); i++) {
        if ((i == 1 && !__builtin_cpu_supports("avx2")) || (i == 2 && !__builtin_cpu_supports("avx512f"))) {
            SKIP("%s: this processor has none", isa[i].name);
            continue;
        }
        for (int s = 0; s < SHAPES; s++)
            for (size_t n = 0; n < COUNT(size); n++) {
                fill((Shape)s, size[n]);
                for (size_t t = 0; t < COUNT(cut); t++) check(isa[i].k, isa[i].name, (Shape)s, size[n], cut[t], work);
            }
    }
    free(work);
    return test_end();
}
