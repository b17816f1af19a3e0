/* near_byte.c - how near the answer's first byte comes to the right answer's: 1 for the same, 0 from 64 away. */
#include "hone_reward.h"

int hone_reward(const HoneRewardIn *in, HoneRewardOut *out) {
    int far = in->solution_n ? (unsigned char)in->solution[0] - (unsigned char)in->ground_truth[0] : 64;
    far = far < 0 ? -far : far;
    out->score = far < 64 ? 1 - far / 64.0 : 0;
    out->acc = far == 0;
    return 0;
}
