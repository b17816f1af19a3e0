/* cubin.h - what a compiled kernel says of itself: registers, shared memory, threads, and where its parameters lie. */
#ifndef TESTS_SHIM_CUBIN_H
#define TESTS_SHIM_CUBIN_H

#include <stdint.h>

enum { PARAMS_MOST = 32 };
typedef struct {
    const char *name;
    uint32_t registers, shared;      /* a thread's; a block's, static */
    uint32_t threads_most;           /* of a block: __launch_bounds__; 0: none */
    uint32_t cluster[3];             /* __cluster_dims__; 0: none */
    int params;
    struct { uint32_t at, bytes; } param[PARAMS_MOST];
} Kernel;

/* Calls 'found' with each kernel of a fatbin, as nvcc leaves it in an object. */
void cubin_kernels(const void *fatbin, void (*found)(const Kernel *k));

#endif
