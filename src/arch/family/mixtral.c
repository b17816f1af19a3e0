/* mixtral.c - Mixtral 8x7B and 8x22B: every layer has experts, weights always renormalised; on disk w1 is gate, w3 up,
 * w2 down. */
#include "arch/config.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",     0, KEY_INT,  N(expert_ffn),  MUST, 1, LIM_FFN},
    {"rms_norm_eps",          0, KEY_REAL, N(eps),         1e-5, 0, 1},
    {"tie_word_embeddings",   0, KEY_BOOL, N(tied),        0},
    {"num_local_experts",     0, KEY_INT,  N(experts),     MUST, 1, LIM_EXPERTS},
    {"num_experts_per_tok",   0, KEY_INT,  N(topk),        MUST, 1, LIM_EXPERTS},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, false, false, err));
    d->norm_topk = true;
    for (int l = 0; l < d->layers; l++) d->moe_layer[l] = 1;
    return config_rope(d, c, 1e6, err);
}

/* clang-format off */
#define L "model.layers.%d."
static const ParamDesc params[] = {
    {P_EMBED,    "model.embed_tokens.weight",               IN_FIRST,  N(vocab),      N(hidden),     BY_ROWS},
    {P_NORM1,    L "input_layernorm.weight",                IN_LAYER,  N(one),        N(hidden),     WHOLE, ONE_DIM},
    {P_Q,        L "self_attn.q_proj.weight",               IN_LAYER,  N(q_out),      N(hidden),     BY_ROWS, N(head_dim)},
    {P_K,        L "self_attn.k_proj.weight",               IN_LAYER,  N(kv_out),     N(hidden),     BY_ROWS, N(head_dim)},
    {P_V,        L "self_attn.v_proj.weight",               IN_LAYER,  N(kv_out),     N(hidden),     BY_ROWS, N(head_dim)},
    {P_O,        L "self_attn.o_proj.weight",               IN_LAYER,  N(hidden),     N(o_in),       BY_COLS, N(head_dim)},
    {P_NORM2,    L "post_attention_layernorm.weight",       IN_LAYER,  N(one),        N(hidden),     WHOLE, ONE_DIM},
    {P_ROUTER,   L "block_sparse_moe.gate.weight",          IN_MOE,    N(experts),    N(hidden),     WHOLE},
    {P_E_GATE,   L "block_sparse_moe.experts.%d.w1.weight", IN_EXPERT, N(expert_ffn), N(hidden),     BY_ROWS},
    {P_E_UP,     L "block_sparse_moe.experts.%d.w3.weight", IN_EXPERT, N(expert_ffn), N(hidden),     BY_ROWS},
    {P_E_DOWN,   L "block_sparse_moe.experts.%d.w2.weight", IN_EXPERT, N(hidden),     N(expert_ffn), BY_COLS},
    {P_NORM_OUT, "model.norm.weight",                       IN_LAST,   N(one),        N(hidden),     WHOLE, ONE_DIM},
    {P_HEAD,     "lm_head.weight",                          IN_LAST,   N(vocab),      N(hidden),     BY_ROWS, IF(own_head)},
    {0},
};
/* clang-format on */

const Arch arch_mixtral = {
    .name = "mixtral",
    .names = { "MixtralForCausalLM" },
    .types = { "mixtral" },
    .attn = ATTN_GQA,
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .read = read,
    .params = params,
};
