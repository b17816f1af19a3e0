/* linear.c - the model's linear maps by the ops that make them, several at once where op/ has that. */
#include "layer/lora.h"

Linear linear_of(const Ctx *c, ParamId id, ParamId bias, int layer) {
    Linear l = { .id = id,
                 .bias = bias,
                 .layer = layer,
                 .w = param(c->w, id, layer),
                 .b = bias == NO_BIAS ? TENSOR_NONE : param(c->w, bias, layer) };
    lora_find(c, &l);
    return l;
}
static Tensor bias_grad(const Params *g, const Linear *l) {
    return l->bias == NO_BIAS ? TENSOR_NONE : param(g, l->bias, l->layer);
}
/* Nothing is there yet, and this product is all that there will be of this micro-batch. */
static bool written(const Params *g, const Linear *l) {
    return g->fresh && param_desc(g, l->id, l->layer)->one_product;
}

void linear_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l, Leaves sum) {
    op_linear(c->dev, y, x, l->w, l->b, sum);
    if (lora_on(l)) lora_forward(c, y, x, l);
}
void linear_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l, Leaves sum) {
    op_linear_dx(c->dev, dx, dy, l->w, sum);
    if (lora_on(l)) lora_dx(c, dx, dy, l);
}
void linear_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x) {
    Tensor dw = param(g, l->id, l->layer);
    if (dw.data) (written(g, l) ? op_linear_dw_first : op_linear_dw)(c->dev, dw, bias_grad(g, l), dy, x);
    if (lora_on(l)) lora_dw(c, g, l, dy, x);
}

void linear_exit(const Ctx *c, Tensor y, Tensor part, Tensor x, const Linear *l, Leaves sum) {
    if (x.data) op_linear(c->dev, part, x, l->w, l->b, sum);
    else op_zero(c->dev, part);
    tp_exit(&c->par, c->dev, y, part);
    if (lora_on(l)) lora_cut_forward(c, y, x, l, sum);
}
void linear_exit_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l) {
    linear_dx(c, dx, dy, l, leaves_one(dy.cols));
}
void linear_exit_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Leaves sum) {
    Tensor dw = param(g, l->id, l->layer);
    if (dw.data && x.data) (written(g, l) ? op_linear_dw_first : op_linear_dw)(c->dev, dw, bias_grad(g, l), dy, x);
    if (lora_on(l)) lora_cut_dw(c, g, l, dy, x, sum);
}

void linears_forward(const Ctx *c, const Tensor *y, Tensor x, const Raw *raw, const Linear *l, int n, Leaves sum) {
    Tensor w[3], b[3];
    CHECK(n == 3 || (n == 2 && !raw), "%d of one x", n);
    for (int i = 0; i < n; i++) w[i] = l[i].w, b[i] = l[i].b;
    if (raw) op_rmsnorm_linear3(c->dev, y, x, raw->x, raw->g, raw->eps, w, b, sum);
    else (n == 3 ? op_linear3 : op_linear2)(c->dev, y, x, w, b, sum);
    for (int i = 0; i < n; i++)
        if (lora_on(&l[i])) lora_forward(c, y[i], x, &l[i]);
}
void linears_dx3(const Ctx *c, Tensor dx, Tensor part, const Tensor *dy, const Linear *l, const Leaves *sum) {
    const Tensor w[] = { l[0].w, l[1].w, l[2].w };
    op_linear_dx3(c->dev, dx, part, dy, w, sum);
    for (int i = 0; i < 3; i++)
        if (lora_on(&l[i])) lora_dx(c, dx, dy[i], &l[i]);
}
void linears_dw2(const Ctx *c, const Params *g, const Linear *l, const Tensor *dy, Tensor x) {
    const Tensor dw[] = { param(g, l[0].id, l[0].layer), param(g, l[1].id, l[1].layer) };
    bool at_once = dw[0].data && dw[1].data && written(g, &l[0]) && written(g, &l[1]);
    at_once = at_once && !lora_on(&l[0]) && !lora_on(&l[1]);
    if (at_once && !bias_grad(g, &l[0]).data && !bias_grad(g, &l[1]).data) op_linear_dw2_first(c->dev, dw, dy, x);
    else
        for (int i = 0; i < 2; i++) linear_dw(c, g, &l[i], dy[i], x);
}
void linear_begin(const Ctx *c, Tensor y, Tensor x, const Beginning *b, const Linear *l, Leaves sum) {
    op_add_rmsnorm_linear(c->dev, b->sum, x, y, b->a, b->b, b->g, b->eps, l->w, sum);
    if (lora_on(l)) lora_forward(c, y, x, l);
}

void linear_heads(const Ctx *c, Tensor y, Tensor x, const Linear *l, HeadMap map) {
    op_headwise(c->dev, y, x, l->w, map);
    if (lora_on(l)) lora_heads(c, y, x, l, map);
}
void linear_heads_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, HeadMap map) {
    Tensor dw = param(g, l->id, l->layer);
    if (dw.data) op_headwise_dw(c->dev, dw, dy, x, map);
    if (lora_on(l)) lora_heads_dw(c, g, l, dy, x, map);
}

static bool adapted(const ExpertLinears *e) { return lora_on(&e->gate) || lora_on(&e->up); }
ExpertLinears experts_of(const Ctx *c, int layer) {
    return (ExpertLinears){ linear_of(c, P_E_GATE, NO_BIAS, layer), linear_of(c, P_E_UP, NO_BIAS, layer),
                            linear_of(c, P_E_DOWN, NO_BIAS, layer) };
}
void experts_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l, Seqs ex, Leaves sum) {
    op_grouped(c->dev, y, x, l->w, ex, sum);
    if (lora_on(l)) lora_experts(c, y, x, l, ex);
}
void experts_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l, Seqs ex, Leaves sum) {
    op_grouped_dx(c->dev, dx, dy, l->w, ex, sum);
    if (lora_on(l)) lora_experts_dx(c, dx, dy, l, ex);
}
void experts_dx2(const Ctx *c, Tensor dx, Tensor part, Tensor dgate, Tensor dup, const ExpertLinears *e, Seqs ex,
                 Leaves sum) {
    op_grouped_dx2(c->dev, dx, part, dgate, e->gate.w, dup, e->up.w, ex, sum);
    if (lora_on(&e->gate)) lora_experts_dx(c, dx, dgate, &e->gate, ex);
    if (lora_on(&e->up)) lora_experts_dx(c, dx, dup, &e->up, ex);
}
void experts_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Seqs ex) {
    Tensor dw = param(g, l->id, l->layer);
    if (dw.data) (written(g, l) ? op_grouped_dw_first : op_grouped_dw)(c->dev, dw, dy, x, ex);
    if (lora_on(l)) lora_experts_dw(c, g, l, dy, x, ex);
}
void experts_hidden(const Ctx *c, Tensor h, Tensor gate, Tensor up, Tensor x, const ExpertLinears *e, Seqs ex,
                    Leaves sum, bool keep) {
    if (!adapted(e)) {
        op_grouped_swiglu(c->dev, h, gate, up, x, e->gate.w, e->up.w, ex, sum, keep);
        return;
    }
    experts_forward(c, gate, x, &e->gate, ex, sum);
    experts_forward(c, up, x, &e->up, ex, sum);
    op_swiglu(c->dev, h, gate, up);
}
void experts_hidden_of(const Ctx *c, const Route *choose, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x,
                       const Routing *r, const ExpertLinears *e, Seqs ex, Leaves sum) {
    Dev *d = c->dev;
    Tensor wg = e->gate.w, wu = e->up.w, next = e->down.w;
    if (adapted(e)) {
        if (choose) op_route_sort(d, choose, ex.at, r->from, r->slot);
        op_permute_slots(d, own, x, r->from, r->slot);
        experts_hidden(c, h, gate, up, own, e, ex, sum, false);
    } else if (choose) op_route_swiglu(d, choose, h, gate, up, own, x, r->from, r->slot, wg, wu, ex, sum, next);
    else op_permute_swiglu(d, h, gate, up, own, x, r->from, r->slot, wg, wu, ex, sum, next);
}
void experts_end(const Ctx *c, const Ending *end, Tensor part, Tensor out, Tensor h, const Linear *down, Seqs ex,
                 Leaves sum, const Routing *r) {
    if (lora_on(down)) {
        experts_forward(c, out, h, down, ex, sum);
        op_combine(c->dev, part, out, r->slot, r->weight);
        op_add(c->dev, end->y, end->mid, part);
        return;
    }
    op_grouped_combine_add(c->dev, end->y, part, out, end->mid, h, down->w, ex, sum, r->pick, r->slot, r->weight);
}
