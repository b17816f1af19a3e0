/* run.h - one run of reinforcement learning: a job (job.h) with a sampler, a reference where the KL asks
 * for one, a validation, and the phases of a step.  cmd/verb_train.c is the algorithm; what a phase does in
 * detail is in the sources of this folder. */
#ifndef STEP_RUN_H
#define STEP_RUN_H

#include "rollout/rollouts.h"
#include "step/difference.h"
#include "step/evaluate.h"
#include "step/flat.h"
#include "step/job.h"
#include "step/slowest.h"
#include "step/val_metrics.h"
#include "sync/sync.h"
#include "train/moved.h"

/* From questions to answers that are judged. */
typedef struct {
    Shard      shard;                      /* the ranks' grid for it, which may be another than the trainer's */
    Groups     groups;
    Replicas   replicas;
    Model      model;                      /* the trainer's weights so cut: its memory where
                                            * both cuts are one, else brought by sync */
    Sync       sync, sync_adapter;                /* sync_adapter: where an adapter is trained */
    size_t     sync_buffer;                       /* its bytes, where ranks are only counted ... */
    bool       sync_counted;                      /* ... which was done */
    Engine    *engine;
    int        at_once;                    /* answers */
    const Tok *tok;
    Rewards   *rewards;
    SampleOpts opts;
    TurnConf  *turns;                      /* answers of several turns, with tools; or NULL */
    Rollouts   roll, greedy;               /* greedy: ReMax's baselines */
    uint16_t  *times_drawn;                /* dynamic sampling: [questions] in this step; or NULL */
} Sampler;

typedef struct { bool on; Model model; Policy policy; } Reference;

typedef struct {
    Evaluator   eval;
    ValMetrics *metrics;
    int64_t     answers;                          /* of the validation under way, in the blocks that are done */
} Validation;

typedef enum {
    PHASE_GEN,
    PHASE_REWARD,
    PHASE_REF,
    PHASE_ADV,
    PHASE_EXACT,
    PHASE_UPDATE,
    PHASE_SYNC,
    PHASE_TEST,
    PHASE_SAVE,
    PHASES
} StepPhase;

/* The step under way. */
typedef struct {
    bool      cut;                          /* told to stop before the first update: it is given up, to be done again */
    bool      moved;                        /* an update has moved the weights: it is finished, come what may */
    bool      spent;                        /* dynamic sampling found nothing more to learn from: the run ends, saved */
    KlControl kl_before;                    /* as the step found it */
    double    t_step, t_phase, seconds[PHASES];
    double    t_waited, own[PHASES];        /* seconds without those that it waited for other ranks */
    int64_t   decoded;                      /* steps of this rank's engine */
    double    flops, flops_verl;            /* that its updates took, counted exactly and verl's way */
} Now;

typedef struct {                                  /* over the steps done, for the summary */
    double seconds[PHASES], prompt, answer, answers, steps, flops, full;
    double compared;                              /* steps that compared log-probs */
    Exact  exact;
} Tally;

typedef struct {
    Job        job;
    Sampler    sampler;
    ImageStats     image_stats;
    Reference  ref;
    Validation val;
    Flat       flat;
    KlControl  kl;
    Now        now;
    SlowSeen   slow;                  /* a rank that was, in the step before */
    Difference differs;               /* of the sampler's log-probs from the trainer's */
    Moved     *moved;                 /* masters as they were when the run began */
    Tally      sum;
    double     peak_flops;                        /* of all ranks */
    struct { bool unjudged, equal, flat, room, rounded; Usual grad; } warned;  /* what was said of the step before: it
                                                                                * is not said again */
} Run;

bool run_open (Run *r, Err *err);                 /* r->job.c is loaded; opens everything,
                                                   * resumes if there is something to resume */
void run_close(Run *r);
bool run_profiled(Run *r, Err *err);              /* trainer.profile, where it is asked for, is written */
void run_release(Run *r);                         /* gives back what training took: the model, its engine, its states */
bool run_save (Run *r, Err *err);                 /* everything done so far */

enum { MAX_BATCHES = 65536 };                     /* of a step's dynamic sampling: so often a question may come again */
/* The phases of a step.  Told to stop, those before the first update give the step up
 * (now.cut; the next ones do nothing). */
void step_begin   (Run *r);
bool step_rollout (Run *r, Err *err);             /* prompts, answers, scores */
bool step_reference(Run *r, Err *err);            /* the reference's log-probs, where the KL asks for them */
bool step_advantage(Run *r, Err *err);
bool step_update  (Run *r, Err *err);
bool step_sync    (Run *r, Err *err);             /* the sampler has the trainer's weights */
void step_end     (Run *r);                       /* the step counts: a save from here on is behind it */
bool step_measure (Run *r, Err *err);             /* what is known of the step's answers; samples to read */
bool step_validate(Run *r, Err *err);             /* told to stop: given up, job.untold */
bool step_report  (Run *r, Err *err);             /* the step's line, unless it is untold */
bool step_catch_up(Run *r, Err *err);             /* of a run that goes on: what was left untold */

/* Between the sources of this folder. */
void step_given(void *user, const Given *g);      /* PolicyConf.given of a Run: what differs is noted */
/* Before the step's first update: where something differs, all ranks have it in RUN/difference, and stop (false) or
 * warn.  Collective. */
bool step_same(Run *r, Err *err);
bool run_sync(Run *r, SyncStats *st, Err *err);   /* step_sync without its word in the metrics */
void phase_begin(Run *r, const char *name);
void phase_end  (Run *r, StepPhase p);
bool give_up    (Run *r);                         /* told to stop, and the weights have not moved:
                                                   * as if the step had never begun; true */
void flatten(Run *r);                             /* where the step's answers lie in the columns; their rewards */
Answers answers_of(const Run *r);
/* Of n answers from 'from' on the sequences that have an answer at all, in order, and their
 * columns (or NULL); how many. */
int  with_answer(TrainSeq *out, float **column, const Flat *f, int from, int n);
double overlong (const Config *c, int n);   /* DAPO's punishment of an answer of n tokens that comes near the longest */
bool run_samples(Run *r, Err *err);         /* the step's answers that are shown, to samples.jsonl */
void run_failed_samples(Run *r, int from);  /* answers that could not be judged, from that
                                             * prompt on, to samples.jsonl */

#endif
