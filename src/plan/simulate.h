/* simulate.h - one step played event by event: every engine with its own answers, every replica's pipeline lists with
 * its own micro-batches, all-to-alls that wait for the slowest of their group, stragglers.  What the closed formulas of
 * time.c are checked against, and what they cannot see. */
#ifndef PLAN_SIMULATE_H
#define PLAN_SIMULATE_H

#include "plan/plan.h"

typedef struct {
    uint64_t seed;
    double   jitter;              /* standard deviation of a GPU's speed; 0.01 */
    double   slow_share, slow_by; /* share of GPUs that are slower, by how much: 0.001, 0.15 */
} SimOpts;

typedef struct {
    double seconds[PH_COUNT], step;
    double engine_mean, engine_slowest;       /* seconds: of rollout */
    double replica_mean, replica_slowest;     /* seconds: of one mini-batch's pipeline */
    double busy;                              /* share of the update in which a stage computes */
    long   events;
} SimResult;

void plan_simulate(const Plan *p, const SimOpts *o, SimResult *out);

#endif
