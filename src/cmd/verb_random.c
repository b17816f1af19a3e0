/* verb_random.c - a randomly initialised checkpoint of any size: for tests, benchmarks and new models. */
#include "cmd/cmd.h"
#include "cmd/model_args.h"

#include <string.h>

typedef struct {
    int64_t seed, threads;
    const char *dtype, *shard;
    bool force;
} Args;

static const Opt options[] = {
    { "seed", OPT_INT, offsetof(Args, seed), "N", "the model is a function of this number (default 0)", 0, 0x1p62 },
    { "dtype", OPT_STR, offsetof(Args, dtype), "bf16|f32", "format of the weights (default: config.json's, else f32)" },
    { "shard-size", OPT_STR, offsetof(Args, shard), "5GB", "largest file (default 5GB)" },
    { "threads", OPT_INT, offsetof(Args, threads), "N", "threads (default: all cores)", 1, THREADS_MOST },
    { "force", OPT_FLAG, offsetof(Args, force), "", "replace OUT if it is there and is a model" },
    { 0 },
};

static bool make(const Args *a, const char *config, const char *out, int64_t shard, Mem *mem, Err *err) {
    ModelDesc m;
    DType t = DT_F32;
    double std;
    TRY(model_desc_load(&m, config, mem, err) && model_desc_runs(&m, err));
    if (!params_init_range(&std, &m, err)) return err_wrap(err, "%s", config);
    if (!a->dtype) t = params_config_dtype(&m);
    else TRY(arg_dtype(&t, a->dtype, err));
    TRY(arg_out(out, m.dir, a->force, err));
    Dev d;
    dev_open(&d, (DevOpts){ .threads = (int)a->threads });
    Params *p = MEM_NEW(mem, Params);
    params_open(p, &m, NULL, &d, t, false, "weights", mem);
    params_random(p, &d, (uint64_t)a->seed);
    Buf text = { 0 };
    params_config_text(&text, &m, t);
    bool folder = dir_exists(config);
    bool ok = params_save(
        p, &d, out,
        (SaveOpts){ .dtype = t, .shard_bytes = shard, .from_dir = folder ? config : NULL, .config_text = text.data },
        err);
    buf_free(&text);
    params_close(p, &d);
    dev_close(&d);
    return ok;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { 0 };
    const char *words[2];
    int rc = opt_parse(v, &a, words, 2, 2, NULL, argc, argv);
    if (rc >= 0) return rc;
    Err err;
    int64_t shard = arg_bytes(a.shard ? a.shard : "5GB");
    if (shard < 1) return cmd_usage(v, "--shard-size wants a size like 5GB or 200MB, not '%s'", a.shard);
    Mem mem = { 0 };
    bool ok = make(&a, words[0], words[1], shard, &mem, &err);
    mem_free(&mem);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_random = {
    .name = "random",
    .usage = "config.json|MODEL OUT [--seed N] [--dtype bf16|f32]",
    .summary = "write a randomly initialised model",
    .detail = "Matrices are normal(0, initializer_range of the config, or 0.02), norms 1, biases 0.  The same seed "
              "gives the\n"
              "same bytes on every machine.  From a folder, its tokenizer files are carried along.\n",
    .options = options,
    .run = run,
};
