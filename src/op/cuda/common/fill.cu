/* fill.cu - what weights are made of: random numbers, a thread an element (two threads draw the same pair: cheaper than
 * rows of odd length would be), and float8 blocks made wide, which waits for memory. */
#include "op/cuda/common/eights.cuh"

extern "C" {
#include "op/normal.h"
#include "tensor/half.h"
}

static __global__ void normals_k(Any x, int64_t rows, int64_t cols, Normals n) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * cols;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t r = i / cols, c = i % cols, e = n.first + r * n.ld + c;
        double z[2];
        two_normals(z, n.seed, n.name, (uint64_t)e / 2);
        float v = (float)(n.std * z[e % 2]);
        if (x.half) store((bf16 *)x.at + r * x.ld + c, v);
        else ((float *)x.at)[r * x.ld + c] = v;
    }
}
static unsigned many(const Dev *d, int64_t n) { /* as many blocks as the card runs, and no more than there is work */
    int64_t most = 16 * (int64_t)cu(d)->sms, wanted = (n + 255) / 256;
    return (unsigned)(wanted < most ? wanted : most);
}
void cuda_normals(Dev *d, Tensor x, Normals n) {
    launch(d, normals_k, many(d, x.rows * x.cols), 256, 0, any_of(x), x.rows, x.cols, n);
}

static __global__ void widen_k(Any y, const uint8_t *x, const float *scale, int64_t ld, int64_t n, int64_t from,
                               int64_t cols) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t r = (from + i) / cols, c = (from + i) % cols;
        float v = f8e4m3_f32(x[i]) * scale[r / F8_BLOCK * ld + c / F8_BLOCK];
        if (y.half) store((bf16 *)y.at + i, v);
        else ((float *)y.at)[i] = v;
    }
}
void cuda_widen(Dev *d, Tensor y, Tensor x, Tensor scale, int64_t from, int64_t cols) {
    launch(d, widen_k, many(d, x.cols), 256, 0, any_of(y), (const uint8_t *)x.data, (const float *)scale.data, scale.ld,
           x.cols, from, cols);
}
