/* adam.h - the numbers of one AdamW update that do not depend on the element, and how an element is kept in 16 bits:
 * the same for every backend, so that their steps have equal bits.
 *   g = g clip;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w = w shrink - (step m) / (sqrt(v vfix) + eps)
 * with one rounding where an fma is written (op/cpu/row.inc, op/cuda/common/optim.cu). */
#ifndef OP_ADAM_H
#define OP_ADAM_H

#include "base/mathx.h"
#include "op/op.h"
#include "tensor/half.h"

/* shrink: 1 - lr decay; step: lr / (1 - beta1^t) */
typedef struct { float beta1, beta2, eps, shrink, step, vfix, clip; } AdamNow;

static inline AdamNow adam_now(Adam a) {
    double c1 = 1 - mx_pow((double)a.beta1, (double)a.step), c2 = 1 - mx_pow((double)a.beta2, (double)a.step);
    AdamNow now = { a.beta1, a.beta2, a.eps, (float)(1.0 - (double)a.lr * (double)a.decay), (float)((double)a.lr / c1),
                    (float)(1 / c2), a.clip_scale };
    return now;
}

/* ---- A moment in BF16 -----------------------------------------------------------------------------------------------
 * Steps of BF16 are 0.4 to 0.8 % apart.  With beta2 0.999 an update moves v by 0.1 %: rounded to the nearest it would
 * never shrink.  So it is rounded up with the probability of what would be cut off, by 16 bits named by (update,
 * element): no state, no order, any device. */
HOST_DEVICE uint32_t adam_mix(uint32_t x) {
    x ^= x >> 16, x *= 0x85EBCA6Bu;
    x ^= x >> 13, x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}
HOST_DEVICE uint32_t adam_key(int64_t step, int64_t element) { /* the same for elements of equal upper halves */
    return adam_mix(adam_mix((uint32_t)step) + adam_mix((uint32_t)((uint64_t)step >> 32) + 0x9E3779B9u)
                    + (uint32_t)((uint64_t)element >> 32));
}
/* low half: m's, high half: v's */
HOST_DEVICE uint32_t adam_chance(uint32_t key, uint32_t element) { return adam_mix(element * 0x9E3779B1u ^ key); }
HOST_DEVICE uint16_t adam_round(float x, uint32_t chance16) {
    uint32_t b = f32_bits(x), n = (b & 0x7F800000u) == 0x7F800000u;     /* inf and NaN stay */
    return (uint16_t)((b + (n ? 0 : chance16)) >> 16);
}

/* ---- A float32 as its BF16 rounding and what that took, in units of its last place ----------------------------------
 * x = joined(rounded, rest).  The rest of one that lies half way above an even BF16 would be 32768: it is kept one unit
 * lower. */
typedef struct { uint16_t rounded; int16_t rest; } AdamSplit;
HOST_DEVICE AdamSplit adam_split(float x) {
    uint32_t b = f32_bits(x), up = (b + 0x7FFFu + (b >> 16 & 1)) >> 16, nan = b >> 16 | 0x40u;
    uint32_t h = (b & 0x7FFFFFFFu) > 0x7F800000u ? nan : up;
    int32_t rest = (int32_t)(b - (h << 16));
    AdamSplit s = { (uint16_t)h, (int16_t)(rest > 32767 ? 32767 : rest < -32768 ? -32768 : rest) };
    return s;
}
HOST_DEVICE float adam_joined(uint16_t rounded, int16_t rest) {
    return bits_f32(((uint32_t)rounded << 16) + (uint32_t)(int32_t)rest);
}

#endif
