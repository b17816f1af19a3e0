/* deepseek_v3.c - DeepSeek-V3 and R1, and Moonlight, which has no query latent: latent attention (MLA), the
 * first layers dense, then experts chosen by sigmoid scores within groups, plus shared ones.  The router's
 * bias chooses but does not weigh, and a rule moves it, not the loss.  head_dim in the file is the rotated
 * size only, so it is not read. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_BIAS KEYS_MLA KEYS_GROUPS
    {"routed_scaling_factor", 0, KEY_REAL, N(route_factor), MUST, 0, 1e6},
    {"norm_topk_prob",        0, KEY_BOOL, N(norm_topk),   1},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    if (!json_get(c, "q_lora_rank")) return err_set(err, "q_lora_rank is missing (null: no query latent)");
    TRY(config_only(c, "scoring_func", "sigmoid", err) && config_only(c, "topk_method", "noaux_tc", err));
    static const char *const must[] = { "n_group", "topk_group", "n_shared_experts" };
    for (size_t i = 0; i < COUNT(must); i++)
        if (!json_get(c, must[i])) return err_set(err, "%s is missing%s", must[i], i == 2 ? " (null: none)" : "");
    TRY(config_dense_first(d, c, MIXER_MLA, err));
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

const Arch arch_deepseek_v3 = {
    .name = "deepseek_v3",
    .names = { "DeepseekV3ForCausalLM" },
    .types = { "deepseek_v3", "kimi_k2" },
    .route = ROUTE_SIGMOID,
    .runs = true,
    .read = read,
    .params = params,
};
