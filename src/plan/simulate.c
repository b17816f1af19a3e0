/* simulate.c - a step played through with lengths that are drawn.
 * Lengths are drawn, not quantiles, so an engine or a replica can be unlucky; a rank is as
 * quick as its draw, a group as its slowest rank. */
#include "plan/simulate.h"

#include "base/rng.h"
#include "cut/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Uses of random numbers: the rng's 'step' coordinate tells them apart. */
enum { DRAW_LENGTH, DRAW_SPEED, DRAW_SLOW, DRAW_ORDER };

static double unit(const SimOpts *o, uint32_t use, uint32_t i) {
    return rng_unit(rng_u64(o->seed, RNG_PLAN, use, 0, 1, i));
}

/* Seconds stretch by this on GPU i. */
static double stretch(const SimOpts *o, int gpu) {
    double s = 1 + o->jitter * normal_quantile(fmin(fmax(unit(o, DRAW_SPEED, (uint32_t)gpu), 1e-9), 1 - 1e-9));
    if (unit(o, DRAW_SLOW, (uint32_t)gpu) < o->slow_share) s *= 1 + o->slow_by;
    return fmax(0.5, s);
}

static double slowest(const SimOpts *o, int first, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s = fmax(s, stretch(o, first + i));
    return s;
}

static int longer_first(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* All answers' lengths, in a drawn order: jittered quantiles keep the mean that was asked for. */
static double *draw_lengths(const Plan *p, const SimOpts *o, int n, Mem *mem) {
    double *l = MEM_ARRAY(mem, double, (size_t)n);
    lengths_fill(&p->work, l, n);
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(rng_u64(o->seed, RNG_PLAN, DRAW_ORDER, 0, 0, (uint32_t)i) % (uint64_t)(i + 1));
        double t = l[i];
        l[i] = l[j], l[j] = t;
    }
    return l;
}

static void play_rollout(const Plan *p, const SimOpts *o, const double *lengths, int n, SimResult *out) {
    Mem mem = { 0 };
    int engines = (int)p->engines, size = p->cluster.gpus / engines;
    double *mine = MEM_ARRAY(&mem, double, (size_t)(n / engines + 1)), sum = 0;
    for (int e = 0; e < engines; e++) {
        int k = 0;
        for (int i = e; i < n; i += engines) mine[k++] = lengths[i];
        if (!k) continue;
        Rolled r;
        engine_play(p, mine, k, 1, &r);
        double t = r.seconds * slowest(o, e * size, size);
        out->engine_slowest = fmax(out->engine_slowest, t);
        out->events += r.events;
        sum += t;
    }
    out->engine_mean = sum / engines;
    out->seconds[PH_ROLLOUT] = out->engine_slowest;
    mem_free(&mem);
}

/* ---- Updates ----------------------------------------------------------------------------------------------------- */

typedef struct {
    int dp, micro;
    double *load; /* [dp][micro]: tokens of a micro-batch over the planned mean */
} Packed;

/* Sequences to replicas, then to micro-batches: each to the emptiest, the longest first (where the stack balances). */
static Packed pack(const Plan *p, double *lengths, int n, Mem *mem) {
    int dp = p->layout.g.dp;
    double *sum = MEM_ARRAY(mem, double, (size_t)dp), most = 0;
    int *owner = MEM_ARRAY(mem, int, (size_t)n);
    if (p->profile->balanced) qsort(lengths, (size_t)n, sizeof *lengths, longer_first);
    for (int i = 0; i < n; i++) {
        int to = i % dp;
        if (p->profile->balanced && i >= dp)
            for (int k = 0; k < dp; k++)
                if (sum[k] < sum[to]) to = k;
        owner[i] = to;
        sum[to] += lengths[i] + p->work.prompt_mean;
    }
    double room = p->layout.micro_tokens * p->layout.g.cp;
    for (int k = 0; k < dp; k++) most = fmax(most, sum[k]);
    Packed out = { dp, (int)fmax(1, nearbyint(most / room) + 1), NULL };
    if (p->layout.g.vpp > 1) out.micro = (out.micro + p->layout.g.pp - 1) / p->layout.g.pp * p->layout.g.pp;
    out.load = MEM_ARRAY(mem, double, (size_t)dp *(size_t)out.micro);
    for (int i = 0; i < n; i++) {
        double *row = out.load + (size_t)owner[i] * (size_t)out.micro;
        int to = 0;
        for (int k = 1; k < out.micro; k++)
            if (row[k] < row[to]) to = k;
        row[to] += lengths[i] + p->work.prompt_mean;
    }
    double planned = p->tokens / (p->work.prompts * p->work.answers) * n / dp / p->micro_batches;
    for (int i = 0; i < dp * out.micro; i++) out.load[i] /= planned;
    return out;
}

typedef struct {
    const Plan *p;
    const Packed *packed;
    const double *speed; /* [stages] of this group of replicas */
    int first, n;        /* replicas that share experts, and so wait for each other */
    double busy;
    long turns;
} Replica;

static double turn_seconds(void *user, int stage, const Turn *t) {
    Replica *r = user;
    const StagePlan *st = &r->p->stage[stage];
    double load = 0;
    for (int i = 0; i < r->n; i++)
        load = fmax(load, r->packed->load[(size_t)(r->first + i) * (size_t)r->packed->micro + (size_t)t->micro]);
    double s = (t->backward ? st->t_backward : st->t_forward) * load / r->p->layout.g.vpp * r->speed[stage];
    r->turns++;
    r->busy += s;
    return s;
}

static double play_mini(const Plan *p, const SimOpts *o, double *lengths, int n, SimResult *out) {
    Mem mem = { 0 };
    const Layout *l = &p->layout;
    Packed packed = pack(p, lengths, n, &mem);
    int cut = layout_expert_cut(l), share = cut > l->g.tp * l->g.cp ? cut / (l->g.tp * l->g.cp) : 1, groups = 0;
    if (share > l->g.dp) share = l->g.dp;
    double *speed = MEM_ARRAY(&mem, double, (size_t)l->g.pp), worst = 0, sum = 0, busy = 0;
    for (int first = 0; first < l->g.dp; first += share, groups++) {
        int ranks = l->g.tp * l->g.cp * share;
        for (int s = 0; s < l->g.pp; s++) speed[s] = slowest(o, (s * l->g.dp + first) * l->g.tp * l->g.cp, ranks);
        Replica r = { .p = p, .packed = &packed, .speed = speed, .first = first, .n = share };
        double t = schedule_play(l->g.pp, packed.micro, l->g.vpp, 0, turn_seconds, &r, NULL);
        worst = fmax(worst, t);
        sum += t;
        busy += r.busy / l->g.pp / t;
        out->events += r.turns;
    }
    out->replica_mean = sum / groups, out->replica_slowest = worst;
    out->busy = busy / groups;
    mem_free(&mem);
    return worst;
}

void plan_simulate(const Plan *p, const SimOpts *o, SimResult *out) {
    Mem mem = { 0 };
    int n = (int)(p->work.prompts * p->work.answers), epochs = work_epochs(&p->work);
    *out = (SimResult){ 0 };
    double *lengths = draw_lengths(p, o, n, &mem);
    play_rollout(p, o, lengths, n, out);
    int minis = (int)(p->mini_batches / epochs), each = n / (minis > 0 ? minis : 1);
    for (int e = 0; e < epochs; e++)
        for (int m = 0; m < minis; m++)
            out->seconds[PH_UPDATE] += play_mini(p, o, lengths + m * each, m == minis - 1 ? n - m * each : each, out);
    double most = slowest(o, 0, p->cluster.gpus < 4096 ? p->cluster.gpus : 4096); /* what every rank waits for */
    static const Phase WHOLE_CLUSTER[] = { PH_SYNC, PH_OLD, PH_REF, PH_OPTIMIZER };
    for (size_t i = 0; i < COUNT(WHOLE_CLUSTER); i++)
        out->seconds[WHOLE_CLUSTER[i]] = p->phase[WHOLE_CLUSTER[i]].seconds * most;
    out->seconds[PH_MISC] = p->phase[PH_MISC].seconds;
    for (int i = 0; i < PH_COUNT; i++) out->step += out->seconds[i];
    mem_free(&mem);
}
