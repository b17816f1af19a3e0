/* failing.c - a library to be preloaded by tests: memory that is refused at the k-th call, and files that shrink once
 * they are mapped.  Calls are counted from main on, whatever library makes them.
 *   SHIM_AT=K       the K-th call for memory (malloc and its relatives, mmap, pthread_create)
 *                   fails; SHIM_FROM=K: it and all behind it
 *   SHIM_COUNT=FILE how many there were, written there at the end
 *   SHIM_SHRINK=S   a file whose path holds S is cut to SHIM_KEEP bytes as soon as it is mapped */
#include "shim/refuse.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static const char *shrink;
static long keep;

/* The next library's function of that name.  dlsym may itself ask for memory before there is
 * a next malloc: a few bytes of our own. */
static char early[4096];
static size_t early_used;
static void *early_take(size_t n) {
    void *p = early + early_used;
    early_used += (n + 15) & ~(size_t)15;
    return early_used <= sizeof early ? p : NULL;
}
static int is_early(const void *p) { return (const char *)p >= early && (const char *)p < early + sizeof early; }

#define NEXT(name)                                                                                                     \
    static __typeof__(name) *next;                                                                                     \
    static __thread int looking;                                                                                       \
    if (!next && !looking) {                                                                                           \
        union {                                                                                                        \
            void *object; /* ISO C has no way from one to the other */                                                 \
            __typeof__(name) *function;                                                                                \
        } found;                                                                                                       \
        looking = 1, found.object = dlsym(RTLD_NEXT, #name), next = found.function, looking = 0;                       \
    }

void *malloc(size_t n) {
    NEXT(malloc)
    if (!next) return early_take(n);
    if (refused()) return errno = ENOMEM, NULL;
    return next(n);
}
void *calloc(size_t n, size_t each) {
    NEXT(calloc)
    if (!next) return early_take(n * each);
    if (refused()) return errno = ENOMEM, NULL;
    return next(n, each);
}
void *realloc(void *p, size_t n) {
    NEXT(realloc)
    if (is_early(p) || !next) {
        void *to = malloc(n);
        if (to && p) memcpy(to, p, n);
        return to;
    }
    if (refused()) return errno = ENOMEM, NULL;
    return next(p, n);
}
void free(void *p) {
    NEXT(free)
    if (p && !is_early(p) && next) next(p);
}
int posix_memalign(void **out, size_t align, size_t n) {
    NEXT(posix_memalign)
    return refused() ? ENOMEM : next(out, align, n);
}
void *aligned_alloc(size_t align, size_t n) {
    NEXT(aligned_alloc)
    if (refused()) return errno = ENOMEM, NULL;
    return next(align, n);
}

static void cut(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return;
    path[n] = 0;
    if (strstr(path, shrink) && truncate(path, keep)) perror(path);
}
void *mmap(void *addr, size_t n, int prot, int flags, int fd, off_t offset) {
    NEXT(mmap)
    if (refused()) return errno = ENOMEM, MAP_FAILED;
    void *p = next(addr, n, prot, flags, fd, offset);
    if (shrink && fd >= 0 && p != MAP_FAILED) cut(fd);
    return p;
}
int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
    NEXT(pthread_create)
    return refused() ? EAGAIN : next(t, attr, start, arg);
}

/* What the system's loader asks for is not the program's: glibc's does not survive a refusal. */
void *dlopen(const char *path, int flags) {
    NEXT(dlopen)
    int was = atomic_exchange(&armed, 0);
    void *lib = next(path, flags);
    atomic_store(&armed, was);
    return lib;
}

static int (*real_main)(int, char **, char **);
static int counted_main(int argc, char **argv, char **env) {
    const char *k = getenv("SHIM_KEEP");
    keep = k ? atol(k) : 0, shrink = getenv("SHIM_SHRINK");
    unsetenv("LD_PRELOAD"); /* scorers and shells that are started are not meant */
    arm();
    return real_main(argc, argv, env);
}
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*end)(void), void *stack);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*end)(void), void *stack) {
    NEXT(__libc_start_main)
    real_main = main;
    return next(counted_main, argc, argv, init, fini, end, stack);
}
