/* hone_reward.h - the one function that a shared library exports to be a scorer of hone, version 1.
 *
 *     cc -shared -fPIC -I include -o my_reward.so my_reward.c
 *     hone grade --library ./my_reward.so --in answers.jsonl --out scores.jsonl
 *
 * The contract:
 *   - hone calls hone_reward from several threads at once; it must not depend on which, and guards its own state.
 *   - What `in` points to is only valid during the call, ends with a 0 besides having a
 *     length, and is not to be changed.
 *   - It returns 0 and a score of at most 1e9, either sign, or anything else if it cannot judge: the sample then counts
 *     as failed, with `reason` as the reason, and in training earns the lowest score of the step, 0 at most.
 *   - It must return.  A call that is still running at the deadline is given up: its sample is marked as failed, its
 *     thread is left behind and another one is started, until too many are stuck.  A crash in it is a crash of hone:
 *     a scorer that may crash belongs into a process of its own (--command).
 *   - It is loaded once, with dlopen, and stays loaded.
 *
 * The version is part of the symbol's name, so that a library made for another version is refused and not misread. */
#ifndef HONE_REWARD_H
#define HONE_REWARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HONE_REWARD_VERSION 1
#define hone_reward hone_reward_v1

typedef struct {
    const char *data_source;    size_t data_source_n;
    const char *solution;       size_t solution_n;       /* the model's answer, UTF-8 */
    const char *ground_truth;   size_t ground_truth_n;   /* JSON text if ground_truth_is_json, else the string itself */
    const char *extra_info;     size_t extra_info_n;     /* JSON text, "" if there is none */
    int32_t     ground_truth_is_json;
} HoneRewardIn;

typedef struct {
    double  score;                                       /* 0 when called */
    int32_t acc;                                         /* 1 right, 0 wrong, -1 (when called): not said */
    char    reason[120];                                 /* why it failed, ends with 0 */
} HoneRewardOut;

int hone_reward(const HoneRewardIn *in, HoneRewardOut *out);

#ifdef __cplusplus
}
#endif
#endif
