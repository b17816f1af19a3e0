/* grid.h - how the ranks of a run are arranged, and which part of each weight a rank holds.  Arithmetic only:
 * configuration, planner, sync plan, loading and the running ranks ask the same functions.
 *
 * Dense weights:  ranks = pp x dp x cp x tp, tp fastest.  Experts fold over the same ranks of a stage: edp
 * x ep x etp, etp fastest; ep * etp divides dp * cp * tp.  Layers are cut into pp * vpp chunks in their
 * order; chunk c is stage c mod pp's. */
#ifndef CUT_GRID_H
#define CUT_GRID_H

#include "arch/arch.h"

enum { MAX_CHUNKS = 512, VOCAB_UNIT = 128 };        /* the head sums ids in leaves of VOCAB_UNIT:
                                                     * a vocabulary is cut between them */

typedef struct {
    int tp, pp, vpp, ep, etp, cp, dp;
    int layers[MAX_CHUNKS];                         /* of each chunk */
} GridShape;

typedef struct { int tp, cp, dp, pp, etp, ep, edp; } GridAt;       /* a rank's place */

typedef struct Shard { GridShape g; GridAt at; } Shard;                   /* one rank's part of a model */
Shard shard_whole(const ModelDesc *m);

static inline int grid_stage_ranks(const GridShape *g) { return g->tp * g->cp * g->dp; }
static inline int grid_ranks(const GridShape *g) { return grid_stage_ranks(g) * g->pp; }
static inline int grid_chunks(const GridShape *g) { return g->pp * g->vpp; }
static inline int grid_edp(const GridShape *g) { return grid_stage_ranks(g) / (g->ep * g->etp); }
GridAt    grid_at(const GridShape *g, int rank);
int       grid_rank(const GridShape *g, GridAt at);                 /* by tp, cp, dp, pp */
GridShape grid_one(const ModelDesc *m);                             /* a single rank */

/* "tp=2,pp=4,ep=8" (also tp2.pp4, blanks, x between).  Axes that are not said are 0. */
bool grid_parse(GridShape *g, const char *text, Err *err);
/* Axes of 0 become 1, dp what the ranks leave; split: NULL (as even as can be, longer ones first), "6,5x11"
 * (a number a chunk, or a stage), or "first=3,last=6" with either.  An impossible grid is an error that
 * names the nearest possible one. */
bool grid_fill(GridShape *g, const ModelDesc *m, int ranks, const char *split, int leaves, Err *err);
bool grid_split(GridShape *g, const char *split, int layers, Err *err);     /* the layers alone; pp and vpp are there */
void grid_spread(GridShape *g, const int *stage);                   /* layers of each stage, over its chunks */
int  grid_stage_layers(const GridShape *g, int stage);
void grid_text(const GridShape *g, Buf *out);                       /* "tp2,pp4": axes above 1; "one rank" */
void grid_split_text(const GridShape *g, Buf *out);                 /* "6,5x11" */

/* Layers of chunk c: [*from, *from + count). */
int grid_chunk(const GridShape *g, int c, int *from);
int grid_chunk_of(const GridShape *g, int layer);

/* Units [*from, *to) of piece k of n.  Whole units; a piece may be empty. */
static inline void grid_cut(int64_t units, int k, int n, int64_t *from, int64_t *to) {
    *from = units * k / n, *to = units * (k + 1) / n;
}

/* What a rank computes with, where it differs from Dims. */
typedef struct {
    int64_t head0, heads, kv0, kv_heads;            /* query heads, and the kv heads they read */
    int64_t ffn0, ffn, shared0, shared_ffn, expert_ffn0, expert_ffn;
    int64_t expert0, experts, vocab0, vocab;
    int64_t dn_keys;            /* key heads of delta nets */
} Local;
Local grid_local(const ModelDesc *m, const GridShape *g, GridAt at);

/* A rank's part of one row of the table in one layer: of experts [e0, e0+experts), rows [r0, r0+rows) and columns
 * [c0, c0+cols).  A vision tower is never cut: it is small, and its widths do not divide. */
typedef struct {
    bool    here;
    int64_t e0, experts, r0, rows, c0, cols;
} Slice;
Slice param_slice(const ModelDesc *m, const ParamDesc *p, int layer, const GridShape *g, GridAt at);
static inline int64_t slice_count(const Slice *s) { return s->here ? s->experts * s->rows * s->cols : 0; }

#endif
