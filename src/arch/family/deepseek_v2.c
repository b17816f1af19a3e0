/* deepseek_v2.c - DeepSeek-V2 and V2-Lite: DeepSeek-V3 with softmax scores, whose groups are as good as their best
 * expert and whose weights are multiplied by the factor and never renormalised. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_BIAS KEYS_MLA KEYS_GROUPS
    {"routed_scaling_factor", 0, KEY_REAL, N(route_factor), 1, 0, 1e6},
    {"norm_topk_prob",        0, KEY_BOOL, N(norm_topk),   0},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_only(c, "scoring_func", "softmax", err));
    if (d->norm_topk) return err_set(err, "norm_topk_prob is true: only false, as it is published, is supported");
    const Json *how = json_get(c, "topk_method");
    if (!how || how->kind == JSON_NULL || json_is_str(how, "greedy")) d->groups = d->group_topk = 1;
    else TRY(config_only(c, "topk_method", "group_limited_greedy", err));
    TRY(config_dense_first(d, c, MIXER_MLA, err));
    if (!d->kv_heads) d->kv_heads = d->heads;
    TRY(config_rope(d, c, 10000, err));
    d->rope.pairs = true;
    return true;
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_MLA ROWS_MLP ROW_ROUTER("mlp.gate.weight") ROWS_MLP_EXPERTS ROWS_SHARED("mlp.shared_experts")
    ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_deepseek_v2 = {
    .name = "deepseek_v2",
    .names = { "DeepseekV2ForCausalLM" },
    .types = { "deepseek_v2" },
    .route = ROUTE_SOFTMAX,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
