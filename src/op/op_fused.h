/* op_fused.h - several ops at a time: the table's optional slots (Ops.fused) and their front doors.  See
 * op_fused_list.h. */
#ifndef OP_OP_FUSED_H
#define OP_OP_FUSED_H

#include "op/op.h"

typedef struct { Tensor y, rstd, raw, g; RopeShape s; } NormRope;       /* y, raw [T,heads*width]; rstd [T*heads,1] */

#define FUSED(name, params, args) bool (*name) params;
typedef struct Fused {
    bool (*defers_norms)(const Dev *d, int64_t hidden, int64_t qkv, int64_t expert, int64_t topk); /* or NULL */
#include "op/op_fused_list.h"
} Fused;
#undef FUSED

/* Whether rmsnorm_linear3 and grouped_combine_add of one token are each done at once: of so many columns, to so many of
 * q, k and v, by so many experts so wide. */
bool op_defers_norms(const Dev *d, int64_t hidden, int64_t qkv, int64_t expert, int64_t topk);

#define FUSED(name, params, args) void op_##name params;
#include "op/op_fused_list.h"
#undef FUSED

#endif
