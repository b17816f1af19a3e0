/* qwen3_moe.c - Qwen3 with experts: attention as qwen3, a softmax router that renormalises only if norm_topk_prob says
 * so (absent: it does not), and dense layers where mlp_only_layers or decoder_sparse_step leave them. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_BIAS KEYS_EXPERTS
    {"num_experts", "num_local_experts", KEY_INT, N(experts), MUST, 1, LIM_EXPERTS},
    {"norm_topk_prob", 0, KEY_BOOL, N(norm_topk), 0},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, true, false, err));
    d->qk_norm = true;
    return config_sparse(d, c, err) && config_rope(d, c, 10000, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROW_ROUTER("mlp.gate.weight") ROWS_MLP_EXPERTS ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_qwen3_moe = {
    .name = "qwen3_moe",
    .names = { "Qwen3MoeForCausalLM" },
    .types = { "qwen3_moe" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .read = read,
    .params = params,
};
