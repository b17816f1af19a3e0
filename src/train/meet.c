/* meet.c - ranks that save together meet in a folder. */
#include "train/meet.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void path_of(Buf *out, const Meet *m, const char *what, int rank) {
    buf_clear(out);
    if (rank < 0) buf_printf(out, "%s/.%s", m->dir, what);
    else buf_printf(out, "%s/.%s-%d", m->dir, what, rank);
}

static bool there(const Meet *m, const char *what, int rank) {
    Buf path = { 0 };
    path_of(&path, m, what, rank);
    bool is = !access(path.data, F_OK);
    buf_free(&path);
    return is;
}

/* Not file_write: these need not outlive the machine, and the folder may have another name a
 * moment after the last of them is there. */
static bool put(const Meet *m, const char *what, int rank, const char *text, Err *err) {
    Buf path = { 0 }, tmp = { 0 };
    path_of(&path, m, what, rank);
    buf_printf(&tmp, "%s.tmp", path.data);
    size_t n = strlen(text);
    FILE *f = fopen(tmp.data, "we");
    bool ok = f && fwrite(text, 1, n, f) == n;
    if (f && fclose(f)) ok = false;
    if (ok && rename(tmp.data, path.data)) ok = false;
    if (!ok) err_set(err, "%s: cannot write: %s", path.data, strerror(errno));
    buf_free(&path);
    buf_free(&tmp);
    return ok;
}

static void take_away(const Meet *m, const char *what, int rank) {
    Buf path = { 0 };
    path_of(&path, m, what, rank);
    unlink(path.data);
    buf_free(&path);
}

static bool wait_for(const Meet *m, const char *what, int rank, Err *err) {
    double start = clock_now();
    while (!there(m, what, rank)) {
        if (there(m, "over", -1) || !dir_exists(m->dir)) return err_set(err, "another rank has given up");
        if (m->wait > 0 && clock_now() - start > m->wait)
            return err_set(err, "rank %d does not come (trainer.wait_seconds)", rank < 0 ? 0 : rank);
        nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
    }
    return true;
}

bool meet_begin(const Meet *m, Err *err) {
    if (m->n == 1) return true;
    return m->rank == 0 ? put(m, "begun", -1, "", err) : wait_for(m, "begun", -1, err);
}

bool meet_tell(const Meet *m, const char *what, const char *text, Err *err) {
    return m->n == 1 || put(m, what, m->rank, text, err);
}

bool meet_all(const Meet *m, const char *what, Err *err) {
    for (int r = 0; r < m->n && m->n > 1; r++) TRY(wait_for(m, what, r, err));
    return true;
}

bool meet_text(const Meet *m, const char *what, int rank, Buf *out, Err *err) {
    Buf path = { 0 }, text = { 0 };
    path_of(&path, m, what, rank);
    bool ok = file_read(&text, path.data, err);
    if (ok && text.n) buf_put(out, text.data, text.n);
    buf_free(&path);
    buf_free(&text);
    return ok;
}

/* A rename: it can be done on a disk that is full, and by one rank only. */
bool meet_leave(const Meet *m) {
    Buf begun = { 0 }, over = { 0 };
    path_of(&begun, m, "begun", -1);
    path_of(&over, m, "over", -1);
    bool first = m->n == 1 || !rename(begun.data, over.data);
    buf_free(&begun);
    buf_free(&over);
    return first;
}

bool meet_begun(const Meet *m) { return m->n > 1 && (there(m, "begun", -1) || there(m, "over", -1)); }

void meet_end(const Meet *m, const char *const *what) {
    if (m->n == 1) return;
    for (; *what; what++)
        for (int r = 0; r < m->n; r++) take_away(m, *what, r);
    take_away(m, "begun", -1);
}
