/* test_sync.c - weights from one cut to another, any grid to any grid on 8 ranks: every tensor byte-equal to the one
 * that a seed gives in that cut, bytes and buffer as the plan prints them, equal cuts in the same memory; and faults
 * planted behind a transfer.  Starts itself under mpirun.  Ten pairs of grids a model here; test_sync N: N of them.
 * On a GPU that four ranks share, by NCCL: the same, and a model of 2 GB between ten pairs. */
#include "backend.h"
#include "plan/syncplan.h"
#include "sync/sync.h"
#include "train/ranks_fixture.h"

#include <string.h>
#include <unistd.h>

/* Matrices of about 1 G elements: 2 GB in bfloat16. */
static const char LARGE[] = "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":"
                            "2048,\"num_hidden_layers\":8,"
                            "\"vocab_size\":32000,\"num_attention_heads\":16,\"num_key_value_heads\":4,\"head_dim\":"
                            "128,\"intermediate_size\":4096,"
                            "\"moe_intermediate_size\":1024,\"num_experts\":16,\"num_experts_per_tok\":2,\"norm_topk_"
                            "prob\":true,\"mlp_only_layers\":[0],"
                            "\"decoder_sparse_step\":1,\"tie_word_embeddings\":false," RANKS_COMMON;

static uint32_t draw(uint32_t n, uint32_t pair, uint32_t what) { /* below n */
    return (uint32_t)(rng_u64(11, RNG_PLAN, pair, what, 0, 0) % n);
}

/* A grid that the model can have on so many ranks; the same on all of them. */
static GridShape random_grid(const ModelDesc *m, int ranks, uint32_t pair, uint32_t side) {
    for (uint32_t turn = 0;; turn++) {
        uint32_t at = side * 1000 + turn * 8;
        GridShape g = { .tp = 1 << draw(4, pair, at),
                        .pp = 1 << draw(3, pair, at + 1),
                        .cp = 1 << draw(2, pair, at + 2) };
        Err err;
        g.vpp = g.pp > 1 ? 1 + (int)draw(2, pair, at + 3) : 1;
        g.ep = m->d.experts ? 1 << draw(4, pair, at + 4) : 1, g.etp = m->d.experts ? 1 << draw(3, pair, at + 5) : 1;
        if (grid_fill(&g, m, ranks, NULL, 8, &err)) return g;
    }
}

static Dev device; /* one a rank: what moves its tensors knows it */
typedef struct {
    World w;
    Mem mem;
    Dev *d;
    const ModelDesc *m;
    Params from, to, want;
} Pair;

static void pair_open(Pair *p, const World *w, const ModelDesc *m, const GridShape *a, const GridShape *b, DType t) {
    *p = (Pair){ .w = *w, .m = m, .d = &device };
    Shard from = { *a, grid_at(a, w->all.rank) }, to = { *b, grid_at(b, w->all.rank) };
    p->d->tmp = dev_arena(p->d, "tmp", 1 << 20);
    params_open(&p->from, m, &from, p->d, t, false, "trainer", &p->mem);
    params_open_beside(&p->to, &p->from, &to, p->d, t, "engine", &p->mem);
    params_open(&p->want, m, &to, p->d, t, false, "want", &p->mem);
    params_random(&p->from, p->d, 3);
    params_random(&p->want, p->d, 3);
}
static void pair_close(Pair *p) {
    params_close(&p->want, p->d);
    params_close(&p->to, p->d);
    params_close(&p->from, p->d);
    dev_free(p->d, p->d->tmp.base);
    mem_free(&p->mem);
}

static float *floats(Pair *p, Tensor t) {
    float *x = MEM_ARRAY(&p->mem, float, (size_t)(t.rows * t.cols));
    op_get(p->d, x, t);
    return x;
}
static bool same_bytes(Pair *p, Tensor a, Tensor b) {
    Mem mem = { 0 };
    size_t n = tensor_bytes(a.dtype, a.rows, a.cols);
    char *x = MEM_ARRAY(&mem, char, n + 1), *y = MEM_ARRAY(&mem, char, n + 1);
    bool same = a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype;
    if (same) op_get(p->d, x, a), op_get(p->d, y, b);
    same = same && !memcmp(x, y, n);
    mem_free(&mem);
    return same;
}

static int64_t compare(Pair *p, const char *name) {
    int64_t shared = 0;
    EXPECT(p->to.n == p->want.n, "%s: %d parameters, %d wanted", name, p->to.n, p->want.n);
    for (int i = 0; i < p->to.n; i++) {
        const Param *x = &p->to.at[i], *y = &p->want.at[i];
        size_t n = (size_t)(x->t.rows * x->t.cols);
        EXPECT(x->desc == y->desc && x->layer == y->layer && same_bytes(p, x->t, y->t),
               "%s: %s of layer %d differs on rank %d", name, x->desc->name, x->layer, p->w.all.rank);
        Slice *s = &p->to.at[i].slice;
        int k = p->from.index[x->layer][x->desc->id];
        bool same = k >= 0 && n && !memcmp(s, &p->from.at[k].slice, sizeof *s);
        bool borrowed = k >= 0 && n && x->t.data == p->from.at[k].t.data;
        EXPECT(same == borrowed, "%s: %s of layer %d: the cuts are %s, the memory is %s", name, x->desc->name, x->layer,
               same ? "equal" : "different", borrowed ? "one" : "two");
        shared += borrowed;
    }
    return shared;
}

static void one_pair(const World *w, const char *config, DType t, uint32_t pair, bool equal, bool share) {
    Ranks r = { .w = *w };
    Err err = { "" };
    CHECK(model_desc_parse(&r.desc, config, strlen(config), &r.mem, &err), "%s", err.msg);
    GridShape a = random_grid(&r.desc, w->all.size, pair, 0),
              b = equal ? a : random_grid(&r.desc, w->all.size, pair, 1);
    Buf name = { 0 };
    grid_text(&a, &name), buf_puts(&name, " -> "), grid_text(&b, &name);
    Pair p;
    pair_open(&p, w, &r.desc, &a, &b, t);
    ModelSum *sum = MEM_NEW(&r.mem, ModelSum);
    model_sum(sum, &r.desc);
    Cluster c = { *machine_find("H100"), w->all.size };
    SyncPlan plan;
    int64_t most = pair % 3 ? SYNC_BUFFER : 4096; /* a small one, too */
    sync_plan(&plan, sum, &a, &b, &c, (double)dtype_size(t), (double)most);
    Sync s;
    SyncStats st;
    sync_open(&s, &p.from, &p.to, p.d, w, most, share, &p.mem);
    for (int again = 0; again < 2; again++) { /* weights move on, and so does the engine */
        params_random(&p.from, p.d, 3 + (uint64_t)again);
        params_random(&p.want, p.d, 3 + (uint64_t)again);
        EXPECT(sync_run(&s, true, &st, &err), "%s: %s", name.data, err.msg);
        compare(&p, name.data);
        double received = comm_max(&w->all, st.received), sent = comm_max(&w->all, st.sent),
               kept = comm_sum(&w->all, st.copied + st.shared);
        EXPECT(st.moved == plan.moved && received == plan.received && kept == plan.kept,
               "%s: %.0f bytes moved, %.0f received, %.0f kept; the plan says %.0f, %.0f, %.0f", name.data, st.moved,
               received, kept, plan.moved, plan.received, plan.kept);
        EXPECT(sent == plan.sent && st.buffer == plan.buffer && s.buffer.size == (size_t)st.buffer
                   && st.buffer <= (double)most,
               "%s: %.0f sent, a buffer of %.0f; the plan says %.0f, %.0f", name.data, sent, st.buffer, plan.sent,
               plan.buffer);
        EXPECT(!equal || (st.moved == 0 && st.copied == 0 && p.to.arena.size == 0), "%s: equal cuts, %.0f bytes moved",
               name.data, st.moved);
    }
    buf_free(&name);
    sync_close(&s);
    pair_close(&p);
    mem_free(&r.mem);
}

/* A tensor of the engine's own, the largest there is on this rank; -1: none. */
static int own_tensor(const Pair *p) {
    int best = -1;
    for (int i = 0; i < p->to.n; i++) {
        const Param *x = &p->to.at[i];
        int k = p->from.index[x->layer][x->desc->id];
        bool borrowed = k >= 0 && p->from.at[k].t.data == x->t.data;
        int64_t n = x->t.rows * x->t.cols;
        if (!borrowed && x->t.rows > 1 && (best < 0 || n > p->to.at[best].t.rows * p->to.at[best].t.cols)) best = i;
    }
    return best;
}

/* Behind a good transfer one rank's memory is not what it should be: all ranks hear of it, by name. */
static void planted(const World *w, bool share) {
    Ranks r = { .w = *w };
    Err err = { "" };
    const char *config = rank_models[0].config;
    CHECK(model_desc_parse(&r.desc, config, strlen(config), &r.mem, &err), "%s", err.msg);
    GridShape a, b;
    CHECK(grid_parse(&a, "tp2,pp2,ep2", &err) && grid_fill(&a, &r.desc, w->all.size, NULL, 8, &err), "%s", err.msg);
    CHECK(grid_parse(&b, "tp4,etp4", &err) && grid_fill(&b, &r.desc, w->all.size, NULL, 8, &err), "%s", err.msg);
    Pair p;
    Sync s;
    SyncStats st;
    pair_open(&p, w, &r.desc, &a, &b, DT_F32);
    sync_open(&s, &p.from, &p.to, p.d, w, SYNC_BUFFER, share, &p.mem);
    EXPECT(sync_run(&s, true, &st, &err), "%s", err.msg);
    int at = own_tensor(&p), who = 5;
    Tensor t = p.to.at[at].t;
    float *was = floats(&p, t);
    params_random(&p.from, p.d, 4);
    static const char *const faults[] = { "none", "a stale slice", "two rows swapped", "one bit",
                                          "two tensors swapped" };
    for (int f = 0; f < (int)COUNT(faults); f++) {
        EXPECT(sync_run(&s, true, &st, &err), "%s", err.msg);
        float *now = floats(&p, t), *x = floats(&p, t);
        if (f == 1) memcpy(x, was, (size_t)(t.rows * t.cols) * 4 / 2);
        if (f == 2) memcpy(x, now + t.cols, (size_t)t.cols * 4), memcpy(x + t.cols, now, (size_t)t.cols * 4);
        if (f == 3) {
            uint32_t u;
            memcpy(&u, x + t.rows * t.cols / 2, 4);
            u ^= 1;
            memcpy(x + t.rows * t.cols / 2, &u, 4);
        }
        if (w->all.rank == who && f != 4) op_put(p.d, t, x);
        if (f == 4) { /* the same kind of weight of two layers */
            int first = p.to.index[0][P_Q], second = p.to.index[2][P_Q];
            Tensor q0 = p.to.at[first].t, q2 = p.to.at[second].t;
            float *y0 = floats(&p, q0), *y2 = floats(&p, q2);
            if (w->all.rank == who) op_put(p.d, q0, y2), op_put(p.d, q2, y0);
        }
        bool ok = sync_check(&s, &err);
        EXPECT(ok == (f == 0) && (ok || strstr(err.msg, "rank 5")), "%s: %s", faults[f], ok ? "not noticed" : err.msg);
    }
    sync_close(&s);
    pair_close(&p);
    mem_free(&r.mem);
}

#ifdef HONE_GPU_TEST
enum { AT_ONCE = 4 };
static const char *self_of(const char *name) {
    static char self[4200];
    (void)name;
    ssize_t n = readlink("/proc/self/exe", self, 4096);
    strcpy(self + (n > 0 ? n : 0),
           gpu_test_act == DT_BF16 ? " here bf16 test_sync_sync --" : " here f32 test_sync_sync --");
    return self;
}
#else
enum { AT_ONCE = 8 };
static const char *self_of(const char *name) { return name; }
#endif

/* "N": so many pairs of small models; "large:N": of the large one. */
static int ranks_main(const char *mode) {
    World w;
    Err err;
    bool large = !strncmp(mode, "large:", 6);
    CHECK(world_open(&w, 60, &err), "%s", err.msg);
    test_device(&device, 1, true);
    CHECK(world_device(&w, &device, true, &err), "%s", err.msg);
    for (int i = 0; large && i < atoi(mode + 6); i++) one_pair(&w, LARGE, DT_BF16, (uint32_t)i + 100, false, true);
    for (int i = 0; i < atoi(mode); i++)
        for (int share = 0; share < (on_cpu() ? 2 : 1); share++)
            one_pair(&w, rank_models[i % (int)COUNT(rank_models)].config, DT_F32, (uint32_t)i, i % 10 == 4, share);
    for (int share = 0; !large && w.all.size == 8 && share < (on_cpu() ? 2 : 1); share++) planted(&w, share);
    double failed = comm_sum(&w.all, test_failed);
    bool first = w.all.rank == 0;
    world_close(&w);
    dev_close(&device);
    return first ? test_end() || failed > 0 : 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "--ranks")) return ranks_main(argv[2]);
    if (!ranks_possible()) return 77;
    const char *self = self_of(argv[0]);
    expect_ranks(self, AT_ONCE, argc > 1 ? argv[1] : "10");
    if (!on_cpu()) expect_ranks(self, AT_ONCE, "large:10");
    return test_end();
}
