/* pretok_regex.h - the regular expressions of Split and Replace, as Oniguruma reads them (Ruby's syntax, where ^ and
 * $ always mean lines), since that is what published tokenizer files are written for.
 *
 * Two ways lead to the same matches.  A pattern that is a list of alternatives, each a row of classes with
 * counts - all published splitting patterns are - runs on a matcher of our own (pretok_match.c), which
 * looks characters up in a table made for that pattern.  Anything else goes to PCRE2's compiler.  A test
 * holds the two equal on random text. */
#ifndef TEXT_PRETOK_REGEX_H
#define TEXT_PRETOK_REGEX_H

#include "text/unicode.h"

typedef enum { REGEX_BEST, REGEX_PCRE, REGEX_OWN } RegexHow;        /* the other two are for tests */

typedef struct Regex Regex;
Regex *regex_open(const char *pattern, size_t n, RegexHow how, Err *err);      /* NULL: err says why */
void   regex_close(Regex *re);

/* What one thread needs to match; {0} is ready. */
typedef struct { void *match_data; } RegexScratch;
void regex_scratch_free(RegexScratch *s);

/* The first match at or after `from` in UTF-8 text known to be well formed: 1 and its ends, 0 if there is none,
 * -1 if the search took too many steps. */
int regex_find(const Regex *re, RegexScratch *s, const char *text, size_t n, size_t from, size_t *start, size_t *end);

/* ---- shared by the files pretok_*.c */
/* One character, escape or [class] at *at, moved behind it; false if it is not understood.
 * `fold`: letters of either case. */
bool class_parse(UnicodeSet *out, const char **at, const char *end, bool fold);
/* The class an escape stands for: \s \S \d \w \h \p{L} \p{^L} \P{L}.  *at stands on the character behind the \. */
bool class_escape(UnicodeSet *out, const char **at, const char *end, bool *negated, bool *is_class);

typedef struct Matcher Matcher;
Matcher *matcher_open(const char *pattern, size_t n, Mem *mem);     /* NULL: not of the simple kind */
int matcher_find(const Matcher *m, const char *text, size_t n, size_t from, size_t *start, size_t *end);

#endif
