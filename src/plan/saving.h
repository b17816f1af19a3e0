/* saving.h - what checkpoints of a planned run take: bytes, seconds of a save and of a resume, how long updates wait
 * for them, and how long before its end a job must be told.  By the rate of the cluster's storage. */
#ifndef PLAN_SAVING_H
#define PLAN_SAVING_H

#include "plan/plan.h"

typedef struct {
    double weights, averages;         /* bytes of a checkpoint, float32 weights */
    double save, resume;              /* seconds; resume: with the model's own files */
    double copy;                      /* of a node into a buffer that holds everything */
    double wait;                      /* an update waits so long at each save */
    double stop;                      /* from the signal on: an update that is done first, then a save */
    double staging;                   /* bytes of that buffer on the fullest node */
    bool   room;                      /* which has room for it, also where it is not asked for */
} Saving;

/* Of a plan that was made, of this program.  Without cluster.storage seconds are 0. */
Saving plan_saving(const Plan *p);
void   report_saving(const Plan *p, Buf *out);       /* lines of text; nothing for other stacks */
void   json_saving(const Plan *p, Buf *out);         /* "checkpoint":{...}, */
/* A job's signal that comes too late, as plan_faults says it. */
int    saving_faults(const Plan *p, Buf *out);
/* Where updates would wait for saves and nodes have room for a copy, the plan has it (trainer.save_buffer=0). */
void   plan_stage_saves(Plan *p);

#endif
