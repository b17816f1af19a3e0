/* table.c - see table.h.  JSON lines are parsed in blocks, one line a task; the bytes are mapped, or unpacked as a whole. */
#include "file/table.h"
#include "base/file.h"
#include "file/parquet.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { BLOCK_LINES = 512, MAX_WORKERS = 256 };

struct Table {
    Mem mem;
    const char *path, *kind;
    FileMap map;
    Buf unpacked;
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

static const size_t UNPACK_MOST = (size_t)16 << 30;

static bool too_long(const char *path, Err *err) {
    return err_set(err, "%s: unpacks to more than %zu GB: unpack it first", path, UNPACK_MOST >> 30);
}

static bool unpack_gzip(Buf *out, const char *path, FileMap m, Err *err) {
    z_stream z = { .next_in = (Bytef *)(uintptr_t)m.data };
    if (inflateInit2(&z, 15 + 16) != Z_OK) return err_set(err, "%s: gzip cannot be started", path);
    size_t left = m.n;
    int rc = Z_OK;
    bool ok = true;
    while (ok && (left || z.avail_in) && (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR)) {
        if (rc == Z_STREAM_END) inflateReset(&z);
        size_t in = left < 1 << 20 ? left : 1 << 20;
        if (!z.avail_in) z.avail_in = (uInt)in, left -= in;
        buf_reserve(out, 1 << 20);
        size_t room = out->cap - out->n - 1;
        if (room > 1 << 30) room = 1 << 30;
        z.next_out = (Bytef *)out->data + out->n;
        z.avail_out = (uInt)room;
        rc = inflate(&z, Z_NO_FLUSH);
        out->n += room - z.avail_out;
        if (out->n > UNPACK_MOST) ok = too_long(path, err);
    }
    inflateEnd(&z);
    if (ok && rc != Z_STREAM_END) ok = err_set(err, "%s: the gzip stream is damaged or was cut short", path);
    return ok;
}

static bool unpack_zstd(Buf *out, const char *path, FileMap m, Err *err) {
    ZSTD_DStream *z = ZSTD_createDStream();
    CHECK(z, "out of host memory for zstd");
    ZSTD_inBuffer in = { m.data, m.n, 0 };
    size_t rc = 1;
    bool ok = true, full = false;
    while (ok && (in.pos < in.size || full)) {
        buf_reserve(out, 1 << 20);
        ZSTD_outBuffer o = { out->data + out->n, out->cap - out->n - 1, 0 };
        rc = ZSTD_decompressStream(z, &o, &in);
        out->n += o.pos;
        full = o.pos == o.size;
        if (ZSTD_isError(rc)) ok = err_set(err, "%s: the zstd stream is damaged: %s", path, ZSTD_getErrorName(rc));
        else if (out->n > UNPACK_MOST) ok = too_long(path, err);
        else if (rc == 0 && in.pos == in.size) break;
    }
    if (ok && rc != 0) ok = err_set(err, "%s: the zstd stream was cut short", path);
    ZSTD_freeDStream(z);
    return ok;
}

static bool starts(const char *p, size_t n, const char *magic, size_t m) { return n >= m && !memcmp(p, magic, m); }

static bool open_text(Table *t, const char *p, size_t n, Err *err) {
    if (starts(p, n, "\xEF\xBB\xBF", 3)) p += 3, n -= 3;
    t->at = p;
    t->end = p + n;
    size_t i = 0;
    while (i < n && p[i] && strchr(" \t\r\n", p[i])) i++;
    t->array = i < n && p[i] == '[';
    t->kind = t->array ? "json array" : "json lines";
    if (i < n && p[i] != '[' && p[i] != '{')
        return err_set(err, "%s: neither Parquet nor JSON: it must begin with {, [ or PAR1", t->path);
    return true;
}

static bool open_any(Table *t, const char *p, size_t n, Err *err) {
    if (starts(p, n, "PAR1", 4)) {
        t->kind = "parquet";
        t->parquet = pq_open_bytes(t->path, p, n, err);
        return t->parquet != NULL;
    }
    bool gzip = starts(p, n, "\x1F\x8B", 2), zstd = starts(p, n, "\x28\xB5\x2F\xFD", 4);
    if (!gzip && !zstd) return open_text(t, p, n, err);
    FileMap m = { p, n };
    TRY(gzip ? unpack_gzip(&t->unpacked, t->path, m, err) : unpack_zstd(&t->unpacked, t->path, m, err));
    return open_text(t, t->unpacked.data, t->unpacked.n, err);
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
    if (!strcmp(path, "-"))
        ok = file_read(&t->unpacked, path, err) && open_text(t, t->unpacked.data, t->unpacked.n, err);
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
    buf_free(&t->unpacked);
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
    while (n < BLOCK_LINES && t->at < t->end) {
        const char *nl = memchr(t->at, '\n', (size_t)(t->end - t->at)), *stop = nl ? nl : t->end;
        t->next_line++;
        size_t blank = 0, len = (size_t)(stop - t->at);
        while (blank < len && strchr(" \t\r", t->at[blank]) && t->at[blank]) blank++;
        if (blank < len) {
            t->line[n].text = t->at;
            t->line[n].n = len;
            t->number[n++] = t->next_line;
        }
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
