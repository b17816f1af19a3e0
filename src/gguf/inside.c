/* inside.c - config.json and its neighbours made of a GGUF file's metadata.  A key of the architecture that is not
 * known here may change what a model computes: it is refused, not passed over. */
#include "gguf/inside.h"
#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const GgufFamily families[] = {
    { "llama",    "llama",     "LlamaForCausalLM",    .turned = true },
    { "llama",    "mixtral",   "MixtralForCausalLM",  .turned = true, .experts = true, .norm_always = true },
    { "qwen2",    "qwen2",     "Qwen2ForCausalLM",    .q_bias = true },
    { "qwen3",    "qwen3",     "Qwen3ForCausalLM" },
    { "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", .experts = true, .norm_always = true },
};
/* clang-format on */

const GgufFamily *gguf_family_of(const char *type) {
    for (size_t i = 0; i < COUNT(families); i++)
        if (!strcmp(families[i].type, type)) return &families[i];
    return NULL;
}

/* "PREFIX.key" of this architecture. */
typedef struct {
    char s[128];
} Key;
static Key key_of(const char *arch, const char *key) {
    Key k = { "" };
    size_t n = strlen(arch), m = strlen(key);
    CHECK(n + m + 2 <= sizeof k.s, "%s.%s", arch, key);
    memcpy(k.s, arch, n), k.s[n] = '.', memcpy(k.s + n + 1, key, m + 1);
    return k;
}

const GgufFamily *gguf_family(const Gguf *g, Err *err) {
    const char *s = "";
    size_t n = 0;
    int64_t experts = 0;
    if (!gguf_text(g, "general.architecture", &s, &n, err)) return NULL;
    for (size_t i = 0; i < COUNT(families); i++) {
        const GgufFamily *f = &families[i];
        if (strlen(f->gguf) != n || memcmp(f->gguf, s, n)) continue;
        if (!gguf_int(g, key_of(f->gguf, "expert_count").s, &experts, err)) return NULL;
        if (f->experts == (experts > 0)) return f;
    }
    err_set(err, "%s: the architecture %s%s is not read from GGUF files: llama, mixtral, qwen2, qwen3 and qwen3moe are",
            g->label, n ? gguf_shown(s, n).s : "(none)", experts ? " with experts" : "");
    return NULL;
}

static const GgufTensor *find(const Gguf *g, const char *name) {
    for (size_t i = 0; i < g->n_tensors; i++)
        if (!strcmp(g->tensor[i].name, name)) return &g->tensor[i];
    return NULL;
}

/* ---- config.json */
static const struct {
    const char *key, *hub; /* hub NULL: looked at below, or of no account */
    bool real, must;
} config_keys[] = {
    { "embedding_length", "hidden_size", .must = true },
    { "block_count", "num_hidden_layers", .must = true },
    { "attention.head_count", "num_attention_heads", .must = true },
    { "attention.head_count_kv", "num_key_value_heads" },
    { "context_length", "max_position_embeddings", .must = true },
    { "attention.layer_norm_rms_epsilon", "rms_norm_eps", .real = true, .must = true },
    { "rope.freq_base", "rope_theta", .real = true },
    { "feed_forward_length", NULL },
    { "vocab_size", NULL },
    { "attention.key_length", NULL },
    { "attention.value_length", NULL },
    { "rope.dimension_count", NULL },
    { "rope.scaling.type", NULL },
    { "rope.scaling.factor", NULL },
    { "rope.scaling.original_context_length", NULL },
    { "rope.scaling.finetuned", NULL },
    { "rope.scaling.yarn_beta_fast", NULL },
    { "rope.scaling.yarn_beta_slow", NULL },
    { "expert_count", NULL },
    { "expert_used_count", NULL },
    { "expert_feed_forward_length", NULL },
    { "tensor_data_layout", NULL },
};

static bool only_known(const Gguf *g, const GgufFamily *f, Err *err) {
    size_t n = strlen(f->gguf);
    for (size_t i = 0; i < g->n_values; i++) {
        const char *k = g->value[i].key;
        if (strncmp(k, f->gguf, n) || k[n] != '.') continue;
        size_t j = 0;
        while (j < COUNT(config_keys) && strcmp(config_keys[j].key, k + n + 1)) j++;
        if (j == COUNT(config_keys))
            return err_set(err, "%s: the key %.100s is not known to hone, and may change what the model computes",
                           g->label, k);
    }
    return true;
}

static bool put_int(Buf *b, const Gguf *g, const GgufFamily *f, const char *key, const char *hub, Err *err) {
    int64_t v = -1;
    Key k = key_of(f->gguf, key);
    TRY(gguf_int(g, k.s, &v, err));
    if (v < 0) return err_set(err, "%s: %s is missing", g->label, k.s);
    buf_printf(b, ",\n \"%s\": %" PRId64, hub, v);
    return true;
}

static bool put_numbers(Buf *b, const Gguf *g, const GgufFamily *f, Err *err) {
    for (size_t i = 0; i < COUNT(config_keys) && config_keys[i].hub; i++) {
        Key k = key_of(f->gguf, config_keys[i].key);
        if (!gguf_get(g, k.s) && !config_keys[i].must) continue;
        if (!config_keys[i].real) {
            TRY(put_int(b, g, f, config_keys[i].key, config_keys[i].hub, err));
            continue;
        }
        double x = NAN;
        TRY(gguf_real(g, k.s, &x, err));
        if (isnan(x)) return err_set(err, "%s: %s is missing", g->label, k.s);
        buf_printf(b, ",\n \"%s\": ", config_keys[i].hub);
        json_put_f32(b, (float)x);
    }
    return true;
}

/* The width of a head: its key, or the model's width by its heads. */
bool gguf_head(const Gguf *g, const GgufFamily *f, int64_t *out, Err *err) {
    int64_t heads = 0, hidden = 0, key = 0, value, rope;
    TRY(gguf_int(g, key_of(f->gguf, "attention.head_count").s, &heads, err));
    TRY(gguf_int(g, key_of(f->gguf, "embedding_length").s, &hidden, err));
    if (heads < 1 || hidden < 1) return err_set(err, "%s: %s.attention.head_count is missing", g->label, f->gguf);
    key = hidden / heads;
    TRY(gguf_int(g, key_of(f->gguf, "attention.key_length").s, &key, err));
    value = rope = key;
    TRY(gguf_int(g, key_of(f->gguf, "attention.value_length").s, &value, err));
    TRY(gguf_int(g, key_of(f->gguf, "rope.dimension_count").s, &rope, err));
    if (value != key || rope != key)
        return err_set(err,
                       "%s: keys of %" PRId64 ", values of %" PRId64 ", %" PRId64
                       " columns rotated: hone wants all three the same",
                       g->label, key, value, rope);
    return *out = key, true;
}

/* Llama 3.1's scaling is in the file as one number per frequency.  It is told by its four parameters: hone writes them
 * beside the numbers; elsewhere three are those of every published model and the factor stands in the numbers.  What
 * the numbers do not bear out is refused. */
static bool put_llama3(Buf *b, const Gguf *g, const GgufTensor *t, double theta, int64_t dim, Err *err) {
    static const char *const keys[] = { "factor", "low_freq_factor", "high_freq_factor",
                                        "original_max_position_embeddings" };
    double p[4] = { 1, 1, 4, 8192 };
    float one;
    bool ok = t->type == gguf_type(0) && t->dim[t->n_dims - 1] == dim / 2 && t->bytes == (size_t)dim / 2 * 4;
    for (int64_t i = 0; ok && i < dim / 2; i++) {
        memcpy(&one, t->data + 4 * i, 4);
        if ((double)one > p[0]) p[0] = (double)one;
    }
    for (int i = 0; i < 4; i++) TRY(gguf_real(g, key_of("hone.rope_scaling", keys[i]).s, &p[i], err));
    for (int64_t i = 0; ok && i < dim / 2; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(theta, (double)(2 * i) / (double)dim), want = 1;
        double smooth = (p[3] / wave - p[1]) / (p[2] - p[1]);
        if (wave > p[3] / p[1]) want = p[0];
        else if (wave > p[3] / p[2]) want = 1 / ((1 - smooth) / p[0] + smooth);
        memcpy(&one, t->data + 4 * i, 4);
        ok = fabs((double)one - want) < 1e-3 * want;
    }
    if (!ok)
        return err_set(err, "%s: rope_freqs.weight is not the scaling of Llama 3.1, which alone is known", g->label);
    buf_puts(b, ",\n \"rope_scaling\": {\"rope_type\": \"llama3\"");
    for (int i = 0; i < 4; i++) {
        buf_printf(b, ", \"%s\": ", keys[i]);
        json_put_f32(b, (float)p[i]);
    }
    buf_puts(b, "}");
    return true;
}

static bool put_rope(Buf *b, const Gguf *g, const GgufFamily *f, int64_t dim, Err *err) {
    const char *type = "none";
    size_t n = 4;
    double theta = 10000, factor = 0;
    int64_t original = 0;
    static const char *const betas[] = { "beta_fast", "beta_slow" };
    const GgufTensor *freqs = find(g, "rope_freqs.weight");
    TRY(gguf_real(g, key_of(f->gguf, "rope.freq_base").s, &theta, err));
    TRY(gguf_text(g, key_of(f->gguf, "rope.scaling.type").s, &type, &n, err));
    TRY(gguf_real(g, key_of(f->gguf, "rope.scaling.factor").s, &factor, err));
    TRY(gguf_int(g, key_of(f->gguf, "rope.scaling.original_context_length").s, &original, err));
    if (freqs) return put_llama3(b, g, freqs, theta, dim, err);
    if (n == 4 && !memcmp(type, "none", 4)) return true;
    buf_puts(b, ",\n \"rope_scaling\": {\"rope_type\": ");
    json_put_str(b, type, n);
    buf_puts(b, ", \"factor\": ");
    json_put_f32(b, (float)factor);
    if (original) buf_printf(b, ", \"original_max_position_embeddings\": %" PRId64, original);
    for (int i = 0; i < 2; i++) {
        double beta = NAN;
        Key k = key_of(f->gguf, i ? "rope.scaling.yarn_beta_slow" : "rope.scaling.yarn_beta_fast");
        TRY(gguf_real(g, k.s, &beta, err));
        if (isnan(beta)) continue;
        buf_printf(b, ", \"%s\": ", betas[i]);
        json_put_f32(b, (float)beta);
    }
    buf_puts(b, "}");
    return true;
}

static bool put_experts(Buf *b, const Gguf *g, const GgufFamily *f, Err *err) {
    bool mixtral = f->turned;
    const char *width = mixtral ? "feed_forward_length" : "expert_feed_forward_length";
    TRY(put_int(b, g, f, "expert_count", mixtral ? "num_local_experts" : "num_experts", err));
    TRY(put_int(b, g, f, "expert_used_count", "num_experts_per_tok", err));
    if (!mixtral) TRY(put_int(b, g, f, width, "moe_intermediate_size", err));
    if (!mixtral) buf_puts(b, ",\n \"norm_topk_prob\": true,\n \"decoder_sparse_step\": 1,\n \"mlp_only_layers\": []");
    return true;
}

static bool put_token(Buf *b, const Gguf *g, const char *key, const char *hub, Err *err) {
    int64_t id = -1;
    TRY(gguf_int(g, key, &id, err));
    if (id >= 0 && id < INT32_MAX) buf_printf(b, ",\n \"%s\": %" PRId64, hub, id);
    return true;
}

bool gguf_config(Buf *out, const Gguf *g, Err *err) {
    const GgufFamily *f = gguf_family(g, err);
    const GgufTensor *embed = find(g, "token_embd.weight");
    int64_t dim = 0, ffn = -1;
    if (!f || !only_known(g, f, err) || !gguf_head(g, f, &dim, err)) return false;
    if (!embed || embed->n_dims != 2)
        return err_set(err, "%s: the tensor token_embd.weight is missing: this file holds no whole model", g->label);
    TRY(gguf_int(g, key_of(f->gguf, "feed_forward_length").s, &ffn, err));
    buf_printf(out, "{\n \"architectures\": [\"%s\"],\n \"model_type\": \"%s\"", f->class, f->type);
    TRY(put_numbers(out, g, f, err));
    if (ffn >= 0) buf_printf(out, ",\n \"intermediate_size\": %" PRId64, ffn);
    if (f->experts) TRY(put_experts(out, g, f, err));
    buf_printf(out, ",\n \"head_dim\": %" PRId64 ",\n \"vocab_size\": %" PRId64, dim, embed->dim[0]);
    buf_printf(out, ",\n \"hidden_act\": \"silu\",\n \"tie_word_embeddings\": %s",
               find(g, "output.weight") ? "false" : "true");
    if (f->turned && find(g, "blk.0.attn_q.bias"))
        return err_set(err, "%s: a llama with biases of attention is not read from GGUF files", g->label);
    if (!f->q_bias) buf_puts(out, ",\n \"attention_bias\": false");
    TRY(put_rope(out, g, f, dim, err));
    TRY(put_token(out, g, "tokenizer.ggml.bos_token_id", "bos_token_id", err));
    TRY(put_token(out, g, "tokenizer.ggml.eos_token_id", "eos_token_id", err));
    TRY(put_token(out, g, "tokenizer.ggml.padding_token_id", "pad_token_id", err));
    buf_printf(out, ",\n \"torch_dtype\": \"%s\"\n}\n", strcmp(embed->type->name, "BF16") ? "float32" : "bfloat16");
    return true;
}

/* ---- generation_config.json: what ends an answer, and how the model's makers draw */
bool gguf_generation(Buf *out, const Gguf *g, Err *err) {
    static const char *const ends[] = { "eos", "eot", "eom" };
    static const struct {
        const char *key, *hub;
    } draws[] = { { "general.sampling.temp", "temperature" }, { "general.sampling.top_p", "top_p" } };
    int64_t have[COUNT(ends)], n = 0, top_k = 0;
    TRY(gguf_int(g, "general.sampling.top_k", &top_k, err));
    buf_puts(out, "{\"eos_token_id\": [");
    for (size_t i = 0; i < COUNT(ends); i++) {
        char key[64] = "tokenizer.ggml.";
        strcat(strcat(key, ends[i]), "_token_id");
        int64_t id = -1;
        bool again = false;
        TRY(gguf_int(g, key, &id, err));
        for (int64_t k = 0; k < n; k++) again = again || have[k] == id;
        if (id < 0 || id >= INT32_MAX || again) continue;
        buf_printf(out, "%s%" PRId64, n ? ", " : "", id);
        have[n++] = id;
    }
    buf_puts(out, "]");
    for (size_t i = 0; i < COUNT(draws); i++) {
        double x = NAN;
        TRY(gguf_real(g, draws[i].key, &x, err));
        if (isnan(x)) continue;
        buf_printf(out, ", \"%s\": ", draws[i].hub);
        json_put_f32(out, (float)x);
    }
    if (top_k > 0) buf_printf(out, ", \"top_k\": %" PRId64, top_k);
    buf_puts(out, "}\n");
    return true;
}

/* ---- by their names */
static bool has_tokenizer(const Gguf *g) {
    const GgufValue *v = gguf_get(g, "tokenizer.ggml.model");
    return v && !(v->kind == GGUF_STRING && v->n == 8 && !memcmp(v->data, "no_vocab", 8));
}

static const struct {
    const char *name;
    bool (*make)(Buf *out, const Gguf *g, Err *err);
    bool tokenizer;
} files[] = {
    { "config.json", gguf_config, false },
    { "generation_config.json", gguf_generation, true },
    { "tokenizer.json", gguf_tokenizer, true },
    { "tokenizer_config.json", gguf_tokenizer_config, true },
};

/* The row of 'X.gguf/name', the file's name in *file; -1: none. */
static int row_of(const char *path, char **file, Mem *mem) {
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < COUNT(files); i++)
        if (!strcmp(slash + 1, files[i].name)) {
            *file = mem_str(mem, path, (size_t)(slash - path));
            return gguf_is(*file) ? (int)i : -1;
        }
    return -1;
}

bool model_dir(const char *path) { return dir_exists(path) || gguf_is(path); }

static bool from_gguf(Buf *out, const char *file, int row, bool *there, Err *err) {
    Mem mem = { 0 };
    FileMap map;
    Gguf g;
    TRY(file_map(&map, file, err));
    bool ok = gguf_parse(&g, map.data, map.n, file, &mem, err);
    *there = ok && (!files[row].tokenizer || has_tokenizer(&g));
    if (ok && out) ok = files[row].make(out, &g, err);
    file_unmap(&map);
    mem_free(&mem);
    return ok;
}

bool model_has(const char *path) {
    if (file_exists(path)) return true;
    int why = errno;
    Mem mem = { 0 };
    char *file;
    Err err;
    int row = row_of(path, &file, &mem);
    bool there = row == 0; /* a file that is damaged has one, and reading it says what is wrong */
    if (row > 0) from_gguf(NULL, file, row, &there, &err);
    mem_free(&mem);
    errno = why;
    return there;
}

bool model_read(Buf *out, const char *path, Err *err) {
    Mem mem = { 0 };
    char *file;
    bool there;
    int row = file_exists(path) ? -1 : row_of(path, &file, &mem);
    bool ok = row < 0 ? file_read(out, path, err) : from_gguf(out, file, row, &there, err);
    mem_free(&mem);
    return ok;
}
