/* phi3.c - Phi-3, Phi-4 and Phi-4-mini: Llama whose q, k and v lie in one tensor, and gate and up in another; a part of
 * a head may turn, with longrope by the list for sequences within the original context. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",     0, KEY_INT,  N(ffn),         MUST, 1, LIM_FFN},
    KEYS_SMALL(1e-5)
    {"attention_bias",        0, KEY_BOOL, N(qkv_bias),    0},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    if (d->qkv_bias) return err_set(err, "attention_bias is true: only false, as it is published, is supported");
    const Json *window = json_get(c, "sliding_window");
    if (window && window->kind == JSON_INT && window->integer < d->context)
        TRY(config_no_window(c, d, false, false, err)); /* (one beyond the context does nothing) */
    TRY(config_heads(d, c, 0, err) && config_rope_part(d, c, 10000, 1, err));
    return d->rope.kind != ROPE_YARN
           || err_set(err, "rope_scaling: \"yarn\" means longrope here, and is not supported");
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROW_NORM1
    {P_Q,    R_ATTN,  L "self_attn.q_proj.weight", IN_LAYER, N(q_out),  N(hidden), BY_ROWS, N(head_dim), ONE_PRODUCT,
     PART("self_attn.qkv_proj.weight", zero, qkv_all)},
    {P_K,    R_ATTN,  L "self_attn.k_proj.weight", IN_LAYER, N(kv_out), N(hidden), BY_ROWS, N(head_dim), ONE_PRODUCT,
     PART("self_attn.qkv_proj.weight", k_first, qkv_all)},
    {P_V,    R_ATTN,  L "self_attn.v_proj.weight", IN_LAYER, N(kv_out), N(hidden), BY_ROWS, N(head_dim), ONE_PRODUCT,
     PART("self_attn.qkv_proj.weight", v_first, qkv_all)},
    ROWS_OUT(head_dim)
    {P_GATE, R_DENSE, L "mlp.gate_proj.weight",    IN_DENSE, N(ffn),    N(hidden), BY_ROWS, ONE_PRODUCT,
     PART("mlp.gate_up_proj.weight", zero, gate_up_all)},
    {P_UP,   R_DENSE, L "mlp.up_proj.weight",      IN_DENSE, N(ffn),    N(hidden), BY_ROWS, ONE_PRODUCT,
     PART("mlp.gate_up_proj.weight", ffn, gate_up_all)},
    {P_DOWN, R_DENSE, L "mlp.down_proj.weight",    IN_DENSE, N(hidden), N(ffn),    BY_COLS, ONE_PRODUCT},
    ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_phi3 = {
    .name = "phi3",
    .names = { "Phi3ForCausalLM" },
    .types = { "phi3" },
    .route = ROUTE_NONE,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
