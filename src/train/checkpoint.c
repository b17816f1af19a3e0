/* checkpoint.c - a save is two threads and a buffer between them: the trainer's copies weights and states into it, in the order of the
 * files, whenever it has a moment; the writer's empties it into files.  A buffer as large as all of it makes the copy one piece. */
#include "train/checkpoint.h"
#include "base/file.h"
#include "base/ring.h"
#include "train/checkpoint_dir.h"
#include "train/moments.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECE = 1 << 20,
    MOMENT = 4 << 20
}; /* elements of one copy; of a call between two decode steps: some milliseconds */

struct Checkpoints {
    Policy *p;
    CheckpointConf conf;
    Moments moments;
    Tensor *
        weight; /* [n_weights] flat, in the order of arch_each_param: the first items of a save, then come the moments */
    size_t n_weights;
    Ring *ring;
    size_t item; /* the copy's place: item and element; past the last when nothing is left to copy */
    int64_t at;
    int64_t step;
    Buf state;
    bool writing, ok;
    pthread_t thread;
    size_t lent; /* the writer's: bytes of the ring that it is still writing out */
    Err err;
};

/* ---- sizes */
typedef struct {
    int64_t all, trainable;
} Elements;

static void add_row(void *user, const ParamDesc *desc, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)layer;
    Elements *e = user;
    e->all += experts * rows * cols;
    if (!desc->frozen) e->trainable += experts * rows * cols;
}

size_t checkpoint_buffer_bytes(const ModelDesc *m, int64_t wanted) {
    Elements e = { 0 };
    arch_each_row(m, add_row, &e);
    int64_t whole = (e.all + 2 * e.trainable) * 4;
    if (wanted > 0 && wanted < 4096) wanted = 4096;
    return (size_t)(wanted > 0 && wanted < whole ? wanted / 4 * 4 : whole);
}

/* ---- opening */
static void count_weight(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    (void)desc, (void)layer, (void)expert, (void)rows, (void)cols;
    ((Checkpoints *)user)->n_weights++;
}

static void add_weight(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    Checkpoints *c = user;
    Tensor one = tensor_rows(param(model_full(c->p->m), desc->id, layer), expert * rows, rows);
    c->weight[c->n_weights++] = tensor_shape(one, 1, rows * cols);
}

static size_t n_items(const Checkpoints *c) { return c->n_weights + c->moments.n; }

Checkpoints *checkpoints_open(Policy *p, const CheckpointConf *conf, Mem *mem) {
    Checkpoints *c = MEM_NEW(mem, Checkpoints);
    *c = (Checkpoints){ .p = p, .conf = *conf, .ok = true };
    c->moments = moments_of(&p->grads, mem);
    arch_each_param(p->m->desc, count_weight, c);
    c->weight = MEM_ARRAY(mem, Tensor, c->n_weights);
    c->n_weights = 0;
    arch_each_param(p->m->desc, add_weight, c);
    c->ring = ring_open(checkpoint_buffer_bytes(p->m->desc, conf->buffer), mem);
    c->item = n_items(c);
    return c;
}

/* ---- the trainer's side */
static int64_t count_of(const Checkpoints *c, size_t item) {
    return item < c->n_weights ? c->weight[item].cols : c->moments.count[(item - c->n_weights) / 2];
}

static void copy_piece(Checkpoints *c, void *to, int64_t n) {
    Dev *d = c->p->m->dev;
    if (c->item < c->n_weights) op_get(d, to, tensor_cols(c->weight[c->item], c->at, n));
    else moments_get(to, &c->moments, c->item - c->n_weights, c->at, n, &c->p->opt, d);
    c->at += n;
    if (c->at == count_of(c, c->item)) c->at = 0, c->item++;
}

/* Up to 'most' elements; with 'wait' for room whenever there is none. */
static void copy(Checkpoints *c, int64_t most, bool wait) {
    while (c->item < n_items(c) && most > 0) {
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
    c->p->held = c->item < n_items(c);
}

void checkpoint_copy_on(Checkpoints *c) { copy(c, MOMENT, false); }
void checkpoint_copied(Checkpoints *c) { copy(c, INT64_MAX, true); }

/* ---- the writer's side */
static const void *from_ring(void *user, size_t item, int64_t from, int64_t *n, DType t) {
    (void)item, (void)from, (void)t; /* both sides go through the same list in the same order */
    Checkpoints *c = user;
    const void *at;
    ring_take(c->ring, c->lent);
    int64_t have = (int64_t)(ring_bytes(c->ring, &at) / 4);
    if (*n > have) *n = have;
    c->lent = (size_t)*n * 4;
    return at;
}

static bool write_optimizer(Checkpoints *c, const char *dir, Err *err) {
    Buf path = { 0 };
    buf_printf(&path, "%s/optimizer.safetensors", dir);
    const Moments *x = &c->moments;
    StWriter *w = st_write_open(path.data, x->spec, x->n, INT64_MAX, err);
    bool ok = w != NULL;
    for (size_t i = 0; ok && i < x->n; i++)
        for (int64_t at = 0, n; ok && at < x->count[i / 2]; at += n) {
            n = x->count[i / 2] - at;
            const void *piece = from_ring(c, 0, 0, &n, DT_F32);
            ok = st_write(w, piece, (size_t)n * 4, err);
        }
    if (ok) ok = st_write_close(w, err);
    else if (w) st_write_abort(w);
    buf_free(&path);
    return ok;
}

static bool write_all(Checkpoints *c, const char *dir, Err *err) {
    Buf path = { 0 }, config = { 0 };
    buf_printf(&path, "%s/model", dir);
    params_config_text(&config, c->p->m->desc, DT_F32);
    SaveOpts o = { .dtype = DT_F32,
                   .shard_bytes = c->conf.shard_bytes,
                   .from_dir = c->conf.from_dir,
                   .tokenizer_dir = c->conf.tokenizer_dir,
                   .config_text = config.data,
                   .chat_template = c->conf.chat_template };
    bool ok = dir_make(dir, err) && params_save_from(c->p->m->desc, from_ring, c, path.data, o, err)
              && write_optimizer(c, dir, err);
    buf_clear(&path);
    buf_printf(&path, "%s/state.json", dir);
    ok = ok && file_write(path.data, c->state.data, c->state.n, err) && manifest_write(dir, c->step, err)
         && dir_sync(dir, err);
    buf_free(&path);
    buf_free(&config);
    return ok;
}

static void *writer(void *arg) {
    Checkpoints *c = arg;
    Buf tmp = { 0 };
    checkpoint_path(&tmp, c->conf.run_dir, c->step, PLACE_WRITING);
    checkpoint_tidy(c->conf.run_dir);
    c->lent = 0;
    c->ok = write_all(c, tmp.data, &c->err) && checkpoint_into_place(c->conf.run_dir, c->step, &c->err);
    if (c->ok) checkpoint_prune(c->conf.run_dir, c->step, c->conf.keep);
    else {
        ring_leave(c->ring);
        tree_remove(tmp.data);
        err_wrap(&c->err, "the checkpoint of step %" PRId64 " was not written (earlier ones are untouched)", c->step);
    }
    buf_free(&tmp);
    return NULL;
}

/* ---- a save */
bool checkpoint_wait(Checkpoints *c, Err *err) {
    checkpoint_copied(c);
    if (c->writing) pthread_join(c->thread, NULL);
    c->writing = false;
    if (c->ok) return true;
    c->ok = true;
    *err = c->err;
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
    bool ok = dir_make(dir.data, err);
    buf_free(&dir);
    TRY(ok);
    ring_clear(c->ring);
    if (pthread_create(&c->thread, NULL, writer, c))
        return err_set(err, "the checkpoint's writer thread could not be started");
    c->writing = true;
    c->item = 0, c->at = 0;
    copy(c, INT64_MAX, false);
    return true;
}

/* ---- going on */
bool checkpoint_load(const char *path, Policy *p, Err *err) {
    Buf b = { 0 };
    Mem mem = { 0 };
    Moments moments = moments_of(&p->grads, &mem);
    buf_printf(&b, "%s/model", path);
    bool ok = model_load(p->m, b.data, err);
    buf_clear(&b);
    buf_printf(&b, "%s/optimizer.safetensors", path);
    ok = ok && moments_load(&p->opt, &moments, p->m->dev, b.data, err);
    Json state;
    ok = ok && checkpoint_state(path, &state, &mem, err);
    if (ok && !json_int_within(&state, "optimizer_step", 0, UPDATES_MOST, &p->opt.step, err))
        ok = err_wrap(err, "%s/state.json", path);
    buf_free(&b);
    mem_free(&mem);
    return ok;
}
