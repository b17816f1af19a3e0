/* verb_bench.c - `hone bench WHAT [MODEL]`: see bench.h. */
#include "cmd/bench/bench.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
const BenchKind bench_kinds[] = {
    { "train-slice", bench_train,     "forward, loss and backward of a mini-batch", true },
    { "logprob",     bench_logprob,   "log-probs of a mini-batch", true },
    { "decode",      bench_decode,    "steps of sampling", true },
    { "ops",         bench_train,     "train-slice, op by op", true },
    { "optimizer",   bench_optimizer, "AdamW and the norm of the gradient", false },
    { "link",        bench_link,      "bytes to the device and back; under mpirun between ranks", false },
    { "tower",       bench_tower,     "pictures of 1920 x 1080 through a vision tower", true },
    { "load",        bench_load,      "a model's files to the device", true },
    { 0 },
};

static const Opt options[] = {
    { "layers",    OPT_INT, offsetof(BenchArgs, layers),    "N", "the model's first N layers (default all)", 1, 512 },
    { "tokens",    OPT_INT, offsetof(BenchArgs, tokens),    "N",
      "of a micro-batch, or of a prefill's step (default 16384)", 1, 1 << 24 },
    { "length",    OPT_INT, offsetof(BenchArgs, length),    "N", "of a sequence (default 4096)", 2, 1 << 24 },
    { "recompute", OPT_STR, offsetof(BenchArgs, recompute), "none|selective|full", "train-slice (default none)" },
    { "keep-logits", OPT_FLAG, offsetof(BenchArgs, keep_logits), "", "train-slice: as train.keep_logits" },
    { "batch",     OPT_INT, offsetof(BenchArgs, batch),     "N",
      "decode: sequences (default 64); tower: pictures, to 100", 1, 65536 },
    { "context",   OPT_INT, offsetof(BenchArgs, context),   "N",
      "decode: tokens before the one drawn, in the mean (default 1500)", 1, 1 << 24 },
    { "answer",    OPT_INT, offsetof(BenchArgs, answer),    "N",
      "decode: tokens drawn for each (default 32)", 4, 4096 },
    { "params",    OPT_INT, offsetof(BenchArgs, params),    "N", "optimizer: parameters (default 300000000)", 8, 1e12 },
    { "repeats",   OPT_INT, offsetof(BenchArgs, repeats),   "N", "how often (default 5)", 1, 100 },
    { "lines",     OPT_INT, offsetof(BenchArgs, lines),     "N", "so many ops and shapes, the longest first", 1, 256 },
    { "profile",   OPT_STR, offsetof(BenchArgs, profile),   "FILE",
      "a timeline of the ops, for Perfetto or chrome://tracing" },
    { "threads",   OPT_INT, offsetof(BenchArgs, threads),   "N", "threads (default: all cores)", 1, 1024 },
    { "write",     OPT_STR, offsetof(BenchArgs, write),     "FILE",
      "link under mpirun: a cluster file, for `hone plan --cluster FILE`" },
    { "share-gpu", OPT_FLAG, offsetof(BenchArgs, share_gpu), "", "link under mpirun: ranks may share a GPU" },
    LEAVES_OPTION(BenchArgs),
    DEVICE_OPTIONS(BenchArgs),
    { 0 },
};
/* clang-format on */

static int run(const Verb *v, int argc, char **argv) {
    BenchArgs a = { .recompute = "none",
                    .tokens = 16384,
                    .length = 4096,
                    .batch = 64,
                    .context = 1500,
                    .answer = 32,
                    .params = 300000000,
                    .repeats = 5 };
    const char *words[2] = { 0 };
    int n = 0, rc = opt_parse(v, &a, words, 1, 2, &n, argc, argv);
    if (rc >= 0) return rc;
    if (a.leaves && !leaves_fit(a.leaves)) return cmd_usage(v, LEAVES_WANTED);
    const BenchKind *k = bench_kinds;
    while (k->name && strcmp(k->name, words[0])) k++;
    if (!k->name) return cmd_usage(v, "there is no bench '%s'; `hone bench --help` lists them", words[0]);
    if (k->model != (n == 2))
        return cmd_usage(v, "%s wants %s", k->name, k->model ? "a model, or its config.json" : "no model");
    a.what = k->name, a.model = words[1];
    if (!strcmp(k->name, "ops") && !a.lines) a.lines = 40;
    Bench b;
    Err err;
    if (world_launch().size > 1) {
        if (strcmp(k->name, "link")) return cmd_usage(v, "under mpirun there is `hone bench link` alone");
        return bench_ranks(&a, &err) ? 0 : cmd_fail(v, &err);
    }
    bool ok = bench_open(&b, &a, &err) && k->run(&b, &err);
    if (ok) printf("%s}\n", b.out.data);
    bench_close(&b);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_bench = {
    .name = "bench",
    .usage = "train-slice|logprob|decode|ops|optimizer|link|tower|load [MODEL|config.json]",
    .ranks = true,
    .summary = "how quick this machine is at a part of a run, as JSON",
    .detail =
        "Weights are random but for load, so a config.json is enough.  Achieved figures stand beside a roof that is "
        "measured in the\nsame call: \"roof_tflops\" a large product, \"roof_gb_per_s\" bytes read and written by a "
        "long "
        "copy.\n",
    .options = options,
    .run = run,
};
