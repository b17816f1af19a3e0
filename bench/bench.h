/* bench.h - what the benchmarks of op/ share: a clock, the FMA peak, the read bandwidth, filled tensors.
 * One thread is timed by the CPU time it got (a shared machine), several by the clock on the wall. */
#ifndef BENCH_H
#define BENCH_H

#include "base/clock.h"
#include "op/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline double bench_now(int threads) {
    struct timespec t;
    if (threads > 1) return clock_now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* the processor's seconds of all threads */
static inline double bench_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* seconds of the fastest of several repeats */
#define BEST(sec, th, budget, ...)                                      \
    do {                                                                \
        double best_ = 1e30, s_ = clock_now();                          \
        for (int n_ = 0; n_ < 3 || clock_now() - s_ < (budget); n_++) { \
            double t_ = bench_now(th);                                        \
            __VA_ARGS__;                                                \
            t_ = bench_now(th) - t_;                                          \
            if (t_ < best_) best_ = t_;                                 \
        }                                                               \
        (sec) = best_;                                                  \
    } while (0)

enum { LOOPS = 20000 };
#if defined(__x86_64__)
#include <immintrin.h>
/* Ten sums in registers; every instruction is one of a chain of its own. */
#define PEAK(name, isa, T, ONE, C)                                                                                     \
    __attribute__((target(isa))) static inline void name(void) {                                                       \
        T a = ONE, b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a;                                      \
        for (int k = 0; k < LOOPS; k++)                                                                                \
            __asm__ volatile("vfmadd231ps %0,%0,%0\n vfmadd231ps %1,%1,%1\n vfmadd231ps %2,%2,%2\n"                    \
                             "vfmadd231ps %3,%3,%3\n vfmadd231ps %4,%4,%4\n vfmadd231ps %5,%5,%5\n"                    \
                             "vfmadd231ps %6,%6,%6\n vfmadd231ps %7,%7,%7\n vfmadd231ps %8,%8,%8\n"                    \
                             "vfmadd231ps %9,%9,%9\n"                                                                  \
                             : C(a), C(b), C(c), C(d), C(e), C(f), C(g), C(h), C(i), C(j));                            \
    }
#define REG512(x) "+v"(x)
#define REG256(x) "+x"(x)
PEAK(peak512, "avx512f", __m512, _mm512_set1_ps(1), REG512)
PEAK(peak256, "avx2,fma", __m256, _mm256_set1_ps(1), REG256)
/* Reading: n floats as 'streams' that are read side by side, lines asked for 'ahead' floats before they are needed.
 * Which way is the quickest differs from machine to machine, so the yardstick is the best of several. */
#define SUM(name, isa, T, W, ZERO, ADD, LOAD)                                                                          \
    __attribute__((target(isa))) static inline float name(const float *x, int64_t n, int streams, int ahead) {         \
        T s[4] = { ZERO(), ZERO(), ZERO(), ZERO() };                                                                   \
        int64_t each = n / streams;                                                                                    \
        for (int64_t i = 0; i + 64 <= each; i += 64)                                                                   \
            for (int k = 0; k < streams; k++) {                                                                        \
                const float *p = x + k * each + i;                                                                     \
                for (int v = 0; v < 64; v += 16) _mm_prefetch((const char *)(p + v + ahead), _MM_HINT_T0);             \
                for (int v = 0; v < 64; v += W) s[v / W % 4] = ADD(s[v / W % 4], LOAD(p + v));                         \
            }                                                                                                          \
        float out[W];                                                                                                  \
        memcpy(out, &s[0], sizeof out);                                                                                \
        __asm__ volatile("" : : "x"(s[1]), "x"(s[2]), "x"(s[3]));                                                      \
        return out[0];                                                                                                 \
    }
SUM(sum512, "avx512f", __m512, 16, _mm512_setzero_ps, _mm512_add_ps, _mm512_loadu_ps)
SUM(sum256, "avx2", __m256, 8, _mm256_setzero_ps, _mm256_add_ps, _mm256_loadu_ps)
/* The same number of multiply-adds on 6 x 64 sums, operands from the first cache: what any kernel of products is up
 * against on a core that somebody else may be using, too. */
enum { NEAR_K = 96, NEAR_TIMES = LOOPS * 10 / (24 * NEAR_K) };
__attribute__((target("avx512f"))) static inline float near512(void) {
    static _Thread_local float a[NEAR_K * 6], b[NEAR_K * 64];
    __m512 s[6][4];
#pragma GCC unroll 6
    for (int r = 0; r < 6; r++)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) s[r][v] = _mm512_setzero_ps();
    for (int t = 0; t < NEAR_TIMES; t++)
        for (const float *p = a, *q = b; p < a + NEAR_K * 6; p += 6, q += 64) {
            __m512 x[4];
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) x[v] = _mm512_loadu_ps(q + 16 * v);
#pragma GCC unroll 6
            for (int r = 0; r < 6; r++) {
                __m512 y = _mm512_set1_ps(p[r]);
#pragma GCC unroll 4
                for (int v = 0; v < 4; v++) __asm__("vfmadd231ps %2, %1, %0" : "+v"(s[r][v]) : "v"(y), "v"(x[v]));
            }
        }
    __m512 all = s[0][0];
#pragma GCC unroll 6
    for (int r = 0; r < 6; r++)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) all = _mm512_add_ps(all, s[r][v]);
    return _mm512_reduce_add_ps(all);
}
#endif

typedef struct {
    Dev *d;
    const float *x;
    int64_t n;
    int streams, ahead;
    bool near;
    float out[256];
} BenchJob;
static inline void bench_peak_piece(void *arg, int i, int worker) {
    BenchJob *j = arg;
    (void)i, (void)worker;
#if defined(__x86_64__)
    if (j->near) {
        j->out[worker] = near512();
        return;
    }
    if (cpu_dev(j->d)->isa == ISA_AVX512) peak512();
    if (cpu_dev(j->d)->isa == ISA_AVX2) peak256();
#endif
}
static inline void bench_read_piece(void *arg, int i, int worker) {
    BenchJob *j = arg;
    int64_t n = j->n / 64;
    (void)worker;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) j->out[i] = sum512(j->x + n * i, n, j->streams, j->ahead);
    else if (__builtin_cpu_supports("avx2")) j->out[i] = sum256(j->x + n * i, n, j->streams, j->ahead);
    else
#endif
        j->out[i] = cpu_kern(j->d)->max(j->x + n * i, n);
}

static inline Tensor bench_fill(Arena *a, int64_t r, int64_t c, float f) {
    Tensor t = tensor_push(a, DT_F32, r, c);
    float *x = t.data;
    for (int64_t i = 0; i < r * c; i++) x[i] = f * (float)((i * 2654435761u >> 7) % 2001 - 1000) / 1000;
    return t;
}

/* GFLOP/s of a bare loop of multiply-adds on all threads */
static inline double bench_peak(Dev *d) {
    BenchJob j = { .d = d };
    int th = threads_count(d->threads);
    double sec;
    BEST(sec, th, 0.3, threads_run(d->threads, th, bench_peak_piece, &j));
    return (double)LOOPS * 10 * (cpu_dev(d)->isa == ISA_AVX512 ? 32 : 16) * th / sec * 1e-9;
}

/* ---- a share of the machine's limit, measured before and after every repeat: a shared machine's speed moves */
static inline int bench_by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* GFLOP/s of the bare loop, once; with several threads long enough that one which has to be woken takes its share */
static inline double bench_peak_once(Dev *d) {
    BenchJob j = { .d = d };
    int th = threads_count(d->threads), pieces = th > 1 ? 12 * th : 1;
    double t = bench_now(th);
    threads_run(d->threads, pieces, bench_peak_piece, &j);
    return (double)LOOPS * 10 * (cpu_dev(d)->isa == ISA_AVX512 ? 32 : 16) * pieces / (bench_now(th) - t) * 1e-9;
}
/* The same with operands from the first cache, in per cent of the bare loop beside it; 0 without AVX-512 */
static inline double bench_near(Dev *d) {
    BenchJob j = { .d = d, .near = true };
    int th = threads_count(d->threads), pieces = 12 * th;
    if (cpu_dev(d)->isa != ISA_AVX512) return 0;
    double before = bench_peak_once(d), t = bench_now(th);
    threads_run(d->threads, pieces, bench_peak_piece, &j);
    double rate = (double)NEAR_TIMES * NEAR_K * 24 * 32 * pieces / (bench_now(th) - t) * 1e-9;
    return 100 * rate / (0.5 * (before + bench_peak_once(d)));
}
typedef struct {
    double share, best, sec;                    /* median and best tenth in per cent of the limit; median of seconds */
} Share;
enum { SHARES = 1000 };
static inline Share bench_share(double *r, double *t, int n) {
    qsort(r, (size_t)n, sizeof r[0], bench_by_size), qsort(t, (size_t)n, sizeof t[0], bench_by_size);
    return (Share){ r[n / 2], r[n - 1 - n / 10], t[n / 2] };
}
/* 'once' measures the limit, in 1e9 units a second; 'giga' of them are done by one call,
 * which is repeated to last as long as 'once' about */
#define SHARE(out, d, budget, once, giga, ...)                                                                         \
    do {                                                                                                               \
        double r_[SHARES], t_[SHARES], s_, before_ = (once), after_;                                                  \
        int th_ = threads_count((d)->threads), n_ = 0, calls_ = 1;                                                    \
        s_ = bench_now(th_);                                                                                           \
        __VA_ARGS__;                                                                                                   \
        s_ = bench_now(th_) - s_;                                                                                      \
        if (s_ < 2e-4) calls_ = (int)(2e-4 / s_) + 1;                                                                  \
        s_ = clock_now();                                                                                              \
        while (n_ < 5 || (n_ < SHARES && clock_now() - s_ < (budget))) {                                               \
            double b_ = bench_now(th_);                                                                                \
            for (int c_ = 0; c_ < calls_; c_++) __VA_ARGS__;                                                           \
            t_[n_] = (bench_now(th_) - b_) / calls_;                                                                   \
            after_ = (once);                                                                                           \
            r_[n_] = 100 * (giga) / t_[n_] / (0.5 * (before_ + after_)), before_ = after_, n_++;                       \
        }                                                                                                              \
        (out) = bench_share(r_, t_, n_);                                                                               \
    } while (0)
/* GB/s of reading n floats, the quickest of the ways above */
static inline double bench_read_once(Dev *d, const float *x, int64_t n) {
    static const int ways[][2] = { { 1, 0 }, { 1, 512 }, { 4, 0 }, { 4, 512 } };
    double least = INFINITY;
    for (size_t i = 0; i < COUNT(ways); i++) {
        BenchJob j = { .d = d, .x = x, .n = n, .streams = ways[i][0], .ahead = ways[i][1] };
        double t = clock_now();
        threads_run(d->threads, 64, bench_read_piece, &j);
        t = clock_now() - t;
        least = t < least ? t : least;
    }
    return (double)n * 4 / least * 1e-9;
}
#endif
