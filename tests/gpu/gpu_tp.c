/* gpu_tp.c - tensor parallelism on one GPU: each rank's slice of tp 2, 4, 8 and 32 is run in turn and combined, and has
 * the bits of the whole: products cut by columns of the output and by the sum, experts likewise, the head by its
 * vocabulary (gpu_head), attention by heads (gpu_attn); and what sums in pieces cost. */
#include "gpu/duo.h"

#include <time.h>

enum { T = 192, O = 512, I = 1024, E = 6, RANKS = 32 };
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static Tensor out(Duo *q, DType t, int64_t rows, int64_t cols) { return rig_put(&q->r[GPU], t, rows, cols, NULL); }

/* Columns of y belong to ranks: their rows of w. */
static void by_outputs(Duo *q, int tp) {
    Dev *d = duo_dev(q, GPU);
    Tensor x = two(q, q->act, T, I, 0, 1).t[GPU], w = two_w(q, q->act, O, I, 0, 1).t[GPU], y = out(q, q->act, T, O),
           z = out(q, q->act, T, O);
    Leaves all = leaves_one(I);
    op_linear(d, y, x, w, TENSOR_NONE, all);
    for (int r = 0; r < tp; r++)
        op_linear(d, tensor_cols(z, r * (O / tp), O / tp), x, tensor_rows(w, r * (O / tp), O / tp), TENSOR_NONE, all);
    duo_equal(q, "linear, outputs by ranks", y, z);
    Tensor dy = two(q, q->act, T, O, 0, 1).t[GPU], dw = out(q, DT_F32, O, I), dw2 = out(q, DT_F32, O, I);
    op_linear_dw(d, dw, TENSOR_NONE, dy, x);
    for (int r = 0; r < tp; r++)
        op_linear_dw(d, tensor_rows(dw2, r * (O / tp), O / tp), TENSOR_NONE, tensor_cols(dy, r * (O / tp), O / tp), x);
    duo_equal(q, "linear_dw, outputs by ranks", dw, dw2);
    duo_clear(q, "by outputs");
}
/* The sum belongs to ranks: their columns of every expert's w, added by the tree. */
static void experts_by_sum(Duo *q, int tp) {
    const int32_t at[E + 1] = { 0, 40, 40, 41, 104, 169, T };
    Dev *d = duo_dev(q, GPU);
    Tensor x = two(q, q->act, T, I, 0, 1).t[GPU], w = two_w(q, q->act, E * O, I, 0, 1).t[GPU],
           v = two_w(q, q->act, E * I, O, 0, 1).t[GPU];
    Tensor y = out(q, DT_F32, T, O), dx = out(q, DT_F32, T, O), sum = out(q, DT_F32, T, O), part[RANKS], dpart[RANKS];
    Seqs ex = { E, T, rig_put(&q->r[GPU], DT_I32, 1, E + 1, at) };
    op_grouped(d, y, x, w, ex, leaves_all(RANKS, I, 1));
    op_grouped_dx(d, dx, x, v, ex, leaves_all(RANKS, I, 1));
    for (int r = 0; r < tp; r++) {
        Leaves l = { r * (RANKS / tp), RANKS / tp, RANKS, I, 1 };
        int64_t c0 = leaves_cut(&l, l.first), n = leaves_cols(&l);
        Tensor vr = out(q, q->act, E * n, O); /* a rank has its rows of each expert */
        for (int e = 0; e < E; e++) op_copy(d, tensor_rows(vr, e * n, n), tensor_rows(v, e * I + c0, n));
        part[r] = out(q, DT_F32, T, O), dpart[r] = out(q, DT_F32, T, O);
        op_grouped(d, part[r], tensor_cols(x, c0, n), tensor_cols(w, c0, n), ex, l);
        op_grouped_dx(d, dpart[r], tensor_cols(x, c0, n), vr, ex, l);
    }
    op_tree_add(d, sum, part, tp);
    duo_equal(q, "grouped by ranks", y, sum);
    op_tree_add(d, sum, dpart, tp);
    duo_equal(q, "grouped_dx by ranks", dx, sum);
    duo_clear(q, "experts by sum");
}

/* ---- what pieces cost -------------------------------------------------------------------------------------------- */
static double seconds(Duo *q, void (*run)(Dev *, const Tensor *, Seqs, Leaves), const Tensor *t, Seqs ex, Leaves l) {
    enum { TIMES = 8 };
    Dev *d = duo_dev(q, GPU);
    float one;
    Tensor word = tensor_over(t[0].data, DT_F32, 1, 1);
    run(d, t, ex, l);
    op_get(d, &one, word);
    double t0 = now();
    for (int i = 0; i < TIMES; i++) run(d, t, ex, l);
    op_get(d, &one, word);
    return (now() - t0) / TIMES;
}
static void linear(Dev *d, const Tensor *t, Seqs ex, Leaves l) {
    (void)ex, op_linear(d, t[0], t[1], t[2], TENSOR_NONE, l);
}
static void grouped(Dev *d, const Tensor *t, Seqs ex, Leaves l) { op_grouped(d, t[0], t[1], t[2], ex, l); }
static Tensor blank(Duo *q, DType t, int64_t rows, int64_t cols) {
    Tensor x = tensor_push(&q->r[GPU].a, t, rows, cols);
    op_normals(duo_dev(q, GPU), x, (Normals){ .seed = 1, .name = (uint64_t)rows, .ld = cols, .std = 0.05 });
    return x;
}
static void costs(Duo *q) {
    enum { ROWS = 16384, OUT = 4096, SUM = 7168, EXPERTS = 32, EOUT = 2048, ESUM = 1024 };
    int32_t at[EXPERTS + 1];
    for (int e = 0; e <= EXPERTS; e++) at[e] = e * (ROWS / EXPERTS);
    Seqs ex = { EXPERTS, ROWS, rig_put(&q->r[GPU], DT_I32, 1, EXPERTS + 1, at) };
    Tensor dense[] = { blank(q, DT_BF16, ROWS, OUT), blank(q, DT_BF16, ROWS, SUM), blank(q, DT_BF16, OUT, SUM) };
    Tensor experts[] = { blank(q, DT_BF16, ROWS, EOUT), blank(q, DT_BF16, ROWS, ESUM),
                         blank(q, DT_BF16, EXPERTS * EOUT, ESUM) };
    double one[2] = { 0 };
    for (int of = 1; of <= RANKS; of *= 2) {
        double a = seconds(q, linear, dense, ex, leaves_all(of, SUM, 1)),
               b = seconds(q, grouped, experts, ex, leaves_all(of, ESUM, 1));
        if (of == 1) one[0] = a, one[1] = b;
        printf("%2d pieces: %d x %d x %d %6.0f TFLOP/s (%.2f of the time of one), %d experts x %d x %d x %d %6.0f "
               "(%.2f)\n",
               of, ROWS, OUT, SUM, 2e-12 * ROWS * OUT * SUM / a, a / one[0], EXPERTS, ROWS / EXPERTS, EOUT, ESUM,
               2e-12 * ROWS * EOUT * ESUM / b, b / one[1]);
    }
}

int gpu_tp(int argc, char **argv) {
    (void)argc, (void)argv;
    for (int half = 0; half < 2; half++) {
        Duo q;
        duo_open(&q, half ? DT_BF16 : DT_F32, 700, (size_t)1 << 30);
        for (int tp = 2; tp <= RANKS; tp *= 2) by_outputs(&q, tp), experts_by_sum(&q, tp);
        if (half) costs(&q);
        duo_close(&q);
    }
    return test_end();
}
