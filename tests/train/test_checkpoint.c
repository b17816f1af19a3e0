/* test_checkpoint.c - a checkpoint is whole or it is not there: saved and read back, damaged,
 * killed while it is written, on a full disk. */
#include "base/file.h"
#include "tensor/half.h"
#include "train/checkpoint.h"
#include "train/train_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const MODEL = "qwen3_moe";

static void folder(char *out, const char *what) {
    snprintf(out, 128, "/tmp/hone-test-XXXXXX");
    CHECK(mkdtemp(out), "no folder for %s", what);
}

static void clear(const char *dir) {
    char cmd[200];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    CHECK(!system(cmd), "%s stays", dir);
}

static Checkpoints *saver(Trainer *t, const char *dir, int keep, int64_t buffer) {
    Err err;
    const char *from = FIXTURE("models/qwen3_moe");
    CheckpointConf c = { .run_dir = dir, .keep = keep, .shard_bytes = (int64_t)1e6, .buffer = buffer };
    CHECK(params_carry(&c.carried, from, from, NULL, &t->mem, &err), "%s", err.msg);
    return checkpoints_open(&(Member){ MEMBER_MODEL, &t->policy }, 1, &c, &t->mem);
}

static void update(Trainer *t) {
    UpdateStats st;
    Err err;
    CHECK(policy_update(&t->policy, t->seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
}

static bool save(Trainer *t, Checkpoints *c, int64_t step, Err *err) {
    char state[80];
    snprintf(state, sizeof state, "{\"optimizer_step\":%ld,\"step\":%ld}\n", (long)t->policy.opt.step, (long)step);
    return checkpoint_save(c, step, state, err);
}

static LoadEnd load(Trainer *t, const char *path, Err *err) {
    return checkpoint_load(path, &(Member){ MEMBER_MODEL, &t->policy }, 1, err);
}

static int count(const char *dir, const char *prefix) {
    char path[200];
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += !strncmp(e->d_name, prefix, strlen(prefix));
    if (d) closedir(d);
    return n;
}

static void hurt(const char *dir, int step, const char *file, long at, bool cut) {
    char path[300], c;
    snprintf(path, sizeof path, "%s/checkpoints/step-%06d/%s", dir, step, file);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0, "%s is not there", path);
    if (cut) CHECK(!ftruncate(fd, at), "cut");
    else {
        CHECK(pread(fd, &c, 1, at) == 1, "read");
        c ^= 1;
        CHECK(pwrite(fd, &c, 1, at) == 1, "write");
    }
    close(fd);
}

static int64_t newest(const char *dir, Err *err) { /* -1: none; -2: an error */
    Mem mem = { 0 };
    const char *path;
    int64_t step = -1;
    int quiet = dup(2), null = open("/dev/null", O_WRONLY);
    dup2(null, 2); /* what is passed over is said there */
    bool ok = checkpoint_find(dir, LOOK_ALL, &path, &step, &mem, err);
    dup2(quiet, 2);
    close(quiet);
    close(null);
    if (ok && !path) step = -1;
    mem_free(&mem);
    return ok ? step : -2;
}

/* Two updates, a save, two more: and the same from the checkpoint, in another trainer with another share offloaded. */
static void save_and_go_on(void) {
    char dir[128], path[200];
    folder(dir, "saving");
    Trainer a, b;
    Err err = { { 0 } };
    trainer_open(&a, MODEL, (PolicyConf){ .micro_tokens = 512 }, 1);
    Checkpoints *c = saver(&a, dir, 2, 0);
    EXPECT(newest(dir, &err) == -1, "a folder without checkpoints has one");
    update(&a), update(&a);
    EXPECT(save(&a, c, 2, &err), "save: %s", err.msg);
    update(&a), update(&a); /* while it is written */
    EXPECT(checkpoints_close(c, &err), "save: %s", err.msg);
    EXPECT(newest(dir, &err) == 2, "the checkpoint was not found: %s", err.msg);

    trainer_open(&b, MODEL, (PolicyConf){ .micro_tokens = 512, .offload = 0.4 }, 2);
    snprintf(path, sizeof path, "%s/checkpoints/step-000002", dir);
    EXPECT(load(&b, path, &err) == LOAD_OK && b.policy.opt.step == 2, "load: %s", err.msg);
    update(&b), update(&b);
    int64_t n, m;
    float *x = flat_of(&a, a.model.w.flat, &n), *y = flat_of(&b, b.model.w.flat, &m);
    EXPECT(n == m && !memcmp(x, y, (size_t)n * 4), "what follows a checkpoint is not what followed it before");
    free(x);
    free(y);
    trainer_close(&a);
    trainer_close(&b);
    clear(dir);
}

/* An update now must die: in a child.  Not under ThreadSanitizer, whose own allocator may be locked by the writing
 * thread when the child is made, and stays so in it: the child would wait for ever for the memory of its last words. */
static void refused(Trainer *t) {
#ifdef __SANITIZE_THREAD__
    (void)t;
#else
    pid_t pid = fork();
    if (!pid) {
        CHECK(freopen("/dev/null", "w", stderr), "no /dev/null");
        update(t);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "weights moved while they were being saved: %#x",
           status);
#endif
}

/* Through a buffer that holds a fraction of it the same files are written, of the moment of the save: the copy is
 * waited for before the next update, and an update that does not wait is refused. */
static void bounded(void) {
    char a[128], b[128], cmd[400];
    folder(a, "a whole buffer"), folder(b, "a small one");
    Trainer t;
    Err err = { { 0 } };
    trainer_open(&t, MODEL, (PolicyConf){ .micro_tokens = 512, .offload = 0.4 }, 1);
    Checkpoints *whole = saver(&t, a, 2, 0), *small = saver(&t, b, 2, 10001);
    for (int s = 1; s <= 2; s++) {
        update(&t);
        EXPECT(save(&t, whole, s, &err), "save: %s", err.msg);
        EXPECT(!t.policy.block.saving, "all of it fits, and is not copied at once");
        EXPECT(save(&t, small, s, &err), "save: %s", err.msg);
        EXPECT(t.policy.block.saving, "a buffer of 10 kB took all");
        for (int i = 0; i < 3; i++) checkpoint_copy_on(small);
        refused(&t);
        checkpoint_copied(small);
        EXPECT(!t.policy.block.saving, "copied, and still held");
    }
    update(&t);
    EXPECT(checkpoints_close(whole, &err) && checkpoints_close(small, &err), "%s", err.msg);
    snprintf(cmd, sizeof cmd, "diff -r '%s' '%s'", a, b);
    EXPECT(!system(cmd), "other files through a small buffer");
    trainer_close(&t);
    clear(a), clear(b);
}

static void damage(void) {
    char dir[128];
    folder(dir, "damage");
    Trainer t;
    Err err = { { 0 } };
    trainer_open(&t, MODEL, (PolicyConf){ .micro_tokens = 512 }, 1);
    Checkpoints *c = saver(&t, dir, 3, 0);
    for (int s = 1; s <= 5; s++) {
        update(&t);
        EXPECT(save(&t, c, s, &err), "save: %s", err.msg);
    }
    EXPECT(checkpoint_wait(c, &err), "save: %s", err.msg);
    EXPECT(count(dir, "step-") == 3 && newest(dir, &err) == 5, "%d checkpoints are kept, the newest is %d",
           count(dir, "step-"), (int)newest(dir, &err));
    hurt(dir, 5, "optimizer.safetensors", 1000, false);
    EXPECT(newest(dir, &err) == 4, "one bit in the optimizer's states: %d is used", (int)newest(dir, &err));
    hurt(dir, 4, "state.json", 3, true);
    EXPECT(newest(dir, &err) == 3, "a state cut short: %d is used", (int)newest(dir, &err));
    EXPECT(save(&t, c, 4, &err) && checkpoint_wait(c, &err), "a damaged checkpoint is replaced: %s", err.msg);
    EXPECT(newest(dir, &err) == 4, "the new one of step 4: %d is used", (int)newest(dir, &err));
    hurt(dir, 4, "model/config.json", 10, false);
    hurt(dir, 3, "manifest.json", 0, true);
    EXPECT(newest(dir, &err) == -2 && strstr(err.msg, "all 3 checkpoints are damaged"), "all damaged: %s", err.msg);
    EXPECT(checkpoints_close(c, &err), "close: %s", err.msg);
    trainer_close(&t);
    clear(dir);
}

/* Going on behind a damaged checkpoint: what is written then is of an earlier step, and stays. */
static void damaged_and_later(void) {
    char dir[128];
    folder(dir, "a damaged one");
    Trainer t;
    Err err = { { 0 } };
    trainer_open(&t, MODEL, (PolicyConf){ .micro_tokens = 512 }, 1);
    Checkpoints *c = saver(&t, dir, 1, 0);
    EXPECT(save(&t, c, 9, &err) && checkpoint_wait(c, &err), "save: %s", err.msg);
    hurt(dir, 9, "state.json", 3, true);
    for (int s = 3; s <= 4; s++) {
        EXPECT(save(&t, c, s, &err) && checkpoint_wait(c, &err), "save: %s", err.msg);
        EXPECT(newest(dir, &err) == s && count(dir, "step-") == 2, "step %d was saved, %d is used of %d", s,
               (int)newest(dir, &err), count(dir, "step-"));
    }
    EXPECT(checkpoints_close(c, &err), "close: %s", err.msg);
    trainer_close(&t);
    clear(dir);
}

static float moment(Trainer *t, OptimState k, int64_t at) {
    float x;
    optim_get(&t->policy.opt, &t->dev, k, at, 1, TENSOR_NONE, &x);
    return x;
}

/* Averages in 16 bits, or none: the weights are all there. */
static void rounded(void) {
    for (SavedMoments how = SAVED_BF16; how <= SAVED_NONE; how++) {
        char dir[128], path[200], cmd[300];
        folder(dir, "averages");
        Trainer a, b;
        Err err = { { 0 } };
        trainer_open(&a, MODEL, (PolicyConf){ .micro_tokens = 512 }, 1);
        trainer_open(&b, MODEL, (PolicyConf){ .micro_tokens = 512 }, 1);
        CheckpointConf conf = { .run_dir = dir, .keep = 1, .shard_bytes = (int64_t)1e5, .moments = how };
        Checkpoints *c = checkpoints_open(&(Member){ MEMBER_MODEL, &a.policy }, 1, &conf, &a.mem);
        update(&a), update(&a), update(&b);
        EXPECT(save(&a, c, 2, &err) && checkpoints_close(c, &err), "%s", err.msg);
        snprintf(path, sizeof path, "%s/checkpoints/step-000002", dir);
        EXPECT(load(&b, path, &err) == LOAD_OK && b.policy.opt.step == (how == SAVED_NONE ? 0 : 2), "%s", err.msg);
        int64_t n, m;
        float *x = flat_of(&a, a.model.w.flat, &n), *y = flat_of(&b, b.model.w.flat, &m);
        EXPECT(n == m && !memcmp(x, y, (size_t)n * 4), "weights are others where averages were not saved whole");
        free(x), free(y);
        for (OptimState k = STATE_M; k <= STATE_V; k++) {
            int64_t at = a.policy.opt.n / 2;
            while (moment(&a, k, at) == 0) at++; /* an expert that no token has met has none */
            float was = moment(&a, k, at), now = moment(&b, k, at),
                  want = how == SAVED_NONE ? 0 : bf16_f32(f32_bf16(was));
            EXPECT(was != 0 && now == want, "state %d: %g became %g", k, (double)was, (double)now);
        }
        snprintf(cmd, sizeof cmd, "ls %s/optimizer* >/dev/null 2>&1", path);
        EXPECT(!system(cmd) == (how == SAVED_BF16), "averages in files: %d", how);
        trainer_close(&a);
        trainer_close(&b);
        clear(dir);
    }
}

/* What another version has put into a checkpoint is named, and neither taken for damage nor pruned. */
static void unknown(void) {
    char dir[128], path[200], cmd[700];
    folder(dir, "a critic");
    Trainer t;
    Err err = { { 0 } };
    Buf names = { 0 };
    trainer_open(&t, MODEL, (PolicyConf){ .micro_tokens = 512 }, 1);
    Checkpoints *c = saver(&t, dir, 1, 0);
    EXPECT(save(&t, c, 1, &err) && checkpoint_wait(c, &err), "%s", err.msg);
    snprintf(path, sizeof path, "%s/checkpoints/step-000001", dir);
    EXPECT(!checkpoint_unknown(path, &names), "unknown: %s", names.data);
    snprintf(cmd, sizeof cmd,
             "cd %s && mkdir critic && printf abc > critic/a && printf abc > critic/b && sed -i 's|\"files\":{|&"
             "\"critic/a\":{\"bytes\":3,\"crc32\":891568578},\"critic/b\":{\"bytes\":3,\"crc32\":891568578},|' "
             "manifest.json",
             path);
    EXPECT(!system(cmd) && newest(dir, &err) == 1, "%s", err.msg);
    EXPECT(checkpoint_unknown(path, &names) && !strcmp(names.data, "critic/"), "unknown: %s", names.data);
    EXPECT(save(&t, c, 2, &err) && save(&t, c, 3, &err) && checkpoints_close(c, &err), "%s", err.msg);
    EXPECT(count(dir, "step-") == 2 && newest(dir, &err) == 3, "%d checkpoints", count(dir, "step-"));
    trainer_close(&t);
    buf_free(&names);
    clear(dir);
}

/* A child that saves again and again is killed at a random moment: what is there is whole. */
static void killed(int times) {
    char dir[128];
    folder(dir, "kills");
    int bad = 0, during = 0;
    for (int k = 0; k < times; k++) {
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (!pid) {
            Trainer t;
            Err err;
            trainer_open(&t, MODEL, (PolicyConf){ .micro_tokens = 512 }, 1);
            Checkpoints *c = saver(&t, dir, 1, k % 3 ? 0 : 5000);
            int64_t from = newest(dir, &err);
            for (int64_t s = from < 0 ? 0 : from;; s++)
                if (!save(&t, c, s, &err)) _exit(3); /* first over the one that is there */
        }
        int64_t before = newest(dir, &(Err){ { 0 } });
        struct timespec wait = { 0, 1000000 };
        for (int i = 0; i < 10000 && (before < 0 ? 0 : before) >= newest(dir, &(Err){ { 0 } }); i++)
            nanosleep(&wait, NULL);
        wait.tv_nsec = (long)(rng_u64(3, RNG_PLAN, 0, 0, 0, (uint32_t)k) % 30000000);
        if (k % 2) nanosleep(&wait, NULL);
        else
            while (!count(dir, ".writing-")) {} /* the child never stops saving: one is soon under way */
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        CHECK(WIFSIGNALED(status), "the child ended by itself");
        during += count(dir, ".writing-") > 0;
        Err err;
        int64_t now = newest(dir, &err);
        bad += now < 0 || now < before;
    }
    EXPECT(!bad, "after %d of %d kills there was no whole checkpoint", bad, times);
    EXPECT(during > 0, "no kill fell into a save: this test saw too little");
    clear(dir);
}

/* The disk is full in the middle of a save: said, and the one before it is untouched. */
static void full_disk(void) {
    char dir[128];
    folder(dir, "a full disk");
    Trainer t;
    Err err = { { 0 } };
    trainer_open(&t, MODEL, (PolicyConf){ .micro_tokens = 512 }, 1);
    Checkpoints *c = saver(&t, dir, 1, 5000);
    EXPECT(save(&t, c, 1, &err) && checkpoint_wait(c, &err), "save: %s", err.msg);
    struct rlimit old, small = { 20000, RLIM_INFINITY };
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    bool started = save(&t, c, 2, &err), ok = started && checkpoint_wait(c, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    EXPECT(!ok && strstr(err.msg, "step 2 was not written (earlier ones are untouched)"), "a full disk: %s",
           ok ? "no error" : err.msg);
    EXPECT(newest(dir, &err) == 1 && !count(dir, ".writing-"), "after a full disk: %d is used, %d halves lie about",
           (int)newest(dir, &err), count(dir, ".writing-"));
    EXPECT(save(&t, c, 3, &err) && checkpoints_close(c, &err) && newest(dir, &err) == 3, "once there is room again: %s",
           err.msg);
    trainer_close(&t);
    clear(dir);
}

int main(void) {
    save_and_go_on();
    bounded();
    damage();
    damaged_and_later();
    rounded();
    unknown();
    killed(10);
    full_disk();
    return test_end();
}
