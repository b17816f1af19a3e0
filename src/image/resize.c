/* resize.c - bicubic resampling of bytes, bit for bit as Pillow (before 13) and as torch for uint8 on a CPU.
 *
 * Both: a = -1/2, the support widened when shrinking, weights in float64 that sum to 1 over the taps that
 * exist, then rounded to whole numbers; along rows first, rounded to bytes, then along columns; an axis
 * that keeps its length is skipped.  They differ in the number of fraction bits alone: 22, or as many (at
 * most 22) as keep the largest weight of the axis below 2^15.  A sum of taps stays below 2^31: the weights'
 * absolute values add up to less than 1.6, times 255 times 2^22. */
#include "image/pixels.h"

#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

typedef struct {
    int n, bits, most; /* outputs; taps of each, some of weight 0: loops of one length are quicker */
    int *first, *w;    /* [n]; [n,most] */
} Taps;

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
    if (t->most > in) t->most = in;
    t->first = MEM_ARRAY(m, int, (size_t)out);
    t->w = MEM_ARRAY(m, int, (size_t)out * t->most);
    double *w = MEM_ARRAY(m, double, (size_t)out * t->most), top = 0;
    for (int i = 0; i < out; i++) {
        double centre = scale * (i + 0.5), total = 0, *wi = w + (size_t)i * t->most;
        int first = (int)(centre - support + 0.5), last = (int)(centre + support + 0.5);
        first = first < 0 ? 0 : first, last = last > in ? in : last;
        t->first[i] = first + t->most > in ? in - t->most : first;
        wi += first - t->first[i];
        for (int j = 0; j < last - first; j++) total += wi[j] = cubic((j + first - centre + 0.5) * (1.0 / wide));
        for (int j = 0; j < last - first; j++) {
            if (total != 0) wi[j] *= 1.0 / total;
            top = wi[j] > top ? wi[j] : top;
        }
    }
    if (fast)
        for (t->bits = 0; t->bits < 22 && (int)(0.5 + top * (1 << (t->bits + 1))) < 1 << 15;) t->bits++;
    for (size_t i = 0; i < (size_t)out * t->most; i++)
        t->w[i] = w[i] == 0 ? 0 : (int)((w[i] < 0 ? -0.5 : 0.5) + w[i] * (1 << t->bits));
}

/* Whole numbers: in whatever width they are added, the result is one.  Which clone is taken is asked before
 * ThreadSanitizer has begun: with it there is one. */
#if defined __x86_64__ && defined __linux__ && !defined __SANITIZE_THREAD__
#define WIDE_TOO __attribute__((target_clones("avx2", "default")))
#else
#define WIDE_TOO
#endif

static inline uint8_t clip(int x, int bits) {
    x >>= bits;
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

static void one_row(uint8_t *out, const uint8_t *in, const Taps *t) {
    int half = 1 << (t->bits - 1);
    for (int i = 0; i < t->n; i++, out += 3) {
        const uint8_t *p = in + (size_t)t->first[i] * 3;
        const int *w = t->w + (size_t)i * t->most;
        int r = half, g = half, b = half;
        for (int j = 0; j < t->most; j++, p += 3) r += w[j] * p[0], g += w[j] * p[1], b += w[j] * p[2];
        out[0] = clip(r, t->bits), out[1] = clip(g, t->bits), out[2] = clip(b, t->bits);
    }
}

#ifdef __x86_64__
static inline int four_bytes(const uint8_t *p) {
    int x;
    memcpy(&x, p, 4);
    return x;
}
/* Two rows at once.  A pixel is read as four bytes, of which the fourth is the next one's,
 * and written so but for the last. */
__attribute__((target("avx2"))) static void two_rows(uint8_t *out, const uint8_t *in, size_t W, const Taps *t) {
    const uint8_t *next = in + W * 3;
    uint8_t *out2 = out + (size_t)t->n * 3;
    __m128i bits = _mm_cvtsi32_si128(t->bits);
    for (int i = 0; i < t->n; i++) {
        const int *w = t->w + (size_t)i * t->most;
        size_t at = (size_t)t->first[i] * 3;
        __m256i sum = _mm256_set1_epi32(1 << (t->bits - 1));
        for (int j = 0; j < t->most; j++, at += 3) {
            __m128i two = _mm_insert_epi32(_mm_cvtsi32_si128(four_bytes(in + at)), four_bytes(next + at), 1);
            sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(two), _mm256_set1_epi32(w[j])));
        }
        sum = _mm256_sra_epi32(sum, bits);
        sum = _mm256_packs_epi32(sum, sum);
        sum = _mm256_packus_epi16(sum, sum); /* clipped to 0 .. 255 */
        int a = _mm256_extract_epi32(sum, 0), b = _mm256_extract_epi32(sum, 4);
        size_t n = i + 1 < t->n ? 4 : 3;
        memcpy(out + (size_t)i * 3, &a, n), memcpy(out2 + (size_t)i * 3, &b, n);
    }
}
static bool has_avx2(void) { return __builtin_cpu_supports("avx2"); }
#else
static void two_rows(uint8_t *out, const uint8_t *in, size_t W, const Taps *t) {
    one_row(out, in, t), one_row(out + (size_t)t->n * 3, in + W * 3, t);
}
static bool has_avx2(void) { return false; }
#endif

/* in [h,W,3] -> out [h,t.n,3]; behind the very last pixel there is nothing to read, so the last row goes alone. */
static void along_rows(uint8_t *out, const uint8_t *in, int h, int W, const Taps *t) {
    size_t from = (size_t)W * 3, to = (size_t)t->n * 3;
    int y = 0;
    for (; y + 2 < h && has_avx2(); y += 2) two_rows(out + (size_t)y * to, in + (size_t)y * from, (size_t)W, t);
    for (; y < h; y++) one_row(out + (size_t)y * to, in + (size_t)y * from, t);
}

/* in [H,n] -> out [t.n,n], a few hundred columns at a time so that their sums stay near */
WIDE_TOO static void along_columns(uint8_t *out, const uint8_t *in, size_t n, const Taps *t) {
    enum { WIDE = 256 };
    int sum[WIDE];
    for (int i = 0; i < t->n; i++)
        for (size_t x0 = 0; x0 < n; x0 += WIDE) {
            int wide = n - x0 < WIDE ? (int)(n - x0) : WIDE;
            const int *w = t->w + (size_t)i * t->most;
            for (int x = 0; x < wide; x++) sum[x] = 1 << (t->bits - 1);
            for (int j = 0; j < t->most; j++) {
                const uint8_t *p = in + (size_t)(t->first[i] + j) * n + x0;
                for (int x = 0; x < wide; x++) sum[x] += w[j] * p[x];
            }
            uint8_t *to = out + (size_t)i * n + x0;
            for (int x = 0; x < wide; x++) to[x] = clip(sum[x], t->bits);
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
