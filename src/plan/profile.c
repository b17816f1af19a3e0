/* profile.c - how stacks spend memory and time.  Which constants were fitted, on which published rows, and what the
 * others then predict: docs/plan.md. */
#include "plan/plan.h"

#include <string.h>

/* clang-format off */
const char *const MEM_NAMES[MEM_COUNT] = { "weights", "gradients", "optimizer", "activations", "working", "head",
                                           "engine", "kv cache", "buffers", "runtime" };
const char *const HOST_NAMES[HOST_COUNT] = { "optimizer", "parked",     "gradients", "weights",
                                             "reference", "checkpoint", "processes" };
const char *const PHASE_NAMES[PH_COUNT] = { "rollout", "sync", "old log-prob", "reference", "update", "optimizer",
                                            "other" };
const char *const BOUND_NAMES[BOUND_COUNT] = { "compute", "memory bandwidth", "network", "launch", "optimizer",
                                               "bubble", "imbalance", "long tail", "host" };

static const Profile TABLE[] = {
    { .name = "hone",
      .about = "this program: one copy of the weights where the cuts coincide, no old log-prob pass, exact sizes, "
               "host AdamW at memory bandwidth",
      .weight = 2, .grad = 4, .optimizer = 12, .kv = 2,
      .runtime = 3e9, .gen_work = 3e9, .host_base = 30 * 0x1p30,
      .one_copy = true, .pinned_pow2 = false, .old_pass = false, .absorbed = true, .balanced = true,
      .launch = 2.5e-6, .running = 4096, .block_work = 0.35e-9, .row_work = 7e-6,
      .a2a = 0.5, .ring = 0.65, .latency = 60e-6, .adam_rate = 0, .adam_fixed = 0.05, .decode_bw = 0.85,
      .decode_layer = 60e-6, .decode_row = 0.45e-6,
      .misc = 0.03, .move_rate = 0, .sync_whole = false, .sync_tensor = 50e-6 },
    { .name = "verl",
      .about = "verl + Megatron + vLLM as published in 2025: eager decoding, host AdamW on one thread a rank, an old "
               "log-prob pass, every tensor rebuilt on every rank",
      .weight = 2, .grad = 4, .optimizer = 12, .kv = 2,
      .runtime = 8e9, .gen_work = 5e9, .host_base = 120 * 0x1p30,
      .one_copy = false, .pinned_pow2 = true, .old_pass = true, .balanced = true,
      .launch = 31e-6, .running = 1024, .block_work = 1.0e-9, .row_work = 30.5e-6,
      .a2a = 0.5, .ring = 0.65, .latency = 90e-6, .adam_rate = 278e6, .adam_whole = true, .adam_fixed = 0,
      .decode_bw = 0.85, .misc = 0.01, .move_rate = 3e9, .state_rate = 0.63e9,
      .sync_whole = true, .sync_tensor = 0.45e-3 },
    { .name = "nemo",
      .about = "NeMo-RL 0.6 + Megatron + vLLM as published in 2026: optimizer on the device, refit by collectives",
      .weight = 2, .grad = 4, .optimizer = 12, .kv = 2,
      .runtime = 8e9, .gen_work = 5e9, .host_base = 120 * 0x1p30,
      .one_copy = false, .pinned_pow2 = false, .old_pass = true, .balanced = true, .scattered = true,
      .launch = 3e-6, .running = 1024, .block_work = 1.0e-9, .row_work = 30.5e-6,
      .a2a = 0.5, .ring = 0.65, .latency = 90e-6, .adam_rate = 278e6, .adam_fixed = 0, .decode_bw = 0.85,
      .misc = 0.04, .move_rate = 0, .sync_whole = true, .sync_tensor = 1.1e-3, .sequence = 0.020 },
};
/* clang-format on */

const Profile *profile_find(const char *name) {
    for (size_t i = 0; i < COUNT(TABLE); i++)
        if (!strcmp(TABLE[i].name, name)) return &TABLE[i];
    return NULL;
}

void profile_list(Buf *out) {
    for (size_t i = 0; i < COUNT(TABLE); i++) buf_printf(out, "%s%s", i ? ", " : "", TABLE[i].name);
}
