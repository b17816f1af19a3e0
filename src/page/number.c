/* number.c - a hundred thousand numbers for one picture: written several times faster than printf does. */
#include "page/api.h"

#include <math.h>
#include <stdio.h>

/* Seven digits of x, 1e-5 <= x < 1e7: as a whole number and the power of ten that it is too large by. */
static void digits_of(double x, uint32_t *digits, int *power) {
    static const double ten[] = { 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12 };
    int p = 0;
    while (p < 12 && x * ten[p] < 1e6) p++;
    *digits = (uint32_t)(x * ten[p] + 0.5);
    while (p > 0 && *digits % 10 == 0) *digits /= 10, p--;
    *power = p;
}

void put_number(Buf *b, double x) {
    char t[40];
    int n = (int)sizeof t;
    double size = fabs(x);
    if (!isfinite(x)) {
        buf_puts(b, "null");
        return;
    }
    if (size != 0 && !(size >= 1e-5 && size < 1e7)) {
        buf_put(b, t, (size_t)snprintf(t, sizeof t, "%.7g", x));
        return;
    }
    uint32_t digits;
    int power;
    digits_of(size, &digits, &power);
    for (int behind = 0; digits || behind <= power; behind++) {
        if (behind == power && power) t[--n] = '.';
        t[--n] = (char)('0' + digits % 10);
        digits /= 10;
    }
    if (x < 0) t[--n] = '-';
    buf_put(b, t + n, sizeof t - (size_t)n);
}
