/* advantage.c - an advantage for every token of every answer, by each method.
 * The per-answer methods share one walk over the groups: a group's statistics, then one
 * number per answer that is spread over its tokens.  A group whose answers all earn the same gives zeros, not 0/0. */
#include "algo/advantage.h"
#include "base/sort.h"

#include <math.h>

static const double STD_EPS = 1e-6; /* verl's; also what makes a group of equal scores divide by something */

size_t adv_scratch(int64_t n, int64_t tokens) {
    return arena_round((size_t)n * 8) * 4 + arena_round((size_t)tokens * 8);
}

typedef struct {
    int64_t n;
    const uint64_t *member; /* [n] low 32 bits: the answer */
    double mean, std, weighted;
} Group;

static int64_t who(const Group *g, int64_t j) { return (int64_t)(g->member[j] & 0xFFFFFFFFu); }

static void group_stats(Group *g, const double *score, const double *len) {
    double sum = 0, dev = 0, num = 0, den = 0;
    for (int64_t j = 0; j < g->n; j++) {
        int64_t i = who(g, j);
        sum += score[i], num += len[i] * score[i], den += len[i];
    }
    double mean = sum / (double)g->n;
    for (int64_t j = 0; j < g->n; j++) {
        double x = score[who(g, j)] - mean;
        dev += x * x;
    }
    g->mean = g->n > 1 ? mean : 0;
    g->std = g->n > 1 ? sqrt(dev / (double)(g->n - 1)) : 1;
    g->weighted = g->n > 1 && den > 0 ? num / den : 0;
}

static bool best_only(double *out, const Group *g, const double *score, bool norm, int32_t id, Err *err) {
    if (g->n < 2)
        return err_set(err,
                       "grpo_passk compares the best answer with the second: group %d has only one answer; set "
                       "rollout.n to 2 or more",
                       id);
    int64_t best = 0;
    double second = -INFINITY;
    for (int64_t j = 1; j < g->n; j++)
        if (score[who(g, j)] > score[who(g, best)]) best = j;
    for (int64_t j = 0; j < g->n; j++) {
        out[who(g, j)] = 0;
        if (j != best) second = fmax(second, score[who(g, j)]);
    }
    out[who(g, best)] = (score[who(g, best)] - second) / (norm ? g->std + STD_EPS : 1);
    return true;
}

static bool group_advantage(double *out, const AdvConf *c, const Group *g, const double *score, double gpg_alpha,
                            int32_t id, Err *err) {
    if (c->kind == ADV_PASSK) return best_only(out, g, score, c->norm_by_std, id, err);
    double base = g->mean, scale = 1;
    switch (c->kind) {
    case ADV_GRPO: scale = c->norm_by_std ? 1 / (g->std + STD_EPS) : 1; break;
    case ADV_RLOO_VECTORIZED: scale = g->n > 1 ? (double)g->n / (double)(g->n - 1) : 0; break;
    case ADV_GDPO: scale = c->norm_by_std ? 1 / (g->std + STD_EPS) : 1; break;
    case ADV_RLOO: scale = g->n > 1 ? (double)g->n / (double)(g->n - 1) : 1; break;
    case ADV_OPO: base = g->weighted; break;
    case ADV_GPG: scale = gpg_alpha; break;
    default: break;
    }
    for (int64_t j = 0; j < g->n; j++) out[who(g, j)] = (score[who(g, j)] - base) * scale;
    return true;
}

/* Of a group's answers, those that end a rollout; the others get their number from them afterwards. */
static int64_t last_pieces(uint64_t *member, int64_t n, const int32_t *rollout) {
    int64_t kept = 0;
    for (int64_t j = 0; j < n; j++) {
        bool last = true;
        for (int64_t k = j + 1; k < n && last; k++) last = rollout[(uint32_t)member[j]] != rollout[(uint32_t)member[k]];
        if (!last) continue;
        uint64_t one = member[j];
        for (int64_t k = j; k > kept; k--) member[k] = member[k - 1];
        member[kept++] = one;
    }
    return kept;
}
static void share_pieces(double *out, const uint64_t *member, int64_t kept, int64_t n, const int32_t *rollout) {
    for (int64_t j = kept; j < n; j++)
        for (int64_t k = 0; k < kept; k++)
            if (rollout[(uint32_t)member[j]] == rollout[(uint32_t)member[k]])
                out[(uint32_t)member[j]] = out[(uint32_t)member[k]];
}

/* score [n] of the answers' own rewards, or of a component. */
static int64_t read_scores(double *score, const AdvIn *in, const float *component) {
    int64_t scored = 0;
    for (int64_t i = 0; i < in->a.n; i++) {
        score[i] = component ? component[i] : 0;
        for (int64_t t = in->a.at[i]; !component && t < in->a.end[i]; t++) score[i] += in->reward[t];
        scored += score[i] != 0;
    }
    return scored;
}

/* One number per answer: out [n]. */
static bool by_group(double *out, const AdvConf *c, const AdvIn *in, const float *component, Arena *tmp, Err *err) {
    size_t mark = arena_mark(tmp);
    int64_t n = in->a.n;
    double *score = arena_push(tmp, (size_t)n * 8), *len = arena_push(tmp, (size_t)n * 8);
    uint64_t *order = arena_push(tmp, (size_t)n * 8);
    int64_t scored = read_scores(score, in, component);
    for (int64_t i = 0; i < n; i++) {
        len[i] = (double)answer_len(&in->a, i);
        order[i] = (uint64_t)(uint32_t)in->group[i] << 32 | (uint64_t)i;
    }
    sort_u64(order, (size_t)n);
    double alpha = (double)n / (double)(scored > 1 ? scored : 1);
    for (int64_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && order[to] >> 32 == order[from] >> 32;) to++;
        Group g = { .n = in->rollout ? last_pieces(order + from, to - from, in->rollout) : to - from,
                    .member = order + from };
        group_stats(&g, score, len);
        TRY(group_advantage(out, c, &g, score, alpha, (int32_t)(order[from] >> 32), err));
        if (in->rollout) share_pieces(out, order + from, g.n, to - from, in->rollout);
    }
    arena_pop(tmp, mark);
    return true;
}

/* x [T] -> (x - mean) / sqrt(var + 1e-8) over all unmasked tokens of the batch, var
 * unbiased; a lone token becomes 0. */
static void whiten(float *out, const double *x, const Answers *a) {
    double sum = 0, dev = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t t = a->at[i]; t < a->end[i]; t++)
            if (token_on(a, t)) sum += x[t], count++;
    double mean = sum / (double)(count > 0 ? count : 1);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t t = a->at[i]; t < a->end[i]; t++)
            if (token_on(a, t)) dev += (x[t] - mean) * (x[t] - mean);
    double scale = 1 / sqrt(dev / (double)(count > 1 ? count - 1 : 1) + 1e-8);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t t = a->at[i]; t < a->end[i]; t++) out[t] = token_on(a, t) ? (float)((x[t] - mean) * scale) : 0;
}

/* R_t = r_t + gamma R_{t+1}, t+1 the next token that the model wrote. */
static void reward_to_go(double *out, const AdvIn *in, double gamma) {
    for (int64_t i = 0; i < in->a.n; i++) {
        double run = 0;
        for (int64_t t = in->a.end[i] - 1; t >= in->a.at[i]; t--) {
            bool on = token_on(&in->a, t);
            if (on) run = in->reward[t] + gamma * run;
            out[t] = on ? run : 0;
        }
    }
}

/* Over a masked token the next value and the running advantage are carried unchanged. */
static void gae(double *adv, const AdvIn *in, double gamma, double lam) {
    for (int64_t i = 0; i < in->a.n; i++) {
        double next = 0, run = 0;
        for (int64_t t = in->a.end[i] - 1; t >= in->a.at[i]; t--) {
            adv[t] = 0;
            if (!token_on(&in->a, t)) continue;
            run = in->reward[t] + gamma * next - in->value[t] + gamma * lam * run;
            next = in->value[t];
            adv[t] = run;
        }
    }
}

/* Each component by itself, weighed into the tokens. */
static bool gdpo(double *tok, double *each, const AdvConf *c, const AdvIn *in, Arena *tmp, Err *err) {
    const Answers *a = &in->a;
    for (int k = 0; k == 0 || k < in->components; k++) {
        double w = in->components && in->weight ? in->weight[k] : 1;
        TRY(by_group(each, c, in, in->components ? in->component[k] : NULL, tmp, err));
        for (int64_t i = 0; i < a->n; i++)
            for (int64_t t = a->at[i]; t < a->end[i]; t++)
                tok[t] = (k ? tok[t] : 0) + (token_on(a, t) ? w * each[i] : 0);
    }
    return true;
}

static void spread(double *tok, const double *per_answer, const Answers *a) {
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t t = a->at[i]; t < a->end[i]; t++) tok[t] = token_on(a, t) ? per_answer[i] : 0;
}

bool advantage(float *adv, float *returns, const AdvConf *c, const AdvIn *in, Arena *tmp, Err *err) {
    size_t mark = arena_mark(tmp);
    const Answers *a = &in->a;
    double *tok = arena_push(tmp, (size_t)answers_end(a) * 8);
    bool ok = true,
         white = c->kind == ADV_RPP || c->kind == ADV_RPP_BASELINE || c->kind == ADV_GAE || c->kind == ADV_GDPO;
    CHECK(c->kind != ADV_OTB && c->kind != ADV_TIR_OTB, "a baseline by tokens is baseline.c's");

    if (c->kind == ADV_RPP) reward_to_go(tok, in, c->gamma);
    else if (c->kind == ADV_REMAX) reward_to_go(tok, in, 1);
    else if (c->kind == ADV_GAE) gae(tok, in, c->gamma, c->lam);
    else {
        double *each = arena_push(tmp, (size_t)a->n * 8);
        if (c->kind == ADV_GDPO) ok = gdpo(tok, each, c, in, tmp, err);
        else if ((ok = by_group(each, c, in, NULL, tmp, err))) spread(tok, each, a);
    }
    if (ok && white) whiten(adv, tok, a);
    for (int64_t i = 0; ok && i < a->n; i++)
        for (int64_t t = a->at[i]; t < a->end[i]; t++) {
            bool on = token_on(a, t);
            if (!white) adv[t] = (float)(on && c->kind == ADV_REMAX ? tok[t] - in->baseline[i] : tok[t]);
            if (!returns) continue;
            returns[t] = c->kind == ADV_GAE                                   ? on ? (float)(tok[t] + in->value[t]) : 0
                         : c->kind == ADV_RPP_BASELINE || c->kind == ADV_GDPO ? adv[t]
                                                                              : (float)tok[t];
        }
    arena_pop(tmp, mark);
    return ok;
}
