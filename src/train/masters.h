/* masters.h - masters of BF16 weights from a folder whose numbers have more bits than the weights: a checkpoint, a
 * model in F32, F16 or float8.  (Of one in BF16 they are what optim_open made of the weights.) */
#ifndef TRAIN_MASTERS_H
#define TRAIN_MASTERS_H

#include "train/optim.h"

/* This rank's pieces, from the folder that the weights were read from: those are the masters
 * rounded.  Nothing where weights are F32. */
bool masters_load(Optim *o, const Params *w, const Params *grads, Dev *d, const char *dir, Err *err);

#endif
