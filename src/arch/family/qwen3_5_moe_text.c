/* qwen3_5_moe_text.c - the text model of Qwen3.5 and 3.6 with experts: Qwen3-Next whose projections lie apart,
 * experts in every layer.  Text has one position a token, so that the sections of rope are none. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_SMALL(1e-6) KEYS_EXPERTS KEYS_DELTA
    {"num_experts", "num_local_experts", KEY_INT, N(experts), MUST, 1, LIM_EXPERTS},
    {"shared_expert_intermediate_size", 0, KEY_INT, N(shared_width), MUST, 1, LIM_FFN},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 256, err) && config_delta(d, c, err));
    bool gate = true, bias = false;
    TRY(json_bool(c, "attn_output_gate", &gate, err) && json_bool(c, "attention_bias", &bias, err));
    if (!gate || bias) return err_set(err, "attn_output_gate must be true and attention_bias false");
    d->qk_norm = d->centred = d->out_gate = true;
    d->norm_topk = d->shared_gate = true;
    d->shared = 1;
    for (int l = 0; l < d->layers; l++) d->layer[l].ffn = FFN_EXPERTS;
    TRY(config_rope_part(d, c, 10000, 0.25, err));
    if (d->rope.kind != ROPE_SECTIONS) return true;
    d->rope.kind = ROPE_DEFAULT;
    d->rope.sections[0] = d->rope.sections[1] = d->rope.sections[2] = 0;
    return true;
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_DELTA ROWS_GQA ROW_ROUTER("mlp.gate.weight") ROWS_MLP_EXPERTS
    ROWS_SHARED("mlp.shared_expert") ROW_SHARED_GATE ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_qwen3_5_moe_text = {
    .name = "qwen3_5_moe_text",
    .names = { "Qwen3_5MoeForCausalLM" },
    .types = { "qwen3_5_moe_text" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
