/* verify_values.c - the sections of KL, of averages and of a critic's loss.  KL is element-wise, so the padding is
 * computed too. */
#include "algo/kl.h"
#include "algo/loss.h"
#include "cmd/verify/verify_algos_in.h"

#include <stdlib.h>
#include <string.h>

/* ---- KL */
static bool one_kl(AlgoRun *v, const char *name, const Json *want, Err *err) {
    float *lp, *ref, *value = MEM_ARRAY(v->mem, float, (size_t)v->T), *grad = MEM_ARRAY(v->mem, float, (size_t)v->T);
    int kind;
    TRY(algo_matrix(&lp, v, v->inputs, "log_prob", err) && algo_matrix(&ref, v, v->inputs, "ref_log_prob", err));
    if (!name_find(&kind, kl_names, name)) return err_set(err, "KL '%s' is not known", name);
    const Answers *a = algo_mask(v, want);
    for (int64_t t = 0; t < v->T; t++) {
        double slope;
        value[t] = (float)kl_token(&slope, kind, lp[t], ref[t]);
        grad[t] = (float)slope;
        if (v->next && json_get(want, "mask") && !token_on(a, t)) value[t] = grad[t] = 0;
    }
    buf_putc(v->out, '{');
    TRY(algo_put_matrix(v, "value", value, want, err));
    buf_putc(v->out, ',');
    TRY(algo_put_matrix(v, "grad", grad, want, err));
    buf_putc(v->out, '}');
    return true;
}
bool verify_kls(AlgoRun *v, const Json *cases, Err *err) { return algo_cases(v, "kl", cases, one_kl, err); }

static bool one_kl_in_reward(AlgoRun *v, const char *name, const Json *want, Err *err) {
    float *old, *ref, *reward;
    KlControl c = { .adaptive = true };
    int kind;
    char base[32];
    snprintf(base, sizeof base, "%.*s", (int)strcspn(name, "/"), name);
    if (!name_find(&kind, kl_names, base)) return err_set(err, "KL '%s' is not known", base);
    TRY(algo_matrix(&old, v, v->inputs, "old_log_prob", err) && algo_matrix(&ref, v, v->inputs, "ref_log_prob", err)
        && algo_matrix(&reward, v, v->inputs, "rewards", err) && algo_number(&c.coef, want, "coef", err)
        && algo_number(&c.target, want, "target_kl", err) && algo_number(&c.horizon, want, "horizon", err));
    const Answers *a = algo_mask(v, want);
    double kl = kl_into_reward(reward, a, kind, c.coef, old, ref);
    kl_control_step(&c, kl, v->n);
    buf_putc(v->out, '{');
    TRY(algo_put_matrix(v, "rewards", reward, want, err));
    buf_putc(v->out, ',');
    TRY(algo_put_number(v, "kl", kl, json_get(want, "kl"), err));
    buf_putc(v->out, ',');
    TRY(algo_put_number(v, "coef_after", c.coef, json_get(want, "coef_after"), err));
    buf_putc(v->out, '}');
    return true;
}
bool verify_kl_in_reward(AlgoRun *v, const Json *cases, Err *err) {
    return algo_cases(v, "kl_in_reward", cases, one_kl_in_reward, err);
}

static bool one_kl_control(AlgoRun *v, const char *name, const Json *want, Err *err) {
    (void)name;
    KlControl c = { .adaptive = true };
    const Json *steps = json_get(want, "steps");
    TRY(algo_number(&c.coef, want, "coef", err) && algo_number(&c.target, want, "target_kl", err)
        && algo_number(&c.horizon, want, "horizon", err));
    if (!steps || steps->kind != JSON_ARRAY) return err_set(err, "steps: a list is wanted");
    buf_puts(v->out, "{\"steps\":[");
    for (size_t k = 0; k < steps->n; k++) {
        double kl, n;
        TRY(algo_number(&kl, &steps->items[k], "kl", err) && algo_number(&n, &steps->items[k], "n", err));
        kl_control_step(&c, kl, (int64_t)n);
        buf_puts(v->out, k ? ",{" : "{");
        TRY(algo_put_number(v, "coef", c.coef, json_get(&steps->items[k], "coef"), err));
        buf_putc(v->out, '}');
    }
    buf_puts(v->out, "]}");
    return true;
}
bool verify_kl_control(AlgoRun *v, const Json *cases, Err *err) {
    return algo_cases(v, "kl_control", cases, one_kl_control, err);
}

/* ---- averages */
/* The counts by which a case is averaged: its own tokens and answers, or a larger batch's; verl then multiplies by the
 * number of ranks, whose mean it takes. */
static double counts_of(LossCounts *counts, double *norm_len, const AlgoRun *v, const Json *want) {
    const Answers *a = algo_mask(v, want);
    double tokens, answers, dp = 1;
    Err none;
    *counts = (LossCounts){ 0 };
    *norm_len = (double)v->width;
    loss_count(counts, a);
    if (want->kind != JSON_OBJECT) return 1;
    if (algo_number(&tokens, want, "batch_num_tokens", &none)) counts->tokens = (int64_t)tokens;
    if (algo_number(&answers, want, "global_batch_size", &none)) counts->answers = (int64_t)answers;
    algo_number(norm_len, want, "loss_scale_factor", &none);
    algo_number(&dp, want, "dp_size", &none);
    return dp;
}

static bool agg_kind(AggKind *out, const char *name, Err *err) {
    char base[48];
    int kind;
    snprintf(base, sizeof base, "%.*s", (int)strcspn(name, "/"), name);
    if (!name_find(&kind, agg_names, base)) return err_set(err, "aggregation '%s' is not known", base);
    return *out = (AggKind)kind, true;
}

/* The aggregates are of the input advantages. */
static bool one_agg(AlgoRun *v, const char *name, const Json *want, Err *err) {
    float *x;
    AggKind kind;
    LossCounts counts;
    double norm_len, dp = counts_of(&counts, &norm_len, v, want), w;
    TRY(algo_matrix(&x, v, v->inputs, "advantages", err) && agg_kind(&kind, name, err));
    if (kind == AGG_SEQ_MEAN_TOKEN_SUM_NORM && !v->next) counts.answers = 1; /* as losses had it then */
    double got = dp * loss_aggregate(kind, norm_len, &counts, algo_mask(v, want), x);
    if (want->kind == JSON_OBJECT) {
        buf_putc(v->out, '{');
        TRY(algo_put_number(v, "value", got, json_get(want, "value"), err));
        return buf_putc(v->out, '}'), true;
    }
    if (want->kind != JSON_INT && want->kind != JSON_REAL) return err_set(err, "%s: a number is wanted", name);
    w = json_number(want);
    json_put_f64(v->out, got);
    algo_compare(v, got, w);
    return true;
}
bool verify_aggs(AlgoRun *v, const Json *cases, Err *err) { return algo_cases(v, "agg", cases, one_agg, err); }
bool verify_agg_globals(AlgoRun *v, const Json *cases, Err *err) {
    return algo_cases(v, "agg_global", cases, one_agg, err);
}

/* ---- a critic's loss */
static bool value_case(AlgoRun *v, const Json *inputs, AggKind agg, const Json *want, Err *err) {
    float *pred, *ret, *old, *grad = MEM_ARRAY(v->mem, float, (size_t)v->T);
    double range = 0, clipped = 0, norm_len;
    LossCounts counts, own = { 0 };
    const Answers *a = algo_mask(v, want);
    TRY(algo_matrix(&pred, v, inputs, "vpreds", err) && algo_matrix(&ret, v, inputs, "returns", err)
        && algo_matrix(&old, v, inputs, "values", err) && algo_number(&range, want, "cliprange", err));
    double dp = counts_of(&counts, &norm_len, v, want);
    loss_count(&own, a);
    double loss = dp * value_loss(grad, &clipped, agg, norm_len, range, &counts, a, pred, old, ret);
    for (int64_t t = 0; t < v->T; t++) grad[t] = (float)(dp * grad[t]);
    TRY(algo_put_number(v, "loss", loss, json_get(want, "loss"), err));
    buf_putc(v->out, ',');
    TRY(algo_put_number(v, "clipfrac", clipped / (double)own.tokens, json_get(want, "clipfrac"), err));
    buf_putc(v->out, ',');
    return algo_put_matrix(v, "grad", grad, want, err);
}

bool verify_value(AlgoRun *v, const Json *o, Err *err) {
    v->worst = 0;
    TRY(value_case(v, o, AGG_TOKEN_MEAN, o, err));
    for (size_t k = 0; k < o->n; k++) { /* what was given is repeated, so that the file stands alone */
        const char *key = o->members[k].key;
        if (!strcmp(key, "loss") || !strcmp(key, "clipfrac") || !strcmp(key, "grad")) continue;
        buf_putc(v->out, ',');
        json_put_str(v->out, key, strlen(key));
        buf_putc(v->out, ':');
        json_put_value(v->out, &o->members[k].value);
    }
    v->value = o;
    algo_case_end(v, "value", "");
    return true;
}

static bool one_value(AlgoRun *v, const char *name, const Json *want, Err *err) {
    AggKind agg;
    if (!v->value) return err_set(err, "the file has no 'value', whose inputs these are");
    TRY(agg_kind(&agg, name, err));
    buf_putc(v->out, '{');
    TRY(value_case(v, v->value, agg, want, err));
    buf_putc(v->out, '}');
    return true;
}
bool verify_value_cases(AlgoRun *v, const Json *cases, Err *err) {
    return algo_cases(v, "value_cases", cases, one_value, err);
}
