/* begin.h - how long a start may take.  MPI's waits for all ranks, with no end where one has ended before it began (it
 * was given --check, or another program). */
#ifndef COMM_BEGIN_H
#define COMM_BEGIN_H

#include "base/base.h"

/* From begin_watch to begin_done, or the process dies after so many seconds, saying that not all of 'ranks' came;
 * 0: it may take for ever.  NULL: nothing watches. */
typedef struct Begin Begin;
Begin *begin_watch(double seconds, int ranks);
void   begin_done(Begin *b);

#endif
