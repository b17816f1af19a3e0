/* test_moments.c - the optimizer's states belong to names: they find their weights again in another order
 * of the table, with another share on the host; files from before they had names are read; a file that is
 * not this model's is an error. */
#include "train/checkpoint.h"
#include "train/moments.h"
#include "train/tiny_fixture.h"

#include <unistd.h>

/* Three updates of 'Tiny': saved by position; and by name, before files were counted by pieces. */
static const char *const runs_before[] = { FIXTURE("run_before/checkpoints/step-000003"),
                                           FIXTURE("run_named/checkpoints/step-000003") };

static float *numbers(Tiny *t, const Params *all, const Tensor part[2], const Param *p, bool moment) {
    int64_t n = p->t.rows * p->t.cols, from = (const float *)p->t.data - (const float *)all->flat.data;
    float *flat = MEM_ARRAY(&t->mem, float, (size_t)all->flat.cols), *out = MEM_ARRAY(&t->mem, float, (size_t)n);
    if (moment) op_get(&t->dev, flat, part[0]), op_get(&t->dev, flat + t->policy.opt.split, part[1]);
    else op_get(&t->dev, flat, all->flat);
    memcpy(out, flat + from, (size_t)n * 4);
    return out;
}

/* Weights and both averages of two models, compared by name: how many parameters differ. */
static int differing(Tiny *a, Tiny *b) {
    int bad = 0;
    for (int k = 0; k < a->policy.grads.n; k++) {
        const Param *p = &a->policy.grads.at[k];
        const Params *gb = &b->policy.grads;
        const Param *q = &gb->at[gb->index[p->layer][p->desc->id]];
        size_t bytes = (size_t)(p->t.rows * p->t.cols) * 4;
        const Optim *x = &a->policy.opt, *y = &b->policy.opt;
        const Param *wp = &a->model.w.at[a->model.w.index[p->layer][p->desc->id]];
        const Param *wq = &b->model.w.at[b->model.w.index[p->layer][p->desc->id]];
        bad +=
            memcmp(numbers(a, &a->policy.grads, x->state[STATE_M], p, true), numbers(b, gb, y->state[STATE_M], q, true),
                   bytes)
                != 0
            || memcmp(numbers(a, &a->policy.grads, x->state[STATE_V], p, true),
                      numbers(b, gb, y->state[STATE_V], q, true), bytes)
                   != 0
            || memcmp(numbers(a, &a->model.w, NULL, wp, false), numbers(b, &b->model.w, NULL, wq, false), bytes) != 0;
    }
    return bad;
}

/* The family's rows from the last to the first. */
static ParamDesc *turned(const Arch *a, Mem *mem) {
    int n = 0;
    while (a->params[n].name) n++;
    ParamDesc *out = MEM_ARRAY(mem, ParamDesc, (size_t)n + 1);
    for (int i = 0; i < n; i++) out[i] = a->params[n - 1 - i];
    return out;
}

static LoadEnd load(Tiny *t, const char *path, Err *err) {
    return checkpoint_load(path, &(Member){ MEMBER_MODEL, &t->policy }, 1, err);
}

static void another_order(void) {
    char dir[64] = "/tmp/hone-test-XXXXXX", cmd[100];
    CHECK(mkdtemp(dir), "no folder");
    Tiny a, b;
    Err err = { { 0 } };
    tiny_open(&a, NULL, 0);
    tiny_open(&b, turned(a.desc.arch, &a.mem), 0.7);
    EXPECT(b.policy.opt.split > 0 && b.policy.opt.split < b.policy.opt.n, "nothing is on the host");
    int moved = 0;
    for (int k = 0; k < a.policy.grads.n; k++) moved += a.policy.grads.at[k].desc->id != b.policy.grads.at[k].desc->id;
    EXPECT(moved > 5, "only %d rows stand elsewhere", moved);
    for (int i = 0; i < 4; i++) tiny_update(&a);
    CheckpointConf conf = { .run_dir = dir, .keep = 1, .shard_bytes = 1000000 };
    Checkpoints *c = checkpoints_open(&(Member){ MEMBER_MODEL, &a.policy }, 1, &conf, &a.mem);
    EXPECT(checkpoint_save(c, 4, "{\"optimizer_step\":4}", &err) && checkpoints_close(c, &err), "%s", err.msg);
    char *path = mem_printf(&a.mem, "%s/checkpoints/step-000004", dir);
    EXPECT(load(&b, path, &err) == LOAD_OK, "%s", err.msg);
    EXPECT(b.policy.opt.step == 4 && differing(&a, &b) == 0, "%d parameters differ in another order",
           differing(&a, &b));
    tiny_update(&a), tiny_update(&b);
    EXPECT(differing(&a, &b) == 0, "%d parameters differ after one more update", differing(&a, &b));
    tiny_close(&b);
    tiny_close(&a);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    CHECK(!system(cmd), "%s stays", dir);
}

static void of_before(void) {
    for (int k = 0; k < 4; k++) {
        int host = k % 2;
        Tiny a, b;
        Err err = { { 0 } };
        tiny_open(&a, NULL, 0);
        tiny_open(&b, NULL, host ? 0.7 : 0);
        for (int i = 0; i < 3; i++) tiny_update(&a);
        EXPECT(load(&b, runs_before[k / 2], &err) == LOAD_OK, "%s", err.msg);
        EXPECT(b.policy.opt.step == 3 && differing(&a, &b) == 0, "%d parameters of the old checkpoint differ",
               differing(&a, &b));
        tiny_close(&b);
        tiny_close(&a);
    }
}

typedef enum { FINE, RENAMED, MISSING, MORE, SHAPE, DTYPE, FLAT_SHORT } Wrong;

static bool load_wrong(Tiny *t, const Moments *x, Wrong how, Err *err) {
    char file[] = "/tmp/hone-test-XXXXXX.safetensors";
    CHECK(mkstemps(file, 12) >= 0, "no file");
    StSpec *s = mem_push(&t->mem, (x->n + 1) * sizeof *s);
    memcpy(s, x->spec, x->n * sizeof *s);
    size_t n = x->n;
    if (how == RENAMED) s[3].name = "v.model.layers.7.nothing";
    if (how == MISSING) n--;
    if (how == MORE) s[n++] = (StSpec){ "m.more", DT_F32, 1, { 1 } };
    if (how == SHAPE) s[0].n_dims = 1, s[0].shape[0] *= s[0].shape[1];
    if (how == DTYPE) s[0].dtype = DT_BF16;
    if (how == FLAT_SHORT) s[0] = (StSpec){ "m", DT_F32, 1, { 10 } }, s[1] = (StSpec){ "v", DT_F32, 1, { 10 } }, n = 2;
    StWriter *w = st_write_open(file, s, n, INT64_MAX, err);
    CHECK(w, "%s", err->msg);
    static const char zero[1 << 16];
    for (size_t i = 0; i < n; i++) {
        size_t bytes = dtype_size(s[i].dtype);
        for (int k = 0; k < s[i].n_dims; k++) bytes *= (size_t)s[i].shape[k];
        CHECK(st_write(w, zero, bytes, err), "%s", err->msg);
    }
    CHECK(st_write_close(w, err), "%s", err->msg);
    StFiles f;
    bool ok = st_open(&f, file, &t->mem, err) && moments_check(x, &t->policy.grads, &f, err);
    st_close(&f);
    unlink(file);
    return ok;
}

static void wrong_files(void) {
    static const struct {
        Wrong how;
        const char *says;
    } cases[] = { { FINE, NULL },
                  { RENAMED, "there is no tensor v." },
                  { MISSING, "there is no tensor v." },
                  { MORE, "25 tensors, this model has 24" },
                  { SHAPE, "this model wants F32 [64,8]" },
                  { DTYPE, "this model wants BF16" },
                  { FLAT_SHORT, "\"m\" does not have this model's" } };
    Tiny t;
    tiny_open(&t, NULL, 0);
    tiny_update(&t);
    Moments x = moments_of(&t.policy.grads, DT_F32, &t.mem);
    for (size_t i = 0; i < COUNT(cases); i++) {
        Err err = { { 0 } };
        bool ok = load_wrong(&t, &x, cases[i].how, &err);
        if (!cases[i].says) EXPECT(ok, "%s", err.msg);
        else
            EXPECT(!ok && strstr(err.msg, cases[i].says) && strstr(err.msg, ".safetensors: "), "case %zu: %s", i,
                   ok ? "was taken" : err.msg);
    }
    tiny_close(&t);
}

int main(void) {
    another_order();
    of_before();
    wrong_files();
    return test_end();
}
