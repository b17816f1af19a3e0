/* syncplan.c - see syncplan.h. */
#include "plan/syncplan.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Grids ------------------------------------------------------------------------------------------------------------- */

static bool read_grid(SyncGrid *g, const char *text) {
    const struct {
        const char *name;
        int *at;
    } parts[] = { { "tp", &g->tp }, { "pp", &g->pp }, { "ep", &g->ep }, { "cp", &g->cp }, { "dp", &g->dp } };
    for (const char *s = text; *s;) {
        while (*s == ',' || *s == '.' || *s == 'x' || *s == ' ' || *s == '/') s++;
        if (!*s) break;
        size_t k = 0;
        while (k < COUNT(parts)
               && (tolower((unsigned char)s[0]) != parts[k].name[0] || tolower((unsigned char)s[1]) != 'p'))
            k++;
        if (k == COUNT(parts)) return false;
        char *end;
        long n = strtol(s + 2 + (s[2] == '='), &end, 10);
        if (n < 1 || n > 1 << 20) return false;
        *parts[k].at = (int)n;
        s = end;
    }
    return true;
}

int syncgrid_ranks(const char *text) {
    SyncGrid g = { 0 };
    if (!read_grid(&g, text)) return 0;
#define OR_ONE(x) ((x) ? (x) : 1)
    int64_t dense = (int64_t)OR_ONE(g.tp) * OR_ONE(g.pp) * OR_ONE(g.cp) * OR_ONE(g.dp),
            expert = (int64_t)OR_ONE(g.ep) * OR_ONE(g.pp);
    int64_t n = dense > expert ? dense : expert;
    return n > 1 << 20 ? 0 : (int)n;
}

bool syncgrid_parse(SyncGrid *g, const char *text, const char *split, int gpus, const ModelSum *s, Err *err) {
    const Dims *d = &s->model->d;
    *g = (SyncGrid){ 0 };
    if (!read_grid(g, text)) return err_set(err, "grid '%s' is not understood: write tp8,pp12,ep8", text);
    g->experts_by_ep = g->ep > 0;
    g->tp = OR_ONE(g->tp), g->pp = OR_ONE(g->pp), g->ep = OR_ONE(g->ep), g->cp = OR_ONE(g->cp);
    if (g->pp > s->layers || g->pp > (int)COUNT(g->split))
        return err_set(err, "grid '%s': %d stages for %d layers", text, g->pp, s->layers);
    if (gpus % (g->tp * g->pp * g->cp)) return err_set(err, "grid '%s' does not divide %d GPUs", text, gpus);
    int dp = gpus / (g->tp * g->pp * g->cp);
    if (g->dp && g->dp != dp && dp % g->dp)
        return err_set(err, "grid '%s': dp %d, but %d GPUs make dp %d", text, g->dp, gpus, dp);
    g->dp = dp;
    if (d->heads % g->tp)
        return err_set(err, "grid '%s': tp %d does not divide the %lld attention heads", text, g->tp,
                       (long long)d->heads);
    if (g->ep > 1 && (!d->experts || d->experts % g->ep))
        return err_set(err, "grid '%s': ep %d does not divide the %lld experts", text, g->ep, (long long)d->experts);
    if (g->tp * g->cp * g->dp % g->ep)
        return err_set(err, "grid '%s': ep %d does not divide the %d ranks of a stage", text, g->ep,
                       g->tp * g->cp * g->dp);
    Layout l = { .pp = g->pp };
    TRY(layout_split(&l, split ? split : "even", s->layers, err));
    memcpy(g->split, l.split, (size_t)g->pp * sizeof *g->split);
    return true;
}

/* ---- Slices ------------------------------------------------------------------------------------------------------------ */

/* One tensor under one grid: which stage, cut how often along its axis, and by which index of a rank. */
typedef struct {
    int stage, pieces;
    bool by_expert;
    int owner;
} Placing; /* owner: the expert's rank of ep */

static int stage_of(const SyncGrid *g, int layer) {
    int stage = 0;
    for (int end = g->split[0]; layer >= end; end += g->split[++stage]) {}
    return stage;
}

static Placing placing(const SyncGrid *g, const ParamDesc *p, int layer, int expert, int experts) {
    bool last = p->where == IN_LAST,
         inside = p->where == IN_LAYER || p->where == IN_DENSE || p->where == IN_MOE || p->where == IN_EXPERT;
    Placing at = { .stage = inside ? stage_of(g, layer) : last ? g->pp - 1 : 0, .pieces = p->cut == WHOLE ? 1 : g->tp };
    if (p->where == IN_EXPERT && g->experts_by_ep)
        at.pieces = 1, at.by_expert = true, at.owner = expert / (experts / g->ep);
    return at;
}

static int stage_ranks(const SyncGrid *g) { return g->tp * g->cp * g->dp; }

/* Which piece rank r holds of it, -1: none. */
static int piece_of(const SyncGrid *g, const Placing *at, int r) {
    int per = stage_ranks(g), in = r % per;
    if (r / per != at->stage) return -1;
    if (at->by_expert) return in % g->ep == at->owner ? 0 : -1;
    return at->pieces == 1 ? 0 : in % g->tp;
}

/* Units [*a, *b) of piece k of n: whole units; fewer units than pieces are shared by neighbours (key-value heads). */
static void range_of(int64_t units, int n, int k, int64_t *a, int64_t *b) {
    if (units >= n) *a = units * k / n, *b = units * (k + 1) / n;
    else *a = units * k / n, *b = *a + 1;
}

typedef struct {
    const SyncGrid *from, *to;
    int ranks, node, experts;
    double element, *received, *far, *sent, *held, *needed, moved, moved_far, kept, largest, tensors;
    const Dims *d;
} Work;

/* A rank that holds piece k: on the receiver's node if there is one, else spread over the replicas. */
static int holder(const Work *w, const Placing *at, int k, int r) {
    const SyncGrid *g = w->from;
    int per = stage_ranks(g),
        step = at->by_expert     ? g->ep
               : at->pieces == 1 ? 1
                                 : g->tp,
        first = at->by_expert     ? at->owner
                : at->pieces == 1 ? 0
                                  : k;
    int base = at->stage * per, copies = per / step, node = r / w->node;
    int lo = node * w->node - base, hi = lo + w->node;
    int c = lo <= first ? 0 : (lo - first + step - 1) / step;
    if (c < copies && first + c * step < hi) {
        int there = 1 + (hi - 1 - first - c * step) / step; /* how many on this node */
        if (there > copies - c) there = copies - c;
        return base + first + (c + r % there) * step;
    }
    return base + first + r % copies * step;
}

static void one_receiver(Work *w, const Placing *from, const Placing *to, int r, int64_t units, double per_unit) {
    int want = piece_of(w->to, to, r), have = piece_of(w->from, from, r);
    int64_t a, b, ha = 0, hb = 0;
    if (have >= 0) {
        range_of(units, from->pieces, have, &ha, &hb);
        w->held[r] += (double)(hb - ha) * per_unit;
    }
    if (want < 0) return;
    range_of(units, to->pieces, want, &a, &b);
    w->needed[r] += (double)(b - a) * per_unit;
    double got = 0;
    for (int64_t u = a; u < b;) {
        if (have >= 0 && u >= ha && u < hb) {
            int64_t end = hb < b ? hb : b;
            w->kept += (double)(end - u) * per_unit;
            u = end;
            continue;
        }
        int k = (int)(units >= from->pieces ? u * from->pieces / units : u * from->pieces / units);
        int64_t ka, kb;
        range_of(units, from->pieces, k, &ka, &kb);
        while (kb <= u) range_of(units, from->pieces, ++k, &ka, &kb);
        int64_t end = kb < b ? kb : b;
        if (have >= 0 && ha > u && ha < end) end = ha;
        double bytes = (double)(end - u) * per_unit;
        int src = holder(w, from, k, r);
        bool far = src / w->node != r / w->node;
        got += bytes;
        w->sent[src] += bytes;
        w->moved += bytes;
        if (far) w->moved_far += bytes, w->far[r] += bytes;
        u = end;
    }
    w->received[r] += got;
    w->largest = fmax(w->largest, got);
}

static void one_tensor(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    Work *w = user;
    int64_t axis = p->cut == BY_COLS ? cols : rows, unit = p->unit ? dim_at(w->d, p->unit) : 1;
    if (unit < 1 || axis % unit) unit = 1;
    double per_unit = (double)unit * (double)(p->cut == BY_COLS ? rows : cols) * w->element;
    Placing from = placing(w->from, p, layer, expert, w->experts), to = placing(w->to, p, layer, expert, w->experts);
    w->tensors++;
    for (int r = 0; r < w->ranks; r++) one_receiver(w, &from, &to, r, axis / unit, per_unit);
}

static double most(const double *x, int n) {
    double m = 0;
    for (int i = 0; i < n; i++) m = fmax(m, x[i]);
    return m;
}

/* Of NVLink's rate, what an all-gather over a node reaches: the profiles' ring. */
static const double RING_SHARE = 0.65;

void sync_plan(SyncPlan *out, const ModelSum *s, const SyncGrid *from, const SyncGrid *to, const Cluster *c,
               double element) {
    Mem mem = { 0 };
    int n = c->gpus;
    Work w = { .from = from, .to = to, .ranks = n, .node = c->gpu.domain, .element = element, .d = &s->model->d };
    w.experts = s->model->d.experts ? (int)s->model->d.experts : 1;
    double **lists[] = { &w.received, &w.far, &w.sent, &w.held, &w.needed };
    for (size_t i = 0; i < COUNT(lists); i++) *lists[i] = MEM_ARRAY(&mem, double, (size_t)n);
    arch_each_param(s->model, one_tensor, &w);
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
