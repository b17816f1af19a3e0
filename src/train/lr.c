/* lr.c - the learning rate of a step. */
#include "train/lr.h"
#include "base/mathx.h"

/* clang-format off */
const Name lr_names[] = { { "constant", LR_CONSTANT }, { "linear", LR_LINEAR }, { "cosine", LR_COSINE },
                          { "wsd", LR_WSD }, { "WSD", LR_WSD }, { 0 } };
/* clang-format on */

double lr_at(const LrConf *c, int64_t step) {
    if (step < c->warmup) return c->lr * (double)(step + 1) / (double)c->warmup;
    int64_t from = c->kind == LR_WSD ? c->total - c->decay : c->warmup;
    if (from < c->warmup) from = c->warmup;
    if (c->kind == LR_CONSTANT || step < from) return c->lr;
    double x = c->total > from ? (double)(step - from) / (double)(c->total - from) : 1;
    if (x > 1) x = 1;
    double high = 1 - x, s, co;
    if (c->kind == LR_COSINE) {
        mx_sincos(3.14159265358979323846 * x, &s, &co);
        high = 0.5 * (1 + co);
    }
    return c->lr * (c->min_ratio + (1 - c->min_ratio) * high);
}
