/* checkpoint.c - a save is two threads and a buffer between them: the trainer's copies weights and states
 * into it, in the order of the files, whenever it has a moment; the writer's empties it into files.  A
 * buffer as large as all of it makes the copy one piece. */
#include "train/checkpoint.h"
#include "base/file.h"
#include "base/ring.h"
#include "train/checkpoint_dir.h"
#include "train/masters.h"
#include "train/meet.h"
#include "train/moments.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECE = 1 << 20,
    MOMENT = 4 << 20
}; /* elements of one copy; of a call between two decode steps: some milliseconds */

/* Elements [from, from+n) of a parameter that this rank writes: of its weight and, where it
 * is trained, of both averages. */
typedef struct {
    int weight, grad;       /* in the tables of weights and of gradients; grad -1: frozen */
    int64_t from, n, state; /* state: where its first element lies in the averages */
    size_t tensor;          /* on disk: of its expert 0, as arch_each_param counts */
} Run;

struct Checkpoints {
    Policy *p;
    CheckpointConf conf;
    Meet meet;
    Moments moments;
    StSpec *spec; /* [n_specs] the weights' */
    size_t n_specs;
    Run *run; /* [n]: items of a save are the weights of each, then m and v of each */
    size_t n;
    Ring *ring;
    size_t item; /* the copy's place: item and element; past the last when nothing is left to copy */
    int64_t at;
    int64_t step;
    Buf state;
    bool writing;
    int bad; /* of the last save: 0 none, 1 after another rank gave up, 2 for a reason of our own */
    pthread_t thread;
    Err err;
};

/* ---- which elements */
typedef struct {
    const Params *grads;
    Run *run; /* NULL: only counted */
    size_t n;
    int64_t elements; /* of the averages: twice */
} Runs;

static void add_span(void *user, Span s) {
    Runs *x = user;
    for (int i = 0; i < x->grads->n; i++) {
        int64_t at = params_from(x->grads, i), count = x->grads->at[i].t.rows * x->grads->at[i].t.cols;
        int64_t from = s.from > at ? s.from - at : 0, to = s.to - at < count ? s.to - at : count;
        if (from >= to) continue;
        if (x->run) x->run[x->n] = (Run){ .grad = i, .from = from, .n = to - from };
        x->n++, x->elements += 3 * (to - from);
    }
}

/* What is not trained is the same on every rank that has it: the first one's. */
static bool is_first(const Shard *s, const ParamDesc *p) {
    if (p->where == IN_EXPERT) return s->at.edp == 0;
    return !s->at.tp && !s->at.dp && !s->at.cp;
}

static void add_frozen(void *user, const ParamDesc *desc, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)experts, (void)rows, (void)cols;
    Runs *x = user;
    const Shard *s = &x->grads->shard;
    Slice here = param_slice(x->grads->model, desc, layer, &s->g, s->at);
    if (!arch_frozen(x->grads->model, desc) || !slice_count(&here) || !is_first(s, desc)) return;
    if (x->run) x->run[x->n] = (Run){ .grad = -1, .weight = layer * P_COUNT + (int)desc->id, .n = slice_count(&here) };
    x->n++, x->elements += slice_count(&here);
}

static void each_run(Runs *x) {
    reduce_each_counted(x->grads, add_span, x);
    arch_each_row(x->grads->model, add_frozen, x);
}

size_t checkpoint_buffer_bytes(const ModelDesc *m, const Shard *shard, int64_t wanted) {
    Mem mem = { 0 };
    Dev dry;
    Params grads;
    dev_open_dry(&dry, dev_kind_cpu());
    params_open(&grads, m, shard, &dry, DT_F32, true, "gradients", &mem);
    Runs x = { .grads = &grads };
    each_run(&x);
    dev_close(&dry);
    mem_free(&mem);
    int64_t whole = x.elements > 1 ? x.elements * 4 : 4;
    if (wanted > 0 && wanted < 4096) wanted = 4096;
    return (size_t)(wanted > 0 && wanted < whole ? wanted / 4 * 4 : whole);
}

/* ---- opening */
typedef struct {
    const Params *w;
    size_t *first; /* [w->n] */
    size_t n;
} Numbers;
static void number_one(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    (void)rows, (void)cols;
    Numbers *x = user;
    int i = x->w->index[layer][desc->id];
    if (!expert && i >= 0) x->first[i] = x->n;
    x->n++;
}

static void find_runs(Checkpoints *c, Mem *mem) {
    const Params *w = &c->p->m->w, *g = &c->p->grads;
    Runs x = { .grads = g };
    each_run(&x);
    c->run = x.run = MEM_ARRAY(mem, Run, x.n);
    x.n = 0;
    each_run(&x);
    c->n = x.n;
    Numbers no = { w, MEM_ARRAY(mem, size_t, (size_t)w->n), 0 };
    arch_each_param(w->model, number_one, &no);
    for (size_t i = 0; i < c->n; i++) {
        Run *r = &c->run[i];
        int layer = r->grad < 0 ? r->weight / P_COUNT : g->at[r->grad].layer;
        int id = r->grad < 0 ? r->weight % P_COUNT : (int)g->at[r->grad].desc->id;
        r->weight = w->index[layer][id];
        r->tensor = no.first[r->weight];
        int64_t at;
        if (r->grad >= 0) {
            Span own = optim_own(&c->p->opt, g, r->grad, &at);
            r->state = at + r->from - own.from;
        }
    }
}

static double longest_wait(const Groups *g) {
    double w = g->tp.wait > g->dense.wait ? g->tp.wait : g->dense.wait;
    return g->pp.wait > w ? g->pp.wait : w;
}

static size_t n_items(const Checkpoints *c) { return 3 * c->n; }

Checkpoints *checkpoints_open(Policy *p, const CheckpointConf *conf, Mem *mem) {
    Checkpoints *c = MEM_NEW(mem, Checkpoints);
    const Shard *s = &p->m->shard;
    *c = (Checkpoints){ .p = p,
                        .conf = *conf,
                        .meet = { NULL, grid_rank(&s->g, s->at), grid_ranks(&s->g), longest_wait(&p->m->par) } };
    c->moments = moments_of(&p->grads, mem);
    c->spec = params_specs(p->m->desc, DT_F32, &c->n_specs, mem);
    find_runs(c, mem);
    c->ring = ring_open(checkpoint_buffer_bytes(p->m->desc, s, conf->buffer), mem);
    c->item = n_items(c);
    return c;
}

/* The ranks come to one opinion: the gravest, of the first who has it. */
static int agree(const Groups *g, int bad, Err *err) {
    typedef struct {
        int bad;
        Err err;
    } Said;
    const Comm *each[] = { &g->tp, &g->dense, &g->pp };
    for (size_t i = 0; i < COUNT(each); i++) {
        if (each[i]->size == 1) continue;
        Mem mem = { 0 };
        Said mine = { .bad = bad }, *all = MEM_ARRAY(&mem, Said, (size_t)each[i]->size);
        if (bad) mine.err = *err;
        comm_gather_host(each[i], all, &mine, sizeof mine);
        int worst = 0;
        for (int r = 1; r < each[i]->size; r++)
            if (all[r].bad > all[worst].bad) worst = r;
        bad = all[worst].bad;
        if (bad) *err = all[worst].err;
        mem_free(&mem);
    }
    return bad;
}

/* ---- the trainer's side */
static const Run *run_of(const Checkpoints *c, size_t item, OptimState *kind) { /* STATE_MASTER: of the weight */
    *kind = item < c->n ? STATE_MASTER : (item - c->n) % 2 ? STATE_V : STATE_M;
    return &c->run[item < c->n ? item : (item - c->n) / 2];
}
static int64_t count_of(const Checkpoints *c, size_t item) {
    OptimState kind;
    const Run *r = run_of(c, item, &kind);
    return kind == STATE_MASTER || r->grad >= 0 ? r->n : 0;
}

/* All is float32 on disk: what is kept in fewer bits is made wide, which loses none. */
static void copy_piece(Checkpoints *c, float *to, int64_t n) {
    Dev *d = c->p->m->dev;
    OptimState kind;
    const Run *r = run_of(c, c->item, &kind);
    Tensor w = c->p->m->w.at[r->weight].t;
    w = tensor_cols(tensor_shape(w, 1, w.rows * w.cols), r->from + c->at, n);
    if (kind == STATE_MASTER && (w.dtype == DT_F32 || r->grad < 0)) optim_weights(&c->p->opt, d, w, to);
    else optim_get(&c->p->opt, d, kind, r->state + c->at, n, w, to);
    c->at += n;
}

/* Up to 'most' elements; with 'wait' for room whenever there is none. */
static void copy(Checkpoints *c, int64_t most, bool wait) {
    while (c->item < n_items(c) && most > 0) {
        if (c->at == count_of(c, c->item)) {
            c->at = 0, c->item++;
            continue;
        }
        void *to;
        int64_t n = (int64_t)(ring_room(c->ring, &to, wait) / 4), left = count_of(c, c->item) - c->at;
        if (ring_left(c->ring)) c->item = n_items(c); /* the writer has failed: checkpoint_wait says why */
        else if (!n) break;
        else {
            if (n > left) n = left;
            if (n > PIECE) n = PIECE;
            copy_piece(c, to, n);
            ring_put(c->ring, (size_t)n * 4);
            most -= n;
        }
    }
    while (c->item < n_items(c) && c->at == count_of(c, c->item)) c->at = 0, c->item++;
    c->p->block.saving = c->item < n_items(c);
}

void checkpoint_copy_on(Checkpoints *c) { copy(c, MOMENT, false); }
void checkpoint_copied(Checkpoints *c) { copy(c, INT64_MAX, true); }

/* ---- the writer's side */
/* Both sides go through the same list in the same order. */
static bool write_item(Checkpoints *c, size_t item, StPlaces *weights, StPlaces *moments, Err *err) {
    OptimState kind;
    const Run *r = run_of(c, item, &kind);
    const Params *w = &c->p->m->w;
    size_t first = kind == STATE_MASTER ? r->tensor : r->grad >= 0 ? c->moments.first[r->grad] : 0;
    for (int64_t at = 0, count = count_of(c, item); at < count;) {
        const void *bytes;
        int64_t have = (int64_t)(ring_bytes(c->ring, &bytes) / 4), done = 0;
        if (have > count - at) have = count - at;
        while (done < have) {
            ParamPlace p = param_place(w->model, &w->at[r->weight], r->from + at + done);
            int64_t n = p.n < have - done ? p.n : have - done;
            size_t tensor = first + (size_t)p.expert;
            if (kind != STATE_MASTER) tensor = 2 * tensor + (kind == STATE_V);
            TRY(st_place(kind == STATE_MASTER ? weights : moments, tensor, p.at * 4, (const float *)bytes + done,
                         (size_t)n * 4, err));
            done += n;
        }
        ring_take(c->ring, (size_t)done * 4);
        at += done;
    }
    return true;
}

static bool write_own(Checkpoints *c, const char *model, const char *optimizer, Err *err) {
    StPlaces *weights = st_places_open(model, c->spec, c->n_specs, c->conf.shard_bytes),
             *moments = st_places_open(optimizer, c->moments.spec, c->moments.n, INT64_MAX);
    bool ok = true;
    for (size_t i = 0; ok && i < n_items(c); i++) ok = write_item(c, i, weights, moments, err);
    ok = st_places_close(weights, ok ? err : NULL);
    return st_places_close(moments, ok ? err : NULL);
}

/* All but the numbers; rank 0's. */
static bool make_folder(Checkpoints *c, const char *dir, const char *model, const char *optimizer, Err *err) {
    Buf config = { 0 }, state = { 0 };
    params_config_text(&config, c->p->m->desc, DT_F32);
    buf_printf(&state, "%s/state.json", dir);
    bool ok = dir_make(model, err) && st_places_make(model, c->spec, c->n_specs, c->conf.shard_bytes, err)
              && params_save_rest(model, config.data, &c->conf.carried, err)
              && st_places_make(optimizer, c->moments.spec, c->moments.n, INT64_MAX, err)
              && file_write(state.data, c->state.data, c->state.n, err);
    buf_free(&config);
    buf_free(&state);
    return ok;
}

/* Checksums are taken by all, when all is written; rank 0 puts them together. */
static bool sum_up(Checkpoints *c, const Meet *m, Err *err) {
    Buf files = { 0 };
    bool ok = meet_tell(m, "written", "", err) && meet_all(m, "written", err)
              && manifest_part(&files, m->dir, m->rank, m->n, err)
              && meet_tell(m, "sums", files.n ? files.data : "", err);
    if (ok && m->rank == 0) {
        ok = meet_all(m, "sums", err);
        for (int r = 1; ok && r < m->n; r++) {
            size_t before = files.n;
            buf_putc(&files, ',');
            ok = meet_text(m, "sums", r, &files, err);
            if (files.n == before + 1) files.data[files.n = before] = 0; /* it had none */
        }
        ok = ok && manifest_write(m->dir, c->step, files.data, err);
        if (ok) meet_end(m, (const char *const[]){ "written", "sums", NULL });
        ok = ok && dir_sync(m->dir, err);
    }
    buf_free(&files);
    return ok;
}

static bool write_all(Checkpoints *c, const Meet *m, Err *err) {
    Mem mem = { 0 };
    char *model = mem_printf(&mem, "%s/model", m->dir),
         *optimizer = mem_printf(&mem, "%s/optimizer.safetensors", m->dir);
    bool ok = (m->rank || make_folder(c, m->dir, model, optimizer, err)) && meet_begin(m, err)
              && write_own(c, model, optimizer, err) && sum_up(c, m, err);
    mem_free(&mem);
    return ok;
}

static void *writer(void *arg) {
    Checkpoints *c = arg;
    Buf tmp = { 0 };
    checkpoint_path(&tmp, c->conf.run_dir, c->step, PLACE_WRITING);
    Meet m = c->meet;
    m.dir = tmp.data;
    bool first = m.rank == 0,
         ok = write_all(c, &m, &c->err) && (!first || checkpoint_into_place(c->conf.run_dir, c->step, &c->err));
    if (ok && first) checkpoint_prune(c->conf.run_dir, c->step, c->conf.keep);
    if (!ok) {
        c->bad = meet_leave(&m) ? 2 : 1; /* what fails after that may fail because the folder is gone */
        ring_leave(c->ring);
        if (first && !meet_begun(&m)) tree_remove(tmp.data); /* else when nobody writes there any more */
        err_wrap(&c->err, "the checkpoint of step %" PRId64 " was not written (earlier ones are untouched)", c->step);
    }
    buf_free(&tmp);
    return NULL;
}

/* ---- a save */
bool checkpoint_wait(Checkpoints *c, Err *err) {
    checkpoint_copied(c);
    if (!c->writing) return true;
    pthread_join(c->thread, NULL);
    c->writing = false;
    int bad = agree(&c->p->m->par, c->bad, &c->err);
    c->bad = 0;
    if (!bad) return true;
    *err = c->err;
    Buf dir = { 0 };
    checkpoint_path(&dir, c->conf.run_dir, c->step, PLACE_WRITING);
    if (c->meet.rank == 0) tree_remove(dir.data);
    buf_free(&dir);
    return false;
}

bool checkpoints_close(Checkpoints *c, Err *err) {
    bool ok = checkpoint_wait(c, err);
    buf_free(&c->state);
    ring_close(c->ring);
    return ok;
}

bool checkpoint_save(Checkpoints *c, int64_t step, const char *state_json, Err *err) {
    TRY(checkpoint_wait(c, err));
    c->step = step;
    buf_clear(&c->state);
    buf_puts(&c->state, state_json);
    Buf dir = { 0 };
    buf_printf(&dir, "%s/checkpoints", c->conf.run_dir);
    bool first = c->meet.rank == 0, ok = !first || dir_make(dir.data, err);
    if (first && ok)
        checkpoint_tidy(c->conf.run_dir); /* before another rank looks into the folder of a save that was killed */
    checkpoint_path(&dir, c->conf.run_dir, step, PLACE_WRITING);
    if (first) ok = ok && dir_make(dir.data, err);
    buf_free(&dir);
    if (agree(&c->p->m->par, ok ? 0 : 2, err)) return false;
    ring_clear(c->ring);
    if (pthread_create(&c->thread, NULL, writer, c)) {
        CHECK(c->meet.n == 1, "the checkpoint's writer thread could not be started, and other ranks have theirs");
        return err_set(err, "the checkpoint's writer thread could not be started");
    }
    c->writing = true;
    c->item = 0, c->at = 0;
    copy(c, INT64_MAX, false);
    return true;
}

/* A save as any other, of which the model stays. */
static bool keep_model(const char *dir, Err *err) {
    Buf from = { 0 }, to = { 0 };
    checkpoint_path(&from, dir, 0, PLACE_WHOLE);
    buf_puts(&from, "/model");
    buf_printf(&to, "%s/model", dir);
    bool ok = !rename(from.data, to.data) || err_set(err, "%s cannot be renamed: %s", from.data, strerror(errno));
    buf_clear(&from);
    buf_printf(&from, "%s/checkpoints", dir);
    tree_remove(from.data);
    buf_free(&from);
    buf_free(&to);
    return ok;
}
bool checkpoint_weights(Policy *p, const CheckpointConf *conf, const char *dir, Err *err) {
    Mem mem = { 0 };
    CheckpointConf own = *conf;
    own.run_dir = dir, own.keep = 1, own.buffer = PIECE;
    Checkpoints *c = checkpoints_open(p, &own, &mem);
    bool ok = checkpoint_save(c, 0, "{}", err), first = c->meet.rank == 0;
    Err late;
    if (!checkpoints_close(c, &late) && ok) ok = false, *err = late;
    ok = ok && (!first || keep_model(dir, err));
    ok = !agree(&p->m->par, ok ? 0 : 2, err);
    mem_free(&mem);
    return ok;
}

/* ---- going on */
bool checkpoint_load(const char *path, Policy *p, Err *err) {
    Buf b = { 0 };
    Mem mem = { 0 };
    Moments moments = moments_of(&p->grads, &mem);
    buf_printf(&b, "%s/model", path);
    bool ok = model_load(p->m, b.data, err) && masters_load(&p->opt, &p->m->w, &p->grads, p->m->dev, b.data, err);
    buf_clear(&b);
    buf_printf(&b, "%s/optimizer.safetensors", path);
    ok = ok && moments_load(&p->opt, &moments, &p->grads, p->m->dev, b.data, err);
    Json state;
    ok = ok && checkpoint_state(path, &state, &mem, err);
    if (ok && !json_int_within(&state, "optimizer_step", 0, UPDATES_MOST, &p->opt.step, err))
        ok = err_wrap(err, "%s/state.json", path);
    buf_free(&b);
    mem_free(&mem);
    return ok;
}
