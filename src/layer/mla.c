/* mla.c - multi-head latent attention (DeepSeek-V3), in the absorbed form in every forward: the query is
 * carried into the latent by W_uk first, scores run over (latent, rope key), values are the latent, W_uv
 * comes after.  Training and decoding must use one form, because the two round differently, and decoding
 * can afford only this one (it caches R + r numbers a token).
 *
 * The backward has two forms.  Absorbed: the mirror of the forward.  Expanded, where the backend says so (a GPU, where
 * it costs a third): keys [n|r] and values [u] of every head are made from the latent, and attention's backward runs
 * over them with the forward's lse and its output behind W_uv; both are the same function of the same numbers, so the
 * gradients are the same but for rounding.
 *
 * n = nope_dim, r = rope_dim, u = v_dim, R = kv_lora; the inner norms have eps 1e-6 whatever the config says. */
#include "layer/linear.h"
#include "op/watch.h"

static const float INNER_EPS = 1e-6f;

typedef struct {
    int N, n, r, u, R;
} Shape;

static Shape shape_of(const Ctx *c) {
    const Dims *d = &c->m->d;
    return (Shape){ (int)c->l.heads, (int)d->nope_dim, (int)d->rope_dim, (int)d->v_dim, (int)d->kv_lora };
}

static RopeShape rope_q(const Ctx *c, Shape s) { return (RopeShape){ s.N, s.n + s.r, s.n, s.r, c->m->d.rope.pairs }; }
static RopeShape rope_k(const Ctx *c, Shape s) { return (RopeShape){ 1, s.R + s.r, s.R, s.r, c->m->d.rope.pairs }; }

/* Per head: W_kvb holds n rows of key, then u rows of value. */
/* clang-format off */
static HeadMap into_latent(Shape s) {   /* ql = qn Wk: [n] -> [R] */
    return (HeadMap){ .heads = s.N, .in = s.n, .out = s.R, .x_width = s.n + s.r, .y_width = s.R + s.r,
                      .w_rows = s.n + s.u, .w_from = 0, .turned = true };
}
static HeadMap rope_part(Shape s) {     /* q's rotated part goes behind the latent part */
    return (HeadMap){ .heads = s.N, .in = s.r, .out = s.r, .x_width = s.n + s.r, .x_from = s.n,
                      .y_width = s.R + s.r, .y_from = s.R };
}
static HeadMap out_of_latent(Shape s) { /* o = ol Wv': [R] -> [u] */
    return (HeadMap){ .heads = s.N, .in = s.R, .out = s.u, .x_width = s.R, .y_width = s.u,
                      .w_rows = s.n + s.u, .w_from = s.n };
}
static HeadMap key_of_latent(Shape s) { /* every head from the one latent: k = c Wk', into [n|r] */
    return (HeadMap){ .heads = s.N, .in = s.R, .out = s.n, .y_width = s.n + s.r, .w_rows = s.n + s.u };
}
static HeadMap value_of_latent(Shape s) { /* v = c Wv' */
    return (HeadMap){ .heads = s.N, .in = s.R, .out = s.u, .y_width = s.u, .w_rows = s.n + s.u, .w_from = s.n };
}
static HeadMap rope_of_key(Shape s) {   /* the one rotated part, behind every head's key */
    return (HeadMap){ .heads = s.N, .in = s.r, .out = s.r, .x_from = s.R, .y_width = s.n + s.r, .y_from = s.n };
}
static HeadMap into_kv(Shape s, int x_width, int width, int from) { /* [n|u] of every head, as W_kvb has its rows */
    return (HeadMap){ .heads = s.N, .in = width, .out = width, .x_width = x_width,
                      .y_width = s.n + s.u, .y_from = from };
}
static HeadMap reversed(HeadMap m) {    /* for dx: the same weights, the other way */
    return (HeadMap){ .heads = m.heads, .in = m.out, .out = m.in, .x_width = m.y_width, .x_from = m.y_from,
                      .y_width = m.x_width, .y_from = m.x_from, .w_rows = m.w_rows, .w_from = m.w_from,
                      .turned = !m.turned };
}
/* clang-format on */

/* The query as attention wants it, [T,N*(R+r)]. */
static Tensor absorb(const Ctx *c, int layer, Tensor q, Arena *to) {
    Shape s = shape_of(c);
    Tensor y = push(c, to, q.rows, (int64_t)s.N * (s.R + s.r));
    Linear kv_b = linear_of(c, P_KV_B, NO_BIAS, layer);
    linear_heads(c, y, q, &kv_b, into_latent(s));
    op_copy_heads(c->dev, y, q, rope_part(s));
    return y;
}

static Tensor latent_of(Tensor key, Shape s) { return tensor_cols(key, 0, s.R); }

static Tensor inner_norm(const Ctx *c, Tensor qa, int layer, Arena *to, Arena *rstd_to, Tensor *rstd) {
    Tensor y = push(c, to, qa.rows, qa.cols);
    *rstd = push_f32(rstd_to, qa.rows, 1);
    op_rmsnorm(c->dev, y, *rstd, qa, param(c->w, P_Q_A_NORM, layer), INNER_EPS);
    return y;
}

/* k->q [T,N*(n+r)], rotated.  The latent is made of this rank's tokens and gathered: it is narrower than x. */
static void query(const Ctx *c, int layer, Tensor x, MlaKeep *k, Arena *a) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    Leaves over_h = leaves_one(x.cols);
    if (c->m->d.q_lora) {
        Linear q_a = linear_of(c, P_Q_A, P_Q_AB, layer), q_b = linear_of(c, P_Q_B, NO_BIAS, layer);
        k->qa = push(c, a, x.rows, c->m->d.q_lora);
        linear_forward(c, k->qa, x, &q_a, over_h);
        Tensor qan = inner_norm(c, k->qa, layer, tmp, a, &k->qa_rstd);
        Tensor all = tp_enter(&c->par, d, tmp, qan, c->tokens);
        if (c->l.heads) linear_forward(c, k->q, all, &q_b, leaves_one(all.cols));
    } else {
        Linear q = linear_of(c, P_Q, NO_BIAS, layer);
        Tensor all = tp_enter(&c->par, d, tmp, x, c->tokens);
        if (c->l.heads) linear_forward(c, k->q, all, &q, over_h);
    }
    if (c->l.heads) op_rope(d, k->q, c->cossin, rope_q(c, shape_of(c)), +1);
}

/* The absorbed backward wants a.o, which is wider by R / u: too much to remember. */
static Attended attended(const Ctx *c, Arena *a) {
    Shape s = shape_of(c);
    if (!c->dev->ops->expands) return (Attended){ 0 };
    return (Attended){ push(c, a, c->tokens, (int64_t)s.N * s.u), push_f32(a, c->tokens, s.N) };
}

static void forward(const Ctx *c, int layer, Tensor y, Tensor x, const Raw *raw, const Attended *at, bool known,
                    MixerKeep *mixer_keep) {
    CHECK(!raw, "an input that is still to be normed");
    MlaKeep *keep = mixer_keep ? &mixer_keep->mla : NULL;
    Dev *d = c->dev;
    Shape s = shape_of(c);
    Arena *a = keep_always(c, keep), *cheap = keep_cheap(c, keep), *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    int64_t T = c->tokens;
    MlaKeep k = { .q = push(c, a, T, (int64_t)s.N * (s.n + s.r)) };
    Tensor part = tp_partial(&c->par, tmp, y, T);
    query(c, layer, x, &k, a);

    k.kva = push(c, a, x.rows, s.R + s.r);
    k.kv_rstd = push_f32(a, x.rows, 1);
    Tensor key = push(c, a, x.rows, s.R + s.r);
    Linear kv_a = linear_of(c, P_KV_A, P_KV_AB, layer), kv_b = linear_of(c, P_KV_B, NO_BIAS, layer),
           o = linear_of(c, P_O, NO_BIAS, layer);
    linear_forward(c, k.kva, x, &kv_a, leaves_one(x.cols));
    op_rmsnorm(d, latent_of(key, s), k.kv_rstd, latent_of(k.kva, s), param(c->w, P_KV_A_NORM, layer), INNER_EPS);
    op_copy(d, tensor_cols(key, s.R, s.r), tensor_cols(k.kva, s.R, s.r));
    k.key = tp_enter(&c->par, d, a, key, T);
    op_rope(d, k.key, c->cossin, rope_k(c, s), +1);

    k.a = (Attn){ .k = k.key,
                  .v = latent_of(k.key, s),
                  .seqs = c->seqs,
                  .from = c->from,
                  .start = c->start,
                  .heads = s.N,
                  .kv_heads = 1,
                  .dk = s.R + s.r,
                  .dv = s.R,
                  .scale = c->scale };
    bool expands = d->ops->expands; /* backward wants what is behind W_uv, and no absorbed query */
    k.a.lse = at->lse.data ? at->lse : keep ? push_f32(a, T, s.N) : TENSOR_NONE;
    k.ov = at->o.data ? at->o : push(c, expands ? a : tmp, T, (int64_t)s.N * s.u);
    if (s.N && (!known || !at->o.data)) {
        k.a.q = absorb(c, layer, k.q, expands ? tmp : cheap);
        k.a.o = push(c, expands ? tmp : a, T, (int64_t)s.N * s.R);
        watch_op(d, "queries", &k.a.q, 1);
        watch_op(d, "keys", &k.a.k, 1);
        attention(c, layer, &k.a);
        linear_heads(c, k.ov, k.a.o, &kv_b, out_of_latent(s));
        watch_op(d, "values", &k.ov, 1);
    }
    linear_exit(c, y, part, s.N ? k.ov : TENSOR_NONE, &o, by_heads(c, s.u)); /* heads may be fewer than ranks */
    bias_forward(c, y, param(c->w, P_OB, layer));
    if (keep) {
        *keep = k;
        if (expands) keep->a.q = keep->a.o = TENSOR_NONE;
        else keep->a.q = kept(c, k.a.q), keep->ov = TENSOR_NONE;
    }
    arena_pop(tmp, mark);
}

/* d of the query [T,N*(n+r)] -> dx (written) and the gradients of the query's projections. */
static void query_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dq, Tensor x, const MlaKeep *k) {
    Dev *d = c->dev;
    Shape s = shape_of(c);
    Arena *tmp = &d->tmp;
    if (s.N) op_rope(d, dq, c->cossin, rope_q(c, s), -1);
    if (!c->m->d.q_lora) {
        Linear q = linear_of(c, P_Q, NO_BIAS, layer);
        Tensor all = tp_enter(&c->par, d, tmp, x, c->tokens), dpart = tp_partial(&c->par, tmp, dx, c->tokens);
        if (s.N) {
            linear_dw(c, g, &q, dq, all);
            linear_dx(c, dpart, dq, &q, by_heads(c, s.n + s.r));
        } else {
            op_zero(d, dpart);
        }
        tp_enter_bwd(&c->par, d, dx, dpart);
        return;
    }
    Linear q_a = linear_of(c, P_Q_A, P_Q_AB, layer), q_b = linear_of(c, P_Q_B, NO_BIAS, layer);
    Tensor again;
    Tensor qan = inner_norm(c, k->qa, layer, tmp, tmp, &again);
    Tensor qall = tp_enter(&c->par, d, tmp, qan, c->tokens);
    Tensor dqan = push(c, tmp, x.rows, qan.cols), dqa = push(c, tmp, x.rows, qan.cols);
    Tensor dpart = tp_partial(&c->par, tmp, dqan, c->tokens);
    if (s.N) {
        linear_dw(c, g, &q_b, dq, qall);
        linear_dx(c, dpart, dq, &q_b, by_heads(c, s.n + s.r));
    } else {
        op_zero(d, dpart);
    }
    tp_enter_bwd(&c->par, d, dqan, dpart);
    op_rmsnorm_bwd(d, dqa, param(g, P_Q_A_NORM, layer), dqan, k->qa, k->qa_rstd, param(c->w, P_Q_A_NORM, layer));
    linear_dw(c, g, &q_a, dqa, x);
    linear_dx(c, dx, dqa, &q_a, leaves_one(dqa.cols));
}

/* dy -> dol [T,N*R]: through the output projection and W_uv. */
static void value_backward(const Ctx *c, int layer, const Params *g, Tensor dol, Tensor dy, Tensor ol) {
    Dev *d = c->dev;
    Shape s = shape_of(c);
    size_t mark = arena_mark(&d->tmp);
    Linear o = linear_of(c, P_O, NO_BIAS, layer), kv_b = linear_of(c, P_KV_B, NO_BIAS, layer);
    Tensor ov = push(c, &d->tmp, dy.rows, (int64_t)s.N * s.u), dov = push(c, &d->tmp, dy.rows, (int64_t)s.N * s.u);
    linear_heads(c, ov, ol, &kv_b, out_of_latent(s));
    linear_exit_dw(c, g, &o, dy, ov, by_heads(c, s.u));
    linear_exit_dx(c, dov, dy, &o);
    linear_heads_dw(c, g, &kv_b, dov, ol, out_of_latent(s));
    linear_heads(c, dol, dov, &kv_b, reversed(out_of_latent(s)));
    arena_pop(&d->tmp, mark);
}

/* This rank's rows of the sum over ranks of x [T,n]. */
static Tensor mine_of(const Ctx *c, Tensor x) {
    Arena *tmp = &c->dev->tmp;
    if (c->par.tp.size == 1) return x; /* not asked of the rows: one token is all of some rank's */
    Tensor mine = push(c, tmp, comm_share(&c->par.tp, x.rows), x.cols), part = tp_partial(&c->par, tmp, mine, x.rows);
    op_copy(c->dev, part, x);
    tp_enter_bwd(&c->par, c->dev, mine, part);
    return mine;
}

/* dy -> dq [T,N*(n+r)], still rotated, and dkey [T,R+r]: the mirror of the forward. */
static void absorbed_backward(const Ctx *c, int layer, const Params *g, Tensor dq, Tensor dkey, Tensor dy,
                              const MlaKeep *k) {
    Dev *d = c->dev;
    Shape s = shape_of(c);
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    int64_t T = dy.rows;
    Attn a = k->a;
    if (!a.q.data) a.q = absorb(c, layer, k->q, tmp);

    Tensor dol = push(c, tmp, T, (int64_t)s.N * s.R);
    value_backward(c, layer, g, dol, dy, a.o);

    Tensor dql = push(c, tmp, T, (int64_t)s.N * (s.R + s.r)), dlat = push(c, tmp, T, s.R);
    cp_attend_bwd(&c->par, d, c->cp, dql, dkey, dlat, dol, &a);
    op_add(d, latent_of(dkey, s), latent_of(dkey, s), dlat); /* the latent is key and value */

    Linear kv_b = linear_of(c, P_KV_B, NO_BIAS, layer);
    linear_heads_dw(c, g, &kv_b, dql, k->q, into_latent(s));
    linear_heads(c, dq, dql, &kv_b, reversed(into_latent(s)));
    op_copy_heads(d, dq, dql, reversed(rope_part(s)));
    arena_pop(tmp, mark);
}

/* The same over expanded keys and values. */
static void expanded_backward(const Ctx *c, int layer, const Params *g, Tensor dq, Tensor dkey, Tensor dy,
                              const MlaKeep *k) {
    Dev *d = c->dev;
    Shape s = shape_of(c);
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    int64_t T = dy.rows;
    Linear o = linear_of(c, P_O, NO_BIAS, layer), kv_b = linear_of(c, P_KV_B, NO_BIAS, layer);
    Tensor latent = latent_of(k->key, s);
    Tensor dov = push(c, tmp, T, (int64_t)s.N * s.u);
    linear_exit_dw(c, g, &o, dy, k->ov, by_heads(c, s.u));
    linear_exit_dx(c, dov, dy, &o);

    Tensor dk = push(c, tmp, T, (int64_t)s.N * (s.n + s.r)), dv = push(c, tmp, T, (int64_t)s.N * s.u);
    size_t inner = arena_mark(tmp);
    Attn a = k->a;
    a.q = k->q, a.o = k->ov, a.kv_heads = s.N, a.dk = s.n + s.r, a.dv = s.u;
    a.k = push(c, tmp, T, dk.cols), a.v = push(c, tmp, T, dv.cols);
    linear_heads(c, a.k, latent, &kv_b, key_of_latent(s));
    op_copy_heads(d, a.k, k->key, rope_of_key(s));
    linear_heads(c, a.v, latent, &kv_b, value_of_latent(s));
    cp_attend_bwd(&c->par, d, c->cp, dq, dk, dv, dov, &a);
    arena_pop(tmp, inner);

    Tensor dkv = push(c, tmp, T, (int64_t)s.N * (s.n + s.u));
    op_copy_heads(d, dkv, dk, into_kv(s, s.n + s.r, s.n, 0));
    op_copy_heads(d, dkv, dv, into_kv(s, s.u, s.u, s.n));
    linear_dw(c, g, &kv_b, dkv, latent);
    linear_dx(c, latent_of(dkey, s), dkv, &kv_b, by_heads(c, s.n + s.u));
    op_sum_heads(d, dkey, dk, reversed(rope_of_key(s)));
    arena_pop(tmp, mark);
}

static void backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x, const MixerKeep *keep) {
    const MlaKeep *k = &keep->mla;
    Dev *d = c->dev;
    Shape s = shape_of(c);
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    int64_t T = c->tokens;
    bias_backward(c, param(g, P_OB, layer), dy);
    Tensor dall = tp_exit_bwd(&c->par, d, tmp, dy, T);
    Linear kv_a = linear_of(c, P_KV_A, P_KV_AB, layer);
    Tensor dq = push(c, tmp, T, (int64_t)s.N * (s.n + s.r)), dkey = push(c, tmp, T, s.R + s.r);
    if (!s.N) {
        Linear o = linear_of(c, P_O, NO_BIAS, layer);
        linear_exit_dw(c, g, &o, dall, TENSOR_NONE, by_heads(c, s.u)); /* an adapter's is summed over all ranks */
        op_zero(d, dkey);
    } else if (d->ops->expands) expanded_backward(c, layer, g, dq, dkey, dall, k);
    else absorbed_backward(c, layer, g, dq, dkey, dall, k);

    Tensor dkva = push(c, tmp, x.rows, s.R + s.r), part = push(c, tmp, x.rows, x.cols);
    op_rope(d, dkey, c->cossin, rope_k(c, s), -1);
    dkey = mine_of(c, dkey); /* each rank has what its heads say of every token */
    op_copy(d, tensor_cols(dkva, s.R, s.r), tensor_cols(dkey, s.R, s.r));
    op_rmsnorm_bwd(d, latent_of(dkva, s), param(g, P_KV_A_NORM, layer), latent_of(dkey, s), latent_of(k->kva, s),
                   k->kv_rstd, param(c->w, P_KV_A_NORM, layer));
    linear_dw(c, g, &kv_a, dkva, x);

    query_backward(c, layer, g, dx, dq, x, k);
    linear_dx(c, part, dkva, &kv_a, leaves_one(dkva.cols));
    op_add(d, dx, dx, part);
    arena_pop(tmp, mark);
}

static Kv cache(const ModelDesc *m, const Local *l) {
    (void)l; /* the latent is every head's */
    return (Kv){ .kv_heads = 1, .dk = (int)(m->d.kv_lora + m->d.rope_dim), .dv = (int)m->d.kv_lora, .latent = true };
}

const Mixer mixer_mla = { forward, backward, attended, cache, STORE_PAGES };
