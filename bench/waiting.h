/* waiting.h - multiprocessors taken away for a while: waiting.cu, launched by hand on a stream of its own, since the
 * backend has no such kernel.  The device must be open in this thread: its context is taken.  Kernels that begin
 * meanwhile must have run before: the driver may load new ones only when nothing runs. */
#ifndef BENCH_WAITING_H
#define BENCH_WAITING_H

#include "base/clock.h"
#include "op/cuda_open.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WAITING_MOST = 64, WAITING_SHARED = 120 << 10, WAITING_THREADS = 640 }; /* one block to a multiprocessor */
typedef struct { int go, where[WAITING_MOST]; } WaitingFlags;  /* where: the multiprocessor; -1: not come yet */
typedef struct {
    void *fn, *stream;
    WaitingFlags *flags;                /* in pinned memory, which has one address on both sides */
    int (*launch)(void *fn, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared, void *stream,
                  void **args, void **extra);
    int (*sync)(void *stream);
} Waiting;

static inline void waiting_open(Waiting *w) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
    CHECK(n > 0, "no /proc");
    path[n] = 0;
    strcpy(strrchr(path, '/') + 1, "waiting.cubin");
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *mod = NULL;
    CHECK(lib, "%s", dlerror());
    int rc;
#define DRIVER(name, types, ...)                                                                                       \
    do {                                                                                                               \
        int(*fn_) types = (int(*) types)(intptr_t)dlsym(lib, name);                                                    \
        CHECK(fn_, "the driver has no %s", name);                                                                      \
        rc = fn_(__VA_ARGS__);                                                                                         \
        CHECK(rc == 0, "%s: error %d", name, rc);                                                                      \
    } while (0)
    DRIVER("cuModuleLoad", (void **, const char *), &mod, path);
    DRIVER("cuModuleGetFunction", (void **, void *, const char *), &w->fn, mod, "waiting");
    DRIVER("cuFuncSetAttribute", (void *, int, int), w->fn, 8 /* most dynamic shared memory */, WAITING_SHARED);
    DRIVER("cuStreamCreate", (void **, unsigned), &w->stream, 1 /* non-blocking */);
    DRIVER("cuMemHostAlloc", (void **, size_t, unsigned), (void **)&w->flags, sizeof *w->flags, 3 /* mapped */);
#undef DRIVER
    w->launch = (int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                         void **))(intptr_t)dlsym(lib, "cuLaunchKernel");
    w->sync = (int (*)(void *))(intptr_t)dlsym(lib, "cuStreamSynchronize");
}
static inline int multiprocessors(void) { /* of the first GPU, as this program may have them */
    int n = 0;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    int (*attribute)(int *, int, int) =
        lib ? (int (*)(int *, int, int))(intptr_t)dlsym(lib, "cuDeviceGetAttribute") : NULL;
    return attribute && attribute(&n, 16, 0) == 0 ? n : 0;
}
/* So many multiprocessors are taken when it returns (0: nothing happens), and given back by the other. */
static inline void waiting_begin(Waiting *w, int blocks) {
    volatile WaitingFlags *f = w->flags;
    f->go = 0;
    if (!blocks) return;
    for (int i = 0; i < blocks; i++) f->where[i] = -1;
    int *go = &w->flags->go, *where = w->flags->where;
    void *args[] = { &go, &where };
    int rc = w->launch(w->fn, (unsigned)blocks, 1, 1, WAITING_THREADS, 1, 1, WAITING_SHARED, w->stream, args, NULL);
    CHECK(rc == 0, "a waiting kernel: error %d", rc);
    double t0 = clock_now();
    for (int i = 0; i < blocks; i++)
        while (f->where[i] < 0) CHECK(clock_now() - t0 < 10, "of %d waiting blocks one did not come in 10 s", blocks);
}
static inline void waiting_end(Waiting *w) {
    ((volatile WaitingFlags *)w->flags)->go = 1;
    int rc = w->sync(w->stream);
    CHECK(rc == 0, "a waiting kernel ended with error %d", rc);
}

#endif
