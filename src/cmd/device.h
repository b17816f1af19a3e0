/* device.h - where a verb computes: --device auto|cpu|cuda|cuda:N and --compute bf16|f32, or trainer.device and trainer.compute.
 *
 * auto takes a GPU where there is one that this build is for, else the CPU, and says so in one line; a GPU that fails is an error.  The
 * CPU computes in float32; a GPU in bfloat16, or in float32 to check. */
#ifndef CMD_DEVICE_H
#define CMD_DEVICE_H

#include "op/op.h"

typedef struct { const char *device, *compute; int threads; bool guard; } DeviceArgs;        /* NULL: auto; what the device likes best */
bool device_open(Dev *d, const DeviceArgs *a, Err *err);
bool device_check(const char *device, const char *compute, Err *err);                         /* the words alone */

static inline bool on_gpu(const Dev *d) { return dev_about(d).total > 0; }
static inline int device_leaves(const Dev *d) { return on_gpu(d) ? 1 : 8; }                   /* unless somebody says another number */

/* A verb's rows of options: its Args hold const char *device, *compute. */
#define DEVICE_OPTIONS(Args) \
    { "device",  OPT_STR, offsetof(Args, device),  "auto|cpu|cuda|cuda:N", "where to compute" }, \
    { "compute", OPT_STR, offsetof(Args, compute), "bf16|f32", "what a GPU computes in; f32 is for checking" }

/* ... and int64_t leaves, 0: as many as the device likes */
#define LEAVES_OPTION(Args) \
    { "leaves", OPT_INT, offsetof(Args, leaves), "N", "pieces of every sum that tensor parallelism may cut: a power of two to 32", 1, LEAVES_MOST }
/* ... and const char *grid, NULL: dp */
#define GRID_OPTION(Args) \
    { "grid", OPT_STR, offsetof(Args, grid), "tp=2,pp=2,...", "how the ranks that mpirun started are arranged: tp, pp, vpp, ep, etp, cp, dp" }
#define LEAVES_WANTED "--leaves must be a power of two to 32"

#endif
