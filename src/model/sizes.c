/* sizes.c - how much memory a batch of a given shape takes: the model is run on the dry device, and the arenas say. */
#include "comm/world.h"
#include "model/model.h"

/* Addresses that nobody touches, far apart: what is asked for may be more than any machine has. */
static Arena counting(const char *name, int which) {
    return arena_over(name, (void *)((uintptr_t)(which + 1) << 60), (size_t)1 << 60);
}

void model_dry_open(ModelDry *x, const ModelDesc *desc, const Shard *shard, DevKind like) {
    Shard whole = shard_whole(desc);
    Par par = groups_self();
    *x = (ModelDry){ 0 };
    if (!shard) shard = &whole;
    World alone = world_dry(grid_rank(&shard->g, shard->at), grid_ranks(&shard->g));
    if (alone.all.size > 1) world_groups(&alone, &shard->g, &par);
    dev_open_dry(&x->dev, like);
    x->dev.tmp = counting("tmp", 0);
    x->io = counting("io", 1);
    model_open_shard(&x->model, &x->dev, desc, shard, &par, like.act, like.leaves ? like.leaves : 8, &x->mem);
    x->dev.tmp.peak = 0;
}

void model_dry_close(ModelDry *x) {
    dev_close(&x->dev);
    mem_free(&x->mem);
}

static Tensor ints(ModelDry *x, int64_t n) { return tensor_push(&x->io, DT_I32, n, 1); }
static Tensor reals(ModelDry *x, int64_t n) { return tensor_push(&x->io, DT_F32, n, 1); }

/* The most that a micro-batch takes in one of the rank's chunks. */
static size_t flight(ModelDry *x, const Batch *b, const Params *grads, Tensor lp, Tensor ent, size_t *sent) {
    size_t most = 0;
    Model *m = &x->model;
    for (int v = 0, l0; v < m->shard.g.vpp; v++) {
        Arena act = counting("flight", 3), out = counting("out", 4);
        ModelKeep keep = model_keep(m->desc, model_layers(m, v, &l0), &x->mem);
        FlightWay w;
        flight_out(&w, &act, m, v, b);
        chunk_forward(m, v, b, w.y, w.x, &act, &keep, lp, ent);
        flight_back(&w, &act, &out, m, v, b);
        chunk_backward(m, v, grads, b, w.dx, w.dy, &act, &keep, lp, ent);
        if (act.peak > most) most = act.peak;
        if (out.peak > *sent) *sent = arena_round(out.peak);
    }
    return arena_round(most);
}

/* Pictures of that shape, as a batch has them. */
static Pictures pictures(ModelDry *x, const PicturesShape *s, int64_t tokens) {
    const Dims *d = &x->model.desc->d;
    if (!s->tokens || !model_begins(&x->model, 0)) return (Pictures){ 0 };
    int window = (int)(d->vis.window / d->vis.patch * (d->vis.window / d->vis.patch));
    return (Pictures){ .patches = s->patches,
                       .tokens = s->tokens,
                       .pixels = tensor_push(&x->io, x->dev.act, s->patches, d->vis.pixels),
                       .pos = tensor_push(&x->io, DT_I32, s->patches, 2),
                       .windows = { s->windows, window < s->longest ? window : s->longest, ints(x, s->windows + 1) },
                       .frames = { s->frames, s->longest, ints(x, s->frames + 1) },
                       .from = ints(x, tokens) };
}

/* What a chunk hands on. */
static size_t handed_on(const Model *m, const Batch *b) {
    size_t most = 0;
    for (int v = 0; v < m->shard.g.vpp; v++) {
        FlightWay w;
        Arena any = counting("way", 5);
        flight_out(&w, &any, m, v, b);
        size_t bytes = w.y.data ? arena_round(tensor_bytes(w.y.dtype, w.y.rows, w.y.cols)) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

static size_t train(ModelDry *x, const ModelDesc *desc, const ModelShape *s, ModelSizes *z) {
    int ranks = x->model.shard.g.cp, seqs = ranks == 1 ? s->seqs : 2 * s->seqs;
    int64_t tokens = batch_part_tokens(s->tokens, s->seqs, ranks), own = tokens < s->outputs ? tokens : s->outputs;
    Batch b = {
        .tokens = tokens,
        .outputs = s->outputs,
        .own = own,
        .seqs = { seqs, s->longest < tokens ? s->longest : (int)tokens, ints(x, seqs + 1) },
        .ids = ints(x, tokens),
        .pos = tensor_push(&x->io, DT_I32, tokens, dims_axes(&desc->d)),
        .rows = ints(x, own),
        .targets = ints(x, own),
        .ranks = ranks,
        .images = pictures(x, &s->pictures, tokens),
    };
    if (s->truncated) b.dist = (Dist){ reals(x, own), ints(x, own), reals(x, own), reals(x, own) };
    if (ranks > 1) {
        b.from = ints(x, seqs), b.start = ints(x, seqs), b.own_at = ints(x, own);
        b.cp = (CpRows){ .all = s->tokens, .order = ints(x, s->tokens) };
        b.outs = (CpRows){ .all = s->outputs, .order = ints(x, s->outputs) };
    }
    Tensor lp = reals(x, s->outputs), ent = reals(x, s->outputs);
    Arena act = counting("act", 2);
    x->model.trained = s->trained;
    z->way = handed_on(&x->model, &b);
    model_score(&x->model, &b, lp, ent);
    if (s->backward) {
        Params grads;
        params_open(&grads, arch_trained(desc), &x->model.shard, &x->dev, DT_F32, true, "grads", &x->mem);
        ModelKeep keep = model_keep(desc, desc->d.layers, &x->mem);
        model_forward(&x->model, &b, &act, &keep, lp, ent);
        model_backward(&x->model, &grads, &b, &act, &keep, lp, ent);
        z->flight = flight(x, &b, &grads, lp, ent, &z->out);
        x->model.again = counting("again", 5);
        z->kept = flight(x, &b, &grads, lp, ent, &z->out);
        z->again = arena_round(x->model.again.peak);
    }
    return act.peak;
}
ModelSizes model_sizes(const ModelDesc *desc, const ModelShape *s) {
    ModelDry x;
    model_dry_open(&x, desc, s->shard, s->like);
    ModelSizes out = { 0 };
    out.act = train(&x, desc, s, &out);
    out.tmp = x.dev.tmp.peak;
    model_dry_close(&x);
    return out;
}

Kv model_kv(const ModelDesc *m, const Shard *shard, int layer, int page) {
    Shard whole = shard_whole(m);
    if (!shard) shard = &whole;
    Local l = grid_local(m, &shard->g, shard->at);
    Kv kv = mixer_of(m, layer)->cache(m, &l);
    kv.page = page;
    return kv;
}

static void extend(ModelDry *x, const ModelDesc *desc, const ExtendShape *s) {
    const Dims *d = &desc->d;
    Kv *kv = MEM_ARRAY(&x->mem, Kv, (size_t)d->layers);
    for (int l = 0; l < d->layers; l++) {
        kv[l] = model_kv(desc, s->shard, l, s->page);
        kv[l].state = tensor_push(&x->io, DT_F32, s->seqs + 1, kv[l].floats);
        if (!kv[l].floats) kv[l].pool = tensor_push(&x->io, DT_U8, s->max_pages, (int64_t)op_kv_bytes(&x->dev, &kv[l]));
    }
    Paged p = { .rows = { s->seqs, s->longest, ints(x, s->seqs + 1) },
                .start = ints(x, s->seqs),
                .table = tensor_push(&x->io, DT_I32, s->seqs, s->max_pages),
                .slot = ints(x, s->seqs) };
    Tensor h = tensor_push(&x->io, x->dev.act, s->outputs, d->hidden);
    Pictures images = { .tokens = s->feats, .from = ints(x, s->rows) };
    if (s->feats) images.feats = tensor_push(&x->io, x->dev.act, s->feats, d->hidden);
    Tensor pos = tensor_push(&x->io, DT_I32, s->rows, dims_axes(&desc->d));
    model_extend(&x->model, kv, &p, ints(x, s->rows), pos, &images, s->each, ints(x, s->outputs), h);
    Sample draw = { .h = h,
                    .w = model_head(&x->model),
                    .random = tensor_push(&x->io, DT_I64, s->outputs, 1),
                    .id = ints(x, s->outputs),
                    .lp = reals(x, s->outputs),
                    .ent = reals(x, s->outputs) };
    model_sample(&x->model, &draw);
    if (!s->told) return;
    int64_t rows = s->outputs < LIKELY_ROWS ? s->outputs : LIKELY_ROWS;
    Tensor logits = tensor_push(&x->io, DT_F32, rows, d->vocab);
    Head head = { .h = tensor_rows(h, 0, rows), .w = draw.w, .ids = ints(x, rows), .lp = reals(x, rows) };
    model_rows_logits(&x->model, logits, head.h);
    model_rows_logprob(&x->model, logits, &head);
}
size_t model_extend_tmp(const ModelDesc *desc, const ExtendShape *s, DevKind like) {
    ModelDry x;
    model_dry_open(&x, desc, s->shard, like);
    extend(&x, desc, s);
    size_t peak = x.dev.tmp.peak;
    model_dry_close(&x);
    return peak;
}

size_t model_tower_tmp(const ModelDesc *desc, const PicturesShape *s, DevKind like) {
    if (!s->tokens) return 0;
    ModelDry x;
    model_dry_open(&x, desc, NULL, like);
    Pictures p = pictures(&x, s, 1);
    tower_forward(&x.model, &p, &x.dev.tmp, NULL, NULL);
    size_t peak = x.dev.tmp.peak;
    model_dry_close(&x);
    return peak;
}

void model_served(const ModelDesc *desc, DevKind like, Served *served, void *arg) {
    ModelDry x;
    model_dry_open(&x, desc, NULL, like);
    dev_dry_served(&x.dev, served, arg);
    ModelSizes unused = { 0 };
    ModelShape some = { .tokens = 8192, .outputs = 4096, .seqs = 8, .longest = 2048, .backward = true };
    if (desc->d.vis.layers) /* and a picture of 1920 x 1080 */
        some.pictures =
            (PicturesShape){ .patches = 10764, .tokens = 2691, .windows = 180, .frames = 1, .longest = 10764 };
    train(&x, desc, &some, &unused);
    extend(&x, desc,
           &(ExtendShape){ .rows = 64, .outputs = 64, .seqs = 64, .longest = 1, .max_pages = 64, .page = 64 });
    model_dry_close(&x);
}
