/* op_check.h - what the front doors check: check_NAME for every op of op_list.h, once, and the message carries the
 * numbers.  A wrong shape is a bug of the caller, so it dies. */
#ifndef OP_OP_CHECK_H
#define OP_OP_CHECK_H

#include "op/op.h"

#define OP(how, name, params, args, outs) void check_##name params;
#include "op/op_list.h"
#undef OP

static inline bool is_none(Tensor x) { return !x.data; }

/* x is a tensor of that type and shape; -1: any. */
#define WANT(op, x, t, r, c) want_at(__FILE__, __LINE__, op, #x, x, t, r, c)
static inline void want_at(const char *file, int line, const char *op, const char *name, Tensor x, DType t,
                           int64_t rows, int64_t cols) {
    bool empty = x.rows == 0 || x.cols == 0;
    if (x.dtype != t) die_at(file, line, "%s: %s is %s, %s wanted", op, name, dtype_name(x.dtype), dtype_name(t));
    if ((rows >= 0 && x.rows != rows) || (cols >= 0 && x.cols != cols) || (x.rows > 1 && x.ld < x.cols))
        die_at(file, line, "%s: %s is [%ld,%ld] with row stride %ld, [%ld,%ld] wanted (-1: any)", op, name,
               (long)x.rows, (long)x.cols, (long)x.ld, (long)rows, (long)cols);
    if (!x.data && !empty) die_at(file, line, "%s: %s has no memory", op, name);
}
/* the same, for weights that are only read: F32 or BF16 */
#define WANT_W(op, x, r, c) want_at(__FILE__, __LINE__, op, #x, x, (x).dtype == DT_BF16 ? DT_BF16 : DT_F32, r, c)
/* ... for activations and their gradients: as the device computes, or F32 */
#define WANT_A(op, x, r, c) want_at(__FILE__, __LINE__, op, #x, x, (x).dtype == d->act ? d->act : DT_F32, r, c)

static inline void want_leaves(const char *op, Leaves s, int64_t cols) {
    CHECK(leaves_fit(s.of) && leaves_fit(s.n) && s.first >= 0 && s.first % s.n == 0 && s.first + s.n <= s.of,
          "%s: pieces %d..+%d of %d are no subtree of at most %d", op, s.first, s.n, s.of, LEAVES_MOST);
    CHECK(leaves_cols(&s) == cols, "%s: the pieces hold %ld columns, the sum runs over %ld", op, (long)leaves_cols(&s),
        (long)cols);
}

#endif
