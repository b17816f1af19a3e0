/* run.h - one training run: its settings, its parts, its directory, and the phases of a step.
 * verb_train.c is the algorithm; what a phase does in detail is in run_*.c. */
#ifndef CMD_RUN_H
#define CMD_RUN_H

#include "cmd/config.h"
#include "cmd/evaluate.h"
#include "cmd/metrics.h"
#include "cmd/open.h"
#include "cmd/progress.h"
#include "cmd/run_dir.h"
#include "cmd/val_metrics.h"
#include "rollout/rollouts.h"
#include "task/prompt.h"
#include "train/checkpoint.h"

/* The step's answers side by side, as the methods read them: answer i owns tokens at[i] .. at[i+1]-1 of each column. */
typedef struct {
    int64_t *at;                                  /* [answers+1] */
    int32_t *group;                               /* [answers] */
    float   *old, *ref, *reward, *adv, *ret, *weight;   /* [tokens] */
    float   *now;                                 /* [tokens] the trainer's own log-probs, when algo.tis asks for them */
    uint8_t *pick;
    double  *score;                               /* [answers] with shaping */
    float   *baseline, *metric;                   /* [answers] */
    uint8_t *keep;
    int32_t *order;                               /* [groups] */
    TrainSeq *seq;                                /* [answers] */
    float   **column;                             /* [answers] */
} Flat;

typedef struct {
    Config      c;
    Mem         mem;
    Ranks       ranks;
    Opened      o;                                /* the model that is trained; its device */
    Model       ref_model;
    Policy      policy, ref;
    bool        has_ref;
    Engine     *engine;
    Prompter   *prompter;
    const Tok  *tok;
    Dataset    *train, *val;
    DataStream *stream;
    Rewards    *rewards;
    Rollouts    roll, greedy;                     /* greedy: ReMax's baselines */
    Evaluator   eval;
    int64_t     validated;                        /* answers of the validation under way, in the blocks that are done */
    ValMetrics *val_metrics;
    Flat        flat;
    uint16_t   *came;                             /* dynamic sampling: [questions] how often each came in this step; or NULL */
    SampleOpts  opts;
    KlControl   kl;
    LrConf      lr;
    Checkpoints *saves;
    RunDir     *dir;
    Progress   *progress;
    Arena       host;                             /* scratch of the methods */
    Metrics     metrics;
    struct { bool unjudged, equal, flat, room; Usual grad; } warned;      /* what was said of the step before: it is not said again */
    int64_t     step, steps, start_step, saved;   /* saved: the step of the newest checkpoint, 0: none */
    bool        cut;                              /* told to stop before the step's first update: it is given up, to be done again */
    bool        moved;                            /* an update of this step has moved the weights: it is finished, come what may */
    bool        spent;                            /* dynamic sampling found nothing more to learn from: the run ends, saved */
    bool        untold;                           /* the step is done, its validation was cut: metrics wait to be told with it */
    KlControl   kl_before;                        /* as the step found it */
    double      t_saved;                          /* when the newest checkpoint was made, or the run began */
    DataCursor  cursor;                           /* where the next step's prompts begin: a step that was cut is done again */
    size_t      planned;                          /* bytes, of all needs; on a GPU, of the host's */
    size_t      planned_gpu;                      /* of the GPU's, taken as one block at the start */
    double      t_step, t_phase, peak_flops;
    double      flops, flops_verl;                /* that this step's updates took, counted exactly and verl's way */
    double      seconds[8];                       /* by Phase */
    struct {                                      /* over the steps done, for the summary */
        double seconds[8], prompt, answer, answers, steps, flops, full;
        double compared;                          /* steps that compared log-probs */
        Exact  exact;
    } sum;
} Run;

typedef enum { PHASE_GEN, PHASE_REWARD, PHASE_REF, PHASE_ADV, PHASE_EXACT, PHASE_UPDATE, PHASE_TEST, PHASE_SAVE, PHASES } Phase;

bool run_open (Run *r, Err *err);                 /* r->c is loaded; opens everything, resumes if there is something to resume */
void run_close(Run *r);
bool run_profiled(Run *r, Err *err);              /* trainer.profile, where it is asked for, is written */
void run_release(Run *r);                         /* gives back what training took: the model, its engine, its states */
DataLong run_long_prompts(const Config *c);        /* what happens to a prompt above data.max_prompt_length */
bool run_wanted(const Run *r);                    /* false after SIGTERM, SIGINT, SIGUSR1 or SIGHUP on any rank: collective */
bool run_agree(const Run *r, bool ok, Err *err);  /* ranks_agree */

enum { MAX_BATCHES = 65536 };                     /* of a step's dynamic sampling: so often a question may come again */
/* The phases of a step.  Told to stop, those before the first update give the step up (r->cut; the next ones do nothing). */
void step_begin   (Run *r);
bool step_rollout (Run *r, Err *err);             /* prompts, answers, scores */
bool step_reference(Run *r, Err *err);            /* the reference's log-probs, where the KL asks for them */
bool step_advantage(Run *r, Err *err);
bool step_update  (Run *r, Err *err);
void step_end     (Run *r);                       /* the step counts: a save from here on is behind it */
bool step_measure (Run *r, Err *err);             /* what is known of the step's answers; samples to read */
bool step_validate(Run *r, Err *err);             /* told to stop: given up, r->untold */
bool step_report  (Run *r, Err *err);             /* the step's line, unless it is untold */
bool step_catch_up(Run *r, Err *err);             /* of a run that goes on: what was left untold */
void run_failed_samples(Run *r, int from);        /* answers that could not be judged, from that prompt on, to samples.jsonl */
bool run_save     (Run *r, Err *err);             /* everything done so far */
void run_summary  (Run *r);

void phase_begin(Run *r, Phase p, const char *name);
void phase_end  (Run *r, Phase p);

#endif
