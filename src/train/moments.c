/* moments.c - names, shapes and places of the optimizer's averages: one walk over the parameter table, for writing and reading. */
#include "train/moments.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
    Moments *out;
    const Params *grads;
    Mem *mem;
    Buf name;
} Walk;

static void count_one(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    (void)layer, (void)expert, (void)rows, (void)cols;
    if (!desc->frozen) ((Walk *)user)->out->n += 2;
}

static void add_one(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    Walk *w = user;
    Moments *x = w->out;
    if (desc->frozen) return;
    size_t k = x->n / 2;
    Tensor all = param(w->grads, desc->id, layer);
    x->at[k] = ((const float *)all.data - (const float *)w->grads->flat.data) + expert * rows * cols;
    x->count[k] = rows * cols;
    for (int v = 0; v < 2; v++) {
        buf_clear(&w->name);
        buf_puts(&w->name, v ? "v." : "m.");
        arch_param_name(&w->name, desc, layer, expert);
        StSpec s = { .name = mem_str(w->mem, w->name.data, w->name.n), .dtype = DT_F32 };
        if (!desc->vector) s.shape[s.n_dims++] = rows;
        s.shape[s.n_dims++] = cols;
        x->spec[x->n++] = s;
    }
}

Moments moments_of(const Params *grads, Mem *mem) {
    Moments x = { 0 };
    Walk w = { &x, grads, mem, { 0 } };
    arch_each_param(grads->model, count_one, &w);
    x.spec = MEM_ARRAY(mem, StSpec, x.n);
    x.at = MEM_ARRAY(mem, int64_t, x.n / 2), x.count = MEM_ARRAY(mem, int64_t, x.n / 2);
    x.n = 0;
    arch_each_param(grads->model, add_one, &w);
    buf_free(&w.name);
    return x;
}

/* Flat elements [at, at+n) of one average may lie on both sides of the cut between host and device: the part on one side. */
static Tensor side(const Optim *o, const Tensor part[2], int64_t at, int64_t n, int on_dev) {
    int64_t from = on_dev ? at - o->split : at, to = from + n, end = on_dev ? o->n - o->split : o->split;
    if (from < 0) from = 0;
    if (to > end) to = end;
    return from < to ? tensor_cols(part[on_dev], from, to - from) : TENSOR_NONE;
}

void moments_get(void *to, const Moments *x, size_t i, int64_t from, int64_t n, const Optim *o, Dev *d) {
    for (int on_dev = 0; on_dev < 2; on_dev++) {
        Tensor t = side(o, i % 2 ? o->v : o->m, x->at[i / 2] + from, n, on_dev);
        if (!t.data) continue;
        op_get(d, to, t);
        to = (float *)to + t.cols;
    }
}

static void put(Optim *o, const Tensor part[2], int64_t at, int64_t n, Dev *d, const char *from) {
    for (int on_dev = 0; on_dev < 2; on_dev++) {
        Tensor t = side(o, part, at, n, on_dev);
        if (!t.data) continue;
        op_put(d, t, from);
        from += t.cols * 4;
    }
}

static bool load_named(Optim *o, const Moments *x, Dev *d, const StFiles *f, Err *err) {
    for (size_t i = 0; i < x->n; i++) {
        const StTensor *t = st_find(f, x->spec[i].name);
        if (!t) return err_set(err, "there is no tensor %s", x->spec[i].name);
        if (t->dtype != DT_F32 || !st_is_shape(t, x->spec[i].n_dims, x->spec[i].shape)) {
            char got[96], want[96];
            st_shape_text(got, t->n_dims, t->shape), st_shape_text(want, x->spec[i].n_dims, x->spec[i].shape);
            return err_set(err, "%s is %s %s, this model wants F32 %s", t->name, dtype_name(t->dtype), got, want);
        }
    }
    if (f->n != x->n) return err_set(err, "%zu tensors, this model has %zu", f->n, x->n);
    for (size_t i = 0; i < x->n; i++) {
        const StTensor *t = st_find(f, x->spec[i].name);
        put(o, i % 2 ? o->v : o->m, x->at[i / 2], x->count[i / 2], d, t->data);
        st_done_with(f, t);
    }
    return true;
}

static bool load_flat(Optim *o, Dev *d, const StFiles *f, Err *err) {
    static const char *const names[2] = { "m", "v" };
    for (int v = 0; v < 2; v++) {
        const StTensor *t = st_find(f, names[v]);
        if (!t || t->dtype != DT_F32 || t->count != o->n)
            return err_set(err, "\"%s\" does not have this model's %" PRId64 " entries", names[v], o->n);
    }
    for (int v = 0; v < 2; v++) put(o, v ? o->v : o->m, 0, o->n, d, st_find(f, names[v])->data);
    return true;
}

bool moments_load(Optim *o, const Moments *x, Dev *d, const char *path, Err *err) {
    Mem mem = { 0 };
    StFiles f = { 0 };
    bool ok = st_open(&f, path, &mem, err);
    if (ok && !(st_find(&f, "m") ? load_flat(o, d, &f, err) : load_named(o, x, d, &f, err)))
        ok = err_wrap(err, "%s", path);
    st_close(&f);
    mem_free(&mem);
    return ok;
}
