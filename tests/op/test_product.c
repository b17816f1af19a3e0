/* test_product.c - rules 1 and 2: products have one order of summation.  Every variant that may differ
 * (instruction set, threads, number of rows, row stride, cut into pieces) against the definition in plain
 * C, with memcmp; values against double. */
#include "op/op_fused.h"
#include "optest.h"

enum { M = 67, O = 83, I = 137 };

/* The definition: pieces of chains, added by the tree. */
static float chain(const float *a, int64_t sa, const float *b, int64_t sb, Leaves l, float start) {
    float p[32];
    int64_t base = leaves_cut(&l, l.first);
    for (int s = 0; s < l.n; s++) {
        p[s] = start;
        for (int64_t k = leaves_cut(&l, l.first + s) - base; k < leaves_cut(&l, l.first + s + 1) - base; k++)
            p[s] = fmaf(a[k * sa], b[k * sb], p[s]);
    }
    for (int d = 1; d < l.n; d *= 2)
        for (int s = 0; s < l.n; s += 2 * d) p[s] = p[s] + p[s + d];
    return p[0];
}
static bool same(const float *a, const float *b, int64_t n) { return !memcmp(a, b, (size_t)n * 4); }

typedef struct {
    float *x, *w, *b, *dy, *dw, *y, *dx, *db; /* inputs; what the definition gives; dw and db also start there */
    float *dw0, *db0;
    uint16_t *w16;
    Leaves in, out;
} Want;

static Want make(Mem *m, int pieces) {
    Want g = {
        .x = rnds(m, M * I, 1, 1),
        .w = rnds(m, O * I, 2, 1),
        .b = rnds(m, O, 3, 1),
        .dy = rnds(m, M * O, 4, 1),
        .dw0 = rnds(m, O * I, 5, 1),
        .db0 = rnds(m, O, 6, 1),
        .in = leaves_all(pieces, I, 1),
        .out = leaves_all(pieces, O, 1),
    };
    g.w16 = bf16s(m, g.w, O * I);
    g.y = MEM_ARRAY(m, float, M *O), g.dx = MEM_ARRAY(m, float, M *I), g.dw = mem_copy(m, g.dw0, O * I * 4),
    g.db = mem_copy(m, g.db0, O * 4);
    for (int t = 0; t < M; t++)
        for (int o = 0; o < O; o++) g.y[t * O + o] = chain(g.x + t * I, 1, g.w + o * I, 1, g.in, 0) + g.b[o];
    for (int t = 0; t < M; t++)
        for (int i = 0; i < I; i++) g.dx[t * I + i] = chain(g.dy + t * O, 1, g.w + i, I, g.out, 0);
    for (int o = 0; o < O; o++)
        for (int i = 0; i < I; i++) g.dw[o * I + i] = chain(g.dy + o, O, g.x + i, I, leaves_one(M), g.dw0[o * I + i]);
    for (int o = 0; o < O; o++)
        for (int t = 0; t < M; t++) g.db[o] += g.dy[t * O + o];
    return g;
}

static void dense(int isa, int threads, int pieces, bool bf16) {
    Rig r;
    rig_open(&r, threads, isa, 8 << 20);
    Want g = make(&r.m, pieces);
    int first[] = { 0, 0, 0, 3, 17, 0, 1, 2, 4, 6, 7, 8 }, rows[] = { M, 1, 2, 4, 9, 33, 66, 3, 5, 6, 7, 8 };
    Tensor w = rig_put_ld(&r, bf16 ? DT_BF16 : DT_F32, O, I, I + 3, bf16 ? (void *)g.w16 : g.w),
           b = rig_put(&r, DT_F32, 1, O, g.b);
    for (size_t c = 0; c < COUNT(rows); c++) { /* any rows: alone, few, many, from the middle */
        int n = rows[c], f = first[c];
        Tensor x = rig_put_ld(&r, DT_F32, n, I, I + 5, g.x + f * I), y = rig_put_ld(&r, DT_F32, n, O, O + 7, NULL);
        op_linear(&r.d, y, x, w, b, g.in);
        EXPECT(same(rig_get(&r, y), g.y + f * O, n * O), "linear: isa %d, %d threads, %d pieces, bf16 %d, rows %d..+%d",
               isa, threads, pieces, bf16, f, n);
        Tensor w3[] = { tensor_rows(w, 0, O - 30), tensor_rows(w, 7, 16), tensor_rows(w, O - 1, 1) }, y3[3], b3[3];
        int at[] = { 0, 7, O - 1 }; /* three of one x, of unequal width: the columns of the one */
        for (int i = 0; i < 3; i++)
            y3[i] = rig_put_ld(&r, DT_F32, n, w3[i].rows, w3[i].rows + 2, NULL),
            b3[i] = tensor_cols(b, at[i], w3[i].rows);
        for (int many = 3; many >= 2; many--) {
            if (many == 3) op_linear3(&r.d, y3, x, w3, b3, g.in);
            else op_zero(&r.d, y3[0]), op_zero(&r.d, y3[1]), op_linear2(&r.d, y3, x, w3, b3, g.in);
            for (int i = 0; i < many; i++) {
                const float *got = rig_get(&r, y3[i]);
                bool ok = true;
                for (int t = 0; t < n; t++)
                    ok = ok && same(got + t * w3[i].rows, g.y + (f + t) * O + at[i], w3[i].rows);
                EXPECT(ok, "linear%d, %d: isa %d, %d threads, %d pieces, bf16 %d, %d rows", many, i, isa, threads,
                       pieces, bf16, n);
            }
        }
        Tensor dy = rig_put_ld(&r, DT_F32, n, O, O + 1, g.dy + f * O), dx = rig_put_ld(&r, DT_F32, n, I, I + 2, NULL);
        op_linear_dx(&r.d, dx, dy, w, g.out);
        EXPECT(same(rig_get(&r, dx), g.dx + f * I, n * I),
               "linear_dx: isa %d, %d threads, %d pieces, bf16 %d, rows %d..+%d", isa, threads, pieces, bf16, f, n);
    }
    Tensor dw = rig_put_ld(&r, DT_F32, O, I, I + 9, g.dw0), db = rig_put(&r, DT_F32, 1, O, g.db0);
    int cut[] = { 0, 1, 24, M }; /* micro-batches between rows change no bit */
    for (int c = 0; c < 3; c++) {
        int n = cut[c + 1] - cut[c];
        op_linear_dw(&r.d, dw, db, rig_put(&r, DT_F32, n, O, g.dy + cut[c] * O),
                     rig_put(&r, DT_F32, n, I, g.x + cut[c] * I));
    }
    Tensor none = rig_put(&r, DT_F32, 1, O, g.dy), nothing = rig_put(&r, DT_F32, 1, I, g.x);
    none.rows = nothing.rows = 0; /* a micro-batch without rows adds nothing */
    op_linear_dw(&r.d, dw, db, none, nothing);
    EXPECT(same(rig_get(&r, dw), g.dw, O * I), "linear_dw: isa %d, %d threads", isa, threads);
    EXPECT(same(rig_get(&r, db), g.db, O), "linear_dw's bias: isa %d, %d threads", isa, threads);

    /* written, whatever was there: the bits of zero and linear_dw */
    float *had = rnds(&r.m, O * I, 77, 1);
    Tensor once = rig_put_ld(&r, DT_F32, O, I, I + 9, had), once_b = rig_put(&r, DT_F32, 1, O, had),
           all_dy = rig_put(&r, DT_F32, M, O, g.dy), all_x = rig_put(&r, DT_F32, M, I, g.x);
    for (int some = M; some >= 0; some -= M) {
        all_dy.rows = all_x.rows = some;
        op_zero(&r.d, dw), op_zero(&r.d, db);
        op_linear_dw(&r.d, dw, db, all_dy, all_x);
        op_linear_dw_first(&r.d, once, once_b, all_dy, all_x);
        EXPECT(same(rig_get(&r, once), rig_get(&r, dw), O * I) && same(rig_get(&r, once_b), rig_get(&r, db), O),
               "linear_dw_first of %d rows: isa %d, %d threads", some, isa, threads);
    }

    /* a sum over 8 pieces in the wrong order is another number: the comparison above can fail */
    if (pieces == 8) {
        Leaves flat = leaves_one(I);
        int differ = 0;
        for (int t = 0; t < M; t++) differ += chain(g.x + t * I, 1, g.w, 1, flat, 0) + g.b[0] != g.y[t * O];
        EXPECT(differ > M / 4, "one chain and eight pieces differ in %d of %d sums only", differ, M);
    }
    rig_close(&r);
}

/* The product as 2, 4, 8 parts that are then combined. */
static void parts(int64_t units, int64_t unit) {
    Rig r;
    rig_open(&r, 2, ISA_BEST, 8 << 20);
    int64_t K = units * unit;
    float *x = rnds(&r.m, M * K, 1, 1), *w = rnds(&r.m, O * K, 2, 1);
    Tensor tx = rig_put(&r, DT_F32, M, K, x), tw = rig_put(&r, DT_F32, O, K, w), y = rig_put(&r, DT_F32, M, O, NULL);
    op_linear(&r.d, y, tx, tw, TENSOR_NONE, leaves_all(8, units, unit));
    float *all = rig_get(&r, y);
    for (int n = 2; n <= 8; n *= 2) {
        Tensor part[8];
        for (int p = 0; p < n; p++) {
            Leaves l = { p * 8 / n, 8 / n, 8, units, unit };
            int64_t c0 = leaves_cut(&l, l.first), c = leaves_cols(&l);
            part[p] = rig_put(&r, DT_F32, M, O, NULL);
            op_linear(&r.d, part[p], tensor_cols(tx, c0, c), tensor_cols(tw, c0, c), TENSOR_NONE, l);
        }
        Tensor sum = rig_put(&r, DT_F32, M, O, NULL);
        op_tree_add(&r.d, sum, part, n);
        EXPECT(same(rig_get(&r, sum), all, M * O), "%ld units of %ld: %d parts differ from the whole", (long)units,
               (long)unit, n);
    }
    rig_close(&r);
}

/* Beyond every block border (512 summed, 256 rows, 768 columns), pieces longer than a block, several pieces a block. */
static void large(int isa, int rows, int N, int K, int pieces) {
    Rig r;
    rig_open(&r, 2, isa, 32 << 20);
    float *x = rnds(&r.m, rows * K, 1, 1), *w = rnds(&r.m, N * K, 2, 1);
    uint16_t *w16 = bf16s(&r.m, w, N * K);
    Tensor tx = rig_put(&r, DT_F32, rows, K, x), tw = rig_put(&r, DT_F32, N, K, w),
           tw16 = rig_put(&r, DT_BF16, N, K, w16), y = rig_put(&r, DT_F32, rows, N, NULL),
           y16 = rig_put(&r, DT_F32, rows, N, NULL);
    Tensor dx = rig_put(&r, DT_F32, rows, K, NULL), dw = rig_put(&r, DT_F32, N, K, NULL);
    op_linear(&r.d, y, tx, tw, TENSOR_NONE, leaves_all(pieces, K, 1));
    op_linear(&r.d, y16, tx, tw16, TENSOR_NONE, leaves_all(pieces, K, 1));
    op_linear_dx(&r.d, dx, y, tw, leaves_all(pieces, N, 1));
    op_linear_dw(&r.d, dw, TENSOR_NONE, y, tx);
    float *got = rig_get(&r, y), *gx = rig_get(&r, dx), *gw = rig_get(&r, dw);
    int bad = 0;
    for (int i = 0; i < 500; i++) {
        int t = (int)(mix((uint64_t)i) % (uint64_t)rows), n = (int)(mix((uint64_t)i + 99) % (uint64_t)N),
            k = (int)(mix((uint64_t)i + 999) % (uint64_t)K);
        bad += got[t * N + n] != chain(x + t * K, 1, w + n * K, 1, leaves_all(pieces, K, 1), 0);
        bad += gx[t * K + k] != chain(got + t * N, 1, w + k, K, leaves_all(pieces, N, 1), 0);
        bad += gw[n * K + k] != chain(got + n, N, x + k, K, leaves_one(rows), 0);
    }
    EXPECT(bad == 0, "isa %d, %d x %d x %d in %d pieces: %d of 1500 entries differ", isa, rows, N, K, pieces, bad);
    EXPECT(same(rig_get(&r, y16), got, (int64_t)rows * N), "isa %d, %d x %d x %d in %d pieces: bf16 weights differ",
           isa, rows, N, K, pieces);
    rig_close(&r);
}

/* A worker keeps what it has turned of x for the pieces of one call, not for the next: new
 * numbers in the same place are seen. */
static void again(int isa) {
    enum { ROWS = 40, N = 500, K = 300 };
    Rig r;
    rig_open(&r, 2, isa, 8 << 20);
    float *w = rnds(&r.m, N * K, 2, 1);
    Tensor x = rig_put(&r, DT_F32, ROWS, K, NULL), tw = rig_put(&r, DT_F32, N, K, w),
           y = rig_put(&r, DT_F32, ROWS, N, NULL);
    for (int pass = 0; pass < 4; pass++) {
        float *now = rnds(&r.m, ROWS * K, (uint64_t)pass + 7, 1);
        op_put(&r.d, x, now);
        op_linear(&r.d, y, x, tw, TENSOR_NONE, leaves_one(K));
        float *got = rig_get(&r, y);
        int bad = 0;
        for (int t = 0; t < ROWS; t += 3)
            for (int n = 0; n < N; n++) bad += got[t * N + n] != chain(now + t * K, 1, w + n * K, 1, leaves_one(K), 0);
        EXPECT(bad == 0, "isa %d, call %d with new numbers: %d sums differ", isa, pass, bad);
    }
    rig_close(&r);
}

static void grouped(int isa, int threads) {
    enum { E = 5, GO = 50, GI = 70 };
    Rig r;
    rig_open(&r, threads, isa, 8 << 20);
    int32_t at[E + 1] = { 0, 7, 7, 40, 41, M };
    float *x = rnds(&r.m, M * GI, 1, 1), *w = rnds(&r.m, E * GO * GI, 2, 1), *dy = rnds(&r.m, M * GO, 3, 1),
          *dw0 = rnds(&r.m, E * GO * GI, 4, 1);
    uint16_t *w16 = bf16s(&r.m, w, E * GO * GI);
    Seqs ex = { E, 33, rig_put(&r, DT_I32, 1, E + 1, at) };
    Tensor tx = rig_put(&r, DT_F32, M, GI, x), tdy = rig_put(&r, DT_F32, M, GO, dy),
           tw = rig_put(&r, DT_F32, E * GO, GI, w);
    Tensor tw16 = rig_put(&r, DT_BF16, E * GO, GI, w16), y = rig_put(&r, DT_F32, M, GO, NULL),
           y16 = rig_put(&r, DT_F32, M, GO, NULL);
    Tensor dx = rig_put(&r, DT_F32, M, GI, NULL), dw = rig_put(&r, DT_F32, E * GO, GI, dw0);
    Leaves in = leaves_all(8, GI, 1), out = leaves_all(4, GO, 1);
    op_grouped(&r.d, y, tx, tw, ex, in);
    op_grouped(&r.d, y16, tx, tw16, ex, in);
    op_grouped_dx(&r.d, dx, tdy, tw, ex, out);
    op_grouped_dw(&r.d, dw, tdy, tx, ex);
    float *gy = rig_get(&r, y), *g16 = rig_get(&r, y16), *gx = rig_get(&r, dx), *gw = rig_get(&r, dw);
    int bad = 0;
    for (int e = 0; e < E; e++) {
        const float *we = w + e * GO * GI;
        for (int t = at[e]; t < at[e + 1]; t++) {
            for (int o = 0; o < GO; o++) bad += gy[t * GO + o] != chain(x + t * GI, 1, we + o * GI, 1, in, 0);
            for (int i = 0; i < GI; i++) bad += gx[t * GI + i] != chain(dy + t * GO, 1, we + i, GI, out, 0);
        }
        for (int o = 0; o < GO; o++)
            for (int i = 0; i < GI; i++)
                bad += gw[(e * GO + o) * GI + i]
                       != chain(dy + at[e] * GO + o, GO, x + at[e] * GI + i, GI, leaves_one(at[e + 1] - at[e]),
                                dw0[(e * GO + o) * GI + i]);
    }
    EXPECT(bad == 0 && same(gy, g16, M * GO), "grouped: isa %d, %d threads: %d entries differ", isa, threads, bad);

    op_zero(&r.d, dw);
    op_grouped_dw(&r.d, dw, tdy, tx, ex);
    Tensor written = rig_put(&r, DT_F32, E * GO, GI, dw0); /* of an expert without rows, too */
    op_grouped_dw_first(&r.d, written, tdy, tx, ex);
    EXPECT(same(rig_get(&r, written), rig_get(&r, dw), E * GO * GI), "grouped_dw_first: isa %d, %d threads", isa,
           threads);

    /* gate and up at once, the gate with the weights of above: the bits of the parts */
    float *wu = rnds(&r.m, E * GO * GI, 5, 1);
    Tensor tu = rig_put(&r, DT_F32, E * GO, GI, wu), part[3], once[3];
    for (int i = 0; i < 3; i++) part[i] = rig_put(&r, DT_F32, M, GO, NULL), once[i] = rig_put(&r, DT_F32, M, GO, NULL);
    op_grouped(&r.d, part[1], tx, tw, ex, in);
    op_grouped(&r.d, part[2], tx, tu, ex, in);
    op_swiglu(&r.d, part[0], part[1], part[2]);
    op_grouped_swiglu(&r.d, once[0], once[1], once[2], tx, tw, tu, ex, in, true);
    for (int i = 0; i < 3; i++)
        EXPECT(same(rig_get(&r, once[i]), rig_get(&r, part[i]), M * GO), "grouped_swiglu, %d: isa %d, %d threads", i,
               isa, threads);
    rig_close(&r);
}

static void headwise(int isa, int threads) {
    enum { H = 3, HO = 19, HI = 33, XW = HI + 6, YW = HO + 2, WR = 50, WF = 7 };
    Rig r;
    rig_open(&r, threads, isa, 8 << 20);
    int bad = 0;
    for (int turned = 0; turned < 2; turned++) {
        HeadMap m = { .heads = H,
                      .in = HI,
                      .out = HO,
                      .x_width = XW,
                      .x_from = 4,
                      .y_width = YW,
                      .y_from = 1,
                      .w_rows = WR,
                      .w_from = WF,
                      .turned = turned };
        int wc = turned ? HO : HI, so = turned ? 1 : wc,
            si = turned ? wc : 1; /* w_h[o,i] = w[(h*WR+WF)*wc + o*so + i*si] */
        float *x = rnds(&r.m, M * H * XW, 1, 1), *w = rnds(&r.m, H * WR * wc, 2, 1), *dy = rnds(&r.m, M * H * YW, 3, 1);
        float *dw0 = rnds(&r.m, H * WR * wc, 4, 1), *want = mem_copy(&r.m, dw0, (size_t)(H * WR * wc) * 4);
        Tensor tx = rig_put_ld(&r, DT_F32, M, H * XW, H * XW + 4, x), tdy = rig_put(&r, DT_F32, M, H * YW, dy);
        Tensor tw = rig_put(&r, DT_F32, H * WR, wc, w), dw = rig_put(&r, DT_F32, H * WR, wc, dw0),
               y = rig_put(&r, DT_F32, M, H * YW, NULL);
        op_headwise(&r.d, y, tx, tw, m);
        op_headwise_dw(&r.d, dw, tdy, tx, m);
        float *gy = rig_get(&r, y);
        for (int h = 0; h < H; h++)
            for (int o = 0; o < HO; o++) {
                const float *wh = w + (h * WR + WF) * wc + o * so;
                for (int t = 0; t < M; t++)
                    bad += gy[t * H * YW + h * YW + 1 + o]
                           != chain(x + t * H * XW + h * XW + 4, 1, wh, si, leaves_one(HI), 0);
                for (int t = 0; t < M; t++)
                    bad += o == 0 && gy[t * H * YW + h * YW] != 0; /* beside the part: untouched */
                for (int i = 0; i < HI; i++) {
                    float *at = want + (h * WR + WF) * wc + o * so + i * si;
                    *at = chain(dy + h * YW + 1 + o, H * YW, x + h * XW + 4 + i, H * XW, leaves_one(M), *at);
                }
            }
        bad += !same(rig_get(&r, dw), want, H * WR * wc);
    }
    EXPECT(bad == 0, "headwise: isa %d, %d threads: %d entries differ", isa, threads, bad);
    rig_close(&r);
}

static void copy_heads(int isa, int threads) {
    enum { H = 5, N = 11, XW = 17, YW = 23 };
    Rig r;
    rig_open(&r, threads, isa, 8 << 20);
    HeadMap m = { .heads = H, .in = N, .out = N, .x_width = XW, .x_from = 6, .y_width = YW, .y_from = 3 };
    float *x = rnds(&r.m, M * H * XW, 1, 1), *want = rnds(&r.m, M * H * YW, 2, 1);
    Tensor y = rig_put_ld(&r, DT_F32, M, H * YW, H * YW + 2, want);
    op_copy_heads(&r.d, y, rig_put_ld(&r, DT_F32, M, H * XW, H * XW + 1, x), m);
    for (int i = 0; i < M * H; i++) memcpy(want + i * YW + 3, x + i * XW + 6, N * sizeof *x);
    EXPECT(same(rig_get(&r, y), want, M * H * YW), "copy_heads: isa %d, %d threads", isa, threads);
    rig_close(&r);
}

static void sum_heads(int isa, int threads) {
    enum { H = 5, N = 11, XW = 17, YW = 23 };
    Rig r;
    rig_open(&r, threads, isa, 8 << 20);
    HeadMap m = { .heads = H, .in = N, .out = N, .x_width = XW, .x_from = 6, .y_from = 3 };
    float *x = rnds(&r.m, M * H * XW, 1, 1), *want = rnds(&r.m, M * YW, 2, 1);
    Tensor y = rig_put_ld(&r, DT_F32, M, YW, YW + 2, want);
    op_sum_heads(&r.d, y, rig_put_ld(&r, DT_F32, M, H * XW, H * XW + 1, x), m);
    for (int t = 0; t < M; t++)
        for (int c = 0; c < N; c++) {
            float sum = x[t * H * XW + 6 + c];
            for (int h = 1; h < H; h++) sum += x[(t * H + h) * XW + 6 + c];
            want[t * YW + 3 + c] = sum;
        }
    EXPECT(same(rig_get(&r, y), want, M * YW), "sum_heads: isa %d, %d threads", isa, threads);
    rig_close(&r);
}

int main(int argc, char **argv) {
    optest_begin(argc, argv);
    static const int threads[] = { 1, 2, 3, 7 };
    EACH_ISA(isa) {
        for (size_t i = 0; i < COUNT(threads); i++) {
            dense(isa, threads[i], i % 2 ? 8 : 1, i > 1);
            grouped(isa, threads[i]);
            headwise(isa, threads[i]);
            copy_heads(isa, threads[i]);
            sum_heads(isa, threads[i]);
        }
        dense(isa, 1, 16, false);
        large(isa, 262, 780, 530, 1);
        large(isa, 262, 780, 530, 8);
        large(isa, 9, 1100, 1100, 2);
        large(isa, 600, 30, 4200, 8);
        large(isa, 70, 700, 1000, 8); /* x whole in scratch; a weight's gradient from few rows */
        large(isa, 61, 200, 2048, 8); /* just so */
        large(isa, 64, 200, 2150, 1); /* no longer */
        again(isa);
    }
    parts(64, 1);
    parts(7, 13); /* fewer units than pieces: some are empty */
    parts(413, 1);
    parts(10, 128);
    return test_end();
}
