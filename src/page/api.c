/* api.c - what a page asks of runs, their curves and their machine. */
#include "page/api.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/yaml.h"
#include "http/http.h"
#include "page/gpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static void put_text(Buf *b, const char *s) { json_put_str(b, s, strlen(s)); }

static int64_t last_step(const View *w) { return w->metrics.rows ? w->metrics.step.at[w->metrics.rows - 1] : -1; }

static float last_of(const View *w, const char *name) {
    const Column *c = columns_find(&w->metrics, name, strlen(name));
    int64_t row = c ? column_last(c) : -1;
    return row < 0 ? NAN : c->value[row];
}

static double changed(const View *w, const char *name) {
    char path[4200];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    return stat(path, &st) ? NAN : (double)st.st_mtime;
}

/* ---- what a run is, in short */
static void put_run(Buf *b, const View *w, int index) {
    buf_printf(b, "{\"run\":%d,\"name\":", index);
    put_text(b, w->name);
    buf_puts(b, ",\"dir\":");
    put_text(b, w->dir);
    buf_printf(b, ",\"state\":\"%s\",\"elsewhere\":%s,\"why\":", run_state_names[w->state],
               w->elsewhere ? "true" : "false");
    put_text(b, w->why);
    buf_printf(b, ",\"step\":%lld,\"steps\":%lld,\"rows\":%lld,\"samples\":%zu,\"read\":", (long long)last_step(w),
               (long long)w->steps, (long long)w->metrics.rows, w->answers.all.n);
    put_number(b, view_read(w));
    double updated = changed(w, "metrics.jsonl");
    buf_printf(b, isnan(updated) ? ",\"updated\":null" : ",\"updated\":%.0f", updated);
    buf_puts(b, ",\"usual_step_s\":");
    put_number(b, view_usual_step(w));
    buf_puts(b, ",\"since_step_s\":");
    put_number(b, clock_now() - w->grown);
    buf_puts(b, ",\"score\":");
    put_number(b, (double)last_of(w, "critic/score/mean"));
    buf_printf(b, ",\"damaged\":[%lld,%lld],\"alerts\":%lld,\"anew\":%lld,\"version\":%lld}",
               (long long)w->metrics.damaged, (long long)w->answers.damaged, (long long)w->alerts_in_all,
               (long long)(w->metrics_file.anew + w->samples_file.anew), (long long)w->versions);
}

void api_runs(Buf *out, const Views *all) {
    buf_puts(out, "{\"runs\":[");
    for (int i = 0; i < all->n; i++) {
        if (i) buf_putc(out, ',');
        put_run(out, &all->run[i], i);
    }
    buf_puts(out, "]}");
}

void api_live(Buf *out, const Views *all) { api_runs(out, all); }

/* ---- all that is not a curve or an answer */
static void flat(Buf *b, const Json *v, const char *key, bool *first, Mem *mem) {
    if (v->kind == JSON_OBJECT && v->n) {
        for (size_t i = 0; i < v->n; i++)
            flat(b, &v->members[i].value, *key ? mem_printf(mem, "%s.%s", key, v->members[i].key) : v->members[i].key,
                 first, mem);
        return;
    }
    if (!*first) buf_putc(b, ',');
    *first = false;
    put_text(b, key);
    buf_putc(b, ':');
    json_put_value(b, v);
}

static void put_config(Buf *b, const View *w) {
    Buf text = { 0 };
    Mem mem = { .limit = 256u << 20 };
    Json j;
    Err err;
    bool first = true;
    buf_puts(b, "{");
    if (view_file(w, "config.yaml", 1 << 20, &text) && yaml_parse(&j, text.data, text.n, &mem, &err))
        flat(b, &j, "", &first, &mem);
    buf_puts(b, "}");
    buf_free(&text);
    mem_free(&mem);
}

static void put_json_file(Buf *b, const View *w, const char *name) {
    Buf text = { 0 };
    Mem mem = { 0 };
    Json j;
    Err err;
    if (view_file(w, name, 1 << 16, &text) && json_parse(&j, text.data, text.n, &mem, &err)) json_put_value(b, &j);
    else buf_puts(b, "null");
    buf_free(&text);
    mem_free(&mem);
}

static void put_alerts(Buf *b, const View *w) {
    buf_putc(b, '[');
    for (size_t i = 0; i < w->alerts.n; i++) {
        if (i) buf_putc(b, ',');
        alert_json(b, w->name, &w->alerts.at[i]);
        b->n--; /* its newline */
    }
    buf_putc(b, ']');
}

/* The badge: the largest difference of the whole run, and over how many tokens; null where none was compared. */
static void put_badge(Buf *b, const View *w) {
    const Column *d = columns_find(&w->metrics, "exact/max_abs_logprob_diff", 26);
    const Column *n = columns_find(&w->metrics, "exact/tokens", 12);
    double most = NAN, tokens = 0;
    int64_t at = -1;
    for (int64_t i = 0; d && i < d->n; i++) {
        if (n && isfinite(column_at(n, i))) tokens += (double)column_at(n, i);
        if (!isnan(d->value[i]) && !((double)d->value[i] <= most)) most = (double)d->value[i], at = i;
    }
    buf_puts(b, "{\"exact\":");
    if (isinf(most)) buf_puts(b, "\"not a number\"");
    else put_number(b, most);
    buf_printf(b, ",\"step\":%lld,\"tokens\":", at < 0 ? -1 : (long long)w->metrics.step.at[at]);
    put_number(b, tokens);
    buf_putc(b, '}');
}

static void put_metrics_list(Buf *b, const View *w) {
    buf_putc(b, '[');
    for (size_t i = 0; i < w->metrics.column.n; i++) {
        const Column *c = &w->metrics.column.at[i];
        int64_t row = column_last(c);
        buf_puts(b, i ? ",{\"name\":" : "{\"name\":");
        put_text(b, c->name);
        buf_puts(b, ",\"last\":");
        put_number(b, row < 0 ? NAN : (double)c->value[row]);
        buf_printf(b, ",\"step\":%lld}", row < 0 ? -1 : (long long)w->metrics.step.at[row]);
    }
    buf_putc(b, ']');
}

void api_run(Buf *out, View *w) {
    buf_puts(out, "{\"about\":");
    put_run(out, w, 0);
    buf_printf(out, ",\"first\":%lld,\"metrics\":", w->metrics.rows ? (long long)w->metrics.step.at[0] : -1);
    put_metrics_list(out, w);
    buf_puts(out, ",\"badge\":");
    put_badge(out, w);
    buf_puts(out, ",\"alerts\":");
    put_alerts(out, w);
    buf_puts(out, ",\"config\":");
    put_config(out, w);
    buf_puts(out, ",\"predicted\":");
    put_json_file(out, w, "predicted.json");
    buf_puts(out, ",\"finishes\":[");
    for (int i = 1; i < w->answers.n_finish; i++) {
        if (i > 1) buf_putc(out, ',');
        put_text(out, w->answers.finish[i]);
    }
    buf_puts(out, "]}");
}

/* ---- curves */
static void put_series(Buf *b, const Bucket *k, int n) {
    buf_puts(b, "{\"x\":[");
    for (int i = 0; i < n; i++) i ? buf_putc(b, ',') : (void)0, put_number(b, k[i].x);
    buf_puts(b, "],\"lo\":[");
    for (int i = 0; i < n; i++) i ? buf_putc(b, ',') : (void)0, put_number(b, (double)k[i].lo);
    buf_puts(b, "],\"hi\":[");
    for (int i = 0; i < n; i++) i ? buf_putc(b, ',') : (void)0, put_number(b, (double)k[i].hi);
    buf_puts(b, "],\"mean\":[");
    for (int i = 0; i < n; i++) i ? buf_putc(b, ',') : (void)0, put_number(b, (double)k[i].mean);
    buf_puts(b, "]}");
}

void api_metrics(Buf *out, const View *w, const char *names, const Range *r, int px) {
    enum { NAMES_MOST = 64 };
    const Columns *c = &w->metrics;
    char by = strchr(names, '\n') ? '\n' : ',';
    Mem mem = { 0 };
    Bucket *k = MEM_ARRAY(&mem, Bucket, (size_t)px);
    buf_puts(out, "{\"last\":");
    put_number(out, c->rows ? columns_x(c, r->x, c->rows - 1) : NAN);
    buf_printf(out, ",\"version\":%lld,\"series\":[", (long long)w->versions);
    int i = 0;
    for (const char *at = names; *at && i < NAMES_MOST; i++) {
        size_t n = strcspn(at, (char[]){ by, 0 });
        const Column *col = columns_find(c, at, n);
        if (i) buf_putc(out, ',');
        if (col) put_series(out, k, columns_buckets(k, c, col, r, px));
        else buf_puts(out, "null");
        at += n + (at[n] == by);
    }
    buf_puts(out, "]}");
    mem_free(&mem);
}

/* ---- the log, from a byte on; below 0: its last bytes */
void api_log(Buf *out, const View *w, int64_t from) {
    enum { MOST = 64 << 10 };
    Follow f;
    Mem mem = { 0 };
    follow_open(&f, mem_printf(&mem, "%s/log.txt", w->dir));
    follow_look(&f);
    int64_t size = f.fd >= 0 ? f.size : 0;
    if (from < 0) from = size > MOST ? size - MOST : 0;
    if (from > size) from = 0; /* it was cut */
    size_t n = (size_t)(size - from < MOST ? size - from : MOST);
    char *text = mem_push(&mem, n + 1);
    if (!follow_bytes(&f, from, n, text)) n = 0;
    buf_puts(out, "{\"text\":");
    json_put_str(out, text, n);
    buf_printf(out, ",\"from\":%lld,\"next\":%lld,\"size\":%lld}", (long long)from, (long long)from + (long long)n,
               (long long)size);
    follow_close(&f);
    mem_free(&mem);
}

/* ---- the machine that serves the page */
void api_system(Buf *out, const View *w) {
    double total = 0, idle = 0, v[10] = { 0 };
    FILE *f = fopen("/proc/stat", "re");
    if (f
        && fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7])
               == 8)
        idle = v[3] + v[4];
    for (int i = 0; i < 8; i++) total += v[i];
    if (f) fclose(f);
    struct statvfs s;
    bool disk = !statvfs(w->dir, &s);
    buf_printf(out, "{\"cores\":%ld,\"cpu\":[%.0f,%.0f],\"memory\":", sysconf(_SC_NPROCESSORS_ONLN), total - idle,
               total);
    put_number(out, w->host.memory);
    buf_printf(out,
               ",\"memory_bytes\":%.0f,\"disk\":", (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
    put_number(out, disk ? 1 - (double)s.f_bavail / (double)(s.f_blocks ? s.f_blocks : 1) : NAN);
    buf_printf(out, ",\"disk_free\":%.0f,\"gpus\":", disk ? (double)s.f_bavail * (double)s.f_frsize : 0);
    gpu_put(out);
    buf_puts(out, "}");
}

/* ---- requests */
typedef struct {
    struct evhttp_request *req;
    Mem *mem;
    const char *bad; /* the first value that is none */
} Asked;

static double number(Asked *a, const char *name, double otherwise) {
    const char *v = web_query(a->req, name, a->mem);
    if (!v || !*v) return otherwise;
    char *end;
    double x = strtod(v, &end);
    if (*end || !isfinite(x)) return a->bad = a->bad ? a->bad : name, otherwise;
    return x;
}

static int64_t whole(Asked *a, const char *name, int64_t otherwise, int64_t most) {
    double x = number(a, name, (double)otherwise);
    return x > (double)most ? most : x < -1 ? -1 : (int64_t)x;
}

static const char *text(Asked *a, const char *name) {
    const char *v = web_query(a->req, name, a->mem);
    return v ? v : "";
}

static void ask_metrics(Buf *out, Asked *a, const View *w) {
    const char *x = text(a, "x");
    ColumnsX by = !strcmp(x, "time") ? X_TIME : !strcmp(x, "tokens") ? X_TOKENS : X_STEP;
    int px = (int)whole(a, "px", 400, BUCKETS_MOST);
    Range r = { by, number(a, "from", -INFINITY), number(a, "to", INFINITY), !strcmp(text(a, "fill"), "zero") };
    api_metrics(out, w, text(a, "names"), &r, px < 1 ? 1 : px);
}

static void ask_samples(Buf *out, Asked *a, View *w) {
    static const char *const orders[] = { "step", "-step", "score", "-score" };
    const char *order = text(a, "sort");
    int64_t step = whole(a, "step", -1, 1ll << 52);
    Wanted q = { .from = step >= 0 ? step : whole(a, "from", 0, 1ll << 52),
                 .to = step >= 0 ? step : whole(a, "to", 1ll << 52, 1ll << 52),
                 .min = number(a, "min", NAN),
                 .max = number(a, "max", NAN),
                 .row = whole(a, "row", -1, 1ll << 52),
                 .finish = text(a, "finish"),
                 .text = text(a, "q") };
    for (int i = 0; i < (int)COUNT(orders); i++)
        if (!strcmp(order, orders[i])) q.order = (Order)i;
    api_samples(out, w, &q, whole(a, "first", 0, 1ll << 32), whole(a, "n", 50, 200));
}

static View *run_asked(const Views *all, Asked *a) {
    int64_t r = whole(a, "run", 0, 1 << 20);
    return r >= 0 && r < all->n && !a->bad ? &all->run[r] : NULL;
}

/* What is wrong with it, or 200. */
static int answer(Buf *out, const Views *all, const char *what, Asked *a, const char **why) {
    if (!strcmp(what, "runs")) return api_runs(out, all), 200;
    View *w = run_asked(all, a);
    *why = "there is no such run";
    if (!w) return a->bad ? 400 : 404;
    if (!strcmp(what, "run")) api_run(out, w);
    else if (!strcmp(what, "metrics")) ask_metrics(out, a, w);
    else if (!strcmp(what, "samples")) ask_samples(out, a, w);
    else if (!strcmp(what, "log")) api_log(out, w, whole(a, "from", -1, 1ll << 52));
    else if (!strcmp(what, "system")) api_system(out, w);
    else if (!strcmp(what, "sample")) {
        *why = "there is no such answer";
        if (!api_sample(out, w, whole(a, "id", -1, 1ll << 40), whole(a, "token", 0, 1ll << 40))) return 404;
    } else return *why = "there is nothing here", 404;
    return a->bad ? 400 : 200;
}

void api_answer(const Views *all, const char *what, struct evhttp_request *req) {
    Mem mem = { 0 };
    Buf out = { 0 };
    Asked a = { req, &mem, NULL };
    const char *why = "";
    int code = answer(&out, all, what, &a, &why);
    if (a.bad) why = mem_printf(&mem, "%s is not a number", a.bad);
    if (code == 200) web_reply(req, 200, "application/json", out.data, out.n);
    else web_error(req, code, why);
    buf_free(&out);
    mem_free(&mem);
}
