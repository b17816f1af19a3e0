/* gpu_main.c - hone_gpu_test [f32|bf16] [part of a name] ... [-- arguments of the tests]: every test of a GPU, each in a process of its own, so that one
 * that dies or hangs does not stop the rest.  One program, to be carried to a bare machine with libhone_cuda.so beside it; tests of whole
 * models want the folder tests/data/models below the current one. */
#include "tensor/tensor.h"
#include "test.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GPU_TEST(name, both) int name(int argc, char **argv);
#include "gpu_list.h"
#undef GPU_TEST
static const struct {
    const char *name;
    int (*run)(int, char **);
    bool both; /* in float32, and in bfloat16 */
} list[] = {
#define GPU_TEST(name, both) { #name, name, both },
#include "gpu_list.h"
#undef GPU_TEST
};
DType gpu_test_act = DT_F32;

static bool one(size_t i, int argc, char **argv) {
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    printf("%s%s: ", list[i].name, !list[i].both ? "" : gpu_test_act == DT_F32 ? " f32" : " bf16");
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        alarm(300);
        int rc = list[i].run(argc, argv);
        fflush(stdout);
        _exit(rc);
    }
    int st = 0;
    waitpid(p, &st, 0);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    bool ok = WIFEXITED(st) && WEXITSTATUS(st) == 0;
    if (!ok)
        printf("%s FAILED (%s %d)\n", list[i].name, WIFSIGNALED(st) ? "signal" : "exit",
               WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st));
    printf("    %.1f s\n", (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9);
    fflush(stdout);
    return ok;
}

int main(int argc, char **argv) {
    int bad = 0, ran = 0, names = 1;
    bool f32 = argc > 1 && !strcmp(argv[1], "f32"), bf16 = argc > 1 && !strcmp(argv[1], "bf16"); /* only these */
    if (f32 || bf16) argc--, argv++;
    while (names < argc && strcmp(argv[names], "--")) names++; /* "--" then stands for the program's name */
    for (size_t i = 0; i < COUNT(list); i++) {
        bool wanted = names == 1;
        for (int k = 1; k < names; k++) wanted |= strstr(list[i].name, argv[k]) != NULL;
        for (int half = 0; wanted && half <= list[i].both; half++) {
            if (list[i].both && (half ? f32 : bf16)) continue;
            gpu_test_act = half ? DT_BF16 : DT_F32;
            ran++, bad += !one(i, names < argc ? argc - names : 1, argv + (names < argc ? names : 0));
        }
    }
    printf("%d of %d tests of the GPU passed\n", ran - bad, ran);
    return bad != 0;
}
