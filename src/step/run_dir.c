/* run_dir.c - a run's folder: its lock, its files, and cutting what was written behind a checkpoint. */
#include "step/run_dir.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"
#include "base/json.h"
#include "comm/world.h"
#include "run/tensorboard.h"
#include "step/token_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct RunDir {
    Mem mem;
    const char *path, *config; /* config: config.yaml to be written when the run begins */
    const char *scorer;        /* likewise scorer.py, or NULL */
    size_t scorer_bytes;
    ConfVerb verb;
    int lock;
    FILE *metrics, *samples, *log;
    TbWriter *tb; /* NULL: not wanted */
    TokenFile tokens;
    int64_t tokens_newest, tokens_every;
    bool terminal, tensorboard, mute;
};

static char *inside(RunDir *d, const char *name) { return mem_printf(&d->mem, "%s/%s", d->path, name); }

static bool take_lock(RunDir *d, Err *err) {
    const char *path = inside(d, "lock");
    d->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644); /* it is emptied: not behind a link */
    if (d->lock < 0 && errno == ELOOP) return err_set(err, "%s: is a link, which the lock may not be: remove it", path);
    if (d->lock < 0) return err_set(err, "%s: cannot create: %s", path, strerror(errno));
    char who[32] = "";
    if (flock(d->lock, LOCK_EX | LOCK_NB)) {
        ssize_t n = read(d->lock, who, sizeof who - 1);
        return err_set(err, "%s: process %.*s is training here; give this run another trainer.run_dir", d->path,
                       n > 0 ? (int)strcspn(who, "\n") : 1, n > 0 ? who : "?");
    }
    int n = snprintf(who, sizeof who, "%ld\n", (long)getpid());
    if (ftruncate(d->lock, 0) || write(d->lock, who, (size_t)n) != n)
        return err_set(err, "%s: cannot write: %s", path, strerror(errno));
    return true;
}

static bool open_append(RunDir *d, FILE **out, const char *name, Err *err) {
    const char *path = inside(d, name);
    *out = fopen(path, "ae");
    return *out || err_set(err, "%s: cannot open: %s", path, strerror(errno));
}

RunDir *run_dir_open(const Config *c, Err *err) {
    Mem mem = { 0 };
    RunDir *d = MEM_NEW(&mem, RunDir);
    d->path = mem_str(&mem, c->trainer.run_dir, strlen(c->trainer.run_dir));
    d->mem = mem;
    d->verb = c->verb;
    d->lock = -1;
    d->terminal =
        isatty(STDOUT_FILENO) && world_launch().size < 2; /* mpirun lends a terminal, and shows what comes elsewhere */
    d->tensorboard = c->trainer.tensorboard;
    d->tokens_newest = c->verb == CONF_TRAIN ? c->trainer.tokens_newest : 0, d->tokens_every = c->trainer.tokens_every;
    Buf text = { 0 };
    config_dump(&text, c, DUMP_ALL);
    d->config = mem_str(&d->mem, text.data, text.n);
    buf_free(&text);
    bool ok = dir_make(d->path, err) && take_lock(d, err) && open_append(d, &d->log, "log.txt", err);
    if (ok) return d;
    run_dir_close(d);
    return NULL;
}

RunDir *run_dir_mute(const Config *c) {
    Mem mem = { 0 };
    RunDir *d = MEM_NEW(&mem, RunDir);
    d->path = mem_str(&mem, c->trainer.run_dir, strlen(c->trainer.run_dir));
    d->mem = mem;
    d->lock = -1;
    d->mute = true;
    return d;
}

static const char MARK[] = ".ranks";

bool run_dir_mark(RunDir *d, Buf *mark, Err *err) {
    uint64_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) drawn = (uint64_t)(clock_now() * 1e9);
    buf_printf(mark, "%016" PRIx64 "\n", drawn);
    return file_write(inside(d, MARK), mark->data, mark->n, err);
}

void run_dir_unmark(RunDir *d) { unlink(inside(d, MARK)); }

static const char *parent(RunDir *d) {
    size_t n = strlen(d->path);
    while (n > 1 && d->path[n - 1] == '/') n--;
    while (n && d->path[n - 1] != '/') n--;
    return n ? mem_str(&d->mem, d->path, n) : ".";
}

/* A file server's client may remember for a while that there was no such folder, or another file: opening folders makes
 * it ask again. */
bool run_dir_has(RunDir *d, const char *mark) {
    enum { TIMES = 50, MS = 100 };
    const char *above = parent(d), *path = inside(d, MARK);
    for (int i = 0; i < TIMES; i++) {
        Buf text = { 0 };
        Err ignore;
        if (i) nanosleep(&(struct timespec){ 0, MS * 1000000 }, NULL);
        DIR *dir = opendir(i % 2 ? above : d->path);
        if (dir) readdir(dir), closedir(dir);
        bool sees = file_exists(path) && file_read(&text, path, &ignore) && text.n && !strcmp(text.data, mark);
        buf_free(&text);
        if (sees) return true;
    }
    return false;
}

static bool read_at(int fd, char *to, size_t n, int64_t at) {
    while (n) {
        ssize_t got = pread(fd, to, n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got, at += got, n -= (size_t)got;
    }
    return true;
}

/* Does the line tell of a step that stays? */
static bool stays(const Buf *line, int64_t step) {
    Mem mem = { 0 };
    Json v;
    Err bad;
    int64_t at = INT64_MAX;
    bool ok = json_parse(&v, line->data, line->n, &mem, &bad) && json_int(&v, "step", &at, &bad) && at <= step;
    mem_free(&mem);
    return ok;
}

/* Where the line begins that ends before 'end'. */
static int64_t line_start(int fd, int64_t end) {
    char piece[1 << 14];
    while (end > 0) {
        int64_t n = end < (int64_t)sizeof piece ? end : (int64_t)sizeof piece;
        if (!read_at(fd, piece, (size_t)n, end - n)) return -1;
        const char *nl = memrchr(piece, '\n', (size_t)n);
        if (nl) return end - n + (nl - piece) + 1;
        end -= n;
    }
    return 0;
}

/* Cuts the lines of later steps off, and half a line that a kill left: they are the last ones, so the file is read from
 * its end, a line at a time, up to the first that stays. */
static bool cut_lines(const char *path, int64_t step, Err *err) {
    if (!file_exists(path)) return true;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd < 0) return err_set(err, "%s: cannot open: %s", path, strerror(errno));
    Buf line = { 0 };
    bool ok = !fstat(fd, &st);
    int64_t end = ok ? line_start(fd, st.st_size) : -1; /* behind the last newline */
    while (end > 0) {
        int64_t from = line_start(fd, end - 1), n = end - 1 - from;
        buf_clear(&line);
        if (from >= 0 && n <= LINE_MOST) {
            buf_reserve(&line, (size_t)n);
            line.n = (size_t)n;
            if (!read_at(fd, line.data, line.n, from)) from = -1;
            else if (stays(&line, step)) break;
        }
        end = from;
    }
    ok = end >= 0 || err_set(err, "%s: cannot read: %s", path, strerror(errno));
    if (ok && end < st.st_size && (ftruncate(fd, end) || fsync(fd)))
        ok = err_set(err, "%s: cannot cut what was written behind the checkpoint: %s", path, strerror(errno));
    close(fd);
    buf_free(&line);
    return ok;
}

/* The file is the settings' only memory: what it said before goes to the log. */
static void tell_changes(RunDir *d) {
    Buf old = { 0 }, changes = { 0 };
    Config was, now;
    Err err;
    if (!file_exists(inside(d, "config.yaml")) || !file_read(&old, inside(d, "config.yaml"), &err)) return;
    bool a = config_load_text(&was, d->verb, "config.yaml", old.data ? old.data : "", old.n, NULL, 0, &err);
    bool b = config_load_text(&now, d->verb, "config.yaml", d->config, strlen(d->config), NULL, 0, &err);
    if (a && b) config_changes(&changes, &was, &now);
    if (changes.n) {
        buf_puts(&changes, ": changed since the last start");
        run_dir_log(d, changes.data);
    }
    if (a) config_free(&was);
    if (b) config_free(&now);
    buf_free(&old);
    buf_free(&changes);
}

void run_dir_scorer(RunDir *d, const Buf *text) {
    d->scorer = mem_str(&d->mem, text->data ? text->data : "", text->n);
    d->scorer_bytes = text->n;
}

static bool write_asked(RunDir *d, Err *err) {
    return file_write(inside(d, "config.yaml"), d->config, strlen(d->config), err)
           && (!d->scorer || file_write(inside(d, "scorer.py"), d->scorer, d->scorer_bytes, err));
}

/* TensorBoard forgets what an older event file of the folder says about the steps that come again. */
bool run_dir_resume(RunDir *d, int64_t step, bool untold, Err *err) {
    int64_t told = untold ? step - 1 : step;
    if (d->mute) return true;
    if (step > 0) tell_changes(d);
    TRY(write_asked(d, err));
    TRY(cut_lines(inside(d, "metrics.jsonl"), told, err) && cut_lines(inside(d, "samples.jsonl"), step, err));
    TRY(token_file_open(&d->tokens, inside(d, "samples_tokens.bin"), inside(d, "samples.jsonl"), d->tokens_newest,
                        d->tokens_every, &d->mem, err));
    TRY(open_append(d, &d->metrics, "metrics.jsonl", err) && open_append(d, &d->samples, "samples.jsonl", err));
    if (d->tensorboard) d->tb = tb_open(d->path, told + 1, err);
    return d->tb || !d->tensorboard;
}

void run_dir_close(RunDir *d) {
    if (!d) return;
    FILE *const files[] = { d->metrics, d->samples, d->log };
    for (size_t i = 0; i < COUNT(files); i++)
        if (files[i]) fclose(files[i]);
    Err ignore; /* every record was flushed and checked when it was written */
    if (d->tb) tb_close(d->tb, &ignore);
    token_file_close(&d->tokens);
    if (d->lock >= 0) close(d->lock);
    Mem mem = d->mem;
    mem_free(&mem);
}

static bool put(FILE *f, const char *name, const void *data, size_t n, Err *err) {
    if (fwrite(data, 1, n, f) == n && !fflush(f)) return true;
    return err_set(err, "%s: cannot write: %s", name, strerror(errno));
}

bool run_dir_metrics(RunDir *d, int64_t step, const Metrics *m, Err *err) {
    if (d->mute) return true;
    Buf b = { 0 };
    buf_printf(&b, "{\"step\":%" PRId64, step);
    for (int i = 0; i < m->n; i++) {
        buf_putc(&b, ',');
        json_put_str(&b, m->at[i].name, strlen(m->at[i].name));
        buf_putc(&b, ':');
        json_put_f64(&b, m->at[i].value);
    }
    buf_puts(&b, "}\n");
    bool ok = put(d->metrics, "metrics.jsonl", b.data, b.n, err);
    buf_free(&b);
    if (!ok || !d->tb) return ok;
    tb_begin(d->tb, step);
    for (int i = 0; i < m->n; i++) tb_scalar(d->tb, m->at[i].name, (float)m->at[i].value);
    return tb_end(d->tb, err);
}

bool run_dir_samples(RunDir *d, const char *lines, size_t n, Err *err) {
    return d->mute || put(d->samples, "samples.jsonl", lines, n, err);
}

bool run_dir_tokens(RunDir *d, int64_t step, const void *rows, size_t bytes, int64_t *at, Err *err) {
    *at = -1;
    return d->mute || token_file_put(&d->tokens, step, rows, bytes, at, err);
}

void run_dir_note(RunDir *d, const char *text) {
    if (d->mute) return;
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%F %T", localtime_r(&now, &tm));
    fprintf(d->log, "%s  %s\n", when, text);
    fflush(d->log);
}

void run_dir_log(RunDir *d, const char *text) {
    run_dir_note(d, text);
    Buf b = { 0 };
    utf8_put_visible(&b, text, strlen(text));
    printf("%s%s\n", d->terminal ? "\r\033[K" : "", b.data);
    buf_free(&b);
    fflush(stdout);
}
