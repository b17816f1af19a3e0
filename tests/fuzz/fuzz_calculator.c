/* fuzz_calculator.c - any text is a value or an error that says why; a value's own text has that value. */
#include "tool/tool.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    Buf one = { 0 }, two = { 0 };
    bool ok = calculate((Span){ (const char *)data, n }, &one);
    CHECK(one.n, "no answer");
    if (!ok) CHECK(!strncmp(one.data, "Error: ", 7), "a failure without its reason: %s", one.data);
    else if (one.n < 1500) { /* numbers that are read have 2000 digits at most */
        CHECK(calculate((Span){ one.data, one.n }, &two), "%s is not read: %s", one.data, two.data);
        CHECK(one.n == two.n && !memcmp(one.data, two.data, one.n), "%s is %s", one.data, two.data);
    }
    buf_free(&one);
    buf_free(&two);
    return 0;
}
