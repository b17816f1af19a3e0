/* arena.c - bytes of each arena of a run, from the model's numbers.
 * The list follows layer/ and model/ tensor by tensor. */
#include "plan/arena.h"

#include "tensor/tensor.h"

typedef struct {
    KeptTensor *at;
    int n;
} List;

static void add(List *l, int64_t per_token, bool cheap, bool wide) {
    CHECK(l->n < MOST_KEPT, "more than %d kept tensors", MOST_KEPT);
    if (per_token > 0) l->at[l->n++] = (KeptTensor){ .per_token = (double)per_token, .cheap = cheap, .wide = wide };
}
enum { ALWAYS = false, CHEAP = true, NARROW = false, WIDE = true };

static void add_gqa(List *l, const Dims *d) {
    int64_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    add(l, q, ALWAYS, NARROW), add(l, kv, ALWAYS, NARROW), add(l, kv, ALWAYS, NARROW);
    if (d->qk_norm) { /* rotated in place where there is no norm */
        add(l, q, CHEAP, NARROW), add(l, d->heads, ALWAYS, WIDE);
        add(l, kv, CHEAP, NARROW), add(l, d->kv_heads, ALWAYS, WIDE);
    }
    int from = l->n;
    add(l, q, ALWAYS, NARROW), add(l, d->heads, ALWAYS, WIDE);
    for (int i = from; i < l->n; i++) l->at[i].stays = true; /* what came of attention: layer.h */
}

/* gpu: backward runs over expanded keys and values, and what is behind W_uv is remembered whatever is recomputed. */
static void add_mla(List *l, const Dims *d, bool gpu) {
    int64_t key = d->kv_lora + d->rope_dim;
    add(l, d->heads * (d->nope_dim + d->rope_dim), ALWAYS, NARROW);
    if (d->q_lora) add(l, d->q_lora, ALWAYS, NARROW), add(l, 1, ALWAYS, WIDE);
    add(l, key, ALWAYS, NARROW), add(l, 1, ALWAYS, WIDE), add(l, key, ALWAYS, NARROW);
    int from = l->n;
    if (!gpu) add(l, d->heads * key, CHEAP, NARROW); /* the query carried into the latent */
    add(l, d->heads * (gpu ? d->v_dim : d->kv_lora), ALWAYS, NARROW), add(l, d->heads, ALWAYS, WIDE);
    for (int i = from; i < l->n && gpu; i++) l->at[i].stays = true;
}

static void add_mlp(List *l, int64_t width) {
    add(l, width, ALWAYS, NARROW), add(l, width, ALWAYS, NARROW), add(l, width, CHEAP, NARROW);
}

static void add_moe(List *l, const Dims *d) {
    int from = l->n;
    int64_t k = d->topk;
    add(l, k, ALWAYS, WIDE), add(l, k, ALWAYS, WIDE), add(l, k, ALWAYS, WIDE), add(l, k, ALWAYS, WIDE);
    l->at[l->n++] = (KeptTensor){ .fixed = d->experts + 1, .wide = true };
    for (int i = from; i < l->n; i++) l->at[i].stays = true;
    add(l, d->experts, ALWAYS, WIDE);
    from = l->n;
    add(l, k * d->hidden, CHEAP, NARROW);
    add_mlp(l, k * d->expert_ffn);
    for (int i = from; i < l->n; i++) l->at[i].came = true;
    add(l, k * d->hidden, ALWAYS, NARROW);
    if (d->shared) add_mlp(l, d->shared_ffn);
}

int arena_layer(const ModelDesc *m, int layer, bool gpu, KeptTensor out[MOST_KEPT]) {
    const Dims *d = &m->d;
    List l = { out, 0 };
    add(&l, d->hidden, ALWAYS, NARROW);
    out[0].stays = true;                /* what the block returns: the next one's input */
    add(&l, d->hidden, ALWAYS, NARROW); /* the residual in the middle */
    for (int i = 0; i < 2; i++) add(&l, 1, ALWAYS, WIDE), add(&l, d->hidden, CHEAP, NARROW);
    if (d->layer[layer].mixer == MIXER_MLA) add_mla(&l, d, gpu);
    else add_gqa(&l, d);
    if (dims_moe(d, layer)) add_moe(&l, d);
    else add_mlp(&l, d->ffn);
    return l.n;
}

static bool stays(const KeptTensor *t, Recompute mode) {
    if (mode == RECOMPUTE_FULL) return t->stays;
    return mode == RECOMPUTE_NONE || !t->cheap;
}

static size_t bytes_of(const KeptTensor *t, int64_t tokens) {
    return arena_round(tensor_bytes(DT_F32, (int64_t)t->per_token * tokens + t->fixed, 1));
}

size_t arena_act_bytes(const ModelDesc *m, Recompute mode, int64_t tokens, int64_t outputs) {
    enum { STAT = 64 }; /* HEAD_STAT of op.h, bytes a row */
    const Dims *d = &m->d;
    KeptTensor all[MOST_KEPT];
    size_t kept = arena_round(tensor_bytes(DT_F32, tokens, d->hidden))
                  + arena_round(tensor_bytes(DT_F32, tokens, arch_rope_dim(m)));
    kept += 2 * arena_round(tensor_bytes(DT_F32, outputs, d->hidden)) + arena_round((size_t)outputs * 4)
            + arena_round((size_t)outputs * STAT);
    size_t again = 0;
    for (int i = 0; i < (int)d->layers; i++) {
        int n = arena_layer(m, i, false, all);
        size_t redo = 0;
        for (int k = 0; k < n; k++) {
            if (stays(&all[k], mode)) kept += bytes_of(&all[k], tokens);
            else if (mode == RECOMPUTE_FULL) redo += bytes_of(&all[k], tokens);
        }
        if (redo > again) again = redo;
    }
    return kept + again;
}

LayerKept arena_layer_bytes(const ModelDesc *m, int layer, Recompute mode, bool gpu, double element) {
    KeptTensor all[MOST_KEPT];
    LayerKept out = { 0 };
    int n = arena_layer(m, layer, gpu, all);
    for (int k = 0; k < n; k++) {
        if (!stays(&all[k], mode)) continue;
        double bytes = all[k].per_token * (all[k].wide ? 4 : element);
        out.all += bytes;
        if (all[k].came) out.came += bytes;
    }
    return out;
}

/* A block keeps its input, qkv, what attention made, the sum behind it, gate and up; norms and gate * up are cheap. */
double arena_tower_bytes(const Dims *d, Recompute mode, double element) {
    double h = (double)d->vis.hidden, ffn = (double)d->vis.ffn, heads = (double)d->vis.heads;
    double cheap = mode == RECOMPUTE_NONE ? 2 * h + ffn : 0;
    double block = mode == RECOMPUTE_FULL ? element * h : element * (6 * h + 2 * ffn + cheap) + 4 * (heads + 2);
    return (double)d->vis.layers * block + element * 4 * h + 4 * (h / heads);
}
