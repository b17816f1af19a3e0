/* run_predict.c - see run_predict.h. */
#include "cmd/run_predict.h"

#include "cmd/here.h"

bool run_predict(const ModelDesc *m, const PredictIn *in, Predicted *out) {
    enum { LARGEST = 60 * 1000 * 1000 };
    if (arch_param_count(m) > LARGEST) return false;
    Mem mem = { 0 };
    Err err;
    ModelSum *s = MEM_NEW(&mem, ModelSum);
    Plan *p = MEM_NEW(&mem, Plan);
    model_sum(s, m);
    Machine here = { .name = "this",
                     .flops = 1e11,
                     .memory = 1e12,
                     .bandwidth = 1e10,
                     .sms = in->threads,
                     .gemm = 0.8,
                     .attn = 0.5,
                     .nvlink = 1e9,
                     .nic = 1e9,
                     .pcie = 1e12,
                     .domain = 1,
                     .per_node = 1,
                     .host_memory = 1e12,
                     .host_bandwidth = 1e10,
                     .is_cpu = true };
    *p = (Plan){ .sum = s, .cluster = { here, 1 }, .profile = profile_find("hone") };
    p->work = (Workload){ in->prompts, in->answers, in->mini, in->prompt_mean, in->prompt_max,
                          in->mean,    in->max,     1,        in->reference,   (int)in->epochs };
    p->layout = (Layout){ .tp = 1,
                          .pp = 1,
                          .ep = 1,
                          .cp = 1,
                          .vpp = 1,
                          .fused_head = true,
                          .micro_tokens = (double)in->policy.micro_tokens,
                          .offload = in->policy.offload,
                          .gen_tp = 1,
                          .gen_ep = 1,
                          .gen_use = 0.9 };
    layout_even(&p->layout, s->layers);
    bool ok = layout_check(&p->layout, s, &p->cluster, &p->work, &err);
    HereRates r;
    if (ok) {
        plan_make(p);
        HereWork w = here_work(p, in->threads);
        w.policy = in->policy;
        ok = here_measure(m, &w, &r, &err);
    }
    if (ok) {
        here_apply(p, &r);
        *out = (Predicted){ p->phase[PH_ROLLOUT].seconds, p->phase[PH_REF].seconds,
                            p->phase[PH_UPDATE].seconds * in->computed + p->phase[PH_OPTIMIZER].seconds };
    }
    mem_free(&mem);
    return ok;
}
