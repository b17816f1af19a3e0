/* val_metrics.h - validation under verl's names: for every data_source and every variable (reward, and acc where the
 * scorer says it), over the n answers to each question and averaged over questions:
 *
 *   mean@n, std@n            of the n answers
 *   best@k/mean, worst@k/mean    largest and smallest of k answers drawn with replacement, k = 2, 4, ... and n
 *   maj@n/mean               the value of the first answer that says what most of the n say
 *
 * acc (reward where there is none) at k = n goes to val-core/SOURCE/..., all else to val-aux/SOURCE/...  verl draws a
 * thousand times for best and worst; here it is the expectation itself.  Names and room are taken once. */
#ifndef STEP_VAL_METRICS_H
#define STEP_VAL_METRICS_H

#include "run/metrics.h"
#include "rollout/rollouts.h"

typedef struct ValMetrics ValMetrics;
ValMetrics *val_metrics_open(const Dataset *data, int n, Mem *mem);
void val_metrics_clear(ValMetrics *v);
void val_metrics_add(ValMetrics *v, const char *source, const Rollout *answers);        /* [n], to one question */
void val_metrics_put(ValMetrics *v, Metrics *m);

#endif
