/* layout.c - what a layout means and which ones cannot be: every refusal says the numbers that do not go together. */
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int drop;
} RECOMPUTE[] = {
    { "none", 0 },
    { "light", DROP_NORM | DROP_ACT },
    { "selective", DROP_NORM | DROP_ACT | DROP_ROWS | DROP_MLA_UP },
    { "moe", DROP_NORM | DROP_MOE },
    { "full", DROP_ALL },
};

bool recompute_parse(int *drop, const char *text, Err *err) {
    for (size_t i = 0; i < COUNT(RECOMPUTE); i++)
        if (!strcmp(text, RECOMPUTE[i].name)) {
            *drop = RECOMPUTE[i].drop;
            return true;
        }
    return err_set(err, "recompute must be none, light, selective, moe or full, not '%s'", text);
}

const int *recompute_ways(const Profile *f) {
    enum { SELECTIVE = DROP_NORM | DROP_ACT | DROP_ROWS | DROP_MLA_UP };
    static const int OURS[] = { 0, SELECTIVE, DROP_ALL, -1 },
                     MEGATRON[] = { 0, DROP_NORM | DROP_ACT, DROP_NORM | DROP_MOE, DROP_ALL, -1 };
    return f->one_copy ? OURS : MEGATRON;
}

const char *recompute_name(int drop) {
    for (size_t i = 0; i < COUNT(RECOMPUTE); i++)
        if (RECOMPUTE[i].drop == drop) return RECOMPUTE[i].name;
    return "custom";
}

static bool positive(const Layout *l, Err *err) {
    const struct {
        const char *name;
        int n;
    } all[] = { { "tp", l->g.tp },   { "pp", l->g.pp },           { "ep", l->g.ep },          { "cp", l->g.cp },
                { "vpp", l->g.vpp }, { "rollout tp", l->gen_tp }, { "rollout ep", l->gen_ep } };
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i].n < 1 || all[i].n > 1 << 20)
            return err_set(err, "%s must be at least 1, not %d", all[i].name, all[i].n);
    if (l->g.pp > MAX_STAGES) return err_set(err, "pp %d: at most %d stages are supported", l->g.pp, MAX_STAGES);
    if (!(l->offload >= 0 && l->offload <= 1))
        return err_set(err, "the offloaded share must lie between 0 and 1, not %g", l->offload);
    if (!(l->gen_use > 0 && l->gen_use <= 1))
        return err_set(err, "the engine's share of memory must lie in (0, 1], not %g", l->gen_use);
    if (!(l->micro_tokens >= 1)) return err_set(err, "micro-batches must hold at least one token");
    return true;
}

static bool heads_divide(const Dims *d, const char *what, int tp, Err *err) {
    if (d->heads % tp)
        return err_set(err, "%s %d does not divide the %lld attention heads", what, tp, (long long)d->heads);
    if (d->kv_heads && d->kv_heads % tp && tp % d->kv_heads)
        return err_set(err, "%s %d neither divides nor is a multiple of the %lld key-value heads", what, tp,
                       (long long)d->kv_heads);
    return true;
}

static bool divides(int gpus, int cut, const char *what, Err *err) {
    if (gpus % cut == 0) return true;
    if (gpus < cut) return err_set(err, "%s = %d does not divide the %d GPUs; %d GPUs would do", what, cut, gpus, cut);
    return err_set(err, "%s = %d does not divide the %d GPUs; %d or %d GPUs would do", what, cut, gpus,
                   gpus / cut * cut, (gpus / cut + 1) * cut);
}

bool layout_check(Layout *l, const ModelSum *s, const Cluster *c, const Workload *w, Err *err) {
    const Dims *d = &s->model->d;
    if (!l->g.etp) l->g.etp = 1;
    TRY(positive(l, err));
    TRY(heads_divide(d, "tp", l->g.tp, err));
    TRY(heads_divide(d, "rollout tp", l->gen_tp, err));
    if (!d->experts && (l->g.ep > 1 || l->gen_ep > 1))
        return err_set(err, "ep %d: %s has no experts", l->g.ep > 1 ? l->g.ep : l->gen_ep, s->model->arch->name);
    if (!d->experts && l->g.etp > 1) return err_set(err, "etp %d: %s has no experts", l->g.etp, s->model->arch->name);
    if (d->experts && d->expert_ffn % l->g.etp)
        return err_set(err, "etp %d does not divide the %lld columns of an expert", l->g.etp, (long long)d->expert_ffn);
    if (d->experts && d->experts % l->g.ep)
        return err_set(err, "ep %d does not divide the %lld experts", l->g.ep, (long long)d->experts);
    if (d->experts && d->experts % l->gen_ep)
        return err_set(err, "rollout ep %d does not divide the %lld experts", l->gen_ep, (long long)d->experts);
    int dense = l->g.tp * l->g.pp * l->g.cp, expert = layout_expert_cut(l) * l->g.pp, engine = layout_engine(l);
    char what[96];
    snprintf(what, sizeof what, "tp %d x pp %d x cp %d", l->g.tp, l->g.pp, l->g.cp);
    TRY(divides(c->gpus, dense, what, err));
    if (l->g.etp > 1) snprintf(what, sizeof what, "ep %d x etp %d x pp %d", l->g.ep, l->g.etp, l->g.pp);
    else snprintf(what, sizeof what, "ep %d x pp %d", l->g.ep, l->g.pp);
    TRY(divides(c->gpus, expert, what, err));
    if (engine % (l->gen_tp < l->gen_ep ? l->gen_tp : l->gen_ep))
        return err_set(err, "rollout tp %d and ep %d: one must divide the other", l->gen_tp, l->gen_ep);
    if (c->gpus % engine) return err_set(err, "an engine of %d GPUs does not divide the %d GPUs", engine, c->gpus);
    int sum = 0;
    for (int i = 0; i < l->g.pp; i++) {
        int layers = grid_stage_layers(&l->g, i);
        if (layers < 1) return err_set(err, "stage %d has no layer", i);
        if (layers < l->g.vpp)
            return err_set(err, "stage %d has %d layers, too few for %d chunks (vpp)", i, layers, l->g.vpp);
        sum += layers;
    }
    if (sum != s->layers) return err_set(err, "the split holds %d layers, the model has %d", sum, s->layers);
    double longest = w->prompt_max + w->max;
    if (d->context && longest > (double)d->context)
        return err_set(
            err, "prompt %.0f + answer %.0f = %.0f tokens exceed the model's context of %lld (max_position_embeddings)",
            w->prompt_max, w->max, longest, (long long)d->context);
    if (longest > l->micro_tokens * l->g.cp && l->micro_tokens > 0 && w->max > 0)
        return err_set(err, "a micro-batch of %.0f tokens cannot hold the longest sequence, %.0f + %.0f = %.0f tokens",
                       l->micro_tokens * l->g.cp, w->prompt_max, w->max, longest);
    l->g.dp = c->gpus / dense;
    double sequences = work_mini(w) * w->answers;
    if (w->prompts > 0 && sequences < l->g.dp)
        return err_set(err, "a mini-batch of %.0f sequences cannot be spread over dp %d", sequences, l->g.dp);
    return true;
}
