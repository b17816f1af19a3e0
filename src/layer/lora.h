/* lora.h - what an adapter adds to a linear map (arch/adapter.h): s ((x A') B' + bias), beside x W'.  linear.c alone
 * calls it.
 *
 * The product of W has the bits it has without an adapter; then the adapter's is added, once, to the whole sum:
 * u = x A' in one chain, u s, its product with B in one chain.  Where tp cuts the sum over x (an o_proj, a down_proj)
 * u is summed over ranks by the tree first, so bits do not depend on the cut (E2).  Backward computes u again. */
#ifndef LAYER_LORA_H
#define LAYER_LORA_H

#include "layer/linear.h"

static inline bool lora_on(const Linear *l) { return l->lora.b.data != NULL; }
void lora_find(const Ctx *c, Linear *l);                        /* what there is for it */

void lora_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l);
void lora_dx     (const Ctx *c, Tensor dx, Tensor dy, const Linear *l);                    /* added */
void lora_dw     (const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x);
/* The same of x whose columns tp cuts; y: this rank's rows of the sum, dy: all.  x none: this rank has no columns. */
void lora_cut_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l, Leaves sum);
void lora_cut_dw     (const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Leaves sum);

/* One of its own for each head; all of B's heads read one A. */
void lora_heads   (const Ctx *c, Tensor y, Tensor x, const Linear *l, HeadMap map);
void lora_heads_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, HeadMap map);

/* One of its own for each expert. */
void lora_experts   (const Ctx *c, Tensor y, Tensor x, const Linear *l, Seqs ex);
void lora_experts_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l, Seqs ex);
void lora_experts_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Seqs ex);

#endif
