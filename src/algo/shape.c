/* shape.c - what happens around the advantage: groups that are left out, importance weights. */
#include "algo/shape.h"
#include "base/mathx.h"
#include "base/sort.h"

size_t filter_scratch(int64_t n) { return arena_round((size_t)n * 8); }

int64_t filter_groups(uint8_t *keep, const int32_t *group, const float *metric, int64_t n, Arena *tmp) {
    size_t mark = arena_mark(tmp);
    uint64_t *order = arena_push(tmp, (size_t)n * 8);
    for (int64_t i = 0; i < n; i++) order[i] = (uint64_t)(uint32_t)group[i] << 32 | (uint64_t)i;
    sort_u64(order, (size_t)n);
    int64_t kept = 0;
    for (int64_t from = 0, to; from < n; from = to) {
        float first = metric[order[from] & 0xFFFFFFFFu];
        bool differ = false;
        for (to = from; to < n && order[to] >> 32 == order[from] >> 32; to++)
            differ |= metric[order[to] & 0xFFFFFFFFu] != first;
        differ |= to - from == 1;
        for (int64_t j = from; j < to; j++) keep[order[j] & 0xFFFFFFFFu] = differ;
        kept += differ;
    }
    arena_pop(tmp, mark);
    return kept;
}

static double bounded_exp(double x) { return mx_exp(x < -20 ? -20 : x > 20 ? 20 : x); }

void tis_weights(float *weight, TisSum *sum, TisKind kind, double cap, const Answers *a, const float *train_lp,
                 const float *rollout_lp) {
    for (int64_t i = 0; i < a->n; i++) {
        double whole = 0;
        for (int64_t t = a->at[i]; kind == TIS_SEQUENCE && t < a->end[i]; t++)
            if (token_on(a, t)) whole += (double)train_lp[t] - (double)rollout_lp[t];
        for (int64_t t = a->at[i]; t < a->end[i]; t++) {
            weight[t] = 0;
            if (!token_on(a, t)) continue;
            double w = kind == TIS_OFF
                           ? 1
                           : bounded_exp(kind == TIS_SEQUENCE ? whole : (double)train_lp[t] - (double)rollout_lp[t]);
            bool above = w > cap;
            if (above) w = cap;
            weight[t] = (float)w;
            if (!sum->count || w > sum->max) sum->max = w;
            if (!sum->count || w < sum->min) sum->min = w;
            sum->sum += w, sum->sum_sq += w * w, sum->above += above, sum->count++;
        }
    }
}
