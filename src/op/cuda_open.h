/* cuda_open.h - what the program and libhone_cuda.so say to each other.  The library exports these two and nothing
 * else. */
#ifndef OP_CUDA_OPEN_H
#define OP_CUDA_OPEN_H

#include "op/op.h"

#include <stdlib.h>

/* The capability that the backend is built for, 9.0: wgmma is no other card's. */
enum { CUDA_CARD = 90 };

/* Kernels are loaded when the GPU is opened, not when each is called first: that takes memory which would be in no
 * count, and may wait for all that runs, a sending that waits for its receipt among it.  Before anybody opens the
 * driver; a user's own word stands. */
static inline void cuda_load_eagerly(void) { setenv("CUDA_MODULE_LOADING", "EAGER", 0); }

typedef enum { CUDA_READY, CUDA_ABSENT, CUDA_FAILS } CudaState; /* absent: nothing here that this backend is for */

/* Both are built from one tree: structs that they share have one size. */
#define CUDA_SIZES \
    (sizeof(Ops) + (sizeof(Dev) << 16) + (sizeof(Adam) << 32) + (sizeof(Attn) << 40) + (sizeof(Sample) << 48))

/* hone_cuda_open; d NULL: only the sizes */
typedef CudaState CudaOpen(Dev *d, const CudaOpts *o, size_t sizes, Err *err);
/* hone_cuda_ops: for a dry device, no GPU needed */
typedef const Ops *CudaTable(void);

#endif
