/* fuzz_json.c - any bytes are JSON or an error with a message; what was read is written and
 * read again as the same text. */
#include "base/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    Mem mem = { 0 };
    Err err = { "" };
    Json j, again;
    if (!json_parse(&j, (const char *)data, n, &mem, &err)) CHECK(err.msg[0] && !strchr(err.msg, '\n'), "no message");
    else {
        Buf one = { 0 }, two = { 0 };
        json_put_value(&one, &j);
        CHECK(json_parse(&again, one.data, one.n, &mem, &err), "what was written is not read: %s", err.msg);
        json_put_value(&two, &again);
        CHECK(one.n == two.n && !memcmp(one.data, two.data, one.n), "the text changes when written again");
        buf_free(&one);
        buf_free(&two);
    }
    mem_free(&mem);
    return 0;
}
