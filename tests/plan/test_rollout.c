/* test_rollout.c - an engine decodes every token once, also when the cache is short and sequences are turned out and
 * come back; and rings over several nodes use the ports of all their members. */
#include "setting.h"

#include <math.h>

static Mem mem;

static Plan *planned(const char *config, const char *cluster, int tp) {
    Err err = { 0 };
    Plan *p = plan_setting(&mem, config, cluster, "verl");
    const ModelSum *s = p->sum;
    p->work = (Workload){ 128, 8, 128, 100, 100, 900, 1000, 1, false, 1 };
    p->layout = (Layout){ .g.tp = tp,
                          .g.pp = 1,
                          .g.ep = 1,
                          .g.cp = 1,
                          .g.vpp = 1,
                          .fused_head = true,
                          .micro_tokens = 8192,
                          .gen_tp = 2,
                          .gen_ep = 1,
                          .gen_use = 0.9,
                          .park_weights = true,
                          .park_states = true };
    grid_split(&p->layout.g, NULL, s->layers, &err);
    CHECK(layout_check(&p->layout, s, &p->cluster, &p->work, &err), "%s", err.msg);
    plan_make(p);
    return p;
}

/* n answers of the same length through an engine whose cache holds 'room' tokens. */
static Rolled play(Plan *p, int n, double length, double room) {
    Rolled r;
    double *lengths = MEM_ARRAY(&mem, double, (size_t)n);
    for (int i = 0; i < n; i++) lengths[i] = length;
    p->kv_tokens = room;
    engine_play(p, lengths, n, 1, &r);
    return r;
}

static void every_token_once(void) {
    static const struct {
        int n;
        double length, room;
    } CASES[] = { { 8, 1000, 1e6 }, { 8, 1000, 4 * 1100 }, { 64, 700, 9000 }, { 33, 512, 1200 }, { 16, 900, 5500 } };
    Plan *p = planned("Qwen2.5-7B", "H100x8", 2);
    for (size_t i = 0; i < COUNT(CASES); i++) {
        Rolled r = play(p, CASES[i].n, CASES[i].length, CASES[i].room);
        double decoded = r.batch * r.steps, wanted = CASES[i].n * CASES[i].length, sum = 0;
        for (int b = 0; b < BOUND_COUNT; b++) sum += r.part[b];
        EXPECT(fabs(decoded / wanted - 1) < 1e-9, "%d answers of %.0f, cache %.0f: %.0f tokens decoded, not %.0f",
               CASES[i].n, CASES[i].length, CASES[i].room, decoded, wanted);
        EXPECT(fabs(sum / r.seconds - 1) < 1e-9, "the causes add up to %.3f of %.3f s", sum, r.seconds);
    }
    Rolled wide = play(p, 16, 900, 1e6), narrow = play(p, 16, 900, 5500);
    EXPECT(narrow.seconds > wide.seconds && narrow.steps < 4.5 * wide.steps,
           "a short cache: %.2f s, %.0f steps; %.2f s", narrow.seconds, narrow.steps, wide.seconds);
}

/* 32 GPUs in nodes of 8: gradients (4 B) and weights (2 B) of a rank, over 32 / tp replicas,
 * 8 / tp of them in a node. */
static void rings(void) {
    for (int tp = 1; tp <= 4; tp *= 2) {
        Plan *p = planned("Qwen2.5-7B", "H100x32", tp);
        double copies = 32.0 / tp, rate = fmin(450e9, 8 / tp * 50e9) * p->profile->ring;
        double wanted = p->stage[0].dense * 6 * (copies - 1) / copies / rate,
               got = p->phase[PH_OPTIMIZER].part[BY_NETWORK];
        EXPECT(fabs(got / wanted - 1) < 1e-9, "tp %d: the ring takes %.4f s, not %.4f", tp, got, wanted);
    }
    Plan *one = planned("Qwen2.5-7B", "H100x8", 2);
    double wanted = one->stage[0].dense * 6 * 3 / 4 / (450e9 * one->profile->ring);
    EXPECT(fabs(one->phase[PH_OPTIMIZER].part[BY_NETWORK] / wanted - 1) < 1e-9, "inside a node: %.4f s, not %.4f",
           one->phase[PH_OPTIMIZER].part[BY_NETWORK], wanted);
}

int main(void) {
    every_token_once();
    rings();
    mem_free(&mem);
    return test_end();
}
