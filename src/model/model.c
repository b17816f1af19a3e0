/* model.c - see model.h.  Embedding, blocks, final norm, head; backward is the same list read from the end. */
#include "model/model.h"

void model_open(Model *m, Dev *d, const ModelDesc *desc, DType weights, int leaves, Mem *mem) {
    int64_t half = arch_rope_dim(desc) / 2;
    *m = (Model){ .dev = d, .desc = desc, .leaves = leaves, .par = par_self(), .scale = arch_attn_scale(desc) };
    params_open(&m->w, desc, d, weights, false, "weights", mem);
    m->fixed = dev_arena(d, "fixed", arena_round((size_t)half * 4));
    m->freq = push_f32(&m->fixed, 1, half);
    float *freq = MEM_ARRAY(mem, float, (size_t)half);
    arch_rope(desc, freq, &m->amp);
    op_put(d, m->freq, freq);
}

void model_open_master(Model *m, Mem *mem) {
    params_open(&m->master, m->desc, m->dev, DT_F32, false, "master weights", mem);
    for (int i = 0; i < m->w.n; i++)
        if (m->w.at[i].t.dtype == DT_F32) m->w.at[i].t = m->master.at[i].t;
}

void model_round(Model *m) {
    for (int i = 0; i < m->w.n && m->master.n; i++)
        if (m->w.at[i].t.dtype != DT_F32) op_copy(m->dev, m->w.at[i].t, m->master.at[i].t);
}

bool model_load(Model *m, const char *dir, Err *err) {
    TRY(params_load(model_full(m), m->dev, dir, err));
    model_round(m);
    return true;
}

size_t model_bytes(const ModelDesc *desc, DType weights, bool master) {
    return params_bytes(desc, weights, false) + (master && weights != DT_F32 ? params_bytes(desc, DT_F32, false) : 0);
}

void model_close(Model *m) {
    if (m->master.n) params_close(&m->master, m->dev);
    params_close(&m->w, m->dev);
    dev_free(m->dev, m->fixed.base);
}

Tensor model_head(const Model *m) { return param(&m->w, m->desc->d.tied ? P_EMBED : P_HEAD, 0); }

static Ctx context(const Model *m, Arena *act, Seqs seqs) {
    return (Ctx){ .dev = m->dev,
                  .act = act,
                  .m = m->desc,
                  .w = &m->w,
                  .par = m->par,
                  .leaves = m->leaves,
                  .recompute = m->recompute,
                  .seqs = seqs,
                  .scale = m->scale };
}

static Tensor rotation(const Model *m, Tensor pos, Arena *a) {
    Tensor cossin = push_f32(a, pos.rows, arch_rope_dim(m->desc));
    op_rope_table(m->dev, cossin, pos, m->freq, m->amp);
    return cossin;
}

/* ids -> x, what the last block returns.  Without keep two tensors of tmp take turns. */
static Tensor hidden(Model *m, const Ctx *c, Tensor ids, ModelKeep *keep) {
    int64_t T = ids.rows, H = m->desc->d.hidden;
    Arena *a = keep_always(c, keep);
    Tensor x = push(c, a, T, H), spare = keep ? TENSOR_NONE : push(c, a, T, H);
    op_embed(m->dev, x, ids, param(&m->w, P_EMBED, 0));
    for (int l = 0; l < m->desc->d.layers; l++) {
        Tensor y = keep ? push(c, a, T, H) : spare;
        block_forward(c, l, y, x, keep ? &keep->block[l] : NULL);
        spare = x;
        x = y;
    }
    return x;
}

/* The rows that matter, normed: what the head reads. */
static Tensor outputs(Model *m, const Ctx *c, Tensor x, Tensor rows, Arena *to, ModelKeep *keep) {
    Tensor picked = push(c, keep_always(c, keep), rows.rows, x.cols);
    op_permute(m->dev, picked, x, rows);
    NormKeep norm;
    Ctx always = *c; /* the head reads this norm's output again in backward: never dropped */
    always.recompute = RECOMPUTE_NONE;
    Tensor h =
        norm_forward(&always, picked, param(&m->w, P_NORM_OUT, 0), (float)m->desc->d.eps, to, keep ? &norm : NULL);
    if (keep) keep->norm = norm;
    return h;
}

static Head head_of(const Model *m, const Batch *b, Tensor h, Tensor stat, Tensor lp, Tensor ent) {
    return (Head){ .h = h,
                   .w = model_head(m),
                   .ids = b->targets,
                   .dist = b->dist,
                   .banned = b->banned,
                   .ban = b->ban,
                   .kept = b->kept,
                   .lp = lp,
                   .ent = ent,
                   .stat = stat };
}

void model_score(Model *m, const Batch *b, Tensor lp, Tensor ent) {
    dev_chain(m->dev, true);
    Arena *tmp = &m->dev->tmp;
    size_t mark = arena_mark(tmp);
    Ctx c = context(m, NULL, b->seqs);
    c.cossin = rotation(m, b->pos, tmp);
    Tensor h = outputs(m, &c, hidden(m, &c, b->ids, NULL), b->rows, tmp, NULL);
    Head head = head_of(m, b, h, tensor_push(tmp, DT_U8, b->outputs, HEAD_STAT), lp, ent);
    op_logprob(m->dev, &head);
    arena_pop(tmp, mark);
    dev_chain(m->dev, false);
}

void model_logits(Model *m, const Batch *b, Tensor logits) {
    dev_chain(m->dev, true);
    Arena *tmp = &m->dev->tmp;
    size_t mark = arena_mark(tmp);
    Ctx c = context(m, NULL, b->seqs);
    c.cossin = rotation(m, b->pos, tmp);
    Tensor h = outputs(m, &c, hidden(m, &c, b->ids, NULL), b->rows, tmp, NULL);
    op_linear(m->dev, logits, h, model_head(m), TENSOR_NONE, leaves_one(h.cols));
    arena_pop(tmp, mark);
    dev_chain(m->dev, false);
}

void model_extend(Model *m, const Kv *kv, const Paged *paged, Tensor ids, Tensor pos, Tensor rows, Tensor h) {
    dev_chain(m->dev, true);
    Arena *tmp = &m->dev->tmp;
    size_t mark = arena_mark(tmp);
    Ctx c = context(m, NULL, paged->rows);
    c.kv = kv;
    c.paged = *paged;
    c.cossin = rotation(m, pos, tmp);
    Tensor x = hidden(m, &c, ids, NULL);
    if (rows.rows) {
        Tensor picked = push(&c, tmp, rows.rows, x.cols), rstd = push_f32(tmp, rows.rows, 1);
        op_permute(m->dev, picked, x, rows);
        op_rmsnorm(m->dev, h, rstd, picked, param(&m->w, P_NORM_OUT, 0), (float)m->desc->d.eps);
    }
    arena_pop(tmp, mark);
    dev_chain(m->dev, false);
}

void model_forward(Model *m, const Batch *b, Arena *act, ModelKeep *keep, Tensor lp, Tensor ent) {
    dev_chain(m->dev, true);
    Ctx c = context(m, act, b->seqs);
    c.cossin = keep->cossin = rotation(m, b->pos, act);
    keep->last = hidden(m, &c, b->ids, keep);
    keep->h = outputs(m, &c, keep->last, b->rows, act, keep);
    keep->stat = tensor_push(act, DT_U8, b->outputs, HEAD_STAT);
    Head head = head_of(m, b, keep->h, keep->stat, lp, ent);
    op_logprob(m->dev, &head);
    dev_chain(m->dev, false);
}

void model_backward(Model *m, const Params *g, const Batch *b, Arena *act, const ModelKeep *keep, Tensor dlp,
                    Tensor dent) {
    dev_chain(m->dev, true);
    Dev *d = m->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    int64_t T = b->tokens, H = m->desc->d.hidden;
    Ctx c = context(m, act, b->seqs);
    c.cossin = keep->cossin;
    Tensor dx = push(&c, tmp, T, H), dy = push(&c, tmp, T, H);

    size_t inner = arena_mark(tmp);
    Tensor dh = push(&c, tmp, b->outputs, H), dpicked = push(&c, tmp, b->outputs, H);
    Head head = head_of(m, b, keep->h, keep->stat, TENSOR_NONE, TENSOR_NONE);
    op_logprob_bwd(d, dh, param(g, m->desc->d.tied ? P_EMBED : P_HEAD, 0), dlp, dent, &head);
    norm_backward(&c, dpicked, param(g, P_NORM_OUT, 0), dh, param(&m->w, P_NORM_OUT, 0), &keep->norm);
    op_scatter_rows(d, dy, dpicked, b->rows);
    arena_pop(tmp, inner);

    for (int l = (int)m->desc->d.layers - 1; l >= 0; l--) {
        block_backward(&c, l, g, dx, dy, &keep->block[l]);
        Tensor t = dx;
        dx = dy;
        dy = t;
    }
    op_embed_bwd(d, param(g, P_EMBED, 0), dy, b->ids);
    arena_pop(tmp, mark);
    dev_chain(m->dev, false);
}
