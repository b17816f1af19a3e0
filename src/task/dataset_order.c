/* dataset_order.c - which row comes next, and what to do with prompts that are too long: see dataset.h. */
#include "base/rng.h"
#include "task/dataset_in.h"

#include <string.h>

/* Fisher and Yates: each step's random number is named by (seed, epoch, step), so the order needs no state. */
void data_order(uint64_t seed, int64_t epoch, int64_t n, int64_t *order) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        uint64_t u = rng_u64(seed, RNG_SHUFFLE, (uint32_t)epoch, (uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0);
        /* the top half of a product spreads 2^64 values over i + 1 places: none is likelier by more than i / 2^64 */
        uint64_t hi = u >> 32, lo = u & UINT32_MAX, m = (uint64_t)i + 1;
        int64_t j = (int64_t)((hi * m + (lo * m >> 32)) >> 32);
        int64_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

struct DataStream {
    Mem mem;
    StreamOptions o;
    DataCursor at;
    int64_t n, epoch; /* the epoch that 'order' is of; -1: none yet */
    int64_t *order;
};

DataStream *stream_open(const StreamOptions *o) {
    Mem mem = { 0 };
    DataStream *s = MEM_NEW(&mem, DataStream);
    s->o = *o;
    s->n = dataset_n(o->data);
    CHECK(s->n > 0 && s->n <= INT32_MAX, "a stream over %lld rows", (long long)s->n);
    s->epoch = -1;
    s->order = MEM_ARRAY(&mem, int64_t, (size_t)s->n);
    s->mem = mem;
    return s;
}

void stream_close(DataStream *s) {
    if (!s) return;
    Mem mem = s->mem;
    mem_free(&mem);
}

static void make_order(DataStream *s) {
    if (s->epoch == s->at.epoch) return;
    s->epoch = s->at.epoch;
    if (s->o.shuffle) data_order(s->o.seed, s->epoch, s->n, s->order);
    else
        for (int64_t i = 0; i < s->n; i++) s->order[i] = i;
}

int64_t stream_next(DataStream *s, int64_t n, int64_t *index) {
    int64_t got = 0;
    CHECK(!s->o.drop_last || n <= s->n, "batches of %lld from %lld rows", (long long)n, (long long)s->n);
    if (s->o.drop_last && s->n - s->at.position < n) s->at = (DataCursor){ s->at.epoch + 1, 0 };
    while (got < n) {
        if (s->at.position == s->n) s->at = (DataCursor){ s->at.epoch + 1, 0 };
        if (s->o.epochs && s->at.epoch >= s->o.epochs) break;
        make_order(s);
        index[got++] = s->order[s->at.position++];
    }
    return got;
}

DataCursor stream_cursor(const DataStream *s) { return s->at; }

bool stream_seek(DataStream *s, DataCursor at, Err *err) {
    if (at.epoch < 0 || at.position < 0 || at.position > s->n)
        return err_set(err,
                       "a place in the data (epoch %lld, row %lld) that %lld rows do not have: is this other data?",
                       (long long)at.epoch, (long long)at.position, (long long)s->n);
    s->at = at;
    return true;
}

/* ---- too long */

typedef struct {
    Dataset *d;
    DataLength *length;
    void *ctx;
    int64_t *got;
} Measure;

enum { MEASURE_BLOCK = 64 };

static void measure(void *arg, int block, int worker) {
    Measure *m = arg;
    Err why;
    size_t from = (size_t)block * MEASURE_BLOCK, to = from + MEASURE_BLOCK;
    for (size_t i = from; i < to && i < m->d->rows.n; i++)
        m->got[i] = m->length(m->ctx, worker, &m->d->rows.at[i], &why);
}

static void forget(Names *names, const char *name) {
    for (size_t i = 0; i < names->n; i++)
        if (names->at[i].name == name) names->at[i].rows--;
}

bool dataset_measure(Dataset *d, Threads *threads, int64_t max, DataLong what, DataLength *length, void *ctx,
                     DataCounts *out, Err *err) {
    Mem mem = { 0 };
    Measure m = { d, length, ctx, MEM_ARRAY(&mem, int64_t, d->rows.n) };
    int blocks = (int)((d->rows.n + MEASURE_BLOCK - 1) / MEASURE_BLOCK);
    if (threads) threads_run(threads, blocks, measure, &m);
    else
        for (int i = 0; i < blocks; i++) measure(&m, i, 0);
    DataCounts c = { .rows = (int64_t)d->rows.n };
    double sum = 0;
    const DataRow *bad = NULL;
    int64_t bad_n = 0;
    for (size_t i = 0; i < d->rows.n; i++) {
        int64_t n = m.got[i];
        DataRow *r = &d->rows.at[i];
        bool failed = n<0, too_long = n> max;
        c.failed += failed;
        c.long_rows += too_long;
        if (!bad && (failed || (too_long && what == DATA_LONG_REFUSE))) bad = r, bad_n = n;
        if (!failed) {
            r->tokens = (int32_t)(n < INT32_MAX ? n : INT32_MAX);
            sum += (double)n;
            if (n > c.longest) c.longest = n;
            if (c.shortest == 0 || n < c.shortest) c.shortest = n;
        }
    }
    if (c.rows > c.failed) c.mean = sum / (double)(c.rows - c.failed);
    bool ok = true;
    Err why = { { 0 } };
    if (bad && bad_n < 0) length(ctx, 0, bad, &why); /* the threads kept no reasons */
    if (what != DATA_LONG_FILTER && bad && bad_n < 0)
        ok = err_set(err, "%s row %lld: no prompt can be made of it (%lld such rows; filter drops them): %s",
                     d->file[bad->file], (long long)bad->row, (long long)c.failed, why.msg);
    else if (what == DATA_LONG_REFUSE && bad)
        ok = err_set(
            err,
            "%s row %lld: a prompt of %lld tokens, %lld are allowed (%lld such rows): filter or cut, or allow more",
            d->file[bad->file], (long long)bad->row, (long long)bad_n, (long long)max, (long long)c.long_rows);
    if (ok && what == DATA_LONG_FILTER) {
        size_t kept = 0;
        for (size_t i = 0; i < d->rows.n; i++) {
            if (m.got[i] >= 0 && m.got[i] <= max) d->rows.at[kept++] = d->rows.at[i];
            else {
                forget(&d->sources, d->rows.at[i].source);
                forget(&d->abilities, d->rows.at[i].ability);
            }
        }
        c.dropped = (int64_t)(d->rows.n - kept);
        d->rows.n = kept;
        if (!kept)
            ok = err_set(err, "all %lld prompts are longer than %lld tokens or cannot be made%s%s", (long long)c.rows,
                         (long long)max, *why.msg ? ": " : "", why.msg);
    }
    c.kept = (int64_t)d->rows.n;
    *out = c;
    mem_free(&mem);
    return ok;
}

int64_t data_cut(int32_t *ids, int64_t n, int64_t max, DataLong how) {
    if (n <= max) return n;
    int64_t front = how == DATA_LONG_RIGHT ? max : how == DATA_LONG_MIDDLE ? max / 2 : 0;
    memmove(ids + front, ids + n - (max - front), (size_t)(max - front) * sizeof *ids);
    return max;
}

bool data_fit(int32_t *ids, int64_t *n, int64_t max, DataLong how, Err *err) {
    if (*n > max && how < DATA_LONG_LEFT)
        return err_set(err,
                       "the prompt has %lld tokens now, at most %lld are allowed here, and nothing says that it may be "
                       "cut: it was shorter when it was measured",
                       (long long)*n, (long long)max);
    *n = data_cut(ids, *n, max, how);
    return true;
}
