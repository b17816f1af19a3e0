/* meet.h - the writers of several ranks wait for each other by files in the folder that they
 * write: they are threads of their own, and MPI belongs to the main ones.
 *
 *   .begun          made by rank 0 when the folder is ready; whoever gives up renames it .over
 *   .WHAT-RANK      that rank has come so far; may hold a text
 *
 * A rank alone meets nobody: every call succeeds at once. */
#ifndef TRAIN_MEET_H
#define TRAIN_MEET_H

#include "base/base.h"

typedef struct { const char *dir; int rank, n; double wait; } Meet;        /* wait: seconds without anybody coming; 0:
                                                                            * for ever */

bool meet_begin(const Meet *m, Err *err);                                   /* rank 0 is ready */
bool meet_tell (const Meet *m, const char *what, const char *text, Err *err);   /* this rank has come so far */
bool meet_all  (const Meet *m, const char *what, Err *err);                 /* waits until all have told */
bool meet_text (const Meet *m, const char *what, int rank, Buf *out, Err *err); /* adds what that rank left */
bool meet_leave(const Meet *m);             /* gives up; the others' waiting ends.  True for
                                             * the first who does: the reason is his */
bool meet_begun(const Meet *m);                                 /* others may be in the folder, though it be over */
void meet_end  (const Meet *m, const char *const *what);        /* rank 0: the files are removed; what ends with NULL */

#endif
