/* verify_methods.c - the sections of advantages and of losses.  Names say what to compute: "gae(gamma=0.99,lam=0.95)",
 * "vanilla/token-mean/is", "dro/seq-mean-token-mean(beta=2)"; a case may have settings of its own. */
#include "algo/advantage.h"
#include "algo/baseline.h"
#include "algo/loss.h"
#include "cmd/verify/verify_algos_in.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of a name before one of 'ends'. */
static const char *word(char *out, size_t room, const char *name, const char *ends) {
    snprintf(out, room, "%.*s", (int)strcspn(name, ends), name);
    return out;
}

/* ---- advantages */
static bool adv_conf(AdvConf *c, const char *name, Err *err) {
    char base[64];
    int kind;
    *c = (AdvConf){ .norm_by_std = !strstr(name, "(no_std"), .gamma = 1, .lam = 1 };
    word(base, sizeof base, name, "(,");
    if (!strcmp(base, "grpo_no_std")) kind = ADV_DR_GRPO;
    else if (!name_find(&kind, adv_names, base)) return err_set(err, "advantage '%s' is not known", base);
    c->kind = (AdvKind)kind;
    const char *g = strstr(name, "gamma="), *l = strstr(name, "lam=");
    if (g) c->gamma = strtod(g + 6, NULL);
    if (l) c->lam = strtod(l + 4, NULL);
    return true;
}

/* verl whitens the padding along with the tokens under gae; ours is 0 there.  For the first form it is put back. */
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

/* Groups and rollouts of keys "question_rollout_piece": equal beginnings get equal numbers. */
static bool read_keys(int32_t *group, int32_t *rollout, const AlgoRun *v, const Json *keys, Err *err) {
    for (int64_t i = 0; i < v->n; i++) {
        const char *key = (int64_t)keys->n == v->n ? algo_text(&keys->items[i]) : NULL;
        const char *piece = key ? strrchr(key, '_') : NULL, *r = piece;
        while (r && r > key && *--r != '_') {}
        if (!piece || r == key) return err_set(err, "keys[%lld] is not question_rollout_piece", (long long)i);
        group[i] = rollout[i] = (int32_t)i;
        for (int64_t j = 0; j < i; j++) {
            const char *other = algo_text(&keys->items[j]);
            if (!strncmp(other, key, (size_t)(piece - key) + 1)) rollout[i] = rollout[j];
            if (!strncmp(other, key, (size_t)(r - key) + 1)) group[i] = group[j];
        }
    }
    return true;
}

static bool groups(int32_t *id, AlgoRun *v, const Json *want, bool full, Err *err) {
    const char *key = algo_text(json_get(want, "index"));
    double *group;
    TRY(algo_vector(&group, v, v->inputs, key ? key : full ? "index_full_groups" : "index", err));
    for (int64_t i = 0; i < v->n; i++) id[i] = (int32_t)group[i];
    return true;
}

/* gdpo's components, by their names; none: the reward is the one. */
static bool components(AdvIn *in, AlgoRun *v, const Json *want, Err *err) {
    const Json *keys = json_get(want, "keys"), *weights = json_get(want, "weights");
    if (!keys || keys->kind != JSON_ARRAY) return true;
    const float **all = MEM_ARRAY(v->mem, const float *, keys->n);
    double *weight = MEM_ARRAY(v->mem, double, keys->n);
    bool weighed = weights && weights->kind == JSON_ARRAY && weights->n == keys->n;
    for (size_t k = 0; k < keys->n; k++) {
        const char *key = algo_text(&keys->items[k]);
        double *one;
        if (!key) return err_set(err, "keys: names are wanted");
        TRY(algo_vector(&one, v, json_get(v->inputs, "component_rewards"), key, err));
        float *f = MEM_ARRAY(v->mem, float, (size_t)v->n);
        for (int64_t i = 0; i < v->n; i++) f[i] = (float)one[i];
        all[k] = f, weight[k] = weighed ? json_number(&weights->items[k]) : 1;
    }
    in->components = (int)keys->n, in->component = all, in->weight = weight;
    return true;
}

static bool by_token(float *adv, float *ret, AlgoRun *v, AdvKind kind, const Json *want, Err *err) {
    const char *rewards = algo_text(json_get(want, "rewards"));
    const Json *is = json_get(want, "is_weights"), *tail = json_get(want, "handle_zero_tail");
    bool weighed = is && is->kind == JSON_BOOL && is->flag;
    float *reward, *lp, *sum_p2, *weight = NULL;
    int32_t *id = MEM_ARRAY(v->mem, int32_t, (size_t)v->n);
    TRY(groups(id, v, want, false, err) && algo_matrix(&reward, v, v->inputs, rewards ? rewards : "rewards", err)
        && algo_matrix(&lp, v, v->inputs, "old_log_prob", err)
        && algo_matrix(&sum_p2, v, v->inputs, "sum_pi_squared", err)
        && (!weighed || algo_matrix(&weight, v, v->inputs, "is_weights", err)));
    BaselineIn in = { .a = *algo_mask(v, want),
                      .reward = reward,
                      .group = id,
                      .lp = lp,
                      .sum_p2 = sum_p2,
                      .weight = weight,
                      .tir = kind == ADV_TIR_OTB,
                      .zero_tail = !tail || tail->kind != JSON_BOOL || tail->flag };
    Arena tmp = arena_in(v->mem, "baselines", baseline_scratch(v->n, v->T));
    token_baseline(adv, ret, &in, &tmp);
    return true;
}

static bool one_advantage(AlgoRun *v, const char *name, const Json *want, Err *err) {
    AdvConf c;
    const Answers *a = algo_mask(v, want);
    const Json *wrong = json_get(want, "error"), *keys = json_get(want, "keys");
    float *adv = MEM_ARRAY(v->mem, float, (size_t)v->T), *ret = MEM_ARRAY(v->mem, float, (size_t)v->T);
    TRY(adv_conf(&c, name, err));
    if (c.kind == ADV_OTB || c.kind == ADV_TIR_OTB) TRY(by_token(adv, ret, v, c.kind, want, err));
    else {
        bool dense = c.kind == ADV_GAE || c.kind == ADV_RPP, pieces = strstr(name, "(several outputs") != NULL;
        int32_t *id = MEM_ARRAY(v->mem, int32_t, (size_t)v->n), *rollout = MEM_ARRAY(v->mem, int32_t, (size_t)v->n);
        float *reward, *value, *baseline = MEM_ARRAY(v->mem, float, (size_t)v->n);
        double *base;
        TRY(algo_matrix(&reward, v, v->inputs, dense ? "dense_rewards" : "rewards", err)
            && algo_matrix(&value, v, v->inputs, "values", err) && algo_vector(&base, v, v->inputs, "baselines", err));
        if (pieces && keys) TRY(read_keys(id, rollout, v, keys, err));
        else TRY(groups(id, v, want, c.kind == ADV_PASSK, err));
        for (int64_t i = 0; i < v->n; i++) baseline[i] = (float)base[i];
        AdvIn in = { .a = *a, .reward = reward, .group = id, .baseline = baseline, .value = value };
        if (pieces && c.kind == ADV_GRPO) in.rollout = rollout; /* the others count every piece, there */
        if (c.kind == ADV_GDPO) TRY(components(&in, v, want, err));
        bool ok = advantage(adv, ret, &c, &in, &v->tmp, err);
        if (wrong) { /* what is refused there is to be refused here */
            algo_compare(v, ok, 0);
            buf_puts(v->out, "{\"error\":true}");
            return true;
        }
        if (!ok) return false;
        if (c.kind == ADV_GAE && !v->next) whiten_padding(adv, ret, value, a, v->T);
    }
    buf_putc(v->out, '{');
    TRY(algo_put_matrix(v, "advantages", adv, want, err));
    buf_putc(v->out, ',');
    TRY(algo_put_matrix(v, "returns", ret, want, err));
    buf_putc(v->out, '}');
    return true;
}
bool verify_advantages(AlgoRun *v, const Json *cases, Err *err) {
    return algo_cases(v, "advantage", cases, one_advantage, err);
}

/* ---- losses */
/* A setting of the file's loss_config, or the case's own. */
static double setting(const AlgoRun *v, const Json *own, const char *name, double otherwise) {
    char path[80];
    const Json *in_file[2];
    snprintf(path, sizeof path, "loss_config.%s", name);
    in_file[0] = json_path(v->inputs, path);
    snprintf(path, sizeof path, "loss_config.policy_loss.%s", name);
    in_file[1] = json_path(v->inputs, path);
    const Json *j = own ? json_get(own, name) : NULL;
    if (!j) j = in_file[0] ? in_file[0] : in_file[1];
    return j && (j->kind == JSON_INT || j->kind == JSON_REAL) ? json_number(j) : otherwise;
}

static bool loss_conf(LossConf *c, AlgoRun *v, const char *name, const Json *own, Err *err) {
    char kind[32], agg[48];
    size_t slash = strcspn(name, "/");
    int k, g;
    if (!name_find(&k, loss_names, word(kind, sizeof kind, name, "/")))
        return err_set(err, "loss '%s' is not known", kind);
    if (!name_find(&g, agg_names, word(agg, sizeof agg, name[slash] ? name + slash + 1 : "", "/(")))
        return err_set(err, "aggregation '%s' is not known", agg);
    double clip = setting(v, own, "clip_ratio", 0.2);
    *c = (LossConf){ .kind = (LossKind)k,
                     .agg = (AggKind)g,
                     .clip_low = setting(v, own, "clip_ratio_low", clip),
                     .clip_high = setting(v, own, "clip_ratio_high", clip),
                     .clip_c = setting(v, own, "clip_ratio_c", 3),
                     .tau_pos = setting(v, own, "tau_pos", 1),
                     .tau_neg = setting(v, own, "tau_neg", 1.05),
                     .cov_ratio = setting(v, own, k == LOSS_CLIP_COV ? "clip_cov_ratio" : "kl_cov_ratio", 0.0002),
                     .cov_coef = setting(v, own, "ppo_kl_coef", 1),
                     .cov_low = setting(v, own, "clip_cov_lb", 1),
                     .cov_high = setting(v, own, "clip_cov_ub", 5),
                     .dro_beta = setting(v, own, "dro_beta", 0),
                     .norm_len = (double)v->width };
    if (k == LOSS_GSPO && !v->next) c->agg = AGG_SEQ_MEAN_TOKEN_MEAN; /* as verl's was then */
    return true;
}

/* clip_cov leaves alone what the ratio's own clip already holds. */
static uint8_t *held_tokens(AlgoRun *v, const LossConf *c, const LossIn *in) {
    uint8_t *held = MEM_ARRAY(v->mem, uint8_t, (size_t)v->T);
    for (int64_t t = 0; t < v->T; t++) {
        double r = exp((double)in->lp[t] - in->old[t]);
        double A = in->adv[t], bound = r < 1 - c->clip_low    ? 1 - c->clip_low
                                       : r > 1 + c->clip_high ? 1 + c->clip_high
                                                              : r;
        held[t] = -A * bound > -A * r;
    }
    return held;
}

static bool loss_metrics(AlgoRun *v, const LossSum *s, const Json *want, Err *err) {
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
        TRY(algo_put_number(v, m[i].name, m[i].value, w, err));
    }
    buf_putc(v->out, '}');
    return true;
}

static bool one_loss(AlgoRun *v, const char *name, const Json *want, Err *err) {
    const Answers *a = algo_mask(v, want);
    float *lp, *old, *adv, *is = NULL, *grad = MEM_ARRAY(v->mem, float, (size_t)v->T);
    uint8_t *pick = MEM_ARRAY(v->mem, uint8_t, (size_t)v->T);
    const char *weighed = strstr(name, "/is");
    LossConf c;
    LossCounts counts = { 0 };
    LossSum sum = { 0 };
    TRY(loss_conf(&c, v, name, json_get(want, "config"), err) && algo_matrix(&lp, v, v->inputs, "log_prob", err)
        && algo_matrix(&old, v, v->inputs, "old_log_prob", err) && algo_matrix(&adv, v, v->inputs, "advantages", err)
        && (!weighed || algo_matrix(&is, v, v->inputs, "is_weights", err)));
    loss_count(&counts, a);
    if (!v->next && c.agg == AGG_SEQ_MEAN_TOKEN_SUM_NORM && !loss_is_sequence_mean(c.kind))
        counts.answers = 1; /* verl did not divide by the batch then */
    LossIn in = { .a = *a, .lp = lp, .old = old, .adv = adv, .weight = is, .pick = pick };
    PickConf p = { .kind = c.kind, .ratio = c.cov_ratio, .low = c.cov_low, .high = c.cov_high };
    if (c.kind == LOSS_CLIP_COV) p.skip = held_tokens(v, &c, &in);
    if (loss_picks(c.kind)) pick_by_covariance(pick, &p, a, NULL, v->n, adv, lp, &v->tmp);
    loss_piece(&sum, grad, NULL, &c, &counts, &in);
    buf_putc(v->out, '{');
    TRY(algo_put_number(v, "loss", loss_total(&sum, &c), json_get(want, "loss"), err));
    buf_putc(v->out, ',');
    TRY(algo_put_matrix(v, "grad", grad, want, err));
    buf_putc(v->out, ',');
    TRY(loss_metrics(v, &sum, json_get(want, "metrics"), err));
    buf_putc(v->out, '}');
    return true;
}
bool verify_losses(AlgoRun *v, const Json *cases, Err *err) { return algo_cases(v, "loss", cases, one_loss, err); }
