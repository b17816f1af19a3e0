/* block.h - one decoder layer: x + attention(norm x), then + feed-forward(norm of that); and the same with its
 * activations thrown away and made again in backward (E4: bit-equal, and no token is routed twice). */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "layer/layer.h"

typedef struct { Routing routing; Attended attended; } Known;             /* remembered also when all else is dropped */
typedef struct {
    Tensor x;                        /* the block's input */
    NormKeep n1, n2;
    MixerKeep mixer;
    union { MlpKeep mlp; MoeKeep moe; };
    Known known;
} BlockKeep;

/* Where nothing is kept a block norms its y for the next one, while it has it at hand: n [T,H] is x normed if it is
 * there already, and y normed if that is wanted. */
typedef struct { Tensor n; bool there, wanted; } NextNorm;
/* y must outlive the block: with keep it is the next block's kept input.  ahead: or NULL */
void block_forward (const Ctx *c, int layer, Tensor y, Tensor x, const NextNorm *next_norm, BlockKeep *keep);
void block_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, const BlockKeep *keep);

#endif
