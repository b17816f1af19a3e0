/* report.c - the tables that `hone plan` prints.  GB are 1e9 bytes throughout. */
#include "plan/report.h"

#include <math.h>
#include <string.h>

static const double GB = 1e9;

void report_layout(const Plan *p, Buf *out) {
    const Layout *l = &p->layout;
    buf_printf(out, "tp %d, pp %d, ep %d, cp %d", l->tp, l->pp, l->ep, l->cp);
    if (l->vpp > 1) buf_printf(out, ", vpp %d", l->vpp);
    buf_puts(out, ", layers ");
    layout_split_text(l, out);
    buf_printf(out, ", recompute %s, micro-batch %.0f, offload %g", recompute_name(l->drop), l->micro_tokens,
               l->offload);
    if (l->park_weights || l->park_states)
        buf_printf(out, ", parks %s",
                   l->park_weights && l->park_states ? "weights and states"
                   : l->park_weights                 ? "weights"
                                                     : "states");
    if (!l->fused_head) buf_puts(out, ", unfused head");
    buf_printf(out, "; rollout tp %d", l->gen_tp);
    if (l->gen_ep > 1) buf_printf(out, " ep %d", l->gen_ep);
}

static void heading(const Plan *p, Buf *out) {
    const ModelSum *s = p->sum;
    const Cluster *c = &p->cluster;
    const Workload *w = &p->work;
    buf_printf(out, "%s: %.2f B parameters, %.2f B active, %d layers\n", s->model->arch->name, s->total / 1e9,
               s->active / 1e9, s->layers);
    if (c->gpu.is_cpu)
        buf_printf(out, "this machine: %.0f cores, %.0f GFLOP/s float32, %.1f GB/s, %.1f GB", c->gpu.sms,
                   c->gpu.flops / 1e9, c->gpu.bandwidth / 1e9, c->gpu.memory / 1e9);
    else
        buf_printf(out, "%d x %s (%.0f GB, %.0f TFLOP/s) in %d nodes with %.0f GB", c->gpus, c->gpu.name,
                   c->gpu.memory / GB, c->gpu.flops / 1e12, cluster_nodes(c), c->gpu.host_memory / GB);
    buf_printf(out, "; profile %s\n", p->profile->name);
    buf_printf(out,
               "step: %.0f prompts x %.0f answers, mini-batch %.0f prompts; prompts %.0f (at most %.0f) tokens, "
               "answers %.0f (at most %.0f, spread %.2g)%s\n",
               w->prompts, w->answers, w->mini > 0 ? w->mini : w->prompts, w->prompt_mean, w->prompt_max, w->mean,
               w->max, w->spread, w->kl ? ", KL" : "");
    report_layout(p, out);
    buf_printf(out, "\ndp %d, expert dp %d; %.0f mini-batches of %.0f micro-batches; %.0f engines\n", p->layout.dp,
               p->layout.edp, p->mini_batches, p->micro_batches, p->engines);
}

static bool column_used(const Plan *p, int kind) {
    for (int ph = 0; ph < PH_COUNT; ph++)
        for (int i = 0; i < p->stages; i++)
            if (p->stage[i].bytes[ph][kind] > 0) return true;
    return false;
}

static void memory_row(const Plan *p, int stage, int ph, Buf *out) {
    for (int k = 0; k < MEM_COUNT; k++)
        if (column_used(p, k)) buf_printf(out, " %11.2f", p->stage[stage].bytes[ph][k] / GB);
    buf_printf(out, " %8.1f\n", p->stage[stage].total[ph] / GB);
}

static void memory_table(const Plan *p, bool every, Buf *out) {
    buf_printf(out, "\nGPU memory, GB of %.1f (the fullest stage of each phase)\n%-18s", p->cluster.gpu.memory / GB,
               "");
    for (int k = 0; k < MEM_COUNT; k++)
        if (column_used(p, k)) buf_printf(out, " %11s", MEM_NAMES[k]);
    buf_puts(out, "    total\n");
    for (int ph = 0; ph < PH_COUNT; ph++) {
        if (!phase_has_memory(ph)) continue;
        buf_printf(out, "%-8s stage %3d", PHASE_NAMES[ph], p->worst[ph]);
        memory_row(p, p->worst[ph], ph, out);
    }
    if (every && p->stages > 1) {
        buf_puts(out, "update, every stage\n");
        for (int i = 0; i < p->stages; i++) {
            buf_printf(out, "%3d: %3d layers %5s", i, p->stage[i].layers, "");
            memory_row(p, i, PH_UPDATE, out);
        }
    }
    buf_printf(out, "cache: %.0f tokens an engine (%.0f B a token and GPU)\n", p->kv_tokens, p->kv_per_token);
    buf_puts(out, "host memory, GB a node:");
    for (int k = 0; k < HOST_COUNT; k++)
        if (p->host[k] > 0) buf_printf(out, " %s %.1f,", HOST_NAMES[k], p->host[k] / GB);
    buf_printf(out, " fullest %.0f, typical %.0f, mean %.0f of %.0f\n", p->host_worst / GB, p->host_typical / GB,
               p->host_mean / GB, p->cluster.gpu.host_memory / GB);
}

static void phase_row(const char *name, const PhasePlan *ph, double step, Buf *out) {
    buf_printf(out, "%-14s %10.3f  %5.1f %%  %-16s", name, ph->seconds, 100 * ph->seconds / step,
               BOUND_NAMES[ph->bound]);
    const char *sep = " (";
    for (int b = 0; b < BOUND_COUNT; b++)
        if (ph->part[b] > 0.02 * ph->seconds) {
            buf_printf(out, "%s%s %.3g", sep, BOUND_NAMES[b], ph->part[b]);
            sep = ", ";
        }
    buf_puts(out, *sep == ',' ? ")\n" : "\n");
}

static void time_table(const Plan *p, Buf *out) {
    buf_puts(out, "\nphase             seconds   share  bound by         (seconds by cause)\n");
    for (int i = 0; i < PH_COUNT; i++)
        if (p->phase[i].seconds > 0) phase_row(PHASE_NAMES[i], &p->phase[i], p->step, out);
    buf_printf(out, "%-14s %10.3f   %.1f tokens/s/GPU\n", "step", p->step, p->tokens_per_gpu);
    buf_printf(out,
               "MFU of update and optimizer: %.3f as verl counts, %.3f as it counted before 2026, %.3f exact, %.3f "
               "with recomputation\n",
               p->mfu, p->mfu_old, p->mfu_exact, p->mfu_hardware);
}

static void explanation(const Plan *p, Buf *out) {
    const StagePlan *a = &p->stage[0], *z = &p->stage[p->stages - 1];
    buf_puts(out, "\nwhy\n");
    buf_printf(out,
               "  stages: slowest / mean %.3f; first %.2f, middle %.2f, last %.2f layers' worth of products (the head "
               "counts on the last)\n",
               p->imbalance_stage, a->load, p->stage[p->stages / 2].load, z->load);
    buf_printf(out, "  pipeline: %d stages, %.0f micro-batches: bubble %.1f %% of the slowest stage's work\n",
               p->stages, p->micro_batches, 100 * p->bubble);
    buf_printf(out, "  data: slowest / mean replica %.3f (%s)\n", p->imbalance_data,
               p->profile->balanced ? "each mini-batch is balanced"
                                    : "mini-batches are cut from a balanced step, not balanced themselves");
    buf_printf(out, "  decoding: mean batch %.1f an engine, %.2f ms a step, longest answer %.0f tokens\n",
               p->decode_batch, 1e3 * p->decode_step, p->longest);
    buf_printf(out, "  sync: %.1f GB received by each GPU\n", p->sync_bytes / GB);
    buf_printf(out, "  profile %s: %s\n", p->profile->name, p->profile->about);
}

void report_text(const Plan *p, bool explain, Buf *out) {
    heading(p, out);
    memory_table(p, explain, out);
    time_table(p, out);
    if (explain) explanation(p, out);
    if (p->fits) {
        buf_puts(out, "\nfits\n");
        return;
    }
    buf_printf(out, "\nDOES NOT FIT: %s\n", p->verdict);
    Buf change = { 0 };
    if (plan_remedy(p, &change)) buf_printf(out, "smallest change that helps: %s\n", change.data);
    else buf_puts(out, "no single change helps: try --search, or --min-gpus\n");
    buf_free(&change);
}
