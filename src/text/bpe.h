/* bpe.h - byte pair encoding: a vocabulary, the merges by rank, and one word at a time turned into ids.
 *
 * Ids are dense enough to index arrays.  The vocabulary is read-only once built and may be used by many threads,
 * each with its own BpeScratch (which holds a cache of words). */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "base/json.h"

typedef VEC(int32_t) Ids;
enum { BPE_MAX_ID = 1 << 22 };

/* Words of bytes and their numbers. */
typedef struct { const char *s; uint32_t n; int32_t id; } VocabEntry;
typedef struct { VocabEntry *slot; size_t mask, n; } Vocab;
void    vocab_init(Vocab *v, size_t n, Mem *mem);                       /* room for n entries */
bool    vocab_put(Vocab *v, const char *s, size_t n, int32_t id);       /* keeps s; false (unchanged) if it is there */
int32_t vocab_get(const Vocab *v, const char *s, size_t n);             /* -1: not there */

typedef struct { const char *s; uint32_t n; } Token;                    /* s is NULL for an id that is not used */
typedef struct { uint64_t pair; int32_t rank, id; } Merge;              /* pair: left << 32 | right; rank -1: free */

typedef struct {
    Vocab   vocab;
    Token  *token;                    /* [n_ids] as the file spells them */
    size_t  n_ids;
    Merge  *merge;                    /* a hash table; NULL if a merge is whatever makes a token (tiktoken) */
    size_t  merge_mask;
    bool    bytes;                    /* words are bytes, the vocabulary's are printable characters (ByteLevel) */
    bool    raw;                      /* words and vocabulary are bytes (tiktoken) */
    bool    ignore_merges, byte_fallback, fuse_unk;
    int32_t unk;                      /* -1: none; characters that are not in the vocabulary are dropped */
    const char *unk_missing;          /* an unk_token that is not in the vocabulary: an error once it is needed */
    int32_t byte_id[256];             /* of the one-byte words; -1: none */
    int32_t fallback_id[256];         /* of <0x00>..<0xFF> */
    const char *prefix, *suffix;      /* continuing_subword_prefix, end_of_word_suffix; "" if none */
} Bpe;

bool bpe_open(Bpe *b, const Json *model, Mem *mem, Err *err);           /* all but what depends on `bytes` */
void bpe_add_token(Bpe *b, const char *s, size_t n, int32_t id, Mem *mem);  /* spelling of an id; s is kept */
void bpe_ready(Bpe *b);                                                 /* after `bytes` or `raw` is set */

typedef struct BpeScratch BpeScratch;
BpeScratch *bpe_scratch_open(void);
void        bpe_scratch_close(BpeScratch *s);
bool        bpe_word(const Bpe *b, BpeScratch *s, const char *word, size_t n, Ids *out, Err *err);

static inline uint64_t hash_bytes(const char *s, size_t n) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ n, w;
    for (; n >= 8; s += 8, n -= 8) {
        __builtin_memcpy(&w, s, 8);
        h = (h ^ w) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    w = 0;
    for (size_t i = 0; i < n; i++) w |= (uint64_t)(unsigned char)s[i] << 8 * i;
    h = (h ^ w) * 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 29;
}

#endif
