/* llama.c - Llama 2 and 3: grouped-query attention, SwiGLU, llama3 rope scaling; biases only
 * where the config says so. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_BIAS
    {"mlp_bias", 0, KEY_BOOL, N(mlp_bias), 0},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err));
    return config_rope(d, c, 10000, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_llama = {
    .name = "llama",
    .names = { "LlamaForCausalLM" },
    .types = { "llama" },
    .route = ROUTE_NONE,
    .runs = true,
    .read = read,
    .params = params,
};
