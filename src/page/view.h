/* view.h - one run as a page sees it: its files read as they grow, whether it is alive, what of it wants eyes.
 * Nothing is ever written, and its lock is never taken: a run does not notice who looks at it. */
#ifndef PAGE_VIEW_H
#define PAGE_VIEW_H

#include "page/answers.h"
#include "page/columns.h"
#include "run/alerts.h"
#include "text/tok.h"

typedef enum { RUN_EMPTY, RUN_TRAINING, RUN_DONE, RUN_STOPPED, RUN_FAILED, RUN_GONE } RunState;
extern const char *const run_state_names[];      /* "empty", "training", "done", "stopped", "failed", "gone" */

enum { ALERTS_KEPT = 500 };
typedef struct {
    Mem       mem;
    const char *dir, *name;
    Follow    metrics_file, samples_file;
    Columns   metrics;
    Answers   answers;
    Alerts    rules;
    int       watch_at[WATCHES];        /* columns of what the rules read; -1: not there yet */
    struct { Alert *at; size_t n, cap; } alerts;        /* the newest */
    int64_t   alerts_in_all;
    double    grown;                    /* clock: when a step was read last, or the watching began */
    bool      was_behind;               /* what is read now was there before: its time tells nothing */
    RunState  state;
    bool      elsewhere;                /* it trains on another machine, as its files say */
    int64_t   steps;                    /* in all; 0: not known */
    const char *why;                    /* of its end; "" */
    Buf       why_text;
    double    looked_long;              /* clock: of what is looked at seldom */
    AlertHost host;
    int64_t   versions;                 /* changes with whatever a page would show */
    Tok      *tok;
    int64_t   tok_of;                   /* 0: not looked for; 1: there is none; 2: it is open */
    const char *alert_command;          /* for what only a watcher sees; or NULL */
    AlertCommands commands;
} View;

void view_open (View *w, const char *dir);
void view_close(View *w);
void view_look (View *w);                             /* what is new: once a second */
bool view_work (View *w, double seconds);             /* reads on for so long; is there more? */
double view_read(const View *w);                      /* share of the files that is read */
double view_usual_step(const View *w);                /* the median of the last steps' seconds; NAN */
const Tok *view_tok(View *w);                         /* NULL: the run's tokenizer is not to be had */
bool view_file(const View *w, const char *name, size_t most, Buf *out);       /* of the run's folder, its beginning */

#endif
