/* mixer.h - what a layer's attention costs, by its kind: a row of numbers for FLOP counts and the planner.  What it
 * computes is layer/mixer.h's. */
#ifndef CUT_MIXER_H
#define CUT_MIXER_H

#include "arch/arch.h"

/* What ranks send each other for a token, in elements, besides the output's sum (hidden, forward) and its gradient's
 * gathering (hidden, backward).  Over tp: as activations, as parts of sums in float32, forward and backward.  Over cp,
 * from one rank of tp: keys and values, forward; those and their gradients, backward.  expands: MLA's backward is
 * over expanded keys (op.h). */
typedef struct { double tp, tp_back, tp_back_sums, cp, cp_back; } MixerSent;

typedef struct {
    double (*weights)(const Dims *d);              /* that one token is multiplied with */
    double (*score)(const Dims *d);                /* width of one head in scores, as in training; in values */
    double (*value)(const Dims *d);
    double (*absorbed)(const Dims *d);             /* both in the form that decoding has */
    double (*cache)(const Dims *d, int tp);        /* elements that a token keeps on one rank of tp */
    double (*kept)(const Dims *d, bool drop_up);   /* bytes that a token leaves for backward in a stack that keeps 16
                                                    * bits; drop_up: what a latent is expanded to is made again */
    double (*kernels)(const Dims *d);              /* launches of the usual engines in decoding */
    bool     repeated;                             /* the cache is whole on every rank of tp */
    void   (*sent)(const Dims *d, int tp, bool expands, MixerSent *out);
} MixerCost;
extern const MixerCost mixer_cost[MIXERS];
static inline const MixerCost *mixer_cost_of(const Dims *d, int layer) { return &mixer_cost[d->layer[layer].mixer]; }

#endif
