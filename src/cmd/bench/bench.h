/* bench.h - `hone bench WHAT`: how quick a part of a run is here, as one JSON object.  Every measurement runs the code
 * that a run has, over weights that are random; only times and what they are compared with are its own.
 *
 * Repeats are timed one by one, each to the end of its last op; "seconds" is their median, "least" the shortest. */
#ifndef CMD_BENCH_BENCH_H
#define CMD_BENCH_BENCH_H

#include "model/open.h"
#include "train/policy.h"
#include "op/profile.h"

typedef struct {
    const char *what, *model;               /* model: NULL where none is needed */
    const char *device, *compute, *recompute, *profile;
    const char *write;                      /* link over ranks: a cluster file */
    bool    share_gpu;
    int64_t threads, layers, tokens, length, batch, context, answer, repeats, leaves, params, lines;
    bool    keep_logits;
} BenchArgs;

typedef struct {
    const BenchArgs *a;
    Opened   o;
    Buf      out;                           /* the object so far, without its end */
    Profile *profile;                       /* or NULL */
} Bench;

typedef struct { const char *name; bool (*run)(Bench *b, Err *err); const char *help; bool model; } BenchKind;
extern const BenchKind bench_kinds[];       /* ends with {0} */

/* The device, and the model's shape with its layers cut as is asked for. */
bool bench_open   (Bench *b, const BenchArgs *a, Err *err);
void bench_close  (Bench *b);
/* Weights, as `hone random` makes them, and dev.tmp.  'more': what will be taken beside them. */
bool bench_weights(Bench *b, size_t tmp_bytes, size_t more, Err *err);
void bench_sync   (Bench *b);               /* all ops are done */

/* n sequences of len tokens, all but the first trained on: the upper bits of a linear
 * congruence, which a peer makes too. */
TrainSeq *bench_seqs(int n, int len, int64_t vocab, Mem *mem);

typedef struct { double median, least; } Times;
Times bench_times(double *seconds, int n);  /* sorts them */

/* The roofs, measured in the same call: a product of 8192 x 8192 x 8192 in what the device
 * computes in (smaller on a CPU), and bytes read and written by a long copy. */
typedef struct { double flops, bytes; } Roof;
Roof bench_roof(Bench *b);

void put_num(Bench *b, const char *key, double x);
void put_int(Bench *b, const char *key, int64_t x);
void put_text(Bench *b, const char *key, const char *x);
/* The profile of what ran since it was cleared, over 'runs' repeats: "ops" in the object, and
 * the timeline where one is asked for. */
bool put_profile(Bench *b, int runs, Err *err);

bool bench_train (Bench *b, Err *err);
bool bench_logprob(Bench *b, Err *err);
bool bench_decode(Bench *b, Err *err);
bool bench_optimizer(Bench *b, Err *err);
bool bench_link  (Bench *b, Err *err);
bool bench_ranks (const BenchArgs *a, Err *err);        /* link, under a launcher: between ranks; prints */
bool bench_load  (Bench *b, Err *err);
bool bench_tower (Bench *b, Err *err);

#endif
