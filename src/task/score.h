/* score.h - the built-in scorers. */
#ifndef TASK_SCORE_H
#define TASK_SCORE_H

#include "base/hash.h"
#include "base/span.h"
#include "task/reward.h"

void score_gsm8k(const RewardSample *s, RewardResult *out);
void score_gsm8k_flexible(const RewardSample *s, RewardResult *out);
void score_math_reward(const RewardSample *s, RewardResult *out);
void score_math_dapo(const RewardSample *s, RewardResult *out);
void score_math_dapo_boxed(const RewardSample *s, RewardResult *out);
void score_math_dapo_strict_box(const RewardSample *s, RewardResult *out);
void score_geo3k(const RewardSample *s, RewardResult *out);
void score_math_exact(const RewardSample *s, RewardResult *out);
void score_math_exact_flexible(const RewardSample *s, RewardResult *out);

/* What was read out of the text, for majority votes; nothing found is an opinion too. */
static inline void score_vote(RewardResult *out, Span answer, char skip) {
    uint64_t h = HASH_START;
    for (size_t i = 0; i < answer.n; i++)
        if (answer.at[i] != skip) h = hash_step(h, (unsigned char)answer.at[i]);
    out->vote = h | 1;
}

/* The rule that ends every scorer: right or wrong, and the score each earns. */
void score_set(RewardResult *out, double score, bool right);
bool score_truth(const RewardSample *s, Span *truth, RewardResult *out);  /* false, and out failed, unless it is a
                                                                           * string */

#endif
