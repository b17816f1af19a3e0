/* replicas.h - ranks that sample: who has the same requests, who steps together, and the one queue of requests that
 * all of them share.
 *
 * A replica is a rank, or the ranks of tp that hold the model together.  Replicas whose experts are spread over
 * several of them form a unit, which steps together.  A replica begins with a part of the requests that it can run
 * at once; of the rest it is given more as it finishes, so that none is idle while others have some that were not
 * begun.  Who answers a request has no effect on the answer (engine.h). */
#ifndef ROLLOUT_REPLICAS_H
#define ROLLOUT_REPLICAS_H

#include "comm/world.h"
#include "engine/engine.h"

typedef struct {
    Comm all, tp, unit;             /* the world; this rank's replica; the ranks that step together */
    int  n, at;                     /* replicas, and which one this is */
} Replicas;

/* groups: of that grid, whose dp counts all replicas. */
Replicas replicas_of(const World *w, const GridShape *g, const Groups *groups);
static inline Replicas replicas_one(void) { return (Replicas){ comm_self(), comm_self(), comm_self(), 1, 0 }; }

typedef struct Queue Queue;
/* Requests 0 .. n-1, of which a replica runs 'room' at once.  Calls are collective in a unit, in the order of
 * Feed.join. */
Queue *queue_open(const Replicas *r, int n, int room, Mem *mem);
int    queue_next(Queue *q);                               /* the next one of this replica's; -1: none now */
/* For Feed.join.  under_way: of its requests, those that are not answered; stop: this rank wants to cut. */
Join   queue_join(Queue *q, bool busy, int under_way, bool stop);
void   queue_close(Queue *q);                              /* when every replica has come so far */

#endif
