/* moe.c - experts: a router chooses k of E for each token, rows are gathered by expert, each expert is a SwiGLU, and a
 * token adds what its experts return in ascending order of their ids; shared experts are added last.  Nothing is
 * dropped and there is no capacity, so a token's result does not depend on the others (E1). */
#include "layer/linear.h"

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

/* Rows of this rank, and who has whose experts. */
static EpPlan plan_of(const Ctx *c, const Routing *r) {
    int64_t k = c->m->d.topk, most = (c->tokens + c->par.tp.size - 1) / c->par.tp.size;
    return ep_plan(&c->par, c->book, r->at, (int)c->m->d.experts, r->pick.rows * k, most * k);
}
/* Room for what a round may bring, and the rows that it does. */
static Tensor push_rows(const Ctx *c, Arena *a, const EpPlan *ep, int64_t cols) {
    return tensor_rows(push(c, a, ep->room, cols), 0, ep->rows);
}
static Leaves by_expert_cols(const Ctx *c) { return leaves_of(c, &c->par.etp, c->m->d.expert_ffn, 1); }

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

/* Round i: this rank's experts on everybody's rows; what they give goes back into k->out.  The first round's
 * activations are kept, those of more rounds, which uneven routing takes, are made again in backward.  own: x's rows in
 * the order of experts, or, where nobody else reads them (own_made), room for them; there experts may be still to be
 * chosen, as 'choose' says.  end, or NULL: what they give becomes end->y at once, and y is scratch. */
static bool own_made(const EpPlan *ep, bool keep) { return ep->book || keep; }
static void round_forward(const Ctx *c, int layer, EpPlan *ep, int i, Tensor own, Tensor x, const Route *choose,
                          Tensor y, const Ending *end, MoeKeep *k, bool keep) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp, *a = keep ? c->act : tmp, *cheap = keep ? keep_cheap(c, k) : tmp;
    size_t mark = arena_mark(tmp);
    int64_t H = own.cols, F = c->l.expert_ffn;
    ep_round(ep, &c->par, d, tmp, i);
    Tensor xe = ep_dispatch(ep, &c->par, d, cheap, own), gate = push_rows(c, a, ep, F), up = push_rows(c, a, ep, F),
           h = push_rows(c, cheap, ep, F), out = ep_partial(ep, &c->par, tmp, k->out);
    ExpertLinears e = experts_of(c, layer);
    if (own_made(ep, keep)) experts_hidden(c, h, gate, up, xe, &e, ep->ex, leaves_one(H), keep);
    else experts_hidden_of(c, choose, h, gate, up, own, x, &k->routing, &e, ep->ex, leaves_one(H));
    if (end) experts_end(c, end, y, out, h, &e.down, ep->ex, by_expert_cols(c), &k->routing);
    else experts_forward(c, out, h, &e.down, ep->ex, by_expert_cols(c));
    ep_combine(ep, &c->par, d, k->out, out);
    if (keep) k->xe = xe, k->gate = gate, k->up = up, k->h = h;
    arena_pop(tmp, mark);
}

/* y: what shared experts give, behind their gate where they have one. */
static void shared_forward(const Ctx *c, int layer, Tensor y, Tensor x, MoeKeep *keep) {
    if (!c->m->d.shared_gate) {
        mlp_forward(c, &mlp_shared, layer, y, x, keep ? &keep->shared : NULL);
        return;
    }
    size_t mark = arena_mark(&c->dev->tmp);
    Arena *a = keep_always(c, keep);
    Linear w = linear_of(c, P_S_MIX, NO_BIAS, layer);
    Tensor mix = push(c, a, x.rows, 1), mixed = push(c, a, x.rows, x.cols);
    mlp_forward(c, &mlp_shared, layer, mixed, x, keep ? &keep->shared : NULL);
    linear_forward(c, mix, x, &w, leaves_one(x.cols));
    op_gate(c->dev, y, mixed, mix);
    if (keep) keep->mix = mix, keep->mixed = mixed;
    arena_pop(&c->dev->tmp, mark);
}
static void shared_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x,
                            const MoeKeep *k) {
    if (!c->m->d.shared_gate) {
        mlp_backward(c, &mlp_shared, layer, g, dx, dy, x, &k->shared);
        return;
    }
    size_t mark = arena_mark(&c->dev->tmp);
    Arena *tmp = &c->dev->tmp;
    Linear w = linear_of(c, P_S_MIX, NO_BIAS, layer);
    Tensor dmix = push(c, tmp, x.rows, 1), dmixed = push(c, tmp, x.rows, x.cols), more = push(c, tmp, x.rows, x.cols);
    op_gate_bwd(c->dev, dmixed, dmix, dy, k->mixed, k->mix);
    mlp_backward(c, &mlp_shared, layer, g, dx, dmixed, x, &k->shared);
    linear_dx(c, more, dmix, &w, leaves_one(1));
    op_add(c->dev, dx, dx, more);
    linear_dw(c, g, &w, dmix, x);
    arena_pop(&c->dev->tmp, mark);
}

static void add_shared(const Ctx *c, int layer, Tensor y, Tensor x, MoeKeep *keep) {
    size_t mark = arena_mark(&c->dev->tmp);
    Tensor ys = push(c, &c->dev->tmp, x.rows, x.cols);
    shared_forward(c, layer, ys, x, keep);
    op_add(c->dev, y, y, ys);
    arena_pop(&c->dev->tmp, mark);
}

/* A step of decoding over ranks, in which nothing depends on how tokens were routed but numbers on the device, so that
 * it can be noted and run again (par.h, ep_tokens): every rank routes the tokens of all, and its experts' rows lie
 * where the order of all experts has them. */
static void moe_even(const Ctx *c, int layer, Tensor y, Tensor x) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    const Dims *m = &c->m->d;
    Linear w = linear_of(c, P_ROUTER, NO_BIAS, layer);
    Tensor all = ep_tokens(&c->par, d, tmp, x, c->each);
    int64_t T = all.rows, n = T * m->topk, F = c->l.expert_ffn;
    Tensor logits = push_f32(tmp, T, m->experts);
    Routing r = routing_push(c, T, tmp);
    linear_forward(c, logits, all, &w, leaves_one(x.cols));
    Route route = router(c, layer, logits, &r);
    op_route_sort(d, &route, r.at, r.from, r.slot);

    Seqs ex = ep_experts(&c->par, r.at, (int)m->experts, n);
    Tensor xe = push(c, tmp, n, x.cols), gate = push(c, tmp, n, F), up = push(c, tmp, n, F), h = push(c, tmp, n, F);
    Tensor out = tensor_push(tmp, c->par.etp.size > 1 ? DT_F32 : d->act, n, x.cols),
           back = tensor_push(tmp, out.dtype, n, x.cols);
    op_embed(d, out, r.from, tensor_rows(w.w, 0, 1), (Part){ T, T + 1 }); /* rows of none: -0, which adds nothing */
    op_permute(d, xe, all, r.from);
    ExpertLinears e = experts_of(c, layer);
    experts_hidden(c, h, gate, up, xe, &e, ex, leaves_one(x.cols), false);
    experts_forward(c, out, h, &e.down, ex, by_expert_cols(c));
    op_permute(d, back, out, tensor_shape(r.slot, n, 1));
    Tensor own = ep_results(&c->par, d, tmp, back, d->act, x.rows * m->topk),
           weight = tensor_rows(r.weight, ep_place(&c->par, c->each), x.rows);
    op_combine(d, y, own, c->order, weight);
    if (m->shared) add_shared(c, layer, y, x, NULL);
    arena_pop(tmp, mark);
}
Tensor moe_order(const Ctx *c, int64_t T, Arena *a) {
    Routing r = routing_push(c, T, a);
    if (!T) return r.slot;
    op_zero(c->dev, r.pick);
    op_moe_sort(c->dev, tensor_rows(r.at, 0, 2), r.from, r.slot, r.pick, 1);
    return r.slot;
}

void moe_forward(const Ctx *c, int layer, Tensor y, Tensor x, const Routing *routing, bool known,
                 const Beginning *begin, const Ending *end, MoeKeep *keep) {
    if (c->each) {
        if (begin) op_add_rmsnorm(c->dev, begin->sum, x, TENSOR_NONE, begin->a, begin->b, begin->g, begin->eps);
        moe_even(c, layer, y, x);
        if (end) op_add_rmsnorm(c->dev, end->y, end->n, TENSOR_NONE, end->mid, y, end->g, end->eps);
        return;
    }
    Dev *d = c->dev;
    Arena *tmp = &d->tmp, *a = keep_always(c, keep), *cheap = keep_cheap(c, keep);
    size_t mark = arena_mark(tmp);
    const Dims *m = &c->m->d;
    int64_t T = x.rows, n = T * m->topk;

    MoeKeep k = { .logits = push_f32(a, T, m->experts), .routing = *routing };
    Linear w = linear_of(c, P_ROUTER, NO_BIAS, layer);
    if (begin) linear_begin(c, k.logits, x, begin, &w, leaves_one(x.cols));
    else linear_forward(c, k.logits, x, &w, leaves_one(x.cols));
    bool apart = c->par.experts.size > 1, meanwhile = apart && m->shared, late = !known && !apart && !keep;
    Route route = router(c, layer, k.logits, routing);
    if (!known && !late) op_route_sort(d, &route, routing->at, routing->from, routing->slot);
    ep_count(&c->par, d, c->book, routing->at);
    Tensor own = push(c, apart ? tmp : cheap, n, x.cols), sum = y;
    k.out = push(c, a, n, x.cols);
    if (apart || keep) op_permute_slots(d, own, x, routing->from, routing->slot);
    if (meanwhile) shared_forward(c, layer, y, x, keep ? &k : NULL); /* while counts come */
    EpPlan ep = plan_of(c, routing);
    bool sums = end && !end->n.data; /* nothing but the sum is wanted, and it is this rank's */
    for (int i = 0; i < ep.rounds; i++)
        round_forward(c, layer, &ep, i, own, x, late ? &route : NULL, y, sums ? end : NULL, &k, keep && i == 0);
    if (meanwhile) sum = push(c, tmp, T, x.cols);
    if (end && !sums)
        op_combine_add_rmsnorm(d, end->y, end->n, y, end->mid, k.out, routing->slot, routing->weight, end->g, end->eps);
    else if (!end) op_combine(d, sum, k.out, routing->slot, routing->weight);
    if (meanwhile) op_add(d, y, y, sum);
    else if (m->shared) add_shared(c, layer, y, x, keep ? &k : NULL);
    if (keep) *keep = k, keep->xe = kept(c, k.xe), keep->h = kept(c, k.h);
    arena_pop(tmp, mark);
}

/* Round i: d of the own rows' results -> d of the own rows, in their place; k: what forward
 * kept of this round, or NULL. */
static void round_backward(const Ctx *c, int layer, const Params *g, EpPlan *ep, int i, Tensor back, Tensor own,
                           const MoeKeep *k) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    int64_t H = back.cols, F = c->l.expert_ffn;
    ep_round(ep, &c->par, d, tmp, i);
    Tensor dout = ep_dispatch(ep, &c->par, d, tmp, back),
           xe = ep->book && k && k->xe.data ? k->xe : ep_dispatch(ep, &c->par, d, tmp, own);
    Tensor dh = push_rows(c, tmp, ep, F), dgate = push_rows(c, tmp, ep, F), dup = push_rows(c, tmp, ep, F);
    Tensor gate = k ? k->gate : push_rows(c, tmp, ep, F), up = k ? k->up : push_rows(c, tmp, ep, F),
           h = k ? k->h : TENSOR_NONE;
    ExpertLinears e = experts_of(c, layer);
    if (!k) {
        experts_forward(c, gate, xe, &e.gate, ep->ex, leaves_one(H));
        experts_forward(c, up, xe, &e.up, ep->ex, leaves_one(H));
    }
    if (!h.data) {
        h = dgate; /* its place is free until swiglu_bwd */
        op_swiglu(d, h, gate, up);
    }
    experts_dw(c, g, &e.down, dout, h, ep->ex);
    experts_dx(c, dh, dout, &e.down, ep->ex, leaves_one(H));
    op_swiglu_bwd(d, dgate, dup, dh, gate, up);
    Tensor dxe = ep_partial(ep, &c->par, tmp, back),
           part = tensor_push(tmp, dxe.dtype, ep->room, H); /* dout is used up */
    part = tensor_rows(part, 0, ep->rows);
    experts_dx2(c, dxe, part, dgate, dup, &e, ep->ex, by_expert_cols(c));
    experts_dw(c, g, &e.gate, dgate, xe, ep->ex);
    experts_dw(c, g, &e.up, dup, xe, ep->ex);
    ep_combine(ep, &c->par, d, back, dxe);
    arena_pop(tmp, mark);
}

void moe_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x, const MoeKeep *k) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    const Dims *m = &c->m->d;
    const Routing *r = &k->routing;
    int64_t T = x.rows, n = T * m->topk, H = x.cols;
    Tensor back = push(c, tmp, n, H), dweight = push_f32(tmp, T, m->topk), own = k->xe;
    ep_count(&c->par, d, c->book, r->at);
    op_combine_bwd(d, back, dweight, dy, k->out, r->slot, r->weight);
    if (c->par.experts.size > 1 || !own.data) op_permute_slots(d, own = push(c, tmp, n, H), x, r->from, r->slot);
    EpPlan ep = plan_of(c, r);
    for (int i = 0; i < ep.rounds; i++) round_backward(c, layer, g, &ep, i, back, own, i == 0 ? k : NULL);
    op_permute_bwd(d, dx, back, r->slot);

    Tensor dlogits = push_f32(tmp, T, m->experts), dxr = push(c, tmp, T, H);
    Linear w = linear_of(c, P_ROUTER, NO_BIAS, layer);
    Route route = router(c, layer, k->logits, r);
    op_route_bwd(d, dlogits, dweight, &route);
    linear_dx(c, dxr, dlogits, &w, leaves_one(m->experts));
    op_add(d, dx, dx, dxr);
    linear_dw(c, g, &w, dlogits, x);
    if (m->shared) {
        shared_backward(c, layer, g, dxr, dy, x, k);
        op_add(d, dx, dx, dxr);
    }
    arena_pop(tmp, mark);
}
