/* mathx.h - exp, log, sin, cos, pow in double from + - * / fma alone, so that their bits do not depend on which libm
 * the machine has.  For scalars: rope frequencies, log-sums, schedules.  (Vectors: op/cpu/lanes.) Every double may be
 * given: at the ends the answers are libm's (0, infinities, NaN). */
#ifndef BASE_MATHX_H
#define BASE_MATHX_H

#include "base/host_device.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* ln x: x = 2^e m, m in [sqrt 1/2, sqrt 2), 2 atanh((m-1)/(m+1)); error below 1e-15 relative.
 * ln 0 is -inf, of less NaN. */
HOST_DEVICE double mx_log(double x) {
    int64_t b, small = 0;
    if (!(x >= DBL_MIN && x <= DBL_MAX)) {
        if (!(x > 0)) return x == 0 ? -INFINITY : NAN;
        if (x > DBL_MAX) return x;
        x *= 0x1p54, small = 54; /* below the normal numbers: their exponent is in the mantissa */
    }
    memcpy(&b, &x, 8);
    int64_t e = (b - 0x3FE6A09E667F3BCD) >> 52;
    b -= e * ((int64_t)1 << 52);
    double m;
    memcpy(&m, &b, 8);
    double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 21;
    static const double c[] = { 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3 };
    for (int i = 0; i < 9; i++) p = fma(p, z, c[i]);
    p = fma(p * z, s, s);
    return fma((double)(e - small), 0.69314718055994530942, 2 * p);
}

/* e^x: x = n ln2 + r, Taylor on |r| <= 0.347; error below 1e-15 relative, or half the least number there is. */
HOST_DEVICE double mx_exp(double x) {
    if (!(x > -746)) return x <= -746 ? 0 : x; /* NaN stays */
    if (x > 710) return INFINITY;
    double n = (x * 1.44269504088896340736 + 6755399441055744.0) - 6755399441055744.0;
    double r = fma(-n, 6.93147180369123816490e-01, x);
    r = fma(-n, 1.90821492927058770002e-10, r);
    double p = 1.0 / 6227020800.0;
    static const double c[] = { 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                                1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0 };
    for (int i = 0; i < 13; i++) p = fma(p, r, c[i]);
    /* 2^n as two factors: alone it does not exist below -1022 and above 1023, where p 2^n
     * still does; only the last one rounds */
    int64_t half = (int64_t)n / 2, b[2] = { (half + 1023) << 52, ((int64_t)n - half + 1023) << 52 };
    double s[2];
    memcpy(s, b, 16);
    return p * s[0] * s[1];
}

/* x^y for x >= 0; the error grows with the exponent: below 1e-15 (1 + |y ln x|) relative. */
HOST_DEVICE double mx_pow(double x, double y) { return y == 0 || x == 1 ? 1 : mx_exp(y * mx_log(x)); }

/* sin and cos of an angle up to 2^32 (a position times a frequency): three-part pi/2, then
 * Taylor on [-pi/4, pi/4]; error below 1e-15.  Of anything else, NaN. */
HOST_DEVICE void mx_sincos(double a, double *sn, double *cs) {
    if (!(a >= -0x1p32 && a <= 0x1p32)) {
        *sn = *cs = NAN;
        return;
    }
    double n = (a * 0.63661977236758134308 + 6755399441055744.0) - 6755399441055744.0;
    double r = fma(-n, 1.57079632673412561417e+00, a);
    r = fma(-n, 6.07710050630396597660e-11, r);
    r = fma(-n, 2.02226624879595063154e-21, r);
    double z = r * r, s = -1.0 / 1307674368000, c = 1.0 / 20922789888000;
    static const double S[] = { 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6 };
    static const double C[] = {
        -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5
    };
    for (int i = 0; i < 6; i++) s = fma(s, z, S[i]);
    for (int i = 0; i < 7; i++) c = fma(c, z, C[i]);
    s = fma(s * z, r, r), c = fma(c, z, 1.0);
    switch ((int64_t)n & 3) {
    case 0: *sn = s, *cs = c; break;
    case 1: *sn = c, *cs = -s; break;
    case 2: *sn = -s, *cs = -c; break;
    default: *sn = -c, *cs = s;
    }
}

#endif
