/* ep.c - rows to the ranks that have their experts and back, in rounds of bounded size: see par.h.
 *
 * Every rank knows how many rows each rank has for each expert.  A rank's rows of a round are a window of the order
 * [expert][giver][giver's own], so they are sorted by expert whatever the number of rounds, and what one giver gives in
 * one round is one run of its rows. */
#include "par/par.h"

EpBook ep_book(const Par *p, int64_t experts, Mem *mem) {
    size_t n = (size_t)p->experts.size;
    comm_read_room(&p->experts, ((size_t)experts + 1) * sizeof(int32_t));
    return (EpBook){ .ranks = (int)n,
                     .all = (int)experts,
                     .count = MEM_ARRAY(mem, int32_t, n * ((size_t)experts + 1)),
                     .give = MEM_ARRAY(mem, CommRows, n),
                     .get = MEM_ARRAY(mem, CommRows, n) };
}

static int32_t *counts_of(const EpBook *b, int rank) { return b->count + (int64_t)rank * (b->all + 1); }
static int expert_of(int all, const Par *p, int k) { return (int)((int64_t)all * k / p->ep.size); }
static int first_expert(const EpBook *b, const Par *p, int k) { return expert_of(b->all, p, k); }

static int64_t rows_for(const EpBook *b, int e0, int e1) {
    int64_t sum = 0;
    for (int r = 0; r < b->ranks; r++)
        for (int e = e0; e < e1; e++) sum += counts_of(b, r)[e];
    return sum;
}

void ep_count(const Par *p, Dev *d, EpBook *b, Tensor at) {
    if (p->experts.size == 1) return;
    Tensor received = tensor_push(&d->tmp, DT_I32, b->ranks, b->all + 1);
    b->coming = comm_read_begin(&p->experts, d, b->count, received, at);
}

/* What came is where experts' rows begin, which becomes how many they are. */
static void take_counts(EpBook *b) {
    comm_wait(&b->coming);
    for (int r = 0; r < b->ranks; r++)
        for (int e = 0; e < b->all; e++) counts_of(b, r)[e] = counts_of(b, r)[e + 1] - counts_of(b, r)[e];
}

EpPlan ep_plan(const Par *p, EpBook *b, Tensor at, int experts, int64_t n, int64_t most) {
    if (p->experts.size == 1)
        return (EpPlan){ .rounds = 1, .own = n, .room = n, .n = experts, .rows = n, .ex = { experts, (int)n, at } };
    EpPlan e = { .book = b, .rounds = 1, .own = n, .first = first_expert(b, p, p->ep.rank) };
    e.n = first_expert(b, p, p->ep.rank + 1) - e.first;
    bool dry = comm_is_dry(&p->experts);
    if (!dry) take_counts(b), most = 0;
    for (int r = 0; r < b->ranks && !dry; r++) /* an idle rank makes room for the others' rows */
        if (counts_of(b, r)[b->all] > most) most = counts_of(b, r)[b->all];
    e.room = most + most / 4 + 16;
    if (dry) return e.rounds = 2, e; /* the first round's activations are kept, the others' are not: both are sized */
    for (int k = 0; k < p->ep.size; k++) {
        int64_t rows = rows_for(b, first_expert(b, p, k), first_expert(b, p, k + 1));
        int rounds = (int)((rows + e.room - 1) / e.room);
        if (rounds > e.rounds) e.rounds = rounds;
    }
    return e;
}

/* Numbers for the device, a few at a time. */
typedef struct {
    Dev *d;
    Tensor to;
    int64_t done;
    int n;
    int32_t at[1024];
} Writer;

static void flush(Writer *w) {
    if (w->n) op_put(w->d, tensor_rows(w->to, w->done, w->n), w->at);
    w->done += w->n, w->n = 0;
}
static void write(Writer *w, int64_t x) {
    if (w->n == (int)COUNT(w->at)) flush(w);
    w->at[w->n++] = (int32_t)x;
}

static int64_t inside(int64_t from, int64_t n, int64_t w0, int64_t w1,
                      int64_t *skip) { /* of [from,from+n) in [w0,w1) */
    int64_t a = from > w0 ? from : w0, b = from + n < w1 ? from + n : w1;
    *skip = a - from;
    return b > a ? b - a : 0;
}

/* What this rank gives to the experts of the k-th of ep. */
static CommRows run_for(const EpBook *b, const Par *p, int k, int64_t w0, int64_t w1) {
    CommRows run = { 0, 0 };
    const int32_t *mine = counts_of(b, p->experts.rank);
    int64_t at = 0, pos = 0, skip;
    int e = 0, e1 = first_expert(b, p, k + 1);
    for (; e < first_expert(b, p, k); e++) at += mine[e];
    for (; e < e1; at += mine[e++])
        for (int r = 0; r < b->ranks; r++) {
            int64_t n = counts_of(b, r)[e], in = inside(pos, n, w0, w1, &skip);
            if (r == p->experts.rank && in) {
                if (!run.n) run.at = at + skip;
                run.n += in;
            }
            pos += n;
        }
    return run;
}

/* How many rows each rank gives this one, and where they come. */
static int64_t count_gifts(EpBook *b, const EpPlan *e, int64_t w0, int64_t w1) {
    int64_t pos = 0, skip, sum = 0;
    for (int r = 0; r < b->ranks; r++) b->get[r] = (CommRows){ 0, 0 };
    for (int x = e->first; x < e->first + e->n; x++)
        for (int r = 0; r < b->ranks; pos += counts_of(b, r)[x], r++)
            b->get[r].n += inside(pos, counts_of(b, r)[x], w0, w1, &skip);
    for (int r = 0; r < b->ranks; r++) b->get[r].at = sum, sum += b->get[r].n;
    return sum;
}

static void write_lists(EpBook *b, const EpPlan *e, Dev *d, int64_t w0, int64_t w1) {
    Writer at = { .d = d, .to = e->ex.at }, sorted = { .d = d, .to = e->sorted };
    int64_t pos = 0, skip, rows = 0;
    for (int x = e->first; x < e->first + e->n; x++) {
        write(&at, rows);
        for (int r = 0; r < b->ranks; pos += counts_of(b, r)[x], r++) {
            int64_t n = inside(pos, counts_of(b, r)[x], w0, w1, &skip);
            for (int64_t i = 0; i < n; i++) write(&sorted, b->get[r].at + i);
            b->get[r].at += n, rows += n; /* until all are written: where its next expert's rows are */
        }
    }
    write(&at, rows);
    flush(&at);
    flush(&sorted);
    for (int r = 0; r < b->ranks; r++) b->get[r].at -= b->get[r].n;
}

void ep_round(EpPlan *e, const Par *p, Dev *d, Arena *a, int k) {
    EpBook *b = e->book;
    if (!b) return;
    e->ex = (Seqs){ e->n, (int)e->room, tensor_push(a, DT_I32, e->n + 1, 1) };
    e->sorted = tensor_push(a, DT_I32, e->room, 1);
    e->rows = e->room;
    if (comm_is_dry(&p->experts)) return;
    int64_t w0 = k * e->room, w1 = w0 + e->room;
    for (int r = 0; r < b->ranks; r++)
        b->give[r] = r % p->etp.size ? b->give[r - 1] : run_for(b, p, r / p->etp.size, w0, w1);
    e->rows = count_gifts(b, e, w0, w1);
    e->sorted = tensor_rows(e->sorted, 0, e->rows);
    e->ex.longest = (int)e->rows;
    write_lists(b, e, d, w0, w1);
}

Tensor ep_dispatch(const EpPlan *e, const Par *p, Dev *d, Arena *to, Tensor own) {
    if (!e->book) return own;
    Tensor rows = tensor_rows(tensor_push(to, own.dtype, e->room, own.cols), 0, e->rows);
    size_t mark = arena_mark(&d->tmp);
    Tensor received = tensor_rows(tensor_push(&d->tmp, own.dtype, e->room, own.cols), 0, e->rows);
    comm_exchange(&p->experts, d, received, e->book->get, own, e->book->give);
    op_permute(d, rows, received, e->sorted);
    arena_pop(&d->tmp, mark);
    return rows;
}

Tensor ep_partial(const EpPlan *e, const Par *p, Arena *a, Tensor like) {
    if (!e->book) return like;
    return tensor_rows(tensor_push(a, p->etp.size > 1 ? DT_F32 : like.dtype, e->room, like.cols), 0, e->rows);
}

/* Parts of sums over etp: each rank of it returns its own, and they are added by the tree. */
static void add_parts(const EpPlan *e, const Par *p, Dev *d, Tensor own, Tensor received) {
    EpBook *b = e->book;
    int n = p->etp.size;
    Tensor all = tensor_push(&d->tmp, DT_F32, n * e->own, own.cols), part[32];
    for (int r = 0; r < b->ranks; r++) b->give[r].at += r % n * e->own;
    comm_exchange(&p->experts, d, all, b->give, received, b->get);
    for (int r = 0; r < b->ranks; r += n) {
        for (int j = 0; j < n; j++) part[j] = tensor_rows(all, b->give[r + j].at, b->give[r].n);
        if (b->give[r].n) op_tree_add(d, tensor_rows(own, b->give[r].at, b->give[r].n), part, n);
    }
    for (int r = 0; r < b->ranks; r++) b->give[r].at -= r % n * e->own;
}

void ep_combine(const EpPlan *e, const Par *p, Dev *d, Tensor own, Tensor results) {
    if (!e->book) return;
    size_t mark = arena_mark(&d->tmp);
    Tensor received = tensor_rows(tensor_push(&d->tmp, results.dtype, e->room, results.cols), 0, e->rows);
    op_scatter_rows(d, received, results, e->sorted);
    if (p->etp.size > 1) add_parts(e, p, d, own, received);
    else comm_exchange(&p->experts, d, own, e->book->give, received, e->book->get);
    arena_pop(&d->tmp, mark);
}

/* ---- without counts */
/* Over machines what goes to each rank of another one goes there once, and is handed on inside it: 'block' rows of all
 * are then those of the ranks with one place on every machine, in the order of machines. */
static bool by_machines(const Par *p) { return p->across.size > 1; }
int64_t ep_place(const Par *p, int64_t each) {
    return each * (by_machines(p) ? p->near.rank * p->across.size + p->across.rank : p->experts.rank);
}

/* This rank's rows of 'all' to all of a group, whose rows come to theirs; 'each' of every rank from 'first' on. */
static void hand_round(const Comm *c, Dev *d, Tensor all, int64_t first, int64_t each) {
    CommRows get[LEAVES_MOST], give[LEAVES_MOST];
    for (int r = 0; r < c->size; r++) {
        get[r] = (CommRows){ first + r * each, r == c->rank ? 0 : each };
        give[r] = (CommRows){ first + c->rank * each, r == c->rank ? 0 : each };
    }
    comm_exchange(c, d, all, get, all, give);
}

Tensor ep_tokens(const Par *p, Dev *d, Arena *a, Tensor x, int64_t each) {
    CHECK(x.rows <= each, "%ld tokens, %ld are the most", (long)x.rows, (long)each);
    int64_t n = each * p->experts.size, block = each * p->across.size;
    Tensor all = by_machines(p) ? tensor_push(a, x.dtype, n, x.cols) : TENSOR_NONE,
           mine = by_machines(p) ? tensor_rows(all, ep_place(p, each), each) : tensor_push(a, x.dtype, each, x.cols);
    if (x.rows) op_copy(d, tensor_rows(mine, 0, x.rows), x);
    if (x.rows < each) op_zero(d, tensor_rows(mine, x.rows, each - x.rows));
    if (!by_machines(p)) return comm_all_gather(&p->experts, d, a, mine, n);
    hand_round(&p->across, d, all, p->near.rank * block, each);
    hand_round(&p->near, d, all, 0, block);
    return all;
}

Seqs ep_experts(const Par *p, Tensor at, int experts, int64_t n) {
    int first = expert_of(experts, p, p->ep.rank), end = expert_of(experts, p, p->ep.rank + 1);
    return (Seqs){ end - first, (int)n, tensor_rows(at, first, end - first + 1) };
}

/* Rows [r * each, (r + 1) * each) of 'from' to rank r; what comes, as many of each, is added up, of each the first
 * sum.rows. */
static void sum_of(const Comm *c, Dev *d, Tensor sum, Tensor received, Tensor from) {
    int64_t each = from.rows / c->size;
    Tensor part[LEAVES_MOST];
    CommRows of[LEAVES_MOST];
    for (int r = 0; r < c->size; r++)
        of[r] = (CommRows){ r * each, each }, part[r] = tensor_rows(received, r * each, sum.rows);
    comm_exchange(c, d, received, of, from, of);
    if (sum.rows) op_tree_add(d, sum, part, c->size);
}

Tensor ep_results(const Par *p, Dev *d, Arena *a, Tensor all, DType to, int64_t rows) {
    Tensor received = tensor_push(a, all.dtype, all.rows, all.cols), own = tensor_push(a, to, rows, all.cols);
    if (!by_machines(p)) {
        sum_of(&p->experts, d, own, received, all);
        return own;
    }
    int64_t block = all.rows / p->near.size;
    Tensor merged = tensor_rows(all, 0, block); /* what this machine's experts have for one place on every machine */
    sum_of(&p->near, d, merged, received, all);
    sum_of(&p->across, d, own, tensor_rows(received, 0, block), merged);
    return own;
}
