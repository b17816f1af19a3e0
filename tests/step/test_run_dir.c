/* test_run_dir.c - the lock, cutting back on resume, torn lines, event files, reading back, and plots. */
#include "base/file.h"
#include "step/run_dir.h"
#include "run/run_read.h"
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64] = "/tmp/hone-run-XXXXXX";

static const char *in_dir(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/run/%s", dir, name);
    return path;
}

static int64_t lines(const char *name) {
    Buf b = { 0 };
    Err err;
    int64_t n = 0;
    if (!file_read(&b, in_dir(name), &err)) return -1;
    for (size_t i = 0; i < b.n; i++) n += b.data[i] == '\n';
    if (b.n && b.data[b.n - 1] != '\n') n = -2;
    buf_free(&b);
    return n;
}

static bool config(Config *c, bool tensorboard) {
    char set[160];
    snprintf(set, sizeof set, "trainer.run_dir=%s/run", dir);
    const char *overrides[] = { set, tensorboard ? "trainer.tensorboard=true" : "trainer.tensorboard=false" };
    Err err = { { 0 } };
    bool ok = config_load_text(c, CONF_TRAIN, "run.yaml", "", 0, overrides, 2, &err);
    EXPECT(ok, "%s", err.msg);
    return ok;
}

static RunDir *write_steps(int64_t last, int64_t from, int64_t to) {
    Err err = { { 0 } };
    Config c;
    if (!config(&c, false)) return NULL;
    RunDir *r = run_dir_open(&c, &err);
    config_free(&c);
    EXPECT(r, "%s", err.msg);
    if (!r) return NULL;
    EXPECT(run_dir_resume(r, last, false, &err), "%s", err.msg);
    Metrics *m = &(Metrics){ 0 };
    for (int64_t s = from; s <= to; s++) {
        char line[128];
        metrics_clear(m);
        metric(m, "critic/score/mean", 0.1 * (double)s);
        metric(m, "actor/grad_norm", s == 2 ? NAN : 1);
        EXPECT(run_dir_metrics(r, s, m, &err), "%s", err.msg);
        int n = snprintf(line, sizeof line,
                         "{\"step\":%d,\"score\":%d,\"input\":\"1+1?\",\"output\":\"%d\",\"gts\":\"2\"}\n", (int)s,
                         (int)s % 2, (int)s);
        EXPECT(run_dir_samples(r, line, (size_t)n, &err), "%s", err.msg);
    }
    return r;
}

static void locking(void) {
    Err err = { { 0 } };
    Config c;
    RunDir *held = write_steps(0, 1, 1);
    if (!held || !config(&c, false)) return;
    pid_t child = fork();
    if (!child) {
        RunDir *second = run_dir_open(&c, &err);
        char want[32];
        snprintf(want, sizeof want, "process %d", (int)getppid());
        _exit(!second && strstr(err.msg, want) ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && !WEXITSTATUS(status), "a second process is refused, naming the first");
    run_dir_close(held);
    RunDir *again = run_dir_open(&c, &err);
    EXPECT(again, "the lock is free again: %s", err.msg);
    run_dir_close(again);
    config_free(&c);
}

static void cutting(void) {
    Err err = { { 0 } };
    run_dir_close(write_steps(0, 1, 10));
    EXPECT(lines("metrics.jsonl") == 10 && lines("samples.jsonl") == 10, "ten lines");
    FILE *f = fopen(in_dir("metrics.jsonl"), "a"); /* a kill in the middle of a line */
    fputs("{\"step\":11,\"crit", f);
    fclose(f);
    run_dir_close(write_steps(7, 8, 9));
    EXPECT(lines("metrics.jsonl") == 9 && lines("samples.jsonl") == 9, "resumed at 7: %lld %lld",
           (long long)lines("metrics.jsonl"), (long long)lines("samples.jsonl"));
    Mem mem = { 0 };
    RunCurves r;
    bool ok = run_read(&r, in_dir(""), &mem, &err);
    EXPECT(ok, "%s", err.msg);
    if (ok) {
        const Curve *c = run_curve(&r, "critic/score/mean"), *g = run_curve(&r, "actor/grad_norm");
        EXPECT(r.n == 9 && r.step[8] == 9 && c && fabs(curve_last(&r, c) - 0.9) < 1e-12, "read back");
        EXPECT(g && isnan(g->value[1]) && g->value[2] == 1, "what is not finite is null");
        EXPECT(fabs(curve_mean(&r, c, 3) - 0.8) < 1e-12, "mean of the last");
        const RunCurves *run = &r;
        Buf b = { 0 };
        plot(&b, "score", &run, &c, "*", 1, 30, 5);
        EXPECT(strstr(b.data, "0.9 |") && strstr(b.data, "0.1 |*") && strchr(b.data, '+'), "\n%s", b.data);
        buf_free(&b);
    }
    EXPECT(!run_read(&r, "/no/run", &mem, &err) && strstr(err.msg, "no metrics.jsonl"), "%s", err.msg);
    f = fopen(in_dir("metrics.jsonl"), "w");
    fputs("{\"step\":1}\n{\"x\":1}\n", f);
    fclose(f);
    EXPECT(!run_read(&r, in_dir(""), &mem, &err) && strstr(err.msg, "metrics.jsonl:2: there is no step"), "%s",
           err.msg);
    mem_free(&mem);
}

/* Long lines, torn ones and ones that tell nothing, behind more than is wanted in memory: only the end is read. */
static void cutting_much(void) {
    enum { LINE = 1 << 20, STEPS = 48 };
    Err err = { { 0 } };
    run_dir_close(write_steps(0, 1, 1));
    static char line[LINE];
    memset(line, 'x', sizeof line);
    FILE *f = fopen(in_dir("samples.jsonl"), "w");
    int64_t stays = 0;
    for (int s = 1; s <= STEPS; s++) {
        int n = snprintf(line, sizeof line, "{\"step\":%d,\"output\":\"", s);
        line[n] = 'x';
        memcpy(line + LINE - 3, "\"}\n", 3);
        fwrite(line, 1, LINE, f);
        if (s == STEPS - 2) stays = ftell(f);
    }
    fputs("not JSON\n\n{\"score\":1}\n{\"step\":1,\"torn", f);
    EXPECT(!fclose(f), "no room for tests");
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    run_dir_close(write_steps(STEPS - 2, 1, 0));
    getrusage(RUSAGE_SELF, &after);
    struct stat st;
    EXPECT(!stat(in_dir("samples.jsonl"), &st) && st.st_size == stays, "%lld bytes stay, %lld are wanted",
           (long long)st.st_size, (long long)stays);
    EXPECT(after.ru_maxrss - before.ru_maxrss < 24 << 10, "%ld KiB for lines of one MiB",
           after.ru_maxrss - before.ru_maxrss);
    run_dir_close(write_steps(0, 1, 0));
    EXPECT(!stat(in_dir("samples.jsonl"), &st) && !st.st_size, "nothing stays: %lld bytes", (long long)st.st_size);
    EXPECT(!err.msg[0], "%s", err.msg);
}

/* The lock is emptied when it is taken: what a link leads to must not be. */
static void lock_behind_link(void) {
    Err err = { { 0 } };
    Config c;
    if (!config(&c, false)) return;
    FILE *f = fopen(in_dir("theirs"), "w");
    fputs("precious", f);
    fclose(f);
    unlink(in_dir("lock"));
    EXPECT(!symlink("theirs", in_dir("lock")), "no link for tests");
    RunDir *r = run_dir_open(&c, &err);
    EXPECT(!r && strstr(err.msg, "/lock: is a link"), "%s", err.msg);
    run_dir_close(r);
    struct stat st;
    EXPECT(!stat(in_dir("theirs"), &st) && st.st_size == 8, "what the link leads to was emptied");
    unlink(in_dir("lock"));
    unlink(in_dir("theirs"));
    config_free(&c);
}

static void events(void) {
    Config c;
    Err err = { { 0 } };
    if (!config(&c, true)) return;
    RunDir *r = run_dir_open(&c, &err);
    EXPECT(r && run_dir_resume(r, 0, false, &err), "%s", err.msg);
    Metrics *m = &(Metrics){ 0 };
    metric(m, "actor/lr", 1e-6);
    EXPECT(run_dir_metrics(r, 1, m, &err), "%s", err.msg);
    run_dir_close(r);
    config_free(&c);
    int found = 0;
    DIR *d = opendir(in_dir(""));
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, "events.out.tfevents.", 20)) {
            Buf b = { 0 };
            EXPECT(file_read(&b, in_dir(e->d_name), &err) && memmem(b.data, b.n, "actor/lr", 8), "%s", err.msg);
            buf_free(&b);
            found += !unlink(in_dir(e->d_name));
        }
    if (d) closedir(d);
    EXPECT(found == 1, "%d event files", found);
}

int main(void) {
    EXPECT(mkdtemp(dir), "mkdtemp");
    locking();
    cutting();
    cutting_much();
    lock_behind_link();
    events();
    static const char *const made[] = { "metrics.jsonl", "samples.jsonl", "log.txt",
                                        "config.yaml",   "lock",          "samples_tokens.bin" };
    for (size_t i = 0; i < COUNT(made); i++) EXPECT(!unlink(in_dir(made[i])), "%s", made[i]);
    EXPECT(!rmdir(in_dir("")) && !rmdir(dir), "nothing else is in the folder");
    return test_end();
}
