/* layer.h - the shape of every layer: what it keeps, forward, backward.
 *
 *   forward  writes y and, if keep is not NULL, what backward will read.
 *   backward reads it, writes dx and adds into the weight gradients.
 *
 * Kept tensors come from c->act and live until the micro-batch's backward has run; everything else comes from
 * c->dev->tmp and is gone at return, so the two are never the same arena.
 *
 * A layer is given this rank's rows of x and gives this rank's rows of y; between its pairs (tp_enter, tp_exit: par.h)
 * it sees all tokens and its own slice of heads or columns.  It does not know that other ranks exist: sizes are in
 * c->l, and on one rank they are the model's.
 *
 * The same forward serves training and rollout (E3): with c->kv set, keys and values go through the paged cache, whose
 * attention has the same bits.
 *
 * T tokens, H hidden, N heads, K kv heads, D head width, R latent width, r rope width, E experts, k chosen. */
#ifndef LAYER_LAYER_H
#define LAYER_LAYER_H

#include "cut/grid.h"
#include "op/op_fused.h"
#include "par/par.h"
#include "param/param.h"

typedef struct {
    Dev             *dev;
    Arena           *act;          /* kept from forward to backward */
    Arena           *again;        /* of a block that is recomputed in backward; NULL: act */
    const ModelDesc *m;
    Local            l;            /* this rank's heads, columns, experts, ids */
    int64_t          tokens;       /* T: rows of all ranks of tp */
    const Params    *w, *lora;     /* lora: an adapter's, or NULL: none, or switched off */
    Par              par;
    EpBook          *book;         /* of experts' rounds */
    int64_t          each;         /* a step of decoding over ranks that share experts: tokens of the rank that has
                                    * most; 0: rows are counted (par.h) */
    Tensor           order;        /* ... and [T,k] 0, 1, 2, ... */
    int              leaves;       /* E2: pieces of every sum that TP may cut */
    Recompute        recompute;
    Seqs             seqs;         /* packed sequences, or this rank's pieces of them: */
    Tensor           from, start;  /* as in Attn */
    const CpRows    *cp;
    Tensor           cossin;       /* [T,dim] of this batch's positions */
    float            scale;        /* of attention */
    const Kv        *kv;           /* [layers], or NULL when training */
    Paged            paged;
} Ctx;

/* Where a tensor goes: kept always, kept unless the cheap ones are dropped, or scratch. */
static inline Arena *keep_always(const Ctx *c, const void *keep) { return keep ? c->act : &c->dev->tmp; }
static inline Arena *keep_cheap(const Ctx *c, const void *keep) {
    return keep && c->recompute == RECOMPUTE_NONE ? c->act : &c->dev->tmp;
}
/* Activations are as the device computes.  What is summed over or looked at closely stays float32 everywhere: a norm's
 * 1/rms, attention's log-sums, the router's logits and weights, angles. */
static inline Tensor push(const Ctx *c, Arena *a, int64_t rows, int64_t cols) {
    return tensor_push(a, c->dev->act, rows, cols);
}
/* The same for widths that are no multiples of 8: rows begin on 16-byte borders, which a
 * GPU's copy engine wants (3420 columns of a tower). */
static inline Tensor push_even(const Ctx *c, Arena *a, int64_t rows, int64_t cols) {
    return c->dev->act == DT_BF16 ? tensor_cols(push(c, a, rows, (cols + 7) / 8 * 8), 0, cols) : push(c, a, rows, cols);
}
static inline Tensor push_f32(Arena *a, int64_t rows, int64_t cols) { return tensor_push(a, DT_F32, rows, cols); }

/* A cheap tensor as it is kept: none when it was dropped, and backward makes it again. */
static inline Tensor kept(const Ctx *c, Tensor t) { return c->recompute == RECOMPUTE_NONE ? t : TENSOR_NONE; }

/* A norm's gain as it is multiplied with: where the family's norms are centred, 1 + it, in tmp. */
Tensor norm_gain(const Ctx *c, ParamId id, int layer);
typedef struct { Tensor x, rstd, y; } NormKeep;                          /* y: cheap */
Tensor norm_forward (const Ctx *c, Tensor x, Tensor g, float eps, Arena *to, NormKeep *keep);   /* new tensor of 'to' */
/* The same of sum = a + b, which is written too. */
Tensor norm_add_forward(const Ctx *c, Tensor sum, Tensor a, Tensor b, Tensor g, float eps, Arena *to, NormKeep *keep);
Tensor norm_output  (const Ctx *c, const NormKeep *k, Tensor g, float eps);             /* kept, or made again in tmp */
void   norm_backward(const Ctx *c, Tensor dx, Tensor dg, Tensor dy, Tensor g, const NormKeep *k);
void   norm_add_backward(const Ctx *c, Tensor dx, Tensor dg, Tensor dy, Tensor g, const NormKeep *k, Tensor more);

/* Attention is the dearest thing to make again: full recomputation remembers what came of it, and its log-sums. */
typedef struct { Tensor o, lse; } Attended;                               /* none: not remembered */

typedef struct { Attn a; Tensor q_raw, k_raw, q_rstd, k_rstd, gate; } GqaKeep;
/* raw: q, k and v before their filters */
typedef struct { Tensor raw[3], z, a, b, o; } DeltaKeep;
/* ov: a.o behind W_uv, kept instead of it where backward is expanded (mla.c); there it is what is remembered. */
typedef struct { Attn a; Tensor qa, qa_rstd, q, kva, kv_rstd, key, ov; } MlaKeep;
typedef union { GqaKeep gqa; MlaKeep mla; DeltaKeep delta; } MixerKeep;
typedef struct { Tensor x, g; float eps; } Raw;

/* How a layer's tokens see each other: one row for each MixerKind.
 * x: the block's normed input [T,H], which the caller keeps.  raw: it is still to be made, of this one normed with g;
 * or NULL, as it is over ranks and for a mixer that does not take it.  at: written, or read if it is 'known'. */
typedef struct {
    void   (*forward)(const Ctx *c, int layer, Tensor y, Tensor x, const Raw *raw, const Attended *at, bool known,
                      MixerKeep *keep);
    void   (*backward)(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x, const MixerKeep *keep);
    Attended (*attended)(const Ctx *c, Arena *a);
    Kv     (*cache)(const ModelDesc *m, const Local *l);            /* one layer's, without pages and memory */
    StoreKind store;                                                /* what it is kept in */
    bool     takes_raw;
} Mixer;
extern const Mixer mixer_gqa, mixer_mla, mixer_delta;
const Mixer *mixer_of(const ModelDesc *m, int layer);

/* A bias behind a sum that TP cuts: added once, when the sum is whole, on this rank's rows. */
static inline void bias_forward(const Ctx *c, Tensor y, Tensor b) { if (b.data) op_add_row(c->dev, y, b); }
static inline void bias_backward(const Ctx *c, Tensor db, Tensor dy) { if (db.data) op_sum_rows(c->dev, db, dy); }

/* Attention proper: within packed sequences, or through the cache's pages when there is one. */
void attention(const Ctx *c, int layer, const Attn *a);

/* The dense feed-forward, also the shared experts: which weights is said by their ids. */
typedef struct { ParamId gate, up, down, gate_b, up_b, down_b; } MlpIds;
extern const MlpIds mlp_dense, mlp_shared, mlp_vision;
typedef struct { Tensor gate, up, h; } MlpKeep;
void mlp_forward (const Ctx *c, const MlpIds *ids, int layer, Tensor y, Tensor x, MlpKeep *keep);
void mlp_backward(const Ctx *c, const MlpIds *ids, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x,
                  const MlpKeep *keep);

/* A block of the vision tower over patches x [N,h], within segments that see themselves
 * whole; and what makes tokens of its last one's rows. */
typedef struct { Tensor x, qkv; NormKeep n1, n2; Attn a; MlpKeep mlp; } VisionKeep;
void vision_forward (const Ctx *c, int layer, Seqs segments, Tensor y, Tensor x, VisionKeep *keep);
void vision_backward(const Ctx *c, int layer, Seqs segments, const Params *g, Tensor dx, Tensor dy,
                     const VisionKeep *keep);
typedef struct { NormKeep n; Tensor h, act; } MergerKeep;
void   merger_forward (const Ctx *c, Tensor y, Tensor x, MergerKeep *keep);     /* y [N/m*m, H] */
void   merger_backward(const Ctx *c, const Params *g, Tensor dx, Tensor dy, const MergerKeep *keep);

/* Experts.  'routing' is what recomputation remembers: a token is never routed twice. */
typedef struct { Tensor pick, weight, at, from, slot; } Routing;
/* mix, mixed: logits of the shared experts' gate, and what they gave before it */
typedef struct { Routing routing; Tensor logits, xe, gate, up, h, out, mix, mixed; MlpKeep shared; } MoeKeep;
Routing routing_push(const Ctx *c, int64_t T, Arena *a);
Tensor moe_order(const Ctx *c, int64_t T, Arena *a);               /* Ctx.order; what else it takes of a is free */
/* begin: x is still to be made, of sum = a + b normed with g; or NULL.  end: what a block without shared experts ends
 * with where another follows: end->y = mid + y, n = that normed with g, or, of one token on one rank, no n; y itself is
 * then scratch. */
typedef struct { Tensor sum, a, b, g; float eps; } Beginning;
typedef struct { Tensor y, n, mid, g; float eps; } Ending;
void moe_forward (const Ctx *c, int layer, Tensor y, Tensor x, const Routing *routing, bool known,
                  const Beginning *begin, const Ending *end, MoeKeep *keep);
void moe_backward(const Ctx *c, int layer, const Params *g, Tensor dx, Tensor dy, Tensor x, const MoeKeep *keep);

/* Sums over what TP cuts, in leaves: this rank's are a subtree.  Units are the model's heads,
 * or the columns of a feed-forward. */
static inline Leaves leaves_of(const Ctx *c, const Comm *group, int64_t units, int64_t unit) {
    return (Leaves){ c->leaves / group->size * group->rank, c->leaves / group->size, c->leaves, units, unit };
}
static inline Leaves by_heads(const Ctx *c, int64_t width) { return leaves_of(c, &c->par.tp, c->m->d.heads, width); }
static inline Leaves by_cols(const Ctx *c, int64_t cols) { return leaves_of(c, &c->par.tp, cols, 1); }

#endif
