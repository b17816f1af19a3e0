/* moved.h - does training reach every tensor?  Some numbers of each one's master, before and after. */
#ifndef TRAIN_MOVED_H
#define TRAIN_MOVED_H

#include "train/policy.h"

typedef struct Moved Moved;
typedef struct { int64_t tensors, still; char first[96]; } MovedSum; /* still: no number that was looked at has changed;
                                                                      * the first of those by name */

/* Of every tensor that this rank trains (of experts each one's own): numbers from its middle. */
Moved   *moved_note (const Policy *p, Mem *mem);
MovedSum moved_since(const Moved *m, const Policy *p);

#endif
