/* external_guard.h - nothing that this program starts outlives it, whatever ends it: kill -9 and the kernel's want of
 * memory too.
 *
 * A guard is a shell in a process of its own that reads from a pipe which group of processes each slot runs.  This
 * program alone holds the other end: when it is gone the shell reads the end of its input, kills the groups and ends.
 * (A signal on the parent's death, PR_SET_PDEATHSIG, comes when the *thread* that forked ends, and never reaches
 * grandchildren.)  What has left its group (setsid) is beyond reach. */
#ifndef TASK_EXTERNAL_GUARD_H
#define TASK_EXTERNAL_GUARD_H

#include "base/base.h"

#include <sys/types.h>

typedef struct { pid_t pid; int to; } Guard;              /* to: -1, there is none */

bool guard_open(Guard *g, int slots);                     /* false: errno says why */
void guard_tell(const Guard *g, int slot, pid_t group);   /* 0: none runs in it any more; from any thread */
void guard_close(Guard *g);

/* A line of the shell in a group of its own that reads from and writes to a pipe, each non-blocking on this side, and
 * has no other file of this program's but standard error.  It waits for shell_go: by then a guard knows its group.
 * false: errno says why. */
bool shell_start(pid_t *pid, int *to, int *from, const char *line);
void shell_go(int to);

#endif
