/* search.c - see search.h. */
#include "plan/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Splits ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    int layers, stages;
    double cost[MAX_LAYERS], bytes[MAX_LAYERS]; /* of each layer */
    double first_bytes, last_cost, last_bytes;  /* the embedding, the head */
} Weights;

/* What each layer and the head cost. */
static void weigh(const Plan *p, Weights *w) {
    const ModelSum *s = p->sum;
    const Layout *l = &p->layout;
    double grads = p->profile->weight + p->profile->grad, states = p->profile->optimizer * (1 - l->offload);
    w->layers = s->layers, w->stages = l->pp;
    plan_layer_seconds(p, w->cost, &w->last_cost);
    for (int i = 0; i < s->layers; i++) {
        const LayerSum *a = &s->at[i];
        double dense = (a->attn_cut + a->dense + a->shared) / l->tp + a->attn_whole + a->norm + a->router,
               expert = a->experts / l->ep;
        w->bytes[i] = grads * (dense + expert) + states * (dense / (l->dp * l->cp) + expert / l->edp);
    }
    double head = (double)s->model->d.vocab * (double)s->model->d.hidden;
    double each = grads + states / (l->dp * l->cp);
    w->first_bytes = each * s->embed / l->tp, w->last_bytes = each * head / l->tp;
}

/* Can the layers be cut into the stages so that none exceeds time t and memory m?  Filling from the front. */
static bool can(const Weights *w, double t, double m) {
    int stage = 0, in = 0;
    double cost = 0, bytes = w->first_bytes;
    for (int i = 0; i < w->layers; i++) {
        bool last = stage == w->stages - 1,
             forced = w->layers - i <= w->stages - 1 - stage; /* one layer each from here */
        double c = cost + w->cost[i] + (last ? w->last_cost : 0), b = bytes + w->bytes[i] + (last ? w->last_bytes : 0);
        if (in && (forced || (!last && (c > t || b > m)))) {
            stage++, cost = 0, bytes = 0, in = 0;
            last = stage == w->stages - 1;
            c = w->cost[i] + (last ? w->last_cost : 0), b = w->bytes[i] + (last ? w->last_bytes : 0);
        }
        if (c > t || b > m) return false;
        cost += w->cost[i], bytes += w->bytes[i], in++;
    }
    return stage == w->stages - 1;
}

static double bisect(const Weights *w, bool time, double other) {
    double lo = 0, hi = time ? w->last_cost : w->first_bytes + w->last_bytes;
    for (int i = 0; i < w->layers; i++) hi += time ? w->cost[i] : w->bytes[i];
    for (int k = 0; k < 40; k++) {
        double mid = (lo + hi) / 2;
        if (time ? can(w, mid, other) : can(w, other, mid)) hi = mid;
        else lo = mid;
    }
    return hi * (1 + 1e-9);
}

/* Among the splits under both limits, the one with the least sum of squared times: no stage idles without need. */
static bool smooth(const Weights *w, double t, double m, int *split) {
    static const double NONE = 1e300;
    Mem mem = { 0 };
    int L = w->layers, S = w->stages;
    double *best = MEM_ARRAY(&mem, double, (size_t)(S + 1) * (size_t)(L + 1));
    int *from = MEM_ARRAY(&mem, int, (size_t)(S + 1) * (size_t)(L + 1));
    for (int i = 0; i < (S + 1) * (L + 1); i++) best[i] = NONE;
    best[0] = 0;
    for (int s = 0; s < S; s++)
        for (int a = s; a < L; a++) {
            if (best[s * (L + 1) + a] >= NONE) continue;
            double c = s == S - 1 ? w->last_cost : 0,
                   b = (s == 0 ? w->first_bytes : 0) + (s == S - 1 ? w->last_bytes : 0);
            for (int z = a + 1; z <= L; z++) {
                c += w->cost[z - 1], b += w->bytes[z - 1];
                if (c > t || b > m) break;
                double sum = best[s * (L + 1) + a] + c * c / (t * t);
                int at = (s + 1) * (L + 1) + z;
                if (sum < best[at] - 1e-12) best[at] = sum, from[at] = a;
            }
        }
    bool ok = best[S * (L + 1) + L] < NONE;
    for (int s = S, z = L; ok && s > 0; s--) {
        int a = from[s * (L + 1) + z];
        split[s - 1] = z - a;
        z = a;
    }
    mem_free(&mem);
    return ok;
}

void search_split(Plan *p) {
    Weights w;
    weigh(p, &w);
    double t = bisect(&w, true, 1e300), m = bisect(&w, false, t);
    if (!smooth(&w, t, m, p->layout.split)) layout_even(&p->layout, p->sum->layers);
}

/* ---- Layouts ----------------------------------------------------------------------------------------------------------- */

/* What each stack can recompute: hone none, selective, full; Megatron none, two selections, full. */
enum { SELECTIVE = DROP_NORM | DROP_ACT | DROP_ROWS | DROP_MLA_UP };
static const int OURS[] = { 0, SELECTIVE, DROP_ALL, -1 },
                 THEIRS[] = { 0, DROP_NORM | DROP_ACT, DROP_NORM | DROP_MOE, DROP_ALL, -1 };
static const double SHARES[] = { 0, 0.25, 0.5, 0.75, 1 };

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

static bool update_fits(const Plan *p) {
    return p->stage[p->worst[PH_UPDATE]].total[PH_UPDATE] <= p->cluster.gpu.memory
           && p->host_worst <= p->cluster.gpu.host_memory;
}

static void note_short(Walk *w) {
    const Plan *p = w->p;
    double over = p->stage[p->worst[PH_UPDATE]].total[PH_UPDATE] - p->cluster.gpu.memory;
    if (over <= 0) over = p->host_worst - p->cluster.gpu.host_memory;
    if (over <= 0 || over >= w->nearest) return;
    w->nearest = over;
    Buf split = { 0 };
    layout_split_text(&p->layout, &split);
    snprintf(w->why, sizeof w->why, "closest is tp %d, pp %d, ep %d, layers %s, recompute %s, offload %g: %.300s",
             p->layout.tp, p->layout.pp, p->layout.ep, split.data, recompute_name(p->layout.drop), p->layout.offload,
             p->verdict);
    buf_free(&split);
}

/* For one cut: every way to recompute with the least offload that fits; dearer ways only if they save offload. */
static bool walk_cut(Walk *w) {
    Plan *p = w->p;
    Layout *l = &p->layout;
    Err err;
    double least = 2;
    layout_even(l, p->sum->layers);
    if (!layout_check(l, p->sum, &p->cluster, &p->work, &err)) return false;
    for (const int *way = p->profile->one_copy ? OURS : THEIRS; *way >= 0; way++) {
        if (!p->sum->model->d.experts && *way & DROP_MOE) continue;
        l->drop = *way;
        for (size_t o = 0; o < COUNT(SHARES) && SHARES[o] < least; o++) {
            if (!w->offload && SHARES[o] > 0) break;
            l->offload = SHARES[o];
            if (o == 0) plan_memory(p); /* micro-batches, which the times of layers are of */
            search_split(p);
            plan_memory(p);
            w->tried++;
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

static bool walk(Walk *w) {
    Plan *p = w->p;
    const Dims *d = &p->sum->model->d;
    int gpus = p->cluster.gpus, most_tp = p->cluster.gpu.domain < 8 ? p->cluster.gpu.domain : 8;
    double longest = p->work.prompt_max + p->work.max;
    int most_cp = longest > 32768 ? 64 : 1;
    for (int pp = 1; pp <= p->sum->layers && pp <= MAX_STAGES && pp <= gpus; pp++) {
        if (gpus % pp) continue;
        for (int tp = 1; tp <= most_tp; tp *= 2)
            for (int cp = 1; cp <= most_cp; cp *= 2)
                for (int ep = 1; ep <= (d->experts ? d->experts : 1) && ep <= gpus / pp; ep++) {
                    if (d->experts && d->experts % ep) continue;
                    for (int twice = 1; twice <= 2; twice++) {
                        p->layout.tp = tp, p->layout.pp = pp, p->layout.ep = ep, p->layout.cp = cp;
                        p->layout.micro_tokens = twice * ceil(longest / cp);
                        if (walk_cut(w)) return true;
                    }
                }
    }
    return false;
}

/* ---- Rollouts ---------------------------------------------------------------------------------------------------------- */

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

/* Rollout of p's engine: played once for each cut and size of cache (to 5 %; a cache that holds everything is one size). */
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
    return a->tp == b->tp && a->pp == b->pp && a->ep == b->ep && a->cp == b->cp;
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
    for (int tp = 1; tp <= 32 && tp <= gpus; tp *= 2)
        for (int ep = 1; ep <= (d->experts ? 256 : 1) && ep <= gpus; ep *= 2)
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
    *l = (Layout){ .vpp = 1,
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

/* ---- The fewest GPUs --------------------------------------------------------------------------------------------------- */

static bool any_engine(void *user, Plan *p) {
    Mem mem = { 0 };
    Plan *q = MEM_NEW(&mem, Plan);
    bool found = false;
    *q = *p;
    Err err;
    for (int cut = 1; cut <= 256 && cut <= p->cluster.gpus && !found; cut *= 2)
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
    buf_printf(out, "%s %+.1f s (%s)", PHASE_NAMES[worst], most, BOUND_NAMES[cause]);
}
