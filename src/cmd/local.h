/* local.h - what a run on this machine will take: its arenas to the byte, and its time.
 *
 * Memory is counted by the code that runs, on a device that computes nothing.  Time is measured with random weights at
 * the run's own shapes: a few micro-batches and decode steps of a small model; of a larger one only slices of one and
 * of two layers, what a layer adds being the difference. */
#ifndef CMD_LOCAL_H
#define CMD_LOCAL_H

#include "step/needs.h"
#include "plan/plan.h"
#include "rollout/rollouts.h"

typedef struct {
    EngineConf engine;
    PolicyConf policy;
    int        threads;           /* of a rank */
    double     slow;              /* more threads than cores: so many times slower is each */
    Shard      shard, sampler;    /* of the first rank: its part of the model in training, and where it samples */
    Workload   work;
    size_t     pixels;            /* of a question's pictures */
    int64_t    save_buffer;       /* trainer.save_buffer */
    double   (*now)(void);        /* the clock: clock_now, or a processor's where others share it */
} LocalWork;

/* Would `hone train` take that workload at all?  If not, its limit. */
bool local_possible(const ModelDesc *m, const Plan *p, Err *err);

/* A run's settings for a workload: as `hone train` makes them from its configuration. */
LocalWork local_work(const Plan *p, int threads);      /* threads: of all ranks together */

int local_needs(const ModelDesc *m, const LocalWork *w, Need out[MOST_NEEDS]); /* how many; their sum is the process */

typedef struct {
    double train, score;          /* seconds a token: forward and backward; forward with the head */
    double fixed, row;            /* seconds of a decode step: fixed + row * batch */
    double adam;                  /* seconds a parameter */
    double took;                  /* seconds the measurement took */
} LocalRates;
bool local_measure(const ModelDesc *m, const LocalWork *w, LocalRates *out, Err *err);

/* Puts measured rates in place of the formulas' phases; what ranks say to each other stays the formulas'. */
void local_apply(Plan *p, const LocalWork *w, const LocalRates *r);

#endif
