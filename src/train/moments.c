/* moments.c - names, shapes and places of the optimizer's averages: one walk over the
 * parameter table, for writing and reading. */
#include "train/moments.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
    Moments *out;
    const Params *grads;
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
        StSpec s = { .name = mem_str(w->mem, w->name.data, w->name.n), .dtype = DT_F32 };
        if (!desc->vector) s.shape[s.n_dims++] = rows;
        s.shape[s.n_dims++] = cols;
        x->spec[x->n++] = s;
    }
}

Moments moments_of(const Params *grads, Mem *mem) {
    Moments x = { .first = MEM_ARRAY(mem, size_t, (size_t)grads->n) };
    Walk w = { &x, grads, mem, { 0 }, 0 };
    arch_each_param(grads->model, count_one, &w);
    x.spec = MEM_ARRAY(mem, StSpec, x.n);
    x.flat = MEM_ARRAY(mem, int64_t, x.n / 2);
    x.n = 0;
    arch_each_param(grads->model, add_one, &w);
    buf_free(&w.name);
    return x;
}

/* ---- reading */
typedef struct {
    const Moments *x;
    const StFiles *f;
    bool named;
} Source;

static const char *bytes_of(const Source *s, size_t k, int v, int64_t at) {
    static const char *const flat[2] = { "m", "v" };
    if (s->named) return st_find(s->f, s->x->spec[2 * k + (size_t)v].name)->data + at * 4;
    return st_find(s->f, flat[v])->data + (s->x->flat[k] + at) * 4;
}

/* Elements of a parameter that are this rank's, piece by piece: gathered on the host, then put. */
static void load_one(Optim *o, const Source *s, const Params *grads, int i, int v, Dev *d, float *stage, int64_t room) {
    int64_t at;
    Span own = optim_own(o, grads, i, &at);
    for (int64_t e = own.from; e < own.to;) {
        int64_t n = 0, most = own.to - e < room ? own.to - e : room;
        while (n < most) {
            ParamPlace p = param_place(grads->model, &grads->at[i], e + n);
            int64_t take = p.n < most - n ? p.n : most - n;
            memcpy(stage + n, bytes_of(s, s->x->first[i] + (size_t)p.expert, v, p.at), (size_t)take * 4);
            n += take;
        }
        optim_put(o, d, v ? STATE_V : STATE_M, at + e - own.from, n, stage);
        e += n;
    }
}

static bool is_ours(const Moments *x, const StFiles *f, Err *err) {
    for (size_t i = 0; i < x->n; i++) {
        const StTensor *t = st_find(f, x->spec[i].name);
        if (!t) return err_set(err, "there is no tensor %s", x->spec[i].name);
        if (t->dtype != DT_F32 || !st_is_shape(t, x->spec[i].n_dims, x->spec[i].shape)) {
            char got[96], want[96];
            st_shape_text(got, t->n_dims, t->shape), st_shape_text(want, x->spec[i].n_dims, x->spec[i].shape);
            return err_set(err, "%s is %s %s, this model wants F32 %s", t->name, dtype_name(t->dtype), got, want);
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

bool moments_load(Optim *o, const Moments *x, const Params *grads, Dev *d, const char *path, Err *err) {
    enum { STAGE = 1 << 18 };
    Mem mem = { 0 };
    StFiles f = { 0 };
    bool ok = st_open(&f, path, &mem, err);
    Source s = { x, &f, ok && !st_find(&f, "m") };
    if (ok && !(s.named ? is_ours(x, &f, err) : is_ours_flat(grads->model, &f, err))) ok = err_wrap(err, "%s", path);
    float *stage = ok ? MEM_ARRAY(&mem, float, STAGE) : NULL;
    for (int i = 0; ok && i < grads->n; i++)
        for (int v = 0; v < 2; v++) {
            load_one(o, &s, grads, i, v, d, stage, STAGE);
            const Slice *sl = &grads->at[i].slice;
            for (int64_t e = sl->e0; s.named && e < sl->e0 + sl->experts; e++)
                st_done_with(&f, st_find(&f, x->spec[2 * (x->first[i] + (size_t)e) + (size_t)v].name));
        }
    st_close(&f);
    mem_free(&mem);
    return ok;
}
