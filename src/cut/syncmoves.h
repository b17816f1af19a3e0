/* syncmoves.h - the moves that bring weights from one cut to another: sync_plan counts them, src/sync makes them. */
#ifndef CUT_SYNCMOVES_H
#define CUT_SYNCMOVES_H

#include "cut/grid.h"

/* node: ranks of a machine */
typedef struct { const ModelDesc *m; const GridShape *from, *to; int ranks, node; } SyncPair;

/* Of one row of the table: experts [e0,e1) and units [a0,a1) of the dimension that is cut (columns where that is
 * BY_COLS, else rows). from == to: the rank has it in its other cut. */
typedef struct { int from, to; int64_t e0, e1, a0, a1; } SyncMove;
typedef struct { const ParamDesc *p; int layer, first, n; } SyncRow;        /* its moves: move[first .. first+n-1] */

/* Everything that rank 'me' gives, gets or copies: rows in the order of the table, in each the receivers ascending. 
 * That order is the same on all ranks.  A rank whose two slices of a row are equal keeps it where it is: there is no
 * move for it. */
typedef struct { SyncRow *row; SyncMove *move; int rows, moves; } SyncList;
void sync_list(SyncList *out, const SyncPair *s, int me, Mem *mem);

/* Bytes of the buffer that slices in several pieces go through: two of the largest slice that something of is
 * received, at most the setting, at least what SYNC_SLOTS messages each way need. */
enum { SYNC_BUFFER = 256 << 20, SYNC_SLOTS = 4 };
double sync_buffer(double largest, double most);

#endif
