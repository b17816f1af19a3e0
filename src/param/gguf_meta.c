/* gguf_meta.c - numbers of config.json and the tokenizer's files under llama.cpp's keys.  What a model has and the
 * format has no place for is refused: left out, it would be another model. */
#include "param/gguf_meta.h"

#include <string.h>

/* llama.cpp's numbers for what most of a file's tensors are; what has none is not told. */
static const struct {
    const char *dtype;
    int number;
} file_types[] = { { "F32", 0 },  { "F16", 1 },  { "Q4_0", 2 }, { "Q4_1", 3 },
                   { "Q8_0", 7 }, { "Q5_0", 8 }, { "Q5_1", 9 }, { "BF16", 32 } };

typedef struct {
    GgufOut *o;
    const char *arch;
} To;
static void put(const To *to, const char *key, int64_t v) {
    Buf b = { 0 };
    buf_printf(&b, "%s.%s", to->arch, key);
    gguf_put_int(to->o, b.data, v);
    buf_free(&b);
}
static void put_real(const To *to, const char *key, double v) {
    Buf b = { 0 };
    buf_printf(&b, "%s.%s", to->arch, key);
    gguf_put_real(to->o, b.data, (float)v);
    buf_free(&b);
}
static void put_text(const To *to, const char *key, const char *s) {
    Buf b = { 0 };
    buf_printf(&b, "%s.%s", to->arch, key);
    gguf_put_text(to->o, b.data, s, strlen(s));
    buf_free(&b);
}

static bool put_rope(const To *to, const ModelDesc *m, const GgufFamily *f, Err *err) {
    const RopeConf *r = &m->d.rope;
    if (m->d.turned != m->d.head_dim || m->d.norm_turned)
        return err_set(err, "llama.cpp does not turn heads as this model does: it is not written as a GGUF file");
    put_real(to, "rope.freq_base", r->theta);
    put(to, "rope.dimension_count", m->d.head_dim);
    if (r->kind == ROPE_DEFAULT) return true;
    if (r->kind == ROPE_LLAMA3
        && f->turned) { /* llama.cpp reads the tensor; hone these, and the tensor bears them out */
        gguf_put_real(to->o, "hone.rope_scaling.factor", (float)r->factor);
        gguf_put_real(to->o, "hone.rope_scaling.low_freq_factor", (float)r->low_freq);
        gguf_put_real(to->o, "hone.rope_scaling.high_freq_factor", (float)r->high_freq);
        gguf_put_real(to->o, "hone.rope_scaling.original_max_position_embeddings", (float)r->original);
        return true;
    }
    bool plain = r->mscale == 0 && r->mscale_all == 0 && r->attention_factor == 0 && r->truncate;
    if (r->kind != ROPE_LINEAR && !(r->kind == ROPE_YARN && plain))
        return err_set(err, "a GGUF file has no place for this model's rope_scaling");
    put_text(to, "rope.scaling.type", r->kind == ROPE_YARN ? "yarn" : "linear");
    put_real(to, "rope.scaling.factor", r->factor);
    if (r->kind == ROPE_LINEAR) return true;
    put(to, "rope.scaling.original_context_length", (int64_t)r->original);
    if (r->beta_fast != 32) put_real(to, "rope.scaling.yarn_beta_fast", r->beta_fast);
    if (r->beta_slow != 1) put_real(to, "rope.scaling.yarn_beta_slow", r->beta_slow);
    return true;
}

static bool put_experts(const To *to, const ModelDesc *m, const GgufFamily *f, Err *err) {
    const Dims *d = &m->d;
    for (int l = 0; l < d->layers; l++)
        if (!dims_moe(d, l)) return err_set(err, "layer %d has no experts: a GGUF file has no place for that", l);
    if (!d->norm_topk)
        return err_set(err, "norm_topk_prob is false: llama.cpp always makes the experts' weights sum to 1");
    put(to, "expert_count", d->experts);
    put(to, "expert_used_count", d->topk);
    if (!f->turned) put(to, "expert_feed_forward_length", d->expert_ffn);
    return true;
}

static bool read_json(Json *out, const char *dir, const char *name, bool *there, Mem *mem, Err *err) {
    const char *path = mem_printf(mem, "%s/%s", dir, name);
    Buf text = { 0 };
    *out = (Json){ .kind = JSON_OBJECT };
    *there = model_has(path);
    bool ok = !*there
              || (model_read(&text, path, err)
                  && (json_parse(out, text.data ? text.data : "", text.n, mem, err) || err_wrap(err, "%s", path)));
    buf_free(&text);
    return ok;
}

/* chat_template.jinja, or what tokenizer_config.json has: a text, or of several the one named default. */
static bool read_template(GgufVocab *v, const char *dir, Mem *mem, Err *err) {
    const char *alone = mem_printf(mem, "%s/chat_template.jinja", dir);
    const Json *t = json_get(v->config, "chat_template");
    if (file_exists(alone)) {
        Buf text = { 0 };
        bool ok = file_read(&text, alone, err);
        if (ok) v->template = mem_str(mem, text.data ? text.data : "", text.n), v->template_n = text.n;
        buf_free(&text);
        return ok;
    }
    for (size_t i = 0; t && t->kind == JSON_ARRAY && i < t->n; i++)
        if (json_is_str(json_get(&t->items[i], "name"), "default")) {
            t = json_get(&t->items[i], "template");
            break;
        }
    if (t && t->kind == JSON_STRING) v->template = t->str, v->template_n = t->n;
    return true;
}

static bool put_tokenizer(GgufOut *o, const ModelDesc *m, Mem *mem, Err *err) {
    static const char *const others[] = { "tiktoken.model", "vocab.json", "tokenizer.model" };
    Json tokenizer, config;
    bool there, said;
    TRY(read_json(&tokenizer, m->dir, "tokenizer.json", &there, mem, err));
    for (size_t i = 0; !there && i < COUNT(others); i++)
        if (file_exists(mem_printf(mem, "%s/%s", m->dir, others[i])))
            return err_set(err, "%s: a GGUF file's vocabulary is made of tokenizer.json, which is not here (%s is)",
                           m->dir, others[i]);
    if (!there) return gguf_put_text(o, "tokenizer.ggml.model", "no_vocab", 8), true;
    TRY(read_json(&config, m->dir, "tokenizer_config.json", &said, mem, err));
    GgufVocab v = { .tokenizer = &tokenizer,
                    .config = &config,
                    .vocab = m->d.vocab,
                    .bos = m->d.special.bos,
                    .pad = m->d.special.pad,
                    .n_eos = m->d.special.n_eos,
                    .eos = m->d.special.eos };
    return read_template(&v, m->dir, mem, err) && (gguf_put_vocab(o, &v, err) || err_wrap(err, "%s", m->dir));
}

bool gguf_put_model(GgufOut *o, const ModelDesc *m, const char *dtype, Err *err) {
    const char *type = m->arch->types[0];
    const GgufFamily *f = gguf_family_of(type);
    const Dims *d = &m->d;
    if (!f)
        return err_set(err, "%s models are not written as GGUF files: llama, mixtral, qwen2, qwen3 and qwen3_moe are",
                       m->arch->name);
    To to = { o, f->gguf };
    gguf_put_text(o, "general.architecture", f->gguf, strlen(f->gguf));
    gguf_put_text(o, "general.type", "model", 5);
    gguf_put_int(o, "general.quantization_version", 2);
    for (size_t i = 0; i < COUNT(file_types); i++)
        if (!strcmp(file_types[i].dtype, dtype)) gguf_put_int(o, "general.file_type", file_types[i].number);
    put(&to, "block_count", d->layers);
    put(&to, "context_length", d->context);
    put(&to, "embedding_length", d->hidden);
    put(&to, "feed_forward_length", f->experts && f->turned ? d->expert_ffn : d->ffn);
    put(&to, "attention.head_count", d->heads);
    put(&to, "attention.head_count_kv", d->kv_heads);
    put(&to, "attention.key_length", d->head_dim);
    put(&to, "attention.value_length", d->head_dim);
    put_real(&to, "attention.layer_norm_rms_epsilon", d->eps);
    put(&to, "vocab_size", d->vocab);
    TRY(put_rope(&to, m, f, err) && (!f->experts || put_experts(&to, m, f, err)));
    Mem mem = { 0 };
    bool ok = put_tokenizer(o, m, &mem, err);
    mem_free(&mem);
    return ok;
}

bool gguf_rope_freqs(const ModelDesc *m, float *out) {
    if (m->d.rope.kind != ROPE_LLAMA3) return false;
    ModelDesc plain = *m;
    float freq[2048], amp;
    CHECK(m->d.head_dim <= 4096, "heads of %ld", (long)m->d.head_dim);
    plain.d.rope.kind = ROPE_DEFAULT;
    arch_rope(&plain, freq, &amp);
    arch_rope(m, out, &amp);
    for (int64_t i = 0; i < m->d.head_dim / 2; i++) out[i] = freq[i] / out[i];
    return true;
}
