/* ernie4_5_moe.c - ERNIE-4.5 with experts: softmax scores, a bias that chooses but does not weigh, weights
 * renormalised. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",   0, KEY_INT,  N(ffn),      MUST, 1, LIM_FFN},
    {"rms_norm_eps",        0, KEY_REAL, N(eps),      1e-5, 0, 1},
    {"tie_word_embeddings", 0, KEY_BOOL, N(tied),     1},
    {"use_bias",            0, KEY_BOOL, N(qkv_bias), 0},
    {"moe_num_experts",        0, KEY_INT, N(experts),    MUST, 1, LIM_EXPERTS},
    {"moe_k",                  0, KEY_INT, N(topk),       MUST, 1, LIM_EXPERTS},
    {"moe_num_shared_experts", 0, KEY_INT, N(shared),     0, 0, 64},
    {"moe_intermediate_size",  0, KEY_INT, N(expert_ffn), MUST, 1, LIM_FFN},
    {0},
};
/* clang-format on */

/* Experts in every moe_layer_interval-th layer from one to another; -1: to the last. */
static bool layers(Dims *d, const Json *c, Err *err) {
    int64_t first = 1, last = -1, step = 1;
    TRY(json_int(c, "moe_layer_start_index", &first, err) && json_int(c, "moe_layer_end_index", &last, err));
    TRY(json_int(c, "moe_layer_interval", &step, err));
    if (step < 1) return err_set(err, "moe_layer_interval is %ld: it must be at least 1", (long)step);
    if (last == -1) last = d->layers - 1;
    for (int l = 0; l < d->layers; l++)
        d->layer[l].ffn = (l + 1) % step == 0 && l >= first && l <= last ? FFN_EXPERTS : FFN_DENSE;
    return true;
}

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    if (d->qkv_bias) return err_set(err, "use_bias is true: models with experts have no biases here");
    TRY(config_heads(d, c, 0, err) && layers(d, c, err) && config_rope(d, c, 500000, err));
    d->rope.pairs = true;
    d->norm_topk = true;
    return true;
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROW_ROUTER("mlp.gate.weight")
    {P_ROUTER_BIAS, R_ROUTER, L "mlp.moe_statics.e_score_correction_bias", IN_MOE, N(one), N(experts), WHOLE, ONE_DIM,
     .one_row = true, .frozen = true},
    ROWS_MLP_EXPERTS ROWS_SHARED("mlp.shared_experts") ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_ernie4_5_moe = {
    .name = "ernie4_5_moe",
    .names = { "Ernie4_5_MoeForCausalLM" },
    .types = { "ernie4_5_moe" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
