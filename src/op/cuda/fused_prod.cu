/* fused_prod.cu - products that do more than one op of the list (op_fused_list.h), each with the bits of its parts: gradients of weights that
 * are written instead of added to, q, k and v in one.  Where a width does not fit gemm.cuh the parts are done one by one. */
#include "op/cuda/gemm_go.cuh"

extern "C" {
#include "op/op_fused.h"
}

bool cuda_linear_dw_first(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x);
bool cuda_grouped_dw_first(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex);
bool cuda_linear3(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum);

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
