/* optim.h - AdamW over the parameter table, its two states cut between the device and a second, host-side arena.
 *
 * The cut is by position in the flat order of the trainable parameters: the first 'offload' share lies on the host and is
 * stepped there, the rest on the device.  Both are stepped by the same arithmetic, so the share has no effect on bits. */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include "param/param.h"

typedef struct { double lr, beta1, beta2, eps, decay, clip; } AdamConf;      /* clip: largest global norm; 0: none */

typedef struct {
    Arena   dev, host;            /* m then v of each share */
    Tensor  m[2], v[2];           /* [0] host [1] device, flat [1,n] */
    int64_t split, n;             /* flat elements below split are on the host */
    int64_t step;                 /* updates done */
} Optim;

size_t optim_bytes(const Params *grads, double offload, bool host);
void   optim_open (Optim *o, const Params *grads, Dev *d, double offload);
void   optim_close(Optim *o, Dev *d);

/* The norm over all gradients (each tied matrix once; frozen parameters have none). */
double optim_norm(const Params *grads, Dev *d);

/* One update of the weights with gradients scaled so that their norm is at most clip; matrices decay, vectors do not.  Where w is
 * BF16, 'full' is stepped and w becomes it rounded; else full is w. */
void optim_step(Optim *o, const Params *w, const Params *full, const Params *grads, Dev *d, const AdamConf *c, double norm);

#endif
