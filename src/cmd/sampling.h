/* sampling.h - the sampling options that generate, chat and eval share, on the command line. */
#ifndef CMD_SAMPLING_H
#define CMD_SAMPLING_H

#include "ask/sampling.h"
#include "cmd/cmd.h"
#include "comm/ranks.h"
#include "rollout/replicas.h"

/* Rows of a verb's option table; S is the member of type SamplingArgs. */
#define SAMPLING_OPTS(Args, S)                                                                                         \
    { "temperature", OPT_REAL, offsetof(Args, S.temperature), "T",                                                     \
      "sharper below 1, flatter above; 0: greedy", 0, TEMPERATURE_MOST },                                              \
    { "top-k", OPT_INT, offsetof(Args, S.top_k), "K", "only the K likeliest tokens; 0 or -1: all", -1, 1e9 },          \
    { "top-p", OPT_REAL, offsetof(Args, S.top_p), "P", "only the smallest set of tokens with mass P", 1e-9, 1 },       \
    { "min-p", OPT_REAL, offsetof(Args, S.min_p), "P",                                                                 \
      "only tokens at least P times as likely as the likeliest", 0, 1 },                                               \
    { "max-tokens", OPT_INT, offsetof(Args, S.max_tokens), "N", "longest answer; 256", 1, 1e9 },                       \
    { "min-tokens", OPT_INT, offsetof(Args, S.min_tokens), "N", "no stop token before this many", 0, 1e9 },            \
    { "greedy", OPT_FLAG, offsetof(Args, S.greedy), "", "always the likeliest token" },                                \
    { "ignore-eos", OPT_FLAG, offsetof(Args, S.ignore_eos), "", "go on past the end-of-sequence token" },              \
    { "stop", OPT_STR, offsetof(Args, S.stop), "TEXT",                                                                 \
      "end an answer where this text appears (a line may have \"stop\": [...])" },                                     \
    { "seed", OPT_INT, offsetof(Args, S.seed), "N", "names the random numbers; 0", 0, 9e18 }

/* What a row's range does not say: -1, or the exit code after a message. */
int sampling_opts(const Verb *v, const SamplingArgs *a);

/* --grid of a verb that samples: the ranks arranged so, and the replicas they form.  What is not said: dp, the rest; ep
 * and etp: experts are cut by tp, like everything else. */
bool sampling_grid(Ranks *r, Replicas *out, const char *grid, const ModelDesc *m, int64_t leaves, Err *err);
/* The first rank's clock, as a chat template's "now" (chat_clock).  Collective. */
const char *sampling_clock(const Ranks *r, Mem *mem);
#define SAMPLING_GRID(Args) \
    { "grid", OPT_STR, offsetof(Args, grid), "AXES",                                                                   \
      "under mpirun: tp cuts a replica, ep and etp experts; dp: replicas" }

#endif
