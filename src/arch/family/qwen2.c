/* qwen2.c - Qwen2 and Qwen2.5: q, k and v have biases although no key says so, o has none. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, true, true, err));
    d->qkv_bias = true;
    return config_rope(d, c, 10000, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_qwen2 = {
    .name = "qwen2",
    .names = { "Qwen2ForCausalLM" },
    .types = { "qwen2" },
    .route = ROUTE_NONE,
    .runs = true,
    .read = read,
    .params = params,
};
