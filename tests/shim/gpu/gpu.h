/* gpu.h - a GPU's driver and NCCL as comm/nccl.c and device.c see them, on a machine without either (driver.c, nccl.c).
 *
 * "Device" memory is the host's.  A stream is a thread that does its tasks in order, each some random while late; a
 * kernel is a function of the host's (cuLaunchHostFunc).  Tasks that are captured are noted in the order of the calls,
 * and a launch pushes them again, each to the stream that it was noted on, so that what ran beside something else does
 * so again.  What the driver would only suffer in silence, or hang on, ends here with a line and abort().
 *
 *   GPU_SEED=N        of the delays (0)
 *   GPU_JITTER_US=N   the longest delay (200); 0: none
 *   GPU_STUCK_S=N     sends and receipts that nobody meets end the rank after that long (120)
 *   GPU_DIR=FOLDER    where ranks meet (/tmp)
 *   GPU_COUNT=FILE    decode steps of the device, how many of them were replayed, and the bytes that were sent in each
 *                     phase: FILE.RANK, at the end
 *   GPU_BYTES=FILE    a line for each communicator, its name, ranks and the bytes that this one sent: FILE.RANK
 *   GPU_NODE=N        so many ranks, in their order, are a machine to comm/nccl.c
 *   GPU_PLANT=KIND:N:RANK  a fault, on that rank:
 *     wait     a stream beside the device's queue does not wait for the N-th event, which comes late
 *     noted    the same of the N-th wait that is captured
 *     queue    the device's queue does not wait for the N-th bundle that it was told to, and bundles come late
 *     early    the N-th event behind a copy that has not come when it is asked for says that it has
 *     length   the N-th receipt is of fewer bytes
 *     order    the N-th bundle changes places with the one behind it
 *     fail     the N-th bundle fails, as when a peer is gone */
#ifndef TESTS_SHIM_GPU_H
#define TESTS_SHIM_GPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BAD(...) (gpu_say(__VA_ARGS__), abort())
void gpu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

double gpu_now(void);
long gpu_env(const char *name, long otherwise);
/* Is this the n-th time, and a fault of that kind planted there? */
bool gpu_planted(const char *kind);
bool gpu_plants(const char *kind); /* ... at all */

/* ---- streams */
typedef struct Event Event;
typedef struct Stream Stream;
typedef struct Bundle Bundle; /* of NCCL's sends and receipts */
typedef enum { RECORD, WAIT, COPY, CALL, BUNDLE, STOP } TaskKind;
typedef struct Task {
    struct Task *next;
    TaskKind kind;
    Stream *on;
    Event *event; /* RECORD, WAIT */
    long upto;
    void *to; /* COPY */
    const void *from;
    size_t bytes;
    void (*fn)(void *arg); /* CALL */
    void *arg;
    Bundle *bundle; /* BUNDLE: done with when it has run */
} Task;
void gpu_push(Stream *s, Task t);

/* ---- bundles: nccl.c */
Bundle *bundle_again(const Bundle *b);
size_t bundle_bytes(const Bundle *b); /* that it sends */
void bundle_run(Bundle *b);
void bundle_free(Bundle *b);

#endif
