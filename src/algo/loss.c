/* loss.c - the policy losses: their values and their slopes by every log-prob.
 * Every loss but geo_mean is a sum of tokens: a row of the table gives one token's loss and slope,
 * the aggregation gives its weight.  A bound that holds has slope 0. */
#include "algo/loss.h"
#include "algo/kl.h"
#include "base/mathx.h"
#include "base/rng.h"
#include "base/sort.h"

#include <math.h>

static double clamp(double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; }

void loss_count(LossCounts *sum, const Answers *a) {
    for (int64_t i = 0; i < a->n; i++) {
        int64_t len = answer_len(a, i);
        sum->tokens += len;
        sum->answers += len > 0;
        sum->rows++;
    }
}

/* What a token of an answer of that length weighs. */
static double token_weight(AggKind agg, double norm_len, const LossCounts *n, int64_t len) {
    double answers = (double)(n->answers > 0 ? n->answers : 1);
    switch (agg) {
    case AGG_TOKEN_MEAN: return 1 / (double)(n->tokens > 0 ? n->tokens : 1);
    case AGG_SEQ_MEAN_TOKEN_SUM: return 1 / answers;
    case AGG_SEQ_MEAN_TOKEN_MEAN: return 1 / (answers * (double)(len > 0 ? len : 1));
    case AGG_SEQ_MEAN_TOKEN_SUM_NORM: return 1 / (answers * norm_len);
    case AGG_TOKEN_SUM: return 1;
    }
    die("aggregation %d", (int)agg);
}

/* ---- one token: its loss before aggregation, the slope by lp, and whether a clip held */
typedef struct {
    double lp, old, adv, seq_diff; /* seq_diff: the answer's mean of lp - old */
    bool pick;
} Token;
typedef struct {
    double value, slope, ppo_kl;
    bool clipped, clipped_low;
} TokenLoss;

static double ratio_of(const Token *t) { return mx_exp(clamp(t->lp - t->old, -20, 20)); }
static bool in_20(const Token *t) { return t->lp - t->old >= -20 && t->lp - t->old <= 20; }

static TokenLoss ppo(const LossConf *c, double r, double slope_r, double A) {
    double free_ = -A * r, held = -A * clamp(r, 1 - c->clip_low, 1 + c->clip_high);
    TokenLoss l = { .value = free_, .slope = -A * slope_r };
    if (held > free_) l = (TokenLoss){ .value = held, .clipped = true };
    return l;
}

static TokenLoss vanilla(const LossConf *c, const Token *t) {
    double r = ratio_of(t);
    TokenLoss l = ppo(c, r, in_20(t) ? r : 0, t->adv);
    double most = -t->adv * c->clip_c;
    if (t->adv < 0 && l.value > most) l.value = most, l.slope = 0, l.clipped_low = true;
    return l;
}

/* The ratio is the answer's, the gradient goes through the token's own log-prob (lp - stop(lp) + stop(mean)). */
static TokenLoss gspo(const LossConf *c, const Token *t) {
    double s = mx_exp(clamp(t->seq_diff, -700, 10));
    return ppo(c, s, t->seq_diff <= 10 ? s : 0, t->adv);
}

static TokenLoss sapo(const LossConf *c, const Token *t) {
    double r = ratio_of(t), tau = t->adv > 0 ? c->tau_pos : c->tau_neg;
    double gate = 1 / (1 + mx_exp(clamp(-tau * (r - 1), -600, 600)));
    return (TokenLoss){ .value = -t->adv * gate * 4 / tau,
                        .slope = in_20(t) ? -t->adv * gate * (1 - gate) * 4 * r : 0 };
}

static TokenLoss gpg(const LossConf *c, const Token *t) {
    (void)c;
    return (TokenLoss){ .value = -t->adv * t->lp, .slope = -t->adv };
}

static TokenLoss cispo(const LossConf *c, const Token *t) {
    double r = ratio_of(t), held = clamp(r, 1 - c->clip_low, 1 + c->clip_high);
    return (TokenLoss){ .value = -held * t->adv * t->lp, .slope = -held * t->adv, .clipped = held != r };
}

/* The bound is no part of these three: 700 is where a double ends. */
static double free_ratio(double d) { return mx_exp(clamp(d, -700, 700)); }

static TokenLoss kl_cov(const LossConf *c, const Token *t) {
    double d = t->lp - t->old, r = free_ratio(d);
    TokenLoss l = { .value = -t->adv * r, .slope = -t->adv * r };
    if (t->pick) l.value += c->cov_coef * fabs(d), l.slope += c->cov_coef * ((d > 0) - (d < 0));
    return l;
}

static TokenLoss clip_cov(const LossConf *c, const Token *t) {
    double r = free_ratio(t->lp - t->old);
    TokenLoss l = ppo(c, r, r, t->adv);
    l.clipped = t->pick; /* what is counted is the method's own clip */
    if (t->pick) l.value = l.slope = 0;
    return l;
}

/* Log-likelihood weighted by a ratio that is cut at clip_c; 'held': the token has moved far enough its way. */
static TokenLoss dppo(const LossConf *c, const Token *t, bool held) {
    double r = ratio_of(t), w = r < c->clip_c ? r : c->clip_c;
    if (held) return (TokenLoss){ .clipped = true };
    return (TokenLoss){ .value = -t->adv * w * t->lp, .slope = -t->adv * w, .clipped_low = r > c->clip_c };
}

static TokenLoss dppo_tv(const LossConf *c, const Token *t) {
    double moved = mx_exp(t->lp) - mx_exp(t->old);
    return dppo(c, t, t->adv > 0 ? moved > c->clip_high : moved < -c->clip_low);
}

static TokenLoss dppo_kl(const LossConf *c, const Token *t) {
    double p = mx_exp(t->lp), q = mx_exp(t->old), eps = 1e-8; /* verl's: where p is 1 */
    double kl = q * (t->old - t->lp) + (1 - q) * mx_log((1 - q + eps) / (1 - p + eps));
    return dppo(c, t, t->adv > 0 ? kl > c->clip_high && p > q : kl > c->clip_low && p < q);
}

static TokenLoss dro(const LossConf *c, const Token *t) {
    double d = t->lp - t->old;
    return (TokenLoss){ .value = -t->adv * t->lp + c->dro_beta / 2 * d * d, .slope = -t->adv + c->dro_beta * d };
}

typedef TokenLoss TokenFn(const LossConf *c, const Token *t);
/* clang-format off */
static TokenFn *const token_loss[] = {
    [LOSS_VANILLA] = vanilla, [LOSS_GSPO] = gspo, [LOSS_SAPO] = sapo, [LOSS_GPG] = gpg, [LOSS_CISPO] = cispo,
    [LOSS_KL_COV] = kl_cov,   [LOSS_CLIP_COV] = clip_cov, [LOSS_DPPO_TV] = dppo_tv, [LOSS_DPPO_KL] = dppo_kl,
    [LOSS_DRO] = dro,
};
/* clang-format on */

static double mean_diff(const LossIn *in, int64_t i) {
    double sum = 0;
    int64_t len = 0;
    for (int64_t t = in->a.at[i]; t < in->a.end[i]; t++)
        if (token_on(&in->a, t)) sum += (double)in->lp[t] - (double)in->old[t], len++;
    return len ? sum / (double)len : 0;
}

/* geo_mean: one loss per answer.  A clipped token has slope 0, any other an equal share of the answer's.  An answer
 * without tokens counts in the mean (its loss is 0), as in verl. */
static void geo_mean(LossSum *sum, float *dlp, const LossConf *c, const LossCounts *counts, const LossIn *in, int64_t i,
                     int64_t len) {
    double adv = 0, diff = 0, weight = 0;
    for (int64_t t = in->a.at[i]; t < in->a.end[i]; t++) {
        if (!token_on(&in->a, t)) continue;
        double d = (double)in->lp[t] - (double)in->old[t], A = in->adv[t];
        double held = clamp(d, -c->clip_low, c->clip_high);
        bool cut = (A > 0 && held < d) || (A < 0 && held > d);
        adv += A;
        diff += A == 0 ? 0 : cut ? held : d;
        dlp[t] = A != 0 && !cut;
        if (in->weight) weight += mx_log((double)in->weight[t] + 1e-10);
        sum->clipped += held != d && A > 0;
        sum->clipped_low += held != d && A < 0;
    }
    double share = 1 / (double)(counts->rows > 0 ? counts->rows : 1), each = 1 / (double)(len > 0 ? len : 1);
    double w = in->weight ? mx_exp(weight * each) : 1;
    double value = -adv * each * mx_exp(clamp(diff * each, -700, 700)) * w * share;
    if (len) sum->pg += value;
    for (int64_t t = in->a.at[i]; t < in->a.end[i]; t++)
        if (token_on(&in->a, t)) dlp[t] = (float)(dlp[t] * value * each);
}

static void one_answer(LossSum *sum, float *dlp, const LossConf *c, const LossCounts *counts, const LossIn *in,
                       int64_t i, int64_t len) {
    double seq = c->kind == LOSS_GSPO ? mean_diff(in, i) : 0;
    double w =
        token_weight(loss_is_sequence_mean(c->kind) ? AGG_SEQ_MEAN_TOKEN_MEAN : c->agg, c->norm_len, counts, len);
    double pg = 0;
    for (int64_t t = in->a.at[i]; t < in->a.end[i]; t++) {
        if (!token_on(&in->a, t)) continue;
        Token tok = { in->lp[t], in->old[t], in->adv[t], seq, in->pick && in->pick[t] };
        TokenLoss l = token_loss[c->kind](c, &tok);
        double is = in->weight ? in->weight[t] : 1;
        pg += l.value * is;
        dlp[t] = (float)(l.slope * is * w);
        sum->clipped += l.clipped;
        sum->clipped_low += l.clipped_low;
    }
    sum->pg += pg * w;
}

/* Whose ratio is bounded has its KL measured within the same bound. */
static bool bounds_ratio(LossKind k) {
    return k == LOSS_VANILLA || k == LOSS_SAPO || k == LOSS_CISPO || k == LOSS_DPPO_TV || k == LOSS_DPPO_KL;
}

/* The entropy bonus and the KL loss, and what is only measured. */
static void extras(LossSum *sum, float *dlp, float *dent, const LossConf *c, const LossCounts *counts, const LossIn *in,
                   int64_t i, int64_t len) {
    double w = token_weight(c->agg, c->norm_len, counts, len), kl = 0, entropy = 0;
    for (int64_t t = in->a.at[i]; t < in->a.end[i]; t++) {
        if (!token_on(&in->a, t)) continue;
        double slope, d = (double)in->lp[t] - (double)in->old[t];
        sum->ppo_kl += c->kind == LOSS_KL_COV ? fabs(d) : bounds_ratio(c->kind) ? -clamp(d, -20, 20) : -d;
        if (!(fabs(d) <= sum->max_diff) && !isnan(sum->max_diff)) sum->max_diff = fabs(d);
        if (in->ref) {
            kl += kl_token(&slope, c->kl_kind, in->lp[t], in->ref[t]);
            dlp[t] = (float)(dlp[t] + c->kl_coef * slope * w);
        }
        if (in->entropy) entropy += in->entropy[t];
        if (dent) dent[t] = (float)(-c->entropy_coef * w);
    }
    sum->kl += kl * w;
    sum->entropy += entropy * w;
    sum->tokens += len;
}

void loss_piece(LossSum *sum, float *dlp, float *dent, const LossConf *c, const LossCounts *counts, const LossIn *in) {
    CHECK(c->kl_coef == 0 || in->ref, "a KL loss without reference log-probs");
    CHECK(c->entropy_coef == 0 || (in->entropy && dent), "an entropy bonus without entropies");
    CHECK(!loss_picks(c->kind) || in->pick, "loss %d without picked tokens", (int)c->kind);
    for (int64_t i = 0; i < in->a.n; i++) {
        int64_t len = answer_len(&in->a, i);
        for (int64_t t = in->a.at[i]; t < in->a.end[i]; t++) {
            dlp[t] = 0;
            if (dent) dent[t] = 0;
        }
        if (c->kind == LOSS_GEO_MEAN) geo_mean(sum, dlp, c, counts, in, i, len);
        else one_answer(sum, dlp, c, counts, in, i, len);
        extras(sum, dlp, dent, c, counts, in, i, len);
    }
}

/* Not equal to 0 is also what is not a number: that must be met, not passed over. */
bool loss_is_silent(const LossConf *c, const Answers *a, const float *adv) {
    if (c->kind == LOSS_KL_COV || c->kind == LOSS_DRO || c->entropy_coef != 0 || c->kl_coef != 0) return false;
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t t = a->at[i]; t < a->end[i]; t++)
            if (token_on(a, t) && adv[t] != 0) return false;
    return true;
}

void loss_add(LossSum *sum, const LossSum *more) {
    sum->pg += more->pg, sum->kl += more->kl, sum->entropy += more->entropy;
    sum->clipped += more->clipped, sum->clipped_low += more->clipped_low, sum->ppo_kl += more->ppo_kl;
    sum->tokens += more->tokens;
    if (!(more->max_diff <= sum->max_diff) && !isnan(sum->max_diff)) sum->max_diff = more->max_diff;
}

double loss_total(const LossSum *s, const LossConf *c) {
    return s->pg - c->entropy_coef * s->entropy + c->kl_coef * s->kl;
}

size_t pick_scratch(int64_t tokens) { return arena_round((size_t)tokens * 8); }

int64_t pick_by_covariance(uint8_t *pick, const PickConf *c, const Answers *a, const int32_t *which, int64_t n,
                           const float *adv, const float *lp, Arena *tmp) {
    size_t mark = arena_mark(tmp);
    int64_t tokens = 0, count = 0;
    double mean_adv = 0, mean_lp = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t w = which ? which[i] : i;
        tokens += a->end[w] - a->at[w];
        for (int64_t t = a->at[w]; t < a->end[w]; t++) {
            pick[t] = 0;
            if (token_on(a, t)) mean_adv += adv[t], mean_lp += lp[t], count++;
        }
    }
    if (count) mean_adv /= (double)count, mean_lp /= (double)count;
    CHECK(answers_end(a) <= (int64_t)1 << 32, "%lld tokens in one step", (long long)answers_end(a));
    uint64_t *order = arena_push(tmp, (size_t)tokens * 8);
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t w = which ? which[i] : i;
        for (int64_t t = a->at[w]; t < a->end[w]; t++) {
            if (!token_on(a, t)) continue;
            double cov = (adv[t] - mean_adv) * (lp[t] - mean_lp);
            uint32_t key = ~sort_key_f32((float)cov); /* the largest first */
            if (c->kind == LOSS_CLIP_COV) {
                if (!(cov > c->low && cov < c->high) || (c->skip && c->skip[t])) continue;
                key = c->draw ? philox(c->draw, (Philox){ { (uint32_t)t } }).v[0] : 0;
            }
            order[k++] = (uint64_t)key << 32 | (uint64_t)t;
        }
    }
    sort_u64(order, (size_t)k);
    int64_t take = (int64_t)(c->ratio * (double)count);
    if (take < 1) take = 1;
    if (take > k) take = k;
    for (int64_t j = 0; j < take; j++) pick[order[j] & 0xFFFFFFFFu] = 1;
    arena_pop(tmp, mark);
    return take;
}

double loss_aggregate(AggKind agg, double norm_len, const LossCounts *counts, const Answers *a, const float *x) {
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double s = 0;
        for (int64_t t = a->at[i]; t < a->end[i]; t++)
            if (token_on(a, t)) s += x[t];
        sum += s * token_weight(agg, norm_len, counts, answer_len(a, i));
    }
    return sum;
}

double value_loss(float *dv, double *clipped, AggKind agg, double norm_len, double range, const LossCounts *counts,
                  const Answers *a, const float *v, const float *old_v, const float *returns) {
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double w = token_weight(agg, norm_len, counts, answer_len(a, i));
        for (int64_t t = a->at[i]; t < a->end[i]; t++) {
            dv[t] = 0;
            if (!token_on(a, t)) continue;
            double held = clamp(v[t], old_v[t] - range, old_v[t] + range);
            double free_ = (double)v[t] - returns[t], bound = held - returns[t];
            bool cut = bound * bound > free_ * free_;
            double x = cut ? bound : free_;
            sum += 0.5 * x * x * w;
            *clipped += cut;
            if (!cut || held == v[t]) dv[t] = (float)(x * w);
        }
    }
    return sum;
}
