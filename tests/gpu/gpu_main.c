/* gpu_main.c - hone_gpu_test [few|here] [f32|bf16] [part of a name] ... [-- arguments of the tests]: every test of a
 * GPU, each in a process of its own, so that one that dies or hangs does not stop the rest.  few: fewer shapes, in this
 * very process, and memory as it comes: for a sanitizer, which does not see into a process that forks and goes on;
 * here: in this process, as a rank that mpirun started must be; hone_gpu_test plant FAULT does what it must report.
 * One program, to be carried to a bare machine with libhone_cuda.so beside it; tests of whole models want the folder
 * tests/data/models below the current one. */
#include "backend.h"
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
bool gpu_test_few;

/* A tensor that goes on behind its block, written; a block that nobody has written, read. */
static int plant(const char *fault) {
    enum { N = 1024 };
    Dev d;
    float got[N];
    gpu_test_few = true;
    test_device(&d, 1, false);
    Tensor there = tensor_over(dev_block(&d, N * 4), DT_F32, 1, N), x = tensor_over(dev_block(&d, N * 4), DT_F32, 1, N);
    Tensor behind = tensor_over((char *)x.data + N * 2, DT_F32, 1, N);
    op_zero(&d, there);
    if (!strcmp(fault, "write")) op_add(&d, behind, there, there);
    else op_add(&d, there, there, x);
    op_get(&d, got, there);
    dev_close(&d);
    return 0;
}

static bool here(size_t i, int argc, char **argv) {
    printf("%s%s: ", list[i].name, !list[i].both ? "" : gpu_test_act == DT_F32 ? " f32" : " bf16");
    return list[i].run(argc, argv) == 0;
}
static bool one(size_t i, int argc, char **argv) {
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    printf("%s%s: ", list[i].name, !list[i].both ? "" : gpu_test_act == DT_F32 ? " f32" : " bf16");
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        alarm(500);
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
    if (argc == 3 && !strcmp(argv[1], "plant")) return plant(argv[2]);
    gpu_test_few = argc > 1 && !strcmp(argv[1], "few");
    bool stays = gpu_test_few || (argc > 1 && !strcmp(argv[1], "here"));
    if (stays) argc--, argv++;
    bool f32 = argc > 1 && !strcmp(argv[1], "f32"), bf16 = argc > 1 && !strcmp(argv[1], "bf16"); /* only these */
    if (f32 || bf16) argc--, argv++;
    while (names < argc && strcmp(argv[names], "--")) names++; /* "--" then stands for the program's name */
    for (size_t i = 0; i < COUNT(list); i++) {
        bool wanted = names == 1;
        for (int k = 1; k < names; k++) wanted |= strstr(list[i].name, argv[k]) != NULL;
        for (int half = 0; wanted && half <= list[i].both; half++) {
            if (list[i].both && (half ? f32 : bf16)) continue;
            gpu_test_act = half ? DT_BF16 : DT_F32;
            ran++, bad += !(stays ? here : one)(i, names < argc ? argc - names : 1, argv + (names < argc ? names : 0));
        }
    }
    if (!stays || gpu_test_few) printf("%d of %d tests of the GPU passed\n", ran - bad, ran);
    return bad != 0;
}
