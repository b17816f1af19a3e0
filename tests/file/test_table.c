/* test_table.c - JSON lines, packed or not, and arrays as tables; what is refused, and with which words. */
#include "base/file.h"
#include "file/paths.h"
#include "file/table.h"
#include "test.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

/* The rows' "a" as one number after the other, or the error. */
static void read_all(const void *data, size_t n, Threads *threads, Buf *out) {
    Err err = { { 0 } };
    Table *t = table_open_bytes("F", data, n, &err);
    TableRows r = { 0 };
    bool ok = t != NULL;
    buf_clear(out);
    buf_puts(out, "");
    int64_t next = 0;
    while (ok && (ok = table_next(t, threads, &r, &err)) && r.n) {
        EXPECT(r.first == next, "rows from %lld, %lld expected", (long long)r.first, (long long)next);
        next += r.n;
        for (int64_t i = 0; i < r.n; i++) {
            int64_t a = -1;
            json_int(&r.rows[i], "a", &a, &err);
            buf_printf(out, "%lld ", (long long)a);
        }
    }
    if (!ok) buf_puts(out, err.msg);
    table_close(t);
}

int main(void) {
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "{\"a\":1}\n{\"a\":2}\n", "1 2 " },
        { "\xEF\xBB\xBF{\"a\":1}\r\n\r\n \t\n{\"a\":2}", "1 2 " },
        { "", "" },
        { "\n\n", "" },
        { " [ {\"a\":1},\n {\"a\":2} ] ", "1 2 " },
        { "[]", "" },
        { "{\"a\":1}\n{\"a\":2\n", "F line 2: JSON line 1 column 7: the text ends inside an object" },
        { "{\"a\":1}\n\n[2]\n", "F line 3: an object is expected, not an array" },
        { "[{\"a\":1}, 7]", "F row 1: an object is expected, not a whole number" },
        { "[{\"a\":1}", "F: JSON line 1 column 9: the text ends inside an array" },
        { "question,answer\n1,2\n", "F: neither Parquet nor JSON: it must begin with {, [ or PAR1" },
    };
    Buf got = { 0 };
    for (size_t i = 0; i < COUNT(cases); i++) {
        read_all(cases[i].text, strlen(cases[i].text), NULL, &got);
        EXPECT_STR(got.data, cases[i].want);
    }

    /* more lines than a block, on threads, packed in two ways and in several members */
    Buf lines = { 0 }, want = { 0 };
    for (int i = 0; i < 5000; i++)
        buf_printf(&lines, "{\"a\": %d, \"text\": \"%0*d\"}\n", i, i % 50, i), buf_printf(&want, "%d ", i);
    Threads *threads = threads_open(3);
    read_all(lines.data, lines.n, threads, &got);
    EXPECT(!strcmp(got.data, want.data), "5000 lines");
    Buf packed = { 0 };
    buf_reserve(&packed, ZSTD_compressBound(lines.n) * 2);
    size_t half = 100000;
    packed.n = ZSTD_compress(packed.data, packed.cap, lines.data, half, 3);
    packed.n += ZSTD_compress(packed.data + packed.n, packed.cap - packed.n, lines.data + half, lines.n - half, 3);
    read_all(packed.data, packed.n, threads, &got);
    EXPECT(!strcmp(got.data, want.data), "zstd in two frames");
    read_all(packed.data, packed.n - 5, threads, &got);
    EXPECT(strstr(got.data, "zstd stream was cut short"), "%s", got.data);
    z_stream z = { .next_in = (Bytef *)lines.data,
                   .avail_in = (uInt)lines.n,
                   .next_out = (Bytef *)packed.data,
                   .avail_out = (uInt)packed.cap };
    EXPECT(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK
               && deflate(&z, Z_FINISH) == Z_STREAM_END,
           "gzip");
    packed.n = z.total_out;
    deflateEnd(&z);
    read_all(packed.data, packed.n, threads, &got);
    EXPECT(!strcmp(got.data, want.data), "gzip");
    read_all(packed.data, packed.n / 2, threads, &got);
    EXPECT(strstr(got.data, "gzip stream is damaged or was cut short"), "%s", got.data);
    packed.data[packed.n / 2] ^= 32;
    read_all(packed.data, packed.n, threads, &got);
    EXPECT(strstr(got.data, "F") == got.data, "damaged gzip: %.100s", got.data);

    /* names and patterns */
    Mem mem = { 0 };
    Err err;
    const char *const *file;
    int n;
    const char *pattern[] = { FIXTURE("parquet/chat_*.parquet") }, *none[] = { FIXTURE("parquet/*.csv") };
    const char *twice[] = { FIXTURE("parquet/empty.parquet"), FIXTURE("parquet/e*.parquet") },
               *folder[] = { FIXTURE("parquet") };
    EXPECT(paths_expand(&mem, pattern, 1, &file, &n, &err) && n == 6 && strstr(file[0], "chat_brotli"), "%d files", n);
    EXPECT(!paths_expand(&mem, none, 1, &file, &n, &err) && strstr(err.msg, "no file matches"), "%s", err.msg);
    EXPECT(!paths_expand(&mem, twice, 2, &file, &n, &err) && strstr(err.msg, "named twice"), "%s", err.msg);
    EXPECT(!paths_expand(&mem, folder, 1, &file, &n, &err) && strstr(err.msg, "is a folder"), "%s", err.msg);
    mem_free(&mem);
    threads_close(threads);
    buf_free(&got);
    buf_free(&lines);
    buf_free(&want);
    buf_free(&packed);
    return test_end();
}
