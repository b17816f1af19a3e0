/* ernie4_5.c - ERNIE-4.5's dense models: Llama whose neighbouring columns turn together; tied if nothing else is
 * said. */
#include "arch/rows.h"

/* clang-format off */
static const ConfigKey keys[] = {
    {"intermediate_size",   0, KEY_INT,  N(ffn),      MUST, 1, LIM_FFN},
    {"rms_norm_eps",        0, KEY_REAL, N(eps),      1e-5, 0, 1},
    {"tie_word_embeddings", 0, KEY_BOOL, N(tied),     1},
    {"use_bias",            0, KEY_BOOL, N(qkv_bias), 0},
    {"use_bias",            0, KEY_BOOL, N(o_bias),   0},
    {"use_bias",            0, KEY_BOOL, N(mlp_bias), 0},
    {0},
};
/* clang-format on */

static bool read(Dims *d, const Json *c, Err *err) {
    TRY(config_text(d, c, err) && config_keys(d, c, keys, err));
    TRY(config_heads(d, c, 128, err) && config_rope(d, c, 500000, err));
    d->rope.pairs = true;
    return true;
}

/* clang-format off */
static const ParamDesc params[] = {
    ROWS_FIRST ROWS_GQA ROWS_MLP ROWS_LAST
    {0},
};
/* clang-format on */

const Arch arch_ernie4_5 = {
    .name = "ernie4_5",
    .names = { "Ernie4_5ForCausalLM" },
    .types = { "ernie4_5" },
    .route = ROUTE_NONE,
    .runs = true,
    .untried = true,
    .read = read,
    .params = params,
};
