/* graph.c - steps of decoding, captured once and replayed. */
#include "engine/engine_int.h"

/* A step in which every sequence has one row makes the same calls, over the same tensors, as the last one with as
 * many: a backend that can captures them and runs them at once, which spares the host a thousand launches.  Numbers of
 * sequences that come once are not worth it. */
enum { MOST_GRAPHS = 64, WORTH_CAPTURING = 3 };

/* Ranks that share experts: do all of them decode, and the same number of sequences?  Then all capture it, or none.
 * *each: Ctx.each.  Of one replica they have the same step; several say what theirs is. */
static bool all_decode(const Engine *e, const Step *st, int64_t *each) {
    const Comm *c = &e->m->par.experts;
    const GridShape *g = &e->m->shard.g;
    int most = st->n_rows == st->n_pieces && st->n_draws == st->n_pieces ? st->n_rows : -1, least = most;
    int32_t all[LEAVES_MOST];
    *each = 0;
    if (c->size == 1) return most >= 0;
    if (!most_each(&e->c, c->size)) return false;
    if (g->tp % c->size) {
        comm_gather_host(c, all, &(int32_t){ most }, sizeof *all);
        for (int r = 0; r < c->size; r++) most = all[r] > most ? all[r] : most, least = all[r] < least ? all[r] : least;
    }
    if (least >= 0) *each = (most + g->tp - 1) / g->tp;
    if (*each > most_each(&e->c, c->size)) *each = 0;
    return *each && least == most;
}

void graph_extend(Engine *e, const Step *st, const Rows *r, Tensor h) {
    Dev *d = e->m->dev;
    Graph *n = &e->graph[st->n_pieces];
    int64_t each;
    bool decodes = all_decode(e, st, &each) && d->ops->record && !e->plain;
    if (decodes && !n->calls && ++n->times >= WORTH_CAPTURING && e->n_graphs < MOST_GRAPHS) {
        d->ops->record(d);
        model_extend(e->m, e->cache.kv, &r->paged, r->ids, r->pos, &r->images, each, r->rows, h);
        n->calls = d->ops->recorded(d);
        e->n_graphs++;
    }
    if (decodes && n->calls) d->ops->replay(d, n->calls);
    else model_extend(e->m, e->cache.kv, &r->paged, r->ids, r->pos, &r->images, each, r->rows, h);
}
