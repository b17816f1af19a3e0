/* share.c - a rank's memory made a file without a name (memfd) in the same place; the others of its machine find it in
 * /proc and map it.  Where they may not look there, as between containers, all of it fails. */
#include "comm/share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum { HUGE_PAGE = 1 << 21, PAGE = 4096 };
typedef struct {
    int64_t node, pid, fd;
    uint64_t bytes, device, inode; /* two files are the same if all three are */
} File;

static bool cannot(Err *err, const char *what) { return err_set(err, "%s: %s", what, strerror(errno)); }

/* Piece by piece, so that little of it is there twice at any time. */
static bool move_into(int fd, char *base, size_t bytes, Err *err) {
    for (size_t at = 0; at < bytes; at += HUGE_PAGE) {
        size_t n = bytes - at < HUGE_PAGE ? bytes - at : HUGE_PAGE;
        char *there = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
        if (there == MAP_FAILED) return cannot(err, "mmap");
        memcpy(there, base + at, n);
        if (mremap(there, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, base + at) == MAP_FAILED) die_memory(n);
    }
    madvise(base, bytes, MADV_COLLAPSE); /* into huge pages, as it was; without them it is only slower */
    return true;
}

static bool give_away(File *mine, char *base, Err *err) {
    struct stat st;
    CHECK((uintptr_t)base % PAGE == 0, "memory at %p is not on a page's border", (void *)base);
    if ((mine->fd = memfd_create("hone-weights", MFD_CLOEXEC)) < 0) return cannot(err, "memfd_create");
    if (ftruncate((int)mine->fd, (off_t)mine->bytes) || fstat((int)mine->fd, &st)) return cannot(err, "memfd");
    mine->device = st.st_dev, mine->inode = st.st_ino;
    return move_into((int)mine->fd, base, mine->bytes, err);
}

static bool look_at(Share *to, const File *x, Err *err) {
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%ld/fd/%ld", (long)x->pid, (long)x->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return cannot(err, path);
    bool same = !fstat(fd, &st) && st.st_dev == x->device && st.st_ino == x->inode && (uint64_t)st.st_size == x->bytes;
    /* on a huge page's border: it is read through as few entries as the owner's is */
    size_t room = x->bytes + HUGE_PAGE;
    char *p = same ? mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : MAP_FAILED;
    if (p != MAP_FAILED) {
        size_t skip = (size_t)(-(uintptr_t)p & (HUGE_PAGE - 1));
        if (skip) munmap(p, skip);
        if (skip < HUGE_PAGE) munmap(p + skip + x->bytes, HUGE_PAGE - skip);
        p = mmap(p + skip, x->bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    }
    close(fd);
    if (!same) return err_set(err, "%s is another process's", path);
    if (p == MAP_FAILED) return cannot(err, "mmap");
    *to = (Share){ p, x->bytes, true };
    return true;
}

bool share_open(Share *of, const World *w, void *base, size_t bytes, Err *err) {
    const Comm *all = &w->all;
    Mem mem = { 0 };
    File *where = MEM_ARRAY(&mem, File, (size_t)all->size);
    File mine = { .node = w->node, .pid = getpid(), .fd = -1, .bytes = (bytes + PAGE - 1) & ~(size_t)(PAGE - 1) };
    memset(of, 0, (size_t)all->size * sizeof *of);
    bool ok = comm_agree(all, give_away(&mine, base, err), err);
    if (ok) {
        comm_gather_host(all, where, &mine, sizeof mine);
        for (int r = 0; r < all->size && ok; r++)
            if (r != all->rank && where[r].node == mine.node) ok = look_at(&of[r], &where[r], err);
        ok = comm_agree(all, ok, err); /* and all have looked: the file may close */
    }
    if (mine.fd >= 0) close((int)mine.fd);
    if (!ok) share_close(of, all->size);
    mem_free(&mem);
    return ok;
}

void share_close(Share *of, int n) {
    for (int r = 0; r < n; r++) {
        if (of[r].at) munmap((void *)(uintptr_t)of[r].at, of[r].bytes);
        of[r] = (Share){ 0 };
    }
}
