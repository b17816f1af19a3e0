/* kept.c - of two layers less of one, of twice as many tokens less of as many: what a layer keeps of a token, without
 * what a batch, a tensor's end or a table of experts adds once. */
#include "plan/kept.h"

#include "model/model.h"

#include <string.h>

enum { TOKENS = 4096 }; /* as many elements of any width fill whole pieces of an arena */

static ModelShape shape_of(KeptHow how, int64_t tokens, Ops *ops) {
    DevKind like = dev_kind_cpu();
    *ops = *like.ops;
    ops->expands = how.gpu;
    like.ops = ops, like.act = how.act;
    return (ModelShape){ .tokens = tokens,
                         .outputs = 1,
                         .seqs = 1,
                         .longest = (int)tokens,
                         .backward = true,
                         .trained.recompute = how.recompute,
                         .like = like };
}

static double act_of(const ModelDesc *m, int layer, int layers, KeptHow how, int64_t tokens) {
    ModelDesc some = *m;
    some.d.layers = layers;
    for (int l = 0; l < layers; l++) some.d.layer[l] = m->d.layer[layer];
    Ops ops;
    ModelShape s = shape_of(how, tokens, &ops);
    Shard two = { .g = grid_one(&some) };
    two.g.dp = two.g.ep = 2;
    if (how.spread) s.shard = &two;
    return (double)model_sizes(&some, &s).act;
}

static double count(const ModelDesc *m, int layer, KeptHow how) {
    double more = 0;
    for (int k = 1; k <= 2; k++)
        more += (k == 2 ? 1 : -1) * (act_of(m, layer, 2, how, k * TOKENS) - act_of(m, layer, 1, how, k * TOKENS));
    return more / TOKENS;
}

static bool same_how(KeptHow a, KeptHow b) {
    return a.recompute == b.recompute && a.act == b.act && a.gpu == b.gpu && a.spread == b.spread;
}
double kept_layer(KeptMemo *memo, const ModelDesc *m, int layer, KeptHow how) {
    LayerSpec spec = m->d.layer[layer];
    how.spread = how.spread && dims_moe(&m->d, layer);
    for (int i = 0; i < memo->n; i++)
        if (!memcmp(&memo->at[i].spec, &spec, sizeof spec) && same_how(memo->at[i].how, how)) return memo->at[i].bytes;
    double bytes = count(m, layer, how);
    if (memo->n < (int)COUNT(memo->at))
        memo->at[memo->n].spec = spec, memo->at[memo->n].how = how, memo->at[memo->n++].bytes = bytes;
    return bytes;
}

double kept_tower(const ModelDesc *m, KeptHow how) {
    /* few beside the text: what is made again in backward is then the text's, whose room it is */
    const int64_t merge = m->d.vis.merge * m->d.vis.merge, tokens = TOKENS / 16;
    ModelDesc one = *m;
    one.d.layers = 1;
    Ops ops;
    ModelShape s = shape_of(how, TOKENS, &ops);
    double without = (double)model_sizes(&one, &s).act;
    s.pictures = (PicturesShape){
        .patches = tokens * merge, .tokens = tokens, .windows = 1, .frames = 1, .longest = (int)(tokens * merge)
    };
    return ((double)model_sizes(&one, &s).act - without) / (double)s.pictures.patches;
}
