/* recipe.c - a plan as a configuration, and settings that cannot be meant. */
#include "plan/recipe.h"
#include "cut/mixer.h"

#include "base/yaml.h"
#include "plan/report.h"
#include "plan/saving.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* Bare where YAML takes it for nothing but text, else quoted. */
static void put_text(Buf *out, const char *before, const char *text, const char *after) {
    bool bare = isalpha((unsigned char)*text) || *text == '/';
    for (const char *c = text; *c; c++) bare &= isalnum((unsigned char)*c) || strchr("._/-", *c);
    buf_puts(out, before);
    if (bare) buf_puts(out, text);
    else yaml_put_str(out, text, strlen(text));
    buf_puts(out, after);
}

static void run_lines(const Plan *p, const char *path, Buf *out) {
    int per_node = p->cluster.gpu.per_node < p->cluster.gpus ? p->cluster.gpu.per_node : p->cluster.gpus;
    buf_printf(out, "#\n# plan:   hone plan MODEL --recipe %s\n", path);
    if (p->cluster.gpus == 1) {
        buf_printf(out, "# run:    hone train %s\n", path);
        return;
    }
    if (p->cluster.gpu.is_cpu) {
        buf_printf(out, "# run:    mpirun --oversubscribe -n %d hone train %s\n", p->cluster.gpus, path);
        return;
    }
    buf_printf(out, "# mpirun: mpirun -np %d --map-by ppr:%d:node hone train %s\n", p->cluster.gpus, per_node, path);
    buf_printf(out,
               "# slurm:  sbatch --nodes=%d --ntasks-per-node=%d --gpus-per-node=%d --exclusive --wrap 'srun "
               "--mpi=pmix hone train %s'\n",
               cluster_nodes(&p->cluster), per_node, per_node, path);
}

static void comments(const Plan *p, const RecipeText *t, Buf *out) {
    double gpu = 0;
    int digits = p->step < 10 ? 3 : 1;
    for (int ph = 0; ph < PH_COUNT; ph++)
        if (phase_has_memory(ph)) gpu = fmax(gpu, p->stage[p->worst[ph]].total[ph]);
    buf_printf(out, "# %s, ", p->sum->model->arch->name);
    report_count(p->sum->total, out);
    if (p->cluster.gpu.is_cpu)
        buf_printf(out, " parameters, on this machine, %d rank%s\n# ", p->cluster.gpus, p->cluster.gpus > 1 ? "s" : "");
    else buf_printf(out, " parameters, on %d x %s\n# ", p->cluster.gpus, p->cluster.gpu.name);
    report_layout(p, out);
    buf_printf(out, "\n# predicted (profile %s): step %.*f s", p->profile->name, digits, p->step);
    for (int ph = 0, n = 0; ph < PH_COUNT; ph++)
        if (p->phase[ph].seconds > 0)
            buf_printf(out, " %s %s %.*f", n++ ? "+" : "=", PHASE_NAMES[ph], digits, p->phase[ph].seconds);
    if (p->arenas > 0) buf_printf(out, "\n# %.1f MB, %.1f tokens/s\n", p->arenas / 1e6, p->tokens_per_gpu);
    else
        buf_printf(out, "\n# %.1f GB a GPU, %.0f GB a node, MFU %.3f as verl counts, %.1f tokens/s/GPU\n", gpu / 1e9,
                   p->host_worst / 1e9, p->mfu, p->tokens_per_gpu);
    report_refused(&p->cluster, "#\n# hone does not run there: ", out);
    run_lines(p, t->path, out);
}

static const char *yes(bool x) { return x ? "true" : "false"; }

/* hone's names for what it recomputes; Megatron's selections are said to the planner alone. */
static const char *train_recompute(int drop) { return drop & DROP_ALL ? "full" : drop ? "selective" : "none"; }

/* What only the planner reads. */
static void plan_section(const Plan *p, const RecipeText *t, Buf *out) {
    const Workload *w = &p->work;
    const Layout *l = &p->layout;
    const struct {
        const char *name, *value;
    } more[] = { { "  host_memory: ", t->host_memory },
                 { "  storage: ", t->storage },
                 { "  weights: ", t->weights },
                 { "  grads: ", t->grads },
                 { "  moments: ", t->moments } };
    put_text(out, "plan:\n  cluster: ", t->cluster, "\n");
    if (t->per_node) buf_printf(out, "  gpus_per_node: %d\n", t->per_node);
    for (size_t i = 0; i < COUNT(more); i++)
        if (more[i].value) put_text(out, more[i].name, more[i].value, "\n");
    if (w->images.n > 0) {
        const Dims *d = &p->sum->model->d;
        buf_printf(out, "  images: %g\n  image_size: %lldx%lld\n", w->images.n, (long long)(w->images.w * d->vis.patch),
                   (long long)(w->images.h * d->vis.patch));
    }
    buf_printf(out, "  profile: %s\n  prompt_mean: %g\n  response_mean: %g\n  spread: %g\n", p->profile->name,
               w->prompt_mean, w->mean, w->spread);
    buf_printf(out, "  recompute: %s\n  park_weights: %s\n  park_states: %s\n  fused_head: %s\n  rollout_memory: %g\n",
               recompute_name(l->drop), yes(l->park_weights), yes(l->park_states), yes(l->fused_head), l->gen_use);
}

void recipe_write(const Plan *p, const RecipeText *t, Buf *out) {
    const Workload *w = &p->work;
    const Layout *l = &p->layout;
    comments(p, t, out);
    put_text(out, "model:\n  path: ", t->model, "\n");
    put_text(out, "data:\n  train_files: [", t->data, "]\n");
    buf_printf(out, "  max_prompt_length: %.0f\n  max_response_length: %.0f\n", w->prompt_max, w->max);
    buf_printf(out, "  train_batch_size: %.0f\n  filter_overlong_prompts: true\n", w->prompts);
    enum { PAGES = 64 }; /* of a rank's cache: what the plan has room for, at most what all answers take */
    double tokens = fmin(p->kv_pool / fmax(1, p->kv_per_token), w->prompts * w->answers * (w->prompt_max + w->max));
    tokens = floor(tokens / PAGES) * PAGES;
    buf_printf(out, "rollout:\n  n: %.0f\n", w->answers);
    if (tokens >= PAGES) buf_printf(out, "  kv_tokens: %.0f\n", tokens);
    buf_printf(out, "  grid:\n    tp: %d\n    dp: %d\n    ep: %d\n", l->gen_tp, layout_engine(l) / l->gen_tp,
               l->gen_ep);
    buf_puts(out, "algo:\n  advantage: grpo\n");
    buf_printf(out,
               "train:\n  lr: 1.0e-6\n  warmup_steps: 10\n  weight_decay: 0.1\n  mini_batch_size: %.0f\n  epochs: %d\n "
               " micro_tokens: %.0f\n",
               work_mini(w), work_epochs(w), l->micro_tokens);
    buf_printf(out,
               "  clip_low: 0.2\n  clip_high: 0.28    # DAPO's: what is unlikely may become likely faster\n"
               "  clip_c: 10.0       # a bad answer that became this much likelier counts no more than so\n"
               "  use_kl_loss: %s\n  recompute: %s\n  offload_fraction: %g\n",
               yes(w->kl), train_recompute(l->drop), l->offload);
    if (l->park_weights) buf_puts(out, "  park_weights: true\n");
    if (l->park_states) buf_puts(out, "  park_states: true\n");
    int per_node = p->cluster.gpu.per_node < p->cluster.gpus ? p->cluster.gpu.per_node : p->cluster.gpus;
    buf_printf(out, "grid:\n  tp: %d\n  pp: %d\n  vpp: %d\n  ep: %d\n", l->g.tp, l->g.pp, l->g.vpp, l->g.ep);
    if (l->g.etp > 1) buf_printf(out, "  etp: %d\n", l->g.etp);
    buf_printf(out, "  cp: %d\n  dp: %d\n  split: \"", l->g.cp, l->g.dp);
    grid_split_text(&l->g, out);
    buf_printf(out, "\"\n  nodes: %d\n  gpus_per_node: %d\n", cluster_nodes(&p->cluster), per_node);
    if (p->cluster.gpu.is_cpu) buf_puts(out, "trainer:\n  device: cpu\n");
    else if (p->saves.whole)
        buf_puts(out, "trainer:\n  save_buffer: 0     # a copy of everything: a save goes on through the update\n");
    plan_section(p, t, out);
}

int plan_faults(const Plan *p, Buf *out) {
    const Workload *w = &p->work;
    const Layout *l = &p->layout;
    int n = saving_faults(p, out);
    if (l->g.pp > 1 && p->micro_batches < l->g.pp) {
        double enough = ceil(work_mini(w) * (4.0 * l->g.pp) / p->micro_batches);
        buf_printf(out,
                   "mistake: %.0f micro-batches for %d stages: a stage idles %.0f %% of the update; a mini-batch of "
                   "%.0f prompts, or fewer stages, would do\n",
                   p->micro_batches, l->g.pp, 100 * (l->g.pp - 1) / (p->micro_batches + l->g.pp - 1), enough);
        n++;
    }
    if (fmod(w->max, 1204) == 0) {
        buf_printf(out, "mistake: answers of at most %.0f = 1204 x %.0f tokens; 1024 x %.0f = %.0f was meant\n", w->max,
                   w->max / 1204, w->max / 1204, w->max / 1204 * 1024);
        n++;
    }
    if (p->imbalance_stage > 1.25 && l->g.pp > 1) {
        int slow = 0;
        for (int i = 1; i < p->stages; i++)
            if (p->stage[i].t_forward + p->stage[i].t_backward > p->stage[slow].t_forward + p->stage[slow].t_backward)
                slow = i;
        buf_printf(out, "mistake: the slowest stage takes %.2f times the mean: ", p->imbalance_stage);
        if (slow == l->g.pp - 1) buf_puts(out, "the last one runs the head besides its ");
        else buf_printf(out, "stage %d has ", slow);
        buf_printf(out, "%d layer%s; --search finds a better split\n", p->stage[slow].layers,
                   p->stage[slow].layers == 1 ? "" : "s");
        n++;
    }
    double answers = fmin(w->prompts * w->answers / p->engines, p->profile->running),
           alive = answers * (w->prompt_mean + w->mean / 2);
    if (p->fits && p->kv_tokens < 0.6 * alive) {
        bool latent = mixer_cost_of(&p->sum->model->d, 0)->repeated && l->gen_tp > 1 && l->gen_ep <= l->gen_tp;
        buf_printf(out,
                   "mistake: the cache holds %.0f tokens an engine, its %.0f answers about %.0f: they queue and are "
                   "preempted%s\n",
                   p->kv_tokens, answers, alive, latent ? "; tp repeats MLA's latent on every rank, ep does not" : "");
        n++;
    }
    return n;
}
