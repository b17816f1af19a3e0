/* gguf_meta.h - a model's description and its folder's small files as a GGUF file's metadata. */
#ifndef PARAM_GGUF_META_H
#define PARAM_GGUF_META_H

#include "arch/arch.h"
#include "gguf/put.h"

/* Everything but the tensors.  False: the format has no place for something of the model, and err says for what. */
bool gguf_put_model(GgufOut *o, const ModelDesc *m, const char *dtype, Err *err);
/* Llama 3.1's scaling as the tensor rope_freqs.weight [head_dim/2]; false: the model has none. */
bool gguf_rope_freqs(const ModelDesc *m, float *out);

#endif
