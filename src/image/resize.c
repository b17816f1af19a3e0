/* resize.c - bicubic resampling of bytes, bit for bit as Pillow (before 13) and as torch for uint8 on a CPU.
 *
 * Both: a = -1/2, the support widened when shrinking, weights in float64 that sum to 1 over the taps that exist, then rounded to whole
 * numbers; along rows first, rounded to bytes, then along columns; an axis that keeps its length is skipped.  They differ in the
 * number of fraction bits alone: 22, or as many (at most 22) as keep the largest weight of the axis below 2^15.
 * A sum of taps stays below 2^31: the weights' absolute values add up to less than 1.6, times 255 times 2^22. */
#include "image/pixels.h"

#include <math.h>
#include <string.h>

typedef struct {
    int n, bits;
    int *first, *count, *w, most;
} Taps; /* w [n,most] */

static double cubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static void make_taps(Taps *t, int in, int out, bool fast, Mem *m) {
    double scale = (double)in / out, wide = scale > 1 ? scale : 1, support = 2 * wide;
    t->n = out, t->most = (int)ceil(support) * 2 + 1, t->bits = 22;
    t->first = MEM_ARRAY(m, int, (size_t)out), t->count = MEM_ARRAY(m, int, (size_t)out);
    t->w = MEM_ARRAY(m, int, (size_t)out * t->most);
    double *w = MEM_ARRAY(m, double, (size_t)out * t->most), top = 0;
    for (int i = 0; i < out; i++) {
        double centre = scale * (i + 0.5), total = 0, *wi = w + (size_t)i * t->most;
        int first = (int)(centre - support + 0.5), last = (int)(centre + support + 0.5);
        first = first < 0 ? 0 : first, last = last > in ? in : last;
        for (int j = 0; j < last - first; j++) total += wi[j] = cubic((j + first - centre + 0.5) * (1.0 / wide));
        for (int j = 0; j < last - first; j++) {
            if (total != 0) wi[j] *= 1.0 / total;
            top = wi[j] > top ? wi[j] : top;
        }
        t->first[i] = first, t->count[i] = last - first;
    }
    if (fast)
        for (t->bits = 0; t->bits < 22 && (int)(0.5 + top * (1 << (t->bits + 1))) < 1 << 15;) t->bits++;
    for (size_t i = 0; i < (size_t)out * t->most; i++)
        t->w[i] = w[i] == 0 ? 0 : (int)((w[i] < 0 ? -0.5 : 0.5) + w[i] * (1 << t->bits));
}

static inline uint8_t clip(int x, int bits) {
    x >>= bits;
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* in [h,W,3] -> out [h,t.n,3] */
static void along_rows(uint8_t *out, const uint8_t *in, int h, int W, const Taps *t) {
    int half = 1 << (t->bits - 1);
    for (int y = 0; y < h; y++)
        for (int i = 0; i < t->n; i++, out += 3) {
            const uint8_t *p = in + ((size_t)y * W + t->first[i]) * 3;
            const int *w = t->w + (size_t)i * t->most;
            int r = half, g = half, b = half;
            for (int j = 0; j < t->count[i]; j++, p += 3) r += w[j] * p[0], g += w[j] * p[1], b += w[j] * p[2];
            out[0] = clip(r, t->bits), out[1] = clip(g, t->bits), out[2] = clip(b, t->bits);
        }
}

/* in [H,n] -> out [t.n,n], a few hundred columns at a time so that their sums stay near */
static void along_columns(uint8_t *out, const uint8_t *in, size_t n, const Taps *t) {
    enum { WIDE = 256 };
    int sum[WIDE];
    for (int i = 0; i < t->n; i++)
        for (size_t x0 = 0; x0 < n; x0 += WIDE) {
            int wide = n - x0 < WIDE ? (int)(n - x0) : WIDE;
            const int *w = t->w + (size_t)i * t->most;
            for (int x = 0; x < wide; x++) sum[x] = 1 << (t->bits - 1);
            for (int j = 0; j < t->count[i]; j++) {
                const uint8_t *p = in + (size_t)(t->first[i] + j) * n + x0;
                for (int x = 0; x < wide; x++) sum[x] += w[j] * p[x];
            }
            for (int x = 0; x < wide; x++) out[(size_t)i * n + x0 + x] = clip(sum[x], t->bits);
        }
}

void pixels_resize(Image *out, const Image *in, int h, int w, bool fast, Mem *m) {
    Mem tmp = { 0 };
    Image mid = *in;
    if (in->w != w) {
        Taps t;
        make_taps(&t, in->w, w, fast, &tmp);
        mid = (Image){ in->h, w, mem_array(in->h == h ? m : &tmp, (size_t)in->h * w, 3) };
        along_rows(mid.rgb, in->rgb, in->h, in->w, &t);
    }
    *out = mid;
    if (in->h != h) {
        Taps t;
        make_taps(&t, in->h, h, fast, &tmp);
        *out = (Image){ h, w, mem_array(m, (size_t)h * w, 3) };
        along_columns(out->rgb, mid.rgb, (size_t)w * 3, &t);
    }
    mem_free(&tmp);
}
