/* unpack.c - compressed files as a stream of bytes.
 * What came in and was not used yet is 'in'; of a file that is in memory already, all of it. */
#include "file/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { PIECE = 1 << 18 };
typedef enum { UNKNOWN, PLAIN, GZIP, ZSTD } Packing;

struct Unpack {
    Mem mem;
    const char *path;
    int fd; /* -1: everything is in memory */
    char *piece;
    const char *in;
    size_t n;
    bool end; /* nothing comes behind 'in' */
    Packing how;
    bool whole; /* packed: what was unpacked so far ends where a stream may end */
    z_stream gzip;
    ZSTD_DStream *zstd;
};

static Unpack *unpack_new(const char *name) {
    Mem mem = { 0 };
    Unpack *u = MEM_NEW(&mem, Unpack);
    u->path = mem_str(&mem, name, strlen(name));
    u->fd = -1;
    u->mem = mem;
    return u;
}

Unpack *unpack_open(const char *path, Err *err) {
    bool in = !strcmp(path, "-");
    int fd = in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(err, "%s: cannot open: %s", path, strerror(errno)), NULL;
    Unpack *u = unpack_new(path);
    u->fd = fd;
    u->piece = mem_push(&u->mem, PIECE);
    u->in = u->piece;
    return u;
}

Unpack *unpack_open_bytes(const char *name, const void *data, size_t n) {
    Unpack *u = unpack_new(name);
    u->in = data;
    u->n = n;
    u->end = true;
    return u;
}

void unpack_close(Unpack *u) {
    if (!u) return;
    if (u->fd > STDIN_FILENO) close(u->fd);
    if (u->how == GZIP) inflateEnd(&u->gzip);
    ZSTD_freeDStream(u->zstd);
    Mem mem = u->mem;
    mem_free(&mem);
}

/* At least 'least' bytes in 'in', or all there are. */
static bool fill(Unpack *u, size_t least, Err *err) {
    if (u->end || u->n >= least) return true;
    memmove(u->piece, u->in, u->n);
    u->in = u->piece;
    while (!u->end && u->n < least) {
        ssize_t got = read(u->fd, u->piece + u->n, PIECE - u->n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_set(err, "%s: cannot read: %s", u->path, strerror(errno));
        u->n += (size_t)got;
        u->end = got == 0;
    }
    return true;
}

static bool starts(const Unpack *u, const char *magic, size_t n) { return u->n >= n && !memcmp(u->in, magic, n); }

static bool look(Unpack *u, Err *err) {
    TRY(fill(u, 4, err));
    u->how = starts(u, "\x1F\x8B", 2) ? GZIP : starts(u, "\x28\xB5\x2F\xFD", 4) ? ZSTD : PLAIN;
    if (u->how == GZIP && inflateInit2(&u->gzip, 15 + 16) != Z_OK) die_memory(PIECE);
    if (u->how == ZSTD && !(u->zstd = ZSTD_createDStream())) die_memory(PIECE);
    return true;
}

/* A packed file may be several, one behind the other. */
static bool gzip(Unpack *u, char *to, size_t room, size_t *got, Err *err) {
    z_stream *z = &u->gzip;
    if (u->whole && inflateReset(z) != Z_OK) return err_set(err, "%s: gzip cannot go on", u->path);
    u->whole = false;
    z->next_in = (Bytef *)(uintptr_t)u->in, z->avail_in = (uInt)(u->n < 1u << 30 ? u->n : 1u << 30);
    z->next_out = (Bytef *)to, z->avail_out = (uInt)(room < 1u << 30 ? room : 1u << 30);
    int rc = inflate(z, Z_NO_FLUSH);
    *got = (size_t)((char *)z->next_out - to);
    u->n -= (size_t)((const char *)z->next_in - u->in);
    u->in = (const char *)z->next_in;
    u->whole = rc == Z_STREAM_END;
    if (rc == Z_OK || rc == Z_STREAM_END || (rc == Z_BUF_ERROR && *got)) return true;
    return err_set(err, "%s: the gzip stream is damaged or was cut short", u->path);
}

static bool zstd(Unpack *u, char *to, size_t room, size_t *got, Err *err) {
    ZSTD_inBuffer in = { u->in, u->n, 0 };
    ZSTD_outBuffer out = { to, room, 0 };
    size_t rc = ZSTD_decompressStream(u->zstd, &out, &in);
    if (ZSTD_isError(rc)) return err_set(err, "%s: the zstd stream is damaged: %s", u->path, ZSTD_getErrorName(rc));
    *got = out.pos;
    u->in += in.pos, u->n -= in.pos;
    u->whole = rc == 0;
    if (!in.pos && !out.pos) return err_set(err, "%s: the zstd stream was cut short", u->path);
    return true;
}

bool unpack_read(Unpack *u, void *to, size_t room, size_t *got, Err *err) {
    *got = 0;
    if (u->how == UNKNOWN) TRY(look(u, err));
    while (room && !*got) {
        TRY(fill(u, 1, err));
        if (!u->n && (u->how == PLAIN || u->whole)) return true;
        if (u->how == GZIP) TRY(gzip(u, to, room, got, err));
        else if (u->how == ZSTD) TRY(zstd(u, to, room, got, err));
        else {
            *got = u->n < room ? u->n : room;
            memcpy(to, u->in, *got);
            u->in += *got, u->n -= *got;
        }
    }
    return true;
}
