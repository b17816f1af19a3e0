/* bench_prod.c - products as a share of what the machine can do, measured in the same run: percent of the FMA peak for linear, linear_dx,
 * linear_dw and grouped, percent of read bandwidth for few rows over weights beyond the caches.
 *   bench_prod [threads] [seconds per figure]
 * One thread is timed by the CPU time it got (a shared machine), several by the clock on the wall. */
#include "base/clock.h"
#include "op/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double now(int threads) {
    struct timespec t;
    if (threads > 1) return clock_now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* seconds of the fastest of several repeats */
#define BEST(sec, th, budget, ...)                                      \
    do {                                                                \
        double best_ = 1e30, s_ = clock_now();                          \
        for (int n_ = 0; n_ < 3 || clock_now() - s_ < (budget); n_++) { \
            double t_ = now(th);                                        \
            __VA_ARGS__;                                                \
            t_ = now(th) - t_;                                          \
            if (t_ < best_) best_ = t_;                                 \
        }                                                               \
        (sec) = best_;                                                  \
    } while (0)

enum { LOOPS = 100000 };
#if defined(__x86_64__)
#include <immintrin.h>
__attribute__((target("avx512f"))) static void peak512(void) {
    __m512 c[10];
    for (int i = 0; i < 10; i++) c[i] = _mm512_set1_ps(1);
    for (int k = 0; k < LOOPS; k++)
        __asm__ volatile("vfmadd231ps %0,%0,%0\n vfmadd231ps %1,%1,%1\n vfmadd231ps %2,%2,%2\n vfmadd231ps %3,%3,%3\n"
                         "vfmadd231ps %4,%4,%4\n vfmadd231ps %5,%5,%5\n vfmadd231ps %6,%6,%6\n vfmadd231ps %7,%7,%7\n"
                         "vfmadd231ps %8,%8,%8\n vfmadd231ps %9,%9,%9\n"
                         : "+v"(c[0]), "+v"(c[1]), "+v"(c[2]), "+v"(c[3]), "+v"(c[4]), "+v"(c[5]), "+v"(c[6]), "+v"(c[7]), "+v"(c[8]), "+v"(c[9]));
}
__attribute__((target("avx2,fma"))) static void peak256(void) {
    __m256 c[10];
    for (int i = 0; i < 10; i++) c[i] = _mm256_set1_ps(1);
    for (int k = 0; k < LOOPS; k++)
        __asm__ volatile("vfmadd231ps %0,%0,%0\n vfmadd231ps %1,%1,%1\n vfmadd231ps %2,%2,%2\n vfmadd231ps %3,%3,%3\n"
                         "vfmadd231ps %4,%4,%4\n vfmadd231ps %5,%5,%5\n vfmadd231ps %6,%6,%6\n vfmadd231ps %7,%7,%7\n"
                         "vfmadd231ps %8,%8,%8\n vfmadd231ps %9,%9,%9\n"
                         : "+x"(c[0]), "+x"(c[1]), "+x"(c[2]), "+x"(c[3]), "+x"(c[4]), "+x"(c[5]), "+x"(c[6]), "+x"(c[7]), "+x"(c[8]), "+x"(c[9]));
}
__attribute__((target("avx512f"))) static float sum512(const float *x, int64_t n) {
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    for (int64_t i = 0; i + 64 <= n; i += 64)
        a = _mm512_add_ps(a, _mm512_loadu_ps(x + i)), b = _mm512_add_ps(b, _mm512_loadu_ps(x + i + 16)), c = _mm512_add_ps(c, _mm512_loadu_ps(x + i + 32)),
        d = _mm512_add_ps(d, _mm512_loadu_ps(x + i + 48));
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
}
#endif

typedef struct {
    Dev *d;
    const float *x;
    int64_t n;
    float out[256];
} Job;
static void peak_piece(void *arg, int i, int worker) {
    const Job *j = arg;
    (void)i, (void)worker;
#if defined(__x86_64__)
    if (j->d->isa == ISA_AVX512) peak512();
    if (j->d->isa == ISA_AVX2) peak256();
#endif
}
static void read_piece(void *arg, int i, int worker) {
    Job *j = arg;
    int64_t n = j->n / 64;
    (void)worker;
#if defined(__x86_64__)
    if (j->d->isa == ISA_AVX512) j->out[i] = sum512(j->x + n * i, n);
    else
#endif
        j->out[i] = cpu_kern(j->d)->max(j->x + n * i, n);
}

typedef struct {
    int M, I, O;
} Shape;
static Tensor fill(Arena *a, int64_t r, int64_t c, float f) {
    Tensor t = tensor_push(a, DT_F32, r, c);
    float *x = t.data;
    for (int64_t i = 0; i < r * c; i++) x[i] = f * (float)((i * 2654435761u >> 7) % 2001 - 1000) / 1000;
    return t;
}

int main(int argc, char **argv) {
    int th = argc > 1 ? atoi(argv[1]) : 1;
    double budget = argc > 2 ? atof(argv[2]) : 0.15, sec;
    Dev d;
    dev_open(&d, (DevOpts){ .threads = th, .isa = argc > 3 ? atoi(argv[3]) : 0 });
    Job j = { .d = &d };
    BEST(sec, th, 0.3, threads_run(d.threads, th, peak_piece, &j));
    double peak = (double)LOOPS * 10 * (d.isa == ISA_AVX512 ? 32 : 16) * th / sec * 1e-9;
    printf("%s, %d thread%s: FMA peak %.0f GFLOP/s\n", cpu_kern(&d)->name, th, th > 1 ? "s" : "", peak);
    printf("%6s %6s %6s | %7s %7s %7s %7s | per cent of peak: linear, with 8 pieces, dx, dw\n", "rows", "in", "out", "lin", "lin/8", "dx", "dw");
    static const Shape dense[] = {
        { 1, 1024, 1024 }, { 4, 1024, 1024 }, { 16, 1024, 1024 }, { 64, 256, 256 }, { 64, 256, 768 }, { 64, 1024, 1024 }, { 64, 2048, 2048 }, { 64, 4096, 4096 }, { 512, 256, 256 }, { 512, 256, 768 }, { 512, 1024, 1024 }, { 512, 2048, 2048 }, { 512, 4096, 1024 }, { 2048, 256, 512 }
    };
    Arena a = dev_arena(&d, "bench", (size_t)1200 << 20);
    for (size_t i = 0; i < COUNT(dense); i++) {
        Shape s = dense[i];
        size_t mark = arena_mark(&a);
        Tensor x = fill(&a, s.M, s.I, 1), w = fill(&a, s.O, s.I, 0.1f), y = fill(&a, s.M, s.O, 1), dx = fill(&a, s.M, s.I, 0), dw = fill(&a, s.O, s.I, 0);
        double f = 2.0 * s.M * s.I * s.O * 1e-9, t[4];
        BEST(t[0], th, budget, op_linear(&d, y, x, w, TENSOR_NONE, leaves_one(s.I)));
        BEST(t[1], th, budget, op_linear(&d, y, x, w, TENSOR_NONE, leaves_all(8, s.I, 1)));
        BEST(t[2], th, budget, op_linear_dx(&d, dx, y, w, leaves_one(s.O)));
        BEST(t[3], th, budget, op_linear_dw(&d, dw, TENSOR_NONE, y, x));
        printf("%6d %6d %6d |", s.M, s.I, s.O);
        for (int k = 0; k < 4; k++) printf(" %7.1f", 100 * f / t[k] / peak);
        printf("\n");
        arena_pop(&a, mark);
    }
    printf("%6s %6s %6s %6s | %7s %7s %7s | experts x rows each: grouped, dx, dw\n", "E", "rows", "in", "out", "grp", "dx", "dw");
    static const struct { int E, M, I, O; } moe[] = { { 16, 16, 256, 96 }, { 16, 32, 256, 96 }, { 16, 32, 96, 256 }, { 16, 64, 256, 96 }, { 16, 64, 96, 256 }, { 16, 128, 256, 96 }, { 8, 64, 1024, 768 }, { 8, 64, 768, 1024 }, { 4, 64, 2048, 2048 } };
    for (size_t i = 0; i < COUNT(moe); i++) {
        int E = moe[i].E, M = moe[i].M, I = moe[i].I, O = moe[i].O;
        size_t mark = arena_mark(&a);
        Tensor x = fill(&a, E * M, I, 1), w = fill(&a, E * O, I, 0.1f), y = fill(&a, E * M, O, 1), dx = fill(&a, E * M, I, 0), dw = fill(&a, E * O, I, 0);
        Tensor at = tensor_push(&a, DT_I32, 1, E + 1);
        for (int e = 0; e <= E; e++) ((int32_t *)at.data)[e] = e * M;
        Seqs ex = { E, M, at };
        double f = 2.0 * E * M * I * O * 1e-9, t[3];
        BEST(t[0], th, budget, op_grouped(&d, y, x, w, ex, leaves_one(I)));
        BEST(t[1], th, budget, op_grouped_dx(&d, dx, y, w, ex, leaves_one(O)));
        BEST(t[2], th, budget, op_grouped_dw(&d, dw, y, x, ex));
        printf("%6d %6d %6d %6d |", E, M, I, O);
        for (int k = 0; k < 3; k++) printf(" %7.1f", 100 * f / t[k] / peak);
        printf("\n");
        arena_pop(&a, mark);
    }
    /* few rows: weights of 512 MiB in f32, beyond the caches */
    enum { BI = 2048,
           BO = 65536 };
    Tensor w = fill(&a, BO, BI, 0.1f);
    j.x = w.data, j.n = (int64_t)BO * BI;
    BEST(sec, th, budget, threads_run(d.threads, 64, read_piece, &j));
    double bw = (double)j.n * 4 / sec * 1e-9;
    printf("reading %d MiB: %.1f GB/s\n", BO / 1024 * BI / 256, bw);
    for (int M = 1; M <= 8; M *= 2) {
        size_t mark = arena_mark(&a);
        Tensor x = fill(&a, M, BI, 1), y = fill(&a, M, BO, 0), w16 = tensor_over(w.data, DT_BF16, 2 * BO, BI), y2 = fill(&a, M, 2 * BO, 0);
        double t, t16;
        BEST(t, th, budget, op_linear(&d, y, x, w, TENSOR_NONE, leaves_one(BI)));
        BEST(t16, th, budget, op_linear(&d, y2, x, w16, TENSOR_NONE, leaves_one(BI)));
        printf("%6d rows: f32 %.1f, bf16 %.1f per cent of it\n", M, 100 * (double)j.n * 4e-9 / t / bw, 100 * (double)j.n * 4e-9 / t16 / bw);
        arena_pop(&a, mark);
    }
    dev_close(&d);
    return 0;
}
