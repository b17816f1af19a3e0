/* optest.h - what the tests of op/ share: a device in checking mode whose tensors are followed by guard bytes, random
 * numbers, comparison in double, and central differences.
 *
 * A Case is an op seen as a function: run() reads inputs from the host, computes, and leaves outputs on the host.  The
 * backward of a function f is checked by L = sum c . f(x) with random c:  dL/dx by
 * differences against what the op says. */
#ifndef OPTEST_H
#define OPTEST_H

#include "backend.h"
#include "op/op.h"
#include "op/cpu/cpu.h"
#include "op/planted.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>

enum { GUARD = 64, MAX_T = 512 };
typedef struct {
    Dev    d;
    Arena  a;
    Mem    m;
    Tensor t[MAX_T];
    int    n;
} Rig;

/* --plant FAULT: the whole test runs with an operation that is wrong, and must fail (planted.h). */
static Ops optest_ops;
static inline void optest_begin(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--plants")) planted_print(), exit(0);
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--plant")) optest_ops = planted_ops(argv[i + 1], spoil_largest);
}

static inline void optest_open(Dev *d, int threads, int isa) {
    if (on_cpu()) dev_open(d, (DevOpts){ .threads = threads, .guard = true, .isa = isa });
    else test_device(d, threads, true);
}

static inline void rig_open(Rig *r, int threads, int isa, size_t bytes) {
    memset(r, 0, sizeof *r);
    optest_open(&r->d, threads, isa);
    if (optest_ops.name) r->d.ops = &optest_ops;
    r->a = dev_arena(&r->d, "test", bytes);
    r->d.tmp = dev_arena(&r->d, "tmp", bytes);
}
/* rows x cols with row stride ld, filled with 'from' (or zeros), guard bytes behind it */
static inline Tensor rig_put_ld(Rig *r, DType t, int64_t rows, int64_t cols, int64_t ld, const void *from) {
    size_t n = (size_t)(rows * ld) * dtype_size(t);
    unsigned char *whole = mem_push(&r->m, n + GUARD);
    memset(whole, 0xA5, n + GUARD);
    Tensor all = tensor_over(arena_push(&r->a, n + GUARD), DT_U8, 1, (int64_t)n + GUARD);
    op_put(&r->d, all, whole);
    Tensor x = tensor_over(all.data, t, rows, cols);
    x.ld = ld;
    if (from) op_put(&r->d, x, from);
    else op_zero(&r->d, x);
    CHECK(r->n < MAX_T, "more than %d tensors in a test", MAX_T);
    r->t[r->n++] = x;
    return x;
}
static inline Tensor rig_put(Rig *r, DType t, int64_t rows, int64_t cols, const void *from) {
    return rig_put_ld(r, t, rows, cols, cols, from);
}
static inline void *rig_get(Rig *r, Tensor x) {
    void *p = mem_push(&r->m, tensor_bytes(x.dtype, x.rows, x.cols) + 1);
    op_get(&r->d, p, x);
    return p;
}
static inline int rig_torn(Rig *r) {                       /* tensors whose guard bytes (or row gaps) were written to */
    int bad = 0;
    for (int i = 0; i < r->n; i++) {
        Tensor x = r->t[i];
        size_t es = dtype_size(x.dtype), n = (size_t)(x.rows * x.ld) * es;
        unsigned char *b = rig_get(r, tensor_over(x.data, DT_U8, 1, (int64_t)n + GUARD));
        bool torn = false;
        for (size_t k = 0; k < GUARD; k++) torn |= b[n + k] != 0xA5;
        for (int64_t row = 0; row < x.rows; row++)
            for (size_t k = (size_t)x.cols * es; k < (size_t)x.ld * es; k++)
                torn |= b[(size_t)(row * x.ld) * es + k] != 0xA5;
        bad += torn;
    }
    return bad;
}
static inline void rig_close(Rig *r) {
    EXPECT(rig_torn(r) == 0, "guard bytes behind a tensor were written");
    EXPECT(r->d.tmp.used == 0, "tmp is not empty: %zu", r->d.tmp.used);
    dev_close(&r->d);
    mem_free(&r->m);
}

static inline uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
static inline float rnd(uint64_t seed, uint64_t i, float scale) {
    return (float)((int32_t)(mix(seed * 0x1000003u + i) >> 40) - (1 << 23)) * (scale / 8388608.0f);
}
static inline float *rnds(Mem *m, int64_t n, uint64_t seed, float scale) {
    float *x = MEM_ARRAY(m, float, (size_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = rnd(seed, (uint64_t)i, scale);
    return x;
}
static inline uint16_t *bf16s(Mem *m, float *x, int64_t n) {     /* rounds x in place, too */
    uint16_t *h = MEM_ARRAY(m, uint16_t, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], 4);
        h[i] = (uint16_t)((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
        u = (uint32_t)h[i] << 16;
        memcpy(&x[i], &u, 4);
    }
    return h;
}
static inline double worst(const float *got, const double *want, int64_t n) {     /* relative to the largest entry */
    double top = 1e-30, bad = 0;
    for (int64_t i = 0; i < n; i++) top = fmax(top, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) bad = fmax(bad, got[i] == got[i] ? fabs((double)got[i] - want[i]) : 1e30);
    return bad / top;
}

/* Gradient of loss(arg) by x[0..n) in double, by central differences; loss reads x. */
typedef double Loss(void *arg);
static inline double *differences(Mem *m, double *x, int64_t n, Loss *loss, void *arg) {
    double *g = MEM_ARRAY(m, double, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        double was = x[i], h = 1e-5 * fmax(1, fabs(was));
        x[i] = was + h;
        double up = loss(arg);
        x[i] = was - h;
        double down = loss(arg);
        x[i] = was;
        g[i] = (up - down) / (2 * h);
    }
    return g;
}
static inline double *doubles(Mem *m, const float *x, int64_t n) {
    double *y = MEM_ARRAY(m, double, (size_t)n);
    for (int64_t i = 0; i < n; i++) y[i] = (double)x[i];
    return y;
}
/* The checker must see a fault: one entry wrong by 1 % (of the largest, if it is small) is beyond the tolerance. */
static inline bool fault_seen(Mem *m, const float *got, const double *want, int64_t n, double tolerance) {
    float *bad = mem_copy(m, got, (size_t)n * 4);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) if (fabs(want[i]) > fabs(want[at])) at = i;
    bad[at] *= 1.01f;
    return worst(bad, want, n) > tolerance;
}
#define EXPECT_GRAD(r, what, got, want, n, tol) do {                                                             \
        double e_ = worst(got, want, n);                                                                         \
        EXPECT(e_ < (tol), "%s: worst error %.2e of the largest, %.0e allowed", what, e_, (double)(tol));        \
        EXPECT(fault_seen(&(r)->m, got, want, n, tol), "%s: a planted fault of 1 %% was not seen", what);        \
    } while (0)

#define EACH_ISA(i) for (int i = ISA_C; i <= (on_cpu() ? cpu_isa_best() : ISA_C); i++)

#endif
