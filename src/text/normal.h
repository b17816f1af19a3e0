/* normal.h - what a tokenizer does to text before cutting it: the normalizers of tokenizer.json. */
#ifndef TEXT_NORMAL_H
#define TEXT_NORMAL_H

#include "base/json.h"
#include "text/pretok_regex.h"

typedef struct Normal Normal;
Normal *normal_open(const Json *piece, Err *err);     /* NULL or JSON null: none; NULL is returned on errors only */
void    normal_close(Normal *n);

/* What one thread needs; {0} is ready. */
typedef struct {
    Buf            a, b;
    RegexScratch  *regex;
    VEC(int32_t)   codes;
    bool           goes_on;        /* the text goes on behind other text: nothing is put before it */
} NormalScratch;
void normal_scratch_free(NormalScratch *s);

/* The normalized text: *out points at `text` itself or into the scratch, until its next use.  *start is cleared if
 * characters were stripped from the left. */
bool normal_apply(const Normal *n, NormalScratch *s, const char *text, size_t len, const char **out, size_t *out_len,
                  bool *start, Err *err);

/* Replaces every match of a pattern, {"String": ..} or {"Regex": ..}: the normalizer and the decoder of that name. */
typedef struct { const char *literal; size_t literal_n; Regex *regex; const char *content; size_t content_n; } Replace;
bool replace_open(Replace *r, const Json *piece, Mem *mem, Err *err);
bool replace_apply(const Replace *r, RegexScratch *s, Buf *out, const char *text, size_t n, Err *err);

/* The type of a piece: {"type": "NFC"}. */
bool piece_type(const Json *piece, const char *what, const char **type, Err *err);

/* The pattern of a piece, a string quoted so that it matches itself. */
Regex *pattern_open(const Json *piece, Err *err);
enum { TEXT_DEPTH = 16 };                             /* Sequences inside Sequences */

#endif
