/* test_published.c - predictions beside every published figure that says enough to be computed, with the residual of each.
 * A figure that a constant was fitted on is marked; the bounds hold for all.  `--table` prints the table of docs/plan.md. */
#include "plan/plan.h"
#include "test.h"

#include <math.h>

typedef enum { GPU_MEMORY, HOST_TYPICAL, HOST_WORST, ROLLOUT, STEP, MFU, MFU_OLD, FIGURES } Figure;
static const struct {
    const char *name, *unit;
    double scale, bound;
} FIGURE[FIGURES] = {
    { "GPU memory", "GB", 1e9, 0.08 },
    { "host memory", "GB", 1e9, 0.12 },
    { "host memory", "GB", 1e9, 0.12 },
    { "rollout", "s", 1, 0.15 },
    { "step", "s", 1, 0.15 },
    { "MFU", "", 1, 0.10 },
    { "MFU", "", 1, 0.10 },
};

typedef struct {
    Figure what;
    double published;
    bool fitted, miss;
} Claim; /* miss: known to be outside the bound */

/* clang-format off */
typedef struct {
    const char *name, *config, *cluster, *profile;
    double prompts, answers, mini, prompt_mean, prompt_max, mean, max; bool kl;
    int tp, pp, ep, cp, vpp; const char *split, *recompute; bool fused; double micro, offload; bool park, states; int gen_tp; double gen_use;
    Claim claims[6];
} Row;
static const Row ROWS[] = {
    { "verl DeepSeek-V3 96 H20", "DeepSeek-V3", "H20-96x96", "verl", 96, 8, 32, 150, 2048, 1960, 9632, true,
      8, 12, 8, 1, 1, "last=6", "full", true, 11680, 1, true, false, 32, 0.6,
      { { GPU_MEMORY, 66 }, { HOST_WORST, 1611 }, { ROLLOUT, 1050, true }, { MFU_OLD, 0.19 }, { STEP, 1700, true } } },
    { "verl Qwen3-235B 32 H20", "Qwen3-235B-A22B", "H20-96x32", "verl", 32, 8, 16, 150, 2048, 1960, 9632, true,
      4, 8, 4, 1, 1, "11,12x6,11", "full", true, 11680, 1, true, false, 8, 0.85,
      { { HOST_WORST, 1600 } } },
    { "verl Qwen3-30B 8 H20", "Qwen3-30B-A3B", "H20-96x8", "verl", 512, 16, 128, 150, 2048, 1180, 8192, false,
      1, 1, 8, 1, 1, "even", "none", false, 10240, 1, true, true, 4, 0.7,
      { { MFU_OLD, 0.40, true } } },
    { "verl Qwen3-30B 16 H20", "Qwen3-30B-A3B", "H20-96x16", "verl", 512, 16, 128, 150, 2048, 1180, 8192, false,
      1, 1, 8, 1, 1, "even", "none", false, 10240, 1, true, true, 4, 0.7,
      { { MFU_OLD, 0.37 } } },
    { "verl Qwen3-30B 32 H20", "Qwen3-30B-A3B", "H20-96x32", "verl", 512, 16, 128, 150, 2048, 1180, 8192, false,
      1, 1, 8, 1, 1, "even", "none", false, 10240, 1, true, true, 4, 0.7,
      { { MFU_OLD, 0.31 } } },
    { "verl Qwen3-30B 32 H20, device Adam", "Qwen3-30B-A3B", "H20-96x32", "verl", 512, 16, 128, 150, 2048, 1180, 8192, false,
      1, 1, 8, 1, 1, "even", "none", false, 10240, 0, true, true, 4, 0.7,
      { { MFU_OLD, 0.454, true } } },
    { "verl Qwen3-30B 32 H100", "Qwen3-30B-A3B", "H100x32", "verl", 512, 16, 128, 150, 2048, 1180, 8192, false,
      1, 1, 8, 1, 1, "even", "none", true, 10240, 0, true, true, 4, 0.7,
      { { MFU_OLD, 0.157, true }, { ROLLOUT, 335 } } },
    { "verl Qwen3-30B 128 H20", "Qwen3-30B-A3B", "H20-96x128", "verl", 512, 16, 128, 150, 2048, 1180, 8192, true,
      1, 1, 8, 1, 1, "even", "none", true, 10240, 0, false, false, 4, 0.7,
      { { ROLLOUT, 348 } } },
    { "verl Qwen2.5-7B 32 H20", "Qwen2.5-7B", "H20-96x32", "verl", 512, 16, 512, 150, 2048, 1180, 8192, false,
      2, 1, 1, 2, 1, "even", "none", true, 10240, 0, true, true, 2, 0.7,
      { { MFU_OLD, 0.83, true } } },
    { "verl Qwen2.5-7B 8 H100", "Qwen2.5-7B", "H100x8", "verl", 512, 16, 512, 150, 2048, 1180, 8192, false,
      1, 1, 1, 1, 1, "even", "none", true, 10240, 0, true, true, 2, 0.7,
      { { MFU_OLD, 0.44, true } } },
    { "slime DeepSeek-R1 128 H100", "DeepSeek-V3", "H100x128", "verl", 128, 8, 128, 150, 2048, 1960, 14336, true,
      8, 4, 32, 4, 1, "16,15x3", "full", true, 16384, 1, true, false, 64, 0.7,
      { { HOST_TYPICAL, 1450 } } },
    { "NeMo-RL DeepSeek-V3 256 H100", "DeepSeek-V3", "H100x256", "nemo", 32, 16, 32, 150, 400, 551, 1136, false,
      1, 16, 16, 1, 1, "3,4x14,2", "full", true, 1536, 0, true, true, 32, 0.8, { { STEP, 134, true } } },
    { "NeMo-RL DeepSeek-V3 512 H100", "DeepSeek-V3", "H100x512", "nemo", 32, 16, 32, 150, 400, 547, 1136, false,
      1, 16, 16, 1, 1, "3,4x14,2", "full", true, 1536, 0, true, true, 32, 0.8, { { STEP, 111 } } },
    { "NeMo-RL Qwen3-235B 128 H100", "Qwen3-235B-A22B", "H100x128", "nemo", 16, 32, 16, 150, 400, 5548, 7792, false,
      2, 8, 16, 2, 1, "11,12x6,11", "full", true, 4096, 0, true, true, 16, 0.8, { { STEP, 395, true } } },
    { "NeMo-RL Qwen3-235B 256 H100", "Qwen3-235B-A22B", "H100x256", "nemo", 16, 32, 16, 150, 400, 5563, 7792, false,
      2, 8, 16, 2, 1, "11,12x6,11", "full", true, 4096, 0, true, true, 16, 0.8, { { STEP, 312 } } },
    { "NeMo-RL Qwen3-30B 32 H100", "Qwen3-30B-A3B", "H100x32", "nemo", 64, 32, 16, 150, 400, 3053, 3696, false,
      1, 1, 8, 1, 1, "even", "none", true, 4096, 0, true, true, 2, 0.8, { { STEP, 192, true } } },
    { "NeMo-RL DeepSeek-V3 128 GB200", "DeepSeek-V3", "GB200x128", "nemo", 32, 16, 32, 150, 400, 561, 1136, false,
      1, 8, 16, 1, 1, "7,8x6,6", "full", true, 1536, 0, true, true, 32, 0.8, { { STEP, 108 } } },
    { "NeMo-RL DeepSeek-V3 256 GB200", "DeepSeek-V3", "GB200x256", "nemo", 32, 16, 32, 150, 400, 550, 1136, false,
      1, 8, 16, 1, 1, "7,8x6,6", "full", true, 1536, 0, true, true, 32, 0.8, { { STEP, 98.7 } } },
    { "NeMo-RL Qwen3-235B 64 GB200", "Qwen3-235B-A22B", "GB200x64", "nemo", 16, 32, 16, 150, 400, 5559, 7792, false,
      2, 4, 16, 2, 1, "23,24x2,23", "full", true, 4096, 0, true, true, 8, 0.8, { { STEP, 286, false, true } } },
    { "NeMo-RL Qwen3-235B 128 GB200", "Qwen3-235B-A22B", "GB200x128", "nemo", 16, 32, 16, 150, 400, 5543, 7792, false,
      2, 4, 16, 2, 1, "23,24x2,23", "full", true, 4096, 0, true, true, 8, 0.8, { { STEP, 345, false, true } } },
    { "NeMo-RL Qwen3-30B 16 GB200", "Qwen3-30B-A3B", "GB200x16", "nemo", 64, 32, 16, 150, 400, 3049, 3696, false,
      1, 1, 16, 1, 1, "even", "none", true, 4096, 0, true, true, 1, 0.8, { { STEP, 221, false, true } } },
};
/* clang-format on */

static double figure(const Plan *p, Figure what) {
    double gpu = 0;
    for (int ph = 0; ph < PH_COUNT; ph++)
        if (phase_has_memory(ph)) gpu = fmax(gpu, p->stage[p->worst[ph]].total[ph]);
    const double all[FIGURES] = { gpu,     p->host_typical, p->host_worst, p->phase[PH_ROLLOUT].seconds,
                                  p->step, p->mfu,          p->mfu_old };
    return all[what] / FIGURE[what].scale;
}

static void check(const Row *r, bool table, bool phases) {
    Mem mem = { 0 };
    Err err = { 0 };
    ModelDesc *m = MEM_NEW(&mem, ModelDesc);
    ModelSum *s = MEM_NEW(&mem, ModelSum);
    Plan *p = MEM_NEW(&mem, Plan);
    CHECK(model_desc_load(m, mem_printf(&mem, FIXTURE("configs/%s.json"), r->config), &mem, &err), "%s", err.msg);
    model_sum(s, m);
    p->sum = s, p->profile = profile_find(r->profile);
    CHECK(cluster_parse(&p->cluster, r->cluster, &mem, &err), "%s", err.msg);
    p->work =
        (Workload){ r->prompts, r->answers, r->mini, r->prompt_mean, r->prompt_max, r->mean, r->max, 1, r->kl, 1 };
    p->layout = (Layout){ .tp = r->tp,
                          .pp = r->pp,
                          .ep = r->ep,
                          .cp = r->cp,
                          .vpp = r->vpp,
                          .fused_head = r->fused,
                          .micro_tokens = r->micro,
                          .offload = r->offload,
                          .park_weights = r->park,
                          .park_states = r->states,
                          .gen_tp = r->gen_tp,
                          .gen_ep = 1,
                          .gen_use = r->gen_use };
    CHECK(recompute_parse(&p->layout.drop, r->recompute, &err) && layout_split(&p->layout, r->split, s->layers, &err),
          "%s", err.msg);
    CHECK(layout_check(&p->layout, s, &p->cluster, &p->work, &err), "%s: %s", r->name, err.msg);
    plan_make(p);
    if (phases) {
        printf("%-34s", r->name);
        for (int i = 0; i < PH_COUNT; i++) printf(" %s %.1f", PHASE_NAMES[i], p->phase[i].seconds);
        printf(" | data %.2f stage %.2f bubble %.2f m %.0f batch %.0f step %.1fms\n", p->imbalance_data,
               p->imbalance_stage, p->bubble, p->micro_batches, p->decode_batch, 1e3 * p->decode_step);
    }
    for (int i = 0; i < 6 && r->claims[i].published > 0; i++) {
        const Claim *c = &r->claims[i];
        double got = figure(p, c->what), off = got / c->published - 1;
        if (table || phases)
            printf("| %s | %s | %.4g %s | %.3g %s | %+.1f %% | %s |\n", r->name, FIGURE[c->what].name, c->published,
                   FIGURE[c->what].unit, got, FIGURE[c->what].unit, 100 * off,
                   c->fitted ? "fitted"
                   : c->miss ? "missed"
                             : "predicted");
        if (!c->miss)
            EXPECT(fabs(off) <= FIGURE[c->what].bound, "%s: %s is %.3g, published %.3g: %+.1f %%", r->name,
                   FIGURE[c->what].name, got, c->published, 100 * off);
    }
    mem_free(&mem);
}

int main(int argc, char **argv) {
    bool table = argc > 1 && !strcmp(argv[1], "--table"), phases = argc > 1 && !strcmp(argv[1], "--phases");
    for (size_t i = 0; i < COUNT(ROWS); i++) check(&ROWS[i], table, phases);
    return test_end();
}
