/* op_row.c - what row-by-row work, the experts' bookkeeping and the optimizer want of their tensors. */
#include "op/op_check.h"
#include "op/profile.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* a check sees all that the op does, and seldom needs all of it */

#define F DT_F32
#define I DT_I32

static void want_vocab(const char *op, Part p, int64_t rows) {
    CHECK(p.first >= 0 && p.first + rows <= p.of, "%s: rows %ld.. of %ld, and there are %ld", op, (long)p.first,
          (long)p.of, (long)rows);
}
void check_embed(Dev *d, Tensor y, Tensor ids, Tensor w, Part part) {
    want_vocab("embed", part, w.rows);
    WANT_W("embed", w, -1, y.cols);
    WANT_A("embed", y, -1, w.cols);
    WANT("embed", ids, I, y.rows, 1);
}
void check_embed_bwd(Dev *d, Tensor dw, Tensor dy, Tensor ids, Part part) {
    want_vocab("embed_bwd", part, dw.rows);
    WANT("embed_bwd", dw, F, -1, dy.cols);
    WANT_A("embed_bwd", dy, -1, dw.cols);
    WANT("embed_bwd", ids, I, dy.rows, 1);
}
void check_rmsnorm(Dev *d, Tensor y, Tensor rstd, Tensor x, Tensor g, float eps) {
    WANT_A("rmsnorm", x, -1, -1);
    WANT_A("rmsnorm", y, x.rows, x.cols);
    WANT_W("rmsnorm", g, 1, x.cols);
    if (!is_none(rstd)) WANT("rmsnorm", rstd, F, x.rows, 1);
}
void check_rmsnorm_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g) {
    WANT_A("rmsnorm_bwd", x, -1, -1);
    WANT_A("rmsnorm_bwd", dy, x.rows, x.cols);
    if (!is_none(dx)) WANT_A("rmsnorm_bwd", dx, x.rows, x.cols);
    if (!is_none(dg)) WANT("rmsnorm_bwd", dg, F, 1, x.cols);
    WANT_W("rmsnorm_bwd", g, 1, x.cols);
    WANT("rmsnorm_bwd", rstd, F, x.rows, 1);
}
void check_swiglu(Dev *d, Tensor y, Tensor gate, Tensor up) {
    WANT_A("swiglu", gate, -1, -1);
    WANT_A("swiglu", up, gate.rows, gate.cols);
    WANT_A("swiglu", y, gate.rows, gate.cols);
}
void check_swiglu_bwd(Dev *d, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    WANT_A("swiglu_bwd", gate, -1, -1);
    WANT_A("swiglu_bwd", up, gate.rows, gate.cols);
    WANT_A("swiglu_bwd", dy, gate.rows, gate.cols);
    WANT_A("swiglu_bwd", dgate, gate.rows, gate.cols);
    WANT_A("swiglu_bwd", dup, gate.rows, gate.cols);
}
void check_gelu(Dev *d, Tensor y, Tensor x) {
    WANT_A("gelu", x, -1, -1);
    WANT_A("gelu", y, x.rows, x.cols);
}
void check_gelu_bwd(Dev *d, Tensor dx, Tensor dy, Tensor x) {
    WANT_A("gelu_bwd", x, -1, -1);
    WANT_A("gelu_bwd", dy, x.rows, x.cols);
    WANT_A("gelu_bwd", dx, x.rows, x.cols);
}
void check_add(Dev *d, Tensor y, Tensor a, Tensor b) {
    WANT_A("add", a, -1, -1);
    WANT_A("add", b, a.rows, a.cols);
    WANT_A("add", y, a.rows, a.cols);
}
void check_scale(Dev *d, Tensor y, Tensor x, float by) {
    (void)by;
    WANT_A("scale", x, -1, -1);
    WANT_A("scale", y, x.rows, x.cols);
}
void check_add_row(Dev *d, Tensor y, Tensor b) {
    WANT_A("add_row", y, -1, -1);
    WANT_W("add_row", b, 1, y.cols);
}
void check_sum_rows(Dev *d, Tensor db, Tensor dy) {
    WANT_A("sum_rows", dy, -1, -1);
    WANT("sum_rows", db, F, 1, dy.cols);
}
void check_rope_table(Dev *d, Tensor cossin, Tensor pos, Tensor freq, float amp) {
    WANT("rope_table", cossin, F, -1, -1);
    WANT("rope_table", pos, I, cossin.rows, -1);
    WANT("rope_table", freq, F, pos.cols, cossin.cols / 2);
    CHECK(cossin.cols % 2 == 0 && pos.cols >= 1, "rope_table: cossin is [%ld,%ld], pos has %ld columns",
          (long)cossin.rows, (long)cossin.cols, (long)pos.cols);
}
void check_rope(Dev *d, Tensor x, Tensor cossin, RopeShape s, int turn) {
    WANT_A("rope", x, -1, (int64_t)s.heads * s.width);
    WANT("rope", cossin, F, x.rows, s.dim);
    CHECK(s.dim % 2 == 0 && s.from >= 0 && s.from + s.dim <= s.width && (turn == 1 || turn == -1),
          "rope: columns %d..+%d of heads of %d, turn %d", s.from, s.dim, s.width, turn);
}

static void want_route(const char *op, const Route *r) {
    int64_t T = r->logits.rows, E = r->logits.cols;
    WANT(op, r->logits, F, -1, -1);
    if (!is_none(r->bias)) WANT(op, r->bias, F, 1, E);
    WANT(op, r->pick, I, T, r->topk);
    WANT(op, r->weight, F, T, r->topk);
    CHECK(r->kind == ROUTE_SOFTMAX || r->kind == ROUTE_SIGMOID, "%s: router kind %d", op, (int)r->kind);
    CHECK(r->topk >= 1 && r->topk <= E && E <= 4096, "%s: %d of %ld experts", op, r->topk, (long)E);
    if (r->groups > 1)
        CHECK(E % r->groups == 0 && r->group_topk >= 1 && r->group_topk <= r->groups
                  && r->topk <= r->group_topk * (E / r->groups),
              "%s: %d of %ld experts from %d of %d groups", op, r->topk, (long)E, r->group_topk, r->groups);
}
void check_route(Dev *d, const Route *r) { want_route("route", r); }
void check_route_bwd(Dev *d, Tensor dlogits, Tensor dweight, const Route *r) {
    want_route("route_bwd", r);
    WANT("route_bwd", dlogits, F, r->logits.rows, r->logits.cols);
    WANT("route_bwd", dweight, F, r->weight.rows, r->weight.cols);
}
void check_moe_sort(Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int experts) {
    int64_t n = pick.rows * pick.cols;
    WANT("moe_sort", pick, I, -1, -1);
    WANT("moe_sort", slot, I, pick.rows, pick.cols);
    WANT("moe_sort", at, I, -1, -1);
    WANT("moe_sort", from, I, -1, -1);
    CHECK(at.rows * at.cols == experts + 1 && from.rows * from.cols == n && n < INT32_MAX,
          "moe_sort: at holds %ld, %d wanted; from holds %ld, %ld wanted", (long)(at.rows * at.cols), experts + 1,
          (long)(from.rows * from.cols), (long)n);
    CHECK((at.rows == 1 || at.ld == at.cols) && (from.rows == 1 || from.ld == from.cols),
          "moe_sort: at and from have no gaps");
}
static void want_index(const char *op, Tensor ix, int64_t n) {
    WANT(op, ix, I, -1, -1);
    CHECK(ix.rows * ix.cols == n && (ix.rows <= 1 || ix.ld == ix.cols), "%s: %ld rows, %ld indices", op, (long)n,
          (long)(ix.rows * ix.cols));
}
void check_permute(Dev *d, Tensor y, Tensor x, Tensor from) {
    WANT_A("permute", x, -1, y.cols);
    WANT_A("permute", y, -1, x.cols);
    want_index("permute", from, y.rows);
}
void check_permute_bwd(Dev *d, Tensor dx, Tensor dy, Tensor slot) {
    WANT_A("permute_bwd", dy, -1, dx.cols);
    WANT_A("permute_bwd", dx, -1, dy.cols);
    WANT("permute_bwd", slot, I, dx.rows, -1);
}
void check_combine(Dev *d, Tensor y, Tensor rows, Tensor slot, Tensor weight) {
    WANT_A("combine", y, -1, rows.cols);
    WANT_A("combine", rows, -1, y.cols);
    WANT("combine", slot, I, y.rows, -1);
    WANT("combine", weight, F, y.rows, slot.cols);
}
void check_combine_bwd(Dev *d, Tensor drows, Tensor dweight, Tensor dy, Tensor rows, Tensor slot, Tensor weight) {
    WANT_A("combine_bwd", dy, -1, rows.cols);
    WANT_A("combine_bwd", rows, -1, dy.cols);
    WANT_A("combine_bwd", drows, rows.rows, rows.cols);
    WANT("combine_bwd", slot, I, dy.rows, -1);
    WANT("combine_bwd", weight, F, dy.rows, slot.cols);
    WANT("combine_bwd", dweight, F, dy.rows, slot.cols);
}
void check_scatter_rows(Dev *d, Tensor x, Tensor y, Tensor from) {
    WANT_A("scatter_rows", x, -1, y.cols);
    WANT_A("scatter_rows", y, -1, x.cols);
    want_index("scatter_rows", from, y.rows);
}

double op_sumsq(Dev *d, Tensor x) {
    WANT("sumsq", x, F, -1, -1);
    CHECK(x.rows <= 1 || x.ld == x.cols, "sumsq: rows of %ld, %ld apart; no gaps wanted", (long)x.cols, (long)x.ld);
    if (d->profile) profile_begin(d, "sumsq", x);
    d->ops->enter(d, false);
    double s = d->ops->sumsq(d, x);
    d->ops->leave(d);
    if (d->profile) profile_end(d);
    return s;
}
static void want_flat(Tensor x, const char *name, int64_t n) {
    CHECK(x.rows * x.cols == n && (x.rows <= 1 || x.ld == x.cols),
          "adamw: %s is [%ld,%ld], %ld numbers without gaps wanted", name, (long)x.rows, (long)x.cols, (long)n);
}
void check_adamw(Dev *d, Tensor w, Tensor master, Tensor m, Tensor v, Tensor g, Adam a) {
    int64_t n = w.rows * w.cols;
    WANT("adamw", w, is_none(master) ? F : DT_BF16, -1, -1);
    if (!is_none(master))
        WANT("adamw", master, master.dtype == DT_I16 ? DT_I16 : F, -1, -1), want_flat(master, "master", n);
    WANT_W("adamw", m, -1, -1);
    WANT_W("adamw", v, -1, -1);
    WANT("adamw", g, F, -1, -1);
    CHECK(m.dtype == v.dtype, "adamw: moments of %s and %s", dtype_name(m.dtype), dtype_name(v.dtype));
    want_flat(w, "w", n), want_flat(m, "m", n), want_flat(v, "v", n), want_flat(g, "g", n);
    CHECK(a.step >= 1 && a.first >= 0, "adamw: step %ld, element %ld; steps count from 1", (long)a.step, (long)a.first);
}
