/* deepseek_v3.c - DeepSeek-V3 and R1, and Moonlight, which has no query latent: latent attention (MLA), the
 * first layers dense, then experts chosen by sigmoid scores within groups, plus shared ones.  The router's
 * bias chooses but does not weigh, and a rule moves it, not the loss.  head_dim in the file is the rotated
 * size only, so it is not read. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_BIAS KEYS_EXPERTS
    {"q_lora_rank",           0, KEY_INT,  N(q_lora),      0, 1, LIM_HIDDEN},
    {"kv_lora_rank",          0, KEY_INT,  N(kv_lora),     MUST, 1, LIM_HIDDEN},
    {"qk_nope_head_dim",      0, KEY_INT,  N(nope_dim),    MUST, 1, LIM_HEADDIM},
    {"qk_rope_head_dim",      0, KEY_INT,  N(rope_dim),    MUST, 2, LIM_HEADDIM},
    {"v_head_dim",            0, KEY_INT,  N(v_dim),       MUST, 1, LIM_HEADDIM},
    {"n_routed_experts",      0, KEY_INT,  N(experts),     MUST, 1, LIM_EXPERTS},
    {"n_shared_experts",      0, KEY_INT,  N(shared),      0, 0, 64},
    {"n_group",               0, KEY_INT,  N(groups),      MUST, 1, LIM_EXPERTS},
    {"topk_group",            0, KEY_INT,  N(group_topk),  MUST, 1, LIM_EXPERTS},
    {"routed_scaling_factor", 0, KEY_REAL, N(route_factor), MUST, 0, 1e6},
    {"norm_topk_prob",        0, KEY_BOOL, N(norm_topk),   1},
    {"num_nextn_predict_layers", 0, KEY_INT, N(mtp_layers), 0, 0, 64},
    {0},
};
/* clang-format on */

static bool experts_where(Dims *d, const Json *c, Err *err) {
    const Json *shared = json_get(c, "n_shared_experts");
    if (!shared) return err_set(err, "n_shared_experts is missing (null: none)");
    int64_t first = -1, freq = 1;
    TRY(json_int(c, "first_k_dense_replace", &first, err) && json_int(c, "moe_layer_freq", &freq, err));
    if (first < 0) return err_set(err, "first_k_dense_replace is missing or negative");
    if (freq != 1) return err_set(err, "moe_layer_freq is %ld: only 1 is supported", (long)freq);
    for (int l = 0; l < d->layers; l++) d->layer[l] = (LayerSpec){ MIXER_MLA, l < first ? FFN_DENSE : FFN_EXPERTS };
    return true;
}

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    if (!json_get(c, "q_lora_rank")) return err_set(err, "q_lora_rank is missing (null: no query latent)");
    TRY(config_only(c, "scoring_func", "sigmoid", err) && config_only(c, "topk_method", "noaux_tc", err));
    TRY(experts_where(d, c, err));
    static const ConfigKey kv[] = { { "num_key_value_heads", 0, KEY_INT, N(kv_heads), 0, 1, LIM_HEADS }, { 0 } };
    TRY(config_keys(d, c, kv, err));
    if (!d->kv_heads) d->kv_heads = d->heads;
    TRY(config_rope(d, c, 10000, err));
    d->rope.pairs = true;
    return json_bool(c, "rope_interleave", &d->rope.pairs, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROW_NORM1
    {P_Q,           R_ATTN,   L "self_attn.q_proj.weight",             IN_LAYER, N(q_out),      N(hidden),     BY_ROWS,
     N(qk_dim), IF(q_direct), ONE_PRODUCT},
    {P_Q_A,         R_ATTN,   L "self_attn.q_a_proj.weight",           IN_LAYER, N(q_lora),     N(hidden),     WHOLE,
     IF(q_latent)},
    {P_Q_AB,        R_ATTN,   L "self_attn.q_a_proj.bias",             IN_LAYER, N(one),        N(q_lora),     WHOLE,
     IF(q_a_bias), ONE_DIM},
    {P_Q_A_NORM,    R_ATTN,   L "self_attn.q_a_layernorm.weight",      IN_LAYER, N(one),        N(q_lora),     WHOLE,
     IF(q_latent), NORM},
    {P_Q_B,         R_ATTN,   L "self_attn.q_b_proj.weight",           IN_LAYER, N(q_out),      N(q_lora),     BY_ROWS,
     N(qk_dim), IF(q_latent)},
    {P_KV_A,        R_ATTN,   L "self_attn.kv_a_proj_with_mqa.weight", IN_LAYER, N(kv_a_out),   N(hidden),     WHOLE},
    {P_KV_AB,       R_ATTN,   L "self_attn.kv_a_proj_with_mqa.bias",   IN_LAYER, N(one),        N(kv_a_out),   WHOLE,
     IF(qkv_bias), ONE_DIM},
    {P_KV_A_NORM,   R_ATTN,   L "self_attn.kv_a_layernorm.weight",     IN_LAYER, N(one),        N(kv_lora),    WHOLE,
     NORM},
    {P_KV_B,        R_ATTN,   L "self_attn.kv_b_proj.weight",          IN_LAYER, N(kv_b_out),   N(kv_lora),    BY_ROWS,
     N(kv_b_unit)},
    ROWS_OUT(v_dim) ROWS_MLP ROW_ROUTER("mlp.gate.weight")
    {P_ROUTER_BIAS, R_ROUTER, L "mlp.gate.e_score_correction_bias",    IN_MOE,   N(one),        N(experts),    WHOLE,
     ONE_DIM, .frozen = true},
    ROWS_MLP_EXPERTS
    {P_S_GATE,      R_SHARED, L "mlp.shared_experts.gate_proj.weight", IN_MOE,   N(shared_ffn), N(hidden),     BY_ROWS,
     IF(has_shared), ONE_PRODUCT},
    {P_S_UP,        R_SHARED, L "mlp.shared_experts.up_proj.weight",   IN_MOE,   N(shared_ffn), N(hidden),     BY_ROWS,
     IF(has_shared), ONE_PRODUCT},
    {P_S_DOWN,      R_SHARED, L "mlp.shared_experts.down_proj.weight", IN_MOE,   N(hidden),     N(shared_ffn), BY_COLS,
     IF(has_shared), ONE_PRODUCT},
    ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_deepseek_v3 = {
    .name = "deepseek_v3",
    .names = { "DeepseekV3ForCausalLM" },
    .types = { "deepseek_v3", "kimi_k2" },
    .route = ROUTE_SIGMOID,
    .runs = true,
    .read = read,
    .params = params,
};
