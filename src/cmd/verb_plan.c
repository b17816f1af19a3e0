/* verb_plan.c - `hone plan`: what fits, how fast, which layout; from a config.json alone. */
#include "cmd/cmd.h"
#include "base/clock.h"
#include "base/file.h"
#include "plan/report.h"
#include "plan/search.h"
#include "plan/simulate.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *cluster, *profile, *split, *recompute, *host_memory, *svg, *weights, *grads, *moments;
    int64_t per_node, tp, pp, ep, cp, vpp, gen_tp, gen_ep, epochs;
    double prompts, answers, mini, prompt_mean, prompt_max, mean, max, spread, micro, offload, gen_use;
    bool kl, park, unfused, explain, json, search, min_gpus, simulate;
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
    { "recompute", OPT_STR, A(recompute), "WAY", "none, light, selective, moe or full" },
    { "micro-tokens", OPT_REAL, A(micro), "N", "tokens of a micro-batch on one GPU (the longest sequence)", 1, 1e9 },
    { "offload", OPT_REAL, A(offload), "X", "share of the optimizer's states on the host (0)", 0, 1 },
    { "park", OPT_FLAG, A(park), "", "weights and device-side states wait on the host during rollout" },
    { "unfused-head", OPT_FLAG, A(unfused), "", "whole logits instead of a fused head" },
    { "rollout-tp", OPT_INT, A(gen_tp), "N", "engine: tensor parallel", 1, 4096 },
    { "rollout-ep", OPT_INT, A(gen_ep), "N", "engine: expert parallel; attention is repeated ep/tp times", 1, 4096 },
    { "rollout-memory", OPT_REAL, A(gen_use), "X", "share of device memory the engine may take (0.95)", 0, 1 },
    { "search", OPT_FLAG, A(search), "", "rank layouts by step time (also when no layout is given)" },
    { "min-gpus", OPT_FLAG, A(min_gpus), "", "the fewest GPUs of this kind, with and without offload" },
    { "simulate", OPT_FLAG, A(simulate), "", "also play the step event by event: long tails, stragglers" },
    { "weights", OPT_STR, A(weights), "bf16|f32", "how weights are kept and computed with (bf16; on a CPU f32)" },
    { "grads", OPT_STR, A(grads), "f32|bf16", "how gradients are kept (f32)" },
    { "moments", OPT_STR, A(moments), "f32|bf16", "how AdamW's two averages are kept (f32)" },
    { "svg", OPT_STR, A(svg), "FILE", "draw memory per stage and the step's timeline" },
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
#define OR_ONE(x) ((x) ? (int)(x) : 1)
    *l = (Layout){ .tp = OR_ONE(a->tp),
                   .pp = OR_ONE(a->pp),
                   .ep = OR_ONE(a->ep),
                   .cp = OR_ONE(a->cp),
                   .vpp = OR_ONE(a->vpp),
                   .fused_head = !a->unfused,
                   .micro_tokens = a->micro,
                   .offload = a->offload,
                   .park_weights = a->park,
                   .park_states = a->park,
                   .gen_tp = OR_ONE(a->gen_tp),
                   .gen_ep = OR_ONE(a->gen_ep),
                   .gen_use = a->gen_use };
    if (!l->micro_tokens) l->micro_tokens = p->work.prompt_max + p->work.max;
    TRY(recompute_parse(&l->drop, a->recompute, err));
    TRY(layout_split(l, a->split, p->sum->layers, err));
    return layout_check(l, p->sum, &p->cluster, &p->work, err);
}

static bool layout_given(const Args *a) { return a->tp || a->pp || a->ep || a->cp || a->vpp || a->gen_tp || a->gen_ep; }

static bool bytes_of(double *out, const char *name, const char *value, double standard, Err *err) {
    *out = standard;
    if (!value) return true;
    if (strcmp(value, "f32") && strcmp(value, "bf16"))
        return err_set(err, "--%s is f32 or bf16, not '%s'", name, value);
    *out = strcmp(value, "f32") ? 2 : 4;
    return true;
}

/* The profile with the precision asked for.  Weights in float32 are their own master copy. */
static bool read_profile(Plan *p, const Args *a, Mem *mem, Err *err) {
    const Profile *known = profile_find(a->profile);
    if (!known) return err_set(err, "there is no profile '%s': hone, verl or nemo", a->profile);
    Profile *f = MEM_NEW(mem, Profile);
    double moment;
    *f = *known;
    TRY(bytes_of(&f->weight, "weights", a->weights, p->cluster.gpu.is_cpu ? 4 : f->weight, err));
    TRY(bytes_of(&f->grad, "grads", a->grads, f->grad, err) && bytes_of(&moment, "moments", a->moments, 4, err));
    f->optimizer = 2 * moment + (f->weight > 2 ? 0 : 4);
    f->kv = f->weight;
    if (p->cluster.gpu.is_cpu) f->runtime = f->gen_work = 50e6;
    p->profile = f;
    return true;
}

static bool setting(Plan *p, ModelSum *sum, ModelDesc *model, const char *path, const Args *a, Mem *mem, Err *err) {
    TRY(model_desc_load(model, path, mem, err));
    model_sum(sum, model);
    p->sum = sum;
    p->work = (Workload){ a->prompts, a->answers, a->mini, a->prompt_mean, a->prompt_max,
                          a->mean, a->max, a->spread, a->kl, (int)a->epochs };
    if (a->mean > a->max)
        return err_set(err, "answers of %.0f tokens on average cannot all end by %.0f", a->mean, a->max);
    double longest = a->prompt_max + a->max, context = (double)model->d.context;
    if (context > 0 && longest > context)
        return err_set(
            err, "prompt %.0f + answer %.0f = %.0f tokens exceed the model's context of %.0f (max_position_embeddings)",
            a->prompt_max, a->max, longest, context);
    p->layout.gen_use = a->gen_use;
    TRY(read_cluster(&p->cluster, a, mem, err));
    return read_profile(p, a, mem, err);
}

/* Searches, prints the ranking, leaves the best in p. */
static bool search(Plan *p, const Args *a, Mem *mem, Buf *out, Err *err) {
    Search *s = MEM_NEW(mem, Search);
    Plan *best = MEM_NEW(mem, Plan), *other = MEM_NEW(mem, Plan);
    double t0 = clock_now();
    search_run(p, true, s);
    double took = clock_now() - t0;
    if (!s->n)
        return err_set(err, "nothing fits on %d x %s (%ld layouts tried); %s; --min-gpus says how many are needed",
                       p->cluster.gpus, p->cluster.gpu.name, s->tried, s->nearest);
    *best = *p;
    best->layout = s->at[0].layout;
    plan_make(best);
    buf_printf(out, "%ld trainer layouts, %ld whole ones that fit, %.2f s\n", s->tried, s->fitting, took);
    for (int i = 0; i < s->n && i < 8; i++) {
        *other = *p;
        other->layout = s->at[i].layout;
        plan_make(other);
        buf_printf(out, "%2d. %9.2f s  ", i + 1, other->step);
        report_layout(other, out);
        if (i) {
            buf_puts(out, "; loses by ");
            search_reason(best, other, out);
        }
        buf_puts(out, "\n");
    }
    if (layout_given(a)) {
        *other = *p;
        if (!read_layout(other, a, err)) return err_wrap(err, "the layout given");
        plan_make(other);
        buf_printf(out, "given: %6.2f s  ", other->step);
        report_layout(other, out);
        buf_printf(out, "%s; loses by ", other->fits ? "" : ", DOES NOT FIT");
        search_reason(best, other, out);
        buf_printf(out, "; stages: slowest / mean %.3f there, %.3f in the best\n", other->imbalance_stage,
                   best->imbalance_stage);
    }
    buf_puts(out, "\n");
    *p = *best;
    return true;
}

static void fewest(const Plan *p, Buf *out) {
    enum { MOST = 8192 };
    for (int offload = 0; offload < 2; offload++) {
        Layout l;
        int n = search_min_gpus(p, offload, MOST, &l);
        buf_printf(out, "%s: ", offload ? "with offload   " : "without offload");
        if (!n) {
            buf_printf(out, "not on %d x %s\n", MOST, p->cluster.gpu.name);
            continue;
        }
        buf_printf(out, "%d x %s (tp %d, pp %d, ep %d, recompute %s, offload %g)\n", n, p->cluster.gpu.name, l.tp, l.pp,
                   l.ep, recompute_name(l.drop), l.offload);
    }
}

static void simulated(const Plan *p, Buf *out) {
    SimOpts o = { .seed = 1, .jitter = 0.01, .slow_share = 0.001, .slow_by = 0.15 };
    SimResult r;
    double t0 = clock_now();
    plan_simulate(p, &o, &r);
    buf_printf(out, "\nsimulated (GPUs vary by 1 %%, one in a thousand is 15 %% slow): %ld events in %.2f s\n",
               r.events, clock_now() - t0);
    for (int i = 0; i < PH_COUNT; i++)
        if (r.seconds[i] > 0)
            buf_printf(out, "%-14s %10.3f  formula %10.3f  %+.1f %%\n", PHASE_NAMES[i], r.seconds[i],
                       p->phase[i].seconds, 100 * (r.seconds[i] / p->phase[i].seconds - 1));
    buf_printf(out, "%-14s %10.3f  formula %10.3f  %+.1f %%\n", "step", r.step, p->step, 100 * (r.step / p->step - 1));
    buf_printf(out,
               "engines: mean %.1f s, slowest %.1f s; replicas: mean %.2f s, slowest %.2f s a mini-batch; stages "
               "compute %.1f %% of the update\n",
               r.engine_mean, r.engine_slowest, r.replica_mean, r.replica_slowest, 100 * r.busy);
}

static bool draw(const Plan *p, const char *path, Err *err) {
    Buf b = { 0 };
    report_svg(p, &b);
    bool ok = file_write(path, b.data, b.n, err);
    buf_free(&b);
    return ok;
}

static int answer(const Verb *v, const Args *a, const char *path, Mem *mem, Buf *out) {
    Err err = { 0 };
    Plan *p = MEM_NEW(mem, Plan);
    if (!setting(p, MEM_NEW(mem, ModelSum), MEM_NEW(mem, ModelDesc), path, a, mem, &err)) return cmd_fail(v, &err);
    if (a->min_gpus) return fewest(p, out), 0;
    if (a->search || (!layout_given(a) && p->cluster.gpus > 1)) {
        if (!search(p, a, mem, out, &err)) return cmd_fail(v, &err);
    } else {
        if (!read_layout(p, a, &err)) return cmd_fail(v, &err);
        plan_make(p);
    }
    if (a->json) buf_clear(out), report_json(p, out);
    else report_text(p, a->explain, out);
    if (a->simulate && !a->json) simulated(p, out);
    if (a->svg && !draw(p, a->svg, &err)) return cmd_fail(v, &err);
    return p->fits ? 0 : 1;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .cluster = "this",
               .profile = "hone",
               .split = "even",
               .recompute = "full",
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
    Buf out = { 0 };
    rc = answer(v, &a, word, &mem, &out);
    if (out.data) fputs(out.data, stdout);
    buf_free(&out);
    mem_free(&mem);
    return rc;
}

const Verb verb_plan = { .name = "plan",
                         .usage = "MODEL|config.json --cluster SPEC [workload] [layout]",
                         .options = OPTIONS,
                         .run = run,
                         .summary = "what fits, how fast, which layout" };
