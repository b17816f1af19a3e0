/* optim.c - AdamW over a shard of the weights, on the device or on the host. */
#include "train/optim.h"

static int64_t split_at(int64_t n, double offload) {
    enum { UNIT = 1024 }; /* keeps both shares on vector borders */
    int64_t s = (int64_t)((double)n * offload);
    if (offload >= 1) return n;
    return s / UNIT * UNIT;
}

size_t optim_bytes(int64_t own, double offload, bool host) {
    int64_t s = split_at(own, offload), n = host ? s : own - s;
    return 2 * arena_round((size_t)n * 4);
}

void optim_open(Optim *o, const Params *grads, Dev *d, double offload) {
    *o = (Optim){ 0 };
    for (Region k = 0; k < REGIONS; k++) {
        o->own[k] = reduce_own(grads, k);
        o->at[k] = o->n;
        o->n += o->own[k].to - o->own[k].from;
    }
    o->split = split_at(o->n, offload);
    o->host = dev_arena(d, "optimizer (host)", optim_bytes(o->n, offload, true));
    o->dev = dev_arena(d, "optimizer", optim_bytes(o->n, offload, false));
    for (int i = 0; i < 2; i++) {
        Arena *a = i ? &o->dev : &o->host;
        int64_t n = i ? o->n - o->split : o->split;
        o->m[i] = tensor_push(a, DT_F32, 1, n);
        o->v[i] = tensor_push(a, DT_F32, 1, n);
        op_zero(d, o->m[i]);
        op_zero(d, o->v[i]);
    }
}

void optim_close(Optim *o, Dev *d) {
    dev_free(d, o->host.base);
    dev_free(d, o->dev.base);
}

Span optim_own(const Optim *o, const Params *grads, int i, int64_t *at) {
    const Param *p = &grads->at[i];
    const Span *own = &o->own[param_region(p->desc, &grads->shard.g)];
    int64_t from = params_from(grads, i), first = own->from - from, end = own->to - from, n = p->t.rows * p->t.cols;
    if (first < 0) first = 0;
    if (end > n) end = n;
    *at = o->at[param_region(p->desc, &grads->shard.g)] + from + first - own->from;
    return (Span){ first, end > first ? end : first };
}

int optim_parts(const Optim *o, const Tensor state[2], int64_t from, int64_t n, Tensor out[2]) {
    int parts = 0;
    int64_t low = from + n < o->split ? n : from < o->split ? o->split - from : 0;
    if (low) out[parts++] = tensor_cols(state[0], from, low);
    if (n > low) out[parts++] = tensor_cols(state[1], from + low - o->split, n - low);
    return parts;
}

/* Elements [at, at+n) of parameter i, which are elements [from, from+n) of m and v. */
static void step_part(const Optim *o, Dev *d, Tensor w, Tensor full, Tensor g, int64_t at, int64_t from, int64_t n,
                      Adam a) {
    Tensor m[2], v[2], flat_w = tensor_shape(w, 1, w.rows * w.cols), flat_g = tensor_shape(g, 1, g.rows * g.cols);
    int parts = optim_parts(o, o->m, from, n, m);
    optim_parts(o, o->v, from, n, v);
    for (int i = 0; i < parts; at += m[i++].cols) {
        Tensor master = TENSOR_NONE;
        if (w.dtype == DT_BF16) master = tensor_cols(tensor_shape(full, 1, w.rows * w.cols), at, m[i].cols);
        op_adamw(d, tensor_cols(flat_w, at, m[i].cols), master, m[i], v[i], tensor_cols(flat_g, at, m[i].cols), a);
    }
}

static bool alone(const Groups *par) { return par->dense.size == 1 && par->edp.size == 1; }

void optim_step(Optim *o, const Params *w, const Params *full, const Params *grads, const Groups *par, Dev *d,
                const AdamConf *c, double norm) {
    double scale = c->clip > 0 ? c->clip / (norm + 1e-6) : 1;
    o->step++;
    for (int i = 0; i < grads->n; i++) {
        const Param *p = &grads->at[i];
        int64_t at;
        Span own = optim_own(o, grads, i, &at);
        Adam a = { .lr = (float)c->lr,
                   .beta1 = (float)c->beta1,
                   .beta2 = (float)c->beta2,
                   .eps = (float)c->eps,
                   .decay = p->desc->vector ? 0 : (float)c->decay,
                   .clip_scale = scale < 1 ? (float)scale : 1,
                   .step = o->step };
        if (own.from < own.to)
            step_part(o, d, param(w, p->desc->id, p->layer), param(full, p->desc->id, p->layer), p->t, own.from, at,
                      own.to - own.from, a);
    }
    if (alone(par)) return;
    reduce_gather(full, grads, par, d);
    for (int i = 0; i < w->n; i++) {
        Tensor x = w->at[i].t;
        if (x.dtype != DT_F32) op_copy(d, x, param(full, w->at[i].desc->id, w->at[i].layer));
    }
}
