/* optim.cu - AdamW and the sum of squares, on flat tensors, with the CPU's bits: the same numbers (op/adam.h), the same
 * operations, each rounded once, and the same order of the sum (op/cpu/rows.c, row.inc: row_adamw, row_sumsq). */
#include "op/adam.h"
#include "op/cuda/common/eights.cuh"

/* What rounding took from eight weights (adam.h), and the eight masters that both are. */
static __device__ __forceinline__ void load_rest8(int16_t (&rest)[8], const char *at, int64_t c, int n, bool wide) {
    const int16_t *p = (const int16_t *)at + c;
    if (wide) {
        uint4 u = *(const uint4 *)p;
        memcpy(rest, &u, 16);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) rest[i] = i < n ? p[i] : (int16_t)0;
    }
}
/* Eight numbers of 16 bits. */
static __device__ __forceinline__ void store_short8(char *at, int64_t c, int n, bool wide, const uint16_t (&h)[8]) {
    uint16_t *p = (uint16_t *)at + c;
    if (wide) {
        uint4 u;
        memcpy(&u, h, 16);
        *(uint4 *)p = u;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < n) p[i] = h[i];
    }
}

/* One pass over w, master, m, v and grad; element c of this call is number first + c of the model.  SPLIT: master holds
 * rests.  SHORT: moments in bf16.  Kernels of their own, since what one does not need costs another registers, and
 * those bandwidth (80 for 98 % of a copy's). */
template <bool SPLIT, bool SHORT>
static __global__ void adamw_k(Cells g, Any w, Any master, Any m, Any v, Any grad, AdamNow a, float c1, float c2,
                               int64_t step, int64_t first) {
    EACH_EIGHT(g, r, c) {
        float ww[8], mm[8], vv[8], gg[8];
        int n = eights_left(g.cols, c);
        load8(ww, SPLIT ? w : master, r, c, n, g.wide), load8(mm, m, r, c, n, g.wide), load8(vv, v, r, c, n, g.wide),
            load8(gg, grad, r, c, n, g.wide);
        if (SPLIT) {
            int16_t rest[8];
            load_rest8(rest, master.at, c, n, g.wide);
#pragma unroll
            for (int k = 0; k < 8; k++) ww[k] = adam_joined((uint16_t)(f32_bits(ww[k]) >> 16), rest[k]);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float x = gg[k] * a.clip;
            mm[k] = __fmaf_rn(a.beta1, mm[k], __fmul_rn(c1, x));
            vv[k] = __fmaf_rn(a.beta2, vv[k], __fmul_rn(c2, __fmul_rn(x, x)));
            float up = __fdiv_rn(__fmul_rn(a.step, mm[k]), __fadd_rn(__fsqrt_rn(__fmul_rn(vv[k], a.vfix)), a.eps));
            ww[k] = __fsub_rn(__fmul_rn(ww[k], a.shrink), up);
        }
        if (SHORT) {
            uint16_t hm[8], hv[8];
#pragma unroll
            for (int k = 0; k < 8; k++) {
                int64_t e = first + c + k;
                uint32_t chance = adam_chance(adam_key(step, e), (uint32_t)e);
                hm[k] = adam_round(mm[k], chance & 0xFFFF), hv[k] = adam_round(vv[k], chance >> 16);
            }
            store_short8(m.at, c, n, g.wide, hm), store_short8(v.at, c, n, g.wide, hv);
        } else store8(m, r, c, n, g.wide, mm), store8(v, r, c, n, g.wide, vv);
        if (SPLIT) {
            uint16_t h[8], rest[8];
#pragma unroll
            for (int k = 0; k < 8; k++) {
                AdamSplit s = adam_split(ww[k]);
                h[k] = s.rounded, rest[k] = (uint16_t)s.rest;
            }
            store_short8(w.at, c, n, g.wide, h), store_short8(master.at, c, n, g.wide, rest);
        } else {
            store8(master, r, c, n, g.wide, ww);
            if (w.at != master.at) store8(w, r, c, n, g.wide, ww);
        }
    }
}
void cuda_adamw(Dev *d, Tensor w, Tensor master, Tensor m, Tensor v, Tensor g, Adam a) {
    int64_t n = w.rows * w.cols;
    if (on_host(d, m.data)) return link_adamw(d, w, master, m, v, g, a);
    AdamNow now = adam_now(a);
    Tensor x[] = { w, master.data ? master : w, m, v, g };
    bool wide = n >= 8, split = master.data && master.dtype == DT_I16;
    for (int i = 0; i < 5; i++) wide = wide && (uintptr_t)x[i].data % 16 == 0;
    auto kernel = m.dtype == DT_BF16 ? split ? adamw_k<true, true> : adamw_k<false, true>
                  : split ? adamw_k<true, false> : adamw_k<false, false>;
    /* eights, then what is left */
    for (int64_t at = 0, body = wide ? n / 8 * 8 : 0; at < n; at += body, body = n - at, wide = false) {
        if (body == 0) continue;
        Any y[5];
        for (int i = 0; i < 5; i++) y[i] = any_of(x[i]), y[i].at += (size_t)at * dtype_size(x[i].dtype);
        Cells cells = { 1, body, wide };
        launch_cells(d, kernel, cells, y[0], y[1], y[2], y[3], y[4], now, 1.0f - a.beta1, 1.0f - a.beta2, a.step,
                     a.first + at);
    }
}

/* Pieces of SUM_PIECE numbers; in each sixteen sums, number i to sum i mod 16, then halves; pieces ascending.  Sixteen
 * threads a piece: a square is exact in double, so each addition rounds once, however it is compiled. */
enum { SUM_PIECE = 1 << 16 };
static __global__ void sumsq_k(double *part, const float *x, int64_t n, int64_t pieces) {
    int lane = threadIdx.x % 16;
    int64_t piece = (int64_t)blockIdx.x * (blockDim.x / 16) + threadIdx.x / 16, at = piece * SUM_PIECE;
    int64_t m = piece < pieces ? (n - at < SUM_PIECE ? n - at : SUM_PIECE) : 0, i = lane;
    double sum = 0;
    for (; i + 16 * 15 < m; i += 16 * 16) { /* loads first: the additions wait for one another */
        float v[16];
#pragma unroll
        for (int k = 0; k < 16; k++) v[k] = x[at + i + 16 * k];
#pragma unroll
        for (int k = 0; k < 16; k++) sum += (double)v[k] * (double)v[k];
    }
    for (; i < m; i += 16) sum += (double)x[at + i] * (double)x[at + i];
#pragma unroll
    for (int h = 8; h; h /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, h, 16);
    if (lane == 0 && piece < pieces) part[piece] = sum;
}
double cuda_sumsq(Dev *d, Tensor x) {
    static_assert(sizeof(double) * CUDA_SUMS <= RING_BYTES, "the parts come back in one piece");
    int64_t n = x.rows * x.cols, round = (int64_t)CUDA_SUMS * SUM_PIECE;
    double sum = 0;
    for (int64_t at = 0; at < n; at += round) {
        int64_t m = n - at < round ? n - at : round, pieces = (m + SUM_PIECE - 1) / SUM_PIECE;
        launch(d, sumsq_k, dim3(blocks_of(pieces, 4)), 64, 0, cu(d)->sums, (const float *)x.data + at, m, pieces);
        double *part = (double *)cu(d)->get.at;
        CU(cudaMemcpyAsync(part, cu(d)->sums, (size_t)pieces * sizeof(double), cudaMemcpyDeviceToHost, stream_of(d)));
        cuda_wait(d);
        for (int64_t i = 0; i < pieces; i++) sum += part[i];
    }
    return sum;
}
