/* put_raw.h - the pieces of which put.c and put_vocab.c make values. */
#ifndef GGUF_PUT_RAW_H
#define GGUF_PUT_RAW_H

#include "gguf/put.h"

void gguf_raw(Buf *b, uint64_t v, int bytes);                       /* the lowest byte first */
void gguf_raw_text(Buf *b, const char *s, size_t n);
Buf *gguf_raw_key(GgufOut *o, const char *key, GgufKind kind);      /* the value is put behind it */

#endif
