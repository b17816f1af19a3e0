/* columns.c - lines of metrics into columns, columns into buckets. */
#include "page/columns.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

void columns_free(Columns *c) {
    for (size_t i = 0; i < c->column.n; i++) vec_free(c->column.at[i].value);
    vec_free(c->column.at);
    vec_free(c->step.at);
    vec_free(c->seconds.at);
    vec_free(c->tokens.at);
    mem_free(&c->mem);
    *c = (Columns){ 0 };
}

const Column *columns_find(const Columns *c, const char *name, size_t n) {
    for (size_t i = 0; i < c->column.n; i++)
        if (!strncmp(c->column.at[i].name, name, n) && !c->column.at[i].name[n]) return &c->column.at[i];
    return NULL;
}

/* Steps name their metrics in the same order: it is looked for first where it would be.  NULL: too many of them. */
static Column *column_for(Columns *c, Span name, size_t *at) {
    for (size_t i = 0; i < c->column.n; i++) {
        size_t k = (*at + i) % c->column.n;
        Column *col = &c->column.at[k];
        if (strncmp(col->name, name.at, name.n) || col->name[name.n]) continue;
        *at = k + 1;
        return col;
    }
    if (c->column.n >= COLUMNS_MOST || memchr(name.at, 0, name.n)) return NULL;
    VEC_PUSH(c->column, (Column){ .name = mem_str(&c->mem, name.at, name.n) });
    *at = c->column.n;
    return &c->column.at[c->column.n - 1];
}

static void put(Column *col, int64_t row, float v) {
    col->value = vec_grow(col->value, &col->cap, (size_t)row + 1, sizeof *col->value);
    while (col->n < row) col->value[col->n++] = NAN;
    col->value[row] = v;
    col->n = row + 1;
}

/* A name with an escape in it is what JSON says it is; hone writes none. */
static Span plain_name(Span key, Mem *mem) {
    Json j;
    Err ignore;
    if (!memchr(key.at, '\\', key.n)) return key;
    if (!json_parse(&j, key.at - 1, key.n + 2, mem, &ignore)) return (Span){ "?", 1 };
    return (Span){ j.str, j.n };
}

/* The step that is named first, or -1; false: no whole object. */
static bool members(Columns *c, Scan s, int64_t row, double *step) {
    Member m;
    size_t at = 0;
    Mem mem = { 0 };
    while (scan_next(&s, &m)) {
        if (m.kind == '{' && scan_is(&m, "data")) { /* verl's logger */
            double ignore = 0;
            members(c, scan_of(m.value.at, m.value.n), row, &ignore);
        }
        if (m.kind != '0' && m.kind != 'n') continue;
        double v = m.kind == 'n' ? INFINITY : scan_number(&m); /* what JSON has no number for is null */
        if (scan_is(&m, "step")) {
            if (*step < 0) *step = v;
            continue;
        }
        Column *col = isnan(v) ? NULL : column_for(c, plain_name(m.key, &mem), &at);
        if (col) put(col, row, (float)v);
    }
    mem_free(&mem);
    return !s.bad;
}

static double sum_on(const Columns *c, const double *sums, const char *name, int64_t row) {
    const Column *col = columns_find(c, name, strlen(name));
    double v = col ? column_at(col, row) : 0;
    return (row ? sums[row - 1] : 0) + (v > 0 && isfinite(v) ? v : 0);
}

/* A line that is damaged, or goes back in time, leaves nothing. */
void columns_line(Columns *c, const char *line, size_t n) {
    double step = -1;
    int64_t row = c->rows;
    bool ok = members(c, scan_of(line, n), row, &step) && step >= 0 && step < 1e15 && step == floor(step);
    if (!ok || (row && step <= (double)c->step.at[row - 1])) {
        for (size_t i = 0; i < c->column.n; i++)
            if (c->column.at[i].n > row) c->column.at[i].n = row;
        c->damaged++;
        return;
    }
    VEC_PUSH(c->step, (int64_t)step);
    c->rows++;
    double seconds = sum_on(c, c->seconds.at, "timing_s/step", row);
    double tokens = sum_on(c, c->tokens.at, "perf/total_num_tokens", row);
    VEC_PUSH(c->seconds, seconds);
    VEC_PUSH(c->tokens, tokens);
}

int64_t column_last(const Column *c) {
    int64_t i = c->n - 1;
    while (i >= 0 && !isfinite(c->value[i])) i--;
    return i;
}

double columns_x(const Columns *c, ColumnsX x, int64_t row) {
    return x == X_TIME ? c->seconds.at[row] : x == X_TOKENS ? c->tokens.at[row] : (double)c->step.at[row];
}

/* The first row whose x is at least that. */
static int64_t row_from(const Columns *c, ColumnsX x, double v) {
    int64_t lo = 0, hi = c->rows;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (columns_x(c, x, mid) < v) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

int columns_buckets(Bucket *out, const Columns *c, const Column *col, const Range *r, int px) {
    int64_t row = row_from(c, r->x, r->from), end = r->zeros || c->rows < col->n ? c->rows : col->n;
    while (end > row && columns_x(c, r->x, end - 1) > r->to) end--;
    if (row >= end) return 0;
    double first = columns_x(c, r->x, row), width = (columns_x(c, r->x, end - 1) - first) / px, sum = 0, sum_x = 0;
    int64_t count = 0;
    int n = 0, current = -1;
    for (;; row++) {
        float v = row < end ? column_at(col, row) : 0;
        if (r->zeros && isnan(v)) v = 0;
        if (!isfinite(v)) continue;
        double at = row < end ? columns_x(c, r->x, row) : 0;
        int k = width > 0 ? (int)((at - first) / width) : 0;
        if (k >= px) k = px - 1;
        if (k != current || row >= end) {
            if (n) out[n - 1].mean = (float)(sum / (double)count), out[n - 1].x = sum_x / (double)count;
            if (row >= end) return n;
            out[n++] = (Bucket){ .lo = v, .hi = v };
            current = k, count = 0, sum = sum_x = 0;
        }
        Bucket *b = &out[n - 1];
        if (v < b->lo) b->lo = v;
        if (v > b->hi) b->hi = v;
        sum += (double)v, sum_x += at, count++;
    }
}
