/* head.cuh - inside the head: one row's distribution in whole numbers (docs/exactness.md, rule 3), by one block of
 * threads or from leaves.
 *
 * Inside a leaf of 128 ids four lanes hold 32 logits each, as the tensor core leaves them: lane q has columns 8j +
 * 2q + b.  A lane's sums are chains over its columns ascending, then lanes 0+1, 2+3, then both.  Above leaves
 * everything is a maximum or a sum of int64, which no order can change.  A logit is float32; functions are hone's
 * own, from + - * / fma alone. */
#ifndef OP_CUDA_HEAD_CUH
#define OP_CUDA_HEAD_CUH

#include "op/cuda/cuda.h"
#include "op/cuda/ptx.cuh"

enum { LEAF = 128, HEAD_THREADS = 512 };
#define HEAD_ONE 1099511627776.0        /* 2^40 */

typedef enum { CUT_NONE, CUT_FOUND, CUT_GIVEN } Cut;
/* A row's distribution: maximum of its logits, 2^40 sum e^(l-max) and 2^40 sum (l-max) e^(l-max) over the kept set.
 * The ids found to be kept are those with mass >= qmin and (key > K, or key == K and id <= tie_last). */
typedef struct {
    float    max, inv_temp;
    int64_t  z, u, qmin;
    uint32_t key;
    int32_t  tie_last, cut, chosen, ban;
} HeadRow;
static_assert(sizeof(HeadRow) <= HEAD_STAT, "what backward needs fits into stat");

/* A column [T,1], or none. */
template <class T> struct Col {
    const T *at;
    int64_t  ld;
    __device__ __forceinline__ T get(int64_t t, T none) const { return at ? at[t * ld] : none; }
};
template <class T> static inline Col<T> col_of(Tensor x) { return { (const T *)x.data, x.ld }; }

typedef struct {
    Col<float>      inv_temp, top_p, min_p;
    Col<int>        top_k, ids, ban, greedy;
    const uint32_t *banned;             /* bits [V], or NULL */
    const uint32_t *kept;               /* bits of given sets, or NULL */
    int64_t         ld_kept, V;
    volatile Fault *fault;
} HeadIn;

/* ---- functions ------------------------------------------------------------------------------------------------- */
/* e^x, as op/cpu's: e^0 = 1 exactly, 0 below -87.3; x > 88 is not asked for. */
DEV float head_exp(float x) {
    const float big = 12582912.0f;
    float t = __fmaf_rn(x, 1.44269504f, big), n = __fsub_rn(t, big);
    float r = __fmaf_rn(n, 2.12194440e-4f, __fmaf_rn(n, -0.693359375f, x)), p = 1.9875691500e-4f;
    p = __fmaf_rn(p, r, 1.3981999507e-3f);
    p = __fmaf_rn(p, r, 8.3334519073e-3f);
    p = __fmaf_rn(p, r, 4.1665795894e-2f);
    p = __fmaf_rn(p, r, 1.6666665459e-1f);
    p = __fmaf_rn(p, r, 5.0000001201e-1f);
    p = __fmaf_rn(p, r, 1.0f);
    p = __fmaf_rn(p, r, 1.0f);
    return x < -87.33654f ? 0.0f : __int_as_float(__float_as_int(p) + (__float_as_int(t) << 23));
}
/* ln x for finite normal x > 0, as base/mathx.h's */
DEV double head_log(double x) {
    int64_t b = __double_as_longlong(x), e = (b - 0x3FE6A09E667F3BCDll) >> 52;
    const double m = __longlong_as_double(b - e * (1ll << 52)), s = (m - 1) / (m + 1), z = __dmul_rn(s, s);
    double p = 1.0 / 21;
    #pragma unroll
    for (int i = 19; i >= 3; i -= 2) p = __fma_rn(p, z, 1.0 / i);
    p = __fma_rn(__dmul_rn(p, z), s, s);
    return __fma_rn((double)e, 0.69314718055994530942, 2 * p);
}
DEV uint32_t head_key(float f) {                                /* larger float <=> larger key; -0 is +0 */
    const uint32_t u = __float_as_uint(f + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}
DEV int64_t head_mass(float l, float max) {
    return __float2ll_rn(__fmul_rn(head_exp(__fsub_rn(l, max)), (float)HEAD_ONE));
}
DEV bool head_kept(const HeadRow &r, float l, int64_t q, int64_t id) {
    const uint32_t key = head_key(l);
    return q >= r.qmin && (key > r.key || (key == r.key && id <= r.tie_last));
}
/* Logits that are not all numbers, or have no largest finite one, give no distribution: log-prob and entropy are
 * NaN, no id is drawn. */
DEV bool head_none(const HeadRow &r) { return r.z <= 0; }
DEV float head_lp(const HeadRow &r, float l) {
    return head_none(r) ? NAN : (float)((double)l - (double)r.max - head_log((double)r.z / HEAD_ONE));
}
DEV float head_ent(const HeadRow &r) {
    return head_none(r) ? NAN : (float)(head_log((double)r.z / HEAD_ONE) - (double)r.u / (double)r.z);
}
DEV bool bit_of(const uint32_t *bits, int64_t i) { return bits[i / 32] >> (i % 32) & 1; }

/* ---- leaves ---------------------------------------------------------------------------------------------------- */
typedef struct { float max, z, u; } LeafSum;
/* at(i): this lane's 32 logits of a leaf, four neighbouring lanes together; all four have the result.  Missing ids
 * are -inf. A leaf that holds a NaN or +inf has a NaN for u. */
template <class F> DEV LeafSum leaf_sum(F at) {
    float m = -INFINITY, z = 0, u = 0;
    #pragma unroll
    for (int i = 0; i < 32; i++) {
        const float l = at(i);
        m = l > m ? l : m;
        if (l != l) u = NAN;
    }
    #pragma unroll
    for (int h = 1; h <= 2; h *= 2) {
        const float o = __shfl_xor_sync(~0u, m, h);
        m = o > m ? o : m;
    }
    m = __fadd_rn(m, 0.0f);                                     /* of two zeros the positive one, whatever the order */
    if (m == INFINITY) u = NAN;
    if (m > -INFINITY) {
        #pragma unroll
        for (int i = 0; i < 32; i++) {
            const float d = __fsub_rn(at(i), m), x = head_exp(d);
            z = __fadd_rn(z, x), u = __fmaf_rn(fmaxf(d, -100.0f), x, u);      /* 0 * -inf would be NaN; x is 0 there */
        }
    }
    #pragma unroll
    for (int h = 1; h <= 2; h *= 2)
        z = __fadd_rn(z, __shfl_xor_sync(~0u, z, h)), u = __fadd_rn(u, __shfl_xor_sync(~0u, u, h));
    return { m, z, u };
}
/* A leaf's share of the row's whole numbers, given the row's maximum. */
DEV void leaf_add(int64_t *z, int64_t *u, const LeafSum &s, float max) {
    const float d = __fsub_rn(s.max, max), w = head_exp(d);
    if (w == 0) return;
    *z += __double2ll_rn((double)s.z * (double)w * HEAD_ONE);
    *u += __double2ll_rn(__fma_rn((double)d, (double)s.z, (double)s.u) * (double)w * HEAD_ONE);
}

/* ---- over a block of HEAD_THREADS ------------------------------------------------------------------------------ */
enum { HEAD_WARPS = HEAD_THREADS / 32 };
typedef struct { int64_t i[HEAD_WARPS]; float f[HEAD_WARPS]; } Reduce;
DEV int64_t block_sum(Reduce *s, int64_t x) {
    for (int h = 16; h; h /= 2) x += __shfl_xor_sync(~0u, x, h);
    __syncthreads();
    if (threadIdx.x % 32 == 0) s->i[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < HEAD_WARPS; i++) x += s->i[i];
    return x;
}
DEV int64_t block_max64(Reduce *s, int64_t x) {
    for (int h = 16; h; h /= 2) {
        const int64_t o = __shfl_xor_sync(~0u, x, h);
        x = o > x ? o : x;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) s->i[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < HEAD_WARPS; i++) x = s->i[i] > x ? s->i[i] : x;
    return x;
}
/* NaN if there is one, so that it is seen. */
DEV float block_max(Reduce *s, float x) {
    for (int h = 16; h; h /= 2) {
        const float o = __shfl_xor_sync(~0u, x, h);
        x = o > x || o != o ? o : x;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) s->f[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < HEAD_WARPS; i++) x = s->f[i] > x || s->f[i] != s->f[i] ? s->f[i] : x;
    return __fadd_rn(x, 0.0f);
}

typedef struct { int top_k; float top_p, min_p; } Trunc;
DEV Trunc head_trunc(const HeadIn &a, int64_t t) {
    return { a.top_k.get(t, 0), a.top_p.get(t, 1.0f), a.min_p.get(t, 0.0f) };
}
DEV bool trunc_off(const Trunc &t) { return t.top_k <= 0 && t.top_p >= 1 && t.min_p <= 0; }

typedef struct { uint32_t key; int64_t ties, all, mass; bool whole; } Prefix;
typedef struct {
    Reduce  red;
    int     count[256];
    unsigned long long mass[256];
    Prefix  p;
    int64_t n_above, m_above;
    HeadRow row;
    int64_t at;
    int     id;
} HeadShared;

/* The shortest prefix, in the order (logit descending, id ascending), of the ids with l >= low and mass >= qmin,
 * that has >= want ids (by_count) or >= want mass: found by four histograms of a byte each.  whole: it ends before
 * those ids do. */
DEV Prefix prefix_at(HeadShared *s, const float *l, int64_t V, float max, int64_t qmin, float low, bool by_count,
                     int64_t want) {
    uint32_t prefix = 0;
    bool whole = true;
    __syncthreads();
    if (threadIdx.x == 0) s->n_above = s->m_above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += HEAD_THREADS) s->count[i] = 0, s->mass[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < V; i += HEAD_THREADS) {
            const float x = l[i];
            if (!(x >= low)) continue;
            const uint32_t key = head_key(x);
            if (shift < 24 && key >> (shift + 8) != prefix) continue;
            const int64_t q = head_mass(x, max);
            if (q < qmin) continue;
            atomicAdd(&s->count[key >> shift & 255], 1);                /* whole numbers: any order */
            if (q) atomicAdd(&s->mass[key >> shift & 255], (unsigned long long)q);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int b = 255, last = -1;
            for (; b >= 0; b--) {
                if (!s->count[b]) continue;
                last = b;
                if ((by_count ? s->n_above + s->count[b] : s->m_above + (int64_t)s->mass[b]) >= want) break;
                s->n_above += s->count[b], s->m_above += (int64_t)s->mass[b];
            }
            s->p.whole = b >= 0;
            if (b < 0)
                b = last, s->n_above -= s->count[b],
                s->m_above -= (int64_t)s->mass[b]; /* fewer than wanted: take all */
            s->p.key = prefix << 8 | (uint32_t)b;
        }
        __syncthreads();
        prefix = s->p.key, whole = whole && s->p.whole;
        __syncthreads();
    }
    const int64_t n = s->count[prefix & 255], each = (int64_t)s->mass[prefix & 255] / n;
    int64_t ties = by_count ? want - s->n_above : each ? (want - s->m_above + each - 1) / each : n;
    ties = ties > n ? n : ties < 1 ? 1 : ties;
    const Prefix p = { prefix, ties, n, s->m_above + ties * each, whole };
    __syncthreads();
    return p;
}
/* The prefix of all three rules, from the ids with l >= low; whole = false when they were too few to know it. */
DEV Prefix keep_in(HeadShared *s, const float *l, int64_t V, float max, int64_t qmin, float low, Trunc t) {
    const bool all = low == -INFINITY, by_k = t.top_k > 0 && t.top_k < V;
    Prefix p = { 0, 0, 0, 0, false };
    if (by_k || all || qmin > 0) {
        p = prefix_at(s, l, V, max, qmin, low, true, by_k ? t.top_k : INT64_MAX);
        if (!p.whole && !all && qmin == 0) return p;                    /* (all that min-p keeps has l >= low) */
    } else if (t.top_p >= 1) return p;
    if (t.top_p < 1) {
        int64_t mass = p.mass;
        if (!by_k && qmin == 0) {
            mass = 0;
            for (int64_t i = threadIdx.x; i < V; i += HEAD_THREADS) mass += head_mass(l[i], max);
            mass = block_sum(&s->red, mass);
        }
        /* ceil(top_p * mass) with 32 fraction bits of top_p: 128 bits */
        const uint64_t part = (uint64_t)__double2ll_rn((t.top_p > 0 ? (double)t.top_p : 0) * 4294967296.0);
        const uint64_t lo = part * (uint64_t)mass, hi = __umul64hi(part, (uint64_t)mass);
        const uint64_t want = (hi << 32 | lo >> 32) + ((lo & 0xFFFFFFFFull) != 0);
        const Prefix p2 = prefix_at(s, l, V, max, qmin, low, false, (int64_t)want);
        if (!p2.whole && !all) return p2;
        if (p2.mass < mass || (!by_k && qmin == 0)) p = p2;
    }
    p.whole = true;
    return p;
}
/* The last of the first 'ties' ids whose key is p.key and whose mass is at least qmin. */
DEV int32_t last_tie(HeadShared *s, const float *l, int64_t V, const Prefix &p) {
    if (p.ties >= p.all) return (int32_t)(V - 1);
    int64_t before = 0;
    if (threadIdx.x == 0) s->id = 0;
    for (int64_t i0 = 0; i0 < V && before < p.ties; i0 += HEAD_THREADS) {
        const int64_t i = i0 + threadIdx.x;
        const bool is = i < V && head_key(l[i]) == p.key;               /* equal logits have equal mass */
        const unsigned warp = __ballot_sync(~0u, is);
        __syncthreads();
        if (threadIdx.x % 32 == 0) s->red.i[threadIdx.x / 32] = __popc(warp);
        __syncthreads();
        int64_t n = before, all = before;
        for (int w = 0; w < HEAD_WARPS; w++) {
            if (w < (int)threadIdx.x / 32) n += s->red.i[w];
            all += s->red.i[w];
        }
        n += __popc(warp & (2u << threadIdx.x % 32) - 1);               /* with this one */
        if (is && n == p.ties) s->id = (int)i;
        before = all;
    }
    __syncthreads();
    return s->id;
}

/* Shaped logits l [V] of row t, the largest of which is max, NaN if there is one -> its distribution, in s->row. */
DEV void row_dist(HeadShared *s, const HeadIn &a, int64_t t, const float *l, float max, Trunc cut) {
    HeadRow r = { max, a.inv_temp.get(t, 1.0f) };
    r.ban = a.ban.get(t, 0) != 0;
    r.cut = trunc_off(cut) ? CUT_NONE : a.kept ? CUT_GIVEN : CUT_FOUND, r.key = UINT32_MAX, r.tie_last = -1;
    const int64_t V = a.V;
    const bool none = !(max > -INFINITY && max < INFINITY);
    int64_t z = 0, u = 0;
    if (none) {                                                         /* no distribution: head_none */
    } else if (trunc_off(cut)) {
        const int lane4 = threadIdx.x % 4;
        for (int64_t v0 = 0; v0 < V; v0 += HEAD_THREADS / 4 * LEAF) {   /* all threads of a warp go round together */
            const int64_t v = v0 + threadIdx.x / 4 * LEAF;
            const LeafSum sum = leaf_sum([&](int i) {
                const int64_t id = v + i / 2 * 8 + lane4 * 2 + i % 2;
                return id < V ? l[id] : -INFINITY;
            });
            if (lane4 == 0 && v < V) leaf_add(&z, &u, sum, max);
        }
    } else {
        Prefix p;
        if (!a.kept) {
            r.qmin = cut.min_p > 0 ? __double2ll_rn((cut.min_p < 1 ? (double)cut.min_p : 1) * HEAD_ONE) : 0;
            /* first among the ids near the top: all that min-p keeps, and some */
            const float width = cut.min_p > 0 && cut.min_p < 1 ? (float)(1 - head_log((double)cut.min_p)) : 12.0f;
            p = keep_in(s, l, V, max, r.qmin, __fsub_rn(max, width < 12 ? 12.0f : width), cut);
            if (!p.whole) p = keep_in(s, l, V, max, r.qmin, -INFINITY, cut);
            r.key = p.key, r.tie_last = last_tie(s, l, V, p);
        }
        for (int64_t i = threadIdx.x; i < V; i += HEAD_THREADS) {
            const float x = l[i];
            const int64_t q = head_mass(x, max);
            if (q == 0 || (!a.kept && !head_kept(r, x, q, i))) continue;
            z += q, u += __double2ll_rn((double)__fsub_rn(x, max) * (double)q);
        }
    }
    r.z = block_sum(&s->red, z), r.u = block_sum(&s->red, u);
    __syncthreads();
    if (threadIdx.x == 0) s->row = r;
    __syncthreads();
}

/* ---- on the host ----------------------------------------------------------------------------------------------- */
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t round8(int64_t n) { return (n + 7) / 8 * 8; } /* rows of logits stay 32-byte aligned */

/* A row's distribution as kernels see it.  Bans become bits in d->tmp: head_ban_bytes of it. */
HeadIn head_in(Dev *d, const Dist *p, Tensor banned, Tensor ban, int64_t V);
size_t head_ban_bytes(Tensor banned, Tensor ban, int64_t V);

#endif
