/* verb_export.c - `hone export`: the model of a run's newest whole checkpoint, as a folder that anyone loads. */
#include "cmd/cmd.h"
#include "cmd/model_args.h"
#include "model/open.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *dtype, *shard_size;
    int64_t step;
    bool force, modelfile;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "dtype",      OPT_STR,  offsetof(Args, dtype),      "bf16|f32",
      "how weights are written; f32, as they were trained; of a GGUF file also f16, q8_0, q5_1, q5_0, q4_1, q4_0" },
    { "shard-size", OPT_STR,  offsetof(Args, shard_size), "SIZE",     "largest file; 5GB" },
    { "step",       OPT_INT,  offsetof(Args, step),       "N",
      "the model after step N, if that checkpoint is kept; the newest", 1, 1e9 },
    { "force",      OPT_FLAG, offsetof(Args, force),      "",         "replace OUT if it is there" },
    { "modelfile",  OPT_FLAG, offsetof(Args, modelfile),  "",
      "with a GGUF file, Ollama's Modelfile beside it" },
    { 0 },
};
/* clang-format on */

static bool write_model(const Args *a, const char *from, const char *out, Mem *mem, Err *err) {
    ModelDesc m;
    DType t;
    int64_t shard = arg_bytes(a->shard_size);
    bool gguf = arg_gguf(out);
    if (a->modelfile && !gguf) return err_set(err, "--modelfile goes with an OUT that ends in .gguf");
    TRY(gguf ? arg_gguf_dtype(&t, a->dtype, NULL, err) : arg_dtype(&t, a->dtype, err));
    TRY(model_desc_load(&m, from, mem, err) && arg_out(out, m.dir, a->force, err));
    if (shard < 1) return err_set(err, "--shard-size wants a size like 5GB or 200MB, not '%s'", a->shard_size);
    return gguf ? write_gguf(&m, out, t, 0, a->modelfile, a->force, err) : write_as(&m, out, t, shard, 0, err);
}

/* Of a run that trained an adapter: its folder as it is. */
static bool write_adapter(const Args *a, const char *from, const char *out, Mem *mem, Err *err) {
    if (arg_gguf(out))
        return err_set(err, "%s: the run trained an adapter: merge it (hone convert --merge), then convert that", out);
    TRY(arg_out(out, from, a->force, err));
    if (dir_exists(out) && !peft_is(out))
        return err_set(err, "%s: is there and is no adapter's folder: it is left alone, choose another name", out);
    DIR *dir = opendir(from);
    bool ok = dir ? dir_make(out, err) : err_set(err, "%s: cannot read the folder: %s", from, strerror(errno));
    for (struct dirent *e; ok && (e = readdir(dir));) {
        Buf data = { 0 };
        if (e->d_name[0] != '.')
            ok = file_read(&data, mem_printf(mem, "%s/%s", from, e->d_name), err)
                 && file_write(mem_printf(mem, "%s/%s", out, e->d_name), data.data, data.n, err);
        buf_free(&data);
    }
    if (dir) closedir(dir);
    return ok && dir_sync(out, err);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .dtype = "f32", .shard_size = "5GB" };
    const char *words[2], *path;
    Err err;
    int rc = opt_parse(v, &a, words, 2, 2, NULL, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    int64_t step = a.step;
    bool ok = a.step ? checkpoint_at(words[0], a.step, LOOK_MODEL, &path, &mem, &err)
                     : checkpoint_find(words[0], LOOK_MODEL, &path, &step, &mem, &err);
    if (ok && !path) ok = err_set(&err, "%s: holds no checkpoint (a run folder has checkpoints/step-...)", words[0]);
    if (ok) {
        char *model = mem_printf(&mem, "%s/model", path), *adapter = mem_printf(&mem, "%s/adapter", path);
        bool adapts = !dir_exists(model) && peft_is(adapter);
        ok = adapts ? write_adapter(&a, adapter, words[1], &mem, &err) : write_model(&a, model, words[1], &mem, &err);
        if (ok && adapts) printf("%s: the adapter after %" PRId64 " steps of %s\n", words[1], step, words[0]);
        else if (ok) printf("%s: the model after %" PRId64 " steps of %s\n", words[1], step, words[0]);
    }
    mem_free(&mem);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_export = {
    .name = "export",
    .usage = "RUN OUT [--step N] [--dtype bf16|f32]",
    .summary = "write a run's model as a folder or a GGUF file that anyone loads",
    .options = options,
    .run = run,
};
