/* run_read.c - a run directory read back, and its curves drawn as text. */
#include "run/run_read.h"
#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int64_t curve_index(RunCurves *r, const char *name, int64_t cap, Mem *mem, int64_t at) {
    for (int64_t i = 0; i < r->n_curves;
         i++) { /* steps name their metrics in the same order: look first where it was */
        int64_t j = (at + i) % r->n_curves;
        if (!strcmp(r->curve[j].name, name)) return j;
    }
    if (r->n_curves == cap) return -1;
    Curve *c = &r->curve[r->n_curves];
    c->name = mem_str(mem, name, strlen(name));
    c->value = MEM_ARRAY(mem, double, (size_t)r->n);
    for (int64_t i = 0; i < r->n; i++) c->value[i] = NAN;
    return r->n_curves++;
}

static bool one_line(RunCurves *r, const char *line, size_t n, int64_t row, Mem *mem, Err *err) {
    enum { MAX_CURVES = 1024 };
    Mem tmp = { 0 };
    Json j;
    int64_t step = -1, at = 0;
    bool ok = json_parse(&j, line, n, &tmp, err) && json_int(&j, "step", &step, err);
    if (ok && (j.kind != JSON_OBJECT || step < 0)) ok = err_set(err, "there is no step in it");
    r->step[row] = step;
    const Json *data = json_get(&j, "data"); /* verl's file logger: {"step": N, "data": {...}} */
    if (ok && data && data->kind == JSON_OBJECT) j = *data;
    for (size_t i = 0; ok && i < j.n; i++) {
        const JsonMember *m = &j.members[i];
        if ((m->value.kind != JSON_INT && m->value.kind != JSON_REAL) || !strcmp(m->key, "step")) continue;
        at = curve_index(r, m->key, MAX_CURVES, mem, at);
        if (at < 0) ok = err_set(err, "more than %d different metrics", (int)MAX_CURVES);
        else r->curve[at].value[row] = json_number(&m->value), at++;
    }
    mem_free(&tmp);
    return ok;
}

bool run_read(RunCurves *out, const char *path, Mem *mem, Err *err) {
    *out = (RunCurves){ .path = path };
    char file[4200];
    snprintf(file, sizeof file, dir_exists(path) ? "%s/metrics.jsonl" : "%s", path);
    if (!file_exists(file)) return err_set(err, "%s: there is no metrics.jsonl; name the directory of a run", path);
    Buf text = { 0 };
    TRY(file_read(&text, file, err));
    int64_t lines = 0;
    for (size_t i = 0; i < text.n; i++) lines += text.data[i] == '\n';
    out->n = lines;
    out->step = MEM_ARRAY(mem, int64_t, (size_t)lines);
    out->curve = MEM_ARRAY(mem, Curve, 1024);
    bool ok = true;
    size_t at = 0;
    for (int64_t row = 0; ok && row < lines; row++) {
        size_t len = (size_t)((const char *)memchr(text.data + at, '\n', text.n - at) - (text.data + at));
        ok = one_line(out, text.data + at, len, row, mem, err) || err_wrap(err, "%s:%lld", file, (long long)row + 1);
        at += len + 1;
    }
    buf_free(&text);
    if (ok && !lines) return err_set(err, "%s: no step is written yet", file);
    return ok;
}

const Curve *run_curve(const RunCurves *r, const char *name) {
    for (int64_t i = 0; i < r->n_curves; i++)
        if (!strcmp(r->curve[i].name, name)) return &r->curve[i];
    return NULL;
}

double curve_last(const RunCurves *r, const Curve *c) { return curve_mean(r, c, 1); }

int64_t curve_last_step(const RunCurves *r, const Curve *c) {
    for (int64_t i = r->n; i-- > 0;)
        if (!isnan(c->value[i])) return r->step[i];
    return -1;
}

double curve_mean(const RunCurves *r, const Curve *c, int64_t last) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = r->n; i-- > 0 && n < last;)
        if (!isnan(c->value[i])) sum += c->value[i], n++;
    return n ? sum / (double)n : NAN;
}

/* A column shows the mean of the steps that fall into it. */
void plot(Buf *out, const char *title, const RunCurves *const *run, const Curve *const *curve, const char *marks, int n,
          int width, int height) {
    enum { MAX_W = 200, MAX_H = 40 };
    static const int LABEL = 10;
    if (width > MAX_W) width = MAX_W;
    if (height > MAX_H) height = MAX_H;
    double mean[4][MAX_W], lo = INFINITY, hi = -INFINITY;
    int64_t first = INT64_MAX, last = 0;
    for (int k = 0; k < n; k++) {
        if (run[k]->step[0] < first) first = run[k]->step[0];
        if (run[k]->step[run[k]->n - 1] > last) last = run[k]->step[run[k]->n - 1];
    }
    for (int k = 0; k < n; k++) {
        double sum[MAX_W] = { 0 }, count[MAX_W] = { 0 };
        for (int64_t i = 0; i < run[k]->n; i++) {
            int x = last > first ? (int)((double)(run[k]->step[i] - first) / (double)(last - first) * (width - 1)) : 0;
            if (isnan(curve[k]->value[i]) || x < 0 || x >= width) continue;
            sum[x] += curve[k]->value[i], count[x]++;
        }
        for (int x = 0; x < width; x++) {
            mean[k][x] = count[x] ? sum[x] / count[x] : NAN;
            if (count[x]) lo = fmin(lo, mean[k][x]), hi = fmax(hi, mean[k][x]);
        }
    }
    buf_printf(out, "%s\n", title);
    if (!(lo <= hi)) {
        buf_puts(out, "  no values\n");
        return;
    }
    double span = hi > lo ? hi - lo : 1;
    for (int y = height - 1; y >= 0; y--) {
        char row[MAX_W + 1];
        memset(row, ' ', (size_t)width), row[width] = 0;
        for (int k = 0; k < n; k++)
            for (int x = 0; x < width; x++)
                if (!isnan(mean[k][x]) && (int)((mean[k][x] - lo) / span * (height - 1) + 0.5) == y)
                    row[x] = row[x] == ' ' ? marks[k] : '#';
        for (int x = width; x-- > 0 && row[x] == ' ';) row[x] = 0;
        char label[32] = "";
        if (y == height - 1 || y == 0) snprintf(label, sizeof label, "%.4g", y ? hi : lo);
        buf_printf(out, "%*s |%s\n", LABEL, label, row);
    }
    char axis[MAX_W + 1];
    memset(axis, '-', (size_t)width), axis[width] = 0;
    buf_printf(out, "%*s +%s\n%*s  %-10lld%*lld\n", LABEL, "", axis, LABEL, "", (long long)first, width - 10,
               (long long)last);
}
