/* put_vocab.c - tokenizer.json as a GGUF file's vocabulary.  How text is cut becomes a name of llama.cpp's; what has
 * none there would be cut otherwise than the model was trained with, and is refused. */
#include "gguf/put_raw.h"

#include <inttypes.h>
#include <string.h>

/* ---- how text is cut */
typedef struct {
    bool nfc, digits, bytes, regex; /* regex: ByteLevel's own */
    const char *pattern;
    size_t pattern_n;
} Cutting;

static bool flag_is(const Json *o, const char *key, bool want, bool otherwise) {
    Err none;
    bool v = otherwise;
    return json_bool(o, key, &v, &none) && v == want;
}

static bool read_step(Cutting *c, const Json *p) {
    const Json *type = json_get(p, "type"), *pattern = json_path(p, "pattern.Regex");
    if (json_is_str(type, "Digits")) {
        bool first = !c->digits && !c->pattern && !c->bytes;
        return c->digits = first && flag_is(p, "individual_digits", true, false);
    }
    if (json_is_str(type, "Split")) {
        bool plain = json_is_str(json_get(p, "behavior"), "Isolated") && flag_is(p, "invert", false, false);
        if (c->pattern || c->bytes || !plain || !pattern || pattern->kind != JSON_STRING) return false;
        return c->pattern = pattern->str, c->pattern_n = pattern->n, true;
    }
    if (!json_is_str(type, "ByteLevel") || c->bytes || !flag_is(p, "add_prefix_space", false, true)) return false;
    c->regex = flag_is(p, "use_regex", true, true);
    return c->bytes = true;
}

static bool read_cutting(Cutting *c, const Json *file) {
    const Json *normal = json_get(file, "normalizer"), *pre = json_get(file, "pre_tokenizer"),
               *steps = json_get(pre, "pretokenizers");
    c->nfc = json_is_str(json_get(normal, "type"), "NFC");
    if (normal && normal->kind != JSON_NULL && !c->nfc) return false;
    if (!json_is_str(json_get(pre, "type"), "Sequence")) return pre && read_step(c, pre) && c->bytes;
    for (size_t i = 0; steps && steps->kind == JSON_ARRAY && i < steps->n; i++)
        if (!read_step(c, &steps->items[i])) return false;
    return c->bytes;
}

static bool same_pattern(const Cutting *c, const GgufPre *p) {
    if (!p->pattern || !c->pattern) return !p->pattern && !c->pattern && c->regex;
    Mem mem = { 0 };
    Json j;
    Err none;
    Buf b = { 0 };
    buf_printf(&b, "\"%s\"", p->pattern);
    CHECK(json_parse(&j, b.data, b.n, &mem, &none), "our own table: %s", none.msg);
    bool same = j.n == c->pattern_n && !memcmp(j.str, c->pattern, j.n) && !c->regex;
    buf_free(&b);
    mem_free(&mem);
    return same;
}

static const char *pre_of(const Json *file, Err *err) {
    const Json *model = json_get(file, "model");
    Cutting c = { 0 };
    bool known = json_is_str(json_get(model, "type"), "BPE") && flag_is(model, "byte_fallback", false, false)
                 && read_cutting(&c, file);
    for (const GgufPre *p = gguf_pre; known && p->name; p++)
        if (p->digits == c.digits && (p->nfc || !c.nfc) && flag_is(model, "ignore_merges", p->ignore_merges, false)
            && same_pattern(&c, p))
            return p->name;
    err_set(err, "llama.cpp has no name for the way in which this tokenizer cuts text (normalizer and pre_tokenizer of "
                 "tokenizer.json): a GGUF file would give other ids than the model knows");
    return NULL;
}

/* ---- tokens */
enum { NORMAL = 1, CONTROL = 3, USER = 4, UNUSED = 5 };
typedef struct {
    const char *s;
    size_t n;
    int kind;
} Token;

static bool put_token(Token *all, int64_t vocab, int64_t id, const Json *text, int kind, Err *err) {
    if (id < 0 || id >= vocab)
        return err_set(err, "the tokenizer has the id %" PRId64 ", the model %" PRId64 " rows of embeddings", id,
                       vocab);
    all[id] = (Token){ text->str, text->n, kind };
    return true;
}

static bool read_tokens(Token *all, const GgufVocab *v, Err *err) {
    const Json *vocab = json_path(v->tokenizer, "model.vocab"), *added = json_get(v->tokenizer, "added_tokens");
    if (!vocab || vocab->kind != JSON_OBJECT) return err_set(err, "tokenizer.json has no model.vocab");
    for (size_t i = 0; i < vocab->n; i++) {
        const JsonMember *m = &vocab->members[i];
        Json text = { .kind = JSON_STRING, .str = m->key, .n = m->key_n };
        if (m->value.kind != JSON_INT) return err_set(err, "tokenizer.json: a token's id is no number");
        TRY(put_token(all, v->vocab, m->value.integer, &text, NORMAL, err));
    }
    for (size_t i = 0; added && added->kind == JSON_ARRAY && i < added->n; i++) {
        const Json *a = &added->items[i], *text = json_get(a, "content");
        int64_t id = -1;
        if (!text || text->kind != JSON_STRING || !json_int(a, "id", &id, err))
            return err_set(err, "tokenizer.json: an added token without its text or its id");
        TRY(put_token(all, v->vocab, id, text, flag_is(a, "special", true, false) ? CONTROL : USER, err));
    }
    return true;
}

static void put_tokens(GgufOut *o, const Token *all, int64_t vocab) {
    Buf *b = gguf_raw_key(o, "tokenizer.ggml.tokens", GGUF_ARRAY);
    gguf_raw(b, GGUF_STRING, 4);
    gguf_raw(b, (uint64_t)vocab, 8);
    for (int64_t i = 0; i < vocab; i++) {
        Buf pad = { 0 };
        if (!all[i].s) buf_printf(&pad, "[PAD%" PRId64 "]", i);
        gguf_raw_text(b, all[i].s ? all[i].s : pad.data, all[i].s ? all[i].n : pad.n);
        buf_free(&pad);
    }
    b = gguf_raw_key(o, "tokenizer.ggml.token_type", GGUF_ARRAY);
    gguf_raw(b, GGUF_I32, 4);
    gguf_raw(b, (uint64_t)vocab, 8);
    for (int64_t i = 0; i < vocab; i++) gguf_raw(b, (uint64_t)(all[i].s ? all[i].kind : UNUSED), 4);
}

/* "a b", or ["a", "b"] */
static bool put_merges(GgufOut *o, const GgufVocab *v, Err *err) {
    const Json *merges = json_path(v->tokenizer, "model.merges");
    if (!merges || merges->kind != JSON_ARRAY) return err_set(err, "tokenizer.json has no model.merges");
    Buf *b = gguf_raw_key(o, "tokenizer.ggml.merges", GGUF_ARRAY), text = { 0 };
    gguf_raw(b, GGUF_STRING, 4);
    gguf_raw(b, merges->n, 8);
    bool ok = true;
    for (size_t i = 0; ok && i < merges->n; i++) {
        const Json *m = &merges->items[i];
        bool pair = m->kind == JSON_ARRAY && m->n == 2;
        buf_clear(&text);
        for (size_t k = 0; pair && k < 2; k++) {
            const Json *part = &m->items[k];
            pair = part->kind == JSON_STRING && !memchr(part->str, ' ', part->n);
            if (k) buf_putc(&text, ' ');
            if (pair) buf_put(&text, part->str, part->n);
        }
        ok = pair || m->kind == JSON_STRING;
        if (!ok) err_set(err, "tokenizer.json: merge %zu is no pair that GGUF has a way to write", i);
        else if (pair) gguf_raw_text(b, text.data, text.n);
        else gguf_raw_text(b, m->str, m->n);
    }
    buf_free(&text);
    return ok;
}

/* ---- special ids: as tokenizer_config.json names them, else as the model's own files number them */
static int64_t id_of(const Token *all, const GgufVocab *v, const char *key, int64_t otherwise) {
    const Json *t = json_get(v->config, key), *content = json_get(t, "content");
    if (content) t = content;
    for (int64_t i = 0; t && t->kind == JSON_STRING && i < v->vocab; i++)
        if (all[i].s && all[i].n == t->n && !memcmp(all[i].s, t->str, t->n)) return i;
    return otherwise < v->vocab ? otherwise : -1;
}

static void put_specials(GgufOut *o, const Token *all, const GgufVocab *v) {
    int64_t eos = id_of(all, v, "eos_token", v->n_eos ? v->eos[0] : -1);
    struct {
        const char *key;
        int64_t id;
    } ids[6] = {
        { "tokenizer.ggml.bos_token_id", id_of(all, v, "bos_token", v->bos) },
        { "tokenizer.ggml.eos_token_id", eos },
        { "tokenizer.ggml.unknown_token_id", id_of(all, v, "unk_token", -1) },
        { "tokenizer.ggml.padding_token_id", id_of(all, v, "pad_token", v->pad) },
        { "tokenizer.ggml.eot_token_id", -1 },
        { "tokenizer.ggml.eom_token_id", -1 },
    };
    for (int64_t i = 0, k = 4; i < v->n_eos && k < 6; i++)
        if (v->eos[i] != eos && v->eos[i] < v->vocab) ids[k++].id = v->eos[i];
    for (size_t i = 0; i < COUNT(ids); i++)
        if (ids[i].id >= 0) gguf_put_int(o, ids[i].key, ids[i].id);
}

/* Whether tokens are put before and behind a text: {bos}, A, {eos}. */
static bool find_ends(const Json *post, bool *front, bool *back, Err *err) {
    const Json *single = json_get(post, "single"), *steps = json_get(post, "processors");
    int at = 0;
    for (size_t i = 0; steps && steps->kind == JSON_ARRAY && i < steps->n; i++)
        if (!json_get(&steps->items[i], "processors")) TRY(find_ends(&steps->items[i], front, back, err));
    for (size_t i = 0; single && single->kind == JSON_ARRAY && i < single->n; i++) {
        bool text = json_get(&single->items[i], "Sequence") != NULL;
        bool *to = at ? back : front;
        if (!text && *to) return err_set(err, "tokenizer.json puts two tokens at one end of a text: GGUF has one");
        if (text) at = 1;
        else *to = true;
    }
    return true;
}

bool gguf_put_vocab(GgufOut *o, const GgufVocab *v, Err *err) {
    const char *pre = pre_of(v->tokenizer, err);
    bool front = false, back = false;
    if (!pre || !find_ends(json_get(v->tokenizer, "post_processor"), &front, &back, err)) return false;
    Mem mem = { 0 };
    Token *all = MEM_ARRAY(&mem, Token, (size_t)v->vocab);
    gguf_put_text(o, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_text(o, "tokenizer.ggml.pre", pre, strlen(pre));
    bool ok = read_tokens(all, v, err);
    if (ok) put_tokens(o, all, v->vocab);
    ok = ok && put_merges(o, v, err);
    if (ok) put_specials(o, all, v);
    gguf_put_flag(o, "tokenizer.ggml.add_bos_token", front);
    gguf_put_flag(o, "tokenizer.ggml.add_eos_token", back);
    if (v->template) gguf_put_text(o, "tokenizer.chat_template", v->template, v->template_n);
    mem_free(&mem);
    return ok;
}
