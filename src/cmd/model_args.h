/* model_args.h - what the verbs that write models take from the command line. */
#ifndef CMD_MODEL_ARGS_H
#define CMD_MODEL_ARGS_H

#include "base/file.h"
#include "param/param.h"

bool    arg_dtype(DType *out, const char *text, Err *err);       /* f32, bf16 */
bool    arg_gguf(const char *out);                               /* OUT ends in .gguf: a GGUF file is meant */
/* What a GGUF file's matrices may be: f32, f16, bf16, q8_0, ...; text NULL: the widest that the model's files have */
bool    arg_gguf_dtype(DType *out, const char *text, const char *model, Err *err);
int64_t arg_bytes(const char *text);                             /* "5GB", "200MB", "1GiB", "4096"; -1: not a size */
/* OUT must not exist, or --force; and never be 'from', the model that it is made of: that would be gone. */
bool    arg_out(const char *out, const char *from, bool force, Err *err);
/* The model m, from its files into the folder out, in another format or in files of another size; threads 0: all
 * cores. */
bool    write_as(const ModelDesc *m, const char *out, DType t, int64_t shard_bytes, int threads, Err *err);
/* The same with an adapter's folder added into the weights. */
bool    write_merged(const ModelDesc *m, const char *adapter, const char *out, DType t, int64_t shard_bytes,
                     int threads, Err *err);

/* ... into the GGUF file 'out'; modelfile: Ollama's Modelfile in its folder, which must not be there, or 'force'. */
bool    write_gguf(const ModelDesc *m, const char *out, DType t, int threads, bool modelfile, bool force, Err *err);

#endif
