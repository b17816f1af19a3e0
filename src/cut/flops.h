/* flops.h - how many floating-point operations a batch takes: verl's count, for comparing MFU with published figures,
 * and the exact one.  An operation is a multiplication or an addition; norms, rope, softmax and the optimizer are not
 * counted, nor is a vision tower but by its own function. */
#ifndef CUT_FLOPS_H
#define CUT_FLOPS_H

#include "arch/arch.h"

/* What one token meets, from which every count is made. */
typedef struct {
    double linear;   /* weights it is multiplied with: layers, router, active and shared experts; not embedding, head */
    double head;     /* vocab * hidden */
    double pair;     /* per (query, key) pair: heads * (qk_dim + v_dim), summed over the layers */
} TokenFlops;
TokenFlops token_flops(const Dims *d);

/* verl's estimate of forward and backward: 6 (linear + 2 head) tokens + 3 pair sum s^2.  The embedding counts as a
 * product, causal attention as half the square.  (verl itself gives 0 for mixtral; this does not.) */
double flops_verl(const TokenFlops *f, const int64_t *lens, int64_t n);

/* Exact: 2 linear tokens + 2 head head_tokens + pair s (s+1) per sequence, forward.  head_tokens: positions
 * whose log-prob is taken (all answers' tokens).  Backward is twice that; full recomputation adds one
 * forward of the layers. */
double flops_forward(const TokenFlops *f, const int64_t *lens, int64_t n, int64_t head_tokens);
double flops_train(const TokenFlops *f, const int64_t *lens, int64_t n, int64_t head_tokens);

/* The vision tower's forward over one picture of h x w patches, its merger included. */
double flops_tower(const Dims *d, int64_t h, int64_t w);

#endif
