/* kl.c - estimates of the distance to the reference, one token's and its slope, and the coefficient that follows it. */
#include "algo/kl.h"
#include "base/mathx.h"

#include <float.h>
#include <math.h>

static const double LEAST_FACTOR = 0.01; /* of what a step leaves of the coefficient */

static double clamp(double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; }

double kl_token(double *grad, int kind, double lp, double ref) {
    double d = lp - ref, value = d, slope = 1;
    switch (kind & ~KL_STRAIGHT) {
    case KL_K1: break;
    case KL_ABS: value = fabs(d), slope = (d > 0) - (d < 0); break;
    case KL_K2: value = d * d / 2, slope = d; break;
    case KL_K3: {
        double m = clamp(-d, -20, 20), e = mx_exp(m), k = e - m - 1;
        value = clamp(k, -10, 10);
        slope = m == -d && value == k ? 1 - e : 0;
        break;
    }
    default: die("kl kind %d", kind);
    }
    if (kind & KL_STRAIGHT) slope = d;
    if (grad) *grad = slope;
    return value;
}

void kl_control_step(KlControl *c, double kl, int64_t answers) {
    if (!c->adaptive || isnan(kl)) return;
    double factor = 1 + clamp(kl / c->target - 1, -0.2, 0.2) * (double)answers / c->horizon;
    c->coef *= factor > LEAST_FACTOR ? factor : LEAST_FACTOR;
    if (c->coef > DBL_MAX) c->coef = DBL_MAX;
}

double kl_into_reward(float *reward, const Answers *a, int kind, double coef, const float *old_lp,
                      const float *ref_lp) {
    double total = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double sum = 0;
        int64_t len = 0;
        for (int64_t t = a->at[i]; t < a->end[i]; t++) {
            if (!token_on(a, t)) continue;
            double k = kl_token(NULL, kind, old_lp[t], ref_lp[t]);
            reward[t] = (float)(reward[t] - coef * k);
            sum += k, len++;
        }
        if (len) total += sum / (double)len;
    }
    return a->n ? total / (double)a->n : 0;
}
