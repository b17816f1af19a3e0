/* moments.c - names, shapes and places of the optimizer's averages: one walk over the
 * parameter table, for writing and reading. */
#include "train/moments.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
    Moments *out;
    const Params *grads;
    DType t;
    Mem *mem;
    Buf name;
    size_t flat; /* bytes so far */
} Walk;

static void count_one(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    (void)layer, (void)expert, (void)rows, (void)cols;
    Walk *w = user;
    if (!arch_frozen(w->grads->model, desc)) w->out->n += 2;
}

static void add_one(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    Walk *w = user;
    Moments *x = w->out;
    if (arch_frozen(w->grads->model, desc)) return;
    size_t k = x->n / 2;
    int here = w->grads->index[layer][desc->id];
    if (!expert) {
        w->flat = arena_round(w->flat); /* a row's experts stood without gaps */
        if (here >= 0) x->first[here] = k;
    }
    x->flat[k] = (int64_t)(w->flat / 4);
    w->flat += (size_t)(rows * cols) * 4;
    for (int v = 0; v < 2; v++) {
        buf_clear(&w->name);
        buf_puts(&w->name, v ? "v." : "m.");
        arch_param_name(&w->name, desc, layer, expert);
        StSpec s = { .name = mem_str(w->mem, w->name.data, w->name.n), .dtype = w->t };
        if (!desc->vector) s.shape[s.n_dims++] = rows;
        s.shape[s.n_dims++] = cols;
        x->spec[x->n++] = s;
    }
}

Moments moments_of(const Params *grads, DType t, Mem *mem) {
    Moments x = { .first = MEM_ARRAY(mem, size_t, (size_t)grads->n) };
    Walk w = { &x, grads, t, mem, { 0 }, 0 };
    arch_each_param(grads->model, count_one, &w);
    x.spec = MEM_ARRAY(mem, StSpec, x.n);
    x.flat = MEM_ARRAY(mem, int64_t, x.n / 2);
    x.n = 0;
    arch_each_param(grads->model, add_one, &w);
    buf_free(&w.name);
    return x;
}

/* ---- reading */
static bool is_ours(const Moments *x, const StFiles *f, Err *err) {
    const StTensor *any = st_find(f, x->spec[0].name);
    DType t = any && any->dtype == DT_BF16 ? DT_BF16 : DT_F32;
    for (size_t i = 0; i < x->n; i++) {
        const StTensor *it = st_find(f, x->spec[i].name);
        if (!it) return err_set(err, "there is no tensor %s", x->spec[i].name);
        if (it->dtype != t || !st_is_shape(it, x->spec[i].n_dims, x->spec[i].shape)) {
            char got[96], want[96];
            st_shape_text(got, it->n_dims, it->shape), st_shape_text(want, x->spec[i].n_dims, x->spec[i].shape);
            return err_set(err, "%s is %s %s, this model wants %s %s", it->name, dtype_name(it->dtype), got,
                           dtype_name(t), want);
        }
    }
    return f->n == x->n || err_set(err, "%zu tensors, this model has %zu", f->n, x->n);
}

static bool is_ours_flat(const ModelDesc *m, const StFiles *f, Err *err) {
    static const char *const names[2] = { "m", "v" };
    int64_t n = (int64_t)(params_bytes(m, NULL, DT_F32, true) / 4);
    for (int v = 0; v < 2; v++) {
        const StTensor *t = st_find(f, names[v]);
        if (!t || t->dtype != DT_F32 || t->count != n)
            return err_set(err, "\"%s\" does not have this model's %" PRId64 " entries", names[v], n);
    }
    return true;
}

bool moments_check(const Moments *x, const Params *grads, const StFiles *f, Err *err) {
    return (moments_are_flat(f) ? is_ours_flat(grads->model, f, err) : is_ours(x, f, err))
           || err_wrap(err, "%s", f->path[0]);
}

void moments_load_flat(Optim *o, const Moments *x, const Params *grads, Dev *d, const StFiles *f) {
    enum { STAGE = 1 << 18 };
    Mem mem = { 0 };
    float *stage = MEM_ARRAY(&mem, float, STAGE);
    for (int i = 0; i < grads->n; i++)
        for (int v = 0; v < 2; v++) {
            int64_t at;
            Span own = optim_own(o, grads, i, &at);
            const char *all = st_find(f, v ? "v" : "m")->data;
            for (int64_t e = own.from, n; e < own.to; e += n) {
                ParamPlace p = param_place(grads->model, &grads->at[i], e);
                n = p.n < own.to - e ? p.n : own.to - e;
                if (n > STAGE) n = STAGE;
                memcpy(stage, all + (x->flat[x->first[i] + (size_t)p.expert] + p.at) * 4, (size_t)n * 4);
                optim_put(o, d, v ? STATE_V : STATE_M, at + e - own.from, n, stage);
            }
        }
    mem_free(&mem);
}
