/* runs.h - which elements of the model a rank writes to a checkpoint and reads from one, and where they stand in its
 * files.
 *
 * A run is a stretch of one parameter as it lies in memory.  Over ranks those that count cover every element once.
 * Where a matrix is cut by columns, what a rank holds are short strips of long rows: the ranks that hold the others
 * exchange strips for whole rows before they write (rows_gather), and rows for strips after they have read
 * (rows_scatter), block by block, so that files are written and read in pieces of at least a mebibyte. */
#ifndef TRAIN_RUNS_H
#define TRAIN_RUNS_H

#include "comm/comm.h"
#include "train/moments.h"

typedef struct {
    int     weight, grad;       /* in the tables of weights and of gradients; grad -1: frozen */
    int64_t from, n, state;     /* elements [from, from+n); state: where the first lies in the averages */
    size_t  tensor, moment;     /* on disk: of its expert 0, as arch_each_param and Moments count */
    bool    counts;             /* others may hold it as well, and this rank answers for it */
    const Comm *with;           /* strips: exchanged with these; or NULL */
} Run;

typedef struct {
    const Params *w, *grads;
    Run   *at;
    size_t n;
    float *strips, *got, *rows; /* room of an exchange: a block of own strips; all ranks' strips of the own
                                 * rows; these put together.  NULL: nothing is exchanged */
    CommCall *call;             /* twice as many as the largest group */
} Runs;

/* Collective.  All that this rank holds of its own, whether it counts or not. */
Runs runs_open(const Params *w, const Params *grads, const Optim *opt, const Groups *par, const Moments *moments,
               Mem *mem);
/* What the rank counts, of a shard that nobody has opened: elements, 'each' for each that is trained, and what an
 * exchange may add to them; bytes of an exchange's room. */
void runs_size(const ModelDesc *m, const Shard *shard, int each, int64_t *elements, size_t *room);

/* Where elements [at, at+n) of a tensor on disk are, that follow each other there and in memory. */
typedef struct { int64_t expert, at, n; } RunPart;
/* Of a run without exchange: element e of it, at most n. */
RunPart run_part(const Runs *x, const Run *r, int64_t e, int64_t n);

/* Blocks of rows of a run with exchange; of block b the strips' elements [*from, *from + count) of the run, and
 * the rows that are this rank's on disk. */
int64_t run_blocks(const Runs *x, const Run *r);
int64_t run_strips(const Runs *x, const Run *r, int64_t b, int64_t *from);
int64_t run_rows  (const Runs *x, const Run *r, int64_t b);        /* elements of the own whole rows */
RunPart run_row_part(const Runs *x, const Run *r, int64_t b, int64_t e, int64_t n);     /* element e of them */
void    rows_gather (const Runs *x, const Run *r, int64_t b);   /* x->strips of all to x->rows of each; collective */
void    rows_scatter(const Runs *x, const Run *r, int64_t b);       /* and back */

#endif
