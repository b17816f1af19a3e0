/* schedule.h - pipeline schedules as lists: what each stage runs, in order.  1F1B, and its interleaved form when a
 * stage holds several chunks of layers.  Pure: the simulation plays them, the trainer runs them
 * (train/pipeline.c). */
#ifndef CUT_SCHEDULE_H
#define CUT_SCHEDULE_H

#include "base/base.h"

typedef struct { int micro, chunk; bool backward; } Turn;

/* The list of one stage: 2 * micro * chunks turns.  With chunks > 1, micro must be a multiple of stages. */
int  schedule_turns(int micro, int chunks);
void schedule_fill(Turn *out, int stage, int stages, int micro, int chunks);

/* Plays all lists.  seconds(user, stage, turn) is what a turn takes, hop what handing on to the next stage takes.
 * ends, if not NULL: [stages * turns], when each turn of each list ends.  Returns when the last one ends. */
typedef double TurnSeconds(void *user, int stage, const Turn *t);
double schedule_play(int stages, int micro, int chunks, double hop, TurnSeconds *seconds, void *user, double *ends);

#endif
