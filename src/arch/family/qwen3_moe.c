/* qwen3_moe.c - Qwen3 with experts: attention as qwen3, a softmax router that renormalises only if norm_topk_prob says
 * so (absent: it does not), and dense layers where mlp_only_layers or decoder_sparse_step leave them. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_BIAS KEYS_EXPERTS
    {"num_experts", "num_local_experts", KEY_INT, N(experts), MUST, 1, LIM_EXPERTS},
    {"norm_topk_prob", 0, KEY_BOOL, N(norm_topk), 0},
    {0},
};
/* clang-format on */

static bool sparse_layers(Dims *d, const Json *c, Err *err) {
    int64_t step = 1;
    TRY(json_int(c, "decoder_sparse_step", &step, err));
    if (step < 1) return err_set(err, "decoder_sparse_step is %ld: it must be at least 1", (long)step);
    for (int l = 0; l < d->layers; l++) d->layer[l].ffn = (l + 1) % step == 0 ? FFN_EXPERTS : FFN_DENSE;
    const Json *dense = json_get(c, "mlp_only_layers");
    if (!dense || dense->kind == JSON_NULL) return true;
    bool ok = dense->kind == JSON_ARRAY;
    for (size_t i = 0; ok && i < dense->n; i++) {
        const Json *l = &dense->items[i];
        ok = l->kind == JSON_INT && l->integer >= 0;
        if (ok && l->integer < d->layers) d->layer[l->integer].ffn = FFN_DENSE;
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
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROW_ROUTER("mlp.gate.weight") ROWS_MLP_EXPERTS ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_qwen3_moe = {
    .name = "qwen3_moe",
    .names = { "Qwen3MoeForCausalLM" },
    .types = { "qwen3_moe" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .read = read,
    .params = params,
};
