/* normal.h - two normal numbers from one draw of 128 bits (Box and Muller), as a function of (seed, name, which pair)
 * alone: the same on every device. */
#ifndef OP_NORMAL_H
#define OP_NORMAL_H

#include "base/mathx.h"
#include "base/rng.h"

HOST_DEVICE void two_normals(double out[2], uint64_t seed, uint64_t name, uint64_t pair) {
    Philox c = { { (uint32_t)name, (uint32_t)(name >> 32), (uint32_t)pair, (uint32_t)(pair >> 32) } };
    Philox r = philox(seed ^ (uint64_t)RNG_INIT << 56, c);
    double u = rng_unit((uint64_t)r.v[1] << 32 | r.v[0]), v = rng_unit((uint64_t)r.v[3] << 32 | r.v[2]);
    double radius = sqrt(-2 * mx_log(1 - u)), sn, cs; /* 1 - u lies in (0, 1] */
    mx_sincos(6.283185307179586477 * v, &sn, &cs);
    out[0] = radius * cs;
    out[1] = radius * sn;
}

#endif
