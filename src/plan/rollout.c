/* rollout.c - how long generation takes: one decode step by roofline, and continuous batching over the lengths.
 *
 * Between two events (an answer ends, the cache is full) the batch is constant and contexts grow by one a step, so a
 * rollout of any length costs as many evaluations as it has events. */
#include "cut/flops.h"
#include "cut/mixer.h"
#include "par/par.h"
#include "plan/plan.h"

#include <math.h>
#include <string.h>

/* Kernels of one decoder layer in decoding, a count from the layer lists of the usual
 * engines: what eager launching costs. */
static double kernels_of(const ModelSum *s) {
    const Dims *d = &s->model->d;
    double n = 0;
    for (int l = 0; l < s->layers; l++)
        n += mixer_cost_of(d, l)->kernels(d)
             + (!sum_is_moe(s, l) ? 6 : 15 + (s->model->arch->route == ROUTE_SIGMOID ? 14 : 0) + (d->shared ? 7 : 0));
    return n + 20;
}

static double experts_hit(const Dims *d, double batch) {
    double miss = 1 - (double)d->topk / (double)d->experts;
    return 1 - pow(miss, batch);
}

static bool inside(const Plan *p, int ranks) { return ranks <= plan_domain(p); }

/* Decoding's messages are small.  Seconds of a collective inside a domain before its bytes, an all-reduce and an
 * all-to-all with its permutation; the share of a port that all-reduces of some hundred kB reach.  Assumed. */
static const double NEAR_REDUCE = 12e-6, NEAR_EXCHANGE = 40e-6, SMALL_SHARE = 0.5;

/* Replicas of attention that share experts wait for the one that has most, and send as much: of n that run in each on
 * the mean, with lengths that know nothing of each other. */
static double most_rows(const Plan *p, double mean) {
    double replicas = (double)layout_engine(&p->layout) / p->layout.gen_tp, all = p->work.prompts * p->work.answers;
    double full = fmax(mean, all / p->engines / replicas);
    if (replicas <= 1) return mean;
    return mean + normal_quantile((replicas - 0.375) / (replicas + 0.25)) * sqrt(mean * (1 - mean / full));
}
/* Rows of experts there and back.  Over machines they go to each once and are handed on inside it (par.h), one after
 * the other: of ranks - 1 parts one to each other machine, the rest by NVLink.  With counts each goes to its rank. */
static double own_exchange(const Plan *p, double bytes) {
    const Machine *g = &p->cluster.gpu;
    int engine = layout_engine(&p->layout), domain = plan_domain(p);
    double near = bytes / engine / (g->nvlink * p->profile->a2a), far = bytes / engine / (g->nic * LINK_SHARE);
    if (inside(p, engine)) return 2 * NEAR_EXCHANGE + near;
    if (!ep_is_even(engine) || domain == 1 || engine % domain)
        return 2 * p->profile->latency + fmax(near, far * (engine - domain) / (engine - 1));
    double across = (engine / domain - 1.0) / (engine - 1);
    return 2 * (NEAR_REDUCE + p->profile->latency) + (1 - across) * near + across * far;
}
/* What this program sends. */
static double own_network(const Plan *p, double per_replica) {
    const Layout *l = &p->layout;
    const Machine *g = &p->cluster.gpu;
    double engine = layout_engine(l), rows = most_rows(p, per_replica), sum = 0;
    int tp_calls = l->gen_ep > l->gen_tp ? 1 : 2;
    double tp = inside(p, l->gen_tp) ? g->nvlink * p->profile->ring : g->nic * SMALL_SHARE,
           tp_alpha = inside(p, l->gen_tp) ? NEAR_REDUCE : p->profile->latency;
    for (int i = 0; i < p->sum->layers; i++) {
        SentBytes s = sent_decode(p, i, rows);
        if (l->gen_tp > 1) sum += tp_calls * tp_alpha + s.tp / engine / tp;
        if (s.ep > 0) sum += own_exchange(p, s.ep);
    }
    return sum;
}

/* Of other stacks, two collectives a layer: all-reduces of tp, and with ep the two all-to-alls of the experts. */
static double decode_network(const Plan *p, double per_replica) {
    const Layout *l = &p->layout;
    const Machine *g = &p->cluster.gpu;
    const Dims *d = &p->sum->model->d;
    if (p->profile->one_copy) return own_network(p, per_replica);
    double row = (double)d->hidden * 2, sum = 0;
    int engine = layout_engine(l);
    if (l->gen_tp > 1) {
        double rate = inside(p, l->gen_tp) ? g->nvlink * p->profile->ring : g->nic * SMALL_SHARE;
        double alpha = inside(p, l->gen_tp) ? NEAR_REDUCE : p->profile->latency;
        int times = l->gen_ep > l->gen_tp ? 1 : 2;
        sum += times * p->sum->layers * (alpha + 2 * per_replica * row / rate);
    }
    if (l->gen_ep > l->gen_tp) {
        double rate = inside(p, engine) ? g->nvlink * p->profile->a2a : g->nic * LINK_SHARE;
        double alpha = inside(p, engine) ? NEAR_EXCHANGE : p->profile->latency;
        sum += 2 * p->sum->layers * (alpha + per_replica / l->gen_tp * (double)d->topk * row / rate);
    }
    return sum;
}

double decode_step(const Plan *p, double batch, double ctx, double part[BOUND_COUNT]) {
    if (p->measured.row > 0) {
        memset(part, 0, BOUND_COUNT * sizeof *part);
        part[BY_MEMORY] = p->measured.fixed, part[BY_COMPUTE] = p->measured.row * batch;
        return part[BY_MEMORY] + part[BY_COMPUTE];
    }
    const ModelSum *s = p->sum;
    const Layout *l = &p->layout;
    const Machine *g = &p->cluster.gpu;
    const Dims *d = &s->model->d;
    int engine = layout_engine(l);
    double replicas = (double)engine / l->gen_tp, mine = batch / replicas, experts = s->before[s->layers].experts;
    double weights = p->profile->weight * (s->total - experts - s->vision - (s->head > 0 ? s->embed : 0)) / l->gen_tp;
    if (experts > 0) weights += p->profile->weight * experts * experts_hit(d, batch) / engine;
    double cache = mine * ctx * p->kv_per_token;
    double dense = s->gemm - (experts > 0 ? experts * (double)d->topk / (double)d->experts : 0);
    double chosen = s->gemm - dense;
    double flops = 2 * mine * dense / l->gen_tp + 2 * batch * chosen / engine;
    double compute = flops / (g->flops * g->gemm)
                     + mine * ctx * (double)d->heads / l->gen_tp * 2 * s->absorbed / (g->flops * g->attn);
    double memory = (weights + cache) / (g->bandwidth * p->profile->decode_bw), net = decode_network(p, mine);
    double beside = g->is_cpu ? 0 : s->layers * (p->profile->decode_layer + mine * p->profile->decode_row);
    double launch = kernels_of(s) * p->profile->launch, device = fmax(memory, compute) + beside + net;
    memset(part, 0, BOUND_COUNT * sizeof *part);
    if (launch > device) return part[BY_LAUNCH] = launch;
    part[compute > memory ? BY_COMPUTE : BY_MEMORY] = device - net;
    part[BY_NETWORK] = net;
    return device;
}

typedef struct {
    double done, length;
} Sequence;

typedef struct {
    const Plan *p;
    Sequence *run, *back; /* the oldest first; preempted ones, the next to return last */
    double *wait;         /* lengths of answers that have not begun */
    int n_run, n_back, n_wait, total;
    double scale, limit, capacity, used, now, busy, batch_time;
    double part[BOUND_COUNT];
} Engine;

/* Tokens of growth kept free for each running sequence when another one enters, so that it is not turned out at once;
 * assumed. */
static const double GROWTH = 64;
/* Of the rate of large products, what prefill reaches: short prompts, collectives between; assumed. */
static const double PREFILL = 0.7;

static double prefill_seconds(const Plan *p, double length, double gpus) {
    const Machine *g = &p->cluster.gpu;
    return length * sum_forward(p->sum, length) / gpus / (g->flops * g->gemm * PREFILL);
}

static void admit(Engine *e) {
    const Plan *p = e->p;
    double prompt = p->work.prompt_mean;
    while ((e->n_back || e->n_wait) && e->n_run < e->limit) {
        bool again = e->n_back > 0;
        Sequence s = again ? e->back[e->n_back - 1] : (Sequence){ 0, e->wait[e->n_wait - 1] };
        if (e->n_run && e->used + prompt + s.done + GROWTH * (e->n_run + 1) > e->capacity) return;
        if (again) { /* its cache is computed anew */
            double t = e->scale * prefill_seconds(p, prompt + s.done, p->cluster.gpus / p->engines);
            e->part[BY_COMPUTE] += t, e->now += t;
            e->n_back--;
        } else {
            e->n_wait--;
        }
        e->run[e->n_run++] = s;
        e->used += prompt + s.done;
    }
}

/* Steps until the next answer ends or the cache is full. */
static double next_event(const Engine *e, double room) {
    double steps = 1e30;
    for (int i = 0; i < e->n_run; i++) steps = fmin(steps, e->run[i].length - e->run[i].done);
    return fmax(1, fmin(steps, fmax(16, floor(room / e->n_run))));
}

static void advance(Engine *e) {
    double steps = next_event(e, e->capacity - e->used), part[BOUND_COUNT], ctx = e->used / e->n_run + steps / 2;
    double each = decode_step(e->p, e->n_run * e->scale, ctx, part), prompt = e->p->work.prompt_mean;
    /* nine in ten have ended: the rest keep the engine */
    bool tail = !e->n_wait && !e->n_back && e->n_run < 0.1 * e->total;
    for (int b = 0; b < BOUND_COUNT; b++) e->part[tail ? BY_TAIL : b] += steps * part[b];
    e->now += steps * each;
    e->batch_time += steps * e->n_run;
    e->busy += steps;
    int kept = 0;
    e->used = 0;
    for (int i = 0; i < e->n_run; i++) {
        Sequence s = e->run[i];
        s.done += steps;
        if (s.done >= s.length) continue;
        e->run[kept++] = s, e->used += prompt + s.done;
    }
    e->n_run = kept;
    while (e->n_run > 1 && e->used > e->capacity) { /* the youngest gives its cache back */
        Sequence s = e->run[--e->n_run];
        e->used -= prompt + s.done;
        e->back[e->n_back++] = s;
    }
}

void engine_play(const Plan *p, double *lengths, int n, double scale, Rolled *out) {
    Mem mem = { 0 };
    Engine *e = MEM_NEW(&mem, Engine);
    *e = (Engine){ .p = p,
                   .scale = scale,
                   .wait = lengths,
                   .n_wait = n,
                   .total = n,
                   .run = MEM_ARRAY(&mem, Sequence, (size_t)n),
                   .back = MEM_ARRAY(&mem, Sequence, (size_t)n) };
    e->limit = fmax(1, p->profile->running / scale);
    double least = p->work.prompt_max + p->work.max; /* where not even one fits the verdict says so; time one by one */
    e->capacity = fmax(p->kv_tokens / scale, least);
    long events = 0;
    for (; e->n_wait || e->n_back || e->n_run; events++) {
        admit(e);
        advance(e);
    }
    *out = (Rolled){
        .seconds = e->now, .steps = e->busy, .batch = e->batch_time / fmax(1, e->busy) * scale, .events = events
    };
    memcpy(out->part, e->part, sizeof e->part);
    mem_free(&mem);
}

void plan_rollout(Plan *p) {
    double most = p->follow ? p->follow : 2048;
    double all = fmax(1, p->work.prompts * p->work.answers / p->engines), scale = fmax(1, all / most);
    int n = (int)ceil(all / scale);
    Mem mem = { 0 };
    double *lengths = MEM_ARRAY(&mem, double, (size_t)n);
    Rolled r;
    lengths_fill(&p->work, lengths, n);
    int last = 0; /* the rollout ends with the engine that has the longest answer of all */
    for (int i = 1; i < n; i++)
        if (lengths[i] > lengths[last]) last = i;
    lengths[last] = fmax(lengths[last], p->lengths.longest);
    engine_play(p, lengths, n, scale, &r);
    mem_free(&mem);
    PhasePlan *ph = &p->phase[PH_ROLLOUT];
    double prefill = p->work.prompts * prefill_seconds(p, p->work.prompt_mean, p->cluster.gpus);
    if (p->work.images.n > 0) /* a picture is computed once for all answers */
        prefill += p->work.prompts * p->work.images.n
                   * flops_tower(&p->sum->model->d, p->work.images.h, p->work.images.w) / p->cluster.gpus
                   / (p->cluster.gpu.flops * p->cluster.gpu.gemm * PREFILL);
    memcpy(ph->part, r.part, sizeof r.part);
    ph->part[BY_COMPUTE] += prefill;
    ph->seconds = r.seconds + prefill;
    p->decode_batch = r.batch;
    p->decode_step = r.seconds / fmax(1, r.steps);
}
