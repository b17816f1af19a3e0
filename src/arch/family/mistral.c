/* mistral.c - Mistral from v0.3 on: Llama without biases; head_dim is its own number where the file has one.  A
 * window that the file does not speak of is one of 4096 there. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, false, false, err));
    if (!json_get(c, "sliding_window")) return err_set(err, "sliding_window is missing (null: none)");
    return config_rope(d, c, 10000, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_mistral = {
    .name = "mistral",
    .names = { "MistralForCausalLM" },
    .types = { "mistral" },
    .route = ROUTE_NONE,
    .runs = true,
    .read = read,
    .params = params,
};
