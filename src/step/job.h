/* job.h - what every training has, whether it learns from its own answers (run.h) or from given ones (`hone
 * sft`): settings, ranks, a model with its trainer, data with a place in it, a directory with checkpoints,
 * and the count of its steps. */
#ifndef STEP_JOB_H
#define STEP_JOB_H

#include "config/use.h"
#include "plan/machine.h"
#include "step/needs.h"
#include "step/progress.h"
#include "step/watched.h"
#include "task/prompt.h"
#include "train/checkpoint.h"

typedef struct {
    Config       c;
    Mem          mem;
    Ranks        ranks;
    Opened       o;                      /* the model that is trained; its device */
    ModelDesc    adapter;                /* train.lora's */
    Policy       policy;
    LrConf       lr;
    Prompter    *prompter;
    Dataset     *train, *val;            /* val: or NULL */
    DataStream  *stream;
    DataCursor   cursor;                 /* where the next step's data begin: a step that was cut is done again */
    Carried      carried;                /* of the model's folder, for checkpoints; the first rank's */
    Member       member[MEMBERS];        /* what a checkpoint has beside state.json: whoever opens a trainee adds it */
    int          members;
    Checkpoints *saves;
    RunDir      *dir;
    Identity     found;                  /* files and data, as state.json keeps them (found.h) */
    Progress    *progress;
    Watched      watched;
    Metrics      metrics;
    int64_t      step, steps, saved;     /* done, in all; saved: the step of the newest checkpoint, 0: none */
    double       t_saved;                /* when that was made, or the run began */
    bool         untold;                 /* the step is done, its validation was cut: metrics wait to be told with it */
    int          counted;                /* so many ranks are only counted: nothing is taken or written; 0: a run */
    bool         listed;                 /* ... each by itself, not one of each kind (count.c) */
    Cluster      cluster;                /* ... and held against these GPUs; gpus 0: against nothing */
    const Policy *beside;                /* a reference model's, or NULL */
    const Params *sampled_adapter;       /* and the adapter's, or NULL */
    const Params *sampled;               /* the weights that answers are sampled with, or NULL: none of their own */
    Arena        block;                  /* the policy's, where the weights lie in it */
    Need         need[MOST_NEEDS];       /* of this rank */
    int          needs;
    size_t       planned, planned_gpu;   /* bytes, of all needs; on a GPU: of the host's, and
                                          * of the GPU's, taken as one block */
} Job;

/* Opening, in this order; j->c is loaded.  Collective. */
bool job_ranks(Job *j, Err *err);                      /* those that were launched, or j->counted that are none */
bool job_open(Job *j, Err *err);                       /* description, device, grid, trainer.leaves */
bool job_time(Job *j, const char **note, Err *err);    /* that the chat template prints: into j->c; note: to be told */
bool job_open_dir(Job *j, Err *err);                   /* and its lock; job_time before it */
void job_open_stream(Job *j, int64_t per_epoch);       /* of j->train; so many steps take all of it: counts the run's */
bool job_fits(Job *j, const RunShape *s, Err *err);    /* all of it, or nothing is taken */
/* Prints the memory of the counted ranks; shape: of the rank that j->ranks.shard is.  False: more than j->cluster
 * has. */
typedef RunShape JobShape(void *user);
bool job_count(Job *j, JobShape *shape, void *user, Err *err);
typedef struct { char text[1024]; } RankLine;
RankLine rank_line(const Shard *s, int rank, const Need *need, int n);     /* that and memory.txt's */
bool job_open_weights(Job *j, const RunShape *s, Err *err);        /* and dev.tmp */
bool job_open_policy(Job *j, const PolicyConf *p, Err *err);       /* weights are there: masters too */
bool job_tell_memory(const Job *j, Err *err);          /* memory.txt: taken.c.  Collective */
void job_tell_places(Job *j);                          /* places.c: cores and memory of the ranks.  Collective */
bool job_open_saves(Job *j, Err *err);                             /* of j->policy; what was counted is then
                                                                    * touched and told in memory.txt */
bool job_end(Job *j, bool ok, Err *err);               /* the last save is on the disk, or why not; !ok: err is noted */
void job_close(Job *j);                                            /* also of one that is zeroed, or half open */

/* Going on from the newest checkpoint, where there is one.  more reads what only this kind of
 * training keeps in state.json. */
typedef bool JobMore(void *user, const Json *state, const char *checkpoint, Err *err);
bool job_resume(Job *j, JobMore *more, void *user, Err *err);    /* more: or NULL */
void job_begin(Job *j);                                          /* signals, clock, progress: the first step may come */

/* Everything done so far; more: members of state.json, each behind a comma.  Nothing where
 * the newest checkpoint says it already. */
bool job_save(Job *j, const char *more, Err *err);
bool job_save_due(const Job *j);                              /* trainer.save_every, trainer.save_minutes; collective */
bool job_tell(Job *j, Err *err);                              /* the step's metrics, and its line on the screen */

/* After SIGTERM, SIGINT, SIGUSR1 or SIGHUP (unless it was ignored at the start: nohup), from
 * job_begin on: finish what cannot be cut, save, end. */
void stop_listen_early(void);                                      /* stop.c: to USR1, then to all of them */
void stop_listen(void);
bool stop_asked(void);                                             /* of this rank */
static inline bool job_wanted(const Job *j) { return !ranks_any(&j->ranks, stop_asked()); }             /* collective */
static inline bool job_agree(const Job *j, bool ok, Err *err) { return ranks_agree(&j->ranks, ok, err); }

#endif
