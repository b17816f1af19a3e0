/* watch.h - whether the other ranks live.  A thread of every rank keeps a TCP connection to the first one's, over which
 * each tells what it does: at once when its phase changes, and by beats, some in the time of a deadline.
 *
 * A connection that ends without a farewell is a rank that died.  A wait that lasts longer than the
 * deadline is judged by the first rank's thread, which knows what all do: as long as a rank computes (it
 * takes processor time, and is not waiting itself) the others may have to wait for it, however long; a rank
 * from which no beat comes, or that takes no time, stalls; if all wait, they wait for each other in vain.
 * Either way one line says who and in what, on standard error and in the run's log (base/last_words.h), and every
 * rank ends: those that the launcher does not end do it themselves. */
#ifndef COMM_WATCH_H
#define COMM_WATCH_H

#include "comm/comm.h"

/* Collective over all.  Where the first rank cannot be reached by TCP the watch does not begin, and says so
 * once: then a launcher ends the ranks when one dies, and every wait has its own deadline.  all: lives as
 * long as the watch; its wait is the deadline. */
Watch *watch_open(const Comm *all);
void   watch_close(Watch *w);                   /* a farewell: this rank ends in order.  NULL: none */
bool   watch_begun(const Watch *w);

/* What this rank's main thread does; names outlive the watch.  The watch's thread has the
 * name too: ps -L -o pid,comm -p PID. */
void watch_phase(Watch *w, const char *name);
const char *watch_phase_name(const Watch *w);   /* "starting" before the first */
void watch_about(Watch *w, const char *tensor, int index);       /* what calls are about until the next
                                                                  * phase; index -1: none */
void watch_about_now(const Watch *w, const char **tensor, int *index);   /* what that says now; unchanged: nothing */
void watch_put_about(const Watch *w, char *text, size_t room);  /* adds it to a text */
void watch_waits(Watch *w, const char *what);  /* waits for others, by that name (it is copied); NULL: no longer */

/* This rank has done something that takes no processor's time, as bytes that a disk has taken: from any thread. */
void watch_moved(Watch *w);

/* Seconds that this rank has waited for others so far; and what adds to them: comm.h's waits, and on a GPU what its
 * queue stood still. */
double watch_waited(const Watch *w);
void   watch_add_waited(Watch *w, double seconds);

/* The other ranks are to end, since this one does: for die_among. */
void watch_end(Watch *w, const char *why);

#endif
