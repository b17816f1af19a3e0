/* scan.h - the members of one JSON object on one line, one by one, without a tree: a million lines are looked at when a
 * page opens.  Lenient where a tree would be strict (a value may hold anything that ends where JSON's would), never
 * past the line's end; what is shown is read by base/json.h. */
#ifndef BASE_SCAN_H
#define BASE_SCAN_H

#include "base/span.h"

#include <string.h>

typedef struct { const char *at, *end; bool begun, bad; } Scan;
typedef struct {
    Span key;       /* between its quotes, as it is written */
    Span value;     /* of a string: between its quotes; else all of it */
    char kind;      /* '"' a string, '0' a number, '{' an object, '[' a list, 'n' null, 't', 'f' */
} Member;

static inline Scan scan_of(const char *line, size_t n) {
    bool mark = n >= 3 && !memcmp(line, "\xEF\xBB\xBF", 3); /* a byte order mark, as json_parse passes it over */
    return (Scan){ line + (mark ? 3 : 0), line + n, false, false };
}
/* The next member; false at the end, and where there is no object (then s->bad). */
bool   scan_next(Scan *s, Member *m);
/* A number's value: the nearest double, as strtod has it; NAN where it is null or no number. */
double scan_number(const Member *m);
static inline bool scan_is(const Member *m, const char *key) { return span_eq(m->key, span_of(key)); }

#endif
