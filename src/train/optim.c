/* optim.c - see optim.h. */
#include "train/optim.h"

#include <math.h>

static int64_t split_at(const Params *grads, double offload) {
    enum { UNIT = 1024 }; /* keeps both shares on vector borders */
    int64_t n = grads->flat.cols, s = (int64_t)((double)n * offload);
    if (offload >= 1) return n;
    return s / UNIT * UNIT;
}

size_t optim_bytes(const Params *grads, double offload, bool host) {
    int64_t s = split_at(grads, offload), n = host ? s : grads->flat.cols - s;
    return 2 * arena_round((size_t)n * 4);
}

void optim_open(Optim *o, const Params *grads, Dev *d, double offload) {
    *o = (Optim){ .n = grads->flat.cols, .split = split_at(grads, offload) };
    o->host = dev_arena(d, "optimizer (host)", optim_bytes(grads, offload, true));
    o->dev = dev_arena(d, "optimizer", optim_bytes(grads, offload, false));
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

double optim_norm(const Params *grads, Dev *d) { return sqrt(op_sumsq(d, grads->flat)); }

/* Elements [from, from+n) of the flat order are elements [at, at+n) of this parameter. */
static void step_part(Optim *o, Dev *d, Tensor w, Tensor full, Tensor g, int64_t from, int64_t at, int64_t n, Adam a) {
    int on_dev = from >= o->split;
    int64_t first = on_dev ? from - o->split : from;
    Tensor flat_w = tensor_shape(w, 1, w.rows * w.cols), flat_g = tensor_shape(g, 1, g.rows * g.cols);
    Tensor master = TENSOR_NONE;
    if (w.dtype == DT_BF16) master = tensor_cols(tensor_shape(full, 1, w.rows * w.cols), at, n);
    op_adamw(d, tensor_cols(flat_w, at, n), master, tensor_cols(o->m[on_dev], first, n),
             tensor_cols(o->v[on_dev], first, n), tensor_cols(flat_g, at, n), a);
}

void optim_step(Optim *o, const Params *w, const Params *full, const Params *grads, Dev *d, const AdamConf *c,
                double norm) {
    double scale = c->clip > 0 ? c->clip / (norm + 1e-6) : 1;
    o->step++;
    for (int i = 0; i < grads->n; i++) {
        const Param *p = &grads->at[i];
        Adam a = { .lr = (float)c->lr,
                   .beta1 = (float)c->beta1,
                   .beta2 = (float)c->beta2,
                   .eps = (float)c->eps,
                   .decay = p->desc->vector ? 0 : (float)c->decay,
                   .clip_scale = scale < 1 ? (float)scale : 1,
                   .step = o->step };
        int64_t from = ((const float *)p->t.data - (const float *)grads->flat.data), n = p->t.rows * p->t.cols,
                done = 0;
        Tensor wt = param(w, p->desc->id, p->layer), ft = param(full, p->desc->id, p->layer);
        while (done < n) {
            int64_t here = from + done < o->split && from + n > o->split ? o->split - from - done : n - done;
            step_part(o, d, wt, ft, p->t, from + done, done, here, a);
            done += here;
        }
    }
}
