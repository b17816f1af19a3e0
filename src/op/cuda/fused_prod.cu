/* fused_prod.cu - products that do more than one op of the list (op_fused_list.h), each with the bits of its parts: gradients of weights that
 * are written instead of added to, two products added, gate and up with SwiGLU behind them.  Where rows are so few that weights are only
 * streamed, or a width does not fit gemm.cuh, the parts are done one by one. */
#include "op/cuda/eights.cuh"
#include "op/cuda/gemm_go.cuh"

extern "C" {
#include "op/op_fused.h"
}

bool cuda_linear_dw_first(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x);
bool cuda_grouped_dw_first(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex);
bool cuda_linear3(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum);
bool cuda_grouped_dx2(Dev *d, Tensor dx, Tensor part, Tensor dy1, Tensor w1, Tensor dy2, Tensor w2, Seqs ex, Leaves sum);
bool cuda_grouped_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu, Seqs ex, Leaves sum, bool keep);

/* ---- dw = ------------------------------------------------------------------------------------------------------ */
bool cuda_linear_dw_first(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    Prod p = prod_tn(dw, dy, x);
    if (!prod_fast(&p) || p.rows == 0) return false;
    p.first = true;
    prod_gemm(d, &p);
    if (db.data) cuda_zero(d, db), cuda_sum_rows(d, db, dy);
    return true;
}
/* An expert's [M,N], by blocks of its own; only where it has no rows. */
__global__ void zero_empty(float *dw, int64_t n, const int *at) {
    const int e = blockIdx.y;
    if (at[e] != at[e + 1]) return;
    for (int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 4; i < n; i += (int64_t)gridDim.x * 1024)
        *(float4 *)(dw + e * n + i) = make_float4(0, 0, 0, 0);
}
bool cuda_grouped_dw_first(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex) {
    Prod p = prod_tn(dw, dy, x);
    p.at = (const int *)ex.at.data, p.E = ex.n, p.step_c = dy.cols * dw.ld, p.first = true;
    const int64_t n = dy.cols * dw.cols;
    if (!prod_fast(&p) || p.rows == 0 || dw.ld != dw.cols || n % 4) return false;
    launch(d, zero_empty, dim3(16, (unsigned)ex.n), dim3(256), 0, (float *)dw.data, n, p.at);
    prod_gemm(d, &p);
    return true;
}

/* ---- dx = dy1 w1 + dy2 w2 --------------------------------------------------------------------------------------- */
struct alignas(64) OutSum2 {
    static constexpr int SPACE = OutBf16::SPACE;
    static constexpr bool ADD = false;
    CUtensorMap ta2, tb2;
    OutBf16     out;
    template <int N> __device__ __forceinline__ void put(float (&v)[N], const Gemm &p, const Place &t) const {
        out.put(v, p, t);
    }
};
template <> struct GemmPair<OutSum2> { static constexpr bool sum = true, beside = false; };

/* Rows of the mean expert from which on a product is one for gemm.cuh: as prod_few has it. */
static bool many(const Prod *p) { return p->rows / p->E > 16; }
static Prod by_expert(Prod p, Seqs ex, int64_t step_b) {
    p.at = (const int *)ex.at.data, p.E = ex.n, p.step_b = step_b;
    return p;
}
bool cuda_linear3(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum);
bool cuda_grouped_dx2(Dev *d, Tensor dx, Tensor part, Tensor dy1, Tensor w1, Tensor dy2, Tensor w2, Seqs ex, Leaves sum) {
    const Prod p = by_expert(prod_nn(dx, dy1, w1, sum), ex, dy1.cols * w1.ld),
               q = by_expert(prod_nn(part, dy2, w2, sum), ex, dy2.cols * w2.ld);
    if (!prod_fast(&p) || !prod_fast(&q) || !many(&p) || sum.n > 1 || dx.dtype != DT_BF16 || part.dtype != DT_BF16
        || p.N <= 128)
        return false;
    OutSum2 out;
    out.ta2 = map_of(d, q.a, q.ta, q.rows, q.K, q.lda, 1, 0, 64, 64);
    out.tb2 = map_of(d, q.b, q.tb, q.K, q.N, q.ldb, q.E, q.step_b, 64, 64);
    out.out = { (bf16 *)p.c, p.ldc, 0, { NULL, false } };
    gemm_go<DX, 256, OutSum2, false>(d, &p, out);
    return true;
}

/* ---- h = silu(x wg') * (x wu') ----------------------------------------------------------------------------------- */
struct alignas(64) OutSwiglu {
    static constexpr int SPACE = OutBf16::SPACE;
    static constexpr bool ADD = false;
    CUtensorMap tb2;
    OutBf16     h, gate, up;
    bool        keep;
    template <int N> __device__ __forceinline__ void put(float (&v)[N], const Gemm &p, const Place &t) const {
        #pragma unroll
        for (int c = 0; c < N / 64; c++) {                              /* 64 columns of each at a time */
            float g[32], u[32];
            #pragma unroll
            for (int i = 0; i < 32; i++) {
                g[i] = __bfloat162float(__float2bfloat16_rn(v[c * 32 + i]));
                u[i] = __bfloat162float(__float2bfloat16_rn(v[N / 2 + c * 32 + i]));
            }
            Place part = t;
            part.n0 += c * 64;
            if (keep) gate.put(g, p, part), up.put(u, p, part);
            #pragma unroll
            for (int i = 0; i < 32; i++) g[i] = g[i] * sigmoid_f(g[i]) * u[i];
            h.put(g, p, part);
        }
    }
};
template <> struct GemmPair<OutSwiglu> { static constexpr bool sum = false, beside = true; };

bool cuda_grouped_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu, Seqs ex, Leaves sum,
                         bool keep) {
    const Prod p = by_expert(prod_nt(gate, x, wg, TENSOR_NONE, sum), ex, gate.cols * wg.ld),
               q = by_expert(prod_nt(up, x, wu, TENSOR_NONE, sum), ex, up.cols * wu.ld);
    const Prod r = by_expert(prod_nt(h, x, wg, TENSOR_NONE, sum), ex, gate.cols * wg.ld);
    if (!prod_fast(&p) || !prod_fast(&q) || !prod_fast(&r) || !many(&p) || sum.n > 1 || h.dtype != DT_BF16
        || gate.dtype != DT_BF16 || up.dtype != DT_BF16 || p.N < 128)
        return false;
    OutSwiglu out;
    const Bias none = { NULL, false };
    out.tb2 = map_of(d, q.b, q.tb, q.N, q.K, q.ldb, q.E, q.step_b, 128, 64);
    out.h = { (bf16 *)h.data, h.ld, 0, none }, out.gate = { (bf16 *)gate.data, gate.ld, 0, none };
    out.up = { (bf16 *)up.data, up.ld, 0, none }, out.keep = keep;
    gemm_go<FWD, 256, OutSwiglu, false>(d, &p, out);
    return true;
}

/* ---- y[i] = x w[i]' ----------------------------------------------------------------------------------------------- */
/* Weights that lie one behind the other are one; its columns go to three tensors. */
bool cuda_linear3(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    Tensor all = w[0];
    if (sum.n > 1 || x.rows == 0) return false;
    for (int i = 0; i < 3; i++) {
        if (b[i].data || y[i].dtype != DT_BF16 || w[i].dtype != DT_BF16 || w[i].ld != w[0].ld) return false;
        if (i && (char *)w[i].data != (char *)all.data + (size_t)(all.rows * all.ld) * 2) return false;
        if (i) all.rows += w[i].rows;
        Prod p = prod_nt(y[i], x, w[i], TENSOR_NONE, sum);
        if (!prod_fast(&p)) return false;
    }
    Prod p = prod_nt(y[0], x, all, TENSOR_NONE, sum);
    p.N = all.rows, p.n1 = w[0].rows, p.n2 = p.n1 + w[1].rows;
    p.c1 = y[1].data, p.c2 = y[2].data, p.ldc1 = y[1].ld, p.ldc2 = y[2].ld;
    if (p.n1 % 256 || p.n2 % 256) return false;
    if (!prod_few(d, &p)) prod_gemm(d, &p);
    return true;
}

cudaError_t fused_allow(void) {
    cudaError_t e = allow_gemm<DX, 256, OutSum2, false>();
    return e ? e : allow_gemm<FWD, 256, OutSwiglu, false>();
}
