/* progress.h - what a person sees while a run goes on: one line per step, and on a terminal a bar within the step that
 * says which phase it is in and how long the run will still take. */
#ifndef STEP_PROGRESS_H
#define STEP_PROGRESS_H

#include "run/metrics.h"
#include "step/run_dir.h"

typedef struct Progress Progress;

Progress *progress_open(RunDir *d, Mem *mem);
void progress_step (Progress *p, int64_t step, int64_t steps);             /* a step begins, so many are done */
void progress_between(Progress *p, int64_t step, int64_t steps);           /* what follows (a validation) belongs to
                                                                            * no step under way */
void progress_phase(Progress *p, const char *name);
void progress_part (Progress *p, double done, int64_t tokens);             /* share of the phase that is done, 0 to 1 */
void progress_line (Progress *p, int64_t step, int64_t steps, const Metrics *m);   /* the step is done */

#endif
