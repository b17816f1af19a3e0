/* attend.c - attention cut over threads: by sequence, kv head and tile of query rows.  The kernel's result for a row depends on
 * the row's own sequence alone, so packing, pages, chunks and tiles are at liberty (docs/exactness.md, rule 4).
 *
 * A page holds, per kv head, keys turned [dk][page] and then values [page][dv rounded up to 16]; the kernels' vectors run
 * over keys in
 * the one and over columns in the other.  MLA's latent is kept in both forms. */
#include "op/cpu/chain.h"

#include <string.h>

static int round16(int n) { return (n + 15) & ~15; }

typedef struct {
    Dev *d;
    const Attn *a;
    const int32_t *at;
    Tensor o, q, dq, dk, dv, dO;
    Kv kv;
    Paged rows;
    int heads, kv_heads, tile, tiles; /* tile: positions */
    float scale;
    int pair0, pairs; /* backward: sequences x kv heads of this round, and how far each of their tiles is */
    atomic_int *done, next;
    int spans; /* of keys, computed apart; 0: together */
    bool join;
    float *parts;
} Job;

/* Task i: sequence, kv head, tile of positions - long tiles first, so that threads end together. */
static void task(const Job *j, int i, int *seq, int *head, int *tile) {
    *head = i % j->kv_heads;
    *tile = j->tiles - 1 - i / j->kv_heads % j->tiles;
    *seq = i / j->kv_heads / j->tiles;
}

static void rows_of(AttRows *r, const Job *j, int64_t row0, int pos0, int n, int kv_head, Tensor q, Tensor o,
                    Tensor lse, int dk, int dv) {
    int group = j->heads / j->kv_heads;
    r->q = q.data, r->o = o.data, r->lse = lse.data, r->scale = j->scale, r->n = n * group, r->part = NULL, r->span = 0;
    for (int t = 0, i = 0; t < n; t++)
        for (int g = 0; g < group; g++, i++) {
            int h = kv_head * group + g;
            r->qoff[i] = (row0 + t) * q.ld + h * dk, r->ooff[i] = (row0 + t) * o.ld + h * dv;
            r->loff[i] = lse.data ? (row0 + t) * lse.ld + h : 0;
            r->last[i] = pos0 + t;
        }
}
/* Positions a tile may have: as many rows as fit, at least one; a group wider than the tile is refused. */
static int tile_positions(int heads, int kv_heads) {
    int group = heads / kv_heads;
    return ATT_TILE / group > 0 ? ATT_TILE / group : 0;
}

static void attend_task(void *arg, int i, int worker) {
    const Job *j = arg;
    const Attn *a = j->a;
    int seq, head, tile;
    task(j, i, &seq, &head, &tile);
    int64_t s0 = j->at[seq];
    int len = j->at[seq + 1] - j->at[seq], p0 = tile * j->tile, n = len - p0 < j->tile ? len - p0 : j->tile;
    if (n <= 0) return;
    AttRows r;
    rows_of(&r, j, s0 + p0, p0, n, head, a->q, a->o, a->lse, a->dk, a->dv);
    AttKeys y = { .k = f32_row(a->k, s0) + head * a->dk,
                  .v = f32_row(a->v, s0) + head * a->dv,
                  .ldk = a->k.ld,
                  .ldv = a->v.ld,
                  .dk = a->dk,
                  .dv = a->dv };
    cpu_kern(j->d)->attend(&r, &y, cpu_work(j->d, worker));
}
void cpu_attend(Dev *d, const Attn *a) {
    int tile = tile_positions(a->heads, a->kv_heads);
    CHECK(tile > 0, "attend: %d query heads share a kv head; at most %d can", a->heads / a->kv_heads, ATT_TILE);
    Job j = { .d = d,
              .a = a,
              .at = a->seqs.at.data,
              .heads = a->heads,
              .kv_heads = a->kv_heads,
              .scale = a->scale,
              .tile = tile,
              .tiles = (a->seqs.longest + tile - 1) / tile };
    double cost = (double)a->q.rows * a->heads * (a->dk + a->dv) * a->seqs.longest / 60;
    if (a->q.rows > 0) cpu_run(d, a->seqs.n * a->kv_heads * j.tiles, cost, attend_task, &j);
}

/* Tile by tile, in each tile every sequence and kv head. */
static void bwd_tile(const Job *j, int i, int worker) {
    const Attn *a = j->a;
    int pair = j->pair0 + i % j->pairs, tile = i / j->pairs, seq = pair / j->kv_heads, head = pair % j->kv_heads;
    int64_t s0 = j->at[seq];
    int len = j->at[seq + 1] - j->at[seq], group = a->heads / a->kv_heads, t0 = tile * j->tile;
    atomic_int *mine = j->done + (int64_t)(i % j->pairs) * j->tiles + tile;
    if (t0 >= len) return;
    int64_t hq = (int64_t)head * group * a->dk, ho = (int64_t)head * group * a->dv, hk = (int64_t)head * a->dk,
            hv = (int64_t)head * a->dv;
    AttBack b = {
        .q = f32_row(a->q, s0) + hq,
        .k = f32_row(a->k, s0) + hk,
        .v = f32_row(a->v, s0) + hv,
        .o = f32_row(a->o, s0) + ho,
        .lse = f32_row(a->lse, s0) + head * group,
        .dO = f32_row(j->dO, s0) + ho,
        .dq = f32_row(j->dq, s0) + hq,
        .dk = f32_row(j->dk, s0) + hk,
        .dv = f32_row(j->dv, s0) + hv,
        .ldq = a->q.ld,
        .ldk = a->k.ld,
        .ldv = a->v.ld,
        .ldo = a->o.ld,
        .ldl = a->lse.ld,
        .lddo = j->dO.ld,
        .lddq = j->dq.ld,
        .lddk = j->dk.ld,
        .lddv = j->dv.ld,
        .len = len,
        .group = group,
        .wk = a->dk,
        .wv = a->dv,
        .scale = a->scale,
        .t0 = t0,
        .t1 = t0 + j->tile < len ? t0 + j->tile : len,
        .before = tile ? mine - 1 : NULL,
        .mine = mine,
    };
    cpu_kern(j->d)->attend_bwd(&b, cpu_work(j->d, worker));
}
/* Threads take tiles in ascending order, so the tile before this one of the same head is done or under way: a tile can wait for it. */
static void bwd_task(void *arg, int i, int worker) {
    Job *j = arg;
    for (; (i = atomic_fetch_add(&j->next, 1)) < j->pairs * j->tiles;) bwd_tile(j, i, worker);
}
void cpu_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    int tile = ATT_BWD / (a->heads / a->kv_heads), all = a->seqs.n * a->kv_heads;
    CHECK(tile > 0, "attend_bwd: %d query heads share a kv head; at most %d can", a->heads / a->kv_heads, ATT_BWD);
    Job j = { .d = d,
              .a = a,
              .at = a->seqs.at.data,
              .heads = a->heads,
              .kv_heads = a->kv_heads,
              .dq = dq,
              .dk = dk,
              .dv = dv,
              .dO = dO,
              .tile = tile,
              .tiles = (a->seqs.longest + tile - 1) / tile,
              .done = (atomic_int *)(void *)(cpu_work(d, 0) + ATT_AT) };
    CHECK(j.tiles <= ATT_COUNTS, "attend_bwd: a sequence of %d positions is too long", a->seqs.longest);
    double cost = (double)a->q.rows * a->heads * (a->dk + a->dv) * a->seqs.longest / 25;
    for (; j.pair0 < all && a->q.rows > 0; j.pair0 += j.pairs) {
        int most = ATT_COUNTS / j.tiles;
        j.pairs = all - j.pair0 < most ? all - j.pair0 : most;
        for (int i = 0; i < j.pairs * j.tiles; i++) atomic_init(&j.done[i], 0);
        atomic_init(&j.next, 0);
        cpu_run(d, threads_count(d->threads), cost, bwd_task, &j);
    }
}

/* ---- pages
 * ------------------------------------------------------------------------------------------------------------------ */
static size_t head_bytes(const Kv *kv) { return (size_t)kv->page * (size_t)(kv->dk + round16(kv->dv)) * 4; }
size_t cpu_kv_bytes(const Dev *d, const Kv *kv) {
    (void)d;
    return head_bytes(kv) * (size_t)kv->kv_heads;
}

static char *page_of(const Kv *kv, const Paged *p, int seq, int pos, int head) {
    int64_t slot = pos / kv->page;
    CHECK(slot < p->table.cols, "sequence %d: position %d needs page %ld, its table has %ld", seq, pos, (long)slot,
          (long)p->table.cols);
    int32_t page = i32_row(p->table, seq)[slot];
    CHECK(page >= 0 && page < kv->pool.rows, "sequence %d: page %d of %ld", seq, page, (long)kv->pool.rows);
    return (char *)kv->pool.data + (size_t)(page * kv->pool.ld) + head_bytes(kv) * (size_t)head;
}

static void put_task(void *arg, int i, int worker) {
    const Job *j = arg;
    const Kv *kv = &j->kv;
    int seq = i / kv->kv_heads, head = i % kv->kv_heads, wv = round16(kv->dv);
    const int32_t *at = j->rows.rows.at.data;
    int start = ((const int32_t *)j->rows.start.data)[seq], n = at[seq + 1] - at[seq];
    (void)worker;
    for (int t = 0; t < n;) {
        int pos = start + t, o = pos % kv->page, m = kv->page - o < n - t ? kv->page - o : n - t;
        char *at_page = page_of(kv, &j->rows, seq, pos, head);
        float *kt = (float *)(void *)at_page, *vt = kt + (size_t)kv->page * (size_t)kv->dk;
        const float *k = f32_row(j->q, at[seq] + t) + head * kv->dk;
        cpu_kern(j->d)->kv_put(kt + o, kv->page, k, j->q.ld, m, kv->dk);
        for (int r = 0; r < m; r++) {
            const float *v = kv->latent ? k + r * j->q.ld : f32_row(j->o, at[seq] + t + r) + head * kv->dv;
            memcpy(vt + (size_t)(o + r) * (size_t)wv, v, (size_t)kv->dv * 4);
            for (int c = kv->dv; c < wv; c++) vt[(size_t)(o + r) * (size_t)wv + (size_t)c] = 0;
        }
        t += m;
    }
}
/* When every sequence brings one row, a row's pages are its own to write: a step of decoding is work on rows like any other. */
static bool row_each(const Dev *d, const Paged *p, Tensor q) {
    enum { EACH = 16 }; /* fewer: heads are cut over threads instead */
    return cpu_dev(d)->chains && p->rows.longest == 1 && p->rows.n == q.rows
           && q.rows >= EACH * threads_count(d->threads);
}
static Touch own_pages(const Kv *kv, bool puts) {
    Touch t = reads(kv->pool);
    t.writes = puts;
    return t;
}
static void put_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    Job j = *(const Job *)arg;
    (void)k, (void)work;
    for (int64_t i = r0 * j.kv.kv_heads; i < r1 * j.kv.kv_heads; i++) put_task(&j, (int)i, 0);
}
void cpu_kv_put(Dev *d, Kv kv, Tensor k, Tensor v, Paged rows) {
    Job j = { .d = d, .q = k, .o = v, .kv = kv, .rows = rows };
    if (row_each(d, &rows, k)) {
        CPU_CALL(d, k.rows, (double)k.cols * 2, put_rows, j, own_pages(&kv, true), reads(k), reads(v));
        return;
    }
    chain_end(d);
    cpu_run(d, rows.rows.n * kv.kv_heads, (double)k.rows * (double)k.cols * 2, put_task, &j);
}
void cpu_kv_copy(Dev *d, Kv kv, int to_page, int from_page) {
    (void)d;
    if (to_page == from_page) return;
    memcpy((char *)kv.pool.data + (size_t)(to_page * kv.pool.ld),
           (char *)kv.pool.data + (size_t)(from_page * kv.pool.ld), cpu_kv_bytes(d, &kv));
}

static void attend_pages(const Job *j, int i, float *work) {
    const Kv *kv = &j->kv;
    int seq, head, tile, span = j->spans && !j->join ? i % j->spans : ATT_JOIN;
    if (span >= 0) i /= j->spans;
    task(j, i, &seq, &head, &tile);
    const int32_t *at = j->rows.rows.at.data;
    int start = ((const int32_t *)j->rows.start.data)[seq], len = at[seq + 1] - at[seq];
    int p0 = tile * j->tile, n = len - p0 < j->tile ? len - p0 : j->tile;
    if (n <= 0 || span * ATT_SPAN >= start + p0 + n) return;
    page_of(kv, &j->rows, seq, start + p0 + n - 1, head); /* dies if the table is too short */
    AttRows r;
    rows_of(&r, j, at[seq] + p0, start + p0, n, head, j->q, j->o, TENSOR_NONE, kv->dk, kv->dv);
    size_t k_off = head_bytes(kv) * (size_t)head;
    AttKeys y = {
        .pool = kv->pool.data,
        .page_bytes = (size_t)kv->pool.ld,
        .k_off = k_off,
        .v_off = k_off + (size_t)kv->page * (size_t)kv->dk * 4,
        .table = i32_row(j->rows.table, seq),
        .page = kv->page,
        .dk = kv->dk,
        .dv = kv->dv,
    };
    if (j->spans) r.part = j->parts + i * j->spans * att_part(r.n, kv->dv), r.span = span;
    cpu_kern(j->d)->attend(&r, &y, work);
}
static void attend_kv_task(void *arg, int i, int worker) {
    const Job *j = arg;
    attend_pages(j, i, cpu_work(j->d, worker));
}
static void attend_kv_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Job *j = arg;
    (void)k;
    for (int64_t i = r0 * j->kv_heads; i < r1 * j->kv_heads; i++) attend_pages(j, (int)i, work);
}
/* Few heads and sequences for the threads, and much context: spans of keys apart, then joined in their order. */
static void spread_spans(Job *j, int tasks, int longest) {
    int spans = (longest + ATT_SPAN - 1) / ATT_SPAN, most = j->rows.rows.longest * (j->heads / j->kv_heads);
    bool fits = tasks * spans * att_part(most, j->kv.dv) <= CPU_WORK - ATT_WORK;
    if (threads_count(j->d->threads) == 1 || tasks >= 2 * threads_count(j->d->threads) || spans < 2 || j->tiles > 1
        || !fits)
        return;
    j->spans = spans, j->parts = cpu_work(j->d, 0) + ATT_WORK;
}
void cpu_attend_kv(Dev *d, Tensor o, Tensor q, Kv kv, Paged rows, int heads, float scale) {
    int tile = tile_positions(heads, kv.kv_heads);
    CHECK(tile > 0, "attend_kv: %d query heads share a kv head; at most %d can", heads / kv.kv_heads, ATT_TILE);
    Job j = { .d = d,
              .o = o,
              .q = q,
              .kv = kv,
              .rows = rows,
              .heads = heads,
              .kv_heads = kv.kv_heads,
              .scale = scale,
              .tile = tile,
              .tiles = (rows.rows.longest + tile - 1) / tile };
    double cost = 0;
    int longest = 0, tasks = rows.rows.n * kv.kv_heads * j.tiles;
    const int32_t *at = rows.rows.at.data, *start = rows.start.data;
    for (int s = 0; s < rows.rows.n; s++) {
        int n = at[s + 1] - at[s];
        cost += (double)n * (start[s] + n), longest = n && start[s] + n > longest ? start[s] + n : longest;
    }
    cost *= (double)heads * (kv.dk + kv.dv) / 60;
    if (q.rows == 0) return;
    spread_spans(&j, tasks, longest);
    if (row_each(d, &rows, q) && !j.spans) {
        CPU_CALL(d, q.rows, cost / (double)q.rows, attend_kv_rows, j, own_pages(&kv, false), writes(o), reads(q));
        return;
    }
    chain_end(d);
    cpu_run(d, tasks * (j.spans ? j.spans : 1), cost, attend_kv_task, &j);
    j.join = true;
    if (j.spans) cpu_run(d, tasks, 0, attend_kv_task, &j);
}
