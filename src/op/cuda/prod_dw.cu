/* prod_dw.cu - products that are gradients of weights: gemm.cuh's DW. */
#include "op/cuda/gemm_go.cuh"

void prod_dw(Dev *d, const Prod *p) {
    bn_of(p) == 128 ? gemm_go<DW, 128, OutAdd, false>(d, p, {}) : gemm_go<DW, 256, OutAdd, false>(d, p, {});
}
cudaError_t dw_allow(void) {
    const cudaError_t e = allow_gemm<DW, 128, OutAdd, false>();
    return e ? e : allow_gemm<DW, 256, OutAdd, false>();
}
