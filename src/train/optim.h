/* optim.h - AdamW over this rank's pieces of the parameter table (train/reduce.h): their
 * states, cut between the device and a second, host-side arena.
 *
 * The cut is by position in the own pieces, one behind the other: the first 'offload' share lies on the host and is
 * stepped there (dev_host_arena), the rest on the device.  Both are stepped by the same
 * arithmetic, so the share has no effect on bits.
 *
 * Weights in BF16 have a master, which is what is trained, saved and loaded; w is it rounded, on all ranks.  A master
 * and two moments are 12, 8 or 6 bytes a parameter, moments beside weights in F32 8 or 4 (what has one dimension is F32
 * always and leaves its master unused). */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include "train/reduce.h"

/* clip: largest global norm; 0: none.  tower_lr: the rate of the vision tower and its merger; 0: lr. */
typedef struct { double lr, beta1, beta2, eps, decay, clip, tower_lr; } AdamConf;

/* How a run keeps them.  weights: the model's matrices.  master, of BF16 weights: F32, or
 * I16, what rounding took (op/adam.h).  moments: F32 or BF16. */
typedef struct { DType weights, master, moments; } OptimTypes;
static inline size_t optim_param_bytes(OptimTypes t) {
    return (t.weights == DT_F32 ? 0 : dtype_size(t.master)) + 2 * dtype_size(t.moments);
}

typedef enum { STATE_MASTER, STATE_M, STATE_V, STATES } OptimState;
typedef struct {
    OptimTypes type;
    const Params *w;              /* of these weights */
    Arena   dev, host;            /* the states of each share, one behind the other */
    bool    borrowed;             /* dev lies in memory that somebody else owns, and */
    char   *offloaded;            /* room for dev in the host's memory: they are there while is_offloaded; or NULL */
    bool    is_offloaded;
    Tensor  state[STATES][2];     /* [0] host [1] device, flat [1,n]; no master of weights in F32 */
    Span    own[REGIONS];         /* the pieces, of the gradients' flat order */
    int64_t at[REGIONS];          /* where each begins in the states */
    int64_t split, n;             /* elements of a state; those below split are on the host */
    int64_t step;                 /* updates done */
} Optim;

size_t optim_bytes(int64_t own, OptimTypes type, double offload, bool host);       /* own: reduce_own_count */
/* Moments are 0, masters what w holds: where that was rounded, masters_load (train/masters.h) reads them again. */
void   optim_open (Optim *o, const Params *w, const Params *grads, Dev *d, OptimTypes type, double offload);
/* The same with the device's share in memory that others use when it is offloaded to 'offloaded', as many bytes. */
void optim_open_in(Optim *o, const Params *w, const Params *grads, Dev *d, OptimTypes type, double offload, Arena in,
                   void *offloaded);
void   optim_offload(Optim *o, Dev *d);                       /* nothing where it is offloaded, or cannot be */
void   optim_reload(Optim *o, Dev *d);
void   optim_close(Optim *o, Dev *d);

/* Which elements of parameter i are in this rank's pieces; *at: where the first of them lies in the states. */
Span optim_own(const Optim *o, const Params *grads, int i, int64_t *at);
/* Elements [from, from+n) of a state, wherever they lie: 1 or 2 tensors [1,k] in order; how many. */
int optim_parts(const Optim *o, OptimState which, int64_t from, int64_t n, Tensor out[2]);

/* The same elements as float32 on the host, out and in.  w: the parameter's weights [1,n] of these elements, which a
 * master in I16 is read with (and which must be what is put, rounded). */
void optim_get(const Optim *o, Dev *d, OptimState which, int64_t from, int64_t n, Tensor w, float *to);
void weights_get(Dev *d, Tensor w, float *to);                              /* F32 or BF16 [1,n] */
void optim_weights(const Optim *o, Dev *d, Tensor w, float *to);            /* the same of o->w, wherever they are
                                                                             * (params_offload) */
void optim_put(Optim *o, Dev *d, OptimState which, int64_t from, int64_t n, const float *x);

/* One update of the own pieces, with summed gradients scaled so that their norm (reduce_norm) is at most clip; then all
 * ranks have all weights.  Matrices decay, vectors do not. */
void optim_step(Optim *o, const Params *w, const Params *grads, const Groups *par, Dev *d, const AdamConf *c,
                double norm);

#endif
