/* wrapped.c - the same refusals as failing.c's, linked into the program (build/shims/hone, made with the
 * linker's --wrap): for builds with a sanitizer, whose own malloc must be the first that is preloaded.
 * Calls that libc makes for itself are not met. */
#include "shim/refuse.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#define WRAPPED(type, name, none, params, args)                                                                        \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params { return refused() ? (errno = ENOMEM, none) : __real_##name args; }

WRAPPED(void *, malloc, NULL, (size_t n), (n))
WRAPPED(void *, calloc, NULL, (size_t n, size_t each), (n, each))
WRAPPED(void *, realloc, NULL, (void *p, size_t n), (p, n))
WRAPPED(void *, mmap, MAP_FAILED, (void *p, size_t n, int prot, int flags, int fd, off_t offset),
        (p, n, prot, flags, fd, offset))
WRAPPED(int, pthread_create, EAGAIN, (pthread_t * t, const pthread_attr_t *a, void *(*start)(void *), void *arg),
        (t, a, start, arg))

__attribute__((constructor)) static void begin(void) { arm(); }
