/* span.h - pieces of somebody else's text, and the text tools that scorers and their mathematics share.
 *
 * verl's verdicts are made with Python strings, so characters are code points here and "space" and "digit" mean what
 * Python means by them. */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include "base/base.h"

/* A piece of somebody else's text. */
typedef struct { const char *at; size_t n; } Span;
#define SPAN(literal) ((Span){ literal, sizeof(literal) - 1 })
static inline Span span_of(const char *s) { return (Span){ s, __builtin_strlen(s) }; }
static inline bool span_eq(Span a, Span b) { return a.n == b.n && !__builtin_memcmp(a.at, b.at, a.n); }
bool   span_starts(Span s, Span with);
size_t span_find(Span s, size_t from, Span what);         /* SIZE_MAX: not there */
size_t span_rfind(Span s, Span what);
size_t span_count(Span s, Span what);                     /* without overlaps */
Span   span_from(Span s, size_t at);                      /* the rest */
Span   span_last_chars(Span s, size_t chars);             /* Python's s[-chars:] */
size_t span_char(Span s, size_t at);                      /* bytes of the character there; 0 at the end */
size_t span_space(Span s, size_t at);                     /* the same if it is white space, else 0 */
Span   span_strip(Span s);                                /* without white space at both ends */
bool   span_is_digits(Span s, char skip);                 /* one or more digits of any script, 'skip' left out */

/* The balanced {...} that opens first at or after 'from' closes where?  Index of the closing brace or SIZE_MAX. */
size_t span_close_brace(Span s, size_t from);

void text_set(Buf *b, Span s);
static inline Span text_span(const Buf *b) { return (Span){ b->data ? b->data : "", b->n }; }
void text_replace(Buf *b, Span what, Span with);          /* every occurrence, left to right */

#endif
