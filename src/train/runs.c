/* runs.c - see runs.h.  Rows of a block are dealt out evenly over the ranks that share them; a block is so large that
 * a rank's rows of it are a mebibyte. */
#include "train/runs.h"

#include <string.h>

enum { LEAST = 1 << 20, TAG_ROWS = 1 << 22 }; /* LEAST: bytes that are written in one piece */

/* ---- shapes of an exchange */
typedef struct {
    int64_t full, c, rows, row0, each; /* columns on disk, here; rows of the run; its first; of a block, a rank's */
    int size, rank;
} Shape;
static int64_t columns(const ModelDesc *m, const Param *p) { return param_cols(&m->d, p->desc, p->layer); }
static int64_t rows_of_block(int64_t full) { return (LEAST / 4 + full - 1) / full; }

static Shape shape_of(const Runs *x, const Run *r) {
    const Param *p = &x->grads->at[r->grad];
    int64_t full = columns(x->grads->model, p), c = p->slice.cols;
    return (Shape){ full, c, r->n / c, r->from / c, rows_of_block(full), r->with->size, r->with->rank };
}
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Of a block: rows in all; how many a rank gets at most; a rank's. */
typedef struct {
    int64_t n, each;
} Dealt;
static Dealt block_of(const Shape *s, int64_t b) {
    int64_t n = least(s->each * s->size, s->rows - b * s->each * s->size);
    return (Dealt){ n, (n + s->size - 1) / s->size };
}
static int64_t rows_from(Dealt b, int rank) { return least(rank * b.each, b.n); }
static int64_t rows_for(Dealt b, int rank) { return least(b.each, b.n - rows_from(b, rank)); }

int64_t run_blocks(const Runs *x, const Run *r) {
    Shape s = shape_of(x, r);
    int64_t per = s.each * s.size;
    return (s.rows + per - 1) / per;
}
int64_t run_strips(const Runs *x, const Run *r, int64_t b, int64_t *from) {
    Shape s = shape_of(x, r);
    *from = b * s.each * s.size * s.c;
    return block_of(&s, b).n * s.c;
}
int64_t run_rows(const Runs *x, const Run *r, int64_t b) {
    Shape s = shape_of(x, r);
    return rows_for(block_of(&s, b), s.rank) * s.full;
}
RunPart run_row_part(const Runs *x, const Run *r, int64_t b, int64_t e, int64_t n) {
    Shape s = shape_of(x, r);
    const Slice *l = &x->grads->at[r->grad].slice;
    int64_t row = s.row0 + b * s.each * s.size + rows_from(block_of(&s, b), s.rank) + e / s.full, in = row % l->rows,
            left = (l->rows - in) * s.full - e % s.full;
    return (RunPart){ l->e0 + row / l->rows, (l->r0 + in) * s.full + e % s.full, least(n, left) };
}
RunPart run_part(const Runs *x, const Run *r, int64_t e, int64_t n) {
    ParamPlace p = param_place(x->w->model, &x->w->at[r->weight], r->from + e);
    return (RunPart){ p.expert, p.at, least(n, p.n) };
}

/* ---- the exchange: rank k's rows of the own strips lie one behind the other */
static void wait_all(const Runs *x, int n) {
    for (int i = 0; i < n; i++) comm_wait(&x->call[i]);
}
void rows_gather(const Runs *x, const Run *r, int64_t b) {
    Shape s = shape_of(x, r);
    Dealt k = block_of(&s, b);
    int64_t mine = rows_for(k, s.rank), strip = mine * s.c;
    int n = 0;
    for (int p = 0; p < s.size; p++) {
        int64_t theirs = rows_for(k, p) * s.c;
        const float *from = x->strips + rows_from(k, p) * s.c;
        if (p == s.rank) memcpy(x->got + p * strip, from, (size_t)strip * 4);
        else {
            if (strip) x->call[n++] = comm_recv_host(r->with, p, TAG_ROWS, x->got + p * strip, (size_t)strip * 4);
            if (theirs) x->call[n++] = comm_send_host(r->with, p, TAG_ROWS, from, (size_t)theirs * 4);
        }
    }
    wait_all(x, n);
    for (int64_t row = 0; row < mine; row++)
        for (int p = 0; p < s.size; p++)
            memcpy(x->rows + row * s.full + p * s.c, x->got + p * strip + row * s.c, (size_t)s.c * 4);
}
void rows_scatter(const Runs *x, const Run *r, int64_t b) {
    Shape s = shape_of(x, r);
    Dealt k = block_of(&s, b);
    int64_t mine = rows_for(k, s.rank), strip = mine * s.c;
    int n = 0;
    for (int64_t row = 0; row < mine; row++)
        for (int p = 0; p < s.size; p++)
            memcpy(x->got + p * strip + row * s.c, x->rows + row * s.full + p * s.c, (size_t)s.c * 4);
    for (int p = 0; p < s.size; p++) {
        int64_t theirs = rows_for(k, p) * s.c;
        float *to = x->strips + rows_from(k, p) * s.c;
        if (p == s.rank) memcpy(to, x->got + p * strip, (size_t)strip * 4);
        else {
            if (theirs) x->call[n++] = comm_recv_host(r->with, p, TAG_ROWS, to, (size_t)theirs * 4);
            if (strip) x->call[n++] = comm_send_host(r->with, p, TAG_ROWS, x->got + p * strip, (size_t)strip * 4);
        }
    }
    wait_all(x, n);
}

/* ---- which elements */
/* What is not trained is the same on every rank that has it: the first one's. */
static bool is_first(const Shard *s, const ParamDesc *p) {
    if (p->where == IN_EXPERT) return s->at.edp == 0;
    return !s->at.tp && !s->at.dp && !s->at.cp;
}

typedef struct {
    const Params *grads;
    int64_t *from, *to; /* [grads->n] of each what counts */
} Counted;
static void mark(void *user, Span s) {
    Counted *x = user;
    for (int i = 0; i < x->grads->n; i++) {
        int64_t at = params_from(x->grads, i), count = x->grads->at[i].t.rows * x->grads->at[i].t.cols;
        int64_t from = s.from > at ? s.from - at : 0, to = least(s.to - at, count);
        if (from < to) x->from[i] = from, x->to[i] = to;
    }
}

/* Of a parameter the rows that can be exchanged: those that are whole in its own elements.  group: how many ranks share
 * its columns. */
static Span strips_of(const ModelDesc *m, const Param *p, Span own, int group) {
    int64_t c = p->slice.cols, full = columns(m, p);
    if (group < 2 || !c || c * group != full) return (Span){ 0, 0 };
    int64_t from = (own.from + c - 1) / c * c, to = own.to / c * c;
    return to > from ? (Span){ from, to } : (Span){ 0, 0 };
}
static int sharers(const ParamDesc *p, const GridShape *g) { return p->where == IN_EXPERT ? g->etp : g->tp; }

typedef struct {
    Runs *x; /* at NULL: only counted */
    const Optim *opt;
    const Groups *par;
    const Moments *moments;
    const size_t *first; /* [w->n] on disk */
} Walk;

static void add(Walk *k, int i, int64_t from, int64_t to, bool counts, const Comm *with) {
    if (from >= to) return;
    Runs *x = k->x;
    if (x->at) {
        const Param *p = &x->grads->at[i];
        int w = x->w->index[p->layer][p->desc->id];
        int64_t at;
        Span own = optim_own(k->opt, x->grads, i, &at);
        x->at[x->n] = (Run){ .weight = w,
                             .grad = i,
                             .from = from,
                             .n = to - from,
                             .state = at + from - own.from,
                             .tensor = k->first[w],
                             .moment = k->moments->first[i],
                             .counts = counts,
                             .with = with };
    }
    x->n++;
}

static void add_frozen(void *user, const ParamDesc *desc, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)experts, (void)rows, (void)cols;
    Walk *k = user;
    Runs *x = k->x;
    int w = x->w->index[layer][desc->id];
    if (!arch_frozen(x->w->model, desc) || w < 0 || !slice_count(&x->w->at[w].slice)) return;
    if (x->at)
        x->at[x->n] = (Run){ .grad = -1,
                             .weight = w,
                             .n = slice_count(&x->w->at[w].slice),
                             .tensor = k->first[w],
                             .counts = is_first(&x->w->shard, desc) };
    x->n++;
}

static void add_all(Walk *k, const Counted *c) {
    Runs *x = k->x;
    x->n = 0;
    for (int strips = 1; strips >= 0; strips--) /* those that are exchanged first */
        for (int i = 0; i < x->grads->n; i++) {
            const Param *p = &x->grads->at[i];
            int64_t at;
            Span own = optim_own(k->opt, x->grads, i, &at), count = { c->from[i], c->to[i] };
            if (count.from >= count.to) count = (Span){ own.to, own.to };
            const Comm *with = p->desc->where == IN_EXPERT ? &k->par->etp : &k->par->tp;
            Span s = strips_of(x->grads->model, p, count, comm_is_dry(with) ? 1 : with->size);
            if (p->slice.c0 != with->rank * p->slice.cols) s = (Span){ 0, 0 };
            if (strips) add(k, i, s.from, s.to, true, with);
            else {
                if (s.from == s.to) s.from = s.to = count.from;
                add(k, i, own.from, count.from, false, NULL);
                add(k, i, count.from, s.from, true, NULL);
                add(k, i, s.to, count.to, true, NULL);
                add(k, i, count.to, own.to, false, NULL);
            }
        }
    arch_each_row(x->w->model, add_frozen, k);
}

/* Strips are exchanged where all that share the rows have the same of them. */
static void agree_on(Runs *x, const Comm *c) {
    typedef struct {
        int64_t id, from, n;
    } Strip;
    if (c->size == 1 || comm_is_dry(c)) return;
    Mem mem = { 0 };
    int64_t n = 0, *all_n = MEM_ARRAY(&mem, int64_t, (size_t)c->size);
    for (size_t i = 0; i < x->n; i++) n += x->at[i].with == c;
    comm_gather_host(c, all_n, &n, sizeof n);
    bool same = true;
    for (int r = 0; r < c->size; r++) same = same && all_n[r] == n;
    Strip *mine = MEM_ARRAY(&mem, Strip, (size_t)n + 1), *all = MEM_ARRAY(&mem, Strip, (size_t)(c->size * n) + 1);
    size_t k = 0;
    for (size_t i = 0; i < x->n; i++)
        if (x->at[i].with == c) {
            const Param *p = &x->grads->at[x->at[i].grad];
            mine[k++] = (Strip){ (int64_t)p->layer * P_SLOTS + (int64_t)p->desc->id, x->at[i].from, x->at[i].n };
        }
    if (same && n) comm_gather_host(c, all, mine, (size_t)n * sizeof *mine);
    k = 0;
    for (size_t i = 0; i < x->n; i++)
        if (x->at[i].with == c) {
            bool equal = same;
            for (int r = 0; equal && r < c->size; r++)
                equal = !memcmp(&all[(size_t)r * (size_t)n + k], &mine[k], sizeof *mine);
            if (!equal) x->at[i].with = NULL;
            k++;
        }
    mem_free(&mem);
}

static size_t room_of(const ModelDesc *m, const Param *p) { /* elements of one part of an exchange */
    int64_t full = columns(m, p);
    return (size_t)(rows_of_block(full) * full);
}

static void open_room(Runs *x, Mem *mem) {
    size_t most = 0, size = 0;
    for (size_t i = 0; i < x->n; i++) {
        const Run *r = &x->at[i];
        if (!r->with) continue;
        size_t room = room_of(x->grads->model, &x->grads->at[r->grad]);
        if (room > most) most = room;
        if ((size_t)r->with->size > size) size = (size_t)r->with->size;
    }
    if (!most) return;
    x->strips = MEM_ARRAY(mem, float, most);
    x->got = MEM_ARRAY(mem, float, most);
    x->rows = MEM_ARRAY(mem, float, most);
    x->call = MEM_ARRAY(mem, CommCall, 2 * size);
}

/* ---- opening */
typedef struct {
    const Params *w;
    size_t *first; /* [w->n] */
    size_t n;
} Numbers;
static void number_one(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    (void)rows, (void)cols;
    Numbers *x = user;
    int i = x->w->index[layer][desc->id];
    if (!expert && i >= 0) x->first[i] = x->n;
    x->n++;
}

static Counted counted(const Params *grads, Mem *mem) {
    Counted c = { grads, MEM_ARRAY(mem, int64_t, (size_t)grads->n), MEM_ARRAY(mem, int64_t, (size_t)grads->n) };
    reduce_each_counted(grads, mark, &c);
    return c;
}

Runs runs_open(const Params *w, const Params *grads, const Optim *opt, const Groups *par, const Moments *moments,
               Mem *mem) {
    Runs x = { .w = w, .grads = grads };
    Mem tmp = { 0 };
    Counted c = counted(grads, &tmp);
    Numbers no = { w, MEM_ARRAY(&tmp, size_t, (size_t)w->n), 0 };
    arch_each_param(w->model, number_one, &no);
    Walk k = { &x, opt, par, moments, no.first };
    add_all(&k, &c);
    x.at = MEM_ARRAY(mem, Run, x.n);
    add_all(&k, &c);
    agree_on(&x, &par->tp);
    agree_on(&x, &par->etp);
    open_room(&x, mem);
    mem_free(&tmp);
    return x;
}

typedef struct {
    const Params *grads;
    int64_t elements;
} Frozen;
static void count_frozen(void *user, const ParamDesc *desc, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)experts, (void)rows, (void)cols;
    Frozen *x = user;
    const Shard *s = &x->grads->shard;
    Slice here = param_slice(x->grads->model, desc, layer, &s->g, s->at);
    if (arch_frozen(x->grads->model, desc) && is_first(s, desc)) x->elements += slice_count(&here);
}

void runs_size(const ModelDesc *m, const Shard *shard, int each, int64_t *elements, size_t *room) {
    Mem mem = { 0 };
    Dev dry;
    Params grads;
    size_t most = 0;
    dev_open_dry(&dry, dev_kind_cpu());
    params_open(&grads, m, shard, &dry, DT_F32, true, "gradients", &mem);
    Counted c = counted(&grads, &mem);
    Frozen frozen = { &grads, 0 };
    arch_each_row(m, count_frozen, &frozen);
    *elements = frozen.elements;
    for (int i = 0; i < grads.n; i++) {
        const Param *p = &grads.at[i];
        *elements += each * (c.to[i] - c.from[i]);
        Span s = strips_of(m, p, (Span){ c.from[i], c.to[i] }, sharers(p->desc, &grads.shard.g));
        if (s.from == s.to) continue;
        *elements += each * columns(m, p); /* of the last block a rank may have a row more than another */
        if (room_of(m, p) > most) most = room_of(m, p);
    }
    *room = 3 * most * sizeof(float);
    dev_close(&dry);
    mem_free(&mem);
}
