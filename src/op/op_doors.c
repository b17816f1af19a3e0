/* op_doors.c - the front doors, made from op_list.h: a call's shapes are checked, then the backend computes. */
#include "op/op_check.h"
#include "op/profile.h"
#include "op/watch.h"

enum { ENTER, JOIN };
#define LIST(...) __VA_ARGS__
#define OP(how, name, params, args, outs)                                                                              \
    void op_##name params {                                                                                            \
        check_##name args;                                                                                             \
        if (d->profile) profile_begin(d, #name, ((const Tensor[]){ LIST outs })[0]);                                   \
        d->ops->enter(d, how == JOIN);                                                                                 \
        d->ops->name args;                                                                                             \
        d->ops->leave(d);                                                                                              \
        if (d->profile) profile_end(d);                                                                                \
        if (d->watch) {                                                                                                \
            const Tensor out[] = { LIST outs };                                                                        \
            watch_op(d, #name, out, (int)COUNT(out));                                                                  \
        }                                                                                                              \
    }
#include "op/op_list.h"
#undef OP
