/* fused_prod.cu - products that do more than one op of the list (op_fused_list.h), each with the bits of its parts:
 * gradients of weights that are written instead of added to; q, k and v in one, gate and up.  Where a width does not
 * fit gemm.cuh the parts are done one by one. */
#include "op/cuda/sm90/gemm_go.cuh"

/* ---- dw = ------------------------------------------------------------------------------------------------------ */
bool cuda_linear_dw_first(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    Prod p = prod_tn(dw, dy, x);
    if (!prod_fast(&p) || p.rows == 0) return false;
    p.first = true;
    prod_run(d, &p);
    if (db.data) cuda_zero(d, db), cuda_sum_rows(d, db, dy);
    return true;
}
/* Of k and v alone each would leave half of the card idle. */
bool cuda_linear_dw2_first(Dev *d, const Tensor *dw, const Tensor *dy, Tensor x) {
    Prod p = prod_tn(dw[0], dy[0], x), q = prod_tn(dw[1], dy[1], x);
    const ptrdiff_t a = (char *)q.a - (char *)p.a, c = (char *)q.c - (char *)p.c;
    if (!prod_fast(&p) || !prod_fast(&q) || p.rows == 0 || p.M != q.M || p.lda != q.lda || p.ldc != q.ldc || a <= 0
        || c <= 0 || a % 16 || c % 16)
        return false;
    p.E = 2, p.step_a = a / 2, p.step_b = 0, p.step_c = c / 4, p.first = true;
    prod_run(d, &p);
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
    prod_run(d, &p);
    return true;
}

cudaError_t fused_allow(void) { return allow_gemm<DX, 256, OutMore, false>(); }

/* ---- dx = dy1 w1 + dy2 w2 ... as one sum, rounded once ----------------------------------------------------------- */
static CUtensorMap map_dy(const Dev *d, Tensor dy) {
    return map_of(d, dy.data, DT_BF16, dy.rows, dy.cols, dy.ld, 1, 0, 64, 64);
}
static bool more_go(Dev *d, const Prod *p, const More &more) {
    OutMore out = { { (bf16 *)p->c, p->ldc, 0, { NULL, false }, {} }, more };
    gemm_go<DX, 256, OutMore, false>(d, p, out);
    return true;
}
/* Weights that lie one behind the other are one. */
bool cuda_linear_dx3(Dev *d, Tensor dx, Tensor part, const Tensor *dy, const Tensor *w, const Leaves *sum) {
    (void)part;
    Tensor all = w[0];
    for (int i = 0; i < 3; i++) {
        const Prod p = prod_nn(dx, dy[i], w[i], sum[i]);
        if (sum[i].n > 1 || !prod_fast(&p) || dx.dtype != DT_BF16 || dy[i].cols % 64 || w[i].ld != w[0].ld)
            return false;
        if (i && (char *)w[i].data != (char *)all.data + (size_t)(all.rows * all.ld) * 2) return false;
        if (i) all.rows += w[i].rows;
    }
    if (dx.rows == 0) return false;
    Prod p = prod_nn(dx, dy[0], all, leaves_one(all.rows));
    p.K = all.rows, p.ka = dy[0].cols;
    More more = {
        { map_dy(d, dy[1]), map_dy(d, dy[2]) }, { (int)dy[0].cols, (int)(dy[0].cols + dy[1].cols) }, 0, false
    };
    return more_go(d, &p, more);
}
bool cuda_grouped_dx2(Dev *d, Tensor dx, Tensor part, Tensor dy1, Tensor w1, Tensor dy2, Tensor w2, Seqs ex,
                      Leaves sum) {
    (void)part;
    const int64_t F = dy1.cols, step = F * w1.ld;
    Prod p = prod_nn(dx, dy1, w1, sum), q = prod_nn(dx, dy2, w2, sum);
    p.at = (const int *)ex.at.data, p.E = ex.n, p.step_b = step;
    q.at = p.at, q.E = ex.n, q.step_b = step;
    if (sum.n > 1 || !prod_fast(&p) || !prod_fast(&q) || dx.dtype != DT_BF16 || F % 64 || dy2.cols != F
        || w2.ld != w1.ld || p.rows == 0)
        return false;
    const ptrdiff_t apart = ((char *)w2.data - (char *)w1.data) / 2;
    if (apart <= 0 || apart % step || apart / step > 1 << 20) return false; /* one map has both */
    p.K = 2 * F, p.ka = p.kb = F, p.E_b = (int)(apart / step) + ex.n;
    More more = { { map_dy(d, dy2), map_dy(d, dy2) }, { (int)F, -1 }, (int)(apart / step), true };
    return more_go(d, &p, more);
}

/* ---- y[i] = x w[i]' + b[i] --------------------------------------------------------------------------------------- */
/* Weights that lie one behind the other are one, biases too; its columns go to two or three tensors. */
bool prod_joined(Prod *to, const Tensor *y, int n, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    Tensor all = w[0];
    if (sum.n > 1 || x.rows == 0) return false;
    const size_t each = dtype_size(b[0].dtype);
    for (int i = 0; i < n; i++) {
        if (y[i].dtype != DT_BF16 || w[i].dtype != DT_BF16 || w[i].ld != w[0].ld || !b[i].data != !b[0].data)
            return false;
        if (i && (char *)w[i].data != (char *)all.data + (size_t)(all.rows * all.ld) * 2) return false;
        if (b[i].data && i
            && (b[i].dtype != b[0].dtype || (char *)b[i].data != (char *)b[0].data + (size_t)all.rows * each))
            return false;
        if (i) all.rows += w[i].rows;
        Prod p = prod_nt(y[i], x, w[i], TENSOR_NONE, sum);
        if (!prod_fast(&p)) return false;
    }
    Prod p = prod_nt(y[0], x, all, b[0], sum);
    p.N = all.rows, p.n1 = w[0].rows, p.n2 = p.n1 + w[1].rows;
    p.c1 = y[1].data, p.c2 = y[n - 1].data, p.ldc1 = y[1].ld, p.ldc2 = y[n - 1].ld;
    *to = p;
    return p.n1 % SPLIT_COLS == 0 && p.n2 % SPLIT_COLS == 0;
}
static bool joined(Dev *d, const Tensor *y, int n, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    Prod p;
    if (!prod_joined(&p, y, n, x, w, b, sum)) return false;
    prod_run(d, &p);
    return true;
}
bool cuda_linear2(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    return joined(d, y, 2, x, w, b, sum);
}
bool cuda_linear3(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    return joined(d, y, 3, x, w, b, sum);
}
