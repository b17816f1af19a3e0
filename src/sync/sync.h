/* sync.h - moves weights from the trainer's cut to the engine's cut of the same table: the moves of
 * cut/syncmoves.h, made.
 *
 * Each slice goes from a rank that has it to those that need it, in an order in which all stages of the trainer give
 * at once (cut/syncorder.c).  Who needs one of a rank of the same machine copies it out of that rank's memory
 * (comm/share.h).  Between machines, and from GPU to GPU, it is a message: straight from memory to memory where it lies
 * in one piece on both ranks, else through a buffer that was taken once.  A row whose cuts coincide on a rank is the
 * same memory in both (params_open_beside): nothing moves and nothing is copied.  All calls are collective over the
 * world. */
#ifndef SYNC_SYNC_H
#define SYNC_SYNC_H

#include "comm/share.h"
#include "param/param.h"
#include "cut/syncmoves.h"

typedef struct {
    const Params *from, *to;        /* the trainer's and, beside it, the engine's */
    Dev          *dev;
    const World  *world;
    SyncList      list;
    Share        *share;            /* [ranks]: whose weights are read in place; NULL: nobody's */
    Params      **theirs;           /* [ranks]: those weights, of the ranks that this one gets something of */
    Arena         buffer;           /* device memory: half for what goes, half for what comes */
    int           element;          /* bytes of a matrix's */
    double        plan;             /* seconds that making the list took */
} Sync;

typedef struct {
    double sent, received, moved;   /* bytes: of this rank; of all */
    double copied, shared;          /* of this rank: from one cut to the other; in the same place in both */
    double buffer, seconds;         /* bytes of the buffer; the whole call */
} SyncStats;

/* The buffer that sync_open takes, at most 'most' bytes: sync_plan's number, the same of all ranks, which nobody is
 * asked for.  t: of matrices. */
size_t sync_buffer_bytes(const ModelDesc *m, const GridShape *from, const GridShape *to, DType t, const World *w,
                         int64_t most);
/* share: ranks of a machine read each other's weights in place, unless they are parked, if the system lets them; where
 * not it is said, once, and messages do it. */
void sync_open (Sync *s, const Params *from, const Params *to, Dev *d, const World *w, int64_t most, bool share,
                Mem *mem);
void sync_close(Sync *s);

/* The engine has the trainer's weights.  check: sync_check behind it. */
bool sync_run(Sync *s, bool check, SyncStats *stats, Err *err);
/* A sum of each tensor's bits, each weighed by its place in the whole tensor, over the trainer's slices that the
 * engine's is made of, and over the engine's: a slice that is stale, in another's place or wrong by a bit is an
 * error that names it, on all ranks. */
bool sync_check(Sync *s, Err *err);

#endif
