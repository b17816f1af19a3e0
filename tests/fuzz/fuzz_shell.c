/* fuzz_shell.c - any bytes as a launch script: an error or launches, soon, and no file is touched. */
#include "import/shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *const args[] = { "vllm", "trainer.nnodes=2" };
    const ShellVar vars[] = { { "HOME", "/home/u" }, { "NNODES", "4" } };
    ShellIn in = { .path = "run.sh",
                   .text = (const char *)data,
                   .n = n,
                   .cwd = "/work",
                   .vars = vars,
                   .n_vars = 2,
                   .args = args,
                   .n_args = 2,
                   .cores = 8 };
    ShellOut out = { 0 };
    Mem mem = { 0 };
    Err err;
    shell_read(&out, &in, &mem, &err);
    shell_out_free(&out);
    mem_free(&mem);
    return 0;
}
