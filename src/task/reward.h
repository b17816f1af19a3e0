/* reward.h - answer -> score.  The scorers built in (verl's by its data_source names, and math_exact), a user's own (a
 * command or a shared library), and a pool that scores on host threads while answers are still being generated.
 *
 * Nothing here trusts the text: it is never evaluated, every scorer ends, and an outside scorer has a deadline. */
#ifndef TASK_REWARD_H
#define TASK_REWARD_H

#include "base/base.h"

/* What is judged.  The texts are UTF-8 and belong to the caller. */
typedef struct {
    const char *data_source;                            /* ends with 0 */
    const char *solution;     size_t solution_n;
    const char *ground_truth; size_t ground_truth_n;
    bool        ground_truth_is_json;                   /* it was not a string: the text is JSON, for outside scorers */
    const char *extra_info;   size_t extra_info_n;      /* JSON text; NULL: none */
} RewardSample;

/* The verdict.  failed: no verdict could be had (deadline, crash, wrong kind of ground truth, a score beyond
 * REWARD_MOST); then score is the scorer's lowest, 0 where that is not known, and reason says why.
 * extra: further members as JSON without braces ("\"acc\":true,\"pred\":\"5\""), empty if none. */
typedef struct {
    double score;
    bool   failed;
    double acc;                        /* how right: 1 right, 0 wrong, any number of an outside scorer; NAN: not said */
    uint64_t vote;                     /* of the answer read out of the text: equal answers, equal votes; 0: not said */
    bool   told;                       /* failed by the scorer's own word on this very sample */
    char   reason[240];
    Buf    extra;
} RewardResult;

#define REWARD_MOST 1e9                                   /* the largest score, either sign, that is taken for one */

void reward_result_free(RewardResult *r);
void reward_fail(RewardResult *r, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* ---- Built-in scorers: thread-safe, without state. */
typedef struct Reward {
    const char *name, *summary;
    double      lowest;                             /* what a wrong answer earns: what cannot be judged earns no more */
    void      (*score)(const RewardSample *s, RewardResult *out);      /* out is zeroed, acc NAN */
} Reward;

const Reward *reward_find(const char *source);            /* by data_source or by a scorer's own name; NULL: unknown */
/* the same; the error lists what is known */
bool          reward_need(const Reward **out, const char *source, Err *err);
void          reward_sources(Buf *out, const Reward *r);  /* "openai/gsm8k, ..."; r NULL: of all
                                                           * scorers, and their names */
const Reward *reward_at(size_t i);                        /* the i-th scorer; NULL behind the last */
void          reward_score(const Reward *r, const RewardSample *s, RewardResult *out);

/* DAPO's soft punishment of over-long answers, to be added to the score: 0 up to max_tokens - buffer, then linearly
 * down to -factor at max_tokens.  buffer <= 0 turns it off. */
double reward_overlong(int64_t tokens, int64_t max_tokens, int64_t buffer, double factor);

/* ---- The pool: samples in, verdicts out in the order they are made, on threads of its own, so that scoring overlaps
 * generation.  A wait always ends: built-in scorers are bounded, outside ones have timeout_s a sample, counted from
 * when a thread takes it up, so n samples take at most n / threads * timeout_s.  One thread submits and collects. */
typedef struct {
    const char *scorer;                /* a scorer for all samples; NULL: by data_source */
    const char *command, *library, *python;      /* an outside scorer instead; at most one of the four is set */
    const char *python_function, *python_args;   /* of the file 'python': NULL is
                                                  * compute_score; a JSON object, or NULL */
    const Buf  *python_text;           /* what stands in that file, read already; or NULL */
    double      timeout_s;             /* of an outside scorer, a sample; 0: 10 s */
} RewardOptions;

typedef struct { int64_t done, failed, restarts, stuck; } RewardCounts;   /* restarts of a command, stuck library
                                                                           * calls */

typedef struct Rewards Rewards;
Rewards     *rewards_open(const RewardOptions *o, int threads, Err *err);    /* a command runs in 'threads' processes */
/* copies; false: unknown source */
bool         rewards_submit(Rewards *p, int64_t ticket, const RewardSample *s, Err *err);
/* waits for one; false: none in flight.
   out is reused, free it at the end */
bool         rewards_collect(Rewards *p, int64_t *ticket, RewardResult *out);
/* likewise for at most so long:
                                                                                    1: one, 0: none yet, -1: none in
                                                                                    flight */
int          rewards_poll(Rewards *p, int64_t *ticket, RewardResult *out, double wait_s);
void         rewards_give_up(Rewards *p);              /* nobody wants the scores any more: samples that wait fail at
                                                          once, a command's at hand too; collect them still */
bool         rewards_lowest_known(const Rewards *p);   /* false: an outside scorer, whose failed samples
                                                          score 0 though a wrong one may score less */
RewardCounts rewards_counts(Rewards *p);
void         rewards_close(Rewards *p);                                          /* drops what is not judged yet */

#endif
