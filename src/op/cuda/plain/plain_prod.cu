/* plain_prod.cu - products of any shape, stride, alignment and type: behind every fast one stands this. bf16 x
 * bf16 goes through mma.sync in the order of gemm.cuh, with its bits; a float32 operand makes fma chains (no
 * TF32). Compiled with --fmad=false; every fused multiply-add is written. */
#include "op/cuda/common/mma.cuh"
#include "op/cuda/common/prod.h"

typedef struct {
    Prod    p;
    int64_t am, ak, bk, bn;             /* element strides of A(m,k) and B(k,n) */
    int     row_tiles;                  /* tiles of M, at most */
} Plain;

/* Tile 'y' of the rows: its expert, first row and end; false when there is none. */
DEV bool tile_rows(const Plain &q, int TM, int y, int z, int *e, int64_t *m0, int64_t *m1) {
    const Prod &p = q.p;
    *e = z;
    if (p.kind == DW) *m0 = (int64_t)y * TM, *m1 = p.M;
    else if (!p.at) *m0 = (int64_t)y * TM, *m1 = p.rows;
    else {
        int i = 0;
        for (*e = 0; *e < p.E; ++*e) {
            int n = (p.at[*e + 1] - p.at[*e] + TM - 1) / TM;
            if (y < i + n) break;
            i += n;
        }
        if (*e == p.E) return false;
        *m0 = p.at[*e] + (int64_t)(y - i) * TM, *m1 = p.at[*e + 1];
    }
    return *m0 < *m1;
}

/* Piece s is done, its sums are acc: the balanced tree, by a binary counter whose digits are registers. */
template <int N> struct Tree {
    float wait[5][N];
    __device__ __forceinline__ void put(int s, float (&acc)[N]) {
        #pragma unroll
        for (int l = 0; l < 5; l++) {
            if (!(s >> l & 1)) {
                #pragma unroll
                for (int i = 0; i < N; i++) wait[l][i] = acc[i];
                return;
            }
            #pragma unroll
            for (int i = 0; i < N; i++) acc[i] = __fadd_rn(wait[l][i], acc[i]);
        }
    }
};

DEV void put_out(const Prod &p, int e, int64_t m, int64_t n, float v) {
    const int64_t i = e * p.step_c * (p.kind == DW || !p.at) + m * p.ldc + n;
    if (p.bias) v = __fadd_rn(v, p.tbias == DT_BF16 ? load((const bf16 *)p.bias + n) : ((const float *)p.bias)[n]);
    if (p.tc == DT_BF16) store((bf16 *)p.c + i, v);
    else ((float *)p.c)[i] = v;
}

/* ---- float32: a block of 256 threads makes 16 R x 16 R sums, R x R a thread, 16 k at a time -------------------- */
template <class TA, class TB, int R>
__global__ void __launch_bounds__(256) plain_chain(const Plain q) {
    enum { T = 16 * R, BK = 16 };
    const Prod &p = q.p;
    __shared__ float as[BK][T + 1], bs[BK][T + 1];
    int e;
    int64_t m0, m1;
    if (!tile_rows(q, T, blockIdx.y, blockIdx.z, &e, &m0, &m1)) return;
    const int64_t n0 = (int64_t)blockIdx.x * T;
    const TA *a = (const TA *)p.a;
    const TB *b = (const TB *)p.b + e * p.step_b * (p.kind != DW || !p.at);
    if (!p.at) a += e * p.step_a;
    int64_t k_from = 0, k_len = p.K;
    if (p.kind == DW) k_from = p.at ? p.at[e] : 0, k_len = p.at ? p.at[e + 1] - k_from : p.rows;
    const int tid = threadIdx.x, tm = tid / 16 * R, tn = tid % 16 * R;
    float acc[R * R];
    Tree<R * R> tree;
    #pragma unroll
    for (int i = 0; i < R * R; i++) {
        const int64_t m = m0 + tm + i / R, n = n0 + tn + i % R;
        acc[i] = 0;
        if (p.kind == DW || p.add)
            if (m < m1 && n < p.N)
                acc[i] = ((const float *)p.c)[e * p.step_c * (p.kind == DW || !p.at) + m * p.ldc + n];
    }
    for (int s = 0; s < p.n_pieces; s++) {
        const int64_t k0 = p.n_pieces > 1 ? p.cut[s] : 0, k1 = p.n_pieces > 1 ? p.cut[s + 1] : k_len;
        for (int64_t kb = k0; kb < k1; kb += BK) {
            for (int i = tid; i < BK * T; i += 256) {
                const int k = q.ak == 1 ? i % BK : i / T, m = q.ak == 1 ? i / BK : i % T;
                as[k][m] = kb + k < k1 && m0 + m < m1 ? load(a + (m0 + m) * q.am + (k_from + kb + k) * q.ak) : 0;
            }
            for (int i = tid; i < BK * T; i += 256) {
                const int k = q.bk == 1 ? i % BK : i / T, n = q.bk == 1 ? i / BK : i % T;
                const int64_t kk = (p.kind == DW ? k_from : 0) + kb + k;
                bs[k][n] = kb + k < k1 && n0 + n < p.N ? load(b + kk * q.bk + (n0 + n) * q.bn) : 0;
            }
            __syncthreads();
            auto step = [&](int k) {
                float x[R], y[R];
                #pragma unroll
                for (int i = 0; i < R; i++) x[i] = as[k][tm + i], y[i] = bs[k][tn + i];
                #pragma unroll
                for (int i = 0; i < R * R; i++) acc[i] = __fmaf_rn(x[i / R], y[i % R], acc[i]);
            };
            if (k1 - kb >= BK) {
                #pragma unroll
                for (int k = 0; k < BK; k++) step(k);
            } else for (int k = 0; k < (int)(k1 - kb); k++) step(k);     /* not past the end: + 0 would turn a -0 */
            __syncthreads();
        }
        if (p.n_pieces > 1) {
            tree.put(s, acc);
            if (s + 1 < p.n_pieces)
                #pragma unroll
                for (int i = 0; i < R * R; i++) acc[i] = 0;
        }
    }
    #pragma unroll
    for (int i = 0; i < R * R; i++) {
        const int64_t m = m0 + tm + i / R, n = n0 + tn + i % R;
        if (m < m1 && n < p.N) put_out(p, e, m, n, acc[i]);
    }
}

/* ---- bf16: 64 x 64 a block, 8 warps of 32 x 16, one mma.sync per 16 k ------------------------------------------ */
__global__ void __launch_bounds__(256) plain_mma(const Plain q) {
    enum { T = 64, BK = 32, LD = BK + 8 };
    const Prod &p = q.p;
    __shared__ __align__(16) bf16 as[T][LD], bs[T][LD];
    int e;
    int64_t m0, m1;
    if (!tile_rows(q, T, blockIdx.y, blockIdx.z, &e, &m0, &m1)) return;
    const int64_t n0 = (int64_t)blockIdx.x * T;
    const bf16 *a = (const bf16 *)p.a, *b = (const bf16 *)p.b + e * p.step_b * (p.kind != DW || !p.at),
               zero = __float2bfloat16(0);
    if (!p.at) a += e * p.step_a;
    int64_t k_from = 0, k_len = p.K;
    if (p.kind == DW) k_from = p.at ? p.at[e] : 0, k_len = p.at ? p.at[e + 1] - k_from : p.rows;
    const int tid = threadIdx.x, lane = tid % 32, wm = tid / 32 % 2 * 32, wn = tid / 64 * 16;
    float acc[16];
    Tree<16> tree;
    for (int s = 0; s < p.n_pieces; s++) {
        const int64_t k0 = p.n_pieces > 1 ? p.cut[s] : 0, k1 = p.n_pieces > 1 ? p.cut[s + 1] : k_len;
        #pragma unroll
        for (int i = 0; i < 16; i++) acc[i] = 0;
        for (int64_t kb = k0; kb < k1; kb += BK) {
            for (int i = tid; i < BK * T; i += 256) {
                const int k = q.ak == 1 ? i % BK : i / T, m = q.ak == 1 ? i / BK : i % T;
                as[m][k] = kb + k < k1 && m0 + m < m1 ? a[(m0 + m) * q.am + (k_from + kb + k) * q.ak] : zero;
            }
            for (int i = tid; i < BK * T; i += 256) {
                const int k = q.bk == 1 ? i % BK : i / T, n = q.bk == 1 ? i / BK : i % T;
                const int64_t kk = (p.kind == DW ? k_from : 0) + kb + k;
                bs[n][k] = kb + k < k1 && n0 + n < p.N ? b[kk * q.bk + (n0 + n) * q.bn] : zero;
            }
            __syncthreads();
            #pragma unroll
            for (int k = 0; k < BK; k += 16) {
                if (kb + k >= k1) break;
                uint32_t fa[2][4], fb[2][2];
                const int r = lane / 4, c = k + lane % 4 * 2;
                #pragma unroll
                for (int i = 0; i < 2; i++) {
                    fa[i][0] = *(const uint32_t *)&as[wm + i * 16 + r][c],
                    fa[i][1] = *(const uint32_t *)&as[wm + i * 16 + r + 8][c];
                    fa[i][2] = *(const uint32_t *)&as[wm + i * 16 + r][c + 8];
                    fa[i][3] = *(const uint32_t *)&as[wm + i * 16 + r + 8][c + 8];
                    fb[i][0] = *(const uint32_t *)&bs[wn + i * 8 + r][c],
                    fb[i][1] = *(const uint32_t *)&bs[wn + i * 8 + r][c + 8];
                }
                #pragma unroll
                for (int i = 0; i < 4; i++)
                    mma16816(*(float(*)[4])(acc + 4 * i), fa[i / 2], fb[i % 2][0], fb[i % 2][1]);
            }
            __syncthreads();
        }
        if (p.n_pieces > 1) tree.put(s, acc);
    }
    #pragma unroll
    for (int i = 0; i < 16; i++) {
        const int64_t m = m0 + wm + i / 8 * 16 + lane / 4 + i / 2 % 2 * 8,
                      n = n0 + wn + i / 4 % 2 * 8 + lane % 4 * 2 + i % 2;
        if (m >= m1 || n >= p.N) continue;
        float v = acc[i];
        if (p.kind == DW || p.add)
            v = __fadd_rn(((const float *)p.c)[e * p.step_c * (p.kind == DW || !p.at) + m * p.ldc + n], v);
        put_out(p, e, m, n, v);
    }
}

template <class K> static void go(Dev *d, const Prod *p, K kernel, int T) {
    Plain q = { *p };
    q.am = p->kind == DW ? 1 : p->lda, q.ak = p->kind == DW ? p->lda : 1;
    q.bk = p->kind == FWD ? 1 : p->ldb, q.bn = p->kind == FWD ? p->ldb : 1;
    const bool tokens = p->kind != DW && p->at;
    const int64_t rows = p->kind == DW ? p->M : p->rows;
    const dim3 grid(blocks_of(p->N, T), blocks_of(rows, T) + (tokens ? p->E : 0), tokens ? 1 : p->E);
    CHECK(grid.y < 65536 && grid.z < 65536, "op/cuda: a plain product over %ld rows", (long)rows);
    launch(d, kernel, grid, 256, 0, q);
}
template <int R> static void chain(Dev *d, const Prod *p) {
    with_type(p->ta, [&](auto ta) {
        with_type(p->tb, [&](auto tb) {
            typedef typename decltype(ta)::type TA;
            typedef typename decltype(tb)::type TB;
            go(d, p, plain_chain<TA, TB, R>, 16 * R);
        });
    });
}
extern "C" {
void run_plain_mma(Dev *d, const Prod *p) { go(d, p, plain_mma, 64); }
void run_plain_chain_16(Dev *d, const Prod *p) { chain<1>(d, p); }
void run_plain_chain_64(Dev *d, const Prod *p) { chain<4>(d, p); }
}
