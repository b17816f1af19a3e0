/* alike.h - what all ranks must have alike: lines "key <tab> value" (run/identity.h) that each made for itself. */
#ifndef COMM_ALIKE_H
#define COMM_ALIKE_H

#include "comm/ranks.h"

/* Collective.  False where some rank's are not the first rank's; err then says on all what the first of them has, what
 * the first rank has, and on which machine that is: "rank 3 has train.lr 0.5, rank 0 1e-6: ...". */
bool ranks_alike(const Ranks *r, const char *lines, Err *err);

#endif
