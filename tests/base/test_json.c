/* test_json.c - what is accepted, what is refused and with which words, and that numbers survive. */
#include "base/json.h"
#include "test.h"

static bool parse(const char *text, Json *v, Mem *m, Err *e) { return json_parse(v, text, strlen(text), m, e); }

int main(void) {
    Mem m = { 0 };
    Err e;
    Json v;
    EXPECT(parse(" {\"a\": [1, -2.5e3, true, null, \"x\\u00e9\\ud83d\\ude00\\n\"], \"b\":{}} ", &v, &m, &e), "%s",
           e.msg);
    const Json *a = json_get(&v, "a");
    EXPECT(a && a->n == 5 && a->items[0].integer == 1 && a->items[1].real == -2500, "array");
    EXPECT(json_is_str(&a->items[4], "x\xC3\xA9\xF0\x9F\x98\x80\n"), "escapes");
    Buf b = { 0 };
    json_put_value(&b, &v);
    EXPECT_STR(b.data, "{\"a\":[1,-2500.0,true,null,\"x\xC3\xA9\xF0\x9F\x98\x80\\n\"],\"b\":{}}");

    EXPECT(parse("9223372036854775807", &v, &m, &e) && v.kind == JSON_INT && v.integer == INT64_MAX, "largest int");
    EXPECT(parse("-9223372036854775808", &v, &m, &e) && v.kind == JSON_INT && v.integer == INT64_MIN, "smallest int");
    EXPECT(parse("9223372036854775808", &v, &m, &e) && v.kind == JSON_REAL && v.real == 0x1p63, "beyond int64");

    /* beyond int64 as far as 64 bits go a whole number is written as it was read; json_int refuses it */
    static const char *const whole[] = { "[0]",
                                         "[9223372036854775807]",
                                         "[-9223372036854775808]",
                                         "[9223372036854775808]",
                                         "[9223372036854775809]",
                                         "[18446744073709551614]",
                                         "[18446744073709551615]" };
    for (size_t i = 0; i < COUNT(whole); i++) {
        buf_clear(&b);
        EXPECT(parse(whole[i], &v, &m, &e), "%s", e.msg);
        json_put_value(&b, &v);
        EXPECT_STR(b.data, whole[i]);
    }
    int64_t n = 7;
    double x = 0;
    EXPECT(parse("{\"a\":18446744073709551615}", &v, &m, &e) && !json_int(&v, "a", &n, &e) && n == 7,
           "an int of 64 bits");
    EXPECT(json_real(&v, "a", &x, &e) && x == 0x1p64, "as a real: %g", x);
    EXPECT(parse("{\"a\":4,\"b\":null,\"c\":1e999}", &v, &m, &e) && json_int_within(&v, "a", 4, 4, &n, &e) && n == 4,
           "within: %s", e.msg);
    EXPECT(!json_int_within(&v, "a", 5, 9, &n, &e) && n == 4 && strstr(e.msg, "\"a\" is 4"), "below: %s", e.msg);
    EXPECT(!json_int_within(&v, "b", 0, 9, &n, &e) && strstr(e.msg, "\"b\" is missing"), "null: %s", e.msg);
    EXPECT(!json_real_within(&v, "c", 0, 1e300, &x, &e) && strstr(e.msg, "\"c\" is inf"), "infinite: %s", e.msg);
    EXPECT(parse("18446744073709551616", &v, &m, &e) && v.kind == JSON_REAL && v.real == 0x1p64, "beyond 64 bits");
    EXPECT(parse("-9223372036854775809", &v, &m, &e) && v.kind == JSON_REAL && v.real == -0x1p63, "below 64 bits");
    EXPECT(parse("5e-324", &v, &m, &e) && v.real == 0x1p-1074, "the smallest real");
    EXPECT(parse("1.7976931348623157e308", &v, &m, &e) && v.real == 0x1.fffffffffffffp1023, "the largest real");
    EXPECT(parse("1e-400", &v, &m, &e) && v.real == 0, "too small is 0");
    static const char *const own[] = { "12345678901234567890123",
                                       "-9223372036854775809",
                                       "1e999",
                                       "1.10",
                                       "-0.0",
                                       "1E5",
                                       "0.1000000000000000055511151231257827" };
    for (size_t i = 0; i < COUNT(own); i++) {
        buf_clear(&b);
        EXPECT(parse(own[i], &v, &m, &e) && v.kind == JSON_REAL, "%s: %s", own[i], e.msg);
        EXPECT((json_big(&v) != NULL) == (i < 2), "%s is whole and long", own[i]);
        Mem kept = { 0 };
        Json copy = json_copy(&v, &kept);
        json_put_number_own(&b, &copy);
        EXPECT_STR(b.data, own[i]);
        mem_free(&kept);
    }
    EXPECT(parse("18446744073709551615", &v, &m, &e) && !json_big(&v), "64 bits are held");
    buf_clear(&b);

    static const struct {
        const char *text, *says;
    } bad[] = {
        { "", "a value is missing" },
        { "{\"a\":1,}", "a key in quotes" },
        { "[1,2", "ends inside an array" },
        { "\"abc", "ends inside a string" },
        { "{\"a\":1,\"a\":2}", "occurs twice" },
        { "01", "starts with 0" },
        { "1.", "digit is missing" },
        { "tru", "not a JSON value" },
        { "\"\\ud800\"", "surrogate" },
        { "\"\xFF\"", "not UTF-8" },
        { "\"\n\"", "control character" },
        { "1 2", "something follows" },
        { "{\"a\":\n tru}", "line 2 column 2" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        e.msg[0] = 0;
        EXPECT(!parse(bad[i].text, &v, &m, &e) && strstr(e.msg, bad[i].says), "%s: %s", bad[i].text, e.msg);
    }
    char deep[2000];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    EXPECT(!parse(deep, &v, &m, &e) && strstr(e.msg, "too deeply"), "%s", e.msg);

    /* every float comes back */
    uint32_t u = 1;
    int wrong = 0;
    for (int i = 0; i < 20000; i++) {
        u = u * 1664525u + 1013904223u;
        float f;
        memcpy(&f, &u, 4);
        if (f != f || f - f != 0) continue;
        buf_clear(&b);
        json_put_f32(&b, f);
        wrong += strtof(b.data, NULL) != f;
    }
    EXPECT(!wrong, "%d floats changed on the way", wrong);
    buf_clear(&b);
    json_put_f64(&b, -0.0);
    EXPECT(parse(b.data, &v, &m, &e) && v.kind == JSON_REAL && 1 / v.real < 0, "minus zero is read from %s", b.data);
    buf_clear(&b);
    json_put_str(&b, "a\"\\\x01\xFF\t", 6);
    EXPECT_STR(b.data, "\"a\\\"\\\\\\u0001\xEF\xBF\xBD\\t\"");
    static const char loose[] = "{\"a\": 1, \"b\": [NaN, -Infinity], \"a\": \"\\ud800x\"} ; more";
    size_t used = 0;
    EXPECT(!parse(loose, &v, &m, &e), "strictly it is no JSON");
    EXPECT(json_parse_loose(&v, loose, sizeof loose - 1, &used, &m, &e) && v.n == 2, "loosely it is: %s", e.msg);
    EXPECT(!strcmp(loose + used, "; more"), "what follows begins at \"%s\"", loose + used);
    EXPECT_STR(json_get(&v, "a")->str, "\xEF\xBF\xBDx");
    double nan = json_get(&v, "b")->items[0].real;
    EXPECT(nan != nan && json_get(&v, "b")->items[1].real < -1e308, "NaN and infinity");
    buf_clear(&b);
    buf_puts(&b, "{");
    for (int i = 0; i < 1000; i++) buf_printf(&b, "\"k%d\":%d,", i % 300, i);
    buf_puts(&b, "\"end\":1}");
    EXPECT(json_parse_loose(&v, b.data, b.n, &used, &m, &e) && v.n == 301, "%zu keys of 301", v.n);
    EXPECT(json_get(&v, "k7")->integer == 907 && json_get(&v, "k299")->integer == 899, "the last of equal keys counts");
    buf_free(&b);
    mem_free(&m);
    return test_end();
}
