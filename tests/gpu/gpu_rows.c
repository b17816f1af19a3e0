/* gpu_rows.c - row-by-row ops, experts' bookkeeping and the optimizer: GPU against CPU by bound, against
 * itself by memcmp, over random shapes, every mixture of dtypes that the front doors allow, rows with and
 * without gaps, no rows at all. */
#include "gpu/duo.h"
#include "op/adam.h"

static DType any_act(Duo *q) { return pick_int(q, 0, 1) ? q->act : DT_F32; }
static DType any_w(Duo *q) { return pick_int(q, 0, 1) ? DT_BF16 : DT_F32; }
static int any_gap(Duo *q) {
    static const int gap[] = { 0, 0, 8, 3, 4 }; /* 4: makes 3420 columns rows on 16-byte borders */
    return gap[pick_int(q, 0, 4)];
}
#define EACH_SIDE(q, s, d)                                                                                             \
    for (int s = 0; s < 2; s++)                                                                                        \
        for (Dev *d = duo_dev(q, s); d; d = NULL)

/* ---- elementwise and norms: out = f(in...) row by row ------------------------------------------------------------ */
typedef struct {
    Two x, u, g, y, z, rstd, dg, cs;
    RopeShape rope;
    int kind;
} Row;
enum { NORM, NORM_DX, SWIGLU, SWIGLU_BWD, ADD, ROPE, COPY, GELU, GELU_BWD, ROW_KINDS };
static const char *const row_name[] = { "rmsnorm", "rmsnorm_bwd", "swiglu", "swiglu_bwd", "add",
                                        "rope",    "copy",        "gelu",   "gelu_bwd" };
static void row_run(Dev *d, const Row *p, int s, int64_t at, int64_t n, int64_t to, Two y, Two z) {
    Tensor x = tensor_rows(p->x.t[s], at, n), u = tensor_rows(p->u.t[s], at, n), ty = tensor_rows(y.t[s], to, n),
           tz = tensor_rows(z.t[s], to, n);
    Tensor rstd = tensor_rows(p->rstd.t[s], at, n);
    switch (p->kind) {
    case NORM: op_rmsnorm(d, ty, rstd, x, p->g.t[s], 1e-5f); break;
    case NORM_DX: op_rmsnorm_bwd(d, ty, TENSOR_NONE, u, x, rstd, p->g.t[s]); break;
    case SWIGLU: op_swiglu(d, ty, x, u); break;
    case SWIGLU_BWD: op_swiglu_bwd(d, ty, tz, u, x, u); break;
    case ADD: op_add(d, ty, x, u); break;
    case ROPE:
        op_copy(d, ty, x);
        op_rope(d, ty, tensor_rows(p->cs.t[s], at, n), p->rope, 1);
        break;
    case GELU: op_gelu(d, ty, x); break;
    case GELU_BWD: op_gelu_bwd(d, ty, u, x); break;
    default: op_copy(d, ty, x);
    }
}
static void rows_once(Duo *q) {
    static const int widths[] = { 1, 7, 8, 64, 75, 128, 200, 1024, 1032, 2048, 3000, 3420, 7168 };
    int64_t T = pick_int(q, 0, 40), W = widths[pick_int(q, 0, COUNT(widths) - 1)];
    Row p = { .x = two(q, any_act(q), T, W, any_gap(q), 3),
              .u = two(q, any_act(q), T, W, any_gap(q), 3),
              .g = two_w(q, any_w(q), 1, W, 0, 1) };
    DType ty = any_act(q), tz = any_act(q);
    Two wf = two_of(q, DT_F32, 1, W, 0, floats(&q->r[GPU], p.g.t[GPU])); /* the CPU's norms want float32 gains */
    p.g.t[CPU] = wf.t[CPU];
    p.y = two(q, ty, T, W, any_gap(q), 1), p.z = two(q, tz, T, W, any_gap(q), 1);
    p.rstd = two(q, DT_F32, T, 1, any_gap(q), 1);
    int heads = W % 4 == 0 ? 4 : 1, wid = (int)W / heads, dim = pick_int(q, 1, wid > 1 ? wid / 2 : 1) * 2;
    if (dim > wid) dim = wid / 2 * 2;
    p.rope = (RopeShape){ heads, wid, (wid - dim) / 8 * 8, dim, pick_int(q, 0, 1) };
    p.cs = two(q, DT_F32, T, dim, 0, 1);
    for (int k = 0; k < ROW_KINDS; k++) {
        p.kind = k;
        if (k == ROPE && dim == 0) continue;
        EACH_SIDE(q, s, d) row_run(d, &p, s, 0, T, 0, p.y, p.z);
        double bound = k == SWIGLU || k == SWIGLU_BWD || k == ADD || k == COPY || k == ROPE ? 2e-7 : 2e-6;
        if (k == ROPE && ty == DT_BF16) bound += 4e-3; /* what is turned was rounded first */
        duo_near(q, row_name[k], p.y, bound);
        if (k == SWIGLU_BWD) duo_near(q, "swiglu_bwd dup", p.z, bound);
        if ((k == GELU || k == GELU_BWD) && ty == DT_F32) duo_same(q, row_name[k], p.y); /* the CPU's own function */
        if (k == NORM) duo_near(q, "rstd", p.rstd, 1e-6);
        if (k == NORM) op_put(duo_dev(q, GPU), p.rstd.t[GPU], rig_get(&q->r[CPU], p.rstd.t[CPU]));
        /* again, one row at a time, from the last to the first, into other places */
        Two y2 = two(q, ty, T, W, any_gap(q), 5), z2 = two(q, tz, T, W, any_gap(q), 5);
        for (int64_t r = T - 1; r >= 0; r--) row_run(duo_dev(q, GPU), &p, GPU, r, 1, r, y2, z2);
        if (k != NORM && k != NORM_DX) duo_equal(q, row_name[k], p.y.t[GPU], y2.t[GPU]);
        row_run(duo_dev(q, GPU), &p, GPU, 0, T, 0, p.y, p.z);
        duo_equal(q, row_name[k], p.y.t[GPU], y2.t[GPU]);
        if (k == SWIGLU_BWD) duo_equal(q, "swiglu_bwd dup", p.z.t[GPU], z2.t[GPU]);
    }
    duo_clear(q, "rows");
}

/* ---- sums over rows ---------------------------------------------------------------------------------------------- */
static void sums_once(Duo *q) {
    static const int widths[] = { 1, 24, 75, 128, 1032, 2048 };
    int64_t T = pick_int(q, 0, 700), W = widths[pick_int(q, 0, COUNT(widths) - 1)], V = pick_int(q, 1, 60);
    int32_t *ids = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)T + 1);
    for (int64_t t = 0; t < T; t++) ids[t] = pick_int(q, 0, (int)V - 1);
    Two i = two_i32(q, T, 1, any_gap(q), ids), dy = two(q, any_act(q), T, W, any_gap(q), 1),
        dw = two(q, DT_F32, V, W, any_gap(q), 1);
    Two w = two_w(q, any_w(q), V, W, any_gap(q), 1), y = two(q, any_act(q), T, W, any_gap(q), 1);
    EACH_SIDE(q, s, d)
    op_embed_bwd(d, dw.t[s], dy.t[s], i.t[s], part_whole(w.t[s].rows)),
        op_embed(d, y.t[s], i.t[s], w.t[s], part_whole(w.t[s].rows));
    duo_same(q, "embed_bwd", dw);
    duo_near(q, "embed", y, 0);
    Two bias = two_w(q, any_w(q), 1, W, 0, 1), z = two(q, any_act(q), T, W, any_gap(q), 1);
    float *from = rnds(&q->r[GPU].m, W, ++q->seed, 1);
    Two db = two_of(q, DT_F32, 1, W, 0, from), db2 = two_of(q, DT_F32, 1, W, 0, from);
    EACH_SIDE(q, s, d) op_add_row(d, z.t[s], bias.t[s]), op_sum_rows(d, db.t[s], dy.t[s]);
    duo_near(q, "add_row", z, 2e-7);
    duo_near(q, "sum_rows", db, 4e-6);
    op_sum_rows(duo_dev(q, GPU), db2.t[GPU], dy.t[GPU]);
    duo_equal(q, "sum_rows again", db.t[GPU], db2.t[GPU]);
    Two x = two(q, any_act(q), T, W, any_gap(q), 1), rstd = two(q, DT_F32, T, 1, 0, 1),
        g = two_w(q, DT_F32, 1, W, 0, 1);
    float *start = rnds(&q->r[GPU].m, W, ++q->seed, 1);
    Two dg = two_of(q, DT_F32, 1, W, 0, start), again = two_of(q, DT_F32, 1, W, 0, start),
        dx = two(q, dy.t[GPU].dtype, T, W, 0, 1);
    EACH_SIDE(q, s, d) op_rmsnorm_bwd(d, TENSOR_NONE, dg.t[s], dy.t[s], x.t[s], rstd.t[s], g.t[s]);
    duo_near(q, "rmsnorm_bwd dg", dg, 4e-6);
    op_rmsnorm_bwd(duo_dev(q, GPU), dx.t[GPU], again.t[GPU], dy.t[GPU], x.t[GPU], rstd.t[GPU], g.t[GPU]);
    duo_equal(q, "rmsnorm_bwd dg again", dg.t[GPU], again.t[GPU]);
    op_rmsnorm_bwd(duo_dev(q, GPU), dy.t[GPU], TENSOR_NONE, dy.t[GPU], x.t[GPU], rstd.t[GPU],
                   g.t[GPU]); /* dx may be dy */
    duo_equal(q, "rmsnorm_bwd in place", dx.t[GPU], dy.t[GPU]);
    duo_clear(q, "sums");
}

/* ---- parts: trees, heads ----------------------------------------------------------------------------------------- */
static void parts_once(Duo *q) {
    int64_t T = pick_int(q, 0, 20), W = pick_int(q, 1, 90);
    int n = 1 << pick_int(q, 0, 5);
    Tensor part[2][32];
    for (int i = 0; i < n; i++) {
        Two x = two(q, any_act(q), T, W, any_gap(q), 1);
        part[0][i] = x.t[0], part[1][i] = x.t[1];
    }
    Two y = two(q, any_act(q), T, W, any_gap(q), 1);
    op_zero(duo_dev(q, GPU), y.t[GPU]);
    EACH_SIDE(q, s, d) op_tree_add(d, y.t[s], part[s], n);
    duo_near(q, "tree_add", y, 0);
    HeadMap m = {
        .heads = pick_int(q, 1, 5), .in = pick_int(q, 1, 70), .x_from = pick_int(q, 0, 9), .y_from = pick_int(q, 0, 9)
    };
    m.out = m.in, m.x_width = m.in + m.x_from + pick_int(q, 0, 5), m.y_width = m.in + m.y_from + pick_int(q, 0, 5);
    Two a = two(q, any_act(q), T, m.heads * m.x_width, any_gap(q), 1),
        b = two(q, any_act(q), T, m.heads * m.y_width, any_gap(q), 1);
    EACH_SIDE(q, s, d) op_copy_heads(d, b.t[s], a.t[s], m);
    duo_near(q, "copy_heads", b, 0);
    m.y_width = 0;
    Two sum = two(q, DT_F32, T, m.in + m.y_from, any_gap(q), 1);
    EACH_SIDE(q, s, d) op_sum_heads(d, sum.t[s], a.t[s], m);
    duo_near(q, "sum_heads", sum, 0);
    duo_clear(q, "parts");
}
static void tables(Duo *q) {
    enum { N = 40, HALF = 33 };
    int32_t pos[N];
    float freq[HALF];
    for (int t = 0; t < N; t++) pos[t] = t < 10 ? t : t < 30 ? (int32_t)(mix((uint64_t)t) % 1000000) : INT32_MAX - t;
    for (int i = 0; i < HALF; i++) freq[i] = (float)pow(5e6, -(double)i / HALF);
    Two p = two_i32(q, N, 1, 2, pos), f = two_of(q, DT_F32, 1, HALF, 0, freq), cs = two(q, DT_F32, N, 2 * HALF, 3, 1);
    EACH_SIDE(q, s, d) op_rope_table(d, cs.t[s], p.t[s], f.t[s], 1.3f);
    duo_near(q, "rope_table", cs, 2e-7);
    duo_clear(q, "tables");
}

/* What weights are made of has the CPU's bits. */
static void fill_once(Duo *q) {
    int64_t R = pick_int(q, 1, 60), C = pick_int(q, 1, 400);
    Two x = two_w(q, any_w(q), R, C, any_gap(q), 1);
    Normals n = { .seed = (uint64_t)pick_int(q, 0, 1 << 30),
                  .name = mix(++q->seed),
                  .first = pick_int(q, 0, 1 << 30),
                  .ld = C + pick_int(q, 0, 9),
                  .std = 0.02 };
    n.first *= 1001; /* beyond 2^32 */
    EACH_SIDE(q, s, d) op_normals(d, x.t[s], n);
    duo_same(q, "normals", x);
    int64_t from = pick_int(q, 0, 5000), m = R * C;
    uint8_t *codes = MEM_ARRAY(&q->r[GPU].m, uint8_t, (size_t)m);
    for (int64_t i = 0; i < m; i++)
        codes[i] = (uint8_t)(pick_int(q, 0, 126) + 128 * pick_int(q, 0, 1)); /* all but the NaNs */
    Two scale = two_w(q, DT_F32, (from + m) / C / F8_BLOCK + 1, (C + F8_BLOCK - 1) / F8_BLOCK, 0, 1),
        y = two_w(q, any_w(q), 1, m, 0, 1), c;
    EACH_SIDE(q, s, d) {
        c.t[s] = rig_put(&q->r[s], DT_F8E4M3, 1, m, codes);
        op_widen(d, y.t[s], c.t[s], scale.t[s], from, C);
    }
    duo_same(q, "widen", y);
    duo_clear(q, "fill");
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */
static void moe_once(Duo *q) {
    static const int experts[] = { 1, 4, 8, 60, 64, 128, 256, 512, 4096 };
    int E = experts[pick_int(q, 0, COUNT(experts) - 1)], k = pick_int(q, 1, E < 8 ? E : 8);
    int64_t T = pick_int(q, 0, 600), W = pick_int(q, 1, 3) == 1 ? 1032 : pick_int(q, 1, 140);
    Route r[2];
    int groups = E % 4 == 0 && E >= 32 && pick_int(q, 0, 1) ? 4 : 1;
    float *l = rnds(&q->r[GPU].m, T * E + 1, ++q->seed, 4);
    for (int64_t i = 0; i < T * E; i += 3) l[i] = (float)(int)l[i]; /* ties */
    Two lg = two_of(q, DT_F32, T, E, any_gap(q), l), bias = two(q, DT_F32, 1, E, 0, 1),
        dw = two(q, DT_F32, T, k, any_gap(q), 1);
    int32_t *none = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)(T * k + E + 2));
    Two pick = two_i32(q, T, k, any_gap(q), none), wt = two(q, DT_F32, T, k, any_gap(q), 1),
        dl = two(q, DT_F32, T, E, any_gap(q), 1);
    RouteKind kind = pick_int(q, 0, 1) ? ROUTE_SOFTMAX : ROUTE_SIGMOID;
    bool renorm = pick_int(q, 0, 1), biased = pick_int(q, 0, 1);
    Two at = two_i32(q, 1, E + 1, 0, none), from = two_i32(q, 1, T * k, 0, none),
        slot = two_i32(q, T, k, any_gap(q), none);
    EACH_SIDE(q, s, d) {
        r[s] = (Route){ .kind = kind,
                        .topk = k,
                        .groups = groups,
                        .group_topk = groups > 1 ? 2 : 0,
                        .renorm = renorm,
                        .factor = 1.5f,
                        .logits = lg.t[s],
                        .bias = biased ? bias.t[s] : TENSOR_NONE,
                        .pick = pick.t[s],
                        .weight = wt.t[s] };
        op_route(d, &r[s]);
        op_route_bwd(d, dl.t[s], dw.t[s], &r[s]);
        op_moe_sort(d, at.t[s], from.t[s], slot.t[s], pick.t[s], E);
    }
    duo_same(q, "route pick", pick), duo_same(q, "route weight", wt), duo_same(q, "route_bwd", dl);
    duo_same(q, "moe_sort at", at), duo_same(q, "moe_sort from", from), duo_same(q, "moe_sort slot", slot);
    Two x = two(q, any_act(q), T, W, any_gap(q), 1), rows = two(q, any_act(q), T * k, W, any_gap(q), 1),
        y = two(q, any_act(q), T, W, any_gap(q), 1);
    Two dx = two(q, any_act(q), T, W, any_gap(q), 1), drows = two(q, any_act(q), T * k, W, any_gap(q), 1),
        dwt = two(q, DT_F32, T, k, any_gap(q), 1);
    Two spread = two(q, any_act(q), T * k + 5, W, any_gap(q), 1);
    EACH_SIDE(q, s, d) op_permute(d, rows.t[s], x.t[s], from.t[s]);
    duo_near(q, "permute", rows, 0);
    EACH_SIDE(q, s, d) {
        if (s == GPU) op_put(d, rows.t[s], rig_get(&q->r[GPU], rows.t[GPU]));
        op_permute_bwd(d, dx.t[s], rows.t[s], slot.t[s]);
        op_combine(d, y.t[s], rows.t[s], slot.t[s], wt.t[s]);
        op_combine_bwd(d, drows.t[s], dwt.t[s], x.t[s], rows.t[s], slot.t[s], wt.t[s]);
        Tensor flat =
            slot.t[s].rows <= 1 || slot.t[s].ld == slot.t[s].cols ? tensor_shape(slot.t[s], 1, T * k) : from.t[s];
        if (flat.data == slot.t[s].data) op_scatter_rows(d, spread.t[s], rows.t[s], flat);
    }
    double half = rows.t[GPU].dtype == DT_BF16 ? 4e-3 : 0; /* the CPU's rows are not rounded */
    duo_near(q, "permute_bwd", dx, 2e-7 + half), duo_near(q, "combine", y, 2e-7 + half),
        duo_near(q, "combine_bwd drows", drows, 2e-7);
    duo_near(q, "combine_bwd dweight", dwt, 2e-6 + half);
    if (slot.t[GPU].ld == slot.t[GPU].cols) duo_near(q, "scatter_rows", spread, half);
    duo_clear(q, "moe");
}

/* ---- the optimizer ----------------------------------------------------------------------------------------------- */
static void adam_once(Duo *q, int64_t n, int64_t step) {
    int kept = pick_int(q, 0, 2); /* the master: w itself, beside it in F32, or what rounding took from it */
    bool master = kept > 0;
    DType mt = any_w(q);
    Two w = two_w(q, master ? DT_BF16 : DT_F32, 1, n, 0, 1), big = two_w(q, kept == 2 ? DT_I16 : DT_F32, 1, n, 0, 1);
    if (kept == 2) { /* rests that belong to their weights: 0 and less than nothing would be NaN */
        float *y = rnds(&q->r[GPU].m, n + 1, ++q->seed, 1);
        uint16_t *half = MEM_ARRAY(&q->r[GPU].m, uint16_t, (size_t)n + 1),
                 *rest = MEM_ARRAY(&q->r[GPU].m, uint16_t, (size_t)n + 1);
        for (int64_t i = 0; i < n; i++) {
            AdamSplit one = adam_split(y[i]);
            half[i] = one.rounded, rest[i] = (uint16_t)one.rest;
        }
        EACH_SIDE(q, s, d) op_put(d, w.t[s], half), op_put(d, big.t[s], rest);
    }
    Two m = two_w(q, mt, 1, n, 0, 1e-2f), v = two_w(q, mt, 1, n, 0, 1e-4f), g = two_w(q, DT_F32, 1, n, 0, 1);
    uint8_t *bytes = rig_get(&q->r[GPU], v.t[GPU]); /* squares have no sign */
    for (int64_t i = 1; i <= n; i++) bytes[(size_t)i * dtype_size(mt) - 1] &= 0x7F;
    EACH_SIDE(q, s, d) op_put(d, v.t[s], bytes);
    EACH_SIDE(q, s, d) {
        op_add(d, g.t[s], g.t[s], g.t[s]);
        op_adamw(d, w.t[s], master ? big.t[s] : TENSOR_NONE, m.t[s], v.t[s], g.t[s],
                 (Adam){ 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.37f, step, ((int64_t)1 << 32) - n / 2 });
    }
    duo_same(q, "adamw w", w), duo_same(q, "adamw master", big), duo_same(q, "adamw m", m), duo_same(q, "adamw v", v);
    double a = op_sumsq(duo_dev(q, CPU), g.t[CPU]), b = op_sumsq(duo_dev(q, GPU), g.t[GPU]);
    EXPECT(a == b, "sumsq of %ld: CPU %.17g, GPU %.17g", (long)n, a, b);
    duo_clear(q, "adamw");
}

int gpu_rows(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    for (int half = 0; half < 2; half++) {
        Duo q;
        duo_open(&q, half ? DT_BF16 : DT_F32, seed, 512u << 20);
        tables(&q);
        for (int i = 0; i < duo_times(30); i++) rows_once(&q);
        for (int i = 0; i < duo_times(20); i++) sums_once(&q);
        for (int i = 0; i < duo_times(20); i++) parts_once(&q);
        for (int i = 0; i < duo_times(20); i++) fill_once(&q);
        for (int i = 0; i < duo_times(30); i++) moe_once(&q);
        for (int i = 0; i < 12; i++)
            adam_once(&q, i < 2 ? i : i < 11 ? pick_int(&q, 2, 300000) : 3000001, i == 10 ? 1000000 : 1 + i);
        duo_close(&q);
    }
    return test_end();
}
