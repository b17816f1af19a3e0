/* op_row.c - front doors of what works row by row, of the experts' bookkeeping and of the optimizer. */
#include "op/op_check.h"

#define F DT_F32
#define I DT_I32

void op_embed(Dev *d, Tensor y, Tensor ids, Tensor w) {
    WANT_W("embed", w, -1, y.cols);
    WANT("embed", y, F, -1, w.cols);
    WANT("embed", ids, I, y.rows, 1);
    dev_join(d);
    d->ops->embed(d, y, ids, w);
    dev_leave(d);
}
void op_embed_bwd(Dev *d, Tensor dw, Tensor dy, Tensor ids) {
    WANT("embed_bwd", dw, F, -1, dy.cols);
    WANT("embed_bwd", dy, F, -1, dw.cols);
    WANT("embed_bwd", ids, I, dy.rows, 1);
    dev_enter(d);
    d->ops->embed_bwd(d, dw, dy, ids);
    dev_leave(d);
}
void op_rmsnorm(Dev *d, Tensor y, Tensor rstd, Tensor x, Tensor g, float eps) {
    WANT("rmsnorm", x, F, -1, -1);
    WANT("rmsnorm", y, F, x.rows, x.cols);
    WANT("rmsnorm", g, F, 1, x.cols);
    if (!is_none(rstd)) WANT("rmsnorm", rstd, F, x.rows, 1);
    dev_join(d);
    d->ops->rmsnorm(d, y, rstd, x, g, eps);
    dev_leave(d);
}
void op_rmsnorm_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g) {
    WANT("rmsnorm_bwd", x, F, -1, -1);
    WANT("rmsnorm_bwd", dy, F, x.rows, x.cols);
    if (!is_none(dx)) WANT("rmsnorm_bwd", dx, F, x.rows, x.cols);
    if (!is_none(dg)) WANT("rmsnorm_bwd", dg, F, 1, x.cols);
    WANT("rmsnorm_bwd", g, F, 1, x.cols);
    WANT("rmsnorm_bwd", rstd, F, x.rows, 1);
    dev_join(d);
    d->ops->rmsnorm_bwd(d, dx, dg, dy, x, rstd, g);
    dev_leave(d);
}
void op_swiglu(Dev *d, Tensor y, Tensor gate, Tensor up) {
    WANT("swiglu", gate, F, -1, -1);
    WANT("swiglu", up, F, gate.rows, gate.cols);
    WANT("swiglu", y, F, gate.rows, gate.cols);
    dev_join(d);
    d->ops->swiglu(d, y, gate, up);
    dev_leave(d);
}
void op_swiglu_bwd(Dev *d, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    WANT("swiglu_bwd", gate, F, -1, -1);
    WANT("swiglu_bwd", up, F, gate.rows, gate.cols);
    WANT("swiglu_bwd", dy, F, gate.rows, gate.cols);
    WANT("swiglu_bwd", dgate, F, gate.rows, gate.cols);
    WANT("swiglu_bwd", dup, F, gate.rows, gate.cols);
    dev_join(d);
    d->ops->swiglu_bwd(d, dgate, dup, dy, gate, up);
    dev_leave(d);
}
void op_add(Dev *d, Tensor y, Tensor a, Tensor b) {
    WANT("add", a, F, -1, -1);
    WANT("add", b, F, a.rows, a.cols);
    WANT("add", y, F, a.rows, a.cols);
    dev_join(d);
    d->ops->add(d, y, a, b);
    dev_leave(d);
}
void op_rope_table(Dev *d, Tensor cossin, Tensor pos, Tensor freq, float amp) {
    WANT("rope_table", cossin, F, -1, -1);
    WANT("rope_table", pos, I, cossin.rows, -1);
    WANT("rope_table", freq, F, 1, cossin.cols / 2);
    CHECK(cossin.cols % 2 == 0 && pos.cols >= 1, "rope_table: cossin is [%ld,%ld], pos has %ld columns",
          (long)cossin.rows, (long)cossin.cols, (long)pos.cols);
    dev_join(d);
    d->ops->rope_table(d, cossin, pos, freq, amp);
    dev_leave(d);
}
void op_rope(Dev *d, Tensor x, Tensor cossin, RopeShape s, int turn) {
    WANT("rope", x, F, -1, (int64_t)s.heads * s.width);
    WANT("rope", cossin, F, x.rows, s.dim);
    CHECK(s.dim % 2 == 0 && s.from >= 0 && s.from + s.dim <= s.width && (turn == 1 || turn == -1),
          "rope: columns %d..+%d of heads of %d, turn %d", s.from, s.dim, s.width, turn);
    dev_join(d);
    d->ops->rope(d, x, cossin, s, turn);
    dev_leave(d);
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
void op_route(Dev *d, const Route *r) {
    want_route("route", r);
    dev_join(d);
    d->ops->route(d, r);
    dev_leave(d);
}
void op_route_bwd(Dev *d, Tensor dlogits, Tensor dweight, const Route *r) {
    want_route("route_bwd", r);
    WANT("route_bwd", dlogits, F, r->logits.rows, r->logits.cols);
    WANT("route_bwd", dweight, F, r->weight.rows, r->weight.cols);
    dev_join(d);
    d->ops->route_bwd(d, dlogits, dweight, r);
    dev_leave(d);
}
void op_moe_sort(Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int experts) {
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
    dev_enter(d);
    d->ops->moe_sort(d, at, from, slot, pick, experts);
    dev_leave(d);
}
static void want_index(const char *op, Tensor ix, int64_t n) {
    WANT(op, ix, I, -1, -1);
    CHECK(ix.rows * ix.cols == n && (ix.rows <= 1 || ix.ld == ix.cols), "%s: %ld rows, %ld indices", op, (long)n,
          (long)(ix.rows * ix.cols));
}
void op_permute(Dev *d, Tensor y, Tensor x, Tensor from) {
    WANT("permute", x, F, -1, y.cols);
    WANT("permute", y, F, -1, x.cols);
    want_index("permute", from, y.rows);
    dev_join(d);
    d->ops->permute(d, y, x, from);
    dev_leave(d);
}
void op_permute_bwd(Dev *d, Tensor dx, Tensor dy, Tensor slot) {
    WANT("permute_bwd", dy, F, -1, dx.cols);
    WANT("permute_bwd", dx, F, -1, dy.cols);
    WANT("permute_bwd", slot, I, dx.rows, -1);
    dev_join(d);
    d->ops->permute_bwd(d, dx, dy, slot);
    dev_leave(d);
}
void op_combine(Dev *d, Tensor y, Tensor rows, Tensor slot, Tensor weight) {
    WANT("combine", y, F, -1, rows.cols);
    WANT("combine", rows, F, -1, y.cols);
    WANT("combine", slot, I, y.rows, -1);
    WANT("combine", weight, F, y.rows, slot.cols);
    dev_join(d);
    d->ops->combine(d, y, rows, slot, weight);
    dev_leave(d);
}
void op_combine_bwd(Dev *d, Tensor drows, Tensor dweight, Tensor dy, Tensor rows, Tensor slot, Tensor weight) {
    WANT("combine_bwd", dy, F, -1, rows.cols);
    WANT("combine_bwd", rows, F, -1, dy.cols);
    WANT("combine_bwd", drows, F, rows.rows, rows.cols);
    WANT("combine_bwd", slot, I, dy.rows, -1);
    WANT("combine_bwd", weight, F, dy.rows, slot.cols);
    WANT("combine_bwd", dweight, F, dy.rows, slot.cols);
    dev_join(d);
    d->ops->combine_bwd(d, drows, dweight, dy, rows, slot, weight);
    dev_leave(d);
}
void op_scatter_rows(Dev *d, Tensor x, Tensor y, Tensor from) {
    WANT("scatter_rows", x, F, -1, y.cols);
    WANT("scatter_rows", y, F, -1, x.cols);
    want_index("scatter_rows", from, y.rows);
    dev_enter(d);
    d->ops->scatter_rows(d, x, y, from);
    dev_leave(d);
}

double op_sumsq(Dev *d, Tensor x) {
    WANT("sumsq", x, F, -1, -1);
    CHECK(x.rows <= 1 || x.ld == x.cols, "sumsq: rows of %ld, %ld apart; no gaps wanted", (long)x.cols, (long)x.ld);
    dev_enter(d);
    double s = d->ops->sumsq(d, x);
    dev_leave(d);
    return s;
}
void op_adamw(Dev *d, Tensor w, Tensor m, Tensor v, Tensor g, Adam a) {
    int64_t n = w.rows * w.cols;
    const Tensor all[] = { w, m, v, g };
    for (size_t i = 0; i < COUNT(all); i++) {
        Tensor x = all[i];
        WANT("adamw", x, F, -1, -1);
        CHECK(x.rows * x.cols == n && (x.rows <= 1 || x.ld == x.cols),
              "adamw: tensor %zu of 4 is [%ld,%ld], %ld numbers without gaps wanted", i, (long)x.rows, (long)x.cols,
              (long)n);
    }
    CHECK(a.step >= 1, "adamw: step %ld; steps count from 1", (long)a.step);
    dev_enter(d);
    d->ops->adamw(d, w, m, v, g, a);
    dev_leave(d);
}
