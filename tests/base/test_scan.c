/* test_scan.c - members of a line one by one: keys, kinds and values as a tree has them; what is no object. */
#include "base/scan.h"
#include "base/json.h"
#include "test.h"

#include <math.h>

static void members(void) {
    const char *line =
        "{\"a\":1,\"b\": -2.5e3 ,\"c\\\"\":\"x\\\\\",\"d\":null,\"e\":{\"f\":[1,\"}\"]},\"g\":[{}],\"h\":true}";
    static const struct {
        const char *key, *value;
        char kind;
    } want[] = { { "a", "1", '0' },
                 { "b", "-2.5e3", '0' },
                 { "c\\\"", "x\\\\", '"' },
                 { "d", "null", 'n' },
                 { "e", "{\"f\":[1,\"}\"]}", '{' },
                 { "g", "[{}]", '[' },
                 { "h", "true", 't' } };
    Scan s = scan_of(line, strlen(line));
    Member m;
    size_t n = 0;
    for (; scan_next(&s, &m) && n < COUNT(want); n++)
        EXPECT(span_eq(m.key, span_of(want[n].key)) && span_eq(m.value, span_of(want[n].value))
                   && m.kind == want[n].kind,
               "member %zu is %.*s: %.*s", n, (int)m.key.n, m.key.at, (int)m.value.n, m.value.at);
    EXPECT(n == COUNT(want) && !s.bad, "%zu members, bad %d", n, s.bad);
}

static void no_objects(void) {
    static const char *const bad[] = { "",           "[1]",         "{",
                                       "{\"a\"",     "{\"a\":",     "{\"a\":1",
                                       "{\"a\":1,",  "{\"a\":1}x",  "{\"a\":\"x}",
                                       "{\"a\":[1}", "{\"a\":1 2}", "nothing" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        Scan s = scan_of(bad[i], strlen(bad[i]));
        Member m;
        int n = 0;
        while (scan_next(&s, &m)) n++;
        EXPECT(s.bad || !strcmp(bad[i], "{\"a\":[1}"), "'%s' was taken for an object", bad[i]);
    }
    Scan s = scan_of("{}", 2);
    Member m;
    EXPECT(!scan_next(&s, &m) && !s.bad, "{} is one");
}

static void numbers(void) {
    static const char *const text[] = { "0",
                                        "-0",
                                        "1",
                                        "0.1",
                                        "123456789012345678",
                                        "1.7976931348623157e308",
                                        "5e-324",
                                        "1e-7",
                                        "-3.25E+2",
                                        "2.5e22",
                                        "9007199254740993",
                                        "0.30000000000000004",
                                        "1e400",
                                        "1e-400",
                                        "00012.5",
                                        "123456789012345678901234567890" };
    for (size_t i = 0; i < COUNT(text); i++) {
        Member m = { .value = span_of(text[i]), .kind = '0' };
        double got = scan_number(&m), want = strtod(text[i], NULL);
        EXPECT(got == want, "%s is %.17g, not %.17g", text[i], got, want);
    }
    static const char *const none[] = { "-", "1.2.3", "e5", "1e", "0x10", "+1", "NaN", "" };
    for (size_t i = 0; i < COUNT(none); i++) {
        Member m = { .value = span_of(none[i]), .kind = '0' };
        EXPECT(isnan(scan_number(&m)), "'%s' is %g", none[i], scan_number(&m));
    }
}

/* A file that an editor saved begins with a mark, which json_parse passes over. */
static void marked(void) {
    static const char line[] = "\xEF\xBB\xBF{\"a\":1}";
    Scan s = scan_of(line, sizeof line - 1), cut = scan_of(line, 3);
    Member m;
    EXPECT(scan_next(&s, &m) && scan_is(&m, "a") && !scan_next(&s, &m) && !s.bad, "behind a byte order mark");
    EXPECT(!scan_next(&cut, &m) && cut.bad, "nothing behind a mark is no object");
}

int main(void) {
    members();
    marked();
    no_objects();
    numbers();
    return test_end();
}
