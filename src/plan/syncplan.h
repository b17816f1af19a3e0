/* syncplan.h - what moving the weights from one cut to another takes, by arithmetic on the parameter table: for each
 * tensor the slice a rank has and the slice it needs; what it lacks comes from the nearest rank that has it. 
 * sync_plan counts the moves, src/sync makes them. */
#ifndef PLAN_SYNCPLAN_H
#define PLAN_SYNCPLAN_H

#include "cut/grid.h"
#include "plan/plan.h"
#include "cut/syncmoves.h"

/* A grid as sync-plan writes it: experts that no ep is said for are cut by tp like everything else (engines without
 * expert parallelism: etp = tp).  A grid smaller than the cluster is repeated. */
bool syncgrid_parse(GridShape *g, const char *text, const char *split, int gpus, const ModelDesc *m, Err *err);
int  syncgrid_ranks(const char *text);   /* tp * pp * cp * dp as written, or ep * etp * pp if more; 0: not understood */

typedef struct {
    int    ranks;
    double weights;                       /* the model's bytes */
    double held, needed;                  /* most on one rank: trainer's slice, engine's slice */
    double moved, moved_far;              /* all ranks; of it between nodes */
    double received, received_far, sent;  /* most of one rank */
    double kept;                          /* needed and already there, all ranks */
    double buffer;                        /* sync_buffer's */
    double seconds, seconds_whole;        /* this plan, by the bytes of a rank; every rank rebuilds every tensor */
    double ordered, ordered_far;          /* seconds in the order in which it goes, and the busiest ports' bytes between
                                           * nodes, turn by turn: sync_ports */
    double tensors;
} SyncPlan;

/* element: bytes of a matrix's; vectors have 4.  buffer: the most that a transfer may take. */
void sync_plan(SyncPlan *out, const ModelSum *s, const GridShape *from, const GridShape *to, const Cluster *c,
               double element, double buffer);

/* In the order of cut/syncorder.c: seconds, and the bytes between nodes of each turn's busiest port. */
double sync_ports(const SyncPair *s, SyncPieces pieces, double nic, double nvlink, double *far);

#endif
