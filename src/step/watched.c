/* watched.c - a run's state for others, its alerts, its page. */
#include "step/watched.h"
#include "base/file.h"
#include "base/json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- status.json */
static void put_status(const Watched *w, const char *state, const char *why) {
    Buf b = { 0 };
    Mem mem = { 0 };
    Err err;
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    buf_printf(&b, "{\"state\":\"%s\",\"step\":%" PRId64 ",\"steps\":%" PRId64 ",\"pid\":%ld,\"host\":", state, w->step,
               w->steps, (long)getpid());
    json_put_str(&b, host, strlen(host));
    buf_printf(&b, ",\"time\":%lld,\"why\":", (long long)time(NULL));
    json_put_str(&b, why, strlen(why));
    buf_puts(&b, "}\n");
    const char *path = mem_printf(&mem, "%s/status.json", w->c->trainer.run_dir);
    if (!file_write(path, b.data, b.n, &err)) run_dir_note(w->dir, err.msg);
    mem_free(&mem);
    buf_free(&b);
}

/* ---- the page: a process of its own, which sees to it that it ends with this one (cmd/verb_page.c) */
static char *const *few_variables(char *out[], int most) { /* not a launcher's: it would take the page for a rank */
    static const char *const kept[] = { "PATH=", "HOME=", "LANG=", "LC_ALL=", "TZ=", "TMPDIR=", "LD_LIBRARY_PATH=" };
    int n = 0;
    for (char **e = environ; *e; e++)
        for (size_t i = 0; i < COUNT(kept); i++)
            if (!strncmp(*e, kept[i], strlen(kept[i])) && n + 1 < most) out[n++] = *e;
    out[n] = NULL;
    return out;
}

static int spawn_page(const Config *c, const char *log) {
    char port[16], pid[16], *env[16];
    snprintf(port, sizeof port, "%d", (int)c->trainer.page);
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    const char *argv[] = { "hone", "page", c->trainer.run_dir, "--port", port, "--parent", pid, NULL, NULL, NULL };
    if (c->trainer.alert_command) argv[7] = "--alert-command", argv[8] = c->trainer.alert_command;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, log, O_WRONLY | O_APPEND, 0); /* why it could not begin */
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_init(&attr);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0); /* Ctrl-C is the run's, which then saves */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pid_t child = 0;
    char *const *args = (char *const *)(uintptr_t)argv;
    bool ok = !posix_spawn(&child, "/proc/self/exe", &files, &attr, args, few_variables(env, COUNT(env)));
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return ok ? child : 0;
}

static void start_page(Watched *w) {
    Mem mem = { 0 };
    w->page = spawn_page(w->c, mem_printf(&mem, "%s/log.txt", w->c->trainer.run_dir));
    run_dir_log(w->dir, w->page ? mem_printf(&mem,
                                             "a page of this run is on port %d of this machine: %s/page.url says "
                                             "where, with its token",
                                             (int)w->c->trainer.page, w->c->trainer.run_dir)
                                : "trainer.page: no page could be started; the run goes on without it");
    mem_free(&mem);
}

/* Once: the run goes on without it. */
static void look_at_page(Watched *w) {
    int status;
    char line[200];
    if (!w->page || waitpid(w->page, &status, WNOHANG) != w->page) return;
    snprintf(
        line, sizeof line, "the page of this run has ended (%s %d; log.txt may say why): the run goes on without it",
        WIFSIGNALED(status) ? "signal" : "exit code", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    w->page = 0;
    run_dir_log(w->dir, line);
}

/* ---- alerts */
static void on_alert(void *user, const Alert *a) {
    Watched *w = user;
    Mem mem = { 0 };
    run_dir_note(w->dir,
                 mem_printf(&mem, "alert at step %" PRId64 " (%s): %s", a->step, alert_rules[a->rule], a->text));
    if (w->c->trainer.alert_command) {
        Buf b = { 0 };
        alert_json(&b, w->c->trainer.run_dir, a);
        if (!alert_call(&w->commands, w->c->trainer.alert_command, b.data, b.n))
            run_dir_note(w->dir, "trainer.alert_command was not told of it: it could not be started, or is still busy");
        buf_free(&b);
    }
    mem_free(&mem);
}

static double watched(const Metrics *m, AlertWatch k) {
    static const double NO = -0x1p1000;
    for (int i = 0; i < 2 && alert_metrics[k][i]; i++) {
        double v = metric_of(m, alert_metrics[k][i], NO);
        if (v != NO) return isfinite(v) ? v : INFINITY;
    }
    return NAN;
}

/* ---- */
void watched_begin(Watched *w, const Config *c, RunDir *dir, int64_t step, int64_t steps, int64_t checkpoint) {
    *w = (Watched){ .on = true, .c = c, .dir = dir, .steps = steps, .step = step, .checkpoint = checkpoint };
    put_status(w, "training", "");
    if (c->trainer.page) start_page(w);
}

void watched_step(Watched *w, int64_t step, const Metrics *m) {
    if (!w->on) return;
    double v[WATCHES];
    w->step = step;
    for (int k = 0; k < WATCHES; k++) v[k] = watched(m, (AlertWatch)k);
    alerts_step(&w->rules, step, v, on_alert, w);
    AlertHost h = alert_host(w->c->trainer.run_dir, w->checkpoint);
    alerts_host(&w->rules, step, &h, on_alert, w);
    alert_reap(&w->commands);
    look_at_page(w);
}

void watched_end(Watched *w, bool ok, const char *why) {
    if (!w->on) return;
    put_status(w, !ok ? "failed" : w->step < w->steps ? "stopped" : "done", ok ? "" : why);
    look_at_page(w);
    if (w->page) kill(w->page, SIGTERM), waitpid(w->page, NULL, 0);
    *w = (Watched){ 0 };
}
