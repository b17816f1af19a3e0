/* fuzz_parquet.c - any bytes as a Parquet file: refused or read, within a bounded memory and
 * time.  Seeds: tests/data/parquet. */
#include "file/parquet.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    Err err;
    PqFile *f = pq_open_bytes("fuzz", data, n, &err);
    if (!f) return 0;
    pq_limit(f, 1 << 12, 1 << 18);
    Buf b = { 0 };
    for (int c = 0; c < pq_columns(f); c++) pq_describe(f, c, &b);
    for (int g = 0; g < pq_groups(f) && g < 16; g++) {
        PqRows r;
        if (!pq_read(f, g, NULL, &r, &err)) break;
        for (int64_t i = 0; i < r.n && b.n < 1 << 20; i++) pq_put_value(&b, &r.rows[i]);
        /* what was read can be written, unless it has no form there (an empty object), and then has the same rows */
        Buf file = { 0 };
        if (r.n < 64 && pq_write_bytes(&file, r.rows, r.n, PQ_SNAPPY, 5, &err)) {
            PqFile *again = pq_open_bytes("again", file.data, file.n, &err);
            CHECK(again && pq_rows(again) == r.n, "written and not read: %s", err.msg);
            for (int k = 0; k < pq_groups(again); k++) {
                PqRows s;
                CHECK(pq_read(again, k, NULL, &s, &err), "written and not read: %s", err.msg);
                pq_rows_free(&s);
            }
            pq_close(again);
        }
        buf_free(&file);
        pq_rows_free(&r);
    }
    buf_free(&b);
    pq_close(f);
    return 0;
}
