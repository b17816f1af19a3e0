/* op_dense.c - what moving and products want of their tensors. */
#include "op/op_check.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* a check sees all that the op does, and seldom needs all of it */

#define F DT_F32

static bool same_shape(Tensor a, Tensor b) { return a.rows == b.rows && a.cols == b.cols; }

void check_put(Dev *d, Tensor to, const void *from) {
    CHECK(from || !to.rows || !to.cols, "put: nothing to put into [%ld,%ld]", (long)to.rows, (long)to.cols);
    WANT("put", to, to.dtype, -1, -1);
}
void check_get(Dev *d, void *to, Tensor from) {
    CHECK(to || !from.rows || !from.cols, "get: nowhere to put [%ld,%ld]", (long)from.rows, (long)from.cols);
    WANT("get", from, from.dtype, -1, -1);
}
void check_copy(Dev *d, Tensor to, Tensor from) {
    CHECK(same_shape(to, from), "copy: [%ld,%ld] to [%ld,%ld]", (long)from.rows, (long)from.cols, (long)to.rows,
          (long)to.cols);
    bool ok = to.dtype == from.dtype || (to.dtype == DT_F32 && from.dtype == DT_BF16)
              || (to.dtype == DT_BF16 && from.dtype == DT_F32);
    CHECK(ok, "copy: %s to %s", dtype_name(from.dtype), dtype_name(to.dtype));
}
void check_zero(Dev *d, Tensor x) { WANT("zero", x, x.dtype, -1, -1); }

void check_normals(Dev *d, Tensor x, Normals n) {
    WANT_W("normals", x, -1, -1);
    CHECK(n.first >= 0 && n.ld >= x.cols, "normals: elements from %ld on, rows %ld apart and %ld long", (long)n.first,
          (long)n.ld, (long)x.cols);
}
void check_widen(Dev *d, Tensor y, Tensor x, Tensor scale, int64_t from, int64_t cols) {
    WANT("widen", x, DT_F8E4M3, 1, -1);
    WANT_W("widen", y, 1, x.cols);
    int64_t rows = cols > 0 ? (from + x.cols + cols - 1) / cols : 0;
    CHECK(from >= 0 && cols > 0 && scale.rows >= (rows + F8_BLOCK - 1) / F8_BLOCK,
          "widen: elements %ld.. in rows of %ld, and scales of %ld rows of blocks", (long)from, (long)cols,
          (long)scale.rows);
    WANT("widen", scale, DT_F32, -1, (cols + F8_BLOCK - 1) / F8_BLOCK);
}

void check_linear(Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum) {
    WANT_W("linear", w, -1, x.cols);
    WANT_A("linear", x, y.rows, -1);
    WANT_A("linear", y, x.rows, w.rows);
    if (!is_none(b)) WANT_W("linear", b, 1, w.rows);
    want_leaves("linear", sum, x.cols);
}
void check_linear_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves sum) {
    WANT_W("linear_dx", w, dy.cols, dx.cols);
    WANT_A("linear_dx", dy, dx.rows, -1);
    WANT_A("linear_dx", dx, dy.rows, -1);
    want_leaves("linear_dx", sum, dy.cols);
}
void check_linear_dw(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    WANT("linear_dw", dw, F, dy.cols, x.cols);
    WANT_A("linear_dw", dy, x.rows, -1);
    WANT_A("linear_dw", x, dy.rows, -1);
    if (!is_none(db)) WANT("linear_dw", db, F, 1, dy.cols);
}

static void want_seqs(const char *op, Seqs s, int64_t rows) {
    WANT(op, s.at, DT_I32, -1, -1);
    CHECK(s.n >= 0 && s.at.rows * s.at.cols == s.n + 1, "%s: %d groups need %d borders, at is [%ld,%ld]", op, s.n,
          s.n + 1, (long)s.at.rows, (long)s.at.cols);
    CHECK(s.longest >= 0 && s.longest <= rows, "%s: the longest group has %d of %ld rows", op, s.longest, (long)rows);
}
void check_grouped(Dev *d, Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum) {
    WANT_W("grouped", w, ex.n * y.cols, x.cols);
    WANT_A("grouped", x, y.rows, -1);
    WANT_A("grouped", y, x.rows, -1);
    want_seqs("grouped", ex, x.rows);
    want_leaves("grouped", sum, x.cols);
}
void check_grouped_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum) {
    WANT_W("grouped_dx", w, ex.n * dy.cols, dx.cols);
    WANT_A("grouped_dx", dy, dx.rows, -1);
    WANT_A("grouped_dx", dx, dy.rows, -1);
    want_seqs("grouped_dx", ex, dy.rows);
    want_leaves("grouped_dx", sum, dy.cols);
}
void check_grouped_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex) {
    WANT("grouped_dw", dw, F, ex.n * dy.cols, x.cols);
    WANT_A("grouped_dw", dy, x.rows, -1);
    WANT_A("grouped_dw", x, dy.rows, -1);
    want_seqs("grouped_dw", ex, dy.rows);
}

static void want_part(const char *op, const char *name, Tensor x, int heads, int width, int from, int cols) {
    CHECK(from >= 0 && width >= 0 && cols >= 0 && (int64_t)(heads - 1) * width + from + cols <= x.cols,
          "%s: %d heads, %d apart, columns %d..+%d of each, do not fit %s's %ld columns", op, heads, width, from, cols,
          name, (long)x.cols);
}
static void want_heads(const Dev *d, const char *op, Tensor y, Tensor x, const HeadMap *m) {
    CHECK(m->heads >= 1, "%s: %d heads", op, m->heads);
    WANT_A(op, y, x.rows, -1);
    WANT_A(op, x, y.rows, -1);
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
void check_headwise(Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m) {
    want_heads(d, "headwise", y, x, &m);
    want_head_w("headwise", w, &m);
}
void check_headwise_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m) {
    want_heads(d, "headwise_dw", dy, x, &m);
    want_head_w("headwise_dw", dw, &m);
    WANT("headwise_dw", dw, F, -1, -1);
}
void check_copy_heads(Dev *d, Tensor y, Tensor x, HeadMap m) {
    want_heads(d, "copy_heads", y, x, &m);
    CHECK(m.in == m.out, "copy_heads: parts of %d and %d columns", m.in, m.out);
}
void check_sum_heads(Dev *d, Tensor y, Tensor x, HeadMap m) {
    want_heads(d, "sum_heads", y, x, &m);
    CHECK(m.in == m.out && m.y_width == 0, "sum_heads: parts of %d and %d columns, sums %d apart; one sum wanted", m.in,
          m.out, m.y_width);
}
void check_tree_add(Dev *d, Tensor y, const Tensor *part, int n) {
    CHECK(leaves_fit(n), "tree_add: %d parts; a power of two up to %d wanted", n, LEAVES_MOST);
    WANT_A("tree_add", y, -1, -1);
    for (int i = 0; i < n; i++) WANT_A("tree_add", part[i], y.rows, y.cols);
}
