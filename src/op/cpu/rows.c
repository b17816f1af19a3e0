/* rows.c - moving, embedding, norms, SwiGLU, rope, the optimizer: what works on rows alone, cut over threads by rows.
 * Where rows are summed (a norm's gain, an embedding row) the cut is by columns, so that each
 * sum stays one chain over rows. */
#include "op/cpu/chain.h"

#include <math.h>
#include <string.h>

/* ---- moving */
void cpu_put(Dev *d, Tensor to, const void *from) {
    (void)d;
    size_t row = (size_t)to.cols * dtype_size(to.dtype), ld = (size_t)to.ld * dtype_size(to.dtype);
    for (int64_t r = 0; r < to.rows && row; r++)
        memcpy((char *)to.data + (size_t)r * ld, (const char *)from + (size_t)r * row, row);
}
void cpu_get(Dev *d, void *to, Tensor from) {
    (void)d;
    size_t row = (size_t)from.cols * dtype_size(from.dtype), ld = (size_t)from.ld * dtype_size(from.dtype);
    for (int64_t r = 0; r < from.rows && row; r++)
        memcpy((char *)to + (size_t)r * row, (const char *)from.data + (size_t)r * ld, row);
}

/* To nearest, ties to even; a NaN keeps its sign and stays one. */
static uint16_t bf16_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}
typedef struct {
    Tensor y, a, b, c, e, f;
    RopeShape s;
    float x;
    Part part;
} Args;
static void copy_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    Tensor to = p->y, from = p->a;
    size_t es = dtype_size(to.dtype), fs = dtype_size(from.dtype);
    (void)work;
    for (int64_t r = r0; r < r1; r++) {
        void *y = (char *)to.data + (size_t)(r * to.ld) * es;
        const void *x = (const char *)from.data + (size_t)(r * from.ld) * fs;
        if (to.dtype == from.dtype) memmove(y, x, (size_t)to.cols * es);
        else if (to.dtype == DT_F32) k->widen(y, x, to.cols);
        else
            for (int64_t i = 0; i < to.cols; i++) ((uint16_t *)y)[i] = bf16_of(((const float *)x)[i]);
    }
}
/* A single long row (a flat tensor) is cut as if it were many. */
static Tensor flat(Tensor x, int64_t *rows) {
    int64_t n = x.rows * x.cols, w = 4096;
    if (x.rows != 1 || n < 2 * w) {
        *rows = x.rows;
        return x;
    }
    x.rows = *rows = (n + w - 1) / w;
    x.cols = x.ld = w;
    return x;
}
void cpu_copy(Dev *d, Tensor to, Tensor from) {
    Args p = { .y = to, .a = from };
    if (to.rows == 1) { /* whole pieces of 4096, then what is left */
        int64_t body = to.cols / 4096 * 4096;
        p.y = tensor_over(to.data, to.dtype, body / 4096, 4096),
        p.a = tensor_over(from.data, from.dtype, body / 4096, 4096);
        cpu_rows(d, p.y.rows, 1000, copy_rows, &p);
        p.y = tensor_cols(to, body, to.cols - body), p.a = tensor_cols(from, body, to.cols - body);
    }
    cpu_rows(d, p.y.cols ? p.y.rows : 0, (double)p.y.cols / 4, copy_rows, &p);
}
static void zero_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    size_t es = dtype_size(p->y.dtype);
    (void)k, (void)work;
    int64_t left = p->a.cols - r0 * p->y.cols; /* the last row of a flat tensor may be short */
    for (int64_t r = r0; r < r1; r++, left -= p->y.cols)
        memset((char *)p->y.data + (size_t)(r * p->y.ld) * es, 0,
               (size_t)(p->a.cols && left < p->y.cols ? left : p->y.cols) * es);
}
void cpu_zero(Dev *d, Tensor x) {
    Args p = { .y = x };
    int64_t rows;
    p.y = flat(x, &rows);
    if (rows != x.rows) p.a.cols = x.cols;
    if (x.cols) cpu_rows(d, rows, (double)p.y.cols / 8, zero_rows, &p);
}

/* ---- embedding */
/* The row of token t's id in this part of the vocabulary, or -1. */
static int64_t row_of(Tensor ids, int64_t t, Part part, int64_t rows) {
    int32_t id = *i32_row(ids, t);
    CHECK(id >= 0 && id < part.of, "token %ld is %d; the vocabulary ends at %ld", (long)t, id, (long)part.of);
    return id >= part.first && id < part.first + rows ? id - part.first : -1;
}
static void embed_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    (void)work;
    for (int64_t r = r0; r < r1; r++) {
        int64_t id = row_of(p->a, r, p->part, p->b.rows);
        float *y = f32_row(p->y, r);
        if (id < 0)
            for (int64_t c = 0; c < p->y.cols; c++) y[c] = -0.0f;
        else if (p->b.dtype == DT_BF16) k->widen(y, (const uint16_t *)p->b.data + id * p->b.ld, p->y.cols);
        else memcpy(y, f32_row(p->b, id), (size_t)p->y.cols * 4);
    }
}
void cpu_embed(Dev *d, Tensor y, Tensor ids, Tensor w, Part part) {
    Args p = { .y = y, .a = ids, .b = w, .part = part };
    CPU_CALL(d, y.rows, (double)y.cols / 4, embed_rows, p, writes(y), reads(ids),
             reads_any(w)); /* w: also pictures' rows */
}
/* Sums over rows, cut by columns: fn gets columns c0..c1 (multiples of 64). */
static void cols_run(Dev *d, int64_t cols, double cost, RowsFn *fn, Args *p) {
    int64_t units = (cols + 63) / 64;
    cpu_rows(d, units, cost / (double)(units ? units : 1), fn, p);
}
static void embed_bwd_cols(const void *arg, int64_t u0, int64_t u1, const Kern *k, float *work) {
    const Args *p = arg;
    int64_t c0 = u0 * 64, c1 = u1 * 64 < p->y.cols ? u1 * 64 : p->y.cols;
    (void)work;
    for (int64_t t = 0; t < p->a.rows; t++) {
        int64_t id = row_of(p->b, t, p->part, p->y.rows);
        float *w = f32_row(p->y, id < 0 ? 0 : id) + c0;
        if (id >= 0) k->add(w, w, f32_row(p->a, t) + c0, c1 - c0);
    }
}
void cpu_embed_bwd(Dev *d, Tensor dw, Tensor dy, Tensor ids, Part part) {
    Args p = { .y = dw, .a = dy, .b = ids, .part = part };
    cols_run(d, dy.cols, (double)dy.rows * (double)dy.cols / 4, embed_bwd_cols, &p);
}

/* ---- norm */
static NormRows norm_part(const Args *p, int64_t r0, int64_t r1) {
    NormRows n = {
        .x = f32_row(p->b, r0), .ldx = p->b.ld, .g = p->e.data, .rows = r1 - r0, .n = p->b.cols, .eps = p->x
    };
    if (p->y.data) n.y = f32_row(p->y, r0), n.ldy = p->y.ld;
    if (p->a.data) n.dy = f32_row(p->a, r0), n.lddy = p->a.ld;
    if (p->c.data) n.rstd = f32_row(p->c, r0), n.ldr = p->c.ld;
    return n;
}
static void norm_piece(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    NormRows n = norm_part(arg, r0, r1);
    (void)work;
    k->norm(&n);
}
void cpu_rmsnorm(Dev *d, Tensor y, Tensor rstd, Tensor x, Tensor g, float eps) {
    Args p = { .y = y, .b = x, .c = rstd, .e = g, .x = eps };
    CPU_CALL(d, x.rows, (double)x.cols / 4, norm_piece, p, writes(y), writes(rstd), reads(x));
}
static void norm_dx_piece(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    NormRows n = norm_part(arg, r0, r1);
    (void)work;
    k->norm_dx(&n);
}
static void norm_dg_cols(const void *arg, int64_t u0, int64_t u1, const Kern *k, float *work) {
    const Args *p = arg;
    (void)work;
    for (int64_t c = u0 * 64; c < u1 * 64 && c < p->b.cols; c += 64) {
        NormRows n = norm_part(p, 0, p->b.rows);
        n.x += c, n.dy += c, n.y = (float *)p->f.data + c, n.n = p->b.cols - c < 64 ? p->b.cols - c : 64;
        k->norm_dg(&n);
    }
}
void cpu_rmsnorm_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g) {
    Args p = { .y = dx, .a = dy, .b = x, .c = rstd, .e = g, .f = dg };
    if (dg.data) { /* before dx, which may be dy */
        chain_end(d);
        cols_run(d, x.cols, (double)x.rows * (double)x.cols / 4, norm_dg_cols, &p);
    }
    if (dx.data)
        CPU_CALL(d, x.rows, (double)x.cols / 3, norm_dx_piece, p, writes(dx), reads(dy), reads(x), reads(rstd));
}

/* ---- SwiGLU, addition */
static void swiglu_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    (void)work;
    for (int64_t r = r0; r < r1; r++) k->silu_mul(f32_row(p->y, r), f32_row(p->a, r), f32_row(p->b, r), p->y.cols);
}
void cpu_swiglu(Dev *d, Tensor y, Tensor gate, Tensor up) {
    Args p = { .y = y, .a = gate, .b = up };
    CPU_CALL(d, y.rows, (double)y.cols / 2, swiglu_rows, p, writes(y), reads(gate), reads(up));
}
static void swiglu_bwd_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    (void)work;
    for (int64_t r = r0; r < r1; r++)
        k->silu_bwd(f32_row(p->y, r), f32_row(p->a, r), f32_row(p->b, r), f32_row(p->c, r), f32_row(p->e, r),
                    p->y.cols);
}
void cpu_swiglu_bwd(Dev *d, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    Args p = { .y = dgate, .a = dup, .b = dy, .c = gate, .e = up };
    CPU_CALL(d, dy.rows, (double)dy.cols, swiglu_bwd_rows, p, writes(dgate), writes(dup), reads(dy), reads(gate),
             reads(up));
}
static void add_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    (void)work;
    for (int64_t r = r0; r < r1; r++) k->add(f32_row(p->y, r), f32_row(p->a, r), f32_row(p->b, r), p->y.cols);
}
void cpu_add(Dev *d, Tensor y, Tensor a, Tensor b) {
    Args p = { .y = y, .a = a, .b = b };
    CPU_CALL(d, y.rows, (double)y.cols / 4, add_rows, p, writes(y), reads(a), reads(b));
}

/* ---- rope */
static void table_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    int64_t half = p->y.cols / 2;
    (void)work;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t axis = 0; axis < p->a.cols; axis++) { /* the runs of frequencies that turn by it */
            const float *freq = f32_row(p->b, axis);
            float *cs = f32_row(p->y, r), pos = (float)i32_row(p->a, r)[axis];
            for (int64_t i = 0, n; i < half; i += n + 1) {
                for (n = 0; i + n < half && (freq[i + n] != 0 || p->a.cols == 1); n++) {}
                if (n) k->sincos(cs + i, cs + half + i, freq + i, n, pos, p->x);
            }
        }
}
void cpu_rope_table(Dev *d, Tensor cossin, Tensor pos, Tensor freq, float amp) {
    Args p = { .y = cossin, .a = pos, .b = freq, .x = amp };
    CPU_CALL(d, cossin.rows, (double)cossin.cols * 15, table_rows, p, writes(cossin), reads(pos));
}
static void rope_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    int half = p->s.dim / 2;
    (void)work;
    for (int64_t r = r0; r < r1; r++) {
        const float *cs = f32_row(p->a, r), *sn = cs + half;
        for (int h = 0; h < p->s.heads; h++) {
            float *x = f32_row(p->y, r) + h * p->s.width + p->s.from;
            if (!p->s.pairs) k->rope(x, cs, sn, half, p->x);
            else
                for (int i = 0; i < half; i++) {
                    float a = x[2 * i], b = x[2 * i + 1], s = sn[i] * p->x;
                    x[2 * i] = a * cs[i] - b * s;
                    x[2 * i + 1] = b * cs[i] + a * s;
                }
        }
    }
}
void cpu_rope(Dev *d, Tensor x, Tensor cossin, RopeShape s, int turn) {
    Args p = { .y = x, .a = cossin, .s = s, .x = (float)turn };
    CPU_CALL(d, x.rows, (double)s.heads * s.dim, rope_rows, p, writes(x), reads(cossin));
}

static void scale_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    (void)k, (void)work;
    for (int64_t r = r0; r < r1; r++) {
        float *y = f32_row(p->y, r);
        const float *x = f32_row(p->a, r);
        for (int64_t i = 0; i < p->y.cols; i++) y[i] = p->x * x[i];
    }
}
void cpu_scale(Dev *d, Tensor y, Tensor x, float by) {
    Args p = { .y = y, .a = x, .x = by };
    CPU_CALL(d, y.rows, (double)y.cols / 4, scale_rows, p, writes(y), reads(x));
}

/* ---- biases */
static void add_row_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    const float *b = p->a.data;
    if (p->a.dtype == DT_BF16) k->widen(work, p->a.data, p->a.cols), b = work;
    for (int64_t r = r0; r < r1; r++) k->add(f32_row(p->y, r), f32_row(p->y, r), b, p->y.cols);
}
void cpu_add_row(Dev *d, Tensor y, Tensor b) {
    Args p = { .y = y, .a = b };
    CHECK(b.dtype == DT_F32 || b.cols <= CPU_WORK, "a bias of %ld", (long)b.cols);
    CPU_CALL(d, y.rows, (double)y.cols / 8, add_row_rows, p, writes(y));
}
static void sum_rows_cols(const void *arg, int64_t u0, int64_t u1, const Kern *k, float *work) {
    const Args *p = arg;
    int64_t c0 = u0 * 64, c1 = u1 * 64 < p->y.cols ? u1 * 64 : p->y.cols;
    float *sum = (float *)p->y.data + c0;
    (void)work;
    for (int64_t t = 0; t < p->a.rows; t++) k->add(sum, sum, f32_row(p->a, t) + c0, c1 - c0);
}
void cpu_sum_rows(Dev *d, Tensor db, Tensor dy) {
    Args p = { .y = db, .a = dy };
    cols_run(d, dy.cols, (double)dy.rows * (double)dy.cols / 8, sum_rows_cols, &p);
}

/* ---- the optimizer */
enum { FLAT = 1 << 16 }; /* elements a piece: fixed, so that sums do not know the threads */
typedef struct {
    const Tensor *x;
    double *part;
    int64_t n, step, first;
    AdamNow a;
    Dev *d;
} Flat;
static void sumsq_piece(void *arg, int i, int worker) {
    const Flat *f = arg;
    int64_t at = (int64_t)i * FLAT, n = f->n - at < FLAT ? f->n - at : FLAT;
    (void)worker;
    f->part[i] = cpu_kern(f->d)->sumsq((const float *)f->x->data + at, n);
}
/* Pieces in rounds of as many as there is room for; added in ascending order. */
double cpu_sumsq(Dev *d, Tensor x) {
    enum { ROUND = 1024 };
    double part[ROUND], sum = 0;
    int64_t n = x.rows * x.cols;
    for (int64_t at = 0; at < n; at += (int64_t)ROUND * FLAT) {
        Tensor y = x;
        y.data = (float *)x.data + at;
        int64_t m = n - at < (int64_t)ROUND * FLAT ? n - at : (int64_t)ROUND * FLAT;
        Flat f = { .x = &y, .part = part, .n = m, .d = d };
        int pieces = (int)((m + FLAT - 1) / FLAT);
        cpu_run(d, pieces, (double)m / 4, sumsq_piece, &f);
        for (int i = 0; i < pieces; i++) sum += part[i];
    }
    return sum;
}
/* What is short is made wide in the worker's scratch, stepped there, and made short again. */
enum { ADAM_PIECE = 1 << 14, ADAM_W = 0, ADAM_MASTER, ADAM_M, ADAM_V, ADAM_G };
_Static_assert(3 * ADAM_PIECE <= CPU_WORK, "a master and two moments fit a worker's scratch");
static float *widened(const Kern *k, Tensor x, int64_t at, int64_t n, float *room) {
    if (x.dtype == DT_F32) return (float *)x.data + at;
    k->widen(room, (const uint16_t *)x.data + at, n);
    return room;
}
/* Two where elements' numbers pass 2^32: the key is of their upper half. */
static void narrow_moments(const Flat *f, const Kern *k, const float *m, const float *v, int64_t at, int64_t n) {
    uint16_t *to_m = (uint16_t *)f->x[ADAM_M].data + at, *to_v = (uint16_t *)f->x[ADAM_V].data + at;
    for (int64_t i = 0, len; i < n; i += len) {
        int64_t e = f->first + at + i, left = ((int64_t)1 << 32) - (e & UINT32_MAX);
        len = n - i < left ? n - i : left;
        k->moments(to_m + i, to_v + i, m + i, v + i, len, adam_key(f->step, e), (uint32_t)e);
    }
}
static void adamw_piece(void *arg, int i, int worker) {
    const Flat *f = arg;
    const Kern *k = cpu_kern(f->d);
    float *room = cpu_work(f->d, worker);
    int64_t at = (int64_t)i * ADAM_PIECE, n = f->n - at < ADAM_PIECE ? f->n - at : ADAM_PIECE;
    const Tensor *x = f->x;
    uint16_t *half = (uint16_t *)x[ADAM_W].data + at;
    int16_t *rest = (int16_t *)x[ADAM_MASTER].data + at;
    bool none = !x[ADAM_MASTER].data, split = !none && x[ADAM_MASTER].dtype == DT_I16;
    float *w = split ? room : (float *)x[none ? ADAM_W : ADAM_MASTER].data + at;
    float *m = widened(k, x[ADAM_M], at, n, room + ADAM_PIECE),
          *v = widened(k, x[ADAM_V], at, n, room + 2 * ADAM_PIECE);
    if (split) k->join(w, half, rest, n);
    k->adamw(w, m, v, (const float *)x[ADAM_G].data + at, n, &f->a);
    if (split) k->split(half, rest, w, n);
    for (int64_t j = 0; !none && !split && j < n; j++) half[j] = bf16_of(w[j]);
    if (x[ADAM_M].dtype != DT_F32) narrow_moments(f, k, m, v, at, n);
}
void cpu_adamw(Dev *d, Tensor w, Tensor master, Tensor m, Tensor v, Tensor g, Adam a) {
    Tensor x[] = { w, master, m, v, g };
    Flat f = { .x = x, .n = w.rows * w.cols, .d = d, .a = adam_now(a), .step = a.step, .first = a.first };
    cpu_run(d, (int)((f.n + ADAM_PIECE - 1) / ADAM_PIECE), (double)f.n, adamw_piece, &f);
}
