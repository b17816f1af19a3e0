/* mlp.c - y = (silu(x Wg' + bg) * (x Wu' + bu)) Wd' + bd, the dense feed-forward. */
#include "layer/layer.h"

const MlpIds mlp_dense = { P_GATE, P_UP, P_DOWN, P_GATEB, P_UPB, P_DOWNB };
const MlpIds mlp_shared = { P_S_GATE, P_S_UP, P_S_DOWN, P_COUNT, P_COUNT, P_COUNT };

const MlpIds mlp_vision = { P_VIS_GATE, P_VIS_UP, P_VIS_DOWN, P_VIS_GATEB, P_VIS_UPB, P_VIS_DOWNB };

static Tensor bias(const Params *p, ParamId id, int layer) { return id == P_COUNT ? TENSOR_NONE : param(p, id, layer); }

/* The model's columns, of which this rank has the weights' own. */
static int64_t columns(const Ctx *c, const MlpIds *ids) {
    return ids == &mlp_vision ? c->m->d.vis.ffn : ids == &mlp_shared ? c->m->d.shared_ffn : c->m->d.ffn;
}

void mlp_forward(const Ctx *c, const MlpIds *ids, int layer, Tensor y, Tensor x, MlpKeep *keep) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor wg = param(c->w, ids->gate, layer), wu = param(c->w, ids->up, layer), wd = param(c->w, ids->down, layer);
    Leaves over_h = leaves_one(x.cols);
    Tensor all = tp_enter(&c->par, d, &d->tmp, x, c->tokens), part = tp_partial(&c->par, &d->tmp, y, c->tokens);
    MlpKeep k = {
        .gate = push_even(c, keep_always(c, keep), all.rows, wg.rows),
        .up = push_even(c, keep_always(c, keep), all.rows, wu.rows),
        .h = push_even(c, keep_cheap(c, keep), all.rows, wu.rows),
    };
    Tensor gate_up[] = { k.gate, k.up }, w[] = { wg, wu };
    Tensor b[] = { bias(c->w, ids->gate_b, layer), bias(c->w, ids->up_b, layer) };
    op_linear2(d, gate_up, all, w, b, over_h);
    op_swiglu(d, k.h, k.gate, k.up);
    op_linear(d, part, k.h, wd, TENSOR_NONE, by_cols(c, columns(c, ids)));
    tp_exit(&c->par, d, y, part);
    bias_forward(c, y, bias(c->w, ids->down_b, layer));
    if (keep) *keep = k, keep->h = kept(c, k.h);
    arena_pop(&d->tmp, mark);
}

void mlp_backward(const Ctx *c, const MlpIds *ids, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x,
                  const MlpKeep *k) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor wg = param(c->w, ids->gate, layer), wu = param(c->w, ids->up, layer), wd = param(c->w, ids->down, layer);
    bias_backward(c, bias(g, ids->down_b, layer), dy);
    Tensor dall = tp_exit_bwd(&c->par, d, &d->tmp, dy, c->tokens), all = tp_enter(&c->par, d, &d->tmp, x, c->tokens);
    Tensor dpart = tp_partial(&c->par, &d->tmp, dx, c->tokens);
    int64_t T = dall.rows;
    Tensor dh = push_even(c, &d->tmp, T, wu.rows), dgate = push_even(c, &d->tmp, T, wu.rows),
           dup = push_even(c, &d->tmp, T, wu.rows);
    Tensor h = k->h;
    if (!h.data) {
        h = dgate; /* its place is free until swiglu_bwd */
        op_swiglu(d, h, k->gate, k->up);
    }
    grad_linear(c, g, ids->down, TENSOR_NONE, layer, dall, h);
    op_linear_dx(d, dh, dall, wd, leaves_one(wd.rows));
    op_swiglu_bwd(d, dgate, dup, dh, k->gate, k->up);
    Tensor dxu = tensor_push(&d->tmp, dpart.dtype, T, x.cols);
    op_linear_dx(d, dpart, dgate, wg, by_cols(c, columns(c, ids)));
    op_linear_dx(d, dxu, dup, wu, by_cols(c, columns(c, ids)));
    op_add(d, dpart, dpart, dxu);
    tp_enter_bwd(&c->par, d, dx, dpart);
    grad_linear(c, g, ids->gate, bias(g, ids->gate_b, layer), layer, dgate, all);
    grad_linear(c, g, ids->up, bias(g, ids->up_b, layer), layer, dup, all);
    arena_pop(&d->tmp, mark);
}
