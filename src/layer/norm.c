/* norm.c - RMSNorm as a layer: its output is cheap, so it may be dropped and made again from x. */
#include "layer/layer.h"

Tensor norm_gain(const Ctx *c, ParamId id, int layer) {
    Tensor g = param(c->w, id, layer);
    if (!c->m->d.centred) return g;
    Tensor y = push_f32(&c->dev->tmp, 1, g.cols);
    op_plus_one(c->dev, y, g);
    return y;
}

Tensor norm_forward(const Ctx *c, Tensor x, Tensor g, float eps, Arena *to, NormKeep *keep) {
    Tensor rstd = push_f32(keep_always(c, keep), x.rows, 1);
    Tensor y = push(c, to, x.rows, x.cols);
    op_rmsnorm(c->dev, y, rstd, x, g, eps);
    if (keep) *keep = (NormKeep){ .x = x, .rstd = rstd, .y = kept(c, y) };
    return y;
}

Tensor norm_add_forward(const Ctx *c, Tensor sum, Tensor a, Tensor b, Tensor g, float eps, Arena *to, NormKeep *keep) {
    Tensor rstd = push_f32(keep_always(c, keep), sum.rows, 1);
    Tensor y = push(c, to, sum.rows, sum.cols);
    op_add_rmsnorm(c->dev, sum, y, rstd, a, b, g, eps);
    if (keep) *keep = (NormKeep){ .x = sum, .rstd = rstd, .y = kept(c, y) };
    return y;
}

Tensor norm_output(const Ctx *c, const NormKeep *k, Tensor g, float eps) {
    if (k->y.data) return k->y;
    Arena *tmp = &c->dev->tmp;
    Tensor y = push(c, tmp, k->x.rows, k->x.cols), rstd = push_f32(tmp, k->x.rows, 1);
    op_rmsnorm(c->dev, y, rstd, k->x, g, eps);
    return y;
}

void norm_backward(const Ctx *c, Tensor dx, Tensor dg, Tensor dy, Tensor g, const NormKeep *k) {
    op_rmsnorm_bwd(c->dev, dx, dg, dy, k->x, k->rstd, g);
}

void norm_add_backward(const Ctx *c, Tensor dx, Tensor dg, Tensor dy, Tensor g, const NormKeep *k, Tensor more) {
    op_rmsnorm_bwd_add(c->dev, dx, dg, dy, k->x, k->rstd, g, more);
}
