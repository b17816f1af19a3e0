/* slowest.h - which rank is slow: what each took of its own in a phase, without what it waited for others. */
#ifndef STEP_SLOWEST_H
#define STEP_SLOWEST_H

#include "comm/ranks.h"
#include "run/metrics.h"
#include "step/run_dir.h"

/* A phase by its metrics: the slowest rank's own seconds, its number, the median of all. */
typedef struct { const char *phase, *slowest, *rank, *median; } SlowPhase;
#define SLOW_PHASE(phase, key) \
    { phase, "timing_s/slowest_" key, "timing_s/slowest_" key "_rank", "timing_s/median_" key }
enum { SLOW_PHASES = 16 };

typedef struct { double own, work; } SlowPart;         /* seconds; what they are compared by: a rank with twice the work
                                                        * may take twice as long, and one with none is not compared */
typedef struct { int rank; bool there, told; } SlowSeen;               /* of the step before; {0} at first */

/* Of the n phases of a step that took so many seconds: metrics of all that rank 0 was in; and a line where a rank took
 * at least 1.3 times the median and a twentieth of the step more than it, the second step in a row: said once, until it
 * is over.  One gathering; nothing on one rank.  Collective. */
void slowest_tell(const Ranks *r, Metrics *m, RunDir *d, SlowSeen *seen, const SlowPhase *phase, const SlowPart *part,
                  int n, int64_t step, double seconds);

#endif
