/* duo.h - one op on two devices: the CPU, which is the truth, and a GPU.
 * A Two is one tensor on both: float32 on the CPU, float32 or bfloat16 on the GPU, with equal values at the start, rows
 * further apart than they are wide, and guard bytes behind them.  What the GPU gives is held against the CPU by a bound
 * per op (bounds.h), and against itself by memcmp: run again over other garbage, a row alone, rows in another order. */
#ifndef TESTS_GPU_DUO_H
#define TESTS_GPU_DUO_H

#include "op/optest.h"

enum { CPU, GPU };
typedef struct { Tensor t[2]; } Two;
typedef struct { Rig r[2]; DType act; uint64_t seed; size_t bytes; } Duo;
/* a sanitizer makes kernels ten to a hundred times as slow */
static inline int duo_times(int n) { return gpu_test_few ? (n + 19) / 20 : n; }

/* seconds of a GPU are dear: one device a process */
static inline Dev *duo_dev(Duo *q, int side) { return &q->r[side].d; }
static inline void duo_arenas(Duo *q) {
    for (int s = 0; s < 2; s++) {
        q->r[s].a = dev_arena(duo_dev(q, s), "test", q->bytes);
        q->r[s].d.tmp = dev_arena(duo_dev(q, s), "tmp", q->bytes);
    }
}
static inline void duo_open(Duo *q, DType act, uint64_t seed, size_t bytes) {
    Err err;
    memset(q, 0, sizeof *q);
    q->act = act, q->seed = seed, q->bytes = gpu_test_few ? bytes / 8 : bytes;
    dev_open(&q->r[CPU].d, (DevOpts){ .threads = 4 });
    CHECK(dev_open_cuda(&q->r[GPU].d, (CudaOpts){ .threads = 4, .act = act, .raw = gpu_test_few }, NULL, &err), "%s",
          err.msg);
    duo_arenas(q);
}
/* All tensors are dropped, their guards looked at; the devices stay. */
static inline void duo_clear(Duo *q, const char *what) {
    EXPECT(rig_torn(&q->r[GPU]) == 0, "%s: guard bytes behind a tensor, or between its rows, were written", what);
    for (int s = 0; s < 2; s++) {
        EXPECT(q->r[s].d.tmp.used == 0, "%s: tmp is not empty", what);
        q->r[s].n = 0, q->r[s].a.used = 0;
        mem_free(&q->r[s].m);
    }
    if (!gpu_test_few) return;
    for (int s = 0; s < 2; s++) /* what was written before is forgotten, so that a read of it is seen */
        while (duo_dev(q, s)->n_blocks) dev_free(duo_dev(q, s), duo_dev(q, s)->block[0].at);
    duo_arenas(q);
}
static inline void duo_close(Duo *q) {
    duo_clear(q, "end");
    for (int s = 0; s < 2; s++) dev_close(duo_dev(q, s));
}
/* random in -scale..scale (rounded where the GPU's tensor is bf16), 'gap' more columns between rows */
static inline Two two_of(Duo *q, DType t, int64_t rows, int64_t cols, int64_t gap, const float *x) {
    Mem *m = &q->r[GPU].m;
    float *y = mem_copy(m, x, (size_t)(rows * cols) * 4 + 4);
    uint16_t *h = t == DT_BF16 ? bf16s(m, y, rows * cols) : NULL;
    return (Two){ { rig_put_ld(&q->r[CPU], DT_F32, rows, cols, cols + gap, y),
                    rig_put_ld(&q->r[GPU], t, rows, cols, cols + gap, h ? (void *)h : y) } };
}
static inline Two two(Duo *q, DType t, int64_t rows, int64_t cols, int64_t gap, float scale) {
    return two_of(q, t, rows, cols, gap, rnds(&q->r[GPU].m, rows * cols + 1, ++q->seed, scale));
}
/* bf16 on the CPU too: weights */
static inline Two two_w(Duo *q, DType t, int64_t rows, int64_t cols, int64_t gap, float scale) {
    Mem *m = &q->r[GPU].m;
    float *y = rnds(m, rows * cols + 1, ++q->seed, scale);
    void *h = t == DT_BF16 ? (void *)bf16s(m, y, rows * cols) : y;
    return (Two){ { rig_put_ld(&q->r[CPU], t, rows, cols, cols + gap, h),
                    rig_put_ld(&q->r[GPU], t, rows, cols, cols + gap, h) } };
}
static inline Two two_i32(Duo *q, int64_t rows, int64_t cols, int64_t gap, const int32_t *x) {
    return (Two){ { rig_put_ld(&q->r[CPU], DT_I32, rows, cols, cols + gap, x),
                    rig_put_ld(&q->r[GPU], DT_I32, rows, cols, cols + gap, x) } };
}
static inline Two two_rows(Two x, int64_t at, int64_t n) {
    return (Two){ { tensor_rows(x.t[0], at, n), tensor_rows(x.t[1], at, n) } };
}

static inline float *floats(Rig *r, Tensor x) {
    int64_t n = x.rows * x.cols;
    void *p = rig_get(r, x);
    if (x.dtype != DT_BF16) return p;
    float *y = MEM_ARRAY(&r->m, float, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)((uint16_t *)p)[i] << 16;
        memcpy(&y[i], &u, 4);
    }
    return y;
}
/* Largest difference beyond the output's own rounding, relative to the largest entry. */
static inline double duo_error(Duo *q, Two x) {
    float *want = floats(&q->r[CPU], x.t[CPU]), *got = floats(&q->r[GPU], x.t[GPU]);
    double top = 1e-30, bad = 0, ulp = x.t[GPU].dtype == DT_BF16 ? 0x1p-8 : 0;
    for (int64_t i = 0; i < x.t[GPU].rows * x.t[GPU].cols; i++) {
        double a = (double)want[i], b = (double)got[i];
        if (isfinite(a)) top = fmax(top, fabs(a));
        if (a == b || (a != a && b != b)) continue;
        bad = fmax(bad, isfinite(a) && isfinite(b) ? fabs(a - b) - ulp * fabs(a) : 1e30);
    }
    return bad / top;
}
static inline void duo_near(Duo *q, const char *what, Two x, double bound) {
    double e = duo_error(q, x);
    EXPECT(e <= bound, "%s [%ld,%ld] %s: GPU and CPU differ by %.2e of the largest, %.0e allowed", what,
           (long)x.t[GPU].rows, (long)x.t[GPU].cols, dtype_name(x.t[GPU].dtype), e, bound);
}
static inline void duo_same(Duo *q, const char *what, Two x) {               /* equal bits (float32 or whole numbers) */
    size_t n = tensor_bytes(x.t[GPU].dtype, x.t[GPU].rows, x.t[GPU].cols);
    EXPECT(!memcmp(rig_get(&q->r[CPU], x.t[CPU]), rig_get(&q->r[GPU], x.t[GPU]), n),
           "%s [%ld,%ld] %s: GPU and CPU have other bits", what, (long)x.t[GPU].rows, (long)x.t[GPU].cols,
           dtype_name(x.t[GPU].dtype));
}
/* The GPU with itself: a and b have the same bits. */
static inline void duo_equal(Duo *q, const char *what, Tensor a, Tensor b) {
    EXPECT(!memcmp(rig_get(&q->r[GPU], a), rig_get(&q->r[GPU], b), tensor_bytes(a.dtype, a.rows, a.cols)),
           "%s [%ld,%ld] %s: other bits", what, (long)a.rows, (long)a.cols, dtype_name(a.dtype));
}
static inline int pick_int(Duo *q, int lo, int hi) { return lo + (int)(mix(++q->seed) % (uint64_t)(hi - lo + 1)); }

#endif
