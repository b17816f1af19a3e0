/* json.h - JSON in and out: one strict parser for configs, 8 MB vocabularies and lines of data alike.
 *
 * Written here because the packaged parsers are either slow (jansson 21 MB/s on a tokenizer.json, whose whole load may
 * take 150 ms) or lose integers above 2^53.  The text is distrusted: depth is bounded, UTF-8 is checked, duplicate keys
 * and anything after the value are errors, which name the line and column. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/base.h"

typedef enum { JSON_NULL, JSON_BOOL, JSON_INT, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

/* Values live in the Mem given to json_parse; strings are followed by a 0 but may hold one (use n). */
typedef struct Json Json;
struct Json {
    JsonKind kind;
    bool     flag;                  /* JSON_BOOL */
    union {
        size_t      n;              /* bytes of a string, items of an array, members of an object */
        const char *digits;         /* JSON_REAL without 'flag': as it was read; NULL: it was not read from JSON */
    };
    union {
        int64_t     integer;        /* JSON_INT */
        double      real;           /* also of a whole number beyond int64; up to 2^64-1
                                     * 'flag' is set and n is that number exactly */
        const char *str;
        Json       *items;          /* JSON_ARRAY [n] */
        struct JsonMember *members; /* JSON_OBJECT [n], in the order of the text */
    };
};
typedef struct JsonMember { const char *key; size_t key_n; Json value; } JsonMember;

bool json_parse(Json *out, const char *text, size_t n, Mem *mem, Err *err);

/* As Python's raw_decode reads it, for what a model wrote: NaN and Infinity are numbers, of equal keys the last counts,
 * half a surrogate pair is U+FFFD, and something may follow: the value and the blanks behind it are *used bytes. */
bool json_parse_loose(Json *out, const char *text, size_t n, size_t *used, Mem *mem, Err *err);

Json json_uint(uint64_t u);                                           /* JSON_INT where it is one */
Json json_copy(const Json *v, Mem *mem);                              /* with all that is in it */

/* The member of that name, or NULL; NULL too when o is NULL or not an object. */
const Json *json_get(const Json *o, const char *key);
const Json *json_path(const Json *o, const char *dotted);             /* "rope_scaling.factor" */

/* Reading with a type: false only if o is there, is not null, and has another type. An absent
 * or null value leaves *out. */
bool json_int(const Json *o, const char *key, int64_t *out, Err *err);
bool json_real(const Json *o, const char *key, double *out, Err *err);  /* takes whole numbers too */
bool json_bool(const Json *o, const char *key, bool *out, Err *err);
bool json_str(const Json *o, const char *key, const char **out, Err *err);
/* The same of what must be there, not null, and within [lo, hi]; out[0] is untouched otherwise. */
bool json_int_within(const Json *o, const char *key, int64_t lo, int64_t hi, int64_t *out, Err *err);
bool json_real_within(const Json *o, const char *key, double lo, double hi, double *out, Err *err);
bool json_bool_must(const Json *o, const char *key, bool *out, Err *err);

const char *json_kind_name(JsonKind k);                               /* "a number", "a string", ... */
static inline bool json_is_str(const Json *j, const char *s) {
    return j && j->kind == JSON_STRING && __builtin_strlen(s) == j->n && !__builtin_memcmp(j->str, s, j->n);
}
static inline double json_number(const Json *j) { return j->kind == JSON_INT ? (double)j->integer : j->real; }

/* The digits of a whole number that neither int64 nor uint64 holds; NULL: it is none. */
static inline const char *json_big(const Json *j) {
    bool own = j->kind == JSON_REAL && !j->flag && j->digits;
    return own && !__builtin_strpbrk(j->digits, ".eE") ? j->digits : NULL;
}

/* Writing: compact, UTF-8 as it is, control characters escaped. */
void json_put_str(Buf *b, const char *s, size_t n);            /* with quotes; bytes that are not UTF-8 become U+FFFD */
void json_put_f32(Buf *b, float x);                            /* the shortest digits that restore it; NaN, inf: null */
void json_put_f64(Buf *b, double x);
void json_put_value(Buf *b, const Json *v);                    /* ", " and ": " are not added: {"a":1} */
void json_put_number_own(Buf *b, const Json *v);               /* a JSON_REAL in the digits that it was read in: 1.10,
                                                                * 1e999, whole numbers of any length */

#endif
