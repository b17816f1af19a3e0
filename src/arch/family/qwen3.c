/* qwen3.c - Qwen3 dense: a norm on every query and key head, no biases unless the config asks for them; head_dim is its
 * own number, 128 where the file has none. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_BIAS
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 128, err) && config_no_window(c, d, true, true, err));
    d->qk_norm = true;
    return config_rope(d, c, 10000, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_qwen3 = {
    .name = "qwen3",
    .names = { "Qwen3ForCausalLM" },
    .types = { "qwen3" },
    .route = ROUTE_NONE,
    .runs = true,
    .read = read,
    .params = params,
};
