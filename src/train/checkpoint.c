/* checkpoint.c - a save is two threads and a buffer between them: the trainer's copies weights and states
 * into it, in the order of the files, whenever it has a moment; the writer's empties it into files, and counts what it
 * writes.  A buffer as large as all of it makes the copy one piece.
 *
 * Both sides go through one list: of each member the rows that ranks put together from their strips (runs.h), which
 * wants all of them at once and is therefore done first, inside checkpoint_save; then the other runs' weights, then
 * their averages. */
#include "train/checkpoint.h"
#include "base/file.h"
#include "base/ring.h"
#include "comm/watch.h"
#include "tensor/half.h"
#include "train/checkpoint_dir.h"
#include "train/meet.h"
#include "train/runs.h"
#include "param/peft.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECE = 1 << 20,
    MOMENT = 4 << 20,
    NARROW = 1 << 19
}; /* elements of one copy; of a call between two decode steps: some milliseconds; that are rounded at a time */

/* A member while it is saved. */
typedef struct {
    Policy *p;
    MemberKind kind;
    const char *folder, *weights, *averages;
    Runs runs;
    Moments moments; /* n 0: none are written */
    StSpec *spec;    /* [n_specs] the weights' */
    size_t n_specs;
    StPlaces *places[2]; /* of weights, of averages */
    size_t sums[2];      /* the first file of each */
} Saved;

typedef struct {
    int member;
    size_t item; /* 3 of a run: all the weights, then m and v of each */
    int64_t at;
} Place3;

struct Checkpoints {
    Saved m[MEMBERS];
    int members;
    CheckpointConf conf;
    const Groups *par;
    Watch *watch;
    Meet meet;
    Sums sums;
    Ring *ring;
    uint16_t *narrow; /* [NARROW], where averages are rounded */
    Place3 copy;      /* the trainer's place; past the last member when nothing is left to copy */
    int64_t step;
    Buf state;
    bool writing;
    int bad; /* of the last save: 0 none, 1 after another rank gave up, 2 for a reason of our own */
    pthread_t thread;
    Err err;
};

size_t checkpoint_bytes(const ModelDesc *m, const Shard *shard, int64_t wanted, SavedMoments moments) {
    int64_t elements;
    size_t room;
    runs_size(m, shard, moments == SAVED_NONE ? 1 : STATES, &elements, &room);
    int64_t whole = elements > 1 ? elements * 4 : 4;
    if (wanted > 0 && wanted < 4096) wanted = 4096;
    return room + (size_t)(wanted > 0 && wanted < whole ? wanted / 4 * 4 : whole);
}

/* ---- opening */
static double longest_wait(const Groups *g) {
    double w = g->tp.wait > g->dense.wait ? g->tp.wait : g->dense.wait;
    return g->pp.wait > w ? g->pp.wait : w;
}

static void open_member(Saved *s, const Member *m, const CheckpointConf *c, Mem *mem) {
    DType t = c->moments == SAVED_BF16 ? DT_BF16 : DT_F32;
    Policy *p = m->p;
    *s = (Saved){ .p = p,
                  .kind = m->kind,
                  .folder = member_folder(m->kind),
                  .weights = member_weights(m->kind),
                  .averages = member_averages(m->kind) };
    s->moments = moments_of(&p->grads, t, mem);
    if (c->moments == SAVED_NONE) s->moments.n = 0;
    s->spec = params_specs(p->w->model, DT_F32, &s->n_specs, mem);
    s->runs = runs_open(p->w, &p->grads, &p->opt, &p->m->par, &s->moments, mem);
}

Checkpoints *checkpoints_open(const Member *m, int n, const CheckpointConf *conf, Mem *mem) {
    Checkpoints *c = MEM_NEW(mem, Checkpoints);
    CHECK(n > 0 && n <= MEMBERS, "%d members of a checkpoint", n);
    const Shard *s = &m->p->m->shard;
    const Groups *g = &m->p->m->par;
    *c = (Checkpoints){ .members = n,
                        .conf = *conf,
                        .par = g,
                        .watch = g->tp.watch      ? g->tp.watch
                                 : g->dense.watch ? g->dense.watch
                                                  : g->pp.watch,
                        .meet = { .rank = grid_rank(&s->g, s->at), .n = grid_ranks(&s->g), .wait = longest_wait(g) } };
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        int64_t elements;
        size_t room;
        open_member(&c->m[i], &m[i], conf, mem);
        runs_size(m[i].p->w->model, s, conf->moments == SAVED_NONE ? 1 : STATES, &elements, &room);
        bytes += elements > 1 ? (size_t)elements * 4 : 4;
    }
    size_t wanted = conf->buffer > 0 && conf->buffer < 4096 ? 4096 : (size_t)conf->buffer / 4 * 4;
    c->ring = ring_open(wanted && wanted < bytes ? wanted : bytes, mem);
    if (conf->moments == SAVED_BF16) c->narrow = MEM_ARRAY(mem, uint16_t, NARROW);
    c->copy.member = n;
    return c;
}

/* The ranks come to one opinion: the gravest, of the first who has it. */
int checkpoint_agree(const Groups *g, int bad, Err *err) {
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

/* ---- the list */
static size_t n_items(const Saved *m) { return (m->moments.n ? 3 : 1) * m->runs.n; }
static const Run *run_of(const Saved *m, size_t item, OptimState *kind) { /* STATE_MASTER: of the weight */
    size_t n = m->runs.n;
    *kind = item < n ? STATE_MASTER : (item - n) % 2 ? STATE_V : STATE_M;
    return &m->runs.at[item < n ? item : (item - n) / 2];
}
static bool has(const Saved *m, const Run *r, OptimState kind) {
    return r->counts && (kind == STATE_MASTER || (r->grad >= 0 && m->moments.n));
}
/* Elements that are left of an item for who goes through the list without exchange. */
static int64_t count_of(const Saved *m, size_t item) {
    OptimState kind;
    const Run *r = run_of(m, item, &kind);
    return has(m, r, kind) && !r->with ? r->n : 0;
}

/* ---- the trainer's side */
/* All is float32 on its way: what is kept in fewer bits is made wide, which loses none. */
static void get(const Saved *m, const Run *r, OptimState kind, int64_t from, int64_t n, float *to) {
    Dev *d = m->p->m->dev;
    Tensor w = m->p->w->at[r->weight].t;
    w = tensor_cols(tensor_shape(w, 1, w.rows * w.cols), r->from + from, n);
    if (kind == STATE_MASTER && (w.dtype == DT_F32 || r->grad < 0)) optim_weights(&m->p->opt, d, w, to);
    else optim_get(&m->p->opt, d, kind, r->state + from, n, w, to);
}

static bool next_item(const Checkpoints *c, Place3 *p) { /* to the next elements that there are */
    while (p->member < c->members) {
        const Saved *m = &c->m[p->member];
        if (p->item == n_items(m)) *p = (Place3){ p->member + 1, 0, 0 };
        else if (p->at == count_of(m, p->item)) p->at = 0, p->item++;
        else return true;
    }
    return false;
}

static void say_saving(const Checkpoints *c, bool saving) {
    for (int i = 0; i < c->members; i++) c->m[i].p->block.saving = saving;
}

/* Up to 'most' elements; with 'wait' for room whenever there is none. */
static void copy(Checkpoints *c, int64_t most, bool wait) {
    while (next_item(c, &c->copy) && most > 0) {
        const Saved *m = &c->m[c->copy.member];
        void *to;
        int64_t n = (int64_t)(ring_room(c->ring, &to, wait) / 4), left = count_of(m, c->copy.item) - c->copy.at;
        if (ring_left(c->ring)) c->copy.member = c->members; /* the writer has failed: checkpoint_wait says why */
        else if (!n) break;
        else {
            OptimState kind;
            const Run *r = run_of(m, c->copy.item, &kind);
            if (n > left) n = left;
            if (n > PIECE) n = PIECE;
            get(m, r, kind, c->copy.at, n, to);
            c->copy.at += n;
            ring_put(c->ring, (size_t)n * 4);
            most -= n;
        }
    }
    say_saving(c, next_item(c, &c->copy));
}

void checkpoint_copy_on(Checkpoints *c) { copy(c, MOMENT, false); }
void checkpoint_copied(Checkpoints *c) { copy(c, INT64_MAX, true); }

static void put_rows(Checkpoints *c, const float *from, int64_t n) {
    while (n) {
        void *to;
        int64_t k = (int64_t)(ring_room(c->ring, &to, true) / 4);
        if (!k) return; /* the writer has failed */
        if (k > n) k = n;
        memcpy(to, from, (size_t)k * 4);
        ring_put(c->ring, (size_t)k * 4);
        from += k, n -= k;
    }
}

/* Strips for rows: with the ranks that share them, whatever becomes of the writer. */
static void copy_rows(Checkpoints *c) {
    for (int i = 0; i < c->members; i++) {
        const Saved *m = &c->m[i];
        for (const Run *r = m->runs.at; r < m->runs.at + m->runs.n; r++)
            for (OptimState kind = 0; r->with && kind < STATES; kind++)
                for (int64_t b = 0; has(m, r, kind) && b < run_blocks(&m->runs, r); b++) {
                    int64_t from, n = run_strips(&m->runs, r, b, &from);
                    get(m, r, kind, from, n, m->runs.strips);
                    rows_gather(&m->runs, r, b);
                    put_rows(c, m->runs.rows, run_rows(&m->runs, r, b));
                }
    }
}

/* ---- the writer's side */
static bool place(Checkpoints *c, const Saved *m, const Run *r, OptimState kind, RunPart at, const float *x, Err *err) {
    bool weights = kind == STATE_MASTER;
    size_t tensor = (weights ? r->tensor : r->moment) + (size_t)at.expert, each = 4;
    const StPlaces *places = m->places[!weights];
    const void *bytes = x;
    if (!weights) tensor = 2 * tensor + (kind == STATE_V);
    if (!weights && c->narrow) {
        each = 2, bytes = c->narrow;
        for (int64_t i = 0; i < at.n; i++) c->narrow[i] = f32_bf16(x[i]);
    }
    int64_t begins;
    size_t file = m->sums[!weights] + (size_t)st_places_of(places, tensor, &begins), n = (size_t)at.n * each;
    int64_t from = at.at * (int64_t)each;
    TRY(st_place(m->places[!weights], tensor, from, bytes, n, err));
    sums_add(&c->sums, file, begins + from, bytes, n);
    meet_progress(&c->meet, (int64_t)n);
    watch_moved(c->watch);
    return true;
}

/* The next 'count' elements of the ring; block -1: of the run as it lies in memory, else own rows of that block. */
static bool write_some(Checkpoints *c, const Saved *m, const Run *r, OptimState kind, int64_t block, int64_t count,
                       Err *err) {
    for (int64_t at = 0; at < count;) {
        const void *bytes;
        int64_t have = (int64_t)(ring_bytes(c->ring, &bytes) / 4), done = 0;
        if (have > count - at) have = count - at;
        while (done < have) {
            int64_t most = have - done;
            if (c->narrow && most > NARROW) most = NARROW;
            RunPart p =
                block < 0 ? run_part(&m->runs, r, at + done, most) : run_row_part(&m->runs, r, block, at + done, most);
            TRY(place(c, m, r, kind, p, (const float *)bytes + done, err));
            done += p.n;
        }
        ring_take(c->ring, (size_t)done * 4);
        at += done;
    }
    return true;
}

static bool write_rows(Checkpoints *c, const Saved *m, Err *err) {
    for (const Run *r = m->runs.at; r < m->runs.at + m->runs.n; r++)
        for (OptimState kind = 0; r->with && kind < STATES; kind++)
            for (int64_t b = 0; has(m, r, kind) && b < run_blocks(&m->runs, r); b++)
                TRY(write_some(c, m, r, kind, b, run_rows(&m->runs, r, b), err));
    return true;
}

static bool write_items(Checkpoints *c, Err *err) {
    for (int i = 0; i < c->members; i++) TRY(write_rows(c, &c->m[i], err));
    for (int i = 0; i < c->members; i++)
        for (size_t k = 0; k < n_items(&c->m[i]); k++) {
            OptimState kind;
            const Run *r = run_of(&c->m[i], k, &kind);
            TRY(write_some(c, &c->m[i], r, kind, -1, count_of(&c->m[i], k), err));
        }
    return true;
}

static void file_done(void *user) { /* a file is on the disk */
    Checkpoints *c = user;
    meet_progress(&c->meet, 1);
    watch_moved(c->watch);
}

static bool close_files(Checkpoints *c, bool ok, Err *err) {
    for (int i = 0; i < c->members; i++)
        for (int k = 0; k < 2; k++) {
            if (c->m[i].places[k]) ok = st_places_close(c->m[i].places[k], file_done, c, ok ? err : NULL);
            c->m[i].places[k] = NULL;
        }
    return ok;
}

static bool write_own(Checkpoints *c, Err *err) {
    bool ok = write_items(c, err);
    return close_files(c, ok, err);
}

/* ---- files */
/* Of one kind of a member: opened, named and counted by pieces; the first rank has made them, and counts their
 * headers. */
static void plan_files(Checkpoints *c, Saved *m, int kind, const char *path, Mem *mem) {
    m->places[kind] =
        st_places_open(path, kind ? m->moments.spec : m->spec, kind ? m->moments.n : m->n_specs, c->conf.shard_bytes);
    m->sums[kind] = c->sums.file.n;
    const StPlaced *f;
    for (int k = 0; (f = st_places_file(m->places[kind], k)); k++) {
        const char *name = kind ? mem_str(mem, f->name, strlen(f->name)) : mem_printf(mem, "%s/%s", m->folder, f->name);
        size_t i = sums_file(&c->sums, name, f->header, f->bytes, c->conf.piece);
        if (c->meet.rank) continue;
        Buf front = { 0 };
        st_places_front(m->places[kind], k, &front);
        sums_add(&c->sums, i, 0, front.data, front.n);
        buf_free(&front);
    }
}

/* All but the numbers; rank 0's. */
static bool make_member(const Checkpoints *c, const Saved *m, const char *folder, const char *weights,
                        const char *averages, Err *err) {
    Buf config = { 0 }, path = { 0 };
    bool whole = m->kind == MEMBER_MODEL;
    buf_printf(&path, "%s/adapter_config.json", folder);
    if (whole) params_config_text(&config, m->p->w->model, DT_F32);
    else peft_config_text(&config, m->p->w->model, m->p->w->model->dir);
    bool ok = dir_make(folder, err) && st_places_make(weights, m->spec, m->n_specs, c->conf.shard_bytes, err)
              && (whole || file_write(path.data, config.data, config.n, err))
              && params_save_rest(folder, whole ? config.data : NULL, &c->conf.carried, err)
              && (!m->moments.n || st_places_make(averages, m->moments.spec, m->moments.n, c->conf.shard_bytes, err));
    buf_free(&config);
    buf_free(&path);
    return ok;
}

static bool make_folder(Checkpoints *c, Mem *mem, Err *err) {
    const char *dir = c->meet.dir;
    for (int i = 0; c->meet.rank == 0 && i < c->members; i++)
        TRY(make_member(c, &c->m[i], mem_printf(mem, "%s/%s", dir, c->m[i].folder),
                        mem_printf(mem, "%s/%s", dir, c->m[i].weights), mem_printf(mem, "%s/%s", dir, c->m[i].averages),
                        err));
    if (c->meet.rank == 0) TRY(file_write(mem_printf(mem, "%s/state.json", dir), c->state.data, c->state.n, err));
    for (int i = 0; i < c->members; i++) {
        Saved *m = &c->m[i];
        plan_files(c, m, 0, mem_printf(mem, "%s/%s", dir, m->weights), mem);
        if (m->moments.n) plan_files(c, m, 1, mem_printf(mem, "%s/%s", dir, m->averages), mem);
    }
    return true;
}

/* Rank 0 puts together what all have counted. */
static bool sum_up(Checkpoints *c, Err *err) {
    Meet *m = &c->meet;
    Buf text = { 0 };
    bool ok = true;
    if (m->rank) {
        sums_put(&c->sums, &text);
        ok = meet_tell(m, "sums", text.n ? text.data : "", err);
    }
    for (int r = 1; ok && m->rank == 0 && r < m->n; r++) {
        buf_clear(&text);
        ok = meet_come(m, "sums", r, err) && meet_text(m, "sums", r, &text, err);
        if (ok && text.n && !sums_take(&c->sums, text.data))
            ok = err_set(err, "%s/.sums-%d is not what rank %d wrote", m->dir, r, r);
    }
    if (ok && m->rank == 0) {
        ok = manifest_write(m->dir, c->step, &c->sums, err);
        if (ok) meet_end(m, (const char *const[]){ "sums", "at", NULL });
        ok = ok && dir_sync(m->dir, err);
    }
    buf_free(&text);
    return ok;
}

static void *writer(void *arg) {
    Checkpoints *c = arg;
    Buf tmp = { 0 };
    Mem mem = { 0 };
    checkpoint_path(&tmp, c->conf.run_dir, c->step, PLACE_WRITING);
    Meet *m = &c->meet;
    m->dir = tmp.data, m->done = 0, m->told = 0;
    bool first = m->rank == 0, ok = make_folder(c, &mem, &c->err) && meet_begin(m, &c->err) && write_own(c, &c->err)
                                    && sum_up(c, &c->err)
                                    && (!first || checkpoint_into_place(c->conf.run_dir, c->step, &c->err));
    if (ok && first) checkpoint_prune(c->conf.run_dir, c->step, c->conf.keep);
    close_files(c, false, NULL);
    if (!ok) {
        c->bad = meet_leave(m) ? 2 : 1; /* what fails after that may fail because the folder is gone */
        ring_leave(c->ring);
        if (first && !meet_begun(m)) tree_remove(tmp.data); /* else when nobody writes there any more */
        err_wrap(&c->err, "the checkpoint of step %" PRId64 " was not written (earlier ones are untouched)", c->step);
    }
    sums_free(&c->sums);
    mem_free(&mem);
    buf_free(&tmp);
    return NULL;
}

/* ---- a save */
bool checkpoint_wait(Checkpoints *c, Err *err) {
    checkpoint_copied(c);
    if (!c->writing) return true;
    pthread_join(c->thread, NULL);
    c->writing = false;
    int bad = checkpoint_agree(c->par, c->bad, &c->err);
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
    if (checkpoint_agree(c->par, ok ? 0 : 2, err)) return false;
    ring_clear(c->ring);
    if (pthread_create(&c->thread, NULL, writer, c)) {
        CHECK(c->meet.n == 1, "the checkpoint's writer thread could not be started, and other ranks have theirs");
        return err_set(err, "the checkpoint's writer thread could not be started");
    }
    c->writing = true;
    c->copy = (Place3){ 0 };
    copy_rows(c);
    copy(c, INT64_MAX, false);
    return true;
}

/* A save as any other, of which the model stays. */
static bool keep_model(const char *dir, MemberKind kind, Err *err) {
    Buf from = { 0 }, to = { 0 };
    checkpoint_path(&from, dir, 0, PLACE_WHOLE);
    buf_printf(&from, "/%s", member_folder(kind));
    buf_printf(&to, "%s/%s", dir, member_folder(kind));
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
    own.run_dir = dir, own.keep = 1, own.buffer = PIECE, own.moments = SAVED_NONE;
    Checkpoints *c = checkpoints_open(&(Member){ member_of(p), p }, 1, &own, &mem);
    bool ok = checkpoint_save(c, 0, "{}", err), first = c->meet.rank == 0;
    Err late;
    if (!checkpoints_close(c, &late) && ok) ok = false, *err = late;
    ok = ok && (!first || keep_model(dir, member_of(p), err));
    ok = !checkpoint_agree(&p->m->par, ok ? 0 : 2, err);
    mem_free(&mem);
    return ok;
}
