/* qwen3_moe.c - Qwen3 with experts: attention as qwen3, a softmax router that renormalises only if norm_topk_prob says
 * so (absent: it does not), and dense layers where mlp_only_layers or decoder_sparse_step leave them. */
#include "arch/config.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",     0, KEY_INT,  N(ffn),         MUST, 1, LIM_FFN},
    {"rms_norm_eps",          0, KEY_REAL, N(eps),         1e-6, 0, 1},
    {"tie_word_embeddings",   0, KEY_BOOL, N(tied),        0},
    {"attention_bias",        0, KEY_BOOL, N(qkv_bias),    0},
    {"attention_bias",        0, KEY_BOOL, N(o_bias),      0},
    {"num_experts", "num_local_experts", KEY_INT, N(experts), MUST, 1, LIM_EXPERTS},
    {"num_experts_per_tok",   0, KEY_INT,  N(topk),        MUST, 1, LIM_EXPERTS},
    {"moe_intermediate_size", 0, KEY_INT,  N(expert_ffn),  MUST, 1, LIM_FFN},
    {"norm_topk_prob",        0, KEY_BOOL, N(norm_topk),   0},
    {0},
};
/* clang-format on */

static bool sparse_layers(Dims *d, const Json *c, Err *err) {
    int64_t step = 1;
    TRY(json_int(c, "decoder_sparse_step", &step, err));
    if (step < 1) return err_set(err, "decoder_sparse_step is %ld: it must be at least 1", (long)step);
    for (int l = 0; l < d->layers; l++) d->moe_layer[l] = (l + 1) % step == 0;
    const Json *dense = json_get(c, "mlp_only_layers");
    if (!dense || dense->kind == JSON_NULL) return true;
    bool ok = dense->kind == JSON_ARRAY;
    for (size_t i = 0; ok && i < dense->n; i++) {
        const Json *l = &dense->items[i];
        ok = l->kind == JSON_INT && l->integer >= 0;
        if (ok && l->integer < d->layers) d->moe_layer[l->integer] = 0;
    }
    return ok || err_set(err, "mlp_only_layers must be a list of layer numbers");
}

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, true, false, err));
    d->qk_norm = true;
    return sparse_layers(d, c, err) && config_rope(d, c, 10000, err);
}

/* clang-format off */
#define L "model.layers.%d."
static const ParamDesc params[] = {
    {P_EMBED,    "model.embed_tokens.weight",         IN_FIRST,  N(vocab),      N(hidden),     BY_ROWS},
    {P_NORM1,    L "input_layernorm.weight",          IN_LAYER,  N(one),        N(hidden),     WHOLE, ONE_DIM},
    {P_Q,        L "self_attn.q_proj.weight",         IN_LAYER,  N(q_out),      N(hidden),     BY_ROWS, N(head_dim)},
    {P_QB,       L "self_attn.q_proj.bias",           IN_LAYER,  N(one), N(q_out), BY_COLS, N(head_dim), IF(qkv_bias), ONE_DIM},
    {P_K,        L "self_attn.k_proj.weight",         IN_LAYER,  N(kv_out),     N(hidden),     BY_ROWS, N(head_dim)},
    {P_KB,       L "self_attn.k_proj.bias",           IN_LAYER,  N(one), N(kv_out), BY_COLS, N(head_dim), IF(qkv_bias), ONE_DIM},
    {P_V,        L "self_attn.v_proj.weight",         IN_LAYER,  N(kv_out),     N(hidden),     BY_ROWS, N(head_dim)},
    {P_VB,       L "self_attn.v_proj.bias",           IN_LAYER,  N(one), N(kv_out), BY_COLS, N(head_dim), IF(qkv_bias), ONE_DIM},
    {P_QNORM,    L "self_attn.q_norm.weight",         IN_LAYER,  N(one),        N(head_dim),   WHOLE, ONE_DIM},
    {P_KNORM,    L "self_attn.k_norm.weight",         IN_LAYER,  N(one),        N(head_dim),   WHOLE, ONE_DIM},
    {P_O,        L "self_attn.o_proj.weight",         IN_LAYER,  N(hidden),     N(o_in),       BY_COLS, N(head_dim)},
    {P_OB,       L "self_attn.o_proj.bias",           IN_LAYER,  N(one),        N(hidden),     WHOLE, IF(o_bias), ONE_DIM},
    {P_NORM2,    L "post_attention_layernorm.weight", IN_LAYER,  N(one),        N(hidden),     WHOLE, ONE_DIM},
    {P_GATE,     L "mlp.gate_proj.weight",            IN_DENSE,  N(ffn),        N(hidden),     BY_ROWS},
    {P_UP,       L "mlp.up_proj.weight",              IN_DENSE,  N(ffn),        N(hidden),     BY_ROWS},
    {P_DOWN,     L "mlp.down_proj.weight",            IN_DENSE,  N(hidden),     N(ffn),        BY_COLS},
    {P_ROUTER,   L "mlp.gate.weight",                 IN_MOE,    N(experts),    N(hidden),     WHOLE},
    {P_E_GATE,   L "mlp.experts.%d.gate_proj.weight", IN_EXPERT, N(expert_ffn), N(hidden),     BY_ROWS},
    {P_E_UP,     L "mlp.experts.%d.up_proj.weight",   IN_EXPERT, N(expert_ffn), N(hidden),     BY_ROWS},
    {P_E_DOWN,   L "mlp.experts.%d.down_proj.weight", IN_EXPERT, N(hidden),     N(expert_ffn), BY_COLS},
    {P_NORM_OUT, "model.norm.weight",                 IN_LAST,   N(one),        N(hidden),     WHOLE, ONE_DIM},
    {P_HEAD,     "lm_head.weight",                    IN_LAST,   N(vocab),      N(hidden),     BY_ROWS, IF(own_head)},
    {0},
};
/* clang-format on */

const Arch arch_qwen3_moe = {
    .name = "qwen3_moe",
    .names = { "Qwen3MoeForCausalLM" },
    .types = { "qwen3_moe" },
    .attn = ATTN_GQA,
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .read = read,
    .params = params,
};
