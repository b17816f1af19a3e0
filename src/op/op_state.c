/* op_state.c - checks of gates and of the ops whose layers keep a state. */
#include "op/op_check.h"

void check_gate(Dev *d, Tensor y, Tensor a, Tensor g) {
    WANT_A("gate", y, -1, -1);
    WANT_A("gate", a, y.rows, y.cols);
    WANT_A("gate", g, y.rows, g.cols == 1 ? 1 : y.cols);
}
void check_gate_bwd(Dev *d, Tensor da, Tensor dg, Tensor dy, Tensor a, Tensor g) {
    check_gate(d, da, a, g);
    WANT_A("gate_bwd", dy, a.rows, a.cols);
    WANT_A("gate_bwd", dg, g.rows, g.cols);
}
void check_plus_one(Dev *d, Tensor y, Tensor x) {
    (void)d;
    WANT("plus_one", y, DT_F32, 1, -1);
    WANT_W("plus_one", x, 1, y.cols);
}
static void want_state(const char *op, const Remembered *r, int64_t floats) {
    WANT(op, r->seqs.at, DT_I32, r->seqs.n + 1, 1);
    if (is_none(r->state)) return;
    WANT(op, r->start, DT_I32, r->seqs.n, 1);
    WANT(op, r->slot, DT_I32, r->seqs.n, 1);
    WANT(op, r->state, DT_F32, -1, -1);
    CHECK(r->from >= 0 && r->from + floats <= r->state.cols, "%s: floats %ld..+%ld of a state of %ld", op,
          (long)r->from, (long)floats, (long)r->state.cols);
}
void check_conv(Dev *d, Tensor y, Tensor x, Tensor w, const Remembered *r) {
    WANT_A("conv", y, -1, -1);
    WANT_A("conv", x, y.rows, y.cols);
    WANT_W("conv", w, y.cols, -1);
    CHECK(w.cols >= 1 && w.cols <= 16, "conv: filters of %ld rows", (long)w.cols);
    want_state("conv", r, (w.cols - 1) * y.cols);
}
void check_conv_bwd(Dev *d, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w, const Remembered *r) {
    check_conv(d, dx, x, w, r);
    WANT_A("conv_bwd", dy, x.rows, x.cols);
    if (!is_none(dw)) WANT("conv_bwd", dw, DT_F32, w.rows, w.cols);
    CHECK(is_none(r->state), "conv_bwd: a state%s", "");
}
void check_unit(Dev *d, Tensor y, Tensor rho, Tensor x, int heads, float scale) {
    (void)scale;
    WANT_A("unit", y, -1, -1);
    WANT_A("unit", x, y.rows, y.cols);
    WANT("unit", rho, DT_F32, y.rows, heads);
    CHECK(heads > 0 && x.cols % heads == 0, "unit: %ld columns, %d heads", (long)x.cols, heads);
}
void check_unit_bwd(Dev *d, Tensor dx, Tensor dy, Tensor x, Tensor rho, int heads, float scale) {
    check_unit(d, dx, rho, x, heads, scale);
    WANT_A("unit_bwd", dy, x.rows, x.cols);
}
void check_decay(Dev *d, Tensor g, Tensor beta, const Decay *x) {
    WANT("decay", g, DT_F32, -1, -1);
    WANT("decay", beta, DT_F32, g.rows, g.cols);
    WANT_A("decay", x->a, g.rows, g.cols);
    WANT_A("decay", x->b, g.rows, g.cols);
    WANT("decay", x->log_a, DT_F32, 1, g.cols);
    WANT("decay", x->dt, DT_F32, 1, g.cols);
}
void check_decay_bwd(Dev *d, Tensor da, Tensor db, Tensor dA, Tensor ddt, Tensor dg, Tensor dbeta, const Decay *x) {
    check_decay(d, dg, dbeta, x);
    WANT_A("decay_bwd", da, dg.rows, dg.cols);
    WANT_A("decay_bwd", db, dg.rows, dg.cols);
    if (!is_none(dA)) WANT("decay_bwd", dA, DT_F32, 1, dg.cols);
    if (!is_none(ddt)) WANT("decay_bwd", ddt, DT_F32, 1, dg.cols);
}
void check_delta(Dev *d, Tensor o, const Delta *x) {
    int64_t T = o.rows;
    CHECK(x->keys >= 1 && x->heads % x->keys == 0 && x->dk >= 1 && x->dv >= 1 && x->dk * x->dv <= DELTA_MOST,
          "delta: %d heads of %d keys, [%d,%d]", x->heads, x->keys, x->dk, x->dv);
    WANT_A("delta", o, -1, (int64_t)x->heads * x->dv);
    WANT_A("delta", x->q, T, (int64_t)x->keys * x->dk);
    WANT_A("delta", x->k, T, (int64_t)x->keys * x->dk);
    WANT_A("delta", x->v, T, (int64_t)x->heads * x->dv);
    WANT("delta", x->g, DT_F32, T, x->heads);
    WANT("delta", x->beta, DT_F32, T, x->heads);
    want_state("delta", &x->r, (int64_t)x->heads * x->dk * x->dv);
}
void check_delta_bwd(Dev *d, const DeltaGrad *g, Tensor dO, const Delta *x) {
    check_delta(d, dO, x);
    WANT_A("delta_bwd", g->q, dO.rows, x->q.cols);
    WANT_A("delta_bwd", g->k, dO.rows, x->k.cols);
    WANT_A("delta_bwd", g->v, dO.rows, x->v.cols);
    WANT("delta_bwd", g->g, DT_F32, dO.rows, x->heads);
    WANT("delta_bwd", g->beta, DT_F32, dO.rows, x->heads);
    CHECK(is_none(x->r.state), "delta_bwd: a state%s", "");
}
void check_norm_gate(Dev *d, Tensor y, Tensor rho, Tensor x, Tensor z, Tensor w, int heads, float eps) {
    WANT_A("norm_gate", y, -1, -1);
    WANT_A("norm_gate", x, y.rows, y.cols);
    WANT_A("norm_gate", z, y.rows, y.cols);
    WANT("norm_gate", rho, DT_F32, y.rows, heads);
    CHECK(heads > 0 && x.cols % heads == 0 && eps >= 0, "norm_gate: %ld columns, %d heads", (long)x.cols, heads);
    WANT_W("norm_gate", w, 1, x.cols / heads);
}
void check_norm_gate_bwd(Dev *d, Tensor dx, Tensor dz, Tensor dw, Tensor dy, Tensor x, Tensor z, Tensor w, Tensor rho,
                         int heads) {
    check_norm_gate(d, dx, rho, x, z, w, heads, 0);
    WANT_A("norm_gate_bwd", dz, x.rows, x.cols);
    WANT_A("norm_gate_bwd", dy, x.rows, x.cols);
    if (!is_none(dw)) WANT("norm_gate_bwd", dw, DT_F32, 1, w.cols);
}
