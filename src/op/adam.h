/* adam.h - one AdamW step's numbers, made on the host in double for every backend, so that their steps have equal bits:
 *   g = g clip;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w = w shrink - (step m) / (sqrt(v vfix) + eps)
 * with one rounding where an fma is written (op/cpu/row.inc, op/cuda/optim.cu). */
#ifndef OP_ADAM_H
#define OP_ADAM_H

#include "base/mathx.h"
#include "op/op.h"

typedef struct { float beta1, beta2, eps, shrink, step, vfix, clip; } AdamNow;      /* shrink 1 - lr decay; step lr / (1 - beta1^t) */

static inline AdamNow adam_now(Adam a) {
    double c1 = 1 - mx_pow((double)a.beta1, (double)a.step), c2 = 1 - mx_pow((double)a.beta2, (double)a.step);
    AdamNow now = { a.beta1, a.beta2, a.eps, (float)(1.0 - (double)a.lr * (double)a.decay), (float)((double)a.lr / c1),
                    (float)(1 / c2), a.clip_scale };
    return now;
}

#endif
