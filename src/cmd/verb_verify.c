/* verb_verify.c - `hone verify`: does this program compute what the reference computed? */
#include "cmd/asked.h"
#include "cmd/options.h"
#include "cmd/verify/golden.h"
#include "cmd/verify/verify_algos.h"
#include "cmd/verify/verify_balance.h"
#include "cmd/verify/verify_blame.h"
#include "cmd/verify/verify_talk.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *golden, *dump, *algos, *balance, *blame, *out, *recompute, *model, *adapter;
    int64_t threads, leaves;
    bool guard, json;
    const char *device, *compute, *grid;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "golden",    OPT_STR,  offsetof(Args, golden),    "DIR",
      "folder with golden.safetensors and the like; MODEL itself if absent" },
    { "dump",      OPT_STR,  offsetof(Args, dump),      "DIR",
      "write our own grad.safetensors and step.safetensors there" },
    { "algos",     OPT_STR,  offsetof(Args, algos),     "FILE",
      "check a file of algorithm cases instead (advantages, losses, KL)" },
    { "balance",   OPT_STR,  offsetof(Args, balance),   "FILE",
      "check a file of partitions instead: lengths split into equal parts" },
    { "blame",     OPT_STR,  offsetof(Args, blame),     "RUN",
      "which op made the sampler's log-probs others than the trainer's: from RUN/difference alone" },
    { "out",       OPT_STR,  offsetof(Args, out),       "FILE",
      "with --algos or --balance: write our own values there" },
    { "model",     OPT_STR,  offsetof(Args, model),     "DIR",
      "of an adapter's folder: the model it is for, in place of the one that it names" },
    ADAPTER_OPTION(Args),
    { "recompute", OPT_STR,  offsetof(Args, recompute), "none|selective|full",
      "which activations are thrown away and made again" },
    { "threads",   OPT_INT,  offsetof(Args, threads),   "N",    "threads; all cores", 0, THREADS_MOST },
    LEAVES_OPTION(Args),
    GRID_OPTION(Args),
    DEVICE_OPTIONS(Args),
    { "guard",     OPT_FLAG, offsetof(Args, guard),     "",     "device memory is inaccessible except inside an op" },
    { "json",      OPT_FLAG, offsetof(Args, json),      "",     "the result as one JSON object" },
    { 0 },
};
/* clang-format on */

static int blame(const Verb *v, const Args *a, int words, bool launched) {
    OpenOpts oo = {
        .threads = a->threads, .leaves = a->leaves, .device = a->device, .compute = a->compute, .guard = a->guard
    };
    bool found;
    Err err;
    if (launched || words || a->json)
        return cmd_usage(v, "--blame takes no MODEL and no --json, and is one process's work");
    return verify_blame(a->blame, &oo, &found, &err) ? found : cmd_fail(v, &err);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .recompute = "none" };
    const char *model = NULL;
    Err err;
    int n, rc = opt_parse(v, &a, &model, 0, 1, &n, argc, argv);
    if (rc >= 0) return rc;
    bool launched = world_launch().size > 1;
    if (launched && (a.algos || a.balance || a.dump))
        return cmd_usage(v, "--algos, --balance and --dump are one process's work");
    if (a.algos && a.json) return cmd_usage(v, "--json goes with MODEL; --algos writes its values to --out");
    if (a.algos) return n ? cmd_usage(v, "--algos takes no MODEL") : verify_algos(a.algos, a.out, 1e-5);
    if (a.balance && (n || a.json)) return cmd_usage(v, "--balance takes no MODEL, and writes its values to --out");
    if (a.balance) return verify_balance(a.balance, a.out);
    if (a.leaves && !leaves_fit(a.leaves)) return cmd_usage(v, LEAVES_WANTED);
    if (a.blame) return blame(v, &a, n, launched);
    if (!n) return cmd_usage(v, "MODEL is missing");
    if (!launched && !a.json && verify_talk_is(model)) return verify_talk(model);
    static const char *const kinds[] = { "none", "selective", "full" };
    int kind = 0;
    while (kind < 3 && strcmp(kinds[kind], a.recompute)) kind++;
    if (kind == 3) return cmd_usage(v, "--recompute must be none, selective or full, not '%s'", a.recompute);
    Mem mem = { 0 };
    const char *adapter = a.adapter;
    size_t len = strlen(model);
    while (len > 1 && model[len - 1] == '/') len--;
    model = mem_str(&mem, model, len);
    if (!a.golden) a.golden = model;
    if (!adapter && peft_is(model)) { /* an adapter's folder: the model is the one that it names */
        adapter = model;
        if (a.model) model = a.model;
        else if (!peft_base(&model, adapter, &mem, &err)) return mem_free(&mem), cmd_fail(v, &err);
    }
    GoldenOpts o = {
        .model = model, .golden = a.golden ? a.golden : model, .dump = a.dump, .recompute = (Recompute)kind
    };
    o.open = (OpenOpts){ .threads = a.threads,
                         .leaves = a.leaves,
                         .device = a.device,
                         .compute = a.compute,
                         .guard = a.guard,
                         .adapter = adapter };
    GoldenResult r = { 0 };
    Buf checks = { 0 };
    if (a.json) o.json = &checks, buf_puts(&checks, "[");
    Ranks ranks;
    if (!asked_ranks(&ranks, v, &a, &err)) return cmd_fail(v, &err);
    o.ranks = &ranks, o.open.ranks = &ranks, o.grid = a.grid;
    bool ok = golden_verify(&o, &r, &err);
    if (ok && a.json)
        printf("{\"checks\":%s],\"passed\":%d,\"failed\":%d,\"skipped\":%d}\n", checks.data, r.passed, r.failed,
               r.skipped);
    else if (ok) printf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped);
    buf_free(&checks);
    ranks_close(&ranks);
    mem_free(&mem);
    if (!ok && adapter && !a.json) printf("  FAILED adapter                  %s\n0 passed, 1 failed\n", err.msg);
    return ok ? r.failed != 0 : cmd_fail(v, &err);
}

const Verb verb_verify = {
    .name = "verify",
    .usage = "MODEL|ADAPTER [--golden DIR] [--dump DIR]   |   PATH   |   --algos|--balance FILE [--out FILE]   |   "
             "--blame RUN",
    .summary = "compare a model, or the algorithms, with reference values",
    .options = options,
    .run = run,
    .ranks = true,
    .detail =
        "--blame runs the micro-batch of RUN/difference again both ways and names the first op whose rows "
        "differ, with\n"
        "exit code 1; 0: both agree now.\n"
        "PATH: a file, or a folder of them, with cases of tool calls, of reasoning, of turns behind each other, or of\n"
        "advantages and losses.\n"
        "Under mpirun the sequences go to the ranks of dp, and what each rank reads, holds and computes is told "
        "first.\n",
};
