/* verb_convert.c - a model in another number format, or in other files: what transformers and hone load back.
 * Float8 blocks become plain numbers, and quantization_config leaves the config. */
#include "cmd/cmd.h"
#include "cmd/model_args.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    int64_t threads;
    const char *dtype, *shard, *merge;
    bool force, modelfile;
} Args;

static const Opt options[] = {
    { "dtype", OPT_STR, offsetof(Args, dtype), "bf16|f32",
      "format of the weights (default bf16); of a GGUF file also f16, q8_0, q5_1, q5_0, q4_1, q4_0" },
    { "shard-size", OPT_STR, offsetof(Args, shard), "5GB", "largest file (default 5GB)" },
    { "merge", OPT_STR, offsetof(Args, merge), "ADAPTER",
      "add this adapter, a folder as peft writes it, to the weights" },
    { "threads", OPT_INT, offsetof(Args, threads), "N", "threads (default: all cores)", 1, THREADS_MOST },
    { "force", OPT_FLAG, offsetof(Args, force), "", "replace OUT if it is there and is a model" },
    { "modelfile", OPT_FLAG, offsetof(Args, modelfile), "", "with a GGUF file, Ollama's Modelfile beside it" },
    { 0 },
};

static bool convert(const Args *a, const char *from, const char *out, DType t, int64_t shard, Mem *mem, Err *err) {
    ModelDesc m;
    TRY(model_desc_load(&m, from, mem, err) && model_desc_runs(&m, err));
    TRY(arg_out(out, m.dir, a->force, err));
    if (a->merge && arg_gguf(out))
        return err_set(err, "--merge writes a folder: merge into one, and convert that to %s", out);
    if (a->merge) return write_merged(&m, a->merge, out, t, shard, (int)a->threads, err);
    if (arg_gguf(out))
        return arg_gguf_dtype(&t, a->dtype, m.dir, err)
               && write_gguf(&m, out, t, (int)a->threads, a->modelfile, a->force, err);
    return write_as(&m, out, t, shard, (int)a->threads, err);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { 0 };
    const char *words[2];
    int rc = opt_parse(v, &a, words, 2, 2, NULL, argc, argv);
    if (rc >= 0) return rc;
    Err err;
    DType t = DT_F32;
    bool gguf = arg_gguf(words[1]);
    if (a.modelfile && !gguf) return cmd_usage(v, "--modelfile goes with an OUT that ends in .gguf");
    if (gguf ? a.dtype && !arg_gguf_dtype(&t, a.dtype, NULL, &err) : !arg_dtype(&t, a.dtype ? a.dtype : "bf16", &err))
        return cmd_usage(v, "%s", err.msg);
    int64_t shard = arg_bytes(a.shard ? a.shard : "5GB");
    if (shard < 1) return cmd_usage(v, "--shard-size wants a size like 5GB or 200MB, not '%s'", a.shard);
    Mem mem = { 0 };
    bool ok = convert(&a, words[0], words[1], t, shard, &mem, &err);
    mem_free(&mem);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_convert = {
    .name = "convert",
    .usage = "MODEL OUT [--dtype bf16|f32] [--shard-size 5GB] [--merge ADAPTER]",
    .summary = "write a model in another number format or in other files",
    .detail =
        "OUT is a folder, or a GGUF file if its name ends in .gguf (--dtype then: the widest that MODEL has).  A "
        "folder\n"
        "gets the weights under the hub's names, config.json and the tokenizer files; it is written beside and\n"
        "renamed.  A router's correction bias stays F32, as it is published.  A weight that is NaN or infinite, or "
        "would\n"
        "be in the new format, is refused by its name and place.\n",
    .options = options,
    .run = run,
};
