/* each.c - a scorer that gives every other answer another score, whatever it says: a hash of
 * its bytes, 0 to 1.  No group of answers is silent. */
#include "hone_reward.h"

int hone_reward(const HoneRewardIn *in, HoneRewardOut *out) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < in->solution_n; i++) h = (h ^ (unsigned char)in->solution[i]) * 0x100000001B3u;
    out->score = (double)(h >> 11) * 0x1p-53;
    out->acc = out->score > 0.5;
    return 0;
}
