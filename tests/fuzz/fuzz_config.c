/* fuzz_config.c - any bytes are a model's config or an error of one line; a model that is accepted can be counted, its
 * table walked and its rope computed without overflow. */
#include "arch/arch.h"

#include <math.h>
#include <string.h>

static void walk(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)p, (void)layer;
    int64_t *sum = user, n;
    CHECK(rows > 0 && cols > 0 && experts > 0, "a parameter without elements");
    CHECK(!__builtin_mul_overflow(experts * rows, cols, &n) && !__builtin_add_overflow(*sum, n, sum),
          "too many elements");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    Mem mem = { 0 };
    Err err = { "" };
    ModelDesc m;
    if (!model_desc_parse(&m, (const char *)data, n, &mem, &err))
        CHECK(err.msg[0] && !strchr(err.msg, '\n'), "no message");
    else {
        int64_t sum = 0;
        arch_each_row(&m, walk, &sum);
        CHECK(sum == arch_param_count(&m) && sum < INT64_MAX / 8 && arch_active_count(&m) <= sum, "counts");
        float freq[4096], amp;
        arch_rope(&m, freq, &amp);
        for (int64_t i = 0; i < arch_rope_dim(&m) / 2; i++) CHECK(isfinite(freq[i]), "frequency %ld", (long)i);
        CHECK(isfinite(amp) && isfinite(arch_attn_scale(&m)) && amp > 0 && arch_attn_scale(&m) > 0, "scale");
    }
    mem_free(&mem);
    return 0;
}
