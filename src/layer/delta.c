/* delta.c - the gated delta net (Qwen3-Next, Qwen3.5): short filters over q, k and v, q and k of unit length, a state
 * that each token decays and corrects, a norm and a gate by head behind it.  A key head serves 'each' value heads.  The
 * state goes on from call to call in the engine's store, so every cut of a sequence has the same bits.
 *
 * T tokens, K key heads of dk, h value heads of dv on this rank. */
#include "layer/linear.h"

#include <math.h>

typedef struct {
    int keys, heads, dk, dv, each;
    int64_t k, v, state; /* columns of q or k, of v; floats of S */
} Shape;
static Shape shape_at(const Dims *d, int64_t keys) {
    int each = (int)d->dn_each;
    return (Shape){ (int)keys, (int)keys * each, (int)d->dn_dk,          (int)d->dn_dv,
                    each,      keys * d->dn_dk,  keys * each * d->dn_dv, keys * each * d->dn_dk * d->dn_dv };
}
static Shape shape_of(const Ctx *c, int layer) {
    return shape_at(&c->m->d, param(c->w, P_DN_LOG_A, layer).cols / c->m->d.dn_each);
}
/* Which part of a sum over key heads, 'width' columns each, is this rank's. */
static Leaves by_keys(const Ctx *c, int64_t width) { return leaves_of(c, &c->par.tp, c->m->d.dn_keys, width); }

/* What filter i of q, k, v remembers lies behind S; the layer's state of these sequences, or none in training. */
static Remembered remembered(const Ctx *c, int layer, int64_t from) {
    Remembered r = { .seqs = c->seqs, .from = from };
    if (c->kv) r.seqs = c->paged.rows, r.start = c->paged.start, r.slot = c->paged.slot, r.state = c->kv[layer].state;
    return r;
}

/* ---- projections: in six tensors, or by key head in two, which are dealt out */
enum { IN_Q, IN_K, IN_V, IN_Z, IN_B, IN_A, INS };
static const ParamId apart[INS] = { P_DN_Q, P_DN_K, P_DN_V, P_DN_Z, P_DN_B, P_DN_A };
static int64_t width_of(Shape s, int i) { /* columns a key head */
    return i <= IN_K ? s.dk : i <= IN_Z ? (int64_t)s.each * s.dv : s.each;
}
/* Part i of what lies by key head in one of two tensors. */
static HeadMap grouped(Shape s, int i, bool *second) {
    int64_t before = 0;
    *second = i >= IN_B;
    for (int k = *second ? IN_B : IN_Q; k < i; k++) before += width_of(s, k);
    int64_t all = *second ? 2 * s.each : 2 * s.dk + 2 * (int64_t)s.each * s.dv;
    return (HeadMap){ .heads = s.keys,
                      .in = (int)width_of(s, i),
                      .out = (int)width_of(s, i),
                      .x_width = (int)all,
                      .x_from = (int)before,
                      .y_width = (int)width_of(s, i) };
}
static void project(const Ctx *c, int layer, Shape s, const Tensor *y, Tensor all) {
    Leaves sum = leaves_one(all.cols);
    if (!c->m->d.dn_grouped) {
        for (int i = 0; i < INS; i++) {
            Linear l = linear_of(c, apart[i], NO_BIAS, layer);
            linear_forward(c, y[i], all, &l, sum);
        }
        return;
    }
    size_t mark = arena_mark(&c->dev->tmp);
    Linear l[] = { linear_of(c, P_DN_QKVZ, NO_BIAS, layer), linear_of(c, P_DN_BA, NO_BIAS, layer) };
    Tensor both[] = { push(c, &c->dev->tmp, all.rows, l[0].w.rows), push(c, &c->dev->tmp, all.rows, l[1].w.rows) };
    for (int i = 0; i < 2; i++) linear_forward(c, both[i], all, &l[i], sum);
    for (int i = 0; i < INS; i++) {
        bool second;
        HeadMap map = grouped(s, i, &second);
        op_copy_heads(c->dev, y[i], both[second], map);
    }
    arena_pop(&c->dev->tmp, mark);
}
static void add_dx(const Ctx *c, Tensor dx, Tensor more, Tensor dy, const Linear *l, int64_t width, bool first) {
    linear_dx(c, first ? dx : more, dy, l, by_keys(c, width));
    if (!first) op_add(c->dev, dx, dx, more);
}
static void project_back(const Ctx *c, int layer, const Params *g, Shape s, Tensor dx, const Tensor *dy, Tensor all) {
    size_t mark = arena_mark(&c->dev->tmp);
    Tensor more = tensor_push(&c->dev->tmp, dx.dtype, dx.rows, dx.cols);
    for (int i = 0; i < INS && !c->m->d.dn_grouped; i++) {
        Linear l = linear_of(c, apart[i], NO_BIAS, layer);
        add_dx(c, dx, more, dy[i], &l, width_of(s, i), i == 0);
        linear_dw(c, g, &l, dy[i], all);
    }
    for (int k = 0; k < 2 && c->m->d.dn_grouped; k++) {
        Linear l = linear_of(c, k ? P_DN_BA : P_DN_QKVZ, NO_BIAS, layer);
        Tensor both = push(c, &c->dev->tmp, dx.rows, l.w.rows);
        for (int i = 0; i < INS; i++) {
            bool second;
            HeadMap map = grouped(s, i, &second), back = map;
            back.x_width = map.y_width, back.x_from = 0, back.y_width = map.x_width, back.y_from = map.x_from;
            if (second == k) op_copy_heads(c->dev, both, dy[i], back);
        }
        add_dx(c, dx, more, both, &l, both.cols / s.keys, k == 0);
        linear_dw(c, g, &l, both, all);
    }
    arena_pop(&c->dev->tmp, mark);
}

/* ---- between: everything that is cheap is made again in backward */
typedef struct {
    Tensor soft[3], q, k, rho_q, rho_k, g, beta; /* soft: behind the filters */
    Delta x;
} Between;
static const ParamId filters[] = { P_DN_CONV_Q, P_DN_CONV_K, P_DN_CONV_V };
static Decay decay_of(const Ctx *c, int layer, Tensor a, Tensor b) {
    return (Decay){ a, b, param(c->w, P_DN_LOG_A, layer), param(c->w, P_DN_DT, layer) };
}
static float scale_of(Shape s) { return 1 / sqrtf((float)s.dk); }
static Between between(const Ctx *c, int layer, Shape s, const DeltaKeep *k) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    Between y;
    int64_t T = k->z.rows, from = s.state;
    for (int i = 0; i < 3; i++) {
        Tensor w = param(c->w, filters[i], layer);
        Remembered r = remembered(c, layer, from);
        y.soft[i] = push(c, tmp, T, k->raw[i].cols);
        op_conv(d, y.soft[i], k->raw[i], w, &r);
        from += (w.cols - 1) * w.rows;
    }
    y.q = push(c, tmp, T, s.k), y.k = push(c, tmp, T, s.k);
    y.rho_q = push_f32(tmp, T, s.keys), y.rho_k = push_f32(tmp, T, s.keys);
    op_unit(d, y.q, y.rho_q, y.soft[0], s.keys, scale_of(s));
    op_unit(d, y.k, y.rho_k, y.soft[1], s.keys, 1);
    y.g = push_f32(tmp, T, s.heads), y.beta = push_f32(tmp, T, s.heads);
    Decay decay = decay_of(c, layer, k->a, k->b);
    op_decay(d, y.g, y.beta, &decay);
    y.x = (Delta){ .q = y.q,
                   .k = y.k,
                   .v = y.soft[2],
                   .g = y.g,
                   .beta = y.beta,
                   .r = remembered(c, layer, 0),
                   .keys = s.keys,
                   .heads = s.heads,
                   .dk = s.dk,
                   .dv = s.dv };
    return y;
}

static void forward(const Ctx *c, int layer, Tensor y, Tensor x, const Raw *raw, const Attended *at, bool known,
                    MixerKeep *keep) {
    (void)raw, (void)at, (void)known;
    Dev *d = c->dev;
    Arena *tmp = &d->tmp, *a = keep_always(c, keep);
    size_t mark = arena_mark(tmp);
    Shape s = shape_of(c, layer);
    Tensor all = tp_enter(&c->par, d, tmp, x, c->tokens), part = tp_partial(&c->par, tmp, y, c->tokens);
    int64_t T = all.rows;
    DeltaKeep k = { .raw = { push(c, a, T, s.k), push(c, a, T, s.k), push(c, a, T, s.v) },
                    .z = push(c, a, T, s.v),
                    .b = push(c, a, T, s.heads),
                    .a = push(c, a, T, s.heads),
                    .o = push(c, a, T, s.v) };
    const Tensor in[INS] = { k.raw[0], k.raw[1], k.raw[2], k.z, k.b, k.a };
    project(c, layer, s, in, all);
    Between m = between(c, layer, s, &k);
    op_delta(d, k.o, &m.x);
    Tensor h = push(c, tmp, T, s.v), rho = push_f32(tmp, T, s.heads);
    op_norm_gate(d, h, rho, k.o, k.z, param(c->w, P_DN_NORM, layer), s.heads, (float)c->m->d.eps);
    Linear out = linear_of(c, P_DN_OUT, NO_BIAS, layer);
    linear_exit(c, y, part, h, &out, by_keys(c, (int64_t)s.each * s.dv));
    if (keep) keep->delta = k;
    arena_pop(tmp, mark);
}

static void backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x, const MixerKeep *keep) {
    Dev *d = c->dev;
    Arena *tmp = &d->tmp;
    size_t mark = arena_mark(tmp);
    Shape s = shape_of(c, layer);
    const DeltaKeep *k = &keep->delta;
    Tensor dall = tp_exit_bwd(&c->par, d, tmp, dy, c->tokens), all = tp_enter(&c->par, d, tmp, x, c->tokens);
    Tensor dpart = tp_partial(&c->par, tmp, dx, c->tokens);
    int64_t T = all.rows;
    Between m = between(c, layer, s, k);
    Tensor gain = param(c->w, P_DN_NORM, layer), h = push(c, tmp, T, s.v), rho = push_f32(tmp, T, s.heads);
    Linear out = linear_of(c, P_DN_OUT, NO_BIAS, layer);
    op_norm_gate(d, h, rho, k->o, k->z, gain, s.heads, (float)c->m->d.eps);
    linear_exit_dw(c, g, &out, dall, h, by_keys(c, (int64_t)s.each * s.dv));
    Tensor dh = push(c, tmp, T, s.v), dO = h, dz = push(c, tmp, T, s.v);
    linear_exit_dx(c, dh, dall, &out);
    op_norm_gate_bwd(d, dO, dz, param(g, P_DN_NORM, layer), dh, k->o, k->z, gain, rho, s.heads);

    DeltaGrad e = { push(c, tmp, T, s.k), push(c, tmp, T, s.k), dh, push_f32(tmp, T, s.heads),
                    push_f32(tmp, T, s.heads) };
    op_delta_bwd(d, &e, dO, &m.x);
    op_unit_bwd(d, e.q, e.q, m.soft[0], m.rho_q, s.keys, scale_of(s));
    op_unit_bwd(d, e.k, e.k, m.soft[1], m.rho_k, s.keys, 1);
    const Tensor dsoft[] = { e.q, e.k, e.v };
    Tensor draw[] = { push(c, tmp, T, s.k), push(c, tmp, T, s.k), push(c, tmp, T, s.v) };
    for (int i = 0; i < 3; i++) {
        Remembered r = remembered(c, layer, 0);
        op_conv_bwd(d, draw[i], param(g, filters[i], layer), dsoft[i], k->raw[i], param(c->w, filters[i], layer), &r);
    }
    Tensor da = push(c, tmp, T, s.heads), db = push(c, tmp, T, s.heads);
    Decay decay = decay_of(c, layer, k->a, k->b);
    op_decay_bwd(d, da, db, param(g, P_DN_LOG_A, layer), param(g, P_DN_DT, layer), e.g, e.beta, &decay);
    const Tensor din[INS] = { draw[0], draw[1], draw[2], dz, db, da };
    project_back(c, layer, g, s, dpart, din, all);
    tp_enter_bwd(&c->par, d, dx, dpart);
    arena_pop(tmp, mark);
}

static Attended attended(const Ctx *c, Arena *a) {
    (void)c, (void)a;
    return (Attended){ TENSOR_NONE, TENSOR_NONE };
}

/* S, then the rows that the filters look back at. */
static Kv cache(const ModelDesc *m, const Local *l) {
    Shape s = shape_at(&m->d, l->dn_keys);
    return (Kv){ .floats = s.state + (m->d.dn_conv - 1) * (2 * s.k + s.v) };
}

const Mixer mixer_delta = { forward, backward, attended, cache, STORE_STATE, .takes_raw = false };
