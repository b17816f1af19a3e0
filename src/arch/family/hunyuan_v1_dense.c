/* hunyuan_v1_dense.c - Hunyuan's dense models: heads are normed behind the rotation; alpha makes another theta. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",   0, KEY_INT,  N(ffn),      MUST, 1, LIM_FFN},
    KEYS_SMALL(1e-5) KEYS_BIAS
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
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
    ROWS_OUT(head_dim) ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_hunyuan_v1_dense = {
    .name = "hunyuan_v1_dense",
    .names = { "HunYuanDenseV1ForCausalLM" },
    .types = { "hunyuan_v1_dense" },
    .route = ROUTE_NONE,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
