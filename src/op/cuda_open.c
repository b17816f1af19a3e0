/* cuda_open.c - the CUDA backend is a library beside the program, opened when it is asked
 * for: the program runs where there is none. */
#include "op/cuda_open.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool beside(char *path, size_t size) {
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n <= 0) return false;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    return slash
           && snprintf(slash + 1, size - (size_t)(slash + 1 - path), "libhone_cuda.so")
                  < (int)(size - (size_t)(slash + 1 - path));
}

/* It stays open: the driver's own threads live in it. */
static CudaState library(void **lib, Err *err) {
    char path[4096];
    if (!beside(path, sizeof path) || access(path, F_OK)) {
        err_set(err, "this build has no CUDA backend (libhone_cuda.so beside the program)");
        return CUDA_ABSENT;
    }
    *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*lib) return CUDA_READY;
    const char *why = dlerror();
    bool driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver) err_set(err, "the CUDA backend does not load (%s): install that library, or use --device cpu", why);
    else err_set(err, "no GPU driver is installed");
    return driver ? CUDA_FAILS : CUDA_ABSENT;
}

bool dev_open_cuda(Dev *d, CudaOpts o, bool *absent, Err *err) {
    void *lib = NULL;
    memset(d, 0, sizeof *d);
    cuda_load_eagerly();
    CudaState s = library(&lib, err);
    if (s == CUDA_READY) {
        CudaOpen *open = (CudaOpen *)(intptr_t)dlsym(lib, "hone_cuda_open");
        CHECK(open, "libhone_cuda.so has no hone_cuda_open");
        s = open(d, &o, CUDA_SIZES, err);
    }
    if (absent) *absent = s == CUDA_ABSENT;
    return s == CUDA_READY;
}

bool dev_kind_cuda(DevKind *k, DType act, Err *err) {
    void *lib = NULL;
    if (library(&lib, err) != CUDA_READY) return false;
    CudaOpen *open = (CudaOpen *)(intptr_t)dlsym(lib, "hone_cuda_open");
    CudaTable *table = (CudaTable *)(intptr_t)dlsym(lib, "hone_cuda_ops");
    CHECK(open && table, "libhone_cuda.so lacks hone_cuda_open or hone_cuda_ops");
    if (open(NULL, NULL, CUDA_SIZES, err) != CUDA_READY) return false;
    *k = (DevKind){ table(), act };
    return true;
}
