/* gqa.c - grouped-query attention: q,k,v projections (biases where the family has them), norms on q and k heads
 * (Qwen3), rotation (of a head's first columns; in some layers of none), causal attention within each sequence, output
 * projection summed over heads in leaves. */
#include "layer/linear.h"
#include "op/watch.h"

typedef struct {
    int heads, kv_heads, dim;
    RopeShape q, k;
    ParamId q_norm, k_norm;
    bool turns, at_once; /* this layer's heads turn; behind their norm, so both are one op */
} Shape;                 /* P_COUNT: no norm */

static Shape shape_of(const Ctx *c, int layer) {
    const Dims *d = &c->m->d;
    int n = (int)c->l.heads, k = (int)c->l.kv_heads, w = (int)d->head_dim, r = (int)d->turned;
    bool turns = !d->layer[layer].still;
    return (Shape){ n,
                    k,
                    w,
                    { n, w, 0, r, d->rope.pairs },
                    { k, w, 0, r, d->rope.pairs },
                    d->qk_norm ? P_QNORM : P_COUNT,
                    d->qk_norm ? P_KNORM : P_COUNT,
                    turns,
                    d->qk_norm && turns && !d->norm_turned };
}

/* Raw queries and keys -> normed by head (into new tensors) or raw themselves, then rotated, or rotated first where the
 * family has it so: g->a.q, g->a.k.  Where they are normed, what the norm is given survives as raw; again: that is
 * there; put: keys and values go into the cache. */
static NormRope normed(const Ctx *c, Tensor raw, ParamId norm, int layer, RopeShape s, Arena *to, Arena *rstd_to) {
    return (NormRope){ push(c, to, raw.rows, raw.cols), push_f32(rstd_to, raw.rows * s.heads, 1), raw,
                       norm_gain(c, norm, layer), s };
}
static void norm_heads(const Ctx *c, const NormRope *n) {
    int64_t rows = n->raw.rows * n->s.heads, w = n->s.width;
    op_rmsnorm(c->dev, tensor_shape(n->y, rows, w), n->rstd, tensor_shape(n->raw, rows, w), n->g, (float)c->m->d.eps);
}
static void turn(const Ctx *c, int layer, Shape s, GqaKeep *g, Arena *to, Arena *rstd_to, bool again, bool put) {
    g->a.q = g->q_raw, g->a.k = g->k_raw;
    if (s.turns && !s.at_once && !again) {
        op_rope(c->dev, g->a.q, c->cossin, s.q, +1);
        op_rope(c->dev, g->a.k, c->cossin, s.k, +1);
    }
    if (s.q_norm == P_COUNT) return;
    NormRope q = normed(c, g->q_raw, s.q_norm, layer, s.q, to, rstd_to),
             k = normed(c, g->k_raw, s.k_norm, layer, s.k, to, rstd_to);
    float eps = (float)c->m->d.eps;
    if (!s.at_once) norm_heads(c, &q), norm_heads(c, &k);
    else if (put) op_norm_rope_put(c->dev, &q, &k, c->cossin, eps, c->kv[layer], g->a.v, c->paged);
    else op_norm_rope2(c->dev, &q, &k, c->cossin, eps);
    g->a.q = q.y, g->a.k = k.y, g->q_rstd = q.rstd, g->k_rstd = k.rstd;
}

void attention(const Ctx *c, int layer, const Attn *a) {
    if (!c->kv) {
        cp_attend(&c->par, c->dev, c->cp, a);
        return;
    }
    op_kv_put(c->dev, c->kv[layer], a->k, a->v, c->paged);
    op_attend_kv(c->dev, a->o, a->q, c->kv[layer], c->paged, a->heads, a->scale);
}

/* A cut between the query heads of one kv head gives a rank kv heads with different numbers of them: then every query
 * head gets a copy of its own, and their gradients are added. */
static int queries_of(const ModelDesc *m, const Local *l, int64_t kv, int64_t *first) {
    int64_t N = m->d.heads, K = m->d.kv_heads, a = (kv * N + K - 1) / K, b = ((kv + 1) * N + K - 1) / K;
    a = a < l->head0 ? l->head0 : a, b = b > l->head0 + l->heads ? l->head0 + l->heads : b;
    *first = a - l->head0;
    return (int)(b - a);
}
/* Heads of keys and values that attention sees: a rank whose share is uneven has one a query head. */
static int kv_heads_of(const ModelDesc *m, const Local *l) {
    int64_t first;
    for (int64_t k = 0; k < l->kv_heads; k++)
        if (queries_of(m, l, l->kv0 + k, &first) * l->kv_heads != l->heads) return (int)l->heads;
    return (int)l->kv_heads;
}
static bool uneven(const Ctx *c) { return kv_heads_of(c->m, &c->l) != c->l.kv_heads; }
static Tensor by_query(const Ctx *c, Tensor k) {
    if (!uneven(c)) return k;
    int w = (int)c->m->d.head_dim;
    Tensor y = push(c, &c->dev->tmp, k.rows, c->l.heads * w);
    for (int64_t i = 0, first; i < c->l.kv_heads; i++) {
        int n = queries_of(c->m, &c->l, c->l.kv0 + i, &first);
        op_copy_heads(c->dev, tensor_cols(y, first * w, n * w), tensor_cols(k, i * w, w),
                      (HeadMap){ .heads = n, .in = w, .out = w, .y_width = w });
    }
    return y;
}
static void by_query_bwd(const Ctx *c, Tensor dk, Tensor dy) {
    if (dk.data == dy.data) return;
    int w = (int)c->m->d.head_dim;
    for (int64_t i = 0, first; i < c->l.kv_heads; i++) {
        int n = queries_of(c->m, &c->l, c->l.kv0 + i, &first);
        op_sum_heads(c->dev, tensor_cols(dk, i * w, w), tensor_cols(dy, first * w, n * w),
                     (HeadMap){ .heads = n, .in = w, .out = w, .x_width = w });
    }
}
static void attend(const Ctx *c, int layer, Attn a) {
    if (uneven(c)) a.k = by_query(c, a.k), a.v = by_query(c, a.v), a.kv_heads = a.heads;
    attention(c, layer, &a);
}

/* This rank's sum over kv heads: whole leaves where no other rank has one of them. */
static Leaves by_kv(const Ctx *c, int width) {
    Leaves l = leaves_of(c, &c->par.tp, c->m->d.kv_heads, width);
    bool own = leaves_cut(&l, l.first) == c->l.kv0 * width && leaves_cols(&l) == c->l.kv_heads * width;
    return own ? l : leaves_one(c->l.kv_heads * width);
}

static Attended attended(const Ctx *c, Arena *a) {
    Shape s = shape_of(c, 0);
    return (Attended){ push(c, a, c->tokens, s.heads * s.dim), push_f32(a, c->tokens, s.heads) };
}

typedef struct {
    Linear qkv[3], o;
} Linears;
static Linears linears_of(const Ctx *c, int layer) { /* o's bias is added when its sum is whole */
    return (
        Linears){ { linear_of(c, P_Q, P_QB, layer), linear_of(c, P_K, P_KB, layer), linear_of(c, P_V, P_VB, layer) },
                  linear_of(c, P_O, NO_BIAS, layer) };
}

/* Every token, this rank's heads: what o_proj reads. */
static Tensor heads_forward(const Ctx *c, int layer, Tensor all, const Raw *raw, const Attended *at, bool known,
                            GqaKeep *keep) {
    Dev *d = c->dev;
    Shape s = shape_of(c, layer);
    int64_t T = c->tokens;
    Arena *a = keep_always(c, keep), *cheap = keep_cheap(c, keep);
    Tensor q = push(c, a, T, s.heads * s.dim), k = push(c, a, T, s.kv_heads * s.dim),
           v = push(c, a, T, s.kv_heads * s.dim);
    Tensor qkv[] = { q, k, v };
    Linears l = linears_of(c, layer);
    GqaKeep g = { .q_raw = q, .k_raw = k };
    if (c->m->d.out_gate) { /* in every head its query, then its gate */
        HeadMap map = { .heads = s.heads, .in = s.dim, .out = s.dim, .x_width = 2 * s.dim, .y_width = s.dim };
        g.gate = push(c, a, T, q.cols), qkv[0] = push(c, &d->tmp, T, 2 * q.cols);
        linears_forward(c, qkv, all, raw, l.qkv, 3, leaves_one(all.cols));
        op_copy_heads(d, q, qkv[0], map);
        map.x_from = s.dim;
        op_copy_heads(d, g.gate, qkv[0], map);
    } else linears_forward(c, qkv, all, raw, l.qkv, 3, leaves_one(all.cols));

    g.a = (Attn){ .v = v,
                  .seqs = c->seqs,
                  .from = c->from,
                  .start = c->start,
                  .heads = s.heads,
                  .kv_heads = s.kv_heads,
                  .dk = s.dim,
                  .dv = s.dim,
                  .scale = c->scale };
    bool put = c->kv && s.at_once && !uneven(c);
    turn(c, layer, s, &g, cheap, a, false, put);
    watch_op(d, "queries", &g.a.q, 1);
    watch_op(d, "keys", &g.a.k, 1);
    g.a.o = at->o.data ? at->o : push(c, a, T, s.heads * s.dim);
    g.a.lse = at->o.data ? at->lse : keep ? push_f32(a, T, s.heads) : TENSOR_NONE;
    if (!known || !at->o.data) {
        if (put) op_attend_kv(d, g.a.o, g.a.q, c->kv[layer], c->paged, s.heads, c->scale);
        else attend(c, layer, g.a);
    }
    Tensor out = g.a.o;
    if (g.gate.data) op_gate(d, out = push(c, &d->tmp, T, out.cols), g.a.o, g.gate);
    if (keep) {
        *keep = g;
        if (s.q_norm != P_COUNT) keep->a.q = kept(c, g.a.q), keep->a.k = kept(c, g.a.k);
    }
    return out;
}

/* Heads may be fewer than ranks: one without any adds nothing. */
static void forward(const Ctx *c, int layer, Tensor y, Tensor x, const Raw *raw, const Attended *at, bool known,
                    MixerKeep *keep) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor all = tp_enter(&c->par, d, &d->tmp, x, c->tokens), part = tp_partial(&c->par, &d->tmp, y, c->tokens);
    Linears l = linears_of(c, layer);
    Tensor o = c->l.heads ? heads_forward(c, layer, all, raw, at, known, keep ? &keep->gqa : NULL) : TENSOR_NONE;
    linear_exit(c, y, part, o, &l.o, by_heads(c, c->m->d.head_dim));
    bias_forward(c, y, param(c->w, P_OB, layer));
    arena_pop(&d->tmp, mark);
}

/* d of the rotated (and normed) -> d of the projection's output: 'to', or in place where there is no norm. */
static Tensor turn_back(const Ctx *c, const Params *g, Tensor to, Tensor dq, Tensor raw, Tensor rstd, ParamId norm,
                        int layer, const Shape *of, RopeShape s) {
    Tensor gain = TENSOR_NONE, dgain = TENSOR_NONE;
    if (norm != P_COUNT) gain = norm_gain(c, norm, layer), dgain = param(g, norm, layer);
    if (of->at_once) {
        op_norm_rope_bwd(c->dev, to, dgain, dq, raw, rstd, gain, c->cossin, s);
        return to;
    }
    int64_t rows = raw.rows * s.heads, w = s.width;
    if (norm == P_COUNT) to = dq;
    else
        op_rmsnorm_bwd(c->dev, tensor_shape(to, rows, w), dgain, tensor_shape(dq, rows, w), tensor_shape(raw, rows, w),
                       rstd, gain);
    if (of->turns) op_rope(c->dev, to, c->cossin, s, -1);
    return to;
}

static void heads_backward(const Ctx *c, int layer, const Params *g, Tensor dpart, Tensor dall, Tensor all,
                           const GqaKeep *k) {
    Dev *d = c->dev;
    Shape s = shape_of(c, layer);
    int64_t T = c->tokens;
    Linears l = linears_of(c, layer);
    Attn a = k->a;
    if (!a.q.data) {
        GqaKeep again = *k;
        turn(c, layer, s, &again, &d->tmp, &d->tmp, true, false);
        a.q = again.a.q, a.k = again.a.k;
    }
    Tensor dO = push(c, &d->tmp, T, s.heads * s.dim);
    Tensor dgate = k->gate.data ? push(c, &d->tmp, T, dO.cols) : TENSOR_NONE, out = a.o;
    if (dgate.data) op_gate(d, out = dgate, a.o, k->gate); /* (its place is free until gate_bwd) */
    linear_exit_dw(c, g, &l.o, dall, out, by_heads(c, s.dim));
    linear_exit_dx(c, dO, dall, &l.o);
    if (dgate.data) op_gate_bwd(d, dO, dgate, dO, a.o, k->gate);

    Tensor dq = push(c, &d->tmp, T, s.heads * s.dim);
    /* before dv: a backend may take what k's and v's weights get as one, in order */
    Tensor dk_raw = s.k_norm == P_COUNT ? TENSOR_NONE : push(c, &d->tmp, T, s.kv_heads * s.dim);
    Tensor dk = push(c, &d->tmp, T, s.kv_heads * s.dim), dv = push(c, &d->tmp, T, s.kv_heads * s.dim);
    Tensor dk_each = dk, dv_each = dv;
    if (uneven(c)) {
        a.k = by_query(c, a.k), a.v = by_query(c, a.v), a.kv_heads = a.heads;
        dk_each = push(c, &d->tmp, T, dq.cols), dv_each = push(c, &d->tmp, T, dq.cols);
    }
    cp_attend_bwd(&c->par, d, c->cp, dq, dk_each, dv_each, dO, &a);
    by_query_bwd(c, dk, dk_each);
    by_query_bwd(c, dv, dv_each);
    Tensor dq_raw = s.q_norm == P_COUNT ? TENSOR_NONE : push(c, &d->tmp, T, dq.cols);
    dq = turn_back(c, g, dq_raw, dq, k->q_raw, k->q_rstd, s.q_norm, layer, &s, s.q);
    dk = turn_back(c, g, dk_raw, dk, k->k_raw, k->k_rstd, s.k_norm, layer, &s, s.k);

    if (dgate.data) {
        HeadMap map = { .heads = s.heads, .in = s.dim, .out = s.dim, .x_width = s.dim, .y_width = 2 * s.dim };
        Tensor both = push(c, &d->tmp, T, 2 * dq.cols);
        op_copy_heads(d, both, dq, map);
        map.y_from = s.dim;
        op_copy_heads(d, both, dgate, map);
        dq = both;
    }
    linear_dw(c, g, &l.qkv[0], dq, all);
    const Tensor dy[] = { dq, dk, dv };
    linears_dw2(c, g, l.qkv + 1, dy + 1, all);
    Tensor more = tensor_push(&d->tmp, dpart.dtype, T, all.cols);
    const Leaves sum[] = { by_heads(c, dgate.data ? 2 * s.dim : s.dim), by_kv(c, s.dim), by_kv(c, s.dim) };
    linears_dx3(c, dpart, more, dy, l.qkv, sum);
}

/* An adapter of o_proj is summed over ranks: those without heads too. */
static void no_heads_backward(const Ctx *c, int layer, const Params *g, Tensor dpart, Tensor dall) {
    Linears l = linears_of(c, layer);
    linear_exit_dw(c, g, &l.o, dall, TENSOR_NONE, by_heads(c, c->m->d.head_dim));
    op_zero(c->dev, dpart);
}

static void backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x, const MixerKeep *k) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    bias_backward(c, param(g, P_OB, layer), dy);
    Tensor dall = tp_exit_bwd(&c->par, d, tmp, dy, c->tokens), all = tp_enter(&c->par, d, tmp, x, c->tokens);
    Tensor dpart = tp_partial(&c->par, tmp, dx, c->tokens);
    if (c->l.heads) heads_backward(c, layer, g, dpart, dall, all, &k->gqa);
    else no_heads_backward(c, layer, g, dpart, dall);
    tp_enter_bwd(&c->par, d, dx, dpart);
    arena_pop(tmp, mark);
}

static Kv cache(const ModelDesc *m, const Local *l) {
    int heads = l->heads ? kv_heads_of(m, l) : 1; /* a rank without heads keeps one that nobody reads */
    return (Kv){ .kv_heads = heads, .dk = (int)m->d.head_dim, .dv = (int)m->d.head_dim };
}

const Mixer mixer_gqa = { forward, backward, attended, cache, STORE_PAGES, .takes_raw = true };
