/* op_dense.c - front doors of moving and of products: shapes are checked here, once; backends only compute. */
#include "op/op_check.h"

#define F DT_F32

static bool same_shape(Tensor a, Tensor b) { return a.rows == b.rows && a.cols == b.cols; }

void op_put(Dev *d, Tensor to, const void *from) {
    dev_enter(d);
    d->ops->put(d, to, from);
    dev_leave(d);
}
void op_get(Dev *d, void *to, Tensor from) {
    dev_enter(d);
    d->ops->get(d, to, from);
    dev_leave(d);
}
void op_copy(Dev *d, Tensor to, Tensor from) {
    CHECK(same_shape(to, from), "copy: [%ld,%ld] to [%ld,%ld]", (long)from.rows, (long)from.cols, (long)to.rows,
          (long)to.cols);
    bool ok = to.dtype == from.dtype || (to.dtype == DT_F32 && from.dtype == DT_BF16)
              || (to.dtype == DT_BF16 && from.dtype == DT_F32);
    CHECK(ok, "copy: %s to %s", dtype_name(from.dtype), dtype_name(to.dtype));
    dev_enter(d);
    d->ops->copy(d, to, from);
    dev_leave(d);
}
void op_zero(Dev *d, Tensor x) {
    dev_enter(d);
    d->ops->zero(d, x);
    dev_leave(d);
}

void op_linear(Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum) {
    WANT_W("linear", w, -1, x.cols);
    WANT("linear", x, F, y.rows, -1);
    WANT("linear", y, F, x.rows, w.rows);
    if (!is_none(b)) WANT("linear", b, F, 1, w.rows);
    want_leaves("linear", sum, x.cols);
    dev_join(d);
    d->ops->linear(d, y, x, w, b, sum);
    dev_leave(d);
}
void op_linear_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves sum) {
    WANT_W("linear_dx", w, dy.cols, dx.cols);
    WANT("linear_dx", dy, F, dx.rows, -1);
    WANT("linear_dx", dx, F, dy.rows, -1);
    want_leaves("linear_dx", sum, dy.cols);
    dev_join(d);
    d->ops->linear_dx(d, dx, dy, w, sum);
    dev_leave(d);
}
void op_linear_dw(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    WANT("linear_dw", dw, F, dy.cols, x.cols);
    WANT("linear_dw", dy, F, x.rows, -1);
    WANT("linear_dw", x, F, dy.rows, -1);
    if (!is_none(db)) WANT("linear_dw", db, F, 1, dy.cols);
    dev_enter(d);
    d->ops->linear_dw(d, dw, db, dy, x);
    dev_leave(d);
}

static void want_seqs(const char *op, Seqs s, int64_t rows) {
    WANT(op, s.at, DT_I32, -1, -1);
    CHECK(s.n >= 0 && s.at.rows * s.at.cols == s.n + 1, "%s: %d groups need %d borders, at is [%ld,%ld]", op, s.n,
          s.n + 1, (long)s.at.rows, (long)s.at.cols);
    CHECK(s.longest >= 0 && s.longest <= rows, "%s: the longest group has %d of %ld rows", op, s.longest, (long)rows);
}
void op_grouped(Dev *d, Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum) {
    WANT_W("grouped", w, ex.n * y.cols, x.cols);
    WANT("grouped", x, F, y.rows, -1);
    WANT("grouped", y, F, x.rows, -1);
    want_seqs("grouped", ex, x.rows);
    want_leaves("grouped", sum, x.cols);
    dev_join(d);
    d->ops->grouped(d, y, x, w, ex, sum);
    dev_leave(d);
}
void op_grouped_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum) {
    WANT_W("grouped_dx", w, ex.n * dy.cols, dx.cols);
    WANT("grouped_dx", dy, F, dx.rows, -1);
    WANT("grouped_dx", dx, F, dy.rows, -1);
    want_seqs("grouped_dx", ex, dy.rows);
    want_leaves("grouped_dx", sum, dy.cols);
    dev_join(d);
    d->ops->grouped_dx(d, dx, dy, w, ex, sum);
    dev_leave(d);
}
void op_grouped_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex) {
    WANT("grouped_dw", dw, F, ex.n * dy.cols, x.cols);
    WANT("grouped_dw", dy, F, x.rows, -1);
    WANT("grouped_dw", x, F, dy.rows, -1);
    want_seqs("grouped_dw", ex, dy.rows);
    dev_enter(d);
    d->ops->grouped_dw(d, dw, dy, x, ex);
    dev_leave(d);
}

static void want_part(const char *op, const char *name, Tensor x, int heads, int width, int from, int cols) {
    CHECK(from >= 0 && width >= 0 && cols >= 0 && (int64_t)(heads - 1) * width + from + cols <= x.cols,
          "%s: %d heads, %d apart, columns %d..+%d of each, do not fit %s's %ld columns", op, heads, width, from, cols,
          name, (long)x.cols);
}
static void want_heads(const char *op, Tensor y, Tensor x, const HeadMap *m) {
    CHECK(m->heads >= 1, "%s: %d heads", op, m->heads);
    WANT(op, y, F, x.rows, -1);
    WANT(op, x, F, y.rows, -1);
    want_part(op, "x", x, m->heads, m->x_width, m->x_from, m->in);
    want_part(op, "y", y, m->heads, m->y_width, m->y_from, m->out);
}
static void want_head_w(const char *op, Tensor w, const HeadMap *m) {
    int rows = m->turned ? m->in : m->out;
    WANT_W(op, w, -1, m->turned ? m->out : m->in);
    CHECK(m->w_from >= 0 && m->w_rows >= 0 && (int64_t)(m->heads - 1) * m->w_rows + m->w_from + rows <= w.rows,
          "%s: %d heads, %d rows apart, rows %d..+%d of each, do not fit w's %ld rows", op, m->heads, m->w_rows,
          m->w_from, rows, (long)w.rows);
}
void op_headwise(Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m) {
    want_heads("headwise", y, x, &m);
    want_head_w("headwise", w, &m);
    dev_enter(d);
    d->ops->headwise(d, y, x, w, m);
    dev_leave(d);
}
void op_headwise_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m) {
    want_heads("headwise_dw", dy, x, &m);
    want_head_w("headwise_dw", dw, &m);
    WANT("headwise_dw", dw, F, -1, -1);
    dev_enter(d);
    d->ops->headwise_dw(d, dw, dy, x, m);
    dev_leave(d);
}
void op_copy_heads(Dev *d, Tensor y, Tensor x, HeadMap m) {
    want_heads("copy_heads", y, x, &m);
    CHECK(m.in == m.out, "copy_heads: parts of %d and %d columns", m.in, m.out);
    dev_enter(d);
    d->ops->copy_heads(d, y, x, m);
    dev_leave(d);
}
void op_tree_add(Dev *d, Tensor y, const Tensor *part, int n) {
    CHECK(n >= 1 && n <= 32 && (n & (n - 1)) == 0, "tree_add: %d parts; a power of two up to 32 wanted", n);
    WANT("tree_add", y, F, -1, -1);
    for (int i = 0; i < n; i++) WANT("tree_add", part[i], F, y.rows, y.cols);
    dev_enter(d);
    d->ops->tree_add(d, y, part, n);
    dev_leave(d);
}
