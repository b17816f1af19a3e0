/* routes.h - which experts each token of each sequence was given, recorded while the engine
 * decodes and while the trainer scores, and compared.
 *
 * A token's row is named by a hash of all tokens up to it: two rows with one name must have the same routes (E1).  The
 * engine knows rows only as positions in pages, so a shadow of the cache is kept, one hash a position, copied when a
 * page is copied: a row's hash is made from the hash that the pages say stands before it. */
#ifndef ENGINE_ROUTES_H
#define ENGINE_ROUTES_H

#include "op/op.h"
#include "test.h"

typedef struct { uint64_t row, pick; } RouteSeen;
static struct {
    RouteSeen *at[2];            /* of the engine, of the trainer */
    size_t     n[2], room[2];
    int        side, layer;      /* layer: routers met in this forward */
    int32_t   *ids;              /* of this forward */
    uint64_t  *row;              /* their names */
    size_t     rows, rows_room;
    bool       named;
    uint64_t  *shadow;           /* [pages * page] */
    size_t     shadow_n;
    bool       fault;            /* planted: the engine's first row goes to another expert */
    const Ops *under;            /* the device's own */
    int32_t   *ints[3];          /* what was read of it */
    size_t     ints_room[3];
} routes;

static inline uint64_t routes_mix(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9E3779B97F4A7C15u + b + 1;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline const int32_t *routes_get(Dev *d, int which, Tensor x) {
    size_t n = (size_t)(x.rows * x.cols);
    if (n > routes.ints_room[which])
        routes.ints[which] = realloc(routes.ints[which], n * 4), routes.ints_room[which] = n;
    routes.under->get(d, routes.ints[which], x);
    return routes.ints[which];
}
static void routes_embed(Dev *d, Tensor y, Tensor ids, Tensor w, Part part) { /* a forward begins */
    routes.under->embed(d, y, ids, w, part);
    size_t n = (size_t)ids.rows;
    if (n > routes.rows_room) {
        routes.rows_room = n;
        routes.ids = realloc(routes.ids, n * sizeof *routes.ids);
        routes.row = realloc(routes.row, n * sizeof *routes.row);
    }
    routes.under->get(d, routes.ids, ids);
    routes.rows = n, routes.layer = 0, routes.named = false;
}
static void routes_attend(Dev *d, const Attn *a) { /* the trainer's rows: whole sequences */
    routes.under->attend(d, a);
    const int32_t *at = routes.named ? NULL : routes_get(d, 0, a->seqs.at);
    for (int s = 0; s < a->seqs.n && !routes.named; s++) {
        uint64_t h = 0;
        for (int32_t t = at[s]; t < at[s + 1]; t++) routes.row[t] = h = routes_mix(h, (uint64_t)routes.ids[t]);
    }
    routes.named = true;
}
static void routes_kv_put(Dev *d, Kv kv, Tensor k, Tensor v, Paged p) { /* the engine's: pieces of sequences in pages */
    routes.under->kv_put(d, kv, k, v, p);
    if (routes.named) return;
    routes.named = true;
    size_t want = (size_t)(kv.pool.rows * kv.page);
    if (want > routes.shadow_n)
        routes.shadow = realloc(routes.shadow, want * sizeof *routes.shadow), routes.shadow_n = want;
    const int32_t *at = routes_get(d, 0, p.rows.at), *start = routes_get(d, 1, p.start),
                  *all = routes_get(d, 2, p.table);
    for (int s = 0; s < p.rows.n; s++) {
        const int32_t *table = all + s * p.table.cols;
        for (int32_t t = at[s], pos = start[s]; t < at[s + 1]; t++, pos++) {
            uint64_t before = pos ? routes.shadow[table[(pos - 1) / kv.page] * kv.page + (pos - 1) % kv.page] : 0;
            routes.row[t] = routes_mix(before, (uint64_t)routes.ids[t]);
            routes.shadow[table[pos / kv.page] * kv.page + pos % kv.page] = routes.row[t];
        }
    }
}
static void routes_kv_copy(Dev *d, Kv kv, int to, int from) {
    routes.under->kv_copy(d, kv, to, from);
    memcpy(routes.shadow + to * kv.page, routes.shadow + from * kv.page, (size_t)kv.page * sizeof *routes.shadow);
}
static void routes_route(Dev *d, const Route *r) {
    routes.under->route(d, r);
    int s = routes.side;
    size_t n = (size_t)r->pick.rows;
    if (routes.fault && !s) { /* ids ascend: below the first or above the last is one that was not chosen */
        int32_t *p = r->pick.data, last = (int32_t)r->pick.cols - 1;
        if (p[0] > 0) p[0]--;
        else if (p[last] + 1 < r->logits.cols) p[last]++;
    }
    CHECK(routes.named && n == routes.rows, "a router over %zu rows in a forward of %zu", n, routes.rows);
    if (routes.n[s] + n > routes.room[s]) {
        routes.room[s] = (routes.n[s] + n) * 2;
        routes.at[s] = realloc(routes.at[s], routes.room[s] * sizeof *routes.at[s]);
    }
    const int32_t *picks = routes_get(d, 0, r->pick);
    for (size_t t = 0; t < n; t++) {
        const int32_t *pick = picks + t * (size_t)r->pick.cols;
        uint64_t h = 0;
        for (int64_t j = 0; j < r->pick.cols; j++) h = routes_mix(h, (uint64_t)pick[j]);
        routes.at[s][routes.n[s]++] = (RouteSeen){ routes_mix(routes.row[t], (uint64_t)routes.layer), h };
    }
    routes.layer++;
}
static inline Ops routes_ops(const Ops *under) {
    Ops o = *under;
    routes.under = under;
    o.embed = routes_embed, o.attend = routes_attend, o.kv_put = routes_kv_put, o.kv_copy = routes_kv_copy;
    o.route = routes_route;
    o.record = NULL, o.fused = NULL; /* it asks the device in the middle of a step, of each op by itself */
    return o;
}

static inline int routes_order(const void *a, const void *b) {
    uint64_t x = ((const RouteSeen *)a)->row, y = ((const RouteSeen *)b)->row;
    return x < y ? -1 : x > y;
}
/* Routes that the engine took and the trainer did not (another pick, or no such row);
 * 'compared' counts the engine's. */
static inline int64_t routes_differ(int64_t *compared) {
    int64_t bad = 0;
    for (int s = 0; s < 2; s++)
        if (routes.n[s]) qsort(routes.at[s], routes.n[s], sizeof *routes.at[s], routes_order);
    for (size_t i = 0, k = 0; i < routes.n[0]; i++) {
        while (k < routes.n[1] && routes.at[1][k].row < routes.at[0][i].row) k++;
        bad += k >= routes.n[1] || routes.at[1][k].row != routes.at[0][i].row
               || routes.at[1][k].pick != routes.at[0][i].pick;
    }
    *compared += (int64_t)routes.n[0];
    routes.n[0] = routes.n[1] = 0;
    return bad;
}
static inline void routes_free(void) {
    free(routes.at[0]), free(routes.at[1]), free(routes.ids), free(routes.row), free(routes.shadow);
    for (int i = 0; i < 3; i++) free(routes.ints[i]);
    memset(&routes, 0, sizeof routes);
}

#endif
