/* policy_int.h - micro-batches, between the sources that make a policy: policy.c (what it owns, updates), score.c
 * (log-probs alone), policy_sizes.c. */
#ifndef TRAIN_POLICY_INT_H
#define TRAIN_POLICY_INT_H

#include "train/policy.h"

typedef struct {
    Batch batch;
    int n;
    const int32_t *item; /* [n] which sequences */
    int64_t *at;         /* [n+1] where each one's outputs begin */
    Tensor lp, ent;
} Micro;

/* A micro-batch from its first forward to its last backward. */
struct MicroSlot {
    Arena io, host;
    Micro mb;
    bool there;
};

size_t policy_io_bytes(const PolicyConf *c, const ModelDesc *m, const Shard *shard);   /* of one micro-batch, device */
size_t policy_slot_bytes(const PolicyConf *c);                                         /* host */

bool micro_pack(Policy *p, const TrainSeq *seqs, int n, Pack *out, Err *err);
/* Its device part lies in io, what the host remembers in 'at'. */
Micro micro_put(Policy *p, const TrainSeq *seqs, const Pack *pk, int64_t which, Arena *io, Arena *at);
/* Ranks give up together or not at all: whoever went on alone would wait for the others. */
bool micro_go_on(const Policy *p);
/* A rank that has no micro-batch left has nothing to do, unless others need its experts. */
bool micro_passes(const Policy *p, const Pack *pk, int64_t k);
void micro_given(const Policy *p, const TrainSeq *seqs, const Micro *mb, const float *lp, bool keeps);

#endif
