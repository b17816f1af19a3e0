/* backend.h - the device that a test runs on: the CPU or, in the program of all tests of a GPU (tools/cuda.cmake), a
 * GPU that computes in float32 or in bfloat16.  What is said of the CPU alone (the order of its sums, its instruction
 * sets, faults planted in its memory) stands under on_cpu(): not of a CPU with a queue, which is used as a GPU is
 * (tools/shims.cmake). */
#ifndef TESTS_BACKEND_H
#define TESTS_BACKEND_H

#include "model/model.h"
#include "tensor/half.h"
#include <stdlib.h>

#ifdef HONE_GPU_TEST
extern DType gpu_test_act;
extern bool gpu_test_few;       /* under a sanitizer: fewer shapes, memory as it comes */
static inline bool on_cpu(void) { return false; }
static inline void test_device(Dev *d, int threads, bool guard) {
    Err err;
    (void)guard;
    CHECK(dev_open_cuda(d, (CudaOpts){ .threads = threads, .act = gpu_test_act, .raw = gpu_test_few }, NULL, &err),
          "%s", err.msg);
}
#else
#ifdef HONE_QUEUED_TEST
static inline bool on_cpu(void) { return false; }
#else
static inline bool on_cpu(void) { return true; }
#endif
static inline void test_device(Dev *d, int threads, bool guard) {
    dev_open(d, (DevOpts){ .threads = threads, .guard = guard });
}
#endif

/* A model as that device computes with it: F32 or BF16. */
static inline void test_model(Model *m, Dev *d, const ModelDesc *desc, Mem *mem) {
    model_open(m, d, desc, d->act, 8, mem);
}
/* Its weights in F32, one behind the other, to the host and back. */
static inline float *test_weights(const Model *m, int64_t *n) {
    *n = 0;
    for (int i = 0; i < m->w.n; i++) *n += m->w.at[i].t.rows * m->w.at[i].t.cols;
    float *w = malloc((size_t)*n * 4 + 1), *at = w;
    for (int i = 0; i < m->w.n; i++) {
        Tensor t = m->w.at[i].t;
        int64_t k = t.rows * t.cols;
        uint16_t *h = malloc((size_t)k * 2 + 1);
        op_get(m->dev, t.dtype == DT_F32 ? (void *)at : h, t);
        for (int64_t j = 0; t.dtype != DT_F32 && j < k; j++) at[j] = bf16_f32(h[j]);
        free(h);
        at += k;
    }
    return w;
}
static inline void test_put_weights(Model *m, const float *w) {
    for (int i = 0; i < m->w.n; i++) {
        Tensor t = m->w.at[i].t;
        int64_t k = t.rows * t.cols;
        uint16_t *h = malloc((size_t)k * 2 + 1);
        for (int64_t j = 0; j < k; j++) h[j] = f32_bf16(w[j]);
        op_put(m->dev, t, t.dtype == DT_F32 ? (const void *)w : h);
        free(h);
        w += k;
    }
}

#endif
