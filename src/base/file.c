/* file.c - files read, mapped, written beside and renamed; lines one by one; folders. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(Err *err, const char *what, const char *path) {
    return err_set(err, "%s: cannot %s: %s", path, what, strerror(errno));
}

static ssize_t read_some(int fd, void *to, size_t n) {
    for (;;) {
        ssize_t got = read(fd, to, n);
        if (got >= 0 || errno != EINTR) return got;
    }
}

static int open_read(const char *path) { return !strcmp(path, "-") ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC); }

bool file_read(Buf *out, const char *path, Err *err) {
    int fd = open_read(path);
    if (fd < 0) return fail(err, "open", path);
    enum { ENDLESS = 1 << 30 };
    struct stat st;
    bool endless = !fstat(fd, &st) && !S_ISREG(st.st_mode), ok = true;
    ssize_t got = 0;
    buf_clear(out);
    do {
        buf_reserve(out, 1 << 16);
        got = read_some(fd, out->data + out->n, out->cap - out->n - 1);
        if (got > 0) out->n += (size_t)got;
        if (endless && out->n > ENDLESS) ok = err_set(err, "%s: more than 1 GiB, and not a file", path);
    } while (got > 0 && ok);
    out->data[out->n] = 0;
    if (got < 0) ok = fail(err, "read", path);
    if (fd != STDIN_FILENO) close(fd);
    return ok;
}

bool dir_sync(const char *path, Err *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail(err, "open", path);
    int rc = fsync(fd);
    close(fd);
    return rc == 0 || fail(err, "sync", path);
}

static bool write_all(int fd, const char *data, size_t n) {
    while (n) {
        ssize_t did = write(fd, data, n);
        if (did < 0 && errno == EINTR) continue;
        if (did < 0) return false;
        data += did;
        n -= (size_t)did;
    }
    return true;
}

/* ---- beside: a lock says whether somebody is still at work there; a process number would not, in containers and on
 * shared disks */
/* A link is what is removed, not what it leads to. */
static void remove_at(int dir, const char *name, bool deep) {
    if (!unlinkat(dir, name, 0) || (errno != EISDIR && errno != EPERM)) return; /* EPERM: a folder, says POSIX */
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (deep) remove_at(fd, e->d_name, true);
        else unlinkat(fd, e->d_name, 0);
    }
    if (d) closedir(d);
    else if (fd >= 0) close(fd);
    unlinkat(dir, name, AT_REMOVEDIR);
}

void dir_remove(const char *path) { remove_at(AT_FDCWD, path, false); }
void tree_remove(const char *path) { remove_at(AT_FDCWD, path, true); }

static bool is_beside(const char *name, const char *base) {
    size_t n = strlen(base);
    if (strncmp(name, base, n) || (strncmp(name + n, ".tmp-", 5) && strncmp(name + n, ".tmp.", 5))) return false;
    size_t digits = strspn(name + n + 5, "0123456789");
    return digits && !name[n + 5 + digits];
}

static void sweep(const char *dir, const char *base) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_beside(e->d_name, base)) continue;
        int fd = openat(dirfd(d), e->d_name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) fd = openat(dirfd(d), e->d_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB)) remove_at(dirfd(d), e->d_name, false);
        if (fd >= 0) close(fd);
    }
    if (d) closedir(d);
}

static void folder_of(Buf *dir, const char *path) {
    const char *slash = strrchr(path, '/');
    if (slash) buf_put(dir, path, slash > path ? (size_t)(slash - path) : 1);
    else buf_puts(dir, ".");
}

static int beside(Buf *name, const char *path, bool folder) {
    Buf dir = { 0 };
    const char *slash = strrchr(path, '/');
    folder_of(&dir, path);
    sweep(dir.data, slash ? slash + 1 : path);
    buf_free(&dir);
    for (long number = (long)getpid();; number++) { /* what has the name, a link too, is not ours: the next number */
        buf_clear(name);
        buf_printf(name, "%s.tmp-%ld", path, number);
        if (folder && mkdir(name->data, 0755)) {
            if (errno != EEXIST) return -1;
            continue;
        }
        int how = folder ? O_RDONLY | O_DIRECTORY : O_WRONLY | O_CREAT | O_EXCL;
        int fd = open(name->data, how | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0 && !folder && errno != EEXIST) return -1;
        if (fd < 0 && folder && errno != ENOENT && errno != ELOOP && errno != ENOTDIR) return -1;
        struct stat st;
        bool lost = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; /* (some disks have no locks) */
        if (fd >= 0 && !lost && !fstat(fd, &st) && st.st_nlink) return fd;
        if (fd >= 0) close(fd); /* swept away before it was locked */
    }
}

int file_beside(Buf *name, const char *path) { return beside(name, path, false); }
int dir_beside(Buf *name, const char *path) { return beside(name, path, true); }

bool file_write(const char *path, const void *data, size_t n, Err *err) {
    Buf tmp = { 0 }, dir = { 0 };
    folder_of(&dir, path);
    bool ok = false;
    int fd = file_beside(&tmp, path);
    if (fd < 0) fail(err, "create", tmp.data);
    else {
        ok = (write_all(fd, data, n) && fsync(fd) == 0) || fail(err, "write", tmp.data);
        if (ok && rename(tmp.data, path)) ok = fail(err, "rename into place", path);
        if (!ok) unlink(tmp.data);
        close(fd);
        if (ok) ok = dir_sync(dir.data, err);
    }
    buf_free(&tmp);
    buf_free(&dir);
    return ok;
}

bool file_exists(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

bool dir_exists(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool dir_make(const char *path, Err *err) {
    Buf b = { 0 };
    bool ok = true;
    for (size_t i = 1; ok; i++) {
        if (path[i - 1] && path[i] && path[i] != '/') continue;
        if (path[0] == 0) break;
        buf_clear(&b);
        buf_put(&b, path, i);
        if (mkdir(b.data, 0755) && errno != EEXIST) ok = fail(err, "create the folder", b.data);
        if (!path[i]) break;
    }
    if (ok && !dir_exists(path)) ok = err_set(err, "%s: is there, but is not a folder", path);
    buf_free(&b);
    return ok;
}

bool dir_take_place(const char *tmp, const char *path, const char *aside, Err *err) {
    struct stat st;
    if (lstat(path, &st)) return !rename(tmp, path) || fail(err, "rename into place", path);
    if (!renameat2(AT_FDCWD, tmp, AT_FDCWD, path, RENAME_EXCHANGE)) return true;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return fail(err, "rename into place", path);
    if (rename(path, aside)) return fail(err, "move out of the way", path); /* a file system that cannot exchange */
    if (!rename(tmp, path)) return true;
    fail(err, "rename into place", path);
    rename(aside, path);
    return false;
}

/* ---- lines */
struct LineReader {
    Mem mem;
    Buf buf;
    size_t at, scanned; /* start of the next line; how far behind it no newline was found */
    int64_t lines;      /* given so far */
    int fd, error;
    bool end, endless;
    char *path;
};

LineReader *lines_open(const char *path, Err *err) {
    int fd = open_read(path);
    if (fd < 0) {
        fail(err, "open", path);
        return NULL;
    }
    Mem mem = { 0 };
    LineReader *r = MEM_NEW(&mem, LineReader);
    r->fd = fd;
    r->path = mem_str(&mem, path, strlen(path));
    r->mem = mem;
    return r;
}

bool lines_next(LineReader *r, const char **line, size_t *n) {
    for (;;) {
        char *from = r->buf.data ? r->buf.data + r->at : NULL;
        size_t have = r->buf.n - r->at;
        char *nl = from && have > r->scanned ? memchr(from + r->scanned, '\n', have - r->scanned) : NULL;
        if (nl || (r->end && have)) {
            size_t len = nl ? (size_t)(nl - from) : have;
            r->at += len + (nl != NULL);
            r->scanned = 0;
            r->lines++;
            if (len && from[len - 1] == '\r') len--;
            from[len] = 0;
            *line = from;
            *n = len;
            return true;
        }
        if (r->end) return false;
        if (have > LINE_MOST) {
            r->end = r->endless = true;
            r->at = r->buf.n = 0;
            return false;
        }
        r->scanned = have;
        if (r->at > 0) {
            memmove(r->buf.data, from, have);
            r->buf.n = have;
            r->at = 0;
        }
        buf_reserve(&r->buf, 1 << 16);
        ssize_t got = read_some(r->fd, r->buf.data + r->buf.n, r->buf.cap - r->buf.n - 1);
        if (got < 0) r->error = errno;
        if (got <= 0) r->end = true;
        else r->buf.n += (size_t)got;
    }
}

bool lines_close(LineReader *r, Err *err) {
    if (!r) return true;
    bool ok = !r->error || err_set(err, "%s: cannot read: %s", r->path, strerror(r->error));
    if (r->endless)
        ok = err_set(err, "%s line %lld: longer than %d MiB", r->path, (long long)r->lines + 1, LINE_MOST >> 20);
    if (r->fd != STDIN_FILENO) close(r->fd);
    buf_free(&r->buf);
    Mem mem = r->mem;
    mem_free(&mem);
    return ok;
}
