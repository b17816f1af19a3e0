/* test_expert_cut.c - experts cut by ep x etp: their bytes, replicas and traffic; what the
 * trainer and the engine share; what cannot be folded. */
#include "plan/report.h"
#include "setting.h"

#include <math.h>

static Mem mem;

/* Qwen3-30B on 16 GPUs: tp 4, pp 1. */
static Plan *planned(int ep, int etp, int gen_tp, int gen_ep, Err *err) {
    Plan *p = plan_setting(&mem, "Qwen3-30B-A3B", "H100x16", "hone");
    p->work = (Workload){ 64, 8, 64, 150, 1024, 1024, 4096, 1, false, 1 };
    p->layout = (Layout){ .g.tp = 4,
                          .g.pp = 1,
                          .g.ep = ep,
                          .g.etp = etp,
                          .g.cp = 1,
                          .g.vpp = 1,
                          .fused_head = true,
                          .micro_tokens = 65536, /* whose rows outweigh what kernels take at least */
                          .gen_tp = gen_tp,
                          .gen_ep = gen_ep,
                          .gen_use = 0.9 };
    grid_split(&p->layout.g, NULL, p->sum->layers, err);
    *err = (Err){ 0 };
    if (!layout_check(&p->layout, p->sum, &p->cluster, &p->work, err)) return NULL;
    plan_make(p);
    return p;
}

static void refused(int ep, int etp, const char *want) {
    Err err;
    Plan *p = planned(ep, etp, 4, 1, &err);
    EXPECT(!p && strstr(err.msg, want), "ep %d, etp %d: '%s', want '%s'", ep, etp, p ? "taken" : err.msg, want);
}

int main(void) {
    Err err;
    Plan *whole = planned(4, 0, 4, 1, &err), *one = planned(4, 1, 4, 1, &err), *cut = planned(4, 4, 4, 1, &err);
    CHECK(whole && one && cut, "%s", err.msg);
    EXPECT(one->step == whole->step && one->stage[0].expert == whole->stage[0].expert, "etp is 1 where nobody says");
    EXPECT(cut->stage[0].expert == one->stage[0].expert / 4, "experts: %g, with etp 4 %g", one->stage[0].expert,
           cut->stage[0].expert);
    EXPECT(cut->stage[0].dense == one->stage[0].dense, "etp cuts nothing but experts");
    EXPECT(grid_edp(&one->layout.g) == 4 && grid_edp(&cut->layout.g) == 1, "replicas of experts: %d, with etp 4 %d",
           grid_edp(&one->layout.g), grid_edp(&cut->layout.g));
    EXPECT(cut->stage[0].forward[BY_NETWORK] > one->stage[0].forward[BY_NETWORK], "rows are gathered over etp");
    EXPECT(fabs(cut->stage[0].forward[BY_COMPUTE] / one->stage[0].forward[BY_COMPUTE] - 1) < 1e-9,
           "the products are the same");
    EXPECT(cut->stage[0].bytes[PH_UPDATE][MEM_WORK] > one->stage[0].bytes[PH_UPDATE][MEM_WORK],
           "and are held while they are used");

    /* an engine of tp 4 cuts each expert in four: the trainer that does so too lends it its bytes */
    Plan *tp = planned(1, 1, 4, 1, &err), *both = planned(1, 4, 4, 1, &err);
    CHECK(tp && both, "%s", err.msg);
    EXPECT(!plan_shares(tp) && plan_shares(both), "whole experts are not an engine's quarters");

    Buf text = { 0 };
    report_layout(cut, &text);
    EXPECT(strstr(text.data, "ep 4, etp 4"), "the report: %s", text.data);
    buf_free(&text);

    refused(4, 8, "ep 4 x etp 8 x pp 1 = 32 does not divide the 16 GPUs");
    refused(1, 5, "etp 5 does not divide the 768 columns of an expert");
    mem_free(&mem);
    return test_end();
}
