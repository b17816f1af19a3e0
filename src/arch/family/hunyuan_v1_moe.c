/* hunyuan_v1_moe.c - Hunyuan with experts in every layer, as wide as intermediate_size says, and one that every
 * token goes through; attention as hunyuan_v1_dense.  Numbers of experts may be lists, a number for each layer. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",   0, KEY_INT,  N(expert_ffn), MUST, 1, LIM_FFN},
    KEYS_SMALL(1e-5) KEYS_BIAS
    {0},
};
/* clang-format on */

static bool experts(Dims *d, const Json *c, Err *err) {
    int64_t wide = d->expert_ffn;
    d->shared = 1;
    TRY(config_alike(&d->experts, c, "num_experts", 1, LIM_EXPERTS, err));
    TRY(config_alike(&d->topk, c, "moe_topk", 1, LIM_EXPERTS, err));
    TRY(config_alike(&d->shared, c, "num_shared_expert", 0, 1, err));
    TRY(config_alike(&wide, c, "moe_intermediate_size", 1, LIM_FFN, err));
    if (!d->experts || !d->topk) return err_set(err, "%s is missing", d->experts ? "moe_topk" : "num_experts");
    if (wide != d->expert_ffn)
        return err_set(err, "moe_intermediate_size is %ld, intermediate_size %ld: they must be the same", (long)wide,
                       (long)d->expert_ffn);
    bool both = true;
    TRY(json_bool(c, "use_mixed_mlp_moe", &both, err));
    if (!both) d->shared = 0;
    d->norm_topk = true;
    for (int l = 0; l < d->layers; l++) d->layer[l].ffn = FFN_EXPERTS;
    return true;
}

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err) && experts(d, c, err));
    TRY(config_heads(d, c, 0, err));
    bool norm = true, shares = false;
    TRY(json_bool(c, "use_qk_norm", &norm, err) && json_bool(c, "use_cla", &shares, err));
    if (!norm || shares) return err_set(err, "use_qk_norm must be true and use_cla false: nothing else is supported");
    d->qk_norm = d->norm_turned = true;
    return config_rope(d, c, 10000, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST
    ROW_NORM1 ROWS_QKV ROWS_QK_NORM("self_attn.query_layernorm.weight", "self_attn.key_layernorm.weight")
    ROWS_OUT(head_dim) ROW_ROUTER("mlp.gate.wg.weight") ROWS_MLP_EXPERTS ROWS_SHARED("mlp.shared_mlp") ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_hunyuan_v1_moe = {
    .name = "hunyuan_v1_moe",
    .names = { "HunYuanMoEV1ForCausalLM" },
    .types = { "hunyuan_v1_moe" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
