/* tok.h - text to token ids and back, with the ids that Hugging Face tokenizers (or tiktoken) would give.
 *
 * A Tok is read-only once open: any number of threads may use it, each with a TokScratch of its own.  Special tokens
 * such as <|im_start|> that stand in the text are plain characters unless TOK_SPECIAL is given: text from a data set
 * or a user cannot write a control token. */
#ifndef TEXT_TOK_H
#define TEXT_TOK_H

#include "base/base.h"

typedef struct Tok Tok;
typedef struct TokScratch TokScratch;
typedef VEC(int32_t) TokIds;                                  /* {0} is empty; freed with vec_free(ids.at) */

/* TOK_NONE: the folder has no tokenizer at all; err says so too */
typedef enum { TOK_OK, TOK_NONE, TOK_BAD } TokStatus;
/* `path` is a model folder (tokenizer.json, else tiktoken.model or *.tiktoken, else vocab.json
 * + merges.txt), or such a file. */
TokStatus tok_open(Tok **out, const char *path, Err *err);
void      tok_close(Tok *t);

TokScratch *tok_scratch_open(const Tok *t);
void        tok_scratch_close(TokScratch *s);

enum { TOK_SPECIAL = 1,      /* recognise special tokens in the text */
       TOK_BOS = 2 };        /* apply the post-processor: put in front and behind what the file says (<s>, ...) */
/* Appends to ids.  Fails on text that is not UTF-8, and on a pattern that takes too long. */
bool tok_encode(const Tok *t, TokScratch *s, const char *text, size_t n, int flags, TokIds *ids, Err *err);
/* The same for a text with seams, rising places in it that no token crosses: at[i] is how many tokens come before the
 * i-th.  Behind a seam the text goes on: nothing is put before it as before a text's beginning.  A seam inside a
 * special token (or the blanks that it takes with it) lies behind it. */
typedef struct { const size_t *cut; size_t n; size_t *at; } TokSeams;
bool tok_encode_seams(const Tok *t, TokScratch *s, const char *text, size_t n, int flags, const TokSeams *seams,
                      TokIds *ids, Err *err);

/* Appends the text.  Ids that the tokenizer does not have (padding rows of an embedding) are
 * skipped, as the reference does. */
bool tok_decode(const Tok *t, const int32_t *ids, size_t n, bool skip_special, Buf *out, Err *err);

/* The same a token at a time: appends only whole characters, and with the flush exactly what tok_decode gives. */
typedef struct TokStream TokStream;
TokStream *tok_stream_open(const Tok *t, bool skip_special);
bool       tok_stream_push(TokStream *s, int32_t id, Buf *out, Err *err);
bool       tok_stream_flush(TokStream *s, Buf *out, Err *err);  /* and ready for the next text */
void       tok_stream_close(TokStream *s);

size_t      tok_vocab_size(const Tok *t);                     /* one more than the largest id */
int32_t     tok_id_of(const Tok *t, const char *token, size_t n);   /* as the file spells it; -1: none */
const char *tok_token_of(const Tok *t, int32_t id, size_t *n);      /* NULL: none */
bool        tok_is_special(const Tok *t, int32_t id);

#endif
