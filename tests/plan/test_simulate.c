/* test_simulate.c - pipeline lists are complete and ordered; the closed formulas agree with
 * the simulation; time at scale. */
#include "base/clock.h"
#include "cut/schedule.h"
#include "plan/search.h"
#include "plan/simulate.h"
#include "train/pipeline.h"
#include "setting.h"

#include <math.h>

static Mem mem;

static double one(void *user, int stage, const Turn *t) {
    (void)user, (void)stage;
    return t->backward ? 2 : 1;
}

/* One stage's list: every turn once, backward behind forward, as many flights as the runner has room for. */
static void check_list(int stage, int S, int m, int v) {
    Mem own = { 0 };
    int turns = schedule_turns(m, v), images[2][16 * 64] = { { 0 } }, alive = 0, most = 0, early = 0;
    Turn *list = MEM_ARRAY(&own, Turn, (size_t)turns);
    schedule_fill(list, stage, S, m, v);
    for (int i = 0; i < turns; i++) {
        int at = list[i].chunk * m + list[i].micro;
        images[list[i].backward][at]++;
        alive += list[i].backward ? -1 : 1;
        most = alive > most ? alive : most;
        early += list[i].backward && !images[0][at];
    }
    bool all = true;
    for (int i = 0; i < m * v; i++) all &= images[0][i] == 1 && images[1][i] == 1;
    EXPECT(all && alive == 0 && !early, "stage %d of %d, %d x %d: every turn once, in order", stage, S, m, v);
    Shard s = { .g = { .tp = 1, .pp = S, .vpp = v, .ep = 1, .etp = 1, .cp = 1, .dp = 1 }, .at = { .pp = stage } };
    int room = pipeline_flights(&s);
    EXPECT(most == (room < m * v ? room : m * v), "stage %d of %d, %d x %d: %d in flight, the runner has room for %d",
           stage, S, m, v, most, room);
    mem_free(&own);
}

/* All shapes: none waits for ever, and equal stages take (m + stages - 1) forwards and backwards in 1F1B; chunks
 * shorten the ramp by their number, where micro-batches come in runs of a stage each. */
/* A stage's messages on one way, forward or back, to the next stage or from the one before: their micro-batches and
 * chunks in the order of its list.  The others take them in that order: NCCL pairs by it (comm/nccl.h). */
static int messages(int *out, int stage, int S, int m, int v, bool backward, bool sent) {
    Mem own = { 0 };
    int turns = schedule_turns(m, v), n = 0, last = S * v - 1;
    Turn *list = MEM_ARRAY(&own, Turn, (size_t)turns);
    schedule_fill(list, stage, S, m, v);
    for (int i = 0; i < turns; i++) {
        int at = list[i].chunk * S + stage, to = backward ? at - 1 : at + 1; /* chunks of the whole model */
        if (list[i].backward != backward || (sent ? to < 0 || to > last : backward ? at == last : at == 0)) continue;
        out[n++] = list[i].micro * (last + 1) + (sent ? to : at);
    }
    mem_free(&own);
    return n;
}
static void check_messages(int S, int m, int v) {
    int gone[16 * 64], came[16 * 64], bad = 0;
    for (int stage = 0; stage < S && S > 1; stage++)
        for (int back = 0; back < 2; back++) {
            int to = (stage + (back ? S - 1 : 1)) % S, n = messages(gone, stage, S, m, v, back, true);
            int k = messages(came, to, S, m, v, back, false);
            bad += n != k;
            for (int i = 0; i < n && n == k; i++) bad += gone[i] != came[i];
        }
    EXPECT(!bad, "%d stages, %d x %d: messages are not taken in the order they are sent", S, m, v);
}

static void check_lists(void) {
    for (int S = 1; S <= 8; S++)
        for (int v = 1; v <= (S == 1 ? 1 : 4); v++)
            for (int m = v > 1 ? S : 1; m <= 16; m += v > 1 ? S : 1) {
                for (int s = 0; s < S; s++) check_list(s, S, m, v);
                check_messages(S, m, v);
                double t = schedule_play(S, m, v, 0, one, NULL, NULL), want = 3.0 * m * v + 3.0 * (S - 1);
                EXPECT(fabs(t - want) < 1e-9, "%d stages, %d micro-batches, %d chunks: %g, want %g", S, m, v, t, want);
            }
    check_list(0, 8, 47, 1);
}

static Plan *plan_of(const char *config, const char *cluster, Layout l, const char *split, Workload w,
                     const char *profile) {
    Err err = { 0 };
    Plan *p = plan_setting(&mem, config, cluster, profile);
    const ModelSum *s = p->sum;
    p->work = w, p->layout = l;
    CHECK(grid_split(&p->layout.g, split, s->layers, &err) && layout_check(&p->layout, s, &p->cluster, &p->work, &err),
          "%s", err.msg);
    plan_make(p);
    return p;
}

static void check_formulas(void) {
    Workload w = { 256, 8, 64, 150, 1024, 1500, 8192, 1, true, 1 };
    Layout l = { .g.tp = 8,
                 .g.pp = 12,
                 .g.ep = 8,
                 .g.cp = 1,
                 .g.vpp = 1,
                 .drop = DROP_ALL,
                 .fused_head = true,
                 .micro_tokens = 9216,
                 .offload = 1,
                 .park_weights = true,
                 .gen_tp = 32,
                 .gen_ep = 1,
                 .gen_use = 0.6 };
    Layout small = { .g.tp = 1,
                     .g.pp = 1,
                     .g.ep = 8,
                     .g.cp = 1,
                     .g.vpp = 1,
                     .drop = DROP_ALL,
                     .fused_head = true,
                     .micro_tokens = 9216,
                     .park_weights = true,
                     .park_states = true,
                     .gen_tp = 2,
                     .gen_ep = 1,
                     .gen_use = 0.9 };
    Layout wide = l, chunked = l;
    wide.g.pp = 8, wide.g.tp = 4, wide.g.ep = 16, wide.gen_tp = 8, wide.gen_use = 0.95;
    chunked.g.pp = 4, chunked.g.vpp = 3, chunked.g.tp = 4, chunked.g.ep = 4, chunked.gen_tp = 4;
    const struct {
        const char *config, *cluster, *split, *profile;
        Layout l;
    } CASES[] = {
        { "DeepSeek-V3", "H20-96x96", "last=6", "verl", l },
        { "DeepSeek-V3", "H20-96x96", "6,5x11", "hone", l },
        { "DeepSeek-V3", "H20-96x384", "6,5x11", "hone", l },
        { "Qwen3-235B-A22B", "H20-96x128", "12x7,10", "hone", wide },
        { "Qwen3-30B-A3B", "H20-96x16", "even", "hone", small },
        { "Qwen3-30B-A3B", "H100x64", "even", "verl", small },
        { "Qwen3-30B-A3B", "H20-96x16", "12x4", "hone", chunked },
    };
    for (size_t i = 0; i < COUNT(CASES); i++) {
        Workload flat = w;
        flat.spread = 0;
        Layout use = CASES[i].l;
        Plan *a = plan_of(CASES[i].config, CASES[i].cluster, use, CASES[i].split, flat, CASES[i].profile);
        SimOpts none = { .seed = 1 }, real = { .seed = 1, .jitter = 0.01, .slow_share = 0.001, .slow_by = 0.15 };
        SimResult r;
        plan_simulate(a, &none, &r);
        double up = r.seconds[PH_UPDATE] / a->phase[PH_UPDATE].seconds - 1,
               roll = r.seconds[PH_ROLLOUT] / a->phase[PH_ROLLOUT].seconds - 1;
        EXPECT(fabs(up) < 0.05, "%s: equal lengths: update %.3f, formula %.3f: %+.1f %%", CASES[i].config,
               r.seconds[PH_UPDATE], a->phase[PH_UPDATE].seconds, 100 * up);
        EXPECT(fabs(roll) < 0.05, "%s: equal lengths: rollout %.3f, formula %.3f: %+.1f %%", CASES[i].config,
               r.seconds[PH_ROLLOUT], a->phase[PH_ROLLOUT].seconds, 100 * roll);
        Plan *b = plan_of(CASES[i].config, CASES[i].cluster, use, CASES[i].split, w, CASES[i].profile);
        EXPECT(b->fits, "%s: %s", CASES[i].config, b->verdict);
        plan_simulate(b, &real, &r);
        double step = r.step / b->step - 1;
        EXPECT(step > -0.1 && step < 0.2, "%s: long tail and stragglers: step %.2f, formula %.2f: %+.1f %%",
               CASES[i].config, r.step, b->step, 100 * step);
    }
}

static void check_scale(void) {
    Workload w = { 4096, 16, 1024, 150, 1024, 1024, 4096, 1, false, 1 };
    Layout l = { .g.tp = 4,
                 .g.pp = 16,
                 .g.ep = 16,
                 .g.cp = 1,
                 .g.vpp = 1,
                 .fused_head = true,
                 .drop = DROP_ALL,
                 .micro_tokens = 5120,
                 .gen_tp = 8,
                 .gen_ep = 64,
                 .gen_use = 0.95 };
    Plan *p = plan_of("DeepSeek-V3", "H100x16384", l, "4x12,3,4x2,2", w, "hone");
    SimOpts o = { .seed = 7, .jitter = 0.01, .slow_share = 0.001, .slow_by = 0.15 };
    SimResult r, again;
    double t0 = clock_now();
    plan_simulate(p, &o, &r);
    double took = clock_now() - t0;
    plan_simulate(p, &o, &again);
    EXPECT(took < 5, "16,384 GPUs took %.1f s", took);
    EXPECT(r.step == again.step, "the same seed gives the same step");
    EXPECT(r.step > p->step * 0.9, "stragglers make it no quicker: %g against %g", r.step, p->step);
}

int main(void) {
    check_lists();
    check_formulas();
    check_scale();
    mem_free(&mem);
    return test_end();
}
