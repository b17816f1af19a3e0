/* half.h - one number at a time between float32 and the short formats: bfloat16, IEEE half, float8 e4m3fn.
 * Widening is exact; narrowing rounds to the nearest, ties to even. */
#ifndef TENSOR_HALF_H
#define TENSOR_HALF_H

#include "base/host_device.h"

#include <stdint.h>
#include <string.h>

HOST_DEVICE float bits_f32(uint32_t b) { float f; memcpy(&f, &b, 4); return f; }
HOST_DEVICE uint32_t f32_bits(float f) { uint32_t b; memcpy(&b, &f, 4); return b; }

static inline float bf16_f32(uint16_t h) { return bits_f32((uint32_t)h << 16); }
static inline uint16_t f32_bf16(float f) {
    uint32_t b = f32_bits(f);
    if ((b & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(b >> 16 | 0x40);        /* NaN stays NaN */
    return (uint16_t)((b + 0x7FFF + (b >> 16 & 1)) >> 16);
}

static inline float f16_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3FF;
    if (e == 31) return bits_f32(sign | 0x7F800000 | m << 13);
    if (e) return bits_f32(sign | (e + 112) << 23 | m << 13);
    float small = (float)m * 0x1p-24f;                                           /* subnormal: m * 2^-24 */
    return sign ? -small : small;
}

static inline uint16_t f32_f16(float f) {
    uint32_t b = f32_bits(f), a = b & 0x7FFFFFFF, sign = b >> 16 & 0x8000;
    if (a >= 0x7F800000) return (uint16_t)(sign | 0x7C00 | (a > 0x7F800000 ? 0x200 : 0));
    if (a < 0x38800000) {                                                        /* below 2^-14: halves of 2^-24 */
        float small = bits_f32(a) + 0.5f;                                        /* whose last bit is 2^-24 */
        return (uint16_t)(sign | (f32_bits(small) - 0x3F000000));
    }
    a += 0xFFF + (a >> 13 & 1);
    return (uint16_t)(sign | (a >= 0x47800000 ? 0x7C00 : (a - 0x38000000) >> 13));
}

/* 1-4-3 bits, bias 7; 0x7f and 0xff are NaN, there is no infinity; subnormals m * 2^-9. */
HOST_DEVICE float f8e4m3_f32(uint8_t h) {
    uint32_t sign = (uint32_t)(h & 0x80) << 24, e = h >> 3 & 15, m = h & 7;
    if ((h & 0x7F) == 0x7F) return bits_f32(sign | 0x7FC00000);
    if (e) return bits_f32(sign | (e + 120) << 23 | m << 20);
    float small = (float)m * 0x1p-9f;
    return sign ? -small : small;
}

#endif
