/* source.c - where in which file each weight lies.
 * All names and shapes are checked before a byte is read, so a wrong folder fails at once. */
#include "param/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const ModelDesc *m;
    const char *dir;
    Sources *s;
    Buf name;
    bool *used; /* [files.n] */
    VEC(SourceItem)
    items;
    bool ok;
    Err *err;
} Checking;

static const StTensor *look(Checking *x, const char *name) {
    const StTensor *t = st_find(&x->s->files, name);
    Buf other = { 0 };
    if (!t && arch_param_other_name(&other, x->m, name)) t = st_find(&x->s->files, other.data);
    buf_free(&other);
    return t;
}
static bool find(Checking *x, const StTensor **out, const char *name) {
    *out = look(x, name);
    if (!*out) return err_set(x->err, "%s: tensor %s is missing", x->dir, name);
    x->used[*out - x->s->files.at] = true;
    return true;
}

static bool shape_is(Checking *x, const StTensor *t, int n_dims, const int64_t *want) {
    if (st_is_shape(t, n_dims, want)) return true;
    char has[96], wants[96];
    st_shape_text(has, t->n_dims, t->shape);
    st_shape_text(wants, n_dims, want);
    return err_set(x->err, "%s: tensor %s has shape %s, config.json wants %s", x->s->files.path[t->file], t->name, has,
                   wants);
}

/* DeepSeek's float8: X.weight has beside it X.weight_scale_inv, one number for every block of 128 x 128. */
static bool find_scale(Checking *x, Source *s, const StTensor *t) {
    const char *path = x->s->files.path[t->file];
    if (!x->m->d.fp8)
        return err_set(x->err, "%s: tensor %s is F8_E4M3, but config.json has no quantization_config", path, t->name);
    const StTensor *scale;
    char *name = mem_printf(&x->s->mem, "%s_scale_inv", t->name);
    TRY(find(x, &scale, name));
    int64_t want[2] = { (s->rows + 127) / 128, (s->cols + 127) / 128 };
    TRY(shape_is(x, scale, 2, want));
    if (scale->dtype != DT_F32 && scale->dtype != DT_BF16)
        return err_set(x->err, "%s: tensor %s is %s, F32 is wanted", x->s->files.path[scale->file], name,
                       dtype_name(scale->dtype));
    s->scale = scale->data;
    s->scale_dtype = scale->dtype;
    return true;
}

/* A range of rows of a larger tensor, as if it were one in the file. */
static bool range_of(Checking *x, const StTensor **out, const ParamDesc *p, int layer, int expert, int64_t rows,
                     int64_t cols) {
    const StTensor *all;
    buf_clear(&x->name);
    int64_t first = arch_param_in(&x->name, x->m, p, layer, expert), rows_all = dim_at(&x->m->d, p->all), want[3];
    TRY(find(x, &all, x->name.data));
    bool experts = p->where == IN_EXPERT;
    int dims = 0;
    if (experts) want[dims++] = x->m->d.experts;
    want[dims++] = rows_all;
    if (p->filter) want[dims++] = 1;
    want[dims++] = cols;
    TRY(shape_is(x, all, dims, want));
    if (all->dtype == DT_F8E4M3)
        return err_set(x->err, "%s: tensor %s is F8_E4M3: weights that share a tensor must not be",
                       x->s->files.path[all->file], all->name);
    StTensor *t = mem_copy(&x->s->mem, all, sizeof *t);
    size_t row = (size_t)cols * dtype_size(all->dtype);
    t->data += (size_t)first * row, t->bytes = (size_t)rows * row, t->count = rows * cols;
    t->n_dims = arch_param_shape(t->shape, x->m, p, rows, cols);
    *out = t;
    return true;
}

static bool add_item(Checking *x, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    buf_clear(&x->name);
    arch_param_name(&x->name, desc, layer, expert);
    const StTensor *t = NULL;
    if (desc->in && !look(x, x->name.data)) TRY(range_of(x, &t, desc, layer, expert, rows, cols));
    else TRY(find(x, &t, x->name.data));
    int64_t want[PARAM_DIMS];
    TRY(shape_is(x, t, arch_param_shape(want, x->m, desc, rows, cols), want));
    Source s = { .data = t->data, .dtype = t->dtype, .turn = t->turn, .rows = rows, .cols = cols };
    if (t->dtype == DT_F8E4M3) {
        if (desc->vector)
            return err_set(x->err, "%s: tensor %s is F8_E4M3, which only matrices may be", x->s->files.path[t->file],
                           t->name);
        TRY(find_scale(x, &s, t));
    } else if (t->dtype != DT_F32 && t->dtype != DT_BF16 && t->dtype != DT_F16 && !dtype_blocks(t->dtype)) {
        return err_set(x->err, "%s: tensor %s is %s: weights are F32, BF16, F16 or F8_E4M3", x->s->files.path[t->file],
                       t->name, dtype_name(t->dtype));
    }
    VEC_PUSH(x->items, (SourceItem){ desc, layer, expert, s, t });
    return true;
}

static void visit(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    Checking *x = user;
    x->ok = x->ok && add_item(x, p, layer, expert, rows, cols);
}

/* ---- what else may be in the files */
static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

static bool is_mtp(const Dims *d, const char *name) {
    const char *head = "model.layers.";
    if (strncmp(name, head, strlen(head))) return false;
    char *end;
    long l = strtol(name + strlen(head), &end, 10);
    return *end == '.' && l >= d->layers && l < d->layers + d->mtp_layers;
}

static bool check_extra(Checking *x) {
    const Dims *d = &x->m->d;
    size_t mtp = 0;
    for (size_t i = 0; i < x->s->files.n; i++) {
        const StTensor *t = &x->s->files.at[i];
        bool buffer = ends_with(t->name, "rotary_emb.inv_freq"), tied = d->tied && !strcmp(t->name, "lm_head.weight");
        if (x->used[i] || buffer || tied) continue;
        if (!is_mtp(d, t->name))
            return err_set(x->err, "%s: tensor %.200s is not part of a %s model with this config.json",
                           x->s->files.path[t->file], t->name, x->m->arch->name);
        mtp++;
    }
    if (mtp && speaks())
        fprintf(stderr, "hone: %s: skipping the %zu tensors of the multi-token-prediction layer\n", x->dir, mtp);
    return true;
}

bool sources_open(Sources *s, const ModelDesc *m, const char *dir, Err *err) {
    *s = (Sources){ 0 };
    TRY(st_open(&s->files, dir, &s->mem, err) || (mem_free(&s->mem), false));
    Checking x = { .m = m, .dir = dir, .s = s, .ok = true, .err = err };
    x.used = MEM_ARRAY(&s->mem, bool, s->files.n);
    arch_each_param(m, visit, &x);
    bool ok = x.ok && check_extra(&x);
    s->n = x.items.n;
    if (ok) s->at = mem_copy(&s->mem, x.items.at, x.items.n * sizeof *x.items.at);
    vec_free(x.items.at);
    buf_free(&x.name);
    if (!ok) sources_close(s);
    return ok;
}

bool sources_not_finite(const Sources *s, const SourceItem *it, int64_t at, DType t, Err *err) {
    float value;
    convert_from(&value, DT_F32, &it->src, at, 1);
    char place[96];
    int64_t where[2] = { at / it->src.cols, at % it->src.cols };
    st_shape_text(place, it->desc->vector ? 1 : 2, it->desc->vector ? where + 1 : where);
    const char *path = s->files.path[it->st->file];
    if (isfinite(value))
        return err_set(err, "%s: tensor %s: element %s is %g, too large for %s", path, it->st->name, place,
                       (double)value, dtype_name(t));
    return err_set(err,
                   "%s: tensor %s: element %s is %g: a weight must be a finite number; the file is damaged, or "
                   "training had diverged",
                   path, it->st->name, place, (double)value);
}

void sources_close(Sources *s) {
    st_close(&s->files);
    mem_free(&s->mem);
    *s = (Sources){ 0 };
}
