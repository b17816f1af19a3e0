/* rank_note.h - what each rank of a grid reads, holds and computes, as a table. */
#ifndef CMD_RANK_NOTE_H
#define CMD_RANK_NOTE_H

#include "model/model.h"

typedef struct {
    int64_t read;                                           /* bytes of files */
    size_t  weights, grads, states, act, tmp, io;           /* bytes of arenas */
    double  flops;
} RankNote;

/* Collective; the first rank prints. */
void rank_notes_tell(const Comm *all, const Shard *shard, const RankNote *mine);

/* The weights that every rank of tp holds whole, with the bytes of them that this rank has. */
void rank_whole_tell(const Model *m);

/* Operations of a forward and a backward over sequences of these lengths, which are this rank of dp's, by products:
 * weights that it holds times the rows they meet, and its heads' part of attention.  Rows of experts: as many as even
 * routing brings.  Collective over dp. */
double rank_flops(const Model *m, const int64_t *lens, int n);

#endif
