/* lengths.c - how long answers are: log-normal, cut off at the maximum, scaled so that the mean after the
 * cut is the one that was asked for.  n answers are the n middle quantiles, so a plan is a function of its
 * numbers and not of luck. */
#include "base/rng.h"
#include "plan/plan.h"

#include <math.h>

enum { GRID = 512 }; /* quantiles that stand for the distribution when its moments are taken */

/* Acklam's rational approximation; relative error below 1.2e-9. */
double normal_quantile(double p) {
    static const double a[] = { -3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                                1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00 };
    static const double b[] = { -5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                                6.680131188771972e+01, -1.328068155288572e+01 };
    static const double c[] = { -7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                                -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00 };
    static const double d[] = { 7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                                3.754408661907416e+00 };
    if (p < 0.02425 || p > 1 - 0.02425) {
        double q = sqrt(-2 * log(p < 0.5 ? p : 1 - p)), sign = p < 0.5 ? 1 : -1;
        double up = ((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5];
        return sign * up / ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
    }
    double q = p - 0.5, r = q * q;
    double up = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q;
    return up / (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

static double cut(double x, double max) { return x < 1 ? 1 : x > max ? max : x; }

/* The log-normal's location for which the mean after the cut is w->mean, by bisection. */
static double location(const Workload *w, double sigma) {
    double lo = log(w->mean) - sigma * sigma - 1, hi = log(w->max) + 6 * sigma + 1;
    double above[GRID]; /* each quantile over exp(mu) */
    for (int k = 0; k < GRID; k++) above[k] = exp(sigma * normal_quantile((k + 0.5) / GRID));
    for (int i = 0; i < 40; i++) {
        double mu = (lo + hi) / 2, middle = exp(mu), sum = 0;
        for (int k = 0; k < GRID; k++) sum += cut(middle * above[k], w->max);
        if (sum / GRID < w->mean) lo = mu;
        else hi = mu;
    }
    return (lo + hi) / 2;
}

void lengths_fill(const Workload *w, double *out, int n) {
    double sigma = sqrt(log(1 + w->spread * w->spread)), mu = location(w, sigma);
    for (int i = 0; i < n; i++) out[i] = cut(exp(mu + sigma * normal_quantile((i + 0.5) / n)), w->max);
    for (int i = n - 1; i > 0; i--) { /* order of arrival */
        int j = (int)(rng_u64(1, RNG_PLAN, 0, 0, 0, (uint32_t)i) % (uint64_t)(i + 1));
        double t = out[i];
        out[i] = out[j], out[j] = t;
    }
}

Moments lengths_moments(const Workload *w, double n) {
    double sigma = sqrt(log(1 + w->spread * w->spread)), mu = location(w, sigma), sum = 0, squares = 0;
    for (int k = 0; k < GRID; k++) {
        double s = w->prompt_mean + cut(exp(mu + sigma * normal_quantile((k + 0.5) / GRID)), w->max);
        sum += s, squares += s * s;
    }
    double mean = sum / GRID;
    return (Moments){ .square = squares / sum,
                      .variation = sqrt(fmax(0, squares / GRID - mean * mean)) / mean,
                      .longest = cut(exp(mu + sigma * normal_quantile((n - 0.5) / n)), w->max) };
}
