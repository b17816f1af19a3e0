/* op_fused.h - several ops at a time: the table's optional slots (Ops.fused) and their front doors.  See
 * op_fused_list.h. */
#ifndef OP_OP_FUSED_H
#define OP_OP_FUSED_H

#include "op/op.h"

typedef struct { Tensor y, rstd, raw, g; RopeShape s; } NormRope;       /* y, raw [T,heads*width]; rstd [T*heads,1] */

#define FUSED(name, params, args) bool (*name) params;
typedef struct Fused {
#include "op/op_fused_list.h"
} Fused;
#undef FUSED

#define FUSED(name, params, args) void op_##name params;
#include "op/op_fused_list.h"
#undef FUSED

#endif
