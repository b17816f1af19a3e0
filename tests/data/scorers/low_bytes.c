/* low_bytes.c - a scorer whose verdicts differ from answer to answer even of a model that knows nothing: the share of
 * bytes below 0x60; right when there are more of them than not. */
#include "hone_reward.h"

int hone_reward(const HoneRewardIn *in, HoneRewardOut *out) {
    size_t low = 0;
    for (size_t i = 0; i < in->solution_n; i++) low += (unsigned char)in->solution[i] < 0x60;
    out->score = in->solution_n ? (double)low / (double)in->solution_n : 0;
    out->acc = out->score > 0.5;
    return 0;
}
