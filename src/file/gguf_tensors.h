/* gguf_tensors.h - a GGUF file's tensors under the hub's names. */
#ifndef FILE_GGUF_TENSORS_H
#define FILE_GGUF_TENSORS_H

#include "file/safetensors.h"
#include "gguf/inside.h"

/* Of a whole file in memory; what its rope scaling says in numbers is left out, since config.json says it. */
bool gguf_tensors(StTensor **at, size_t *n, const char *data, size_t bytes, int file, const char *path, Mem *mem,
                  Err *err);

/* The other way: the file's name for a tensor.  all: it has the same of every expert, one behind the other; expert:
 * which this is.  False: the format has no place for it. */
typedef struct {
    char name[64];
    bool all, turned, whole;    /* turned: its rows stand in turns; whole: never quantised */
    int  expert;
} GgufName;
bool gguf_name(GgufName *out, const GgufFamily *f, const char *hub);

#endif
