/* gguf.h - GGUF files: a magic number, counted keys with values, counted tensors, then the tensors' bytes.
 *
 * Reading trusts nothing in the file, copies only names, and says in one line what is wrong with it. */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include "base/file.h"

typedef enum {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64, GGUF_KINDS
} GgufKind;

/* How a tensor's numbers are stored: in blocks of so many elements and bytes. */
typedef struct { const char *name; int elements, bytes; } GgufType;
const GgufType *gguf_type(uint32_t id);             /* NULL: not known */
int             gguf_type_of(const char *name);     /* its id; -1: none */

typedef struct {
    const char *key;
    GgufKind    kind, of;           /* of: an array's items */
    uint64_t    n;                  /* items; bytes of a string */
    const char *data;               /* in the file; of a string its first byte, of an array its first item */
} GgufValue;

enum { GGUF_DIMS = 4 };
typedef struct {
    const char     *name;
    const GgufType *type;
    int             n_dims;
    int64_t         dim[GGUF_DIMS]; /* rows first, as everywhere in hone (the file has them the other way round) */
    const char     *data;           /* in the file; not aligned to anything */
    size_t          bytes;
} GgufTensor;

typedef struct {
    GgufValue  *value;
    GgufTensor *tensor;
    size_t      n_values, n_tensors;
    const char *label, *end;        /* end: of the file */
} Gguf;

/* A whole file in memory, which must stay there. */
bool gguf_parse(Gguf *out, const char *data, size_t n, const char *label, Mem *mem, Err *err);
bool gguf_is(const char *path);     /* a file that begins as one */

const GgufValue *gguf_get(const Gguf *g, const char *key);      /* NULL: not there */
/* Of what is there the type is checked; of what is not, *out stays. */
bool gguf_int(const Gguf *g, const char *key, int64_t *out, Err *err);
bool gguf_real(const Gguf *g, const char *key, double *out, Err *err);
bool gguf_flag(const Gguf *g, const char *key, bool *out, Err *err);
bool gguf_text(const Gguf *g, const char *key, const char **s, size_t *n, Err *err);

typedef struct { char s[44]; } GgufShown;
GgufShown gguf_shown(const char *s, size_t n);                  /* a text of the file as a message may have it */

/* An array's items, one after another: at = v->data, then as often as there are items. */
bool gguf_next_text(const char **at, const char *end, const char **s, size_t *n);
int64_t gguf_item(const GgufValue *v, uint64_t i);              /* of an array of whole numbers */

#endif
