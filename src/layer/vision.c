/* vision.c - a block of the vision tower: x + attention(norm x), then + feed-forward(norm of that), over patches whose
 * segments (windows or frames) see themselves whole.  One projection makes q, k and v; biases everywhere.  Never cut
 * over ranks: the context it is given is one rank's.  N patches, h width. */
#include "layer/linear.h"

#define VISION_EPS 1e-6f /* a constant in the published code, whatever config.json says of the text */

static Attn attn_of(const Ctx *c, Tensor qkv, Seqs segments) {
    int64_t h = c->m->d.vis.hidden;
    int heads = (int)c->m->d.vis.heads, w = (int)(h / heads);
    return (Attn){ .q = tensor_cols(qkv, 0, h),
                   .k = tensor_cols(qkv, h, h),
                   .v = tensor_cols(qkv, 2 * h, h),
                   .seqs = segments,
                   .heads = heads,
                   .kv_heads = heads,
                   .dk = w,
                   .dv = w,
                   .scale = c->scale };
}
static RopeShape q_and_k(const Ctx *c) { /* side by side they are one tensor with twice the heads */
    int heads = (int)c->m->d.vis.heads, w = (int)c->m->d.vis.hidden / heads;
    return (RopeShape){ 2 * heads, w, 0, w, false };
}

static void attn_forward(const Ctx *c, int layer, Seqs segments, Tensor y, Tensor x, VisionKeep *keep) {
    Dev *d = c->dev;
    int64_t N = x.rows, h = x.cols;
    Tensor qkv = push(c, keep_always(c, keep), N, 3 * h), o = push(c, keep_always(c, keep), N, h);
    Linear l = linear_of(c, P_VIS_QKV, P_VIS_QKVB, layer), out = linear_of(c, P_VIS_O, P_VIS_OB, layer);
    linear_forward(c, qkv, x, &l, leaves_one(h));
    op_rope(d, tensor_cols(qkv, 0, 2 * h), c->cossin, q_and_k(c), +1);
    Attn a = attn_of(c, qkv, segments);
    a.o = o;
    if (keep) a.lse = push_f32(c->act, N, a.heads);
    op_attend_all(d, &a);
    linear_forward(c, y, o, &out, leaves_one(h));
    if (keep) keep->a = a, keep->qkv = qkv;
}

static void attn_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x,
                          const VisionKeep *k) {
    Dev *d = c->dev;
    int64_t N = x.rows, h = x.cols;
    Tensor dO = push(c, &d->tmp, N, h), dqkv = push(c, &d->tmp, N, 3 * h);
    Linear l = linear_of(c, P_VIS_QKV, P_VIS_QKVB, layer), out = linear_of(c, P_VIS_O, P_VIS_OB, layer);
    linear_dw(c, g, &out, dy, k->a.o);
    linear_dx(c, dO, dy, &out, leaves_one(h));
    op_attend_all_bwd(d, tensor_cols(dqkv, 0, h), tensor_cols(dqkv, h, h), tensor_cols(dqkv, 2 * h, h), dO, &k->a);
    op_rope(d, tensor_cols(dqkv, 0, 2 * h), c->cossin, q_and_k(c), -1);
    linear_dw(c, g, &l, dqkv, x);
    linear_dx(c, dx, dqkv, &l, leaves_one(3 * h));
}

static void run(const Ctx *c, int layer, Seqs segments, Tensor y, Tensor x, VisionKeep *keep) {
    Arena *tmp = &c->dev->tmp;
    size_t mark = arena_mark(tmp);
    Tensor mid = push(c, keep_always(c, keep), x.rows, x.cols), out = push(c, tmp, x.rows, x.cols);
    size_t inner = arena_mark(tmp);
    Tensor n =
        norm_forward(c, x, param(c->w, P_VIS_NORM1, layer), VISION_EPS, keep_cheap(c, keep), keep ? &keep->n1 : NULL);
    attn_forward(c, layer, segments, out, n, keep);
    arena_pop(tmp, inner);
    n = norm_add_forward(c, mid, x, out, param(c->w, P_VIS_NORM2, layer), VISION_EPS, keep_cheap(c, keep),
                         keep ? &keep->n2 : NULL);
    mlp_forward(c, &mlp_vision, layer, out, n, keep ? &keep->mlp : NULL);
    op_add(c->dev, y, mid, out);
    arena_pop(tmp, mark);
}

void vision_forward(const Ctx *c, int layer, Seqs segments, Tensor y, Tensor x, VisionKeep *keep) {
    if (keep) *keep = (VisionKeep){ .x = x };
    run(c, layer, segments, y, x, c->recompute == RECOMPUTE_FULL ? NULL : keep);
}

void vision_backward(const Ctx *c, int layer, Seqs segments, const Params *g, Tensor dx, Tensor dy,
                     const VisionKeep *keep) {
    Arena *tmp = &c->dev->tmp;
    size_t mark = arena_mark(tmp), redo = arena_mark(c->act);
    Ctx whole = *c;
    VisionKeep again;
    if (c->recompute == RECOMPUTE_FULL) { /* forward once more, on top of what is kept */
        again = *keep;
        whole.recompute = RECOMPUTE_NONE;
        size_t scratch = arena_mark(tmp);
        run(&whole, layer, segments, push(c, tmp, dy.rows, dy.cols), keep->x, &again);
        arena_pop(tmp, scratch);
        c = &whole;
        keep = &again;
    }
    Tensor g1 = param(c->w, P_VIS_NORM1, layer), g2 = param(c->w, P_VIS_NORM2, layer);
    Tensor dmid = push(c, tmp, dy.rows, dy.cols), dn = push(c, tmp, dy.rows, dy.cols);
    size_t inner = arena_mark(tmp);
    mlp_backward(c, &mlp_vision, layer, g, dn, dy, norm_output(c, &keep->n2, g2, VISION_EPS), &keep->mlp);
    norm_backward(c, dmid, param(g, P_VIS_NORM2, layer), dn, g2, &keep->n2);
    op_add(c->dev, dmid, dmid, dy);
    arena_pop(tmp, inner);
    attn_backward(c, layer, g, dn, dmid, norm_output(c, &keep->n1, g1, VISION_EPS), keep);
    norm_backward(c, dx, param(g, P_VIS_NORM1, layer), dn, g1, &keep->n1);
    op_add(c->dev, dx, dx, dmid);
    arena_pop(c->act, redo);
    arena_pop(tmp, mark);
}

/* ---- the merger: m*m patches -> one token of the text's width */

void merger_forward(const Ctx *c, Tensor y, Tensor x, MergerKeep *keep) {
    Dev *d = c->dev;
    int64_t unit = c->m->d.vis.merge * c->m->d.vis.merge, wide = c->m->d.vis.merged, tokens = x.rows / unit;
    size_t mark = arena_mark(&d->tmp);
    Ctx always = *c;
    always.recompute = RECOMPUTE_NONE;
    Tensor n = norm_forward(&always, x, param(c->w, P_VIS_NORM_OUT, 0), VISION_EPS, keep_always(c, keep),
                            keep ? &keep->n : NULL);
    Tensor h = push(c, keep_always(c, keep), tokens, wide), act = push(c, keep_always(c, keep), tokens, wide);
    Linear fc1 = linear_of(c, P_VIS_FC1, P_VIS_FC1B, 0), fc2 = linear_of(c, P_VIS_FC2, P_VIS_FC2B, 0);
    linear_forward(c, h, tensor_shape(n, tokens, wide), &fc1, leaves_one(wide));
    op_gelu(d, act, h);
    linear_forward(c, y, act, &fc2, leaves_one(wide));
    if (keep) keep->h = h, keep->act = act;
    arena_pop(&d->tmp, mark);
}

void merger_backward(const Ctx *c, const Params *g, Tensor dx, Tensor dy, const MergerKeep *k) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    int64_t tokens = k->h.rows, wide = k->h.cols;
    Tensor dact = push(c, &d->tmp, tokens, wide), dn = push(c, &d->tmp, dx.rows, dx.cols);
    Linear fc1 = linear_of(c, P_VIS_FC1, P_VIS_FC1B, 0), fc2 = linear_of(c, P_VIS_FC2, P_VIS_FC2B, 0);
    linear_dw(c, g, &fc2, dy, k->act);
    linear_dx(c, dact, dy, &fc2, leaves_one(dy.cols));
    op_gelu_bwd(d, dact, dact, k->h);
    linear_dw(c, g, &fc1, dact, tensor_shape(k->n.y, tokens, wide));
    linear_dx(c, tensor_shape(dn, tokens, wide), dact, &fc1, leaves_one(wide));
    norm_backward(c, dx, param(g, P_VIS_NORM_OUT, 0), dn, param(c->w, P_VIS_NORM_OUT, 0), &k->n);
    arena_pop(&d->tmp, mark);
}
