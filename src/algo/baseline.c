/* baseline.c - the reward to go less a baseline of each place, group by group. */
#include "algo/baseline.h"
#include "base/mathx.h"
#include "base/sort.h"

static const double EPS = 1e-8; /* verl's */

size_t baseline_scratch(int64_t n, int64_t tokens) {
    return arena_round((size_t)n * 8) + 3 * arena_round((size_t)tokens * 8);
}

/* w [T]: W_t of every token of every answer; returns [T]: G_t. */
static void path_weights(double *w, float *returns, const BaselineIn *in) {
    for (int64_t i = 0; i < in->a.n; i++) {
        double sum = 0, go = 0;
        for (int64_t t = in->a.at[i]; t < in->a.end[i]; t++) {
            double is = in->weight ? in->weight[t] : 1;
            if (token_on(&in->a, t)) sum += (1 - 2 * mx_exp(in->lp[t]) + in->sum_p2[t]) * is * is;
            w[t] = sum;
        }
        for (int64_t t = in->a.end[i] - 1; t >= in->a.at[i]; t--) {
            if (token_on(&in->a, t)) go += in->reward[t];
            returns[t] = token_on(&in->a, t) ? (float)go : 0;
        }
    }
}

/* The two largest numbers of tokens of a group, and the answer that alone has the largest (-1: several). */
static int64_t longest_alone(int64_t *second, const Answers *a, const uint64_t *member, int64_t n) {
    int64_t most = -1, who = -1;
    *second = -1;
    for (int64_t j = 0; j < n; j++) {
        int64_t i = (uint32_t)member[j], len = answer_len(a, i);
        if (len > most) *second = most, most = len, who = i;
        else if (len > *second) *second = len;
    }
    return most > *second ? who : -1;
}

static void one_group(float *adv, const float *returns, const double *w, const BaselineIn *in, const uint64_t *member,
                      int64_t n, double *num, double *den) {
    const Answers *a = &in->a;
    int64_t second, alone = longest_alone(&second, a, member, n), places = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t i = (uint32_t)member[j], at = 0;
        for (int64_t t = a->at[i]; t < a->end[i]; t++) {
            bool on = token_on(a, t);
            int64_t p = in->tir ? at : t - a->at[i];
            at += on;
            if (!on) continue;
            while (places <= p) num[places] = den[places] = 0, places++;
            num[p] += returns[t] * w[t], den[p] += w[t];
        }
    }
    for (int64_t j = 0; j < n; j++) {
        int64_t i = (uint32_t)member[j], at = 0;
        for (int64_t t = a->at[i]; t < a->end[i]; t++) {
            adv[t] = 0;
            if (!token_on(a, t)) continue;
            int64_t p = in->tir ? at++ : t - a->at[i];
            double base = n > 1 && !(in->zero_tail && i == alone && p >= second) ? num[p] / (den[p] + EPS) : 0;
            adv[t] = (float)(returns[t] - base);
        }
    }
}

void token_baseline(float *adv, float *returns, const BaselineIn *in, Arena *tmp) {
    size_t mark = arena_mark(tmp);
    int64_t n = in->a.n, tokens = answers_end(&in->a), m = 0;
    uint64_t *order = arena_push(tmp, (size_t)n * 8);
    double *w = arena_push(tmp, (size_t)tokens * 8);
    double *num = arena_push(tmp, (size_t)tokens * 8), *den = arena_push(tmp, (size_t)tokens * 8);
    path_weights(w, returns, in);
    for (int64_t i = 0; i < n; i++) /* verl's tir leaves out answers without a token */
        if (!in->tir || answer_len(&in->a, i)) order[m++] = (uint64_t)(uint32_t)in->group[i] << 32 | (uint64_t)i;
        else
            for (int64_t t = in->a.at[i]; t < in->a.end[i]; t++) adv[t] = 0;
    sort_u64(order, (size_t)m);
    for (int64_t from = 0, to; from < m; from = to) {
        for (to = from + 1; to < m && order[to] >> 32 == order[from] >> 32;) to++;
        one_group(adv, returns, w, in, order + from, to - from, num, den);
    }
    arena_pop(tmp, mark);
}
