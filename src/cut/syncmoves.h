/* syncmoves.h - the moves that bring weights from one cut to another: sync_plan counts them, src/sync makes them. */
#ifndef CUT_SYNCMOVES_H
#define CUT_SYNCMOVES_H

#include "cut/grid.h"

/* node: ranks of a machine */
typedef struct { const ModelDesc *m; const GridShape *from, *to; int ranks, node; } SyncPair;

/* Of one row of the table: experts [e0,e1) and units [a0,a1) of the dimension that is cut (columns where that is
 * BY_COLS, else rows). from == to: the rank has it in its other cut. */
typedef struct { int from, to; int64_t e0, e1, a0, a1; } SyncMove;
typedef struct {
    const ParamDesc *p;
    int     layer, first, n;            /* its moves: move[first .. first+n-1] */
    int64_t unit, experts, units;       /* elements of a unit, of one expert; no move of any rank's has more of those */
} SyncRow;

/* Everything that rank 'me' gives, gets or copies (-1: that any rank does): rows in the order of the table, in each the
 * receivers ascending.  A rank whose two slices of a row are equal keeps it where it is: there is no move for it.
 * Rows of the giving stage s are of_stage[first[s] .. first[s+1]-1]. */
typedef struct { SyncRow *row; SyncMove *move; int rows, moves, stages, *of_stage, *first; } SyncList;
void sync_list(SyncList *out, const SyncPair *s, int me, Mem *mem);

/* ---- The order in which moves are made: syncorder.c -------------------------------------------------------------- */
/* A move is n runs of so many elements in both ranks' memory, and goes as messages.  slot, alone: the most bytes of one
 * that is copied through the buffer, of one that goes from where it lies; element: bytes of a matrix's.  All ranks must
 * have the same of each. */
typedef struct { int64_t slot, alone; int element; } SyncPieces;
typedef struct { int64_t runs, width; int element; } SyncRuns;
typedef struct { int64_t run, runs, at, n; } SyncPiece;     /* of runs run .. run+runs-1, elements at .. at+n-1 */
SyncPieces sync_pieces_of(double buffer, int element, bool device);
SyncRuns   sync_runs  (const SyncPieces *p, const SyncRow *row, const SyncMove *m);
int64_t    sync_pieces(const SyncPieces *p, SyncRuns r);
SyncPiece  sync_piece (const SyncPieces *p, SyncRuns r, int64_t k);

/* Turn by turn, in each the stages in order: the row of which it is now, and the number k of its moves' messages that
 * have their turn.  NULL: all are through. */
typedef struct {
    const SyncList *list;
    SyncPieces pieces;
    int     next;
    int64_t turn;
    struct { int at; int64_t begin; } stage[MAX_CHUNKS];
} SyncTurns;
SyncTurns sync_turns(const SyncList *l, SyncPieces pieces);
const SyncRow *sync_next(SyncTurns *t, int64_t *k);

/* Bytes of the buffer that slices in several pieces go through: two of the largest slice that something of is
 * received, at most the setting, at least what SYNC_SLOTS messages each way need. */
enum { SYNC_BUFFER = 256 << 20, SYNC_SLOTS = 4 };
double sync_buffer(double largest, double most);
/* ... of all ranks: bytes of the largest slice of one tensor of which a rank receives something, an expert's alone.
 * element: bytes of a matrix's; vectors have 4. */
double sync_largest(const SyncPair *s, double element);

#endif
