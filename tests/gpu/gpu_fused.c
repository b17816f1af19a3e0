/* gpu_fused.c - ops that are done several at a time have the bits of their parts (op_fused_list.h), or of the one sum
 * that they are, on shapes of models and on odd ones, and the backend does take those of models. */
#include "gpu/duo.h"
#include "op/op_fused.h"

enum {
    DW_FIRST,
    GROUPED_DW_FIRST,
    DX2,
    DX3,
    LINEAR3,
    LINEAR2,
    NORM_BWD_ADD,
    ADD_NORM,
    NORM_ROPE,
    SWIGLU,
    ROUTE_SORT,
    NORM_ROPE_BWD,
    PERMUTE_SLOTS,
    DW2_FIRST,
    PERMUTED,
    ENDING,
    PUT,
    ROUTED,
    NORM_LINEAR,
    NORM_LINEAR3,
    COMBINED,
    LATE,
    KINDS
};
static int taken[KINDS];
/* A place with the same shape and gaps, full of other numbers: what is written must be written whole. */
static Tensor other(Duo *q, Tensor x) { return rig_put_ld(&q->r[GPU], x.dtype, x.rows, x.cols, x.ld, NULL); }
static Tensor make(Duo *q, DType t, int64_t rows, int64_t cols, float scale) {
    return two(q, t, rows, cols, 0, scale).t[GPU];
}

/* a is rounded to bf16 three times, b once: 4 half ulps of the largest number and to spare. */
static void near(Duo *q, const char *what, Tensor a, Tensor b) {
    const float *x = floats(&q->r[GPU], a), *y = floats(&q->r[GPU], b);
    double worst = 0, most = 0;
    for (int64_t i = 0; i < a.rows * a.cols; i++) {
        worst = fmax(worst, fabs((double)x[i] - (double)y[i])), most = fmax(most, fabs((double)x[i]));
    }
    EXPECT(worst <= 4 * 0x1p-9 * most, "%s: off by %g of %g", what, worst, most);
}

typedef struct {
    int E;
    int64_t T, H, F;
    bool skewed;
} Shape;
static const Shape shapes[] = {
    { 8, 4096, 2048, 768, false }, { 16, 3000, 256, 128, true }, { 8, 1999, 512, 264, true },
    { 40, 900, 256, 192, false },  { 3, 500, 72, 40, true },     { 5, 13, 256, 256, false },
    { 64, 6000, 1024, 136, true }, { 128, 8, 512, 768, true },   { 128, 130, 512, 264, true },
    { 64, 48, 1024, 704, true },   { 40, 60, 256, 200, false },  { 8, 8, 2048, 200, true },
    { 8, 32, 2048, 768, false },   { 4, 9, 7168, 200, true },    { 3, 20, 4096, 192, false },
};
/* Borders of experts; some are empty. */
static Seqs experts(Duo *q, const Shape *s) {
    int32_t *at = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)s->E + 1);
    for (int e = 1; e < s->E; e++)
        at[e] = s->skewed ? at[e - 1] + (e % 3 ? pick_int(q, 0, (int)(s->T - at[e - 1]) / 2) : 0)
                          : (int32_t)(s->T * e / s->E);
    at[s->E] = (int32_t)s->T;
    return (Seqs){ s->E, (int)s->T, two_i32(q, 1, s->E + 1, 0, at).t[GPU] };
}

static void moe(Duo *q, const Shape *s) {
    Dev *g = duo_dev(q, GPU);
    DType A = q->act, W = q->act;
    Seqs ex = experts(q, s);
    Leaves over_h = leaves_one(s->H), over_f = leaves_one(s->F);
    Tensor x = make(q, A, s->T, s->H, 1),
           both = make(q, W, 2 * s->E * s->F, s->H, 0.1f); /* one behind the other, as a model's are */
    Tensor wg = tensor_rows(both, 0, s->E * s->F), wu = tensor_rows(both, s->E * s->F, s->E * s->F);
    Tensor gate = make(q, A, s->T, s->F, 1), up = make(q, A, s->T, s->F, 1), h = make(q, A, s->T, s->F, 1);
    Tensor gate2 = other(q, gate), up2 = other(q, up), h2 = other(q, h), h3 = other(q, h), junk = other(q, h),
           junk2 = other(q, h);
    op_grouped(g, gate, x, wg, ex, over_h), op_grouped(g, up, x, wu, ex, over_h), op_swiglu(g, h, gate, up);
    op_grouped_swiglu(g, h2, gate2, up2, x, wg, wu, ex, over_h, true);
    op_grouped_swiglu(g, h3, junk, junk2, x, wg, wu, ex, over_h, false);
    if (g->ops->fused->grouped_swiglu)
        taken[SWIGLU] += g->ops->fused->grouped_swiglu(g, h3, junk, junk2, x, wg, wu, ex, over_h, false);
    duo_equal(q, "grouped_swiglu, gate", gate, gate2), duo_equal(q, "grouped_swiglu, up", up, up2);
    duo_equal(q, "grouped_swiglu", h, h2), duo_equal(q, "grouped_swiglu, gate and up not kept", h, h3);

    int64_t tokens = s->T / 3 + 1;
    int32_t *of = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)s->T);
    for (int64_t i = 0; i < s->T; i++) of[i] = pick_int(q, 0, (int)tokens - 1);
    Tensor xs = make(q, A, tokens, s->H, 1), own = other(q, x), own2 = other(q, x),
           from = two_i32(q, s->T, 1, 0, of).t[GPU];
    op_permute(g, own, xs, from), op_grouped_swiglu(g, h, gate2, up2, own, wg, wu, ex, over_h, true);
    op_permute_swiglu(g, h2, junk, junk2, own2, xs, from, TENSOR_NONE, wg, wu, ex, over_h, wu);
    taken[PERMUTED] +=
        g->ops->fused->permute_swiglu(g, h2, junk, junk2, own2, xs, from, TENSOR_NONE, wg, wu, ex, over_h, wu);
    duo_equal(q, "permute_swiglu", h, h2);

    Tensor dx = make(q, A, s->T, s->H, 1), part = other(q, dx), dx2 = other(q, dx);
    op_grouped_dx(g, dx, gate, wg, ex, over_f), op_grouped_dx(g, part, up, wu, ex, over_f), op_add(g, dx, dx, part);
    op_grouped_dx2(g, dx2, part, gate, wg, up, wu, ex, over_f);
    const bool at_once =
        g->ops->fused->grouped_dx2 && g->ops->fused->grouped_dx2(g, dx2, part, gate, wg, up, wu, ex, over_f);
    taken[DX2] += at_once;
    near(q, "grouped_dx2", dx, dx2);
    if (at_once) { /* each expert alone: one sum over both */
        int32_t *at = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)s->E + 1);
        Tensor dy = make(q, A, s->T, 2 * s->F, 1), w = make(q, W, 2 * s->F, s->H, 1);
        op_get(g, at, ex.at);
        op_copy(g, tensor_cols(dy, 0, s->F), gate), op_copy(g, tensor_cols(dy, s->F, s->F), up);
        for (int e = 0; e < s->E; e++) {
            op_copy(g, tensor_rows(w, 0, s->F), tensor_rows(wg, e * s->F, s->F));
            op_copy(g, tensor_rows(w, s->F, s->F), tensor_rows(wu, e * s->F, s->F));
            op_linear_dx(g, tensor_rows(dx, at[e], at[e + 1] - at[e]), tensor_rows(dy, at[e], at[e + 1] - at[e]), w,
                         leaves_one(2 * s->F));
        }
        duo_equal(q, "grouped_dx2, an expert alone", dx, dx2);
    }

    Tensor dw = make(q, DT_F32, s->E * s->F, s->H, 1), dw2 = make(q, DT_F32, s->E * s->F, s->H, 1);
    op_zero(g, dw), op_grouped_dw(g, dw, gate, x, ex);
    op_grouped_dw_first(g, dw2, gate, x, ex);
    taken[GROUPED_DW_FIRST] += g->ops->fused->grouped_dw_first(g, dw2, gate, x, ex);
    duo_equal(q, "grouped_dw_first", dw, dw2);

    Tensor db = make(q, DT_F32, 1, s->F, 1), db2 = make(q, DT_F32, 1, s->F, 1);
    dw = tensor_rows(dw, 0, s->F), dw2 = tensor_rows(dw2, 0, s->F);
    op_zero(g, dw), op_zero(g, db), op_linear_dw(g, dw, db, gate, x);
    op_linear_dw_first(g, dw2, db2, gate, x);
    taken[DW_FIRST] += g->ops->fused->linear_dw_first(g, dw2, db2, gate, x);
    duo_equal(q, "linear_dw_first", dw, dw2), duo_equal(q, "linear_dw_first, bias", db, db2);
    duo_clear(q, "moe");
}

/* Keys and values into pages: T sequences of one row, at the beginning, inside and at the end of a page; what lies in
 * the others stays. */
static void put_pages(Duo *q, const NormRope *one, const NormRope *two_, Tensor cs) {
    Dev *g = duo_dev(q, GPU);
    int64_t T = cs.rows;
    int kv_heads = one[1].s.heads, width = one[1].s.width;
    enum { PAGE = 16 };
    int32_t *at = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)T + 1), *start = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)T),
            *table = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)T * 3);
    for (int i = 0; i < T; i++) {
        at[i + 1] = i + 1, start[i] = i % 3 ? pick_int(q, 0, 3 * PAGE - 1) : PAGE * (i / 3 % 3);
        for (int j = 0; j < 3; j++) table[3 * i + j] = (int32_t)(3 * T) - 1 - 3 * i - j;
    }
    Kv kv[2];
    Tensor v = make(q, q->act, T, (int64_t)kv_heads * width, 1);
    Paged paged = { { (int)T, 1, two_i32(q, 1, T + 1, 0, at).t[GPU] },
                    two_i32(q, 1, T, 0, start).t[GPU],
                    two_i32(q, T, 3, 0, table).t[GPU] };
    for (int i = 0; i < 2; i++) {
        kv[i] = (Kv){ .page = PAGE, .kv_heads = kv_heads, .dk = width, .dv = width };
        size_t bytes = op_kv_bytes(g, &kv[i]), all = (size_t)(3 * T) * bytes;
        void *dirt =
            memset(mem_push(&q->r[GPU].m, all), 0xFF, all); /* zeros behind a row that begins a page are seen */
        kv[i].pool = rig_put(&q->r[GPU], DT_U8, 3 * T, (int64_t)bytes, dirt);
    }
    op_kv_put(g, kv[0], one[1].y, v, paged);
    op_norm_rope_put(g, two_, two_ + 1, cs, 1e-6f, kv[1], v, paged);
    taken[PUT] += g->ops->fused->norm_rope_put(g, two_, two_ + 1, cs, 1e-6f, kv[1], v, paged);
    duo_equal(q, "norm_rope_put, q", one[0].y, two_[0].y), duo_equal(q, "norm_rope_put, pages", kv[0].pool, kv[1].pool);
}

static void rows(Duo *q, int64_t T, int64_t H, int heads, int kv_heads, int width) {
    Dev *g = duo_dev(q, GPU);
    DType A = q->act;
    Tensor a = make(q, A, T, H, 1), b = make(q, A, T, H, 1), gain = make(q, DT_F32, 1, H, 1);
    Tensor sum = make(q, A, T, H, 1), y = other(q, sum), sum2 = other(q, sum), y2 = other(q, sum),
           r = make(q, DT_F32, T, 1, 1), r2 = other(q, r);
    op_add(g, sum, a, b), op_rmsnorm(g, y, r, sum, gain, 1e-6f);
    op_add_rmsnorm(g, sum2, y2, r2, a, b, gain, 1e-6f);
    if (g->ops->fused->add_rmsnorm) taken[ADD_NORM] += g->ops->fused->add_rmsnorm(g, sum2, y2, r2, a, b, gain, 1e-6f);
    duo_equal(q, "add_rmsnorm, sum", sum, sum2), duo_equal(q, "add_rmsnorm", y, y2),
        duo_equal(q, "add_rmsnorm, rstd", r, r2);

    Tensor dn = make(q, A, T, H, 1), dn2 = other(q, dn), dg = make(q, DT_F32, 1, H, 1), dg2 = other(q, dg);
    op_zero(g, dg), op_zero(g, dg2);
    op_rmsnorm_bwd(g, dn, dg, y, sum, r, gain), op_add(g, dn, dn, a);
    op_rmsnorm_bwd_add(g, dn2, dg2, y, sum, r, gain, a);
    duo_equal(q, "rmsnorm_bwd_add", dn, dn2), duo_equal(q, "rmsnorm_bwd_add, gain", dg, dg2);
    if (g->ops->fused->rmsnorm_bwd_add)
        taken[NORM_BWD_ADD] += g->ops->fused->rmsnorm_bwd_add(g, dn2, dg2, y, sum, r, gain, a);

    enum { K = 8 };
    int32_t *slots = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)T * K);
    for (int64_t i = 0; i < T * K; i++) slots[i] = pick_int(q, 0, (int)T * K - 1);
    Tensor theirs = make(q, A, T * K, H, 1), wt = make(q, DT_F32, T, K, 1), part3 = other(q, sum),
           part4 = other(q, sum), slot = two_i32(q, T, K, 0, slots).t[GPU];
    op_combine(g, part3, theirs, slot, wt), op_add(g, sum, a, part3), op_rmsnorm(g, y, r, sum, gain, 1e-6f);
    op_combine_add_rmsnorm(g, sum2, y2, part4, a, theirs, slot, wt, gain, 1e-6f);
    taken[ENDING] += g->ops->fused->combine_add_rmsnorm(g, sum2, y2, part4, a, theirs, slot, wt, gain, 1e-6f);
    duo_equal(q, "combine_add_rmsnorm, sum", sum, sum2), duo_equal(q, "combine_add_rmsnorm", y, y2);

    int n[2] = { heads, kv_heads };
    Tensor cs = make(q, DT_F32, T, width, 1);
    NormRope one[2], two_[2];
    for (int i = 0; i < 2; i++) {
        RopeShape s = { n[i], width, 0, width, false };
        Tensor raw = make(q, A, T, (int64_t)n[i] * width, 1), gh = make(q, DT_F32, 1, width, 1);
        one[i] = (NormRope){ other(q, raw), make(q, DT_F32, T * n[i], 1, 1), raw, gh, s };
        two_[i] = one[i], two_[i].y = other(q, raw), two_[i].rstd = other(q, one[i].rstd);
        int64_t rows_ = T * n[i];
        op_rmsnorm(g, tensor_shape(one[i].y, rows_, width), one[i].rstd, tensor_shape(raw, rows_, width), gh, 1e-6f);
        op_rope(g, one[i].y, cs, s, +1);
    }
    op_norm_rope2(g, &two_[0], &two_[1], cs, 1e-6f);
    if (g->ops->fused->norm_rope2) taken[NORM_ROPE] += g->ops->fused->norm_rope2(g, &two_[0], &two_[1], cs, 1e-6f);
    for (int i = 0; i < 2; i++)
        duo_equal(q, i ? "norm_rope2, k" : "norm_rope2, q", one[i].y, two_[i].y),
            duo_equal(q, "norm_rope2, rstd", one[i].rstd, two_[i].rstd);

    for (int i = 0; i < 2; i++) {
        RopeShape s = one[i].s;
        Tensor raw = one[i].raw, rstd = one[i].rstd, gh = one[i].g, dy = make(q, A, T, raw.cols, 1), dy2 = other(q, dy);
        Tensor d1 = other(q, dy), d2 = other(q, dy), dh = make(q, DT_F32, 1, width, 1), dh2 = other(q, dh);
        int64_t rows_ = T * n[i];
        op_copy(g, dy2, dy), op_copy(g, dh2, dh);
        op_rope(g, dy, cs, s, -1);
        op_rmsnorm_bwd(g, tensor_shape(d1, rows_, width), dh, tensor_shape(dy, rows_, width),
                       tensor_shape(raw, rows_, width), rstd, gh);
        op_norm_rope_bwd(g, d2, dh2, dy2, raw, rstd, gh, cs, s);
        duo_equal(q, "norm_rope_bwd", d1, d2), duo_equal(q, "norm_rope_bwd, gain", dh, dh2);
        if (g->ops->fused->norm_rope_bwd)
            taken[NORM_ROPE_BWD] += g->ops->fused->norm_rope_bwd(g, d2, dh2, dy2, raw, rstd, gh, cs, s);
    }
    if (T <= 100) put_pages(q, one, two_, cs);

    /* weights one behind the other, as a model's are, with biases that are so, and apart with one of them */
    Tensor w[3], bias[3], out[3], out2[3], all = make(q, A, (int64_t)(heads + 2 * kv_heads) * width, H, 0.1f);
    Tensor all_b = T % 2 ? make(q, T % 3 ? A : DT_F32, 1, all.rows, 1) : TENSOR_NONE;
    for (int i = 0, at = 0; i < 3; i++) {
        int64_t O = (int64_t)(i ? kv_heads : heads) * width;
        bias[i] = width != 40 ? (all_b.data ? tensor_cols(all_b, at, O) : TENSOR_NONE)
                  : i == 1    ? make(q, DT_F32, 1, O, 1)
                              : TENSOR_NONE;
        w[i] = width != 40 ? tensor_rows(all, at, O) : make(q, A, O, H, 0.1f), at += (int)O;
        out[i] = make(q, A, T, O, 1), out2[i] = other(q, out[i]);
        op_linear(g, out[i], a, w[i], bias[i], leaves_one(H));
    }
    op_linear3(g, out2, a, w, bias, leaves_one(H));
    if (g->ops->fused->linear3) taken[LINEAR3] += g->ops->fused->linear3(g, out2, a, w, bias, leaves_one(H));
    for (int i = 0; i < 3; i++) duo_equal(q, "linear3", out[i], out2[i]);
    op_zero(g, out2[1]), op_zero(g, out2[2]);
    op_linear2(g, out2 + 1, a, w + 1, bias + 1, leaves_one(H));
    if (g->ops->fused->linear2)
        taken[LINEAR2] += g->ops->fused->linear2(g, out2 + 1, a, w + 1, bias + 1, leaves_one(H));
    for (int i = 1; i < 3; i++) duo_equal(q, "linear2", out[i], out2[i]);

    int64_t each = (int64_t)kv_heads * width;
    Tensor dws = make(q, DT_F32, 4 * each, H, 1), dys = make(q, A, 2 * T, each, 1);
    Tensor dw2[] = { tensor_rows(dws, 0, each), tensor_rows(dws, each, each) };
    Tensor dy2[] = { tensor_rows(dys, 0, T), tensor_rows(dys, T, T) };
    for (int i = 0; i < 2; i++) op_linear_dw_first(g, tensor_rows(dws, (2 + i) * each, each), TENSOR_NONE, dy2[i], a);
    op_linear_dw2_first(g, dw2, dy2, a);
    duo_equal(q, "linear_dw2_first", tensor_rows(dws, 2 * each, 2 * each), tensor_rows(dws, 0, 2 * each));
    if (g->ops->fused->linear_dw2_first) taken[DW2_FIRST] += g->ops->fused->linear_dw2_first(g, dw2, dy2, a);

    Tensor dy[3], wide = make(q, A, T, all.rows, 1), dx = make(q, A, T, H, 1), part = other(q, dx), dx2 = other(q, dx);
    Leaves over[3];
    for (int i = 0, from = 0; i < 3; i++) {
        int64_t O = (int64_t)(i ? kv_heads : heads) * width;
        w[i] = tensor_rows(all, from, O), dy[i] = tensor_cols(wide, from, O), over[i] = leaves_one(O), from += (int)O;
    }
    op_linear_dx(g, dx, wide, all, leaves_one(all.rows)); /* the one sum */
    op_linear_dx3(g, dx2, part, dy, w, over);
    if (g->ops->fused->linear_dx3 && g->ops->fused->linear_dx3(g, dx2, part, dy, w, over))
        taken[DX3]++, duo_equal(q, "linear_dx3", dx, dx2);
    else if (A == DT_BF16) near(q, "linear_dx3 in parts", dx, dx2);
    duo_clear(q, "rows");
}

/* A step of decoding chooses experts and sorts its rows; logits of few different values, so that there are ties. */
static void routes(Duo *q, int64_t T, int E, int k, int groups) {
    Dev *g = duo_dev(q, GPU);
    int32_t *few = MEM_ARRAY(&q->r[GPU].m, int32_t, (size_t)T * (size_t)E);
    float *l = rnds(&q->r[GPU].m, T * E, ++q->seed, 2);
    for (int64_t i = 0; i < T * E; i++) l[i] = (float)(few[i] = (int32_t)(l[i] * 8)) / 8;
    Route a = { .kind = groups > 1 ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                .topk = k,
                .groups = groups,
                .group_topk = groups / 2,
                .renorm = T % 2,
                .factor = 1 };
    a.logits = rig_put(&q->r[GPU], DT_F32, T, E, l);
    if (groups > 1) a.bias = make(q, DT_F32, 1, E, 0.1f);
    Route b = a;
    Tensor at[2], from[2], slot[2];
    for (int i = 0; i < 2; i++) {
        Route *r = i ? &b : &a;
        r->pick = rig_put(&q->r[GPU], DT_I32, T, k, NULL), r->weight = rig_put(&q->r[GPU], DT_F32, T, k, NULL);
        at[i] = rig_put(&q->r[GPU], DT_I32, E + 1, 1, NULL), from[i] = rig_put(&q->r[GPU], DT_I32, T * k, 1, NULL),
        slot[i] = rig_put(&q->r[GPU], DT_I32, T, k, NULL);
    }
    op_route(g, &a), op_moe_sort(g, at[0], from[0], slot[0], a.pick, E);
    op_route_sort(g, &b, at[1], from[1], slot[1]);
    taken[ROUTE_SORT] += g->ops->fused->route_sort(g, &b, at[1], from[1], slot[1]);
    duo_equal(q, "route_sort, pick", a.pick, b.pick), duo_equal(q, "route_sort, weight", a.weight, b.weight);
    duo_equal(q, "route_sort, at", at[0], at[1]), duo_equal(q, "route_sort, from", from[0], from[1]),
        duo_equal(q, "route_sort, slot", slot[0], slot[1]);
    Tensor x = make(q, q->act, T, 264, 1), y = make(q, q->act, T * k, 264, 1), y2 = other(q, y);
    op_permute(g, y, x, from[0]), op_permute_slots(g, y2, x, from[0], slot[0]);
    if (g->ops->fused->permute_slots) taken[PERMUTE_SLOTS] += g->ops->fused->permute_slots(g, y2, x, from[0], slot[0]);
    duo_equal(q, "permute_slots", y, y2);
    duo_clear(q, "routes");
}

static Tensor big(Dev *g, Arena *a, DType t, int64_t rows, int64_t cols, uint64_t seed) {
    Tensor x = tensor_push(a, t, rows, cols);
    op_normals(g, x, (Normals){ .seed = seed, .ld = cols, .std = 0.1 });
    return x;
}
/* A token's way from attention to its experts' sums and the next q, k and v: called, and noted, where kernels come
 * early and the product behind must find what was chosen; again and again, with other numbers each time. */
typedef struct {
    Tensor sum, n, own, gate, up, h, out, at, from, slot, part, end, end_n, qkv[3], plain[3];
    Route r;
} Way;
static Way way_of(Duo *q, const Route *like, int E, int k, int64_t H, int64_t F) {
    DType A = q->act;
    Way w = { .sum = make(q, A, 1, H, 1), .n = make(q, A, 1, H, 1), .own = make(q, A, k, H, 1), .r = *like };
    w.gate = make(q, A, k, F, 1), w.up = make(q, A, k, F, 1), w.h = make(q, A, k, F, 1), w.out = make(q, A, k, H, 1);
    w.at = rig_put(&q->r[GPU], DT_I32, E + 1, 1, NULL), w.from = rig_put(&q->r[GPU], DT_I32, k, 1, NULL);
    w.slot = rig_put(&q->r[GPU], DT_I32, 1, k, NULL), w.r.pick = rig_put(&q->r[GPU], DT_I32, 1, k, NULL);
    w.r.weight = make(q, DT_F32, 1, k, 1), w.r.logits = make(q, DT_F32, 1, E, 1);
    w.part = make(q, A, 1, H, 1), w.end = make(q, A, 1, H, 1), w.end_n = make(q, A, 1, H, 1);
    for (int i = 0; i < 3; i++) w.qkv[i] = make(q, A, 1, i ? 512 : 2 * H, 1), w.plain[i] = other(q, w.qkv[i]);
    return w;
}
static void one_token(Duo *q, int E, int k, int64_t H, int64_t F, bool sigmoid) {
    Dev *g = duo_dev(q, GPU);
    DType A = q->act;
    Arena *mem = &q->r[GPU].a;
    Leaves over_h = leaves_one(H), over_f = leaves_one(F);
    Tensor both = big(g, mem, A, 2 * E * F, H, 1), wd = big(g, mem, A, E * H, F, 2), wr = big(g, mem, A, E, H, 3);
    Tensor wg = tensor_rows(both, 0, E * F), wu = tensor_rows(both, E * F, E * F), gain = make(q, DT_F32, 1, H, 1);
    Tensor a = make(q, A, 1, H, 1), b = make(q, A, 1, H, 1), none = TENSOR_NONE;
    Route r = { .kind = sigmoid ? ROUTE_SIGMOID : ROUTE_SOFTMAX, .topk = k, .groups = 1, .factor = 2 };
    r.renorm = !sigmoid;
    if (sigmoid) r.bias = make(q, DT_F32, 1, E, 0.1f);
    Way x = way_of(q, &r, E, k, H, F), y = way_of(q, &r, E, k, H, F);
    Seqs ex = { E, k, x.at }, ey = { E, k, y.at };
    Tensor all = big(g, mem, A, 2 * H + 1024, H, 4), all_b = sigmoid ? make(q, A, 1, all.rows, 1) : none, w3[3], b3[3];
    for (int i = 0, from = 0; i < 3; from += (int)w3[i++].rows) {
        w3[i] = tensor_rows(all, from, i ? 512 : 2 * H), b3[i] = sigmoid ? tensor_cols(all_b, from, w3[i].rows) : none;
    }
    void *step = NULL;
    bool late = false;
    for (int i = 0; i < 12; i++) {
        op_normals(g, a, (Normals){ .seed = 10 + (uint64_t)i, .ld = H, .std = 1 });
        op_normals(g, b, (Normals){ .seed = 30 + (uint64_t)i, .ld = H, .std = 1 });
        op_add(g, x.sum, a, b), op_rmsnorm(g, x.n, none, x.sum, gain, 1e-6f);
        op_linear(g, x.r.logits, x.n, wr, none, over_h);
        op_route(g, &x.r), op_moe_sort(g, x.at, x.from, x.slot, x.r.pick, E), op_permute(g, x.own, x.n, x.from);
        op_grouped(g, x.gate, x.own, wg, ex, over_h), op_grouped(g, x.up, x.own, wu, ex, over_h);
        op_swiglu(g, x.h, x.gate, x.up), op_grouped(g, x.out, x.h, wd, ex, over_f);
        op_combine(g, x.part, x.out, x.slot, x.r.weight), op_add(g, x.end, x.sum, x.part);
        op_rmsnorm(g, x.end_n, none, x.end, gain, 1e-6f);
        for (int j = 0; j < 3; j++) op_linear(g, x.qkv[j], x.end_n, w3[j], b3[j], over_h);
        if (i == 2) g->ops->record(g);
        if (i <= 2) {
            op_add_rmsnorm_linear(g, y.sum, y.n, y.r.logits, a, b, gain, 1e-6f, wr, over_h);
            op_route_swiglu(g, &y.r, y.h, y.gate, y.up, y.own, y.n, y.from, y.slot, wg, wu, ey, over_h, wd);
            op_grouped(g, y.out, y.h, wd, ey, over_f);
            /* once more, with all that may come behind it at once */
            op_route_swiglu(g, &y.r, y.h, y.gate, y.up, y.own, y.n, y.from, y.slot, wg, wu, ey, over_h, wd);
            bool at_once = i == 2
                           && g->ops->fused->grouped_combine_add(g, y.end, y.part, y.own, y.sum, y.h, wd, ey, over_f,
                                                                 y.r.pick, y.slot, y.r.weight);
            if (!at_once)
                op_grouped_combine_add(g, y.end, y.part, y.own, y.sum, y.h, wd, ey, over_f, y.r.pick, y.slot,
                                       y.r.weight);
            if (i == 2) late = op_defers_norms(g, H, all.rows, F, k), taken[COMBINED] += at_once;
            EXPECT(i < 2 || !late || at_once, "grouped_combine_add does not take what was promised");
            op_rmsnorm_linear3(g, y.qkv, y.end_n, y.end, gain, 1e-6f, w3, b3, over_h);
            for (int j = 0; j < 3; j++) op_linear(g, y.plain[j], y.end_n, w3[j], b3[j], over_h);
        }
        if (i == 2) step = g->ops->recorded(g);
        if (i >= 2) g->ops->replay(g, step);
        duo_equal(q, "add_rmsnorm_linear, sum", x.sum, y.sum), duo_equal(q, "add_rmsnorm_linear, norm", x.n, y.n);
        duo_equal(q, "add_rmsnorm_linear", x.r.logits, y.r.logits);
        duo_equal(q, "route_swiglu, pick", x.r.pick, y.r.pick);
        duo_equal(q, "route_swiglu, weight", x.r.weight, y.r.weight), duo_equal(q, "route_swiglu, at", x.at, y.at);
        duo_equal(q, "route_swiglu, from", x.from, y.from), duo_equal(q, "route_swiglu, slot", x.slot, y.slot);
        duo_equal(q, "route_swiglu", x.h, y.h), duo_equal(q, "grouped behind it", x.out, y.out);
        duo_equal(q, "grouped_combine_add", x.end, y.end), duo_equal(q, "rmsnorm_linear3, norm", x.end_n, y.end_n);
        for (int j = 0; j < 3; j++) {
            duo_equal(q, "rmsnorm_linear3", x.qkv[j], y.qkv[j]), duo_equal(q, "linear of one", x.qkv[j], y.plain[j]);
        }
    }
    g->ops->forget(g, step);
    taken[NORM_LINEAR] += g->ops->fused->add_rmsnorm_linear(g, y.sum, y.n, y.r.logits, a, b, gain, 1e-6f, wr, over_h);
    bool inside = g->ops->fused->rmsnorm_linear3(g, y.qkv, y.end_n, y.end, gain, 1e-6f, w3, b3, over_h);
    EXPECT(!late || inside, "rmsnorm_linear3 does not take what was promised");
    taken[NORM_LINEAR3] += inside, taken[LATE] += late;
    taken[ROUTED] +=
        g->ops->fused->route_swiglu(g, &y.r, y.h, y.gate, y.up, y.own, y.n, y.from, y.slot, wg, wu, ey, over_h, wd);
    duo_clear(q, "one token");
}
/* One op, again and again, at the size of a model's micro-batch: a kernel that waits for
 * itself once in a thousand times is found here. */
static void often(Duo *q, int kind, int times) {
    enum { E = 128, T = 16384, K = 8, N = T * K, H = 2048, F = 768 };
    static const char *const name[] = { "grouped",          "grouped_swiglu", "grouped_swiglu, kept",
                                        "grouped_dx",       "grouped_dx2",    "grouped_dw",
                                        "grouped_dw_first", "linear_dw",      "k's dw",
                                        "router's dw",      "linear3",        "q's dw, first",
                                        "k's dw, first" };
    Dev *g = duo_dev(q, GPU);
    Arena a = dev_arena(g, "big", (size_t)24 << 30);
    Seqs ex[4];
    for (int k = 0; k < 4; k++) { /* uneven, other borders each time */
        int32_t *at = MEM_ARRAY(&q->r[GPU].m, int32_t, E + 1);
        for (int e = 1; e < E; e++) at[e] = (int32_t)((int64_t)N * e / E) + (k ? pick_int(q, -200, 200) : 0);
        at[E] = N, ex[k] = (Seqs){ E, N, tensor_push(&a, DT_I32, E + 1, 1) };
        op_put(g, ex[k].at, at);
    }
    Tensor x = big(g, &a, DT_BF16, N, H, 1), dx = big(g, &a, DT_BF16, N, H, 2), part = big(g, &a, DT_BF16, N, H, 3);
    Tensor gate = big(g, &a, DT_BF16, N, F, 4), up = big(g, &a, DT_BF16, N, F, 5), h = big(g, &a, DT_BF16, N, F, 6);
    Tensor wg = big(g, &a, DT_BF16, E * F, H, 7), wu = big(g, &a, DT_BF16, E * F, H, 8),
           dw = big(g, &a, DT_F32, E * F, H, 9);
    Tensor logits = big(g, &a, DT_F32, T, E, 10), xs = tensor_rows(x, 0, T),
           ks = tensor_shape(tensor_rows(gate, 0, T * 512 / F), T * 512 / F, F);
    Tensor kd = tensor_over(ks.data, DT_BF16, T, 512), qd = tensor_over(dx.data, DT_BF16, T, 4096),
           dk = tensor_rows(dw, 0, 512), dq = tensor_rows(dw, 0, 4096);
    Tensor w3[] = { tensor_rows(wg, 0, 4096), tensor_rows(wg, 4096, 512), tensor_rows(wg, 4608, 512) },
           none[3] = { TENSOR_NONE };
    Tensor y3[] = { qd, kd, tensor_over(up.data, DT_BF16, T, 512) };
    Leaves over_h = leaves_one(H), over_f = leaves_one(F);
    CHECK(kind < (int)COUNT(name), "there is no kind %d", kind);
    for (int i = 0; i < times; i++) {
        Seqs e = ex[i % 4];
        switch (kind) {
        case 0: op_grouped(g, gate, x, wg, e, over_h); break;
        case 1: op_grouped_swiglu(g, h, gate, up, x, wg, wu, e, over_h, false); break;
        case 2: op_grouped_swiglu(g, h, gate, up, x, wg, wu, e, over_h, true); break;
        case 3: op_grouped_dx(g, dx, gate, wg, e, over_f); break;
        case 4: op_grouped_dx2(g, dx, part, gate, wg, up, wu, e, over_f); break;
        case 5: op_grouped_dw(g, dw, gate, x, e); break;
        case 6: op_grouped_dw_first(g, dw, gate, x, e); break;
        case 7: op_linear_dw(g, dq, TENSOR_NONE, qd, xs); break;
        case 8: op_linear_dw(g, dk, TENSOR_NONE, kd, xs); break;
        case 9: op_linear_dw(g, tensor_rows(dw, 0, E), TENSOR_NONE, logits, xs); break;
        case 10: op_linear3(g, y3, xs, w3, none, over_h); break;
        case 11: op_linear_dw_first(g, dq, TENSOR_NONE, qd, xs); break;
        default: op_linear_dw_first(g, dk, TENSOR_NONE, kd, xs);
        }
        if (i % 16 == 15) rig_get(&q->r[GPU], tensor_cols(tensor_rows(dw, 0, 1), 0, 1));
    }
    rig_get(&q->r[GPU], tensor_cols(tensor_rows(dw, 0, 1), 0, 1));
    EXPECT(true, "%s", name[kind]);
    printf("%s: %d times\n", name[kind], times);
    dev_free(g, a.base);
}

static bool slot_of(const Dev *g, int i) { /* the backend has it */
    return (i != DX2 || g->ops->fused->grouped_dx2) && (i != SWIGLU || g->ops->fused->grouped_swiglu);
}
int gpu_fused(int argc, char **argv) {
    if (argc > 1) { /* KIND TIMES */
        Duo q;
        duo_open(&q, DT_BF16, 7, (size_t)1 << 28);
        often(&q, atoi(argv[1]), argc > 2 ? atoi(argv[2]) : 100);
        duo_close(&q);
        return test_end();
    }
    static const int T[] = { 1, 5, 64, 100, 257, 1500 };
    Duo q;
    for (int f32 = 0; f32 < (gpu_test_few ? 1 : 2); f32++) { /* plain products take a sanitizer minutes */
        duo_open(&q, f32 ? DT_F32 : DT_BF16, 7, (size_t)1 << 30);
        memset(taken, 0, sizeof taken);
        for (size_t i = f32; i < COUNT(shapes); i++)
            if (!gpu_test_few || (shapes[i].T < 600 && shapes[i].E * shapes[i].H * shapes[i].F < 4000000))
                moe(&q, &shapes[i]);
        for (size_t i = 0; i < (gpu_test_few ? 3 : COUNT(T)); i++) {
            if (!gpu_test_few) rows(&q, T[i], 2048, 32, 4, 128);
            rows(&q, T[i], 896, 14, 2, 64);
            rows(&q, T[i], 200, 3, 1, 40);
            routes(&q, T[i] < 64 ? T[i] : T[i] % 37, 128, 8, 1), routes(&q, T[i] % 37, 256, 8, 8),
                routes(&q, T[i], 40, 3, 1);
        }
        one_token(&q, 16, 4, 1536, 192, false), one_token(&q, 40, 3, 512, 72, false);
        if (!gpu_test_few) {
            one_token(&q, 128, 8, 2048, 264, false), one_token(&q, 64, 6, 1536, 200, true);
            one_token(&q, 256, 8, 256, 192, false), one_token(&q, 32, 8, 2048, 768, false);
            one_token(&q, 20, 5, 1536, 256, true), one_token(&q, 9, 8, 512, 1024, false);
        }
        for (int i = 0; i < KINDS && !f32 && !gpu_test_few; i++)
            EXPECT(taken[i] > 0 || !slot_of(&q.r[GPU].d, i), "fused op %d never took a shape", i);
        duo_close(&q);
    }
    return test_end();
}
