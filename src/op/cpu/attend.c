/* attend.c - attention cut over threads: by sequence, kv head and tile of query rows.  The kernel's result
 * for a row depends on the row's own sequence alone, so packing, pages, chunks and tiles are at liberty
 * (docs/exactness.md, rule 4).
 *
 * A page holds, per kv head, keys turned [dk][page] and then values [page][dv rounded up to 16]; the kernels' vectors
 * run over keys in the one and over columns in the other.  MLA's latent is kept in both forms. */
#include "op/cpu/chain.h"

#include <string.h>

static int round16(int n) { return (n + 15) & ~15; }

typedef struct {
    Dev *d;
    const Attn *a;
    const int32_t *at, *from, *start; /* from, start: NULL unless keys are apart (Attn) */
    Tensor o, q, dq, dk, dv, dO;
    Kv kv;
    Paged rows;
    int n_seqs, heads, kv_heads, tile, tiles; /* tile: positions; tiles: of the longest sequence */
    float scale;
    int64_t task0; /* the first of this round */
    int spans;     /* of keys, computed apart; 0: together */
    bool join;
    bool all; /* no mask: every row sees all keys of its sequence */
    float *parts;
} Job;

static int64_t keys_at(const Job *j, int seq) { return j->from ? j->from[seq] : j->at[seq]; }
static int start_of(const Job *j, int seq) { return j->start ? j->start[seq] : 0; }

/* Tiles of all sequences stand in one row: tile k of sequence s at at[s]/tile + s + k, one place for each and at most
 * one empty place between two sequences, so their number grows with the rows and not with the longest sequence. */
static int64_t place_of(const Job *j, int seq) { return j->at[seq] / j->tile + seq; }
static int tiles_of(const Job *j, int seq) { return (j->at[seq + 1] - j->at[seq] + j->tile - 1) / j->tile; }
static int64_t tasks_of(const Job *j) { return (j->tiles > 1 ? place_of(j, j->n_seqs) : j->n_seqs) * j->kv_heads; }

/* Task i: sequence, kv head, tile of positions - the long tiles of a sequence first, so that threads end together.
 * False: an empty place. */
static bool task(const Job *j, int64_t i, int *seq, int *head, int *tile) {
    int64_t place = i / j->kv_heads;
    int lo = (int)place, hi;
    *head = (int)(i % j->kv_heads), *tile = 0;
    if (j->tiles > 1) {
        for (lo = 0, hi = j->n_seqs; hi - lo > 1;) { /* the last sequence that starts here or before */
            int mid = lo + (hi - lo) / 2;
            if (place_of(j, mid) <= place) lo = mid;
            else hi = mid;
        }
        *tile = tiles_of(j, lo) - 1 - (int)(place - place_of(j, lo));
    }
    *seq = lo;
    return *tile >= 0;
}
static void run_tasks(Job *j, double cost, ThreadFn *fn) {
    enum { MOST = 1 << 22 }; /* in one call of the threads */
    for (int64_t n = tasks_of(j); j->task0 < n; j->task0 += MOST)
        cpu_run(j->d, (int)(n - j->task0 < MOST ? n - j->task0 : MOST), cost, fn, j);
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
    if (!task(j, j->task0 + i, &seq, &head, &tile)) return;
    int64_t s0 = j->at[seq];
    int len = j->at[seq + 1] - j->at[seq], p0 = tile * j->tile, n = len - p0 < j->tile ? len - p0 : j->tile;
    if (n <= 0) return;
    AttRows r;
    rows_of(&r, j, s0 + p0, start_of(j, seq) + p0, n, head, a->q, a->o, a->lse, a->dk, a->dv);
    for (int k = 0; k < r.n && j->all; k++) r.last[k] = len - 1;
    AttKeys y = { .k = f32_row(a->k, keys_at(j, seq)) + head * a->dk,
                  .v = f32_row(a->v, keys_at(j, seq)) + head * a->dv,
                  .ldk = a->k.ld,
                  .ldv = a->v.ld,
                  .dk = a->dk,
                  .dv = a->dv };
    cpu_kern(j->d)->attend(&r, &y, cpu_work(j->d, worker));
}
static Job job_of(Dev *d, const Attn *a, int tile, bool all) {
    return (Job){ .d = d,
                  .a = a,
                  .at = a->seqs.at.data,
                  .from = a->from.data,
                  .start = a->start.data,
                  .n_seqs = a->seqs.n,
                  .heads = a->heads,
                  .kv_heads = a->kv_heads,
                  .tile = tile,
                  .all = all };
}
static void attend_with(Dev *d, const Attn *a, bool all) {
    int tile = tile_positions(a->heads, a->kv_heads);
    CHECK(tile > 0, "attend: %d query heads share a kv head; at most %d can", a->heads / a->kv_heads, ATT_TILE);
    Job j = job_of(d, a, tile, all);
    j.scale = a->scale, j.tiles = (a->seqs.longest + tile - 1) / tile;
    double cost = (double)a->q.rows * a->heads * (a->dk + a->dv) * a->seqs.longest / 60;
    if (a->q.rows > 0) run_tasks(&j, cost, attend_task);
}
void cpu_attend(Dev *d, const Attn *a) { attend_with(d, a, false); }
void cpu_attend_all(Dev *d, const Attn *a) { attend_with(d, a, true); }

/* ---- backward: tiles 0 of every sequence and kv head, then tiles 1, ...  Threads take them in that order, so the tile
 * before one of the same head is done or under way, and a tile can wait for it. */
typedef struct {
    const Job *j;
    int head0, heads, t0, n; /* kv heads; tiles from t0 on; how many tiles in all */
    const int32_t *seq,
        *first;             /* sequences, those of most tiles first; first[t]: the number of tile t0 + t of seq[0] */
    int tiles;              /* of seq[0], here */
    atomic_int *done, next; /* blocks of keys that each tile has done */
} Round;

static void bwd_tile(const Round *r, int i, int worker) {
    const Job *j = r->j;
    const Attn *a = j->a;
    int lo = 0, hi = r->tiles;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (r->first[mid] <= i) lo = mid;
        else hi = mid;
    }
    int rank = i - r->first[lo], seq = r->seq[rank / r->heads], head = r->head0 + rank % r->heads;
    int start = start_of(j, seq), len = start + j->at[seq + 1] - j->at[seq], group = a->heads / a->kv_heads,
        t0 = start + (r->t0 + lo) * j->tile;
    int64_t s0 = (int64_t)j->at[seq] - start,
            k0 = keys_at(j, seq); /* rows of position 0, which may be before the first there is */
    int64_t hq = (int64_t)head * group * a->dk, ho = (int64_t)head * group * a->dv, hk = (int64_t)head * a->dk,
            hv = (int64_t)head * a->dv;
    AttBack b = {
        .q = f32_row(a->q, s0) + hq,
        .k = f32_row(a->k, k0) + hk,
        .v = f32_row(a->v, k0) + hv,
        .o = f32_row(a->o, s0) + ho,
        .lse = f32_row(a->lse, s0) + head * group,
        .dO = f32_row(j->dO, s0) + ho,
        .dq = f32_row(j->dq, s0) + hq,
        .dk = f32_row(j->dk, k0) + hk,
        .dv = f32_row(j->dv, k0) + hv,
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
        .before =
            lo ? r->done + r->first[lo - 1] + rank : NULL, /* sequences with this tile stand first in that one too */
        .mine = r->done + i,
        .sum = j->from != NULL,
        .all = j->all,
    };
    cpu_kern(j->d)->attend_bwd(&b, cpu_work(j->d, worker));
}
static void bwd_task(void *arg, int i, int worker) {
    Round *r = arg;
    for (; (i = atomic_fetch_add(&r->next, 1)) < r->n;) bwd_tile(r, i, worker);
}

/* Room for a round's lists and counters: worker 0's; a long sequence takes several rounds, a
 * tile's own then starts late. */
static int32_t *round_room(const Dev *d) { return (int32_t *)(void *)(cpu_work(d, 0) + ATT_AT); }
static int64_t round_needs(int64_t tiles, int64_t heads, int64_t longest, int64_t seqs) {
    return tiles * heads + longest + 1 + seqs;
}

/* Tiles t0..t1 of sequences s0..s1, of kv heads head0.. */
static void bwd_round(const Job *j, int s0, int s1, int t0, int t1, int head0, int heads, double cost) {
    Dev *d = j->d;
    int32_t *first = round_room(d), *seq;
    int tiles = 0, n = 0;
    for (int s = s0; s < s1; s++) tiles = tiles_of(j, s) > tiles ? tiles_of(j, s) : tiles;
    tiles = (tiles < t1 ? tiles : t1) - t0;
    if (tiles <= 0) return;
    seq = first + tiles + 1;
    memset(first, 0, (size_t)(tiles + 1) * sizeof *first);
    for (int s = s0; s < s1; s++) { /* first[t]: for now, how many sequences end with t tiles */
        int k = tiles_of(j, s) - t0;
        first[k < 0 ? 0 : k < tiles ? k : tiles]++;
    }
    for (int t = tiles, longer = 0; t >= 0; t--) { /* ... then where those go among the sorted */
        int ends = first[t];
        first[t] = longer, longer += ends;
    }
    for (int s = s0; s < s1; s++) {
        int k = tiles_of(j, s) - t0;
        if (k > 0) seq[first[k < tiles ? k : tiles]++] = s;
    }
    for (int t = 0, have = 0; t <= tiles;
         t++) { /* ... which is by now how many have at least t: tile t's are those of t + 1 */
        have = t < tiles ? first[t + 1] : 0;
        first[t] = n, n += have * heads;
    }
    Round r = { .j = j,
                .head0 = head0,
                .heads = heads,
                .t0 = t0,
                .n = n,
                .seq = seq,
                .first = first,
                .tiles = tiles,
                .done = (atomic_int *)(void *)(seq + (s1 - s0)) };
    for (int i = 0; i < n; i++) atomic_init(&r.done[i], 0);
    atomic_init(&r.next, 0);
    cpu_run(d, threads_count(d->threads), cost, bwd_task, &r);
}

static void attend_bwd_with(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a, bool all) {
    int tile = ATT_BWD / (a->heads / a->kv_heads);
    CHECK(tile > 0, "attend_bwd: %d query heads share a kv head; at most %d can", a->heads / a->kv_heads, ATT_BWD);
    Job j = job_of(d, a, tile, all);
    j.dq = dq, j.dk = dk, j.dv = dv, j.dO = dO;
    double cost = (double)a->q.rows * a->heads * (a->dk + a->dv) * a->seqs.longest / 25;
    enum { TILES = (ATT_COUNTS - 2) / 2 };        /* of one sequence and head, at a time */
    if (j.from) cpu_zero(d, dk), cpu_zero(d, dv); /* keys that no row here sees; the others are added to */
    for (int s0 = 0, s1; s0 < a->seqs.n && a->q.rows > 0; s0 = s1) {
        int64_t tiles = 0, longest = 0;
        for (s1 = s0; s1 < a->seqs.n; s1++) {
            if (j.from && s1 > s0 && j.from[s1] <= j.from[s1 - 1])
                break; /* at a time, one part of a sequence adds to its keys */
            int n = tiles_of(&j, s1);
            longest = n > longest ? n : longest;
            if (round_needs(tiles + n, a->kv_heads, longest, s1 + 1 - s0) > ATT_COUNTS) break;
            tiles += n;
        }
        if (s1 > s0) {
            bwd_round(&j, s0, s1, 0, INT32_MAX, 0, a->kv_heads, cost);
            continue;
        }
        for (int head = 0; head < a->kv_heads; head++)
            for (int t = 0; t < tiles_of(&j, s0); t += TILES) bwd_round(&j, s0, s0 + 1, t, t + TILES, head, 1, cost);
        s1 = s0 + 1;
    }
}

void cpu_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    attend_bwd_with(d, dq, dk, dv, dO, a, false);
}
void cpu_attend_all_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    attend_bwd_with(d, dq, dk, dv, dO, a, true);
}

/* ---- pages */
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
/* When every sequence brings one row, a row's pages are its own to write: a step of decoding
 * is work on rows like any other. */
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

static void attend_pages(const Job *j, int64_t i, const float *after, float *work) {
    const Kv *kv = &j->kv;
    int seq, head, tile, span = j->spans && !j->join ? (int)(i % j->spans) : ATT_JOIN;
    if (span >= 0) i /= j->spans;
    if (!task(j, i, &seq, &head, &tile)) return;
    const int32_t *at = j->at;
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
        .after = after,
        .page = kv->page,
        .dk = kv->dk,
        .dv = kv->dv,
    };
    if (j->spans) r.part = j->parts + i * j->spans * att_part(r.n, kv->dv), r.span = span;
    cpu_kern(j->d)->attend(&r, &y, work);
}
static void attend_kv_task(void *arg, int i, int worker) {
    const Job *j = arg;
    attend_pages(j, j->task0 + i, NULL, cpu_work(j->d, worker));
}
static void attend_kv_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Job *j = arg;
    int64_t end = r1 * j->kv_heads;
    (void)k;
    for (int64_t i = r0 * j->kv_heads, n = i + 1; i < end; i++, n++) { /* a sequence's heads, then the next one's */
        const void *next =
            n < end ? page_of(&j->kv, &j->rows, (int)(n / j->kv_heads), 0, (int)(n % j->kv_heads)) : NULL;
        attend_pages(j, i, next, work);
    }
}
/* Few heads and sequences for the threads, and much context: spans of keys apart, then joined in their order. */
static void spread_spans(Job *j, int64_t tasks, int longest) {
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
              .at = rows.rows.at.data,
              .n_seqs = rows.rows.n,
              .heads = heads,
              .kv_heads = kv.kv_heads,
              .scale = scale,
              .tile = tile,
              .tiles = (rows.rows.longest + tile - 1) / tile };
    double cost = 0;
    int longest = 0;
    int64_t tasks = tasks_of(&j);
    const int32_t *at = j.at, *start = rows.start.data;
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
    if (!j.spans) {
        run_tasks(&j, cost, attend_kv_task);
        return;
    }
    cpu_run(d, (int)tasks * j.spans, cost, attend_kv_task, &j);
    j.join = true;
    cpu_run(d, (int)tasks, 0, attend_kv_task, &j);
}
