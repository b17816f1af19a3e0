/* seed_oss.c - Seed-OSS: q, k and v have biases (if nothing else is said), o has its own key; heads of 128. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE
    {"attention_bias",     0, KEY_BOOL, N(qkv_bias), 1},
    {"attention_out_bias", 0, KEY_BOOL, N(o_bias),   0},
    {"mlp_bias",           0, KEY_BOOL, N(mlp_bias), 0},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    return config_heads(d, c, 128, err) && config_rope(d, c, 10000, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_seed_oss = {
    .name = "seed_oss",
    .names = { "SeedOssForCausalLM" },
    .types = { "seed_oss" },
    .route = ROUTE_NONE,
    .runs = true,
    .read = read,
    .params = params,
};
