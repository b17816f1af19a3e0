/* run_predict.h - what `hone plan` says a step of this run takes, to be told beside what it took. */
#ifndef CMD_RUN_PREDICT_H
#define CMD_RUN_PREDICT_H

#include "train/policy.h"

typedef struct {
    double     prompts, answers, mini, epochs;               /* of a step */
    double     prompt_mean, prompt_max, mean, max;           /* tokens, as they were and at most */
    double     computed;                                     /* share of the updates' work: silent answers take little or none */
    bool       reference;
    PolicyConf policy;
    int        threads;
} PredictIn;
typedef struct { double rollout, reference, update; } Predicted;       /* seconds; update with the optimizer */

/* Times a few micro-batches and decode steps of a model like this one.  False for a model too large to do that in passing. */
bool run_predict(const ModelDesc *m, const PredictIn *in, Predicted *out);

#endif
