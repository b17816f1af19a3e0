/* kept.h - what one layer leaves for backward, in bytes of a token: the model's own code, run on the device that
 * computes nothing (model/sizes.c).  For clusters whose processes are not there; a process that is about to run asks
 * for the whole of its batch. */
#ifndef PLAN_KEPT_H
#define PLAN_KEPT_H

#include "arch/arch.h"
#include "tensor/tensor.h"

typedef struct {
    Recompute recompute;
    DType     act;
    bool      gpu;                      /* layers as they run there, also where no backend for one is */
    bool      spread;                   /* experts are on several ranks, and their rows come in rounds (par/par.h) */
} KeptHow;

/* What was asked before: layers of one kind keep the same.  {0} is an empty one. */
typedef struct {
    int n;
    struct { LayerSpec spec; KeptHow how; double bytes; } at[64];
} KeptMemo;

double kept_layer(KeptMemo *memo, const ModelDesc *m, int layer, KeptHow how);
double kept_tower(const ModelDesc *m, KeptHow how);    /* of a patch of a picture, whose vision tower it is */

#endif
