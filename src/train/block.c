/* block.c - what each tenant finds in the block is put there when it comes, and taken out when it leaves. */
#include "train/block.h"

static void leave(Block *b) {
    if (b->now == BLOCK_UPDATE && b->states) optim_offload(b->states, b->dev);
    if (b->now == BLOCK_ROLLOUT && b->cache_gone) b->cache_gone(b->engine);
}

static void come(Block *b, Tenant t) {
    Dev *d = b->dev;
    switch (t) {
    case BLOCK_ROLLOUT: params_offload(b->weights, d); break;
    case BLOCK_REFERENCE: op_put(d, b->reference, b->reference_at); break;
    case BLOCK_SCORE:
    case BLOCK_SYNC: params_reload(b->weights, d); break;
    case BLOCK_UPDATE:
        op_zero(d, b->grads->flat); /* what lies between parameters is 0, and the gradients' norm counts on it */
        if (b->states) optim_reload(b->states, d);
        params_reload(b->weights, d);
        break;
    }
}

void block_for(Block *b, Tenant t) {
    if (!b->shared || b->now == t) return;
    if (b->now == BLOCK_UPDATE && t == BLOCK_SCORE) return; /* all that it needs is there */
    CHECK(t != BLOCK_REFERENCE || b->reference_at, "a block for a reference, and there is none");
    leave(b);
    come(b, t);
    b->now = t;
}
