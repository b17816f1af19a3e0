/* test_parquet_write.c - what is written is what is read: shapes by hand and a few hundred random ones, in every codec
 * and in groups of every size.  Other programs read these files too: bench/peers/parquet_matrix.py asks them. */
#include "base/rng.h"
#include "file/parquet.h"
#include "json_same.h"
#include "test.h"

static bool round_trip(const Json *rows, int64_t n, PqCodec codec, int64_t group_rows, const char *name) {
    Buf file = { 0 }, shown = { 0 };
    Err err = { { 0 } };
    bool same = pq_write_bytes(&file, rows, n, codec, group_rows, &err);
    PqFile *f = same ? pq_open_bytes(name, file.data, file.n, &err) : NULL;
    int64_t at = 0;
    same = same && f && pq_rows(f) == n;
    for (int g = 0; same && g < pq_groups(f); g++) {
        PqRows r;
        if (!pq_read(f, g, NULL, &r, &err)) {
            same = false;
            break;
        }
        for (int64_t i = 0; i < r.n; i++, at++)
            if (!json_same(&r.rows[i], &rows[at], true)) {
                same = false;
                buf_clear(&shown);
                pq_put_value(&shown, &r.rows[i]);
                buf_puts(&shown, " instead of ");
                pq_put_value(&shown, &rows[at]);
            }
        pq_rows_free(&r);
    }
    EXPECT(same && at == n, "%s: %s %s", name, err.msg, shown.data ? shown.data : "");
    pq_close(f);
    buf_free(&file);
    buf_free(&shown);
    return same;
}

static int64_t parse_rows(const char *const *text, Json *rows, Mem *mem) {
    int64_t n = 0;
    Err err;
    for (; text[n]; n++) CHECK(json_parse(&rows[n], text[n], strlen(text[n]), mem, &err), "%s", err.msg);
    return n;
}

/* A random value of a shape that is a function of (seed, path): the same for all rows, so
 * that columns have one type. */
static Json random_value(uint64_t seed, uint32_t path, int depth, uint32_t *counter, Mem *mem) {
    uint64_t shape = rng_u64(seed, RNG_INIT, path, 0, 0, 0), u = rng_u64(seed, RNG_SAMPLE, 1, path, (*counter)++, 0);
    if (u % 5 == 0) return (Json){ .kind = JSON_NULL };
    u >>= 8;
    switch (depth > 3 ? shape % 4 : shape % 7) {
    case 0: return (Json){ .kind = JSON_BOOL, .flag = u & 1 };
    case 1: return (Json){ .kind = JSON_INT, .integer = (int64_t)(u << 8) };
    case 2: return (Json){ .kind = JSON_REAL, .real = (double)u / 77 };
    case 3: {
        size_t n = u % 20 == 9 ? 10 : u % 20; /* not through the middle of the character */
        return (Json){ .kind = JSON_STRING, .n = n, .str = mem_str(mem, "abcdefgh\xC3\xA9ijklmnopqrstu", n) };
    }
    case 4:
    case 5: {
        Json v = { .kind = JSON_ARRAY, .n = u % 4 };
        v.items = MEM_ARRAY(mem, Json, v.n);
        for (size_t i = 0; i < v.n; i++) v.items[i] = random_value(seed, path * 7 + 1, depth + 1, counter, mem);
        return v;
    }
    default: {
        static const char *const key[] = { "a", "b", "c" };
        Json v = { .kind = JSON_OBJECT, .n = 1 + shape / 7 % 3 };
        v.members = MEM_ARRAY(mem, JsonMember, v.n);
        for (size_t i = 0; i < v.n; i++)
            v.members[i] =
                (JsonMember){ key[i], 1, random_value(seed, path * 7 + 2 + (uint32_t)i, depth + 1, counter, mem) };
        return v;
    }
    }
}

int main(void) {
    Mem mem = { 0 };
    Json rows[300];
    static const char *const chat[] = {
        "{\"prompt\":[{\"role\":\"user\",\"content\":\"caf\xC3\xA9 \\n\\u0000 end\"}],"
        "\"reward_model\":{\"ground_truth\":\"72\"},\"n\":1}",
        "{\"prompt\":[],\"n\":2.5,\"extra\":{\"tags\":[\"x\",null,\"\"],\"deep\":[[[1],[]],null,[]]}}",
        "{\"prompt\":null,\"late\":true,\"reward_model\":{\"ground_truth\":null,\"style\":\"rule\"}}",
        "{\"nothing\":null,\"empty\":[]}",
        NULL,
    };
    int64_t n = parse_rows(chat, rows, &mem);
    static const PqCodec codecs[] = { PQ_PLAIN, PQ_SNAPPY, PQ_ZSTD };
    for (size_t c = 0; c < COUNT(codecs); c++)
        for (int64_t group = 0; group < 4; group++) round_trip(rows, n, codecs[c], group, "chat");
    round_trip(rows, 0, PQ_ZSTD, 0, "no rows");

    for (uint64_t seed = 0; seed < 60; seed++) {
        uint32_t counter = 0;
        Mem m = { 0 };
        int64_t count = 1 + (int64_t)(seed * 37 % 300);
        for (int64_t i = 0; i < count; i++) {
            rows[i] = (Json){ .kind = JSON_OBJECT, .n = 1, .members = MEM_NEW(&m, JsonMember) };
            rows[i].members[0] = (JsonMember){ "x", 1, random_value(seed, 1, 0, &counter, &m) };
        }
        char name[32];
        snprintf(name, sizeof name, "random %d", (int)seed);
        bool ok = round_trip(rows, count, codecs[seed % 3], (int64_t)(seed % 5 * 7), name);
        mem_free(&m);
        if (!ok) break;
    }

    /* bytes stay bytes; a page is cut when it is full */
    Json bytes = { .kind = JSON_STRING, .flag = true, .n = 3, .str = "\xFF\0\x01" };
    JsonMember member[300];
    char *large = mem_push(&mem, 70000);
    memset(large, 'y', 69999);
    for (int i = 0; i < 300; i++) {
        member[i] = (JsonMember){ "b", 1, i % 2 ? bytes : (Json){ .kind = JSON_STRING, .n = 69999, .str = large } };
        rows[i] = (Json){ .kind = JSON_OBJECT, .n = 1, .members = &member[i] };
    }
    Buf file = { 0 };
    Err err = { { 0 } };
    EXPECT(pq_write_bytes(&file, rows, 300, PQ_SNAPPY, 0, &err), "%s", err.msg);
    PqFile *f = pq_open_bytes("bytes", file.data, file.n, &err);
    PqRows r = { 0 };
    EXPECT(f && pq_read(f, 0, NULL, &r, &err) && r.n == 300, "%s", err.msg);
    for (int i = 0; i < 300 && r.n == 300; i++) {
        const Json *v = json_get(&r.rows[i], "b");
        EXPECT(v->flag && v->n == member[i].value.n && !memcmp(v->str, member[i].value.str, v->n), "bytes in row %d",
               i);
    }
    pq_rows_free(&r);
    pq_close(f);

    static const struct {
        const char *rows[3], *says;
    } clashes[] = {
        { { "{\"a\":1}", "{\"a\":\"x\"}" }, "row 1: column a is text, but a whole number in rows before" },
        { { "{\"a\":[1]}", "{\"a\":[[1]]}" }, "column element is a list" },
        { { "{\"a\":{}}" }, "objects without members" },
        { { "[1]" }, "row 0 is an array" },
    };
    for (size_t i = 0; i < COUNT(clashes); i++) {
        n = parse_rows(clashes[i].rows, rows, &mem);
        EXPECT(!pq_write_bytes(&file, rows, n, PQ_ZSTD, 0, &err) && strstr(err.msg, clashes[i].says), "%s", err.msg);
    }
    buf_free(&file);
    mem_free(&mem);
    return test_end();
}
