/* bpe_vocab.c - builds what bpe.c runs on: the vocabulary and the table of merges, from the
 * "model" of a tokenizer.json. */
#include "text/bpe.h"
#include "text/pretok.h"

#include <stdio.h>
#include <string.h>

void vocab_init(Vocab *v, size_t n, Mem *mem) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    v->slot = MEM_ARRAY(mem, VocabEntry, size);
    v->mask = size - 1;
    v->n = 0;
}

bool vocab_put(Vocab *v, const char *s, size_t n, int32_t id) {
    CHECK(2 * v->n <= v->mask + 1, "vocabulary of %zu words is full", v->n);
    size_t i = hash_bytes(s, n) & v->mask;
    for (; v->slot[i].s; i = (i + 1) & v->mask)
        if (v->slot[i].n == n && !memcmp(v->slot[i].s, s, n)) return false;
    v->slot[i] = (VocabEntry){ s, (uint32_t)n, id };
    v->n++;
    return true;
}

int32_t vocab_get(const Vocab *v, const char *s, size_t n) {
    for (size_t i = hash_bytes(s, n) & v->mask; v->slot[i].s; i = (i + 1) & v->mask)
        if (v->slot[i].n == n && !memcmp(v->slot[i].s, s, n)) return v->slot[i].id;
    return -1;
}

void bpe_add_token(Bpe *b, const char *s, size_t n, int32_t id, Mem *mem) {
    if ((size_t)id >= b->n_ids) {
        size_t want = (size_t)id + 1 > b->n_ids + 4096 ? (size_t)id + 1 : b->n_ids + 4096;
        Token *t = MEM_ARRAY(mem, Token, want);
        if (b->n_ids) memcpy(t, b->token, b->n_ids * sizeof *t);
        b->token = t;
        b->n_ids = want;
    }
    b->token[id] = (Token){ s, (uint32_t)n };
}

static bool read_vocab(Bpe *b, const Json *vocab, Mem *mem, Err *err) {
    int64_t top = -1;
    size_t bytes = 0;
    for (size_t i = 0; i < vocab->n; i++) {
        const JsonMember *m = &vocab->members[i];
        if (m->value.kind != JSON_INT || m->value.integer < 0 || m->value.integer >= BPE_MAX_ID)
            return err_set(err, "the vocabulary's \"%.60s\" needs a whole number from 0 to %d as its id", m->key,
                           BPE_MAX_ID - 1);
        if (m->value.integer > top) top = m->value.integer;
        bytes += m->key_n + 1;
    }
    vocab_init(&b->vocab, vocab->n, mem);
    b->n_ids = (size_t)(top + 1);
    b->token = MEM_ARRAY(mem, Token, b->n_ids);
    char *text = mem_push(mem, bytes); /* the spellings, one behind the other: the JSON does not stay */
    for (size_t i = 0; i < vocab->n; i++) {
        const JsonMember *m = &vocab->members[i];
        memcpy(text, m->key, m->key_n);
        vocab_put(&b->vocab, text, m->key_n, (int32_t)m->value.integer);
        b->token[m->value.integer] = (Token){ text, (uint32_t)m->key_n };
        text += m->key_n + 1;
    }
    return true;
}

static uint64_t pair_hash(uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15u;
    return pair ^ pair >> 32;
}

/* A pair named twice has the rank of the later line. */
static void put_merge(Bpe *b, uint64_t pair, int32_t rank, int32_t id) {
    size_t i = pair_hash(pair) & b->merge_mask;
    while (b->merge[i].rank >= 0 && b->merge[i].pair != pair) i = (i + 1) & b->merge_mask;
    b->merge[i] = (Merge){ pair, rank, id };
}

static bool read_pair(const Json *m, Token side[2]) {
    if (m->kind == JSON_ARRAY && m->n == 2 && m->items[0].kind == JSON_STRING && m->items[1].kind == JSON_STRING) {
        for (int k = 0; k < 2; k++) side[k] = (Token){ m->items[k].str, (uint32_t)m->items[k].n };
        return true;
    }
    const char *space = m->kind == JSON_STRING ? memchr(m->str, ' ', m->n) : NULL;
    if (!space || memchr(space + 1, ' ', m->n - (size_t)(space + 1 - m->str))) return false;
    side[0] = (Token){ m->str, (uint32_t)(space - m->str) };
    side[1] = (Token){ space + 1, (uint32_t)(m->n - (size_t)(space + 1 - m->str)) };
    return true;
}

static bool read_merges(Bpe *b, const Json *merges, Mem *mem, Err *err) {
    size_t size = 16, prefix = strlen(b->prefix);
    while (size < 2 * merges->n) size *= 2;
    b->merge = MEM_ARRAY(mem, Merge, size);
    b->merge_mask = size - 1;
    for (size_t i = 0; i < size; i++) b->merge[i].rank = -1;
    Buf whole = { 0 };
    bool ok = true;
    for (size_t i = 0; i < merges->n && ok; i++) {
        Token side[2];
        if (!read_pair(&merges->items[i], side)) {
            ok = err_set(err, "merge %zu is not a pair: \"a b\" or [\"a\", \"b\"]", i);
            break;
        }
        buf_clear(&whole);
        buf_put(&whole, side[0].s, side[0].n);
        if (side[1].n >= prefix) buf_put(&whole, side[1].s + prefix, side[1].n - prefix);
        int32_t l = vocab_get(&b->vocab, side[0].s, side[0].n), r = vocab_get(&b->vocab, side[1].s, side[1].n);
        int32_t id = vocab_get(&b->vocab, whole.data, whole.n);
        if (l < 0 || r < 0 || id < 0 || side[1].n < prefix)
            ok = err_set(err, "merge %zu, \"%.60s %.60s\": the vocabulary has no \"%.120s\"", i, side[0].s, side[1].s,
                         l < 0   ? side[0].s
                         : r < 0 ? side[1].s
                                 : whole.data);
        else put_merge(b, (uint64_t)l << 32 | (uint32_t)r, (int32_t)i, id);
    }
    buf_free(&whole);
    return ok;
}

bool bpe_open(Bpe *b, const Json *model, Mem *mem, Err *err) {
    const char *type = "BPE", *unk = NULL;
    TRY(json_str(model, "type", &type, err));
    if (strcmp(type, "BPE")) return err_set(err, "the model %.60s is not supported: BPE is", type);
    double dropout = 0;
    TRY(json_real(model, "dropout", &dropout, err));
    if (dropout != 0) return err_set(err, "BPE with \"dropout\" is not supported: it makes encoding random");
    const Json *vocab = json_get(model, "vocab"), *merges = json_get(model, "merges");
    if (!vocab || vocab->kind != JSON_OBJECT) return err_set(err, "the model has no \"vocab\"");
    if (!merges || merges->kind != JSON_ARRAY || merges->n >= INT32_MAX)
        return err_set(err, "the model has no \"merges\"");
    *b = (Bpe){ .unk = -1, .prefix = "", .suffix = "" };
    TRY(json_str(model, "unk_token", &unk, err) && json_str(model, "continuing_subword_prefix", &b->prefix, err));
    TRY(json_str(model, "end_of_word_suffix", &b->suffix, err) && json_bool(model, "fuse_unk", &b->fuse_unk, err));
    TRY(json_bool(model, "byte_fallback", &b->byte_fallback, err)
        && json_bool(model, "ignore_merges", &b->ignore_merges, err));
    b->prefix = mem_str(mem, b->prefix, strlen(b->prefix));
    b->suffix = mem_str(mem, b->suffix, strlen(b->suffix));
    TRY(read_vocab(b, vocab, mem, err) && read_merges(b, merges, mem, err));
    if (unk && (b->unk = vocab_get(&b->vocab, unk, strlen(unk))) < 0) b->unk_missing = mem_str(mem, unk, strlen(unk));
    return true;
}

void bpe_ready(Bpe *b) {
    Buf t = { 0 };
    for (int i = 0; i < 256; i++) {
        buf_clear(&t);
        if (b->bytes) put_byte_char(&t, (unsigned char)i);
        else buf_putc(&t, (char)i);
        b->byte_id[i] = vocab_get(&b->vocab, t.data, t.n);
        buf_clear(&t);
        buf_printf(&t, "<0x%02X>", i);
        b->fallback_id[i] = vocab_get(&b->vocab, t.data, t.n);
    }
    buf_free(&t);
}
