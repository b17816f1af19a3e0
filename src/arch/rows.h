/* rows.h - rows of parameters and of keys that families share, each as a list for the middle of a family's table.  What
 * a model does not have it leaves out by a bool of its Dims, so one list serves those with biases and those without.
 * The order of rows is the order of memory. */
#ifndef ARCH_ROWS_H
#define ARCH_ROWS_H

#include "arch/config.h"

/* A range of a tensor that holds several, on disk. */
#define PART(tensor, from, rows) .in = L tensor, .first = N(from), .all = N(rows), .joined = true
#define IF(field) .only_if = B(field)
#define ONE_DIM   .vector = true
#define NORM      ONE_DIM, .norm = true
#define ONE_PRODUCT .one_product = true
#define L         "model.layers.%d."

#define ROWS_FIRST \
    {P_EMBED,    R_EMBED,   "model.embed_tokens.weight",         IN_FIRST,  N(vocab),      N(hidden),     BY_ROWS},
#define ROWS_LAST \
    {P_NORM_OUT, R_FINAL,   "model.norm.weight",                 IN_LAST,   N(one),        N(hidden),     WHOLE, \
     NORM}, \
    {P_HEAD,     R_HEAD,    "lm_head.weight",                    IN_LAST,   N(vocab),      N(hidden),     BY_ROWS, \
     IF(own_head), ONE_PRODUCT},

/* Grouped-query attention between its norms. */
#define ROWS_GQA \
    ROW_NORM1 ROWS_QKV ROWS_QK_NORM("self_attn.q_norm.weight", "self_attn.k_norm.weight") ROWS_OUT(head_dim)
#define ROWS_QKV \
    {P_Q,        R_ATTN,    L "self_attn.q_proj.weight",         IN_LAYER,  N(q_rows),     N(hidden),     BY_ROWS, \
     N(q_unit), ONE_PRODUCT}, \
    {P_QB,       R_ATTN,    L "self_attn.q_proj.bias",           IN_LAYER,  N(one),        N(q_rows),     BY_COLS, \
     N(q_unit), IF(qkv_bias), ONE_DIM, ONE_PRODUCT}, \
    {P_K,        R_ATTN,    L "self_attn.k_proj.weight",         IN_LAYER,  N(kv_out),     N(hidden),     BY_ROWS, \
     N(head_dim), ONE_PRODUCT}, \
    {P_KB,       R_ATTN,    L "self_attn.k_proj.bias",           IN_LAYER,  N(one),        N(kv_out),     BY_COLS, \
     N(head_dim), IF(qkv_bias), ONE_DIM, ONE_PRODUCT}, \
    {P_V,        R_ATTN,    L "self_attn.v_proj.weight",         IN_LAYER,  N(kv_out),     N(hidden),     BY_ROWS, \
     N(head_dim), ONE_PRODUCT}, \
    {P_VB,       R_ATTN,    L "self_attn.v_proj.bias",           IN_LAYER,  N(one),        N(kv_out),     BY_COLS, \
     N(head_dim), IF(qkv_bias), ONE_DIM, ONE_PRODUCT},
#define ROWS_QK_NORM(q, k) \
    {P_QNORM,    R_ATTN,    L q,                                 IN_LAYER,  N(one),        N(head_dim),   WHOLE, \
     IF(qk_norm), NORM}, \
    {P_KNORM,    R_ATTN,    L k,                                 IN_LAYER,  N(one),        N(head_dim),   WHOLE, \
     IF(qk_norm), NORM},
#define ROW_NORM1 \
    {P_NORM1,    R_NORM,    L "input_layernorm.weight",          IN_LAYER,  N(one),        N(hidden),     WHOLE, \
     NORM},
#define ROWS_OUT(unit) \
    {P_O,        R_ATTN,    L "self_attn.o_proj.weight",         IN_LAYER,  N(hidden),     N(o_in),       BY_COLS, \
     N(unit), ONE_PRODUCT}, \
    {P_OB,       R_ATTN,    L "self_attn.o_proj.bias",           IN_LAYER,  N(one),        N(hidden),     WHOLE, \
     IF(o_bias), ONE_DIM}, \
    {P_NORM2,    R_NORM,    L "post_attention_layernorm.weight", IN_LAYER,  N(one),        N(hidden),     WHOLE, \
     NORM},

/* Latent attention between its norms; a query latent where there is one. */
#define ROWS_MLA \
    ROW_NORM1 \
    {P_Q,          R_ATTN, L "self_attn.q_proj.weight",             IN_LAYER, N(q_out),    N(hidden),  BY_ROWS, \
     N(qk_dim), IF(q_direct), ONE_PRODUCT}, \
    {P_Q_A,        R_ATTN, L "self_attn.q_a_proj.weight",           IN_LAYER, N(q_lora),   N(hidden),  WHOLE, \
     IF(q_latent)}, \
    {P_Q_AB,       R_ATTN, L "self_attn.q_a_proj.bias",             IN_LAYER, N(one),      N(q_lora),  WHOLE, \
     IF(q_a_bias), ONE_DIM}, \
    {P_Q_A_NORM,   R_ATTN, L "self_attn.q_a_layernorm.weight",      IN_LAYER, N(one),      N(q_lora),  WHOLE, \
     IF(q_latent), NORM}, \
    {P_Q_B,        R_ATTN, L "self_attn.q_b_proj.weight",           IN_LAYER, N(q_out),    N(q_lora),  BY_ROWS, \
     N(qk_dim), IF(q_latent)}, \
    {P_KV_A,       R_ATTN, L "self_attn.kv_a_proj_with_mqa.weight", IN_LAYER, N(kv_a_out), N(hidden),  WHOLE}, \
    {P_KV_AB,      R_ATTN, L "self_attn.kv_a_proj_with_mqa.bias",   IN_LAYER, N(one),      N(kv_a_out), WHOLE, \
     IF(qkv_bias), ONE_DIM}, \
    {P_KV_A_NORM,  R_ATTN, L "self_attn.kv_a_layernorm.weight",     IN_LAYER, N(one),      N(kv_lora), WHOLE, \
     NORM}, \
    {P_KV_B,       R_ATTN, L "self_attn.kv_b_proj.weight",          IN_LAYER, N(kv_b_out), N(kv_lora), BY_ROWS, \
     N(kv_b_unit)}, \
    ROWS_OUT(v_dim)

/* A delta net: its projections in tensors of their own, or, behind them, by key head; filters of q, k and v in one. */
#define D         L "linear_attn."
#define FILTER(first_row) .delta = true, .filter = true, .in = D "conv1d.weight", .first = N(first_row), \
     .all = N(dn_all), .joined = true
#define PROJ(first_row) ONE_PRODUCT, IF(dn_apart), .delta = true, .in = D "in_proj_qkv.weight", .first = N(first_row), \
     .all = N(dn_all), .joined = true
#define ROWS_DELTA \
    {P_DN_Q,      R_ATTN, D "in_proj_q.weight",    IN_LAYER, N(dn_k),     N(hidden),  BY_ROWS, N(dn_dk), PROJ(zero)}, \
    {P_DN_K,      R_ATTN, D "in_proj_k.weight",    IN_LAYER, N(dn_k),     N(hidden),  BY_ROWS, N(dn_dk), PROJ(dn_k)}, \
    {P_DN_V,      R_ATTN, D "in_proj_v.weight",    IN_LAYER, N(dn_v),     N(hidden),  BY_ROWS, N(dn_wide), \
     PROJ(dn_v_first)}, \
    {P_DN_Z,      R_ATTN, D "in_proj_z.weight",    IN_LAYER, N(dn_v),     N(hidden),  BY_ROWS, N(dn_wide), \
     ONE_PRODUCT, IF(dn_apart), .delta = true}, \
    {P_DN_B,      R_ATTN, D "in_proj_b.weight",    IN_LAYER, N(dn_heads), N(hidden),  BY_ROWS, N(dn_each), \
     ONE_PRODUCT, IF(dn_apart), .delta = true}, \
    {P_DN_A,      R_ATTN, D "in_proj_a.weight",    IN_LAYER, N(dn_heads), N(hidden),  BY_ROWS, N(dn_each), \
     ONE_PRODUCT, IF(dn_apart), .delta = true}, \
    {P_DN_QKVZ,   R_ATTN, D "in_proj_qkvz.weight", IN_LAYER, N(dn_qkvz),  N(hidden),  BY_ROWS, N(dn_qkvz_unit), \
     ONE_PRODUCT, IF(dn_grouped), .delta = true}, \
    {P_DN_BA,     R_ATTN, D "in_proj_ba.weight",   IN_LAYER, N(dn_ba),    N(hidden),  BY_ROWS, N(dn_ba_unit), \
     ONE_PRODUCT, IF(dn_grouped), .delta = true}, \
    {P_DN_CONV_Q, R_ATTN, D "conv_q.weight",       IN_LAYER, N(dn_k),     N(dn_conv), BY_ROWS, N(dn_dk), \
     FILTER(zero)}, \
    {P_DN_CONV_K, R_ATTN, D "conv_k.weight",       IN_LAYER, N(dn_k),     N(dn_conv), BY_ROWS, N(dn_dk), \
     FILTER(dn_k)}, \
    {P_DN_CONV_V, R_ATTN, D "conv_v.weight",       IN_LAYER, N(dn_v),     N(dn_conv), BY_ROWS, N(dn_wide), \
     FILTER(dn_v_first)}, \
    {P_DN_LOG_A,  R_ATTN, D "A_log",               IN_LAYER, N(one),      N(dn_heads), BY_COLS, N(dn_each), ONE_DIM, \
     .delta = true}, \
    {P_DN_DT,     R_ATTN, D "dt_bias",             IN_LAYER, N(one),      N(dn_heads), BY_COLS, N(dn_each), ONE_DIM, \
     .delta = true}, \
    {P_DN_NORM,   R_ATTN, D "norm.weight",         IN_LAYER, N(one),      N(dn_dv),   WHOLE, NORM, .delta = true}, \
    {P_DN_OUT,    R_ATTN, D "out_proj.weight",     IN_LAYER, N(hidden),   N(dn_v),    BY_COLS, N(dn_wide), \
     ONE_PRODUCT, .delta = true},

#define ROWS_MLP \
    {P_GATE,     R_DENSE,   L "mlp.gate_proj.weight",            IN_DENSE,  N(ffn),        N(hidden),     BY_ROWS, \
     ONE_PRODUCT}, \
    {P_GATEB,    R_DENSE,   L "mlp.gate_proj.bias",              IN_DENSE,  N(one),        N(ffn),        BY_COLS, \
     IF(mlp_bias), ONE_DIM, ONE_PRODUCT}, \
    {P_UP,       R_DENSE,   L "mlp.up_proj.weight",              IN_DENSE,  N(ffn),        N(hidden),     BY_ROWS, \
     ONE_PRODUCT}, \
    {P_UPB,      R_DENSE,   L "mlp.up_proj.bias",                IN_DENSE,  N(one),        N(ffn),        BY_COLS, \
     IF(mlp_bias), ONE_DIM, ONE_PRODUCT}, \
    {P_DOWN,     R_DENSE,   L "mlp.down_proj.weight",            IN_DENSE,  N(hidden),     N(ffn),        BY_COLS, \
     ONE_PRODUCT}, \
    {P_DOWNB,    R_DENSE,   L "mlp.down_proj.bias",              IN_DENSE,  N(one),        N(hidden),     WHOLE, \
     IF(mlp_bias), ONE_DIM},

/* Experts under these names. */
#define ROWS_EXPERTS(gate, up, down) \
    {P_E_GATE,   R_EXPERTS, L gate,                              IN_EXPERT, N(expert_ffn), N(hidden),     BY_ROWS, \
     ONE_PRODUCT}, \
    {P_E_UP,     R_EXPERTS, L up,                                IN_EXPERT, N(expert_ffn), N(hidden),     BY_ROWS, \
     ONE_PRODUCT}, \
    {P_E_DOWN,   R_EXPERTS, L down,                              IN_EXPERT, N(hidden),     N(expert_ffn), BY_COLS, \
     ONE_PRODUCT},
#define ROWS_MLP_EXPERTS \
    ROWS_EXPERTS("mlp.experts.%d.gate_proj.weight", "mlp.experts.%d.up_proj.weight", "mlp.experts.%d.down_proj.weight")
/* Experts that every token goes through, under this name. */
#define ROWS_SHARED(name) \
    {P_S_GATE,   R_SHARED,  L name ".gate_proj.weight",          IN_MOE,    N(shared_ffn), N(hidden),     BY_ROWS, \
     IF(has_shared), ONE_PRODUCT}, \
    {P_S_UP,     R_SHARED,  L name ".up_proj.weight",            IN_MOE,    N(shared_ffn), N(hidden),     BY_ROWS, \
     IF(has_shared), ONE_PRODUCT}, \
    {P_S_DOWN,   R_SHARED,  L name ".down_proj.weight",          IN_MOE,    N(hidden),     N(shared_ffn), BY_COLS, \
     IF(has_shared), ONE_PRODUCT},
#define ROW_SHARED_GATE \
    {P_S_MIX,    R_SHARED,  L "mlp.shared_expert_gate.weight",   IN_MOE,    N(one),        N(hidden),     WHOLE, \
     IF(shared_gate)},
/* It chooses but does not weigh, and a rule moves it, not the loss. */
#define ROW_ROUTER_BIAS(name) \
    {P_ROUTER_BIAS, R_ROUTER, L name,                            IN_MOE,    N(one),        N(experts),    WHOLE, \
     ONE_DIM, .frozen = true},
#define ROW_ROUTER(name) \
    {P_ROUTER,   R_ROUTER,  L name,                              IN_MOE,    N(experts),    N(hidden),     WHOLE},

/* ---- keys of config.json */
#define KEYS_DENSE \
    {"intermediate_size",     0, KEY_INT,  N(ffn),         MUST, 1, LIM_FFN}, \
    KEYS_SMALL(1e-6)
#define KEYS_SMALL(norm_eps) \
    {"rms_norm_eps",          0, KEY_REAL, N(eps),         norm_eps, 0, 1}, \
    {"tie_word_embeddings",   0, KEY_BOOL, N(tied),        0},
#define KEYS_BIAS \
    {"attention_bias",        0, KEY_BOOL, N(qkv_bias),    0}, \
    {"attention_bias",        0, KEY_BOOL, N(o_bias),      0},
#define KEYS_EXPERTS \
    {"num_experts_per_tok",   0, KEY_INT,  N(topk),        MUST, 1, LIM_EXPERTS}, \
    {"moe_intermediate_size", 0, KEY_INT,  N(expert_ffn),  MUST, 1, LIM_FFN},
#define KEYS_MLA \
    {"q_lora_rank",           0, KEY_INT,  N(q_lora),      0, 1, LIM_HIDDEN}, \
    {"kv_lora_rank",          0, KEY_INT,  N(kv_lora),     MUST, 1, LIM_HIDDEN}, \
    {"qk_nope_head_dim",      0, KEY_INT,  N(nope_dim),    MUST, 1, LIM_HEADDIM}, \
    {"qk_rope_head_dim",      0, KEY_INT,  N(rope_dim),    MUST, 2, LIM_HEADDIM}, \
    {"v_head_dim",            0, KEY_INT,  N(v_dim),       MUST, 1, LIM_HEADDIM}, \
    {"num_key_value_heads",   0, KEY_INT,  N(kv_heads),    0, 1, LIM_HEADS},
#define KEYS_DELTA \
    {"linear_num_key_heads",   0, KEY_INT, N(dn_keys),  MUST, 1, LIM_HEADS}, \
    {"linear_num_value_heads", 0, KEY_INT, N(dn_heads), MUST, 1, LIM_HEADS}, \
    {"linear_key_head_dim",    0, KEY_INT, N(dn_dk),    MUST, 1, 1024}, \
    {"linear_value_head_dim",  0, KEY_INT, N(dn_dv),    MUST, 1, 1024}, \
    {"linear_conv_kernel_dim", 0, KEY_INT, N(dn_conv),  4, 1, 16},
/* DeepSeek's names of what routes. */
#define KEYS_GROUPS \
    KEYS_EXPERTS \
    {"n_routed_experts",      0, KEY_INT,  N(experts),     MUST, 1, LIM_EXPERTS}, \
    {"n_shared_experts",      0, KEY_INT,  N(shared),      0, 0, 64}, \
    {"n_group",               0, KEY_INT,  N(groups),      1, 1, LIM_EXPERTS}, \
    {"topk_group",            0, KEY_INT,  N(group_topk),  1, 1, LIM_EXPERTS}, \
    {"num_nextn_predict_layers", "num_mtp_layers", KEY_INT, N(mtp_layers), 0, 0, 64},

#endif
