/* linear.c - the model's linear maps by the ops that make them, several at once where op/ has that. */
#include "layer/linear.h"

Linear linear_of(const Ctx *c, ParamId id, ParamId bias, int layer) {
    return (Linear){ id, bias, layer, param(c->w, id, layer),
                     bias == NO_BIAS ? TENSOR_NONE : param(c->w, bias, layer) };
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
}
void linear_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l, Leaves sum) {
    op_linear_dx(c->dev, dx, dy, l->w, sum);
}
void linear_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x) {
    Tensor dw = param(g, l->id, l->layer);
    if (dw.data) (written(g, l) ? op_linear_dw_first : op_linear_dw)(c->dev, dw, bias_grad(g, l), dy, x);
}

void linears_forward(const Ctx *c, const Tensor *y, Tensor x, const Raw *raw, const Linear *l, int n, Leaves sum) {
    Tensor w[3], b[3];
    CHECK(n == 3 || (n == 2 && !raw), "%d of one x", n);
    for (int i = 0; i < n; i++) w[i] = l[i].w, b[i] = l[i].b;
    if (raw) op_rmsnorm_linear3(c->dev, y, x, raw->x, raw->g, raw->eps, w, b, sum);
    else (n == 3 ? op_linear3 : op_linear2)(c->dev, y, x, w, b, sum);
}
void linears_dx3(const Ctx *c, Tensor dx, Tensor part, const Tensor *dy, const Linear *l, const Leaves *sum) {
    const Tensor w[] = { l[0].w, l[1].w, l[2].w };
    op_linear_dx3(c->dev, dx, part, dy, w, sum);
}
void linears_dw2(const Ctx *c, const Params *g, const Linear *l, const Tensor *dy, Tensor x) {
    const Tensor dw[] = { param(g, l[0].id, l[0].layer), param(g, l[1].id, l[1].layer) };
    bool at_once = dw[0].data && dw[1].data && written(g, &l[0]) && written(g, &l[1]);
    if (at_once && !bias_grad(g, &l[0]).data && !bias_grad(g, &l[1]).data) op_linear_dw2_first(c->dev, dw, dy, x);
    else
        for (int i = 0; i < 2; i++) linear_dw(c, g, &l[i], dy[i], x);
}
void linear_begin(const Ctx *c, Tensor y, Tensor x, const Beginning *b, const Linear *l, Leaves sum) {
    op_add_rmsnorm_linear(c->dev, b->sum, x, y, b->a, b->b, b->g, b->eps, l->w, sum);
}

void linear_heads(const Ctx *c, Tensor y, Tensor x, const Linear *l, HeadMap map) {
    op_headwise(c->dev, y, x, l->w, map);
}
void linear_heads_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, HeadMap map) {
    Tensor dw = param(g, l->id, l->layer);
    if (dw.data) op_headwise_dw(c->dev, dw, dy, x, map);
}

ExpertLinears experts_of(const Ctx *c, int layer) {
    return (ExpertLinears){ linear_of(c, P_E_GATE, NO_BIAS, layer), linear_of(c, P_E_UP, NO_BIAS, layer),
                            linear_of(c, P_E_DOWN, NO_BIAS, layer) };
}
void experts_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l, Seqs ex, Leaves sum) {
    op_grouped(c->dev, y, x, l->w, ex, sum);
}
void experts_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l, Seqs ex, Leaves sum) {
    op_grouped_dx(c->dev, dx, dy, l->w, ex, sum);
}
void experts_dx2(const Ctx *c, Tensor dx, Tensor part, Tensor dgate, Tensor dup, const ExpertLinears *e, Seqs ex,
                 Leaves sum) {
    op_grouped_dx2(c->dev, dx, part, dgate, e->gate.w, dup, e->up.w, ex, sum);
}
void experts_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Seqs ex) {
    Tensor dw = param(g, l->id, l->layer);
    if (dw.data) (written(g, l) ? op_grouped_dw_first : op_grouped_dw)(c->dev, dw, dy, x, ex);
}
void experts_hidden(const Ctx *c, Tensor h, Tensor gate, Tensor up, Tensor x, const ExpertLinears *e, Seqs ex,
                    Leaves sum, bool keep) {
    op_grouped_swiglu(c->dev, h, gate, up, x, e->gate.w, e->up.w, ex, sum, keep);
}
void experts_hidden_of(const Ctx *c, const Route *choose, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x,
                       const Routing *r, const ExpertLinears *e, Seqs ex, Leaves sum) {
    Dev *d = c->dev;
    Tensor wg = e->gate.w, wu = e->up.w, next = e->down.w;
    if (choose) op_route_swiglu(d, choose, h, gate, up, own, x, r->from, r->slot, wg, wu, ex, sum, next);
    else op_permute_swiglu(d, h, gate, up, own, x, r->from, r->slot, wg, wu, ex, sum, next);
}
void experts_end(const Ctx *c, const Ending *end, Tensor part, Tensor out, Tensor h, const Linear *down, Seqs ex,
                 Leaves sum, const Routing *r) {
    op_grouped_combine_add(c->dev, end->y, part, out, end->mid, h, down->w, ex, sum, r->pick, r->slot, r->weight);
}
