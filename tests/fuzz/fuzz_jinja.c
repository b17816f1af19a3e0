/* fuzz_jinja.c - any bytes as a template, rendered over a few variables within tight bounds: no crash, no hang. */
#include "jinja/jinja.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char vars[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\" Hi\\n\"},{\"role\":\"assistant\",\"content\":\"\xC3\xA9\","
        "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5}}}]}],\"tools\":[{\"a\":{}}],"
        "\"s\":\" Hello \",\"text\":\"a,b c\",\"n\":7,\"x\":2.5,\"t\":true,\"f\":false,\"nums\":[3,1,2],"
        "\"words\":[\"b\",\"A\"],\"d\":{\"a\":1,\"b\":2},\"people\":[{\"n\":\"q\",\"a\":1,\"c\":\"x\"},{\"c\":\"y\"}],"
        "\"now\":\"2026-11-15T00:00:00\"}";
    Mem mem = { 0 };
    Err err;
    Json v;
    Buf out = { 0 };
    if (!json_parse(&v, vars, strlen(vars), &mem, &err)) __builtin_trap();
    Jinja *j = jinja_compile((const char *)data, n, &mem, NULL, &err);
    JinjaLimits limits = { .steps = 20000, .bytes = 1 << 20 };
    bool ok = j && jinja_render(j, &v, &limits, &out, NULL, &err);
    if (!ok && (!err.msg[0] || out.n)) __builtin_trap();
    buf_free(&out);
    mem_free(&mem);
    return 0;
}
