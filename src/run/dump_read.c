/* dump_read.c - verl's dumps of answers (rollout_data_dir, validation_data_dir: N.jsonl, one answer a line) as
 * curves: the mean over a step of every member that is a number, how many answers there are, and how long they are. */
#include "base/file.h"
#include "base/json.h"
#include "base/sort.h"
#include "run/run_read.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    RunCurves *out;
    double *count; /* [curves][steps], as the values */
    int64_t row;
    Mem *mem;
} Dump;

enum { MAX_CURVES = 64 };

static bool numbered(const char *name, long long *step) {
    char *end;
    *step = strtoll(name, &end, 10);
    return end != name && !strcmp(end, ".jsonl");
}

static int by_step(const void *a, const void *b) {
    long long x = 0, y = 0;
    const char *p = strrchr(*(const char *const *)a, '/'), *q = strrchr(*(const char *const *)b, '/');
    numbered(p + 1, &x), numbered(q + 1, &y);
    return (x > y) - (x < y);
}

DumpFiles dump_files(const char *path, Mem *mem) {
    DumpFiles f = { 0 };
    if (!dir_exists(path)) {
        const char *dot = strrchr(path, '.');
        if (dot && !strcmp(dot, ".jsonl") && file_exists(path)) f.at = mem_copy(mem, &path, sizeof path), f.n = 1;
        return f;
    }
    DIR *d = opendir(path);
    size_t cap = 0;
    long long step;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!numbered(e->d_name, &step)) continue;
        if (f.n == cap) {
            const char **grown = MEM_ARRAY(mem, const char *, cap = 2 * cap + 16);
            if (f.n) memcpy(grown, f.at, f.n * sizeof *grown);
            f.at = grown;
        }
        f.at[f.n++] = mem_printf(mem, "%s/%s", path, e->d_name);
    }
    if (d) closedir(d);
    if (f.n) qsort(f.at, f.n, sizeof *f.at, by_step);
    return f;
}

static void add(Dump *d, const char *name, double x) {
    RunCurves *o = d->out;
    int64_t i = 0;
    while (i < o->n_curves && strcmp(o->curve[i].name, name)) i++;
    if (i == MAX_CURVES) return;
    if (i == o->n_curves) {
        o->n_curves++;
        o->curve[i] = (Curve){ mem_str(d->mem, name, strlen(name)), MEM_ARRAY(d->mem, double, (size_t)o->n) };
    }
    o->curve[i].value[d->row] += x;
    d->count[i * o->n + d->row]++;
}

static bool one_answer(Dump *d, const char *line, size_t n, Err *err) {
    Mem tmp = { 0 };
    Json j;
    bool ok = json_parse(&j, line, n, &tmp, err);
    if (ok && (j.kind != JSON_OBJECT || !json_get(&j, "output")))
        ok = err_set(err, "this is no answer as verl dumps them");
    for (size_t i = 0; ok && i < j.n; i++) {
        const JsonMember *m = &j.members[i];
        const Json *v = &m->value;
        char name[128];
        snprintf(name, sizeof name, !strcmp(m->key, "score") ? "critic/%s/mean" : "%s/mean", m->key);
        if (!strcmp(m->key, "step")) continue;
        if (v->kind == JSON_INT || v->kind == JSON_REAL || v->kind == JSON_BOOL)
            add(d, name, v->kind == JSON_BOOL ? v->flag : json_number(v));
        if (v->kind == JSON_STRING && !strcmp(m->key, "output")) add(d, "output/characters", (double)v->n);
    }
    mem_free(&tmp);
    return ok;
}

bool dump_read(RunCurves *out, const char *path, const DumpFiles *f, Mem *mem, Err *err) {
    *out = (RunCurves){ .path = path, .n = (int64_t)f->n };
    out->step = MEM_ARRAY(mem, int64_t, f->n);
    out->curve = MEM_ARRAY(mem, Curve, MAX_CURVES);
    Dump d = { .out = out, .count = MEM_ARRAY(mem, double, MAX_CURVES * f->n), .mem = mem };
    for (d.row = 0; d.row < out->n; d.row++) {
        const char *file = f->at[d.row], *slash = strrchr(file, '/'), *line;
        long long step = 0;
        size_t n, lines = 0;
        if (numbered(slash ? slash + 1 : file, &step)) out->step[d.row] = step;
        LineReader *r = lines_open(file, err);
        if (!r) return false;
        bool ok = true;
        while (ok && lines_next(r, &line, &n))
            ok = one_answer(&d, line, n, err) || err_wrap(err, "%s:%zu", file, lines + 1), lines++;
        Err late;
        if (!lines_close(r, &late) && ok) ok = false, *err = late;
        TRY(ok);
    }
    for (int64_t i = 0; i < out->n_curves; i++)
        for (int64_t k = 0; k < out->n; k++) {
            double n = d.count[i * out->n + k];
            out->curve[i].value[k] = n > 0 ? out->curve[i].value[k] / n : NAN;
        }
    return out->n_curves || err_set(err, "%s: there are no answers in it", path);
}
