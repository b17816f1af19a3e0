/* watch.h - whoever wants to see what each op wrote, call by call, and of which layer: the difference finder
 * (step/blame.h).  While a device is watched calls are neither chained, nor done several at a time, nor replayed; what
 * they give is the same. */
#ifndef OP_WATCH_H
#define OP_WATCH_H

#include "op/op.h"

/* Which row of a step: position 'at' of a request's answer number 'sample'; of: Request.user. */
typedef struct { const void *of; int sample, at; } RowName;

/* Parts whose rows are not the step's: pictures' patches, and the rows that are drawn from (or scored). */
#define WATCH_TOWER "vision tower"
#define WATCH_HEAD  "head"

typedef struct Watch {
    void (*op)(struct Watch *w, Dev *d, const char *op, const Tensor *out, int n);  /* is done; ops that it
                                                                                      * calls are not told */
    /* The engine's next rows, and those that tokens are drawn from.  NULL: not wanted. */
    void (*rows)(struct Watch *w, const RowName *row, int64_t n, const RowName *draw, int64_t n_draws);
    int         layer;                  /* that runs; -1: none */
    const char *part;                   /* of it, or of the model */
} Watch;

/* From here on ops belong to that part of that layer. */
static inline void watch_at(const Dev *d, int layer, const char *part) {
    if (d->watch) d->watch->layer = layer, d->watch->part = part;
}
/* Called by the doors of the ops; and with what an op has been given as an "op" of another name, where op_list.h names
 * only a part of what ops before it wrote (the first of several heads). */
static inline void watch_op(Dev *d, const char *op, const Tensor *out, int n) {
    Watch *w = d->watch;
    if (!w) return;
    d->watch = NULL;
    w->op(w, d, op, out, n);
    d->watch = w;
}

#endif
