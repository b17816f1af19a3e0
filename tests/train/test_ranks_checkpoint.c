/* test_ranks_checkpoint.c - what is saved on one grid is loaded on any other, and saved again from there with the same
 * bytes in every file; a rank that cannot write makes the save fail on all, and the one before stays; a rank that is
 * killed leaves a whole checkpoint behind.  Starts itself under mpirun. */
#include "train/checkpoint.h"
#include "train/ranks_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    Ranks r;
    Dev d;
    Model m;
    Policy p;
    Err err;
} Rig;

/* Rows so long, and so many of them, that strips are exchanged in several blocks. */
static const char WIDE[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":520,\"num_"
    "hidden_layers\":1,\"vocab_size\":300,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"head_dim\":8,\"intermediate_size\":1504,\"tie_word_embeddings\":false," RANKS_COMMON;
enum { WIDE_MODEL = COUNT(rank_models) };
static const char *config_of(int which) { return which == WIDE_MODEL ? WIDE : rank_models[which].config; }

/* By model: weights and states as a run may keep them. */
static const OptimTypes kept_by[] = { { 0 }, { 0 }, { DT_BF16, DT_F32, DT_BF16 }, { DT_BF16, DT_I16, DT_BF16 }, { 0 } };

static void rig_open(Rig *x, const World *w, int which, const char *grid, double offload) {
    CHECK(ranks_open_config(&x->r, w, config_of(which), grid), "%s cannot be cut by %s", config_of(which), grid);
    PolicyConf c = { .micro_tokens = 64, .max_seqs = 6, .offload = offload, .states = kept_by[which], .trains = true };
    dev_open(&x->d, (DevOpts){ .threads = 1 });
    x->d.tmp = dev_arena(&x->d, "tmp", policy_sizes(&x->r.desc, &x->r.shard, &c, dev_kind_cpu()).tmp);
    model_open_shard(&x->m, &x->d, &x->r.desc, &x->r.shard, &x->r.par, kept_by[which].weights, 8, &x->r.mem);
    params_random(&x->m.w, &x->d, 7);
    policy_open(&x->p, &x->m, &c, &x->r.mem);
}
static void rig_close(Rig *x) {
    policy_close(&x->p);
    model_close(&x->m);
    dev_close(&x->d);
    mem_free(&x->r.mem);
}

static void update(Rig *x, int times) {
    LossConf loss = { .agg = AGG_TOKEN_MEAN, .clip_low = 0.2, .clip_high = 0.2, .clip_c = 3 };
    AdamConf adam = { 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 0 };
    static int32_t tok[6][32];
    static float old[32], adv[32];
    TrainSeq seq[6];
    for (int k = 0; k < 32; k++) adv[k] = 1, old[k] = -5;
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 32; k++) tok[i][k] = (i * 131 + k * 17 + 3) % (int)x->r.desc.d.vocab;
        seq[i] =
            (TrainSeq){ .tokens = tok[i], .n = 20 + 2 * i, .prompt = 1, .draw = DRAW_PLAIN, .old = old, .adv = adv };
    }
    for (int i = 0; i < times; i++) {
        UpdateStats st;
        bool ok = policy_update(&x->p, seq, 6, &loss, &adam, false, &st, &x->err);
        EXPECT(ok && st.stepped, "%s", x->err.msg);
    }
}

static Checkpoints *saver(Rig *x, const char *dir, int64_t buffer) {
    CheckpointConf c = { .run_dir = dir, .keep = 2, .shard_bytes = 100000, .buffer = buffer, .piece = 30000 };
    return checkpoints_open(&(Member){ MEMBER_MODEL, &x->p }, 1, &c, &x->r.mem);
}
static LoadEnd load(Rig *x, const char *path) {
    return checkpoint_load(path, &(Member){ MEMBER_MODEL, &x->p }, 1, &x->err);
}
static bool save(Rig *x, Checkpoints *c, int64_t step) {
    char state[80];
    snprintf(state, sizeof state, "{\"optimizer_step\":%ld,\"step\":%ld}\n", (long)x->p.opt.step, (long)step);
    return checkpoint_save(c, step, state, &x->err);
}

/* ---- what ranks do: "make", "again", "fail", "loop" */
static void make(Rig *x, const char *dir) {
    update(x, 3);
    Checkpoints *c = saver(x, mem_printf(&x->r.mem, "%s/made", dir), 0);
    EXPECT(save(x, c, 3), "%s", x->err.msg);
    update(x, 1); /* a buffer that holds everything: the save is of the moment before */
    EXPECT(checkpoints_close(c, &x->err), "%s", x->err.msg);
}

static void again(Rig *x, const char *dir, const char *name) {
    EXPECT(load(x, mem_printf(&x->r.mem, "%s/made/checkpoints/step-000003", dir)) == LOAD_OK, "%s", x->err.msg);
    EXPECT(x->p.opt.step == 3, "update %lld", (long long)x->p.opt.step);
    Checkpoints *c = saver(x, mem_printf(&x->r.mem, "%s/%s", dir, name), 20000);
    EXPECT(save(x, c, 3), "%s", x->err.msg);
    EXPECT(checkpoints_close(c, &x->err), "%s", x->err.msg);
}

/* Damage that one rank reads is every rank's verdict, with the file's name; what was loaded before does no harm to what
 * is loaded next. */
static void hurt(Rig *x, const char *dir) {
    static const struct {
        const char *file;
        bool nan;
    } cases[] = { { "model/model-00001-of-", false },
                  { "optimizer-00002-of-", false },
                  { "model/model-00002-of-", true } };
    const char *made = mem_printf(&x->r.mem, "%s/made/checkpoints/step-000003", dir);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char cmd[512], *path = mem_printf(&x->r.mem, "%s/hurt-%zu", dir, i);
        snprintf(cmd, sizeof cmd,
                 "cp -r %s %s && f=$(ls %s/%s*) && printf '%s' | dd of=$f bs=1 seek=$(($(stat -c %%s $f) - 4)) "
                 "conv=notrunc status=none",
                 made, path, path, cases[i].file, cases[i].nan ? "\\0\\0\\300\\177" : "\\1\\2\\3\\4");
        if (x->r.w.all.rank == 0) CHECK(!system(cmd), "%s", cmd);
        comm_barrier(&x->r.w.all);
        EXPECT(load(x, path) == LOAD_DAMAGED && strstr(x->err.msg, cases[i].file), "case %zu: %s", i, x->err.msg);
    }
    again(x, dir, "afterhurt");
}

static void fail(Rig *x, const char *dir) {
    int last = x->r.w.all.size - 1;
    Checkpoints *c = saver(x, mem_printf(&x->r.mem, "%s/failing", dir), 0);
    EXPECT(save(x, c, 1) && checkpoint_wait(c, &x->err), "%s", x->err.msg);
    struct rlimit was, small = { 100, 100 };
    getrlimit(RLIMIT_FSIZE, &was);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    if (x->r.w.all.rank == last) setrlimit(RLIMIT_FSIZE, &small);
    bool ok = save(x, c, 2) && checkpoint_wait(c, &x->err);
    setrlimit(RLIMIT_FSIZE, &was);
    EXPECT(!ok && strstr(x->err.msg, "step 2 was not written") && strstr(x->err.msg, strerror(EFBIG)), "rank %d: %s",
           x->r.w.all.rank, ok ? "it was written" : x->err.msg);
    Mem mem = { 0 };
    const char *path = NULL;
    int64_t step = 0;
    EXPECT(checkpoint_find(mem_printf(&mem, "%s/failing", dir), LOOK_ALL, &path, &step, &mem, &x->err) && step == 1,
           "step %lld", (long long)step);
    comm_barrier(&x->r.w.all);
    EXPECT(save(x, c, 3) && checkpoints_close(c, &x->err), "%s", x->err.msg);
    EXPECT(checkpoint_find(mem_printf(&mem, "%s/failing", dir), LOOK_ALL, &path, &step, &mem, &x->err) && step == 3,
           "step %lld", (long long)step);
    mem_free(&mem);
}

/* Until it is killed; the number of its process is left in the folder. */
static void loop(Rig *x, const char *dir) {
    FILE *f = fopen(mem_printf(&x->r.mem, "%s/pid-%d", dir, x->r.w.all.rank), "w");
    CHECK(f && fprintf(f, "%d", (int)getpid()) > 0 && !fclose(f), "no file");
    Checkpoints *c = saver(x, mem_printf(&x->r.mem, "%s/killed", dir), 20000);
    for (int64_t step = 1; step < 200; step++) CHECK(save(x, c, step) && checkpoint_wait(c, &x->err), "%s", x->err.msg);
}

static void act(const World *w, int which, const char *what, const char *grid, const char *dir) {
    Rig x = { 0 };
    rig_open(&x, w, which, grid, strcmp(what, "again") ? 0 : 0.4);
    if (!strcmp(what, "make")) make(&x, dir);
    else if (!strcmp(what, "again")) again(&x, dir, grid);
    else if (!strcmp(what, "fail")) fail(&x, dir);
    else if (!strcmp(what, "hurt")) hurt(&x, dir);
    else loop(&x, dir);
    rig_close(&x);
}

static int ranks_main(char *mode) { /* model@what@grid@folder */
    World w;
    Err err;
    CHECK(world_open(&w, 60, &err), "%s", err.msg);
    const char *word[4];
    for (int i = 0; i < 4; i++) word[i] = strtok(i ? NULL : mode, "@");
    act(&w, atoi(word[0]), word[1], word[2], word[3]);
    return ranks_end(&w);
}

/* ---- */
static void on_grid(const char *self, int ranks, int which, const char *what, const char *grid, const char *dir) {
    char mode[256];
    snprintf(mode, sizeof mode, "%d@%s@%s@%s", which, what, grid, dir);
    World alone = { .all = comm_self(), .local_size = 1 };
    if (ranks == 1) act(&alone, which, what, grid, dir);
    else expect_ranks(self, ranks, mode);
}

static void same_bytes(const char *dir, const char *name) {
    char cmd[512];
    snprintf(cmd, sizeof cmd, "diff -r -x manifest.json %s/made %s/%s", dir, dir, name);
    EXPECT(!system(cmd), "saved again from %s: other bytes", name);
    Mem mem = { 0 };
    const char *path = NULL;
    int64_t step;
    Err err = { "" };
    EXPECT(checkpoint_find(mem_printf(&mem, "%s/%s", dir, name), LOOK_ALL, &path, &step, &mem, &err) && path
               && step == 3,
           "%s: no whole checkpoint: %s", name, err.msg);
    mem_free(&mem);
}

static int pid_in(const char *dir, int rank) {
    char path[300];
    int pid = 0;
    snprintf(path, sizeof path, "%s/pid-%d", dir, rank);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &pid) != 1) pid = 0;
    if (f) fclose(f);
    return pid;
}

static void kills(const char *self, const char *dir, int times) {
    int64_t last = 0;
    for (int k = 0; k < times; k++) {
        char line[512];
        snprintf(line, sizeof line, "rm -f %s/pid-*", dir); /* those of the last time */
        CHECK(!system(line), "%s", line);
        snprintf(line, sizeof line,
                 "exec mpirun --allow-run-as-root --oversubscribe -n 3 %s --ranks 3@loop@dp=3@%s >/dev/null 2>&1", self,
                 dir);
        pid_t child = fork();
        if (!child) execl("/bin/sh", "sh", "-c", line, NULL), _exit(127);
        int pid = 0;
        for (int i = 0; i < 30000 && !(pid = pid_in(dir, k % 3)); i++) /* a busy machine may take minutes */
            nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
        CHECK(pid, "the ranks did not start");
        nanosleep(&(struct timespec){ 0, 150000000 + 77000000L * (k % 7) }, NULL);
        kill(pid, SIGKILL);
        waitpid(child, NULL, 0);
        Mem mem = { 0 };
        const char *path = NULL;
        int64_t step = 0;
        Err err = { "" };
        bool ok = checkpoint_find(mem_printf(&mem, "%s/killed", dir), LOOK_ALL, &path, &step, &mem, &err);
        EXPECT(ok && (path || !last), "kill %d: no whole checkpoint after one of step %lld: %s", k, (long long)last,
               err.msg);
        if (path) {
            Rig x = { 0 };
            World alone = { .all = comm_self(), .local_size = 1 };
            rig_open(&x, &alone, 3, "tp=1", 0);
            EXPECT(load(&x, path) == LOAD_OK, "kill %d: %s", k, x.err.msg);
            rig_close(&x);
            last = step;
        }
        mem_free(&mem);
    }
    EXPECT(last > 0, "no save came to its end");
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return ranks_main(argv[2]);
    if (!ranks_possible()) {
        SKIP("there is no mpirun: checkpoints of several ranks were not tried");
        return test_end();
    }
    static const struct {
        int which, from_ranks;
        const char *from;
        struct {
            int n;
            const char *grid;
        } to[4];
    } cases[] = {
        { 3, 4, "tp=2,pp=2", { { 1, "tp=1" }, { 4, "ep=4" }, { 8, "tp=2,ep=4" }, { 3, "dp=3" } } },
        { 2, 4, "tp=4", { { 1, "tp=1" }, { 2, "pp=2" }, { 4, "tp=2,dp=2" }, { 8, "dp=8" } } },
        { 0, 1, "tp=1", { { 8, "tp=4,dp=2" }, { 4, "ep=2,etp=2" } } },
        { WIDE_MODEL, 1, "tp=1", { { 2, "tp=2" }, { 4, "tp=2,dp=2" }, { 4, "tp=4" } } },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char dir[] = "/tmp/hone-test-XXXXXX", cmd[64];
        CHECK(mkdtemp(dir), "no folder");
        on_grid(argv[0], cases[i].from_ranks, cases[i].which, "make", cases[i].from, dir);
        for (int k = 0; k < 4 && cases[i].to[k].n; k++) {
            on_grid(argv[0], cases[i].to[k].n, cases[i].which, "again", cases[i].to[k].grid, dir);
            same_bytes(dir, cases[i].to[k].grid);
        }
        if (i == 0) {
            on_grid(argv[0], 4, 3, "hurt", "ep=4", dir);
            same_bytes(dir, "afterhurt");
            on_grid(argv[0], 4, 3, "fail", "tp=2,dp=2", dir);
            int times = argc > 1 ? atoi(argv[1]) : 0; /* test_ranks_checkpoint 50: as often */
            kills(argv[0], dir, times > 0 ? times : 7);
        }
        snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
        CHECK(!system(cmd), "%s stays", dir);
    }
    return test_end();
}
