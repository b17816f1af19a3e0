/* moe.c - experts: a router chooses k of E for each token, rows are gathered by expert, each expert is a SwiGLU, and a
 * token adds what its experts return in ascending order of their ids; shared experts are added last.  Nothing is dropped and
 * there is no capacity, so a token's result does not depend on the others (E1). */
#include "layer/layer.h"

static Route router(const Ctx *c, int layer, Tensor logits, const Routing *r) {
    const Dims *d = &c->m->d;
    return (Route){
        .kind = c->m->arch->route,
        .topk = (int)d->topk,
        .groups = (int)d->groups,
        .group_topk = (int)d->group_topk,
        .renorm = d->norm_topk,
        .factor = (float)d->route_factor,
        .logits = logits,
        .bias = param(c->w, P_ROUTER_BIAS, layer),
        .pick = r->pick,
        .weight = r->weight,
    };
}

static Seqs by_expert(const Ctx *c, const Routing *r, int64_t rows) {
    return (Seqs){ .n = (int)c->m->d.experts, .longest = (int)rows, .at = r->at };
}

Routing routing_push(const Ctx *c, int64_t T, Arena *a) {
    int64_t k = c->m->d.topk;
    return (Routing){
        .pick = tensor_push(a, DT_I32, T, k),
        .weight = push_f32(a, T, k),
        .at = tensor_push(a, DT_I32, c->m->d.experts + 1, 1),
        .from = tensor_push(a, DT_I32, T * k, 1),
        .slot = tensor_push(a, DT_I32, T, k),
    };
}

void moe_forward(const Ctx *c, int layer, Tensor y, Tensor x, const Routing *routing, bool known, MoeKeep *keep) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp, *a = keep_always(c, keep), *cheap = keep_cheap(c, keep);
    size_t mark = arena_mark(tmp);
    const Dims *m = &c->m->d;
    int64_t T = x.rows, n = T * m->topk, F = m->expert_ffn;

    MoeKeep k = { .logits = push_f32(a, T, m->experts), .routing = *routing };
    op_linear(d, k.logits, x, param(c->w, P_ROUTER, layer), TENSOR_NONE, leaves_one(x.cols));
    if (!known) {
        Route r = router(c, layer, k.logits, routing);
        op_route(d, &r);
        op_moe_sort(d, routing->at, routing->from, routing->slot, routing->pick, (int)m->experts);
    }

    Seqs ex = by_expert(c, routing, n);
    k.xe = push(c, cheap, n, x.cols);
    op_permute(d, k.xe, x, routing->from);
    Tensor xe = ep_dispatch(&c->par, d, tmp, k.xe, &ex);
    k.gate = push(c, a, n, F), k.up = push(c, a, n, F), k.h = push(c, cheap, n, F), k.out = push(c, a, n, x.cols);
    op_grouped(d, k.gate, xe, param(c->w, P_E_GATE, layer), ex, leaves_one(x.cols));
    op_grouped(d, k.up, xe, param(c->w, P_E_UP, layer), ex, leaves_one(x.cols));
    op_swiglu(d, k.h, k.gate, k.up);
    op_grouped(d, k.out, k.h, param(c->w, P_E_DOWN, layer), ex, leaves_all(c->leaves, F, 1));
    op_combine(d, y, ep_combine(&c->par, d, tmp, k.out, &ex), routing->slot, routing->weight);

    if (m->shared) {
        Tensor ys = push(c, tmp, T, x.cols);
        mlp_forward(c, &mlp_shared, layer, ys, x, keep ? &k.shared : NULL);
        op_add(d, y, y, ys);
    }
    if (keep) *keep = k, keep->xe = kept(c, k.xe), keep->h = kept(c, k.h);
    arena_pop(tmp, mark);
}

void moe_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x, const MoeKeep *k) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    const Dims *m = &c->m->d;
    const Routing *r = &k->routing;
    int64_t T = x.rows, n = T * m->topk, F = m->expert_ffn, H = x.cols;
    Seqs ex = by_expert(c, r, n);

    Tensor back = push(c, tmp, n, H), dweight = push_f32(tmp, T, m->topk);
    op_combine_bwd(d, back, dweight, dy, k->out, r->slot, r->weight);
    Tensor dout = ep_dispatch(&c->par, d, tmp, back, &ex);

    Tensor dh = push(c, tmp, n, F), dgate = push(c, tmp, n, F), dup = push(c, tmp, n, F), h = k->h, xe = k->xe;
    if (!h.data) {
        h = dgate; /* its place is free until swiglu_bwd */
        op_swiglu(d, h, k->gate, k->up);
    }
    op_grouped_dw(d, param(g, P_E_DOWN, layer), dout, h, ex);
    op_grouped_dx(d, dh, dout, param(c->w, P_E_DOWN, layer), ex, leaves_one(H));
    op_swiglu_bwd(d, dgate, dup, dh, k->gate, k->up);
    Tensor dxe = back, part = push(c, tmp, n, H); /* dout is used up */
    op_grouped_dx(d, dxe, dgate, param(c->w, P_E_GATE, layer), ex, leaves_all(c->leaves, F, 1));
    op_grouped_dx(d, part, dup, param(c->w, P_E_UP, layer), ex, leaves_all(c->leaves, F, 1));
    op_add(d, dxe, dxe, part);
    if (!xe.data) {
        xe = part; /* its place is free again */
        op_permute(d, xe, x, r->from);
    }
    op_grouped_dw(d, param(g, P_E_GATE, layer), dgate, xe, ex);
    op_grouped_dw(d, param(g, P_E_UP, layer), dup, xe, ex);
    op_permute_bwd(d, dx, ep_combine(&c->par, d, tmp, dxe, &ex), r->slot);

    Tensor dlogits = push_f32(tmp, T, m->experts), dxr = push(c, tmp, T, H), wr = param(c->w, P_ROUTER, layer);
    Route route = router(c, layer, k->logits, r);
    op_route_bwd(d, dlogits, dweight, &route);
    op_linear_dx(d, dxr, dlogits, wr, leaves_one(wr.rows));
    op_add(d, dx, dx, dxr);
    op_linear_dw(d, param(g, P_ROUTER, layer), TENSOR_NONE, dlogits, x);
    if (m->shared) {
        mlp_backward(c, &mlp_shared, layer, g, dxr, dy, x, &k->shared);
        op_add(d, dx, dx, dxr);
    }
    arena_pop(tmp, mark);
}
