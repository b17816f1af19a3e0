/* build.c - a model before it computes: its share of the grid, tables of angles, the weights' memory. */
#include "model/model.h"

void model_open(Model *m, Dev *d, const ModelDesc *desc, DType weights, int leaves, Mem *mem) {
    Shard whole = shard_whole(desc);
    Par alone = groups_self();
    model_open_shard(m, d, desc, &whole, &alone, weights, leaves, mem);
}

/* All but the weights. */
static void open_rest(Model *m, Dev *d, const ModelDesc *desc, const Shard *shard, const Par *par, int leaves,
                      Mem *mem) {
    const Dims *dims = &desc->d;
    int64_t half = arch_rope_dim(desc) / 2, axes = dims_axes(dims);
    int64_t width = dims->vis.layers ? dims->vis.hidden / dims->vis.heads : 0;
    *m = (Model){
        .dev = d, .desc = desc, .shard = *shard, .leaves = leaves, .par = *par, .scale = arch_attn_scale(desc)
    };
    m->local = grid_local(desc, &shard->g, shard->at);
    CHECK(leaves % shard->g.tp == 0, "sums of %d leaves over %d ranks of tp", leaves, shard->g.tp);
    m->book = ep_book(par, desc->d.experts, mem);
    m->fixed = dev_arena(d, "fixed", arena_round((size_t)(axes * half) * 4) + arena_round((size_t)width * 4));
    m->freq = push_f32(&m->fixed, axes, half);
    float *freq = MEM_ARRAY(mem, float, (size_t)(axes * half));
    arch_rope(desc, freq, &m->amp);
    for (int64_t i = half - 1; i >= 0 && axes > 1; i--) { /* frequency i turns by one of the three */
        const int64_t *s = dims->rope.sections;
        int64_t by = i < s[0] ? 0 : i < s[0] + s[1] ? 1 : 2;
        float f = freq[i];
        freq[i] = 0, freq[by * half + i] = f;
    }
    op_put(d, m->freq, freq);
    if (!width) return;
    float *vis = MEM_ARRAY(mem, float, (size_t)width);
    tower_freq(vis, dims);
    m->vis_freq = push_f32(&m->fixed, 2, width / 2);
    op_put(d, m->vis_freq, vis);
}

ModelKeep model_keep(const ModelDesc *desc, int64_t layers, Mem *mem) {
    ModelKeep k = { .block = MEM_ARRAY(mem, BlockKeep, (size_t)layers + 1) };
    if (desc->d.vis.layers) k.tower.block = MEM_ARRAY(mem, VisionKeep, (size_t)desc->d.vis.layers);
    return k;
}

/* In a place of its own: float32 whatever the weights are, and never parked with them. */
static void open_adapter(Model *m, Mem *mem) {
    const ModelDesc *a = m->desc->adapter;
    if (a) params_open(&m->lora, a, &m->shard, m->dev, DT_F32, false, "adapter", mem);
}

void model_open_shard(Model *m, Dev *d, const ModelDesc *desc, const Shard *shard, const Par *par, DType weights,
                      int leaves, Mem *mem) {
    open_rest(m, d, desc, shard, par, leaves, mem);
    open_adapter(m, mem);
    params_open(&m->w, desc, shard, d, weights, false, "weights", mem);
}

void model_open_in(Model *m, Dev *d, const ModelDesc *desc, const Shard *shard, const Par *par, Arena in, DType weights,
                   int leaves, Mem *mem) {
    open_rest(m, d, desc, shard, par, leaves, mem);
    open_adapter(m, mem);
    params_open_in(&m->w, desc, shard, in, weights, false, mem);
}

void model_open_beside(Model *m, const Model *lender, const Shard *shard, const Par *par, Arena in, Mem *mem) {
    open_rest(m, lender->dev, lender->desc, shard, par, lender->leaves, mem);
    params_open_beside_in(&m->w, &lender->w, shard, in, params_dtype(&lender->w), mem);
    if (m->desc->adapter) params_open_beside(&m->lora, &lender->lora, shard, m->dev, DT_F32, "rollout adapter", mem);
}

bool model_load(Model *m, const char *dir, Err *err) { return params_load(&m->w, m->dev, dir, err); }

void model_close(Model *m) {
    params_close(&m->w, m->dev);
    if (m->desc->adapter) params_close(&m->lora, m->dev);
    dev_free(m->dev, m->fixed.base);
}

Tensor model_head(const Model *m) { return param(&m->w, m->desc->d.tied ? P_EMBED : P_HEAD, 0); }
