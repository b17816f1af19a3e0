/* syncplan.h - what moving the weights from one cut to another takes, by arithmetic on the parameter table: for each tensor
 * the slice a rank has and the slice it needs; what it lacks comes from the nearest rank that has it.  sync_plan counts the moves,
 * src/sync makes them. */
#ifndef PLAN_SYNCPLAN_H
#define PLAN_SYNCPLAN_H

#include "arch/grid.h"
#include "plan/plan.h"

/* A grid as sync-plan writes it: experts that no ep is said for are cut by tp like everything else (engines without expert
 * parallelism: etp = tp).  A grid smaller than the cluster is repeated. */
bool syncgrid_parse(GridShape *g, const char *text, const char *split, int gpus, const ModelDesc *m, Err *err);
int  syncgrid_ranks(const char *text);               /* tp * pp * cp * dp as written, or ep * etp * pp if more; 0: not understood */

typedef struct {
    int    ranks;
    double weights;                       /* the model's bytes */
    double held, needed;                  /* most on one rank: trainer's slice, engine's slice */
    double moved, moved_far;              /* all ranks; of it between nodes */
    double received, received_far, sent;  /* most of one rank */
    double kept;                          /* needed and already there, all ranks */
    double buffer;                        /* sync_buffer's */
    double seconds, seconds_whole;        /* this plan; every rank rebuilds every tensor */
    double tensors;
} SyncPlan;

/* ---- the moves */
typedef struct { const ModelDesc *m; const GridShape *from, *to; int ranks, node; } SyncPair;     /* node: ranks of a machine */

/* Of one row of the table: experts [e0,e1) and units [a0,a1) of the dimension that is cut (columns where that is BY_COLS, else rows).
 * from == to: the rank has it in its other cut. */
typedef struct { int from, to; int64_t e0, e1, a0, a1; } SyncMove;
typedef struct { const ParamDesc *p; int layer, first, n; } SyncRow;        /* its moves: move[first .. first+n-1] */

/* Everything that rank 'me' gives, gets or copies: rows in the order of the table, in each the receivers ascending.  That order is
 * the same on all ranks.  A rank whose two slices of a row are equal keeps it where it is: there is no move for it. */
typedef struct { SyncRow *row; SyncMove *move; int rows, moves; } SyncList;
void sync_list(SyncList *out, const SyncPair *s, int me, Mem *mem);

/* Bytes of the buffer that slices in several pieces go through: two of the largest slice that something of is received, at most the setting,
 * at least what SYNC_SLOTS messages each way need. */
enum { SYNC_BUFFER = 256 << 20, SYNC_SLOTS = 4 };
double sync_buffer(double largest, double most);
/* element: bytes of a matrix's; vectors have 4.  buffer: the most that a transfer may take. */
void sync_plan(SyncPlan *out, const ModelSum *s, const GridShape *from, const GridShape *to, const Cluster *c, double element,
               double buffer);

#endif
