/* backend.h - the device that a test runs on: the CPU or, in the program of all tests of a GPU (tools/cuda.cmake), a GPU that computes in
 * float32 or in bfloat16.  What is said of the CPU alone (the order of its sums, its instruction sets, faults planted in its memory) stands
 * under on_cpu(). */
#ifndef TESTS_BACKEND_H
#define TESTS_BACKEND_H

#include "model/model.h"
#include <stdlib.h>

#ifdef HONE_GPU_TEST
extern DType gpu_test_act;
extern bool gpu_test_few;       /* under a sanitizer: fewer shapes, memory as it comes */
static inline bool on_cpu(void) { return false; }
static inline void test_device(Dev *d, int threads, bool guard) {
    Err err;
    (void)guard;
    CHECK(dev_open_cuda(d, (CudaOpts){ .threads = threads, .act = gpu_test_act, .raw = gpu_test_few }, NULL, &err), "%s", err.msg);
}
#else
static inline bool on_cpu(void) { return true; }
static inline void test_device(Dev *d, int threads, bool guard) { dev_open(d, (DevOpts){ .threads = threads, .guard = guard }); }
#endif

/* A model as it is trained on that device: F32, or BF16 with a master. */
static inline void test_model(Model *m, Dev *d, const ModelDesc *desc, Mem *mem) {
    model_open(m, d, desc, d->act, 8, mem);
    if (d->act == DT_BF16) model_open_master(m, mem);
}
/* Its weights in F32, flat, to the host and back. */
static inline float *test_weights(Model *m, int64_t *n) {
    Tensor x = model_full(m)->flat;
    float *w = malloc((size_t)x.cols * 4 + 1);
    op_get(m->dev, w, x);
    *n = x.cols;
    return w;
}
static inline void test_put_weights(Model *m, const float *w) {
    op_put(m->dev, model_full(m)->flat, w);
    model_round(m);
}

#endif
