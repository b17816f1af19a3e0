/* glm4_moe_lite.c - GLM-4.7-Flash: DeepSeek-V3 with keys of its own for which layers are dense
 * (first_k_dense_replace is not read). */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",     0, KEY_INT,  N(ffn),         MUST, 1, LIM_FFN},
    KEYS_SMALL(1e-5) KEYS_BIAS KEYS_MLA KEYS_GROUPS
    {"routed_scaling_factor", 0, KEY_REAL, N(route_factor), 1.8, 0, 1e6},
    {"norm_topk_prob",        0, KEY_BOOL, N(norm_topk),   1},
    {0},
};
/* clang-format on */

/* Without a list of kinds the first layer is the only dense one. */
static bool layers(Dims *d, const Json *c, Err *err) {
    const Json *kinds = json_get(c, "mlp_layer_types");
    bool list = kinds && kinds->kind == JSON_ARRAY, ok = !kinds || kinds->kind == JSON_NULL || list;
    if (list) ok = (int64_t)kinds->n == d->layers;
    for (int l = 0; ok && l < d->layers; l++) {
        bool dense = list ? json_is_str(&kinds->items[l], "dense") : l == 0;
        d->layer[l] = (LayerSpec){ .mixer = MIXER_MLA, .ffn = dense ? FFN_DENSE : FFN_EXPERTS };
        ok = dense || !list || json_is_str(&kinds->items[l], "sparse");
    }
    return ok
           || err_set(err, "mlp_layer_types must say \"dense\" or \"sparse\" for each of %ld layers", (long)d->layers);
}

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_only(c, "scoring_func", "sigmoid", err) && config_only(c, "topk_method", "noaux_tc", err));
    TRY(layers(d, c, err));
    if (!d->kv_heads) d->kv_heads = d->heads;
    TRY(config_rope(d, c, 10000, err));
    d->rope.pairs = true;
    return json_bool(c, "rope_interleave", &d->rope.pairs, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_MLA ROWS_MLP ROW_ROUTER("mlp.gate.weight") ROW_ROUTER_BIAS("mlp.gate.e_score_correction_bias")
    ROWS_MLP_EXPERTS ROWS_SHARED("mlp.shared_experts") ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .names = { "Glm4MoeLiteForCausalLM" },
    .types = { "glm4_moe_lite" },
    .route = ROUTE_SIGMOID,
    .runs = true,
    .read = read,
    .params = params,
};
