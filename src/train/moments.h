/* moments.h - the optimizer's two averages of each weight under that weight's name: "m.NAME" and "v.NAME", shaped as
 * the weight is on disk.  Where they lie in memory (the table's order, the ranks' pieces, the share on the host) is
 * nobody's business but this build's. */
#ifndef TRAIN_MOMENTS_H
#define TRAIN_MOMENTS_H

#include "file/safetensors.h"
#include "train/optim.h"

/* Tensor 2k of the file is m, 2k+1 is v of the k-th trainable tensor of the whole model, as arch_each_param counts. */
typedef struct {
    StSpec  *spec;              /* [n] */
    size_t   n;
    int64_t *flat;              /* [n/2]: where it stood in a file without names: in table order, on memory's borders */
    size_t  *first;             /* [grads->n]: k of a parameter, of its expert 0 if there are several */
} Moments;

Moments moments_of(const Params *grads, DType t, Mem *mem);

/* Two tensors "m" and "v" in flat order, as they were written before they had names. */
static inline bool moments_are_flat(const StFiles *f) { return st_find(f, "m") != NULL; }
/* Every tensor is there with its shape, all F32 or all BF16, and no other; or of the flat ones both. */
bool moments_check(const Moments *x, const Params *grads, const StFiles *f, Err *err);
/* This rank's pieces of the flat ones. */
void moments_load_flat(Optim *o, const Moments *x, const Params *grads, Dev *d, const StFiles *f);

#endif
