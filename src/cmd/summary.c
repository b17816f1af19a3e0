/* summary.c - the last words of a run.
 * What `hone plan` says a step of this run takes is told beside what it took.  On GPUs of the planner's table that is
 * its model of them; on a CPU a few micro-batches and decode steps of a model like this one are timed for it, once the
 * run's own memory is given back. */
#include "cmd/summary.h"
#include "base/file.h"
#include "base/json.h"
#include "cmd/local.h"
#include "cmd/start.h"
#include "op/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

typedef struct {
    double prompts, answers, mini, epochs;     /* of a step */
    double prompt_mean, prompt_max, mean, max; /* tokens, as they were and at most */
    double computed;                           /* share of the updates' work: silent answers take little or none */
    bool reference;
    PolicyConf policy;
    int threads;             /* of all ranks that share a machine, as many as it has cores or fewer */
    GridShape grid, sampler; /* over all ranks */
    const Machine *card;     /* or NULL: a CPU, or a GPU that is not in the table */
    int per_node;            /* ranks of a machine */
} PredictIn;
typedef struct {
    double rollout, reference, update, sync;
} Predicted; /* seconds; update with the optimizer */

static int dropped(Recompute r) {
    return r == RECOMPUTE_FULL ? DROP_ALL : r == RECOMPUTE_SELECTIVE ? DROP_NORM | DROP_ACT | DROP_ROWS : 0;
}

/* False for a model too large to do that in passing, on a CPU, and where an adapter is trained: nobody has measured
 * what its steps take. */
static bool run_predict(const ModelDesc *m, const PredictIn *in, Predicted *out) {
    enum { LARGEST = 60 * 1000 * 1000 };
    if (m->adapter || (!in->card && arch_param_count(m) > LARGEST)) return false;
    Mem mem = { 0 };
    Err err;
    ModelSum *s = MEM_NEW(&mem, ModelSum);
    Plan *p = MEM_NEW(&mem, Plan);
    model_sum(s, m);
    int ranks = grid_ranks(&in->grid);
    Machine here = { .name = "this",
                     .flops = 1e11,
                     .memory = 1e12,
                     .bandwidth = 1e10,
                     .sms = in->threads,
                     .gemm = 0.8,
                     .attn = 0.5,
                     .nvlink = 5e9 / ranks,
                     .nic = 1e9,
                     .pcie = 1e12,
                     .domain = ranks,
                     .per_node = ranks,
                     .host_memory = 1e12,
                     .host_bandwidth = 1e10,
                     .is_cpu = true };
    Profile how = *profile_find("hone");
    if (in->card) {
        here = *in->card, here.per_node = in->per_node;
        how.optimizer = (double)optim_param_bytes(in->policy.states);
    }
    *p = (Plan){ .sum = s, .cluster = { here, ranks }, .profile = &how };
    p->work = (Workload){ in->prompts,    in->answers,    in->mini, in->prompt_mean,
                          in->prompt_max, in->mean,       in->max,  in->mean < in->max ? 1 : 1e-3,
                          in->reference,  (int)in->epochs };
    p->layout = (Layout){ .g = in->grid,
                          .drop = in->card ? dropped(in->policy.trained.recompute) : 0,
                          .fused_head = !in->policy.trained.keep_logits || in->grid.tp > 1,
                          .park_states = in->card && in->policy.park_states,
                          .micro_tokens = (double)in->policy.micro_tokens,
                          .offload = in->policy.offload,
                          .gen_tp = in->sampler.tp,
                          .gen_ep = in->sampler.ep,
                          .gen_use = 0.9 };
    bool ok = layout_check(&p->layout, s, &p->cluster, &p->work, &err);
    if (ok) plan_make(p);
    if (ok && !in->card) {
        LocalRates r;
        LocalWork w = local_work(p, in->threads);
        w.policy = in->policy;
        ok = local_measure(m, &w, &r, &err);
        if (ok) local_apply(p, &w, &r);
    }
    if (ok) {
        *out = (Predicted){ p->phase[PH_ROLLOUT].seconds, p->phase[PH_REF].seconds,
                            p->phase[PH_UPDATE].seconds * in->computed + p->phase[PH_OPTIMIZER].seconds,
                            p->phase[PH_SYNC].seconds };
    }
    mem_free(&mem);
    return ok;
}

static void arena_line(const Arena *a) {
    if (a->size)
        printf("  %-20s planned %10.2f MB, peak %10.2f MB (%.0f %%)\n", a->name, (double)a->size / 1e6,
               (double)a->peak / 1e6, 100 * (double)a->peak / (double)a->size);
}

static void time_line(const char *name, double predicted, double measured) {
    if (measured <= 0) return;
    double off = 100 * (predicted / measured - 1);
    printf("  %-20s predicted %8.3f s, measured %8.3f s (%+.0f %%)\n", name, predicted, measured, off);
}

static void exact_line(const Run *r) {
    if (r->sum.steps < 1) return;
    printf("sampler against trainer: ");
    if (!r->sum.exact.tokens) puts("no log-prob was compared");
    else
        printf("largest difference of a log-prob %g, over %" PRId64 " tokens of %.0f in %.0f of %.0f steps\n",
               r->sum.exact.max_diff, r->sum.exact.tokens, r->sum.answer, r->sum.compared, r->sum.steps);
}

/* For a page of the run: a file that is not there is no reason to complain. */
static void put_predicted(const Run *r, const Predicted *p) {
    Buf b = { 0 };
    Mem mem = { 0 };
    Err ignore;
    const struct {
        const char *name;
        double seconds;
    } parts[] = {
        { "rollout", p->rollout }, { "reference", p->reference }, { "update", p->update }, { "sync", p->sync }
    };
    for (size_t i = 0; i < COUNT(parts); i++) {
        buf_printf(&b, "%s\"%s\":", i ? "," : "{", parts[i].name);
        json_put_f64(&b, parts[i].seconds);
    }
    buf_puts(&b, "}\n");
    file_write(mem_printf(&mem, "%s/predicted.json", r->job.c.trainer.run_dir), b.data, b.n, &ignore);
    mem_free(&mem);
    buf_free(&b);
}

/* Of the first rank, whose share of the states it is. */
static void moved_line(const Run *r) {
    if (r->sum.steps < 1) return;
    MovedSum s = moved_since(r->moved, &r->job.policy);
    printf("masters: %" PRId64 " of %" PRId64 " tensors have changed", s.tensors - s.still, s.tensors);
    if (s.still) printf("; not %s", s.first);
    putchar('\n');
}

/* Threads of all ranks, those that have a core. */
static int threads_in_all(const Run *r) {
    const World *w = &r->job.ranks.world;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), here = threads_count(r->job.o.dev.threads) * w->local_size;
    return (here < cores ? here : cores) * w->all.size / w->local_size;
}

/* A step as `hone plan` sees it beside the mean of those that were done: the first rank measures. */
static void tell_times(const Run *r) {
    const Config *c = &r->job.c;
    double n = r->sum.steps, took = 0;
    PredictIn in = {
        .prompts = (double)c->data.train_batch_size,
        .answers = (double)c->rollout.n,
        .mini = (double)c->train.mini_batch_size,
        .epochs = (double)c->train.epochs,
        .prompt_mean = r->sum.prompt / r->sum.answers,
        .prompt_max = (double)c->data.max_prompt_length,
        .mean = r->sum.answer / r->sum.answers,
        .max = (double)c->rollout.max_tokens,
        .computed = r->sum.flops / r->sum.full,
        .reference = r->ref.on,
        .policy = r->job.policy.c,
        .threads = threads_in_all(r),
        .grid = r->job.ranks.shard.g,
        .sampler = r->sampler.shard.g,
        .card = on_gpu(&r->job.o.dev) ? machine_card(dev_about(&r->job.o.dev).name) : NULL,
        .per_node = r->job.ranks.world.local_size,
    };
    if (on_gpu(&r->job.o.dev) && !in.card) return;
    Predicted p;
    if (!run_predict(&r->job.o.desc, &in, &p)) return;
    puts("time of a step:");
    time_line("rollout", p.rollout, r->sum.seconds[PHASE_GEN] / n);
    time_line("reference", p.reference, r->sum.seconds[PHASE_REF] / n);
    time_line("update", p.update, r->sum.seconds[PHASE_UPDATE] / n);
    time_line("sync", p.sync, r->sum.seconds[PHASE_SYNC] / n);
    for (int i = 0; i < PHASES; i++) took += i == PHASE_TEST || i == PHASE_SAVE ? 0 : r->sum.seconds[i] / n;
    put_predicted(r, &p);
    time_line("all phases", p.rollout + p.reference + p.update + p.sync, took);
}

static void time_summary(Run *r) {
    if (r->sum.steps < 1 || !job_wanted(&r->job)) return;
    ranks_phase(&r->job.ranks, "measuring");
    if (ranks_first(&r->job.ranks)) tell_times(r);
    comm_barrier(&r->job.ranks.world.all);
}

void run_summary(Run *r) {
    putchar('\n');
    end_line(r->job.step, r->job.steps, r->job.c.trainer.run_dir);
    const Arena *arenas[] = { &r->job.o.model.w.arena, &r->job.o.model.lora.arena, &r->job.policy.grads.arena,
                              &r->job.policy.opt.dev,  &r->job.policy.opt.host,    &r->job.policy.act,
                              &r->job.o.dev.tmp };
    puts("memory:");
    for (size_t i = 0; i < COUNT(arenas); i++) arena_line(arenas[i]);
    MemoryUsed memory = memory_used();
    printf("  %-20s planned %10.2f MB, peak %10.2f MB (questions, tokenizer and program included)\n", "the process",
           (double)r->job.planned / 1e6, memory.peak / 1e6);
    DevAbout gpu = dev_about(&r->job.o.dev);
    if (gpu.total)
        printf("  %-20s planned %10.2f MB, the driver says %.2f MB in use (%.2f MB before the run took its own)\n",
               "the GPU", (double)(gpu.base + r->job.planned_gpu) / 1e6, (double)(gpu.total - gpu.free) / 1e6,
               (double)gpu.base / 1e6);
    exact_line(r);
    moved_line(r);
    run_release(r);
    time_summary(r);
}
