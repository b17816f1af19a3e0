/* bench_turns.c - one product, or one attention, for each line on standard input, in turns with a peer
 * (bench/peers/products.py).
 *   bench_turns [THREADS]
 *       linear|dx|dw ROWS IN OUT, attend|attend_bwd HEADS COLUMNS LENGTH -> {"seconds": of one call, "cpu": of the
 *       processor's, "peak": GFLOP/s of bare multiply-adds before and after, "isa": which set ran}
 *       few|few16 ROWS 0 0: those rows times 512 MiB of weights in float32 or bf16, beyond the caches
 *       -> {"gb_s": of weights, "read": the same bytes only read} */
#include "bench.h"

typedef struct {
    Tensor x, w, y, dw; /* of a product */
    Attn t;
    Tensor dO, dq, dk, dv;
} Work;

static Work make(Arena *a, bool attends, int M, int I, int O) {
    if (!attends)
        return (Work){ bench_fill(a, M, I, 1), bench_fill(a, O, I, 0.1f), bench_fill(a, M, O, 1),
                       bench_fill(a, O, I, 0) };
    int heads = M, cols = I, len = O;
    Tensor at = tensor_push(a, DT_I32, 1, 2);
    ((int32_t *)at.data)[0] = 0, ((int32_t *)at.data)[1] = len;
    Attn t = { .seqs = { 1, len, at }, .heads = heads, .kv_heads = heads, .dk = cols, .dv = cols, .scale = 0.05f };
    Tensor *wide[] = { &t.q, &t.k, &t.v, &t.o };
    for (size_t i = 0; i < COUNT(wide); i++) *wide[i] = bench_fill(a, len, heads * cols, i < 3);
    t.lse = bench_fill(a, len, heads, 0);
    Work w = { .t = t };
    Tensor *back[] = { &w.dO, &w.dq, &w.dk, &w.dv };
    for (size_t i = 0; i < COUNT(back); i++) *back[i] = bench_fill(a, len, heads * cols, i == 0);
    return w;
}

enum { FEW_IN = 2048, FEW_OUT = 65536 };
/* Bytes that are ordinary numbers both as float32 and as bf16: denormals are slow. */
static void few(Dev *d, Arena *a, Arena *large, bool half, int rows) {
    const int64_t n = (int64_t)FEW_IN * FEW_OUT;
    if (!large->base) {
        *large = dev_arena(d, "weights", (size_t)n * 4 + 4096);
        uint16_t *w = tensor_push(large, DT_F32, FEW_OUT, FEW_IN).data;
        for (int64_t i = 0; i < 2 * n; i++) w[i] = (uint16_t)(0x3C00 + (i * 2654435761u >> 7) % 0x300);
    }
    Tensor w = tensor_over(large->base, half ? DT_BF16 : DT_F32, half ? 2 * FEW_OUT : FEW_OUT, FEW_IN);
    Tensor x = bench_fill(a, rows, FEW_IN, 1), y = bench_fill(a, rows, w.rows, 0);
    const float *bytes = w.data;
    double gb = 4e-9 * (double)n;
    Share s;
    SHARE(s, d, 0.2, bench_read_once(d, bytes, n), gb, op_linear(d, y, x, w, TENSOR_NONE, leaves_one(FEW_IN)));
    printf("{\"gb_s\":%.2f,\"read\":%.2f}\n", gb / s.sec, 100 * gb / s.sec / s.share);
    fflush(stdout);
}

static void once(Dev *d, const char *what, Work *w) {
    if (!strcmp(what, "linear")) op_linear(d, w->y, w->x, w->w, TENSOR_NONE, leaves_one(w->x.cols));
    else if (!strcmp(what, "dx")) op_linear_dx(d, w->x, w->y, w->w, leaves_one(w->y.cols));
    else if (!strcmp(what, "dw")) op_linear_dw(d, w->dw, TENSOR_NONE, w->y, w->x);
    else if (!strcmp(what, "attend")) op_attend(d, &w->t);
    else op_attend_bwd(d, w->dq, w->dk, w->dv, w->dO, &w->t);
}

int main(int argc, char **argv) {
    int th = argc > 1 ? atoi(argv[1]) : 1;
    Dev d;
    dev_open(&d, (DevOpts){ .threads = th });
    Arena a = dev_arena(&d, "bench", (size_t)512 << 20), large = { 0 };
    char line[128], what[16];
    while (fgets(line, sizeof line, stdin)) {
        int M, I, O;
        CHECK(sscanf(line, "%15s %d %d %d", what, &M, &I, &O) == 4, "WHAT and three numbers, not '%s'", line);
        size_t mark = arena_mark(&a);
        if (!strncmp(what, "few", 3)) {
            few(&d, &a, &large, what[3], M);
            arena_pop(&a, mark);
            continue;
        }
        bool attends = !strncmp(what, "attend", 6);
        Work w = make(&a, attends, M, I, O);
        if (attends) op_attend(&d, &w.t); /* backward reads what it leaves */
        double pairs = (double)O * (O + 1) / 2, backward = what[6] ? 2.5 : 1;
        double gflop = attends ? 4e-9 * M * I * pairs * backward : 2e-9 * M * I * O;
        Share s;
        double before = bench_peak_once(&d), least = INFINITY;
        SHARE(s, &d, 0.03, bench_peak_once(&d), gflop, once(&d, what, &w));
        for (int i = 0; i < 3; i++) {
            double t = bench_cpu();
            once(&d, what, &w);
            t = bench_cpu() - t;
            least = t < least ? t : least;
        }
        printf("{\"seconds\":%.9f,\"cpu\":%.9f,\"peak\":%.2f,\"share\":%.2f,\"isa\":\"%s\"}\n", s.sec, least,
               0.5 * (before + bench_peak_once(&d)), s.share, cpu_kern(&d)->name);
        fflush(stdout);
        arena_pop(&a, mark);
    }
    dev_close(&d);
    return 0;
}
