/* test_device.c - what a driver can say of its GPUs, each answer judged as auto needs it: absent, failing (with a
 * remedy) or there. */
#include "op/cuda_found.h"
#include "test.h"

#define DRIVER .driver = 13000, .needs = 13000
static const struct {
    CudaFound f;
    CudaState s;
    const char *said; /* words of the message */
} cases[] = {
    { { .driver = 0, .needs = 13000, .counting = "stub" }, CUDA_ABSENT, "no GPU driver" },
    { { DRIVER, .counting = "no device", .none = true }, CUDA_ABSENT, "no GPU is visible" },
    { { DRIVER, .count = 0 }, CUDA_ABSENT, "no GPU is visible" },
    { { .driver = 12040, .needs = 13000, .counting = "old", .old = true },
      CUDA_FAILS,
      "12.4, this build needs 13.0: install a newer driver, or use --device cpu" },
    { { DRIVER, .counting = "unknown error" },
      CUDA_FAILS,
      "does not answer (unknown error): see nvidia-smi, or use --device cpu" },
    { { DRIVER, .count = 1, .wanted = 1 }, CUDA_ABSENT, "GPU 1 was asked for, 1 is visible" },
    { { DRIVER, .count = 8, .wanted = 8 }, CUDA_ABSENT, "GPU 8 was asked for, 8 are visible" },
    { { DRIVER, .count = 1, .asking = "ECC" },
      CUDA_FAILS,
      "GPU 0 does not answer (ECC): see nvidia-smi, or use --device cpu" },
    { { DRIVER, .count = 1, .name = "A100", .major = 8 },
      CUDA_ABSENT,
      "(A100) has capability 8.0; this build is for 9.0" },
    { { DRIVER, .count = 1, .name = "B200", .major = 10 }, CUDA_ABSENT, "(B200) has capability 10.0" },
    { { DRIVER, .count = 1, .name = "odd", .major = 9, .minor = 1 }, CUDA_ABSENT, "9.1; this build is for 9.0" },
    { { DRIVER, .count = 2, .wanted = 1, .name = "H200", .major = 9 }, CUDA_READY, "" },
};

int main(void) {
    for (size_t i = 0; i < COUNT(cases); i++) {
        Err err = { 0 };
        CudaState s;
        if (cuda_counted(&cases[i].f, &s, &err)) cuda_answered(&cases[i].f, &s, &err);
        EXPECT(s == cases[i].s && strstr(err.msg, cases[i].said), "case %zu: state %d, %d wanted: \"%s\"", i, (int)s,
               (int)cases[i].s, err.msg);
    }
    return test_end();
}
