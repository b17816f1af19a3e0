/* unicode.h - sets of characters, and the few facts about characters that tokenizers need.
 *
 * The facts are those of Hugging Face tokenizers, which holds several Unicode versions at once (regular expressions
 * 16, punctuation 8): they were asked of it character by character (tests/oracle/make_unicode.py), because ids must
 * be equal also where versions differ, and must not depend on which PCRE2 or utf8proc a machine has. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include "base/base.h"

enum { UNICODE_END = 0x110000 };

typedef struct { uint32_t lo, hi; } UnicodeRange;                  /* both ends belong to it */
typedef VEC(UnicodeRange) UnicodeSet;                              /* {0} is empty; freed with vec_free(set.at) */

void uset_add(UnicodeSet *s, uint32_t lo, uint32_t hi);
void uset_tidy(UnicodeSet *s);                                     /* sorts and joins: the functions below want this */
void uset_join(UnicodeSet *s, const UnicodeSet *other);            /* tidy afterwards, as are all results below */
void uset_invert(UnicodeSet *s);
void uset_meet(UnicodeSet *s, const UnicodeSet *other);            /* what is in both */

/* Adds a named class: a category ("L", "Lu"), "Han", or one of the names below; false if the name is not known. */
bool uset_named(UnicodeSet *s, const char *name, size_t n);
#define USET_SPACE   "White_Space"      /* \s, and what Rust calls white space */
#define USET_WORD    "word"             /* \w of Oniguruma, the regular expressions of Split and Replace */
#define USET_RUST_W  "rust word"        /* \w of the Whitespace pre-tokenizer and of single_word */
#define USET_NUMERIC "rust numeric"     /* Digits */
#define USET_PUNCT   "hf punctuation"   /* Punctuation */
#define USET_ACCENT  "hf accents"       /* StripAccents */
#define USET_NEWER   "newer than 14"    /* assigned after Unicode 14, which is PCRE2 10.42's */
#define USET_KEPT    "never decomposed" /* characters that NFD and NFKD leave alone although newer Unicode does not */

int  unicode_lower(uint32_t c, uint32_t out[2]);                   /* how many characters it becomes: 1 or 2 */
bool unicode_space(uint32_t c);

/* A set made for asking often: two loads per question. */
typedef struct UnicodeBits UnicodeBits;
struct UnicodeBits { uint16_t page[UNICODE_END >> 8]; uint64_t (*bits)[4]; size_t pages; };
const UnicodeBits *ubits_make(const UnicodeSet *s, Mem *mem);
static inline bool ubits_has(const UnicodeBits *b, uint32_t c) {
    return b->bits[b->page[c >> 8]][(c >> 6) & 3] >> (c & 63) & 1;
}
const UnicodeBits *ubits_named(const char *name, Mem *mem);        /* dies on a name that is not known */

#endif
