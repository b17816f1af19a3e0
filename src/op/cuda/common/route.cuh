/* route.cuh - choosing experts: a warp to a token, its scores in shared memory or, where there are not many, in
 * registers.  Ties go to the lower id; weights and sums run in ascending id, with the CPU's own steps. */
#ifndef OP_CUDA_ROUTE_CUH
#define OP_CUDA_ROUTE_CUH

#include "op/cuda/common/eights.cuh"

enum { ROUTE_WARPS = 4, ROUTE_SMEM = 48 << 10, ROUTE_MOST = 64 << 10 };
typedef struct {
    int64_t T;
    int E, topk, groups, group_topk, warps;
    bool softmax, renorm;
    float factor;
    Rows<const float> logits;
    const float *bias;
    Rows<int32_t> pick;
    Rows<float> weight, dlogits, dweight;
} Routing;

__device__ __forceinline__ float sigmoid_of(float l) {
    return 1.0f / (1.0f + exp_f(l > 88 ? -88.0f : l < -88 ? 88.0f : -l));
}
/* Every lane adds up the whole row, in order. */
__device__ __forceinline__ float sum_of(const float *s, int E) {
    float sum = 0;
    int e4 = E / 4 * 4;
#pragma unroll 8
    for (int e = 0; e < e4; e += 4) {
        float4 v = *(const float4 *)(s + e);
        sum += v.x, sum += v.y, sum += v.z, sum += v.w;
    }
    for (int e = e4; e < E; e++) sum += s[e];
    return sum;
}
/* s[E]: probabilities or sigmoids. */
__device__ static void scores(float *s, const float *l, int E, bool softmax) {
    int lane = threadIdx.x % 32;
    float m = -INFINITY, sum;
    if (!softmax) {
        for (int e = lane; e < E; e += 32) s[e] = sigmoid_of(l[e]);
        __syncwarp();
        return;
    }
    for (int e = lane; e < E; e += 32) m = fmaxf(m, l[e]);
    m = warp_max(m) + 0.0f;
    for (int e = lane; e < E; e += 32) s[e] = exp_f(l[e] - m);
    __syncwarp();
    sum = sum_of(s, E);
    __syncwarp();
    for (int e = lane; e < E; e += 32) s[e] = s[e] / sum;
    __syncwarp();
}
/* Which of n keys of a warp are the k largest; ties go to the lower index.  A lane has every 32nd, as whole numbers of
 * the same order, so that a round is two reductions of the warp: decoding waits for each of them.  Bit i: its i-th is
 * one. */
__device__ __forceinline__ unsigned key_of(float x) {
    unsigned u = __float_as_uint(x);
    return u >> 31 ? ~u : u | 1u << 31; /* 0: nobody */
}
template <int EACH> __device__ __forceinline__ unsigned top_of(unsigned (&key)[EACH], int n, int k) {
    int lane = threadIdx.x % 32;
    unsigned mine = 0;
#pragma unroll 1
    for (int j = 0; j < k; j++) {
        unsigned best = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) best = max(best, key[i]);
        best = __reduce_max_sync(0xFFFFFFFFu, best);
        int at = n;
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--)
            if (best && key[i] == best) at = lane + 32 * i;
        at = __reduce_min_sync(0xFFFFFFFFu, at);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (at == lane + 32 * i && at < n) key[i] = 0, mine |= 1u << i;
    }
    return mine;
}
/* Marks the k largest of t[0..n) in on. */
template <int EACH> __device__ static void mark_top_of(unsigned char *on, const float *t, int n, int k) {
    int lane = threadIdx.x % 32;
    unsigned key[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) key[i] = lane + 32 * i < n ? key_of(t[lane + 32 * i]) : 0;
    unsigned mine = top_of(key, n, k);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < n) on[lane + 32 * i] = mine >> i & 1;
    __syncwarp();
}
__device__ static void mark_top(unsigned char *on, float *t, int n, int k) {
    if (n <= 32) return mark_top_of<1>(on, t, n, k);
    if (n <= 128) return mark_top_of<4>(on, t, n, k);
    if (n <= 256) return mark_top_of<8>(on, t, n, k);
    int lane = threadIdx.x % 32;
    for (int e = lane; e < n; e += 32) on[e] = 0;
    __syncwarp();
    for (int j = 0; j < k; j++) {
        float best = -INFINITY;
        int at = n; /* nobody */
        for (int e = lane; e < n; e += 32)
            if (!on[e] && (at == n || t[e] > best)) best = t[e], at = e;
#pragma unroll
        for (int h = 16; h; h /= 2) {
            float b = __shfl_xor_sync(0xFFFFFFFFu, best, h);
            int a = __shfl_xor_sync(0xFFFFFFFFu, at, h);
            bool mine = at < n, take = a < n && (!mine || b > best || (!(best > b) && a < at));
            if (take) best = b, at = a;
        }
        if (lane == 0 && at < n) on[at] = 1;
        __syncwarp();
    }
}
__device__ static float two_largest(const float *t, int n) {
    float a = -INFINITY, b = -INFINITY;
    for (int i = 0; i < n; i++)
        if (t[i] > a) b = a, a = t[i];
        else if (t[i] > b) b = t[i];
    return n > 1 ? a + b : a;
}
/* per warp: s[E] t[E] best[groups] floats, on[E] open[groups] bytes */
static __host__ __device__ size_t route_bytes(int E, int groups) {
    return ((size_t)(2 * E + groups) * 4 + (size_t)(E + groups) + 15) / 16 * 16;
}

/* The same steps in registers: x[i] becomes the score of expert lane + 32 i, on[i] says which lanes' are chosen.
 * l: the token's logits; s: room for E numbers in shared memory. */
enum { CHOOSE_EACH = 4 };
static __host__ __device__ bool can_choose(const Routing &p) { return p.groups == 1 && p.E <= 32 * CHOOSE_EACH; }
__device__ __forceinline__ void choose(float (&x)[CHOOSE_EACH], unsigned (&on)[CHOOSE_EACH], const Routing &p,
                                       const float *l, float *s) {
    int lane = threadIdx.x % 32, E = p.E;
    unsigned key[CHOOSE_EACH];
    float m = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < CHOOSE_EACH; i++) x[i] = lane + 32 * i < E ? l[lane + 32 * i] : -INFINITY;
    if (p.softmax) {
#pragma unroll
        for (int i = 0; i < CHOOSE_EACH; i++) m = fmaxf(m, x[i]);
        m = warp_max(m) + 0.0f;
#pragma unroll
        for (int i = 0; i < CHOOSE_EACH; i++) {
            x[i] = exp_f(x[i] - m);
            if (lane + 32 * i < E) s[lane + 32 * i] = x[i];
        }
        __syncwarp();
        sum = sum_of(s, E);
        __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < CHOOSE_EACH; i++) {
        int e = lane + 32 * i;
        x[i] = p.softmax ? x[i] / sum : sigmoid_of(x[i]);
        key[i] = e < E ? key_of(p.bias ? x[i] + p.bias[e] : x[i]) : 0;
    }
    unsigned mine = top_of(key, E, p.topk);
#pragma unroll
    for (int i = 0; i < CHOOSE_EACH; i++) on[i] = __ballot_sync(0xFFFFFFFFu, mine >> i & 1);
}

/* What one warp has chosen is written down, in ascending ids; t: room for k numbers.  chosen: the ids once more, or
 * NULL. */
struct Taken {
    int32_t *pick, *chosen;
    float *t;
    int had;
    __device__ __forceinline__ void take(unsigned mask, int e, float score) {
        int lane = threadIdx.x % 32, at = had + __popc(mask & ((1u << lane) - 1));
        if (mask >> lane & 1) {
            pick[at] = e, t[at] = score;
            if (chosen) chosen[at] = e;
        }
        had += __popc(mask);
    }
};
__device__ __forceinline__ void weigh(const Routing &p, float *w, const float *t) {
    float sum = 0;
    __syncwarp();
#pragma unroll 1
    for (int j = 0; j < p.topk; j++) sum += t[j];
    if (!p.softmax) sum += 1e-20f;
    for (int j = threadIdx.x % 32; j < p.topk; j += 32) w[j] = (p.renorm ? t[j] / sum : t[j]) * p.factor;
}
/* By one warp; room: route_bytes of shared memory.  The first of them where can_choose. */
__device__ __forceinline__ void route_chosen(const Routing &p, int64_t row, void *room, int32_t *chosen) {
    float *s = (float *)room, x[CHOOSE_EACH];
    unsigned on[CHOOSE_EACH];
    Taken to = { p.pick.row(row), chosen, s + p.E, 0 };
    choose(x, on, p, p.logits.row(row), s);
#pragma unroll
    for (int i = 0; i < CHOOSE_EACH; i++) to.take(on[i], threadIdx.x % 32 + 32 * i, x[i]);
    weigh(p, p.weight.row(row), to.t);
}
__device__ static void route_row(const Routing &p, int64_t row, void *room, int32_t *chosen) {
    if (can_choose(p)) return route_chosen(p, row, room, chosen);
    int lane = threadIdx.x % 32, E = p.E;
    float *s = (float *)room, *t = s + E, *best = t + E;
    unsigned char *on = (unsigned char *)(best + p.groups), *open = on + E;
    scores(s, p.logits.row(row), E, p.softmax);
    for (int e = lane; e < E; e += 32) t[e] = p.bias ? s[e] + p.bias[e] : s[e];
    __syncwarp();
    if (p.groups > 1) {
        int each = E / p.groups;
        for (int g = lane; g < p.groups; g += 32) best[g] = two_largest(t + g * each, each);
        __syncwarp();
        mark_top(open, best, p.groups, p.group_topk);
        for (int e = lane; e < E; e += 32)
            if (!open[e / each]) t[e] = -INFINITY;
        __syncwarp();
    }
    mark_top(on, t, E, p.topk);
    Taken to = { p.pick.row(row), chosen, t, 0 };
    for (int e0 = 0; e0 < E; e0 += 32) {
        int e = e0 + lane;
        to.take(__ballot_sync(0xFFFFFFFFu, e < E && on[e]), e, e < E ? s[e] : 0.0f);
    }
    weigh(p, p.weight.row(row), t);
}
static Routing routing_of(const Route *r) {
    int E = (int)r->logits.cols, groups = r->groups > 1 ? r->groups : 1;
    int fit = (int)(ROUTE_SMEM / route_bytes(E, groups));
    return { r->logits.rows,
             E,
             r->topk,
             groups,
             r->group_topk,
             fit < 1             ? 1
             : fit < ROUTE_WARPS ? fit
                                 : ROUTE_WARPS,
             r->kind == ROUTE_SOFTMAX,
             r->renorm,
             r->factor,
             rows_of<const float>(r->logits),
             (const float *)r->bias.data,
             rows_of<int32_t>(r->pick),
             rows_of<float>(r->weight) };
}

#endif
