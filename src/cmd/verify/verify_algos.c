/* verify_algos.c - advantages, losses and KL held against a file of verl's results.
 * The padded rows of the file become answers of full width whose padding is masked;
 * KL is element-wise, so there the padding is computed too. */
#include "cmd/verify/verify_algos.h"
#include "algo/advantage.h"
#include "algo/kl.h"
#include "algo/loss.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    Mem *mem;
    int64_t n, width, T;
    const int64_t *at;
    Answers masked, all;
    const Json *inputs;
    Arena tmp;
    Buf *out;
    VerifyAlgos *r;
    double tolerance, worst; /* worst: of the case at hand */
} Run;

/* ---- reading */
static bool matrix(float **out, Run *v, const Json *o, const char *key, Err *err) {
    const Json *m = json_get(o, key);
    if (!m || m->kind != JSON_ARRAY || (int64_t)m->n != v->n)
        return err_set(err, "%s: %lld rows are wanted", key, (long long)v->n);
    *out = MEM_ARRAY(v->mem, float, (size_t)v->T);
    for (int64_t i = 0; i < v->n; i++) {
        const Json *row = &m->items[i];
        if (row->kind != JSON_ARRAY || (int64_t)row->n != v->width)
            return err_set(err, "%s[%lld]: %lld numbers are wanted", key, (long long)i, (long long)v->width);
        for (int64_t t = 0; t < v->width; t++) {
            if (row->items[t].kind != JSON_INT && row->items[t].kind != JSON_REAL)
                return err_set(err, "%s[%lld][%lld] is not a number", key, (long long)i, (long long)t);
            (*out)[i * v->width + t] = (float)json_number(&row->items[t]);
        }
    }
    return true;
}

static bool vector(double **out, Run *v, const Json *o, const char *key, Err *err) {
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

static bool number(double *out, const Json *o, const char *path, Err *err) {
    const Json *j = json_path(o, path);
    if (!j || (j->kind != JSON_INT && j->kind != JSON_REAL)) return err_set(err, "inputs.%s: a number is wanted", path);
    *out = json_number(j);
    return true;
}

/* ---- writing and comparing */
static void compare(Run *v, double got, double want) {
    double d = fabs(got - want) / fmax(1, fabs(want));
    if (!(d <= v->worst)) v->worst = d;
}

static bool put_matrix(Run *v, const char *key, const float *x, const Json *want, Err *err) {
    float *w = NULL;
    TRY(matrix(&w, v, want, key, err));
    buf_printf(v->out, "\"%s\":[", key);
    for (int64_t i = 0; i < v->n; i++) {
        buf_puts(v->out, i ? ",[" : "[");
        for (int64_t t = 0; t < v->width; t++) {
            if (t) buf_putc(v->out, ',');
            json_put_f32(v->out, x[i * v->width + t]);
            compare(v, x[i * v->width + t], w[i * v->width + t]);
        }
        buf_putc(v->out, ']');
    }
    buf_putc(v->out, ']');
    return true;
}

static bool put_number(Run *v, const char *key, double x, const Json *want, Err *err) {
    if (!want || (want->kind != JSON_INT && want->kind != JSON_REAL))
        return err_set(err, "%s: a number is wanted", key);
    json_put_str(v->out, key, strlen(key));
    buf_putc(v->out, ':');
    json_put_f64(v->out, x);
    compare(v, x, json_number(want));
    return true;
}

static void case_begin(Run *v, const char *name, bool first) {
    if (!first) buf_putc(v->out, ',');
    json_put_str(v->out, name, strlen(name));
    buf_putc(v->out, ':');
    v->worst = 0;
}

static void case_end(Run *v, const char *section, const char *name) {
    VerifyAlgos *r = v->r;
    r->cases++;
    if (!(v->worst <= v->tolerance)) r->failed++;
    if (!(v->worst <= r->worst) || !r->worst_case[0]) {
        r->worst = v->worst;
        snprintf(r->worst_case, sizeof r->worst_case, "%s %s", section, name);
    }
}

/* ---- the sections */
static bool adv_case_conf(AdvConf *c, bool *dense, bool *full_groups, const char *name, Err *err) {
    char base[64];
    size_t n = strcspn(name, "(");
    snprintf(base, sizeof base, "%.*s", (int)n, name);
    *c = (AdvConf){ .norm_by_std = true, .gamma = 1, .lam = 1 };
    int kind;
    if (!strcmp(base, "grpo_no_std")) kind = ADV_DR_GRPO;
    else if (!name_find(&kind, adv_names, base)) return err_set(err, "advantage '%s' is not known", base);
    c->kind = (AdvKind)kind;
    const char *g = strstr(name, "gamma="), *l = strstr(name, "lam=");
    if (g) c->gamma = strtod(g + 6, NULL);
    if (l) c->lam = strtod(l + 4, NULL);
    *dense = c->kind == ADV_GAE || c->kind == ADV_RPP;
    *full_groups = c->kind == ADV_PASSK;
    return true;
}

/* verl whitens the padding along with the tokens under gae; ours is 0 there.  For the comparison it is put back. */
static void whiten_padding(float *adv, const float *returns, const float *value, const Answers *a, int64_t T) {
    double sum = 0, dev = 0, count = 0;
    for (int64_t t = 0; t < T; t++)
        if (a->mask[t]) sum += (double)returns[t] - value[t], count++;
    double mean = sum / count;
    for (int64_t t = 0; t < T; t++)
        if (a->mask[t]) dev += pow((double)returns[t] - value[t] - mean, 2);
    for (int64_t t = 0; t < T; t++)
        if (!a->mask[t]) adv[t] = (float)(-mean / sqrt(dev / (count - 1) + 1e-8));
}

static bool advantages(Run *v, const Json *cases, Err *err) {
    float *rewards, *dense, *value, *baseline = MEM_ARRAY(v->mem, float, (size_t)v->n);
    double *group, *full, *base;
    TRY(matrix(&rewards, v, v->inputs, "rewards", err) && matrix(&dense, v, v->inputs, "dense_rewards", err)
        && matrix(&value, v, v->inputs, "values", err) && vector(&group, v, v->inputs, "index", err)
        && vector(&full, v, v->inputs, "index_full_groups", err) && vector(&base, v, v->inputs, "baselines", err));
    int32_t *id = MEM_ARRAY(v->mem, int32_t, (size_t)v->n);
    float *adv = MEM_ARRAY(v->mem, float, (size_t)v->T), *ret = MEM_ARRAY(v->mem, float, (size_t)v->T);
    for (size_t k = 0; k < cases->n; k++) {
        const char *name = cases->members[k].key;
        AdvConf c;
        bool use_dense = false, use_full = false;
        TRY(adv_case_conf(&c, &use_dense, &use_full, name, err));
        for (int64_t i = 0; i < v->n; i++) id[i] = (int32_t)(use_full ? full : group)[i], baseline[i] = (float)base[i];
        AdvIn in = {
            .a = v->masked, .reward = use_dense ? dense : rewards, .group = id, .baseline = baseline, .value = value
        };
        TRY(advantage(adv, ret, &c, &in, &v->tmp, err));
        if (c.kind == ADV_GAE) whiten_padding(adv, ret, value, &v->masked, v->T);
        case_begin(v, name, k == 0);
        buf_putc(v->out, '{');
        TRY(put_matrix(v, "advantages", adv, &cases->members[k].value, err));
        buf_putc(v->out, ',');
        TRY(put_matrix(v, "returns", ret, &cases->members[k].value, err));
        buf_putc(v->out, '}');
        case_end(v, "advantage", name);
    }
    return true;
}

static bool loss_case_conf(LossConf *c, LossCounts *counts, bool *weighted, Run *v, const char *name, Err *err) {
    char kind[32], agg[32];
    size_t a = strcspn(name, "/"), b = name[a] ? strcspn(name + a + 1, "/") : 0;
    snprintf(kind, sizeof kind, "%.*s", (int)a, name);
    snprintf(agg, sizeof agg, "%.*s", (int)b, name[a] ? name + a + 1 : "");
    *weighted = name[a] && name[a + 1 + b] && !strcmp(name + a + 1 + b, "/is");
    int k, g;
    if (!name_find(&k, loss_names, kind)) return err_set(err, "loss '%s' is not known", kind);
    if (!name_find(&g, agg_names, agg)) return err_set(err, "aggregation '%s' is not known", agg);
    c->kind = (LossKind)k, c->agg = (AggKind)g;
    *counts = (LossCounts){ 0 };
    loss_count(counts, &v->masked);
    c->norm_len = (double)v->width;
    if (c->agg == AGG_SEQ_MEAN_TOKEN_SUM_NORM && !loss_is_sequence_mean(c->kind))
        counts->answers = 1; /* verl does not divide by the batch here */
    return true;
}

static bool loss_metrics(Run *v, const LossSum *s, const Json *want, Err *err) {
    struct {
        const char *name;
        double value;
    } m[] = {
        { "actor/pg_clipfrac", s->clipped / (double)s->tokens },
        { "actor/ppo_kl", s->ppo_kl / (double)s->tokens },
        { "actor/pg_clipfrac_lower", s->clipped_low / (double)s->tokens },
    };
    buf_puts(v->out, "\"metrics\":{");
    bool first = true;
    for (size_t i = 0; i < COUNT(m); i++) {
        const Json *w = json_get(want, m[i].name);
        if (!w) continue;
        if (!first) buf_putc(v->out, ',');
        first = false;
        TRY(put_number(v, m[i].name, m[i].value, w, err));
    }
    buf_putc(v->out, '}');
    return true;
}

static bool losses(Run *v, const Json *cases, Err *err) {
    float *lp, *old, *adv, *is, *grad = MEM_ARRAY(v->mem, float, (size_t)v->T);
    uint8_t *pick = MEM_ARRAY(v->mem, uint8_t, (size_t)v->T);
    LossConf c = { 0 };
    TRY(matrix(&lp, v, v->inputs, "log_prob", err) && matrix(&old, v, v->inputs, "old_log_prob", err)
        && matrix(&adv, v, v->inputs, "advantages", err) && matrix(&is, v, v->inputs, "is_weights", err)
        && number(&c.clip_low, v->inputs, "loss_config.clip_ratio_low", err)
        && number(&c.clip_high, v->inputs, "loss_config.clip_ratio_high", err)
        && number(&c.clip_c, v->inputs, "loss_config.clip_ratio_c", err)
        && number(&c.tau_pos, v->inputs, "loss_config.tau_pos", err)
        && number(&c.tau_neg, v->inputs, "loss_config.tau_neg", err)
        && number(&c.cov_ratio, v->inputs, "loss_config.policy_loss.kl_cov_ratio", err)
        && number(&c.cov_coef, v->inputs, "loss_config.policy_loss.ppo_kl_coef", err));
    pick_by_covariance(pick, &v->masked, NULL, v->masked.n, adv, lp, c.cov_ratio, &v->tmp);
    for (size_t k = 0; k < cases->n; k++) {
        const char *name = cases->members[k].key;
        const Json *want = &cases->members[k].value;
        LossCounts counts;
        bool weighted;
        TRY(loss_case_conf(&c, &counts, &weighted, v, name, err));
        LossIn in = { .a = v->masked, .lp = lp, .old = old, .adv = adv, .weight = weighted ? is : NULL, .pick = pick };
        LossSum sum = { 0 };
        loss_piece(&sum, grad, NULL, &c, &counts, &in);
        case_begin(v, name, k == 0);
        buf_putc(v->out, '{');
        TRY(put_number(v, "loss", loss_total(&sum, &c), json_get(want, "loss"), err));
        buf_putc(v->out, ',');
        TRY(put_matrix(v, "grad", grad, want, err));
        buf_putc(v->out, ',');
        TRY(loss_metrics(v, &sum, json_get(want, "metrics"), err));
        buf_putc(v->out, '}');
        case_end(v, "loss", name);
    }
    return true;
}

static bool kls(Run *v, const Json *cases, Err *err) {
    float *lp, *ref, *value = MEM_ARRAY(v->mem, float, (size_t)v->T), *grad = MEM_ARRAY(v->mem, float, (size_t)v->T);
    TRY(matrix(&lp, v, v->inputs, "log_prob", err) && matrix(&ref, v, v->inputs, "ref_log_prob", err));
    for (size_t k = 0; k < cases->n; k++) {
        const char *name = cases->members[k].key;
        int kind;
        if (!name_find(&kind, kl_names, name)) return err_set(err, "KL '%s' is not known", name);
        for (int64_t t = 0; t < v->T; t++) {
            double slope;
            value[t] = (float)kl_token(&slope, kind, lp[t], ref[t]);
            grad[t] = (float)slope;
        }
        case_begin(v, name, k == 0);
        buf_putc(v->out, '{');
        TRY(put_matrix(v, "value", value, &cases->members[k].value, err));
        buf_putc(v->out, ',');
        TRY(put_matrix(v, "grad", grad, &cases->members[k].value, err));
        buf_putc(v->out, '}');
        case_end(v, "kl", name);
    }
    return true;
}

/* The aggregates are of the input advantages. */
static bool aggs(Run *v, const Json *cases, Err *err) {
    float *x;
    TRY(matrix(&x, v, v->inputs, "advantages", err));
    for (size_t k = 0; k < cases->n; k++) {
        const char *name = cases->members[k].key;
        int kind;
        if (!name_find(&kind, agg_names, name)) return err_set(err, "aggregation '%s' is not known", name);
        LossCounts counts = { 0 };
        loss_count(&counts, &v->masked);
        if (kind == AGG_SEQ_MEAN_TOKEN_SUM_NORM) counts.answers = 1; /* as in loss_case_conf */
        if (k) buf_putc(v->out, ',');
        v->worst = 0;
        TRY(put_number(v, name, loss_aggregate((AggKind)kind, (double)v->width, &counts, &v->masked, x),
                       &cases->members[k].value, err));
        case_end(v, "agg", name);
    }
    return true;
}

static bool value(Run *v, const Json *o, Err *err) {
    float *pred, *ret, *old, *grad = MEM_ARRAY(v->mem, float, (size_t)v->T);
    double range = 0, clipped = 0;
    TRY(matrix(&pred, v, o, "vpreds", err) && matrix(&ret, v, o, "returns", err) && matrix(&old, v, o, "values", err)
        && number(&range, o, "cliprange", err));
    LossCounts counts = { 0 };
    loss_count(&counts, &v->masked);
    double loss = value_loss(grad, &clipped, AGG_TOKEN_MEAN, 1, range, &counts, &v->masked, pred, old, ret);
    v->worst = 0;
    TRY(put_number(v, "loss", loss, json_get(o, "loss"), err));
    buf_putc(v->out, ',');
    TRY(put_number(v, "clipfrac", clipped / (double)counts.tokens, json_get(o, "clipfrac"), err));
    buf_putc(v->out, ',');
    TRY(put_matrix(v, "grad", grad, o, err));
    for (size_t k = 0; k < o->n; k++) { /* what was given is repeated, so that the file stands alone */
        const char *key = o->members[k].key;
        if (!strcmp(key, "loss") || !strcmp(key, "clipfrac") || !strcmp(key, "grad")) continue;
        buf_putc(v->out, ',');
        json_put_str(v->out, key, strlen(key));
        buf_putc(v->out, ':');
        json_put_value(v->out, &o->members[k].value);
    }
    case_end(v, "value", "");
    return true;
}

static bool shape(Run *v, const Json *file, Err *err) {
    v->inputs = json_get(file, "inputs");
    const Json *m = json_get(v->inputs, "mask");
    if (!m || m->kind != JSON_ARRAY || !m->n || m->items[0].kind != JSON_ARRAY || !m->items[0].n || m->n > 1 << 20
        || m->items[0].n > 1 << 20)
        return err_set(err, "inputs.mask: a matrix is wanted");
    v->n = (int64_t)m->n, v->width = (int64_t)m->items[0].n, v->T = v->n * v->width;
    float *f;
    TRY(matrix(&f, v, v->inputs, "mask", err));
    uint8_t *mask = MEM_ARRAY(v->mem, uint8_t, (size_t)v->T);
    int64_t *at = MEM_ARRAY(v->mem, int64_t, (size_t)v->n + 1);
    for (int64_t t = 0; t < v->T; t++) mask[t] = f[t] != 0;
    for (int64_t i = 0; i <= v->n; i++) at[i] = i * v->width;
    v->masked = (Answers){ v->n, at, at + 1, mask };
    v->all = (Answers){ v->n, at, at + 1, NULL };
    v->tmp = arena_in(v->mem, "verify", adv_scratch(v->n, v->T) + pick_scratch(v->T));
    return true;
}

bool verify_algos_json(VerifyAlgos *result, Buf *out, const Json *file, double tolerance, Mem *mem, Err *err) {
    static const struct {
        const char *name;
        bool (*run)(Run *, const Json *, Err *);
    } section[] = {
        { "advantage", advantages }, { "loss", losses }, { "kl", kls }, { "agg", aggs }, { "value", value }
    };
    *result = (VerifyAlgos){ 0 };
    Run v = { .mem = mem, .out = out, .r = result, .tolerance = tolerance };
    TRY(shape(&v, file, err));
    buf_puts(out, "{\"inputs\":");
    json_put_value(out, v.inputs);
    for (size_t i = 0; i < COUNT(section); i++) {
        const Json *cases = json_get(file, section[i].name);
        if (!cases) continue;
        if (cases->kind != JSON_OBJECT) return err_set(err, "%s: an object of cases is wanted", section[i].name);
        buf_printf(out, ",\"%s\":{", section[i].name);
        if (!section[i].run(&v, cases, err)) return err_wrap(err, "%s", section[i].name);
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
                   && verify_algos_json(&r, &mine, &j, tolerance, &mem, &err))
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
