/* lora.c - an adapter's products: see lora.h. */
#include "layer/lora.h"

void lora_find(const Ctx *c, Linear *l) {
    if (!c->lora) return;
    ParamId b = adapter_id(ADAPTER_B, l->id), a = adapter_id(ADAPTER_A, l->id);
    l->lora.b = param(c->lora, b, l->layer);
    if (!lora_on(l)) return;
    l->lora.a = param(c->lora, a, l->layer);
    if (!l->lora.a.data) a = adapter_id(ADAPTER_A, P_E_GATE), l->lora.a = param(c->lora, a, l->layer);
    l->lora.a_id = a;
    l->lora.bias = param(c->lora, adapter_id(ADAPTER_BIAS, l->id), l->layer);
    l->lora.scale = param_desc(c->lora, b, l->layer)->scale[l->layer];
}

/* Float32 on every device: it is narrow, and what comes of it is small. */
static Tensor push_rank(const Ctx *c, int64_t rows, const Linear *l) {
    return push(c, &c->dev->tmp, rows, l->lora.b.cols);
}
static Tensor grad(const Params *g, const Linear *l, AdapterPart part) {
    ParamId id = part == ADAPTER_A ? l->lora.a_id : adapter_id(part, l->id);
    return param(g, id, l->layer);
}

/* u = s x A', where x has all columns. */
static Tensor narrow(const Ctx *c, Tensor x, const Linear *l) {
    Tensor u = push_rank(c, x.rows, l);
    op_linear(c->dev, u, x, l->lora.a, TENSOR_NONE, leaves_one(x.cols));
    op_scale(c->dev, u, u, l->lora.scale);
    return u;
}
/* ... of this rank's rows, where it has some columns of all rows. */
static Tensor narrow_cut(const Ctx *c, int64_t rows, Tensor x, const Linear *l, Leaves sum) {
    Arena *tmp = &c->dev->tmp;
    Tensor u = push_rank(c, rows, l), part = tp_partial(&c->par, tmp, u, c->tokens);
    if (x.data) op_linear(c->dev, part, x, l->lora.a, TENSOR_NONE, sum);
    else op_zero(c->dev, part);
    tp_exit(&c->par, c->dev, u, part);
    op_scale(c->dev, u, u, l->lora.scale);
    return u;
}
/* y += u B' + s bias. */
static void widen(const Ctx *c, Tensor y, Tensor u, const Linear *l) {
    Dev *d = c->dev;
    Tensor wide = tensor_push(&d->tmp, y.dtype, y.rows, y.cols);
    op_linear(d, wide, u, l->lora.b, TENSOR_NONE, leaves_one(u.cols));
    op_add(d, y, y, wide);
    if (!l->lora.bias.data) return;
    Tensor bias = push_f32(&d->tmp, 1, y.cols);
    op_scale(d, bias, l->lora.bias, l->lora.scale);
    op_add_row(d, y, bias);
}
/* du = s dy B */
static Tensor narrow_back(const Ctx *c, Tensor dy, const Linear *l) {
    Tensor du = push_rank(c, dy.rows, l);
    op_linear_dx(c->dev, du, dy, l->lora.b, leaves_one(dy.cols));
    op_scale(c->dev, du, du, l->lora.scale);
    return du;
}
/* B's and the bias's, of rows u, which have the scale in them. */
static void wide_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor u) {
    Dev *d = c->dev;
    Tensor db = grad(g, l, ADAPTER_B), dbias = grad(g, l, ADAPTER_BIAS);
    if (db.data) op_linear_dw(d, db, TENSOR_NONE, dy, u);
    if (!dbias.data) return;
    Tensor scaled = tensor_push(&d->tmp, dy.dtype, dy.rows, dy.cols);
    op_scale(d, scaled, dy, l->lora.scale);
    op_sum_rows(d, dbias, scaled);
}

void lora_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l) {
    size_t mark = arena_mark(&c->dev->tmp);
    widen(c, y, narrow(c, x, l), l);
    arena_pop(&c->dev->tmp, mark);
}
void lora_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor du = narrow_back(c, dy, l), more = tensor_push(&d->tmp, dx.dtype, dx.rows, dx.cols);
    op_linear_dx(d, more, du, l->lora.a, leaves_one(du.cols));
    op_add(d, dx, dx, more);
    arena_pop(&d->tmp, mark);
}
void lora_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x) {
    size_t mark = arena_mark(&c->dev->tmp);
    Tensor da = grad(g, l, ADAPTER_A);
    wide_dw(c, g, l, dy, narrow(c, x, l));
    if (da.data) op_linear_dw(c->dev, da, TENSOR_NONE, narrow_back(c, dy, l), x);
    arena_pop(&c->dev->tmp, mark);
}

void lora_cut_forward(const Ctx *c, Tensor y, Tensor x, const Linear *l, Leaves sum) {
    size_t mark = arena_mark(&c->dev->tmp);
    widen(c, y, narrow_cut(c, y.rows, x, l, sum), l);
    arena_pop(&c->dev->tmp, mark);
}
/* B is whole on every rank of tp: each has its rows' part of the gradient. */
void lora_cut_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Leaves sum) {
    size_t mark = arena_mark(&c->dev->tmp);
    Tensor da = grad(g, l, ADAPTER_A), mine = c->par.tp.size > 1 ? tp_mine(&c->par, dy) : dy;
    wide_dw(c, g, l, mine, narrow_cut(c, mine.rows, x, l, sum));
    if (da.data && x.data) op_linear_dw(c->dev, da, TENSOR_NONE, narrow_back(c, dy, l), x);
    arena_pop(&c->dev->tmp, mark);
}

/* ---- heads.  Of W [heads * w_rows, in] a head's rows are B's, times A, which is every head's: x_h goes through A and
 * then its rows of B, or, turned, through its rows of B and then A. */
typedef struct {
    HeadMap in, out;
    Tensor first, last;
} Through;
static Through through(const Linear *l, HeadMap m) {
    int r = (int)l->lora.b.cols;
    HeadMap in = m, out = m;
    in.out = r, in.y_width = r, in.y_from = 0;
    out.in = r, out.x_width = r, out.x_from = 0;
    if (m.turned) out.w_rows = out.w_from = 0;
    else in.w_rows = in.w_from = 0;
    return (Through){ in, out, m.turned ? l->lora.b : l->lora.a, m.turned ? l->lora.a : l->lora.b };
}
void lora_heads(const Ctx *c, Tensor y, Tensor x, const Linear *l, HeadMap m) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Through t = through(l, m);
    Tensor u = push(c, &d->tmp, x.rows, (int64_t)m.heads * t.in.out), wide = push(c, &d->tmp, y.rows, y.cols);
    op_headwise(d, u, x, t.first, t.in);
    op_scale(d, u, u, l->lora.scale);
    op_zero(d, wide); /* what the heads do not write */
    op_headwise(d, wide, u, t.last, t.out);
    op_add(d, y, y, wide);
    arena_pop(&d->tmp, mark);
}

/* Rows [T*heads,width] of what m reads of x, or writes of y. */
static Tensor by_head(const Ctx *c, Tensor x, int heads, int width, int stride, int from) {
    if (stride == width) return tensor_shape(x, x.rows * heads, width);
    Tensor y = push(c, &c->dev->tmp, x.rows, (int64_t)heads * width);
    op_copy_heads(
        c->dev, y, x,
        (HeadMap){ .heads = heads, .in = width, .out = width, .x_width = stride, .x_from = from, .y_width = width });
    return tensor_shape(y, x.rows * heads, width);
}
/* dW_h = dy_h' x_h, turned x_h' dy_h: of what W has as columns ('wide') and as a head's rows ('own'). */
void lora_heads_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, HeadMap m) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    int r = (int)l->lora.b.cols;
    Tensor da = grad(g, l, ADAPTER_A), db = grad(g, l, ADAPTER_B), own = m.turned ? x : dy;
    Tensor wide = m.turned ? by_head(c, dy, m.heads, m.out, m.y_width, m.y_from)
                           : by_head(c, x, m.heads, m.in, m.x_width, m.x_from);
    Tensor u = push(c, &d->tmp, wide.rows, r), v = push(c, &d->tmp, dy.rows, (int64_t)m.heads * r);
    op_linear(d, u, wide, l->lora.a, TENSOR_NONE, leaves_one(wide.cols));
    op_scale(d, u, u, l->lora.scale);
    HeadMap rows = { .heads = m.heads, .in = r, .x_width = r, .w_rows = m.w_rows, .w_from = m.w_from };
    rows.out = m.turned ? m.in : m.out;
    rows.y_width = m.turned ? m.x_width : m.y_width, rows.y_from = m.turned ? m.x_from : m.y_from;
    if (db.data) op_headwise_dw(d, db, own, tensor_shape(u, dy.rows, (int64_t)m.heads * r), rows);
    HeadMap back = { .heads = m.heads,
                     .in = rows.out,
                     .out = r,
                     .x_width = rows.y_width,
                     .x_from = rows.y_from,
                     .y_width = r,
                     .w_rows = m.w_rows,
                     .w_from = m.w_from,
                     .turned = true };
    op_headwise(d, v, own, l->lora.b, back);
    op_scale(d, v, v, l->lora.scale);
    if (da.data) op_linear_dw(d, da, TENSOR_NONE, tensor_shape(v, wide.rows, r), wide);
    arena_pop(&d->tmp, mark);
}

/* ---- experts */
/* Where tokens of all ranks come to every rank (Ctx.each) the rows of others' experts are -0 in y, and stay so. */
static void begin_rows(const Ctx *c, Tensor wide) {
    if (!c->each) return;
    op_zero(c->dev, wide);
    op_scale(c->dev, wide, wide, -1);
}
void lora_experts(const Ctx *c, Tensor y, Tensor x, const Linear *l, Seqs ex) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor u = push_rank(c, x.rows, l), wide = tensor_push(&d->tmp, y.dtype, y.rows, y.cols);
    op_grouped(d, u, x, l->lora.a, ex, leaves_one(x.cols));
    op_scale(d, u, u, l->lora.scale);
    begin_rows(c, wide);
    op_grouped(d, wide, u, l->lora.b, ex, leaves_one(u.cols));
    op_add(d, y, y, wide);
    arena_pop(&d->tmp, mark);
}
static Tensor experts_back(const Ctx *c, Tensor dy, const Linear *l, Seqs ex) {
    Tensor du = push_rank(c, dy.rows, l);
    op_grouped_dx(c->dev, du, dy, l->lora.b, ex, leaves_one(dy.cols));
    op_scale(c->dev, du, du, l->lora.scale);
    return du;
}
void lora_experts_dx(const Ctx *c, Tensor dx, Tensor dy, const Linear *l, Seqs ex) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor du = experts_back(c, dy, l, ex), more = tensor_push(&d->tmp, dx.dtype, dx.rows, dx.cols);
    op_grouped_dx(d, more, du, l->lora.a, ex, leaves_one(du.cols));
    op_add(d, dx, dx, more);
    arena_pop(&d->tmp, mark);
}
void lora_experts_dw(const Ctx *c, const Params *g, const Linear *l, Tensor dy, Tensor x, Seqs ex) {
    Dev *d = c->dev;
    size_t mark = arena_mark(&d->tmp);
    Tensor da = grad(g, l, ADAPTER_A), db = grad(g, l, ADAPTER_B), u = push_rank(c, x.rows, l);
    op_grouped(d, u, x, l->lora.a, ex, leaves_one(x.cols));
    op_scale(d, u, u, l->lora.scale);
    if (db.data) op_grouped_dw(d, db, dy, u, ex);
    if (da.data) op_grouped_dw(d, da, experts_back(c, dy, l, ex), x, ex);
    arena_pop(&d->tmp, mark);
}
