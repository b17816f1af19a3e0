/* fuzz_page.c - lines of a run's files that anybody may have written: no line crashes or hangs what a page reads them
 * with; where a line is JSON, its members are those that a tree has. */
#include "base/json.h"
#include "page/answers.h"
#include "page/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The keys and plain values of an object, one by one. */
static void same_members(const char *line, size_t n, const Json *tree) {
    Scan s = scan_of(line, n);
    Member m;
    size_t i = 0;
    for (; scan_next(&s, &m); i++) {
        CHECK(i < tree->n, "a member too many");
        const JsonMember *t = &tree->members[i];
        if (!memchr(m.key.at, '\\', m.key.n)) CHECK(m.key.n == t->key_n && !memcmp(m.key.at, t->key, m.key.n), "a key");
        if (m.kind == '0') CHECK(t->value.kind == JSON_INT || t->value.kind == JSON_REAL, "a number");
        if (m.kind == '0' && m.value.n < 60) {
            double want = json_number(&t->value), got = scan_number(&m);
            CHECK(got == want, "%.*s is %.17g, not %.17g", (int)m.value.n, m.value.at, got, want);
        }
        CHECK((m.kind == '"') == (t->value.kind == JSON_STRING), "a string");
        CHECK((m.kind == '{') == (t->value.kind == JSON_OBJECT), "an object");
    }
    CHECK(!s.bad && i == tree->n, "%zu members of %zu", i, tree->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *text = (const char *)data, *end = text + n;
    Columns c = { 0 };
    Answers a = { 0 };
    Bucket k[16];
    for (const char *p = text; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);
        char *line = malloc(len ? len : 1); /* so that a byte too many is noticed */
        if (!line) return 0;
        memcpy(line, p, len);
        columns_line(&c, line, len);
        answers_line(&a, line, len, p - text);
        answer_says(line, len, "a\"\n");
        Mem mem = { 0 };
        Json tree;
        Err ignore;
        bool blank = memchr(line, '\n', len) != NULL;
        if (!blank && json_parse(&tree, line, len, &mem, &ignore) && tree.kind == JSON_OBJECT)
            same_members(line, len, &tree);
        mem_free(&mem);
        free(line);
        p += len + 1;
    }
    for (size_t i = 0; i < c.column.n; i++) {
        Range r = { (ColumnsX)(i % 3), -INFINITY, i % 2 ? 1e9 : INFINITY, i % 5 == 0 };
        int got = columns_buckets(k, &c, &c.column.at[i], &r, 16);
        CHECK(got >= 0 && got <= 16, "%d buckets", got);
    }
    answers_free(&a);
    columns_free(&c);
    return 0;
}
