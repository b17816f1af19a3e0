/* chain.c - calls that work row by row wait, and run together when something else is asked for: a thread
 * takes a block of rows through all of them.  What one call wrote is then still near when the next reads
 * it, and threads meet once a chain instead of once a call.  No bit changes: a row's result does not know
 * the rows it is computed with (docs/exactness.md, rule 1).
 *
 * Calls may share a chain as long as none needs a row of another block.  Every call says which bytes it
 * touches; one that does not fit the chain so far ends it first.  Only model/ asks for chains (dev_chain):
 * elsewhere a call is done when it returns. */
#include "op/cpu/chain.h"

#include <string.h>

enum { LINKS = 24, TOUCHES = 96, ARG = 640, BLOCK = 384, STEP = 8, BLOCK_NS = 4000 };
typedef struct {
    RowsFn *fn;
    int64_t rows;
    double cost;
    _Alignas(16) char arg[ARG];
} Link;
struct Chain {
    int n, touches;
    int64_t rows;      /* the fewest of any link; a link with more has as many times more in each block */
    const int32_t *at; /* blocks end where these groups of rows do, or NULL */
    int groups;
    int64_t least; /* rows of a block */
    Link link[LINKS];
    Touch touch[TOUCHES];
};
size_t chain_bytes(void) { return sizeof(Chain); }

static Touch touch(Tensor x, bool writes, bool any) {
    size_t ld = (size_t)x.ld * dtype_size(x.dtype), row = (size_t)x.cols * dtype_size(x.dtype);
    return (Touch){ .at = x.data,
                    .bytes = x.rows > 0 ? ld * (size_t)(x.rows - 1) + row : 0,
                    .all = ld * (size_t)x.rows,
                    .writes = writes,
                    .any = any };
}
Touch reads(Tensor x) { return touch(x, false, false); }
Touch writes(Tensor x) { return touch(x, true, false); }
Touch reads_any(Tensor x) { return touch(x, false, true); }

/* Blocks may run apart: both only read, they touch different bytes, or block by block the same ones. */
static bool apart(const Touch *a, const Touch *b) {
    if (!a->writes && !b->writes) return true;
    if (a->at + a->bytes <= b->at || b->at + b->bytes <= a->at) return true;
    return !a->any && !b->any && a->at == b->at && a->all == b->all;
}
static bool fits(const Chain *c, const Call *call) {
    if (c->n == LINKS || c->touches + call->touches > TOUCHES) return false;
    if (c->at || call->groups ? call->rows != c->rows || (c->at && call->at && c->at != call->at)
                              : call->rows % c->rows && c->rows % call->rows)
        return false;
    for (int i = 0; i < call->touches; i++)
        for (int j = 0; j < c->touches; j++)
            if (!apart(&call->touch[i], &c->touch[j])) return false;
    /* groups of some of the rows only (another rank has the other experts): calls before them are of all */
    return c->at || !call->groups || (call->at[0] == 0 && call->at[call->groups] == call->rows);
}

void cpu_call(Dev *d, const Call *call) {
    CHECK(call->bytes <= ARG, "a call's arguments are %zu bytes, there is room for %d", call->bytes, ARG);
    if (call->rows <= 0) return;
    Chain *c = cpu_dev(d)->chain;
    if (cpu_dev(d)->queued && !fits(c, call)) chain_end(d);
    if (!cpu_dev(d)->queued) c->n = c->touches = c->groups = 0, c->rows = call->rows, c->at = NULL, c->least = STEP;
    Link *l = &c->link[c->n++];
    l->fn = call->fn, l->rows = call->rows, l->cost = call->cost;
    memcpy(l->arg, call->arg, call->bytes);
    memcpy(c->touch + c->touches, call->touch, (size_t)call->touches * sizeof *call->touch);
    c->touches += call->touches;
    if (call->rows < c->rows) c->rows = call->rows;
    if (call->groups) c->at = call->at, c->groups = call->groups;
    if (call->least > c->least) c->least = call->least;
    cpu_dev(d)->queued = c->n;
    if (!cpu_dev(d)->chains || d->ops != &ops_cpu)
        chain_end(d); /* another table of operations wants to see each result */
}

typedef struct {
    const Dev *d;
    const Chain *c;
    int parts; /* of the rows, or of each group */
} Run;
static void block(const Run *r, int64_t r0, int64_t r1, int worker) {
    for (int i = 0; i < r->c->n && r0 < r1; i++) {
        const Link *l = &r->c->link[i];
        int64_t times = l->rows / r->c->rows;
        l->fn(l->arg, r0 * times, r1 * times, cpu_kern(r->d), cpu_work(r->d, worker));
    }
}
static int64_t cut(int64_t rows, int part, int parts) {
    int64_t at = (rows + STEP - 1) / STEP * part / parts * STEP;
    return at < rows ? at : rows;
}
static void piece(void *arg, int i, int worker) {
    const Run *r = arg;
    int g = i / r->parts, part = i % r->parts;
    int64_t from = r->c->at ? r->c->at[g] : 0, n = (r->c->at ? r->c->at[g + 1] : r->c->rows) - from;
    block(r, from + cut(n, part, r->parts), from + cut(n, part + 1, r->parts), worker);
}
void chain_end(Dev *d) {
    const Chain *c = cpu_dev(d)->chain;
    if (!cpu_dev(d)->queued) return;
    cpu_dev(d)->queued = 0;
    Run r = { d, c, 1 };
    int threads = threads_count(d->threads), groups = c->at ? c->groups : 1;
    double cost = 0;
    int64_t longest = c->rows;
    for (int i = 0; i < c->n; i++) cost += c->link[i].cost * (double)c->link[i].rows;
    if (c->at) {
        longest = 0;
        for (int g = 0; g < groups; g++)
            if (c->at[g + 1] - c->at[g] > longest) longest = c->at[g + 1] - c->at[g];
    }
    int64_t want = threads == 1 || cost < cpu_worth(d) ? 1 : (4 * threads + groups - 1) / groups;
    if (want > threads && cost < BLOCK_NS * (double)(want * groups)) want = threads;
    int64_t most = longest / c->least;
    if (most < threads && longest >= threads * c->least / 2) most = threads; /* rather half of it than an idle thread */
    if (want > most) want = most;
    if (want < (longest + BLOCK - 1) / BLOCK) want = (longest + BLOCK - 1) / BLOCK;
    if (want > threads && groups == 1)
        want += (threads - want % threads) % threads; /* as many for one thread as for another */
    r.parts = want > 1 ? (int)want : 1;
    cpu_run(d, groups * r.parts, cost, piece, &r);
}
