/* start.c - see start.h. */
#include "cmd/start.h"
#include "base/clock.h"
#include "cmd/open.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t stop; /* the one thing a signal may touch */
static void on_signal(int sig) {
    (void)sig;
    stop = 1;
}

bool stop_asked(void) { return stop; }

void stop_on_signals(void) {
    struct sigaction sa = { .sa_handler = on_signal };
    static const int which[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1 }; /* USR1: mpirun hands it on, TERM it does not */
    for (size_t i = 0; i < COUNT(which); i++) {
        struct sigaction was;
        bool ignored = !sigaction(which[i], NULL, &was) && was.sa_handler == SIG_IGN;
        if (!ignored || which[i] != SIGHUP) sigaction(which[i], &sa, NULL);
    }
}

void untold_put(Buf *b, const Metrics *m) {
    if (!m) return;
    buf_puts(b, ",\"untold\":{");
    for (int i = 0; i < m->n; i++) {
        if (i) buf_putc(b, ',');
        json_put_str(b, m->at[i].name, strlen(m->at[i].name));
        buf_putc(b, ':');
        json_put_f64(b, m->at[i].value);
    }
    buf_putc(b, '}');
}

bool untold_get(Metrics *m, bool *untold, const RunState *s, Mem *mem, Err *err) {
    const Json *all = json_get(&s->json, "untold");
    *untold = all != NULL;
    if (!all) return true;
    if (all->kind != JSON_OBJECT)
        return err_set(err, "%s: \"untold\" must be an object, not %s", s->path, json_kind_name(all->kind));
    if (all->n > METRICS_MAX)
        return err_set(err, "%s: \"untold\" has %zu numbers, at most %d are possible", s->path, all->n, METRICS_MAX);
    metrics_clear(m);
    for (size_t i = 0; i < all->n; i++) {
        const Json *v = &all->members[i].value;
        bool number = v->kind == JSON_INT || v->kind == JSON_REAL;
        if (!number && v->kind != JSON_NULL) /* (null: it was not finite) */
            return err_set(err, "%s: \"untold\": \"%s\" must be a number, not %s", s->path, all->members[i].key,
                           json_kind_name(v->kind));
        metric(m, mem_str(mem, all->members[i].key, all->members[i].key_n), number ? json_number(v) : NAN);
    }
    return true;
}

bool state_read(RunState *s, const char *path, int64_t step, Mem *mem, Err *err) {
    int64_t said;
    Buf file = { 0 };
    buf_printf(&file, "%s/state.json", path);
    s->path = mem_str(mem, file.data, file.n);
    buf_free(&file);
    TRY(checkpoint_state(path, &s->json, mem, err));
    const Json *j = &s->json;
    bool ok = json_int_within(j, "step", 0, INT64_MAX, &said, err)
              && json_int_within(j, "epoch", 0, UPDATES_MOST, &s->at.epoch, err)
              && json_int_within(j, "position", 0, INT32_MAX, &s->at.position, err)
              && json_int_within(j, "data", 0, INT64_MAX, &s->data, err)
              && json_int_within(j, "data_seed", 0, INT64_MAX, &s->data_seed, err)
              && json_bool_must(j, "shuffle", &s->shuffle, err)
              && json_int_within(j, "leaves", 1, LEAVES_MOST, &s->leaves, err);
    if (ok && said != step) ok = err_set(err, "\"step\" is %" PRId64 ", but the folder is step-%06" PRId64, said, step);
    if (ok && !leaves_fit(s->leaves))
        ok = err_set(err, "\"leaves\" is %" PRId64 "; a power of two to %d is possible", s->leaves, LEAVES_MOST);
    return ok || err_wrap(err, "%s", s->path);
}

/* "cuda", "bf16", the libraries that its bits depend on. */
static const char *compute_of(const Dev *d) { return d->act == DT_BF16 ? "bf16" : "f32"; }

static void put_grid(Buf *b, const Ranks *ranks) {
    if (ranks) grid_text(&ranks->shard.g, b);
    else buf_puts(b, "one rank");
}

void same_run_put(Buf *b, const Config *c, const Dev *d, const Ranks *ranks, uint64_t print) {
    DevAbout about = dev_about(d);
    buf_printf(b, ",\"data\":%" PRId64 ",\"data_seed\":%" PRId64 ",\"shuffle\":%s,\"leaves\":%" PRId64,
               (int64_t)(print >> 1), c->data.seed, c->data.shuffle ? "true" : "false", c->trainer.leaves);
    buf_printf(b, ",\"device\":\"%s\",\"compute\":\"%s\",\"libraries\":", d->ops->name, compute_of(d));
    json_put_str(b, about.libraries, strlen(about.libraries));
    buf_puts(b, ",\"grid\":\"");
    put_grid(b, ranks);
    buf_puts(b, "\"");
}

/* One of the checkpoint's words beside the run's; a checkpoint of before it was written down agrees. */
static void compare(Buf *said, const Json *state, const char *name, const char *now) {
    const Json *was = json_get(state, name);
    if (!was || was->kind != JSON_STRING || json_is_str(was, now)) return;
    buf_printf(said, "%s%s was \"%s\", is \"%s\"", said->n ? ", " : "", name, was->str, now);
}

bool same_run(const Config *c, const Dev *d, const Ranks *ranks, uint64_t print, const char *path, const RunState *s,
              Buf *said, Err *err) {
    const Json *state = &s->json;
    if (s->data != (int64_t)(print >> 1))
        return err_set(err,
                       "%s was trained on other data than data.train_files has now: give the same files, or another "
                       "trainer.run_dir",
                       path);
    if (s->shuffle != c->data.shuffle || (s->shuffle && s->data_seed != c->data.seed))
        return err_set(err,
                       "%s met its data in another order (data.shuffle %s, data.seed %" PRId64
                       ", which is trainer.seed unless it is set): its place there would be among other questions",
                       path, s->shuffle ? "true" : "false", s->data_seed);
    DevAbout about = dev_about(d);
    buf_clear(said);
    compare(said, state, "device", d->ops->name);
    compare(said, state, "compute", compute_of(d));
    if (!said->n) compare(said, state, "libraries", about.libraries);
    Buf grid = { 0 };
    put_grid(&grid, ranks);
    compare(said, state, "grid", grid.data);
    buf_free(&grid);
    if (s->leaves != c->trainer.leaves)
        buf_printf(said, "%strainer.leaves was %" PRId64 ", is %" PRId64, said->n ? ", " : "", s->leaves,
                   c->trainer.leaves);
    if (said->n) buf_puts(said, ": sums are added in another order from here on, so the bytes that follow are others");
    return true;
}

bool start_find(const Ranks *ranks, const char *run_dir, const char **path, int64_t *done, Mem *mem, Err *err) {
    Buf found = { 0 };
    bool ok = ranks_agree(ranks, !ranks_first(ranks) || checkpoint_find(run_dir, path, done, mem, err), err);
    if (ok) {
        if (*path) buf_puts(&found, *path);
        ranks_same(ranks, &found);
        comm_broadcast(&ranks->world.all, 0, done, sizeof *done);
        *path = found.n ? mem_str(mem, found.data, found.n) : NULL;
    }
    buf_free(&found);
    return ok;
}

bool save_due(const Config *c, const Ranks *ranks, int64_t step, double t_saved) {
    int64_t every = c->trainer.save_every;
    double minutes = c->trainer.save_minutes;
    bool late = minutes > 0 && clock_now() - t_saved >= 60 * minutes;
    return (every > 0 && step % every == 0) || ranks_any(ranks, ranks_first(ranks) && late);
}

void end_line(int64_t step, int64_t steps, const char *run_dir) {
    if (step < steps)
        printf("told to stop after step %" PRId64 " of %" PRId64 "; saved: the same command goes on\n", step, steps);
    else printf("all %" PRId64 " steps are done\n", step);
    printf("the run is in %s; look at it with hone show, take the model with hone export\n", run_dir);
}

const Opt start_options[] = {
    { "list-options", OPT_FLAG, offsetof(StartArgs, list_options), "",
      "print every option with its default, and verl's name for it" },
    { "check", OPT_FLAG, offsetof(StartArgs, check), "", "print the configuration, check it, and stop" },
    { 0 },
};

/* What can be known without reading weights or data: all that is wrong, a line each. */
static int wrong(const Config *c, Buf *list) {
    Mem mem = { 0 };
    ModelDesc m;
    Err err;
    Launch l = world_launch();
    int n = config_check_list(c, list);
    bool said = n && strstr(list->data, "model."); /* its folder is of no use already */
    if (!said && model_desc_load(&m, c->model.path, &mem, &err) && model_desc_runs(&m, &err))
        n += config_check_model_list(c, &m, l.size > 1 ? l.size : 1, list);
    else if (!said) {
        buf_printf(list, "  %s\n", err.msg);
        n++;
    }
    mem_free(&mem);
    return n;
}

int start(const Verb *v, Config *c, ConfVerb verb, int argc, char **argv) {
    StartArgs a = { 0 };
    Err err;
    Buf text = { 0 };
    const char *words[256];
    int n, rc = opt_parse(v, &a, words, 0, COUNT(words), &n, argc, argv);
    if (rc >= 0) return rc;
    if (a.list_options) {
        config_list_options(&text, verb);
        fputs(text.data, stdout);
        buf_free(&text);
        return 0;
    }
    if (!n) return cmd_usage(v, "CONFIG.yaml is missing");
    bool file = !strchr(words[0], '=');
    if (!config_load(c, verb, file ? words[0] : NULL, words + file, n - file, &text, &err)) {
        rc = cmd_fail(v, &err);
        if (speaks() && text.n && memchr(text.data, '\n', text.n) != text.data + text.n - 1) fputs(text.data, stderr);
        buf_free(&text);
        return rc;
    }
    config_idle(c);
    config_dump(&text, c, DUMP_GIVEN);
    for (size_t i = 0; i < c->notes.n; i++) printf("note: %s\n", c->notes.at[i]);
    if (text.n) puts(text.data);
    buf_free(&text);
    fflush(stdout);
    buf_clear(&text);
    int bad = wrong(c, &text);
    if (!bad && !a.check) return buf_free(&text), -1;
    if (!bad) puts("checked: nothing is wrong that can be seen without reading weights and data");
    else if (bad == 1) err_set(&err, "%.*s", (int)text.n - 3, text.data + 2);
    else err_set(&err, "%d settings cannot be had", bad);
    config_free(c);
    rc = bad ? cmd_fail(v, &err) : 0;
    if (bad > 1 && speaks()) fputs(text.data, stderr);
    buf_free(&text);
    return rc;
}
