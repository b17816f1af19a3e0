/* test_many_ranks.c - grids that no test machine has: DeepSeek-V3 on 96 ranks, every one sized by running its code on
 * the dry device, and on 16,384, where the slices of a stage's ranks are the stage's weights, any rank's schedule is
 * there and groups of 2048 add up.  Seconds are bench_sizes's. */
#include "base/clock.h"
#include "comm/world.h"
#include "plan/plan.h"
#include "test.h"
#include "train/policy.h"
#include "train/reduce.h"

#include <sys/resource.h>

static Mem mem;

typedef struct {
    const ModelDesc *m;
    const GridShape *g;
    int rank;
    double dense, expert;
} Held;
static void add_row(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    Held *h = user;
    (void)experts, (void)rows, (void)cols;
    Slice s = param_slice(h->m, p, layer, h->g, grid_at(h->g, h->rank));
    *(p->where == IN_EXPERT ? &h->expert : &h->dense) += (double)slice_count(&s);
}
static Held held(const ModelDesc *m, const GridShape *g, int rank) {
    Held h = { .m = m, .g = g, .rank = rank };
    arch_each_row(m, add_row, &h);
    return h;
}

static Plan *planned(const char *config, int ranks, const char *grid) {
    Err err = { 0 };
    ModelDesc *m = MEM_NEW(&mem, ModelDesc);
    ModelSum *s = MEM_NEW(&mem, ModelSum);
    Plan *p = MEM_NEW(&mem, Plan);
    CHECK(model_desc_load(m, config, &mem, &err) && grid_parse(&p->layout.g, grid, &err)
              && grid_fill(&p->layout.g, m, ranks, NULL, 8, &err) && cluster_parse(&p->cluster, "H100x1", &mem, &err),
          "%s", err.msg);
    model_sum(s, m);
    p->sum = s, p->profile = profile_find("hone"), p->cluster.gpus = ranks;
    p->work = (Workload){ 1024, 8, 1024, 150, 1024, 1024, 3072, 1, false, 1 };
    p->layout.micro_tokens = 4096, p->layout.gen_tp = p->layout.gen_ep = 1, p->layout.gen_use = 0.9;
    p->layout.fused_head = true, p->layout.drop = DROP_ALL;
    plan_memory(p);
    return p;
}

/* What its ranks hold of a stage is what the planner says: cut and repeated weights counted
 * as often as they are there. */
static void check_stage(const Plan *p, int stage) {
    const GridShape *g = &p->layout.g;
    int per = grid_stage_ranks(g);
    double dense = 0, expert = 0;
    for (int r = stage * per; r < (stage + 1) * per; r++) {
        Held h = held(p->sum->model, g, r);
        dense += h.dense, expert += h.expert;
    }
    const StagePlan *st = &p->stage[stage];
    EXPECT(dense == st->dense * per && expert == st->expert * per,
           "stage %d: ranks hold %.0f dense and %.0f of experts, the planner says %.0f and %.0f", stage, dense, expert,
           st->dense * per, st->expert * per);
}

static void ninety_six(void) {
    Plan *p = planned(FIXTURE("configs/DeepSeek-V3.json"), 96, "tp=8,pp=12,ep=8");
    const GridShape *g = &p->layout.g;
    const ModelDesc *m = p->sum->model;
    PolicyConf c = { .micro_tokens = 4096, .max_seqs = 256, .trains = true, .trained.recompute = RECOMPUTE_FULL };
    double weights = 0, grads = 0, states = 0, all = 0;
    for (int i = 0; i < g->pp; i++) {
        check_stage(p, i);
        all += (p->stage[i].dense + p->stage[i].expert) * grid_stage_ranks(g);
    }
    for (int r = 0; r < 96; r++) {
        Shard s = { *g, grid_at(g, r) };
        PolicySizes z = policy_sizes(m, &s, &c, dev_kind_cpu());
        weights += (double)params_bytes(m, &s, DT_F32, false);
        grads += (double)z.grads, states += (double)z.optim_dev;
        EXPECT(z.act > 0 && z.tmp > 0 && z.io > 0, "rank %d: %zu, %zu, %zu bytes", r, z.act, z.tmp, z.io);
    }
    /* beyond the elements themselves: each tensor begins at a round address; the router's biases are not trained */
    double tensors = 96.0 * 61 / 12 * 20, bias = 58.0 * 256 * 8;
    EXPECT(weights >= 4 * all && weights <= 4 * all + 256 * tensors, "weights: %.0f bytes of %.0f", weights, 4 * all);
    EXPECT(grads >= 4 * (all - bias) && grads <= 4 * all + 256 * tensors, "gradients: %.0f bytes", grads);
    EXPECT(states >= 8 * (all - bias) && states <= 8 * all + 512 * tensors, "states: %.0f bytes", states);
}

static void sixteen_thousand(void) {
    double cpu0 = clock_thread();
    Plan *p = planned(FIXTURE("configs/DeepSeek-V3.json"), 16384, "tp=8,pp=16,ep=64,vpp=2");
    const GridShape *g = &p->layout.g;
    EXPECT(grid_ranks(g) == 16384 && g->dp == 128 && grid_edp(g) == 16, "%d ranks", grid_ranks(g));
    int turns = schedule_turns(64, g->vpp);
    Turn *list = MEM_ARRAY(&mem, Turn, (size_t)turns);
    for (int r = 0; r < 16384; r += 4099) { /* any rank */
        GridAt at = grid_at(g, r);
        EXPECT(grid_rank(g, at) == r && at.ep + g->ep * at.edp == r % grid_stage_ranks(g), "rank %d", r);
        Held h = held(p->sum->model, g, r);
        EXPECT(h.dense > 0 && h.expert > 0, "rank %d holds %.0f and %.0f", r, h.dense, h.expert);
        schedule_fill(list, at.pp, g->pp, 64, g->vpp);
    }
    check_stage(p, 15);
    for (int r = 0; r < 16384; r += 5461) { /* as one of groups of 2048 */
        Shard s = { .g = { .tp = 8, .pp = 1, .vpp = 1, .ep = 256, .etp = 1, .cp = 1, .dp = 2048, .layers = { 61 } } };
        s.at = grid_at(&s.g, r);
        Groups par;
        World w = world_dry(r, 16384);
        world_groups(&w, &s.g, &par);
        EXPECT(par.dense.size == 2048 && comm_sum_i64(&w.all, 1) == 16384, "%d ranks of dp", par.dense.size);
        EXPECT(reduce_tmp(p->sum->model, &s, dev_kind_cpu()) > 0, "rank %d adds up without scratch", r);
    }
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("16,384 ranks: %.3f s of processor time, %.1f MB\n", clock_thread() - cpu0, (double)use.ru_maxrss / 1e3);
#ifndef __SANITIZE_ADDRESS__
    EXPECT(use.ru_maxrss < 100000, "%ld kB", use.ru_maxrss);
#endif
}

int main(void) {
    sixteen_thousand(); /* first: the peak of memory is its own */
    ninety_six();
    mem_free(&mem);
    return test_end();
}
