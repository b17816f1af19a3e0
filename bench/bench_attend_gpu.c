/* bench_attend_gpu.c - attention on a GPU: TFLOP/s of training (causal pairs, 2 (dk + dv) forward, 2 (3 dk
 * + 2 dv) backward a pair and head), TB/s of keys and values of decode over shuffled pages.  Wants
 * libhone_cuda.so beside it (build/gpu).
 *   bench_attend_gpu [pause in ms] [number of the one line that is wanted]
 *   bench_attend_gpu PAUSE of SEQUENCESxLENGTHxHEADSxKVxWIDTH...     training of these
 * The chip is limited by power: each figure is the median of 5 groups of calls after a pause,
 * so that all begin alike; 0 gives sustained figures. */
#include "base/clock.h"
#include "op/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    Dev d;
    Arena a;
    Mem m;
    int pause;
} Bench;
typedef struct {
    int seqs, len, heads, kv, dk, dv;
    bool latent, forward, backward;
} Train;
typedef struct {
    int seqs, len, rows, heads, kv, dk, dv; /* rows: new ones of each sequence, the last of len */
    bool latent;
    int columns; /* of the table; 0: as needed */
} Decode;

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
static Tensor ints(Bench *b, int64_t rows, int64_t cols, const int32_t *x) {
    Tensor t = tensor_push(&b->a, DT_I32, rows, cols);
    op_put(&b->d, t, x);
    return t;
}

typedef void Call(Bench *b, void *x);
static void finish(Bench *b, Tensor any) {
    unsigned char one[64];
    op_get(&b->d, one, tensor_over(any.data, DT_U8, 1, sizeof one));
}
static double seconds(Bench *b, Call *call, void *x, Tensor any, int reps) {
    double t[5];
    call(b, x), call(b, x), finish(b, any);
    nanosleep(&(struct timespec){ b->pause / 1000, b->pause % 1000 * 1000000L }, NULL);
    for (int g = 0; g < 5; g++) {
        t[g] = clock_now();
        for (int i = 0; i < reps; i++) call(b, x);
        finish(b, any);
        t[g] = (clock_now() - t[g]) / reps;
        for (int i = g; i > 0 && t[i] < t[i - 1]; i--) {
            double y = t[i];
            t[i] = t[i - 1], t[i - 1] = y;
        }
    }
    return t[2];
}

typedef struct {
    Attn a;
    Tensor dq, dk, dv, dO;
} Run;
static void forward(Bench *b, void *x) { op_attend(&b->d, &((Run *)x)->a); }
static void backward(Bench *b, void *x) {
    Run *r = x;
    op_attend_bwd(&b->d, r->dq, r->dk, r->dv, r->dO, &r->a);
}
static void train(Bench *b, const Train *s) {
    int64_t T = (int64_t)s->seqs * s->len;
    int32_t *at = MEM_ARRAY(&b->m, int32_t, (size_t)s->seqs + 1);
    for (int i = 0; i <= s->seqs; i++) at[i] = i * s->len;
    Tensor k = noise(b, T, (int64_t)s->kv * s->dk),
           v = s->latent ? tensor_cols(k, 0, s->dv) : noise(b, T, (int64_t)s->kv * s->dv);
    Run r = { .a = { .q = noise(b, T, (int64_t)s->heads * s->dk),
                     .k = k,
                     .v = v,
                     .o = noise(b, T, (int64_t)s->heads * s->dv),
                     .lse = tensor_push(&b->a, DT_F32, T, s->heads),
                     .seqs = { s->seqs, s->len, ints(b, 1, s->seqs + 1, at) },
                     .heads = s->heads,
                     .kv_heads = s->kv,
                     .dk = s->dk,
                     .dv = s->dv,
                     .scale = .05f } };
    double pairs = (double)s->seqs * s->heads * s->len * s->len / 2;
    printf("train  %3d x %5d, %3d/%-3d heads of %d/%d:", s->seqs, s->len, s->heads, s->kv, s->dk, s->dv);
    if (s->forward) {
        double t = seconds(b, forward, &r, r.a.o, 10);
        printf(" forward %.3f ms %.0f TFLOP/s", t * 1e3, pairs * 2 * (s->dk + s->dv) / t * 1e-12);
    } else op_zero(&b->d, r.a.lse);
    if (s->backward) {
        r.dO = noise(b, T, r.a.o.cols), r.dq = noise(b, T, r.a.q.cols), r.dk = noise(b, T, r.a.k.cols),
        r.dv = noise(b, T, (int64_t)s->kv * s->dv);
        double t = seconds(b, backward, &r, r.dq, 5);
        printf(" backward %.3f ms %.0f TFLOP/s", t * 1e3, pairs * 2 * (3 * s->dk + 2 * s->dv) / t * 1e-12);
    }
    printf("\n");
    fflush(stdout);
    b->a.used = 0;
}

typedef struct {
    Tensor o, q;
    Kv kv;
    Paged p;
    int heads;
} Step;
static void step(Bench *b, void *x) {
    Step *s = x;
    op_attend_kv(&b->d, s->o, s->q, s->kv, s->p, s->heads, .05f);
}
static void decode(Bench *b, const Decode *s) {
    int page = 64, per = (s->len + page - 1) / page, P = s->seqs * per, columns = s->columns > per ? s->columns : per;
    int32_t *at = MEM_ARRAY(&b->m, int32_t, (size_t)s->seqs + 1), *start = MEM_ARRAY(&b->m, int32_t, (size_t)s->seqs),
            *table = MEM_ARRAY(&b->m, int32_t, (size_t)(s->seqs * columns));
    for (int i = 0; i < s->seqs; i++) {
        at[i + 1] = (i + 1) * s->rows, start[i] = s->len - s->rows;
        for (int j = 0; j < per; j++) table[i * columns + j] = (int32_t)((int64_t)(i * per + j) * 7919 % P);
    }
    Kv kv = { .page = page, .kv_heads = s->kv, .dk = s->dk, .dv = s->dv, .latent = s->latent };
    int64_t bytes = (int64_t)op_kv_bytes(&b->d, &kv);
    kv.pool = tensor_over(noise(b, P, bytes / 2).data, DT_U8, P, bytes);
    int64_t T = (int64_t)s->seqs * s->rows;
    Step x = { noise(b, T, (int64_t)s->heads * s->dv),
               noise(b, T, (int64_t)s->heads * s->dk),
               kv,
               { { s->seqs, s->rows, ints(b, 1, s->seqs + 1, at) },
                 ints(b, s->seqs, 1, start),
                 ints(b, s->seqs, columns, table) },
               s->heads };
    double t = seconds(b, step, &x, x.o, 20), n = (double)s->seqs * s->len;
    double pairs = (double)T * (s->len - .5 * (s->rows - 1)) * s->heads;
    printf("pages  %3d x %4d rows at %5d, %3d/%-3d heads of %d/%d, table of %d: %.1f us", s->seqs, s->rows, s->len,
           s->heads, s->kv, s->dk, s->dv, columns, t * 1e6);
    if (s->rows == 1) printf(" %.2f TB/s", n * (double)bytes / page / t * 1e-12);
    if (s->latent || s->rows > 1) printf(" %.0f TFLOP/s", pairs * 2 * (s->dk + s->dv) / t * 1e-12);
    printf("\n");
    fflush(stdout);
    b->a.used = 0;
}

static const Train trains[] = {
    { 4, 4096, 32, 32, 128, 128, false, true, true },  { 4, 4096, 32, 4, 128, 128, false, true, true },
    { 8, 2048, 32, 4, 128, 128, false, true, true },   { 64, 512, 32, 8, 128, 128, false, true, true },
    { 1, 16384, 32, 4, 128, 128, false, true, true },  { 4, 4096, 28, 4, 128, 128, false, true, true },
    { 4, 4096, 32, 8, 64, 64, false, true, true },     { 4, 4096, 14, 2, 64, 64, false, true, true },
    { 8, 4096, 16, 16, 192, 128, false, false, true }, { 2, 4096, 128, 1, 576, 512, true, true, false },
    { 2, 4096, 16, 1, 576, 512, true, true, false },   { 1, 4096, 14, 2, 64, 64, false, true, true },
};
static const Decode decodes[] = {
    { 8, 4096, 512, 32, 4, 128, 128, false, 0 },  { 32, 2048, 64, 32, 4, 128, 128, false, 0 },
    { 4, 4096, 512, 128, 1, 576, 512, true, 0 },  { 1, 4096, 4, 32, 4, 128, 128, false, 0 },
    { 256, 1500, 1, 32, 4, 128, 128, false, 0 },  { 256, 8192, 1, 32, 4, 128, 128, false, 0 },
    { 256, 200, 1, 32, 4, 128, 128, false, 0 },   { 64, 1500, 1, 32, 4, 128, 128, false, 0 },
    { 64, 1500, 1, 32, 4, 128, 128, false, 512 }, { 8, 16384, 1, 32, 4, 128, 128, false, 0 },
    { 1, 16384, 1, 32, 4, 128, 128, false, 0 },   { 1, 16384, 1, 32, 4, 128, 128, false, 512 },
    { 64, 1500, 1, 32, 32, 128, 128, false, 0 },  { 256, 1500, 1, 32, 8, 64, 64, false, 0 },
    { 256, 1500, 1, 128, 1, 576, 512, true, 0 },  { 132, 4096, 1, 128, 1, 576, 512, true, 0 },
    { 64, 1500, 1, 128, 1, 576, 512, true, 0 },   { 8, 16384, 1, 128, 1, 576, 512, true, 0 },
    { 64, 1500, 1, 16, 1, 576, 512, true, 0 },
};
int main(int argc, char **argv) {
    Bench b = { .pause = argc > 1 ? atoi(argv[1]) : 200 };
    Err err;
    if (!dev_open_cuda(&b.d, (CudaOpts){ .act = DT_BF16 }, NULL, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    b.a = dev_arena(&b.d, "bench", (size_t)12 << 30);
    b.d.tmp = dev_arena(&b.d, "tmp", (size_t)2 << 30);
    bool of = argc > 2 && !strcmp(argv[2], "of");
    int only = argc > 2 ? atoi(argv[2]) : -1, n = 0;
    for (int i = 3; of && i < argc; i++) {
        Train s = { .forward = true, .backward = true };
        if (sscanf(argv[i], "%dx%dx%dx%dx%d", &s.seqs, &s.len, &s.heads, &s.kv, &s.dk) != 5)
            die("'%s' is not SEQUENCESxLENGTHxHEADSxKVxWIDTH", argv[i]);
        s.dv = s.dk;
        train(&b, &s);
    }
    for (size_t i = 0; !of && i < COUNT(trains); i++, n++)
        if (only < 0 || only == n) train(&b, &trains[i]);
    for (size_t i = 0; !of && i < COUNT(decodes); i++, n++)
        if (only < 0 || only == n) decode(&b, &decodes[i]);
    dev_close(&b.d);
    mem_free(&b.m);
    return 0;
}
