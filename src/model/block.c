/* block.c - a decoder layer of this rank's tokens: residuals and norms around attention and
 * feed-forward; recomputation around both. */
#include "model/block.h"
#include "op/watch.h"

static bool is_moe(const Ctx *c, int layer) { return dims_moe(&c->m->d, layer); }
static float eps_of(const Ctx *c) { return (float)c->m->d.eps; }

/* A block of experts leaves one token's norm to the next one's q, k and v, where nothing is kept, this rank has all,
 * and the backend makes it there and the experts' sum at once; else it norms what it has at hand. */
static bool defers_norms(const Ctx *c, int layer, int64_t T) {
    const Dims *m = &c->m->d;
    return T == 1 && is_moe(c, layer) && !m->shared && mixer_of(c->m, layer)->takes_raw && !c->each
           && c->par.tp.size == 1 && c->par.experts.size == 1 && c->leaves == 1
           && op_defers_norms(c->dev, m->hidden, param(c->w, P_Q, layer).rows + 2 * param(c->w, P_K, layer).rows,
                              c->l.expert_ffn, m->topk);
}

/* y = mid + what x gives; out is scratch.  begin: experts' x is still to be made (moe_forward) */
static void feed_forward(const Ctx *c, int layer, Tensor y, Tensor mid, Tensor out, Tensor x, const Known *k,
                         bool known, const Beginning *begin, const NextNorm *next_norm, BlockKeep *keep) {
    Ending end = { .y = y, .mid = mid, .eps = eps_of(c) };
    bool sums = next_norm && defers_norms(c, layer, x.rows), ends = next_norm && next_norm->wanted,
         at_once = sums || (ends && is_moe(c, layer) && !c->m->d.shared);
    if (ends && !sums) end.n = next_norm->n, end.g = norm_gain(c, P_NORM1, layer + 1);
    if (is_moe(c, layer))
        moe_forward(c, layer, out, x, &k->routing, known, begin, at_once ? &end : NULL, keep ? &keep->moe : NULL);
    else mlp_forward(c, &mlp_dense, layer, out, x, keep ? &keep->mlp : NULL);
    if (at_once) return;
    if (ends) op_add_rmsnorm(c->dev, y, end.n, TENSOR_NONE, mid, out, end.g, end.eps);
    else op_add(c->dev, y, mid, out);
}

static void feed_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x,
                          const BlockKeep *keep) {
    if (is_moe(c, layer)) moe_backward(c, layer, g, dx, dy, x, &keep->moe);
    else mlp_backward(c, &mlp_dense, layer, g, dx, dy, x, &keep->mlp);
}

static void run(const Ctx *c, int layer, Tensor y, Tensor x, const Known *k, bool known, const NextNorm *next_norm,
                BlockKeep *keep) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    Tensor mid = push(c, keep_always(c, keep), x.rows, x.cols), out = push(c, tmp, x.rows, x.cols);

    size_t inner = arena_mark(tmp);
    Raw raw = { x, norm_gain(c, P_NORM1, layer), eps_of(c) };
    bool there = next_norm && next_norm->there && !defers_norms(c, layer - 1, x.rows),
         is_raw = next_norm && !there && defers_norms(c, layer, x.rows);
    watch_at(d, layer, "norm before attention");
    Tensor n = there || is_raw ? next_norm->n
                               : norm_forward(c, x, raw.g, raw.eps, keep_cheap(c, keep), keep ? &keep->n1 : NULL);
    watch_at(d, layer, "attention");
    mixer_of(c->m, layer)
        ->forward(c, layer, out, n, is_raw ? &raw : NULL, &k->attended, known, keep ? &keep->mixer : NULL);
    arena_pop(tmp, inner);

    watch_at(d, layer, "norm before feed-forward");
    Tensor g = norm_gain(c, P_NORM2, layer);
    Beginning begin = { mid, x, out, g, eps_of(c) };
    bool late = !keep && is_moe(c, layer);
    n = late ? push(c, tmp, x.rows, x.cols)
             : norm_add_forward(c, mid, x, out, g, eps_of(c), keep_cheap(c, keep), keep ? &keep->n2 : NULL);
    watch_at(d, layer, is_moe(c, layer) ? "experts" : "feed-forward");
    feed_forward(c, layer, y, mid, out, n, k, known, late ? &begin : NULL, next_norm, keep);
    arena_pop(tmp, mark);
}

void block_forward(const Ctx *c, int layer, Tensor y, Tensor x, const NextNorm *next_norm, BlockKeep *keep) {
    size_t mark = arena_mark(&c->dev->tmp);
    Known k = { 0 };
    bool full = c->recompute == RECOMPUTE_FULL;
    if (is_moe(c, layer)) k.routing = routing_push(c, x.rows, keep_always(c, keep));
    if (keep && full) k.attended = mixer_of(c->m, layer)->attended(c, c->act);
    if (keep) *keep = (BlockKeep){ .x = x, .known = k };
    run(c, layer, y, x, &k, false, next_norm, full ? NULL : keep);
    arena_pop(&c->dev->tmp, mark);
}

void block_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, const BlockKeep *keep) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    Ctx whole = *c;
    if (c->recompute == RECOMPUTE_FULL && c->again) whole.act = c->again;
    size_t mark = arena_mark(tmp), redo = arena_mark(whole.act);
    BlockKeep again;
    if (c->recompute
        == RECOMPUTE_FULL) { /* forward once more, on top of what is kept or where that is done for all flights */
        again = *keep;
        whole.recompute = RECOMPUTE_NONE;
        size_t scratch = arena_mark(tmp);
        run(&whole, layer, push(c, tmp, dy.rows, dy.cols), keep->x, &keep->known, true, NULL, &again);
        arena_pop(tmp, scratch);
        c = &whole;
        keep = &again;
    }
    Tensor g1 = norm_gain(c, P_NORM1, layer), g2 = norm_gain(c, P_NORM2, layer);
    Tensor dmid = push(c, tmp, dy.rows, dy.cols), dn = push(c, tmp, dy.rows, dy.cols);

    size_t inner = arena_mark(tmp);
    feed_backward(c, layer, g, dn, dy, norm_output(c, &keep->n2, g2, eps_of(c)), keep);
    norm_add_backward(c, dmid, param(g, P_NORM2, layer), dn, g2, &keep->n2, dy);
    arena_pop(tmp, inner);

    mixer_of(c->m, layer)->backward(c, layer, g, dn, dmid, norm_output(c, &keep->n1, g1, eps_of(c)), &keep->mixer);
    norm_add_backward(c, dx, param(g, P_NORM1, layer), dn, g1, &keep->n1, dmid);
    arena_pop(whole.act, redo);
    arena_pop(tmp, mark);
}
