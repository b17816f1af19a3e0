/* test_master.c - weights in BF16 with a master in F32: the master is what is trained, saved and loaded, the weights are the master
 * rounded, vectors are one in both. */
#include "train/train_fixture.h"
#include "tensor/half.h"
#include "train/checkpoint.h"

#include <unistd.h>

static void half_open(Trainer *t, PolicyConf c) {
    Err err = { { 0 } };
    *t = (Trainer){ 0 };
    CHECK(model_desc_load(&t->desc, FIXTURE("models/qwen3_moe"), &t->mem, &err), "%s", err.msg);
    dev_open(&t->dev, (DevOpts){ .threads = 2 });
    t->dev.tmp = dev_arena(&t->dev, "tmp", policy_sizes(&t->desc, NULL, &c, dev_kind_cpu()).tmp);
    model_open(&t->model, &t->dev, &t->desc, DT_BF16, 8, &t->mem);
    model_open_master(&t->model, &t->mem);
    CHECK(model_load(&t->model, FIXTURE("models/qwen3_moe"), &err), "%s", err.msg);
    policy_open(&t->policy, &t->model, &c, &t->mem);
}

/* Entries of w that are not the master rounded; *moved: entries of the master that are not 'before'. */
static int64_t unrounded(Trainer *t, const float *before, int64_t *moved) {
    int64_t bad = 0, n;
    float *flat = flat_of(t, t->model.master.flat, &n);
    for (int i = 0; i < t->model.w.n; i++) {
        Tensor w = t->model.w.at[i].t, m = t->model.master.at[i].t;
        const float *x = flat + ((const float *)m.data - (const float *)t->model.master.flat.data);
        uint16_t *h = malloc((size_t)(w.rows * w.cols) * 4);
        if (w.dtype == DT_F32) {
            bad += w.data != m.data;
        } else {
            op_get(&t->dev, h, w);
            for (int64_t k = 0; k < w.rows * w.cols; k++) bad += h[k] != f32_bf16(x[k]);
        }
        free(h);
    }
    if (moved) {
        *moved = 0;
        for (int64_t k = 0; k < n; k++) *moved += flat[k] != before[k];
    }
    free(flat);
    return bad;
}

int main(void) {
    PolicyConf c = { .micro_tokens = 256, .max_seqs = TRAIN_SEQS, .offload = 0.3, .trains = true };
    Trainer t, f, u;
    Err err;
    UpdateStats st;
    int64_t n, moved;
    half_open(&t, c);
    trainer_open(&f, "qwen3_moe", c, 2); /* the same with F32 weights, and its sequences */
    float *before = flat_of(&t, t.model.master.flat, &n), *full = flat_of(&f, f.model.w.flat, &n);
    EXPECT(!memcmp(before, full, (size_t)n * 4), "the master is not what the files hold");
    EXPECT(unrounded(&t, NULL, NULL) == 0, "after loading, the weights are not the master rounded");
    free(full);

    CHECK(policy_update(&t.policy, f.seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
    EXPECT(st.stepped && unrounded(&t, before, &moved) == 0, "after a step, the weights are not the master rounded");
    EXPECT(moved > n / 2, "%lld of %lld entries of the master moved", (long long)moved, (long long)n);
    EXPECT(model_bytes(&t.desc, DT_BF16, true) == t.model.w.arena.size + t.model.master.arena.size, "model_bytes");

    char dir[] = "/tmp/hone-master-XXXXXX";
    CHECK(mkdtemp(dir), "no folder");
    CheckpointConf cc = { .run_dir = dir, .keep = 1, .shard_bytes = 1 << 30 };
    Checkpoints *saves = checkpoints_open(&t.policy, &cc, &t.mem);
    bool ok = checkpoint_save(saves, 1, "{\"optimizer_step\":1}", &err) && checkpoint_wait(saves, &err);
    EXPECT(ok, "%s", err.msg);
    half_open(&u, c);
    const char *path = NULL;
    int64_t step;
    ok = checkpoint_find(dir, &path, &step, &u.mem, &err) && path && checkpoint_load(path, &u.policy, &err);
    EXPECT(ok, "%s", err.msg);
    float *a = flat_of(&t, t.model.master.flat, &n), *b = flat_of(&u, u.model.master.flat, &n);
    EXPECT(!memcmp(a, b, (size_t)n * 4), "the master came back from the checkpoint with other bits");
    EXPECT(unrounded(&u, NULL, NULL) == 0, "after resuming, the weights are not the master rounded");
    free(a), free(b), free(before);
    checkpoints_close(saves, &err);
    char rm[64];
    snprintf(rm, sizeof rm, "rm -r %s", dir);
    EXPECT(system(rm) == 0, "%s", rm);
    trainer_close(&t), trainer_close(&f), trainer_close(&u);
    return test_end();
}
