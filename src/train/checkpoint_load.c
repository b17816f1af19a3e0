/* checkpoint_load.c - going on from a checkpoint: each rank reads what it steps, of weights and averages, and counts
 * it on the way; weights are then handed round as after an update.  What the ranks have counted together must be what
 * the manifest says, so every byte is looked at by somebody, and none is read twice. */
#include "train/checkpoint_dir.h"
#include "comm/watch.h"
#include "param/source.h"
#include "train/runs.h"

#include <inttypes.h>
#include <string.h>

enum { STAGE = 1 << 18 }; /* elements */

/* In the order of what weighs more where several ranks differ. */
enum { FINE, DIVERGED, DAMAGED, FAILED };

typedef struct {
    const char *dir; /* the checkpoint */
    Sums sums;
    int bad;
    Err err;
    float *stage;   /* [STAGE] */
    uint16_t *half; /* [STAGE] */
    Mem mem;
    Watch *watch;
} Load;

typedef struct {
    Load *x;
    Policy *p;
    const char *folder, *averages;
    Moments moments;
    Runs runs;
    Sources weights;
    StFiles states;
    bool has_states, flat;
    size_t *file[2]; /* number in sums of each file of both; SIZE_MAX: it is not there, and was looked at before */
} Loaded;

static void says(Load *x, int bad, const Err *err) {
    if (bad > x->bad) x->bad = bad, x->err = *err;
}

/* ---- opening */
static size_t *numbers(Load *x, const StFiles *f) {
    size_t *out = MEM_ARRAY(&x->mem, size_t, (size_t)f->n_files), below = strlen(x->dir) + 1;
    for (int i = 0; i < f->n_files; i++) {
        out[i] = SIZE_MAX;
        for (size_t k = 0; k < x->sums.file.n; k++)
            if (!strcmp(f->path[i] + below, x->sums.file.at[k].name)) out[i] = k;
    }
    return out;
}

static bool open_states(Loaded *m, const char *path, Err *err) {
    Load *x = m->x;
    const char *index = mem_printf(&x->mem, "%s.index.json", path);
    m->has_states = file_exists(path) || file_exists(index);
    if (!m->has_states) return true; /* trainer.checkpoint_moments=none: the manifest lists none, or it is damaged */
    TRY(st_open(&m->states, path, &x->mem, err) && moments_check(&m->moments, &m->p->grads, &m->states, err));
    m->flat = moments_are_flat(&m->states);
    m->file[1] = numbers(x, &m->states);
    return true;
}

static bool open_part(Loaded *m, const Member *which, Err *err) {
    Load *x = m->x;
    Policy *p = m->p = which->p;
    m->moments = moments_of(&p->grads, DT_F32, &x->mem);
    const char *folder = mem_printf(&x->mem, "%s/%s", x->dir, member_weights(which->kind)),
               *averages = mem_printf(&x->mem, "%s/%s", x->dir, member_averages(which->kind));
    TRY(sources_open(&m->weights, p->w->model, folder, err));
    for (size_t i = 0; i < m->weights.n; i++)
        if (m->weights.at[i].src.dtype != DT_F32)
            return err_set(err, "%s: tensor %s is %s, a checkpoint's weights are F32",
                           m->weights.files.path[m->weights.at[i].st->file], m->weights.at[i].st->name,
                           dtype_name(m->weights.at[i].src.dtype));
    m->file[0] = numbers(x, &m->weights.files);
    return open_states(m, averages, err);
}

/* ---- reading */
static const StTensor *tensor_of(const Loaded *m, const Run *r, OptimState kind, int64_t expert) {
    if (kind == STATE_MASTER) return m->weights.at[r->tensor + (size_t)expert].st;
    return st_find(&m->states, m->moments.spec[2 * (r->moment + (size_t)expert) + (kind == STATE_V)].name);
}

/* A stretch of a tensor as float32, counted where this rank answers for it. */
static bool read_part(Loaded *m, const Run *r, OptimState kind, RunPart at, float *to, Err *err) {
    Load *x = m->x;
    bool weights = kind == STATE_MASTER;
    const StFiles *f = weights ? &m->weights.files : &m->states;
    const StTensor *t = tensor_of(m, r, kind, at.expert);
    size_t each = dtype_size(t->dtype), n = (size_t)at.n * each, file = m->file[!weights][t->file];
    void *raw = t->dtype == DT_F32 ? (void *)to : x->half;
    TRY(st_read(f, t, at.at * (int64_t)each, raw, n, err));
    if (r->counts && file != SIZE_MAX)
        sums_add(&x->sums, file, t->data - f->map[t->file].data + at.at * (int64_t)each, raw, n);
    if (t->dtype == DT_BF16) convert_f32(to, DT_F32, x->half, DT_BF16, at.n);
    /* A mean square may be out of float32's range: its weight stands still.  A mean makes the weight no number, one
     * update on. */
    if (kind != STATE_V && convert_not_finite(to, DT_F32, at.n) >= 0) {
        Err no;
        checkpoint_diverged(f->path[t->file] + strlen(x->dir) + 1, weights ? "weights" : "averages", &no);
        says(x, DIVERGED, &no);
    }
    watch_moved(x->watch);
    return true;
}

/* Elements of a run, or of its own rows in a block; after one that failed nothing is read any more. */
static void read_some(Loaded *m, const Run *r, OptimState kind, int64_t block, int64_t from, int64_t n, float *to) {
    Err err;
    for (int64_t at = 0; at < n && m->x->bad < DAMAGED;) {
        int64_t most = n - at < STAGE ? n - at : STAGE;
        RunPart p = block < 0 ? run_part(&m->runs, r, from + at, most) : run_row_part(&m->runs, r, block, at, most);
        if (!read_part(m, r, kind, p, to + at, &err)) says(m->x, DAMAGED, &err);
        at += p.n;
    }
}

static void put_weights(Loaded *m, const Run *r, int64_t from, int64_t n, const float *x) {
    Dev *d = m->p->m->dev;
    Tensor w = m->p->w->at[r->weight].t;
    w = tensor_cols(tensor_shape(w, 1, w.rows * w.cols), r->from + from, n);
    if (w.dtype == DT_F32) {
        op_put(d, w, x);
        return;
    }
    if (r->grad >= 0) optim_put(&m->p->opt, d, STATE_MASTER, r->state + from, n, x);
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < STAGE ? n - at : STAGE;
        convert_f32(m->x->half, DT_BF16, x + at, DT_F32, k);
        op_put(d, tensor_cols(w, at, k), m->x->half);
    }
}
static void put(Loaded *m, const Run *r, OptimState kind, int64_t from, int64_t n, const float *x) {
    if (kind == STATE_MASTER) put_weights(m, r, from, n, x);
    else optim_put(&m->p->opt, m->p->m->dev, kind, r->state + from, n, x);
}

static void load_rows(Loaded *m, const Run *r, OptimState kind) { /* with the ranks that share them, whatever comes */
    for (int64_t b = 0; b < run_blocks(&m->runs, r); b++) {
        int64_t from, n = run_strips(&m->runs, r, b, &from);
        read_some(m, r, kind, b, 0, run_rows(&m->runs, r, b), m->runs.rows);
        rows_scatter(&m->runs, r, b);
        put(m, r, kind, from, n, m->runs.strips);
    }
}
static void load_run(Loaded *m, const Run *r, OptimState kind) {
    for (int64_t at = 0, n; at < r->n; at += n) {
        n = r->n - at < STAGE ? r->n - at : STAGE;
        read_some(m, r, kind, -1, at, n, m->x->stage);
        put(m, r, kind, at, n, m->x->stage);
    }
}

/* Averages that were not saved begin as those of a new run do, and so does the count that corrects them. */
static void forget_states(Loaded *m) {
    Optim *o = &m->p->opt;
    memset(m->x->stage, 0, STAGE * sizeof(float));
    for (OptimState k = STATE_M; k <= STATE_V; k++)
        for (int64_t at = 0, n; at < o->n; at += n) {
            n = o->n - at < STAGE ? o->n - at : STAGE;
            optim_put(o, m->p->m->dev, k, at, n, m->x->stage);
        }
    o->step = 0;
}

static void load_part(Loaded *m) {
    Policy *p = m->p;
    int states = m->has_states && !m->flat ? STATES : 1;
    m->runs = runs_open(p->w, &p->grads, &p->opt, &p->m->par, &m->moments, &m->x->mem);
    for (const Run *r = m->runs.at; r < m->runs.at + m->runs.n; r++)
        for (OptimState kind = 0; kind < (OptimState)states; kind++) {
            if (kind != STATE_MASTER && r->grad < 0) continue;
            if (r->with) load_rows(m, r, kind);
            else load_run(m, r, kind);
        }
    if (!m->has_states) forget_states(m);
    if (m->flat) moments_load_flat(&p->opt, &m->moments, &p->grads, p->m->dev, &m->states);
    reduce_gather(p->w, &p->grads, &p->m->par, p->m->dev);
    if (grid_ranks(&p->m->shard.g) > 1) params_sum(p->w, p->m->dev); /* for params_same */
}

/* ---- all of it */
static void check_sums(Load *x, const Groups *g) {
    sums_share(&x->sums, g);
    const SumFile *f;
    const SumPiece *p = sums_wrong(&x->sums, &f);
    Err err;
    if (!p || x->bad == FAILED) return;
    err_set(&err, "%s is damaged (the checksum of its bytes %" PRId64 " to %" PRId64 " is another)", f->name, p->at,
            p->at + p->bytes);
    says(x, DAMAGED, &err);
}

/* How many updates its averages are of. */
static bool read_step(Load *x, const Loaded *m, Err *err) {
    Json state;
    int64_t step;
    TRY(checkpoint_state(x->dir, &state, &x->mem, err));
    if (!json_int_within(&state, "optimizer_step", 0, UPDATES_MOST, &step, err))
        return err_wrap(err, "%s/state.json", x->dir);
    if (m->has_states) m->p->opt.step = step;
    return true;
}

LoadEnd checkpoint_load(const char *path, const Member *which, int n, Err *err) {
    Load x = { .dir = path };
    Loaded m[MEMBERS] = { { 0 } };
    const Groups *g = &which->p->m->par;
    Err why;
    CHECK(n > 0 && n <= MEMBERS, "%d members of a checkpoint", n);
    x.watch = g->tp.watch ? g->tp.watch : g->dense.watch ? g->dense.watch : g->pp.watch;
    x.stage = MEM_ARRAY(&x.mem, float, STAGE);
    x.half = MEM_ARRAY(&x.mem, uint16_t, STAGE);
    if (!manifest_sums(path, &x.sums, &x.mem, &why)) says(&x, DAMAGED, &why);
    for (int i = 0; i < n && !x.bad; i++) {
        m[i].x = &x;
        if (!open_part(&m[i], &which[i], &why)) says(&x, FAILED, &why);
    }
    x.bad = checkpoint_agree(g, x.bad, &x.err);
    if (!x.bad) {
        for (int i = 0; i < n; i++) load_part(&m[i]);
        check_sums(&x, g);
        if (!x.bad && !read_step(&x, &m[0], &why)) says(&x, FAILED, &why);
        x.bad = checkpoint_agree(g, x.bad, &x.err);
    }
    for (int i = 0; i < n; i++) sources_close(&m[i].weights), st_close(&m[i].states);
    sums_free(&x.sums);
    mem_free(&x.mem);
    *err = x.err;
    return x.bad == FAILED ? LOAD_FAILED : x.bad ? LOAD_DAMAGED : LOAD_OK;
}
