/* fuzz_safetensors.c - any bytes are a safetensors file or an error of one line; every byte
 * that a tensor claims is there. */
#include "file/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    Mem mem = { 0 };
    Err err = { "" };
    StFiles f;
    unsigned sum = 0;
    if (!st_parse(&f, (const char *)data, n, "fuzz", &mem, &err))
        CHECK(err.msg[0] && !strchr(err.msg, '\n'), "no message");
    else
        for (size_t i = 0; i < f.n; i++) {
            const StTensor *t = &f.at[i];
            CHECK(st_find(&f, t->name) == t && t->bytes == (size_t)t->count * dtype_size(t->dtype), "tensor %zu", i);
            CHECK(t->data >= (const char *)data && t->data + t->bytes <= (const char *)data + n,
                  "tensor %zu lies outside", i);
            for (size_t k = 0; k < t->bytes; k++) sum += (unsigned char)t->data[k];
        }
    mem_free(&mem);
    return sum == 0xFFFFFFFF ? -1 : 0;
}
