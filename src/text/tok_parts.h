/* tok_parts.h - inside a Tok: shared by the files tok*.c only. */
#ifndef TEXT_TOK_PARTS_H
#define TEXT_TOK_PARTS_H

#include "text/bpe.h"
#include "text/normal.h"
#include "text/pretok.h"
#include "text/tok.h"

/* ---- added tokens: found in the text before anything else is done to it */
typedef struct {
    const char *content;
    size_t      n;
    int32_t     id;
    bool        special, single_word, lstrip, rstrip, normalized;
} AddedToken;

typedef struct { int32_t child, next, token; unsigned char byte; } TrieNode;      /* 0: none; token is an index + 1 */
typedef struct { int32_t root[256]; VEC(TrieNode) nodes; bool any; } Trie;

typedef struct {
    VEC(AddedToken)    list;
    Trie               raw, normal;          /* those looked for before and after normalizing */
    const UnicodeBits *word;                 /* NULL unless a token is single_word */
} Added;

typedef struct { size_t at, end; int32_t id; } Segment;       /* id -1: text */
typedef VEC(Segment) Segments;

void trie_put(Trie *t, const char *s, size_t n, int32_t token);
void trie_split(const Added *a, const Trie *t, const char *text, size_t n, bool special, Segments *out);

/* ---- decoders */
typedef enum { DECODE_BYTES, DECODE_RAW, DECODE_FALLBACK, DECODE_FUSE, DECODE_STRIP, DECODE_REPLACE, DECODE_METASPACE,
               DECODE_SPACES } DecodeKind;
typedef struct {
    DecodeKind kind;
    bool       joined;                       /* what comes in is one token that grows */
    char       mark[4];                      /* DECODE_STRIP, DECODE_METASPACE */
    int        mark_n;
    size_t     start, stop;                  /* DECODE_STRIP: at most so many marks are cut */
    bool       prepended;                    /* DECODE_METASPACE: the first token loses its marks */
    Replace    replace;
} DecodeStep;
enum { DECODE_MAX = 16 };
typedef struct { DecodeStep step[DECODE_MAX]; int n; } Decoder;

bool decoder_open(Decoder *d, const Json *piece, Mem *mem, Err *err);
void decoder_close(Decoder *d);

struct Tok {
    Mem      mem;
    Bpe      bpe;
    Normal  *normal;
    Pretok  *pretok;
    Added    added;
    Decoder  decoder;
    uint8_t *special;                        /* [bpe.n_ids] */
    size_t   n_ids;                          /* one more than the largest id in use */
    TokIds   front, back;                    /* the post-processor */
};

/* ---- loading: each fills t, whose pieces tok_close frees whatever happens */
bool tok_from_json(Tok *t, const Json *file, Err *err);                            /* a tokenizer.json */
bool tok_pipeline(Tok *t, const Json *file, Err *err);                             /* all of it but the model */
bool tok_add_tokens(Tok *t, const Json *list, bool own_ids, Err *err);             /* own_ids: "id" decides */
bool tok_from_tiktoken(Tok *t, const char *path, const char *config_path, Err *err);
bool tok_from_vocab(Tok *t, const char *vocab, const char *merges, const char *config_path, Err *err);

#endif
