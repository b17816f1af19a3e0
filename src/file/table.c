/* table.c - rows of Parquet files and JSON lines under one roof.
 * JSON lines are parsed in blocks, one line a task; the bytes are mapped, or, where they are packed or come through a
 * pipe, pass through a window. */
#include "file/table.h"
#include "base/file.h"
#include "file/parquet.h"
#include "file/unpack.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_LINES = 512, MAX_WORKERS = 256, WINDOW = 4 << 20 };

struct Table {
    Mem mem;
    const char *path, *kind;
    FileMap map;
    Unpack *stream; /* NULL: all is there, between at and end */
    Buf window;     /* of it: what was unpacked and not used up */
    size_t used;    /* of the window */
    bool ended;     /* nothing comes behind the window */
    PqFile *parquet;
    PqRows rows; /* of the row group just read */
    int group;
    bool array, done;
    const char *at, *end; /* JSON lines still to be read */
    int64_t next_row, next_line;
    struct Line {
        const char *text;
        size_t n;
        bool ok;
        Err err;
    } line[BLOCK_LINES];
    Mem worker_mem[MAX_WORKERS]; /* what the lines of this block became, by the thread that read them */
    int64_t number[BLOCK_LINES];
    Json value[BLOCK_LINES];
    Mem array_mem;
};

static const size_t UNPACK_MOST = (size_t)16 << 30; /* of an array, which is read as a whole */

static bool starts(const char *p, size_t n, const char *magic, size_t m) { return n >= m && !memcmp(p, magic, m); }

/* More of the stream behind what is there of it: up to 'most' bytes there, or all of it. */
static bool more(Table *t, size_t most, Err *err) {
    Buf *b = &t->window;
    while (!t->ended && b->n < most) {
        size_t got;
        buf_reserve(b, most - b->n < WINDOW ? most - b->n : WINDOW);
        size_t room = b->cap - b->n - 1;
        TRY(unpack_read(t->stream, b->data + b->n, room, &got, err));
        b->n += got;
        t->ended = got == 0;
    }
    return true;
}

/* All between at and end is whole lines, and there is at least one, or it is the rest of the file. */
static bool refill(Table *t, Err *err) {
    if (!t->stream) return true;
    Buf *b = &t->window;
    size_t seen = 0;
    b->n -= t->used;
    if (t->used) memmove(b->data, b->data + t->used, b->n);
    t->used = 0;
    for (size_t most = WINDOW;; most *= 2) {
        TRY(more(t, most, err));
        char *last = b->n > seen ? memrchr(b->data + seen, '\n', b->n - seen) : NULL;
        t->at = b->data;
        t->end = t->ended ? b->data + b->n : last ? last + 1 : b->data;
        if (t->ended || last) return true;
        if (b->n >= LINE_MOST)
            return err_set(err, "%s line %lld: longer than %d MiB", t->path, (long long)t->next_line + 1,
                           LINE_MOST >> 20);
        seen = b->n;
    }
}

static bool open_text(Table *t, const char *p, size_t n, Err *err) {
    size_t i = starts(p, n, "\xEF\xBB\xBF", 3) ? 3 : 0;
    t->at = p + i;
    t->end = p + n;
    t->used = i;
    while (i < n && p[i] && strchr(" \t\r\n", p[i])) i++;
    t->array = i < n && p[i] == '[';
    t->kind = t->array ? "json array" : "json lines";
    if (i < n && p[i] != '[' && p[i] != '{')
        return err_set(err, "%s: neither Parquet nor JSON: it must begin with {, [ or PAR1", t->path);
    return true;
}

static bool open_parquet(Table *t, const char *p, size_t n, Err *err) {
    t->kind = "parquet";
    t->parquet = pq_open_bytes(t->path, p, n, err);
    return t->parquet != NULL;
}

/* What is to be read as a whole: an array, a Parquet file that comes through a pipe. */
static bool all_of(Table *t, Err *err) {
    TRY(more(t, UNPACK_MOST, err));
    return t->ended
           || err_set(err, "%s: more than %zu GB that must be read at once: lines are wanted", t->path,
                      UNPACK_MOST >> 30);
}

static bool open_stream(Table *t, Err *err) {
    TRY(more(t, WINDOW, err));
    const char *p = t->window.data ? t->window.data : "";
    if (starts(p, t->window.n, "PAR1", 4)) return all_of(t, err) && open_parquet(t, t->window.data, t->window.n, err);
    TRY(open_text(t, p, t->window.n, err));
    t->at = t->end; /* lines come when they are asked for */
    if (!t->array) return true;
    TRY(all_of(t, err));
    return open_text(t, t->window.data, t->window.n, err);
}

static bool open_any(Table *t, const char *p, size_t n, Err *err) {
    if (starts(p, n, "PAR1", 4)) return open_parquet(t, p, n, err);
    if (!starts(p, n, "\x1F\x8B", 2) && !starts(p, n, "\x28\xB5\x2F\xFD", 4)) return open_text(t, p, n, err);
    t->stream = unpack_open_bytes(t->path, p, n);
    return open_stream(t, err);
}

static Table *table_new(const char *name) {
    Mem mem = { 0 };
    Table *t = MEM_NEW(&mem, Table);
    t->path = mem_str(&mem, name, strlen(name));
    t->mem = mem;
    return t;
}

Table *table_open(const char *path, Err *err) {
    Table *t = table_new(path);
    bool ok;
    if (!strcmp(path, "-") || !file_exists(path)) ok = (t->stream = unpack_open(path, err)) && open_stream(t, err);
    else ok = file_map(&t->map, path, err) && open_any(t, t->map.data ? t->map.data : "", t->map.n, err);
    if (ok) return t;
    table_close(t);
    return NULL;
}

Table *table_open_bytes(const char *name, const void *data, size_t n, Err *err) {
    Table *t = table_new(name);
    if (open_any(t, n ? data : "", n, err)) return t;
    table_close(t);
    return NULL;
}

void table_close(Table *t) {
    if (!t) return;
    pq_rows_free(&t->rows);
    pq_close(t->parquet);
    for (int i = 0; i < MAX_WORKERS; i++) mem_free(&t->worker_mem[i]);
    mem_free(&t->array_mem);
    unpack_close(t->stream);
    buf_free(&t->window);
    file_unmap(&t->map);
    Mem mem = t->mem;
    mem_free(&mem);
}

const char *table_kind(const Table *t) { return t->kind; }
int64_t table_rows(const Table *t) { return t->parquet ? pq_rows(t->parquet) : -1; }

void table_describe(const Table *t, Buf *out) {
    for (int i = 0; t->parquet && i < pq_columns(t->parquet); i++) {
        buf_printf(out, "%s: ", pq_column(t->parquet, i));
        pq_describe(t->parquet, i, out);
        buf_putc(out, '\n');
    }
}

void table_select(Table *t, const char *const *columns, int n) {
    if (!t->parquet) return;
    VEC(const char *)
    have = { 0 };
    for (int i = 0; i < n; i++)
        if (pq_has(t->parquet, columns[i])) VEC_PUSH(have, columns[i]);
    Err err;
    CHECK(pq_select(t->parquet, have.at, (int)have.n, &err), "%s", err.msg);
    vec_free(have.at);
}

/* ---- reading */
static bool next_group(Table *t, Threads *threads, TableRows *out, Err *err) {
    pq_rows_free(&t->rows);
    while (t->group < pq_groups(t->parquet)) {
        TRY(pq_read(t->parquet, t->group++, threads, &t->rows, err));
        if (t->rows.n == 0) {
            pq_rows_free(&t->rows);
            continue;
        }
        *out = (TableRows){ .rows = t->rows.rows, .n = t->rows.n, .first = t->next_row };
        t->next_row += t->rows.n;
        break;
    }
    return true;
}

static bool read_array(Table *t, TableRows *out, Err *err) {
    Json *v = &t->value[0];
    t->done = true;
    if (!json_parse(v, t->at, (size_t)(t->end - t->at), &t->array_mem, err)) return err_wrap(err, "%s", t->path);
    for (size_t i = 0; i < v->n; i++)
        if (v->items[i].kind != JSON_OBJECT)
            return err_set(err, "%s row %zu: an object is expected, not %s", t->path, i,
                           json_kind_name(v->items[i].kind));
    *out = (TableRows){ .rows = v->items, .n = (int64_t)v->n };
    return true;
}

static void parse_line(void *arg, int i, int worker) {
    Table *t = arg;
    struct Line *l = &t->line[i];
    l->ok = json_parse(&t->value[i], l->text, l->n, &t->worker_mem[worker], &l->err);
    if (l->ok && t->value[i].kind != JSON_OBJECT)
        l->ok = err_set(&l->err, "an object is expected, not %s", json_kind_name(t->value[i].kind));
}

static bool next_lines(Table *t, Threads *threads, TableRows *out, Err *err) {
    int n = 0;
    while (n < BLOCK_LINES) {
        if (t->at == t->end) {
            bool all = !t->stream || (t->ended && t->used == t->window.n);
            if (all || n) break; /* n: lines of this block point into the window */
            TRY(refill(t, err));
            continue;
        }
        const char *nl = memchr(t->at, '\n', (size_t)(t->end - t->at)), *stop = nl ? nl : t->end;
        t->next_line++;
        size_t blank = 0, len = (size_t)(stop - t->at);
        while (blank < len && strchr(" \t\r", t->at[blank]) && t->at[blank]) blank++;
        if (blank < len) {
            t->line[n].text = t->at;
            t->line[n].n = len;
            t->number[n++] = t->next_line;
        }
        t->used += (size_t)((nl ? nl + 1 : t->end) - t->at);
        t->at = nl ? nl + 1 : t->end;
    }
    for (int i = 0; i < MAX_WORKERS; i++) mem_free(&t->worker_mem[i]);
    if (threads) threads_run(threads, n, parse_line, t);
    else
        for (int i = 0; i < n; i++) parse_line(t, i, 0);
    for (int i = 0; i < n; i++)
        if (!t->line[i].ok)
            return *err = t->line[i].err, err_wrap(err, "%s line %lld", t->path, (long long)t->number[i]);
    *out = (TableRows){ .rows = t->value, .n = n, .first = t->next_row, .line = t->number };
    t->next_row += n;
    return true;
}

bool table_next(Table *t, Threads *threads, TableRows *out, Err *err) {
    *out = (TableRows){ 0 };
    if (t->parquet) return next_group(t, threads, out, err);
    if (t->array) return t->done || read_array(t, out, err);
    return next_lines(t, threads, out, err);
}
