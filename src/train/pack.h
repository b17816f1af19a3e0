/* pack.h - which sequences are computed together: mini-batches first, then balanced parts
 * over dp, then micro-batches inside each.
 *
 * A mini-batch is whole groups (the answers to one question stay together), chosen by the seed and nothing else;
 * packing happens inside it, so it cannot change which samples share an update.  A micro-batch never holds more tokens
 * than the budget.  Nothing is padded. */
#ifndef TRAIN_PACK_H
#define TRAIN_PACK_H

#include "base/base.h"

/* order [groups]: the groups of one pass over the step's data; mini-batch m takes order[m*per .. (m+1)*per-1].
 * shuffle false: as they came. */
void minibatch_order(int32_t *order, int64_t groups, bool shuffle, uint64_t seed, uint32_t step, uint32_t epoch);
static inline int64_t minibatch_count(int64_t groups, int64_t per) { return (groups + per - 1) / per; }

/* What computing a sequence of length s costs: linear s + square s^2 (of cut/flops.h: 6 linear, 3 pair). */
typedef struct { double linear, square; } PackCost;

/* parts: of dp; mine: the one this rank computes */
typedef struct { int64_t budget; PackCost cost; int parts, mine; } PackConf;

typedef struct {
    int64_t  n_micro, max_tokens;     /* micro-batches of every part; tokens of the fullest of all */
    int64_t *first;                   /* [n_micro+1] into item: the own part's; empty ones, if
                                       * others have more, stand last */
    int32_t *item;                    /* [first[n_micro]] indices into lens, rising inside a micro-batch */
    int32_t *part;                    /* [n] which part each sequence is in */
    double   imbalance;               /* largest cost / mean cost of a micro-batch that is not empty, >= 1 */
    double   spread;                  /* the same of a part */
    int64_t  part_most, part_least;   /* tokens of the fullest and the emptiest part */
} Pack;

/* Parts of nearly equal cost, each cut into as few micro-batches as the balance allows, the dearest first.
 * Everybody computes the same from the same lengths.  The arrays lie in keep.  Fails if a sequence is
 * longer than the budget, naming the first. */
size_t pack_keep(int64_t n);                      /* bytes on keep and on tmp at most */
size_t pack_scratch(int64_t n, int64_t parts);
bool   pack(Pack *out, const int64_t *lens, int64_t n, const PackConf *c, Arena *keep, Arena *tmp, Err *err);

#endif
