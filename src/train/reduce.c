/* reduce.c - gradients summed over ranks, and their norm.
 * A sum over n ranks takes pieces of bounded size from everybody at a time, so that scratch does not grow with
 * the model; while one is added up the next is on its way. */
#include "train/reduce.h"
#include "comm/world.h"

#include <math.h>

/* pieces begin on borders of memory; elements of one exchange: near the cores, or enough for a link */
enum { UNIT = 64, ROUND = 1 << 18, ROUND_GPU = 1 << 22 };
static int64_t round_of(const Dev *d) { return d->ops->queue ? ROUND_GPU : ROUND; }

/* ---- pieces */
static Span cut(Span all, int k, int n) {
    int64_t from, to;
    grid_cut((all.to - all.from) / UNIT, k, n, &from, &to);
    return (Span){ all.from + from * UNIT, k == n - 1 ? all.to : all.from + to * UNIT };
}

/* Who sums a region: dp x cp, or edp. */
static int group_of(const GridShape *g, GridAt at, Region k, int *rank) {
    if (k == REGION_EXPERT) return *rank = at.edp, grid_stage_ranks(g) / (g->ep * g->etp);
    return *rank = at.dp * g->cp + at.cp, g->dp * g->cp;
}

static Span whole(const Params *p, Region k) {
    return (Span){ params_from(p, p->first[k]), params_from(p, p->first[k + 1]) };
}

Span reduce_own(const Params *grads, Region k) {
    int rank, n = group_of(&grads->shard.g, grads->shard.at, k, &rank);
    return cut(whole(grads, k), rank, n);
}

int64_t reduce_own_count(const ModelDesc *m, const Shard *shard) {
    Shard all = shard ? *shard : shard_whole(m);
    int64_t sum = 0;
    for (Region k = 0; k < REGIONS; k++) {
        int rank, n = group_of(&all.g, all.at, k, &rank);
        Span own = cut((Span){ 0, (int64_t)(params_region_bytes(m, &all, k, DT_F32, true) / 4) }, rank, n);
        sum += own.to - own.from;
    }
    return sum;
}

/* ---- sums */
static Tensor elements(Tensor flat, int64_t from, int64_t n) { return tensor_cols(flat, from, n); }

/* Rows, so that threads have something to share. */
static Tensor rows_of(Tensor x) {
    int64_t n = x.rows * x.cols, cols = n % 4096 == 0 ? 4096 : n % UNIT == 0 ? UNIT : n;
    return tensor_shape(x, cols ? n / cols : 0, cols);
}

/* y = the sum of the parts, which are used up: by the balanced tree; of a number that is no power of two, the trees of
 * its binary digits one after another.  y may be one of the parts. */
static void sum_parts(Dev *d, Tensor y, const Tensor *part, int n) {
    if (leaves_fit(n)) {
        op_tree_add(d, y, part, n);
        return;
    }
    for (int at = 0, k; at < n; at += k) {
        for (k = LEAVES_MOST; k > n - at;) k /= 2;
        op_tree_add(d, part[at], part + at, k);
        if (at) op_add(d, part[0], part[0], part[at]);
    }
    if (part[0].data != y.data) op_copy(d, y, part[0]);
}

/* flat's elements 'all', cut over c: this rank's piece becomes the sum.  Turn by turn, 'step'
 * elements of every piece. */
typedef struct {
    const Comm *c;
    Dev *d;
    Tensor flat;
    Span all, own;
    int64_t step;
} Scatter;
static int64_t of_turn(const Scatter *x, Span piece, int64_t at) {
    int64_t n = piece.to - piece.from - at;
    return n < 0 ? 0 : n < x->step ? n : x->step;
}
static CommCall exchange_turn(const Scatter *x, int64_t at, Tensor tmp) {
    const Comm *c = x->c;
    CommRows get[COMM_MOST], give[COMM_MOST];
    int64_t mine = of_turn(x, x->own, at);
    for (int r = 0; r < c->size; r++) {
        Span p = cut(x->all, r, c->size);
        get[r] = (CommRows){ r * x->step, r == c->rank ? 0 : mine };
        give[r] = (CommRows){ p.from + at, r == c->rank ? 0 : of_turn(x, p, at) };
    }
    return comm_exchange_begin(c, x->d, tmp, get, tensor_shape(x->flat, x->flat.cols, 1), give);
}
static void sum_turn(const Scatter *x, int64_t at, Tensor tmp) {
    Tensor part[COMM_MOST];
    int64_t mine = of_turn(x, x->own, at);
    if (!mine) return;
    Tensor y = elements(x->flat, x->own.from + at, mine);
    for (int r = 0; r < x->c->size; r++)
        part[r] = rows_of(r == x->c->rank ? y : tensor_shape(tensor_rows(tmp, r * x->step, mine), 1, mine));
    sum_parts(x->d, rows_of(y), part, x->c->size);
}
static void reduce_scatter(const Comm *c, Dev *d, Tensor flat, Span all) {
    if (c->size == 1 || all.from == all.to) return;
    CHECK(c->size <= COMM_MOST, "a group of %d ranks", c->size);
    Scatter x = { c, d, flat, all, cut(all, c->rank, c->size), round_of(d) / c->size / UNIT * UNIT };
    int64_t longest = cut(all, c->size - 1, c->size).to - cut(all, c->size - 1, c->size).from;
    if (x.step < UNIT) x.step = UNIT;
    if (x.step > longest) x.step = longest;
    size_t mark = arena_mark(&d->tmp);
    Tensor tmp[2];
    CommCall call[2];
    for (int i = 0; i < 2; i++) tmp[i] = tensor_push(&d->tmp, DT_F32, x.step * c->size, 1);
    call[0] = exchange_turn(&x, 0, tmp[0]);
    int64_t end = comm_is_dry(c) && longest > 2 * x.step ? 2 * x.step : longest; /* two turns take what all do */
    for (int64_t at = 0, k = 0; at < end; at += x.step, k = !k) {
        if (at + x.step < end) call[!k] = exchange_turn(&x, at + x.step, tmp[!k]);
        comm_wait(&call[k]);
        sum_turn(&x, at, tmp[k]);
    }
    arena_pop(&d->tmp, mark);
}

/* x's elements of piece r of 'all', wherever that lies in x: everybody's to everybody.  To be waited for. */
static CommCall gather(const Comm *c, Dev *d, Tensor flat, const Span *piece) {
    Tensor column = tensor_shape(flat, flat.cols, 1);
    CommRows get[COMM_MOST], give[COMM_MOST];
    for (int r = 0; r < c->size; r++) {
        const Span *mine = &piece[c->rank];
        get[r] = (CommRows){ piece[r].from, r == c->rank ? 0 : piece[r].to - piece[r].from };
        give[r] = (CommRows){ mine->from, r == c->rank ? 0 : mine->to - mine->from };
    }
    return comm_exchange_begin(c, d, column, get, column, give);
}

/* Rows that every rank of tp has whole: each saw only its own tokens. */
static void sum_over_tp(const Comm *tp, Dev *d, Tensor flat, Span all) {
    Span piece[COMM_MOST];
    reduce_scatter(tp, d, flat, all);
    for (int r = 0; r < tp->size; r++) piece[r] = cut(all, r, tp->size);
    CommCall call = gather(tp, d, flat, piece);
    comm_wait(&call);
}

/* ---- kv heads that several ranks of tp hold, since their query heads read them: each has a part of the gradient */
static bool is_kv(const ParamDesc *p) {
    ParamId id = adapter_of(p->id);
    return p->cut != WHOLE && (id == P_K || id == P_V || id == P_KB || id == P_VB);
}

typedef struct {
    int64_t from, n;
} Heads;
static Heads heads_at(const Params *p, int tp) {
    GridAt at = p->shard.at;
    at.tp = tp;
    Local l = grid_local(p->model, &p->shard.g, at);
    return (Heads){ l.kv0, l.kv_heads };
}
static Heads both(Heads a, Heads b) {
    int64_t from = a.from > b.from ? a.from : b.from, to = a.from + a.n < b.from + b.n ? a.from + a.n : b.from + b.n;
    return (Heads){ from, to > from ? to - from : 0 };
}

static void sum_kv(const Params *grads, const Param *p, const Comm *tp, Dev *d) {
    Heads mine = heads_at(grads, tp->rank), shared[LEAVES_MOST];
    CommRows get[LEAVES_MOST], give[LEAVES_MOST];
    if (!p->t.rows || !p->t.cols) return; /* no query head, hence nothing to sum with anybody */
    int64_t each = p->t.rows * p->t.cols / mine.n, room = 0;
    bool any = false;
    for (int r = 0; r < tp->size; r++) {
        Heads h = shared[r] = both(mine, heads_at(grads, r));
        any = any || (r != tp->rank && h.n);
        get[r] = (CommRows){ room, h.n * each }, give[r] = (CommRows){ (h.from - mine.from) * each, h.n * each };
        room += h.n * each;
    }
    if (!any) return;
    size_t mark = arena_mark(&d->tmp);
    Tensor tmp = tensor_push(&d->tmp, DT_F32, room, 1), all = tensor_shape(p->t, p->t.rows * p->t.cols, 1);
    comm_exchange(tp, d, tmp, get, all, give);
    for (int64_t h = mine.from; h < mine.from + mine.n; h++) {
        Tensor part[LEAVES_MOST];
        int n = 0;
        for (int r = 0; r < tp->size; r++)
            if (h >= shared[r].from && h < shared[r].from + shared[r].n)
                part[n++] = rows_of(tensor_rows(tmp, get[r].at + (h - shared[r].from) * each, each));
        if (n > 1) sum_parts(d, rows_of(tensor_rows(all, (h - mine.from) * each, each)), part, n);
    }
    arena_pop(&d->tmp, mark);
}

/* ---- a tied embedding is at both ends of a pipeline */
static void sum_tied(const Params *grads, const Comm *pp, Dev *d) {
    bool first = pp->rank == 0, last = pp->rank == pp->size - 1;
    if (pp->size == 1 || !grads->model->d.tied || !(first || last)) return;
    Tensor x = param(grads, P_EMBED, 0);
    int64_t n = x.rows * x.cols, step = n < round_of(d) ? n : round_of(d);
    int other = first ? pp->size - 1 : 0;
    CHECK(pp->size <= MAX_CHUNKS, "a pipeline of %d stages", pp->size);
    size_t mark = arena_mark(&d->tmp);
    Tensor all = tensor_shape(x, n, 1), tmp = tensor_push(&d->tmp, DT_F32, step, 1);
    for (int64_t at = 0; at < n; at += step) {
        CommRows get[MAX_CHUNKS] = { { 0 } }, give[MAX_CHUNKS] = { { 0 } };
        int64_t k = n - at < step ? n - at : step;
        get[other] = (CommRows){ 0, k }, give[other] = (CommRows){ at, k };
        comm_exchange(pp, d, tmp, get, all, give);
        Tensor y = rows_of(tensor_rows(all, at, k)), theirs = rows_of(tensor_rows(tmp, 0, k));
        if (first) op_add(d, y, y, theirs);
        else op_add(d, y, theirs, y);
    }
    arena_pop(&d->tmp, mark);
}

/* ---- all of it */
static const Comm *comm_of(const Groups *par, Region k) { return k == REGION_EXPERT ? &par->edp : &par->dense; }

void reduce_grads(const Params *grads, const Groups *par, Dev *d) {
    comm_about(&par->dense, "gradients", -1);
    if (par->tp.size > 1) {
        sum_over_tp(&par->tp, d, grads->flat, whole(grads, REGION_WHOLE));
        for (int i = grads->first[REGION_CUT]; i < grads->first[REGION_CUT + 1]; i++)
            if (is_kv(grads->at[i].desc)) sum_kv(grads, &grads->at[i], &par->tp, d);
    }
    sum_tied(grads, &par->pp, d);
    for (Region k = 0; k < REGIONS; k++) reduce_scatter(comm_of(par, k), d, grads->flat, whole(grads, k));
}

size_t reduce_tmp(const ModelDesc *m, const Shard *shard, DevKind like) {
    if (!shard || grid_ranks(&shard->g) == 1) return 0;
    Mem mem = { 0 };
    Dev dev;
    Params grads;
    Groups par;
    World w = world_dry(grid_rank(&shard->g, shard->at), grid_ranks(&shard->g));
    world_groups(&w, &shard->g, &par);
    dev_open_dry(&dev, like);
    dev.tmp = arena_over("tmp", (void *)((uintptr_t)1 << 60), (size_t)1 << 60); /* nobody touches it */
    params_open(&grads, m, shard, &dev, DT_F32, true, "gradients", &mem);
    reduce_grads(&grads, &par, &dev);
    size_t peak = dev.tmp.peak;
    dev_close(&dev);
    mem_free(&mem);
    return peak;
}

/* Where an element of the gradients' order lies in x, which may have frozen rows between and
 * short ones: in units of two bytes. */
static int64_t place_in(const Params *x, const Params *grads, int64_t at) {
    if (at >= grads->flat.cols) return (int64_t)(x->arena.size / 2);
    int lo = 0, hi = grads->n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (params_from(grads, mid) <= at) lo = mid;
        else hi = mid;
    }
    Tensor t = param(x, grads->at[lo].desc->id, grads->at[lo].layer);
    int64_t begins = ((const char *)t.data - (const char *)x->arena.base) / 2;
    return begins + (at - params_from(grads, lo)) * (int64_t)dtype_size(t.dtype) / 2;
}

CommCall reduce_gather_begin(const Params *x, const Params *grads, Region k, const Groups *par, Dev *d) {
    Span piece[COMM_MOST], all = whole(grads, k);
    const Comm *c = comm_of(par, k);
    if (c->size == 1 || all.from == all.to) return (CommCall){ .c = c };
    CHECK(c->size <= COMM_MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) {
        Span p = cut(all, r, c->size);
        piece[r] = (Span){ place_in(x, grads, p.from), place_in(x, grads, p.to) };
    }
    return gather(c, d, tensor_over(x->arena.base, DT_BF16, 1, (int64_t)(x->arena.size / 2)), piece);
}
void reduce_gather(const Params *x, const Params *grads, const Groups *par, Dev *d) {
    for (Region k = 0; k < REGIONS; k++) {
        CommCall call = reduce_gather_begin(x, grads, k, par, d);
        comm_wait(&call);
    }
}

/* ---- each element once */
/* How many elements at the head of a parameter are another rank's to count. */
static int64_t not_ours(const Params *grads, const Param *p) {
    const Shard *s = &grads->shard;
    int64_t n = p->t.rows * p->t.cols;
    if (param_region(p->desc, &s->g) == REGION_WHOLE && s->at.tp) return n;
    if (p->desc->id == P_EMBED && s->g.pp > 1 && s->at.pp) return n; /* tied: the first stage has it too */
    if (!is_kv(p->desc) || !n) return 0;
    Heads mine = heads_at(grads, s->at.tp);
    for (int r = 0; r < s->at.tp; r++) /* heads are dealt out in order: only the first can be a lower rank's as well */
        if (both(mine, heads_at(grads, r)).n) return n / mine.n;
    return 0;
}

void reduce_each_counted(const Params *grads, SpanVisit *visit, void *user) {
    for (Region k = 0; k < REGIONS; k++) {
        Span own = reduce_own(grads, k), run = { own.from, own.from };
        for (int i = grads->first[k]; i < grads->first[k + 1]; i++) {
            int64_t from = params_from(grads, i), next = params_from(grads, i + 1),
                    skip = not_ours(grads, &grads->at[i]);
            if (next <= own.from || from >= own.to) continue;
            if (skip) {
                int64_t after = skip < grads->at[i].t.rows * grads->at[i].t.cols ? from + skip : next;
                if (run.from < from) visit(user, (Span){ run.from, from });
                if (run.from < after) run.from = after;
            }
            run.to = next < own.to ? next : own.to;
        }
        if (run.from < run.to) visit(user, run);
    }
}

typedef struct {
    const Params *grads;
    Dev *d;
    double sum;
} Squares;
static void add_squares(void *user, Span s) {
    Squares *x = user;
    x->sum += op_sumsq(x->d, elements(x->grads->flat, s.from, s.to - s.from));
}

double reduce_norm(const Params *grads, const Groups *par, Dev *d) {
    Squares x = { grads, d, 0 };
    reduce_each_counted(grads, add_squares, &x);
    return sqrt(comm_sum(&par->pp, comm_sum(&par->dense, comm_sum(&par->tp, x.sum))));
}
