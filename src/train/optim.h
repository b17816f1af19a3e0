/* optim.h - AdamW over this rank's pieces of the parameter table (train/reduce.h): their two states, cut between the device and a second,
 * host-side arena.
 *
 * The cut is by position in the own pieces, one behind the other: the first 'offload' share lies on the host and is stepped there, the
 * rest on the device.  Both are stepped by the same arithmetic, so the share has no effect on bits. */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include "train/reduce.h"

typedef struct { double lr, beta1, beta2, eps, decay, clip; } AdamConf;      /* clip: largest global norm; 0: none */

typedef struct {
    Arena   dev, host;            /* m then v of each share */
    Tensor  m[2], v[2];           /* [0] host [1] device, flat [1,n] */
    Span    own[REGIONS];         /* the pieces, of the gradients' flat order */
    int64_t at[REGIONS];          /* where each begins in m and v */
    int64_t split, n;             /* elements of m and v; those below split are on the host */
    int64_t step;                 /* updates done */
} Optim;

size_t optim_bytes(int64_t own, double offload, bool host);                 /* own: reduce_own_count */
void   optim_open (Optim *o, const Params *grads, Dev *d, double offload);
void   optim_close(Optim *o, Dev *d);

/* Which elements of parameter i are in this rank's pieces; *at: where the first of them lies in m and v. */
Span optim_own(const Optim *o, const Params *grads, int i, int64_t *at);
/* Elements [from, from+n) of m or v, wherever they lie: 1 or 2 tensors [1,k] in order; how many. */
int optim_parts(const Optim *o, const Tensor state[2], int64_t from, int64_t n, Tensor out[2]);

/* One update of the own pieces, with summed gradients scaled so that their norm (reduce_norm) is at most clip; then all ranks have all
 * weights.  Matrices decay, vectors do not.  Where w is BF16, 'full' is stepped and w becomes it rounded; else full is w. */
void optim_step(Optim *o, const Params *w, const Params *full, const Params *grads, const Groups *par, Dev *d, const AdamConf *c,
                double norm);

#endif
