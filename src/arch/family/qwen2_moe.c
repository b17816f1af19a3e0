/* qwen2_moe.c - Qwen1.5-MoE and Qwen2-57B-A14B: qwen3_moe without norms of heads, q, k and v with biases, and a
 * shared expert of its own width behind a gate, a number a token. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_EXPERTS
    {"num_experts", "num_local_experts", KEY_INT, N(experts), MUST, 1, LIM_EXPERTS},
    {"shared_expert_intermediate_size", 0, KEY_INT, N(shared_width), MUST, 1, LIM_FFN},
    {"qkv_bias",       0, KEY_BOOL, N(qkv_bias),  1},
    {"norm_topk_prob", 0, KEY_BOOL, N(norm_topk), 0},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, true, true, err));
    d->shared = 1, d->shared_gate = true;
    return config_sparse(d, c, err) && config_rope(d, c, 10000, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROW_ROUTER("mlp.gate.weight") ROWS_MLP_EXPERTS ROWS_SHARED("mlp.shared_expert")
    ROW_SHARED_GATE ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_qwen2_moe = {
    .name = "qwen2_moe",
    .names = { "Qwen2MoeForCausalLM" },
    .types = { "qwen2_moe" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
