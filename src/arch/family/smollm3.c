/* smollm3.c - SmolLM3: Llama whose every fourth layer has no positions; tied if nothing else is said. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",   0, KEY_INT,  N(ffn),      MUST, 1, LIM_FFN},
    {"rms_norm_eps",        0, KEY_REAL, N(eps),      1e-6, 0, 1},
    {"tie_word_embeddings", 0, KEY_BOOL, N(tied),     1},
    KEYS_BIAS
    {"mlp_bias",            0, KEY_BOOL, N(mlp_bias), 0},
    {0},
};
/* clang-format on */

/* no_rope_layers says 1 where there is rope. */
static bool layers(Dims *d, const Json *c, Err *err) {
    const Json *list = json_get(c, "no_rope_layers");
    int64_t step = 4;
    TRY(json_int(c, "no_rope_layer_interval", &step, err));
    if (step < 1) return err_set(err, "no_rope_layer_interval is %ld: it must be at least 1", (long)step);
    for (int l = 0; l < d->layers; l++) d->layer[l].still = (l + 1) % step == 0;
    if (!list || list->kind == JSON_NULL) return true;
    bool ok = list->kind == JSON_ARRAY && (int64_t)list->n == d->layers;
    for (int l = 0; ok && l < d->layers; l++) {
        const Json *v = &list->items[l];
        ok = v->kind == JSON_INT && (v->integer == 0 || v->integer == 1);
        if (ok) d->layer[l].still = !v->integer;
    }
    return ok || err_set(err, "no_rope_layers must be 0 or 1 for each of %ld layers", (long)d->layers);
}

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 0, err) && config_no_window(c, d, true, false, err));
    return layers(d, c, err) && config_rope(d, c, 2e6, err);
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_smollm3 = {
    .name = "smollm3",
    .names = { "SmolLM3ForCausalLM" },
    .types = { "smollm3" },
    .route = ROUTE_NONE,
    .runs = true,
    .read = read,
    .params = params,
};
