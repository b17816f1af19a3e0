/* kl.h - how far the policy is from another, estimated from one sampled token; d = lp - ref.
 *   k1 (kl)  d     k2 (mse)  d^2/2     k3 (low_var_kl)  exp(-d) + d - 1, d within 20, result within 10     abs  |d|
 * With KL_STRAIGHT the value stays and the derivative is k2's, the only one whose mean is the true gradient. */
#ifndef ALGO_KL_H
#define ALGO_KL_H

#include "algo/algo.h"

/* Value; *grad (may be NULL) is its derivative by lp, 0 where a bound holds. */
double kl_token(double *grad, int kind, double lp, double ref);

/* The controller of the coefficient when KL goes into the reward.  adaptive: multiplied after every step by
 * 1 + clip(kl / target - 1, 0.2) * answers / horizon, but by 0.01 at least: in verl a step of more than five horizons
 * makes the coefficient negative, which rewards what it is to punish.  It stays finite and positive. */
typedef struct { bool adaptive; double coef, target, horizon; } KlControl;
void kl_control_step(KlControl *c, double kl, int64_t answers);

/* reward[t] -= coef * kl(old, ref); returns the mean over answers of an answer's mean KL (the controller's input). */
double kl_into_reward(float *reward, const Answers *a, int kind, double coef, const float *old_lp, const float *ref_lp);

#endif
