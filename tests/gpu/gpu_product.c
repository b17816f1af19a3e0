/* gpu_product.c - products on a GPU: against the CPU by bound (in float32 by memcmp), against themselves by
 * memcmp: rows alone and in batches, experts with no, one or any rows and NaN in their neighbours, parts of a cut
 * sum combined, everything twice. */
#include "gpu/duo.h"
#include "op/op_fused.h"

#define EACH_SIDE(q, s, d)                                                                                             \
    for (int s = 0; s < 2; s++)                                                                                        \
        for (Dev *d = duo_dev(q, s); d; d = NULL)
static DType any_act(Duo *q) { return pick_int(q, 0, 3) ? q->act : DT_F32; }
static DType any_w(Duo *q) {
    return q->act == DT_F32 || pick_int(q, 0, 4) == 0 ? (pick_int(q, 0, 1) ? DT_F32 : DT_BF16) : DT_BF16;
}
/* widths that fast kernels take, and that they do not; gaps that keep rows aligned, and that do not */
static int any_width(Duo *q) {
    static const int w[] = { 1, 8, 24, 37, 64, 72, 96, 131, 128, 136, 200, 256, 264, 384, 512, 768, 1000, 2048 };
    return w[pick_int(q, 0, gpu_test_few ? 12 : COUNT(w) - 1)]; /* few: to 264 */
}
static int any_gap(Duo *q) {
    static const int gap[] = { 0, 0, 8, 8, 3 };
    return gap[pick_int(q, 0, 4)];
}
static int even_gap(int64_t width) { return (int)(-width & 7); } /* rows on 16-byte borders, as layers have them */
static int any_rows(Duo *q) {
    static const int n[] = { 1, 2, 7, 8, 16, 17, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200, 256, 257, 300 };
    return n[pick_int(q, 0, COUNT(n) - 1)];
}
static Leaves any_cut(Duo *q, int64_t cols) {
    int of = pick_int(q, 0, 2) ? 1 : 1 << pick_int(q, 1, 5), unit = cols % 16 == 0 && pick_int(q, 0, 1) ? 16 : 1;
    return leaves_all(of, cols / unit, unit);
}
static void held(Duo *q, const char *what, Two x, bool chain) { /* chain: the order of the CPU */
    if (chain && x.t[GPU].dtype == DT_F32) duo_same(q, what, x);
    else duo_near(q, what, x, chain ? 0 : 2e-5);
}
/* Another place with the same numbers and gaps. */
static Tensor other(Duo *q, Tensor x) {
    Tensor y = rig_put_ld(&q->r[GPU], x.dtype, x.rows, x.cols, x.ld, NULL);
    op_copy(duo_dev(q, GPU), y, x);
    return y;
}

/* ---- dense ----------------------------------------------------------------------------------------------------- */
static void dense(Duo *q, int64_t T, int64_t O, int64_t I, bool even) {
    int gap_i = even ? even_gap(I) : any_gap(q), gap_o = even ? even_gap(O) : any_gap(q);
    Two x = two(q, any_act(q), T, I, gap_i, 1), w = two_w(q, any_w(q), O, I, even ? 0 : any_gap(q), 1),
        b = two_w(q, DT_F32, 1, O, 0, 1);
    Two y = two(q, any_act(q), T, O, gap_o, 1), dy = two(q, any_act(q), T, O, gap_o, 1),
        dx = two(q, any_act(q), T, I, gap_i, 1);
    Two dw = two(q, DT_F32, O, I, even ? 0 : any_gap(q), 1), db = two(q, DT_F32, 1, O, 0, 1);
    Leaves in = even ? leaves_one(I) : any_cut(q, I), out = even ? leaves_one(O) : any_cut(q, O);
    Tensor dw2 = other(q, dw.t[GPU]), db2 = other(q, db.t[GPU]);
    Dev *g = duo_dev(q, GPU);
    EACH_SIDE(q, s, d) {
        op_linear(d, y.t[s], x.t[s], w.t[s], b.t[s], in);
        op_linear_dx(d, dx.t[s], dy.t[s], w.t[s], out);
        op_linear_dw(d, dw.t[s], db.t[s], dy.t[s], x.t[s]);
    }
    bool f32 = q->act == DT_F32;
    held(q, "linear", y, f32), held(q, "linear_dx", dx, f32), held(q, "linear_dw", dw, f32),
        held(q, "linear_dw's bias", db, f32);
    Tensor y2 = other(q, y.t[GPU]), dx2 = other(q, dx.t[GPU]);
    op_zero(g, y2), op_zero(g, dx2);
    for (int64_t at = 0, n; at < T; at += n) { /* the same rows, a few at a time */
        n = pick_int(q, 1, 70);
        if (n > T - at) n = T - at;
        op_linear(g, tensor_rows(y2, at, n), tensor_rows(x.t[GPU], at, n), w.t[GPU], b.t[GPU], in);
        op_linear_dx(g, tensor_rows(dx2, at, n), tensor_rows(dy.t[GPU], at, n), w.t[GPU], out);
    }
    size_t said = g->ops->tmp.linear(g, y2, x.t[GPU], w.t[GPU], b.t[GPU], in),
           dw_said = g->ops->tmp.linear_dw(g, dw2, db2, dy.t[GPU], x.t[GPU]);
    g->tmp.peak = 0;
    op_linear(g, y2, x.t[GPU], w.t[GPU], b.t[GPU], in);
    EXPECT(g->tmp.peak <= said, "linear took %zu bytes of tmp, %zu were said", g->tmp.peak, said);
    g->tmp.peak = 0;
    op_linear_dw(g, dw2, db2, dy.t[GPU], x.t[GPU]);
    EXPECT(g->tmp.peak <= dw_said, "linear_dw took %zu bytes of tmp, %zu were said", g->tmp.peak, dw_said);
    duo_equal(q, "linear, rows in batches", y.t[GPU], y2), duo_equal(q, "linear_dx, rows in batches", dx.t[GPU], dx2);
    duo_equal(q, "linear_dw again", dw.t[GPU], dw2), duo_equal(q, "bias again", db.t[GPU], db2);
    duo_clear(q, "dense");
}
/* Every number of rows, alone: the bits it has in the batch of all; also noted, behind a call that makes the tokens. */
static void all_rows(Duo *q, int64_t O, int64_t I) {
    enum { T = 300 };
    Dev *g = duo_dev(q, GPU);
    Two x = two(q, q->act, T, I, 0, 1), w = two_w(q, q->act, O, I, 0, 1), y = two(q, q->act, T, O, 0, 1),
        z = two(q, q->act, T, O, 0, 1), made = two(q, q->act, T, I, 0, 1);
    op_linear(g, y.t[GPU], x.t[GPU], w.t[GPU], TENSOR_NONE, leaves_one(I));
    for (int64_t n = 1; n <= T; n += n < 140 ? 1 : 17) {
        int64_t at = pick_int(q, 0, (int)(T - n));
        op_zero(g, z.t[GPU]);
        op_linear(g, tensor_rows(z.t[GPU], at, n), tensor_rows(x.t[GPU], at, n), w.t[GPU], TENSOR_NONE, leaves_one(I));
        duo_equal(q, "rows alone", tensor_rows(y.t[GPU], at, n), tensor_rows(z.t[GPU], at, n));
        if (n < 140 && n % 8 != 1) continue;
        Tensor now = tensor_rows(made.t[GPU], 0, n);
        op_zero(g, z.t[GPU]);
        g->ops->record(g);
        op_copy(g, now, tensor_rows(x.t[GPU], at, n));
        op_linear(g, tensor_rows(z.t[GPU], at, n), now, w.t[GPU], TENSOR_NONE, leaves_one(I));
        void *captured = g->ops->recorded(g);
        g->ops->replay(g, captured), g->ops->forget(g, captured);
        duo_equal(q, "rows noted", tensor_rows(y.t[GPU], at, n), tensor_rows(z.t[GPU], at, n));
    }
    duo_clear(q, "all rows");
}

/* ---- a sum that tensor parallelism cuts: each rank's part in turn, then the tree ------------------------------- */
static void parts(Duo *q, int64_t T, int64_t O, int64_t units, int64_t unit, int of) {
    Dev *g = duo_dev(q, GPU);
    int64_t I = units * unit;
    Two x = two(q, q->act, T, I, 0, 1), w = two_w(q, q->act, O, I, 0, 1), v = two_w(q, q->act, I, O, 0, 1),
        y = two(q, DT_F32, T, O, 0, 1);
    Two dx = two(q, DT_F32, T, O, 0, 1);
    op_linear(g, y.t[GPU], x.t[GPU], w.t[GPU], TENSOR_NONE, leaves_all(of, units, unit));
    op_linear_dx(g, dx.t[GPU], x.t[GPU], v.t[GPU], leaves_all(of, units, unit));
    for (int tp = 2; tp <= of; tp *= 2) {
        Tensor part[32], dpart[32], sum = other(q, y.t[GPU]);
        for (int r = 0; r < tp; r++) {
            Leaves l = { r * (of / tp), of / tp, of, units, unit };
            int64_t c0 = leaves_cut(&l, l.first), n = leaves_cols(&l);
            part[r] = rig_put(&q->r[GPU], DT_F32, T, O, NULL), dpart[r] = rig_put(&q->r[GPU], DT_F32, T, O, NULL);
            if (n == 0) continue; /* a rank that holds nothing adds +0 */
            op_linear(g, part[r], tensor_cols(x.t[GPU], c0, n), tensor_cols(w.t[GPU], c0, n), TENSOR_NONE, l);
            op_linear_dx(g, dpart[r], tensor_cols(x.t[GPU], c0, n), tensor_rows(v.t[GPU], c0, n), l);
        }
        op_tree_add(g, sum, part, tp);
        duo_equal(q, "linear by ranks", y.t[GPU], sum);
        op_tree_add(g, sum, dpart, tp);
        duo_equal(q, "linear_dx by ranks", dx.t[GPU], sum);
    }
    duo_clear(q, "parts");
}

/* ---- experts --------------------------------------------------------------------------------------------------- */
static void grouped(Duo *q) {
    static const int some[] = { 0, 0, 1, 2, 7, 16, 17, 33, 63, 64, 65, 100, 127, 128, 129, 200, 300 };
    enum { MOST = 40 };
    int E = pick_int(q, 0, 3) || gpu_test_few ? pick_int(q, 1, 9) : MOST,
        each = pick_int(q, 0, 2) ? -1 : pick_int(q, 0, 9);
    int64_t O = any_width(q), I = any_width(q);
    if (O > 800 || E == MOST) O = O > 264 ? 264 : O;
    if (E == MOST && I > 512) I = 512;
    int32_t at[MOST + 1] = { 0 };
    for (int e = 0; e < E; e++)
        at[e + 1] = at[e] + (each >= 0 ? pick_int(q, 0, each) : some[pick_int(q, 0, COUNT(some) - 1)]);
    int64_t T = at[E];
    Two tat = two_i32(q, 1, E + 1, 0, at), x = two(q, any_act(q), T, I, any_gap(q), 1),
        w = two_w(q, any_w(q), E * O, I, any_gap(q), 1);
    Two y = two(q, any_act(q), T, O, any_gap(q), 1), dy = two(q, any_act(q), T, O, any_gap(q), 1),
        dx = two(q, any_act(q), T, I, any_gap(q), 1);
    Two dw = two(q, DT_F32, E * O, I, any_gap(q), 1);
    Leaves in = any_cut(q, I), out = any_cut(q, O);
    Tensor dw2 = other(q, dw.t[GPU]);
    Dev *g = duo_dev(q, GPU);
    Seqs ex[2];
    EACH_SIDE(q, s, d) {
        ex[s] = (Seqs){ E, (int)T, tat.t[s] };
        op_grouped(d, y.t[s], x.t[s], w.t[s], ex[s], in);
        op_grouped_dx(d, dx.t[s], dy.t[s], w.t[s], ex[s], out);
        op_grouped_dw(d, dw.t[s], dy.t[s], x.t[s], ex[s]);
    }
    bool f32 = q->act == DT_F32;
    held(q, "grouped", y, f32), held(q, "grouped_dx", dx, f32), held(q, "grouped_dw", dw, f32);
    /* an expert by itself, as a dense product: the same bits */
    Tensor y2 = other(q, y.t[GPU]), dx2 = other(q, dx.t[GPU]), dw3 = other(q, dw2);
    op_zero(g, y2), op_zero(g, dx2);
    for (int e = 0; e < E; e++) {
        int64_t n = at[e + 1] - at[e];
        Tensor we = tensor_rows(w.t[GPU], e * O, O), xe = tensor_rows(x.t[GPU], at[e], n),
               dye = tensor_rows(dy.t[GPU], at[e], n);
        op_linear(g, tensor_rows(y2, at[e], n), xe, we, TENSOR_NONE, in);
        op_linear_dx(g, tensor_rows(dx2, at[e], n), dye, we, out);
        op_linear_dw(g, tensor_rows(dw3, e * O, O), TENSOR_NONE, dye, xe);
    }
    duo_equal(q, "grouped, an expert alone", y.t[GPU], y2), duo_equal(q, "grouped_dx, an expert alone", dx.t[GPU], dx2);
    int failed = test_failed;
    duo_equal(q, "grouped_dw, an expert alone", dw.t[GPU], dw3);
    if (test_failed > failed)
        printf("    %d experts, dy %s, x %s, rows %ld and %ld apart\n", E, dtype_name(dy.t[GPU].dtype),
               dtype_name(x.t[GPU].dtype), (long)dy.t[GPU].ld, (long)x.t[GPU].ld);
    /* NaN in all rows and weights that are not expert e's */
    int e = pick_int(q, 0, E - 1);
    int64_t n = at[e + 1] - at[e];
    float *nan = MEM_ARRAY(&q->r[GPU].m, float, (size_t)((T + E * O) * (O > I ? O : I) + 1));
    memset(nan, 0xFF, (size_t)((T + E * O) * (O > I ? O : I)) * 4);
    Tensor *poison[] = { &x.t[GPU], &dy.t[GPU], &w.t[GPU] };
    for (int i = 0; i < 3; i++) {
        int64_t a = i == 2 ? e * O : at[e], b = i == 2 ? (e + 1) * O : at[e + 1];
        op_put(g, tensor_rows(*poison[i], 0, a), nan);
        op_put(g, tensor_rows(*poison[i], b, poison[i]->rows - b), nan);
    }
    op_grouped(g, y2, x.t[GPU], w.t[GPU], ex[GPU], in), op_grouped_dx(g, dx2, dy.t[GPU], w.t[GPU], ex[GPU], out);
    op_grouped_dw(g, dw2, dy.t[GPU], x.t[GPU], ex[GPU]);
    duo_equal(q, "grouped beside NaN", tensor_rows(y.t[GPU], at[e], n), tensor_rows(y2, at[e], n));
    duo_equal(q, "grouped_dx beside NaN", tensor_rows(dx.t[GPU], at[e], n), tensor_rows(dx2, at[e], n));
    duo_equal(q, "grouped_dw beside NaN", tensor_rows(dw.t[GPU], e * O, O), tensor_rows(dw2, e * O, O));
    duo_clear(q, "grouped");
}

/* A gradient whose last round of tiles would be nearly empty has taller ones (prod_dw.cu): the bits of its parts. */
static void wide_dw(Duo *q, int64_t T) {
    enum { O = 5000, I = 2000, PART = 1000 };
    Dev *g = duo_dev(q, GPU);
    Two x = two(q, q->act, T, I, 8, 1), dy = two(q, q->act, T, O, 0, 1), dw = two(q, DT_F32, O, I, 0, 1);
    Tensor parts = other(q, dw.t[GPU]), fresh = other(q, dw.t[GPU]);
    EACH_SIDE(q, s, d) op_linear_dw(d, dw.t[s], TENSOR_NONE, dy.t[s], x.t[s]);
    held(q, "a wide dw", dw, false);
    for (int64_t o = 0; o < O; o += PART)
        op_linear_dw(g, tensor_rows(parts, o, PART), TENSOR_NONE, tensor_cols(dy.t[GPU], o, PART), x.t[GPU]);
    duo_equal(q, "a wide dw, in parts", dw.t[GPU], parts);
    op_linear_dw_first(g, fresh, TENSOR_NONE, dy.t[GPU], x.t[GPU]);
    op_zero(g, parts);
    for (int64_t o = 0; o < O; o += PART)
        op_linear_dw(g, tensor_rows(parts, o, PART), TENSOR_NONE, tensor_cols(dy.t[GPU], o, PART), x.t[GPU]);
    duo_equal(q, "a wide dw, the first", fresh, parts);
    duo_clear(q, "wide dw");
}

/* ---- heads ----------------------------------------------------------------------------------------------------- */
static void heads(Duo *q) {
    int64_t T = any_rows(q);
    int round = pick_int(q, 0, 1) ? 8 : 1;
    HeadMap m = { .heads = pick_int(q, 1, 9),
                  .in = pick_int(q, 1, 20) * round,
                  .out = pick_int(q, 1, 20) * round,
                  .x_from = pick_int(q, 0, 3) * round,
                  .y_from = pick_int(q, 0, 3) * round,
                  .w_from = pick_int(q, 0, 9),
                  .turned = pick_int(q, 0, 1) };
    if (pick_int(q, 0, 4) == 0) m.in = 512, m.out = 128, round = 8;
    m.x_width = m.x_from + m.in + pick_int(q, 0, 2) * round, m.y_width = m.y_from + m.out + pick_int(q, 0, 2) * round;
    int64_t wr = m.turned ? m.in : m.out, wc = m.turned ? m.out : m.in;
    m.w_rows = (int)wr + m.w_from + pick_int(q, 0, 3);
    Two x = two(q, any_act(q), T, (int64_t)m.heads * m.x_width, 0, 1),
        w = two_w(q, any_w(q), (int64_t)m.heads * m.w_rows, wc, 0, 1);
    Two y = two(q, any_act(q), T, (int64_t)m.heads * m.y_width, 0, 1),
        dy = two(q, any_act(q), T, (int64_t)m.heads * m.y_width, 0, 1);
    Two dw = two(q, DT_F32, (int64_t)m.heads * m.w_rows, wc, 0, 1);
    Tensor y2 = other(q, y.t[GPU]), dw2 = other(q, dw.t[GPU]);
    Dev *g = duo_dev(q, GPU);
    EACH_SIDE(q, s, d) op_headwise(d, y.t[s], x.t[s], w.t[s], m), op_headwise_dw(d, dw.t[s], dy.t[s], x.t[s], m);
    held(q, "headwise", y, q->act == DT_F32), held(q, "headwise_dw", dw, q->act == DT_F32);
    for (int64_t at = 0, n; at < T; at += n) {
        n = pick_int(q, 1, 70);
        if (n > T - at) n = T - at;
        op_headwise(g, tensor_rows(y2, at, n), tensor_rows(x.t[GPU], at, n), w.t[GPU], m);
    }
    op_headwise_dw(g, dw2, dy.t[GPU], x.t[GPU], m);
    duo_equal(q, "headwise, rows in batches", y.t[GPU], y2), duo_equal(q, "headwise_dw again", dw.t[GPU], dw2);
    duo_clear(q, "heads");
}

int gpu_product(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 300;
    for (int half = 0; half < 2; half++) {
        Duo q;
        duo_open(&q, half ? DT_BF16 : DT_F32, seed, 512u << 20);
        for (int i = 0; i < duo_times(40); i++) {
            int64_t T = any_rows(&q), O = any_width(&q), I = any_width(&q);
            dense(&q, T, O, I, false);
        }
        static const int odd[][2] = {
            { 37, 131 }, { 131, 37 }, { 200, 37 }, { 37, 64 }, { 1280, 3420 }, { 3420, 1280 }
        };
        for (int i = 0; i < (gpu_test_few ? 2 : 30); i++) {
            int64_t T = any_rows(&q);
            dense(&q, T, odd[i % 6][0], odd[i % 6][1], true);
        }
        for (int i = 0; i < duo_times(25); i++) grouped(&q);
        if (half && !gpu_test_few) wide_dw(&q, 200), wide_dw(&q, 64);
        for (int i = 0; i < duo_times(25); i++) heads(&q);
        if (gpu_test_few) parts(&q, 33, 72, 100, 8, 2), parts(&q, 70, 128, 32, 16, 8);
        for (int of = 2; of <= 32 && !gpu_test_few; of *= 2)
            parts(&q, 130, 256, 32, 64, of), parts(&q, 70, 128, 768, 1, of), parts(&q, 33, 72, 100, 8, of),
                parts(&q, 20, 37, 50, 1, of);
        if (!gpu_test_few)
            all_rows(&q, 1024, 512), all_rows(&q, 264, 96), all_rows(&q, 2048, 136), all_rows(&q, 4096, 200),
                all_rows(&q, 5120, 72), all_rows(&q, 6144, 72), all_rows(&q, 7168, 264);
        duo_close(&q);
    }
    return test_end();
}
