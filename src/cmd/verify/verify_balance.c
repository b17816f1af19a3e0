/* verify_balance.c - partitions held against a file of verl's. */
#include "cmd/verify/verify_balance.h"
#include "base/file.h"
#include "base/json.h"
#include "train/balance.h"

#include <stdio.h>

enum { MOST = 1 << 24 };

typedef struct {
    int64_t n, k, *lens;
    bool equal;
    int32_t *part;
    double most, least, mean;
} Row;

static bool read_row(Row *r, const Json *o, Mem *mem, Err *err) {
    const Json *lens = json_get(o, "lengths");
    if (!lens || lens->kind != JSON_ARRAY || !lens->n || lens->n > MOST)
        return err_set(err, "\"lengths\": a list is wanted");
    *r = (Row){ .n = (int64_t)lens->n,
                .lens = MEM_ARRAY(mem, int64_t, lens->n),
                .part = MEM_ARRAY(mem, int32_t, lens->n) };
    for (int64_t i = 0; i < r->n; i++) {
        const Json *x = &lens->items[i];
        if (x->kind != JSON_INT || x->integer < 0 || x->integer > 1LL << 31)
            return err_set(err, "lengths[%lld] is not a length", (long long)i);
        r->lens[i] = x->integer;
    }
    TRY(json_int_within(o, "k", 1, MOST, &r->k, err) && json_bool(o, "equal_size", &r->equal, err));
    return !r->equal || r->n % r->k == 0
           || err_set(err, "%lld sequences do not make %lld parts of equal size", (long long)r->n, (long long)r->k);
}

static void split(Row *r, Mem *mem) {
    double *cost = MEM_ARRAY(mem, double, (size_t)r->n), *sum = MEM_ARRAY(mem, double, (size_t)r->k);
    for (int64_t i = 0; i < r->n; i++) cost[i] = (double)r->lens[i], r->mean += cost[i] / (double)r->k;
    Arena tmp = arena_in(mem, "balance", balance_scratch(r->n, r->k));
    balance(r->part, cost, r->n, r->k, r->equal, &tmp);
    for (int64_t i = 0; i < r->n; i++) sum[r->part[i]] += cost[i];
    r->least = r->most = sum[0];
    for (int64_t j = 1; j < r->k; j++) {
        if (sum[j] > r->most) r->most = sum[j];
        if (sum[j] < r->least) r->least = sum[j];
    }
}

static void put_row(Buf *b, const Row *r, int64_t workloads) {
    buf_puts(b, "{\"lengths\":[");
    for (int64_t i = 0; i < r->n; i++) buf_printf(b, "%s%lld", i ? "," : "", (long long)r->lens[i]);
    buf_printf(b,
               "],\"k\":%lld,\"equal_size\":%s,\"max_sum\":%.0f,\"min_sum\":%.0f,\"worst_over_mean\":", (long long)r->k,
               r->equal ? "true" : "false", r->most, r->least);
    json_put_f64(b, r->mean > 0 ? r->most / r->mean : 1);
    buf_puts(b, ",\"workload\":[");
    for (int64_t i = 0; i < workloads && i < r->n; i++)
        buf_puts(b, i ? "," : ""), json_put_f64(b, verl_workload(r->lens[i]));
    buf_puts(b, "],\"part\":[");
    for (int64_t i = 0; i < r->n; i++) buf_printf(b, "%s%d", i ? "," : "", r->part[i]);
    buf_puts(b, "]}");
}

/* Why the row is worse than the reference's, in 'why'; false: it is not. */
static bool is_worse(Err *why, const Row *r, const Json *o) {
    const Json *most = json_get(o, "max_sum"), *work = json_get(o, "workload");
    if (most && r->most > json_number(most))
        return !err_set(why, "the largest of %lld parts has %.0f, the reference's %.0f", (long long)r->k, r->most,
                        json_number(most));
    for (size_t i = 0; work && work->kind == JSON_ARRAY && i < work->n && (int64_t)i < r->n; i++)
        if (verl_workload(r->lens[i]) != json_number(&work->items[i]))
            return !err_set(why, "sequence %zu costs %.0f, in the reference %.0f", i, verl_workload(r->lens[i]),
                            json_number(&work->items[i]));
    return false;
}

static bool run(Buf *out, const char *file, int *failed, int *rows, Err *err) {
    Mem mem = { 0 };
    Buf text = { 0 };
    Json all;
    bool ok = file_read(&text, file, err) && json_parse(&all, text.data ? text.data : "", text.n, &mem, err);
    if (ok && all.kind != JSON_ARRAY) ok = err_set(err, "a list of rows is wanted");
    buf_putc(out, '[');
    for (size_t i = 0; ok && i < all.n; i++) {
        const Json *work = json_get(&all.items[i], "workload");
        Mem row_mem = { 0 };
        Err why;
        Row r;
        ok = read_row(&r, &all.items[i], &row_mem, err) || err_wrap(err, "row %zu", i);
        if (ok) {
            split(&r, &row_mem);
            if (i) buf_puts(out, ",\n");
            put_row(out, &r, work && work->kind == JSON_ARRAY ? (int64_t)work->n : 0);
            ++*rows;
            if (is_worse(&why, &r, &all.items[i])) ++*failed, printf("row %zu: %s\n", i, why.msg);
        }
        mem_free(&row_mem);
    }
    buf_puts(out, "]\n");
    buf_free(&text);
    mem_free(&mem);
    return ok || err_wrap(err, "%s", file);
}

int verify_balance(const char *file, const char *out) {
    Buf text = { 0 };
    Err err;
    int failed = 0, rows = 0;
    bool ok = run(&text, file, &failed, &rows, &err) && (!out || file_write(out, text.data, text.n, &err));
    buf_free(&text);
    if (!ok) return fprintf(stderr, "hone verify: %s\n", err.msg), 1;
    printf("%d passed, %d failed, 0 skipped\n", rows - failed, failed);
    return failed || !rows;
}
