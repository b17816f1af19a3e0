/* follow.c - lines of a file that grows, is cut, or is replaced. */
#include "page/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

void follow_open(Follow *f, const char *path) { *f = (Follow){ .path = path, .fd = -1 }; }

void follow_close(Follow *f) {
    if (f->fd >= 0) close(f->fd);
    buf_free(&f->rest);
    f->fd = -1;
}

bool follow_bytes(const Follow *f, int64_t at, size_t n, char *to) {
    while (n && f->fd >= 0) {
        ssize_t got = pread(f->fd, to, n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got, at += got, n -= (size_t)got;
    }
    return !n;
}

static void begin_anew(Follow *f) {
    int64_t anew = f->anew + 1;
    const char *path = f->path;
    follow_close(f);
    follow_open(f, path);
    f->anew = anew;
}

static bool tail_is_there(const Follow *f) {
    char now[FOLLOW_TAIL];
    return !f->tail_n
           || (follow_bytes(f, f->at - f->tail_n, (size_t)f->tail_n, now) && !memcmp(now, f->tail, (size_t)f->tail_n));
}

bool follow_look(Follow *f) {
    struct stat st;
    bool there = !stat(f->path, &st) && S_ISREG(st.st_mode);
    bool read_some = f->fd >= 0;
    if (read_some) {
        bool same = there && st.st_dev == f->device && st.st_ino == f->inode && st.st_size >= f->at;
        if (!same || !tail_is_there(f)) return begin_anew(f), follow_look(f), false;
        f->size = st.st_size;
        return true;
    }
    if (!there) return true;
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* what is there may be a pipe by now */
    if (f->fd >= 0 && (fstat(f->fd, &st) || !S_ISREG(st.st_mode))) close(f->fd), f->fd = -1;
    if (f->fd >= 0) f->device = st.st_dev, f->inode = st.st_ino, f->size = st.st_size;
    return true;
}

static void keep_tail(Follow *f, const char *piece, size_t n) {
    size_t from_piece = n < FOLLOW_TAIL ? n : FOLLOW_TAIL, old = (size_t)f->tail_n;
    if (old > FOLLOW_TAIL - from_piece) {
        size_t drop = old - (FOLLOW_TAIL - from_piece);
        memmove(f->tail, f->tail + drop, old - drop);
        old -= drop;
    }
    memcpy(f->tail + old, piece + n - from_piece, from_piece);
    f->tail_n = (int64_t)(old + from_piece);
}

static void add_rest(Follow *f, const char *p, size_t n) {
    if (f->rest.n + n > FOLLOW_LINE) f->skip = true, buf_clear(&f->rest);
    else if (!f->skip) buf_put(&f->rest, p, n);
}

static void line_done(Follow *f, const char *p, size_t n, FollowLine *each, void *user) {
    if (f->rest.n || f->skip) {
        add_rest(f, p, n);
        each(user, f->skip ? "" : f->rest.data, f->skip ? 0 : f->rest.n, f->lines_at);
        buf_clear(&f->rest);
        f->skip = false;
    } else each(user, p, n, f->lines_at);
}

void follow_read(Follow *f, FollowLine *each, void *user) {
    Mem mem = { 0 };
    char *piece = mem_push(&mem, PIECE);
    int64_t most = f->size - f->at;
    ssize_t n = f->fd < 0 ? 0 : pread(f->fd, piece, most < PIECE ? (size_t)most : PIECE, f->at);
    if (n <= 0) { /* cut since it was looked at: the next look finds out */
        f->size = f->at;
        mem_free(&mem);
        return;
    }
    const char *p = piece, *end = piece + n;
    for (const char *nl; (nl = memchr(p, '\n', (size_t)(end - p))); p = nl + 1) {
        line_done(f, p, (size_t)(nl - p), each, user);
        f->lines_at = f->at + (nl + 1 - piece);
    }
    add_rest(f, p, (size_t)(end - p));
    f->at += n;
    keep_tail(f, piece, (size_t)n);
    mem_free(&mem);
}
