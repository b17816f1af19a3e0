/* nccl.h - ranks whose tensors are in the memory of GPUs: NCCL moves them, MPI has brought the ranks together.
 *
 * One communicator of all ranks serves every group: an exchange or a gathering is a bundle of NCCL's sends and receipts, on a stream of
 * its own behind the device's queue.  Nothing is reduced by NCCL: sums are the tree's (comm.h).  What has a tag (comm_send, comm_recv)
 * and the host's values go by MPI, the former through pinned memory: NCCL knows no tags, and pairs what comes in order of the calls.
 *
 * Both libraries (libcuda.so.1, libnccl.so.2) are loaded here, so that hone needs neither to be built or started. */
#ifndef COMM_NCCL_H
#define COMM_NCCL_H

#include "comm/comm.h"

typedef struct Nccl Nccl;

/* Collective over 'all', a group of MPI.  queue: Ops.queue of this rank's device.  shared: several ranks have one GPU, for which NCCL is told
 * that each is a machine of its own; slow, and good for tests.  NULL: why. */
Nccl *nccl_open(const Comm *all, void *queue, bool shared, Err *err);
void  nccl_close(Nccl *n);
int   nccl_version(const Nccl *n);              /* 22803: 2.28.3 */
/* The same group, with tensors in device memory.  Collective over it. */
Comm  nccl_group(Nccl *n, const Comm *mpi);

#endif
