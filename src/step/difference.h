/* difference.h - where the sampler's log-prob of a token is not the trainer's at the same weights (E3): what was seen
 * of it in a step, and the folder RUN/difference, from which `hone verify --blame RUN` finds the op without the run.
 *
 *   difference.json    which token of which answer, both values; step, rank, sampling, device, grid
 *   micro.safetensors  the micro-batch: tokens, both log-probs, what was compared
 *   config.yaml        the run's resolved configuration
 *   model/             the weights that gave both, with its tokenizer */
#ifndef STEP_DIFFERENCE_H
#define STEP_DIFFERENCE_H

#include "train/policy.h"

enum { EXIT_DIFFERENCE = 3 };

typedef struct {
    int64_t   tokens, own;            /* that differ in this step, of all ranks; own: this rank's, not told yet */
    bool      stopped, warned;        /* the run ends of it; one of its steps has said so */
    /* The first micro-batch with one, as it was given to this rank. */
    bool      there, kept;
    TrainSeq *seq;                    /* [n]: tokens stay the step's */
    float   **lp;                     /* [n]: the trainer's */
    int       n, which;               /* which: the sequence; of it: */
    int64_t   token;                  /* of the answer */
    Mem       mem;
} Difference;

#endif
