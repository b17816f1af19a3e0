/* qwen2_5_vl.c - Qwen2.5-VL: the Qwen2 text model with three positions per token, and a vision tower whose merged
 * patches take the place of image tokens.  Counted, not computed.  transformers 5 keeps the text keys in text_config. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",     0, KEY_INT,  N(ffn),         MUST, 1, LIM_FFN},
    {"rms_norm_eps",          0, KEY_REAL, N(eps),         1e-5, 0, 1},
    {0},
};
/* clang-format on */

/* clang-format off */
static const ConfigKey vision[] = {
    {"depth",               0,             KEY_INT, N(vis_layers), MUST, 1, LIM_LAYERS},
    {"hidden_size",         0,             KEY_INT, N(vis_hidden), MUST, 1, LIM_HIDDEN},
    {"num_heads",           0,             KEY_INT, N(vis_heads),  MUST, 1, LIM_HEADS},
    {"intermediate_size",   0,             KEY_INT, N(vis_ffn),    MUST, 1, LIM_FFN},
    {"in_chans",            "in_channels", KEY_INT, N(vis_in),     3,    1, 16},
    {"patch_size",          0,             KEY_INT, N(vis_patch),  14,   1, 256},
    {"temporal_patch_size", 0,             KEY_INT, N(vis_frames), 2,    1, 64},
    {"spatial_merge_size",  0,             KEY_INT, N(vis_merge),  2,    1, 16},
    {0},
};
/* clang-format on */
#define V "visual.blocks.%d."

static bool read(Dims *d, const Json *c, Err *err) {
    const Json *t = json_get(c, "text_config"), *v = json_get(c, "vision_config");
    if (!t) t = c;
    if (!v || v->kind != JSON_OBJECT) return err_set(err, "vision_config is missing");
    TRY(config_text(d, t, err) && config_keys(d, t, keys, err));
    TRY(config_heads(d, t, 0, err) && config_no_window(t, d, true, true, err));
    d->qkv_bias = true;
    TRY(json_bool(c, "tie_word_embeddings", &d->tied, err));
    if (!config_keys(d, v, vision, err)) return err_wrap(err, "vision_config");
    if (d->vis_hidden % d->vis_heads)
        return err_set(err, "vision_config.hidden_size %ld is not a multiple of num_heads %ld", (long)d->vis_hidden,
                       (long)d->vis_heads);
    TRY(config_rope(d, t, 1e6, err));
    return d->rope.kind == ROPE_SECTIONS || err_set(err, "rope_scaling has no mrope_section");
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST

    {P_VIS_PATCH,    "visual.patch_embed.proj.weight",    IN_VIS,       N(vis_hidden), N(vis_pixels), WHOLE},
    {P_VIS_NORM1,    V "norm1.weight",                    IN_VIS_LAYER, N(one),        N(vis_hidden), WHOLE, ONE_DIM},
    {P_VIS_QKV,      V "attn.qkv.weight",                 IN_VIS_LAYER, N(vis_qkv),    N(vis_hidden), BY_ROWS, .parts = 3},
    {P_VIS_QKVB,     V "attn.qkv.bias",                   IN_VIS_LAYER, N(one),        N(vis_qkv),    BY_COLS, .parts = 3, ONE_DIM},
    {P_VIS_O,        V "attn.proj.weight",                IN_VIS_LAYER, N(vis_hidden), N(vis_hidden), BY_COLS},
    {P_VIS_OB,       V "attn.proj.bias",                  IN_VIS_LAYER, N(one),        N(vis_hidden), WHOLE, ONE_DIM},
    {P_VIS_NORM2,    V "norm2.weight",                    IN_VIS_LAYER, N(one),        N(vis_hidden), WHOLE, ONE_DIM},
    {P_VIS_GATE,     V "mlp.gate_proj.weight",            IN_VIS_LAYER, N(vis_ffn),    N(vis_hidden), BY_ROWS},
    {P_VIS_GATEB,    V "mlp.gate_proj.bias",              IN_VIS_LAYER, N(one),        N(vis_ffn),    BY_COLS, ONE_DIM},
    {P_VIS_UP,       V "mlp.up_proj.weight",              IN_VIS_LAYER, N(vis_ffn),    N(vis_hidden), BY_ROWS},
    {P_VIS_UPB,      V "mlp.up_proj.bias",                IN_VIS_LAYER, N(one),        N(vis_ffn),    BY_COLS, ONE_DIM},
    {P_VIS_DOWN,     V "mlp.down_proj.weight",            IN_VIS_LAYER, N(vis_hidden), N(vis_ffn),    BY_COLS},
    {P_VIS_DOWNB,    V "mlp.down_proj.bias",              IN_VIS_LAYER, N(one),        N(vis_hidden), WHOLE, ONE_DIM},
    {P_VIS_NORM_OUT, "visual.merger.ln_q.weight",         IN_VIS,       N(one),        N(vis_hidden), WHOLE, ONE_DIM},
    {P_VIS_FC1,      "visual.merger.mlp.0.weight",        IN_VIS,       N(vis_merged), N(vis_merged), BY_ROWS},
    {P_VIS_FC1B,     "visual.merger.mlp.0.bias",          IN_VIS,       N(one),        N(vis_merged), BY_COLS, ONE_DIM},
    {P_VIS_FC2,      "visual.merger.mlp.2.weight",        IN_VIS,       N(hidden),     N(vis_merged), BY_COLS},
    {P_VIS_FC2B,     "visual.merger.mlp.2.bias",          IN_VIS,       N(one),        N(hidden),     WHOLE, ONE_DIM},
    {0},
};
/* clang-format on */

const Arch arch_qwen2_5_vl = {
    .name = "qwen2_5_vl",
    .names = { "Qwen2_5_VLForConditionalGeneration" },
    .types = { "qwen2_5_vl" },
    .attn = ATTN_GQA,
    .route = ROUTE_NONE,
    .runs = false,
    .read = read,
    .params = params,
};
