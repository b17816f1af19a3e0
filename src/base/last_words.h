/* last_words.h - the last words of a process: on standard error and, once there is one, in the log of its run. */
#ifndef BASE_LAST_WORDS_H
#define BASE_LAST_WORDS_H

#include "base/base.h"

/* From now on die() and its like append their line to that file too (it is there; else
 * nothing happens).  NULL: no longer. */
void last_words_into(const char *path);
/* The line that was said, while what takes the other ranks down runs (die_among), else "";
 * and whether it is in the log. */
const char *last_words(void);
bool last_words_logged(void);
void last_words_log(const char *line);              /* another's, that could not write it itself */
/* The same line, a then b, said by a signal's handler: nothing but writes. */
void last_words_in_signal(const char *a, const char *b);
/* The end for a reason outside the program that no caller can act on, from any thread: a peer
 * that is gone.  Exit code 1. */
NORETURN void die_outside(const char *fmt, ...) PRINTF_LIKE(1, 2);

#endif
