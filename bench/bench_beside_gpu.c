/* bench_beside_gpu.c - products of two MoE models (671B and 30B) alone, and beside a kernel that waits on some of the
 * multiprocessors as NCCL's do.  A table, and a line of JSON for each; the bits must be the same, alone and beside.
 *   bench_beside_gpu [GROUPS [PAUSE in ms [SHAPE...]]]     TxOxI dense, ExOxIxT experts
 * The chip is limited by power: groups of calls come each after a pause, and what is given is their median.  The last
 * line says how much of its time alone a product takes beside others, on the mean; exit code 1 if bits differ. */
#include "op/op_fused.h"
#include "waiting.h"

#include <math.h>
#include <stdlib.h>

static const int waits[] = { 0, 2, 4, 16 };
typedef struct {
    Dev d;
    Arena a;
    Mem m;
    Waiting w;
    int groups, pause, bad, rows;
    double beside[COUNT(waits)]; /* logarithms of the ratio to alone, summed */
} Bench;

static uint64_t state = 88172645463325252u;
static uint64_t draw(void) { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; }
/* Random bf16 of about unit variance: speed depends on the numbers. */
enum { NOISE = 1 << 22 };
static Tensor noise(Bench *b, int64_t rows, int64_t cols) {
    static uint16_t *x;
    Tensor t = tensor_push(&b->a, DT_BF16, rows, cols);
    if (!x) {
        x = MEM_ARRAY(&b->m, uint16_t, NOISE);
        for (int i = 0; i < NOISE; i++) {
            float f = 0;
            for (int k = 0; k < 4; k++) f += (float)(draw() >> 40) / (1 << 24) - .5f;
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

typedef struct {
    Tensor y, x, w, dx, dw;
    Seqs ex;
} Run;
typedef void Call(Dev *d, const Run *r);
static void fwd(Dev *d, const Run *r) { op_linear(d, r->y, r->x, r->w, TENSOR_NONE, leaves_one(r->x.cols)); }
static void dx(Dev *d, const Run *r) { op_linear_dx(d, r->dx, r->y, r->w, leaves_one(r->y.cols)); }
static void dw(Dev *d, const Run *r) { op_linear_dw_first(d, r->dw, TENSOR_NONE, r->y, r->x); }
static void gfwd(Dev *d, const Run *r) { op_grouped(d, r->y, r->x, r->w, r->ex, leaves_one(r->x.cols)); }
static void gdx(Dev *d, const Run *r) { op_grouped_dx(d, r->dx, r->y, r->w, r->ex, leaves_one(r->y.cols)); }
static void gdw(Dev *d, const Run *r) { op_grouped_dw_first(d, r->dw, r->y, r->x, r->ex); }
static const struct {
    const char *name;
    Call *dense, *grouped;
} kinds[] = { { "forward", fwd, gfwd }, { "dx", dx, gdx }, { "dw", dw, gdw } };

static void finish(Bench *b) {
    unsigned char one[64];
    op_get(&b->d, one, tensor_over(b->a.base, DT_U8, 1, sizeof one));
}
static double group(Bench *b, Call *call, const Run *r, int reps) {
    nanosleep(&(struct timespec){ b->pause / 1000, b->pause % 1000 * 1000000L }, NULL);
    double t = clock_now();
    for (int i = 0; i < reps; i++) call(&b->d, r);
    finish(b);
    return (clock_now() - t) / reps;
}
static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* The bits of one call over garbage. */
static void *bits(Bench *b, Call *call, const Run *r, Tensor out, void *to) {
    op_normals(&b->d, out, (Normals){ .seed = draw(), .ld = out.cols, .std = 1 });
    call(&b->d, r);
    op_get(&b->d, to, out);
    return to;
}
static void product(Bench *b, const char *shape, int kind, double tflop, Call *call, const Run *r, Tensor out) {
    size_t bytes = tensor_bytes(out.dtype, out.rows, out.cols);
    double t[COUNT(waits)], each[64];
    bool same = true;
    char *want = malloc(bytes), *got = malloc(bytes);
    CHECK(want && got, "no memory");
    bits(b, call, r, out, want);
    int reps = 1;
    for (double s = group(b, call, r, 2); reps * s < 8e-3 && reps < 200;) reps++;
    for (size_t k = 0; k < COUNT(waits); k++) {
        waiting_begin(&b->w, waits[k]);
        for (int g = 0; g < b->groups; g++) each[g] = group(b, call, r, reps);
        same &= !memcmp(want, bits(b, call, r, out, got), bytes);
        if (waits[k]) waiting_end(&b->w);
        qsort(each, (size_t)b->groups, sizeof each[0], by_size);
        t[k] = each[b->groups / 2];
        b->beside[k] += log(t[k] / t[0]);
    }
    b->rows++, b->bad += !same;
    printf("%-24s %-7s %8.1f %6.0f", shape, kinds[kind].name, t[0] * 1e6, tflop / t[0]);
    for (size_t k = 1; k < COUNT(waits); k++) printf("  %9.2f", t[k] / t[0]);
    printf("  %s\n{\"bench\": \"beside\", \"shape\": \"%s\", \"product\": \"%s\", \"same_bits\": %s",
           same ? "same" : "OTHER BITS", shape, kinds[kind].name, same ? "true" : "false");
    for (size_t k = 0; k < COUNT(waits); k++) printf(", \"waiting_%d\": %.4g", waits[k], t[k]);
    printf("}\n");
    fflush(stdout);
    free(want), free(got);
}
static void dense(Bench *b, const char *shape, int64_t T, int64_t O, int64_t I) {
    size_t mark = arena_mark(&b->a);
    Run r = { .y = noise(b, T, O), .x = noise(b, T, I), .w = noise(b, O, I), .dx = noise(b, T, I) };
    r.dw = tensor_push(&b->a, DT_F32, O, I);
    Run f = r;
    f.y = noise(b, T, O); /* dy stays as it is */
    double fl = 2.0 * (double)T * (double)O * (double)I * 1e-12;
    for (int k = 0; k < 3; k++)
        product(b, shape, k, fl, kinds[k].dense, k ? &r : &f, k == 0 ? f.y : k == 1 ? r.dx : r.dw);
    arena_pop(&b->a, mark);
}
static void experts(Bench *b, const char *shape, int E, int64_t O, int64_t I, int64_t T) {
    size_t mark = arena_mark(&b->a);
    int32_t *at = MEM_ARRAY(&b->m, int32_t, (size_t)E + 1);
    for (int64_t t = 0; t < T; t++) at[1 + draw() % (uint64_t)E]++;
    for (int e = 0; e < E; e++) at[e + 1] += at[e];
    Run r = { .y = noise(b, T, O), .x = noise(b, T, I), .w = noise(b, E * O, I), .dx = noise(b, T, I) };
    r.ex = (Seqs){ E, (int)T, tensor_push(&b->a, DT_I32, 1, E + 1) };
    op_put(&b->d, r.ex.at, at);
    r.dw = tensor_push(&b->a, DT_F32, E * O, I);
    Run f = r;
    f.y = noise(b, T, O);
    double fl = 2.0 * (double)T * (double)O * (double)I * 1e-12;
    finish(b);
    for (int k = 0; k < 3; k++)
        product(b, shape, k, fl, kinds[k].grouped, k ? &r : &f, k == 0 ? f.y : k == 1 ? r.dx : r.dw);
    arena_pop(&b->a, mark);
}
static void any(Bench *b, const char *shape) {
    long n[4] = { 0 };
    switch (sscanf(shape, "%ldx%ldx%ldx%ld", n, n + 1, n + 2, n + 3)) {
    case 3: dense(b, shape, n[0], n[1], n[2]); break;
    case 4: experts(b, shape, (int)n[0], n[1], n[2], n[3]); break;
    default: die("%s is no shape", shape);
    }
}

int main(int argc, char **argv) {
    static const char *const shapes[] = { "4096x2112x7168",      "4096x3072x1536",       "4096x4096x7168",
                                          "4096x7168x2048",      "16384x4096x7168",      "8x4096x7168x16384",
                                          "8x7168x2048x16384",   "4096x5120x2048",       "16384x2048x4096",
                                          "128x1536x2048x32768", "128x1536x2048x131072", "128x2048x768x131072" };
    static Bench b;
    b.groups = argc > 1 ? atoi(argv[1]) : 7, b.pause = argc > 2 ? atoi(argv[2]) : 20;
    CHECK(b.groups > 0 && b.groups <= 64, "1 to 64 groups");
    Err err;
    CHECK(dev_open_cuda(&b.d, (CudaOpts){ .act = DT_BF16 }, NULL, &err), "%s", err.msg);
    waiting_open(&b.w);
    b.a = dev_arena(&b.d, "bench", (size_t)24 << 30);
    b.d.tmp = dev_arena(&b.d, "tmp", (size_t)1 << 30);
    waiting_begin(&b.w, 16), waiting_end(&b.w);
    printf("where 16 wait:");
    for (int i = 0; i < 16; i++) printf(" %d", b.w.flags->where[i]);
    printf("\n%-24s %-7s %8s %6s", "", "", "us alone", "TFLOPS");
    for (size_t k = 1; k < COUNT(waits); k++) printf("  beside %-2d", waits[k]);
    printf("\n");
    for (int i = 3; i < argc; i++) any(&b, argv[i]);
    for (size_t i = 0; i < COUNT(shapes) && argc <= 3; i++) any(&b, shapes[i]);
    printf("of the time alone, on the mean:");
    for (size_t k = 1; k < COUNT(waits); k++) printf(" beside %d %.2f;", waits[k], exp(b.beside[k] / b.rows));
    printf(" other bits: %d of %d\n", b.bad, b.rows);
    dev_close(&b.d);
    mem_free(&b.m);
    return b.bad > 0;
}
