/* numa.h - cores and memory that are near a device, by the kernel's sysfs ("/sys"; a test has a tree of its own).
 *
 * A device hangs on a node of memory, a node stands in a socket with others or alone.  What is bound is bound to the
 * socket: its cores, as far as this thread may use them, and the memory that they touch. */
#ifndef BASE_NUMA_H
#define BASE_NUMA_H

#include "base/base.h"

/* The node of a device of the PCI bus, "0000:3b:00.0"; -1: it is not known, or the machine has but one. */
int numa_of(const char *sysfs, const char *pci);
/* The socket of a node's cores; -1: not known, and the node stands for itself. */
int numa_socket(const char *sysfs, int node);

typedef struct {
    int  node, cores, of;          /* cores that this thread may use now; before */
    bool memory;                   /* pages come from the node; else from that of the core that touches them first */
} NumaBound;
/* This thread, and those that it starts from now on.  False: nothing has changed, and err says why. */
bool numa_bind(NumaBound *out, const char *sysfs, int node, Err *err);

/* As before a numa_bind. */
typedef struct NumaWas NumaWas;
NumaWas *numa_was(Mem *mem);
void     numa_back(const NumaWas *was);

#endif
