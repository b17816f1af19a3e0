/* linear.c - dense, grouped and headwise products as jobs of one kind, Prod, cut over threads by rows and columns.
 * A cut of M or N is invisible in the result: every element of c is a chain of its own. */
#include "op/cpu/chain.h"

#include <string.h>

void prod_leaves(Prod *g, Leaves sum) {
    g->nseg = sum.n;
    int64_t from = leaves_cut(&sum, sum.first);
    for (int s = 0; s <= sum.n; s++) g->cut[s] = leaves_cut(&sum, sum.first + s) - from;
}

void cpu_prod_at(const Kern *k, const Prod *g, float *work) { k->prod(g, 0, g->M, 0, g->N, work); }

/* ---- a list of products, made one by one in the worker that takes it --------------------------------------------- */
typedef struct List List;
struct List {
    Dev *d;
    Prod one; /* what all have in common */
    void (*make)(Prod *g, const List *l, int i);
    const int32_t *at;              /* grouped: rows of group i */
    const Prod *each;               /* several of one x: they themselves */
    int64_t step_a, step_b, step_c; /* headwise: elements from one head to the next */
    int n, mp, np;                  /* products, and pieces of each by rows and columns */
    int64_t unit, call;             /* columns are cut at multiples of; the number of this list */
};

static void list_piece(void *arg, int i, int worker) {
    const List *l = arg;
    Prod g = l->one;
    int part = i % (l->mp * l->np), mi = part / l->np, ni = part % l->np;
    if (l->make) {
        int at = i / (l->mp * l->np);
        if (at + 1 < l->n && !g.a_turned) { /* its weights are asked for while the last of this one are used */
            Prod then = g;
            l->make(&then, l, at + 1);
            if (then.M > 0) g.next = then.b;
        }
        l->make(&g, l, at);
    }
    const Kern *k = cpu_kern(l->d);
    int64_t nu = (g.N + l->unit - 1) / l->unit, mu = (g.M + k->mr - 1) / k->mr; /* cut at borders of tiles */
    int64_t n0 = nu * ni / l->np * l->unit, n1 = nu * (ni + 1) / l->np * l->unit;
    int64_t m0 = mu * mi / l->mp * k->mr, m1 = mu * (mi + 1) / l->mp * k->mr;
    g.kept = cpu_turned(l->d, worker), g.call = l->call;
    if (n1 > g.N) n1 = g.N;
    if (m1 > g.M) m1 = g.M;
    if (m0 < m1 && n0 < n1) k->prod(&g, m0, m1, n0, n1, cpu_work(l->d, worker));
}

/* rows, columns: of the largest product; work: fused multiply-adds of all.  Several pieces for each thread, because
 * cores are not equally quick: by rows where there are many or the weights fit every core's cache (rows then stay with
 * the core that made them), else by columns, so that each core reads weights of its own. */
static void list_run(List *l, int64_t rows, int64_t cols, double work) {
    enum {
        ROWS = 256,
        FEW_ROWS = 48,
        DW_ROWS = 32,
        COLS = 192,
        WIDE_COLS = 384,
        KEPT_COLS = 96,
        PIECE_NS = 15000,
        CACHE = 1 << 20
    };
    int threads = threads_count(l->d->threads);
    bool keeps = rows > PROD_FEW && prod_keeps(&l->one, rows); /* then a piece costs no more for being narrow */
    double ns = work / 80, bytes = (double)l->n * (double)cols * (double)l->one.K * (l->one.b_bf16 ? 2 : 4);
    if (!l->one.a_turned && ns < bytes / 12) ns = bytes / 12; /* 80 multiply-adds or 12 bytes of weights a nanosecond */
    l->mp = l->np = 1;
    l->unit = keeps ? PROD_STEP : cpu_kern(l->d)->nr;
    l->call = ++*cpu_calls(l->d);
    if (threads > 1 && ns > cpu_worth(l->d)) {
        double most = ns / PIECE_NS;
        int want = ((keeps ? 8 : 4) * threads + l->n - 1) / l->n;
        if (want * l->n > most) want = (int)(most / l->n);
        if (want * l->n < threads) want = (threads + l->n - 1) / l->n;
        int64_t least = rows < ROWS * threads && cols * l->one.K * 4 <= CACHE ? FEW_ROWS : ROWS;
        if (l->one.a_turned) { /* a sum over tokens: every piece packs all of b */
            least = rows / threads < ROWS ? rows / threads : ROWS;
            if (least < DW_ROWS) least = DW_ROWS;
        }
        l->mp = (int)(rows / least < want ? rows / least : want);
        if (l->mp < 1) l->mp = 1;
        if (l->n == 1 && l->mp > threads) l->mp -= l->mp % threads; /* as many pieces for one thread as for another */
        int64_t narrow = keeps                                ? KEPT_COLS
                         : l->one.b_turned || l->one.a_turned ? COLS
                                                              : WIDE_COLS; /* read along their rows, in long runs */
        int64_t by_cols = (want + l->mp - 1) / l->mp, room = cols < narrow ? 1 : cols / narrow;
        if (l->mp * room * l->n < threads)
            room = cols / (2 * cpu_kern(l->d)->nr); /* rather narrow pieces than an idle thread */
        l->np = (int)(room < by_cols ? room : by_cols);
        if (l->np < 1) l->np = 1;
        while (l->n == 1 && l->np > 1 && l->mp * l->np > threads && l->mp * l->np % threads) l->np--;
    }
    cpu_run(l->d, l->n * l->mp * l->np, ns, list_piece, l);
}

void cpu_prod(Dev *d, const Prod *g) {
    List l = { .d = d, .one = *g, .n = 1 };
    if (g->M > 0 && g->N > 0) list_run(&l, g->M, g->N, (double)g->M * (double)g->N * (double)g->K);
}

/* ---- dense */
static Prod nt(Tensor y, Tensor x, Tensor w, Leaves sum) { /* y = x w' */
    Prod g = { .c = y.data,
               .ldc = y.ld,
               .a = x.data,
               .lda = x.ld,
               .b = w.data,
               .ldb = w.ld,
               .M = x.rows,
               .N = y.cols,
               .K = x.cols,
               .b_turned = true,
               .b_bf16 = w.dtype == DT_BF16 };
    prod_leaves(&g, sum);
    return g;
}
static Prod nn(Tensor dx, Tensor dy, Tensor w, Leaves sum) { /* dx = dy w */
    Prod g = nt(dx, dy, w, sum);
    g.b_turned = false;
    return g;
}
static Prod tn(Tensor dw, Tensor dy, Tensor x) { /* dw += dy' x; without .more dw = dy' x */
    Prod g = { .c = dw.data,
               .ldc = dw.ld,
               .a = dy.data,
               .lda = dy.ld,
               .b = x.data,
               .ldb = x.ld,
               .M = dy.cols,
               .N = x.cols,
               .K = dy.rows,
               .a_turned = true,
               .more = true,
               .nseg = 1,
               .cut = { 0, dy.rows } };
    return g;
}

/* Rows for every thread, and weights that stay in its cache while its rows pass: then a
 * product is work on rows like any other. */
enum { EACH = 32 };
static bool by_rows(const Dev *d, const Prod *g, int64_t rows) {
    enum { CACHE = 1 << 19 };
    return cpu_dev(d)->chains && rows >= EACH * threads_count(d->threads) && g->N * g->K * (g->b_bf16 ? 2 : 4) <= CACHE;
}
static double row_cost(const Prod *g) { return (double)g->N * (double)g->K / 80; }
static void linear_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Prod *g = arg;
    k->prod(g, r0, r1, 0, g->N, work);
}
static void linear_run(Dev *d, const Prod *g, Tensor y, Tensor x) {
    if (by_rows(d, g, g->M)) {
        Touch t[] = { writes(y), reads(x) };
        cpu_call(d, &(Call){ .rows = g->M,
                             .cost = row_cost(g),
                             .fn = linear_rows,
                             .arg = g,
                             .bytes = sizeof *g,
                             .touch = t,
                             .touches = (int)COUNT(t),
                             .least = 2 * EACH });
        return;
    }
    chain_end(d);
    cpu_prod(d, g);
}
void cpu_linear(Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum) {
    Prod g = nt(y, x, w, sum);
    g.bias = b.data;
    linear_run(d, &g, y, x);
}
/* Weights that meet one x, in one go: threads wait for each other once, and x is turned once.  Where rows are work like
 * any other (by_rows) the chain has it together already. */
static void each_of(Prod *g, const List *l, int i) {
    const Prod *p = &l->each[i];
    g->c = p->c, g->ldc = p->ldc, g->b = p->b, g->ldb = p->ldb, g->b_bf16 = p->b_bf16, g->bias = p->bias, g->N = p->N;
}
static bool linears(Dev *d, int n, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    Prod g[3];
    double work = 0;
    int widest = 0;
    for (int i = 0; i < n; i++) {
        g[i] = nt(y[i], x, w[i], sum);
        g[i].bias = b[i].data;
        work += (double)g[i].M * (double)g[i].N * (double)g[i].K;
        if (g[i].N > g[widest].N) widest = i;
        if (by_rows(d, &g[i], x.rows)) return false;
    }
    if (x.rows < 1 || g[widest].N < 1) return false;
    List l = { .d = d, .one = g[widest], .make = each_of, .each = g, .n = n };
    chain_end(d);
    list_run(&l, x.rows, g[widest].N, work);
    return true;
}
bool cpu_linear2(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    return linears(d, 2, y, x, w, b, sum);
}
bool cpu_linear3(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum) {
    return linears(d, 3, y, x, w, b, sum);
}
void cpu_linear_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves sum) {
    Prod g = nn(dx, dy, w, sum);
    linear_run(d, &g, dx, dy);
}
static void linear_dw(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x, bool more) {
    Prod g = tn(dw, dy, x);
    g.more = more;
    cpu_prod(d, &g);
    const Kern *k = cpu_kern(d);
    if (db.data && !more) memset(db.data, 0, (size_t)dy.cols * sizeof(float));
    if (db.data)
        for (int64_t t = 0; t < dy.rows; t++) k->add(db.data, db.data, f32_row(dy, t), dy.cols);
}
void cpu_linear_dw(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) { linear_dw(d, dw, db, dy, x, true); }
bool cpu_linear_dw_first(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x) {
    linear_dw(d, dw, db, dy, x, false);
    return true;
}

/* ---- one weight per expert */
static void group_rows(Prod *g, const List *l, int e) { /* rows at[e].. of a and c, weight e of b */
    int64_t r = l->at[e], es = g->b_bf16 ? 2 : 4;
    g->M = l->at[e + 1] - r;
    g->a += r * g->lda, g->c += r * g->ldc;
    g->b = (const char *)g->b + e * l->step_b * es;
}
static void group_dw(Prod *g, const List *l, int e) { /* rows at[e].. of a and b are summed over */
    int64_t r = l->at[e];
    g->K = g->cut[1] = l->at[e + 1] - r;
    g->a += r * g->lda, g->b = (const float *)g->b + r * g->ldb;
    g->c += e * l->step_c;
    if (g->K == 0 && g->more) g->M = 0;
}
static void grouped_run(Dev *d, Prod g, void (*make)(Prod *, const List *, int), Seqs ex, int64_t step_b,
                        int64_t step_c, double work) {
    List l = { .d = d, .one = g, .make = make, .at = ex.at.data, .n = ex.n, .step_b = step_b, .step_c = step_c };
    if (ex.n > 0) list_run(&l, make == group_dw ? g.M : ex.longest, g.N, work);
}
typedef struct {
    Prod g;
    const int32_t *at;
    int64_t step_b;
    int n;
} Grouped;
static void grouped_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Grouped *p = arg;
    List l = { .at = p->at, .step_b = p->step_b };
    for (int e = 0; e < p->n && p->at[e] < r1; e++) {
        int64_t from = p->at[e] > r0 ? p->at[e] : r0, to = p->at[e + 1] < r1 ? p->at[e + 1] : r1;
        if (from >= to) continue;
        Prod g = p->g;
        group_rows(&g, &l, e);
        k->prod(&g, from - p->at[e], to - p->at[e], 0, g.N, work);
    }
}
/* All rows of y = x w', or of dx = dy w, each by its expert. */
static void grouped_each(Dev *d, const Prod *g, Tensor y, Tensor x, Seqs ex, int64_t step_b) {
    if (by_rows(d, g, g->M)) {
        Grouped p = { *g, ex.at.data, step_b, ex.n };
        Touch t[] = { writes(y), reads(x), reads_any(ex.at) };
        cpu_call(d, &(Call){ .rows = g->M,
                             .cost = row_cost(g),
                             .fn = grouped_rows,
                             .arg = &p,
                             .bytes = sizeof p,
                             .touch = t,
                             .touches = (int)COUNT(t),
                             .at = ex.at.data,
                             .groups = ex.n,
                             .least = 2 * EACH });
        return;
    }
    chain_end(d);
    grouped_run(d, *g, group_rows, ex, step_b, 0, (double)g->M * (double)g->N * (double)g->K);
}
void cpu_grouped(Dev *d, Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum) {
    Prod g = nt(y, x, w, sum);
    grouped_each(d, &g, y, x, ex, y.cols * w.ld);
}
/* Gate and up of every expert as one list: a product's x is still there when the other reads it. */
static void gate_or_up(Prod *g, const List *l, int i) {
    if (i % 2) g->b = l->each->b, g->c = l->each->c;
    group_rows(g, l, i / 2);
}
bool cpu_grouped_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu, Seqs ex, Leaves sum,
                        bool keep) {
    (void)keep;
    Prod g = nt(gate, x, wg, sum), u = nt(up, x, wu, sum);
    if (by_rows(d, &g, g.M) || ex.n < 1 || gate.ld != up.ld || wg.ld != wu.ld || wg.dtype != wu.dtype) return false;
    List l = {
        .d = d, .one = g, .make = gate_or_up, .at = ex.at.data, .each = &u, .n = 2 * ex.n, .step_b = gate.cols * wg.ld
    };
    chain_end(d);
    list_run(&l, ex.longest, g.N, 2 * (double)g.M * (double)g.N * (double)g.K);
    cpu_swiglu(d, h, gate, up);
    return true;
}
void cpu_grouped_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum) {
    Prod g = nn(dx, dy, w, sum);
    grouped_each(d, &g, dx, dy, ex, dy.cols * w.ld);
}
static void grouped_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex, bool more) {
    Prod g = tn(dw, dy, x);
    g.more = more;
    grouped_run(d, g, group_dw, ex, 0, dy.cols * dw.ld, (double)dy.rows * (double)x.cols * (double)dy.cols);
}
void cpu_grouped_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex) { grouped_dw(d, dw, dy, x, ex, true); }
bool cpu_grouped_dw_first(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex) {
    grouped_dw(d, dw, dy, x, ex, false);
    return true;
}

/* ---- one matrix per head */
static void head_of(Prod *g, const List *l, int h) {
    g->a += h * l->step_a, g->c += h * l->step_c;
    g->b = (const char *)g->b + h * l->step_b * (g->b_bf16 ? 2 : 4);
}
/* Head 0's parts as tensors; head_of steps from one head to the next. */
static Tensor part_of(Tensor x, int from, int64_t cols) {
    x.data = (char *)x.data + (size_t)from * dtype_size(x.dtype);
    x.cols = cols;
    return x;
}
static Tensor rows_from(Tensor w, int from, int64_t rows) {
    w.data = (char *)w.data + (size_t)(from * w.ld) * dtype_size(w.dtype);
    w.rows = rows;
    return w;
}
void cpu_headwise(Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m) {
    Tensor y0 = part_of(y, m.y_from, m.out), x0 = part_of(x, m.x_from, m.in),
           w0 = rows_from(w, m.w_from, m.turned ? m.in : m.out);
    List l = { .d = d,
               .one = m.turned ? nn(y0, x0, w0, leaves_one(m.in)) : nt(y0, x0, w0, leaves_one(m.in)),
               .make = head_of,
               .n = m.heads,
               .step_a = m.x_width,
               .step_c = m.y_width,
               .step_b = m.w_rows * w.ld };
    if (x.rows > 0) list_run(&l, x.rows, m.out, (double)x.rows * m.heads * m.in * m.out);
}
void cpu_headwise_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m) {
    Tensor dy0 = part_of(dy, m.y_from, m.out), x0 = part_of(x, m.x_from, m.in),
           w0 = rows_from(dw, m.w_from, m.turned ? m.in : m.out);
    List l = {
        .d = d,
        .one = m.turned ? tn(w0, x0, dy0) : tn(w0, dy0, x0),
        .make = head_of,
        .n = m.heads,
        .step_a = m.turned ? m.x_width : m.y_width,
        .step_b = m.turned ? m.y_width : m.x_width,
        .step_c = m.w_rows * dw.ld,
    };
    if (x.rows > 0) list_run(&l, m.out, m.in, (double)x.rows * m.heads * m.in * m.out);
}
typedef struct {
    Tensor y, x;
    HeadMap m;
} CopyHeads;
static void copy_head_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const CopyHeads *c = arg;
    (void)k, (void)work;
    for (int64_t r = r0; r < r1; r++)
        for (int h = 0; h < c->m.heads; h++)
            memcpy(f32_row(c->y, r) + h * c->m.y_width + c->m.y_from, f32_row(c->x, r) + h * c->m.x_width + c->m.x_from,
                   (size_t)c->m.out * 4);
}
void cpu_copy_heads(Dev *d, Tensor y, Tensor x, HeadMap m) {
    CopyHeads c = { y, x, m };
    cpu_rows(d, y.rows, (double)m.heads * m.out / 4, copy_head_rows, &c);
}
static void sum_head_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const CopyHeads *c = arg;
    (void)work;
    for (int64_t r = r0; r < r1; r++) {
        float *y = f32_row(c->y, r) + c->m.y_from;
        const float *x = f32_row(c->x, r) + c->m.x_from;
        memcpy(y, x, (size_t)c->m.out * 4);
        for (int h = 1; h < c->m.heads; h++) k->add(y, y, x + (int64_t)h * c->m.x_width, c->m.out);
    }
}
void cpu_sum_heads(Dev *d, Tensor y, Tensor x, HeadMap m) {
    CopyHeads c = { y, x, m };
    cpu_rows(d, y.rows, (double)m.heads * m.out / 4, sum_head_rows, &c);
}

/* ---- the upper levels of the tree */
typedef struct {
    Tensor y;
    const Tensor *part;
    int n;
} Tree;
static void tree_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Tree *t = arg;
    enum { COLS = 4096 }; /* columns at a time: log2(32) waiting sums of these fit in scratch */
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = 0; c < t->y.cols; c += COLS) {
            int64_t n = t->y.cols - c < COLS ? t->y.cols - c : COLS;
            int depth = 0;
            for (int i = 0; i < t->n; i++) { /* a binary counter: part i, then the sums it completes */
                const float *p = f32_row(t->part[i], r) + c;
                memcpy(work + depth * COLS, p, (size_t)n * 4);
                depth++;
                for (int low = i + 1; low % 2 == 0; low /= 2, depth--)
                    k->add(work + (depth - 2) * COLS, work + (depth - 2) * COLS, work + (depth - 1) * COLS, n);
            }
            memcpy(f32_row(t->y, r) + c, work, (size_t)n * 4);
        }
}
void cpu_tree_add(Dev *d, Tensor y, const Tensor *part, int n) {
    Tree t = { y, part, n };
    cpu_rows(d, y.rows, (double)y.cols * n * 0.5, tree_rows, &t);
}
