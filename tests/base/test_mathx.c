/* test_mathx.c - exp, log, pow, sin and cos against libm over everything a double can hold: the middle,
 * where their bits are part of every result (a print of them is kept here), and the ends, where they must
 * be what a reader of the formula expects. */
#include "base/mathx.h"
#include "base/rng.h"
#include "test.h"

#include <float.h>

static double unit(uint32_t k, uint32_t i) { /* [0, 1) */
    return (double)(rng_u64(5, RNG_PLAN, 0, 0, k, i) >> 11) / 9007199254740992.0;
}

static uint64_t bits_of(double x) {
    uint64_t b;
    memcpy(&b, &x, 8);
    return b;
}
static double of_bits(uint64_t b) {
    double x;
    memcpy(&x, &b, 8);
    return x;
}
static bool same(double a, double b) { return isnan(a) ? isnan(b) : bits_of(a) == bits_of(b); }

/* Relative to the true value; where that is below the normal numbers, to the least of them. */
static double off(double got, long double want) {
    if (!isfinite((double)want)) return same(got, (double)want) ? 0 : 1;
    if (!isfinite(got)) return 1;
    long double size = fabsl(want) < DBL_MIN ? DBL_MIN : fabsl(want);
    return (double)(fabsl((long double)got - want) / size);
}

enum { MANY = 400000 };

static void test_exp(void) {
    double worst = 0, at = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        double x = i % 2 ? -760 + 1480 * unit(1, i) : 2 * unit(1, i) - 1, e = off(mx_exp(x), expl((long double)x));
        if (e > worst) worst = e, at = x;
    }
    EXPECT(worst < 1e-15, "e^%.17g is off by %g", at, worst);
    static const struct {
        double x, y;
    } ends[] = { { 0, 1 },          { -0.0, 1 },           { INFINITY, INFINITY }, { -INFINITY, 0 },
                 { NAN, NAN },      { DBL_MAX, INFINITY }, { -DBL_MAX, 0 },        { 709.79, INFINITY },
                 { 1e9, INFINITY }, { -1e9, 0 },           { -745.2, 0 },          { DBL_MIN, 1 },
                 { 5e-324, 1 },     { -709e3, 0 } };
    for (size_t i = 0; i < COUNT(ends); i++)
        EXPECT(same(mx_exp(ends[i].x), ends[i].y), "e^%g is %g", ends[i].x, mx_exp(ends[i].x));
    EXPECT(isfinite(mx_exp(709.78)) && mx_exp(709.78) > 1.7e308, "e^709.78 is %g", mx_exp(709.78));
    EXPECT(mx_exp(-745) == 5e-324, "e^-745 is %g", mx_exp(-745));
    int falls = 0;
    for (double x = -760; x < 712; x += 0.01) falls += mx_exp(x + 0.01) < mx_exp(x);
    EXPECT(!falls, "exp falls %d times", falls);
}

static void test_log(void) {
    double worst = 0, at = 0;
    for (uint32_t i = 0; i < MANY; i++) { /* every exponent, the numbers below the normal ones too; and near 1 */
        uint64_t r = rng_u64(6, RNG_PLAN, 0, 0, 0, i);
        double x = i % 3 ? of_bits(r % 0x7FF0000000000000) : 1 + (unit(2, i) - 0.5) / (double)(1 << i % 30);
        double e = x == 0 ? 0 : off(mx_log(x), logl((long double)x));
        if (e > worst) worst = e, at = x;
    }
    EXPECT(worst < 1e-15, "log %.17g is off by %g", at, worst);
    static const struct {
        double x, y;
    } ends[] = { { 1, 0 },           { 0, -INFINITY }, { -0.0, -INFINITY }, { INFINITY, INFINITY },
                 { -INFINITY, NAN }, { -1, NAN },      { -5e-324, NAN },    { NAN, NAN } };
    for (size_t i = 0; i < COUNT(ends); i++)
        EXPECT(same(mx_log(ends[i].x), ends[i].y), "log %g is %g", ends[i].x, mx_log(ends[i].x));
    static const double edges[] = { DBL_MIN, DBL_MAX, 5e-324, 2.2250738585072009e-308, 0.5, 2 };
    for (size_t i = 0; i < COUNT(edges); i++)
        EXPECT(off(mx_log(edges[i]), logl((long double)edges[i])) < 1e-15, "log %g is %.17g", edges[i],
               mx_log(edges[i]));
}

static void test_pow(void) {
    double worst = 0, at_x = 0, at_y = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        double x = of_bits(rng_u64(7, RNG_PLAN, 0, 0, 0, i) % 0x7FF0000000000000), l = log(x);
        double y = i % 2 ? 3000 * (unit(3, i) - 0.5) : l != 0 ? 1500 * (unit(3, i) - 0.5) / l : 1;
        long double want = powl((long double)x, (long double)y);
        double e = off(mx_pow(x, y), want) / (1 + fabs(y * l < -745 || y * l > 745 ? 745 : y * l));
        if (e > worst) worst = e, at_x = x, at_y = y;
    }
    EXPECT(worst < 1e-15, "%.17g^%.17g is off by %g for each unit of its logarithm", at_x, at_y, worst);
    static const double ends[][2] = { { 0, 1 },        { 0, 1e6 },       { 0, -1 },       { 0, 0 },
                                      { 2, 0 },        { 1, 1e300 },     { 1, INFINITY }, { 0.5, INFINITY },
                                      { 2, INFINITY }, { 2, -INFINITY }, { NAN, 1 },      { 2, NAN },
                                      { NAN, 0 },      { 1, NAN },       { INFINITY, 2 }, { INFINITY, -2 },
                                      { 10, 400 },     { 10, -400 } };
    for (size_t i = 0; i < COUNT(ends); i++)
        EXPECT(same(mx_pow(ends[i][0], ends[i][1]), pow(ends[i][0], ends[i][1])), "%g^%g is %g", ends[i][0], ends[i][1],
               mx_pow(ends[i][0], ends[i][1]));
}

/* 1 - beta^t, by which AdamW divides, for every update of a long run. */
static void test_bias_corrections(void) {
    static const float betas[] = { 0, 0.5f, 0.9f, 0.95f, 0.99f, 0.999f, 0.9999f, 0.9999999f };
    for (size_t b = 0; b < COUNT(betas); b++) {
        int bad = 0, first = 0;
        double worst = 0;
        for (int t = 1; t <= 1000000; t++) {
            double got = 1 - mx_pow((double)betas[b], t), want = 1 - pow((double)betas[b], t);
            double e = off(got, (long double)want);
            if (!(e < 1e-9) && !bad++) first = t; /* 1 - beta is exact; what is lost is lost in it */
            if (e > worst) worst = e;
        }
        EXPECT(!bad, "beta %.9g: %d of a million bias corrections are wrong, the first at update %d", (double)betas[b],
               bad, first);
        EXPECT(worst < 3e-15 / (1 - (double)betas[b]), "beta %.9g: off by %g", (double)betas[b], worst);
    }
}

static void test_sincos(void) {
    double worst = 0, at = 0;
    for (uint32_t i = 0; i < MANY;
         i++) { /* as rope has them: a float, a position up to 2^31 times a frequency up to 1 */
        double a = (double)(float)ldexp(2 * unit(4, i) - 1, (int)(i % 33)), s, c;
        mx_sincos(a, &s, &c);
        double e = fmax(fabs(s - (double)sinl((long double)a)), fabs(c - (double)cosl((long double)a)));
        if (!(e <= worst)) worst = e, at = a;
    }
    EXPECT(worst < 1e-15, "sin or cos of %.17g is off by %g", at, worst);
    static const double ends[] = { NAN, INFINITY, -INFINITY, 1e300, -1e18 };
    for (size_t i = 0; i < COUNT(ends); i++) {
        double s, c;
        mx_sincos(ends[i], &s, &c);
        EXPECT(isnan(s) && isnan(c), "sin and cos of %g are %g and %g", ends[i], s, c);
    }
}

/* The bits in the middle have not changed since results were first published: a print over
 * each function's first range. */
static void test_bits(void) {
    uint64_t h[4] = { 0 };
    for (uint32_t i = 0; i < MANY; i++) {
        double u = unit(8, i), s, c;
        mx_sincos(2097152 * (u - 0.5), &s, &c);
        double normal = of_bits(0x10000000000000 + rng_u64(9, RNG_PLAN, 0, 0, 0, i) % 0x7FE0000000000000);
        const double y[4] = { mx_exp(1400 * (u - 0.5)), mx_log(normal), s, c };
        for (int k = 0; k < 4; k++) h[k] = (h[k] ^ bits_of(y[k])) * 0x9E3779B97F4A7C15u, h[k] ^= h[k] >> 29;
    }
    static const uint64_t want[4] = { 0xf3e83e7aea710c0a, 0x3ec3a40dbd50bfb2, 0xb660f7be848703be, 0x56fad3ab9595611b };
    static const char *const name[4] = { "exp", "log", "sin", "cos" };
    for (int k = 0; k < 4; k++)
        EXPECT(h[k] == want[k], "%s: other bits than before (print %016llx)", name[k], (unsigned long long)h[k]);
}

int main(void) {
    test_exp();
    test_log();
    test_pow();
    test_bias_corrections();
    test_sincos();
    test_bits();
    return test_end();
}
