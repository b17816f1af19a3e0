/* attn_sums.cuh - the order of sums of the fast attention kernels (docs/exactness.md), in pieces that all of them
 * share.  Every scalar step names its rounding, so contraction cannot differ between instances.
 *
 * For one query row, c = scale log2(e):
 * 1 keys in blocks of ATTN_BLOCK (MLA: MLA_BLOCK) from position 0; s = q k over columns ascending by the tensor
 *   cores, steps of 16 (MLA: slices of 64 columns in the order 8, 4..7, 0..3)
 * 2 a key behind the row's position: s = -inf.  m' = max(m, fl(c max s)); r = m', or 0 where m' = -inf
 * 3 p = ex2(fma(s, c, -r)); a = ex2(m - r): exactly 1 where the maximum stays, so a block without live keys changes
 *   nothing
 * 4 l: lane t of 4 owns keys 2t, 2t+1 mod 8; over each 32 keys a chain, the chains (0+1)+(2+3) (MLA 0+1);
 *   l = fma(l, a, sum); the lanes are added at the end of the span, (0+1)+(2+3)
 * 5 o = o a, then o += bf16(p) v over the block's keys, steps of 16 ascending
 * 6 spans of ATTN_SPAN (MLA: MLA_SPAN) keys each start from nothing; the first is copied, each further one folded
 *   in ascending order
 * 7 o (1 / L) + 0, to bf16; lse = (M + lg2 L) ln 2
 * Free: rows a tile, which rows share it, packing, pages, chunks, one CTA for all spans or one each. */
#ifndef OP_CUDA_ATTN_SUMS_CUH
#define OP_CUDA_ATTN_SUMS_CUH

#include "op/cuda/sm90/attn_mma.cuh"

#define NEG (-INFINITY)

/* maximum in units of c (an exponent of 2), sum */
struct Run {
    float m, l;
};
struct Fold {
    float a, b;
};
DEV float ref_of(float m) { return m == NEG ? 0.f : m; }
DEV Fold fold_factors(Run &t, Run s) { /* t <- t + s;  o <- fold(o_t, o_s) */
    const float m = fmaxf(t.m, s.m), r = ref_of(m);
    const Fold f = { ex2(__fsub_rn(t.m, r)), ex2(__fsub_rn(s.m, r)) };
    t.l = __fmaf_rn(s.l, f.b, __fmul_rn(t.l, f.a));
    t.m = m;
    return f;
}
DEV float fold(float ot, float os, Fold f) { return __fmaf_rn(os, f.b, __fmul_rn(ot, f.a)); }
DEV float finish(float o, float inv) { return __fadd_rn(__fmul_rn(o, inv), 0.f); } /* + 0: no negative zero */
DEV float lse_of(Run t) { return __fmul_rn(__fadd_rn(t.m, lg2(t.l)), 0.69314718055994531f); }
DEV float quad_sum(float x) {
    x = __fadd_rn(x, __shfl_xor_sync(~0u, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(~0u, x, 2));
}
DEV float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

/* Lane t of a quad gets word t of lanes 0..3. */
DEV uint4 quad_turn(uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, int t) {
    const bool odd = t & 1, hi = t & 2;
    const uint32_t x = __shfl_xor_sync(~0u, odd ? w0 : w1, 1), y = __shfl_xor_sync(~0u, odd ? w2 : w3, 1);
    const uint32_t a0 = odd ? x : w0, a1 = odd ? w1 : x, b0 = odd ? y : w2, b1 = odd ? w3 : y;
    const uint32_t u = __shfl_xor_sync(~0u, hi ? a0 : b0, 2), v = __shfl_xor_sync(~0u, hi ? a1 : b1, 2);
    return hi ? make_uint4(u, v, b0, b1) : make_uint4(a0, a1, u, v);
}

/* One block of scores as wgmma leaves them, N a thread in two rows: s -> p in place; m, l move; a[] is what o is to
 * be multiplied by. */
template <int N> DEV void softmax_block(float (&s)[N], Run (&st)[2], float (&a)[2], float c) {
    constexpr int C = N / 16; /* chains: 32 keys are 8 scores of a row, 16 of both */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float mx[4];
#pragma unroll
        for (int q = 0; q < 4; q++) mx[q] = fmaxf(s[4 * q + 2 * r], s[4 * q + 2 * r + 1]);
#pragma unroll
        for (int j = 4; j < N / 4; j++) mx[j & 3] = fmaxf(mx[j & 3], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
        /* m is kept as rounded c max: with fma(max, c, -r) a would not be exactly 1 for an unchanged maximum */
        const float m = fmaxf(st[r].m, __fmul_rn(quad_max(fmaxf(fmaxf(mx[0], mx[1]), fmaxf(mx[2], mx[3]))), c)),
                    ref = ref_of(m);
        a[r] = ex2(__fsub_rn(st[r].m, ref));
        st[r].m = m;
        float sum[C];
#pragma unroll
        for (int j = 0; j < N / 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[4 * j + 2 * r + e];
                x = ex2(__fmaf_rn(x, c, -ref));
                sum[j / 4] = j % 4 == 0 && e == 0 ? x : __fadd_rn(sum[j / 4], x);
            }
        const float low = __fadd_rn(sum[0], sum[1]);
        st[r].l = __fmaf_rn(st[r].l, a[r], C == 4 ? __fadd_rn(low, __fadd_rn(sum[C - 2], sum[C - 1])) : low);
    }
}
/* keys after the row's position; key0: of this thread's first score */
template <int N> DEV void mask_block(float (&s)[N], int key0, int last0, int last1) {
#pragma unroll
    for (int j = 0; j < N / 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int key = key0 + 8 * j + e;
            if (key > last0) s[4 * j + e] = NEG;
            if (key > last1) s[4 * j + 2 + e] = NEG;
        }
}
/* times 1 changes no bit: skipped where no row's maximum moved */
template <int N> DEV void rescale(float (&o)[N], const float (&a)[2]) {
    if (!__any_sync(~0u, a[0] != 1.f || a[1] != 1.f)) return;
#pragma unroll
    for (int i = 0; i < N; i++) o[i] = __fmul_rn(o[i], a[(i >> 1) & 1]);
}

#endif
