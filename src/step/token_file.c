/* token_file.c - rows of tokens: written, let go, and cut where a run goes on. */
#include "step/token_file.h"
#include "base/file.h"
#include "base/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(const TokenFile *f, const char *what, Err *err) {
    return err_set(err, "%s: cannot %s: %s", f->path, what, strerror(errno));
}

static struct TokenStep *nth(TokenFile *f, int64_t i) { return &f->ring[(f->first + i) % f->newest]; }

/* Bytes from .. to become a hole.  Where there are none the file goes on growing, by every k-th step alone. */
static bool let_go(TokenFile *f, int64_t from, int64_t to, Err *err) {
    if (to <= from || f->no_holes) return true;
    if (!fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from)) return true;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return fail(f, "let rows go", err);
    f->no_holes = true;
    return true;
}

static bool begin_step(TokenFile *f, int64_t step, int64_t at, Err *err) {
    if (f->n && nth(f, f->n - 1)->step == step) return true;
    if (f->n == f->newest) {
        struct TokenStep old = *nth(f, 0);
        int64_t to = f->n > 1 ? nth(f, 1)->from : at;
        f->first = (f->first + 1) % f->newest, f->n--;
        if (old.step % f->every) TRY(let_go(f, old.from, to, err));
    }
    f->n++;
    *nth(f, f->n - 1) = (struct TokenStep){ step, at };
    return true;
}

/* What a line says of its rows; false: nothing. */
static bool rows_of(const char *line, size_t n, int64_t *step, int64_t *at, int64_t *bytes) {
    Member m;
    double s = -1, a = -1, t = -1;
    for (Scan c = scan_of(line, n); scan_next(&c, &m);) {
        if (scan_is(&m, "step")) s = scan_number(&m);
        else if (scan_is(&m, "tokens")) t = scan_number(&m);
        else if (scan_is(&m, "at")) a = scan_number(&m);
    }
    if (!(s >= 0 && s < 1e15 && a >= 0 && a < 0x1p52 && t >= 0 && t < 0x1p31)) return false;
    *step = (int64_t)s, *at = (int64_t)a, *bytes = (int64_t)t * TOKEN_ROW;
    return true;
}

static bool find_end(TokenFile *f, const char *samples, Err *err) {
    if (!file_exists(samples)) return true;
    LineReader *r = lines_open(samples, err);
    const char *line;
    size_t n;
    int64_t step, at, bytes;
    bool no_holes = f->no_holes;
    f->no_holes = true; /* what is gone is gone already */
    while (r && lines_next(r, &line, &n)) {
        if (!rows_of(line, n, &step, &at, &bytes)) continue;
        begin_step(f, step, at, err);
        if (at + bytes > f->end) f->end = at + bytes;
    }
    f->no_holes = no_holes;
    return r && lines_close(r, err);
}

bool token_file_open(TokenFile *f, const char *path, const char *samples, int64_t newest, int64_t every, Mem *mem,
                     Err *err) {
    *f = (TokenFile){ .path = path, .fd = -1, .newest = newest, .every = every };
    if (!newest && !file_exists(path)) return true;
    f->newest = newest ? newest : 1;
    f->ring = MEM_ARRAY(mem, struct TokenStep, (size_t)f->newest);
    TRY(find_end(f, samples, err));
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    struct stat st;
    if (f->fd < 0) return fail(f, "open", err);
    /* rows that are not there (somebody removed the file) are a hole: no other answer's may come in their place */
    if (fstat(f->fd, &st) || (st.st_size != f->end && ftruncate(f->fd, f->end))) return fail(f, "cut", err);
    if (!newest) token_file_close(f);
    return true;
}

void token_file_close(TokenFile *f) {
    if (f->ring && f->fd >= 0) close(f->fd);
    f->fd = -1;
}

bool token_file_put(TokenFile *f, int64_t step, const void *rows, size_t bytes, int64_t *at, Err *err) {
    *at = -1;
    if (!f->ring || f->fd < 0) return true;
    TRY(begin_step(f, step, f->end, err));
    if (f->no_holes && step % f->every) return true;
    const char *p = rows;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(f->fd, p + done, bytes - done, f->end + (int64_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(f, "write", err);
        done += (size_t)n;
    }
    *at = f->end;
    f->end += (int64_t)bytes;
    return true;
}
