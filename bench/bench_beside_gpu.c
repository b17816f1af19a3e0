/* bench_beside_gpu.c - products of two MoE models (671B and 30B) alone, and beside a kernel that waits on some of the
 * multiprocessors as NCCL's do: tiles dealt out in advance (what runs) and counted out (build/gpu/taken).  A table, and
 * a line of JSON for each; the bits must be the same, alone and beside.
 *   bench_beside_gpu [GROUPS [PAUSE in ms [SHAPE...]]]     TxOxI dense, ExOxIxT experts
 * The chip is limited by power: groups of calls of the two follow each other in turns, each after a pause, and what is
 * given is their median.  The last line says how much the second takes of the first's time: alone at worst, beside on
 * the mean; exit code 1 if bits differ or it is more than 1 % slower alone. */
#include "op/op_fused.h"
#include "waiting.h"

#include <math.h>
#include <stdlib.h>

enum { DEALT, COUNTED, SIDES };
static const char *const side_name[] = { "dealt", "counted" };
static const int waits[] = { 0, 2, 4, 16 };
typedef struct {
    Dev d[SIDES];
    Arena a;
    Mem m;
    Waiting w;
    int groups, pause, bad, rows;
    double alone_worst, beside[COUNT(waits)][SIDES]; /* logarithms of the ratio to alone, summed */
    char worst[128];
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
        op_put(&b->d[DEALT], tensor_rows(t, r, rows - r < n ? rows - r : n), x);
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

static void finish(Bench *b, int side) {
    unsigned char one[64];
    op_get(&b->d[side], one, tensor_over(b->a.base, DT_U8, 1, sizeof one));
}
static double group(Bench *b, int side, Call *call, const Run *r, int reps) {
    nanosleep(&(struct timespec){ b->pause / 1000, b->pause % 1000 * 1000000L }, NULL);
    double t = clock_now();
    for (int i = 0; i < reps; i++) call(&b->d[side], r);
    finish(b, side);
    return (clock_now() - t) / reps;
}
static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* The bits of one call over garbage. */
static void *bits(Bench *b, int side, Call *call, const Run *r, Tensor out, void *to) {
    op_normals(&b->d[side], out, (Normals){ .seed = draw(), .ld = out.cols, .std = 1 });
    call(&b->d[side], r);
    op_get(&b->d[side], to, out);
    return to;
}
static void product(Bench *b, const char *shape, int kind, double tflop, Call *call, const Run *r, Tensor out) {
    size_t bytes = tensor_bytes(out.dtype, out.rows, out.cols);
    double t[COUNT(waits)][SIDES], each[SIDES][64];
    bool same = true;
    char *want = malloc(bytes), *got = malloc(bytes);
    CHECK(want && got, "no memory");
    bits(b, DEALT, call, r, out, want);
    same &= !memcmp(want, bits(b, COUNTED, call, r, out, got), bytes);
    int reps = 1;
    for (double s = group(b, DEALT, call, r, 2); reps * s < 8e-3 && reps < 200;) reps++;
    for (size_t k = 0; k < COUNT(waits); k++) {
        waiting_begin(&b->w, waits[k]);
        for (int g = 0; g < b->groups; g++)
            for (int i = 0; i < SIDES; i++) {
                int side = g % 2 ? SIDES - 1 - i : i;
                each[side][g] = group(b, side, call, r, reps);
            }
        if (waits[k])
            for (int side = 0; side < SIDES; side++) same &= !memcmp(want, bits(b, side, call, r, out, got), bytes);
        if (waits[k]) waiting_end(&b->w);
        for (int side = 0; side < SIDES; side++) {
            qsort(each[side], (size_t)b->groups, sizeof each[side][0], by_size);
            t[k][side] = each[side][b->groups / 2];
            b->beside[k][side] += log(t[k][side] / t[0][DEALT]);
        }
    }
    double cost = t[0][COUNTED] / t[0][DEALT];
    if (cost > b->alone_worst) {
        b->alone_worst = cost;
        snprintf(b->worst, sizeof b->worst, "%s %s", shape, kinds[kind].name);
    }
    b->rows++, b->bad += !same;
    printf("%-24s %-7s %8.1f %6.0f %+6.1f%%", shape, kinds[kind].name, t[0][DEALT] * 1e6, tflop / t[0][DEALT],
           100 * (cost - 1));
    for (size_t k = 1; k < COUNT(waits); k++)
        printf("  %5.2f %5.2f", t[k][DEALT] / t[0][DEALT], t[k][COUNTED] / t[0][DEALT]);
    printf("  %s\n{\"bench\": \"beside\", \"shape\": \"%s\", \"product\": \"%s\", \"same_bits\": %s",
           same ? "same" : "OTHER BITS", shape, kinds[kind].name, same ? "true" : "false");
    for (size_t k = 0; k < COUNT(waits); k++)
        printf(", \"waiting_%d\": {\"%s\": %.4g, \"%s\": %.4g}", waits[k], side_name[DEALT], t[k][DEALT],
               side_name[COUNTED], t[k][COUNTED]);
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
    op_put(&b->d[DEALT], r.ex.at, at);
    r.dw = tensor_push(&b->a, DT_F32, E * O, I);
    Run f = r;
    f.y = noise(b, T, O);
    double fl = 2.0 * (double)T * (double)O * (double)I * 1e-12;
    finish(b, DEALT);
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
    CHECK(dev_open_cuda(&b.d[DEALT], (CudaOpts){ .act = DT_BF16 }, NULL, &err), "%s", err.msg);
    CHECK(open_taken(&b.d[COUNTED], (CudaOpts){ .act = DT_BF16 }, &err), "%s", err.msg);
    waiting_open(&b.w);
    b.a = dev_arena(&b.d[DEALT], "bench", (size_t)24 << 30);
    for (int s = 0; s < SIDES; s++) b.d[s].tmp = dev_arena(&b.d[s], "tmp", (size_t)1 << 30);
    waiting_begin(&b.w, 16), waiting_end(&b.w);
    printf("where 16 wait:");
    for (int i = 0; i < 16; i++) printf(" %d", b.w.flags->where[i]);
    printf("\n%-24s %-7s %8s %6s %7s", "", "", "us", "TFLOPS", "counted");
    for (size_t k = 1; k < COUNT(waits); k++) printf("  beside %-4d", waits[k]);
    printf("\n%-24s %-7s %8s %6s %7s", "", "", "", "", "alone");
    for (size_t k = 1; k < COUNT(waits); k++) printf("  dealt count");
    printf("\n");
    for (int i = 3; i < argc; i++) any(&b, argv[i]);
    for (size_t i = 0; i < COUNT(shapes) && argc <= 3; i++) any(&b, shapes[i]);
    printf("counted, alone: at worst %.3f of dealt (%s), on the mean %.3f; of the time alone beside", b.alone_worst,
           b.worst, exp(b.beside[0][COUNTED] / b.rows));
    for (size_t k = 1; k < COUNT(waits); k++)
        printf(" %d: dealt %.2f, counted %.2f;", waits[k], exp(b.beside[k][DEALT] / b.rows),
               exp(b.beside[k][COUNTED] / b.rows));
    printf(" other bits: %d of %d\n", b.bad, b.rows);
    bool slow = b.alone_worst > 1.01;
    for (int s = 0; s < SIDES; s++) dev_close(&b.d[s]);
    mem_free(&b.m);
    return b.bad || slow;
}
