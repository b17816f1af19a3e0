/* mlp.c - y = (silu(x Wg' + bg) * (x Wu' + bu)) Wd' + bd, the dense feed-forward. */
#include "layer/linear.h"

const MlpIds mlp_dense = { P_GATE, P_UP, P_DOWN, P_GATEB, P_UPB, P_DOWNB };
const MlpIds mlp_shared = { P_S_GATE, P_S_UP, P_S_DOWN, NO_BIAS, NO_BIAS, NO_BIAS };
const MlpIds mlp_vision = { P_VIS_GATE, P_VIS_UP, P_VIS_DOWN, P_VIS_GATEB, P_VIS_UPB, P_VIS_DOWNB };

static Tensor bias(const Params *p, ParamId id, int layer) { return id == NO_BIAS ? TENSOR_NONE : param(p, id, layer); }

typedef struct {
    Linear gate_up[2], down;
} Linears;
static Linears linears_of(const Ctx *c, const MlpIds *ids, int layer) { /* down's bias is added when its sum is whole */
    return (Linears){ { linear_of(c, ids->gate, ids->gate_b, layer), linear_of(c, ids->up, ids->up_b, layer) },
                      linear_of(c, ids->down, NO_BIAS, layer) };
}

/* The model's columns, of which this rank has the weights' own. */
static int64_t columns(const Ctx *c, const MlpIds *ids) {
    return ids == &mlp_vision ? c->m->d.vis.ffn : ids == &mlp_shared ? c->m->d.shared_ffn : c->m->d.ffn;
}

void mlp_forward(const Ctx *c, const MlpIds *ids, int layer, Tensor y, Tensor x, MlpKeep *keep) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Linears l = linears_of(c, ids, layer);
    int64_t F = l.gate_up[0].w.rows;
    Tensor all = tp_enter(&c->par, d, &d->tmp, x, c->tokens), part = tp_partial(&c->par, &d->tmp, y, c->tokens);
    MlpKeep k = {
        .gate = push_even(c, keep_always(c, keep), all.rows, F),
        .up = push_even(c, keep_always(c, keep), all.rows, F),
        .h = push_even(c, keep_cheap(c, keep), all.rows, F),
    };
    Tensor gate_up[] = { k.gate, k.up };
    linears_forward(c, gate_up, all, NULL, l.gate_up, 2, leaves_one(x.cols));
    op_swiglu(d, k.h, k.gate, k.up);
    linear_exit(c, y, part, k.h, &l.down, by_cols(c, columns(c, ids)));
    bias_forward(c, y, bias(c->w, ids->down_b, layer));
    if (keep) *keep = k, keep->h = kept(c, k.h);
    arena_pop(&d->tmp, mark);
}

void mlp_backward(const Ctx *c, const MlpIds *ids, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x,
                  const MlpKeep *k) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Linears l = linears_of(c, ids, layer);
    bias_backward(c, bias(g, ids->down_b, layer), dy);
    Tensor dall = tp_exit_bwd(&c->par, d, &d->tmp, dy, c->tokens), all = tp_enter(&c->par, d, &d->tmp, x, c->tokens);
    Tensor dpart = tp_partial(&c->par, &d->tmp, dx, c->tokens);
    int64_t T = dall.rows, F = l.gate_up[0].w.rows;
    Tensor dh = push_even(c, &d->tmp, T, F), dgate = push_even(c, &d->tmp, T, F), dup = push_even(c, &d->tmp, T, F);
    Tensor h = k->h;
    if (!h.data) {
        h = dgate; /* its place is free until swiglu_bwd */
        op_swiglu(d, h, k->gate, k->up);
    }
    linear_exit_dw(c, g, &l.down, dall, h, by_cols(c, columns(c, ids)));
    linear_exit_dx(c, dh, dall, &l.down);
    op_swiglu_bwd(d, dgate, dup, dh, k->gate, k->up);
    Tensor dxu = tensor_push(&d->tmp, dpart.dtype, T, x.cols);
    linear_dx(c, dpart, dgate, &l.gate_up[0], by_cols(c, columns(c, ids)));
    linear_dx(c, dxu, dup, &l.gate_up[1], by_cols(c, columns(c, ids)));
    op_add(d, dpart, dpart, dxu);
    tp_enter_bwd(&c->par, d, dx, dpart);
    linear_dw(c, g, &l.gate_up[0], dgate, all);
    linear_dw(c, g, &l.gate_up[1], dup, all);
    arena_pop(&d->tmp, mark);
}
