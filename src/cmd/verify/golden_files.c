/* golden_files.c - gradients and weights of `hone verify`, tensor by tensor under their names on disk: held against the
 * reference's files, or written to our own. */
#include "cmd/verify/golden_in.h"
#include "base/file.h"
#include "train/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Calls fn for every tensor under its name on disk, expert by expert: what of it is this rank's. */
typedef struct {
    char name[256];
    Tensor t;
    int64_t n, r0, c0, rows, cols; /* where t begins in it; rows and cols of the whole */
    char in[256];                  /* the tensor that it may be a range of there, which begins at its row first, */
    int64_t first, all;            /* of so many; or "" */
    const ParamDesc *desc;
    int layer, expert;
} Named;
typedef bool NamedFn(void *user, const Named *x);
static void in_tensor(Named *x, const ModelDesc *m, int layer, int expert) {
    Buf name = { 0 };
    x->first = arch_param_in(&name, m, x->desc, layer, expert);
    x->all = dim_at(&m->d, x->desc->all) * (x->desc->where == IN_EXPERT ? m->d.experts : 1);
    snprintf(x->in, sizeof x->in, "%s", name.data);
    buf_free(&name);
}
static bool each_named(const Params *p, NamedFn *fn, void *user) {
    for (int i = 0; i < p->n; i++) {
        const Param *q = &p->at[i];
        const Slice *s = &q->slice;
        for (int e = (int)s->e0; e < s->e0 + s->experts; e++) {
            Named x = { .t = tensor_rows(q->t, (e - s->e0) * s->rows, s->rows),
                        .r0 = s->r0,
                        .c0 = s->c0,
                        .rows = param_rows(&p->model->d, q->desc, q->layer),
                        .cols = param_cols(&p->model->d, q->desc, q->layer),
                        .desc = q->desc,
                        .layer = q->layer,
                        .expert = e };
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the table's own names */
            snprintf(x.name, sizeof x.name, q->desc->name, q->layer, e);
#pragma GCC diagnostic pop
            if (q->desc->in) in_tensor(&x, p->model, q->layer, e);
            x.n = x.t.rows * x.t.cols;
            if (!fn(user, &x)) return false;
        }
    }
    return true;
}

typedef struct {
    Golden *g;
    StFiles file;
    Mem mem;
    double worst, most;  /* most: of an entry, before it counts as over */
    double wrong, whole; /* squares: of the differences, of the reference */
    int64_t over, all;
    bool step;
    char where[256], missing[256];
} Compare;

/* The values to compare with: of the tensor itself, or of the one that it is a range of, from element begin on. */
static bool reference(float **want, int64_t *count, int64_t *begin, const Compare *c, const Named *x, Mem *mem) {
    *count = x->rows * x->cols, *begin = 0;
    if (x->desc->part) {
        *want = MEM_ARRAY(mem, float, (size_t)*count + 1);
        return peft_value(*want, &c->file, c->g->o.desc.adapter, x->desc, x->layer, x->expert);
    }
    const StTensor *ref = st_find(&c->file, x->name);
    if (!ref && x->in[0]) ref = st_find(&c->file, x->in), *count = x->all * x->cols, *begin = x->first;
    if (!ref || ref->dtype != DT_F32 || ref->count != *count) return false;
    if (*count == x->rows * x->cols) *begin = 0;
    *want = mem_copy(mem, ref->data, ref->bytes);
    return true;
}

static bool compare_one(void *user, const Named *x) {
    Compare *c = user;
    if (x->desc->frozen) return true;
    Mem mem = { 0 };
    int64_t count, begin;
    float *got = MEM_ARRAY(&mem, float, (size_t)x->n + 1), *want, top = 0;
    if (!reference(&want, &count, &begin, c, x, &mem)) {
        snprintf(c->missing, sizeof c->missing, "%s", x->name);
        return mem_free(&mem), true;
    }
    if (x->n) op_get(&c->g->o.dev, got, x->t);
    for (int64_t i = 0; i < count; i++) top = fmaxf(top, fabsf(want[i]));
    double scale = c->step ? 1 : fmax(top, 1e-3); /* an expert without tokens has gradient 0: a floor */
    for (int64_t i = 0; i < x->n; i++) {
        double ours = (double)got[i],
               theirs = (double)want[(begin + x->r0 + i / x->t.cols) * x->cols + x->c0 + i % x->t.cols];
        double off = ours - theirs, d = fabs(off) / scale;
        c->wrong += off * off, c->whole += theirs * theirs;
        c->over += !(d <= c->most);
        if (!(d <= c->worst)) c->worst = d, snprintf(c->where, sizeof c->where, "%s", x->name);
    }
    c->all += x->n;
    mem_free(&mem);
    return true;
}

void golden_compare(Golden *g, const char *file, const Params *p, const char *what, bool step) {
    char path[4096];
    Err err;
    snprintf(path, sizeof path, "%s/%s", g->opts->golden, file);
    if (!file_exists(path)) {
        golden_skip(g, what, "the file is not there");
        return;
    }
    Compare c = { .g = g, .step = step, .most = step ? 2e-4 : golden_allowed(g, "gradients", 2e-4) };
    if (c.most < 0 || (step && is_half(g))) {
        golden_skip(g, what, step ? "computed in bfloat16: Adam divides by the gradient" : NO_MEASURE);
        return;
    }
    if (!st_open(&c.file, path, &c.mem, &err)) {
        golden_tell(g, "FAILED", what, err.msg, NULL);
        g->r->failed++;
    } else {
        each_named(p, compare_one, &c);
        c.worst = comm_max(all_ranks(g), c.worst);
        c.over = comm_sum_i64(all_ranks(g), c.over), c.all = comm_sum_i64(all_ranks(g), c.all);
        char where[640] = "";
        if (c.missing[0]) snprintf(where, sizeof where, "%s has no tensor %s of that size", file, c.missing);
        else snprintf(where, sizeof where, "worst in %s", c.where);
        bool ok = !c.missing[0];
        if (is_half(g)) {
            double share = sqrt(c.wrong / fmax(c.whole, 1e-30));
            ok = ok && share <= c.most;
            golden_report(g, ok, what, ok ? NULL : where, "error's norm %.2e of the whole, %g allowed", share, c.most);
            st_close(&c.file);
            mem_free(&c.mem);
            return;
        }
        ok = ok && (step ? c.worst <= 2e-2 && (double)c.over <= 1e-3 * (double)c.all : c.over == 0);
        golden_report(g, ok, what, ok ? NULL : where,
                      step ? "worst entry %.2e, %g of them beyond 2e-4"
                           : "worst error %.2e of the tensor's largest entry",
                      c.worst, (double)c.over);
        st_close(&c.file);
    }
    mem_free(&c.mem);
}

/* ---- our own files, for others to compare */
typedef struct {
    Golden *g;
    VEC(StSpec)
    spec;
    StWriter *w;
    Mem mem;
    Err *err;
} Dump;

static bool dump_spec(void *user, const Named *x) {
    Dump *d = user;
    StSpec s = {
        mem_str(&d->mem, x->name, strlen(x->name)), DT_F32, x->desc->vector ? 1 : 2, { x->t.rows, x->t.cols }
    };
    if (x->desc->vector) s.shape[0] = x->n, s.shape[1] = 0;
    VEC_PUSH(d->spec, s);
    return true;
}

static bool dump_bytes(void *user, const Named *x) {
    Dump *d = user;
    Mem mem = { 0 };
    float *got = MEM_ARRAY(&mem, float, (size_t)x->n);
    weights_get(&d->g->o.dev, tensor_shape(x->t, 1, x->n), got);
    bool ok = st_write(d->w, got, (size_t)x->n * 4, d->err);
    mem_free(&mem);
    return ok;
}

bool golden_dump(Golden *g, const Params *p, const char *file, Err *err) {
    if (!g->opts->dump) return true;
    char path[4096];
    TRY(dir_make(g->opts->dump, err));
    snprintf(path, sizeof path, "%s/%s", g->opts->dump, file);
    Dump d = { .g = g, .err = err };
    each_named(p, dump_spec, &d);
    d.w = st_write_open(path, d.spec.at, d.spec.n, INT64_MAX, err);
    bool ok = d.w != NULL;
    if (ok && !each_named(p, dump_bytes, &d)) st_write_abort(d.w), ok = false;
    else if (ok) ok = st_write_close(d.w, err);
    vec_free(d.spec.at);
    mem_free(&d.mem);
    return ok;
}
