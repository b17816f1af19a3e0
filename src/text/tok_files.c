/* tok_files.c - tokenizers that come without a tokenizer.json: tiktoken.model (Moonlight, Kimi) and
 * vocab.json with merges.txt.  What the file does not say - how text is cut, which tokens are special -
 * stands in tokenizer_config.json, by the name of a Python class; the table below says what those classes
 * do, in the words of tokenizer.json. */
#include "base/file.h"
#include "text/tok_parts.h"

#include <inttypes.h>
#include <string.h>

/* clang-format off */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}&&[^\\\\p{Han}]]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}&&[^\\\\p{Han}]]"
#define REST  " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define KIMI  "[\\\\p{Han}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS \
              "?|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" LOWER "*" CONTRACTIONS "?|\\\\p{N}{1,3}|" REST
#define QWEN  CONTRACTIONS "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}|" REST
#define SPLIT(pattern) \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define BYTES(prefix, regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"use_regex\":" regex "}"

static const struct {
    const char *class;
    const char *pipeline;
    int reserved;             /* tiktoken: so many special ids follow the vocabulary, named or <|reserved_token_ID|> */
} tiktoken_classes[] = {
    { "TikTokenTokenizer", "{\"pre_tokenizer\":" SPLIT(KIMI) "}", 258 },
}, vocab_classes[] = {
    { "GPT2Tokenizer",  "{\"pre_tokenizer\":" BYTES("false", "true") ",\"decoder\":{\"type\":\"ByteLevel\"}}", 0 },
    { "Qwen2Tokenizer", "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
                        "\"pretokenizers\":[" SPLIT(QWEN) "," BYTES("false", "false")
                        "]},\"decoder\":{\"type\":\"ByteLevel\"}}", 0 },
};
/* clang-format on */

/* "added_tokens_decoder": {"163584": {"content": "[BOS]", "special": true, ...}, ...} as the
 * array that tokenizer.json has. */
static bool config_tokens(Json *list, const Json *config, Mem *mem, Err *err) {
    const Json *dec = json_get(config, "added_tokens_decoder");
    size_t n = dec && dec->kind == JSON_OBJECT ? dec->n : 0;
    *list = (Json){ .kind = JSON_ARRAY, .n = n, .items = MEM_ARRAY(mem, Json, n) };
    for (size_t i = 0; i < n; i++) {
        const JsonMember *m = &dec->members[i];
        int64_t id = 0;
        for (size_t k = 0; k < m->key_n; k++) {
            if (m->key[k] < '0' || m->key[k] > '9' || m->key_n > 9)
                return err_set(err, "added_tokens_decoder: \"%.40s\" is not an id", m->key);
            id = id * 10 + (m->key[k] - '0');
        }
        if (m->value.kind != JSON_OBJECT) return err_set(err, "added_tokens_decoder: %" PRId64 " is not an object", id);
        Json *to = &list->items[i];
        *to = (Json){ .kind = JSON_OBJECT, .n = m->value.n + 1, .members = MEM_ARRAY(mem, JsonMember, m->value.n + 1) };
        to->members[0] = (JsonMember){ "id", 2, { .kind = JSON_INT, .integer = id } };
        if (m->value.n) memcpy(to->members + 1, m->value.members, m->value.n * sizeof *to->members);
    }
    return true;
}

static bool read_json(Json *out, const char *path, Mem *mem, Err *err) {
    Buf text = { 0 };
    bool ok = file_read(&text, path, err);
    if (ok && !json_parse(out, text.data ? text.data : "", text.n, mem, err)) ok = err_wrap(err, "%s", path);
    buf_free(&text);
    return ok;
}

static bool read_config(Json *config, const char *path, Mem *mem, Err *err) {
    *config = (Json){ .kind = JSON_OBJECT };
    return !file_exists(path) || read_json(config, path, mem, err);
}

static bool is_class(const char *name, const char *class) {
    size_t n = strlen(class);
    return !strncmp(name, class, n) && (!name[n] || !strcmp(name + n, "Fast"));
}

/* ---- tiktoken: a line is a token's bytes in base 64, a space, and its rank, which is its id */
static int base64_digit(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

static size_t base64(char *out, const char *s, size_t n) {
    while (n && s[n - 1] == '=') n--;
    uint32_t bits = 0;
    size_t made = 0;
    for (size_t i = 0, have = 0; i < n; i++) {
        int d = base64_digit(s[i]);
        if (d < 0) return 0;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) have -= 8, out[made++] = (char)(bits >> have & 255);
    }
    return made;
}

static bool read_ranks(Bpe *b, const Buf *text, const char *path, Mem *mem, Err *err) {
    size_t lines = 0, line = 0;
    for (size_t i = 0; i < text->n; i++) lines += text->data[i] == '\n';
    vocab_init(&b->vocab, lines + 1, mem);
    for (const char *at = text->data ? text->data : "", *end = at + text->n; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        line++;
        if (stop > at && stop[-1] == '\r') stop--;
        const char *space = memchr(at, ' ', (size_t)(stop - at));
        if (stop == at) {
            at = next;
            continue;
        }
        char *bytes = mem_push(mem, (size_t)(stop - at));
        size_t n = space ? base64(bytes, at, (size_t)(space - at)) : 0;
        int64_t id = space && space + 1 < stop ? 0 : -1;
        for (const char *c = space ? space + 1 : stop; c < stop && id >= 0; c++)
            id = *c >= '0' && *c <= '9' && id < BPE_MAX_ID ? id * 10 + (*c - '0') : -1;
        if (n == 0 || id < 0 || id >= BPE_MAX_ID || !vocab_put(&b->vocab, bytes, n, (int32_t)id))
            return err_set(err, "%s, line %zu: not a new token in base 64 and its rank", path, line);
        bpe_add_token(b, bytes, n, (int32_t)id, mem);
        at = next;
    }
    return true;
}

/* Ids behind the vocabulary that tokenizer_config.json does not name are special tokens all the same. */
static bool add_reserved(Tok *t, int reserved, const Json *named, Mem *mem, Err *err) {
    int32_t first = (int32_t)t->bpe.vocab.n;
    Json *items = MEM_ARRAY(mem, Json, (size_t)reserved);
    for (int i = 0; i < reserved; i++) {
        JsonMember *m = MEM_ARRAY(mem, JsonMember, 3);
        char *name = mem_printf(mem, "<|reserved_token_%d|>", first + i);
        m[0] = (JsonMember){ "id", 2, { .kind = JSON_INT, .integer = first + i } };
        m[1] = (JsonMember){ "content", 7, { .kind = JSON_STRING, .str = name, .n = strlen(name) } };
        m[2] = (JsonMember){ "special", 7, { .kind = JSON_BOOL, .flag = true } };
        items[i] = (Json){ .kind = JSON_OBJECT, .n = 3, .members = m };
    }
    for (size_t i = 0; i < named->n; i++) {
        int64_t id = named->items[i].members[0].value.integer;
        const Json *content = json_get(&named->items[i], "content");
        if (id < first || id >= first + reserved)
            return err_set(err, "the special token %" PRId64 " is not among the %d ids behind the vocabulary of %d", id,
                           reserved, first);
        if (!content || content->kind != JSON_STRING)
            return err_set(err, "the special token %" PRId64 " has no \"content\"", id);
        items[id - first].members[1].value = *content;
    }
    return tok_add_tokens(t, &(Json){ .kind = JSON_ARRAY, .n = (size_t)reserved, .items = items }, true, err);
}

static bool tiktoken(Tok *t, const char *path, const char *config_path, Buf *text, Mem *mem, Err *err) {
    Json config, tokens, pipeline;
    const char *class = NULL;
    TRY(file_read(text, path, err) && read_config(&config, config_path, mem, err));
    TRY(json_str(&config, "tokenizer_class", &class, err));
    size_t k = 0;
    while (class && k < COUNT(tiktoken_classes) && !is_class(class, tiktoken_classes[k].class)) k++;
    if (!class || k == COUNT(tiktoken_classes))
        return err_set(err, "%s: \"tokenizer_class\" is %.60s; only %s is known to cut text for a tiktoken file",
                       config_path, class ? class : "missing", tiktoken_classes[0].class);
    t->bpe = (Bpe){ .unk = -1, .prefix = "", .suffix = "", .raw = true, .ignore_merges = true };
    TRY(read_ranks(&t->bpe, text, path, &t->mem, err));
    for (int i = 0; i < 256; i++)
        if (vocab_get(&t->bpe.vocab, (char[]){ (char)i }, 1) < 0)
            return err_set(err, "%s has no token for the byte 0x%02X", path, i);
    TRY(config_tokens(&tokens, &config, mem, err) && add_reserved(t, tiktoken_classes[k].reserved, &tokens, mem, err));
    const char *text_of = tiktoken_classes[k].pipeline;
    CHECK(json_parse(&pipeline, text_of, strlen(text_of), mem, err), "our own table: %s", err->msg);
    TRY(tok_pipeline(t, &pipeline, err));
    t->decoder.step[0].kind = DECODE_RAW;
    return true;
}

bool tok_from_tiktoken(Tok *t, const char *path, const char *config_path, Err *err) {
    Mem mem = { 0 };
    Buf text = { 0 };
    bool ok = tiktoken(t, path, config_path, &text, &mem, err);
    buf_free(&text);
    mem_free(&mem);
    return ok;
}

/* ---- vocab.json and merges.txt, a pair in a line, the first line being "#version: ..." */
static Json read_merges(const Buf *text, Mem *mem) {
    size_t lines = 1, n = 0;
    for (size_t i = 0; i < text->n; i++) lines += text->data[i] == '\n';
    Json list = { .kind = JSON_ARRAY, .items = MEM_ARRAY(mem, Json, lines) };
    for (const char *at = text->data ? text->data : "", *end = at + text->n; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > at && stop[-1] == '\r') stop--;
        bool version = stop - at >= 8 && !memcmp(at, "#version", 8);
        size_t len = (size_t)(stop - at);
        if (len && !version) list.items[n++] = (Json){ .kind = JSON_STRING, .str = mem_str(mem, at, len), .n = len };
        at = next;
    }
    list.n = n;
    return list;
}

static bool vocab_and_merges(Tok *t, const char *vocab_path, const char *merges_path, const char *config_path,
                             Buf *text, Mem *mem, Err *err) {
    Json config, vocab, tokens, pipeline;
    const char *class = vocab_classes[0].class;
    TRY(read_json(&vocab, vocab_path, mem, err) && file_read(text, merges_path, err));
    TRY(read_config(&config, config_path, mem, err));
    TRY(json_str(&config, "tokenizer_class", &class, err));
    size_t k = 0;
    while (k < COUNT(vocab_classes) && !is_class(class, vocab_classes[k].class)) k++;
    if (k == COUNT(vocab_classes))
        return err_set(
            err, "%s: the tokenizer_class %.60s is not known; with vocab.json, GPT2Tokenizer and Qwen2Tokenizer are",
            config_path, class);
    bool prefix_space = false;
    TRY(json_bool(&config, "add_prefix_space", &prefix_space, err));
    if (prefix_space) return err_set(err, "%s: add_prefix_space is supported with a tokenizer.json only", config_path);
    JsonMember parts[2] = { { "vocab", 5, vocab }, { "merges", 6, read_merges(text, mem) } };
    Json model = { .kind = JSON_OBJECT, .n = 2, .members = parts };
    TRY(bpe_open(&t->bpe, &model, &t->mem, err) || err_wrap(err, "%s, %s", vocab_path, merges_path));
    TRY(config_tokens(&tokens, &config, mem, err) && tok_add_tokens(t, &tokens, true, err));
    const char *text_of = vocab_classes[k].pipeline;
    CHECK(json_parse(&pipeline, text_of, strlen(text_of), mem, err), "our own table: %s", err->msg);
    return tok_pipeline(t, &pipeline, err);
}

bool tok_from_vocab(Tok *t, const char *vocab, const char *merges, const char *config_path, Err *err) {
    Mem mem = { 0 };
    Buf text = { 0 };
    bool ok = vocab_and_merges(t, vocab, merges, config_path, &text, &mem, err);
    buf_free(&text);
    mem_free(&mem);
    return ok;
}
