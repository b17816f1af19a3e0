/* verb_plan.c - `hone plan`: what fits, how fast, which layout; from a config.json alone. */
#include "cmd/cmd.h"
#include "cmd/local.h"
#include "cmd/plan_args.h"
#include "base/clock.h"
#include "base/file.h"
#include "plan/report.h"
#include "plan/recipe.h"
#include "plan/saving.h"
#include "plan/search.h"
#include "plan/simulate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define A(field) offsetof(PlanArgs, field)
static const Opt OPTIONS[] = {
    { "recipe", OPT_STR, A(recipe), "FILE",
      "take model, workload, layout and cluster from a configuration; options change it" },
    { "cluster", OPT_STR, A(cluster), "SPEC",
      "H20-96x96 (type x GPUs), a file, this (the default) or thisx4 (four ranks here): docs/plan.md" },
    { "gpus-per-node", OPT_INT, A(per_node), "N", "GPUs of one host", 1, 1024 },
    { "host-memory", OPT_STR, A(host_memory), "SIZE", "memory of one host, e.g. 1500GB" },
    { "storage", OPT_STR, A(storage), "RATE",
      "of the file system that all nodes share, e.g. 10GB/s: saves take seconds" },
    { "signal", OPT_REAL, A(signal), "SECONDS", "a job is told so long before its end: enough for a save?", 1, 1e6 },
    { "profile", OPT_STR, A(profile), "NAME", "hone (default), verl or nemo: how the stack spends memory and time" },
    { "prompts", OPT_REAL, A(work.prompts), "N", "questions a step (128)", 1, 1e9 },
    { "answers", OPT_REAL, A(work.answers), "N", "answers to each (8)", 1, 1e6 },
    { "mini", OPT_REAL, A(work.mini), "N", "questions of one optimizer step (all)", 1, 1e9 },
    { "epochs", OPT_INT, A(work.epochs), "N", "passes over a step's data (1)", 1, 1000 },
    { "prompt-mean", OPT_REAL, A(work.prompt_mean), "N",
      "tokens of a question with its pictures, mean (150, and theirs)", 1, 1e9 },
    { "prompt-max", OPT_REAL, A(work.prompt_max), "N", "tokens of a question, at most (1024, and theirs)", 1, 1e9 },
    { "mean", OPT_REAL, A(work.mean), "N", "tokens of an answer, mean (1024)", 1, 1e9 },
    { "max", OPT_REAL, A(work.max), "N", "tokens of an answer, at most (4096)", 1, 1e9 },
    { "spread", OPT_REAL, A(work.spread), "X", "standard deviation / mean of an answer's length (1)", 0, 10 },
    { "images", OPT_REAL, A(work.images), "N", "pictures of a question, beside its text (0)", 0, 64 },
    { "image-size", OPT_STR, A(work.image_size), "WxH",
      "their size in pixels, before the model's own rules (640x480)" },
    { "kl", OPT_FLAG, A(kl), "", "a reference model is needed" },
    { "tp", OPT_INT, A(tp), "N", "tensor parallel", 1, 4096 },
    { "pp", OPT_INT, A(pp), "N", "pipeline stages", 1, MAX_STAGES },
    { "ep", OPT_INT, A(ep), "N", "expert parallel", 1, 4096 },
    { "etp", OPT_INT, A(etp), "N", "expert tensor parallel: each expert cut in so many", 1, 4096 },
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
    { "master", OPT_STR, A(master), "f32|remainder",
      "the master of bf16 weights: whole, or the 16 bits that rounding took (f32)" },
    { "moments", OPT_STR, A(moments), "f32|bf16", "how AdamW's two averages are kept (f32)" },
    { "write", OPT_STR, A(write), "FILE", "write the plan as a configuration for hone train" },
    { "model-path", OPT_STR, A(model), "DIR", "its model.path (the MODEL given)" },
    { "data", OPT_STR, A(data), "FILE", "its data.train_files (data/train.parquet)" },
    { "svg", OPT_STR, A(svg), "FILE", "draw memory per stage and the step's timeline" },
    { "explain", OPT_FLAG, A(explain), "", "every stage, and why" },
    { "json", OPT_FLAG, A(json), "", "as JSON" },
    { 0 },
};

/* Searches, prints the ranking, leaves the best in p. */
static bool search(Plan *p, const PlanArgs *a, Mem *mem, Buf *out, Err *err) {
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
    if (plan_args_layout_given(a)) {
        *other = *p;
        if (plan_args_layout(other, a, err)) {
            plan_make(other);
            buf_printf(out, "given: %6.2f s  ", other->step);
            report_layout(other, out);
            buf_printf(out, "%s; loses by ", other->fits ? "" : ", DOES NOT FIT");
            search_reason(best, other, out);
            buf_printf(out, "; stages: slowest / mean %.3f there, %.3f in the best\n", other->imbalance_stage,
                       best->imbalance_stage);
        } else buf_printf(out, "given: cannot be had here: %s\n", err->msg);
    }
    buf_puts(out, "\n");
    *p = *best;
    return true;
}

static void fewest(const Plan *p, Buf *out) {
    enum { MOST = 8192 };
    report_refused(&p->cluster, "hone does not run there: ", out);
    for (int offload = 0; offload < 2; offload++) {
        Layout l;
        int n = search_min_gpus(p, offload, MOST, &l);
        buf_puts(out, offload ? "with offload:    " : "without offload: ");
        if (!n) {
            buf_printf(out, "not on %d x %s\n", MOST, p->cluster.gpu.name);
            continue;
        }
        buf_printf(out, "%4d x %s (tp %d, pp %d, ep %d, recompute %s, offload %g)\n", n, p->cluster.gpu.name, l.g.tp,
                   l.g.pp, l.g.ep, recompute_name(l.drop), l.offload);
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

static bool write_recipe(const Plan *p, const PlanArgs *a, const char *model, Err *err) {
    Buf b = { 0 };
    RecipeText t = { .path = a->write,
                     .model = a->model ? a->model : model,
                     .data = a->data ? a->data : "data/train.parquet",
                     .cluster = a->cluster,
                     .host_memory = a->host_memory,
                     .storage = a->storage,
                     .weights = a->weights,
                     .grads = a->grads,
                     .moments = a->moments,
                     .per_node = (int)a->per_node };
    recipe_write(p, &t, &b);
    bool ok = file_write(a->write, b.data, b.n, err);
    buf_free(&b);
    return ok;
}

/* The run's cache holds every answer at once unless it is told otherwise; often a smaller one is all that is needed. */
static void say_short(Plan *p, const LocalWork *w) {
    double room = p->cluster.gpu.memory,
           page = (double)cache_page_bytes(p->sum->model, NULL, w->engine.sched.page, dev_kind_cpu());
    double left = room - (p->arenas - page * (double)w->engine.sched.pages), pages = floor(left / page);
    int n = snprintf(p->verdict, sizeof p->verdict, "the arenas need %.1f GB, this machine has %.1f: short by %.1f GB",
                     p->arenas / 1e9, room / 1e9, (p->arenas - room) / 1e9);
    if (pages * w->engine.sched.page >= p->work.prompt_max + p->work.max)
        snprintf(p->verdict + n, sizeof p->verdict - (size_t)n,
                 "; with rollout.kv_tokens: %.0f (a smaller cache, answers wait for each other) it fits",
                 pages * w->engine.sched.page);
}

/* On this machine: the arenas of the run itself, and times measured on slices of the model. */
static bool plan_local(Plan *p, const PlanArgs *a, Buf *memory, Buf *times, Err *err) {
    enum { LARGEST = 400 * 1000 * 1000 }; /* parameters of two layers, embedding and head that are worth filling */
    const ModelDesc *m = p->sum->model;
    if (m->arch->runs) TRY(local_possible(m, p, err));
    LocalWork w = local_work(p, threads_default());
    w.save_buffer = a->save_buffer;
    Need arenas[MOST_NEEDS];
    double slice = p->sum->embed + p->sum->head + 2 * p->sum->total / p->sum->layers, room = p->cluster.gpu.memory;
    int n = m->arch->runs ? local_needs(m, &w, arenas) : 0;
    if (!n) return true; /* counted, not run: the closed formulas stand */
    buf_printf(memory, "\nmemory of %s, the arenas that hone train will take, MB\n",
               p->cluster.gpus > 1 ? "the first rank" : "one process");
    for (int i = 0; i < n; i++) {
        buf_printf(memory, "%-17s %12.2f\n", arenas[i].name, (double)arenas[i].bytes / 1e6);
        p->arenas += (double)arenas[i].bytes;
    }
    buf_printf(memory, "%-17s %12.2f of %.0f\n", "in all", p->arenas / 1e6, room / 1e6);
    p->fits = p->arenas <= room;
    if (!p->fits) say_short(p, &w);
    if (slice > LARGEST || !p->fits) return true;
    LocalRates r;
    TRY(local_measure(m, &w, &r, err));
    local_apply(p, &w, &r);
    buf_printf(
        times,
        "times measured on the model or slices of it (%.1f s): %.2f us a token trained, %.2f us scored; a decode "
        "step %.2f ms + %.3f ms a sequence; AdamW %.2f ns a parameter\n",
        r.took, 1e6 * r.train, 1e6 * r.score, 1e3 * r.fixed, 1e3 * r.row, 1e9 * r.adam);
    return true;
}

static bool tell(Plan *p, const PlanArgs *a, Buf *out, int *faults, Err *err) {
    Buf memory = { 0 }, times = { 0 };
    bool ok = !p->cluster.gpu.is_cpu || plan_local(p, a, &memory, &times, err);
    if (ok && a->json) {
        buf_clear(out);
        report_json(p, out);
    } else if (ok) {
        report_text(p, memory.data, a->explain, out);
        buf_puts(out, times.data ? times.data : "");
        if (a->simulate) simulated(p, out);
        report_verdict(p, out);
        *faults = plan_faults(p, out);
    }
    buf_free(&memory), buf_free(&times);
    return ok;
}

static int answer(const Verb *v, const PlanArgs *a, const char *path, Mem *mem, Buf *out) {
    Err err = { 0 };
    Plan *p = MEM_NEW(mem, Plan);
    int faults = 0;
    if (!plan_args_setting(p, a, path, mem, &err)) return cmd_fail(v, &err);
    if (a->min_gpus) return fewest(p, out), 0;
    bool here = p->cluster.gpu
                    .is_cpu; /* ranks that share cores gain by no cut: data parallel, unless the user says otherwise */
    bool searches = a->search || (!plan_args_layout_given(a) && p->cluster.gpus > 1 && !here);
    if (searches) {
        p->saves.whole = false; /* what a layout leaves is known afterwards */
        if (!search(p, a, mem, out, &err)) return cmd_fail(v, &err);
    } else {
        if (!plan_args_layout(p, a, &err)) return cmd_fail(v, &err);
        plan_make(p);
    }
    if (searches || !a->recipe) plan_stage_saves(p); /* a recipe says how it saves */
    if (!tell(p, a, out, &faults, &err) || (a->svg && !draw(p, a->svg, &err))
        || (a->write && !write_recipe(p, a, path, &err)))
        return cmd_fail(v, &err);
    return p->fits && !(faults && (a->recipe || a->signal > 0)) ? 0 : 1;
}

static int run(const Verb *v, int argc, char **argv) {
    PlanArgs first = { 0 }, a = PLAN_STANDARD;
    const char *model = NULL;
    int n, rc = opt_parse(v, &first, &model, 0, 1, &n, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    Buf out = { 0 };
    Err err = { 0 };
    if (first.recipe && !plan_args_recipe(&a, first.recipe, &mem, &err)) rc = cmd_fail(v, &err);
    else if (!n && !a.model)
        rc = cmd_usage(v, "which model? give its folder or config.json, or a --recipe that names it");
    else {
        opt_parse(v, &a, &model, 0, 1, &n, argc, argv); /* once more, on top of the recipe */
        rc = answer(v, &a, n ? model : a.model, &mem, &out);
    }
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
