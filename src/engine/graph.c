/* graph.c - steps of decoding, captured once and replayed. */
#include "engine/engine_int.h"

/* A step in which every sequence has one row makes the same calls, over the same tensors, as the last one with as
 * many: a backend that can captures them and runs them at once, which spares the host a thousand launches.  Numbers of
 * sequences that come once are not worth it; the sizes of replicas that share experts are few, and come again.  Nothing
 * is captured the first time: what a device loads when it is first used it loads outside of a capture. */
enum { MOST_GRAPHS = 64, WORTH_CAPTURING = 3, WORTH_OF_FEW = 2 };

static bool may_capture(const Engine *e) { return e->m->dev->ops->record && !e->plain; }

/* Sizes of a step by which replicas decode together: at most a sixteenth more than the one that has most needs, so
 * that there are few of them (48 up to 256 sequences), and rows for every rank of tp alike. */
static int padded(int most, int tp) {
    int step = tp;
    while (16 * step < most) step *= 2;
    return (most + step - 1) / step * step;
}

/* Of one replica, the ranks that share experts have the same step; several say what theirs is, and those that decode
 * less pad their steps, since a captured list can be run again only where all of its sizes are the same on all. */
Decode graph_decode(const Engine *e, const Step *st) {
    const Comm *c = &e->m->par.experts;
    int tp = e->m->shard.g.tp, most = st->n_rows == st->n_pieces && st->n_draws == st->n_pieces ? st->n_rows : -1;
    int32_t all[LEAVES_MOST];
    Decode x = { .all = most >= 0, .rows = st->n_rows }, counted = { .rows = st->n_rows };
    int64_t room = most_each(&e->c, c->size), fits = room * tp;
    if (c->size == 1) return x;
    if (!room) return counted;
    if (engine_pads(&e->c)) {
        comm_gather_host(c, all, &(int32_t){ most }, sizeof *all);
        bool decode = true;
        for (int r = 0; r < c->size; r++) decode = decode && all[r] >= 0, most = all[r] > most ? all[r] : most;
        if (!decode || most > fits) return counted;
        if (fits > e->c.sched.max_batch) fits = e->c.sched.max_batch;
        if (may_capture(e)) x.rows = padded(most, tp) < fits ? padded(most, tp) : (int)fits;
        if (x.rows > most) most = x.rows;
    }
    x.each = (most + tp - 1) / tp;
    return most < 1 || x.each > room ? counted : x;
}

void graph_extend(Engine *e, const Decode *x, const Rows *r, Tensor h) {
    Dev *d = e->m->dev;
    Graph *n = &e->graph[r->paged.rows.n];
    bool captures = x->all && may_capture(e);
    int worth = engine_pads(&e->c) ? WORTH_OF_FEW : WORTH_CAPTURING;
    if (captures && !n->calls && ++n->times >= worth && e->n_graphs < MOST_GRAPHS) {
        d->ops->record(d);
        model_extend(e->m, e->cache.kv, &r->paged, r->ids, r->pos, &r->images, x->each, r->rows, h);
        n->calls = d->ops->recorded(d);
        e->n_graphs++;
    }
    if (captures && n->calls) d->ops->replay(d, n->calls);
    else model_extend(e->m, e->cache.kv, &r->paged, r->ids, r->pos, &r->images, x->each, r->rows, h);
}
