/* tokenizer.c - tokenizer.json and tokenizer_config.json made of a GGUF file's vocabulary.  The file has tokens, their
 * kinds and merges; how text is cut before merging it has as a name alone, and the table below says what the name
 * means. */
#include "base/json.h"
#include "gguf/inside.h"

#include <inttypes.h>
#include <string.h>

/* clang-format off */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST         " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS(digits) CONTRACTIONS "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}" digits "|" REST
/* The first of several names for one way is the one that is written. */
const GgufPre gguf_pre[] = {
    { "gpt-2" },
    { "smollm",    .digits = true },
    { "starcoder", .digits = true },
    { "refact",    .digits = true },
    { "qwen2",     .nfc = true, .pattern = WORDS("") },
    { "deepseek-r1-qwen", .nfc = true, .pattern = WORDS("") },
    { "llama-bpe", .ignore_merges = true, .pattern = WORDS("{1,3}") },
    { "llama3",    .ignore_merges = true, .pattern = WORDS("{1,3}") },
    { "llama-v3",  .ignore_merges = true, .pattern = WORDS("{1,3}") },
    { NULL },
};
/* clang-format on */

typedef enum { KIND_NORMAL = 1, KIND_UNKNOWN, KIND_CONTROL, KIND_USER, KIND_UNUSED, KIND_BYTE } TokenKind;

static bool is_text(const char *s, size_t n, const char *want) { return strlen(want) == n && !memcmp(s, want, n); }

static const GgufPre *pre_of(const Gguf *g, Err *err) {
    const char *model = "", *pre = "";
    size_t n = 0, m = 0;
    if (!gguf_text(g, "tokenizer.ggml.model", &model, &n, err) || !gguf_text(g, "tokenizer.ggml.pre", &pre, &m, err))
        return NULL;
    if (!is_text(model, n, "gpt2")) {
        err_set(err, "%s: its tokenizer is of the kind %s: byte-level BPE (gpt2) is read from GGUF files", g->label,
                gguf_shown(model, n).s);
        return NULL;
    }
    Buf known = { 0 };
    for (const GgufPre *p = gguf_pre; p->name; p++) {
        if (is_text(pre, m, p->name)) return buf_free(&known), p;
        buf_printf(&known, "%s%s", known.n ? ", " : "", p->name);
    }
    err_set(err, "%s: its tokenizer.ggml.pre, how text is cut, is %s: known are %s", g->label,
            m ? gguf_shown(pre, m).s : "not told", known.data);
    buf_free(&known);
    return NULL;
}

static void put_pre(Buf *b, const GgufPre *p) {
    buf_puts(b, p->nfc ? "\"normalizer\": {\"type\": \"NFC\"}" : "\"normalizer\": null");
    buf_puts(b, ",\n\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    if (p->digits) buf_puts(b, "{\"type\": \"Digits\", \"individual_digits\": true}, ");
    if (p->pattern)
        buf_printf(b,
                   "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\", "
                   "\"invert\": false}, ",
                   p->pattern);
    buf_printf(b, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": %s}]}",
               p->pattern ? "false" : "true");
}

static const GgufValue *list(const Gguf *g, const char *key, bool text, Err *err) {
    const GgufValue *v = gguf_get(g, key);
    bool ok = v && v->kind == GGUF_ARRAY && (v->of == GGUF_STRING) == text && v->of != GGUF_F32 && v->of != GGUF_F64;
    if (!ok) err_set(err, "%s: %s is missing, or is no list of %s", g->label, key, text ? "texts" : "whole numbers");
    return ok ? v : NULL;
}

typedef struct {
    const char *s;
    size_t n;
    int64_t kind;
} Token;

typedef struct {
    Token *at;
    size_t n;
    Mem mem;
} Tokens;

static bool tokens_of(Tokens *t, const Gguf *g, Err *err) {
    const GgufValue *text = list(g, "tokenizer.ggml.tokens", true, err), *kind = NULL;
    if (text && gguf_get(g, "tokenizer.ggml.token_type")) {
        kind = list(g, "tokenizer.ggml.token_type", false, err);
        if (kind && kind->n != text->n) {
            err_set(err, "%s: %" PRIu64 " tokens, and kinds of %" PRIu64, g->label, text->n, kind->n);
            kind = NULL;
        }
        if (!kind) text = NULL;
    }
    if (!text) return false;
    *t = (Tokens){ .n = (size_t)text->n };
    t->at = MEM_ARRAY(&t->mem, Token, t->n);
    const char *at = text->data;
    for (size_t i = 0; i < t->n; i++) {
        CHECK(gguf_next_text(&at, g->end, &t->at[i].s, &t->at[i].n), "token %zu was there", i);
        t->at[i].kind = kind ? gguf_item(kind, i) : KIND_NORMAL;
    }
    return true;
}

static bool is_special(const Token *t) { return t->kind == KIND_CONTROL || t->kind == KIND_UNKNOWN; }
static bool is_added(const Token *t) { return is_special(t) || t->kind == KIND_USER; }

/* "bos" -> its token; NULL: the file names none, or one that is not there. */
static bool named(const Tokens *t, const Gguf *g, const char *which, const Token **out, int64_t *id, Err *err) {
    char key[64] = "tokenizer.ggml.";
    strcat(strcat(key, which), "_token_id");
    *id = -1, *out = NULL;
    TRY(gguf_int(g, key, id, err));
    if (*id >= (int64_t)t->n) return err_set(err, "%s: %s is %" PRId64 " of %zu tokens", g->label, key, *id, t->n);
    if (*id >= 0) *out = &t->at[*id];
    return true;
}

static void put_added(Buf *b, const Tokens *t) {
    const char *comma = "";
    buf_puts(b, "\"added_tokens\": [");
    for (size_t i = 0; i < t->n; i++) {
        if (!is_added(&t->at[i])) continue;
        buf_printf(b, "%s{\"id\": %zu, \"content\": ", comma, i);
        json_put_str(b, t->at[i].s, t->at[i].n);
        buf_printf(b,
                   ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                   "\"special\": %s}",
                   is_special(&t->at[i]) ? "true" : "false");
        comma = ",\n";
    }
    buf_puts(b, "]");
}

static void put_vocab(Buf *b, const Tokens *t) {
    const char *comma = "";
    buf_puts(b, "\"vocab\": {");
    for (size_t i = 0; i < t->n; i++) {
        if (t->at[i].kind == KIND_UNUSED) continue; /* a row of the embedding that no text becomes */
        buf_puts(b, comma);
        json_put_str(b, t->at[i].s, t->at[i].n);
        buf_printf(b, ": %zu", i);
        comma = ", ";
    }
    buf_puts(b, "}");
}

/* What is put in front of a text and behind it. */
static bool put_ends(Buf *b, const Tokens *t, const Gguf *g, Err *err) {
    static const char *const which[] = { "bos", "eos" };
    bool want[2] = { false, false };
    const Token *token[2];
    int64_t id[2];
    TRY(gguf_flag(g, "tokenizer.ggml.add_bos_token", &want[0], err));
    TRY(gguf_flag(g, "tokenizer.ggml.add_eos_token", &want[1], err));
    for (int i = 0; i < 2; i++) {
        TRY(named(t, g, which[i], &token[i], &id[i], err));
        want[i] = want[i] && token[i];
    }
    if (!want[0] && !want[1]) return buf_puts(b, "\"post_processor\": null"), true;
    buf_puts(b, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
    for (int i = 0; i < 3; i++) {
        if (i == 1) buf_puts(b, want[0] ? ", " : "");
        if (i == 1) buf_puts(b, "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}");
        else if (want[i / 2])
            buf_printf(b, "%s{\"SpecialToken\": {\"id\": \"%s\", \"type_id\": 0}}", i ? ", " : "", which[i / 2]);
    }
    buf_puts(b, "], \"special_tokens\": {");
    for (int i = 0, n = 0; i < 2; i++) {
        if (!want[i]) continue;
        buf_printf(b, "%s\"%s\": {\"id\": \"%s\", \"ids\": [%" PRId64 "], \"tokens\": [", n++ ? ", " : "", which[i],
                   which[i], id[i]);
        json_put_str(b, token[i]->s, token[i]->n);
        buf_puts(b, "]}");
    }
    buf_puts(b, "}}");
    return true;
}

static bool put_tokenizer(Buf *b, const Tokens *t, const Gguf *g, const GgufPre *pre, Err *err) {
    const GgufValue *merges = list(g, "tokenizer.ggml.merges", true, err);
    if (!merges) return false;
    buf_puts(b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n");
    put_added(b, t);
    buf_puts(b, ",\n");
    put_pre(b, pre);
    buf_puts(b, ",\n");
    TRY(put_ends(b, t, g, err));
    buf_printf(b,
               ",\n\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
               "\"use_regex\": true},\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
               "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
               "\"byte_fallback\": false, \"ignore_merges\": %s,\n",
               pre->ignore_merges ? "true" : "false");
    put_vocab(b, t);
    buf_puts(b, ",\n\"merges\": [");
    const char *at = merges->data, *s;
    size_t n;
    for (uint64_t i = 0; i < merges->n && gguf_next_text(&at, g->end, &s, &n); i++) {
        if (i) buf_puts(b, ", ");
        json_put_str(b, s, n);
    }
    buf_puts(b, "]}}\n");
    return true;
}

bool gguf_tokenizer(Buf *out, const Gguf *g, Err *err) {
    const GgufPre *pre = pre_of(g, err);
    Tokens t = { 0 };
    bool ok = pre && tokens_of(&t, g, err) && put_tokenizer(out, &t, g, pre, err);
    mem_free(&t.mem);
    return ok;
}

static bool put_config(Buf *b, const Tokens *t, const Gguf *g, Err *err) {
    static const struct {
        const char *gguf, *hub;
    } names[] = {
        { "bos", "bos_token" }, { "eos", "eos_token" }, { "unknown", "unk_token" }, { "padding", "pad_token" }
    };
    const char *chat = NULL;
    size_t n = 0;
    buf_puts(b, "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    for (size_t i = 0; i < COUNT(names); i++) {
        const Token *token;
        int64_t id;
        TRY(named(t, g, names[i].gguf, &token, &id, err));
        if (!token) continue;
        buf_printf(b, ",\n \"%s\": ", names[i].hub);
        json_put_str(b, token->s, token->n);
    }
    buf_puts(b, ",\n \"clean_up_tokenization_spaces\": false");
    TRY(gguf_text(g, "tokenizer.chat_template", &chat, &n, err));
    if (chat) {
        buf_puts(b, ",\n \"chat_template\": ");
        json_put_str(b, chat, n);
    }
    buf_puts(b, "}\n");
    return true;
}

bool gguf_tokenizer_config(Buf *out, const Gguf *g, Err *err) {
    Tokens t = { 0 };
    bool ok = tokens_of(&t, g, err) && put_config(out, &t, g, err);
    mem_free(&t.mem);
    return ok;
}
