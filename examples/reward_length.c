/* reward_length.c - a scorer as a shared library: 1 for an answer that names the ground truth and has at most
 * extra_info's "limit" bytes (200 if it does not say), half for one that is longer, 0 for one that does not name it.
 *
 *     cc -shared -fPIC -I include -o reward_length.so examples/reward_length.c
 *     hone grade --library ./reward_length.so --in answers.jsonl --out scores.jsonl */
#include "hone_reward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hone_reward(const HoneRewardIn *in, HoneRewardOut *out) {
    if (in->ground_truth_is_json || !in->ground_truth_n) {
        snprintf(out->reason, sizeof out->reason, "this scorer wants a string as ground truth");
        return 1;
    }
    const char *limit = strstr(in->extra_info, "\"limit\":");
    size_t most = limit ? strtoul(limit + 8, NULL, 10) : 200;
    int named = strstr(in->solution, in->ground_truth) != NULL;
    out->score = !named ? 0 : in->solution_n <= most ? 1 : 0.5;
    out->acc = named;
    return 0;
}
