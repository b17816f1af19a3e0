/* test_search.c - the search finds what it should, and stays small: it is the number of layouts looked at that is
 * bounded, since a clock on a busy machine says little (10,000 of them take a quarter of a second of one core). */
#include "plan/search.h"
#include "setting.h"

#include <math.h>

static Mem mem;

static Plan *setting(const char *config, const char *cluster, const Workload *w) {
    Plan *p = plan_setting(&mem, config, cluster, "hone");
    p->work = *w;
    return p;
}

/* prompts, answers, mini, prompt mean and max, answer mean and max, spread, KL, epochs */
static const Workload DAPO = { 96, 8, 32, 150, 2048, 1960, 8192, 1, true, 1 },
                      WIDE = { 4096, 16, 4096, 150, 2048, 1960, 8192, 1, false, 1 },
                      LONG = { 96, 8, 96, 150, 2048, 20000, 131072, 1, false, 1 };

static const struct {
    const char *config, *cluster;
    const Workload *work;
    long most; /* layouts of the trainer */
} CASES[] = {
    { "DeepSeek-V3", "H20-96x96", &DAPO, 20000 },     { "DeepSeek-V3", "H100x512", &WIDE, 20000 },
    { "DeepSeek-V3", "H100x15360", &WIDE, 50000 },    { "DeepSeek-V3", "H20-96x96", &LONG, 50000 },
    { "Qwen3-235B-A22B", "GB200x576", &WIDE, 20000 }, { "Qwen2.5-7B", "A100-40x64", &WIDE, 2000 },
};

static void small_and_sound(void) {
    Search *found = MEM_NEW(&mem, Search);
    for (size_t i = 0; i < COUNT(CASES); i++) {
        Plan *p = setting(CASES[i].config, CASES[i].cluster, CASES[i].work);
        Err err = { 0 };
        search_run(p, true, found);
        EXPECT(found->n > 0 && found->tried > 0 && found->tried <= CASES[i].most, "%s on %s: %ld looked at, %d found",
               CASES[i].config, CASES[i].cluster, found->tried, found->n);
        for (int k = 0; k < found->n; k++) {
            Found *f = &found->at[k];
            EXPECT(k == 0 || f->step >= found->at[k - 1].step, "%d is quicker than %d", k, k - 1);
            p->layout = f->layout;
            bool ok = layout_check(&p->layout, p->sum, &p->cluster, &p->work, &err);
            EXPECT(ok, "%s on %s, %d: %s", CASES[i].config, CASES[i].cluster, k, err.msg);
            if (!ok) continue;
            plan_make(p);
            EXPECT(p->fits, "%s on %s, %d: %s", CASES[i].config, CASES[i].cluster, k, p->verdict);
            EXPECT(fabs(p->step / f->step - 1) < 0.05, "%s on %s, %d: %.2f s when searched, %.2f s planned",
                   CASES[i].config, CASES[i].cluster, k, f->step, p->step);
        }
    }
}

/* 96 H20: better balanced than the published split (6 layers on the stage with the head), and interleaved, since a
 * pipeline of 30 micro-batches has a bubble worth shortening: the same layout with whole stages is slower. */
static void better_than_published(void) {
    Search *found = MEM_NEW(&mem, Search);
    Plan *p = setting("DeepSeek-V3", "H20-96x96", &DAPO);
    Err err = { 0 };
    search_run(p, true, found);
    p->layout = found->at[0].layout;
    CHECK(layout_check(&p->layout, p->sum, &p->cluster, &p->work, &err), "%s", err.msg);
    plan_make(p);
    EXPECT(p->imbalance_stage < 1.19, "slowest / mean %.3f; 6,5x11 has 1.19", p->imbalance_stage);
    EXPECT(p->layout.g.pp > 1 && p->layout.g.vpp > 1, "pp %d, vpp %d", p->layout.g.pp, p->layout.g.vpp);
    double chunked = p->step, bubble = p->bubble;
    int stage[MAX_STAGES];
    for (int i = 0; i < p->layout.g.pp; i++) stage[i] = grid_stage_layers(&p->layout.g, i);
    p->layout.g.vpp = 1;
    grid_spread(&p->layout.g, stage);
    plan_make(p);
    EXPECT(p->step > chunked && p->bubble > bubble, "whole stages: %.2f s, bubble %.3f; chunks: %.2f s, %.3f", p->step,
           p->bubble, chunked, bubble);
}

/* A stage has a layer for each of its chunks. */
static void enough_for_chunks(void) {
    Plan *p = setting("DeepSeek-V3", "H20-96x96", &DAPO);
    Err err = { 0 };
    for (int vpp = 1; vpp <= 4; vpp *= 2)
        for (int pp = 2; pp <= 12; pp += pp < 4 ? 1 : 2) {
            p->layout = (Layout){ .g.tp = 8,
                                  .g.pp = pp,
                                  .g.ep = 8,
                                  .g.cp = 1,
                                  .g.vpp = vpp,
                                  .micro_tokens = 10240,
                                  .gen_tp = 8,
                                  .gen_ep = 32,
                                  .gen_use = 0.9,
                                  .fused_head = true };
            if (96 % (8 * pp)) continue;
            grid_split(&p->layout.g, NULL, p->sum->layers, &err);
            CHECK(layout_check(&p->layout, p->sum, &p->cluster, &p->work, &err), "%s", err.msg);
            plan_memory(p);
            search_split(p);
            int sum = 0;
            for (int i = 0; i < pp; i++) {
                EXPECT(grid_stage_layers(&p->layout.g, i) >= vpp, "pp %d, vpp %d: stage %d has %d layers", pp, vpp, i,
                       grid_stage_layers(&p->layout.g, i));
                sum += grid_stage_layers(&p->layout.g, i);
            }
            EXPECT(sum == 61, "pp %d, vpp %d: %d layers in all", pp, vpp, sum);
        }
}

int main(void) {
    small_and_sound();
    better_than_published();
    enough_for_chunks();
    mem_free(&mem);
    return test_end();
}
