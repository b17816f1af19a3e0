/* mixtral.c - Mixtral 8x7B and 8x22B: every layer has experts, weights always renormalised; on disk w1 is gate, w3 up,
 * w2 down. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_SMALL(1e-5)
    {"intermediate_size",     0, KEY_INT,  N(expert_ffn),  MUST, 1, LIM_FFN},
    {"num_local_experts",     0, KEY_INT,  N(experts),     MUST, 1, LIM_EXPERTS},
    {"num_experts_per_tok",   0, KEY_INT,  N(topk),        MUST, 1, LIM_EXPERTS},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, false, false, err));
    d->norm_topk = true;
    for (int l = 0; l < d->layers; l++) d->layer[l].ffn = FFN_EXPERTS;
    return config_rope(d, c, 1e6, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROW_ROUTER("block_sparse_moe.gate.weight")
    ROWS_EXPERTS("block_sparse_moe.experts.%d.w1.weight", "block_sparse_moe.experts.%d.w3.weight",
                 "block_sparse_moe.experts.%d.w2.weight")
    ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_mixtral = {
    .name = "mixtral",
    .names = { "MixtralForCausalLM" },
    .types = { "mixtral" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .read = read,
    .params = params,
};
