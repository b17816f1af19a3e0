/* bench_adamw.c [MILLIONS THREADS] - AdamW over so many parameters, and what the memory can do.
 * A line on standard input asks for one measurement and is answered by one line of JSON (bench/peers/adamw.py):
 *   step    one AdamW step: w, m, v and g are read, w, m and v written: 28 bytes a parameter
 *   stream  the same seven streams with one addition for each: the memory's rate for this mix
 *   read    the arrays are only read and summed */
#include "bench.h"

typedef struct {
    float *w, *m, *v, *g;
    int64_t n;
    float sum[256];
} Job;

enum { PIECES = 256 };

#if defined(__clang__) /* has no such attribute: the sums are then slower than the memory could be */
#define OPTIMIZE(how)
#else
#define OPTIMIZE(how) __attribute__((optimize(how)))
#endif
OPTIMIZE("O3")
__attribute__((target_clones("avx512f", "avx2", "default"))) static void
stream(float *restrict w, float *restrict m, float *restrict v, const float *restrict g, int64_t n) {
    for (int64_t i = 0; i < n; i++) w[i] += g[i], m[i] += g[i], v[i] += g[i];
}
OPTIMIZE("O3,associative-math,no-signed-zeros,no-trapping-math")
__attribute__((target_clones("avx512f", "avx2", "default"))) static float add_up(const float *x, int64_t n) {
    float s[64] = { 0 };
    for (int64_t i = 0; i + 64 <= n; i += 64)
        for (int k = 0; k < 64; k++) s[k] += x[i + k];
    float all = 0;
    for (int k = 0; k < 64; k++) all += s[k];
    return all;
}

static void stream_piece(void *arg, int i, int worker) {
    Job *j = arg;
    int64_t n = j->n / PIECES, at = n * i;
    (void)worker;
    stream(j->w + at, j->m + at, j->v + at, j->g + at, n);
}
static void read_piece(void *arg, int i, int worker) {
    Job *j = arg;
    int64_t n = j->n / PIECES, at = n * i;
    (void)worker;
    j->sum[i] = add_up(j->w + at, n) + add_up(j->m + at, n) + add_up(j->v + at, n) + add_up(j->g + at, n);
}

int main(int argc, char **argv) {
    int64_t n = (argc > 1 ? atoll(argv[1]) : 128) * 1024 * 1024;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    Dev d;
    dev_open(&d, (DevOpts){ .threads = threads });
    enum { APART = 4096 / 4 * 5 + 16 * 7 }; /* floats: were they a power of two apart, they would meet in one bank */
    Arena a = dev_arena(&d, "adamw", (size_t)(n + 2 * APART) * 16);
    Tensor t[4];
    for (int i = 0; i < 4; i++) t[i] = tensor_push(&a, DT_F32, 1, n), tensor_push(&a, DT_F32, 1, APART);
    Job j = { t[0].data, t[1].data, t[2].data, t[3].data, n, { 0 } };
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(i % 1999) / 1999 - 0.5f;
        j.w[i] = x, j.m[i] = 0, j.v[i] = 0, j.g[i] = 1e-3f * x;
    }
    Adam adam = { .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .decay = 0.01f, .clip_scale = 1 };
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        double t0 = clock_now(), c0 = bench_cpu(), bytes = 28;
        if (!strncmp(line, "step", 4)) {
            adam.step++;
            op_adamw(&d, t[0], TENSOR_NONE, t[1], t[2], t[3], adam);
        } else if (!strncmp(line, "stream", 6)) {
            threads_run(d.threads, PIECES, stream_piece, &j);
        } else if (!strncmp(line, "read", 4)) {
            threads_run(d.threads, PIECES, read_piece, &j), bytes = 16;
        } else {
            die("step, stream or read, not '%s'", line);
        }
        double s = clock_now() - t0;
        printf("{\"seconds\":%.6f,\"cpu\":%.6f,\"gparam_s\":%.4f,\"gb_s\":%.2f}\n", s, bench_cpu() - c0,
               (double)n / s * 1e-9, bytes * (double)n / s * 1e-9);
        fflush(stdout);
    }
    dev_close(&d);
    return 0;
}
