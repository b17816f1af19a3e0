/* val_metrics.c - validation under verl's names. */
#include "step/val_metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REWARD, ACC, VARS, MAX_K = 18, MOST_SOURCES = 400, MOST_AUX = 1500 };
static const char *const var_names[VARS] = { "reward", "acc" };

typedef struct {
    double mean, std, maj, best[MAX_K], worst[MAX_K]; /* sums over questions */
} Var;
typedef struct {
    const char *mean, *std, *maj, *best[MAX_K], *worst[MAX_K];
} Names;
typedef struct {
    const char *source;
    int64_t questions;
    bool acc, maj; /* said of every answer so far */
    Var var[VARS];
    Names core[VARS], aux[VARS]; /* where the variable is the main one; where it is not */
} Source;

struct ValMetrics {
    int n, n_k, k[MAX_K];
    int n_sources;
    bool aux; /* false: so many sources that only the main numbers are told */
    Source *source;
    double *x, *sorted; /* [n] */
};

static const char *name_at(Mem *mem, bool core, const Source *s, int var, const char *what, int k, const char *end) {
    return mem_printf(mem, "val-%s/%s/%s/%s@%d%s", core ? "core" : "aux", s->source, var_names[var], what, k, end);
}

static void make_names(const ValMetrics *v, Source *s, Mem *mem) {
    for (int core = 0; core < 2; core++)
        for (int x = 0; x < VARS; x++) {
            Names *n = core ? &s->core[x] : &s->aux[x];
            n->mean = name_at(mem, core, s, x, "mean", v->n, "");
            n->std = name_at(mem, false, s, x, "std", v->n, "");
            n->maj = name_at(mem, core, s, x, "maj", v->n, "/mean");
            for (int i = 0; i < v->n_k; i++) {
                n->best[i] = name_at(mem, core && v->k[i] == v->n, s, x, "best", v->k[i], "/mean");
                n->worst[i] = name_at(mem, false, s, x, "worst", v->k[i], "/mean");
            }
        }
}

ValMetrics *val_metrics_open(const Dataset *data, int n, Mem *mem) {
    ValMetrics *v = MEM_NEW(mem, ValMetrics);
    v->n = n;
    for (int k = 2; k < n; k *= 2) v->k[v->n_k++] = k;
    if (n > 1) v->k[v->n_k++] = n;
    while (v->n_sources < MOST_SOURCES && dataset_source(data, v->n_sources, NULL)) v->n_sources++;
    v->aux = v->n_sources * VARS * (3 + 2 * v->n_k) <= MOST_AUX;
    v->source = MEM_ARRAY(mem, Source, (size_t)v->n_sources);
    v->x = MEM_ARRAY(mem, double, 2 * (size_t)n);
    v->sorted = v->x + n;
    for (int i = 0; i < v->n_sources; i++) {
        v->source[i].source = dataset_source(data, i, NULL);
        make_names(v, &v->source[i], mem);
    }
    val_metrics_clear(v);
    return v;
}

void val_metrics_clear(ValMetrics *v) {
    for (int i = 0; i < v->n_sources; i++) {
        Source *s = &v->source[i];
        s->questions = 0, s->acc = s->maj = true;
        memset(s->var, 0, sizeof s->var);
    }
}

static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The expected largest (smallest) of k draws with replacement: the i-th of n is it when all k
 * draws are among the first i, but not all among the first i-1. */
static void extremes(const double *sorted, int n, int k, double *best, double *worst) {
    double before = 0;
    *best = *worst = 0;
    for (int i = 0; i < n; i++) {
        double upto = pow((double)(i + 1) / n, k);
        *best += sorted[i] * (upto - before);
        *worst += sorted[n - 1 - i] * (upto - before);
        before = upto;
    }
}

static void add_var(const ValMetrics *v, Var *to, int majority) {
    int n = v->n;
    double sum = 0, square = 0;
    for (int i = 0; i < n; i++) sum += v->x[i];
    for (int i = 0; i < n; i++) square += (v->x[i] - sum / n) * (v->x[i] - sum / n);
    to->mean += sum / n, to->std += sqrt(square / n), to->maj += v->x[majority];
    memcpy(v->sorted, v->x, (size_t)n * sizeof *v->x);
    qsort(v->sorted, (size_t)n, sizeof *v->sorted, rising);
    for (int i = 0; i < v->n_k; i++) {
        double best, worst;
        extremes(v->sorted, n, v->k[i], &best, &worst);
        to->best[i] += best, to->worst[i] += worst;
    }
}

void val_metrics_add(ValMetrics *v, const char *source, const Rollout *a) {
    Source *s = v->source;
    while (s < v->source + v->n_sources && strcmp(s->source, source)) s++;
    if (s == v->source + v->n_sources) return; /* behind MOST_SOURCES */
    for (int i = 0; i < v->n; i++) {
        s->acc = s->acc && (!isnan(a[i].acc) || a[i].failed);
        s->maj = s->maj && (a[i].pred || a[i].failed);
    }
    int majority = rollout_majority(a, v->n);
    for (int x = 0; x < VARS; x++) {
        for (int i = 0; i < v->n; i++) v->x[i] = x == REWARD ? a[i].score : isnan(a[i].acc) ? 0 : a[i].acc;
        add_var(v, &s->var[x], majority);
    }
    s->questions++;
}

void val_metrics_put(ValMetrics *v, Metrics *m) {
    for (int i = 0; i < v->n_sources; i++) {
        const Source *s = &v->source[i];
        double q = (double)s->questions;
        int main_one = s->acc ? ACC : REWARD;
        for (int x = 0; q > 0 && x <= main_one; x++) {
            const Var *y = &s->var[x];
            bool core = x == main_one;
            const Names *n = core ? &s->core[x] : &s->aux[x];
            if (core || v->aux) metric(m, n->mean, y->mean / q);
            if (v->n > 1 && s->maj && (core || v->aux)) metric(m, n->maj, y->maj / q);
            if (v->n > 1 && v->aux) metric(m, n->std, y->std / q);
            for (int k = 0; k < v->n_k; k++) {
                if (v->aux || (core && v->k[k] == v->n)) metric(m, n->best[k], y->best[k] / q);
                if (v->aux) metric(m, n->worst[k], y->worst[k] / q);
            }
        }
    }
}
