/* verb_show.c - `hone show RUN`: a run's curves as text, its last numbers, and its best and
 * worst answers; likewise of the answers that verl dumps. */
#include "base/file.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "run/run_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *metric;
    int64_t width, height, samples;
    bool list, json, csv;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "metric",  OPT_STR,  offsetof(Args, metric),  "NAMES",
      "plot these, separated by commas (default: the main ones)" },
    { "list",    OPT_FLAG, offsetof(Args, list),    "",      "print every metric's last value instead" },
    { "json",    OPT_FLAG, offsetof(Args, json),    "",
      "JSON: metrics (last, mean of 10, step of last), best and worst answers" },
    { "csv",     OPT_FLAG, offsetof(Args, csv),     "",
      "every metric of every step, a row a step, for a spreadsheet" },
    { "width",   OPT_INT,  offsetof(Args, width),   "N",     "columns of a plot (default 72)", 20, 200 },
    { "height",  OPT_INT,  offsetof(Args, height),  "N",     "rows of a plot (default 10)", 3, 40 },
    { "samples", OPT_INT,  offsetof(Args, samples), "N",     "best and worst answers shown (default 2)", 0, 1000 },
    { 0 },
};
/* clang-format on */

/* " (step N)" where the last value is not the last step's: it may be long past. */
static const char *told_at(char out[40], const RunCurves *r, const Curve *c) {
    int64_t step = curve_last_step(r, c);
    out[0] = 0;
    if (step != r->step[r->n - 1]) snprintf(out, 40, " (step %lld)", (long long)step);
    return out;
}

static void plot_one(const RunCurves *r, const Curve *c, const Args *a) {
    Buf b = { 0 };
    Mem mem = { 0 };
    char when[40];
    const char *title = mem_printf(&mem, "%s   last %.5g%s, mean of the last 10 %.5g", utf8_visible(&mem, c->name),
                                   curve_last(r, c), told_at(when, r, c), curve_mean(r, c, 10));
    plot(&b, title, &r, &c, "*", 1, (int)a->width, (int)a->height);
    printf("%s\n", b.data);
    buf_free(&b);
    mem_free(&mem);
}

static bool plots(const RunCurves *r, const Args *a, Mem *mem, Err *err) {
    static const char *const main_ones[] = { "critic/score/mean", "train/loss", "response_length/mean", "actor/entropy",
                                             "actor/grad_norm" };
    if (!a->metric) {
        for (size_t i = 0; i < COUNT(main_ones); i++)
            if (run_curve(r, main_ones[i])) plot_one(r, run_curve(r, main_ones[i]), a);
        for (int64_t i = 0; i < r->n_curves; i++)
            if (!strncmp(r->curve[i].name, "val-core/", 9) && !strchr(r->curve[i].name, '@')) /* @: by data_source */
                plot_one(r, &r->curve[i], a);
        return true;
    }
    char *names = mem_str(mem, a->metric, strlen(a->metric)), *save = NULL;
    for (char *n = strtok_r(names, ",", &save); n; n = strtok_r(NULL, ",", &save)) {
        const Curve *c = run_curve(r, n);
        if (!c) return err_set(err, "%s has no metric %s; --list prints those it has", r->path, n);
        plot_one(r, c, a);
    }
    return true;
}

/* ---- samples.  The file may be large: only the lines that are best or worst so far are kept. */
typedef struct {
    double score;
    char *line;
    size_t n;
} Kept;

static void keep(Kept *list, int64_t *n, int64_t most, double score, double sign, const char *line, size_t len,
                 Mem *mem) {
    int64_t i = *n;
    if (i == most && sign * score < sign * list[i - 1].score) return; /* of equals the later one is shown */
    if (i < most) ++*n;
    else i--;
    for (; i > 0 && sign * score >= sign * list[i - 1].score; i--) list[i] = list[i - 1];
    list[i] = (Kept){ score, mem_str(mem, line, len), len };
}

static void text(const Json *j, const char *key, const char *label) {
    enum { MOST = 800 };
    const Json *v = json_get(j, key);
    if (!v || v->kind != JSON_STRING) return;
    size_t n = v->n < MOST ? v->n : MOST;
    while (n < v->n && n > 0 && ((unsigned char)v->str[n] & 0xC0) == 0x80) n--;
    printf("  %s: ", label);
    Buf b = { 0 };
    utf8_put_visible(&b, v->str, n);
    for (size_t i = 0; i < b.n; i++) {
        if (b.data[i] == '\n') fputs("\n     ", stdout);
        else putchar(b.data[i]);
    }
    buf_free(&b);
    printf(n < v->n ? " ... (%zu bytes more)\n" : "\n", v->n - n);
}

static void show_kept(const char *title, const Kept *list, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        Mem mem = { 0 };
        Json j;
        Err err;
        int64_t step = 0;
        if (json_parse(&j, list[i].line, list[i].n, &mem, &err) && json_int(&j, "step", &step, &err)) {
            printf("%s answer %lld: score %g at step %lld\n", title, (long long)i + 1, list[i].score, (long long)step);
            text(&j, "input", "question");
            text(&j, "output", "answer");
            text(&j, "gts", "right is");
        }
        mem_free(&mem);
    }
}

typedef struct {
    Kept *best, *worst;
    int64_t n_best, n_worst;
} Samples;

static bool samples_of(Samples *s, const char *path, int64_t most, Mem *mem, Err *err) {
    LineReader *r = lines_open(path, err);
    if (!r) return false;
    const char *line;
    size_t n;
    while (lines_next(r, &line, &n)) {
        Mem tmp = { 0 };
        Json j;
        Err ignore;
        double score = NAN;
        if (json_parse(&j, line, n, &tmp, &ignore) && json_real(&j, "score", &score, &ignore) && !isnan(score)) {
            keep(s->best, &s->n_best, most, score, 1, line, n, mem);
            keep(s->worst, &s->n_worst, most, score, -1, line, n, mem);
        }
        mem_free(&tmp);
    }
    return lines_close(r, err);
}

static bool samples(Samples *s, const char *run, const DumpFiles *dump, int64_t most, Mem *mem, Err *err) {
    const char *own = mem_printf(mem, "%s/samples.jsonl", run);
    *s = (Samples){ 0 };
    if (!most) return true;
    s->best = MEM_ARRAY(mem, Kept, (size_t)most), s->worst = MEM_ARRAY(mem, Kept, (size_t)most);
    for (size_t i = 0; i < dump->n; i++) TRY(samples_of(s, dump->at[i], most, mem, err));
    return dump->n || !dir_exists(run) || !file_exists(own) || samples_of(s, own, most, mem, err);
}

static void put_kept(Buf *b, const char *name, const Kept *list, int64_t n) {
    buf_puts(b, name);
    for (int64_t i = 0; i < n; i++) {
        if (i) buf_putc(b, ',');
        buf_put(b, list[i].line, list[i].n);
    }
    buf_putc(b, ']');
}
static void as_json(const RunCurves *r, const Samples *s) {
    Buf b = { 0 };
    buf_printf(&b, "{\"first_step\":%lld,\"last_step\":%lld,\"metrics\":{", (long long)r->step[0],
               (long long)r->step[r->n - 1]);
    for (int64_t i = 0; i < r->n_curves; i++) {
        if (i) buf_putc(&b, ',');
        json_put_str(&b, r->curve[i].name, strlen(r->curve[i].name));
        buf_puts(&b, ":{\"last\":");
        json_put_f64(&b, curve_last(r, &r->curve[i]));
        buf_puts(&b, ",\"mean\":");
        json_put_f64(&b, curve_mean(r, &r->curve[i], 10));
        buf_printf(&b, ",\"step\":%lld", (long long)curve_last_step(r, &r->curve[i]));
        buf_putc(&b, '}');
    }
    put_kept(&b, "},\"best\":[", s->best, s->n_best);
    put_kept(&b, ",\"worst\":[", s->worst, s->n_worst);
    printf("%s}\n", b.data);
    buf_free(&b);
}

static void as_csv(const RunCurves *r) {
    Buf b = { 0 };
    buf_puts(&b, "step");
    for (int64_t i = 0; i < r->n_curves; i++) {
        bool quote = strpbrk(r->curve[i].name, ",\"\n") != NULL;
        buf_puts(&b, quote ? ",\"" : ",");
        for (const char *c = r->curve[i].name; *c; c++) buf_put(&b, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
        if (quote) buf_putc(&b, '"');
    }
    for (int64_t k = 0; k < r->n; k++) {
        buf_printf(&b, "\n%lld", (long long)r->step[k]);
        for (int64_t i = 0; i < r->n_curves; i++) {
            buf_putc(&b, ',');
            if (!isnan(r->curve[i].value[k])) json_put_f64(&b, r->curve[i].value[k]);
        }
    }
    puts(b.data);
    buf_free(&b);
}

/* A run directory, its metrics.jsonl, or what verl dumped. */
static bool read_path(RunCurves *r, DumpFiles *dump, const char *path, Mem *mem, Err *err) {
    bool run = dir_exists(path) && file_exists(mem_printf(mem, "%s/metrics.jsonl", path));
    *dump = run ? (DumpFiles){ 0 } : dump_files(path, mem);
    if (dump->n && dump_read(r, path, dump, mem, err)) return true;
    if (dump->n && dir_exists(path)) return false;
    dump->n = 0; /* a file of metrics, after all */
    return run_read(r, path, mem, err);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .width = 72, .height = 10, .samples = 2 };
    const char *path;
    int rc = opt_parse(v, &a, &path, 1, 1, NULL, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    Err err;
    RunCurves r;
    Samples s;
    DumpFiles dump;
    bool ok = read_path(&r, &dump, path, &mem, &err) && samples(&s, path, &dump, a.samples, &mem, &err);
    if (ok && !a.json && !a.csv)
        printf("%s: steps %lld to %lld\n\n", utf8_visible(&mem, path), (long long)r.step[0],
               (long long)r.step[r.n - 1]);
    if (ok && a.json) as_json(&r, &s);
    else if (ok && a.csv) as_csv(&r);
    else if (ok && a.list)
        for (int64_t i = 0; i < r.n_curves; i++) {
            char when[40];
            printf("%-48s %.6g%s\n", utf8_visible(&mem, r.curve[i].name), curve_last(&r, &r.curve[i]),
                   told_at(when, &r, &r.curve[i]));
        }
    else if (ok) {
        ok = plots(&r, &a, &mem, &err);
        if (ok) show_kept("best", s.best, s.n_best), show_kept("worst", s.worst, s.n_worst);
    }
    mem_free(&mem);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_show = { .name = "show",
                         .usage = "RUN [options]",
                         .summary = "a run's curves and its best and worst answers, as text",
                         .options = options,
                         .run = run };
