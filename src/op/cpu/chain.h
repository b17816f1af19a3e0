/* chain.h - calls that work row by row, kept until they can run together; chain.c has the reason. */
#ifndef OP_CPU_CHAIN_H
#define OP_CPU_CHAIN_H

#include "op/cpu/cpu.h"

size_t chain_bytes(void);

/* The bytes of one tensor that a call touches.  Row r of a call touches row r, unless 'any'. */
typedef struct { const char *at; size_t bytes, all; bool writes, any; } Touch;
Touch reads(Tensor x);
Touch writes(Tensor x);
Touch reads_any(Tensor x);

typedef struct {
    int64_t       rows;
    double        cost;             /* of a row, in about nanoseconds */
    RowsFn       *fn;
    const void   *arg; size_t bytes;   /* copied */
    const Touch  *touch; int touches;  /* weights and what the host put are never written here: they need not be told */
    const int32_t *at; int groups;  /* rows at[g]..at[g+1] share weights: blocks end there.  Or NULL, 0 */
    int64_t       least;            /* rows that a block should have at least: a product's
                                     * weights are fetched for each block.  Or 0 */
} Call;
/* Now, or with the calls before and after it. */
void cpu_call(Dev *d, const Call *c);
#define CPU_CALL(d, n, ns, f, p, ...)                                                                     \
    cpu_call(d, &(Call){ .rows = (n), .cost = (ns), .fn = (f), .arg = &(p), .bytes = sizeof(p),              \
                         .touch = (const Touch[]){ __VA_ARGS__ },                                            \
                         .touches = (int)(sizeof((const Touch[]){ __VA_ARGS__ }) / sizeof(Touch)) })

#endif
