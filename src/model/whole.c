/* whole.c - the whole model, a chunk after the other: stages wait for each other.  train/pipeline.c has them at work
 * together. */
#include "model/model.h"

enum { TAG_FORWARD = 1 << 16, TAG_BACKWARD = (1 << 17) + 1, TAG_RESULT = 1 << 18 }; /* odd: backward */

static void hand(Model *m, int chunk, int tag, Tensor x, bool send) { /* to that chunk's stage, or from it */
    const Comm *pp = &m->par.pp;
    CommCall call = (send ? comm_send : comm_recv)(pp, m->dev, chunk % m->shard.g.pp, tag, x);
    comm_wait(&call);
}

/* The last stage's numbers for every stage. */
static void share(Model *m, Tensor x) {
    int last = (grid_chunks(&m->shard.g) - 1) % m->shard.g.pp;
    for (int s = 0; s < m->shard.g.pp; s++)
        if (s != last && (m->par.pp.rank == last || m->par.pp.rank == s))
            hand(m, m->par.pp.rank == last ? s : last, TAG_RESULT, x, m->par.pp.rank == last);
}

static void run_forward(Model *m, const Batch *b, Arena *act, ModelKeep *keep, Tensor lp, Tensor ent) {
    Arena *a = keep ? act : &m->dev->tmp;
    size_t mark = arena_mark(&m->dev->tmp);
    for (int v = 0; v < m->shard.g.vpp; v++) {
        int at = model_chunk(m, v), l0;
        FlightWay w;
        flight_out(&w, a, m, v, b);
        ModelKeep k = keep ? *keep : (ModelKeep){ 0 };
        model_layers(m, v, &l0);
        if (keep) k.block += l0;
        if (w.x.data) hand(m, at - 1, TAG_FORWARD, w.x, false);
        chunk_forward(m, v, b, w.y, w.x, act, keep ? &k : NULL, lp, ent);
        if (w.y.data) hand(m, at + 1, TAG_FORWARD, w.y, true);
        if (keep) k.block = keep->block, *keep = k;
    }
    if (lp.data) share(m, lp);
    if (ent.data) share(m, ent);
    arena_pop(&m->dev->tmp, mark);
}

void model_score(Model *m, const Batch *b, Tensor lp, Tensor ent) { run_forward(m, b, NULL, NULL, lp, ent); }
void model_forward(Model *m, const Batch *b, Arena *act, ModelKeep *keep, Tensor lp, Tensor ent) {
    run_forward(m, b, act, keep, lp, ent);
}

void model_backward(Model *m, const Params *g, const Batch *b, Arena *act, const ModelKeep *keep, Tensor dlp,
                    Tensor dent) {
    Arena *tmp = &m->dev->tmp;
    for (int v = m->shard.g.vpp - 1; v >= 0; v--) {
        size_t mark = arena_mark(tmp);
        int at = model_chunk(m, v), l0;
        FlightWay w;
        flight_back(&w, tmp, tmp, m, v, b);
        ModelKeep k = *keep;
        model_layers(m, v, &l0);
        k.block += l0;
        if (w.dy.data) hand(m, at + 1, TAG_BACKWARD, w.dy, false);
        chunk_backward(m, v, g, b, w.dx, w.dy, act, &k, dlp, dent);
        if (w.dx.data) hand(m, at - 1, TAG_BACKWARD, w.dx, true);
        arena_pop(tmp, mark);
    }
}
