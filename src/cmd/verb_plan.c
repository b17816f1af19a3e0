/* verb_plan.c - `hone plan`: what fits, how fast, which layout; from a config.json alone. */
#include "cmd/cmd.h"
#include "plan/report.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *cluster, *profile, *split, *recompute, *host_memory;
    int64_t per_node, tp, pp, ep, cp, vpp, gen_tp, gen_ep, epochs;
    double prompts, answers, mini, prompt_mean, prompt_max, mean, max, spread, micro, offload, gen_use;
    bool kl, park, unfused, explain, json;
} Args;

#define A(field) offsetof(Args, field)
static const Opt OPTIONS[] = {
    { "cluster", OPT_STR, A(cluster), "SPEC", "H20-96x96 (type x GPUs), a file, or this (the default): docs/plan.md" },
    { "gpus-per-node", OPT_INT, A(per_node), "N", "GPUs of one host", 1, 1024 },
    { "host-memory", OPT_STR, A(host_memory), "SIZE", "memory of one host, e.g. 1500GB" },
    { "profile", OPT_STR, A(profile), "NAME", "hone (default), verl or nemo: how the stack spends memory and time" },
    { "prompts", OPT_REAL, A(prompts), "N", "questions a step (128)", 1, 1e9 },
    { "answers", OPT_REAL, A(answers), "N", "answers to each (8)", 1, 1e6 },
    { "mini", OPT_REAL, A(mini), "N", "questions of one optimizer step (all)", 1, 1e9 },
    { "epochs", OPT_INT, A(epochs), "N", "passes over a step's data (1)", 1, 1000 },
    { "prompt-mean", OPT_REAL, A(prompt_mean), "N", "tokens of a question, mean (150)", 1, 1e9 },
    { "prompt-max", OPT_REAL, A(prompt_max), "N", "tokens of a question, at most (1024)", 1, 1e9 },
    { "mean", OPT_REAL, A(mean), "N", "tokens of an answer, mean (1024)", 1, 1e9 },
    { "max", OPT_REAL, A(max), "N", "tokens of an answer, at most (4096)", 1, 1e9 },
    { "spread", OPT_REAL, A(spread), "X", "standard deviation / mean of an answer's length (1)", 0, 10 },
    { "kl", OPT_FLAG, A(kl), "", "a reference model is needed" },
    { "tp", OPT_INT, A(tp), "N", "tensor parallel", 1, 4096 },
    { "pp", OPT_INT, A(pp), "N", "pipeline stages", 1, MAX_STAGES },
    { "ep", OPT_INT, A(ep), "N", "expert parallel", 1, 4096 },
    { "cp", OPT_INT, A(cp), "N", "context parallel", 1, 4096 },
    { "vpp", OPT_INT, A(vpp), "N", "interleaved chunks of a stage", 1, 64 },
    { "split", OPT_STR, A(split), "LIST", "layers of each stage: 6,5x11 or even or last=6" },
    { "recompute", OPT_STR, A(recompute), "WAY", "none, selective, moe or full" },
    { "micro-tokens", OPT_REAL, A(micro), "N", "tokens of a micro-batch on one GPU (the longest sequence)", 1, 1e9 },
    { "offload", OPT_REAL, A(offload), "X", "share of the optimizer's states on the host (0)", 0, 1 },
    { "park", OPT_FLAG, A(park), "", "weights and device-side states wait on the host during rollout" },
    { "unfused-head", OPT_FLAG, A(unfused), "", "whole logits instead of a fused head" },
    { "rollout-tp", OPT_INT, A(gen_tp), "N", "engine: tensor parallel", 1, 4096 },
    { "rollout-ep", OPT_INT, A(gen_ep), "N", "engine: expert parallel; attention is repeated ep/tp times", 1, 4096 },
    { "rollout-memory", OPT_REAL, A(gen_use), "X", "share of device memory the engine may take (0.95)", 0, 1 },
    { "explain", OPT_FLAG, A(explain), "", "every stage, and why" },
    { "json", OPT_FLAG, A(json), "", "as JSON" },
    { 0 },
};

static bool read_cluster(Cluster *c, const Args *a, Mem *mem, Err *err) {
    TRY(cluster_parse(c, a->cluster, mem, err));
    if (a->per_node) {
        if (c->gpu.domain == c->gpu.per_node) c->gpu.domain = (int)a->per_node;
        c->gpu.per_node = (int)a->per_node;
    }
    if (a->host_memory && !size_parse(&c->gpu.host_memory, a->host_memory, err)) return err_wrap(err, "--host-memory");
    return true;
}

static bool read_layout(Plan *p, const Args *a, Err *err) {
    Layout *l = &p->layout;
    *l = (Layout){ .tp = (int)a->tp,
                   .pp = (int)a->pp,
                   .ep = (int)a->ep,
                   .cp = (int)a->cp,
                   .vpp = (int)a->vpp,
                   .fused_head = !a->unfused,
                   .micro_tokens = a->micro,
                   .offload = a->offload,
                   .park_weights = a->park,
                   .park_states = a->park,
                   .gen_tp = (int)a->gen_tp,
                   .gen_ep = (int)a->gen_ep,
                   .gen_use = a->gen_use };
    if (!l->micro_tokens) l->micro_tokens = p->work.prompt_max + p->work.max;
    TRY(recompute_parse(&l->drop, a->recompute, err));
    TRY(layout_split(l, a->split, p->sum->layers, err));
    return layout_check(l, p->sum, &p->cluster, &p->work, err);
}

static bool make(Plan *p, ModelSum *sum, ModelDesc *model, const char *path, const Args *a, Mem *mem, Err *err) {
    TRY(model_desc_load(model, path, mem, err));
    model_sum(sum, model);
    p->sum = sum;
    p->profile = profile_find(a->profile);
    if (!p->profile) return err_set(err, "there is no profile '%s': hone, verl or nemo", a->profile);
    p->work = (Workload){ a->prompts, a->answers, a->mini, a->prompt_mean, a->prompt_max,
                          a->mean, a->max, a->spread, a->kl, (int)a->epochs };
    if (a->mean > a->max)
        return err_set(err, "answers of %.0f tokens on average cannot all end by %.0f", a->mean, a->max);
    TRY(read_cluster(&p->cluster, a, mem, err));
    TRY(read_layout(p, a, err));
    plan_make(p);
    return true;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .cluster = "this",
               .profile = "hone",
               .split = "even",
               .recompute = "full",
               .tp = 1,
               .pp = 1,
               .ep = 1,
               .cp = 1,
               .vpp = 1,
               .gen_tp = 1,
               .gen_ep = 1,
               .prompts = 128,
               .answers = 8,
               .epochs = 1,
               .prompt_mean = 150,
               .prompt_max = 1024,
               .mean = 1024,
               .max = 4096,
               .spread = 1,
               .gen_use = 0.95 };
    const char *word;
    int n, rc = opt_parse(v, &a, &word, 1, 1, &n, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    Err err = { 0 };
    Buf out = { 0 };
    Plan *p = MEM_NEW(&mem, Plan);
    bool ok = make(p, MEM_NEW(&mem, ModelSum), MEM_NEW(&mem, ModelDesc), word, &a, &mem, &err);
    if (ok) report_text(p, a.explain, &out);
    if (ok) fputs(out.data, stdout);
    rc = ok ? p->fits ? 0 : 1 : cmd_fail(v, &err);
    buf_free(&out);
    mem_free(&mem);
    return rc;
}

const Verb verb_plan = { .name = "plan",
                         .usage = "MODEL|config.json --cluster SPEC [workload] [layout]",
                         .options = OPTIONS,
                         .run = run,
                         .summary = "what fits, how fast, which layout" };
