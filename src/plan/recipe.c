/* recipe.c - see recipe.h. */
#include "plan/recipe.h"

#include "plan/report.h"

#include <math.h>
#include <string.h>

static void comments(const Plan *p, const RecipeText *t, Buf *out) {
    int per_node = p->cluster.gpu.per_node < p->cluster.gpus ? p->cluster.gpu.per_node : p->cluster.gpus,
        nodes = cluster_nodes(&p->cluster);
    double gpu = 0;
    for (int ph = 0; ph < PH_COUNT; ph++)
        if (phase_has_memory(ph)) gpu = fmax(gpu, p->stage[p->worst[ph]].total[ph]);
    buf_printf(out, "# %s, %.1f B parameters, on %d x %s\n# ", p->sum->model->arch->name, p->sum->total / 1e9,
               p->cluster.gpus, p->cluster.gpu.name);
    report_layout(p, out);
    buf_printf(out,
               "\n# predicted (profile %s): step %.1f s = rollout %.1f + sync %.1f + reference %.1f + update %.1f + "
               "optimizer %.1f + other %.1f\n",
               p->profile->name, p->step, p->phase[PH_ROLLOUT].seconds, p->phase[PH_SYNC].seconds,
               p->phase[PH_OLD].seconds + p->phase[PH_REF].seconds, p->phase[PH_UPDATE].seconds,
               p->phase[PH_OPTIMIZER].seconds, p->phase[PH_MISC].seconds);
    buf_printf(out, "# %.1f GB a GPU, %.0f GB a node, MFU %.3f as verl counts, %.1f tokens/s/GPU\n", gpu / 1e9,
               p->host_worst / 1e9, p->mfu, p->tokens_per_gpu);
    if (t->note) buf_puts(out, t->note);
    buf_printf(out, "#\n# plan:   hone plan MODEL --recipe %s\n", t->path);
    buf_printf(out, "# mpirun: mpirun -np %d --map-by ppr:%d:node hone train %s\n", p->cluster.gpus, per_node, t->path);
    buf_printf(
        out,
        "# slurm:  sbatch --nodes=%d --ntasks-per-node=%d --gpus-per-node=%d --exclusive --wrap 'srun hone train %s'\n",
        nodes, per_node, per_node, t->path);
}

static const char *yes(bool x) { return x ? "true" : "false"; }

/* hone's names for what it recomputes; Megatron's selections are said to the planner alone. */
static const char *train_recompute(int drop) { return drop & DROP_ALL ? "full" : drop ? "selective" : "none"; }

void recipe_write(const Plan *p, const RecipeText *t, Buf *out) {
    const Workload *w = &p->work;
    const Layout *l = &p->layout;
    comments(p, t, out);
    buf_printf(
        out, "model:\n  path: %s\ndata:\n  train_files: [%s]\n  max_prompt_length: %.0f\n  max_response_length: %.0f\n",
        t->model, t->data, w->prompt_max, w->max);
    buf_printf(out, "  train_batch_size: %.0f\n  filter_overlong_prompts: true\n", w->prompts);
    int engine = l->gen_ep > l->gen_tp ? l->gen_ep : l->gen_tp;
    buf_printf(out, "rollout:\n  n: %.0f\n  grid:\n    tp: %d\n    dp: %d\n    ep: %d\n", w->answers, l->gen_tp,
               engine / l->gen_tp, l->gen_ep);
    buf_puts(out, "algo:\n  advantage: grpo\n");
    buf_printf(out,
               "train:\n  lr: 1.0e-6\n  warmup_steps: 10\n  weight_decay: 0.1\n  mini_batch_size: %.0f\n  epochs: %d\n "
               " micro_tokens: %.0f\n",
               w->mini > 0 ? w->mini : w->prompts, w->epochs > 0 ? w->epochs : 1, l->micro_tokens);
    buf_printf(out,
               "  clip_low: 0.2\n  clip_high: 0.28\n  clip_c: 10.0\n  use_kl_loss: %s\n  recompute: %s\n  "
               "offload_fraction: %g\n",
               yes(w->kl), train_recompute(l->drop), l->offload);
    int per_node = p->cluster.gpu.per_node < p->cluster.gpus ? p->cluster.gpu.per_node : p->cluster.gpus;
    buf_printf(out, "grid:\n  tp: %d\n  pp: %d\n  vpp: %d\n  ep: %d\n  cp: %d\n  dp: %d\n  split: \"", l->tp, l->pp,
               l->vpp, l->ep, l->cp, l->dp);
    layout_split_text(l, out);
    buf_printf(out, "\"\n  nodes: %d\n  gpus_per_node: %d\n", cluster_nodes(&p->cluster), per_node);
    buf_printf(out, "plan:\n  cluster: %s%s%d\n  profile: %s\n  prompt_mean: %g\n  response_mean: %g\n  spread: %g\n",
               p->cluster.gpu.name, "x", p->cluster.gpus, p->profile->name, w->prompt_mean, w->mean, w->spread);
    buf_printf(out, "  recompute: %s\n  park_weights: %s\n  park_states: %s\n  fused_head: %s\n  rollout_memory: %g\n",
               recompute_name(l->drop), yes(l->park_weights), yes(l->park_states), yes(l->fused_head), l->gen_use);
}

int plan_faults(const Plan *p, Buf *out) {
    const Workload *w = &p->work;
    const Layout *l = &p->layout;
    int n = 0;
    if (l->pp > 1 && p->micro_batches < l->pp) {
        double mini = w->mini > 0 ? w->mini : w->prompts, enough = ceil(mini * (4.0 * l->pp) / p->micro_batches);
        buf_printf(out,
                   "mistake: %.0f micro-batches for %d stages: a stage idles %.0f %% of the update; a mini-batch of "
                   "%.0f prompts, or fewer stages, would do\n",
                   p->micro_batches, l->pp, 100 * (l->pp - 1) / (p->micro_batches + l->pp - 1), enough);
        n++;
    }
    if (fmod(w->max, 1204) == 0) {
        buf_printf(out, "mistake: answers of at most %.0f = 1204 x %.0f tokens; 1024 x %.0f = %.0f was meant\n", w->max,
                   w->max / 1204, w->max / 1204, w->max / 1204 * 1024);
        n++;
    }
    if (p->imbalance_stage > 1.25 && l->pp > 1) {
        buf_printf(out,
                   "mistake: the slowest stage takes %.2f times the mean: the last one runs the head besides its %d "
                   "layers; --search finds a better split\n",
                   p->imbalance_stage, l->split[l->pp - 1]);
        n++;
    }
    double answers = fmin(w->prompts * w->answers / p->engines, p->profile->running),
           alive = answers * (w->prompt_mean + w->mean / 2);
    if (p->fits && p->kv_tokens < 0.6 * alive) {
        bool latent = p->sum->model->arch->attn == ATTN_MLA && l->gen_tp > 1 && l->gen_ep <= l->gen_tp;
        buf_printf(out,
                   "mistake: the cache holds %.0f tokens an engine, its %.0f answers about %.0f: they queue and are "
                   "preempted%s\n",
                   p->kv_tokens, answers, alive, latent ? "; tp repeats MLA's latent on every rank, ep does not" : "");
        n++;
    }
    return n;
}
