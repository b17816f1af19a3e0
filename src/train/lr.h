/* lr.h - the learning rate of a step as a pure function of its number, so a resumed run needs no schedule state.
 * step counts from 0 and all updates of one step share its rate.  Warm-up rises as
 * (step+1)/warmup: the first step already learns, step warmup-1 has the full rate. */
#ifndef TRAIN_LR_H
#define TRAIN_LR_H

#include "algo/algo.h"

typedef enum { LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_WSD } LrKind;
extern const Name lr_names[];

typedef struct {
    LrKind  kind;
    double  lr, min_ratio;            /* decays to lr * min_ratio at step `total` */
    int64_t warmup, total, decay;     /* steps; decay: wsd only, how many at the end fall (linearly) */
} LrConf;
double lr_at(const LrConf *c, int64_t step);

#endif
