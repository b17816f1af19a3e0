/* score.c - the rules that every built-in scorer ends and begins with. */
#include "task/score.h"

void score_set(RewardResult *out, double score, bool right) {
    out->score = score;
    out->acc = right;
}

bool score_truth(const RewardSample *s, Span *truth, RewardResult *out) {
    if (s->ground_truth_is_json) {
        reward_fail(out, "ground_truth is not a string, which this scorer needs");
        return false;
    }
    *truth = (Span){ s->ground_truth, s->ground_truth_n };
    return true;
}
