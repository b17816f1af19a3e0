/* fuzz_gguf.c - any bytes are a GGUF file or an error of one line; every byte that a tensor claims is there, and what
 * is made of the metadata is JSON. */
#include "base/json.h"
#include "file/gguf_tensors.h"
#include "param/blocks.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void one_line(const Err *err) { CHECK(err->msg[0] && !strchr(err->msg, '\n'), "no message"); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool (*const make[])(Buf *, const Gguf *, Err *) = { gguf_config, gguf_generation, gguf_tokenizer,
                                                                gguf_tokenizer_config };
    Mem mem = { 0 };
    Err err = { "" };
    Gguf g;
    StFiles f;
    if (!gguf_parse(&g, (const char *)data, n, "fuzz", &mem, &err)) one_line(&err);
    else
        for (size_t i = 0; i < COUNT(make); i++) {
            Buf out = { 0 };
            Json j;
            err.msg[0] = 0;
            if (!make[i](&out, &g, &err)) one_line(&err);
            else if (!json_parse(&j, out.data, out.n, &mem, &err)) /* a key twice, at most: tokens are anybody's */
                CHECK(i == 2 && strstr(err.msg, "occurs twice"), "%zu: %s", i, err.msg);
            buf_free(&out);
        }
    err.msg[0] = 0;
    if (n < 4 || memcmp(data, "GGUF", 4)) {
    } else if (!st_parse(&f, (const char *)data, n, "fuzz", &mem, &err)) one_line(&err);
    else
        for (size_t i = 0; i < f.n; i++) {
            const StTensor *t = &f.at[i];
            float x[BLOCK_MOST];
            CHECK(t->bytes == dtype_bytes(t->dtype, t->count), "tensor %zu", i);
            CHECK(t->data >= (const char *)data && t->data + t->bytes <= (const char *)data + n,
                  "tensor %zu lies outside", i);
            for (size_t at = 0; dtype_blocks(t->dtype) && at < t->bytes; at += (size_t)dtype_block(t->dtype).bytes)
                block_read(t->dtype, x, t->data + at);
        }
    mem_free(&mem);
    return 0;
}
