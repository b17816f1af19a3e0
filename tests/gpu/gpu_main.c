/* gpu_main.c - hone_gpu_test [part of a name] ...: every test of a GPU, each in a process of its own, so that one that dies or hangs does not
 * stop the rest.  One program, to be carried to a bare machine with libhone_cuda.so beside it. */
#include "test.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GPU_TEST(name) int name(int argc, char **argv);
#include "gpu_list.h"
#undef GPU_TEST
static const struct {
    const char *name;
    int (*run)(int, char **);
} list[] = {
#define GPU_TEST(name) { #name, name },
#include "gpu_list.h"
#undef GPU_TEST
};

static bool wanted(const char *name, int argc, char **argv) {
    bool any = argc < 2;
    for (int i = 1; i < argc; i++) any |= strstr(name, argv[i]) != NULL;
    return any;
}

int main(int argc, char **argv) {
    int bad = 0, ran = 0;
    for (size_t i = 0; i < COUNT(list); i++) {
        if (!wanted(list[i].name, argc, argv)) continue;
        struct timespec t0, t1;
        clock_gettime(CLOCK_MONOTONIC, &t0);
        printf("%s: ", list[i].name);
        fflush(stdout);
        pid_t p = fork();
        if (p == 0) {
            char *one[] = { argv[0], NULL };
            alarm(120);
            int rc = list[i].run(1, one);
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
        bad += !ok, ran++;
    }
    printf("%d of %d tests of the GPU passed\n", ran - bad, ran);
    return bad != 0;
}
