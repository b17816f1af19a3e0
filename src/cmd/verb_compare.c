/* verb_compare.c - `hone compare RUN RUN`: two runs side by side: curves in one frame, last numbers, configurations. */
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/run_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *metric;
    int64_t width, height, last;
    bool all;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "metric", OPT_STR,  offsetof(Args, metric), "NAME", "plot this one (default: critic/score/mean, else train/loss)" },
    { "all",    OPT_FLAG, offsetof(Args, all),    "",     "every metric that both have, not only the main ones" },
    { "last",   OPT_INT,  offsetof(Args, last),   "N",    "compare means of the last N steps (default 10)", 1, 1e9 },
    { "width",  OPT_INT,  offsetof(Args, width),  "N",    "columns of the plot (default 72)", 20, 200 },
    { "height", OPT_INT,  offsetof(Args, height), "N",    "rows of the plot (default 12)", 3, 40 },
    { 0 },
};
/* clang-format on */

static bool is_main(const char *name) {
    static const char *const main_ones[] = {
        "critic/score/mean", "train/loss", "actor/pg_loss", "actor/entropy", "actor/kl_loss", "actor/grad_norm", "actor/lr",
        "response_length/mean", "perf/time_per_step", "perf/throughput", "perf/mfu/actor", "exact/max_abs_logprob_diff"
    };
    for (size_t i = 0; i < COUNT(main_ones); i++)
        if (!strcmp(name, main_ones[i])) return true;
    return !strncmp(name, "val-core/", 9);
}

static void table(const RunCurves *a, const RunCurves *b, const Args *args) {
    printf("%-44s %12s %12s %12s\n", "mean of the last steps", "a", "b", "b - a");
    for (int64_t i = 0; i < a->n_curves; i++) {
        const Curve *x = &a->curve[i], *y = run_curve(b, x->name);
        if (!y || (!args->all && !is_main(x->name))) continue;
        double p = curve_mean(a, x, args->last), q = curve_mean(b, y, args->last);
        printf("%-44s %12.6g %12.6g %+12.4g\n", x->name, p, q, q - p);
    }
}

/* Both files come from the same table, so they differ line by line; the comment says where a value was set and is left out. */
static void configurations(const char *a, const char *b) {
    char pa[4200], pb[4200];
    snprintf(pa, sizeof pa, "%s/config.yaml", a);
    snprintf(pb, sizeof pb, "%s/config.yaml", b);
    Buf ta = { 0 }, tb = { 0 };
    Err err;
    if (dir_exists(a) && dir_exists(b) && file_exists(pa) && file_exists(pb) && file_read(&ta, pa, &err) && file_read(&tb, pb, &err)) {
        bool any = false;
        const char *x = ta.data ? ta.data : "", *y = tb.data ? tb.data : "";
        char section[256] = "";
        while (*x && *y) {
            size_t nx = strcspn(x, "\n"), ny = strcspn(y, "\n");
            const char *hx = memmem(x, nx, " # ", 3), *hy = memmem(y, ny, " # ", 3);
            size_t lx = hx ? (size_t)(hx - x) : nx, ly = hy ? (size_t)(hy - y) : ny;
            while (lx && x[lx - 1] == ' ') lx--;
            while (ly && y[ly - 1] == ' ') ly--;
            if (lx && x[lx - 1] == ':') snprintf(section, sizeof section, "%.*s", (int)lx, x);
            if (lx != ly || memcmp(x, y, lx)) {
                size_t ix = strspn(x, " "), iy = strspn(y, " ");
                if (ix > lx) ix = lx;
                if (iy > ly) iy = ly;
                printf("%s%s %.*s   ->   %.*s\n", any ? "" : "\nconfigurations differ:\n", section, (int)(lx - ix), x + ix, (int)(ly - iy), y + iy);
                any = true;
            }
            x += nx + (x[nx] == '\n'), y += ny + (y[ny] == '\n');
        }
        if (!any) puts("\nconfigurations are the same");
    }
    buf_free(&ta);
    buf_free(&tb);
}

static bool compare(const Args *args, const char *const *path, Mem *mem, Err *err) {
    RunCurves a, b;
    TRY(run_read(&a, path[0], mem, err));
    TRY(run_read(&b, path[1], mem, err));
    const char *name = args->metric ? args->metric : run_curve(&a, "critic/score/mean") ? "critic/score/mean"
                                                                                        : "train/loss";
    const Curve *x = run_curve(&a, name), *y = run_curve(&b, name);
    if (args->metric && (!x || !y)) return err_set(err, "%s has no metric %s", x ? path[1] : path[0], name);
    printf("a: %s, steps %lld to %lld\nb: %s, steps %lld to %lld\n\n", path[0], (long long)a.step[0], (long long)a.step[a.n - 1], path[1],
           (long long)b.step[0], (long long)b.step[b.n - 1]);
    if (x && y) {
        const RunCurves *runs[] = { &a, &b };
        const Curve *curves[] = { x, y };
        Buf out = { 0 };
        char title[128];
        snprintf(title, sizeof title, "%s   (# where they meet)", name);
        plot(&out, title, runs, curves, "ab", 2, (int)args->width, (int)args->height);
        printf("%s\n", out.data);
        buf_free(&out);
    }
    table(&a, &b, args);
    configurations(path[0], path[1]);
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

const Verb verb_compare = { .name = "compare", .usage = "RUN RUN [options]", .summary = "two runs side by side: curves, numbers, configurations", .options = options, .run = run };
