/* cache.c - the stores: one row for each way in which layers remember. */
#include "engine/cache.h"

typedef struct {
    size_t (*bytes)(const ModelDesc *m, const Shard *shard, int layer, int page, DevKind like); /* of one piece */
    int (*pieces)(const EngineConf *c);
    void (*place)(Cache *k, Model *m, int layer, const EngineConf *c); /* its memory */
    void (*copy)(const Cache *k, Dev *d, int layer, int to, int from);
} Store;

/* ---- pages */
static size_t page_bytes(const ModelDesc *m, const Shard *shard, int layer, int page, DevKind like) {
    Kv kv = model_kv(m, shard, layer, page);
    Dev dry;
    dev_open_dry(&dry, like);
    size_t bytes = op_kv_bytes(&dry, &kv);
    dev_close(&dry);
    return bytes;
}
static int pages_of(const EngineConf *c) { return c->sched.pages + engine_pads(c); }
static void place_pages(Cache *k, Model *m, int layer, const EngineConf *c) {
    Kv kv = model_kv(m->desc, &m->shard, layer, c->sched.page);
    kv.pool = tensor_push(&k->memory, DT_U8, pages_of(c), (int64_t)op_kv_bytes(m->dev, &kv));
    k->kv[layer] = kv;
}
static void copy_page(const Cache *k, Dev *d, int layer, int to, int from) { op_kv_copy(d, k->kv[layer], to, from); }

/* ---- states: one for each sequence that runs or waits, by its number, and one for rows that are nobody's */
static size_t state_bytes(const ModelDesc *m, const Shard *shard, int layer, int page, DevKind like) {
    (void)like;
    return (size_t)model_kv(m, shard, layer, page).floats * 4;
}
static int states_of(const EngineConf *c) { return c->sched.max_seqs + 1; }
static void place_states(Cache *k, Model *m, int layer, const EngineConf *c) {
    Kv kv = model_kv(m->desc, &m->shard, layer, c->sched.page);
    kv.state = tensor_push(&k->memory, DT_F32, states_of(c), kv.floats);
    k->kv[layer] = kv;
}
static void copy_state(const Cache *k, Dev *d, int layer, int to, int from) {
    op_copy(d, tensor_rows(k->kv[layer].state, to, 1), tensor_rows(k->kv[layer].state, from, 1));
}

static const Store stores[STORES] = {
    [STORE_STATE] = { state_bytes, states_of, place_states, copy_state },
    [STORE_PAGES] = { page_bytes, pages_of, place_pages, copy_page },
};

/* ---- all layers */
size_t cache_page_bytes(const ModelDesc *m, const Shard *shard, int page, DevKind like) {
    size_t bytes = 0;
    for (int l = 0; l < m->d.layers; l++)
        if (mixer_of(m, l)->store == STORE_PAGES) bytes += page_bytes(m, shard, l, page, like);
    return bytes;
}

size_t cache_bytes(const ModelDesc *m, const EngineConf *c, DevKind like) {
    size_t sum = 0, layer;
    for (int l = 0; l < m->d.layers; l++, sum += arena_round(layer)) {
        const Store *s = &stores[mixer_of(m, l)->store];
        if (__builtin_mul_overflow(s->bytes(m, c->shard, l, c->sched.page, like), (size_t)s->pieces(c), &layer)
            || layer > (size_t)1 << 50)
            return (size_t)1 << 60; /* nobody has it */
    }
    return sum;
}

void cache_open(Cache *k, Model *m, const EngineConf *c, Arena in, Mem *mem) {
    *k = (Cache){ .memory = arena_over("kv", in.base, in.size), .layers = (int)m->desc->d.layers };
    k->kind = MEM_ARRAY(mem, StoreKind, (size_t)k->layers);
    k->kv = MEM_ARRAY(mem, Kv, (size_t)k->layers);
    for (int l = 0; l < k->layers; l++) {
        k->kind[l] = mixer_of(m->desc, l)->store;
        stores[k->kind[l]].place(k, m, l, c);
    }
}

void cache_copy(const Cache *k, Dev *d, const Copy *c) {
    for (int l = 0; l < k->layers; l++)
        if (k->kind[l] == c->group) stores[k->kind[l]].copy(k, d, l, c->to, c->from);
}
