/* pipeline.c - micro-batches through the stages: whose turn it is, and what is in flight. */
#include "train/pipeline.h"

static int chunks_of(const Model *m) { return m->shard.g.vpp; }
static int64_t padded(const Shard *s, int64_t micros) { /* interleaved chunks take them in runs of pp */
    return s->g.vpp == 1 ? micros : (micros + s->g.pp - 1) / s->g.pp * s->g.pp;
}

int pipeline_flights(const Shard *s) {
    int behind = s->g.pp - 1 - s->at.pp;
    return s->g.vpp == 1 ? behind + 1 : 2 * behind + (s->g.vpp - 1) * s->g.pp + 1;
}
int pipeline_outs(const Shard *s) {
    Shard first = *s;
    first.at.pp = 0;
    return s->g.pp == 1 ? 0 : pipeline_flights(&first) + 1;
}
size_t pipeline_list_bytes(const Shard *s, int64_t most) {
    return arena_round((size_t)schedule_turns((int)padded(s, most), s->g.vpp) * sizeof(Turn));
}

static Arena nth_of(const Arena *a, const char *name, int i, int n) {
    size_t each = a->size / (size_t)n / ARENA_ALIGN * ARENA_ALIGN;
    return arena_over(name, a->base + (size_t)i * each, each);
}

void pipeline_open(Pipeline *p, const Model *m, Arena *act, Arena *out, Mem *mem) {
    int n = pipeline_flights(&m->shard), outs = pipeline_outs(&m->shard), layers = 0, l0;
    *p = (Pipeline){ .flight = MEM_ARRAY(mem, Flight, (size_t)n),
                     .slot = MEM_ARRAY(mem, int, (size_t)n),
                     .left = MEM_ARRAY(mem, int, (size_t)n),
                     .flights = n,
                     .out = MEM_ARRAY(mem, struct Out, (size_t)outs + 1),
                     .outs = outs };
    for (int v = 0; v < chunks_of(m); v++) layers = model_layers(m, v, &l0) > layers ? model_layers(m, v, &l0) : layers;
    for (int i = 0; i < n; i++) {
        p->flight[i].act = nth_of(act, "activations", i, n);
        p->flight[i].keep = model_keep(m->desc, layers, mem);
    }
    for (int i = 0; i < outs; i++) p->out[i].at = nth_of(out, "gradients sent", i, outs);
}

/* ---- the list */

typedef struct {
    Pipeline *p;
    Model *m;
    const Params *grads;
    bool entropies;
    const PipelineCalls *c;
} Run;

static Flight *flight_of(Pipeline *p, int micro, int chunk) { /* -1, -1: one that is free */
    for (int i = 0; i < p->flights; i++)
        if (p->flight[i].micro == micro && p->flight[i].chunk == chunk) return &p->flight[i];
    return NULL;
}
static int slot_of(Pipeline *p, int micro) { /* -1: one that is free */
    for (int i = 0; i < p->flights; i++)
        if (p->slot[i] == micro) return i;
    return -1;
}

/* The stage of the chunk before or after chunk v of this one, and what their messages are called. */
static int stage_by(const Model *m, int v, int by) {
    int pp = m->shard.g.pp;
    return (v * pp + m->shard.at.pp + by) % pp;
}
static int tag_of(const Model *m, const Turn *t,
                  int chunk_by) { /* of what the chunk that is chunk_by from here takes */
    int chunk = t->chunk * m->shard.g.pp + m->shard.at.pp + chunk_by;
    return 2 * (t->micro * grid_chunks(&m->shard.g) + chunk) + t->backward;
}
static void receive(const Model *m, const Turn *t, Tensor to, int from) {
    CommCall call = comm_recv(&m->par.pp, m->dev, stage_by(m, t->chunk, from), tag_of(m, t, 0), to);
    comm_wait(&call);
}
static CommCall send(const Model *m, const Turn *t, Tensor x, int to) {
    return comm_send(&m->par.pp, m->dev, stage_by(m, t->chunk, to), tag_of(m, t, to), x);
}
static void sent(CommCall *c) {
    if (c->call) comm_wait(c);
}

static void turn_forward(const Run *r, const Turn *t) {
    Pipeline *p = r->p;
    Model *m = r->m;
    const Batch *b;
    Tensor lp, ent;
    int slot = slot_of(p, t->micro);
    if (slot < 0) {
        slot = slot_of(p, -1);
        CHECK(slot >= 0, "micro-batch %d has no slot of %d", t->micro, p->flights);
        p->slot[slot] = t->micro, p->left[slot] = 2 * chunks_of(m);
    }
    r->c->put(r->c->user, slot, t->micro, &b, &lp, &ent);
    Flight *f = flight_of(p, -1, -1);
    CHECK(f, "micro-batch %d flies with %d others, planned for fewer", t->micro, p->flights);
    f->act.used = 0;
    f->micro = t->micro, f->chunk = t->chunk;
    flight_out(&f->way, &f->act, m, t->chunk, b);
    if (f->way.x.data) receive(m, t, f->way.x, -1);
    chunk_forward(m, t->chunk, b, f->way.y, f->way.x, &f->act, &f->keep, lp, ent);
    if (f->way.y.data) f->sending = send(m, t, f->way.y, +1);
    else r->c->judge(r->c->user, slot);
    p->left[slot]--;
}

static void turn_backward(const Run *r, const Turn *t) {
    Pipeline *p = r->p;
    Model *m = r->m;
    const Batch *b;
    Tensor lp, ent;
    int slot = slot_of(p, t->micro);
    Flight *f = flight_of(p, t->micro, t->chunk);
    r->c->put(r->c->user, slot, t->micro, &b, &lp, &ent);
    struct Out none = { 0 }, *o = p->outs ? &p->out[p->next++ % p->outs] : &none;
    sent(&o->sending);
    o->at.used = 0;
    flight_back(&f->way, &f->act, &o->at, m, t->chunk, b);
    if (f->way.dy.data) receive(m, t, f->way.dy, +1);
    sent(&f->sending); /* it came back: y was taken */
    chunk_backward(m, t->chunk, r->grads, b, f->way.dx, f->way.dy, &f->act, &f->keep, lp,
                   r->entropies ? ent : TENSOR_NONE);
    if (f->way.dx.data) o->sending = send(m, t, f->way.dx, -1);
    f->micro = f->chunk = -1;
    if (--p->left[slot]) return;
    r->c->done(r->c->user, slot);
    p->slot[slot] = -1;
}

/* ---- forward alone */

int pipeline_run_of(const Shard *s) { return s->g.vpp > 1 ? s->g.pp : 1; }
int pipeline_ways(const Shard *s) { return s->g.pp == 1 ? 0 : pipeline_run_of(s) + 1; }

void pipeline_open_ways(Pipeline *p, const Model *m, Arena *in, Mem *mem) {
    p->ways = pipeline_ways(&m->shard);
    p->way = MEM_ARRAY(mem, struct Out, (size_t)p->ways + 1);
    for (int i = 0; i < p->ways; i++) p->way[i].at = nth_of(in, "activations sent", i, p->ways);
}

/* A way is waited for when what it sends on is there to be computed: then the stage behind has got so far that it
 * has taken what the way held. */
void pipeline_forward(Pipeline *p, Model *m, int micro, int v, const Batch *b, Tensor lp, Tensor ent) {
    Arena *tmp = &m->dev->tmp;
    size_t mark = arena_mark(tmp);
    Turn t = { .micro = micro, .chunk = v };
    FlightWay w;
    struct Out *o = NULL;
    flight_out(&w, tmp, m, v, b);
    if (w.x.data) receive(m, &t, w.x, -1);
    if (w.y.data) {
        o = &p->way[p->next_way++ % p->ways];
        sent(&o->sending);
        o->at.used = 0;
        w.y = tensor_push(&o->at, w.y.dtype, w.y.rows, w.y.cols);
    }
    chunk_forward(m, v, b, w.y, w.x, NULL, NULL, lp, ent);
    if (o) o->sending = send(m, &t, w.y, +1);
    arena_pop(tmp, mark);
}

void pipeline_sent(Pipeline *p) {
    for (int i = 0; i < p->ways; i++) sent(&p->way[i].sending);
}

bool pipeline_run(Pipeline *p, Model *m, const Params *grads, int64_t micros, bool entropies, const PipelineCalls *c,
                  Arena *host) {
    Run r = { p, m, grads, entropies, c };
    const Shard *s = &m->shard;
    size_t mark = arena_mark(host);
    int n = (int)padded(s, micros), turns = schedule_turns(n, s->g.vpp);
    bool going = true;
    if (!micros) return true;
    Turn *list = arena_push(host, (size_t)turns * sizeof *list);
    schedule_fill(list, s->at.pp, s->g.pp, n, s->g.vpp);
    for (int i = 0; i < p->flights; i++) p->flight[i].micro = p->flight[i].chunk = p->slot[i] = -1;
    for (int i = 0; i < turns && going; i++) {
        if (s->g.pp == 1 && !list[i].backward && c->go_on && !(going = c->go_on(c->user))) break;
        (list[i].backward ? turn_backward : turn_forward)(&r, &list[i]);
    }
    for (int i = 0; i < p->outs; i++) sent(&p->out[i].sending);
    for (int i = 0; i < p->flights; i++) p->flight[i].act.used = 0;
    arena_pop(host, mark);
    return going;
}
