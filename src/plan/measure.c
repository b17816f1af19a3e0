/* measure.c - what the machine under us can do: float32 multiply-adds and bytes moved a second, on all cores at once.
 * Twelve independent chains of vectors hide the latency of fma; the instruction set is the best that the processor has.
 * Compiled with contraction and unrolling (CMakeLists.txt): nothing but a time comes of it.
 *
 * A thread's multiply-adds are timed by its own clock: on a machine that others use too, two threads may have to take
 * turns on one core, and by the wall's clock the peak came out at half of what the machine has. */
#include "base/clock.h"
#include "base/sort.h"
#include "base/threads.h"
#include "plan/machine.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { CHAINS = 12, ROUNDS = 200000, TRIES = 15 };

#define FMA_LOOP(name, isa, width)                                                                                     \
    typedef float name##_v __attribute__((vector_size(4 * (width))));                                                  \
    __attribute__((target(isa))) static float name(float x) {                                                          \
        name##_v a[CHAINS], m = x - (name##_v){ 0 } + 1.0f, c = m * 1e-9f;                                             \
        for (int k = 0; k < CHAINS; k++) a[k] = m + (float)k;                                                          \
        for (int i = 0; i < ROUNDS; i++)                                                                               \
            for (int k = 0; k < CHAINS; k++) a[k] = a[k] * m + c;                                                      \
        float s = 0;                                                                                                   \
        for (int k = 0; k < CHAINS; k++) s += a[k][0];                                                                 \
        return s;                                                                                                      \
    }
#if defined(__x86_64__)
FMA_LOOP(chains_512, "avx512f", 16)
FMA_LOOP(chains_256, "avx2,fma", 8)
#define HAS_ISA 1
#endif
typedef float wide4 __attribute__((vector_size(16)));
static float chains_any(float x) {
    wide4 a[CHAINS], m = x - (wide4){ 0 } + 1.0f, c = m * 1e-9f;
    for (int k = 0; k < CHAINS; k++) a[k] = m + (float)k;
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < CHAINS; k++) a[k] = a[k] * m + c;
    float s = 0;
    for (int k = 0; k < CHAINS; k++) s += a[k][0];
    return s;
}

typedef struct {
    float (*chains)(float);
    float *sink;
    double *seconds; /* [threads], 8 apart */
    char *from, *to;
    size_t bytes;
} Work;

static void run_chains(void *arg, int index, int worker) {
    (void)worker;
    Work *w = arg;
    double t0 = clock_thread();
    w->sink[index * 16] += w->chains(1e-7f);
    w->seconds[index * 8] = clock_thread() - t0;
}

static void run_copy(void *arg, int index, int worker) {
    (void)worker;
    Work *w = arg;
    memcpy(w->to + w->bytes * (size_t)index, w->from + w->bytes * (size_t)index, w->bytes);
}

static double best_of(Threads *t, int n, ThreadFn *fn, Work *w, int times) {
    double best = 1e30;
    for (int i = 0; i < times; i++) {
        double t0 = clock_now();
        threads_run(t, n, fn, w);
        double s = clock_now() - t0;
        if (s < best) best = s;
    }
    return best;
}

/* Multiply-adds a second of all threads; the middle one of several tries: in a few of them some threads run alone, and
 * one that shares its core with another is quicker alone than it ever is in a run. */
static double chains_rate(Threads *t, int n, Work *w, int lanes) {
    uint64_t rate[TRIES];
    for (int i = 0; i < TRIES; i++) {
        double sum = 0;
        threads_run(t, n, run_chains, w);
        for (int k = 0; k < n; k++) sum += (double)lanes * CHAINS * ROUNDS / w->seconds[k * 8];
        rate[i] = (uint64_t)sum;
    }
    sort_u64(rate, TRIES);
    return (double)rate[TRIES / 2];
}

static Work work_here(int *lanes) {
    Work w = { .chains = chains_any };
    *lanes = 4;
#ifdef HAS_ISA
    if (__builtin_cpu_supports("avx512f")) w.chains = chains_512, *lanes = 16;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) w.chains = chains_256, *lanes = 8;
#endif
    return w;
}

static double flops_of(Threads *t, int n, Work *w, int lanes, Mem *mem) {
    w->sink = MEM_ARRAY(mem, float, (size_t)n * 16);
    w->seconds = MEM_ARRAY(mem, double, (size_t)n * 8);
    return 2 * chains_rate(t, n, w, lanes);
}

double machine_flops(void) {
    int n = threads_default(), lanes;
    Threads *t = threads_open(n);
    Mem mem = { 0 };
    Work w = work_here(&lanes);
    double flops = flops_of(t, n, &w, lanes, &mem);
    threads_close(t);
    mem_free(&mem);
    return flops;
}

void machine_measure(Machine *out) {
    int n = threads_default(), lanes;
    Threads *t = threads_open(n);
    Mem mem = { 0 };
    Work w = work_here(&lanes);
    w.bytes = (size_t)(n > 16 ? 8 : 64) << 20;
    w.from = mem_push(&mem, w.bytes * (size_t)n), w.to = mem_push(&mem, w.bytes * (size_t)n);
    double flops = flops_of(t, n, &w, lanes, &mem), copy = best_of(t, n, run_copy, &w, 4);
    double pages = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    *out = (Machine){ .name = "this",
                      .flops = flops,
                      .memory = pages,
                      .bandwidth = 2.0 * (double)w.bytes * n / copy,
                      .sms = n,
                      .gemm = 0.8,
                      .attn = 0.5,
                      .nvlink = 5e9,
                      .nic = 1e9,
                      .pcie = 1e12,
                      .domain = 1,
                      .per_node = 1,
                      .host_memory = pages,
                      .host_bandwidth = 2.0 * (double)w.bytes * n / copy,
                      .is_cpu = true };
    threads_close(t);
    mem_free(&mem);
}
