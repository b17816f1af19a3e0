/* pretok.h - cuts text into the words that BPE works on: the pre-tokenizers of tokenizer.json. */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include "base/json.h"
#include "text/normal.h"

typedef struct { size_t at, n; bool start; } Piece;            /* start: it begins where the whole text begins */
typedef struct { const char *text; Buf own; VEC(Piece) list; } Pieces;   /* text is somebody else's or own.data */

typedef struct Pretok Pretok;
Pretok *pretok_open(const Json *piece, Err *err);  /* NULL or JSON null: none; NULL is returned on errors only */
void    pretok_close(Pretok *p);

/* Whether the last step is ByteLevel.  Its map from bytes to printable characters is then not applied: the pieces are
 * the bytes themselves, and the model's vocabulary is read through the map instead. */
bool pretok_bytes(const Pretok *p);
void pretok_map_last(Pretok *p);                               /* for a model that wants the characters all the same */

typedef struct { size_t at, end; bool hit; } Cut;

/* What one thread needs; {0} is ready once regex is set. */
typedef struct {
    Pieces        a, b;
    RegexScratch *regex;
    VEC(Cut)      cuts;
    bool          goes_on;                                     /* as NormalScratch's */
} PretokScratch;
void pretok_scratch_free(PretokScratch *s);

/* The pieces of text, in order, none empty; *out is in the scratch until its next use. */
bool pretok_apply(const Pretok *p, PretokScratch *s, const char *text, size_t n, bool start, const Pieces **out,
                  Err *err);

/* ---- the map of byte-level vocabularies: 256 bytes as 256 printable characters */
uint32_t byte_char(unsigned char byte);
int      char_byte(uint32_t c);                                /* -1: not one of them */
void     put_byte_char(Buf *b, unsigned char byte);

#endif
