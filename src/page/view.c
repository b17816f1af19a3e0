/* view.c - a run's folder, looked at again and again. */
#include "page/view.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/yaml.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

const char *const run_state_names[] = { "empty", "training", "done", "stopped", "failed", "gone" };

static const char *inside(const View *w, const char *name, Mem *mem) { return mem_printf(mem, "%s/%s", w->dir, name); }

bool view_file(const View *w, const char *name, size_t most, Buf *out) {
    Mem mem = { 0 };
    int fd = open(inside(w, name, &mem), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    bool ok = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    buf_reserve(out, 1);
    while (ok && out->n < most) {
        size_t room = most - out->n < 65536 ? most - out->n : 65536;
        buf_reserve(out, room);
        ssize_t n = read(fd, out->data + out->n, room);
        if (n <= 0) break;
        out->n += (size_t)n;
    }
    out->data[out->n] = 0;
    if (fd >= 0) close(fd);
    mem_free(&mem);
    return ok;
}

/* ---- alive?  Taking its lock to find out could keep a run from starting: the kernel's list is read instead. */
static bool lock_held(const View *w) {
    Mem mem = { 0 };
    struct stat st;
    bool held = false;
    Buf pid = { 0 };
    long owner = view_file(w, "lock", 32, &pid) ? strtol(pid.data, NULL, 10) : 0;
    FILE *f = stat(inside(w, "lock", &mem), &st) ? NULL : fopen("/proc/locks", "re");
    char line[256];
    while (f && !held && fgets(line, sizeof line, f)) {
        unsigned major_of, minor_of;
        unsigned long long inode;
        long who;
        if (sscanf(line, "%*d: FLOCK %*s WRITE %ld %x:%x:%llu", &who, &major_of, &minor_of, &inode) != 4) continue;
        bool device = major_of == major(st.st_dev) && minor_of == minor(st.st_dev);
        held = inode == st.st_ino && (device || who == owner); /* some file systems have another number there */
    }
    if (f) fclose(f);
    buf_free(&pid);
    mem_free(&mem);
    return held;
}

static double age_of(const View *w, const char *name) {
    Mem mem = { 0 };
    struct stat st;
    bool ok = !stat(inside(w, name, &mem), &st);
    mem_free(&mem);
    return ok ? difftime(time(NULL), st.st_mtime) : INFINITY;
}

static void say_why(View *w, const char *text, size_t n) {
    buf_clear(&w->why_text);
    buf_put(&w->why_text, text, n < 2000 ? n : 2000);
    w->why = w->why_text.data;
}

/* status.json: what the run said of itself when it began and when it ended (step/run_dir.h). */
typedef struct {
    bool there, ended;
    RunState end;
    int64_t steps;
    char host[128];
} Said;

static Said status_of(View *w) {
    Said s = { .end = RUN_GONE };
    Buf text = { 0 };
    Mem mem = { 0 };
    Json j;
    Err ignore;
    const char *state = NULL, *host = NULL, *why = NULL;
    if (view_file(w, "status.json", 1 << 16, &text) && json_parse(&j, text.data, text.n, &mem, &ignore)) {
        s.there = json_int(&j, "steps", &s.steps, &ignore) && json_str(&j, "state", &state, &ignore)
                  && json_str(&j, "host", &host, &ignore) && json_str(&j, "why", &why, &ignore);
        snprintf(s.host, sizeof s.host, "%s", host ? host : "");
        for (int i = RUN_DONE; i <= RUN_FAILED; i++)
            if (state && !strcmp(state, run_state_names[i])) s.end = (RunState)i, s.ended = true;
        if (why) say_why(w, why, strlen(why));
    }
    buf_free(&text);
    mem_free(&mem);
    return s;
}

static int64_t steps_of_config(const View *w) {
    Buf text = { 0 };
    Mem mem = { 0 };
    Json j;
    Err ignore;
    const Json *v = NULL;
    if (view_file(w, "config.yaml", 1 << 20, &text) && yaml_parse(&j, text.data, text.n, &mem, &ignore))
        v = json_path(&j, "trainer.steps");
    int64_t n = v && v->kind == JSON_INT ? v->integer : 0;
    buf_free(&text);
    mem_free(&mem);
    return n;
}

static void look_alive(View *w) {
    static const double FRESH_S = 120;
    char here[128] = "";
    say_why(w, "", 0);
    Said s = status_of(w);
    gethostname(here, sizeof here - 1);
    double usual = view_usual_step(w), fresh = isnan(usual) || 10 * usual < FRESH_S ? FRESH_S : 10 * usual;
    double age = age_of(w, "metrics.jsonl"), log = age_of(w, "log.txt");
    bool held = lock_held(w), other = s.there && !s.ended && strcmp(s.host, here);
    w->steps = s.steps > 0 ? s.steps : steps_of_config(w);
    w->elsewhere = !held && other && (age < fresh || log < fresh);
    if (held || w->elsewhere) w->state = RUN_TRAINING;
    else if (s.ended) w->state = s.end;
    else if (!s.there && !w->metrics.rows && isinf(log)) w->state = RUN_EMPTY;
    else
        w->state = s.there                                                                              ? RUN_GONE
                   : w->steps && w->metrics.rows && w->metrics.step.at[w->metrics.rows - 1] >= w->steps ? RUN_DONE
                                                                                                        : RUN_GONE;
    if (w->state == RUN_TRAINING) say_why(w, "", 0);
}

/* ---- alerts */
static void on_alert(void *user, const Alert *a) {
    View *w = user;
    if (w->alerts.n == ALERTS_KEPT) memmove(w->alerts.at, w->alerts.at + 1, --w->alerts.n * sizeof *w->alerts.at);
    VEC_PUSH(w->alerts, *a);
    w->alerts_in_all++, w->versions++;
}

static void on_seen(void *user, const Alert *a) { /* only from here: nobody else tells the command */
    View *w = user;
    on_alert(w, a);
    if (!w->alert_command) return;
    Buf b = { 0 };
    alert_json(&b, w->dir, a);
    alert_call(&w->commands, w->alert_command, b.data, b.n);
    buf_free(&b);
}

static double watched(View *w, AlertWatch k, int64_t row) {
    for (int i = 0; i < 2 && w->watch_at[k] < 0 && alert_metrics[k][i]; i++) {
        const char *name = alert_metrics[k][i];
        const Column *c = columns_find(&w->metrics, name, strlen(name));
        if (c) w->watch_at[k] = (int)(c - w->metrics.column.at);
    }
    return w->watch_at[k] < 0 ? NAN : (double)column_at(&w->metrics.column.at[w->watch_at[k]], row);
}

static void on_metrics(void *user, const char *line, size_t n, int64_t at) {
    View *w = user;
    (void)at;
    int64_t row = w->metrics.rows;
    columns_line(&w->metrics, line, n);
    if (w->metrics.rows == row) return;
    double v[WATCHES];
    for (int k = 0; k < WATCHES; k++) v[k] = watched(w, (AlertWatch)k, row);
    alerts_step(&w->rules, w->metrics.step.at[row], v, on_alert, w);
    if (!w->was_behind) w->grown = clock_now();
    w->versions++;
}

static void on_sample(void *user, const char *line, size_t n, int64_t at) {
    View *w = user;
    answers_line(&w->answers, line, n, at);
    w->versions++;
}

/* ---- reading */
static void forget_metrics(View *w) {
    columns_free(&w->metrics);
    w->rules = (Alerts){ 0 };
    w->alerts.n = 0, w->alerts_in_all = 0;
    for (int k = 0; k < WATCHES; k++) w->watch_at[k] = -1;
    w->was_behind = true;
    w->versions++;
}

void view_open(View *w, const char *dir) {
    *w = (View){ .why = "" };
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    w->dir = mem_str(&w->mem, dir, n);
    const char *slash = strrchr(w->dir, '/');
    w->name = slash && slash[1] ? slash + 1 : w->dir;
    follow_open(&w->metrics_file, inside(w, "metrics.jsonl", &w->mem));
    follow_open(&w->samples_file, inside(w, "samples.jsonl", &w->mem));
    forget_metrics(w);
    w->grown = clock_now();
    view_look(w);
}

void view_close(View *w) {
    follow_close(&w->metrics_file);
    follow_close(&w->samples_file);
    columns_free(&w->metrics);
    answers_free(&w->answers);
    vec_free(w->alerts.at);
    buf_free(&w->why_text);
    if (w->tok) tok_close(w->tok);
    mem_free(&w->mem);
}

static int64_t newest_checkpoint(const View *w, Buf *path) {
    Mem mem = { 0 };
    int64_t newest = -1;
    DIR *d = opendir(inside(w, "checkpoints", &mem));
    for (struct dirent *e; d && (e = readdir(d));) {
        char *end;
        if (strncmp(e->d_name, "step-", 5)) continue;
        long long step = strtoll(e->d_name + 5, &end, 10);
        if (*end || step <= newest) continue;
        newest = step;
        buf_clear(path);
        buf_printf(path, "%s/checkpoints/%s", w->dir, e->d_name);
    }
    if (d) closedir(d);
    mem_free(&mem);
    return newest;
}

static int64_t file_bytes(const char *dir, const char *name, Mem *mem) {
    struct stat st;
    return stat(mem_printf(mem, "%s/%s", dir, name), &st) ? 0 : (int64_t)st.st_size;
}

static int64_t checkpoint_bytes(const View *w) {
    Buf path = { 0 };
    Mem mem = { 0 };
    int64_t bytes = 0;
    if (newest_checkpoint(w, &path) >= 0) {
        bytes = file_bytes(path.data, "optimizer.safetensors", &mem);
        DIR *d = opendir(mem_printf(&mem, "%s/model", path.data));
        for (struct dirent *e; d && (e = readdir(d));)
            if (e->d_name[0] != '.') bytes += file_bytes(mem_printf(&mem, "%s/model", path.data), e->d_name, &mem);
        if (d) closedir(d);
    }
    buf_free(&path);
    mem_free(&mem);
    return bytes;
}

void view_look(View *w) {
    static const double SELDOM_S = 5;
    RunState was = w->state;
    if (!follow_look(&w->metrics_file)) forget_metrics(w);
    if (!follow_look(&w->samples_file)) answers_free(&w->answers), w->versions++;
    look_alive(w);
    w->versions += w->state != was;
    int64_t step = w->metrics.rows ? w->metrics.step.at[w->metrics.rows - 1] : 0;
    bool here = w->state == RUN_TRAINING && !w->elsewhere;
    if (clock_now() - w->looked_long > SELDOM_S || !w->looked_long) {
        w->looked_long = clock_now();
        w->host = alert_host(w->dir, checkpoint_bytes(w));
        if (here) alerts_host(&w->rules, step, &w->host, on_alert, w);
        alert_reap(&w->commands);
    }
    bool behind = follow_behind(&w->metrics_file);
    double since = w->state == RUN_TRAINING && !behind ? clock_now() - w->grown : 0;
    alerts_stuck(&w->rules, step, since, view_usual_step(w), on_seen, w);
}

bool view_work(View *w, double seconds) {
    double until = clock_now() + seconds;
    do {
        if (follow_behind(&w->metrics_file)) follow_read(&w->metrics_file, on_metrics, w);
        else if (follow_behind(&w->samples_file)) follow_read(&w->samples_file, on_sample, w);
        else return w->was_behind = false;
    } while (clock_now() < until);
    return true;
}

double view_read(const View *w) {
    double all = (double)w->metrics_file.size + (double)w->samples_file.size;
    return all > 0 ? ((double)w->metrics_file.at + (double)w->samples_file.at) / all : 1;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double view_usual_step(const View *w) {
    enum { LAST = 101 };
    const Column *c = columns_find(&w->metrics, "timing_s/step", strlen("timing_s/step"));
    float v[LAST];
    int n = 0;
    for (int64_t i = c ? c->n : 0; i-- > 0 && n < LAST;)
        if (isfinite(c->value[i])) v[n++] = c->value[i];
    if (!n) return NAN;
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (double)v[n / 2];
}

/* ---- the tokenizer: the newest checkpoint's, else what the configuration names */
static bool tok_at(View *w, const char *path) {
    Err ignore;
    return path && tok_open(&w->tok, path, &ignore) == TOK_OK;
}

static bool configured_tok(View *w, Mem *mem) {
    Buf text = { 0 };
    Json j;
    Err ignore;
    const char *tok = NULL, *model = NULL;
    if (view_file(w, "config.yaml", 1 << 20, &text) && yaml_parse(&j, text.data, text.n, mem, &ignore)) {
        const Json *m = json_get(&j, "model");
        json_str(m, "tokenizer", &tok, &ignore);
        json_str(m, "path", &model, &ignore);
    }
    buf_free(&text);
    return tok_at(w, tok) || tok_at(w, model);
}

const Tok *view_tok(View *w) {
    if (w->tok_of) return w->tok;
    Buf path = { 0 };
    Mem mem = { 0 };
    bool found = newest_checkpoint(w, &path) >= 0 && tok_at(w, mem_printf(&mem, "%s/model", path.data));
    if (!found) found = configured_tok(w, &mem);
    w->tok_of = found ? 2 : 1;
    buf_free(&path);
    mem_free(&mem);
    return w->tok;
}
