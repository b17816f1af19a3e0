/* tower.c - the vision tower: patches -> rows that take the places of pad tokens.  A patch's embedding is one product
 * with its pixels; the blocks see windows, some of them whole frames; the merger makes one row of merge x merge
 * patches.  A picture's result depends on the picture and the weights alone, so it is the same in a prompt's prefill
 * and in training, alone and among others. */
#include "base/mathx.h"
#include "op/watch.h"
#include "layer/linear.h"
#include "model/model.h"

/* Frequencies that turn by row, then by column: freq [2, w/2], of which each has half. */
void tower_freq(float *freq, const Dims *d) {
    int64_t w = d->vis.hidden / d->vis.heads, half = w / 2;
    for (int64_t i = 0; i < w; i++) freq[i] = 0;
    for (int64_t i = 0; i < half / 2; i++) {
        float f = 1 / (float)mx_pow(d->vis.theta, (double)((float)(2 * i) / (float)half));
        freq[i] = f, freq[half + half / 2 + i] = f;
    }
}

/* One rank's, whatever grid the model has. */
static Ctx context(Model *m, const Pictures *p, Arena *act) {
    const Dims *d = &m->desc->d;
    double w = (double)(d->vis.hidden / d->vis.heads);
    return (Ctx){ .dev = m->dev,
                  .act = act,
                  .m = m->desc,
                  .l = m->local,
                  .tokens = p->patches,
                  .w = &m->w,
                  .par = groups_self(),
                  .leaves = 1,
                  .recompute = m->trained.recompute,
                  .scale = (float)(1 / sqrt(w)) };
}

static Seqs segments(const Model *m, const Pictures *p, int layer) {
    return m->desc->d.vis.full[layer] ? p->frames : p->windows;
}

Tensor tower_forward(Model *m, const Pictures *p, Arena *to, Arena *act, TowerKeep *keep) {
    const Dims *d = &m->desc->d;
    Dev *dev = m->dev;
    Ctx c = context(m, p, act);
    CHECK(!keep || keep->block, "no room for what the tower's blocks keep");
    Tensor out = push(&c, to, p->tokens, d->hidden);
    watch_at(dev, -1, WATCH_TOWER);
    size_t mark = arena_mark(&dev->tmp);
    Arena *a = keep_always(&c, keep);
    c.cossin = push_f32(a, p->patches, d->vis.hidden / d->vis.heads);
    op_rope_table(dev, c.cossin, p->pos, m->vis_freq, 1);
    Tensor spare[2], x;
    for (int i = 0; i < 2 && !keep; i++) spare[i] = push(&c, a, p->patches, d->vis.hidden);
    x = keep ? push(&c, a, p->patches, d->vis.hidden) : spare[1];
    Linear patch = linear_of(&c, P_VIS_PATCH, NO_BIAS, 0);
    linear_forward(&c, x, p->pixels, &patch, leaves_one(d->vis.pixels));
    for (int l = 0; l < d->vis.layers; l++) {
        Tensor y = keep ? push(&c, a, p->patches, d->vis.hidden) : spare[l % 2];
        vision_forward(&c, l, segments(m, p, l), y, x, keep ? &keep->block[l] : NULL);
        x = y;
    }
    merger_forward(&c, out, x, keep ? &keep->merger : NULL);
    if (keep) keep->cossin = c.cossin;
    arena_pop(&dev->tmp, mark);
    return out;
}

void tower_backward(Model *m, const Params *g, const Pictures *p, Tensor dout, Arena *act, const TowerKeep *keep) {
    const Dims *d = &m->desc->d;
    Dev *dev = m->dev;
    size_t mark = arena_mark(&dev->tmp);
    Ctx c = context(m, p, act);
    c.cossin = keep->cossin;
    Tensor turn[2] = { push(&c, &dev->tmp, p->patches, d->vis.hidden), push(&c, &dev->tmp, p->patches, d->vis.hidden) };
    merger_backward(&c, g, turn[0], dout, &keep->merger);
    int at = 0;
    for (int l = (int)d->vis.layers - 1; l >= 0; l--, at = !at)
        vision_backward(&c, l, segments(m, p, l), g, turn[!at], turn[at], &keep->block[l]);
    Linear patch = linear_of(&c, P_VIS_PATCH, NO_BIAS, 0);
    linear_dw(&c, g, &patch, turn[at], p->pixels);
    arena_pop(&dev->tmp, mark);
}
