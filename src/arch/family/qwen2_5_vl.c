/* qwen2_5_vl.c - Qwen2.5-VL: the Qwen2 text model with three positions per token, and a vision tower whose merged
 * patches take the place of image tokens.  transformers 5 keeps the text keys in text_config.  The classes' defaults
 * are not the published models' values, so a key that is missing is an error. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",     0, KEY_INT,  N(ffn),         MUST, 1, LIM_FFN},
    {"rms_norm_eps",          0, KEY_REAL, N(eps),         MUST, 0, 1},
    {0},
};
/* clang-format on */

/* clang-format off */
static const ConfigKey vision[] = {
    {"depth",               0,             KEY_INT, N(vis.layers), MUST, 1, LIM_LAYERS},
    {"hidden_size",         0,             KEY_INT, N(vis.hidden), MUST, 1, LIM_HIDDEN},
    {"num_heads",           0,             KEY_INT, N(vis.heads),  MUST, 1, LIM_HEADS},
    {"intermediate_size",   0,             KEY_INT, N(vis.ffn),    MUST, 1, LIM_FFN},
    {"in_chans",            "in_channels", KEY_INT, N(vis.in),     3,    1, 16},
    {"patch_size",          0,             KEY_INT, N(vis.patch),  MUST, 1, 256},
    {"temporal_patch_size", 0,             KEY_INT, N(vis.frames), MUST, 1, 64},
    {"spatial_merge_size",  0,             KEY_INT, N(vis.merge),  MUST, 1, 16},
    {"window_size",         0,             KEY_INT, N(vis.window), MUST, 1, 65536},
    {"tokens_per_second",   0,             KEY_REAL, N(vis.per_second), MUST, 0, 1e4},
    {0},
};
static const ConfigKey tokens[] = {
    {"image_token_id",        0, KEY_INT, N(vis.image_token),  MUST, 0, LIM_VOCAB},
    {"video_token_id",        0, KEY_INT, N(vis.video_token),  MUST, 0, LIM_VOCAB},
    {"vision_start_token_id", 0, KEY_INT, N(vis.vision_start), MUST, 0, LIM_VOCAB},
    {0},
};
/* clang-format on */

/* Which layers see whole frames; rope's base, which only transformers 5 writes down. */
static bool read_vision(Dims *d, const Json *v, Err *err) {
    TRY(config_keys(d, v, vision, err));
    TRY(config_only(v, "hidden_act", "silu", err));
    const Json *full = json_get(v, "fullatt_block_indexes");
    if (!full || full->kind != JSON_ARRAY) return err_set(err, "fullatt_block_indexes must be a list of layers");
    for (size_t i = 0; i < full->n; i++) {
        const Json *l = &full->items[i];
        if (l->kind != JSON_INT || l->integer < 0 || l->integer >= d->vis.layers)
            return err_set(err, "fullatt_block_indexes must be layers below depth, %ld", (long)d->vis.layers);
        d->vis.full[l->integer] = 1;
    }
    d->vis.theta = 10000;
    TRY(json_real(json_get(v, "rope_parameters"), "rope_theta", &d->vis.theta, err));
    int64_t out = d->hidden, side = d->vis.window / d->vis.merge / d->vis.patch;
    TRY(json_int(v, "out_hidden_size", &out, err));
    if (out != d->hidden) return err_set(err, "out_hidden_size is %ld, hidden_size %ld", (long)out, (long)d->hidden);
    if (side < 1) return err_set(err, "window_size %ld holds no block of patches", (long)d->vis.window);
    if (d->vis.hidden % d->vis.heads || d->vis.hidden / d->vis.heads % 4)
        return err_set(err, "hidden_size %ld over num_heads %ld must give heads whose width divides by 4",
                       (long)d->vis.hidden, (long)d->vis.heads);
    if (!(d->vis.theta > 0)) return err_set(err, "rope_parameters.rope_theta must be above 0");
    return true;
}
#define V "visual.blocks.%d."

static bool read(Dims *d, const Json *c, Err *err) {
    const Json *t = json_get(c, "text_config"), *v = json_get(c, "vision_config");
    if (!t) t = c;
    if (!v || v->kind != JSON_OBJECT) return err_set(err, "vision_config is missing");
    TRY(config_text(d, t, err) && config_keys(d, t, keys, err));
    TRY(config_heads(d, t, 0, err) && config_no_window(t, d, true, true, err));
    d->qkv_bias = true;
    TRY(json_bool(c, "tie_word_embeddings", &d->tied, err));
    if (!read_vision(d, v, err)) return err_wrap(err, "vision_config");
    TRY(config_keys(d, c, tokens, err));
    TRY(config_rope(d, t, 1e6, err));
    return d->rope.kind == ROPE_SECTIONS || err_set(err, "rope_scaling has no mrope_section");
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST

    {P_VIS_PATCH,    R_TOWER, "visual.patch_embed.proj.weight", IN_VIS,       N(vis.hidden), N(vis.pixels), WHOLE,
     .patch = true},
    {P_VIS_NORM1,    R_TOWER, V "norm1.weight",                 IN_VIS_LAYER, N(one),        N(vis.hidden), WHOLE,
     NORM},
    {P_VIS_QKV,      R_TOWER, V "attn.qkv.weight",              IN_VIS_LAYER, N(vis.qkv),    N(vis.hidden), BY_ROWS,
     .parts = 3},
    {P_VIS_QKVB,     R_TOWER, V "attn.qkv.bias",                IN_VIS_LAYER, N(one),        N(vis.qkv),    BY_COLS,
     .parts = 3, ONE_DIM},
    {P_VIS_O,        R_TOWER, V "attn.proj.weight",             IN_VIS_LAYER, N(vis.hidden), N(vis.hidden), BY_COLS},
    {P_VIS_OB,       R_TOWER, V "attn.proj.bias",               IN_VIS_LAYER, N(one),        N(vis.hidden), WHOLE,
     ONE_DIM},
    {P_VIS_NORM2,    R_TOWER, V "norm2.weight",                 IN_VIS_LAYER, N(one),        N(vis.hidden), WHOLE,
     NORM},
    {P_VIS_GATE,     R_TOWER, V "mlp.gate_proj.weight",         IN_VIS_LAYER, N(vis.ffn),    N(vis.hidden), BY_ROWS},
    {P_VIS_GATEB,    R_TOWER, V "mlp.gate_proj.bias",           IN_VIS_LAYER, N(one),        N(vis.ffn),    BY_COLS,
     ONE_DIM},
    {P_VIS_UP,       R_TOWER, V "mlp.up_proj.weight",           IN_VIS_LAYER, N(vis.ffn),    N(vis.hidden), BY_ROWS},
    {P_VIS_UPB,      R_TOWER, V "mlp.up_proj.bias",             IN_VIS_LAYER, N(one),        N(vis.ffn),    BY_COLS,
     ONE_DIM},
    {P_VIS_DOWN,     R_TOWER, V "mlp.down_proj.weight",         IN_VIS_LAYER, N(vis.hidden), N(vis.ffn),    BY_COLS},
    {P_VIS_DOWNB,    R_TOWER, V "mlp.down_proj.bias",           IN_VIS_LAYER, N(one),        N(vis.hidden), WHOLE,
     ONE_DIM},
    {P_VIS_NORM_OUT, R_TOWER, "visual.merger.ln_q.weight",      IN_VIS,       N(one),        N(vis.hidden), WHOLE,
     NORM},
    {P_VIS_FC1,      R_TOWER, "visual.merger.mlp.0.weight",     IN_VIS,       N(vis.merged), N(vis.merged), BY_ROWS},
    {P_VIS_FC1B,     R_TOWER, "visual.merger.mlp.0.bias",       IN_VIS,       N(one),        N(vis.merged), BY_COLS,
     ONE_DIM},
    {P_VIS_FC2,      R_TOWER, "visual.merger.mlp.2.weight",     IN_VIS,       N(hidden),     N(vis.merged), BY_COLS},
    {P_VIS_FC2B,     R_TOWER, "visual.merger.mlp.2.bias",       IN_VIS,       N(one),        N(hidden),     WHOLE,
     ONE_DIM},
    {0},
};
/* clang-format on */

const Arch arch_qwen2_5_vl = {
    .name = "qwen2_5_vl",
    .names = { "Qwen2_5_VLForConditionalGeneration" },
    .types = { "qwen2_5_vl" },
    .route = ROUTE_NONE,
    .runs = true,
    .read = read,
    .params = params,
};
