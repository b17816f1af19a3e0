/* meet.h - the writers of several ranks wait for each other by files in the folder that they
 * write: they are threads of their own, and MPI belongs to the main ones.
 *
 *   .begun          made by rank 0 when the folder is ready; whoever gives up renames it .over
 *   .WHAT-RANK      that rank has come so far; may hold a text
 *   .at-RANK        how much that rank has done, told some times in the time of a deadline
 *
 * A wait looks again after 2 ms, then later and later, at last once a second: a file system that serves hundreds of
 * ranks has better to do.  It ends in vain when nobody has done anything for as long as 'wait'.  A rank alone meets
 * nobody: every call succeeds at once. */
#ifndef TRAIN_MEET_H
#define TRAIN_MEET_H

#include "base/base.h"

typedef struct {
    const char *dir;
    int     rank, n;
    double  wait;                           /* seconds without anybody doing anything; 0: for ever */
    int64_t done;                           /* by this rank, in whatever unit; and when it was told */
    double  told;
} Meet;

bool meet_begin(const Meet *m, Err *err);                                   /* rank 0 is ready */
void meet_progress(Meet *m, int64_t more);                          /* this rank has done so much more */
bool meet_tell (const Meet *m, const char *what, const char *text, Err *err);   /* this rank has come so far */
bool meet_come (const Meet *m, const char *what, int rank, Err *err);       /* waits until that rank has told */
bool meet_text (const Meet *m, const char *what, int rank, Buf *out, Err *err); /* adds what that rank left */
bool meet_leave(const Meet *m);             /* gives up; the others' waiting ends.  True for
                                             * the first who does: the reason is his */
bool meet_begun(const Meet *m);                                 /* others may be in the folder, though it be over */
void meet_end  (const Meet *m, const char *const *what);        /* rank 0: the files are removed; what ends with NULL */

#endif
