/* meet.c - ranks that save together meet in a folder. */
#include "train/meet.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

enum { TELLS = 10 }; /* in the time of a deadline */

void meet_progress(Meet *m, int64_t more) {
    m->done += more;
    double now = clock_now();
    if (m->n == 1 || m->wait <= 0 || now - m->told < m->wait / TELLS) return;
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, m->done);
    m->told = now;
    put(m, "at", m->rank, text, &(Err){ { 0 } }); /* where it cannot be told, the write itself will say why */
}

/* What all have done. */
static int64_t done_by_all(const Meet *m) {
    int64_t sum = 0;
    for (int r = 0; r < m->n; r++) {
        Buf text = { 0 };
        Err none;
        if (there(m, "at", r) && meet_text(m, "at", r, &text, &none) && text.n) sum += strtoll(text.data, NULL, 10);
        buf_free(&text);
    }
    return sum;
}

static void pause_for(double *seconds) {
    nanosleep(&(struct timespec){ (time_t)*seconds, (long)((*seconds - (double)(time_t)*seconds) * 1e9) }, NULL);
    *seconds = *seconds < 0.5 ? 2 * *seconds : 1;
}

static bool wait_for(const Meet *m, const char *what, int rank, Err *err) {
    double since = clock_now(), looked = since, pause = 0.002, most = m->wait > 0 ? m->wait / TELLS : 1;
    int64_t seen = -1;
    while (!there(m, what, rank)) {
        if (there(m, "over", -1) || !dir_exists(m->dir)) return err_set(err, "another rank has given up");
        double now = clock_now();
        if (m->wait > 0 && now - looked > m->wait / TELLS) {
            int64_t done = done_by_all(m);
            if (done != seen) seen = done, since = now;
            looked = now;
        }
        if (m->wait > 0 && now - since > m->wait)
            return err_set(err,
                           "rank %d does not come, and nobody has written anything for %.0f s "
                           "(trainer.wait_seconds)",
                           rank < 0 ? 0 : rank, now - since);
        if (pause > most) pause = most;
        pause_for(&pause);
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

bool meet_come(const Meet *m, const char *what, int rank, Err *err) {
    return m->n == 1 || wait_for(m, what, rank, err);
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
