/* linear.h - the model's linear maps, y = x w' + b, as this rank has them: the only callers of op/'s products.
 * Whatever is one day added to a weight (an adapter, the scales of a packed one) is added here, for all layers at once.
 *
 * 'sum' says how the summed dimension is cut (E2).  Each call is one or several ops, in the order of its arguments; g
 * holds gradients: a weight that has none there is not trained, and gets none. */
#ifndef LAYER_LINEAR_H
#define LAYER_LINEAR_H

#include "layer/layer.h"

#define NO_BIAS P_COUNT
typedef struct {
    ParamId id, bias;
    int     layer;
    Tensor  w, b;               /* [out,in]; [1,out] or none */
    struct {
        Tensor  a, b, bias;     /* an adapter's [r,in], [out,r]; [1,out] or none; no b: there is none (lora.h) */
        ParamId a_id;
        float   scale;
    } lora;
} Linear;
Linear linear_of(const Ctx *c, ParamId id, ParamId bias, int layer);

void linear_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l, Leaves sum);
void linear_dx     (const Ctx *c, Tensor dx, Tensor dy, const Linear *l, Leaves sum);
/* Added to the weight's and the bias's gradients, or written where g is fresh and the row is one_product. */
void linear_dw     (const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x);

/* The same where tp cuts x's columns: y are this rank's rows of the sum over ranks of 'part'.  x none: it has no
 * columns.  dy is of all rows. */
void linear_exit   (const Ctx *c, Tensor y, Tensor part, Tensor x, const Linear *l, Leaves sum);
void linear_exit_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l);
void linear_exit_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Leaves sum);

/* Several of one x.  raw: x is still to be made, of raw->x normed; then n = 3. */
void linears_forward(const Ctx *c, const Tensor *y, Tensor x, const Raw *raw, const Linear *l, int n, Leaves sum);
void linears_dx3    (const Ctx *c, Tensor dx, Tensor part, const Tensor *dy, const Linear *l, const Leaves *sum);
void linears_dw2    (const Ctx *c, const Params *g, const Linear *l, const Tensor *dy, Tensor x);
/* ... of one that is still to be made: begin->sum = a + b, x = that normed (moe.c). */
void linear_begin   (const Ctx *c, Tensor y, Tensor x, const Beginning *begin, const Linear *l, Leaves sum);

/* One of its own for each head (latent attention's kv_b). */
void linear_heads   (const Ctx *c, Tensor y, Tensor x, const Linear *l, HeadMap map);
void linear_heads_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, HeadMap map);

/* One of its own for each expert, whose rows are ex. */
typedef struct { Linear gate, up, down; } ExpertLinears;
ExpertLinears experts_of(const Ctx *c, int layer);
void experts_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l, Seqs ex, Leaves sum);
void experts_dx     (const Ctx *c, Tensor dx, Tensor dy, const Linear *l, Seqs ex, Leaves sum);
void experts_dx2    (const Ctx *c, Tensor dx, Tensor part, Tensor dgate, Tensor dup, const ExpertLinears *e, Seqs ex,
                     Leaves sum);
void experts_dw     (const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Seqs ex);
/* h = silu(gate) * up, of rows x; without 'keep' nobody reads gate and up later. */
void experts_hidden (const Ctx *c, Tensor h, Tensor gate, Tensor up, Tensor x, const ExpertLinears *e, Seqs ex,
                     Leaves sum, bool keep);
/* The same of tokens x, whose rows come into own, which is scratch, in the order of experts; choose: which are still to
 * be chosen, or NULL. */
void experts_hidden_of(const Ctx *c, const Route *choose, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x,
                       const Routing *r, const ExpertLinears *e, Seqs ex, Leaves sum);
/* end->y = end->mid + what experts make of h and return to tokens; part and out are scratch. */
void experts_end    (const Ctx *c, const Ending *end, Tensor part, Tensor out, Tensor h, const Linear *down, Seqs ex,
                     Leaves sum, const Routing *r);

#endif
