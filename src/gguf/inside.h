/* inside.h - a model's small files by name, "DIR/config.json", where DIR is a folder or a GGUF file, whose metadata
 * then says the same in the words of the hub: config.json, generation_config.json, tokenizer.json,
 * tokenizer_config.json. */
#ifndef GGUF_INSIDE_H
#define GGUF_INSIDE_H

#include "gguf/gguf.h"

bool model_dir(const char *path);                               /* a folder, or a GGUF file */
bool model_has(const char *path);                               /* as file_exists, errno too */
bool model_read(Buf *out, const char *path, Err *err);          /* as file_read */

/* What there is to tell, as texts; false: hone cannot run such a file, and err says what is in the way. */
bool gguf_config(Buf *out, const Gguf *g, Err *err);
bool gguf_generation(Buf *out, const Gguf *g, Err *err);
bool gguf_tokenizer(Buf *out, const Gguf *g, Err *err);
bool gguf_tokenizer_config(Buf *out, const Gguf *g, Err *err);

/* Families by the names that GGUF has for them. */
typedef struct {
    const char *gguf, *type, *class;    /* general.architecture; config.json's model_type and architectures */
    bool        experts, turned;        /* turned: rows of q and k stand as llama.cpp's rope wants them, in pairs */
    bool        q_bias, norm_always;    /* norm_always: experts' weights are always made to sum to 1 */
} GgufFamily;
const GgufFamily *gguf_family(const Gguf *g, Err *err);
bool gguf_head(const Gguf *g, const GgufFamily *f, int64_t *out, Err *err);      /* columns of a head */
const GgufFamily *gguf_family_of(const char *model_type);       /* NULL: none */

/* How text is cut before merging: a name of llama.cpp's, and what tokenizer.json says for it. */
typedef struct {
    const char *name;
    bool        nfc, ignore_merges, digits;     /* digits: each alone, before the rest */
    const char *pattern;                        /* JSON's way of writing it; NULL: ByteLevel's own */
} GgufPre;
extern const GgufPre gguf_pre[];                /* ends with a row without a name */

#endif
