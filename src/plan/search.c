/* search.c - layouts tried and ranked. */
#include "plan/search.h"
#include "par/par.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Layouts ----------------------------------------------------------------------------------------------------- */

static const double SHARES[] = { 0, 0.25, 0.5, 0.75, 1 };

/* How far the search goes.  Beyond these a layout is worth trying only by hand: tp wider than a usual node, sequences
 * short enough for one GPU cut by cp, chunks of a layer or two. */
enum { MOST_TP = 8, MOST_CP = 64, LONG_SEQUENCE = 32768, MOST_CHUNKS = 4, MOST_ENGINE_TP = 32, MOST_ENGINE_EP = 256 };
/* Of this program's engines: beyond, a step of decoding waits on the host for counts in every layer (par.h). */
static int most_engine_ep(const Plan *p) { return p->profile->one_copy ? LEAVES_MOST : MOST_ENGINE_EP; }

typedef bool Visit(void *user, Plan *p); /* a trainer's layout that fits its update; true: stop */

typedef struct {
    Plan *p;
    bool offload;
    Visit *visit;
    void *user;
    long tried;
    double nearest; /* least number of bytes by which any was short */
    char why[512];
} Walk;

/* What the formulas may be short of in a GPU's update, so that a layout that is found here is not refused when it is
 * counted: hone train --memory has had up to 1.7 % more. */
static double margin(const Plan *p) { return p->profile->one_copy && !p->cluster.gpu.is_cpu ? 0.02 : 0; }
static bool update_fits(const Plan *p) {
    return p->stage[p->worst[PH_UPDATE]].total[PH_UPDATE] <= (1 - margin(p)) * p->cluster.gpu.memory
           && p->host_worst <= p->cluster.gpu.host_memory;
}

/* Weights, gradients and states alone exceed the mean stage: then some stage is too full
 * however the layers are split. */
static bool hopeless(const Plan *p) {
    double sum = 0;
    for (int i = 0; i < p->stages; i++) {
        const double *up = p->stage[i].bytes[PH_UPDATE];
        sum += up[MEM_WEIGHTS] + up[MEM_GRADS] + up[MEM_OPTIM] + up[MEM_RUNTIME];
    }
    return sum > p->stages * p->cluster.gpu.memory;
}

/* Remembers by how little any trainer was short, and of what.  Its engine is not chosen yet,
 * so its rollout says nothing. */
static void note_short(Walk *w) {
    const Plan *p = w->p;
    const Machine *g = &p->cluster.gpu;
    double update = p->stage[p->worst[PH_UPDATE]].total[PH_UPDATE], over = update - g->memory;
    bool host = over <= 0;
    if (host) over = p->host_worst - g->host_memory;
    if (over <= 0 || over >= w->nearest) return;
    w->nearest = over;
    Buf split = { 0 };
    grid_split_text(&p->layout.g, &split);
    snprintf(
        w->why, sizeof w->why,
        "closest is tp %d, pp %d, ep %d, layers %.100s, recompute %s, offload %g: %s needs %.1f GB, of %.0f: short "
        "by %.1f GB",
        p->layout.g.tp, p->layout.g.pp, p->layout.g.ep, split.data, recompute_name(p->layout.drop), p->layout.offload,
        host ? "a node's memory" : "the update of a rank", (host ? p->host_worst : update) / 1e9,
        (host ? g->host_memory : g->memory) / 1e9, over / 1e9);
    buf_free(&split);
}

/* For one cut: every way to recompute with the least offload that fits; dearer ways only if they save offload. */
static bool walk_cut(Walk *w) {
    Plan *p = w->p;
    Layout *l = &p->layout;
    Err err;
    double least = 2;
    if (!grid_split(&l->g, NULL, p->sum->layers, &err)) return false;
    if (!layout_check(l, p->sum, &p->cluster, &p->work, &err)) return false;
    for (const int *way = recompute_ways(p->profile); *way >= 0; way++) {
        if (!p->sum->model->d.experts && *way & DROP_MOE) continue;
        l->drop = *way;
        for (size_t o = 0; o < COUNT(SHARES) && SHARES[o] < least; o++) {
            if (!w->offload && SHARES[o] > 0) break;
            l->offload = SHARES[o];
            plan_memory(p); /* the times of layers are of its micro-batches */
            w->tried++;
            if (!hopeless(p)) {
                search_split(p);
                plan_memory(p);
            }
            if (!update_fits(p)) {
                note_short(w);
                continue;
            }
            least = SHARES[o];
            if (w->visit(w->user, p)) return true;
            break;
        }
    }
    return false;
}

/* More chunks than vpp / 2 shorten the bubble, keep more activations alive and hand over more often: not worth a look
 * where the bubble is below a hundredth of the update.  A stage is planned as if its layers followed each other, which
 * is right as long as the leading layers that differ (DeepSeek's dense ones) all lie in the first chunk. */
static bool chunks_may_help(const Plan *p, int vpp) {
    const Layout *l = &p->layout;
    int layers = p->sum->layers, leading = 0;
    if (vpp == 1) return true;
    while (leading < layers && sum_is_moe(p->sum, leading) != sum_is_moe(p->sum, layers - 1)) leading++;
    return layers >= vpp * l->g.pp * (leading > 1 ? leading : 1) && l->g.pp - 1 > 0.01 * p->micro_batches * (vpp / 2);
}

/* For one cut: micro-batches of one and two longest sequences, each stage whole or in interleaved chunks. */
static bool walk_ways(Walk *w) {
    Layout *l = &w->p->layout;
    double longest = w->p->work.prompt_max + w->p->work.max;
    for (int twice = 1; twice <= 2; twice++)
        for (int vpp = 1; vpp <= MOST_CHUNKS && chunks_may_help(w->p, vpp); vpp *= 2) {
            l->g.vpp = vpp, l->micro_tokens = twice * ceil(longest / l->g.cp);
            if (walk_cut(w)) return true;
        }
    return false;
}

static bool walk(Walk *w) {
    Plan *p = w->p;
    const Dims *d = &p->sum->model->d;
    int gpus = p->cluster.gpus, most_tp = p->cluster.gpu.domain < MOST_TP ? p->cluster.gpu.domain : MOST_TP;
    int most_cp = p->work.prompt_max + p->work.max > LONG_SEQUENCE ? MOST_CP : 1;
    for (int pp = 1; pp <= p->sum->layers && pp <= MAX_STAGES && pp <= gpus; pp++) {
        if (gpus % pp) continue;
        for (int tp = 1; tp <= most_tp; tp *= 2)
            for (int cp = 1; cp <= most_cp; cp *= 2)
                for (int ep = 1; ep <= (d->experts ? d->experts : 1) && ep <= gpus / pp; ep++) {
                    if (d->experts && d->experts % ep) continue;
                    p->layout.g.tp = tp, p->layout.g.pp = pp, p->layout.g.ep = ep, p->layout.g.cp = cp;
                    if (walk_ways(w)) return true;
                }
    }
    return false;
}

/* ---- Rollouts ---------------------------------------------------------------------------------------------------- */

typedef struct {
    int tp, ep;
    double tokens;
    PhasePlan phase;
    double batch, step;
} Known;
enum { MOST_KNOWN = 512 };

typedef struct {
    Found at[96]; /* trainers, quickest first */
    int n;
    Known *known;
    int n_known;
} Best;

static double train_seconds(const Plan *p) {
    double t = 0;
    for (int i = 0; i < PH_COUNT; i++)
        if (i != PH_ROLLOUT && i != PH_MISC) t += p->phase[i].seconds;
    return t;
}

static void insert(Found *list, int *n, int most, const Found *f) {
    int i = *n < most ? (*n)++ : most - 1;
    if (i == most - 1 && *n == most && list[i].step <= f->step && list[i].step > 0) return;
    for (; i > 0 && list[i - 1].step > f->step; i--) list[i] = list[i - 1];
    list[i] = *f;
}

static bool remember(void *user, Plan *p) {
    Best *b = user;
    plan_train(p);
    Found f = { .layout = p->layout, .step = train_seconds(p) };
    insert(b->at, &b->n, (int)COUNT(b->at), &f);
    return false;
}

/* Rollout of p's engine: played once for each cut and size of cache (to 5 %; a cache that
 * holds everything is one size). */
static void rollout_known(Best *b, Plan *p) {
    double all = p->work.prompts * p->work.answers / p->engines * (p->work.prompt_mean + p->work.max);
    double tokens = fmin(p->kv_tokens, all), size = round(log(fmax(1, tokens)) / 0.05);
    for (int i = 0; i < b->n_known; i++) {
        const Known *k = &b->known[i];
        if (k->tp != p->layout.gen_tp || k->ep != p->layout.gen_ep || k->tokens != size) continue;
        p->phase[PH_ROLLOUT] = k->phase, p->decode_batch = k->batch, p->decode_step = k->step;
        return;
    }
    plan_rollout(p);
    if (b->n_known == MOST_KNOWN) return;
    b->known[b->n_known++] =
        (Known){ p->layout.gen_tp, p->layout.gen_ep, size, p->phase[PH_ROLLOUT], p->decode_batch, p->decode_step };
}

static bool same_cut(const Layout *a, const Layout *b) {
    return a->g.tp == b->g.tp && a->g.pp == b->g.pp && a->g.ep == b->g.ep && a->g.etp == b->g.etp && a->g.cp == b->g.cp;
}

/* One entry per cut of the trainer, its quickest. */
static void keep_best(Search *s, const Found *f) {
    for (int i = 0; i < s->n; i++)
        if (same_cut(&s->at[i].layout, &f->layout)) {
            if (s->at[i].step <= f->step) return;
            memmove(&s->at[i], &s->at[i + 1], (size_t)(s->n - i - 1) * sizeof *s->at);
            s->n--;
            break;
        }
    insert(s->at, &s->n, SEARCH_KEEP, f);
}

static void try_engines(Best *b, Plan *p, const Found *trainer, Search *out) {
    const Dims *d = &p->sum->model->d;
    int gpus = p->cluster.gpus;
    Err err;
    for (int tp = 1; tp <= MOST_ENGINE_TP && tp <= gpus; tp *= 2)
        for (int ep = 1; ep <= (d->experts ? most_engine_ep(p) : 1) && ep <= gpus; ep *= 2)
            for (int park = 0; park < 2; park++) {
                if (ep > 1 && ep < tp) continue;
                p->layout = trainer->layout;
                p->layout.gen_tp = tp, p->layout.gen_ep = ep;
                p->layout.park_weights = p->layout.park_states = park;
                if (!layout_check(&p->layout, p->sum, &p->cluster, &p->work, &err)) continue;
                plan_memory(p);
                if (!p->fits) {
                    if (!out->n && !out->nearest[0]) snprintf(out->nearest, sizeof out->nearest, "%s", p->verdict);
                    continue;
                }
                plan_train(p);
                rollout_known(b, p);
                plan_total(p);
                Found f = { .layout = p->layout, .step = p->step };
                for (int i = 0; i < PH_COUNT; i++) f.seconds[i] = p->phase[i].seconds;
                out->fitting++;
                keep_best(out, &f);
            }
}

static Plan *start(const Plan *base, Mem *mem) {
    Plan *p = MEM_NEW(mem, Plan);
    *p = *base;
    Layout *l = &p->layout;
    *l = (Layout){ .g.vpp = 1,
                   .fused_head = true,
                   .gen_tp = 1,
                   .gen_ep = 1,
                   .gen_use = base->layout.gen_use > 0 ? base->layout.gen_use : 0.95 };
    return p;
}

void search_run(const Plan *base, bool offload, Search *out) {
    Mem mem = { 0 };
    Best *b = MEM_NEW(&mem, Best);
    b->known = MEM_ARRAY(&mem, Known, MOST_KNOWN);
    Plan *p = start(base, &mem);
    plan_moments(p);
    p->follow = 192;
    Walk w = { .p = p, .offload = offload, .visit = remember, .user = b, .nearest = 1e300 };
    walk(&w);
    *out = (Search){ .tried = w.tried };
    for (int i = 0; i < b->n; i++) try_engines(b, p, &b->at[i], out);
    if (!b->n) snprintf(out->nearest, sizeof out->nearest, "%s", w.why);
    mem_free(&mem);
}

/* ---- The fewest GPUs --------------------------------------------------------------------------------------------- */

static bool any_engine(void *user, Plan *p) {
    Mem mem = { 0 };
    Plan *q = MEM_NEW(&mem, Plan);
    bool found = false;
    *q = *p;
    Err err;
    for (int cut = 1; cut <= most_engine_ep(p) && cut <= p->cluster.gpus && !found; cut *= 2)
        for (int ep = 0; ep < 2 && !found; ep++) {
            q->layout.gen_tp = ep ? 1 : cut, q->layout.gen_ep = ep ? cut : 1;
            q->layout.park_weights = q->layout.park_states = true;
            if (!layout_check(&q->layout, q->sum, &q->cluster, &q->work, &err)) continue;
            plan_memory(q);
            found = q->fits;
        }
    if (found) *(Layout *)user = q->layout;
    mem_free(&mem);
    return found;
}

bool search_fits(const Plan *base, bool offload, Layout *layout) {
    Mem mem = { 0 };
    Plan *p = start(base, &mem);
    Walk w = { .p = p, .offload = offload, .visit = any_engine, .user = layout, .nearest = 1e300 };
    bool found = walk(&w);
    mem_free(&mem);
    return found;
}

int search_min_gpus(const Plan *base, bool offload, int most, Layout *layout) {
    Mem mem = { 0 };
    Plan *p = MEM_NEW(&mem, Plan);
    int node = base->cluster.gpu.per_node, found = 0;
    *p = *base;
    double each = p->profile->weight + p->profile->grad + (offload ? 0 : p->profile->optimizer);
    int least = (int)(each * p->sum->total / p->cluster.gpu.memory); /* fewer cannot even hold weights and gradients */
    for (int n = 1; n <= most && !found; n = n < node ? n * 2 : n + node) {
        if (n < least) continue;
        p->cluster.gpus = n;
        if (search_fits(p, offload, layout)) found = n;
    }
    mem_free(&mem);
    return found;
}

void search_reason(const Plan *a, const Plan *b, Buf *out) {
    int worst = 0;
    double most = -1e300;
    for (int i = 0; i < PH_COUNT; i++) {
        double more = b->phase[i].seconds - a->phase[i].seconds;
        if (more > most) most = more, worst = i;
    }
    int cause = 0;
    for (int k = 1; k < BOUND_COUNT; k++)
        if (b->phase[worst].part[k] - a->phase[worst].part[k]
            > b->phase[worst].part[cause] - a->phase[worst].part[cause])
            cause = k;
    buf_printf(out, "%s %+.*f s (%s)", PHASE_NAMES[worst], fabs(most) < 10 ? 2 : 1, most, BOUND_NAMES[cause]);
}
