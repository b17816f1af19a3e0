/* qwen3_next.c - Qwen3-Next: delta nets in three layers of four, the others attention with a gate behind it; norms
 * are centred, a part of a head turns; experts and a shared one behind a gate.  A delta net's projections lie by
 * key head. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_EXPERTS KEYS_DELTA
    {"num_experts", "num_local_experts", KEY_INT, N(experts), MUST, 1, LIM_EXPERTS},
    {"shared_expert_intermediate_size", 0, KEY_INT, N(shared_width), MUST, 1, LIM_FFN},
    {"norm_topk_prob", 0, KEY_BOOL, N(norm_topk), 1},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    bool bias = false;
    TRY(json_bool(c, "attention_bias", &bias, err));
    if (bias) return err_set(err, "attention_bias is true: only false, as it is published, is supported");
    TRY(config_heads(d, c, 256, err) && config_sparse(d, c, err) && config_delta(d, c, err));
    d->qk_norm = d->centred = d->out_gate = d->shared_gate = d->dn_grouped = true;
    d->shared = 1;
    return config_rope_part(d, c, 10000, 0.25, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_DELTA ROWS_GQA ROWS_MLP ROW_ROUTER("mlp.gate.weight") ROWS_MLP_EXPERTS
    ROWS_SHARED("mlp.shared_expert") ROW_SHARED_GATE ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_qwen3_next = {
    .name = "qwen3_next",
    .names = { "Qwen3NextForCausalLM" },
    .types = { "qwen3_next" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
