/* fuzz_jsonl.c - any bytes as a data file of JSON (lines, an array, packed): every row is an object, or it is refused;
 * what is read prints to the same value again.  Seeds: tests/data/parquet (*.jsonl). */
#include "file/parquet.h"
#include "file/table.h"
#include "task/prepare.h"

#include <string.h>

static void check_row(const Json *row) {
    Err err;
    Mem mem = { 0 };
    Buf a = { 0 }, b = { 0 };
    Json again;
    json_put_value(&a, row);
    CHECK(json_parse(&again, a.data, a.n, &mem, &err), "printed and not read: %s", err.msg);
    json_put_value(&b, &again);
    CHECK(a.n == b.n && !memcmp(a.data, b.data, a.n), "printed twice, differently: %s / %s", a.data, b.data);
    for (int i = 0; prepare_at(i); i++) {
        Json made;
        PrepareWith w = { .split = "train", .source = "x" };
        if (prepare_row(prepare_at(i), &w, row, i, &mem, &made, &err)) json_put_value(&a, &made);
    }
    buf_free(&a);
    buf_free(&b);
    mem_free(&mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    Err err;
    if (n >= 4 && !memcmp(data, "PAR1", 4)) return 0; /* fuzz_parquet's */
    Table *t = table_open_bytes("fuzz", data, n, &err);
    if (!t) return 0;
    TableRows r = { 0 };
    while (table_next(t, NULL, &r, &err) && r.n)
        for (int64_t i = 0; i < r.n; i++) {
            CHECK(r.rows[i].kind == JSON_OBJECT, "a row that is not an object");
            check_row(&r.rows[i]);
        }
    table_close(t);
    return 0;
}
