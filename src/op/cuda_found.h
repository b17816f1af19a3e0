/* cuda_found.h - what a machine's driver said, judged: is there a GPU that this build is for?
 * No driver, no GPU, another GPU: the machine is not one for this backend, and `auto` computes on the CPU.  All else is
 * a fault, which is told with its remedy: a GPU that could be used is not passed over in silence. */
#ifndef OP_CUDA_FOUND_H
#define OP_CUDA_FOUND_H

#include "op/cuda_open.h"

typedef struct {
    int         driver, needs;          /* versions of CUDA, 1000 major + 10 minor; driver 0: there is none */
    const char *counting;               /* why GPUs cannot be counted, or NULL */
    bool        old, none;              /* ... since the driver is too old; since there are none */
    int         count, wanted;          /* GPUs that are visible; the one that is asked for, from 0 */
    const char *asking;                 /* why the GPU does not answer, or NULL */
    const char *name;
    int         major, minor;           /* its capability */
} CudaFound;

/* false: this far and no further, with *s and err set. */
static inline bool cuda_counted(const CudaFound *f, CudaState *s, Err *err) {
    *s = CUDA_ABSENT;
    if (f->driver == 0) return err_set(err, "no GPU driver is installed");
    if (f->none || (!f->counting && f->count == 0)) return err_set(err, "no GPU is visible");
    *s = CUDA_FAILS;
    if (f->old)
        return err_set(
            err,
            "the GPU driver speaks CUDA %d.%d, this build needs %d.%d: install a newer driver, or use --device cpu",
            f->driver / 1000, f->driver % 1000 / 10, f->needs / 1000, f->needs % 1000 / 10);
    if (f->counting)
        return err_set(err, "the GPU driver does not answer (%s): see nvidia-smi, or use --device cpu", f->counting);
    *s = CUDA_ABSENT;
    if (f->wanted >= f->count)
        return err_set(err, "GPU %d was asked for, %d %s visible", f->wanted, f->count, f->count == 1 ? "is" : "are");
    *s = CUDA_READY;
    return true;
}
static inline bool cuda_answered(const CudaFound *f, CudaState *s, Err *err) {
    *s = CUDA_FAILS;
    if (f->asking)
        return err_set(err, "GPU %d does not answer (%s): see nvidia-smi, or use --device cpu", f->wanted, f->asking);
    *s = CUDA_ABSENT;
    if (10 * f->major + f->minor != CUDA_CARD)
        return err_set(err, "GPU %d (%s) has capability %d.%d; this build is for %d.%d", f->wanted, f->name, f->major,
                       f->minor, CUDA_CARD / 10, CUDA_CARD % 10);
    *s = CUDA_READY;
    return true;
}

#endif
