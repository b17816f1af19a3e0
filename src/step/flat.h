/* flat.h - a step's answers side by side. */
#ifndef STEP_FLAT_H
#define STEP_FLAT_H

#include "train/policy.h"

/* What the methods read and write of the step's answers, in columns: answer i owns tokens at[i] .. end[i]-1 of each,
 * and of the sampler's log-probs, which stay where the sampler's answers lie (Rollouts.lp). */
typedef struct {
    int64_t *at, *end;                            /* [answers] */
    int32_t *group;                               /* [answers] */
    float   *ref, *reward, *adv, *ret, *weight;   /* [tokens] */
    float   *now;                                /* [tokens] the trainer's own log-probs, when algo.tis asks for them */
    uint8_t *pick;
    double  *score;                              /* [answers] with shaping */
    float   *baseline, *metric;                  /* [answers] */
    uint8_t *keep;
    int32_t *order;                              /* [groups] */
    TrainSeq *seq;                               /* [answers] */
    unsigned char *rows;                         /* of one answer, as they are written down (run/token_rows.h) */
    float   **column;                            /* [answers] */
    Arena    scratch;                            /* of the methods */
} Flat;

void flat_open(Flat *f, int answers, int max_answer, Mem *mem);

#endif
