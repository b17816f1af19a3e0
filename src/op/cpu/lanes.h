/* lanes.h - V, sixteen float lanes, three ways: AVX-512, AVX2 with FMA, and plain C, with the same bits.
 *
 * A kernel file (*.inc) is written once over V and compiled three times, by isa_avx512.c, isa_avx2.c and isa_c.c, each
 * of which sets LANES before it includes this header.  What makes the three agree: multiply-add is fma
 * where it says fma and two roundings where it does not (-ffp-contract=off); only + - * / sqrt fma,
 * comparisons and integer operations are used, whose bits IEEE fixes.  No libm, no rcp/rsqrt estimates
 * (makers differ in them), no flush-to-zero. */
#ifndef OP_CPU_LANES_H
#define OP_CPU_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define FI static inline __attribute__((always_inline))

#if LANES == 512
#include <immintrin.h>
typedef __m512 V;
FI V v_ld(const float *p) { return _mm512_loadu_ps(p); }
FI void v_st(float *p, V a) { _mm512_storeu_ps(p, a); }
FI V v_all(float f) { return _mm512_set1_ps(f); }
FI V v_add(V a, V b) { return _mm512_add_ps(a, b); }
FI V v_sub(V a, V b) { return _mm512_sub_ps(a, b); }
FI V v_mul(V a, V b) { return _mm512_mul_ps(a, b); }
FI V v_div(V a, V b) { return _mm512_div_ps(a, b); }
FI V v_sqrt(V a) { return _mm512_sqrt_ps(a); }
FI V v_fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
/* *c += a b, in c's own register: the compiler's forms of it cost copies in the innermost loop */
FI void v_mac(V *c, V a, V b) { __asm__("vfmadd231ps %2, %1, %0" : "+v"(*c) : "v"(a), "v"(b)); }
FI V v_fma_from(int n, V a, V b, V c) { /* lanes n..15; the others are c's */
    return _mm512_mask3_fmadd_ps(a, b, c, (__mmask16)(0xFFFFu << n));
}
FI V v_max(V a, V b) { return _mm512_max_ps(a, b); }
FI V v_min(V a, V b) { return _mm512_min_ps(a, b); }
FI V v_first(int n, V a, V b) {         /* lanes 0..n-1 of a, the others of b */
    return _mm512_mask_mov_ps(b, n >= 16 ? (__mmask16)0xFFFF : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1), a);
}
FI V v_ldn(const float *p, int n, float with) {        /* n live lanes; the others are 'with' and not read */
    return _mm512_mask_loadu_ps(_mm512_set1_ps(with), (__mmask16)((1u << n) - 1), p);
}
FI void v_stn(float *p, int n, V a) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a); }
FI V v_scale2(V p, V t, V x, V lo) {    /* p * 2^n, n in the low bits of t; 0 where x < lo */
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(_mm512_cmp_ps_mask(x, lo, _CMP_NLT_UQ), _mm512_castps_si512(p),
                                                      _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}
FI void v_int64(int64_t *q, V a) {      /* to nearest, |a| < 2^51 */
    _mm512_storeu_si512(q, _mm512_cvtps_epi64(_mm512_castps512_ps256(a)));
    _mm512_storeu_si512(q + 8, _mm512_cvtps_epi64(_mm512_extractf32x8_ps(a, 1)));
}
FI V v_half(V a, int h) {               /* lanes i and i+h added into lane i */
    __m512 b = h == 8 ? _mm512_shuffle_f32x4(a, a, 0x4E) : h == 4 ? _mm512_shuffle_f32x4(a, a, 0xB1)
             : h == 2 ? _mm512_permute_ps(a, 0x4E) : _mm512_permute_ps(a, 0xB1);
    return _mm512_add_ps(a, b);
}
FI float v_get0(V a) { return _mm512_cvtss_f32(a); }
FI float v_max16(V a) { return _mm512_reduce_max_ps(a); }
FI __m256 v_low(V a) { return _mm512_castps512_ps256(a); }
FI __m256 v_high(V a) { return _mm512_extractf32x8_ps(a, 1); }
FI V v_both(__m256 low, __m256 high) { return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1); }
FI V v_ldbf(const uint16_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

/* 16 rows of 64 bytes, 'ld' bytes apart, turned: word k of row i to lane i of q[k].  Each line is touched
 * by two adjacent loads and never again: rows 4096 bytes apart share one set of the first cache, so a
 * second visit would be a second miss. */
FI void v_turn8(V q[8], const V r[8]) {
    __m512 a[2][4];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const __m512 *s = r + 4 * h;
        __m512d t0 = _mm512_castps_pd(_mm512_unpacklo_ps(s[0], s[1])),
                t1 = _mm512_castps_pd(_mm512_unpackhi_ps(s[0], s[1]));
        __m512d t2 = _mm512_castps_pd(_mm512_unpacklo_ps(s[2], s[3])),
                t3 = _mm512_castps_pd(_mm512_unpackhi_ps(s[2], s[3]));
        a[h][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(t0, t2)), a[h][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(t0, t2));
        a[h][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(t1, t3)), a[h][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(t1, t3));
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        q[c]     = _mm512_shuffle_f32x4(a[0][c], a[1][c], 0x88);
        q[c + 4] = _mm512_shuffle_f32x4(a[0][c], a[1][c], 0xDD);
    }
}
FI void v_turn(V q[16], const void *w, size_t ld) {
    V lo[8], hi[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const char *b = (const char *)w + (size_t)(i < 4 ? i : i + 4) * ld, *c = b + 4 * ld;
        lo[i] = _mm512_castps256_ps512(_mm256_loadu_ps((const float *)(const void *)b));
        hi[i] = _mm512_castps256_ps512(_mm256_loadu_ps((const float *)(const void *)(b + 32)));
        lo[i] = _mm512_insertf32x8(lo[i], _mm256_loadu_ps((const float *)(const void *)c), 1);
        hi[i] = _mm512_insertf32x8(hi[i], _mm256_loadu_ps((const float *)(const void *)(c + 32)), 1);
    }
    v_turn8(q, lo);
    v_turn8(q + 8, hi);
}
FI void v_bf2(float *even, float *odd, V word) {        /* a word of two bf16 -> two floats */
    _mm512_storeu_si512(even, _mm512_slli_epi32(_mm512_castps_si512(word), 16));
    _mm512_storeu_si512(odd, _mm512_and_si512(_mm512_castps_si512(word), _mm512_set1_epi32((int)0xFFFF0000)));
}

#elif LANES == 256
#include <immintrin.h>
typedef struct { __m256 a, b; } V;
FI V v_ld(const float *p) { return (V){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) }; }
FI void v_st(float *p, V v) { _mm256_storeu_ps(p, v.a), _mm256_storeu_ps(p + 8, v.b); }
FI V v_all(float f) { return (V){ _mm256_set1_ps(f), _mm256_set1_ps(f) }; }
FI V v_add(V x, V y) { return (V){ _mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b) }; }
FI V v_sub(V x, V y) { return (V){ _mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b) }; }
FI V v_mul(V x, V y) { return (V){ _mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b) }; }
FI V v_div(V x, V y) { return (V){ _mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b) }; }
FI V v_sqrt(V x) { return (V){ _mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b) }; }
FI V v_fma(V x, V y, V z) { return (V){ _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b) }; }
FI void v_mac(V *c, V x, V y) {         /* in c's own registers, as above */
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c->a) : "x"(x.a), "x"(y.a));
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c->b) : "x"(x.b), "x"(y.b));
}
FI V v_max(V x, V y) { return (V){ _mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b) }; }
FI V v_min(V x, V y) { return (V){ _mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b) }; }
FI V v_first(int n, V x, V y) {
    const __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), m = _mm256_set1_epi32(n);
    return (V){ _mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(_mm256_cmpgt_epi32(m, i))),
                _mm256_blendv_ps(
                    y.b, x.b, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_sub_epi32(m, _mm256_set1_epi32(8)), i))) };
}
FI V v_ldn(const float *p, int n, float with) {
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = i < n ? p[i] : with;
    return v_ld(t);
}
FI void v_stn(float *p, int n, V a) {
    float t[16];
    v_st(t, a);
    for (int i = 0; i < n; i++) p[i] = t[i];
}
FI __m256 v_scale2h(__m256 p, __m256 t, __m256 x, __m256 lo) {
    __m256i r = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, lo, _CMP_LT_OQ), _mm256_castsi256_ps(r));
}
FI V v_scale2(V p, V t, V x, V lo) { return (V){ v_scale2h(p.a, t.a, x.a, lo.a), v_scale2h(p.b, t.b, x.b, lo.b) }; }
FI void v_int64q(int64_t *q, __m128 a) {    /* AVX2 has no such conversion: add 1.5*2^52 in double, take the low bits */
    const __m256d big = _mm256_set1_pd(6755399441055744.0);
    __m256i i = _mm256_castpd_si256(_mm256_add_pd(_mm256_cvtps_pd(a), big));
    _mm256_storeu_si256((__m256i *)(void *)q, _mm256_sub_epi64(i, _mm256_castpd_si256(big)));
}
FI void v_int64(int64_t *q, V v) {
    v_int64q(q, _mm256_castps256_ps128(v.a)), v_int64q(q + 4, _mm256_extractf128_ps(v.a, 1));
    v_int64q(q + 8, _mm256_castps256_ps128(v.b)), v_int64q(q + 12, _mm256_extractf128_ps(v.b, 1));
}
FI V v_half(V v, int h) {
    if (h == 8) { __m256 s = _mm256_add_ps(v.a, v.b); return (V){ s, s }; }
    __m256 b = h == 4   ? _mm256_permute2f128_ps(v.a, v.a, 1)
               : h == 2 ? _mm256_permute_ps(v.a, 0x4E)
                        : _mm256_permute_ps(v.a, 0xB1);
    v.a = _mm256_add_ps(v.a, b);
    return v;
}
FI float v_get0(V v) { return _mm256_cvtss_f32(v.a); }
FI float v_max16(V v) {
    __m256 a = _mm256_max_ps(v.a, v.b);
    a = _mm256_max_ps(a, _mm256_permute2f128_ps(a, a, 1));
    a = _mm256_max_ps(a, _mm256_permute_ps(a, 0x4E));
    return _mm256_cvtss_f32(_mm256_max_ps(a, _mm256_permute_ps(a, 0xB1)));
}
FI __m256 v_low(V v) { return v.a; }
FI __m256 v_high(V v) { return v.b; }
FI V v_both(__m256 low, __m256 high) { return (V){ low, high }; }
FI __m256 v_ldbfh(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
}
FI V v_ldbf(const uint16_t *p) { return (V){ v_ldbfh(p), v_ldbfh(p + 8) }; }
FI void v_turn8x8(__m256 q[8], const char *w, size_t ld) {
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps((const float *)(const void *)(w + (size_t)i * ld));
    for (int i = 0; i < 8; i += 2)
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]), t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    for (int i = 0; i < 8; i += 4) {
        r[i]     = _mm256_shuffle_ps(t[i], t[i + 2], 0x44), r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44), r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20), q[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
}
FI void v_turn(V q[16], const void *w, size_t ld) {
    for (int h = 0; h < 2; h++) {
        __m256 lo[8], hi[8];
        v_turn8x8(lo, (const char *)w + 32 * h, ld), v_turn8x8(hi, (const char *)w + 32 * h + 8 * ld, ld);
        for (int i = 0; i < 8; i++) q[8 * h + i] = (V){ lo[i], hi[i] };
    }
}
FI void v_bf2(float *even, float *odd, V word) {
    const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xFFFF0000));
    v_st(odd, (V){ _mm256_and_ps(word.a, m), _mm256_and_ps(word.b, m) });
    v_st(even, (V){ _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(word.a), 16)),
                    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(word.b), 16)) });
}

#else
typedef struct { float f[16]; } V;
#define EACH16 for (int i = 0; i < 16; i++)
FI V v_ld(const float *p) { V r; EACH16 r.f[i] = p[i]; return r; }
FI void v_st(float *p, V a) { EACH16 p[i] = a.f[i]; }
FI V v_all(float f) { V r; EACH16 r.f[i] = f; return r; }
FI V v_add(V a, V b) { EACH16 a.f[i] += b.f[i]; return a; }
FI V v_sub(V a, V b) { EACH16 a.f[i] -= b.f[i]; return a; }
FI V v_mul(V a, V b) { EACH16 a.f[i] *= b.f[i]; return a; }
FI V v_div(V a, V b) { EACH16 a.f[i] /= b.f[i]; return a; }
FI V v_sqrt(V a) { EACH16 a.f[i] = sqrtf(a.f[i]); return a; }
FI V v_fma(V a, V b, V c) { EACH16 a.f[i] = fmaf(a.f[i], b.f[i], c.f[i]); return a; }
FI V v_max(V a, V b) { EACH16 a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i]; return a; }
FI V v_min(V a, V b) { EACH16 a.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i]; return a; }
FI V v_first(int n, V a, V b) { EACH16 a.f[i] = i < n ? a.f[i] : b.f[i]; return a; }
FI V v_ldn(const float *p, int n, float with) { V r; EACH16 r.f[i] = i < n ? p[i] : with; return r; }
FI void v_stn(float *p, int n, V a) { for (int i = 0; i < n; i++) p[i] = a.f[i]; }
FI V v_scale2(V p, V t, V x, V lo) {
    uint32_t a[16], b[16];
    memcpy(a, p.f, 64), memcpy(b, t.f, 64);
    EACH16 a[i] = x.f[i] < lo.f[i] ? 0 : a[i] + (b[i] << 23);
    memcpy(p.f, a, 64);
    return p;
}
FI void v_int64(int64_t *q, V a) {
    EACH16 {
        const double big = 6755399441055744.0;
        double d = (double)a.f[i] + big;
        int64_t x, y;
        memcpy(&x, &d, 8), memcpy(&y, &big, 8);
        q[i] = x - y;
    }
}
FI V v_half(V a, int h) { for (int i = 0; i < h; i++) a.f[i] += a.f[i + h]; return a; }
FI float v_get0(V a) { return a.f[0]; }
FI float v_max16(V a) { float m = a.f[0]; EACH16 m = a.f[i] > m ? a.f[i] : m; return m; }
FI V v_ldbf(const uint16_t *p) { V r; EACH16 { uint32_t u = (uint32_t)p[i] << 16; memcpy(&r.f[i], &u, 4); } return r; }
FI void v_turn(V q[16], const void *w, size_t ld) {
    for (int r = 0; r < 16; r++) {
        float t[16];
        memcpy(t, (const char *)w + (size_t)r * ld, 64);
        EACH16 q[i].f[r] = t[i];
    }
}
FI void v_bf2(float *even, float *odd, V word) {
    EACH16 {
        uint32_t u, lo, hi;
        memcpy(&u, &word.f[i], 4);
        lo = u << 16, hi = u & 0xFFFF0000u;
        memcpy(&even[i], &lo, 4), memcpy(&odd[i], &hi, 4);
    }
}
#endif

#if LANES != 1
/* Four words of eight rows, 'ld' bytes apart, turned: word k of row i to lane i of q[k].  Upper rows come in from
 * memory, which costs no shuffle; four words at a time leave registers for the sums that use them. */
FI void v_turn4x8(__m256 q[4], const char *w, size_t ld) {
    __m256 r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const float *lo = (const float *)(const void *)(w + (size_t)i * ld);
        const float *hi = (const float *)(const void *)(w + (size_t)(i + 4) * ld);
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo)), _mm_loadu_ps(hi), 1);
    }
    __m256d t0 = _mm256_castps_pd(_mm256_unpacklo_ps(r[0], r[1])),
            t1 = _mm256_castps_pd(_mm256_unpackhi_ps(r[0], r[1]));
    __m256d t2 = _mm256_castps_pd(_mm256_unpacklo_ps(r[2], r[3])),
            t3 = _mm256_castps_pd(_mm256_unpackhi_ps(r[2], r[3]));
    q[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(t0, t2)), q[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(t0, t2));
    q[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(t1, t3)), q[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(t1, t3));
}
#endif

/* ---- what follows is the same text for all three ----------------------------------------------------------------- */
/* e^x: x = n ln2 + r, |r| <= 0.3466; degree 7 (Cephes' coefficients), relative error about 1e-7.
 * e^0 = 1 exactly; below -87.3 the result is 0, whatever the terms were (no denormals); x > 88 is not asked for. */
FI V v_exp(V x) {
    V lo = v_all(-87.33654f), big = v_all(12582912.0f);
    V t = v_fma(x, v_all(1.44269504f), big), n = v_sub(t, big);
    V r = v_fma(n, v_all(-0.693359375f), x);
    r = v_fma(n, v_all(2.12194440e-4f), r);
    V p = v_all(1.9875691500e-4f);
    p = v_fma(p, r, v_all(1.3981999507e-3f));
    p = v_fma(p, r, v_all(8.3334519073e-3f));
    p = v_fma(p, r, v_all(4.1665795894e-2f));
    p = v_fma(p, r, v_all(1.6666665459e-1f));
    p = v_fma(p, r, v_all(5.0000001201e-1f));
    p = v_fma(p, r, v_all(1.0f));
    p = v_fma(p, r, v_all(1.0f));
    return v_scale2(p, t, x, lo);
}
#if LANES != 512
FI V v_fma_from(int n, V a, V b, V c) { return v_first(n, c, v_fma(a, b, c)); }
#endif
#if LANES == 1
FI void v_mac(V *c, V a, V b) { *c = v_fma(a, b, *c); }
#endif
/* sixteen lanes from x[i..n): missing ones are 'with'; and back */
FI V v_at(const float *x, int64_t i, int64_t n, float with) {
    return n - i >= 16 ? v_ld(x + i) : n - i > 0 ? v_ldn(x + i, (int)(n - i), with) : v_all(with);
}
FI void v_to(float *y, int64_t i, int64_t n, V v) {
    if (n - i >= 16) v_st(y + i, v);
    else v_stn(y + i, (int)(n - i), v);
}
FI float v_sum16(V a) { return v_get0(v_half(v_half(v_half(v_half(a, 8), 4), 2), 1)); }
FI float v_sum64(const V a[4]) { return v_sum16(v_add(v_add(a[0], a[2]), v_add(a[1], a[3]))); }
#endif
