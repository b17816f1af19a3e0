/* rng.h - Philox4x32-10 (Salmon et al., SC'11): 128 random bits as a pure function of (key, counter).
 * There is no generator state anywhere in hone: a number is named by (seed, use, step, prompt, sample, position), so
 * batch, order of arrival, thread and rank cannot matter, and a resumed run needs no saved generator. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include "base/host_device.h"

#include <stdint.h>

typedef struct { uint32_t v[4]; } Philox;

HOST_DEVICE Philox philox(uint64_t key, Philox c) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t a = (uint64_t)0xD2511F53u * c.v[0], b = (uint64_t)0xCD9E8D57u * c.v[2];
        Philox next = { { (uint32_t)(b >> 32) ^ c.v[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c.v[3] ^ k1,
                          (uint32_t)a } };
        c = next;
    }
    return c;
}

typedef enum { RNG_SAMPLE, RNG_SHUFFLE, RNG_INIT, RNG_MINIBATCH, RNG_PLAN, RNG_LOOK, RNG_PICK } RngUse;

static inline uint64_t rng_u64(uint64_t seed, RngUse use, uint32_t step, uint32_t prompt, uint32_t sample,
                               uint32_t pos) {
    Philox c = { { step, prompt, sample, pos } };
    Philox r = philox(seed ^ ((uint64_t)use << 56), c);
    return (uint64_t)r.v[1] << 32 | r.v[0];
}

HOST_DEVICE double rng_unit(uint64_t u) { return (double)(u >> 11) * 0x1p-53; }      /* [0, 1) */

#endif
