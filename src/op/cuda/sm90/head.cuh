/* head.cuh - inside the head: one row's distribution in whole numbers (docs/exactness.md, rule 3), by one block of
 * threads or from leaves.
 *
 * Inside a leaf of 128 ids four lanes hold 32 logits each, as the tensor core leaves them: lane q has columns 8j +
 * 2q + b.  A lane's sums are chains over its columns ascending, then lanes 0+1, 2+3, then both.  Above leaves
 * everything is a maximum or a sum of int64, which no order can change.  A logit is float32; functions are hone's
 * own, from + - * / fma alone. */
#ifndef OP_CUDA_HEAD_CUH
#define OP_CUDA_HEAD_CUH

#include "op/cuda/common/prod.h"
#include "op/cuda/sm90/ptx.cuh"

enum { LEAF = 128, HEAD_THREADS = 1024 };
#define HEAD_ONE 1099511627776.0        /* 2^40 */

typedef enum { CUT_NONE, CUT_FOUND, CUT_GIVEN } Cut;
/* A row's distribution: maximum of its logits, 2^40 sum e^(l-max) and 2^40 sum (l-max) e^(l-max) over the kept set.
 * The ids found to be kept are those with mass >= qmin and (key > K, or key == K and id <= tie_last). */
typedef struct {
    float    max, inv_temp;
    int64_t  z, u, qmin;
    uint32_t key;
    int32_t  tie_last, cut, chosen, ban, none;       /* none: 0, so that all bytes are known */
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
    int64_t         ld_kept, V;         /* ids that this call has: first .. first + V of 'all' */
    int64_t         first, all;
    volatile Fault *fault;
} HeadIn;

/* ---- functions ------------------------------------------------------------------------------------------------- */
/* e^x by the card's own 2^x: e^0 = 1 exactly, 0 below -104, NaN of NaN.  Every e^x of the head is this one, so that
 * sampler and trainer agree. */
DEV float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float head_exp(float x) { return exp2_fast(__fmul_rn(x, 1.44269504f)); }
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
DEV float key_logit(uint32_t key) { return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key); } /* the other way */
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
    for (int i = 0; i < 32; i++) m = fmaxf(m, at(i));           /* of a number and a NaN the number */
    #pragma unroll
    for (int h = 1; h <= 2; h *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, h));
    m = __fadd_rn(m, 0.0f);                                     /* of two zeros the positive one, whatever the order */
    if (m > -INFINITY) {                                        /* a NaN makes both sums one; +inf too: inf - inf */
        #pragma unroll
        for (int i = 0; i < 32; i++) {
            const float d = __fsub_rn(at(i), m), x = head_exp(d);
            z = __fadd_rn(z, x), u = __fmaf_rn(fmaxf(d, -110.0f), x, u);      /* 0 * -inf would be NaN; x is 0 there */
        }
    } else
        #pragma unroll
        for (int i = 0; i < 32; i++)
            if (at(i) != at(i)) u = NAN;
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
DEV int64_t warp_sum64(int64_t x) {
    for (int h = 16; h; h /= 2) x += __shfl_xor_sync(~0u, x, h);
    return x;
}
DEV int64_t block_sum(int64_t *part, int64_t x) {                       /* part [HEAD_WARPS], shared */
    x = warp_sum64(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum64(threadIdx.x % 32 < HEAD_WARPS ? part[threadIdx.x % 32] : 0);
}

typedef struct { int top_k; float top_p, min_p; } Trunc;
DEV Trunc head_trunc(const HeadIn &a, int64_t t) {
    return { a.top_k.get(t, 0), a.top_p.get(t, 1.0f), a.min_p.get(t, 0.0f) };
}
DEV bool trunc_off(const Trunc &t) { return t.top_k <= 0 && t.top_p >= 1 && t.min_p <= 0; }

/* A row's logits as the distribution has them: times inv_temp, -inf where banned or not given. */
typedef struct {
    const float    *raw;                /* [V], 16-byte aligned, readable to a multiple of 4 */
    const float4   *leaf;               /* [leaves]: LeafSum; .x is the largest of its ids */
    const uint32_t *ban, *given;        /* bits, or NULL */
    float           f;
    __device__ __forceinline__ float shape(float l, int64_t i) const {
        return (ban && bit_of(ban, i)) || (given && !bit_of(given, i)) ? -INFINITY : __fmul_rn(l, f);
    }
    __device__ __forceinline__ float at(int64_t i) const { return shape(raw[i], i); }
} Shaped;
DEV Shaped shaped_of(const HeadIn &a, int64_t t, const float *raw, const float4 *leaf, bool cut) {
    return { raw, leaf, a.banned && a.ban.get(t, 0) ? a.banned : NULL, a.kept && cut ? a.kept + t * a.ld_kept : NULL,
             a.inv_temp.get(t, 1.0f) };
}
/* f(logit, id) of every id with logit >= low, in any order.  A warp takes a leaf, four at a time, so that their
 * loads are on their way together; leaves that hold none are not read. */
template <class F> DEV void each_from(const Shaped &x, int64_t V, float low, F f) {
    enum { AHEAD = 4 };
    const int leaves = (int)((V + LEAF - 1) / LEAF), lane = threadIdx.x % 32;
    for (int n0 = threadIdx.x / 32; n0 < leaves; n0 += AHEAD * HEAD_WARPS) {
        bool live[AHEAD];
        float4 q[AHEAD];
        #pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int n = n0 + k * HEAD_WARPS;
            live[k] = n < leaves && (int64_t)n * LEAF + lane * 4 < V && x.leaf[n].x >= low;
        }
        #pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (live[k]) {
                const int64_t i = (int64_t)(n0 + k * HEAD_WARPS) * LEAF + lane * 4;
                const float *p = x.raw + i;                             /* behind the last id nobody wrote */
                if (i + 4 <= V) q[k] = *(const float4 *)p;
                else q[k] = make_float4(p[0], i + 1 < V ? p[1] : 0.f, i + 2 < V ? p[2] : 0.f, 0.f);
            }
        #pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (!live[k]) continue;
            const int64_t i = (int64_t)(n0 + k * HEAD_WARPS) * LEAF + lane * 4;
            const float raw[4] = { q[k].x, q[k].y, q[k].z, q[k].w };
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                if (i + j >= V) continue;
                const float l = x.shape(raw[j], i + j);
                if (l >= low) f(l, (int)(i + j));
            }
        }
    }
}

/* The kept set: the shortest prefix, in the order (logit descending, id ascending), with as many ids, or as much mass,
 * as is wanted.  Ids are counted in bins of 1/64 below the maximum, no further down than need be; then the bin in which
 * the prefix ends is looked into, by four histograms of a byte each: over a list of it in shared memory, or over the
 * row again where it is longer. */
enum { BINS = 2048, LIST = 2048 };
typedef struct { uint32_t key; int64_t ties, all, mass; int bin; } Prefix;
/* Counts and 64-bit masses by 32-bit additions, which shared memory has. */
template <int N> struct Counts {
    unsigned n[N], lo[N], hi[N];
    __device__ __forceinline__ void clear() {
        for (int i = threadIdx.x; i < N; i += HEAD_THREADS) n[i] = lo[i] = hi[i] = 0;
    }
    __device__ __forceinline__ void add(int i, int64_t q) {             /* whole numbers: any order */
        const unsigned q_lo = (unsigned)q, was = q_lo ? atomicAdd(&lo[i], q_lo) : 0;
        const unsigned up = (unsigned)(q >> 32) + (was + q_lo < was);
        if (up) atomicAdd(&hi[i], up);
        atomicAdd(&n[i], 1u);
    }
    __device__ __forceinline__ int64_t mass(int i) const { return (int64_t)((uint64_t)hi[i] << 32 | lo[i]); }
};
typedef struct {
    int64_t part[HEAD_WARPS];
    Counts<BINS> bin;
    Counts<256>  byte;
    float   l[LIST];
    int     id[LIST], n, filled;        /* bins that are counted */
    int64_t n_above, m_above;
    Prefix  p;
    int     last;
    bool    found;
} HeadShared;
DEV int bin_of(float l, float max) {
    const float d = __fmul_rn(__fsub_rn(max, l), 64.0f);
    return d < BINS - 1 ? (int)d : BINS - 1;
}
/* A logit that no id of bins before 'bin' is below: a bin lower, and what rounding may do to the difference of
 * large ones. */
DEV float bin_low(int bin, float max) {
    return bin >= BINS ? -INFINITY : __fsub_rn(max, (float)(bin + 1) * (1.0f / 64) + fabsf(max) * 0x1p-20f);
}

/* The bin in which so many ids, or so much mass, are reached; if never, the last that has ids, and 'found' is false. */
DEV void find_bin(HeadShared *s, bool by_count, int64_t want) {
    __syncthreads();
    if (threadIdx.x < 32) {                                             /* a lane has a run of bins */
        enum { RUN = BINS / 32 };
        const int b0 = threadIdx.x * RUN;
        int64_t n = 0, m = 0;
        for (int b = b0; b < b0 + RUN; b++) n += s->bin.n[b], m += s->bin.mass(b);
        int64_t up_n = n, up_m = m;
        for (int h = 1; h < 32; h *= 2) {
            const int64_t x_n = __shfl_up_sync(~0u, up_n, h), x_m = __shfl_up_sync(~0u, up_m, h);
            if (threadIdx.x >= h) up_n += x_n, up_m += x_m;
        }
        const unsigned past = __ballot_sync(~0u, (by_count ? up_n : up_m) >= want), some = __ballot_sync(~0u, n > 0);
        if (threadIdx.x == 0) s->found = false;                         /* no bin has ids yet */
        __syncwarp();
        if (threadIdx.x == (past ? __ffs(past) - 1 : 31 - __clz(some))) {
            int b = b0, last = -1;
            n = up_n - n, m = up_m - m;                                 /* above this run */
            for (; b < b0 + RUN; b++) {
                if (!s->bin.n[b]) continue;
                last = b;
                if ((by_count ? n + s->bin.n[b] : m + s->bin.mass(b)) >= want) break;
                n += s->bin.n[b], m += s->bin.mass(b);
            }
            s->found = b < b0 + RUN;
            if (!s->found) b = last, n -= s->bin.n[b], m -= s->bin.mass(b);      /* fewer than wanted: all */
            s->n_above = n, s->m_above = m, s->n = 0, s->p.bin = b, s->p.key = 0;
        }
    }
    __syncthreads();
}
DEV Prefix prefix_at(HeadShared *s, const Shaped &x, int64_t V, float max, int64_t qmin, bool by_count, int64_t want) {
    for (;;) {
        find_bin(s, by_count, want);
        const int from = s->filled, to = from < 384 ? 384 : from < 1024 ? 1024 : BINS;
        if (s->found || from == BINS) break;
        __syncthreads();
        each_from(x, V, bin_low(to, max), [&](float l, int) {
            const int b = bin_of(l, max);
            if (b < from || b >= to) return;
            const int64_t q = head_mass(l, max);
            if (q >= qmin) s->bin.add(b, q);
        });
        if (threadIdx.x == 0) s->filled = to;
    }
    const int bin = s->p.bin;
    const bool listed = s->bin.n[bin] <= LIST;
    auto in_bin = [&](auto f) {
        each_from(x, V, bin_low(bin + 1, max), [&](float l, int i) {
            if (bin_of(l, max) == bin && head_mass(l, max) >= qmin) f(l, i);
        });
    };
    auto each = [&](auto f) {                                           /* f(logit, id) of the bin's ids */
        if (!listed) in_bin(f);
        else
            for (int i = threadIdx.x; i < s->n; i += HEAD_THREADS) f(s->l[i], s->id[i]);
    };
    if (listed)
        in_bin([&](float l, int i) {                                    /* in any order: nothing depends on it */
            const int at = atomicAdd(&s->n, 1);
            s->l[at] = l, s->id[at] = i;
        });
    for (int shift = 24; shift >= 0; shift -= 8) {
        s->byte.clear();
        __syncthreads();
        const uint32_t prefix = s->p.key;
        each([&](float l, int) {
            const uint32_t key = head_key(l);
            if (shift == 24 || key >> (shift + 8) == prefix) s->byte.add(key >> shift & 255, head_mass(l, max));
        });
        __syncthreads();
        if (threadIdx.x == 0) {
            int b = 255, last = -1;
            for (; b >= 0; b--) {
                const int64_t n = s->byte.n[b], m = s->byte.mass(b);
                if (!n) continue;
                last = b;
                if ((by_count ? s->n_above + n : s->m_above + m) >= want) break;
                s->n_above += n, s->m_above += m;
            }
            if (b < 0) b = last, s->n_above -= s->byte.n[b], s->m_above -= s->byte.mass(b);
            s->p.key = prefix << 8 | (uint32_t)b;
        }
        __syncthreads();
    }
    Prefix p = s->p;
    p.all = s->byte.n[p.key & 255];
    const int64_t each_mass = s->byte.mass(p.key & 255) / p.all;
    p.ties = by_count ? want - s->n_above : each_mass ? (want - s->m_above + each_mass - 1) / each_mass : p.all;
    p.ties = p.ties > p.all ? p.all : p.ties < 1 ? 1 : p.ties;
    p.mass = s->m_above + p.ties * each_mass;
    __syncthreads();
    return p;
}
/* The prefix of all three rules: min-p by qmin, then top-k, then top-p of what these leave; 'whole' is the mass of
 * all. */
DEV Prefix keep(HeadShared *s, const Shaped &x, int64_t V, float max, int64_t qmin, Trunc t, int64_t whole) {
    const bool by_k = t.top_k > 0 && t.top_k < V;
    Prefix p = { 0, 0, 0, 0, 0 };
    s->bin.clear();
    if (threadIdx.x == 0) s->filled = 0;
    if (by_k || qmin > 0 || t.top_p >= 1) p = prefix_at(s, x, V, max, qmin, true, by_k ? t.top_k : INT64_MAX);
    if (t.top_p >= 1) return p;
    const int64_t mass = by_k || qmin > 0 ? p.mass : whole;
    /* ceil(top_p * mass) with 32 fraction bits of top_p: 128 bits */
    const uint64_t part = (uint64_t)__double2ll_rn((t.top_p > 0 ? (double)t.top_p : 0) * 4294967296.0);
    const uint64_t lo = part * (uint64_t)mass, hi = __umul64hi(part, (uint64_t)mass);
    const uint64_t want = (hi << 32 | lo >> 32) + ((lo & 0xFFFFFFFFull) != 0);
    const Prefix p2 = prefix_at(s, x, V, max, qmin, false, (int64_t)want);
    return p2.mass < mass || !(by_k || qmin > 0) ? p2 : p;
}
/* The last of the first p.ties ids whose key is p.key: the one that so many of its like do not come behind. */
DEV int32_t last_tie(HeadShared *s, const Shaped &x, int64_t V, const Prefix &p) {
    if (p.ties >= p.all) return (int32_t)(V - 1);
    int64_t before = 0;
    if (threadIdx.x == 0) s->last = 0;
    for (int64_t i0 = 0; i0 < V && before < p.ties; i0 += HEAD_THREADS) {
        const int64_t i = i0 + threadIdx.x;
        const bool is = i < V && head_key(x.at(i)) == p.key;            /* equal logits have equal mass */
        const unsigned warp = __ballot_sync(~0u, is);
        __syncthreads();
        if (threadIdx.x % 32 == 0) s->part[threadIdx.x / 32] = __popc(warp);
        __syncthreads();
        int64_t n = before, all = before;
        for (int w = 0; w < HEAD_WARPS; w++) {
            if (w < (int)threadIdx.x / 32) n += s->part[w];
            all += s->part[w];
        }
        n += __popc(warp & (2u << threadIdx.x % 32) - 1);               /* with this one */
        if (is && n == p.ties) s->last = (int)i;
        before = all;
    }
    __syncthreads();
    return s->last;
}

/* ---- on the host ----------------------------------------------------------------------------------------------- */
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t round8(int64_t n) { return (n + 7) / 8 * 8; } /* rows of logits stay 32-byte aligned */

/* A row's distribution as kernels see it.  Bans become bits in d->tmp: head_ban_bytes of it. */
HeadIn head_in(Dev *d, const Dist *p, Tensor banned, Tensor ban, int64_t V, Part vocab);
HeadIn head_of(Dev *d, const Head *h);
bool   may_cut(const Dist *p);
bool   head_keeps(const Head *h);      /* logprob leaves logits, logprob_bwd takes them */
size_t head_ban_bytes(Tensor banned, Tensor ban, int64_t V);
static inline int64_t head_words(const Head *h) { return h->vocab.of ? h->vocab.of : h->w.rows; }
/* Logits.  Of a vocabulary that is no multiple of 8 the plain kernels make them, in whole or in parts: by widths,
 * a part could be taken for faster ones that give a float32 weight other bits. */
static inline bool head_odd(int64_t words) { return words % 8 != 0; }
static inline void head_logits(Dev *d, const Prod *p, int64_t words) {
    if (head_odd(words)) prod_run_plain(d, p);
    else prod_run(d, p);
}

#endif
