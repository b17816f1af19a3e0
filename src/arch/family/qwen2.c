/* qwen2.c - Qwen2 and Qwen2.5: q, k and v have biases although no key says so, o has none. */
#include "arch/config.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",     0, KEY_INT,  N(ffn),         MUST, 1, LIM_FFN},
    {"rms_norm_eps",          0, KEY_REAL, N(eps),         1e-6, 0, 1},
    {"tie_word_embeddings",   0, KEY_BOOL, N(tied),        0},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, true, true, err));
    d->qkv_bias = true;
    return config_rope(d, c, 10000, err);
}

/* clang-format off */
#define L "model.layers.%d."
static const ParamDesc params[] = {
    {P_EMBED,    "model.embed_tokens.weight",         IN_FIRST, N(vocab),  N(hidden), BY_ROWS},
    {P_NORM1,    L "input_layernorm.weight",          IN_LAYER, N(one),    N(hidden), WHOLE, ONE_DIM},
    {P_Q,        L "self_attn.q_proj.weight",         IN_LAYER, N(q_out),  N(hidden), BY_ROWS, N(head_dim)},
    {P_QB,       L "self_attn.q_proj.bias",           IN_LAYER, N(one),    N(q_out),  BY_COLS, N(head_dim), ONE_DIM},
    {P_K,        L "self_attn.k_proj.weight",         IN_LAYER, N(kv_out), N(hidden), BY_ROWS, N(head_dim)},
    {P_KB,       L "self_attn.k_proj.bias",           IN_LAYER, N(one),    N(kv_out), BY_COLS, N(head_dim), ONE_DIM},
    {P_V,        L "self_attn.v_proj.weight",         IN_LAYER, N(kv_out), N(hidden), BY_ROWS, N(head_dim)},
    {P_VB,       L "self_attn.v_proj.bias",           IN_LAYER, N(one),    N(kv_out), BY_COLS, N(head_dim), ONE_DIM},
    {P_O,        L "self_attn.o_proj.weight",         IN_LAYER, N(hidden), N(o_in),   BY_COLS, N(head_dim)},
    {P_NORM2,    L "post_attention_layernorm.weight", IN_LAYER, N(one),    N(hidden), WHOLE, ONE_DIM},
    {P_GATE,     L "mlp.gate_proj.weight",            IN_DENSE, N(ffn),    N(hidden), BY_ROWS},
    {P_UP,       L "mlp.up_proj.weight",              IN_DENSE, N(ffn),    N(hidden), BY_ROWS},
    {P_DOWN,     L "mlp.down_proj.weight",            IN_DENSE, N(hidden), N(ffn),    BY_COLS},
    {P_NORM_OUT, "model.norm.weight",                 IN_LAST,  N(one),    N(hidden), WHOLE, ONE_DIM},
    {P_HEAD,     "lm_head.weight",                    IN_LAST,  N(vocab),  N(hidden), BY_ROWS, IF(own_head)},
    {0},
};
/* clang-format on */

const Arch arch_qwen2 = {
    .name = "qwen2",
    .names = { "Qwen2ForCausalLM" },
    .types = { "qwen2" },
    .attn = ATTN_GQA,
    .route = ROUTE_NONE,
    .runs = true,
    .read = read,
    .params = params,
};
