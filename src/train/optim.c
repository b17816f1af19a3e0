/* optim.c - AdamW over a shard of the weights, on the device or on the host. */
#include "train/optim.h"
#include "op/adam.h"

#include <string.h>

static int64_t split_at(int64_t n, double offload) {
    enum { UNIT = 1024 }; /* keeps both shares on vector borders */
    int64_t s = (int64_t)((double)n * offload);
    if (offload >= 1) return n;
    return s / UNIT * UNIT;
}

static bool has_state(OptimTypes t, OptimState which) { return which != STATE_MASTER || t.weights != DT_F32; }
static DType dtype_of(OptimTypes t, OptimState which) { return which == STATE_MASTER ? t.master : t.moments; }

size_t optim_bytes(int64_t own, OptimTypes type, double offload, bool host) {
    int64_t s = split_at(own, offload), n = host ? s : own - s;
    size_t sum = 0;
    for (OptimState k = 0; k < STATES; k++)
        if (has_state(type, k)) sum += arena_round(tensor_bytes(dtype_of(type, k), 1, n));
    return sum;
}

/* The master of what was never rounded is the weight; the rest that rounding took from it is 0. */
static void take_masters(Optim *o, const Params *w, const Params *grads, Dev *d) {
    for (int i = 0; i < grads->n && o->type.weights != DT_F32; i++) {
        int64_t at;
        Span own = optim_own(o, grads, i, &at);
        Tensor x = param(w, grads->at[i].desc->id, grads->at[i].layer), part[2];
        if (x.dtype == DT_F32 || o->type.master != DT_F32) continue;
        int parts = optim_parts(o, STATE_MASTER, at, own.to - own.from, part);
        for (int k = 0; k < parts; own.from += part[k++].cols)
            op_copy(d, part[k], tensor_cols(tensor_shape(x, 1, x.rows * x.cols), own.from, part[k].cols));
    }
}

static void open_all(Optim *o, const Params *w, const Params *grads, Dev *d, double offload) {
    o->host = dev_host_arena(d, "optimizer (host)", optim_bytes(o->n, o->type, offload, true));
    for (int i = 0; i < 2; i++)
        for (OptimState k = 0; k < STATES; k++) {
            if (!has_state(o->type, k)) continue;
            DType t = dtype_of(o->type, k);
            o->state[k][i] = tensor_push(i ? &o->dev : &o->host, t, 1, i ? o->n - o->split : o->split);
            op_zero(d, o->state[k][i]);
        }
    o->w = w;
    take_masters(o, w, grads, d);
}

static void cut_up(Optim *o, const Params *grads, OptimTypes type, double offload) {
    *o = (Optim){ .type = type };
    for (Region k = 0; k < REGIONS; k++) {
        o->own[k] = reduce_own(grads, k);
        o->at[k] = o->n;
        o->n += o->own[k].to - o->own[k].from;
    }
    o->split = split_at(o->n, offload);
}

void optim_open(Optim *o, const Params *w, const Params *grads, Dev *d, OptimTypes type, double offload) {
    cut_up(o, grads, type, offload);
    o->dev = dev_arena(d, "optimizer", optim_bytes(o->n, type, offload, false));
    open_all(o, w, grads, d, offload);
}

void optim_open_in(Optim *o, const Params *w, const Params *grads, Dev *d, OptimTypes type, double offload, Arena in,
                   void *offloaded) {
    cut_up(o, grads, type, offload);
    o->dev = arena_over("optimizer", in.base, optim_bytes(o->n, type, offload, false));
    CHECK(o->dev.size <= in.size, "%zu bytes of states in %zu", o->dev.size, in.size);
    o->borrowed = true, o->offloaded = offloaded;
    open_all(o, w, grads, d, offload);
}

void optim_close(Optim *o, Dev *d) {
    dev_free(d, o->host.base);
    if (!o->borrowed) dev_free(d, o->dev.base);
}

static Tensor bytes_of(const Optim *o) { return tensor_over(o->dev.base, DT_U8, 1, (int64_t)o->dev.size); }
void optim_offload(Optim *o, Dev *d) {
    if (!o->borrowed || o->is_offloaded) return;
    if (o->dev.size) op_get(d, o->offloaded, bytes_of(o));
    o->is_offloaded = true;
}
void optim_reload(Optim *o, Dev *d) {
    if (!o->is_offloaded) return;
    if (o->dev.size) op_put(d, bytes_of(o), o->offloaded);
    o->is_offloaded = false;
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

int optim_parts(const Optim *o, OptimState which, int64_t from, int64_t n, Tensor out[2]) {
    const Tensor *state = o->state[which];
    int parts = 0;
    int64_t low = from + n < o->split ? n : from < o->split ? o->split - from : 0;
    if (low) out[parts++] = tensor_cols(state[0], from, low);
    if (n > low) out[parts++] = tensor_cols(state[1], from + low - o->split, n - low);
    return parts;
}

/* ---- as float32 on the host */
enum { SHORT = 1 << 14 }; /* elements of 16 bits on the stack */

/* Where a part of a state is in the host's memory, or NULL. */
static char *offloaded_at(const Optim *o, Tensor x) {
    if (!o || !o->is_offloaded || (char *)x.data < o->dev.base || (char *)x.data >= o->dev.base + o->dev.size)
        return NULL;
    return o->offloaded + ((char *)x.data - o->dev.base);
}
static void get_bytes(const Optim *o, Dev *d, void *to, Tensor x) {
    const char *at = offloaded_at(o, x);
    if (!at && o) at = params_offloaded_at(o->w, x);
    if (at) memcpy(to, at, tensor_bytes(x.dtype, 1, x.cols));
    else op_get(d, to, x);
}
static void put_bytes(const Optim *o, Dev *d, Tensor x, const void *from) {
    char *at = offloaded_at(o, x);
    if (at) memcpy(at, from, tensor_bytes(x.dtype, 1, x.cols));
    else op_put(d, x, from);
}

static void get_part(const Optim *o, Dev *d, Tensor x, Tensor w, float *to) {
    if (x.dtype == DT_F32) {
        get_bytes(o, d, to, x);
        return;
    }
    uint16_t a[SHORT], b[SHORT];
    for (int64_t i = 0, n; i < x.cols; i += n) {
        n = x.cols - i < SHORT ? x.cols - i : SHORT;
        get_bytes(o, d, a, tensor_cols(x, i, n));
        if (x.dtype == DT_I16) get_bytes(o, d, b, tensor_cols(w, i, n));
        for (int64_t k = 0; k < n; k++)
            to[i + k] = x.dtype == DT_I16 ? adam_joined(b[k], (int16_t)a[k]) : bf16_f32(a[k]);
    }
}
void weights_get(Dev *d, Tensor w, float *to) { get_part(NULL, d, w, w, to); }
void optim_weights(const Optim *o, Dev *d, Tensor w, float *to) { get_part(o, d, w, w, to); }
void optim_get(const Optim *o, Dev *d, OptimState which, int64_t from, int64_t n, Tensor w, float *to) {
    Tensor part[2];
    int parts = optim_parts(o, which, from, n, part);
    for (int64_t k = 0, at = 0; k < parts; at += part[k++].cols)
        get_part(o, d, part[k], part[k].dtype == DT_I16 ? tensor_cols(w, at, part[k].cols) : w, to + at);
}

static void put_part(const Optim *o, Dev *d, Tensor x, const float *from) {
    if (x.dtype == DT_F32) {
        put_bytes(o, d, x, from);
        return;
    }
    uint16_t a[SHORT];
    for (int64_t i = 0, n; i < x.cols; i += n) {
        n = x.cols - i < SHORT ? x.cols - i : SHORT;
        for (int64_t k = 0; k < n; k++)
            a[k] = x.dtype == DT_I16 ? (uint16_t)adam_split(from[i + k]).rest : f32_bf16(from[i + k]);
        put_bytes(o, d, tensor_cols(x, i, n), a);
    }
}
void optim_put(Optim *o, Dev *d, OptimState which, int64_t from, int64_t n, const float *x) {
    Tensor part[2];
    int parts = optim_parts(o, which, from, n, part);
    for (int k = 0; k < parts; x += part[k++].cols) put_part(o, d, part[k], x);
}

/* ---- a step */
/* What names element 'at' of a parameter: the same on all ranks that hold it (a tied embedding at both ends of a
 * pipeline, kv heads that several ranks of tp have), or their moments would be rounded apart, and then their weights.
 * Columns are cut only where one rank holds each. */
static int64_t element_name(const Param *p, int64_t at) {
    int64_t before = p->slice.r0 * p->slice.cols; /* rows of it that other ranks have */
    int64_t name = p->layer * P_COUNT + (int)p->desc->id;
    if (p->desc->part) name = MAX_LAYERS * P_COUNT + p->layer * P_SLOTS + (int)p->desc->id;
    return (name << 40) + before + at;
}

/* Elements [at, at+n) of a parameter w with gradient g, which are elements [from, from+n) of the states. */
static void step_part(const Optim *o, Dev *d, Tensor w, Tensor g, int64_t at, int64_t from, int64_t n, Adam a) {
    Tensor m[2], v[2], master[2] = { TENSOR_NONE, TENSOR_NONE };
    w = tensor_shape(w, 1, w.rows * w.cols), g = tensor_shape(g, 1, g.rows * g.cols);
    int parts = optim_parts(o, STATE_M, from, n, m);
    optim_parts(o, STATE_V, from, n, v);
    if (w.dtype != DT_F32) optim_parts(o, STATE_MASTER, from, n, master);
    for (int i = 0; i < parts; at += m[i].cols, a.first += m[i].cols, i++)
        op_adamw(d, tensor_cols(w, at, m[i].cols), master[i], m[i], v[i], tensor_cols(g, at, m[i].cols), a);
}

static void step_one(const Optim *o, const Params *w, const Params *grads, int i, Dev *d, const AdamConf *c,
                     double scale) {
    const Param *p = &grads->at[i];
    int64_t at;
    Span own = optim_own(o, grads, i, &at);
    Adam a = { .lr = (float)(c->tower_lr > 0 && arch_in_tower(p->desc) ? c->tower_lr : c->lr),
               .beta1 = (float)c->beta1,
               .beta2 = (float)c->beta2,
               .eps = (float)c->eps,
               .decay = p->desc->vector ? 0 : (float)c->decay,
               .clip_scale = scale < 1 ? (float)scale : 1,
               .step = o->step,
               .first = element_name(p, own.from) };
    if (own.from < own.to) step_part(o, d, param(w, p->desc->id, p->layer), p->t, own.from, at, own.to - own.from, a);
}

void optim_step(Optim *o, const Params *w, const Params *grads, const Groups *par, Dev *d, const AdamConf *c,
                double norm) {
    double scale = c->clip > 0 ? c->clip / (norm + 1e-6) : 1;
    CHECK(!o->is_offloaded, "a step of states that are parked");
    o->step++;
    comm_about(&par->dense, "weights", -1);
    CommCall round[REGIONS]; /* a region is handed round while the next is stepped */
    for (Region k = 0; k < REGIONS; k++) {
        for (int i = grads->first[k]; i < grads->first[k + 1]; i++) step_one(o, w, grads, i, d, c, scale);
        round[k] = reduce_gather_begin(w, grads, k, par, d);
    }
    for (Region k = 0; k < REGIONS; k++) comm_wait(&round[k]);
}
