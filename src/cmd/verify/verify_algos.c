/* verify_algos.c - advantages, losses and KL held against a file of verl's results.
 * The padded rows of the file become answers of full width whose padding is masked;
 * KL is element-wise, so there the padding is computed too. */
#include "cmd/verify/verify_algos_in.h"
#include "algo/advantage.h"
#include "algo/loss.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading */
/* What no JSON number can be is a string: "NaN", "Infinity". */
static bool number_of(double *out, const Json *j) {
    const char *text = algo_text(j);
    char *end;
    if (j->kind == JSON_INT || j->kind == JSON_REAL) return *out = json_number(j), true;
    if (!text || !*text) return false;
    *out = strtod(text, &end);
    return !*end && !isfinite(*out);
}
const char *algo_text(const Json *j) { return j && j->kind == JSON_STRING ? j->str : NULL; }
const Answers *algo_mask(const AlgoRun *v, const Json *one) {
    const char *name = algo_text(one && one->kind == JSON_OBJECT ? json_get(one, "mask") : NULL);
    return name && !strcmp(name, "mask_turns") ? &v->turns : &v->masked;
}

bool algo_matrix(float **out, AlgoRun *v, const Json *o, const char *key, Err *err) {
    const Json *m = json_get(o, key);
    if (!m || m->kind != JSON_ARRAY || (int64_t)m->n != v->n)
        return err_set(err, "%s: %lld rows are wanted", key, (long long)v->n);
    *out = MEM_ARRAY(v->mem, float, (size_t)v->T);
    for (int64_t i = 0; i < v->n; i++) {
        const Json *row = &m->items[i];
        if (row->kind != JSON_ARRAY || (int64_t)row->n != v->width)
            return err_set(err, "%s[%lld]: %lld numbers are wanted", key, (long long)i, (long long)v->width);
        for (int64_t t = 0; t < v->width; t++) {
            double x;
            if (!number_of(&x, &row->items[t]))
                return err_set(err, "%s[%lld][%lld] is not a number", key, (long long)i, (long long)t);
            (*out)[i * v->width + t] = (float)x;
        }
    }
    return true;
}

bool algo_vector(double **out, AlgoRun *v, const Json *o, const char *key, Err *err) {
    const Json *m = json_get(o, key);
    if (!m || m->kind != JSON_ARRAY || (int64_t)m->n != v->n)
        return err_set(err, "%s: %lld numbers are wanted", key, (long long)v->n);
    *out = MEM_ARRAY(v->mem, double, (size_t)v->n);
    for (int64_t i = 0; i < v->n; i++) {
        if (m->items[i].kind != JSON_INT && m->items[i].kind != JSON_REAL)
            return err_set(err, "%s[%lld] is not a number", key, (long long)i);
        (*out)[i] = json_number(&m->items[i]);
    }
    return true;
}

bool algo_number(double *out, const Json *o, const char *path, Err *err) {
    const Json *j = json_path(o, path);
    if (!j || (j->kind != JSON_INT && j->kind != JSON_REAL)) return err_set(err, "inputs.%s: a number is wanted", path);
    *out = json_number(j);
    return true;
}

/* ---- writing and comparing */
void algo_compare(AlgoRun *v, double got, double want) {
    if (got == want || (isnan(got) && isnan(want))) return;
    double d = fabs(got - want) / fmax(1, fabs(want));
    if (!(d <= v->worst)) v->worst = d;
}

bool algo_put_matrix(AlgoRun *v, const char *key, const float *x, const Json *want, Err *err) {
    float *w = NULL;
    TRY(algo_matrix(&w, v, want, key, err));
    buf_printf(v->out, "\"%s\":[", key);
    for (int64_t i = 0; i < v->n; i++) {
        buf_puts(v->out, i ? ",[" : "[");
        for (int64_t t = 0; t < v->width; t++) {
            if (t) buf_putc(v->out, ',');
            json_put_f32(v->out, x[i * v->width + t]);
            algo_compare(v, x[i * v->width + t], w[i * v->width + t]);
        }
        buf_putc(v->out, ']');
    }
    buf_putc(v->out, ']');
    return true;
}

bool algo_put_number(AlgoRun *v, const char *key, double x, const Json *want, Err *err) {
    double w;
    if (!want || !number_of(&w, want)) return err_set(err, "%s: a number is wanted", key);
    json_put_str(v->out, key, strlen(key));
    buf_putc(v->out, ':');
    json_put_f64(v->out, x);
    algo_compare(v, x, w);
    return true;
}

static void case_end(AlgoRun *v, const char *section, const char *name, const char *why) {
    VerifyAlgos *r = v->r;
    bool bad = why || !(v->worst <= v->tolerance);
    r->cases++, r->failed += bad;
    if (bad && v->say) fprintf(v->say, "FAILED %s %s: %s\n", section, name, why ? why : "differs");
    if (!why && (!(v->worst <= r->worst) || !r->worst_case[0])) {
        r->worst = v->worst;
        snprintf(r->worst_case, sizeof r->worst_case, "%s%s%s", section, *name ? " " : "", name);
    }
}

void algo_case_end(AlgoRun *v, const char *section, const char *name) { case_end(v, section, name, NULL); }

bool algo_cases(AlgoRun *v, const char *section, const Json *cases, AlgoCase *one, Err *err) {
    for (size_t k = 0; k < cases->n; k++) {
        const char *name = cases->members[k].key;
        if (k) buf_putc(v->out, ',');
        json_put_str(v->out, name, strlen(name));
        buf_putc(v->out, ':');
        size_t at = v->out->n;
        v->worst = 0;
        bool ok = one(v, name, &cases->members[k].value, err);
        if (!ok && !v->next) return false;
        if (!ok) v->out->n = at, buf_puts(v->out, "null");
        case_end(v, section, name, ok ? NULL : err->msg);
    }
    return true;
}

/* A section that nobody here computes: its cases have failed. */
static bool not_here(AlgoRun *v, const char *name, const Json *want, Err *err) {
    (void)v, (void)name, (void)want;
    return err_set(err, "hone does not compute this");
}

static bool mask_of(Answers *out, AlgoRun *v, const char *key, const int64_t *at, Err *err) {
    float *f;
    uint8_t *mask = MEM_ARRAY(v->mem, uint8_t, (size_t)v->T);
    TRY(algo_matrix(&f, v, v->inputs, key, err));
    for (int64_t t = 0; t < v->T; t++) mask[t] = f[t] != 0;
    *out = (Answers){ v->n, at, at + 1, mask };
    return true;
}

static bool shape(AlgoRun *v, const Json *file, Err *err) {
    v->inputs = json_get(file, "inputs");
    const Json *m = json_get(v->inputs, "mask");
    if (!m || m->kind != JSON_ARRAY || !m->n || m->items[0].kind != JSON_ARRAY || !m->items[0].n || m->n > 1 << 20
        || m->items[0].n > 1 << 20)
        return err_set(err, "inputs.mask: a matrix is wanted");
    v->n = (int64_t)m->n, v->width = (int64_t)m->items[0].n, v->T = v->n * v->width;
    int64_t *at = MEM_ARRAY(v->mem, int64_t, (size_t)v->n + 1);
    for (int64_t i = 0; i <= v->n; i++) at[i] = i * v->width;
    TRY(mask_of(&v->masked, v, "mask", at, err));
    v->turns = v->masked;
    if (json_get(v->inputs, "mask_turns")) TRY(mask_of(&v->turns, v, "mask_turns", at, err));
    v->all = (Answers){ v->n, at, at + 1, NULL };
    v->tmp = arena_in(v->mem, "verify", adv_scratch(v->n, v->T) + pick_scratch(v->T));
    return true;
}

bool verify_algos_json(VerifyAlgos *result, Buf *out, const Json *file, double tolerance, Mem *mem, FILE *say,
                       Err *err) {
    static const struct {
        const char *name;
        AlgoSection *run;
    } section[] = {
        { "advantage", verify_advantages },
        { "loss", verify_losses },
        { "kl", verify_kls },
        { "agg", verify_aggs },
        { "agg_global", verify_agg_globals },
        { "value", verify_value },
        { "value_cases", verify_value_cases },
        { "kl_in_reward", verify_kl_in_reward },
        { "kl_control", verify_kl_control },
    };
    static const char *const other[] = { "rollout_correction", "bypass", "metrics", "sum_pi_squared" };
    *result = (VerifyAlgos){ 0 };
    const char *form = algo_text(json_get(file, "form"));
    AlgoRun v = {
        .mem = mem, .out = out, .r = result, .tolerance = tolerance, .say = say, .next = form && !strcmp(form, "next")
    };
    TRY(shape(&v, file, err));
    buf_puts(out, v.next ? "{\"form\":\"next\",\"inputs\":" : "{\"inputs\":");
    json_put_value(out, v.inputs);
    for (size_t i = 0; i < COUNT(section) + COUNT(other); i++) {
        const char *name = i < COUNT(section) ? section[i].name : other[i - COUNT(section)];
        const Json *cases = json_get(file, name);
        if (!cases) continue;
        if (cases->kind != JSON_OBJECT) return err_set(err, "%s: an object of cases is wanted", name);
        buf_printf(out, ",\"%s\":{", name);
        if (!(i < COUNT(section) ? section[i].run(&v, cases, err) : algo_cases(&v, name, cases, not_here, err)))
            return err_wrap(err, "%s", name);
        buf_putc(out, '}');
    }
    buf_puts(out, "}\n");
    return true;
}

int verify_algos(const char *file, const char *out, double tolerance) {
    Mem mem = { 0 };
    Buf text = { 0 }, mine = { 0 };
    Err err;
    Json j;
    VerifyAlgos r = { 0 };
    bool ok = file_read(&text, file, &err)
              && ((json_parse(&j, text.data ? text.data : "", text.n, &mem, &err)
                   && verify_algos_json(&r, &mine, &j, tolerance, &mem, stdout, &err))
                  || err_wrap(&err, "%s", file))
              && (!out || file_write(out, mine.data, mine.n, &err));
    if (!ok) fprintf(stderr, "hone verify: %s\n", err.msg);
    else
        printf("algorithms: %d cases, %d failed; largest difference %.2g (%s), allowed %.2g\n", r.cases, r.failed,
               r.worst, r.worst_case, tolerance),
            printf("%d passed, %d failed, 0 skipped\n", r.cases - r.failed, r.failed);
    buf_free(&text);
    buf_free(&mine);
    mem_free(&mem);
    return !ok || r.failed || !r.cases;
}
