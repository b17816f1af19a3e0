/* model.c - a model as it runs, from token ids to log-probs and back.
 * Embedding, blocks, final norm, head; backward is the same list read from the end. */
#include "model/model.h"
#include "op/profile.h"
#include "op/watch.h"

static Ctx context(Model *m, Arena *act, const Batch *b) {
    return (Ctx){ .dev = m->dev,
                  .act = act,
                  .again = m->again.size ? &m->again : NULL,
                  .m = m->desc,
                  .l = m->local,
                  .tokens = b->tokens,
                  .w = &m->w,
                  .lora = m->desc->adapter && !m->lora_off ? &m->lora : NULL,
                  .par = m->par,
                  .book = &m->book,
                  .leaves = m->leaves,
                  .recompute = m->trained.recompute,
                  .seqs = b->seqs,
                  .from = b->from,
                  .start = b->start,
                  .cp = &b->cp,
                  .scale = m->scale };
}

static Tensor rotation(const Model *m, Tensor pos, Arena *a) {
    Tensor cossin = push_f32(a, pos.rows, arch_rope_dim(m->desc));
    watch_at(m->dev, -1, "positions");
    op_rope_table(m->dev, cossin, pos, m->freq, m->amp);
    return cossin;
}

static Part vocab_part(const Model *m) { return (Part){ m->local.vocab0, m->desc->d.vocab }; }

/* ---- chunks: what a stage of the pipeline has */

bool model_begins(const Model *m, int v) { return model_chunk(m, v) == 0; }
bool model_ends(const Model *m, int v) { return model_chunk(m, v) == grid_chunks(&m->shard.g) - 1; }
int model_layers(const Model *m, int v, int *from) { return grid_chunk(&m->shard.g, model_chunk(m, v), from); }

/* Pictures' results are a second table beside the embedding: a token is a row of the one or of the other,
 * and of its other there is -0, which changes nothing.  An id behind the vocabulary's end is no row of it.
 * Over ranks of tp each has the results of some pictures and adds them to its part of the embedding: one
 * sum brings both to the rows' ranks. */
static Part image_vocab(const Model *m) { return (Part){ m->local.vocab0, m->desc->d.vocab + 1 }; }
static Part image_part(Tensor feats) { return (Part){ 0, feats.rows + 1 }; }

static void embed(Model *m, Tensor x, Tensor ids, Tensor feats, Tensor from) {
    size_t mark = arena_mark(&m->dev->tmp);
    Tensor part = tp_partial(&m->par, &m->dev->tmp, x, ids.rows);
    watch_at(m->dev, -1, "embedding");
    op_embed(m->dev, part, ids, param(&m->w, P_EMBED, 0), from.data ? image_vocab(m) : vocab_part(m));
    if (feats.data) {
        Tensor shown = tensor_push(&m->dev->tmp, part.dtype, part.rows, part.cols);
        op_embed(m->dev, shown, from, feats, image_part(feats));
        op_add(m->dev, part, part, shown);
    }
    tp_exit(&m->par, m->dev, x, part);
    arena_pop(&m->dev->tmp, mark);
}

void model_put_images(const Model *m, Batch *b, Arena *a, const PackSeq *seqs, int n, ClipRule rule) {
    batch_put_images(b, m->dev, a, seqs, n, &m->desc->d, rule, model_begins(m, 0) ? &m->par.tp : NULL);
}

/* The pictures' results: those that were made before, or the tower's, which keeps what its backward reads. */
static Tensor features(Model *m, const Pictures *p, Arena *to, Arena *act, ModelKeep *keep) {
    if (!p->tokens || p->feats.data) return p->feats;
    return tower_forward(m, p, to, act, keep && !m->trained.tower_frozen ? &keep->tower : NULL);
}

/* ids [T], or x from the chunk before -> this rank's rows of what the chunk's last block returns: y, or a new tensor
 * where that is none.  Without keep two tensors of tmp take turns. */
static Tensor hidden(Model *m, const Ctx *c, int v, Tensor ids, const Pictures *images, Tensor y, Tensor x,
                     ModelKeep *keep) {
    int64_t t = comm_share(&m->par.tp, ids.rows), H = m->desc->d.hidden;
    Arena *a = keep_always(c, keep);
    int l0, n = model_layers(m, v, &l0);
    Tensor spare[2];
    for (int i = 0; i < 2 && !keep; i++) spare[i] = push(c, a, t, H);
    NextNorm next_norm = { .n = keep ? TENSOR_NONE : push(c, a, t, H) };
    if (model_begins(m, v)) {
        size_t mark = arena_mark(&m->dev->tmp);
        x = keep ? push(c, a, t, H) : spare[1];
        embed(m, x, ids, features(m, images, &m->dev->tmp, c->act, keep), images->from);
        arena_pop(&m->dev->tmp, mark);
    }
    for (int i = 0; i < n; i++) {
        Tensor to = i == n - 1 && y.data ? y : keep ? push(c, a, t, H) : spare[i % 2];
        comm_about(&m->par.tp, "layer", l0 + i);
        next_norm.there = i > 0, next_norm.wanted = i + 1 < n;
        block_forward(c, l0 + i, to, x, keep ? NULL : &next_norm, keep ? &keep->block[i] : NULL);
        x = to;
    }
    if (!n && y.data) op_copy(m->dev, y, x);
    return x;
}

/* The rows that matter, normed: what the head reads.  Every rank of tp has all of them, and its own ids. */
static Tensor outputs(Model *m, const Ctx *c, Tensor x, Tensor rows, Arena *to, ModelKeep *keep) {
    Tensor picked = push(c, keep_always(c, keep), rows.rows, x.cols);
    comm_about(&m->par.tp, "head", -1);
    watch_at(m->dev, -1, WATCH_HEAD);
    size_t mark = arena_mark(&m->dev->tmp);
    op_permute(m->dev, picked, tp_enter(&m->par, m->dev, &m->dev->tmp, x, c->tokens), rows);
    arena_pop(&m->dev->tmp, mark);
    NormKeep norm;
    Ctx always = *c; /* the head reads this norm's output again in backward: never dropped */
    always.recompute = RECOMPUTE_NONE;
    Tensor h =
        norm_forward(&always, picked, norm_gain(c, P_NORM_OUT, 0), (float)m->desc->d.eps, to, keep ? &norm : NULL);
    if (keep) keep->norm = norm;
    return h;
}

/* The head's way back: dh [outputs,H] is each rank's sum over its ids; dy is this rank's rows of x's gradient. */
static void head_backward(Model *m, const Ctx *c, const Params *g, Tensor dy, Tensor dlp, Tensor dent, const Batch *b,
                          const Head *head, const NormKeep *norm) {
    const Comm *tp = &m->par.tp;
    Dev *d = m->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    int64_t O = b->own, H = dy.cols, first = comm_first_row(tp, O, tp->rank), n = comm_share(tp, O);
    Tensor dh = push(c, tmp, n, H), dpicked = push(c, tmp, n, H), part = comm_partial(tp, tmp, dh, O);
    bool tied = m->desc->d.tied, writes = g->fresh && !tied;
    Tensor dw = param(g, tied ? P_EMBED : P_HEAD, 0);
    if (O) (writes ? op_logprob_bwd_first : op_logprob_bwd)(d, part, dw, dlp, dent, head);
    else if (writes && dw.data) op_zero(d, dw);
    comm_reduce_scatter(tp, d, dh, part);
    NormKeep mine = { tensor_rows(norm->x, first, n), tensor_rows(norm->rstd, first, n), TENSOR_NONE };
    norm_backward(c, dpicked, param(g, P_NORM_OUT, 0), dh, norm_gain(c, P_NORM_OUT, 0), &mine);
    Tensor all = comm_all_gather(tp, d, tmp, dpicked, O);
    if (tp->size == 1) op_scatter_rows(d, dy, all, b->rows);
    else {
        Tensor wide = push(c, tmp, b->tokens, H);
        op_scatter_rows(d, wide, all, b->rows);
        op_copy(d, dy, tp_mine(&m->par, wide));
    }
    arena_pop(tmp, mark);
}

static Head head_of(const Model *m, const Batch *b, Tensor h, Tensor stat, Tensor lp, Tensor ent) {
    return (Head){ .h = h,
                   .w = model_head(m),
                   .vocab = vocab_part(m),
                   .ids = b->targets,
                   .dist = b->dist,
                   .banned = b->banned,
                   .ban = b->ban,
                   .kept = b->kept,
                   .lp = lp,
                   .ent = ent,
                   .stat = stat };
}

bool model_keeps_logits(const Model *m) {
    return m->trained.keep_logits && (m->dev->act == DT_BF16 || m->dev->ops->keeps_f32) && m->par.tp.size == 1;
}
static Tensor room_for_logits(const Model *m, const Batch *b, Arena *act) {
    return model_keeps_logits(m) ? tensor_push(act, DT_F32, b->own, m->desc->d.vocab) : TENSOR_NONE;
}

/* Values of outputs [outputs,1]: those of this rank of cp; and back. */
static Tensor own_values(const Batch *b, Tensor all, Arena *a) {
    return b->ranks == 1 || !all.data ? all : tensor_push(a, DT_F32, b->own, 1);
}
static void all_values(Model *m, const Batch *b, Tensor all, Tensor own) {
    size_t mark = arena_mark(&m->dev->tmp);
    if (b->ranks > 1 && all.data) op_copy(m->dev, all, cp_gather(&m->par, m->dev, &m->dev->tmp, &b->outs, own));
    arena_pop(&m->dev->tmp, mark);
}
static Tensor picked_values(Model *m, const Batch *b, Tensor all) {
    Tensor own = own_values(b, all, &m->dev->tmp);
    if (b->ranks > 1 && all.data) op_permute(m->dev, own, all, b->own_at);
    return own;
}

/* Around each of the functions below: ops may wait for one another, and a profile sees a phase. */
static void begin(Model *m, const char *phase) {
    dev_chain(m->dev, true);
    profile_phase(m->dev, phase);
}
static void end(Model *m) {
    profile_phase(m->dev, NULL);
    dev_chain(m->dev, false);
}

void chunk_forward(Model *m, int v, const Batch *b, Tensor y, Tensor x, Arena *act, ModelKeep *keep, Tensor lp,
                   Tensor ent) {
    begin(m, keep ? "forward" : "score");
    Arena *tmp = &m->dev->tmp, *a = keep ? act : tmp;
    size_t mark = arena_mark(tmp);
    Ctx c = context(m, act, b);
    c.cossin = rotation(m, b->pos, a);
    Tensor last = hidden(m, &c, v, b->ids, &b->images, y, x, keep);
    if (keep) keep->cossin = c.cossin;
    if (model_ends(m, v)) {
        Tensor h = outputs(m, &c, last, b->rows, a, keep), stat = tensor_push(a, DT_U8, b->own, HEAD_STAT);
        Tensor own_lp = own_values(b, lp, tmp), own_ent = own_values(b, ent, tmp);
        Head head = head_of(m, b, h, stat, own_lp, own_ent);
        if (keep) head.logits = room_for_logits(m, b, act);
        model_logprob(m, &head);
        all_values(m, b, lp, own_lp);
        all_values(m, b, ent, own_ent);
        if (keep) keep->h = h, keep->stat = stat, keep->logits = head.logits;
    }
    arena_pop(tmp, mark);
    end(m);
}

void chunk_backward(Model *m, int v, const Params *g, const Batch *b, Tensor dx, Tensor dy, Arena *act,
                    const ModelKeep *keep, Tensor dlp, Tensor dent) {
    begin(m, "backward");
    Dev *d = m->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    Ctx c = context(m, act, b);
    c.cossin = keep->cossin;
    int l0, n = model_layers(m, v, &l0);
    int64_t rows = comm_share(&m->par.tp, b->tokens), H = m->desc->d.hidden;
    Tensor turn[2] = { push(&c, tmp, rows, H), push(&c, tmp, rows, H) };
    if (model_ends(m, v)) {
        Head head = head_of(m, b, keep->h, keep->stat, TENSOR_NONE, TENSOR_NONE);
        head.logits = keep->logits;
        head_backward(m, &c, g, dy = turn[n % 2], picked_values(m, b, dlp), picked_values(m, b, dent), b, &head,
                      &keep->norm);
    }
    for (int i = n - 1; i >= 0; i--) {
        Tensor to = i == 0 && dx.data ? dx : turn[i % 2 == 0];
        comm_about(&m->par.tp, "backward of layer", l0 + i);
        block_backward(&c, l0 + i, g, to, dy, &keep->block[i]);
        dy = to;
    }
    if (!n && dx.data) op_copy(d, dx, dy);
    if (model_begins(m, v)) {
        Tensor all = tp_exit_bwd(&m->par, d, tmp, dy, b->tokens);
        if (param(g, P_EMBED, 0).data)
            op_embed_bwd(d, param(g, P_EMBED, 0), all, b->ids, b->images.from.data ? image_vocab(m) : vocab_part(m));
        if (b->images.tokens && !m->trained.tower_frozen) { /* answers that share a picture add up in its rows */
            Tensor dfeats = push_f32(tmp, b->images.tokens, H);
            op_zero(d, dfeats);
            op_embed_bwd(d, dfeats, all, b->images.from, image_part(dfeats));
            Tensor dout = d->act == DT_F32 ? dfeats : push(&c, tmp, dfeats.rows, H);
            if (dout.data != dfeats.data) op_copy(d, dout, dfeats);
            tower_backward(m, g, &b->images, dout, act, &keep->tower);
        }
    }
    arena_pop(tmp, mark);
    end(m);
}

static Tensor rows_of(const Model *m, const Batch *b, Arena *a) {
    return tensor_push(a, m->dev->act, comm_share(&m->par.tp, b->tokens), m->desc->d.hidden);
}
void flight_out(FlightWay *w, Arena *act, const Model *m, int v, const Batch *b) {
    w->x = model_begins(m, v) ? TENSOR_NONE : rows_of(m, b, act);
    w->y = model_ends(m, v) ? TENSOR_NONE : rows_of(m, b, act);
}
void flight_back(FlightWay *w, Arena *act, Arena *out, const Model *m, int v, const Batch *b) {
    w->dx = model_begins(m, v) ? TENSOR_NONE : rows_of(m, b, out);
    w->dy = model_ends(m, v) ? TENSOR_NONE : rows_of(m, b, act);
}

void model_logits(Model *m, const Batch *b, Tensor logits) {
    begin(m, "logits");
    Arena *tmp = &m->dev->tmp;
    size_t mark = arena_mark(tmp);
    Ctx c = context(m, NULL, b);
    c.cossin = rotation(m, b->pos, tmp);
    Tensor h = outputs(m, &c, hidden(m, &c, 0, b->ids, &b->images, TENSOR_NONE, TENSOR_NONE, NULL), b->rows, tmp, NULL);
    op_linear(m->dev, logits, h, model_head(m), TENSOR_NONE, leaves_one(h.cols));
    arena_pop(tmp, mark);
    end(m);
}

void model_extend(Model *m, const Kv *kv, const Paged *paged, Tensor ids, Tensor pos, const Pictures *images,
                  int64_t each, Tensor rows, Tensor h) {
    begin(m, "extend");
    Arena *tmp = &m->dev->tmp;
    size_t mark = arena_mark(tmp);
    Batch b = { .tokens = ids.rows, .seqs = paged->rows, .ranks = 1 };
    Ctx c = context(m, NULL, &b);
    c.kv = kv;
    c.paged = *paged;
    c.cossin = rotation(m, pos, tmp);
    c.each = each;
    if (each) c.order = moe_order(&c, comm_share(&m->par.tp, b.tokens), tmp);
    Tensor x = hidden(m, &c, 0, ids, images ? images : &(Pictures){ 0 }, TENSOR_NONE, TENSOR_NONE, NULL);
    if (rows.rows) {
        Tensor picked = push(&c, tmp, rows.rows, x.cols), rstd = push_f32(tmp, rows.rows, 1);
        watch_at(m->dev, -1, WATCH_HEAD);
        op_permute(m->dev, picked, tp_enter(&m->par, m->dev, tmp, x, c.tokens), rows);
        op_rmsnorm(m->dev, h, rstd, picked, norm_gain(&c, P_NORM_OUT, 0), (float)m->desc->d.eps);
    }
    arena_pop(tmp, mark);
    end(m);
}
