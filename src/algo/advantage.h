/* advantage.h - from rewards to how much better than expected each token was.
 *
 * s_i is the sum of an answer's token rewards; a group is the answers to one question.
 *   grpo                (s - mean) / (std + 1e-6), std unbiased          (DeepSeekMath)    dr_grpo: s - mean
 *   rloo                s - mean of the others                            opo: s - length-weighted mean
 *   gpg                 (s - mean) * answers / answers with a score       grpo_passk: best - second, the best alone
 *   reinforce_plus_plus discounted reward to go, whitened over all tokens; baseline form: s - mean, whitened
 *   remax               reward to go - the greedy answer's reward         gae: with a critic's values, whitened
 *   gdpo                grpo of each component of the score, their weighted sum whitened over all tokens (2601.05242)
 *   optimal_token_baseline, tir_...: baseline.h
 * A group of one has baseline 0 and std 1 (so grpo gives s), as in verl; rloo_vectorized is rloo with 0 for it. */
#ifndef ALGO_ADVANTAGE_H
#define ALGO_ADVANTAGE_H

#include "algo/algo.h"

typedef struct {
    AdvKind kind;
    bool    norm_by_std;             /* grpo, grpo_passk: divide by the group's std */
    double  gamma, lam;              /* reinforce_plus_plus, gae; 1: no discount */
} AdvConf;

typedef struct {
    Answers        a;
    const float   *reward;           /* [T] */
    const int32_t *group;            /* [n] any numbers; equal means the same question */
    const float   *baseline;         /* [n] remax: reward of the greedy answer */
    const float   *value;            /* [T] gae */
    const int32_t *rollout;          /* [n] or NULL; answers of a group with equal numbers are pieces of one rollout: it
                                        counts once, with the score of its last piece, and all have its advantage */
    int            components;       /* gdpo; 0: the reward is the one */
    const float *const *component;   /* [components][n] */
    const double  *weight;           /* [components] or NULL: 1 */
} AdvIn;

/* adv, returns [T] (returns may be NULL).  grpo_passk wants at least two answers per group:
 * the error names the group. */
size_t adv_scratch(int64_t n, int64_t tokens);        /* bytes pushed on tmp at most */
bool   advantage(float *adv, float *returns, const AdvConf *c, const AdvIn *in, Arena *tmp, Err *err);

#endif
