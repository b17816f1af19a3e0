/* file_map.c - files read by mapping them, and what happens when one becomes shorter meanwhile: the kernel then answers
 * a read behind its new end with SIGBUS.  A handler finds the file by the address, says so in one line and ends the
 * program; it only reads the list of mappings and calls write and _exit, which a signal may.  The list is this file's
 * one variable: a handler has no arguments. */
#include "base/file.h"
#include "base/last_words.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Places are taken again but never given back, so the handler may walk the list whatever other threads do. */
typedef struct Place {
    struct Place *next;
    _Atomic uintptr_t from;
    atomic_size_t n; /* 0: free */
    atomic_bool taken;
    char path[512]; /* its end, where it is longer */
} Place;

static _Atomic(Place *) places;

static bool remember(const FileMap *m, const char *path) {
    Place *p = atomic_load(&places);
    for (; p; p = p->next)
        if (!atomic_exchange(&p->taken, true)) break;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) return false;
        atomic_init(&p->taken, true);
        p->next = atomic_load(&places);
        while (!atomic_compare_exchange_weak(&places, &p->next, p)) {}
    }
    size_t len = strlen(path), most = sizeof p->path - 1, skip = len > most ? len - most : 0;
    memcpy(p->path, path + skip, len - skip + 1);
    atomic_store(&p->from, (uintptr_t)m->data);
    atomic_store(&p->n, m->n);
    return true;
}

static void forget(const FileMap *m) {
    for (Place *p = atomic_load(&places); p; p = p->next)
        if (atomic_load(&p->n) && atomic_load(&p->from) == (uintptr_t)m->data) {
            atomic_store(&p->n, 0);
            atomic_store(&p->taken, false);
            return;
        }
}

static void on_bus(int sig, siginfo_t *info, void *context) {
    static atomic_bool said; /* by another thread that met it too */
    uintptr_t at = (uintptr_t)info->si_addr;
    (void)context;
    for (Place *p = atomic_load(&places); p; p = p->next) {
        uintptr_t from = atomic_load(&p->from), n = atomic_load(&p->n);
        if (!n || at < from || at - from >= n) continue;
        if (!atomic_exchange(&said, true))
            last_words_in_signal(
                p->path, ": cannot be read to its end: it became shorter while it was being read, or the disk failed");
        _exit(1);
    }
    signal(sig, SIG_DFL); /* not of a file: the read happens again, and ends the program as usual */
}

void file_map_guard(void) {
    struct sigaction sa = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
    sigaction(SIGBUS, &sa, NULL);
}

static bool fail(Err *err, const char *what, const char *path) {
    return err_set(err, "%s: cannot %s: %s", path, what, strerror(errno));
}

bool file_map(FileMap *out, const char *path, Err *err) {
    *out = (FileMap){ 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail(err, "open", path);
    struct stat st;
    bool ok = true;
    if (fstat(fd, &st)) ok = fail(err, "look at", path);
    else if (!S_ISREG(st.st_mode)) ok = err_set(err, "%s: not a file", path);
    else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) ok = fail(err, "map", path);
        else {
            *out = (FileMap){ p, (size_t)st.st_size };
            if (!remember(out, path)) munmap(p, out->n), *out = (FileMap){ 0 }, ok = fail(err, "map", path);
        }
    }
    close(fd);
    return ok;
}

void file_unmap(FileMap *m) {
    if (m->data) {
        forget(m);
        munmap((void *)(uintptr_t)m->data, m->n);
    }
    *m = (FileMap){ 0 };
}
