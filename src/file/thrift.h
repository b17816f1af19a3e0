/* thrift.h - the compact protocol of Apache Thrift, as far as Parquet's footers and page headers need it.
 *
 * Reading never fails in the middle: the first impossible byte sets 'bad', everything after reads as zero and every
 * loop ends; the caller looks at 'bad' once.  A list's count is checked against the bytes left (an item takes at
 * least one), so what a count makes the reader allocate is bounded by the size of the input. */
#ifndef FILE_THRIFT_H
#define FILE_THRIFT_H

#include "base/base.h"

typedef enum {
    THRIFT_STOP, THRIFT_TRUE, THRIFT_FALSE, THRIFT_I8, THRIFT_I16, THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE, THRIFT_BINARY,
    THRIFT_LIST, THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT
} ThriftType;

typedef struct { const uint8_t *at, *end; bool bad; int depth; } ThriftIn;

/* One field of a struct after another:
 *     for (ThriftField f = thrift_begin(t); thrift_field(t, &f);)
 *         switch (f.id) { case 1: x = thrift_int(t, &f); break; ... default: thrift_skip(t, &f); }
 * Every case must consume its field; a field of an unexpected type makes the reader bad. */
typedef struct { int16_t id; uint8_t type; } ThriftField;
ThriftField thrift_begin(ThriftIn *t);
bool     thrift_field(ThriftIn *t, ThriftField *f);          /* false at the end of the struct */
void     thrift_skip(ThriftIn *t, const ThriftField *f);

int64_t  thrift_int(ThriftIn *t, const ThriftField *f);      /* i8, i16, i32, i64 */
bool     thrift_bool(ThriftIn *t, const ThriftField *f);
const char *thrift_bytes(ThriftIn *t, const ThriftField *f, size_t *n);   /* inside the input */
/* the field is a struct: read it with thrift_begin; false: bad */
bool     thrift_struct(ThriftIn *t, const ThriftField *f);
/* Items of a list of structs, or of ints and bytes through *item (pass &item as the field); 0 when bad. */
size_t   thrift_list(ThriftIn *t, const ThriftField *f, ThriftField *item);

/* Writing.  'last' is the id of the field before, kept per struct by the caller's ThriftField. */
void thrift_put_begin(Buf *b, ThriftField *s);
void thrift_put_int(Buf *b, ThriftField *s, int id, ThriftType type, int64_t v);
void thrift_put_bytes(Buf *b, ThriftField *s, int id, const char *bytes, size_t n);
void thrift_put_struct(Buf *b, ThriftField *s, int id);      /* then begin, fields, end */
void thrift_put_list(Buf *b, ThriftField *s, int id, ThriftType item, size_t n);
void thrift_put_end(Buf *b);
void thrift_put_zigzag(Buf *b, int64_t v);                   /* an int as an item of a list */
void thrift_put_text(Buf *b, const char *bytes, size_t n);   /* bytes as an item of a list */

#endif
