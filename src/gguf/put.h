/* put.h - what a GGUF file begins with, written: keys with values, then where each tensor lies. */
#ifndef GGUF_PUT_H
#define GGUF_PUT_H

#include "base/json.h"
#include "gguf/inside.h"

enum { GGUF_ALIGN = 32 };
typedef struct { Buf values, tensors; uint64_t n_values, n_tensors, bytes; } GgufOut;   /* bytes: of tensors so far */

void gguf_put_text(GgufOut *o, const char *key, const char *s, size_t n);
void gguf_put_int (GgufOut *o, const char *key, int64_t v);                 /* as 32 bits */
void gguf_put_real(GgufOut *o, const char *key, float v);
void gguf_put_flag(GgufOut *o, const char *key, bool v);
/* type: as GgufType has its name; rows first.  Its bytes begin at a multiple of GGUF_ALIGN behind the header. */
void gguf_put_tensor(GgufOut *o, const char *name, const char *type, int n_dims, const int64_t *dim);
void gguf_put_all(Buf *out, GgufOut *o);        /* the header, padded; frees o */

/* A tokenizer of a model with 'vocab' rows of embeddings, as metadata; config: tokenizer_config.json; template: NULL or
 * the chat template; eos: what may end an answer.  False: llama.cpp has no such tokenizer, and err says why. */
typedef struct {
    const Json    *tokenizer, *config;
    const char    *template;
    size_t         template_n;
    int64_t        vocab, bos, pad, n_eos;
    const int64_t *eos;
} GgufVocab;
bool gguf_put_vocab(GgufOut *o, const GgufVocab *v, Err *err);

#endif
