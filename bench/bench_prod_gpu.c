/* bench_prod_gpu.c - products and the head on a GPU: TFLOP/s of training shapes, microseconds of few rows over
 * weights that come from memory, TB/s of experts' weights, milliseconds of the head.  Wants libhone_cuda.so beside
 * it (build/gpu); the peer is bench/peers/prod_gpu.py.
 *   bench_prod_gpu [pause in ms [dense]]
 *   bench_prod_gpu PAUSE of SHAPE...: OxI few rows, TxOxI, ExOxIxT experts
 * The chip is limited by power: each figure is the median of 5 groups of calls after a pause, so that all begin
 * alike. */
#include "base/clock.h"
#include "op/op_fused.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
    Dev d;
    Arena a;
    Mem m;
    int pause;
} Bench;

/* Random bf16 of about unit variance: speed depends on the numbers. */
enum { NOISE = 1 << 22 };
static Tensor noise(Bench *b, int64_t rows, int64_t cols) {
    static uint16_t *x;
    Tensor t = tensor_push(&b->a, DT_BF16, rows, cols);
    if (!x) {
        uint64_t s = 88172645463325252u;
        x = MEM_ARRAY(&b->m, uint16_t, NOISE);
        for (int i = 0; i < NOISE; i++) {
            float f = 0;
            for (int k = 0; k < 4; k++)
                s ^= s << 13, s ^= s >> 7, s ^= s << 17, f += (float)(s >> 40) / (1 << 24) - .5f;
            union {
                float f;
                uint32_t u;
            } y = { f * 1.732f };
            x[i] = (uint16_t)(y.u >> 16);
        }
    }
    for (int64_t r = 0, n = NOISE / cols; r < rows; r += n)
        op_put(&b->d, tensor_rows(t, r, rows - r < n ? rows - r : n), x);
    return t;
}
static Tensor zeros(Bench *b, DType t, int64_t rows, int64_t cols) {
    Tensor x = tensor_push(&b->a, t, rows, cols);
    op_zero(&b->d, x);
    return x;
}

/* One call of each product; w moves on through 'copies' weights, so that they come from memory. */
typedef struct {
    Tensor y, x, w, dx, dw;
    Leaves in, out;
    int copies, now;
    Seqs ex;
    Head head;
    Sample draw;
    Tensor dh, dlp, dent;
    void *graph;
} Run;
typedef void Call(Bench *b, Run *r);
static void fwd(Bench *b, Run *r) {
    int64_t O = r->y.cols;
    op_linear(&b->d, r->y, r->x, tensor_rows(r->w, O * r->now, O), TENSOR_NONE, r->in);
    r->now = (r->now + 1) % r->copies;
}
static void dx(Bench *b, Run *r) { op_linear_dx(&b->d, r->dx, r->y, r->w, r->out); }
static void dw(Bench *b, Run *r) { op_linear_dw(&b->d, r->dw, TENSOR_NONE, r->y, r->x); }
static void dw_first(Bench *b, Run *r) { op_linear_dw_first(&b->d, r->dw, TENSOR_NONE, r->y, r->x); }
static void gfwd(Bench *b, Run *r) { op_grouped(&b->d, r->y, r->x, r->w, r->ex, r->in); }
static void gdx(Bench *b, Run *r) { op_grouped_dx(&b->d, r->dx, r->y, r->w, r->ex, r->out); }
static void gdw(Bench *b, Run *r) { op_grouped_dw(&b->d, r->dw, r->y, r->x, r->ex); }
static void gdw_first(Bench *b, Run *r) { op_grouped_dw_first(&b->d, r->dw, r->y, r->x, r->ex); }
static void score(Bench *b, Run *r) { op_logprob(&b->d, &r->head); }
static void back(Bench *b, Run *r) { op_logprob_bwd(&b->d, r->dh, r->dw, r->dlp, r->dent, &r->head); }
static void draw(Bench *b, Run *r) { op_sample(&b->d, &r->draw); }
static void again(Bench *b, Run *r) { b->d.ops->replay(&b->d, r->graph); }

static void finish(Bench *b) {
    unsigned char one[64];
    op_get(&b->d, one, tensor_over(b->a.base, DT_U8, 1, sizeof one));
}
static double seconds(Bench *b, Call *call, Run *r, int reps) {
    double t[5];
    call(b, r), call(b, r), finish(b);
    nanosleep(&(struct timespec){ b->pause / 1000, b->pause % 1000 * 1000000L }, NULL);
    for (int g = 0; g < 5; g++) {
        t[g] = clock_now();
        for (int i = 0; i < reps; i++) call(b, r);
        finish(b);
        t[g] = (clock_now() - t[g]) / reps;
        for (int i = g; i > 0 && t[i] < t[i - 1]; i--) {
            double y = t[i];
            t[i] = t[i - 1], t[i - 1] = y;
        }
    }
    return t[2];
}

/* As a graph, as decoding has them and the peer too: a call on each of the copies in turn. */
static double seconds_captured(Bench *b, Call *call, Run *r) {
    const Ops *ops = b->d.ops;
    int n = r->copies > 4 ? r->copies : 4 * r->copies;
    call(b, r), finish(b); /* what is made at a first call */
    ops->record(&b->d);
    for (int i = 0; i < n; i++) call(b, r);
    r->graph = ops->recorded(&b->d);
    double t = seconds(b, again, r, 200 / n + 1) / n;
    ops->forget(&b->d, r->graph);
    return t;
}

static void dense(Bench *b, int64_t T, int64_t O, int64_t I) {
    size_t mark = arena_mark(&b->a);
    double fl = 2.0 * (double)T * (double)O * (double)I * 1e-12;
    Run r = { .y = noise(b, T, O),
              .x = noise(b, T, I),
              .w = noise(b, O, I),
              .dx = noise(b, T, I),
              .dw = zeros(b, DT_F32, O, I),
              .in = leaves_one(I),
              .out = leaves_one(O),
              .copies = 1 };
    printf("dense %ld x %ld x %ld, TFLOP/s: forward %.0f, dx %.0f, dw %.0f, first %.0f; pieces", (long)T, (long)O,
           (long)I, fl / seconds(b, fwd, &r, 8), fl / seconds(b, dx, &r, 8), fl / seconds(b, dw, &r, 8),
           fl / seconds(b, dw_first, &r, 8));
    for (int of = 2; of <= 32; of *= 4) {
        r.in = leaves_all(of, I, 1);
        printf(" %d: %.0f", of, fl / seconds(b, fwd, &r, 8));
    }
    printf("\n");
    fflush(stdout);
    arena_pop(&b->a, mark);
}
static void few(Bench *b, int64_t O, int64_t I) {
    static const int rows[] = { 1, 16, 64, 128, 256 };
    size_t mark = arena_mark(&b->a);
    int copies = (int)(4e8 / (2.0 * (double)O * (double)I)) + 1;
    Tensor w = noise(b, O * copies, I);
    printf("few %ld x %ld, us:", (long)O, (long)I);
    for (size_t i = 0; i < COUNT(rows); i++) {
        Run r = { .y = noise(b, rows[i], O), .x = noise(b, rows[i], I), .w = w, .in = leaves_one(I), .copies = copies };
        printf(" M%d %.1f", rows[i], seconds_captured(b, fwd, &r) * 1e6);
    }
    printf("\n");
    fflush(stdout);
    arena_pop(&b->a, mark);
}
static void experts(Bench *b, int E, int64_t O, int64_t I, int64_t T) {
    size_t mark = arena_mark(&b->a);
    int32_t *at = MEM_ARRAY(&b->m, int32_t, (size_t)E + 1);
    uint64_t s = 0x9E3779B97F4A7C15u;
    int touched = 0;
    for (int64_t t = 0; t < T; t++) s ^= s << 13, s ^= s >> 7, s ^= s << 17, at[1 + s % (uint64_t)E]++;
    for (int e = 0; e < E; e++) touched += at[e + 1] > 0, at[e + 1] += at[e];
    Tensor tat = tensor_push(&b->a, DT_I32, 1, E + 1);
    op_put(&b->d, tat, at);
    Run r = { .y = noise(b, T, O),
              .x = noise(b, T, I),
              .w = noise(b, E * O, I),
              .in = leaves_one(I),
              .out = leaves_one(O),
              .copies = 1,
              .ex = { E, (int)T, tat } };
    double fl = 2.0 * (double)T * (double)O * (double)I * 1e-12, by = 2.0 * touched * (double)O * (double)I * 1e-12;
    double t = T < 4096 ? seconds_captured(b, gfwd, &r) : seconds(b, gfwd, &r, 10);
    printf("experts %d of %ld x %ld, %ld rows at random: ", E, (long)O, (long)I, (long)T);
    if (T < 4096) printf("%.1f us, %.2f TB/s of %d experts' weights\n", t * 1e6, by / t, touched);
    else {
        r.dx = noise(b, T, I), r.dw = zeros(b, DT_F32, E * O, I);
        printf("TFLOP/s forward %.0f, dx %.0f, dw %.0f, first %.0f\n", fl / t, fl / seconds(b, gdx, &r, 5),
               fl / seconds(b, gdw, &r, 5), fl / seconds(b, gdw_first, &r, 5));
    }
    fflush(stdout);
    arena_pop(&b->a, mark);
}
static void head(Bench *b, int64_t V, int64_t H) {
    static const int rows[] = { 256, 4096, 16384 }, few_rows[] = { 1, 64, 256 };
    size_t mark = arena_mark(&b->a);
    Tensor w = noise(b, V, H), grad = zeros(b, DT_F32, V, H);
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t T = rows[i];
        float *p = MEM_ARRAY(&b->m, float, (size_t)T);
        int32_t *ids = MEM_ARRAY(&b->m, int32_t, (size_t)T);
        for (int64_t t = 0; t < T; t++) p[t] = .9f, ids[t] = (int32_t)(t * 7919 % V);
        Run r = { .dw = grad, .dh = noise(b, T, H), .dlp = zeros(b, DT_F32, T, 1), .dent = zeros(b, DT_F32, T, 1) };
        r.head = (Head){ .h = noise(b, T, H),
                         .w = w,
                         .ids = tensor_push(&b->a, DT_I32, T, 1),
                         .lp = tensor_push(&b->a, DT_F32, T, 1),
                         .ent = tensor_push(&b->a, DT_F32, T, 1),
                         .stat = tensor_push(&b->a, DT_U8, T, HEAD_STAT) };
        Tensor top_p = tensor_push(&b->a, DT_F32, T, 1);
        op_put(&b->d, r.head.ids, ids), op_put(&b->d, top_p, p);
        double fl = 2.0 * (double)T * (double)V * (double)H * 1e-12;
        double f = seconds(b, score, &r, 3), g = seconds(b, back, &r, 2);
        r.head.dist.top_p = top_p;
        printf("head %ld x %ld, %ld rows, ms: %.2f (%.0f TFLOP/s), backward %.2f (%.0f); top-p %.2f\n", (long)V,
               (long)H, (long)T, f * 1e3, fl / f, g * 1e3, 3 * fl / g, seconds(b, score, &r, 2) * 1e3);
        fflush(stdout);
    }
    for (size_t i = 0; i < COUNT(few_rows); i++) {
        int64_t B = few_rows[i];
        float *p = MEM_ARRAY(&b->m, float, (size_t)B);
        int64_t *random = MEM_ARRAY(&b->m, int64_t, (size_t)B);
        for (int64_t t = 0; t < B; t++) p[t] = .9f, random[t] = t * 0x5851F42D4C957F2D;
        Run r = { .draw = { .h = noise(b, B, H),
                            .w = w,
                            .random = tensor_push(&b->a, DT_I64, B, 1),
                            .id = tensor_push(&b->a, DT_I32, B, 1),
                            .lp = tensor_push(&b->a, DT_F32, B, 1),
                            .ent = tensor_push(&b->a, DT_F32, B, 1) } };
        Tensor top_p = tensor_push(&b->a, DT_F32, B, 1);
        op_put(&b->d, r.draw.random, random), op_put(&b->d, top_p, p);
        double t = seconds(b, draw, &r, 20);
        r.draw.dist.top_p = top_p;
        printf("draw %ld rows: %.0f us, top-p %.0f us\n", (long)B, t * 1e6, seconds(b, draw, &r, 20) * 1e6);
        fflush(stdout);
    }
    arena_pop(&b->a, mark);
}

int main(int argc, char **argv) {
    Bench b = { .pause = argc > 1 ? atoi(argv[1]) : 100 };
    Err err;
    CHECK(dev_open_cuda(&b.d, (CudaOpts){ .act = DT_BF16 }, NULL, &err), "%s", err.msg);
    b.a = dev_arena(&b.d, "bench", (size_t)12 << 30);
    b.d.tmp = dev_arena(&b.d, "tmp", (size_t)2 << 30);
    if (argc > 3) { /* shapes of the caller's */
        for (int i = 3; i < argc; i++) {
            long n[4] = { 0 };
            switch (sscanf(argv[i], "%ldx%ldx%ldx%ld", n, n + 1, n + 2, n + 3)) {
            case 2: few(&b, n[0], n[1]); break;
            case 3: dense(&b, n[0], n[1], n[2]); break;
            case 4: experts(&b, (int)n[0], n[1], n[2], n[3]); break;
            default: die("%s is no shape", argv[i]);
            }
        }
        return 0;
    }
    dense(&b, 16384, 4096, 7168), dense(&b, 16384, 2048, 4096), dense(&b, 16384, 7168, 2048);
    dense(&b, 4096, 5120, 2048), dense(&b, 4096, 2048, 4096);
    few(&b, 4096, 7168), few(&b, 7168, 2048), few(&b, 2048, 4096), few(&b, 5120, 2048);
    if (argc > 2) return 0; /* what the peer has too */
    experts(&b, 128, 1536, 2048, 131072), experts(&b, 128, 2048, 768, 131072);
    experts(&b, 128, 1536, 2048, 128), experts(&b, 128, 1536, 2048, 512), experts(&b, 128, 1536, 2048, 2048);
    head(&b, 151936, 2048);
    dev_close(&b.d);
    mem_free(&b.m);
    return 0;
}
