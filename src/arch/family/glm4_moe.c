/* glm4_moe.c - GLM-4.5 and 4.6: half of a head's columns turn (if nothing else is said), q, k and v may have biases
 * and norms, the first layers are dense, then experts by sigmoid scores as DeepSeek-V3's. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",     0, KEY_INT,  N(ffn),         MUST, 1, LIM_FFN},
    KEYS_SMALL(1e-5) KEYS_GROUPS
    {"attention_bias",        0, KEY_BOOL, N(qkv_bias),    0},
    {"use_qk_norm",           0, KEY_BOOL, N(qk_norm),     0},
    {"routed_scaling_factor", 0, KEY_REAL, N(route_factor), 1, 0, 1e6},
    {"norm_topk_prob",        0, KEY_BOOL, N(norm_topk),   1},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_dense_first(d, c, MIXER_GQA, err));
    return config_rope_part(d, c, 10000, 0.5, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROW_ROUTER("mlp.gate.weight") ROW_ROUTER_BIAS("mlp.gate.e_score_correction_bias")
    ROWS_MLP_EXPERTS ROWS_SHARED("mlp.shared_experts") ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_glm4_moe = {
    .name = "glm4_moe",
    .names = { "Glm4MoeForCausalLM" },
    .types = { "glm4_moe" },
    .route = ROUTE_SIGMOID,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
