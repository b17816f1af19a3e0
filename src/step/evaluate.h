/* evaluate.h - how good a model is at the questions of a data set: k answers to each, scored; mean@k, pass@k, maj@k.
 *
 *   mean@n  the mean score of an answer, n answers to each question
 *   pass@k  the chance that at least one of k answers is right (score above 0; where the scorer says acc, 1 or more,
 *           as in verl's main_eval), for k = 1, 2, 4, ... and n: the share of the choices of k among the n answers that
 *           hold a right one, which is unbiased
 *   maj@n   the score of the answer that most of the n agree on (where the scorer says what it read out of the text)
 * Each with a 95 % interval over questions. */
#ifndef STEP_EVALUATE_H
#define STEP_EVALUATE_H

#include "rollout/rollouts.h"
#include "task/prompt.h"

typedef struct { double value, low, high; } Estimate;          /* low, high: 95 % */
typedef struct {
    int64_t  questions, answers, failed, broken;           /* broken: of the failed, by numbers that were not finite */
    int      k;
    Estimate mean, pass, maj, acc;                         /* pass: of all k */
    struct { int k; Estimate e; } pass_at[18];             /* k = 1, 2, 4, ... below all, then all */
    int      n_pass;
    bool     has_maj, has_acc;
    double   length;                                       /* mean tokens of an answer */
    double   seconds;
    bool     cut;                                          /* told to stop half way: nothing else here means anything */
} EvalResult;

typedef struct {                                            /* room for a block of questions, taken once */
    Rollouts  roll;
    double   *score, *acc, *passed, *majority, *pass;       /* [questions] per question; passed: how many; pass: room */
    int64_t   max_questions;
} Evaluator;

int evaluator_block(int64_t questions); /* of so many, those whose prompts and answers lie in memory at once */
void evaluator_open(Evaluator *e, int64_t questions, int k, int max_prompt, int max_answer, Mem *mem);

typedef struct {
    RolloutRun   run;
    Prompter    *prompter;
    const Dataset *data;
    int          max_prompt;
    DataLong     long_prompts;                           /* LEFT, RIGHT, MIDDLE cut a longer one; else it is an error */
    void       (*each)(void *user, const Rollouts *r);   /* after each block, or NULL: samples for people to read */
    void        *user;
} EvalRun;
/* run.go_on, where there is one, is asked between blocks, too. */
bool evaluate(EvalResult *out, Evaluator *e, const EvalRun *run, Err *err);

#endif
