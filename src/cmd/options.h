/* options.h - rows of options that several verbs share; Args is a verb's struct of arguments. */
#ifndef CMD_OPTIONS_H
#define CMD_OPTIONS_H

#include "cmd/cmd.h"
#include "op/device.h"

/* A verb's rows of options: its Args hold const char *device, *compute. */
#define DEVICE_OPTIONS(Args) \
    { "device",  OPT_STR, offsetof(Args, device),  "auto|cpu|cuda|cuda:N", "where to compute" }, \
    { "compute", OPT_STR, offsetof(Args, compute), "bf16|f32", "what a GPU computes in; f32 is for checking" }

/* ... and int64_t leaves, 0: as many as the device likes */
#define LEAVES_OPTION(Args) \
    { "leaves", OPT_INT, offsetof(Args, leaves), "N",                                                                  \
      "pieces of every sum that tensor parallelism may cut: a power of two to 32", 1, LEAVES_MOST }
/* ... and const char *grid, NULL: dp */
#define GRID_OPTION(Args) \
    { "grid", OPT_STR, offsetof(Args, grid), "tp=2,pp=2,...",                                                          \
      "how the ranks that mpirun started are arranged: tp, pp, vpp, ep, etp, cp, dp" }
/* ... and const char *adapter, NULL: none */
#define ADAPTER_OPTION(Args) \
    { "adapter", OPT_STR, offsetof(Args, adapter), "DIR", "add this adapter, a folder as peft writes it, to MODEL" }
#define LEAVES_WANTED "--leaves must be a power of two to 32"
/* ... and int64_t random, below 0: from files */
#define RANDOM_OPTION(Args) \
    { "random", OPT_INT, offsetof(Args, random), "SEED",                                                               \
      "weights from this seed and config.json, not from files", 0, 9e15 }

#endif
