/* syncplan.c - the moves between two cuts, counted: for every row of the table and every
 * rank, what it needs and lacks, and from whom. */
#include "plan/syncplan.h"

#include <math.h>

/* ---- Grids ------------------------------------------------------------------------------------------------------- */

static int64_t or_one(int x) { return x ? x : 1; }

int syncgrid_ranks(const char *text) {
    GridShape g;
    Err err;
    if (!grid_parse(&g, text, &err)) return 0;
    int64_t dense = or_one(g.tp) * or_one(g.pp) * or_one(g.cp) * or_one(g.dp),
            expert = or_one(g.ep) * or_one(g.etp) * or_one(g.pp);
    int64_t n = dense > expert ? dense : expert;
    return n > 1 << 20 ? 0 : (int)n;
}

bool syncgrid_parse(GridShape *g, const char *text, const char *split, int gpus, const ModelDesc *m, Err *err) {
    TRY(grid_parse(g, text, err));
    int64_t each = or_one(g->tp) * or_one(g->pp) * or_one(g->cp);
    if (g->dp && gpus % (each * g->dp) == 0) g->dp = (int)(gpus / each); /* repeated */
    if (m->d.experts && !g->ep && !g->etp) g->etp = g->tp;
    return grid_fill(g, m, gpus, split, 0, err) || err_wrap(err, "grid '%s'", text);
}

/* ---- Moves ------------------------------------------------------------------------------------------------------- */

/* The cut dimension's range of a slice, and experts'; what is 'both' in two of them. */
typedef struct {
    int64_t e0, e1, a0, a1;
} Box;
static Box box_of(const Slice *s, Cut cut) {
    if (!slice_count(s)) return (Box){ 0, 0, 0, 0 };
    bool cols = cut == BY_COLS;
    return (Box){ s->e0, s->e0 + s->experts, cols ? s->c0 : s->r0, cols ? s->c0 + s->cols : s->r0 + s->rows };
}
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static Box both(Box x, Box y) {
    return (Box){ larger(x.e0, y.e0), smaller(x.e1, y.e1), larger(x.a0, y.a0), smaller(x.a1, y.a1) };
}
static int64_t box_count(Box b) { return b.e1 > b.e0 && b.a1 > b.a0 ? (b.e1 - b.e0) * (b.a1 - b.a0) : 0; }
static bool box_same(Box x, Box y) { return x.e0 == y.e0 && x.e1 == y.e1 && x.a0 == y.a0 && x.a1 == y.a1; }

/* What of b is not in h, as boxes: experts before and behind those of h, and of the others what lies beside it. */
static int box_minus(Box out[4], Box b, Box h) {
    Box in = both(b, h);
    int n = 0;
    if (!box_count(in)) return out[0] = b, 1;
    const Box parts[4] = { { b.e0, in.e0, b.a0, b.a1 },
                           { in.e0, in.e1, b.a0, in.a0 },
                           { in.e0, in.e1, in.a1, b.a1 },
                           { in.e1, b.e1, b.a0, b.a1 } };
    for (int i = 0; i < 4; i++)
        if (box_count(parts[i])) out[n++] = parts[i];
    return n;
}

/* Rows that are cut alike and stand in the same stages of both grids: what is known of one layer's is known of all. */
typedef struct {
    const ParamDesc *p;
    int layer, layers, stage, to_stage; /* the first layer, how many there are; the stages that give and get */
    int inner, outer;
    Box *piece;                       /* [outer*inner] of the giving grid */
    int64_t unit, experts;            /* elements of a unit */
    int64_t most_experts, most_units; /* of a move: no more than the largest piece, and the largest need */
} Class;

typedef struct {
    const SyncPair *s;
    Mem *mem;
    VEC(Class)
    all;
    VEC(int)
    row; /* the class of each row */
} Classes;

static int stage_of(const GridShape *g, const ParamDesc *p, int layer) {
    if (p->where == IN_LAST) return (grid_chunks(g) - 1) % g->pp;
    if (p->where == IN_FIRST || p->where == IN_VIS || p->where == IN_VIS_LAYER) return 0;
    return grid_chunk_of(g, layer) % g->pp;
}

static Class class_of(const SyncPair *s, const ParamDesc *p, int layer, Mem *mem) {
    const GridShape *g = s->from;
    bool expert = p->where == IN_EXPERT;
    Class c = { .p = p, .layer = layer, .stage = stage_of(g, p, layer), .to_stage = stage_of(s->to, p, layer) };
    c.inner = expert ? g->etp : p->cut == WHOLE ? 1 : g->tp;
    c.outer = expert ? g->ep : 1;
    c.piece = MEM_ARRAY(mem, Box, (size_t)(c.outer * c.inner));
    for (int i = 0; i < c.outer * c.inner; i++) {
        Slice piece = param_slice(s->m, p, layer, g, grid_at(g, c.stage * grid_stage_ranks(g) + i));
        c.piece[i] = box_of(&piece, p->cut);
    }
    return c;
}

static void add_row(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    Classes *x = user;
    int stage = stage_of(x->s->from, p, layer), to = stage_of(x->s->to, p, layer), k = (int)x->all.n - 1;
    while (k >= 0 && !(x->all.at[k].p == p && x->all.at[k].stage == stage && x->all.at[k].to_stage == to)) k--;
    if (k < 0) {
        Class c = class_of(x->s, p, layer, x->mem);
        c.unit = p->cut == BY_COLS ? rows : cols, c.experts = experts;
        k = (int)x->all.n;
        VEC_PUSH(x->all, c);
    }
    x->all.at[k].layers++;
    VEC_PUSH(x->row, k);
}

static void classes_free(Classes *x) {
    vec_free(x->all.at);
    vec_free(x->row.at);
}

/* A rank of the stage that holds piece 'first' of every 'step': on the receiver's node if
 * there is one, else spread over the replicas. */
static int holder(const SyncPair *s, int stage, int first, int step, int r) {
    int per = grid_stage_ranks(s->from), base = stage * per, copies = per / step, node = r / s->node;
    int lo = node * s->node - base, hi = lo + s->node;
    int c = lo <= first ? 0 : (lo - first + step - 1) / step;
    if (c < copies && first + c * step < hi) {
        int there = 1 + (hi - 1 - first - c * step) / step; /* how many on this node */
        if (there > copies - c) there = copies - c;
        return base + first + (c + r % there) * step;
    }
    return base + first + r % copies * step;
}

static void boxes_of(const SyncPair *s, const Class *c, int r, Box *need, Box *have) {
    Slice n = param_slice(s->m, c->p, c->layer, s->to, grid_at(s->to, r)),
          h = param_slice(s->m, c->p, c->layer, s->from, grid_at(s->from, r));
    *need = box_of(&n, c->p->cut), *have = box_of(&h, c->p->cut);
}

typedef void MoveVisit(void *user, const Class *c, const SyncMove *m);

/* What rank r lacks of a row comes piece by piece of the giving grid; neighbours' pieces may overlap (kv heads): the
 * first gives.  only: the giver or getter whose moves are asked for; -1: all. */
static void moves_to(const SyncPair *s, const Class *c, int r, int only, MoveVisit *visit, void *user) {
    Box n, h, lacks[4];
    boxes_of(s, c, r, &n, &h);
    if (!box_count(n) || box_same(n, h)) return;
    Box own = both(n, h);
    if (box_count(own) && (only < 0 || only == r)) visit(user, c, &(SyncMove){ r, r, own.e0, own.e1, own.a0, own.a1 });
    if (box_count(own) == box_count(n)) return;
    for (int o = 0; o < c->outer; o++) {
        int64_t done = 0;
        for (int i = 0; i < c->inner; i++) {
            int first = o * c->inner + i;
            Box b = both(n, c->piece[first]);
            b.a0 = larger(b.a0, done);
            if (b.a1 > b.a0) done = b.a1;
            if (!box_count(b)) continue;
            int src = holder(s, c->stage, first, c->inner * c->outer, r), k = 0;
            if (only < 0 || only == r || only == src) k = box_minus(lacks, b, h);
            for (int j = 0; j < k; j++)
                visit(user, c, &(SyncMove){ src, r, lacks[j].e0, lacks[j].e1, lacks[j].a0, lacks[j].a1 });
        }
    }
}

/* ---- One rank's list */

typedef struct {
    VEC(SyncMove)
    at;
} Moves;
static void add_move(void *user, const Class *c, const SyncMove *m) {
    (void)c;
    Moves *x = user;
    VEC_PUSH(x->at, *m);
}

/* So many turns its rows take.  Too many would cost nothing but an order that is less even. */
static void largest_move(Class *c, const SyncPair *s, int first, int n) {
    int64_t experts = 0, units = 0;
    for (int i = 0; i < c->outer * c->inner; i++) {
        c->most_experts = larger(c->most_experts, c->piece[i].e1 - c->piece[i].e0);
        c->most_units = larger(c->most_units, c->piece[i].a1 - c->piece[i].a0);
    }
    for (int r = first; r < first + n; r++) {
        Slice need = param_slice(s->m, c->p, c->layer, s->to, grid_at(s->to, r));
        Box b = box_of(&need, c->p->cut);
        experts = larger(experts, b.e1 - b.e0), units = larger(units, b.a1 - b.a0);
    }
    c->most_experts = smaller(c->most_experts, experts), c->most_units = smaller(c->most_units, units);
}

typedef struct {
    SyncList *list;
    const Classes *x;
    const int *first; /* [classes+1] */
} Naming;
static void name_row(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)experts, (void)rows, (void)cols;
    Naming *n = user;
    int k = n->x->row.at[n->list->rows];
    const Class *c = &n->x->all.at[k];
    n->list->row[n->list->rows++] =
        (SyncRow){ p, layer, n->first[k], n->first[k + 1] - n->first[k], c->unit, c->most_experts, c->most_units };
}

static void by_stage(SyncList *l, const Classes *x, Mem *mem) {
    l->stages = x->s->from->pp;
    l->of_stage = MEM_ARRAY(mem, int, (size_t)l->rows);
    l->first = MEM_ARRAY(mem, int, (size_t)l->stages + 1);
    int n = 0;
    for (int s = 0; s < l->stages; s++) {
        for (int i = 0; i < l->rows; i++)
            if (x->all.at[x->row.at[i]].stage == s) l->of_stage[n++] = i;
        l->first[s + 1] = n;
    }
}

void sync_list(SyncList *out, const SyncPair *s, int me, Mem *mem) {
    Mem own = { 0 };
    Classes x = { .s = s, .mem = &own };
    Moves moves = { 0 };
    arch_each_row(s->m, add_row, &x);
    int *first = MEM_ARRAY(&own, int, x.all.n + 1);
    for (size_t k = 0; k < x.all.n; k++) {
        const Class *c = &x.all.at[k];
        int per = grid_stage_ranks(s->to), from = c->to_stage * per, n = per;
        bool tied = c->p->id == P_EMBED && s->m->d.tied; /* it is at both ends */
        if (tied) from = 0, n = s->ranks;
        for (int r = from; r < from + n; r++) moves_to(s, c, r, me, add_move, &moves);
        largest_move(&x.all.at[k], s, from, n);
        first[k + 1] = (int)moves.at.n;
    }
    *out = (SyncList){ .row = MEM_ARRAY(mem, SyncRow, x.row.n), .moves = (int)moves.at.n };
    out->move = mem_copy(mem, moves.at.at, moves.at.n * sizeof *moves.at.at);
    Naming naming = { out, &x, first };
    arch_each_row(s->m, name_row, &naming);
    by_stage(out, &x, mem);
    vec_free(moves.at.at);
    classes_free(&x);
    mem_free(&own);
}

/* ---- The largest slice.  Most slices are no larger than one that is known to be received: those are passed over. */

double sync_largest(const SyncPair *s, double element) {
    Mem own = { 0 };
    Classes x = { .s = s, .mem = &own };
    double largest = 0;
    arch_each_row(s->m, add_row, &x);
    for (size_t k = 0; k < x.all.n; k++) {
        const Class *c = &x.all.at[k];
        double unit = (double)c->unit * (c->p->vector ? 4 : element);
        int per = grid_stage_ranks(s->to), from = c->to_stage * per, n = per;
        if (c->p->id == P_EMBED && s->m->d.tied) from = 0, n = s->ranks;
        for (int r = from; r < from + n; r++) {
            Slice need = param_slice(s->m, c->p, c->layer, s->to, grid_at(s->to, r));
            Box all = box_of(&need, c->p->cut), has;
            double bytes = (double)(all.a1 - all.a0) * unit;
            if (bytes <= largest) continue;
            boxes_of(s, c, r, &all, &has);
            if (box_count(all) > box_count(both(all, has))) largest = bytes;
        }
    }
    classes_free(&x);
    mem_free(&own);
    return largest;
}

/* ---- The count */

typedef struct {
    const SyncPair *s;
    double *received, *far, *sent, *held, *needed, moved, moved_far, kept, tensors;
    double bytes, largest; /* of a unit; of a tensor's slice that something of is received */
} Work;

static void count_move(void *user, const Class *c, const SyncMove *m) {
    Work *w = user;
    if (m->from == m->to) return; /* kept */
    double bytes = (double)(m->a1 - m->a0) * w->bytes * (double)(m->e1 - m->e0) * c->layers;
    bool far = m->from / w->s->node != m->to / w->s->node;
    w->sent[m->from] += bytes, w->received[m->to] += bytes, w->moved += bytes;
    if (far) w->moved_far += bytes, w->far[m->to] += bytes;
}

static void count_class(Work *w, const Class *c, double element) {
    w->bytes = (double)c->unit * (c->p->vector ? 4 : element);
    w->tensors += (double)(c->experts * c->layers);
    for (int r = 0; r < w->s->ranks; r++) {
        Box n, h;
        boxes_of(w->s, c, r, &n, &h);
        w->held[r] += (double)box_count(h) * w->bytes * c->layers;
        w->needed[r] += (double)box_count(n) * w->bytes * c->layers;
        w->kept += (double)box_count(both(n, h)) * w->bytes * c->layers;
        if (box_count(n) > box_count(both(n, h))) w->largest = fmax(w->largest, (double)(n.a1 - n.a0) * w->bytes);
        moves_to(w->s, c, r, -1, count_move, w);
    }
}

static double most(const double *x, int n) {
    double m = 0;
    for (int i = 0; i < n; i++) m = fmax(m, x[i]);
    return m;
}

/* Of NVLink's rate, what an all-gather over a node reaches: the profiles' ring. */
static const double RING_SHARE = 0.65;

double sync_buffer(double largest, double most_bytes) {
    double align = ARENA_ALIGN, want = fmin(ceil(2 * largest / align) * align, most_bytes);
    return largest > 0 ? fmax(want, 2 * SYNC_SLOTS * align) : 0;
}

void sync_plan(SyncPlan *out, const ModelSum *s, const GridShape *from, const GridShape *to, const Cluster *c,
               double element, double buffer) {
    Mem mem = { 0 };
    int n = c->gpus;
    SyncPair pair = { s->model, from, to, n, c->gpu.domain };
    Classes x = { .s = &pair, .mem = &mem };
    Work w = { .s = &pair };
    double **lists[] = { &w.received, &w.far, &w.sent, &w.held, &w.needed };
    for (size_t i = 0; i < COUNT(lists); i++) *lists[i] = MEM_ARRAY(&mem, double, (size_t)n);
    arch_each_row(s->model, add_row, &x);
    for (size_t k = 0; k < x.all.n; k++) count_class(&w, &x.all.at[k], element);
    *out = (SyncPlan){ .ranks = n,
                       .weights = element * s->total,
                       .held = most(w.held, n),
                       .needed = most(w.needed, n),
                       .moved = w.moved,
                       .moved_far = w.moved_far,
                       .received = most(w.received, n),
                       .received_far = most(w.far, n),
                       .sent = most(w.sent, n),
                       .kept = w.kept,
                       .buffer = sync_buffer(w.largest, buffer),
                       .tensors = w.tensors };
    for (int r = 0; r < n; r++) {
        double near = fmax(w.received[r], w.sent[r]) / (c->gpu.nvlink * LINK_SHARE),
               far = w.far[r] / (c->gpu.nic * LINK_SHARE);
        double sends = w.moved > 0 ? w.sent[r] * w.moved_far / w.moved / (c->gpu.nic * LINK_SHARE) : 0;
        out->seconds = fmax(out->seconds, fmax(near, fmax(far, sends)));
    }
    SyncPieces pieces = sync_pieces_of(out->buffer, (int)element, !c->gpu.is_cpu);
    out->ordered = sync_ports(&pair, pieces, c->gpu.nic * LINK_SHARE, c->gpu.nvlink * LINK_SHARE, &out->ordered_far);
    int cut = from->ep > from->tp ? from->ep : from->tp;
    out->seconds_whole = (from->pp > 1 ? out->weights / cut / (c->gpu.nic * LINK_SHARE) : 0)
                         + out->weights / (c->gpu.nvlink * RING_SHARE);
    classes_free(&x);
    mem_free(&mem);
}
