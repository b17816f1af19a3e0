/* split.c - how many layers each stage gets: the split whose slowest stage is quickest, among those the one whose
 * fullest stage holds least, among those the smoothest.  Layers cost what they cost (dense ones less), the embedding
 * weighs, the head does both; so equal numbers are rarely the answer. */
#include "plan/search.h"

typedef struct {
    int layers, stages;
    double cost[MAX_LAYERS], bytes[MAX_LAYERS]; /* of each layer */
    double first_bytes, last_cost, last_bytes;  /* the embedding, the head */
    int least;                                  /* layers of a stage: one for each of its chunks */
} Weights;

/* What each layer and the head cost. */
static void weigh(const Plan *p, Weights *w) {
    const ModelSum *s = p->sum;
    const Layout *l = &p->layout;
    double grads = p->profile->weight + p->profile->grad, states = p->profile->optimizer * (1 - l->offload);
    w->layers = s->layers, w->stages = l->g.pp, w->least = l->g.vpp;
    plan_layer_seconds(p, w->cost, &w->last_cost);
    for (int i = 0; i < s->layers; i++) {
        const LayerSum *a = &s->at[i];
        double dense = (a->attn_cut + a->dense + a->shared) / l->g.tp + a->attn_whole + a->norm + a->router,
               expert = a->experts / layout_expert_cut(l);
        w->bytes[i] = grads * (dense + expert) + states * (dense / (l->g.dp * l->g.cp) + expert / grid_edp(&l->g));
    }
    double head = (double)s->model->d.vocab * (double)s->model->d.hidden;
    double each = grads + states / (l->g.dp * l->g.cp);
    w->first_bytes = each * s->embed / l->g.tp, w->last_bytes = each * head / l->g.tp;
}

/* Can the layers be cut into the stages so that none exceeds time t and memory m?  Filling from the front. */
static bool can(const Weights *w, double t, double m) {
    int stage = 0, in = 0;
    double cost = 0, bytes = w->first_bytes;
    for (int i = 0; i < w->layers; i++) {
        bool last = stage == w->stages - 1,
             forced = w->layers - i <= (w->stages - 1 - stage) * w->least; /* only the fewest each from here */
        double c = cost + w->cost[i] + (last ? w->last_cost : 0), b = bytes + w->bytes[i] + (last ? w->last_bytes : 0);
        if (in >= w->least && (forced || (!last && (c > t || b > m)))) {
            stage++, cost = 0, bytes = 0, in = 0;
            last = stage == w->stages - 1;
            c = w->cost[i] + (last ? w->last_cost : 0), b = w->bytes[i] + (last ? w->last_bytes : 0);
        }
        if (c > t || b > m) return false;
        cost += w->cost[i], bytes += w->bytes[i], in++;
    }
    return stage == w->stages - 1 && in >= w->least;
}

static double bisect(const Weights *w, bool time, double other) {
    double lo = 0, hi = time ? w->last_cost : w->first_bytes + w->last_bytes;
    for (int i = 0; i < w->layers; i++) hi += time ? w->cost[i] : w->bytes[i];
    for (int k = 0; k < 26; k++) { /* to a part in 60 million of the whole */
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
                if (z - a < w->least) continue;
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
    int stage[MAX_STAGES];
    Err err;
    if (smooth(&w, t, m, stage)) grid_spread(&p->layout.g, stage);
    else grid_split(&p->layout.g, NULL, p->sum->layers, &err);
}
