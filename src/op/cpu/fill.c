/* fill.c - what weights are made of before anything is computed with them: random numbers,
 * and float8 blocks made wide. */
#include "op/cpu/chain.h"
#include "op/normal.h"
#include "tensor/half.h"

#include <math.h>

enum { SLICE = 1 << 13 }; /* elements a row of the cut over threads */
static int64_t slices(int64_t n) { return (n + SLICE - 1) / SLICE; }

static void set(Tensor x, int64_t r, int64_t c, float v) {
    if (x.dtype == DT_BF16) ((uint16_t *)x.data)[r * x.ld + c] = f32_bf16(v);
    else ((float *)x.data)[r * x.ld + c] = v;
}

typedef struct {
    Tensor x;
    Normals n;
} Draw;
static void normals_slices(const void *arg, int64_t s0, int64_t s1, const Kern *k, float *work) {
    const Draw *p = arg;
    int64_t total = p->x.rows * p->x.cols, end = s1 * SLICE < total ? s1 * SLICE : total;
    (void)k, (void)work;
    for (int64_t i = s0 * SLICE; i < end; i++) {
        int64_t r = i / p->x.cols, c = i % p->x.cols, e = p->n.first + r * p->n.ld + c;
        double z[2];
        two_normals(z, p->n.seed, p->n.name, (uint64_t)e / 2);
        set(p->x, r, c, (float)(p->n.std * z[e % 2]));
        if (e % 2 == 0 && c + 1 < p->x.cols && i + 1 < end) set(p->x, r, c + 1, (float)(p->n.std * z[1])), i++;
    }
}
void cpu_normals(Dev *d, Tensor x, Normals n) {
    Draw p = { x, n };
    cpu_rows(d, slices(x.rows * x.cols), 1e6, normals_slices, &p);
}

typedef struct {
    Tensor y, x, scale;
    int64_t from, cols;
} Widen;
static void widen_slices(const void *arg, int64_t s0, int64_t s1, const Kern *k, float *work) {
    const Widen *p = arg;
    int64_t end = s1 * SLICE < p->x.cols ? s1 * SLICE : p->x.cols;
    (void)k, (void)work;
    for (int64_t i = s0 * SLICE; i < end; i++) {
        int64_t r = (p->from + i) / p->cols, c = (p->from + i) % p->cols;
        float scale = ((const float *)p->scale.data)[r / F8_BLOCK * p->scale.ld + c / F8_BLOCK];
        set(p->y, 0, i, f8e4m3_f32(((const uint8_t *)p->x.data)[i]) * scale);
    }
}
void cpu_widen(Dev *d, Tensor y, Tensor x, Tensor scale, int64_t from, int64_t cols) {
    Widen p = { y, x, scale, from, cols };
    cpu_rows(d, slices(x.cols), 1e5, widen_slices, &p);
}
