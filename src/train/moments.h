/* moments.h - the optimizer's two averages of each weight under that weight's name: "m.NAME" and "v.NAME", shaped as the weight is on
 * disk.  Where they lie in memory (the table's order, alignment, the share on the host) is nobody's business but this build's. */
#ifndef TRAIN_MOMENTS_H
#define TRAIN_MOMENTS_H

#include "file/safetensors.h"
#include "train/optim.h"

/* Tensor 2k of the file is m, 2k+1 is v of the k-th trainable parameter; both are elements [at[k], at[k]+count[k]) of the flat
 * order. */
typedef struct {
    StSpec  *spec;                /* [n] */
    size_t   n;
    int64_t *at, *count;          /* [n/2] */
} Moments;

Moments moments_of(const Params *grads, Mem *mem);

/* Elements [from, from+n) of tensor i. */
void moments_get(void *to, const Moments *x, size_t i, int64_t from, int64_t n, const Optim *o, Dev *d);

/* Every tensor is there with its shape, and no other.  A file of two tensors "m" and "v" in flat order, as they were written before
 * they had names, is read by position. */
bool moments_load(Optim *o, const Moments *x, Dev *d, const char *path, Err *err);

#endif
