/* open.h - what every verb that computes does first: read the config, open the device, lay out and load the weights. */
#ifndef MODEL_OPEN_H
#define MODEL_OPEN_H

#include "comm/ranks.h"
#include "model/model.h"
#include "op/near.h"
#include "param/peft.h"

typedef struct {
    Mem       mem;
    ModelDesc desc;
    Peft      peft;         /* of an adapter that was asked for */
    Dev       dev;
    Model     model;
    bool      has_model;
    const Ranks *ranks;     /* NULL: alone, with the whole model */
    Near      near;         /* of a rank on a GPU: the side of the machine that it is bound to */
    int       may, share;   /* cores that it might use when it began; of the machine's, over its ranks */
    DevKind   as;           /* where only sizes are wanted: the GPU that they are of, which need not be here; or none */
} Opened;

/* Weights from a seed and config.json instead of files: for benches and tests. */
typedef struct { bool on; uint64_t seed; } RandomFill;
/* below 0: from files */
static inline RandomFill random_fill(int64_t seed) { return (RandomFill){ seed >= 0, (uint64_t)seed }; }

typedef struct {
    int64_t threads, leaves;         /* leaves 0: as many as the device likes */
    const char *device, *compute;    /* device.h */
    bool    guard, trained;
    DType   weights;                 /* of weights that are trained; others are as on disk, or as the device computes */
    size_t  more;                    /* bytes that will be taken beside the weights and dev.tmp */
    Ranks  *ranks;                   /* of open_desc, which is collective over them; their
                                      * grid is made between it and open_weights */
    bool    counted;                 /* that all of it fits is known */
    Arena   in;                      /* memory for the weights that is there already, or none */
    bool    unfilled;                /* the weights are laid out; what they are comes from elsewhere */
    bool    sizes;                   /* nothing will be computed: a GPU that is asked for need not be here */
    RandomFill random;
    const char *adapter;             /* a folder as peft writes it, which is added to the weights; or NULL */
} OpenOpts;

/* What is free of this machine's memory; 0 where the system does not say.  Parts that exceed
 * it are refused: by how much, and which is the largest. */
typedef struct { const char *name; size_t bytes; bool host; int id; } Need; /* host: the machine's, not the device's;
                                                                             * id: its maker's */
size_t memory_here(void);
size_t memory_free(const Dev *d);                /* of the memory that the device has */
typedef struct { double now, peak; } MemoryUsed;       /* bytes of this process: resident, and the
                                                        * most that ever were; 0: not known */
MemoryUsed memory_used(void);
bool   memory_fits(const Opened *o, const Need *need, int n, Err *err);         /* into this rank's share of it */
/* Parts that lie in one memory (host: the machine's, or not; -1: all), of which so much is free; 0: nobody knows. */
bool   needs_fit(const Need *need, int n, int host, double have, const char *where, Err *err);

/* What the sizes of a model that will be opened so depend on. */
DevKind open_kind(const Opened *o, int64_t leaves);
bool    open_on_gpu(const Opened *o);
Shard   open_shard(const Opened *o);            /* which part of it is this rank's */

/* Only the description: nothing is loaded, the device is open.  A family that cannot run is refused here. */
bool open_desc(Opened *o, const char *path, const OpenOpts *opts, Err *err);
/* Weights, and dev.tmp of tmp_bytes, if there is memory for them. */
bool open_weights(Opened *o, const OpenOpts *opts, size_t tmp_bytes, Err *err);
DType open_disk_dtype(const Opened *o, RandomFill random);     /* of the files' matrices, or what they would be */
/* Of weights that every rank has filled: those that several hold are the same.  Collective; fails on all. */
bool open_same(const Ranks *ranks, const Model *m, RandomFill random, Err *err);
bool open_fill(Model *m, RandomFill random, Err *err);          /* the weights of a model that is laid out */
void open_close(Opened *o);                     /* also of one that is only zeroed, or half open */

#endif
