/* engine_int.h - the engine's own parts: its lists and sizes (open.c), a step's tensors (stage.c), the captured steps
 * (graph.c), drawing (draw.c), and the loop over steps (engine.c). */
#ifndef ENGINE_ENGINE_INT_H
#define ENGINE_ENGINE_INT_H

#include "engine/engine.h"
#include "engine/images.h"

typedef struct { int seq, at; } Drawn;         /* at: the token's place in the sequence */
typedef struct { int times; void *calls; } Graph; /* how often a step of that size came; its captured calls, or NULL */

struct Engine {
    Model *m;
    EngineConf c;
    Sched *s;
    Cache cache;
    bool own; /* the cache's memory */
    Arena io, host;
    Request *request; /* [max_seqs] by group */
    Request waiting;     /* taken from the feed, but there is no room for its pictures yet */
    bool is_waiting;
    int32_t *id;
    float *lp, *ent;
    Finish *finish;
    bool *finished, *full; /* full: no room for another kept set */
    int max_pages;
    Images *images; /* pictures, or NULL: requests have none */
    Graph *graph; /* [max_batch+1]: of a step in which so many rows are decoded */
    int n_graphs;
    bool plain; /* no graphs: a rank is profiled, call by call, and NCCL wants all ranks of a call alike */
    bool ahead; /* engine_ahead */
    /* What was drawn by the step under way.  readback: the device was asked for it under that
     * number, and not waited for. */
    Drawn *drawn;
    int readback;
    bool begun; /* the scheduler's step is under way already */
    char *back; /* ids, log-probs and entropies as they come back */
    EngineStats stats;
    SchedStats before; /* the scheduler's counts when they began */
};
enum { NO_READBACK = -1 };
enum { KEEP_ROWS = 64 }; /* rows drawn together when their kept sets are wanted */

/* Three columns that come back in one piece. */
static inline size_t back_bytes(int n) { return 3 * arena_round((size_t)n * 4); }

static inline int max_pages(const EngineConf *c) { return (c->sched.max_len + c->sched.page - 1) / c->sched.page; }

/* A step of decoding over ranks that share experts needs no counts (par.h) where the tokens of all of them are no more
 * than a rank has in the largest step: so it takes no more memory, and what it sends in vain is little.  Tokens of a
 * rank that are allowed for; 0: none. */
static inline int64_t most_each(const EngineConf *c, int ranks) {
    int tp = c->shard ? c->shard->g.tp : 1;
    int64_t fit = (c->sched.max_rows + tp - 1) / tp / ranks, most = (c->sched.max_batch + tp - 1) / tp;
    return !ep_is_even(ranks) ? 0 : fit < most ? fit : most;
}

static inline const Request *request_of(Engine *e, int seq) { return &e->request[sched_seq(e->s, seq)->group]; }

/* ---- stage.c: the lists of a step, on the device and in the same order on the host */
typedef struct {
    Paged paged;
    Tensor ids, pos, rows; /* rows [draws]: each draw's row, its piece's last */
    Pictures images;
} Rows;
Tensor   stage_put(Engine *e, DType t, const void *from, int64_t rows, int64_t cols);
int32_t *stage_i32(Engine *e, int64_t n);                       /* room on the host */
/* fed: the ids are there, where the last step's sampler has left them.  pad: rows behind the step's that are nobody's,
 * each a sequence of one token. */
Rows     stage_rows(Engine *e, const Step *st, bool fed, int pad);

/* ---- graph.c: the model's forward over them, run again as it was captured where that can be */
/* all: every sequence of the ranks that share experts has one row, so the step may be captured.  rows: of this rank's
 * step, those that are nobody's included.  each: Ctx.each. */
typedef struct { bool all; int rows; int64_t each; } Decode;
Decode graph_decode(const Engine *e, const Step *st);          /* collective over those ranks */
void   graph_extend(Engine *e, const Decode *x, const Rows *r, Tensor h);

/* ---- tell.c: the likeliest tokens of a draw's place; a step's prompt tokens, whose rows come behind its draws' in h
 * */
int  tell_rows(Engine *e, const Step *st);                      /* how many rows of prompts are to be told */
int  tell_list(Engine *e, const Step *st, const int32_t *at, int32_t *rows);
void tell_draw(Engine *e, const Feed *f, const Draw *draw, Tensor h, int row, bool ban, Likely token);
void tell_prompts(Engine *e, const Feed *f, const Step *st, Tensor h);
size_t tell_bytes(const ModelDesc *m, const EngineConf *c);

/* ---- draw.c: tokens for a step's draws, from rows of h; ids: where the next step reads them */
void draw_all(Engine *e, const Feed *f, const Step *st, Tensor h, Tensor ids);
void draw_wait(Engine *e, int readback, int n);                     /* for what the device was asked for */
Tensor banned_ids(Engine *e, const SampleOpts *o);              /* stop tokens that an answer may not take yet */

#endif
