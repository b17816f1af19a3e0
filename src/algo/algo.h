/* algo.h - the words of the methods: kinds with their names, and the shape of a batch of answers.
 *
 * Answers are ragged and never padded: answer i owns tokens at[i] .. end[i]-1 of every per-token array; what lies
 * between answers is neither read nor written.  Only answer tokens are there, not the prompt's.  mask 0 marks a token
 * the model did not write (a tool's); NULL: all are 1.  A masked token's inputs are not read and its outputs are 0.
 * Sums are in double and in the order of the answers and their tokens. */
#ifndef ALGO_ALGO_H
#define ALGO_ALGO_H

#include "base/base.h"

typedef struct {
    int64_t        n;         /* answers */
    const int64_t *at, *end;  /* [n]; side by side without gaps: end = at + 1 */
    const uint8_t *mask;      /* [T] or NULL */
} Answers;

static inline bool token_on(const Answers *a, int64_t t) { return !a->mask || a->mask[t]; }
int64_t answer_len(const Answers *a, int64_t i);      /* unmasked tokens of answer i */
int64_t answers_end(const Answers *a);                /* places that the columns have at least: T */

typedef enum {
    ADV_GRPO, ADV_DR_GRPO, ADV_RLOO, ADV_RPP, ADV_RPP_BASELINE, ADV_REMAX, ADV_OPO, ADV_GPG, ADV_PASSK, ADV_GAE,
    ADV_RLOO_VECTORIZED, ADV_GDPO, ADV_OTB, ADV_TIR_OTB
} AdvKind;
typedef enum {
    LOSS_VANILLA, LOSS_GSPO, LOSS_SAPO, LOSS_GPG, LOSS_CISPO, LOSS_GEO_MEAN, LOSS_KL_COV, LOSS_CLIP_COV, LOSS_DPPO_TV,
    LOSS_DPPO_KL, LOSS_DRO
} LossKind;
typedef enum {
    AGG_TOKEN_MEAN, AGG_SEQ_MEAN_TOKEN_SUM, AGG_SEQ_MEAN_TOKEN_MEAN, AGG_SEQ_MEAN_TOKEN_SUM_NORM, AGG_TOKEN_SUM
} AggKind;
typedef enum { KL_K1, KL_K2, KL_K3, KL_ABS } KlKind;
enum { KL_STRAIGHT = 16 };    /* or-ed in: value of the estimator, derivative of k2 ("k3+") */
typedef enum { TIS_OFF, TIS_TOKEN, TIS_SEQUENCE } TisKind;

/* Every spelling that is accepted, verl's included; the first one of a value is its name.  Ends with {0}. */
typedef struct { const char *name; int value; } Name;
extern const Name adv_names[], loss_names[], agg_names[], kl_names[], tis_names[];
bool        name_find(int *value, const Name *names, const char *name);
const char *name_of(const Name *names, int value);
bool        loss_is_sequence_mean(LossKind k);        /* SAPO, geo-mean bring their own aggregation */
bool        loss_picks(LossKind k);                   /* wants LossIn.pick */

#endif
