/* qwen3_5_text.c - the text model of Qwen3.5 and 3.6: Qwen3-Next whose projections lie apart, a dense feed-
 * forward.  Text has one position a token, so that the sections of rope are none. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    KEYS_DENSE KEYS_DELTA
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 256, err) && config_delta(d, c, err));
    bool gate = true, bias = false;
    TRY(json_bool(c, "attn_output_gate", &gate, err) && json_bool(c, "attention_bias", &bias, err));
    if (!gate || bias) return err_set(err, "attn_output_gate must be true and attention_bias false");
    d->qk_norm = d->centred = d->out_gate = true;
    TRY(config_rope_part(d, c, 10000, 0.25, err));
    if (d->rope.kind != ROPE_SECTIONS) return true;
    d->rope.kind = ROPE_DEFAULT;
    d->rope.sections[0] = d->rope.sections[1] = d->rope.sections[2] = 0;
    return true;
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_DELTA ROWS_GQA ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_qwen3_5_text = {
    .name = "qwen3_5_text",
    .names = { "Qwen3_5ForCausalLM" },
    .types = { "qwen3_5_text" },
    .route = ROUTE_NONE,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
