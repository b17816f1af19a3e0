/* open.c - how large an engine's parts are, and taking them. */
#include "engine/engine_int.h"
#include "model/kept_set.h"

EngineConf engine_conf(int64_t answers, int64_t longest, int64_t rows, int64_t page) {
    int64_t pages = answers * ((longest + page - 1) / page) + 1;
    return (EngineConf){ .sched = { .page = (int)page,
                                    .pages = (int)(pages < INT32_MAX ? pages : INT32_MAX),
                                    .max_seqs = (int)(2 * answers),
                                    .max_batch = (int)answers,
                                    .max_rows = (int)(rows > answers ? rows : answers),
                                    .max_len = (int)longest } };
}

static int ep_of(const Shard *s) { return s ? s->g.ep * s->g.etp : 1; }

size_t engine_tmp_bytes(const ModelDesc *m, const EngineConf *c, DevKind like) {
    ExtendShape s = { .rows = c->sched.max_rows,
                      .outputs = c->sched.max_seqs + (c->tells ? c->sched.max_rows : 0),
                      .told = c->tells,
                      .seqs = c->sched.max_batch,
                      .longest = c->sched.max_rows,
                      .max_pages = max_pages(c),
                      .page = c->sched.page,
                      .shard = c->shard,
                      .feats = c->feats };
    size_t rows = model_extend_tmp(m, &s, like), pictures = images_tmp_bytes(m, c, like), even = 0;
    s.each = most_each(c, ep_of(c->shard));
    if (s.each) {
        int64_t most = s.each * c->shard->g.tp;
        s.seqs = (int)(most < c->sched.max_batch ? most : c->sched.max_batch), s.rows = s.outputs = s.seqs,
        s.longest = 1;
        even = model_extend_tmp(m, &s, like);
    }
    return rows > pictures && rows > even ? rows : pictures > even ? pictures : even;
}

/* Index lists of a step, and the sampler's rows with their hidden states and kept sets. */
static size_t list_bytes(const ModelDesc *m, const EngineConf *c) {
    size_t rows = arena_round((size_t)c->sched.max_rows * 4), seqs = arena_round((size_t)(c->sched.max_seqs + 1) * 8);
    size_t table = arena_round((size_t)c->sched.max_batch * (size_t)max_pages(c) * 4),
           h = arena_round((size_t)c->sched.max_seqs * (size_t)m->d.hidden * 4);
    size_t keep = (size_t)(c->sched.max_seqs < KEEP_ROWS ? c->sched.max_seqs : KEEP_ROWS);
    size_t banned = arena_round((size_t)(m->d.special.n_eos + c->max_ban + 1) * 4);
    size_t sets = arena_round(keep * (size_t)kept_words(m->d.vocab) * 4) + arena_round(kept_set_most(m->d.vocab, 0));
    size_t axes = m->d.vis.layers ? 3 + 1 : 0; /* two more positions, whose picture; what rounding adds */
    return (2 + axes) * rows + 15 * seqs + table + h + banned + sets + tell_bytes(m, c);
}

EngineSizes engine_sizes(const ModelDesc *m, const EngineConf *c, DevKind like) {
    if ((double)c->sched.max_seqs * c->sched.max_len > 0x1p40) /* nobody has it */
        return (EngineSizes){ .host = (size_t)1 << 60 };
    ModelDry x;
    Mem mem = { .counted = true };
    model_dry_open(&x, m, c->shard, like);
    size_t before = dev_taken(&x.dev);
    Engine *e = engine_open_over(&x.model, c, arena_over("kv", x.io.base, x.io.size), &mem);
    EngineSizes z = { .lists = e->io.size, .host = mem.asked };
    z.pictures = dev_taken(&x.dev) - before - z.lists;
    engine_close(e);
    mem_free(&mem);
    model_dry_close(&x);
    return z;
}

Engine *engine_open(Model *m, const EngineConf *c, Mem *mem) {
    size_t bytes = cache_bytes(m->desc, c, dev_kind(m->dev));
    Engine *e = engine_open_over(m, c, dev_arena(m->dev, "kv", bytes), mem);
    e->own = true;
    return e;
}

Engine *engine_open_over(Model *m, const EngineConf *c, Arena cache, Mem *mem) {
    Engine *e = MEM_NEW(mem, Engine);
    size_t n = (size_t)c->sched.max_seqs;
    SchedConf sched = c->sched;
    for (int l = 0; l < m->desc->d.layers; l++) sched.states |= mixer_of(m->desc, l)->store == STORE_STATE;
    *e = (Engine){ .m = m, .c = *c, .s = sched_open(&sched, mem), .max_pages = max_pages(c) };
    cache_open(&e->cache, m, c, cache, mem);
    e->request = MEM_ARRAY(mem, Request, n);
    e->id = MEM_ARRAY(mem, int32_t, n);
    e->lp = MEM_ARRAY(mem, float, n);
    e->ent = MEM_ARRAY(mem, float, n);
    e->finish = MEM_ARRAY(mem, Finish, n);
    e->finished = MEM_ARRAY(mem, bool, n);
    e->full = MEM_ARRAY(mem, bool, n);
    e->graph = MEM_ARRAY(mem, Graph, (size_t)c->sched.max_batch + 1);
    e->drawn = MEM_ARRAY(mem, Drawn, n);
    e->back = MEM_ARRAY(mem, char, 2 * back_bytes(c->sched.max_seqs));
    e->ahead = m->dev->ops->ask != NULL;
    size_t io = list_bytes(m->desc, c);
    e->host = arena_on_host("rollout host", io, mem);
    e->io = dev_arena(m->dev, "rollout io", io);
    if (c->feats) e->images = images_open(m, c, mem);
    return e;
}

void engine_close(Engine *e) {
    for (int i = 0; i <= e->c.sched.max_batch; i++)
        if (e->graph[i].calls) e->m->dev->ops->forget(e->m->dev, e->graph[i].calls);
    if (e->own) dev_free(e->m->dev, e->cache.memory.base);
    if (e->images) images_close(e->images);
    dev_free(e->m->dev, e->io.base);
}
