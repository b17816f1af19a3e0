/* gemm_go.cuh - launching gemm.cuh: maps of its tensors, its tile, its scratch.
 * Maps are made anew for each launch: it is arithmetic on 128 bytes, and they travel with the kernel's arguments. */
#ifndef OP_CUDA_GEMM_GO_CUH
#define OP_CUDA_GEMM_GO_CUH

#include "op/cuda/sm90/out.cuh"
#include "op/cuda/sm90/prod_rows.h"

#include <cudaTypedefs.h>
#include <limits.h>

struct Prods {
    PFN_cuTensorMapEncodeTiled_v12000 encode;       /* the driver's, which is not linked */
    int *taken;                                     /* tiles of the kernel that runs; products run one by one */
};

/* E matrices [rows,cols], 'ld' and 'step' elements apart, read and written in boxes of box_rows x box_cols. */
static CUtensorMap map_of(const Dev *d, const void *at, DType t, int64_t rows, int64_t cols, int64_t ld, int64_t E,
                          int64_t step, int box_rows, int box_cols) {
    CUtensorMap m;
    const cuuint64_t es = dtype_size(t), dim[3] = { (cuuint64_t)cols, (cuuint64_t)rows, (cuuint64_t)E };
    /* of one row the distance to the next does not matter, but it must be one that the copy engine takes */
    const cuuint64_t one_row = (cols * es + 15) / 16 * 16;
    const cuuint64_t stride[2] = { rows > 1 ? ld * es : one_row,
                                   E > 1 ? step * es : (rows > 1 ? rows * ld * es : one_row) };
    const cuuint32_t box[3] = { (cuuint32_t)box_cols, (cuuint32_t)box_rows, 1 }, one[3] = { 1, 1, 1 };
    CUresult r = cu(d)->prods->encode(
        &m, t == DT_F32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)at, dim,
        stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    CHECK(r == CUDA_SUCCESS, "op/cuda: a map of %ld x [%ld,%ld] with strides %ld, %ld: error %d", (long)E, (long)rows,
          (long)cols, (long)ld, (long)step, (int)r);
    return m;
}

static int blocks_at_once(const Dev *d) { return blocks_of_sms(cu(d)->sms); }
static Gemm gemm_of(const Prod *p) {
    Gemm g = { p->at, p->E, (int)p->rows, (int)p->M, (int)p->N, (int)p->K, p->n_pieces };
    for (int s = 0; s <= p->n_pieces; s++) g.cut[s] = p->cut[s];
    g.levels = levels_of(p), g.first = p->first;
    g.wrap_a = p->wrap_a ? (int)p->wrap_a : INT_MAX, g.wrap_b = p->wrap_b ? (int)p->wrap_b : INT_MAX;
    return g;
}
static int64_t k_of(const Prod *p, int64_t own) { return own ? own : p->K; }
static int batches(const Prod *p) { return p->at ? 1 : p->E; }          /* matrices of tokens */
static bool one_x(const Prod *p) { return p->kind == DW && !p->at && p->step_b == 0; }  /* DW: all of E have one b */

template <int KIND, int BN, class OUT, bool FOLD> static void gemm_go(Dev *d, const Prod *p, OUT out) {
    using S = GemmShape<BN, OUT>;
    const int64_t B = batches(p);
    CUtensorMap ta, tb, tc;
    ta = map_of(d, p->a, p->ta, p->rows, KIND == DW ? p->M : k_of(p, p->ka), p->lda, B, p->step_a, S::KB > 1 ? 128 : 64,
                64);
    if (KIND == FWD)
        tb = map_of(d, p->b, p->tb, p->N, k_of(p, p->kb), p->ldb, p->E, p->step_b, S::KB > 1 ? BN : BN / 2, 64);
    if (KIND == DX)
        tb = map_of(d, p->b, p->tb, k_of(p, p->kb), p->N, p->ldb, p->E_b ? p->E_b : p->E, p->step_b, 64, 64);
    if (KIND == DW)
        tb = map_of(d, p->b, p->tb, p->rows, p->N, p->ldb, one_x(p) ? 1 : B, p->step_b, 64, 64);
    tc = OUT::ADD ? map_of(d, p->c, DT_F32, p->M, p->N, p->ldc, p->E, p->step_c, 64, 32) : ta;
    Gemm g = gemm_of(p);
    g.one_b = one_x(p);
    const size_t mark = arena_mark(&d->tmp);
    if (FOLD) g.fold = (float4 *)arena_push(&d->tmp, gemm_fold_bytes(BN, g.levels, blocks_at_once(d)));
    g.queue = cu(d)->prods->taken;
    launch(d, gemm<KIND, BN, OUT, FOLD>, dim3(blocks_at_once(d)), dim3(384), S::SMEM, ta, tb, tc, g, out);
    arena_pop(&d->tmp, mark);
}
/* Kernels may have as much shared memory as they say. */
template <class... P> static inline cudaError_t allow(void (*kernel)(P...), int bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
template <int KIND, int BN, class OUT, bool FOLD> static cudaError_t allow_gemm(void) {
    return allow(gemm<KIND, BN, OUT, FOLD>, GemmShape<BN, OUT>::SMEM);
}
cudaError_t head_allow(void), head_back_allow(void), fused_allow(void);         /* of kernels that are no rows */

/* y[i] = x w[i]' + b[i] as one product, where weights and biases lie one behind the other; false: it is none */
bool prod_joined(Prod *to, const Tensor *y, int n, Tensor x, const Tensor *w, const Tensor *b, Leaves sum);

#endif
