/* shape.h - what happens around the advantage: DAPO's dynamic sampling, and the importance weights of data whose
 * log-probs come from older weights.  (DAPO's over-long penalty is a score's: task/reward.h.) */
#ifndef ALGO_SHAPE_H
#define ALGO_SHAPE_H

#include "algo/algo.h"

/* Dynamic sampling: keep[i] = 1 if the answers of i's group differ in metric, or the group is one answer.  Returns the
 * number of groups kept. */
size_t  filter_scratch(int64_t n);
int64_t filter_groups(uint8_t *keep, const int32_t *group, const float *metric, int64_t n, Arena *tmp);

/* weight[t] = min(cap, exp(train - rollout)), of the token or of the whole answer; masked tokens get 0. */
typedef struct { double sum, sum_sq, max, min, above; int64_t count; } TisSum;       /* start from {0} */
void tis_weights(float *weight, TisSum *sum, TisKind kind, double cap, const Answers *a, const float *train_lp,
                 const float *rollout_lp);

#endif
