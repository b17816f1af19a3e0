/* baseline.h - a baseline for every place of a group's answers, that of least variance (verl's optimal_token_baseline).
 *
 * G_t is the reward to go, W_t the sum so far of 1 - 2 p_j + sum over the vocabulary of p^2 (times the importance
 * weight's square, where there is one): what the gradient's length would be.  At place t a group's baseline is sum G
 * W / sum W over the answers that have a token there.  Places are counted from the answer's first token, with tokens
 * that the model did not write; tir (tool-integrated): by its own tokens alone.  A group of one has baseline 0. */
#ifndef ALGO_BASELINE_H
#define ALGO_BASELINE_H

#include "algo/algo.h"

typedef struct {
    Answers        a;
    const float   *reward;           /* [T] */
    const int32_t *group;            /* [n] */
    const float   *lp, *sum_p2;      /* [T] log-prob of the token; sum over the vocabulary of p^2 */
    const float   *weight;           /* [T] importance weights, or NULL */
    bool           tir, zero_tail;   /* zero_tail: where the longest answer of a group is alone its baseline is 0 */
} BaselineIn;

size_t baseline_scratch(int64_t n, int64_t tokens);
/* adv, returns [T]; masked tokens are 0. */
void token_baseline(float *adv, float *returns, const BaselineIn *in, Arena *tmp);

#endif
