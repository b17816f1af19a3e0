/* config.c - reads config.json as the hub spells it and as transformers 5 does.  Nothing is guessed: a size that is
 * missing is an error, and so is a value that the layers do not compute. */
#include "arch/config.h"

#include <stdio.h>

/* "key is VALUE", the value cut at 60 bytes. */
static bool bad(Err *err, const char *key, const Json *v, const char *why) {
    Buf b = { 0 };
    json_put_value(&b, v);
    err_set(err, "%s is %.60s%s: %s", key, b.data, b.n > 60 ? "..." : "", why);
    buf_free(&b);
    return false;
}

static const Json *given(const Json *c, const char *key) {
    const Json *v = key ? json_get(c, key) : NULL;
    return v && v->kind != JSON_NULL ? v : NULL;
}

static bool config_key(Dims *d, const Json *c, const ConfigKey *k, Err *err) {
    void *to = (char *)d + k->at;
    const char *name = k->key;
    const Json *v = given(c, name);
    if (!v && given(c, k->also)) v = given(c, name = k->also);
    if (!v && k->otherwise == MUST) return err_set(err, "%s is missing", k->key);
    if (k->kind == KEY_BOOL) {
        if (v && v->kind != JSON_BOOL) return bad(err, name, v, "true or false is wanted");
        *(bool *)to = v ? v->flag : k->otherwise != 0;
        return true;
    }
    if (v && v->kind != JSON_INT && (k->kind == KEY_INT || v->kind != JSON_REAL))
        return bad(err, name, v, k->kind == KEY_INT ? "a whole number is wanted" : "a number is wanted");
    double x = v ? json_number(v) : k->otherwise;
    if (v && !(x >= k->lo && x <= k->hi)) {
        char why[96];
        snprintf(why, sizeof why, "it must lie between %.10g and %.10g", k->lo, k->hi);
        return bad(err, name, v, why);
    }
    if (k->kind == KEY_INT) *(int64_t *)to = v ? v->integer : (int64_t)x;
    else *(double *)to = x;
    return true;
}

bool config_keys(Dims *d, const Json *c, const ConfigKey *keys, Err *err) {
    for (; keys->key; keys++) TRY(config_key(d, c, keys, err));
    return true;
}

bool config_only(const Json *c, const char *key, const char *value, Err *err) {
    const Json *v = given(c, key);
    if (!v || json_is_str(v, value)) return true;
    char why[96];
    snprintf(why, sizeof why, "only \"%s\" is supported", value);
    return bad(err, key, v, why);
}

bool config_text(Dims *d, const Json *c, Err *err) {
    /* clang-format off */
    static const ConfigKey keys[] = {
        {"num_hidden_layers",       0, KEY_INT, N(layers),  MUST, 1, LIM_LAYERS},
        {"hidden_size",             0, KEY_INT, N(hidden),  MUST, 1, LIM_HIDDEN},
        {"vocab_size",              0, KEY_INT, N(vocab),   MUST, 1, LIM_VOCAB},
        {"num_attention_heads",     0, KEY_INT, N(heads),   MUST, 1, LIM_HEADS},
        {"max_position_embeddings", 0, KEY_INT, N(context), MUST, 1, 0x1p31},
        {0},
    };
    /* clang-format on */
    TRY(config_keys(d, c, keys, err));
    TRY(config_only(c, "hidden_act", "silu", err));
    return config_tokens(d, c, err);
}

bool config_heads(Dims *d, const Json *c, int64_t otherwise, Err *err) {
    /* clang-format off */
    const ConfigKey keys[] = {
        {"num_key_value_heads", 0, KEY_INT, N(kv_heads), (double)d->heads,  1, LIM_HEADS},
        {"head_dim",            0, KEY_INT, N(head_dim), (double)otherwise, 1, LIM_HEADDIM},
        {0},
    };
    /* clang-format on */
    TRY(config_keys(d, c, keys, err));
    if (d->head_dim) return true;
    if (d->hidden % d->heads)
        return err_set(err, "head_dim is missing, and hidden_size %ld is not a multiple of num_attention_heads %ld",
                       (long)d->hidden, (long)d->heads);
    d->head_dim = d->hidden / d->heads;
    return true;
}

bool config_no_window(const Json *c, const Dims *d, bool needs_flag, bool from_layer, Err *err) {
    const Json *types = given(c, "layer_types"), *window = given(c, "sliding_window"),
               *flag = given(c, "use_sliding_window");
    for (size_t i = 0; types && types->kind == JSON_ARRAY && i < types->n; i++)
        if (!json_is_str(&types->items[i], "full_attention"))
            return bad(err, "layer_types", &types->items[i], "only \"full_attention\" is supported");
    if (flag && flag->kind != JSON_BOOL) return bad(err, "use_sliding_window", flag, "true or false is wanted");
    if (!window || (needs_flag && !(flag && flag->flag))) return true;
    const Json *first = from_layer ? given(c, "max_window_layers") : NULL;
    if (first && first->kind == JSON_INT && first->integer >= d->layers) return true;
    return bad(err, "sliding_window", window, "attention over a sliding window is not supported");
}

bool config_quant(Dims *d, const Json *c, Err *err) {
    const Json *q = given(c, "quantization_config");
    if (!q) return true;
    if (q->kind != JSON_OBJECT) return bad(err, "quantization_config", q, "an object is wanted");
    if (!json_is_str(given(q, "quant_method"), "fp8"))
        return bad(err, "quantization_config", q, "only quant_method \"fp8\" in blocks of 128 x 128 is supported");
    TRY(config_only(q, "fmt", "e4m3", err));
    TRY(config_only(q, "activation_scheme", "dynamic", err));
    const Json *block = given(q, "weight_block_size");
    bool ok = !block || (block->kind == JSON_ARRAY && block->n == 2);
    for (int i = 0; ok && block && i < 2; i++) ok = block->items[i].kind == JSON_INT && block->items[i].integer == 128;
    if (!ok) return bad(err, "quantization_config.weight_block_size", block, "only [128,128] is supported");
    d->fp8 = true;
    return true;
}

static bool add_eos(Dims *d, const Json *v, Err *err) {
    if (v->kind != JSON_INT) return bad(err, "eos_token_id", v, "a token number is wanted");
    if (v->integer < 0 || v->integer >= d->vocab)
        return bad(err, "eos_token_id", v, "it is not a token of this vocabulary");
    for (int64_t i = 0; i < d->special.n_eos; i++)
        if (d->special.eos[i] == v->integer) return true;
    if (d->special.n_eos == MAX_EOS)
        return err_set(err, "eos_token_id lists more than %d different end tokens: no more are supported", MAX_EOS);
    d->special.eos[d->special.n_eos++] = v->integer;
    return true;
}

/* One outside of the vocabulary (published configs have them) is none: the tokenizer, not
 * this, says what a text begins with. */
static bool one_token(int64_t *to, const Dims *d, const Json *c, const char *key, Err *err) {
    const Json *v = given(c, key);
    if (v && v->kind != JSON_INT) return bad(err, key, v, "a token number is wanted");
    if (v && v->integer >= 0 && v->integer < d->vocab) *to = v->integer;
    return true;
}

bool config_tokens(Dims *d, const Json *c, Err *err) {
    TRY(one_token(&d->special.bos, d, c, "bos_token_id", err));
    TRY(one_token(&d->special.pad, d, c, "pad_token_id", err));
    const Json *v = given(c, "eos_token_id");
    if (!v) return true;
    if (v->kind != JSON_ARRAY) return add_eos(d, v, err);
    for (size_t i = 0; i < v->n; i++) TRY(add_eos(d, &v->items[i], err));
    return true;
}

bool config_dense_first(Dims *d, const Json *c, MixerKind mixer, Err *err) {
    int64_t first = -1, freq = 1;
    TRY(json_int(c, "first_k_dense_replace", &first, err) && json_int(c, "moe_layer_freq", &freq, err));
    if (first < 0) return err_set(err, "first_k_dense_replace is missing or negative");
    if (freq != 1) return err_set(err, "moe_layer_freq is %ld: only 1 is supported", (long)freq);
    for (int l = 0; l < d->layers; l++)
        d->layer[l] = (LayerSpec){ .mixer = (uint8_t)mixer, .ffn = l < first ? FFN_DENSE : FFN_EXPERTS };
    return true;
}

bool config_sparse(Dims *d, const Json *c, Err *err) {
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

bool config_delta(Dims *d, const Json *c, Err *err) {
    const Json *kinds = given(c, "layer_types");
    int64_t every = 4;
    TRY(json_int(c, "full_attention_interval", &every, err));
    if (every < 1) return err_set(err, "full_attention_interval is %ld: it must be at least 1", (long)every);
    if (kinds && (kinds->kind != JSON_ARRAY || (int64_t)kinds->n != d->layers))
        return bad(err, "layer_types", kinds, "a list of a kind for each layer is wanted");
    for (int l = 0; l < d->layers; l++) {
        bool full = kinds ? json_is_str(&kinds->items[l], "full_attention") : (l + 1) % every == 0;
        if (kinds && !full && !json_is_str(&kinds->items[l], "linear_attention"))
            return bad(err, "layer_types", &kinds->items[l], "linear_attention or full_attention is wanted");
        d->layer[l].mixer = full ? MIXER_GQA : MIXER_DELTA;
    }
    if (d->dn_heads % d->dn_keys)
        return err_set(err, "linear_num_value_heads %ld is not a multiple of linear_num_key_heads %ld",
                       (long)d->dn_heads, (long)d->dn_keys);
    if (d->dn_dk * d->dn_dv > 128 * 128)
        return err_set(err, "linear_key_head_dim %ld x linear_value_head_dim %ld: at most 128 x 128 are computed",
                       (long)d->dn_dk, (long)d->dn_dv);
    return true;
}

bool config_alike(int64_t *to, const Json *c, const char *key, double lo, double hi, Err *err) {
    const Json *v = given(c, key);
    if (!v) return true;
    bool list = v->kind == JSON_ARRAY;
    for (size_t i = 0; i < (list ? v->n : 1); i++) {
        const Json *x = list ? &v->items[i] : v;
        if (x->kind != JSON_INT || (double)x->integer < lo || (double)x->integer > hi)
            return bad(err, key, x, "a whole number within limits is wanted");
        if (i && x->integer != *to) return bad(err, key, v, "only one value for all layers is supported");
        *to = x->integer;
    }
    return true;
}

bool arch_check(const Dims *d, RouteKind route, Err *err) {
    bool latent = dims_latent(d);
    int64_t turned = latent ? d->rope_dim : (int64_t)((double)d->head_dim * d->rope.part);
    if (turned % 2 || turned < 1)
        return err_set(err, "%s is %ld: rotary positions want an even number",
                       latent             ? "qk_rope_head_dim"
                       : d->rope.part < 1 ? "head_dim x partial_rotary_factor"
                                          : "head_dim",
                       (long)turned);
    int64_t wide = latent ? d->kv_lora + d->rope_dim : d->head_dim;
    if (wide > LIM_ATTEND)
        return err_set(err, "%s is %ld: attention takes at most %d columns a head",
                       latent ? "kv_lora_rank + qk_rope_head_dim" : "head_dim", (long)wide, LIM_ATTEND);
    if (d->heads % d->kv_heads)
        return err_set(err, "num_attention_heads %ld is not a multiple of num_key_value_heads %ld", (long)d->heads,
                       (long)d->kv_heads);
    if (latent && d->kv_heads != d->heads)
        return err_set(err, "num_key_value_heads is %ld: latent attention wants as many as num_attention_heads, %ld",
                       (long)d->kv_heads, (long)d->heads);
    int64_t group = latent ? d->heads : d->heads / d->kv_heads; /* (all heads read the one latent) */
    if (group > LIM_GROUP)
        return err_set(err, "num_attention_heads is %ld: %ld heads would share one key head, at most %d can",
                       (long)d->heads, (long)group, LIM_GROUP);
    if (route == ROUTE_NONE) return true;
    if (d->topk > d->experts)
        return err_set(err, "num_experts_per_tok is %ld: there are only %ld experts", (long)d->topk, (long)d->experts);
    if (d->groups < 1 || d->experts % d->groups)
        return err_set(err, "n_group is %ld: the %ld experts do not divide into as many groups", (long)d->groups,
                       (long)d->experts);
    if (d->groups == 1) return true;
    int64_t each = d->experts / d->groups;
    if (each < 2 && route == ROUTE_SIGMOID)
        return err_set(err, "n_group is %ld: a group wants at least two of the %ld experts", (long)d->groups,
                       (long)d->experts);
    if (d->group_topk > d->groups)
        return err_set(err, "topk_group is %ld: there are only %ld groups", (long)d->group_topk, (long)d->groups);
    if (d->topk > d->group_topk * each)
        return err_set(err, "num_experts_per_tok is %ld: topk_group %ld leaves only %ld experts", (long)d->topk,
                       (long)d->group_topk, (long)(d->group_topk * each));
    return true;
}
