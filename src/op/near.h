/* near.h - a GPU's side of a machine with several: ranks that share one compute on the cores beside their GPUs, in the
 * memory beside them.  What a rank keeps on the host goes to its GPU and back in every step. */
#ifndef OP_NEAR_H
#define OP_NEAR_H

#include "base/numa.h"

typedef struct {
    bool      known, done;          /* where the GPU hangs; bound there */
    NumaBound bound;
    int       threads;              /* the cores that it is bound to over the ranks that are */
    char      why[200];             /* known, and not done */
} Near;

/* This rank's GPU is 'gpu' of the driver's count; those of all n ranks of the machine are first .. first+n-1.  Before
 * threads are started and memory is taken.  sysfs: "/sys". */
void near_bind(Near *out, const char *sysfs, int gpu, int first, int n);
/* The same of GPUs at those nodes, -1: not known. */
void near_bind_nodes(Near *out, const char *sysfs, const int *node, int which, int n);

#endif
