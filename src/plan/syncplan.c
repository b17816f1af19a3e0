/* syncplan.c - the moves between two cuts, counted: for every row of the table and every rank, what it needs and lacks, and from whom. */
#include "plan/syncplan.h"

#include <math.h>

/* ---- Grids ------------------------------------------------------------------------------------------------------------- */

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

/* ---- Moves ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    const ModelDesc *m;
    const GridShape *from, *to;
    int ranks, node;
    double element, *received, *far, *sent, *held, *needed, moved, moved_far, kept, largest, tensors;
} Work;

/* The cut dimension's range of a slice, and experts'; what is 'both' in two of them. */
typedef struct {
    int64_t e0, e1, a0, a1;
} Box;
static Box box_of(const Slice *s, Cut cut) {
    if (!s->here) return (Box){ 0, 0, 0, 0 };
    bool cols = cut == BY_COLS;
    return (Box){ s->e0, s->e0 + s->experts, cols ? s->c0 : s->r0, cols ? s->c0 + s->cols : s->r0 + s->rows };
}
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static Box both(Box x, Box y) {
    return (Box){ larger(x.e0, y.e0), smaller(x.e1, y.e1), larger(x.a0, y.a0), smaller(x.a1, y.a1) };
}
static double box_count(Box b) {
    return b.e1 > b.e0 && b.a1 > b.a0 ? (double)(b.e1 - b.e0) * (double)(b.a1 - b.a0) : 0;
}

/* A rank of the stage that holds piece 'first' of every 'step': on the receiver's node if there is one, else spread over the replicas. */
static int holder(const Work *w, int stage, int first, int step, int r) {
    int per = grid_stage_ranks(w->from), base = stage * per, copies = per / step, node = r / w->node;
    int lo = node * w->node - base, hi = lo + w->node;
    int c = lo <= first ? 0 : (lo - first + step - 1) / step;
    if (c < copies && first + c * step < hi) {
        int there = 1 + (hi - 1 - first - c * step) / step; /* how many on this node */
        if (there > copies - c) there = copies - c;
        return base + first + (c + r % there) * step;
    }
    return base + first + r % copies * step;
}

static int stage_of(const GridShape *g, const ParamDesc *p, int layer) {
    if (p->where == IN_LAST) return (grid_chunks(g) - 1) % g->pp;
    if (p->where == IN_FIRST || p->where == IN_VIS || p->where == IN_VIS_LAYER) return 0;
    return grid_chunk_of(g, layer) % g->pp;
}

/* What rank r lacks of a row comes piece by piece of the giving grid; neighbours' pieces may overlap (kv heads): the first gives. */
static void one_receiver(Work *w, const ParamDesc *p, int layer, int r, double per_unit) {
    const GridShape *g = w->from;
    Slice need = param_slice(w->m, p, layer, w->to, grid_at(w->to, r)),
          have = param_slice(w->m, p, layer, g, grid_at(g, r));
    Box n = box_of(&need, p->cut), h = box_of(&have, p->cut);
    w->held[r] += box_count(h) * per_unit;
    w->needed[r] += box_count(n) * per_unit;
    w->kept += box_count(both(n, h)) * per_unit;
    if (box_count(n) == box_count(both(n, h))) return;
    bool expert = p->where == IN_EXPERT;
    int stage = stage_of(g, p, layer),
        inner = expert            ? g->etp
                : p->cut == WHOLE ? 1
                                  : g->tp,
        outer = expert ? g->ep : 1;
    double largest = 0;
    for (int o = 0; o < outer; o++) {
        int64_t done = 0;
        double tensor = 0; /* received of one expert's matrix, or of the only one */
        for (int i = 0; i < inner; i++) {
            int first = o * inner + i;
            Slice piece = param_slice(w->m, p, layer, g, grid_at(g, stage * grid_stage_ranks(g) + first));
            Box b = both(n, box_of(&piece, p->cut));
            b.a0 = larger(b.a0, done);
            double bytes = (box_count(b) - box_count(both(b, h))) * per_unit;
            if (b.a1 > b.a0) done = b.a1;
            if (bytes <= 0) continue;
            int src = holder(w, stage, first, inner * outer, r);
            bool far = src / w->node != r / w->node;
            w->sent[src] += bytes, w->received[r] += bytes, w->moved += bytes;
            if (far) w->moved_far += bytes, w->far[r] += bytes;
            tensor += bytes / (double)(b.e1 - b.e0);
        }
        largest = fmax(largest, tensor);
    }
    w->largest = fmax(w->largest, largest);
}

static void one_row(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    Work *w = user;
    double per_unit = (double)(p->cut == BY_COLS ? rows : cols) * w->element;
    w->tensors += (double)experts;
    for (int r = 0; r < w->ranks; r++) one_receiver(w, p, layer, r, per_unit);
}

static double most(const double *x, int n) {
    double m = 0;
    for (int i = 0; i < n; i++) m = fmax(m, x[i]);
    return m;
}

/* Of NVLink's rate, what an all-gather over a node reaches: the profiles' ring. */
static const double RING_SHARE = 0.65;

void sync_plan(SyncPlan *out, const ModelSum *s, const GridShape *from, const GridShape *to, const Cluster *c,
               double element) {
    Mem mem = { 0 };
    int n = c->gpus;
    Work w = { .from = from, .to = to, .ranks = n, .node = c->gpu.domain, .element = element, .m = s->model };
    double **lists[] = { &w.received, &w.far, &w.sent, &w.held, &w.needed };
    for (size_t i = 0; i < COUNT(lists); i++) *lists[i] = MEM_ARRAY(&mem, double, (size_t)n);
    arch_each_row(s->model, one_row, &w);
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
                       .buffer = 2 * w.largest,
                       .tensors = w.tensors };
    for (int r = 0; r < n; r++) {
        double near = fmax(w.received[r], w.sent[r]) / (c->gpu.nvlink * LINK_SHARE),
               far = w.far[r] / (c->gpu.nic * LINK_SHARE);
        double sends = w.moved > 0 ? w.sent[r] * w.moved_far / w.moved / (c->gpu.nic * LINK_SHARE) : 0;
        out->seconds = fmax(out->seconds, fmax(near, fmax(far, sends)));
    }
    int cut = from->ep > from->tp ? from->ep : from->tp;
    out->seconds_whole = (from->pp > 1 ? out->weights / cut / (c->gpu.nic * LINK_SHARE) : 0)
                         + out->weights / (c->gpu.nvlink * RING_SHARE);
    mem_free(&mem);
}
