/* device.h - where a verb computes: --device auto|cpu|cuda|cuda:N and --compute bf16|f32, or trainer.device and
 * trainer.compute.
 *
 * auto takes a GPU where there is one that this build is for, else the CPU, and says so in one line; a GPU that fails
 * is an error.  The CPU computes in float32; a GPU in bfloat16, or in float32 to check. */
#ifndef OP_DEVICE_H
#define OP_DEVICE_H

#include "op/near.h"
#include "op/op.h"

/* device, compute NULL: auto; what the device likes best. local: this rank among those of the machine ('ranks'; 0: it
 * is alone), which takes the GPU of its number; share: one without a GPU of its own takes the first. near: where it
 * is told what of the machine is bound to (near.h), or NULL: nothing is; own_threads: their number is the user's. */
typedef struct {
    const char *device, *compute;
    int threads;
    bool guard;
    int local, ranks;
    bool share, own_threads;
    Near *near;
} DeviceArgs;
bool device_open(Dev *d, const DeviceArgs *a, Err *err);
bool device_check(const char *device, const char *compute, Err *err);                 /* the words alone */
bool device_is_gpu(const char *device);                                               /* a GPU and nothing else */

static inline bool on_gpu(const Dev *d) { return dev_about(d).total > 0; }
/* Unless somebody says another number: as many as the device likes, and one for every rank that a sum is cut among (tp,
 * etp) at least. */
static inline int leaves_default(bool gpu, int64_t cut) { return cut > (gpu ? 1 : 8) ? (int)cut : gpu ? 1 : 8; }

#endif
