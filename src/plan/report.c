/* report.c - the tables that `hone plan` prints.  GB are 1e9 bytes throughout; a model small enough is told in MB. */
#include "cut/flops.h"
#include "plan/report.h"
#include "plan/saving.h"

#include <math.h>
#include <string.h>

static const double GB = 1e9;

ReportUnit report_unit(const Plan *p) {
    double most = 0;
    for (int ph = 0; ph < PH_COUNT; ph++)
        if (phase_has_memory(ph)) /* without the cache, which takes whatever is left */
            most = fmax(most, p->stage[p->worst[ph]].total[ph] - p->stage[p->worst[ph]].bytes[ph][MEM_KV]);
    return most < 1e9 ? (ReportUnit){ "MB", 1e6 } : (ReportUnit){ "GB", GB };
}

void report_count(double n, Buf *out) {
    if (n >= 1e9) buf_printf(out, "%.2f B", n / 1e9);
    else if (n >= 1e6) buf_printf(out, "%.1f M", n / 1e6);
    else buf_printf(out, "%.0f k", n / 1e3);
}

static void put_plural(double n, const char *one, const char *many, Buf *out) {
    buf_printf(out, "%.0f %s", n, n == 1 ? one : many);
}

void report_layout(const Plan *p, Buf *out) {
    const Layout *l = &p->layout;
    buf_printf(out, "tp %d, pp %d, ep %d", l->g.tp, l->g.pp, l->g.ep);
    if (l->g.etp > 1) buf_printf(out, ", etp %d", l->g.etp);
    if (l->g.cp > 1) buf_printf(out, ", cp %d", l->g.cp);
    if (l->g.vpp > 1) buf_printf(out, ", vpp %d", l->g.vpp);
    buf_puts(out, ", layers ");
    grid_split_text(&l->g, out);
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

void report_refused(const Cluster *c, const char *before, Buf *out) {
    Buf why = { 0 };
    if (machine_refused(&c->gpu, &why)) buf_printf(out, "%s%s\n", before, why.data);
    buf_free(&why);
}

static void heading(const Plan *p, Buf *out) {
    const ModelSum *s = p->sum;
    const Cluster *c = &p->cluster;
    const Workload *w = &p->work;
    buf_printf(out, "%s: ", s->model->arch->name);
    report_count(s->total, out);
    buf_puts(out, " parameters, ");
    report_count(s->active, out);
    buf_puts(out, " active, ");
    put_plural(s->layers, "layer", "layers", out);
    if (c->gpu.is_cpu)
        buf_printf(out, "\nthis machine: %.0f cores, %.0f GFLOP/s float32, %.1f GB/s, %.1f GB", c->gpu.sms,
                   c->gpu.flops / 1e9, c->gpu.bandwidth / 1e9, c->gpu.memory / 1e9);
    else {
        buf_printf(out, "\n%d x %s (%.0f GB, %.0f TFLOP/s) in ", c->gpus, c->gpu.name, c->gpu.memory / GB,
                   c->gpu.flops / 1e12);
        put_plural(cluster_nodes(c), "node", "nodes", out);
        buf_printf(out, " with %.0f GB", c->gpu.host_memory / GB);
    }
    buf_printf(out, "; profile %s\n", p->profile->name);
    report_refused(c, "hone does not run there: ", out);
    buf_printf(out,
               "step: %.0f prompts x %.0f answers, mini-batch %.0f prompts; prompts %.0f (at most %.0f) tokens, "
               "answers %.0f (at most %.0f, spread %.2g)%s\n",
               w->prompts, w->answers, work_mini(w), w->prompt_mean, w->prompt_max, w->mean, w->max, w->spread,
               w->kl ? ", KL" : "");
    if (w->images.n > 0) {
        const Dims *d = &s->model->d;
        double flops = flops_tower(d, w->images.h, w->images.w);
        buf_printf(
            out,
            "pictures: %g a question, %lld x %lld pixels, %d tokens each (in the prompts above); the tower: %.3g GFLOP "
            "forward each, %.3g a token\n",
            w->images.n, (long long)(w->images.w * d->vis.patch), (long long)(w->images.h * d->vis.patch),
            w->images.tokens, flops / 1e9, flops / 1e9 / w->images.tokens);
    }
    report_layout(p, out);
    buf_printf(out, "\ndp %d, expert dp %d; ", p->layout.g.dp, grid_edp(&p->layout.g));
    put_plural(p->mini_batches, "mini-batch", "mini-batches", out);
    buf_puts(out, " of ");
    put_plural(p->micro_batches, "micro-batch", "micro-batches", out);
    buf_puts(out, "; ");
    put_plural(p->engines, "engine", "engines", out);
    buf_puts(out, "\n");
}

static bool column_used(const Plan *p, int kind) {
    for (int ph = 0; ph < PH_COUNT; ph++)
        for (int i = 0; i < p->stages; i++)
            if (p->stage[i].bytes[ph][kind] > 0) return true;
    return false;
}

static void memory_row(const Plan *p, int stage, int ph, Buf *out) {
    double unit = report_unit(p).bytes;
    for (int k = 0; k < MEM_COUNT; k++)
        if (column_used(p, k)) buf_printf(out, " %11.2f", p->stage[stage].bytes[ph][k] / unit);
    buf_printf(out, " %8.1f\n", p->stage[stage].total[ph] / unit);
}

static void memory_table(const Plan *p, bool every, Buf *out) {
    ReportUnit u = report_unit(p);
    buf_printf(out, "\n%s, %s of %.1f (the fullest stage of each phase)\n%-18s",
               p->cluster.gpu.is_cpu ? "memory" : "GPU memory", u.name, p->cluster.gpu.memory / u.bytes, "");
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
    buf_printf(out, "%-14s %10.3f   %.1f tokens/s%s\n", "step", p->step, p->tokens_per_gpu,
               p->cluster.gpu.is_cpu ? "" : "/GPU");
    buf_printf(out,
               "MFU of update and optimizer: %.3f as verl counts, %.3f as it counted before 2026, %.3f exact, %.3f "
               "with recomputation\n",
               p->mfu, p->mfu_old, p->mfu_exact, p->mfu_hardware);
}

static void explanation(const Plan *p, Buf *out) {
    const StagePlan *a = &p->stage[0], *z = &p->stage[p->stages - 1];
    buf_puts(out, "\nwhy\n");
    if (p->stages > 1)
        buf_printf(
            out,
            "  stages: slowest / mean %.3f; first %.2f, middle %.2f, last %.2f layers' worth of products (the head "
            "counts on the last)\n",
            p->imbalance_stage, a->load, p->stage[p->stages / 2].load, z->load);
    if (p->stages > 1)
        buf_printf(out, "  pipeline: %d stages, %.0f micro-batches: bubble %.1f %% of the slowest stage's work\n",
                   p->stages, p->micro_batches, 100 * p->bubble);
    buf_printf(out, "  data: slowest / mean replica %.3f (%s)\n", p->imbalance_data,
               p->profile->balanced ? "each mini-batch is balanced"
                                    : "mini-batches are cut from a balanced step, not balanced themselves");
    buf_printf(out, "  decoding: mean batch %.1f an engine, %.2f ms a step, longest answer %.0f tokens\n",
               p->decode_batch, 1e3 * p->decode_step, p->lengths.longest);
    buf_printf(out, "  sync: %.1f GB received by each GPU\n", p->sync_bytes / GB);
    buf_printf(out, "  profile %s: %s\n", p->profile->name, p->profile->about);
}

void report_text(const Plan *p, const char *memory, bool explain, Buf *out) {
    heading(p, out);
    if (memory) buf_puts(out, memory);
    else memory_table(p, explain, out);
    time_table(p, out);
    report_saving(p, out);
    if (explain) explanation(p, out);
}

static void put_fits(const Plan *p, Buf *out) {
    ReportUnit u = report_unit(p);
    int full = PH_ROLLOUT;
    for (int ph = 0; ph < PH_COUNT; ph++)
        if (phase_has_memory(ph) && p->stage[p->worst[ph]].total[ph] > p->stage[p->worst[full]].total[full]) full = ph;
    buf_puts(out, "\nfits: ");
    if (p->arenas > 0) buf_printf(out, "%.1f of %.0f MB, ", p->arenas / 1e6, p->cluster.gpu.memory / 1e6);
    else
        buf_printf(out, "%.1f of %.1f %s at most (%s), ", p->stage[p->worst[full]].total[full] / u.bytes,
                   p->cluster.gpu.memory / u.bytes, u.name, PHASE_NAMES[full]);
    if (!p->cluster.gpu.is_cpu)
        buf_printf(out, "%.0f of %.0f GB of a host, ", p->host_worst / GB, p->cluster.gpu.host_memory / GB);
    buf_printf(out, "%.*f s a step\n", p->step < 10 ? 3 : 1, p->step);
}

void report_verdict(const Plan *p, Buf *out) {
    if (p->fits) {
        put_fits(p, out);
        return;
    }
    buf_printf(out, "\nDOES NOT FIT: %s\n", p->verdict);
    if (p->arenas > 0) return; /* counted to the byte: the closed formulas behind a remedy know less */
    Buf change = { 0 };
    if (plan_remedy(p, &change)) buf_printf(out, "smallest change that helps: %s\n", change.data);
    else buf_puts(out, "no single change helps: try --search, or --min-gpus\n");
    buf_free(&change);
}
