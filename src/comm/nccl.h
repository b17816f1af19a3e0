/* nccl.h - ranks whose tensors are in the memory of GPUs: NCCL moves them, MPI has brought the ranks together.
 *
 * A communicator of each machine's ranks serves the groups that lie inside one, and one of all ranks every other: an
 * exchange or a gathering is a bundle of NCCL's sends and receipts, on a stream of its own behind the device's queue.
 * The queue waits for a bundle, not the host (comm_wait).  Nothing is reduced by NCCL: sums are the
 * tree's (comm.h).  NCCL knows no tags, and pairs what comes in order of the calls: between neighbours of a
 * pipeline (nccl_stages), where order is the schedule's, each direction has a communicator and a stream of
 * its own, and messages together (comm_together) are a bundle.  Any other message goes by MPI through
 * pinned memory, and so do the host's values.
 *
 * While the device notes its calls (Ops.record) a bundle is one of them, and is not waited for.
 *
 * Both libraries (libcuda.so.1, libnccl.so.2) are loaded at run time (nccl_lib.h), so that
 * hone needs neither to be built or started. */
#ifndef COMM_NCCL_H
#define COMM_NCCL_H

#include "comm/comm.h"

typedef struct Nccl Nccl;

/* Channels of a peer on another machine, by the communicator of all; of all peers in a machine's; of a link. */
enum { NCCL_NET_CHANNELS = 4, NCCL_NODE_CHANNELS = 16, NCCL_LINK_CHANNELS = 4 };

/* Collective over 'all', a group of MPI.  d: this rank's device, which has a queue (Ops.queue).  node: the first rank
 * of its machine.  shared: several ranks have one GPU, for which NCCL is told that each is a machine of its own; slow,
 * and good for tests.  NULL: why. */
Nccl *nccl_open(const Comm *all, Dev *d, int node, bool shared, Err *err);
void  nccl_close(Nccl *n);
/* Groups made from now on that lie inside a machine have its communicator, if there are several machines.  Collective
 * over all. */
void  nccl_near(Nccl *n, const Comm *all);
int   nccl_machine(const Nccl *n);      /* the first rank of this one's */
/* The same group, with tensors in device memory.  Collective over it. */
Comm  nccl_group(Nccl *n, const Comm *mpi);
/* Links between neighbours of a pipeline over that group: 'stages' of 'each' ranks, in their order; ring: from the last
 * to the first too.  An even tag is the way forward, an odd one back; on each way messages are taken in the order they
 * were sent.  Collective over all ranks. */
void  nccl_stages(Nccl *n, Comm *pp, int rank, int stages, int each, bool ring);
/* When NCCL's calls ran, for a profile: from now on; adds them to it. */
void  nccl_note (Nccl *n);
void  nccl_notes(Nccl *n, Dev *d);

#endif
