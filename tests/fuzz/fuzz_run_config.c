/* fuzz_run_config.c - any bytes as a configuration file: an error or a Config whose dump loads again. */
#include "base/base.h"
#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    Config c, d;
    Err err;
    if (!config_load_text(&c, n % 2 ? CONF_TRAIN : CONF_SFT, "fuzz.yaml", (const char *)data, n, NULL, 0, &err))
        return 0;
    Buf b = { 0 };
    config_dump(&b, &c, DUMP_ALL);
    CHECK(config_load_text(&d, c.verb, "dump", b.data, b.n, NULL, 0, &err), "%s", err.msg);
    config_free(&c);
    config_free(&d);
    buf_free(&b);
    return 0;
}
