/* cuda_open.h - what the program and libhone_cuda.so say to each other.  The library exports these two and nothing
 * else. */
#ifndef OP_CUDA_OPEN_H
#define OP_CUDA_OPEN_H

#include "op/op.h"

/* The capability that the backend is built for, 9.0: wgmma is no other card's. */
enum { CUDA_CARD = 90 };

typedef enum { CUDA_READY, CUDA_ABSENT, CUDA_FAILS } CudaState; /* absent: nothing here that this backend is for */

/* Both are built from one tree: structs that they share have one size. */
#define CUDA_SIZES \
    (sizeof(Ops) + (sizeof(Dev) << 16) + (sizeof(Adam) << 32) + (sizeof(Attn) << 40) + (sizeof(Sample) << 48))

/* hone_cuda_open; d NULL: only the sizes */
typedef CudaState CudaOpen(Dev *d, const CudaOpts *o, size_t sizes, Err *err);
/* hone_cuda_ops: for a dry device, no GPU needed */
typedef const Ops *CudaTable(void);

#endif
