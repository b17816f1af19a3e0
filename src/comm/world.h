/* world.h - all ranks of a run: started by a launcher (mpirun, srun), or this process alone. */
#ifndef COMM_WORLD_H
#define COMM_WORLD_H

#include "cut/grid.h"
#include "comm/comm.h"

typedef struct {
    Comm all, mpi;                      /* mpi: the same of the host's memory, which is all's
                                         * too unless world_device was called */
    struct Nccl *nccl;                  /* who moves tensors between GPUs, or NULL */
    int  local_rank, local_size, node;  /* among the ranks of this machine; the first of them */
    bool open;                          /* MPI is */
} World;

/* What a launcher says of itself, before MPI is loaded: how many it started and which of them
 * this is; size 0: there is none. */
typedef struct { const char *by; int rank, size; } Launch;
Launch world_launch(void);
bool   world_tried(void);               /* world_open was called among several: all ranks came as far */

/* Without a launcher: a world of one, and MPI is not needed.  With one: libhone_mpi.so beside the program
 * is loaded.  Processes that a launcher started but that MPI says are alone are an error, so that they
 * never write one folder as if each were the only one. */
bool world_open(World *w, double wait_seconds, Err *err);
/* Tensors will be this device's: groups made from now on move those.  Collective; a device of the host's memory changes
 * nothing.  shared: ranks of this machine have a GPU in common (nccl.h). */
bool world_device(World *w, Dev *d, bool shared, Err *err);
void world_close(World *w);
/* For a profile of that device: what moves its tensors notes when, from now on; and tells it. */
void world_note (const World *w);
void world_notes(const World *w, Dev *d);
void world_phase(const World *w, const char *name);     /* what this rank does now: for messages, see watch.h */

/* The groups of a grid: whoever shares all other coordinates.  Collective over the world; a
 * dry world (world_dry) needs no peers. */
void world_groups(const World *w, const GridShape *g, Groups *out);
World world_dry(int rank, int size);
Comm  world_blocks(const World *w, const char *name, int size);     /* ranks [k size, (k+1) size): the block
                                                                     * that this one is in */

#endif
