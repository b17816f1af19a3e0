/* oplog.h - what every op of a forward wrote, as a hash of each row under the row's name: so two runs of the same
 * tokens can be laid beside each other, whatever rows they computed together.
 *
 * Ops are numbered in the order in which a forward calls them; both ways to run a model call the same ones.  A row that
 * came of several (heads of a token, its experts) has several hashes.  Ops that move bytes are passed over, and so is a
 * vision tower, whose rows are patches. */
#ifndef STEP_OPLOG_H
#define STEP_OPLOG_H

#include "op/watch.h"

enum { OPLOG_OUTS = 2 };
typedef struct {
    const char *op, *other;             /* as it is called first; or by another name (attend_kv for attend), or NULL */
    const char *part;
    int         layer, width;           /* hashes of a row */
    uint64_t   *hash[OPLOG_OUTS];       /* [slots * width], 0: none; or NULL */
} OpRows;

typedef struct { int op, out; int64_t slot; int sub; } OpPlace;

typedef struct {
    Watch    watch;
    int64_t  slots, topk;               /* rows that have a name; experts of a token */
    OpRows  *at;                        /* [room] */
    int      n, room;
    bool     lost;                      /* forwards did not call the same ops, or there were too many */
    /* The forward under way: slots of its rows and of those that tokens are drawn from, -1: of no interest. */
    const int64_t *row, *draw;
    int64_t  n_rows, n_draws, drawn;
    int      next;                      /* op */
    int32_t *expert_row;                /* [n_rows * topk]: which token's which choice a row of experts is */
    int64_t  n_expert_rows;
    bool     by_expert;                 /* rows are in the experts' order */
    /* One row to be kept as it is. */
    bool     wants;
    OpPlace  want;
    float   *value;                     /* [n_values]: whole numbers as floats */
    int64_t  n_values;
    Mem     *mem, pass;
} OpLog;

void oplog_open(OpLog *l, int64_t slots, int64_t topk, Mem *mem);
void oplog_pass(OpLog *l, const int64_t *row, int64_t n, const int64_t *draw, int64_t n_draws);  /* a forward begins;
                                                                                                   * copies the lists */
void oplog_close(OpLog *l);
void oplog_forget(OpLog *l, const char *op, int out, int64_t slot);     /* that row of that op is not compared */
/* The first op whose rows differ, and of its rows the one with the least slot. */
bool oplog_differ(const OpLog *a, const OpLog *b, OpPlace *out);
/* Do both have the same ops?  Else the first that differs, of either. */
bool oplog_in_step(const OpLog *a, const OpLog *b, int *at);

#endif
