/* test_kill_points.c - a save is killed before each of its system calls that change the disk, one after another: over a
 * checkpoint of the same step and beside an older one, on a file system that can exchange two names and on one that
 * cannot.  Whatever the moment, a whole checkpoint is found, and the next save leaves nothing lying about. */
#include "base/file.h"
#include "train/checkpoint.h"
#include "train/train_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the calls: this program's own take the place of libc's */
static atomic_long calls, die_at_call; /* 0: never */
static bool no_exchange;

static void point(void) {
    long k = atomic_fetch_add(&calls, 1) + 1;
    if (k == atomic_load(&die_at_call)) _exit(99);
}
int rename(const char *a, const char *b) { return point(), (int)syscall(SYS_renameat, AT_FDCWD, a, AT_FDCWD, b); }
int renameat2(int da, const char *a, int db, const char *b, unsigned flags) {
    point();
    if (no_exchange && flags) return errno = EINVAL, -1;
    return (int)syscall(SYS_renameat2, da, a, db, b, flags);
}
int unlink(const char *p) { return point(), (int)syscall(SYS_unlinkat, AT_FDCWD, p, 0); }
int rmdir(const char *p) { return point(), (int)syscall(SYS_unlinkat, AT_FDCWD, p, AT_REMOVEDIR); }
int fsync(int fd) { return (void)fd, point(), 0; } /* a kill is not a power cut: what was written is there */
ssize_t write(int fd, const void *p, size_t n) { return point(), syscall(SYS_write, fd, p, n); }
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return point(), syscall(SYS_pwrite64, fd, p, n, at); }
int ftruncate(int fd, off_t n) { return point(), (int)syscall(SYS_ftruncate, fd, n); }
int mkdir(const char *p, mode_t m) { return point(), (int)syscall(SYS_mkdirat, AT_FDCWD, p, m); }

/* ---- */
static int64_t buffer; /* of a save; 0: room for everything */

static Checkpoints *saver(Trainer *t, const char *dir) {
    Err err;
    const char *from = FIXTURE("models/qwen2");
    CheckpointConf c = { .run_dir = dir, .keep = 1, .shard_bytes = 100000, .buffer = buffer };
    CHECK(params_carry(&c.carried, from, from, NULL, &t->mem, &err), "%s", err.msg);
    return checkpoints_open(&(Member){ MEMBER_MODEL, &t->policy }, 1, &c, &t->mem);
}

static bool save(Trainer *t, Checkpoints *c, int64_t step, Err *err) {
    char state[80];
    snprintf(state, sizeof state, "{\"optimizer_step\":%ld,\"step\":%ld}\n", (long)t->policy.opt.step, (long)step);
    return checkpoint_save(c, step, state, err) && checkpoint_wait(c, err);
}

static int64_t newest(const char *dir) { /* -1: none */
    Mem mem = { 0 };
    const char *path;
    int64_t step = -1;
    Err err;
    bool ok = checkpoint_find(dir, LOOK_ALL, &path, &step, &mem, &err) && path;
    mem_free(&mem);
    return ok ? step : -1;
}

static int others(const char *dir) { /* names that are not step-... */
    char path[200];
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strncmp(e->d_name, "step-", 5);
    if (d) closedir(d);
    return n;
}

/* Returns whether the child came to its end. */
static bool killed_at(Trainer *t, const char *dir, long k, int64_t step) {
    pid_t pid = fork(); /* the trainer has one thread: all of it is in the child */
    CHECK(pid >= 0, "fork");
    if (!pid) {
        Err err;
        Checkpoints *c = saver(t, dir);
        atomic_store(&calls, 0), atomic_store(&die_at_call, k);
        _exit(save(t, c, step, &err) ? 0 : 3);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 99), "the child ended with %d",
          status);
    return WEXITSTATUS(status) == 0;
}

static void every_point(bool exchange, int64_t bytes) {
    char dir[64] = "/tmp/hone-test-XXXXXX", cmd[100];
    CHECK(mkdtemp(dir), "no folder");
    Trainer t;
    Err err = { { 0 } };
    no_exchange = !exchange, buffer = bytes;
    trainer_open(&t, "qwen2", (PolicyConf){ .micro_tokens = 512 }, 1);
    Checkpoints *c = saver(&t, dir);
    EXPECT(save(&t, c, 5, &err), "save: %s", err.msg);
    int lost = 0, points = 0, tidy = 0;
    for (int over = 0; over < 2; over++) { /* a later step; then over one of the same step */
        for (long k = 1;; k++, points++) {
            int64_t had = newest(dir);
            bool end = killed_at(&t, dir, k, over ? had : had + 1);
            lost += newest(dir) < had;
            if (end) break;
        }
        tidy += others(dir) == 0;
    }
    EXPECT(lost == 0, "%s: after %d of %d kills the newest checkpoint was gone",
           exchange ? "names can be exchanged" : "names cannot be exchanged", lost, points);
    EXPECT(points > 30, "only %d moments were tried", points);
    EXPECT(tidy == 2, "something lies about");
    EXPECT(checkpoints_close(c, &err), "%s", err.msg);
    trainer_close(&t);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    CHECK(!system(cmd), "%s stays", dir);
}

int main(void) {
    every_point(true, 0);
    every_point(false, 0);
    every_point(true, 4096);
    return test_end();
}
