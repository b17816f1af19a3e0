/* reduce.h - gradients summed over the ranks that hold the same weights, and the weights
 * handed round again after a step.
 *
 * Each region of memory (param/param.h) belongs to a group: rows that tp cuts or has whole to dp x cp, experts to edp.
 * The region is cut evenly over its group; a rank receives the sum of its piece, steps it, and sends it to the others.
 * Nothing is added in order of arrival: pieces are exchanged, then added by the tree, so the same grid gives the same
 * bits.  On one rank every call does nothing. */
#ifndef TRAIN_REDUCE_H
#define TRAIN_REDUCE_H

#include "comm/comm.h"
#include "param/param.h"

/* Elements [from, to) of the flat order of the trainable parameters. */
typedef struct { int64_t from, to; } Span;

/* This rank's piece of region k; of a whole table of gradients (Params) or of a plan. */
Span    reduce_own(const Params *grads, Region k);
int64_t reduce_own_count(const ModelDesc *m, const Shard *shard);       /* elements of all its pieces */

/* The sums over all ranks, in the own pieces.  What else is in grads is of no use after. */
void reduce_grads(const Params *grads, const Groups *par, Dev *d);
size_t reduce_tmp(const ModelDesc *m, const Shard *shard, DevKind like);      /* what that takes of d->tmp */

/* The pieces of all ranks, in all: x has the table's rows, trainable ones or all (weights, gradients). */
void reduce_gather(const Params *x, const Params *grads, const Groups *par, Dev *d);
/* of one region; to be waited for */
CommCall reduce_gather_begin(const Params *x, const Params *grads, Region k, const Groups *par, Dev *d);

/* The spans that this rank answers for: over all ranks every element of the model exactly once.  (Rows that several
 * ranks of tp have, and a tied embedding at both ends of a pipeline, are the first one's.) */
typedef void SpanVisit(void *user, Span s);
void reduce_each_counted(const Params *grads, SpanVisit *visit, void *user);

/* The norm of the summed gradients, the same number on every rank. */
double reduce_norm(const Params *grads, const Groups *par, Dev *d);

#endif
