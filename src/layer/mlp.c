/* mlp.c - y = (silu(x Wg' + bg) * (x Wu' + bu)) Wd' + bd, the dense feed-forward. */
#include "layer/layer.h"

const MlpIds mlp_dense = { P_GATE, P_UP, P_DOWN, P_GATEB, P_UPB, P_DOWNB };
const MlpIds mlp_shared = { P_S_GATE, P_S_UP, P_S_DOWN, P_COUNT, P_COUNT, P_COUNT };

static Tensor bias(const Params *p, ParamId id, int layer) { return id == P_COUNT ? TENSOR_NONE : param(p, id, layer); }

void mlp_forward(const Ctx *c, const MlpIds *ids, int layer, Tensor y, Tensor x, MlpKeep *keep) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor wg = param(c->w, ids->gate, layer), wu = param(c->w, ids->up, layer), wd = param(c->w, ids->down, layer);
    Leaves over_h = leaves_one(x.cols);
    MlpKeep k = {
        .gate = push(c, keep_always(c, keep), x.rows, wg.rows),
        .up = push(c, keep_always(c, keep), x.rows, wu.rows),
        .h = push(c, keep_cheap(c, keep), x.rows, wu.rows),
    };
    op_linear(d, k.gate, x, wg, bias(c->w, ids->gate_b, layer), over_h);
    op_linear(d, k.up, x, wu, bias(c->w, ids->up_b, layer), over_h);
    op_swiglu(d, k.h, k.gate, k.up);
    op_linear(d, y, k.h, wd, bias(c->w, ids->down_b, layer), by_cols(c, wd.cols));
    if (keep) *keep = k, keep->h = kept(c, k.h);
    arena_pop(&d->tmp, mark);
}

void mlp_backward(const Ctx *c, const MlpIds *ids, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x,
                  const MlpKeep *k) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor wg = param(c->w, ids->gate, layer), wu = param(c->w, ids->up, layer), wd = param(c->w, ids->down, layer);
    Tensor dh = push(c, &d->tmp, x.rows, wu.rows), dgate = push(c, &d->tmp, x.rows, wu.rows),
           dup = push(c, &d->tmp, x.rows, wu.rows);
    Tensor h = k->h;
    if (!h.data) {
        h = dgate; /* its place is free until swiglu_bwd */
        op_swiglu(d, h, k->gate, k->up);
    }
    op_linear_dw(d, param(g, ids->down, layer), bias(g, ids->down_b, layer), dy, h);
    op_linear_dx(d, dh, dy, wd, leaves_one(wd.rows));
    op_swiglu_bwd(d, dgate, dup, dh, k->gate, k->up);
    Tensor dxu = push(c, &d->tmp, x.rows, x.cols);
    op_linear_dx(d, dx, dgate, wg, by_cols(c, wg.rows));
    op_linear_dx(d, dxu, dup, wu, by_cols(c, wu.rows));
    op_add(d, dx, dx, dxu);
    op_linear_dw(d, param(g, ids->gate, layer), bias(g, ids->gate_b, layer), dgate, x);
    op_linear_dw(d, param(g, ids->up, layer), bias(g, ids->up_b, layer), dup, x);
    arena_pop(&d->tmp, mark);
}
