/* verb_compare.c - `hone compare RUN RUN`: two runs side by side: curves in one frame, last numbers, configurations. */
#include "base/file.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "run/run_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *metric;
    int64_t width, height, last;
    bool all, json;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "metric", OPT_STR,  offsetof(Args, metric), "NAME",
      "plot this one (default: critic/score/mean, else train/loss)" },
    { "all",    OPT_FLAG, offsetof(Args, all),    "",     "every metric that both have, not only the main ones" },
    { "last",   OPT_INT,  offsetof(Args, last),   "N",    "compare means of the last N steps (default 10)", 1, 1e9 },
    { "json",   OPT_FLAG, offsetof(Args, json),   "",
      "one JSON object: means of the last steps, settings that differ" },
    { "width",  OPT_INT,  offsetof(Args, width),  "N",    "columns of the plot (default 72)", 20, 200 },
    { "height", OPT_INT,  offsetof(Args, height), "N",    "rows of the plot (default 12)", 3, 40 },
    { 0 },
};
/* clang-format on */

static bool is_main(const char *name) {
    static const char *const main_ones[] = {
        "critic/score/mean",  "train/loss",      "actor/pg_loss",  "actor/entropy",
        "actor/kl_loss",      "actor/grad_norm", "actor/lr",       "response_length/mean",
        "perf/time_per_step", "perf/throughput", "perf/mfu/actor", "exact/max_abs_logprob_diff"
    };
    for (size_t i = 0; i < COUNT(main_ones); i++)
        if (!strcmp(name, main_ones[i])) return true;
    return !strncmp(name, "val-core/", 9);
}

static void pair_put(Buf *b, const char *name, bool *first) {
    buf_puts(b, *first ? "" : ",");
    json_put_str(b, name, strlen(name));
    buf_puts(b, ":[");
    *first = false;
}
static void table_json(Buf *out, const RunCurves *a, const RunCurves *b, const Args *args) {
    bool first = true;
    buf_puts(out, "\"metrics\":{");
    for (int64_t i = 0; i < a->n_curves; i++) {
        const Curve *x = &a->curve[i], *y = run_curve(b, x->name);
        if (!y || (!args->all && !is_main(x->name))) continue;
        pair_put(out, x->name, &first);
        json_put_f64(out, curve_mean(a, x, args->last));
        buf_puts(out, ",");
        json_put_f64(out, curve_mean(b, y, args->last));
        buf_puts(out, "]");
    }
    buf_puts(out, "}");
}

static void table(const RunCurves *a, const RunCurves *b, const Args *args, Mem *mem) {
    printf("%-44s %12s %12s %12s\n", "mean of the last steps", "a", "b", "b - a");
    for (int64_t i = 0; i < a->n_curves; i++) {
        const Curve *x = &a->curve[i], *y = run_curve(b, x->name);
        if (!y || (!args->all && !is_main(x->name))) continue;
        double p = curve_mean(a, x, args->last), q = curve_mean(b, y, args->last);
        printf("%-44s %12.6g %12.6g %+12.4g\n", utf8_visible(mem, x->name), p, q, q - p);
    }
}

/* ---- configurations: config.yaml as config_dump writes it, two blanks a level, a comment says where one was set */
typedef struct {
    const char *key, *value;
} Setting;
typedef VEC(Setting) Settings;

static Settings settings_of(const char *text, Mem *mem) {
    Settings out = { 0 };
    const char *section[8] = { "" };
    for (const char *line = text; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n')) {
        size_t n = strcspn(line, "\n"), indent = strspn(line, " "), depth = indent / 2;
        const char *comment = memmem(line, n, " # ", 3), *colon = memchr(line, ':', n);
        if (comment) n = (size_t)(comment - line);
        while (n && line[n - 1] == ' ') n--;
        if (indent >= n || line[indent] == '#' || !colon || colon >= line + n || depth + 1 >= COUNT(section)) continue;
        int name = (int)(colon - line - (ptrdiff_t)indent);
        const char *key = mem_printf(mem, "%s%s%.*s", section[depth], depth ? "." : "", name, line + indent);
        if (colon + 1 == line + n) section[depth + 1] = key;
        else VEC_PUSH(out, (Setting){ key, mem_str(mem, colon + 2, (size_t)(line + n - colon - 2)) });
    }
    return out;
}

static const Setting *setting(const Settings *s, const char *key) {
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->at[i].key, key)) return &s->at[i];
    return NULL;
}

/* json: the settings that differ go there instead */
static void configurations(const char *a, const char *b, Buf *json, Mem *mem) {
    const char *pa = mem_printf(mem, "%s/config.yaml", a), *pb = mem_printf(mem, "%s/config.yaml", b);
    Buf ta = { 0 }, tb = { 0 };
    Err err;
    if (file_exists(pa) && file_exists(pb) && file_read(&ta, pa, &err) && file_read(&tb, pb, &err)) {
        Settings x = settings_of(ta.data ? ta.data : "", mem), y = settings_of(tb.data ? tb.data : "", mem);
        size_t both = 0, differ = 0;
        for (size_t i = 0; i < x.n; i++) {
            const Setting *other = setting(&y, x.at[i].key);
            both += other != NULL;
            if (!other || !strcmp(x.at[i].value, other->value)) continue;
            if (json) {
                bool first = differ++ == 0;
                pair_put(json, x.at[i].key, &first);
                json_put_str(json, x.at[i].value, strlen(x.at[i].value));
                buf_puts(json, ",");
                json_put_str(json, other->value, strlen(other->value));
                buf_puts(json, "]");
                continue;
            }
            if (!differ++) puts("\nsettings that differ, a and b:");
            printf("  %-32s %s   ->   %s\n", utf8_visible(mem, x.at[i].key), utf8_visible(mem, x.at[i].value),
                   utf8_visible(mem, other->value));
        }
        if (!differ && !json) puts("\nno setting differs");
        if (!json && (both < x.n || both < y.n))
            printf("settings that only one has: %zu in a, %zu in b\n", x.n - both, y.n - both);
        vec_free(x.at);
        vec_free(y.at);
    }
    buf_free(&ta);
    buf_free(&tb);
}

static bool compare(const Args *args, const char *const *path, Mem *mem, Err *err) {
    RunCurves a, b;
    TRY(run_read(&a, path[0], mem, err));
    TRY(run_read(&b, path[1], mem, err));
    const char *name = args->metric                         ? args->metric
                       : run_curve(&a, "critic/score/mean") ? "critic/score/mean"
                                                            : "train/loss";
    const Curve *x = run_curve(&a, name), *y = run_curve(&b, name);
    if (args->metric && (!x || !y)) return err_set(err, "%s has no metric %s", x ? path[1] : path[0], name);
    if (args->json) {
        Buf out = { 0 };
        buf_puts(&out, "{");
        table_json(&out, &a, &b, args);
        buf_puts(&out, ",\"settings\":{");
        configurations(path[0], path[1], &out, mem);
        printf("%s}}\n", out.data);
        buf_free(&out);
        return true;
    }
    printf("a: %s, steps %lld to %lld\nb: %s, steps %lld to %lld\n\n", utf8_visible(mem, path[0]), (long long)a.step[0],
           (long long)a.step[a.n - 1], utf8_visible(mem, path[1]), (long long)b.step[0], (long long)b.step[b.n - 1]);
    if (x && y) {
        const RunCurves *runs[] = { &a, &b };
        const Curve *curves[] = { x, y };
        Buf out = { 0 };
        const char *title = mem_printf(mem, "%s   (# where they meet)", utf8_visible(mem, name));
        plot(&out, title, runs, curves, "ab", 2, (int)args->width, (int)args->height);
        printf("%s\n", out.data);
        buf_free(&out);
    }
    table(&a, &b, args, mem);
    configurations(path[0], path[1], NULL, mem);
    return true;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .width = 72, .height = 12, .last = 10 };
    const char *path[2];
    int rc = opt_parse(v, &a, path, 2, 2, NULL, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    Err err;
    bool ok = compare(&a, path, &mem, &err);
    mem_free(&mem);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_compare = { .name = "compare",
                            .usage = "RUN RUN [options]",
                            .summary = "two runs side by side: curves, numbers, configurations",
                            .options = options,
                            .run = run };
