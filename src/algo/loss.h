/* loss.h - the loss of a mini-batch and its derivative by every log-prob, in pieces that add up.
 *
 * A mini-batch is normalised once: loss_count() over all its answers gives the global counts; then loss_piece() of any
 * micro-batch of whole answers gives that piece's share.  Values add over pieces in any packing, and a token's
 * derivative depends on its own answer and the counts alone, so packing cannot change it.
 *
 *   loss = agg(pg) - entropy_coef * agg(entropy) + kl_coef * agg(kl(lp, ref))
 *
 * r = exp(lp - old), A the advantage, w the importance weight of stale data (1 when weight is NULL):
 *   vanilla   w max(-A r, -A clip(r, 1-low, 1+high)); if A < 0 at most -A c                (PPO, dual clip)
 *   gspo      the same with the answer's geometric-mean ratio, no dual clip (the paper's average: seq-mean-token-mean)
 *   sapo      -A sigmoid(tau (r-1)) 4/tau, tau by the sign of A, mean over answers of token means
 *   gpg       -A lp                 cispo    -stop(clip(r)) A lp
 *   geo_mean  one loss per answer: -mean(A) exp(mean of lp - old, clipped in the direction of A), mean over answers
 *   kl_cov    -A r, and on the picked tokens + cov_coef |lp - old|                        (pick_by_covariance)
 *   clip_cov  max(-A r, -A clip(r)), and 0 on the picked tokens                           (pick_by_covariance)
 *   dppo_tv   -A stop(min(r, c)) lp, and 0 where p - p_old is above high (A > 0) or below -low (A <= 0), p = exp(lp)
 *   dppo_kl   the same, where p moved A's way and the KL of "this token or another" is above high, or low
 *   dro       -A lp + beta/2 (lp - old)^2
 */
#ifndef ALGO_LOSS_H
#define ALGO_LOSS_H

#include "algo/algo.h"

typedef struct {
    LossKind kind;
    AggKind  agg;                          /* not used by sapo, geo_mean */
    double   clip_low, clip_high, clip_c;
    double   tau_pos, tau_neg;             /* sapo */
    double   cov_ratio, cov_coef;          /* kl_cov, clip_cov: share of the tokens picked; kl_cov: their penalty */
    double   cov_low, cov_high;            /* clip_cov: picked are tokens whose covariance lies between */
    double   dro_beta;
    double   entropy_coef;
    double   kl_coef;                      /* 0: no KL loss */
    int      kl_kind;                      /* KlKind | KL_STRAIGHT */
    double   norm_len;                     /* seq-mean-token-sum-norm: the constant length */
} LossConf;

/* unmasked tokens; answers that have one; answers at all */
typedef struct { int64_t tokens, answers, rows; } LossCounts;
void loss_count(LossCounts *sum, const Answers *a);               /* adds */

typedef struct {
    Answers        a;
    const float   *lp, *old, *adv;         /* [T] */
    const float   *weight;                 /* [T] or NULL */
    const float   *ref;                    /* [T]; needed when kl_coef != 0 or to report the KL, else NULL */
    const float   *entropy;                /* [T]; needed when entropy_coef != 0 or to report it, else NULL */
    const uint8_t *pick;                   /* [T] kl_cov, clip_cov */
} LossIn;

/* Sums over pieces; start from {0}. */
typedef struct {
    double pg, kl, entropy;                /* aggregated terms: already divided by the global counts */
    double clipped, clipped_low, ppo_kl;   /* sums over tokens */
    double max_diff;                       /* largest |lp - old|; NaN where one is */
    int64_t tokens;
} LossSum;
void   loss_add(LossSum *sum, const LossSum *more);
double loss_total(const LossSum *s, const LossConf *c);

/* Whether the derivative is 0 at any log-prob: every advantage is 0, and the loss has no term that does not carry it
 * (an entropy bonus, a KL, a penalty on the ratio: kl_cov, dro). */
bool loss_is_silent(const LossConf *c, const Answers *a, const float *adv);

/* dlp [T]: d loss/d lp.  dent [T] (may be NULL): d loss/d entropy.  Both are written, not added to. */
void loss_piece(LossSum *sum, float *dlp, float *dent, const LossConf *c, const LossCounts *counts, const LossIn *in);

/* pick[t] = 1 for max(1, floor(ratio N)) unmasked tokens by their covariance (A - mean A)(lp - mean lp), 0 for the
 * others, of the n answers which[] (NULL: all).  kl_cov: the largest, ties go to the earlier token.  clip_cov: any
 * whose covariance lies between low and high and that skip[] (NULL: none) does not name, in the order of numbers drawn
 * by 'draw', or of their places where that is 0.  Returns how many were picked.  It is a statistic of the set it is
 * given: the trainer gives the whole mini-batch and the log-probs known before its update (old), so that packing cannot
 * matter; verl takes each micro-batch and the current log-probs. */
typedef struct {
    LossKind       kind;                   /* LOSS_KL_COV or LOSS_CLIP_COV */
    double         ratio, low, high;
    const uint8_t *skip;                   /* [T] or NULL */
    uint64_t       draw;                   /* key of the order; 0: by place */
} PickConf;
size_t  pick_scratch(int64_t tokens);
int64_t pick_by_covariance(uint8_t *pick, const PickConf *c, const Answers *a, const int32_t *which, int64_t n,
                           const float *adv, const float *lp, Arena *tmp);

/* The aggregate of x [T] alone, for metrics. */
double loss_aggregate(AggKind agg, double norm_len, const LossCounts *counts, const Answers *a, const float *x);

/* The critic's: 0.5 agg(max((v - R)^2, (clip(v, old +- range) - R)^2)); dv [T]; *clipped adds the tokens where
 * the clipped term was the larger. */
double value_loss(float *dv, double *clipped, AggKind agg, double norm_len, double range, const LossCounts *counts,
                  const Answers *a, const float *v, const float *old_v, const float *returns);

#endif
