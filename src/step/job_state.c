/* job_state.c - what a checkpoint's state.json holds beside the weights, and going on from it.
 *
 * Whoever edited the file: every member must be there and possible, and errors name file and member.  The data and
 * their order must be those of before.  Device, what it computes in and with, leaves and grid may differ, at the price
 * that the bytes that follow are others, which is said. */
#include "step/job.h"
#include "base/clock.h"
#include "base/json.h"
#include "step/found.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- a step that is done but not told yet, because its validation was cut: its numbers wait here */
static void put_untold(Buf *b, const Metrics *m) {
    buf_puts(b, ",\"untold\":{");
    for (int i = 0; i < m->n; i++) {
        if (i) buf_putc(b, ',');
        json_put_str(b, m->at[i].name, strlen(m->at[i].name));
        buf_putc(b, ':');
        json_put_f64(b, m->at[i].value);
    }
    buf_putc(b, '}');
}

static bool get_untold(Job *j, const char *file, const Json *state, Err *err) {
    const Json *all = json_get(state, "untold");
    j->untold = all != NULL;
    if (!all) return true;
    if (all->kind != JSON_OBJECT)
        return err_set(err, "%s: \"untold\" must be an object, not %s", file, json_kind_name(all->kind));
    if (all->n > METRICS_MAX)
        return err_set(err, "%s: \"untold\" has %zu numbers, at most %d are possible", file, all->n, METRICS_MAX);
    metrics_clear(&j->metrics);
    for (size_t i = 0; i < all->n; i++) {
        const Json *v = &all->members[i].value;
        bool number = v->kind == JSON_INT || v->kind == JSON_REAL;
        if (!number && v->kind != JSON_NULL) /* (null: it was not finite) */
            return err_set(err, "%s: \"untold\": \"%s\" must be a number, not %s", file, all->members[i].key,
                           json_kind_name(v->kind));
        metric(&j->metrics, mem_str(&j->mem, all->members[i].key, all->members[i].key_n),
               number ? json_number(v) : NAN);
    }
    return true;
}

/* ---- what every training keeps */
static const char *compute_of(const Dev *d) { return d->act == DT_BF16 ? "bf16" : "f32"; }

/* How weights and states are kept, in words. */
static const char *word_of(DType t) { return t == DT_F32 ? "f32" : t == DT_BF16 ? "bf16" : "remainder"; }

static int64_t print_of(const Job *j) { return (int64_t)(dataset_print(j->train) >> 1); }

bool job_save(Job *j, const char *more, Err *err) {
    if (j->step == j->saved) return true; /* writing it again would take the good one away first */
    if (j->c.trainer.save == SAVE_NEVER) return true;
    const Config *c = &j->c;
    const Dev *d = &j->o.dev;
    DevAbout about = dev_about(d);
    Buf b = { 0 };
    ranks_phase(&j->ranks, "saving");
    buf_printf(&b, "{\"step\":%" PRId64 ",\"optimizer_step\":%" PRId64 ",\"epoch\":%" PRId64 ",\"position\":%" PRId64,
               j->step, j->policy.opt.step, j->cursor.epoch, j->cursor.position);
    buf_printf(&b, ",\"data\":%" PRId64 ",\"data_seed\":%" PRId64 ",\"shuffle\":%s,\"leaves\":%" PRId64, print_of(j),
               c->data.seed, c->data.shuffle ? "true" : "false", c->trainer.leaves);
    buf_printf(&b, ",\"device\":\"%s\",\"compute\":\"%s\",\"libraries\":", d->ops->name, compute_of(d));
    json_put_str(&b, about.libraries, strlen(about.libraries));
    OptimTypes as = j->policy.c.states;
    buf_printf(&b, ",\"weights\":\"%s\",\"master\":\"%s\",\"moments\":\"%s\",\"checkpoint_moments\":\"%s\",\"grid\":\"",
               word_of(as.weights), word_of(as.master), word_of(as.moments),
               name_of(saved_names, c->trainer.checkpoint_moments));
    grid_text(&j->ranks.shard.g, &b);
    buf_putc(&b, '"');
    found_put(&b, j);
    buf_puts(&b, more);
    if (j->untold) put_untold(&b, &j->metrics);
    buf_puts(&b, "}\n");
    bool ok = checkpoint_save(j->saves, j->step, b.data, err);
    buf_free(&b);
    if (ok) j->saved = j->step;
    j->t_saved = clock_now();
    return ok;
}

bool job_save_due(const Job *j) {
    int64_t every = j->c.trainer.save_every;
    double minutes = j->c.trainer.save_minutes;
    bool late = minutes > 0 && clock_now() - j->t_saved >= 60 * minutes; /* by the first rank's clock */
    return (every > 0 && j->step % every == 0) || ranks_any(&j->ranks, ranks_first(&j->ranks) && late);
}

/* ---- going on */
typedef struct {
    DataCursor at;
    int64_t data, data_seed, leaves;
    bool shuffle;
} State;

static bool read_state(State *s, const Json *j, int64_t step, Err *err) {
    int64_t said;
    TRY(json_int_within(j, "step", 0, INT64_MAX, &said, err)
        && json_int_within(j, "epoch", 0, UPDATES_MOST, &s->at.epoch, err)
        && json_int_within(j, "position", 0, INT32_MAX, &s->at.position, err)
        && json_int_within(j, "data", 0, INT64_MAX, &s->data, err)
        && json_int_within(j, "data_seed", 0, INT64_MAX, &s->data_seed, err)
        && json_bool_must(j, "shuffle", &s->shuffle, err)
        && json_int_within(j, "leaves", 1, LEAVES_MOST, &s->leaves, err));
    if (said != step) return err_set(err, "\"step\" is %" PRId64 ", but the folder is step-%06" PRId64, said, step);
    if (!leaves_fit(s->leaves))
        return err_set(err, "\"leaves\" is %" PRId64 "; a power of two to %d is possible", s->leaves, LEAVES_MOST);
    return true;
}

static bool same_data(const Job *j, const State *s, const char *path, Err *err) {
    if (s->data != print_of(j))
        return err_set(err,
                       "%s was trained on other data than data.train_files has now: give the same files, or another "
                       "trainer.run_dir",
                       path);
    if (s->shuffle != j->c.data.shuffle || (s->shuffle && s->data_seed != j->c.data.seed))
        return err_set(err,
                       "%s met its data in another order (data.shuffle %s, data.seed %" PRId64
                       ", which is trainer.seed unless it is set): its place there would be among other questions",
                       path, s->shuffle ? "true" : "false", s->data_seed);
    return true;
}

/* One of the checkpoint's words beside the run's; a checkpoint of before it was written down agrees. */
static void compare(Buf *said, const Json *state, const char *name, const char *now) {
    const Json *was = json_get(state, name);
    if (!was || was->kind != JSON_STRING || json_is_str(was, now)) return;
    buf_printf(said, "%s%s was \"%s\", is \"%s\"", said->n ? ", " : "", name, was->str, now);
}

/* What may be other than before, in one line. */
static void say_changes(const Job *j, const State *s, const Json *state) {
    const Dev *d = &j->o.dev;
    DevAbout about = dev_about(d);
    Buf said = { 0 }, grid = { 0 };
    compare(&said, state, "device", d->ops->name);
    compare(&said, state, "compute", compute_of(d));
    if (!said.n) compare(&said, state, "libraries", about.libraries);
    compare(&said, state, "weights", word_of(j->policy.c.states.weights));
    compare(&said, state, "master", word_of(j->policy.c.states.master));
    compare(&said, state, "moments", word_of(j->policy.c.states.moments));
    grid_text(&j->ranks.shard.g, &grid);
    compare(&said, state, "grid", grid.data);
    if (s->leaves != j->c.trainer.leaves)
        buf_printf(&said, "%strainer.leaves was %" PRId64 ", is %" PRId64, said.n ? ", " : "", s->leaves,
                   j->c.trainer.leaves);
    if (said.n) {
        buf_puts(
            &said,
            ": sums are added in another order or rounded otherwise from here on, so the bytes that follow are others");
        run_dir_log(j->dir, said.data);
    }
    buf_free(&said);
    buf_free(&grid);
}

/* What the checkpoint does not hold as it was. */
static void say_rounded(const Job *j, const Json *state, const char *path) {
    const Json *how = json_get(state, "checkpoint_moments");
    bool none = json_is_str(how, "none"),
         rounded = json_is_str(how, "bf16") && !json_is_str(json_get(state, "moments"), "bf16");
    if (!none && !rounded) return;
    Buf line = { 0 };
    buf_printf(&line,
               "%s holds AdamW's averages %s (trainer.checkpoint_moments): the bytes that follow are others than "
               "those of a run that was never stopped",
               path, none ? "not at all, they begin anew" : "rounded to bf16");
    run_dir_log(j->dir, line.data);
    buf_free(&line);
}

/* Another version's: named, and left where they are. */
static void say_unknown(const Job *j, const char *path) {
    Buf names = { 0 }, line = { 0 };
    if (ranks_first(&j->ranks) && checkpoint_unknown(path, &names)) {
        buf_printf(&line,
                   "%s has %s, which this version does not know: it stays as it is, and checkpoints from here on "
                   "do not have it",
                   path, names.data);
        run_dir_log(j->dir, line.data);
    }
    buf_free(&names);
    buf_free(&line);
}

static bool load_state(Job *j, const char *path, int64_t done, JobMore *more, void *user, Err *err) {
    Json json;
    State s;
    const char *file = mem_printf(&j->mem, "%s/state.json", path);
    TRY(checkpoint_state(path, &json, &j->mem, err));
    if (!read_state(&s, &json, done, err)) return err_wrap(err, "%s", file);
    TRY(same_data(j, &s, path, err));
    say_changes(j, &s, &json);
    say_rounded(j, &json, path);
    say_unknown(j, path);
    if (!found_changes(j, path, &json, err)) return err_wrap(err, "%s", file);
    j->cursor = s.at;
    if (!stream_seek(j->stream, j->cursor, err)) return err_wrap(err, "%s", file);
    j->step = j->saved = done;
    TRY(get_untold(j, file, &json, err));
    return !more || more(user, &json, path, err) || err_wrap(err, "%s", file);
}

static bool load(Job *j, const char *path, int64_t done, JobMore *more, void *user, Err *err) {
    if (!path && j->c.from.gone) /* its newest checkpoint went since the start */
        return err_set(err, "%s has no checkpoint to go on from, and model.path %s is not there", j->c.trainer.run_dir,
                       j->c.model.path);
    if (path) TRY(load_state(j, path, done, more, user, err));
    int64_t behind = j->step > 0 ? j->step : -1; /* validation before step 1 is told again */
    return run_dir_resume(j->dir, behind, j->untold, err);
}

/* The newest checkpoint below 'below' as the first rank sees it: all take that one. */
static void find(Job *j, int64_t below, const char **path, int64_t *done, int *bad) {
    const Ranks *ranks = &j->ranks;
    Buf found = { 0 };
    if (ranks_first(ranks)) checkpoint_newest(j->c.trainer.run_dir, LOOK_SIZES, below, path, done, bad, &j->mem);
    if (*path) buf_puts(&found, *path);
    ranks_same(ranks, &found);
    comm_broadcast(&ranks->world.all, 0, done, sizeof *done);
    comm_broadcast(&ranks->world.all, 0, bad, sizeof *bad);
    *path = found.n ? mem_str(&j->mem, found.data, found.n) : NULL;
    buf_free(&found);
}

/* Weights and states of the newest that is whole: what it is made of is checked while all read it, and where that fails
 * the one before it is next. */
static bool load_newest(Job *j, const char **path, int64_t *done, Err *err) {
    int64_t below = INT64_MAX;
    int bad = 0;
    for (;; below = *done, bad++) {
        *path = NULL;
        find(j, below, path, done, &bad);
        if (!*path) return !bad || checkpoint_all_bad(j->c.trainer.run_dir, bad, err);
        if (j->c.trainer.resume == RESUME_NEVER)
            return err_set(err, "%s is there and trainer.resume is never: give this run another trainer.run_dir",
                           *path);
        LoadEnd end = checkpoint_load(*path, j->member, j->members, err);
        if (end != LOAD_DAMAGED) return end == LOAD_OK;
        if (ranks_first(&j->ranks)) checkpoint_pass_over(*path, err);
    }
}

bool job_resume(Job *j, JobMore *more, void *user, Err *err) {
    const char *path = NULL;
    int64_t done = 0;
    TRY(job_agree(j, load_newest(j, &path, &done, err), err)
        && job_agree(j, load(j, path, done, more, user, err), err));
    return !path || open_same(&j->ranks, &j->o.model, (RandomFill){ 0 }, err);
}
