/* load.c - a folder's tensors into memory: first every name and shape is checked against the table, then the bytes are
 * converted in pieces on all threads and put, and the pages they came from are let go, so one copy stays resident. */
#include "param/param.h"
#include "param/convert.h"
#include "file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECE = 1 << 19,
       LANES = 64 }; /* elements a piece; pieces converted at a time, at most */

typedef struct {
    const StTensor *from;
    Source src;
    Tensor to;
} Job;

typedef struct {
    Params *p;
    StFiles files;
    const char *dir;
    Mem mem;
    Buf name;
    bool *used; /* [files.n] */
    VEC(Job)
    jobs;
    bool ok;
    Err *err;
} Loading;

static bool find(Loading *x, const StTensor **out, const char *name) {
    *out = st_find(&x->files, name);
    if (!*out) return err_set(x->err, "%s: tensor %s is missing", x->dir, name);
    x->used[*out - x->files.at] = true;
    return true;
}

static bool shape_is(Loading *x, const StTensor *t, int n_dims, const int64_t *want) {
    if (st_is_shape(t, n_dims, want)) return true;
    char has[96], wants[96];
    st_shape_text(has, t->n_dims, t->shape);
    st_shape_text(wants, n_dims, want);
    return err_set(x->err, "%s: tensor %s has shape %s, config.json wants %s", x->files.path[t->file], t->name, has, wants);
}

/* DeepSeek's float8: X.weight has beside it X.weight_scale_inv, one number for every block of 128 x 128. */
static bool find_scale(Loading *x, Source *s, const StTensor *t) {
    const char *path = x->files.path[t->file];
    if (!x->p->model->d.fp8)
        return err_set(x->err, "%s: tensor %s is F8_E4M3, but config.json has no quantization_config", path, t->name);
    const StTensor *scale;
    char *name = mem_printf(&x->mem, "%s_scale_inv", t->name);
    TRY(find(x, &scale, name));
    int64_t want[2] = { (s->rows + 127) / 128, (s->cols + 127) / 128 };
    TRY(shape_is(x, scale, 2, want));
    if (scale->dtype != DT_F32 && scale->dtype != DT_BF16)
        return err_set(x->err, "%s: tensor %s is %s, F32 is wanted", x->files.path[scale->file], name, dtype_name(scale->dtype));
    s->scale = scale->data;
    s->scale_dtype = scale->dtype;
    return true;
}

static bool add_job(Loading *x, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    buf_clear(&x->name);
    arch_param_name(&x->name, desc, layer, expert);
    const StTensor *t;
    TRY(find(x, &t, x->name.data));
    int64_t want[2] = { rows, cols };
    TRY(desc->vector ? shape_is(x, t, 1, want + 1) : shape_is(x, t, 2, want));
    Source s = { .data = t->data, .dtype = t->dtype, .rows = rows, .cols = cols };
    if (t->dtype == DT_F8E4M3) {
        if (desc->vector) return err_set(x->err, "%s: tensor %s is F8_E4M3, which only matrices may be",
                                         x->files.path[t->file], t->name);
        TRY(find_scale(x, &s, t));
    } else if (t->dtype != DT_F32 && t->dtype != DT_BF16 && t->dtype != DT_F16) {
        return err_set(x->err, "%s: tensor %s is %s: weights are F32, BF16, F16 or F8_E4M3", x->files.path[t->file],
                       t->name, dtype_name(t->dtype));
    }
    Tensor all = param(x->p, desc->id, layer);
    if (all.data) VEC_PUSH(x->jobs, (Job){ t, s, tensor_rows(all, expert * rows, rows) });
    return true;
}

static void visit(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    Loading *x = user;
    x->ok = x->ok && add_job(x, p, layer, expert, rows, cols);
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

static bool check_extra(Loading *x) {
    const Dims *d = &x->p->model->d;
    size_t mtp = 0;
    for (size_t i = 0; i < x->files.n; i++) {
        const StTensor *t = &x->files.at[i];
        bool buffer = ends_with(t->name, "rotary_emb.inv_freq"), tied = d->tied && !strcmp(t->name, "lm_head.weight");
        if (x->used[i] || buffer || tied) continue;
        if (!is_mtp(d, t->name))
            return err_set(x->err, "%s: tensor %.200s is not part of a %s model with this config.json",
                           x->files.path[t->file], t->name, x->p->model->arch->name);
        mtp++;
    }
    if (mtp) fprintf(stderr, "hone: %s: skipping the %zu tensors of the multi-token-prediction layer\n", x->dir, mtp);
    return true;
}

/* ---- the bytes */
typedef struct {
    const Job *job;
    int64_t from, n;
    char *to;
} Piece;

static void convert_piece(void *arg, int index, int worker) {
    (void)worker;
    const Piece *c = (const Piece *)arg + index;
    convert_from(c->to, c->job->to.dtype, &c->job->src, c->from, c->n);
}

/* Converted pieces are put one after another: op_put belongs to the thread that owns the device. */
static void put_pieces(Dev *d, Piece *pieces, int n) {
    threads_run(d->threads, n, convert_piece, pieces);
    for (int i = 0; i < n; i++) {
        Tensor flat = tensor_shape(pieces[i].job->to, 1, pieces[i].job->to.rows * pieces[i].job->to.cols);
        op_put(d, tensor_cols(flat, pieces[i].from, pieces[i].n), pieces[i].to);
    }
}

static void load_bytes(Loading *x, Dev *d) {
    int lanes = 2 * threads_count(d->threads), n = 0;
    if (lanes > LANES) lanes = LANES;
    char *stage = mem_push(&x->mem, (size_t)lanes * PIECE * 4);
    Piece pieces[LANES];
    size_t done = 0;
    for (size_t j = 0; j < x->jobs.n; j++) {
        const Job *job = &x->jobs.at[j];
        int64_t count = job->to.rows * job->to.cols;
        for (int64_t from = 0; from < count; from += PIECE) {
            pieces[n] = (Piece){ job, from, count - from < PIECE ? count - from : PIECE, stage + (size_t)n * PIECE * 4 };
            if (++n < lanes) continue;
            put_pieces(d, pieces, n);
            for (n = 0; done < j; done++) st_done_with(&x->files, x->jobs.at[done].from);
        }
    }
    put_pieces(d, pieces, n);
    for (; done < x->jobs.n; done++) st_done_with(&x->files, x->jobs.at[done].from);
}

bool params_load(Params *p, Dev *d, const char *dir, Err *err) {
    Loading x = { .p = p, .dir = dir, .ok = true, .err = err };
    bool ok = st_open(&x.files, dir, &x.mem, err);
    if (ok) {
        x.used = MEM_ARRAY(&x.mem, bool, x.files.n);
        arch_each_param(p->model, visit, &x);
        ok = x.ok && check_extra(&x);
    }
    if (ok) load_bytes(&x, d);
    st_close(&x.files);
    vec_free(x.jobs.at);
    buf_free(&x.name);
    mem_free(&x.mem);
    return ok;
}

DType params_disk_dtype(const char *dir) {
    Mem mem = { 0 };
    Err err;
    StFiles f;
    bool all = st_open(&f, dir, &mem, &err);
    for (size_t i = 0; all && i < f.n; i++) all = f.at[i].n_dims < 2 || f.at[i].dtype == DT_BF16;
    st_close(&f);
    mem_free(&mem);
    return all ? DT_BF16 : DT_F32;
}
