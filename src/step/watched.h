/* watched.h - what a run does for those who look at it: it says in status.json that it lives and how it ended, holds
 * its numbers against the rules (run/alerts.h), and starts a page (trainer.page).  Of the first rank; none of it
 * is ever a reason to stop. */
#ifndef STEP_WATCHED_H
#define STEP_WATCHED_H

#include "run/alerts.h"
#include "step/run_dir.h"

typedef struct {
    bool          on;
    const Config *c;
    RunDir       *dir;
    Alerts        rules;
    AlertCommands commands;
    int64_t       steps, checkpoint, step;      /* checkpoint: bytes of one, 0: none is made */
    int           page;                         /* its process; 0: none */
} Watched;

void watched_begin(Watched *w, const Config *c, RunDir *dir, int64_t step, int64_t steps, int64_t checkpoint);
void watched_step (Watched *w, int64_t step, const Metrics *m);
void watched_end  (Watched *w, bool ok, const char *why);       /* why: of !ok */

#endif
