/* head.h - inside the head: what backward needs of a row, and the kept set of a truncated distribution. */
#ifndef OP_CPU_HEAD_H
#define OP_CPU_HEAD_H

#include "op/cpu/cpu.h"

enum { LEAF = 128 };
#define HEAD_ONE ((int64_t)1 << 40)

/* Which ids a row's distribution has: all, those that its own rules keep, those that it was told to keep. */
typedef enum { CUT_NONE, CUT_FOUND, CUT_GIVEN } Cut;

/* One row's distribution: logits l (already times inv_temp), maximum, mass 2^40 sum e^(l-max) and its entropy's sum.
 * The ids found to be kept are those with q >= qmin and (key > K, or key == K and id <= tie_last). */
typedef struct {
    float    max, inv_temp;
    int64_t  z, u;              /* 2^40 sum e^(l-max) and 2^40 sum (l-max) e^(l-max), over the kept set */
    int64_t  qmin;
    uint32_t key;
    int32_t  tie_last;
    int32_t  cut;               /* Cut */
    int32_t  chosen;            /* ids[t] was asked for and is kept */
    int32_t  ban;
} HeadRow;
_Static_assert(sizeof(HeadRow) <= HEAD_STAT, "what backward needs fits into stat");

typedef struct { int top_k; float top_p, min_p; } Trunc;
Trunc head_trunc(const Dist *p, int64_t t);
float head_inv_temp(const Dist *p, int64_t t);
static inline bool trunc_off(Trunc t) { return t.top_k <= 0 && t.top_p >= 1 && t.min_p <= 0; }

/* Logits that are not all numbers, or have no largest finite one, give no distribution: log-prob and entropy are NaN,
 * no id is drawn.  (The mass of a distribution is at least that of its largest logit.) */
static inline bool head_none(const HeadRow *r) { return r->z <= 0; }

uint32_t head_key(float l);                                                     /* larger float <=> larger key */
/* max, z, u of everything from leaf sums */
void     head_leaves(HeadRow *r, const Kern *k, const float (*st)[3], int64_t leaves);
void     head_keep(HeadRow *r, const Kern *k, const float *l, int64_t V, Trunc t, float *work);    /* everything */
int32_t  head_pick(const HeadRow *r, const Kern *k, const float *l, int64_t V, uint64_t random, float *work);
/* ids not kept: -inf */
void     head_mask(const HeadRow *r, const Kern *k, float *l, int64_t from, int64_t n, float *work);
/* The found set as bits; and the distribution over a given one, where l becomes -inf elsewhere.  Found and given again,
 * with the same logits, a set has the same sums, bit for bit. */
void     head_bits(uint32_t *bits, const HeadRow *r, const Kern *k, const float *l, int64_t V, float *work);
void     head_given(HeadRow *r, const Kern *k, float *l, const uint32_t *bits, int64_t V, float *work);
void     head_mask_given(const uint32_t *bits, float *l, int64_t from, int64_t n);
float    head_lp(const HeadRow *r, float l);
float    head_ent(const HeadRow *r);

#endif
