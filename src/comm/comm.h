/* comm.h - groups of ranks and what they can do together.
 *
 * A group of one is a real group whose calls change nothing, so callers never ask "if (tp > 1)": they call, and get their
 * own tensor back.  This build has that group only; MPI and NCCL groups will be further backends of the same calls, and
 * asking for a larger group is refused when the configuration is read. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "op/op.h"

typedef struct { int rank, size; } Comm;

static inline Comm comm_self(void) { return (Comm){ 0, 1 }; }

/* The rows of all ranks, in rank order, in a new tensor of a; the group of one hands back its own rows. */
Tensor comm_all_gather(const Comm *c, Dev *d, Arena *a, Tensor mine);

/* This rank's rows of the sum over ranks, added by the balanced tree of docs/exactness.md (never in arrival order). */
Tensor comm_reduce_scatter(const Comm *c, Dev *d, Arena *a, Tensor partial);

#endif
