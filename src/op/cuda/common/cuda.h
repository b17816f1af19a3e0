/* cuda.h - inside the CUDA backend: what a device keeps, how a kernel is launched, how it reports what the CPU would
 * die of, and the small words that all kernels share.  C++ as C with templates: no STL, no exceptions.
 *
 * Everything runs on one stream, so calls are done in the order they were made.  Nothing is allocated after open;
 * scratch of an op comes from d->tmp and is said in cuda_tmp_NAME.  No float atomics in any result; a row's result
 * depends on its own row alone. */
#ifndef OP_CUDA_CUDA_H
#define OP_CUDA_CUDA_H

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "op/op_fused.h"
}

typedef __nv_bfloat16 bf16;

/* ---- The device -------------------------------------------------------------------------------------------------- */
/* What a kernel found wrong, in memory that host and device see: reason << 48 | row.  The last one to write wins. */
typedef unsigned long long Fault;
enum FaultKind { FAULT_NONE, FAULT_ID, FAULT_EXPERT, FAULT_ROW, FAULT_PAGE, FAULT_LENGTH, FAULT_KINDS };

enum { RING = 4, RING_BYTES = DEV_ROOM, RING_SMALL = 256 };
/* pinned memory that copies go through: pieces filled one after the other, each free when its event has passed */
typedef struct {
    char       *at;
    cudaEvent_t done[RING];
    int         now;                /* the piece being filled */
    size_t      used;               /* ... so far */
} Ring;

enum { CUDA_SUMS = 1 << 15, CUDA_STAMPS = 1 << 14 };
typedef struct Prods Prods;         /* what products keep: linear.cu */
typedef struct Attns Attns;         /* what attention keeps: attn.cu */
typedef struct Link Link;           /* what crossing over to d->host keeps: link.cu */
typedef struct CudaGraph CudaGraph;         /* calls that were recorded: dev.cu */
typedef struct {
    int          gpu, sms;          /* which; multiprocessors */
    size_t       smem;              /* shared memory a block may have */
    bool         raw;               /* blocks stay as they come */
    size_t       base;              /* memory in use when it was opened */
    cudaStream_t stream;
    Ring         put, get;
    char        *readback;              /* pinned: what was asked for, DEV_ASK bytes each */
    cudaEvent_t  readback_done[2];
    volatile Fault *fault;
    double      *sums;              /* device memory for sumsq: CUDA_SUMS */
    cudaEvent_t *stamps;            /* [CUDA_STAMPS] made as they are asked for, by a profile; or NULL */
    Prods       *prods;
    Attns       *attns;
    Link        *link;              /* or NULL: nothing was left to the host */
    bool         capturing;            /* between record and recorded: no weight is written there */
    const void  *known;             /* where experts' rows begin, if the kernel just launched lets the next one come
        only when those are written; or NULL */
    int          captured;             /* calls since record */
    cudaGraphExec_t first;          /* the first of them */
    CudaGraph       *forgotten;         /* room for the next ones */
} CudaDev;
static inline CudaDev *cu(const Dev *d) { return (CudaDev *)d->impl; }
static inline cudaStream_t stream_of(const Dev *d) { return cu(d)->stream; }

/* Opened after the device, closed before it; defined by products and attention. */
bool prods_open(Dev *d, Err *err);
void prods_close(Dev *d);
bool attns_open(Dev *d, Err *err);
void attns_close(Dev *d);

/* A call of the runtime that cannot fail on a healthy device. */
#define CU(call)                                                                                    \
    do {                                                                                            \
        cudaError_t e_ = (call);                                                                    \
        if (e_ != cudaSuccess) die("op/cuda: %s: %s", #call, cudaGetErrorString(e_));               \
    } while (0)

/* Is that memory of d->host's? */
static inline bool on_host(const Dev *d, const void *at) {
    for (int i = 0; d->host && i < d->host->n_blocks; i++) {
        const char *from = (const char *)d->host->block[i].at;
        if ((const char *)at >= from && (const char *)at < from + d->host->block[i].bytes) return true;
    }
    return false;
}
void link_adamw(Dev *d, Tensor w, Tensor master, Tensor m, Tensor v, Tensor g, Adam a);       /* states on the host */
void link_close(Dev *d);

void cuda_wait(Dev *d);             /* all calls are done, and none found a fault: dies else */
void cuda_event_wait(Dev *d, cudaEvent_t e);

/* ---- Launching --------------------------------------------------------------------------------------------------- */
/* An empty grid is no launch.  P... are the kernel's own types, so the arguments convert to them. */
template <class... P, class... A>
static inline void launch(const Dev *d, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, A... a) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cu(d)->known = NULL;
    kernel<<<grid, block, smem, stream_of(d)>>>(static_cast<P>(a)...);
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess)
        die("op/cuda: a launch of %u x %u x %u blocks of %u threads with %zu bytes failed: %s", grid.x, grid.y, grid.z,
            block.x, smem, cudaGetErrorString(e));
}
static inline unsigned blocks_of(int64_t n, int64_t each) { return (unsigned)((n + each - 1) / each); }

/* The type behind a dtype: with_type(x.dtype, [&](auto t) { typedef typename decltype(t)::type T; ... }). */
template <class T> struct As { typedef T type; };
template <class F> static inline void with_type(DType t, F f) {
    if (t == DT_BF16) f(As<bf16>());
    else f(As<float>());
}

/* ---- In kernels -------------------------------------------------------------------------------------------------- */
/* Rows of a tensor, typed. */
template <class T> struct Rows {
    T      *at;
    int64_t ld;
    __device__ __forceinline__ T *row(int64_t r) const { return at + r * ld; }
};
template <class T> static inline Rows<T> rows_of(Tensor x) { return { (T *)x.data, x.ld }; }

__device__ __forceinline__ float load(const float *p) { return *p; }
__device__ __forceinline__ float load(const bf16 *p) { return __bfloat162float(*p); }
__device__ __forceinline__ void store(float *p, float x) { *p = x; }
/* To nearest, ties to even; a NaN keeps its sign and stays one, as on the CPU. */
__device__ __forceinline__ unsigned short bf16_bits(float x) {
    unsigned u = __float_as_uint(x);
    return x == x ? __bfloat16_as_ushort(__float2bfloat16_rn(x)) : (unsigned short)(u >> 16 | 0x40);
}
__device__ __forceinline__ void store(bf16 *p, float x) { *p = __ushort_as_bfloat16(bf16_bits(x)); }

__device__ __forceinline__ void fault_at(volatile Fault *f, FaultKind kind, int64_t row) {
    *f = (Fault)kind << 48 | ((Fault)row & 0xFFFFFFFFFFFFull);
    __threadfence_system();
}

/* The balanced tree over a warp's lanes; every lane has the sum. */
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int h = 16; h; h /= 2) x = __fadd_rn(x, __shfl_xor_sync(0xFFFFFFFFu, x, h));
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int h = 16; h; h /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, h));
    return x;
}

/* ---- Entries of the table ---------------------------------------------------------------------------------------- */
void   cuda_close(Dev *d);
void  *cuda_block(Dev *d, size_t bytes);
void   cuda_give(Dev *d, void *at, size_t bytes);
void  *cuda_room(Dev *d, size_t bytes);
void  *cuda_queue(Dev *d);
void   cuda_touch(Dev *d);
void   cuda_enter(Dev *d, bool join);
void   cuda_leave(Dev *d);
void   cuda_chain(Dev *d, bool on);
void   cuda_about(const Dev *d, DevAbout *out);
void   cuda_stamp(Dev *d, int i);
double cuda_stamped(Dev *d, int i);
void   cuda_ask(Dev *d, int i, Tensor from);
void   cuda_asked(Dev *d, int i, void *to, size_t bytes);
void   cuda_record(Dev *d);
void  *cuda_recorded(Dev *d);
void   cuda_replay(Dev *d, void *captured);
void   cuda_forget(Dev *d, void *captured);
void   cuda_link(Dev *d);
size_t cuda_kv_bytes(const Dev *d, const Kv *kv);
double cuda_sumsq(Dev *d, Tensor x);
#define OP(how, name, params, args, outs) void cuda_##name params;
#include "op/op_list.h"
#undef OP
/* Several at a time; false: not these shapes. */
#define FUSED(name, params, args) bool cuda_##name params;
#include "op/op_fused_list.h"
#undef FUSED
bool   cuda_defers_norms(const Dev *d, int64_t hidden, int64_t qkv, int64_t expert, int64_t topk);
/* What an op takes from d->tmp; where nobody defines it, nothing. */
#define OP(how, name, params, args, outs) __attribute__((weak)) size_t cuda_tmp_##name params;
#include "op/op_list.h"
#undef OP

extern const Ops ops_cuda;

#endif
