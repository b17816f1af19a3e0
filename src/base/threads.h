/* threads.h - a fixed pool of threads and one way to use it: the same function for indices 0..n-1.
 *
 * Which thread takes which index is not fixed, so a result may not depend on it: an index writes its own output.
 * Threads spin briefly between calls and then sleep; a pool of one runs everything in the caller. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include "base/base.h"

enum { THREADS_MOST = 256 };                                 /* of a pool, and of every --threads */
typedef struct Threads Threads;
typedef void ThreadFn(void *arg, int index, int worker);     /* worker: 0..threads-1, for scratch memory */

Threads *threads_open(int n);  /* n >= 1; the caller is one of them.  Fewer, with a line, where no more are to be had */
void     threads_close(Threads *t);
int      threads_count(const Threads *t);
void     threads_run(Threads *t, int n, ThreadFn *fn, void *arg);   /* returns when all n are done; not re-entrant */
bool     threads_awake(const Threads *t);      /* nobody sleeps: a call reaches the others in less than a microsecond */
int      threads_default(void);                /* cores this process may use */

#endif
