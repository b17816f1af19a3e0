/* test_tool.c - the calculator: values, what it refuses, sizes; and calls that are answered with a reason. */
#include "tool/tool.h"
#include "test.h"

/* clang-format off */
static const struct { const char *in, *out; } cases[] = {
    { "1+2", "3" }, { "12*34", "408" }, { " ( 3 + 4 ) * 5 = ", "35" }, { "7/2", "3.5" }, { "1/3", "1/3" },
    { "-1/3", "-1/3" }, { "3/8", "0.375" }, { "-0.05", "-0.05" }, { "0.1+0.2", "0.3" }, { "1.50", "1.5" },
    { "2^10", "1024" }, { "2**-2", "0.25" }, { "-2^2", "-4" }, { "2^3^2", "512" }, { "(-2)^2", "4" },
    { "--5", "5" }, { "+5", "5" }, { "1,234*2", "2468" }, { "0", "0" }, { "12\u00D73\u00F74\u22121", "8" },
    { "99999999999999999999*99999999999999999999", "9999999999999999999800000000000000000001" }, { "0^0", "1" },
    { "(-1)^1000000001", "-1" }, { "1^99999999999", "1" }, { "10/4*2", "5" }, { "1e5", NULL }, { "", NULL },
    { "1/0", NULL }, { "0^-1", NULL }, { "2^0.5", NULL }, { "2^2^2^2^2^9", NULL },
    { "2^99999999999999999999", NULL }, { "(1", NULL }, { "1)", NULL }, { "abc", NULL }, { "1+", NULL },
    { "9^9999", NULL }, { "import os", NULL },
};
/* clang-format on */

static void answered(const Tools *t, const char *call, bool good, const char *want) {
    Mem mem = { 0 };
    Buf b = { 0 };
    CallReader r = call_reader(tool_format_named("hermes"), tools_schemas(t), &mem);
    char *s = mem_printf(&mem, "<tool_call>%s</tool_call>", call);
    call_put(&r, s, strlen(s));
    call_end(&r);
    EXPECT(r.calls.n == 1, "%zu calls in %s", r.calls.n, call);
    bool ok = r.calls.n && tools_call(t, &r.calls.at[0], 60, &b);
    EXPECT(ok == good, "%s: %s", call, ok ? "answered" : "failed");
    EXPECT(b.data && strstr(b.data, want), "%s: \"%s\", want \"%s\"", call, b.data ? b.data : "", want);
    call_free(&r);
    buf_free(&b);
    mem_free(&mem);
}

int main(void) {
    Buf b = { 0 };
    for (size_t i = 0; i < COUNT(cases); i++) {
        buf_clear(&b);
        bool ok = calculate(span_of(cases[i].in), &b);
        if (cases[i].out)
            EXPECT(ok && !strcmp(b.data, cases[i].out), "%s = %s, want %s", cases[i].in, b.data, cases[i].out);
        else EXPECT(!ok && !strncmp(b.data, "Error: ", 7), "%s = %s, want an error", cases[i].in, b.data);
    }
    buf_clear(&b);
    for (int i = 0; i < 100000; i++) buf_putc(&b, '(');
    Buf deep = { 0 };
    EXPECT(!calculate((Span){ b.data, b.n }, &deep) && strstr(deep.data, "deeply"), "%s", deep.data);
    buf_clear(&b), buf_clear(&deep);
    for (int i = 0; i < 100000; i++) buf_puts(&b, "-");
    EXPECT(!calculate((Span){ b.data, b.n }, &deep) && strstr(deep.data, "deeply"), "%s", deep.data);
    Err err;
    const char *one[] = { "calculator" }, *none[] = { "abacus" }, *twice[] = { "calculator", "calculator" };
    EXPECT(!tools_open(none, 1, &err) && strstr(err.msg, "there is no tool 'abacus'"), "%s", err.msg);
    EXPECT(!tools_open(twice, 2, &err) && strstr(err.msg, "twice"), "%s", err.msg);
    Tools *t = tools_open(one, 1, &err);
    EXPECT(t && tools_schemas(t)->n == 1 && tool_schema(tools_schemas(t), SPAN("calculator")), "no schema");
    answered(t, "{\"name\": \"calculator\", \"arguments\": {\"expression\": \"17*3\"}}", true, "51");
    answered(t, "{\"name\": \"calculator\", \"arguments\": {\"expression\": 17}}", false, "must be a text");
    answered(t, "{\"name\": \"calculator\", \"arguments\": {}}", false, "\"expression\" is missing");
    answered(t, "{\"name\": \"calc\", \"arguments\": {}}", false, "there is no tool 'calc'");
    answered(t, "{\"name\": ", false, "Error: the call is no JSON");
    answered(t, "{\"name\": \"calculator\", \"arguments\": {\"expression\": \"9^1000\"}}", true, "...(truncated)...");
    tools_close(t);
    buf_free(&b);
    buf_free(&deep);
    return test_end();
}
