/* op_doors.c - the front doors, made from op_list.h: a call's shapes are checked, then the backend computes. */
#include "op/op_check.h"

enum { ENTER, JOIN };
#define OP(how, name, params, args, outs)                                                                              \
    void op_##name params {                                                                                            \
        check_##name args;                                                                                             \
        d->ops->enter(d, how == JOIN);                                                                                 \
        d->ops->name args;                                                                                             \
        d->ops->leave(d);                                                                                              \
    }
#include "op/op_list.h"
#undef OP
