/* bpe.c - one word into ids.  A word seen before is looked up; a short one is merged by scanning its pairs for the
 * lowest rank, a long one (the whole text, for SentencePiece-style vocabularies) through a heap.  Both take the
 * lowest rank first and of equal ranks the leftmost, which is what makes the result unique. */
#include "text/bpe.h"
#include "base/utf8.h"
#include "text/pretok.h"

#include <string.h>

enum { SHORT_WORD = 48, CACHED_WORD = 128, CACHE_SLOTS = 1 << 16, CACHE_WORDS = CACHE_SLOTS / 2 };
#define NO_RANK INT32_MAX

/* A symbol is a stretch of the word; pos and n matter to tiktoken, whose merges are looked up by their bytes. */
typedef struct {
    int32_t id, rank, into; /* rank of the pair with the next symbol, and the id it would become */
    int32_t prev, next;     /* long words only; -1: none */
    uint32_t pos, n;        /* n 0: merged away */
} Symbol;

typedef struct {
    uint32_t hash, key, ids; /* hash 0: free; key: where in `keys`; ids: where in `ids`, or the id itself if n is 1 */
    uint16_t len, n;
} Cached;

struct BpeScratch {
    Mem mem;
    VEC(Symbol)
    symbols;
    VEC(uint64_t)
    heap;          /* rank << 32 | position */
    Cached *cache; /* [CACHE_SLOTS] */
    size_t cached;
    Buf keys, text;
    Ids ids;
};

BpeScratch *bpe_scratch_open(void) {
    Mem mem = { 0 };
    BpeScratch *s = MEM_NEW(&mem, BpeScratch);
    s->cache = MEM_ARRAY(&mem, Cached, CACHE_SLOTS);
    s->mem = mem;
    return s;
}

void bpe_scratch_close(BpeScratch *s) {
    if (!s) return;
    vec_free(s->symbols.at);
    vec_free(s->heap.at);
    vec_free(s->ids.at);
    buf_free(&s->keys);
    buf_free(&s->text);
    Mem mem = s->mem;
    mem_free(&mem);
}

/* ---- pairs */
static inline void rank_pair(const Bpe *b, const char *word, Symbol *l, const Symbol *r) {
    l->rank = NO_RANK;
    if (b->raw) {
        int32_t id = vocab_get(&b->vocab, word + l->pos, l->n + r->n);
        if (id >= 0) l->rank = l->into = id;
        return;
    }
    uint64_t pair = (uint64_t)l->id << 32 | (uint32_t)r->id, h = pair * 0x9E3779B97F4A7C15u;
    for (size_t i = (h ^ h >> 32) & b->merge_mask; b->merge[i].rank >= 0; i = (i + 1) & b->merge_mask)
        if (b->merge[i].pair == pair) {
            l->rank = b->merge[i].rank;
            l->into = b->merge[i].id;
            return;
        }
}

static size_t merge_short(const Bpe *b, const char *word, Symbol *s, size_t n) {
    for (size_t i = 0; i + 1 < n; i++) rank_pair(b, word, &s[i], &s[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (s[i].rank < s[best].rank) best = i;
        if (s[best].rank == NO_RANK) break;
        s[best].id = s[best].into;
        s[best].n += s[best + 1].n;
        n--;
        memmove(&s[best + 1], &s[best + 2], (n - best - 1) * sizeof *s);
        if (best + 1 < n) rank_pair(b, word, &s[best], &s[best + 1]);
        else s[best].rank = NO_RANK;
        if (best > 0) rank_pair(b, word, &s[best - 1], &s[best]);
    }
    return n;
}

static void heap_push(BpeScratch *s, int32_t rank, size_t pos) {
    if (rank == NO_RANK) return;
    uint64_t x = (uint64_t)rank << 32 | pos;
    VEC_PUSH(s->heap, x);
    size_t i = s->heap.n - 1;
    for (; i > 0 && s->heap.at[(i - 1) / 2] > x; i = (i - 1) / 2) s->heap.at[i] = s->heap.at[(i - 1) / 2];
    s->heap.at[i] = x;
}

static uint64_t heap_pop(BpeScratch *s) {
    uint64_t top = s->heap.at[0], x = s->heap.at[--s->heap.n];
    size_t i = 0, n = s->heap.n;
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && s->heap.at[c + 1] < s->heap.at[c]) c++;
        if (s->heap.at[c] >= x) break;
        s->heap.at[i] = s->heap.at[c];
    }
    if (n) s->heap.at[i] = x;
    return top;
}

/* A heap entry is stale if its symbol is gone or the pair there has another rank by now. */
static size_t merge_long(const Bpe *b, BpeScratch *sc, const char *word) {
    Symbol *s = sc->symbols.at;
    size_t n = sc->symbols.n;
    sc->heap.n = 0;
    for (size_t i = 0; i < n; i++) {
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
        s[i].rank = NO_RANK;
        if (i + 1 < n) rank_pair(b, word, &s[i], &s[i + 1]);
        heap_push(sc, s[i].rank, i);
    }
    while (sc->heap.n) {
        uint64_t top = heap_pop(sc);
        Symbol *l = &s[(uint32_t)top];
        if (l->id < 0 || l->rank != (int32_t)(top >> 32)) continue;
        Symbol *r = &s[l->next];
        l->id = l->into;
        l->n += r->n;
        l->next = r->next;
        r->id = -1;
        l->rank = NO_RANK;
        if (l->next >= 0) {
            s[l->next].prev = (int32_t)(uint32_t)top;
            rank_pair(b, word, l, &s[l->next]);
            heap_push(sc, l->rank, (uint32_t)top);
        }
        if (l->prev >= 0) {
            rank_pair(b, word, &s[l->prev], l);
            heap_push(sc, s[l->prev].rank, (size_t)l->prev);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i].id >= 0) s[kept++] = s[i];
    return kept;
}

/* ---- the symbols a word starts from */
static void add_symbol(BpeScratch *s, int32_t id, size_t pos, size_t n) {
    VEC_PUSH(s->symbols, (Symbol){ .id = id, .pos = (uint32_t)pos, .n = (uint32_t)n });
}

static bool need_unk(const Bpe *b, Err *err) {
    if (!b->unk_missing) return true;
    return err_set(err, "the unk_token \"%.60s\" is not in the vocabulary, and a character needs it", b->unk_missing);
}

static bool start_bytes(const Bpe *b, BpeScratch *s, const char *word, size_t n, Err *err) {
    bool pending = false; /* an unk that still may be fused with the next */
    for (size_t i = 0; i < n; i++) {
        int32_t id = b->byte_id[(unsigned char)word[i]];
        if (id < 0) TRY(need_unk(b, err));
        if (id >= 0) add_symbol(s, id, i, 1);
        else if (b->unk >= 0 && !(pending && b->fuse_unk)) add_symbol(s, b->unk, i, 1);
        pending = id < 0;
    }
    return true;
}

static int32_t decorated(const Bpe *b, BpeScratch *s, const char *c, size_t len, bool first, bool last) {
    buf_clear(&s->text);
    if (!first) buf_puts(&s->text, b->prefix);
    buf_put(&s->text, c, len);
    if (last) buf_puts(&s->text, b->suffix);
    return vocab_get(&b->vocab, s->text.data, s->text.n);
}

/* A character that is not in the vocabulary becomes its bytes <0x..> if all of them are there, else unk.  An unk
 * waits until the next known character, as in the reference, where bytes overtake it. */
static bool start_chars(const Bpe *b, BpeScratch *s, const char *word, size_t n, Err *err) {
    bool plain = !*b->prefix && !*b->suffix, pending = false;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t len = (size_t)utf8_get(word + i, n - i, &c);
        int32_t id = len == 1 && plain ? b->byte_id[(unsigned char)word[i]]
                     : plain           ? vocab_get(&b->vocab, word + i, len)
                                       : decorated(b, s, word + i, len, i == 0, i + len == n);
        const char *text = plain ? word + i : s->text.data;
        size_t text_n = plain ? len : s->text.n;
        bool fall = id < 0 && b->byte_fallback;
        for (size_t k = 0; fall && k < text_n; k++) fall = b->fallback_id[(unsigned char)text[k]] >= 0;
        if (fall) {
            for (size_t k = 0; k < text_n; k++) add_symbol(s, b->fallback_id[(unsigned char)text[k]], i, 1);
        } else if (id >= 0) {
            if (pending) add_symbol(s, b->unk, i, 1);
            pending = false;
            add_symbol(s, id, i, len);
        } else {
            TRY(need_unk(b, err));
            if (b->unk >= 0) {
                if (pending && !b->fuse_unk) add_symbol(s, b->unk, i, 1);
                pending = true;
            }
        }
        i += len;
    }
    if (pending) add_symbol(s, b->unk, n, 1);
    return true;
}

static int32_t whole_word(const Bpe *b, BpeScratch *s, const char *word, size_t n) {
    if (!b->bytes) return vocab_get(&b->vocab, word, n);
    buf_clear(&s->text);
    for (size_t i = 0; i < n; i++) put_byte_char(&s->text, (unsigned char)word[i]);
    return vocab_get(&b->vocab, s->text.data, s->text.n);
}

static bool encode(const Bpe *b, BpeScratch *s, const char *word, size_t n, Ids *out, Err *err) {
    int32_t id = b->ignore_merges ? whole_word(b, s, word, n) : -1;
    if (id >= 0) return VEC_PUSH(*out, id), true;
    s->symbols.n = 0;
    TRY(b->bytes || b->raw ? start_bytes(b, s, word, n, err) : start_chars(b, s, word, n, err));
    size_t k = s->symbols.n;
    if (k > 1) k = k <= SHORT_WORD ? merge_short(b, word, s->symbols.at, k) : merge_long(b, s, word);
    for (size_t i = 0; i < k; i++) VEC_PUSH(*out, s->symbols.at[i].id);
    return true;
}

/* ---- words seen before.  When the cache is full it starts anew: text changes its subject. */
static void cache_put(BpeScratch *s, size_t slot, uint32_t hash, const char *word, size_t n, const int32_t *ids,
                      size_t n_ids) {
    if (s->cached == CACHE_WORDS) {
        memset(s->cache, 0, CACHE_SLOTS * sizeof *s->cache);
        s->cached = 0;
        buf_clear(&s->keys);
        s->ids.n = 0;
        slot = hash & (CACHE_SLOTS - 1);
    }
    Cached *c = &s->cache[slot];
    *c = (Cached){
        .hash = hash, .key = (uint32_t)s->keys.n, .len = (uint16_t)n, .n = (uint16_t)n_ids, .ids = (uint32_t)s->ids.n
    };
    buf_put(&s->keys, word, n);
    if (n_ids == 1) c->ids = (uint32_t)ids[0];
    else
        for (size_t i = 0; i < n_ids; i++) VEC_PUSH(s->ids, ids[i]);
    s->cached++;
}

bool bpe_word(const Bpe *b, BpeScratch *s, const char *word, size_t n, Ids *out, Err *err) {
    if (n > CACHED_WORD) {
        if (n > INT32_MAX) return err_set(err, "a word of %zu bytes is too long", n);
        return encode(b, s, word, n, out, err);
    }
    uint64_t h = hash_bytes(word, n);
    uint32_t hash = (uint32_t)(h >> 32) ^ (uint32_t)h;
    if (!hash) hash = 1;
    size_t slot = hash & (CACHE_SLOTS - 1);
    for (; s->cache[slot].hash; slot = (slot + 1) & (CACHE_SLOTS - 1)) {
        const Cached *c = &s->cache[slot];
        if (c->hash != hash || c->len != n || memcmp(s->keys.data + c->key, word, n)) continue;
        if (c->n == 1) VEC_PUSH(*out, (int32_t)c->ids);
        else
            for (size_t i = 0; i < c->n; i++) VEC_PUSH(*out, s->ids.at[c->ids + i]);
        return true;
    }
    size_t from = out->n;
    TRY(encode(b, s, word, n, out, err));
    cache_put(s, slot, hash, word, n, out->n ? out->at + from : NULL, out->n - from);
    return true;
}
