/* test_master.c - weights and states in fewer bits: the master is what is trained, saved and loaded, BF16 weights are
 * it rounded, vectors stay F32; what is taken is what was planned; saved, loaded and gone on with, all of it has the
 * bytes of the run that was never left. */
#include "train/train_fixture.h"
#include "train/checkpoint.h"
#include "train/masters.h"

#include <unistd.h>

enum { STEP = 2 };

static void kept_open(Trainer *t, const char *name, OptimTypes kept) {
    Err err = { { 0 } };
    trainer_open(t, name, (PolicyConf){ .micro_tokens = 256, .offload = 0.3, .states = kept }, 2);
    CHECK(masters_load(&t->policy.opt, &t->model.w, &t->policy.grads, &t->dev, t->desc.dir, &err), "%s", err.msg);
}

static void update(Trainer *t, const Trainer *with) {
    UpdateStats st;
    Err err;
    CHECK(policy_update(&t->policy, with->seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
    EXPECT(st.stepped, "no step");
}

/* Entries of weights that are not their masters rounded; *moved: masters that are not those of 'before'. */
static int64_t unrounded(Trainer *t, const float *before, int64_t *moved) {
    int64_t bad = 0, n;
    float *all = trained_of(t, &n), *at = all;
    *moved = 0;
    for (int i = 0; i < t->policy.grads.n; i++) {
        const Param *p = &t->policy.grads.at[i];
        int64_t k = p->t.rows * p->t.cols;
        bool is_short = param(&t->model.w, p->desc->id, p->layer).dtype == DT_BF16;
        EXPECT(is_short == (t->policy.c.states.weights == DT_BF16 && !p->desc->vector), "which weights are short");
        for (int64_t j = 0; j < k; j++) {
            bad += is_short ? f32_bits(at[j]) != (uint32_t)f32_bf16(at[k + j]) << 16 : at[j] != at[k + j];
            *moved += before && at[k + j] != before[at - all + k + j];
        }
        at += 4 * k;
    }
    free(all);
    return bad;
}

/* The masters of a model in F32 are its numbers, not those of its rounded weights. */
static void from_files(const char *name, OptimTypes kept) {
    Trainer t, f;
    int64_t n, moved, other = 0;
    kept_open(&t, name, kept);
    trainer_open(&f, name, (PolicyConf){ .micro_tokens = 256 }, 2);
    float *a = trained_of(&t, &n), *b = trained_of(&f, &n);
    int64_t at = 0;
    for (int i = 0; i < t.policy.grads.n; i++) {
        int64_t k = t.policy.grads.at[i].t.rows * t.policy.grads.at[i].t.cols;
        for (int64_t j = 0; j < k; j++) { /* a remainder may be one unit of the last place lower */
            uint32_t x = f32_bits(a[at + k + j]), y = f32_bits(b[at + k + j]);
            other += x != y && !(kept.master == DT_I16 && (y & 0x1FFFF) == 0x8000 && x == y - 1);
        }
        at += 4 * k;
    }
    EXPECT(other == 0, "%s: %lld masters are not what the files hold", name, (long long)other);
    EXPECT(unrounded(&t, NULL, &moved) == 0, "%s: after loading, weights are not their masters rounded", name);
    free(a), free(b);
    trainer_close(&t), trainer_close(&f);
}

static void goes_on(const char *name, size_t which) {
    OptimTypes kept = kept_as[which].t;
    Trainer t, u;
    Err err;
    int64_t n, moved;
    kept_open(&t, name, kept);
    const Optim *o = &t.policy.opt;
    EXPECT(optim_param_bytes(kept) == kept_as[which].bytes, "%s: bytes a parameter", kept_as[which].name);
    EXPECT(o->host.size >= (size_t)o->split * kept_as[which].bytes
               && o->host.size < (size_t)o->split * kept_as[which].bytes + 3 * ARENA_ALIGN,
           "%s: %zu bytes for %lld parameters on the host", kept_as[which].name, o->host.size, (long long)o->split);
    EXPECT(o->host.used == o->host.size && o->dev.used == o->dev.size, "%s: planned and taken", kept_as[which].name);
    float *before = trained_of(&t, &n);
    for (int i = 0; i < STEP; i++) update(&t, &t);
    EXPECT(unrounded(&t, before, &moved) == 0, "%s: after updates, weights are not masters rounded",
           kept_as[which].name);
    EXPECT(moved > n / 4 * 9 / 10, "%s: %lld of %lld masters moved", kept_as[which].name, (long long)moved,
           (long long)(n / 4));

    char dir[] = "/tmp/hone-master-XXXXXX", rm[64];
    CHECK(mkdtemp(dir), "no folder");
    CheckpointConf cc = { .run_dir = dir, .keep = 1, .shard_bytes = 1 << 30, .buffer = 100000 };
    Checkpoints *saves = checkpoints_open(&(Member){ MEMBER_MODEL, &t.policy }, 1, &cc, &t.mem);
    bool ok = checkpoint_save(saves, 1, "{\"optimizer_step\":2}", &err) && checkpoint_wait(saves, &err);
    EXPECT(ok, "%s", err.msg);
    kept_open(&u, name, kept);
    const char *path = NULL;
    int64_t step;
    ok = checkpoint_find(dir, LOOK_ALL, &path, &step, &u.mem, &err) && path
         && checkpoint_load(path, &(Member){ MEMBER_MODEL, &u.policy }, 1, &err) == LOAD_OK;
    EXPECT(ok, "%s", err.msg);
    for (int i = 0; i < 2; i++) {
        float *a = trained_of(&t, &n), *b = trained_of(&u, &n);
        EXPECT(!memcmp(a, b, (size_t)n * 4), "%s: %s", kept_as[which].name,
               i ? "the update after resuming has other bytes" : "came back from the checkpoint with other bits");
        free(a), free(b);
        update(&t, &t), update(&u, &t);
    }
    EXPECT(unrounded(&u, NULL, &moved) == 0, "%s: after resuming, weights are not masters rounded",
           kept_as[which].name);
    checkpoints_close(saves, &err);
    free(before);
    snprintf(rm, sizeof rm, "rm -r %s", dir);
    EXPECT(system(rm) == 0, "%s", rm);
    trainer_close(&t), trainer_close(&u);
}

int main(void) {
    for (size_t k = 0; k < COUNT(kept_as); k++) goes_on(k % 2 ? "qwen3_moe" : "deepseek_v3", k);
    from_files("qwen3_moe", (OptimTypes){ DT_BF16, DT_F32, DT_BF16 });
    from_files("deepseek_v3", (OptimTypes){ DT_BF16, DT_I16, DT_BF16 });
    return test_end();
}
