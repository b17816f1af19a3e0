/* test_parquet.c - files of pyarrow, pandas, polars and DuckDB (bench/peers/parquet_matrix.py --fixtures
 * wrote them) read equal to what those libraries say is in them; shapes that they no longer write, made
 * here; damaged ones refused without harm. */
#include "base/file.h"
#include "file/parquet.h"
#include "file/table.h"
#include "file/thrift.h"
#include "json_same.h"
#include "test.h"

#include <glob.h>
#include <lz4.h>

static void check_fixture(const char *path, Threads *threads) {
    Mem mem = { 0 };
    Buf want = { 0 }, shown = { 0 };
    Err err = { { 0 } };
    size_t n = strlen(path);
    char *lines = mem_printf(&mem, "%.*sjsonl", (int)(n - 7), path);
    PqFile *f = pq_open(path, &err);
    bool ok = f && file_read(&want, lines, &err);
    EXPECT(ok, "%s", err.msg);
    const char *at = want.data;
    int64_t rows = 0;
    for (int g = 0; ok && g < pq_groups(f); g++) {
        PqRows r;
        ok = pq_read(f, g, threads, &r, &err);
        EXPECT(ok, "%s", err.msg);
        for (int64_t i = 0; ok && i < r.n; i++, rows++) {
            Json v;
            const char *nl = strchr(at, '\n');
            ok = nl && json_parse(&v, at, (size_t)(nl - at), &mem, &err);
            EXPECT(ok, "%s: row %lld: %s", lines, (long long)rows, err.msg);
            if (!ok) break;
            buf_clear(&shown);
            pq_put_value(&shown, &r.rows[i]);
            EXPECT(json_same(&r.rows[i], &v, false), "%s row %lld: got %s want %.*s", path, (long long)rows, shown.data,
                   (int)(nl - at), at);
            at = nl + 1;
        }
        pq_rows_free(&r);
    }
    EXPECT(!ok || (rows == pq_rows(f) && !*at), "%s: %lld rows", path, (long long)rows);
    pq_close(f);
    buf_free(&want);
    buf_free(&shown);
    mem_free(&mem);
}

/* Reads all of it, whatever happens; true when nothing was refused. */
static bool read_all(const char *data, size_t n, Err *err) {
    PqFile *f = pq_open_bytes("bytes", data, n, err);
    if (!f) return false;
    pq_limit(f, 1 << 16, 1 << 20);
    bool ok = true;
    for (int g = 0; ok && g < pq_groups(f); g++) {
        PqRows r;
        ok = pq_read(f, g, NULL, &r, err);
        pq_rows_free(&r);
    }
    pq_close(f);
    return ok;
}

/* Cut anywhere: refused.  A byte changed: refused or read, and nothing else. */
static void check_damage(const char *path) {
    Buf file = { 0 };
    Err err = { { 0 } };
    int read = 0, refused = 0;
    EXPECT(file_read(&file, path, &err), "%s", err.msg);
    for (size_t n = 0; n < file.n; n += 1 + n / 16)
        EXPECT(!read_all(file.data, n, &err) && err.msg[0], "%s cut at %zu is accepted", path, n);
    uint32_t u = 7;
    for (int i = 0; i < 300; i++) {
        u = u * 1664525u + 1013904223u;
        size_t at = u % file.n;
        char was = file.data[at];
        file.data[at] = (char)(was ^ (1 + (u >> 24) % 255));
        if (read_all(file.data, file.n, &err)) read++;
        else refused++;
        file.data[at] = was;
    }
    EXPECT(read + refused == 300 && refused > 0, "%s: %d read, %d refused", path, read, refused);
    buf_free(&file);
}

/* ---- files made by hand: one INT32 leaf */
typedef struct {
    const char *name;
    int repeat, type, children, converted; /* -1: not said */
} Element;

static void put_schema(Buf *b, ThriftField *f, const Element *e, size_t n) {
    thrift_put_list(b, f, 2, THRIFT_STRUCT, n);
    for (size_t i = 0; i < n; i++) {
        ThriftField s;
        thrift_put_begin(b, &s);
        if (e[i].type >= 0) thrift_put_int(b, &s, 1, THRIFT_I32, e[i].type);
        if (e[i].repeat >= 0) thrift_put_int(b, &s, 3, THRIFT_I32, e[i].repeat);
        thrift_put_bytes(b, &s, 4, e[i].name, strlen(e[i].name));
        if (e[i].children >= 0) thrift_put_int(b, &s, 5, THRIFT_I32, e[i].children);
        if (e[i].converted >= 0) thrift_put_int(b, &s, 6, THRIFT_I32, e[i].converted);
        thrift_put_end(b);
    }
}

typedef struct {
    const Element *e;
    size_t n_e;
    const char *rep, *def; /* levels, one character a level; NULL: that kind has none */
    int max_def, max_rep, rows, entries, codec;
    int64_t at, bytes;
} Handmade;

static void put_levels(Buf *b, const char *levels, int max) {
    if (!max) return;
    size_t n = strlen(levels);
    uint32_t len = (uint32_t)(2 * n);
    buf_put(b, &len, 4);
    for (size_t i = 0; i < n; i++) { /* runs of one */
        buf_putc(b, 2);
        buf_putc(b, (char)(levels[i] - '0'));
    }
}

static void put_page(Buf *out, const Handmade *h) {
    Buf page = { 0 }, packed = { 0 };
    ThriftField p, d;
    put_levels(&page, h->rep, h->max_rep);
    put_levels(&page, h->def, h->max_def);
    for (int32_t i = 0, v = 1; i < h->entries; i++)
        if (!h->max_def || h->def[i] - '0' == h->max_def) buf_put(&page, &v, 4), v++;
    if (h->codec == 5) { /* Hadoop's LZ4: two blocks, each behind its two sizes */
        size_t half = page.n / 2;
        for (size_t from = 0; from < page.n; from = from ? page.n : half) {
            size_t n = from ? page.n - half : half;
            char z[4096];
            int got = LZ4_compress_default(page.data + from, z, (int)n, sizeof z);
            uint32_t sizes[2] = { __builtin_bswap32((uint32_t)n), __builtin_bswap32((uint32_t)got) };
            buf_put(&packed, sizes, 8);
            buf_put(&packed, z, (size_t)got);
        }
    } else buf_put(&packed, page.data, page.n);
    thrift_put_begin(out, &p);
    thrift_put_int(out, &p, 1, THRIFT_I32, 0);
    thrift_put_int(out, &p, 2, THRIFT_I32, (int64_t)page.n);
    thrift_put_int(out, &p, 3, THRIFT_I32, (int64_t)packed.n);
    thrift_put_struct(out, &p, 5);
    thrift_put_begin(out, &d);
    thrift_put_int(out, &d, 1, THRIFT_I32, h->entries);
    thrift_put_int(out, &d, 2, THRIFT_I32, 0);
    thrift_put_int(out, &d, 3, THRIFT_I32, 3);
    thrift_put_int(out, &d, 4, THRIFT_I32, 3);
    thrift_put_end(out);
    thrift_put_end(out);
    buf_put(out, packed.data, packed.n);
    buf_free(&page);
    buf_free(&packed);
}

static void put_file(Buf *out, Handmade h) {
    buf_clear(out);
    buf_put(out, "PAR1", 4);
    put_page(out, &h);
    size_t end = out->n;
    ThriftField f, g, c, m;
    thrift_put_begin(out, &f);
    thrift_put_int(out, &f, 1, THRIFT_I32, 1);
    put_schema(out, &f, h.e, h.n_e);
    thrift_put_int(out, &f, 3, THRIFT_I64, h.rows);
    thrift_put_list(out, &f, 4, THRIFT_STRUCT, 1);
    thrift_put_begin(out, &g);
    thrift_put_list(out, &g, 1, THRIFT_STRUCT, 1);
    thrift_put_begin(out, &c);
    thrift_put_struct(out, &c, 3);
    thrift_put_begin(out, &m);
    thrift_put_int(out, &m, 1, THRIFT_I32, 1);
    thrift_put_int(out, &m, 4, THRIFT_I32, h.codec);
    thrift_put_int(out, &m, 5, THRIFT_I64, h.entries);
    thrift_put_int(out, &m, 7, THRIFT_I64, h.bytes ? h.bytes : (int64_t)end - 4);
    thrift_put_int(out, &m, 9, THRIFT_I64, h.at ? h.at : 4);
    thrift_put_end(out);
    thrift_put_end(out);
    thrift_put_int(out, &g, 3, THRIFT_I64, h.rows);
    thrift_put_end(out);
    thrift_put_end(out);
    uint32_t len = (uint32_t)(out->n - end);
    buf_put(out, &len, 4);
    buf_put(out, "PAR1", 4);
}

/* clang-format off */
enum { LIST = 3 };
static const Element two_level[] = { { "r", -1, -1, 1, -1 }, { "a", 1, -1, 1, LIST }, { "array", 2, 1, -1, -1 } };
static const Element tuple[] = { { "r", -1, -1, 1, -1 },
                                 { "a", 1, -1, 1, LIST }, { "a_tuple", 2, -1, 1, -1 }, { "x", 0, 1, -1, -1 } };
static const Element three_level[] = { { "r", -1, -1, 1, -1 },
                                       { "a", 1, -1, 1, LIST }, { "bag", 2, -1, 1, -1 }, { "item", 1, 1, -1, -1 } };
static const Element repeated[] = { { "r", -1, -1, 1, -1 }, { "a", 2, 1, -1, -1 } };
static const Element required[] = { { "r", -1, -1, 1, -1 }, { "a", 0, 1, -1, -1 } };
static const Element nobody[] = { { "r", -1, -1, 1, -1 }, { "a", 0, -1, 0, -1 } };
#define E(x) x, COUNT(x)
static const struct { Handmade h; const char *rows; } handmade[] = {
    { { E(two_level), "0100", "2210", 2, 1, 3, 4 }, "{\"a\":[1,2]}{\"a\":[]}{\"a\":null}" },
    { { E(tuple), "0100", "2210", 2, 1, 3, 4 }, "{\"a\":[{\"x\":1},{\"x\":2}]}{\"a\":[]}{\"a\":null}" },
    { { E(three_level), "01100", "32310", 3, 1, 3, 5 }, "{\"a\":[1,null,2]}{\"a\":[]}{\"a\":null}" },
    { { E(repeated), "0100", "1101", 1, 1, 3, 4 }, "{\"a\":[1,2]}{\"a\":[]}{\"a\":[3]}" },
    { { E(required), NULL, NULL, 0, 0, 3, 3 }, "{\"a\":1}{\"a\":2}{\"a\":3}" },
    { { E(required), NULL, NULL, 0, 0, 3, 3, .codec = 5 }, "{\"a\":1}{\"a\":2}{\"a\":3}" },
    /* a list that a fixed-size array writer left null once per item */
    { { E(three_level), "01101", "00033", 3, 1, 2, 5 }, "{\"a\":null}{\"a\":[1,2]}" },
};
static const struct { Handmade h; const char *says; } wrong[] = {
    { { E(nobody), NULL, NULL, 0, 0, 3, 3 }, "group of nothing" },
    { { E(required), NULL, NULL, 0, 0, 4, 3 }, "3 values for 4 rows" },
    { { E(required), NULL, NULL, 0, 0, 3, 3, .bytes = 1 << 20 }, "outside the file" },
    { { E(required), NULL, NULL, 0, 0, 3, 3, .at = 1 << 30 }, "outside the file" },
    { { E(required), NULL, NULL, 0, 0, 3, 3, .codec = 3 }, "LZO is not supported" },
    { { E(required), NULL, NULL, 0, 0, 3, 3, .codec = 77 }, "not supported" },
    { { E(required), NULL, NULL, 0, 0, 3, 3, .codec = 6 }, "do not unpack" },
    { { E(two_level), "0103", "2210", 2, 1, 3, 4 }, "levels of a page are damaged" },
    { { E(two_level), "0100", "2219", 2, 1, 3, 4 }, "levels of a page are damaged" },
    { { E(two_level), "1100", "2210", 2, 1, 3, 4 }, "do not agree" },
    { { E(two_level), "0100", "2210", 2, 1, 2, 4 }, "do not agree" },
};
/* clang-format on */

static void check_handmade(void) {
    Buf file = { 0 }, got = { 0 };
    Err err = { { 0 } };
    for (size_t i = 0; i < COUNT(handmade); i++) {
        put_file(&file, handmade[i].h);
        PqFile *f = pq_open_bytes("handmade", file.data, file.n, &err);
        PqRows r = { 0 };
        bool ok = f && pq_read(f, 0, NULL, &r, &err);
        EXPECT(ok, "handmade %zu: %s", i, err.msg);
        buf_clear(&got);
        for (int64_t k = 0; k < r.n; k++) pq_put_value(&got, &r.rows[k]);
        EXPECT(ok && !strcmp(got.data, handmade[i].rows), "handmade %zu: %s", i, got.data);
        pq_rows_free(&r);
        pq_close(f);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        put_file(&file, wrong[i].h);
        err.msg[0] = 0;
        EXPECT(!read_all(file.data, file.n, &err) && strstr(err.msg, wrong[i].says), "wrong %zu: %s", i, err.msg);
    }
    EXPECT(!read_all("PAR1aaaaaaPAR1", 14, &err) && strstr(err.msg, "footer"), "%s", err.msg);
    EXPECT(!read_all("{\"a\": 1}, {\"b\": 2}", 18, &err) && strstr(err.msg, "not a Parquet file"), "%s", err.msg);
    EXPECT(!read_all("", 0, &err) && strstr(err.msg, "not a Parquet file"), "%s", err.msg);
    buf_free(&file);
    buf_free(&got);
}

static void check_columns(void) {
    Err err = { { 0 } };
    PqFile *f = pq_open(FIXTURE("parquet/chat_zstd.parquet"), &err);
    PqRows r = { 0 };
    Buf b = { 0 };
    EXPECT(f, "%s", err.msg);
    EXPECT(pq_has(f, "reward_model.ground_truth") && !pq_has(f, "reward_model.truth") && !pq_has(f, "reward"),
           "pq_has");
    const char *some[] = { "reward_model.ground_truth", "required" }, *none[] = { "prompt", "answers" };
    EXPECT(pq_select(f, some, 2, &err) && pq_read(f, 0, NULL, &r, &err), "%s", err.msg);
    EXPECT(r.n == 6 && r.rows[0].n == 2 && !json_get(&r.rows[0], "prompt") && json_get(&r.rows[0], "required"),
           "chosen columns");
    for (int64_t i = 0; i < r.n; i++) {
        const Json *m = json_get(&r.rows[i], "reward_model");
        EXPECT(m && (m->kind == JSON_NULL || (m->n == 1 && !strcmp(m->members[0].key, "ground_truth"))),
               "part of a struct");
    }
    pq_rows_free(&r);
    EXPECT(!pq_select(f, none, 2, &err) && strstr(err.msg, "no column answers; it has data_source, prompt"), "%s",
           err.msg);
    pq_describe(f, 1, &b);
    EXPECT_STR(b.data, "list<struct<role: string, content: string>>");
    pq_close(f);
    buf_free(&b);
}

int main(void) {
    glob_t g = { 0 };
    Threads *threads = threads_open(3);
    EXPECT(glob(FIXTURE("parquet/*.parquet"), 0, NULL, &g) == 0 && g.gl_pathc >= 20, "%zu fixtures", g.gl_pathc);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        check_fixture(g.gl_pathv[i], NULL);
        check_fixture(g.gl_pathv[i], threads);
        check_damage(g.gl_pathv[i]);
    }
    globfree(&g);
    threads_close(threads);
    check_handmade();
    check_columns();
    return test_end();
}
