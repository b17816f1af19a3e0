/* pdl.cuh - programmatic dependent launch (PDL): kernels that may be on the card before the one before them is done, so
 * that a step of decoding, which is hundreds of short ones, does not wait for each launch.  Such a kernel calls
 * pdl_begin() before it looks at memory: all of it, since what comes before may write anywhere. */
#ifndef OP_CUDA_PDL_CUH
#define OP_CUDA_PDL_CUH

#include "op/cuda/common/cuda.h"

/* The next one may come to the card, and wait there; what came before is done, and its writes are seen.  In a kernel of
 * launch() it does nothing; nor on a card before 9.0, where kernels of a stream begin one after the other. */
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void pdl_let_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ __forceinline__ void pdl_let_next() {}
__device__ __forceinline__ void pdl_wait() {}
#endif
__device__ __forceinline__ void pdl_begin() {
    pdl_let_next();
    pdl_wait();
}

template <class... P, class... A>
static inline void launch_pdl(const Dev *d, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, A... a) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cu(d)->known = NULL;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid, how.blockDim = block, how.dynamicSmemBytes = smem, how.stream = stream_of(d),
    how.attrs = &early, how.numAttrs = 1;
    cudaError_t e = cudaLaunchKernelEx(&how, kernel, static_cast<P>(a)...);
    if (e != cudaSuccess)
        die("op/cuda: a launch of %u x %u x %u blocks of %u threads with %zu bytes failed: %s", grid.x, grid.y, grid.z,
            block.x, smem, cudaGetErrorString(e));
}

#endif
