/* block.h - the one big block of the device's memory, and who has it now.  Nobody else moves what lies in it.
 *
 *      +--> ROLLOUT ---> REFERENCE ---> SCORE ---> UPDATE ---> SYNC --+      a phase that a run has not is left out;
 *      +--------------------------------------------------------------+      a step that is given up goes on at SYNC
 *
 *                  trainer's weights    optimizer's states    in the rest of it
 *      ROLLOUT     in the host          in the host           the sampler's own weights, its cache
 *      REFERENCE   where they were      in the host           the reference's weights
 *      SCORE       in place             in the host           nobody's
 *      UPDATE      in place             in place              activations, gradients
 *      SYNC        in place             in the host           the sampler's own weights, being written
 *
 * Weights and states move only where the plan gave them a place in the block (PolicyConf.park_weights, park_states);
 * else they lie beside it and stay.  A save reads them wherever they are, and moves nothing. */
#ifndef TRAIN_BLOCK_H
#define TRAIN_BLOCK_H

#include "train/optim.h"

typedef enum { BLOCK_UPDATE, BLOCK_SYNC, BLOCK_ROLLOUT, BLOCK_REFERENCE, BLOCK_SCORE } Tenant;

typedef struct {
    Arena   memory;
    Tenant  now;                       /* UPDATE when it is opened */
    bool    shared;                    /* others have it between updates; else it is UPDATE's for good */
    bool    saving;                    /* weights and states are being copied: an update would be a bug */
    Dev    *dev;
    Params *weights, *grads;           /* the trainer's */
    Optim  *states;                    /* or NULL */
    Tensor  reference;                 /* the reference's weights as they lie in it, and */
    const char *reference_at;          /* where they are meanwhile; or none and NULL */
    void  (*cache_gone)(void *engine); /* told when ROLLOUT leaves: what is cached is true no more; or NULL */
    void   *engine;
} Block;

void block_for(Block *b, Tenant t);

#endif
