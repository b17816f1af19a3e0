/* sum.h - a model's parameter table added up the way memory and time ask for it: per layer, by what tensor and expert
 * parallelism cut.  Everything else in plan/ works from these sums and never looks at a parameter again. */
#ifndef PLAN_SUM_H
#define PLAN_SUM_H

#include "plan/kept.h"

typedef struct {                      /* elements of one layer */
    double attn_cut, attn_whole;      /* attention: cut by tp; whole on every tp rank */
    double norm, dense, router, shared, experts;
    double gemm;                      /* weights one token is multiplied with: chosen experts only */
    double score, value;              /* widths of one head's scores and values, as in training; of both in */
    double absorbed;                  /* the form that decoding has */
} LayerSum;

typedef struct {
    const ModelDesc *model;
    int      layers;
    double   embed, head, final_norm, vision;       /* head 0: tied to the embedding */
    double   total, active, gemm;                   /* gemm: with the head, without the embedding's lookup */
    double   tensors;                               /* named tensors in the hub's files */
    double   score, value, absorbed;                /* as of a layer, summed over all */
    LayerSum at[MAX_LAYERS];
    LayerSum before[MAX_LAYERS + 1];                /* sums of layers 0..l-1 */
    KeptMemo memo, *kept;                           /* kept: memo, also for who only reads the sums */
} ModelSum;

void model_sum(ModelSum *s, const ModelDesc *m);

static inline bool sum_is_moe(const ModelSum *s, int layer) { return s->at[layer].experts > 0; }

/* The key-value cache: bytes of one token over all layers on one rank of tp ranks.  MLA's latent is one head whatever
 * tp is; GQA's heads are repeated once tp exceeds their number. */
double sum_kv_bytes(const ModelSum *s, int tp, double element);

/* Forward FLOP of one token whose sequence has length s (causal: it sees s/2 on average). */
double sum_forward(const ModelSum *s, double length);

/* What one token of layer l leaves for the backward pass, in bytes of 16-bit elements (float32 where it is always so),
 * before any division by tp.  drop: DROP_* bits; 'full' keeps the layer's input alone. */
/* ROWS: permuted inputs */
enum { DROP_NORM = 1, DROP_ACT = 2, DROP_MOE = 4, DROP_MLA_UP = 8, DROP_ALL = 16, DROP_ROWS = 32 };
typedef struct { double block, moe; } Kept;          /* attention, norms, dense mlp; experts, router, shared */
Kept sum_kept(const ModelSum *s, int layer, int drop, double imbalance);
static inline double kept_bytes(Kept k) { return k.block + k.moe; }

#endif
