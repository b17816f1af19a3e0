/* linear.cu - dense, grouped and headwise products: each op as a Prod (prod.h), and what a device knows of it for the
 * choice of its kernel (op/cuda/choose.c). */
#include "op/cuda/common/prod.h"
#include "op/cuda_open.h"

/* ---- dense ----------------------------------------------------------------------------------------------------- */
static void pieces(Prod *p, Leaves sum) {
    p->n_pieces = sum.n;
    for (int s = 0; s <= sum.n; s++) p->cut[s] = (int)(leaves_cut(&sum, sum.first + s) - leaves_cut(&sum, sum.first));
}
Prod prod_nt(Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum) {
    Prod p = { FWD, x.dtype, w.dtype, y.dtype, b.dtype, x.data, w.data, b.data, y.data, x.ld, w.ld, y.ld };
    p.E = 1, p.rows = x.rows, p.N = y.cols, p.K = x.cols;
    pieces(&p, sum);
    return p;
}
Prod prod_nn(Tensor dx, Tensor dy, Tensor w, Leaves sum) {
    Prod p = prod_nt(dx, dy, w, TENSOR_NONE, sum);
    p.kind = DX;
    return p;
}
Prod prod_tn(Tensor dw, Tensor dy, Tensor x) {
    Prod p = { DW, dy.dtype, x.dtype, DT_F32, DT_F32, dy.data, x.data, NULL, dw.data, dy.ld, x.ld, dw.ld };
    p.E = 1, p.rows = dy.rows, p.M = dy.cols, p.N = x.cols, p.n_pieces = 1;
    return p;
}
/* What is asked without a device knows what it computes in, and the kind of card that this build is for. */
static ProdCall unseen(const Dev *d, const Prod *p) { return { p, d->act, CUDA_CARD }; }
static ProdCall call_of(const Dev *d, const Prod *p) {
    ProdCall c = unseen(d, p);
    c.sms = cu(d)->sms, c.smem = cu(d)->smem, c.captured = cu(d)->capturing, c.known = p->at && cu(d)->known == p->at;
    return c;
}
static void run(Dev *d, const ProdCall &c) {
    if (c.p->E == 0 || c.p->N == 0 || c.p->rows == 0) return;            /* a gradient over no rows adds nothing */
    prod_choose(&c)->run(d, c.p);
}
void prod_run(Dev *d, const Prod *p) { run(d, call_of(d, p)); }
void prod_run_laid(Dev *d, const Prod *p) {
    ProdCall c = call_of(d, p);
    c.laid = true;
    run(d, c);
}
void prod_run_plain(Dev *d, const Prod *p) {
    ProdCall c = call_of(d, p);
    c.card = 0;
    run(d, c);
}
const char *prod_by(const Dev *d, const Prod *p) {
    ProdCall c = unseen(d, p);
    c.sms = PROD_BLOCKS;
    return prod_choose(&c)->by;
}
size_t prod_tmp(const Dev *d, const Prod *p) {
    const ProdCall c = unseen(d, p);
    return prod_scratch(&c);
}
static size_t asked(Dev *d, const Prod *p) {
    d->by = prod_by(d, p);
    return prod_tmp(d, p);
}
void cuda_linear(Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum) {
    Prod p = prod_nt(y, x, w, b, sum);
    prod_run(d, &p);
}
size_t cuda_tmp_linear(Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum) {
    Prod p = prod_nt(y, x, w, b, sum);
    return asked(d, &p);
}
void cuda_linear_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves sum) {
    Prod p = prod_nn(dx, dy, w, sum);
    prod_run(d, &p);
}
size_t cuda_tmp_linear_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves sum) {
    Prod p = prod_nn(dx, dy, w, sum);
    return asked(d, &p);
}

/* db += sum of dy's rows.  bf16: 32 chains, row r in chain r % 32, then halves; one addition to db.  float32: a
 * chain that goes on from db. */
__global__ void __launch_bounds__(1024) bias_grad(float *db, Rows<const bf16> dy, int64_t rows, int64_t cols) {
    __shared__ float part[32][33];
    const int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x % 32;
    const int j = threadIdx.x / 32;
    float sum = 0;
    if (c < cols)
        for (int64_t r = j; r < rows; r += 32) sum = __fadd_rn(sum, load(dy.row(r) + c));
    part[j][threadIdx.x % 32] = sum;
    __syncthreads();
    sum = warp_sum(part[threadIdx.x % 32][j]);                           /* now a warp has a column */
    const int64_t to = (int64_t)blockIdx.x * 32 + j;
    if (threadIdx.x % 32 == 0 && to < cols) db[to] = __fadd_rn(db[to], sum);
}
__global__ void bias_chain(float *db, Rows<const float> dy, int64_t rows, int64_t cols) {
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    float sum = db[c];
    for (int64_t r = 0; r < rows; r++) sum = __fadd_rn(sum, dy.row(r)[c]);
    db[c] = sum;
}
void cuda_linear_dw(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    Prod p = prod_tn(dw, dy, x);
    prod_run(d, &p);
    if (db.data) cuda_sum_rows(d, db, dy);
}
void cuda_sum_rows(Dev *d, Tensor db, Tensor dy) {
    if (dy.rows == 0 || dy.cols == 0) return;
    float *at = (float *)db.data;
    if (dy.dtype == DT_BF16)
        launch(d, bias_grad, dim3(blocks_of(dy.cols, 32)), dim3(1024), 0, at, rows_of<const bf16>(dy), dy.rows,
               dy.cols);
    else
        launch(d, bias_chain, dim3(blocks_of(dy.cols, 64)), dim3(64), 0, at, rows_of<const float>(dy), dy.rows,
               dy.cols);
}

size_t cuda_tmp_linear_dw(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    (void)db;
    Prod p = prod_tn(dw, dy, x);
    return asked(d, &p);
}

/* ---- one weight per expert ------------------------------------------------------------------------------------- */
static Prod by_expert(Prod p, Seqs ex, int64_t step_b, int64_t step_c) {
    p.at = (const int *)ex.at.data, p.E = ex.n, p.step_b = step_b, p.step_c = step_c;
    return p;
}
static Prod grouped_nt(Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum) {
    return by_expert(prod_nt(y, x, w, TENSOR_NONE, sum), ex, y.cols * w.ld, 0);
}
static Prod grouped_nn(Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum) {
    return by_expert(prod_nn(dx, dy, w, sum), ex, dy.cols * w.ld, 0);
}
void cuda_grouped(Dev *d, Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum) {
    Prod p = grouped_nt(y, x, w, ex, sum);
    prod_run(d, &p);
}
size_t cuda_tmp_grouped(Dev *d, Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum) {
    Prod p = grouped_nt(y, x, w, ex, sum);
    return asked(d, &p);
}
void cuda_grouped_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum) {
    Prod p = grouped_nn(dx, dy, w, ex, sum);
    prod_run(d, &p);
}
size_t cuda_tmp_grouped_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum) {
    Prod p = grouped_nn(dx, dy, w, ex, sum);
    return asked(d, &p);
}
void cuda_grouped_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex) {
    Prod p = by_expert(prod_tn(dw, dy, x), ex, 0, dy.cols * dw.ld);
    prod_run(d, &p);
}

size_t cuda_tmp_grouped_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex) {
    Prod p = by_expert(prod_tn(dw, dy, x), ex, 0, dy.cols * dw.ld);
    return asked(d, &p);
}

/* ---- one matrix per head --------------------------------------------------------------------------------------- */
static Tensor part_of(Tensor x, int from, int64_t cols) {
    x.data = (char *)x.data + (size_t)from * dtype_size(x.dtype);
    x.cols = cols;
    return x;
}
static Tensor rows_from(Tensor w, int from, int64_t rows) {
    w.data = (char *)w.data + (size_t)(from * w.ld) * dtype_size(w.dtype);
    w.rows = rows;
    return w;
}
static Prod headwise(Tensor y, Tensor x, Tensor w, HeadMap m) {
    Tensor y0 = part_of(y, m.y_from, m.out), x0 = part_of(x, m.x_from, m.in),
           w0 = rows_from(w, m.w_from, m.turned ? m.in : m.out);
    Prod p = m.turned ? prod_nn(y0, x0, w0, leaves_one(m.in)) : prod_nt(y0, x0, w0, TENSOR_NONE, leaves_one(m.in));
    p.E = m.heads, p.step_a = m.x_width, p.step_b = m.w_rows * w.ld, p.step_c = m.y_width;
    return p;
}
void cuda_headwise(Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m) {
    Prod p = headwise(y, x, w, m);
    prod_run(d, &p);
}
size_t cuda_tmp_headwise(Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m) {
    Prod p = headwise(y, x, w, m);
    return asked(d, &p);
}
static Prod headwise_tn(Tensor dw, Tensor dy, Tensor x, HeadMap m) {
    Tensor dy0 = part_of(dy, m.y_from, m.out), x0 = part_of(x, m.x_from, m.in),
           w0 = rows_from(dw, m.w_from, m.turned ? m.in : m.out);
    Prod p = m.turned ? prod_tn(w0, x0, dy0) : prod_tn(w0, dy0, x0);
    p.E = m.heads, p.step_c = m.w_rows * dw.ld;
    p.step_a = m.turned ? m.x_width : m.y_width, p.step_b = m.turned ? m.y_width : m.x_width;
    return p;
}
void cuda_headwise_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m) {
    Prod p = headwise_tn(dw, dy, x, m);
    prod_run(d, &p);
}
size_t cuda_tmp_headwise_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m) {
    Prod p = headwise_tn(dw, dy, x, m);
    return asked(d, &p);
}
