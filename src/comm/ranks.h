/* ranks.h - a program on several ranks: opened under mpirun, arranged in a grid, failing
 * together and speaking with one voice.
 *
 * What only one may do (terminal, files) is the first rank's.  What can go wrong on one rank alone ends in ranks_agree,
 * so that all of them give up with that one's reason; a rank that dies takes the others down (world.h). */
#ifndef COMM_RANKS_H
#define COMM_RANKS_H

#include "comm/world.h"

typedef struct {
    World  world;
    Shard  shard;           /* after ranks_grid; so are: */
    Groups groups;
    bool   share_gpu;       /* ranks of one machine may have a GPU in common; set by who opens, before the device is */
} Ranks;

/* Without a launcher: one rank, and nothing below does anything.  wait: seconds for another rank (world.h).  asked:
 * lines that say what this rank is to do, which must be what all are to do (alike.h): the first thing that ranks say to
 * each other, of whatever verb.  False: they are closed again. */
bool ranks_open (Ranks *r, double wait, const char *asked, Err *err);
void ranks_close(Ranks *r);
enum { RANKS_WAIT = 600 };

/* Each rank has opened this device: all the same kind; GPUs are told of each other.  Before ranks_grid; collective. */
bool ranks_device(Ranks *r, Dev *d, Err *err);
/* The grid: axes as read (0: not said), for as many ranks as there are; leaves: of the run's sums, 0: any. */
bool ranks_grid(Ranks *r, const GridShape *axes, const char *split, const ModelDesc *m, int leaves, Err *err);

static inline bool ranks_first(const Ranks *r) { return r->world.all.rank == 0; }
static inline int  ranks_count(const Ranks *r) { return r->world.all.size; }
bool ranks_agree(const Ranks *r, bool ok, Err *err);       /* comm_agree over all */
bool ranks_any(const Ranks *r, bool x);                     /* on some rank */
void ranks_same(const Ranks *r, Buf *text);                 /* what the first rank has, on all */
bool ranks_text(const Ranks *r, Buf *text, const char *in, Err *err);      /* the lines of a file (-: standard input) */
void ranks_phase(const Ranks *r, const char *name);         /* what this rank does now, for messages
                                                             * and ps: a name that lasts */
double ranks_waited(const Ranks *r);    /* seconds that this rank has waited for others so far */
int  ranks_threads(const Ranks *r, int64_t asked);          /* 0: the cores of this machine over its ranks */

#endif
