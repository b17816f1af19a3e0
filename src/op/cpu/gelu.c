/* gelu.c - the exact GELU, x (1 + erf(x / sqrt 2)) / 2, and its backward, element by element (op/gelu.h). */
#include "op/cpu/chain.h"
#include "op/gelu.h"

typedef struct {
    Tensor y, dy, x;
} Args;
static void gelu_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    (void)k, (void)work;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = 0; c < p->x.cols; c++) f32_row(p->y, r)[c] = gelu_of(f32_row(p->x, r)[c]);
}
void cpu_gelu(Dev *d, Tensor y, Tensor x) {
    Args p = { .y = y, .x = x };
    CPU_CALL(d, x.rows, (double)x.cols * 10, gelu_rows, p, writes(y), reads(x));
}
static void gelu_bwd_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    (void)k, (void)work;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = 0; c < p->x.cols; c++)
            f32_row(p->y, r)[c] = gelu_back(f32_row(p->dy, r)[c], f32_row(p->x, r)[c]);
}
void cpu_gelu_bwd(Dev *d, Tensor dx, Tensor dy, Tensor x) {
    Args p = { .y = dx, .dy = dy, .x = x };
    CPU_CALL(d, x.rows, (double)x.cols * 20, gelu_bwd_rows, p, writes(dx), reads(dy), reads(x));
}
