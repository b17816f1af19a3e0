/* op_fused.c - the front doors of op_fused_list.h: what each is made of, and the backend's way to do it at once.  A dry
 * device has none, so a plan counts the scratch of the parts: one at once takes no more. */
#include "op/op_fused.h"
#include "op/op_check.h"
#include "op/profile.h"

/* The backend's slot, if it has one and takes these shapes: 'out' is what a profile shows. */
#define AT_ONCE(name, out, args)                                                                                       \
    (!d->watch && d->ops->fused && d->ops->fused->name && at_begin(d, #name, out)                                      \
     && at_end(d, d->ops->fused->name args))
static bool at_begin(Dev *d, const char *name, Tensor out) {
    if (d->profile) profile_begin(d, name, out);
    d->ops->enter(d, false);
    return true;
}
static bool at_end(Dev *d, bool done) {
    d->ops->leave(d);
    if (d->profile) profile_end(d);
    return done;
}

void op_linear_dw_first(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    check_linear_dw(d, dw, db, dy, x);
    if (AT_ONCE(linear_dw_first, dw, (d, dw, db, dy, x))) return;
    op_zero(d, dw);
    if (db.data) op_zero(d, db);
    op_linear_dw(d, dw, db, dy, x);
}
void op_grouped_dw_first(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex) {
    check_grouped_dw(d, dw, dy, x, ex);
    if (AT_ONCE(grouped_dw_first, dw, (d, dw, dy, x, ex))) return;
    op_zero(d, dw);
    op_grouped_dw(d, dw, dy, x, ex);
}
void op_grouped_dx2(Dev *d, Tensor dx, Tensor part, Tensor dy1, Tensor w1, Tensor dy2, Tensor w2, Seqs ex, Leaves sum) {
    check_grouped_dx(d, dx, dy1, w1, ex, sum);
    check_grouped_dx(d, part, dy2, w2, ex, sum);
    if (AT_ONCE(grouped_dx2, dx, (d, dx, part, dy1, w1, dy2, w2, ex, sum))) return;
    op_grouped_dx(d, dx, dy1, w1, ex, sum);
    op_grouped_dx(d, part, dy2, w2, ex, sum);
    op_add(d, dx, dx, part);
}
void op_linear2(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    for (int i = 0; i < 2; i++) check_linear(d, y[i], x, w[i], b[i], sum);
    if (AT_ONCE(linear2, y[0], (d, y, x, w, b, sum))) return;
    for (int i = 0; i < 2; i++) op_linear(d, y[i], x, w[i], b[i], sum);
}
void op_linear_dx3(Dev *d, Tensor dx, Tensor part, const Tensor *dy, const Tensor *w, const Leaves *sum) {
    for (int i = 0; i < 3; i++) check_linear_dx(d, i ? part : dx, dy[i], w[i], sum[i]);
    if (AT_ONCE(linear_dx3, dx, (d, dx, part, dy, w, sum))) return;
    op_linear_dx(d, dx, dy[0], w[0], sum[0]);
    for (int i = 1; i < 3; i++) {
        op_linear_dx(d, part, dy[i], w[i], sum[i]);
        op_add(d, dx, dx, part);
    }
}
void op_linear3(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    for (int i = 0; i < 3; i++) check_linear(d, y[i], x, w[i], b[i], sum);
    if (AT_ONCE(linear3, y[0], (d, y, x, w, b, sum))) return;
    for (int i = 0; i < 3; i++) op_linear(d, y[i], x, w[i], b[i], sum);
}
void op_add_rmsnorm(Dev *d, Tensor sum, Tensor y, Tensor rstd, Tensor a, Tensor b, Tensor g, float eps) {
    check_add(d, sum, a, b);
    check_rmsnorm(d, y, rstd, sum, g, eps);
    if (AT_ONCE(add_rmsnorm, y, (d, sum, y, rstd, a, b, g, eps))) return;
    op_add(d, sum, a, b);
    op_rmsnorm(d, y, rstd, sum, g, eps);
}
void op_combine_add_rmsnorm(Dev *d, Tensor sum, Tensor y, Tensor part, Tensor a, Tensor rows, Tensor slot,
                            Tensor weight, Tensor g, float eps) {
    check_combine(d, part, rows, slot, weight);
    check_add(d, sum, a, part);
    check_rmsnorm(d, y, TENSOR_NONE, sum, g, eps);
    if (AT_ONCE(combine_add_rmsnorm, y, (d, sum, y, part, a, rows, slot, weight, g, eps))) return;
    op_combine(d, part, rows, slot, weight);
    op_add_rmsnorm(d, sum, y, TENSOR_NONE, a, part, g, eps);
}
void op_rmsnorm_bwd_add(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g, Tensor more) {
    check_rmsnorm_bwd(d, dx, dg, dy, x, rstd, g);
    check_add(d, dx, dx, more);
    if (AT_ONCE(rmsnorm_bwd_add, dx, (d, dx, dg, dy, x, rstd, g, more))) return;
    op_rmsnorm_bwd(d, dx, dg, dy, x, rstd, g);
    op_add(d, dx, dx, more);
}
static void norm_rope(Dev *d, const NormRope *n, Tensor cossin, float eps, bool only_check) {
    int64_t rows = n->raw.rows * n->s.heads;
    Tensor y = tensor_shape(n->y, rows, n->s.width), raw = tensor_shape(n->raw, rows, n->s.width);
    if (only_check) {
        check_rmsnorm(d, y, n->rstd, raw, n->g, eps);
        check_rope(d, n->y, cossin, n->s, +1);
        return;
    }
    op_rmsnorm(d, y, n->rstd, raw, n->g, eps);
    op_rope(d, n->y, cossin, n->s, +1);
}
void op_norm_rope2(Dev *d, const NormRope *q, const NormRope *k, Tensor cossin, float eps) {
    norm_rope(d, q, cossin, eps, true);
    norm_rope(d, k, cossin, eps, true);
    if (AT_ONCE(norm_rope2, q->y, (d, q, k, cossin, eps))) return;
    norm_rope(d, q, cossin, eps, false);
    norm_rope(d, k, cossin, eps, false);
}
void op_norm_rope_put(Dev *d, const NormRope *q, const NormRope *k, Tensor cossin, float eps, Kv kv, Tensor v,
                      Paged rows) {
    norm_rope(d, q, cossin, eps, true);
    norm_rope(d, k, cossin, eps, true);
    check_kv_put(d, kv, k->y, v, rows);
    if (AT_ONCE(norm_rope_put, q->y, (d, q, k, cossin, eps, kv, v, rows))) return;
    op_norm_rope2(d, q, k, cossin, eps);
    op_kv_put(d, kv, k->y, v, rows);
}
void op_route_sort(Dev *d, const Route *r, Tensor at, Tensor from, Tensor slot) {
    int experts = (int)r->logits.cols;
    check_route(d, r);
    check_moe_sort(d, at, from, slot, r->pick, experts);
    if (AT_ONCE(route_sort, r->pick, (d, r, at, from, slot))) return;
    op_route(d, r);
    op_moe_sort(d, at, from, slot, r->pick, experts);
}
void op_grouped_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu, Seqs ex, Leaves sum,
                       bool keep) {
    check_grouped(d, gate, x, wg, ex, sum);
    check_grouped(d, up, x, wu, ex, sum);
    check_swiglu(d, h, gate, up);
    if (AT_ONCE(grouped_swiglu, h, (d, h, gate, up, x, wg, wu, ex, sum, keep))) return;
    op_grouped(d, gate, x, wg, ex, sum);
    op_grouped(d, up, x, wu, ex, sum);
    op_swiglu(d, h, gate, up);
}
void op_norm_rope_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor raw, Tensor rstd, Tensor g, Tensor cossin,
                      RopeShape s) {
    int64_t rows = raw.rows * s.heads;
    Tensor by_head[] = { tensor_shape(dx, rows, s.width), tensor_shape(dy, rows, s.width),
                         tensor_shape(raw, rows, s.width) };
    check_rope(d, dy, cossin, s, -1);
    check_rmsnorm_bwd(d, by_head[0], dg, by_head[1], by_head[2], rstd, g);
    if (AT_ONCE(norm_rope_bwd, dx, (d, dx, dg, dy, raw, rstd, g, cossin, s))) return;
    op_rope(d, dy, cossin, s, -1);
    op_rmsnorm_bwd(d, by_head[0], dg, by_head[1], by_head[2], rstd, g);
}
void op_permute_slots(Dev *d, Tensor y, Tensor x, Tensor from, Tensor slot) {
    check_permute(d, y, x, from);
    check_permute_bwd(d, x, y, slot);
    if (AT_ONCE(permute_slots, y, (d, y, x, from, slot))) return;
    op_permute(d, y, x, from);
}
void op_linear_dw2_first(Dev *d, const Tensor *dw, const Tensor *dy, Tensor x) {
    for (int i = 0; i < 2; i++) check_linear_dw(d, dw[i], TENSOR_NONE, dy[i], x);
    if (AT_ONCE(linear_dw2_first, dw[0], (d, dw, dy, x))) return;
    for (int i = 0; i < 2; i++) op_linear_dw_first(d, dw[i], TENSOR_NONE, dy[i], x);
}
void op_logprob_bwd_first(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h) {
    check_logprob_bwd(d, dh, dw, dlp, dent, h);
    if (AT_ONCE(logprob_bwd_first, dh, (d, dh, dw, dlp, dent, h))) return;
    if (dw.data) op_zero(d, dw);
    op_logprob_bwd(d, dh, dw, dlp, dent, h);
}
void op_permute_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from, Tensor slot,
                       Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next) {
    check_permute(d, own, x, from);
    check_grouped(d, gate, own, wg, ex, sum);
    check_grouped(d, up, own, wu, ex, sum);
    check_swiglu(d, h, gate, up);
    if (AT_ONCE(permute_swiglu, h, (d, h, gate, up, own, x, from, slot, wg, wu, ex, sum, next))) return;
    if (slot.data) op_permute_slots(d, own, x, from, slot);
    else op_permute(d, own, x, from);
    op_grouped_swiglu(d, h, gate, up, own, wg, wu, ex, sum, false);
}
void op_route_swiglu(Dev *d, const Route *r, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from,
                     Tensor slot, Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next) {
    check_route(d, r);
    check_moe_sort(d, ex.at, from, slot, r->pick, (int)r->logits.cols);
    check_permute(d, own, x, from);
    check_grouped(d, gate, own, wg, ex, sum);
    check_grouped(d, up, own, wu, ex, sum);
    check_swiglu(d, h, gate, up);
    if (AT_ONCE(route_swiglu, h, (d, r, h, gate, up, own, x, from, slot, wg, wu, ex, sum, next))) return;
    op_route_sort(d, r, ex.at, from, slot);
    op_permute_swiglu(d, h, gate, up, own, x, from, slot, wg, wu, ex, sum, next);
}
void op_add_rmsnorm_linear(Dev *d, Tensor sum, Tensor y, Tensor z, Tensor a, Tensor b, Tensor g, float eps, Tensor w,
                           Leaves over) {
    check_add(d, sum, a, b);
    check_rmsnorm(d, y, TENSOR_NONE, sum, g, eps);
    check_linear(d, z, y, w, TENSOR_NONE, over);
    if (AT_ONCE(add_rmsnorm_linear, z, (d, sum, y, z, a, b, g, eps, w, over))) return;
    op_add_rmsnorm(d, sum, y, TENSOR_NONE, a, b, g, eps);
    op_linear(d, z, y, w, TENSOR_NONE, over);
}
void op_rmsnorm_linear3(Dev *d, const Tensor *y, Tensor n, Tensor x, Tensor g, float eps, const Tensor *w,
                        const Tensor *b, Leaves over) {
    check_rmsnorm(d, n, TENSOR_NONE, x, g, eps);
    for (int i = 0; i < 3; i++) check_linear(d, y[i], n, w[i], b[i], over);
    if (AT_ONCE(rmsnorm_linear3, y[0], (d, y, n, x, g, eps, w, b, over))) return;
    op_rmsnorm(d, n, TENSOR_NONE, x, g, eps);
    op_linear3(d, y, n, w, b, over);
}
void op_grouped_combine_add(Dev *d, Tensor sum, Tensor part, Tensor out, Tensor a, Tensor h, Tensor w, Seqs ex,
                            Leaves over, Tensor pick, Tensor slot, Tensor weight) {
    check_grouped(d, out, h, w, ex, over);
    check_combine(d, part, out, slot, weight);
    check_add(d, sum, a, part);
    if (AT_ONCE(grouped_combine_add, sum, (d, sum, part, out, a, h, w, ex, over, pick, slot, weight))) return;
    op_grouped(d, out, h, w, ex, over);
    op_combine(d, part, out, slot, weight);
    op_add(d, sum, a, part);
}
bool op_defers_norms(const Dev *d, int64_t hidden, int64_t qkv, int64_t expert, int64_t topk) {
    const Fused *f = d->ops->fused;
    return f && !d->watch && f->defers_norms && f->defers_norms(d, hidden, qkv, expert, topk);
}
