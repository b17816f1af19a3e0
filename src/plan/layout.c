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

void layout_even(Layout *l, int layers) {
    for (int i = 0; i < l->pp; i++) l->split[i] = layers / l->pp + (i < layers % l->pp);
}

/* Megatron's num_layers_in_last_pipeline_stage: the other stages share the rest equally. */
static bool split_last(Layout *l, int last, int layers, Err *err) {
    int rest = layers - last, others = l->pp - 1;
    if (last < 1 || last > layers || (others == 0 && rest))
        return err_set(err, "last=%d: %d stages cannot hold %d layers so", last, l->pp, layers);
    if (others && rest % others)
        return err_set(err, "last=%d leaves %d - %d = %d layers for %d stages, which does not divide; last=%d would",
                       last, layers, last, rest, others, layers - rest / others * others);
    for (int i = 0; i < others; i++) l->split[i] = rest / others;
    l->split[others] = last;
    return true;
}

bool layout_split(Layout *l, const char *text, int layers, Err *err) {
    if (!strcmp(text, "even")) return layout_even(l, layers), true;
    if (!strncmp(text, "last=", 5)) return split_last(l, atoi(text + 5), layers, err);
    int n = 0, sum = 0;
    const char *s = text;
    while (*s) {
        char *end;
        long k = strtol(s, &end, 10), times = 1;
        if (end == s || k < 1 || k > MAX_LAYERS) goto bad;
        s = end;
        if (*s == 'x' || *s == '*') {
            times = strtol(s + 1, &end, 10);
            if (end == s + 1 || times < 1) goto bad;
            s = end;
        }
        for (; times > 0; times--) {
            if (n == MAX_STAGES) return err_set(err, "split '%s' has more than %d stages", text, MAX_STAGES);
            l->split[n++] = (int)k;
            sum += (int)k;
        }
        if (*s == ',') s++;
        else if (*s) goto bad;
    }
    if (n != l->pp) return err_set(err, "split '%s' has %d stages, pp is %d", text, n, l->pp);
    if (sum != layers) return err_set(err, "split '%s' holds %d layers, the model has %d", text, sum, layers);
    return true;
bad:
    return err_set(err, "split '%s' is not understood: write 6,5x11 or even or last=6", text);
}

void layout_split_text(const Layout *l, Buf *out) {
    for (int i = 0, j; i < l->pp; i = j) {
        for (j = i; j < l->pp && l->split[j] == l->split[i]; j++) {}
        buf_printf(out, j - i > 1 ? "%s%dx%d" : "%s%d", i ? "," : "", l->split[i], j - i);
    }
}

static bool positive(const Layout *l, Err *err) {
    const struct {
        const char *name;
        int n;
    } all[] = { { "tp", l->tp },
                { "pp", l->pp },
                { "ep", l->ep },
                { "cp", l->cp },
                { "vpp", l->vpp },
                { "rollout tp", l->gen_tp },
                { "rollout ep", l->gen_ep } };
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i].n < 1 || all[i].n > 1 << 20)
            return err_set(err, "%s must be at least 1, not %d", all[i].name, all[i].n);
    if (l->pp > MAX_STAGES) return err_set(err, "pp %d: at most %d stages are supported", l->pp, MAX_STAGES);
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
    TRY(positive(l, err));
    TRY(heads_divide(d, "tp", l->tp, err));
    TRY(heads_divide(d, "rollout tp", l->gen_tp, err));
    if (!d->experts && (l->ep > 1 || l->gen_ep > 1))
        return err_set(err, "ep %d: %s has no experts", l->ep > 1 ? l->ep : l->gen_ep, s->model->arch->name);
    if (!d->experts && layout_etp(l) > 1)
        return err_set(err, "etp %d: %s has no experts", l->etp, s->model->arch->name);
    if (d->experts && d->expert_ffn % layout_etp(l))
        return err_set(err, "etp %d does not divide the %lld columns of an expert", l->etp, (long long)d->expert_ffn);
    if (d->experts && d->experts % l->ep)
        return err_set(err, "ep %d does not divide the %lld experts", l->ep, (long long)d->experts);
    if (d->experts && d->experts % l->gen_ep)
        return err_set(err, "rollout ep %d does not divide the %lld experts", l->gen_ep, (long long)d->experts);
    int dense = l->tp * l->pp * l->cp, expert = layout_expert_cut(l) * l->pp, engine = layout_engine(l);
    char what[96];
    snprintf(what, sizeof what, "tp %d x pp %d x cp %d", l->tp, l->pp, l->cp);
    TRY(divides(c->gpus, dense, what, err));
    if (layout_etp(l) > 1) snprintf(what, sizeof what, "ep %d x etp %d x pp %d", l->ep, l->etp, l->pp);
    else snprintf(what, sizeof what, "ep %d x pp %d", l->ep, l->pp);
    TRY(divides(c->gpus, expert, what, err));
    if (engine % (l->gen_tp < l->gen_ep ? l->gen_tp : l->gen_ep))
        return err_set(err, "rollout tp %d and ep %d: one must divide the other", l->gen_tp, l->gen_ep);
    if (c->gpus % engine) return err_set(err, "an engine of %d GPUs does not divide the %d GPUs", engine, c->gpus);
    int sum = 0;
    for (int i = 0; i < l->pp; i++) {
        if (l->split[i] < 1) return err_set(err, "stage %d has no layer", i);
        if (l->split[i] < l->vpp)
            return err_set(err, "stage %d has %d layers, too few for %d chunks (vpp)", i, l->split[i], l->vpp);
        sum += l->split[i];
    }
    if (sum != s->layers) return err_set(err, "the split holds %d layers, the model has %d", sum, s->layers);
    double longest = w->prompt_max + w->max;
    if (d->context && longest > (double)d->context)
        return err_set(
            err, "prompt %.0f + answer %.0f = %.0f tokens exceed the model's context of %lld (max_position_embeddings)",
            w->prompt_max, w->max, longest, (long long)d->context);
    if (longest > l->micro_tokens * l->cp && l->micro_tokens > 0 && w->max > 0)
        return err_set(err, "a micro-batch of %.0f tokens cannot hold the longest sequence, %.0f + %.0f = %.0f tokens",
                       l->micro_tokens * l->cp, w->prompt_max, w->max, longest);
    l->dp = c->gpus / dense, l->edp = c->gpus / expert;
    double sequences = work_mini(w) * w->answers;
    if (w->prompts > 0 && sequences < l->dp)
        return err_set(err, "a mini-batch of %.0f sequences cannot be spread over dp %d", sequences, l->dp);
    return true;
}
