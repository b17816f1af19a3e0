/* time.c - seconds of each phase and what they go to, by closed formulas.
 *
 * Training: one micro-batch on one stage is products, unfused small kernels, weight traffic and collectives; a pipeline
 * of m micro-batches takes (m-1) times the slowest stage plus one pass through all of them.  simulate.c plays the same
 * schedule event by event, and a test holds the two together. */
#include "plan/plan.h"

#include "cut/flops.h"

#include <math.h>
#include <string.h>

static double sum_of(const double part[BOUND_COUNT]) {
    double t = 0;
    for (int b = 0; b < BOUND_COUNT; b++) t += part[b];
    return t;
}

static void settle(PhasePlan *ph) {
    ph->seconds = sum_of(ph->part);
    ph->bound = 0;
    for (int b = 1; b < BOUND_COUNT; b++)
        if (ph->part[b] > ph->part[ph->bound]) ph->bound = b;
}

typedef struct {
    double products, scores, small, memory, network;
    double network_back; /* with what is done again */
} Cost;                  /* forward of one micro-batch on one rank */

/* What this program sends, one rank of all that do: tp and cp inside a domain where they fit into one, experts' rows
 * evenly to all ranks of ep. */
static double sent_seconds(const Plan *p, SentBytes s, double tokens) {
    const GridShape *l = &p->layout.g;
    const Machine *g = &p->cluster.gpu;
    double each = tokens / l->tp, domain = plan_domain(p), ranks = layout_expert_cut(&p->layout);
    double tp = (l->tp <= domain ? g->nvlink : g->nic) * p->profile->ring,
           cp = (l->tp * l->cp <= domain ? g->nvlink : g->nic) * p->profile->ring;
    double far = ranks > domain ? (ranks - domain) / (ranks - 1) : 0;
    double ep = fmax(s.ep * each / (g->nvlink * p->profile->a2a), far * s.ep * each / (g->nic * p->profile->a2a));
    return s.tp * each / tp + s.cp * each / cp + ep;
}

/* Of other stacks: collectives of one layer's forward: tp gathers and scatters around attention and dense
 * feed-forwards, ep's dispatch and combine, etp's gather and scatter of their rows.  Across domains a token goes once
 * to each domain that holds one of its experts. */
static double layer_network(const Plan *p, int layer, double tokens) {
    const Layout *l = &p->layout;
    const Machine *g = &p->cluster.gpu;
    const Dims *d = &p->sum->model->d;
    bool moe = sum_is_moe(p->sum, layer);
    double row = 2 * (double)d->hidden, t = 0;
    if (l->g.tp > 1) {
        double rate = l->g.tp <= plan_domain(p) ? g->nvlink * p->profile->ring : g->nic * p->profile->ring;
        t += (moe ? 2 : 4) * tokens * row * (l->g.tp - 1) / l->g.tp / rate;
    }
    if (moe && l->g.ep > 1) {
        double mine = tokens / l->g.tp, k = (double)d->topk, nodes = ceil((double)l->g.ep / plan_domain(p));
        double near = mine * row * k * (1 - 1.0 / l->g.ep) / (g->nvlink * p->profile->a2a);
        double reach = d->group_topk > 0 && d->groups > 1 ? fmin(k, (double)d->group_topk) : k;
        double far = nodes > 1 ? mine * row * fmin(reach, nodes) * (1 - 1 / nodes) / (g->nic * p->profile->a2a) : 0;
        t += 2 * fmax(near, far);
    }
    if (moe && l->g.etp > 1) { /* the rows of etp's ranks gathered, their partial sums scattered */
        double rows = tokens / l->g.tp * (double)d->topk * (l->g.etp - 1);
        t += 2 * rows * row / ((l->g.etp <= plan_domain(p) ? g->nvlink : g->nic) * p->profile->ring);
    }
    return t;
}

/* Collectives of a backward over those of a forward: the same ones mirrored, half as many again for the gradients' own
 * gathers under sequence parallelism, and the recomputed forward's. */
static double collectives_back(int drop) { return drop & (DROP_ALL | DROP_MOE) ? 2.5 : 1.5; }

/* Tokens: of one micro-batch on one GPU; context: E[s^2]/E[s]. */
static Cost layer_cost(const Plan *p, int layer, double tokens, double context) {
    const ModelSum *s = p->sum;
    const LayerSum *a = &s->at[layer];
    const Layout *l = &p->layout;
    const Machine *g = &p->cluster.gpu;
    const Profile *f = p->profile;
    const Dims *d = &s->model->d;
    Kept k = sum_kept(s, layer, 0, 1);
    double rows = sum_is_moe(s, layer) ? (double)d->topk : 0;
    Cost c = { .products = 2 * tokens * a->gemm / l->g.tp / (g->flops * g->gemm) };
    double width = f->absorbed ? a->absorbed : a->score + a->value;
    c.scores = tokens * context * (double)d->heads * width / l->g.tp / (g->flops * g->attn);
    c.small = tokens / l->g.tp * (k.block * f->block_work + rows * f->row_work) / 3 / g->sms;
    double params =
        (a->attn_cut + a->dense + a->shared) / l->g.tp + a->attn_whole + a->router + a->experts / layout_expert_cut(l);
    c.memory = f->weight * params / g->bandwidth;
    if (f->one_copy) {
        c.network = sent_seconds(p, sent_forward(p, layer), tokens);
        c.network_back = sent_seconds(p, sent_backward(p, layer), tokens);
    } else {
        c.network = layer_network(p, layer, tokens);
        c.network_back = c.network * collectives_back(l->drop);
    }
    return c;
}

static void put(double *part, const Cost *c, double times, double network_seconds) {
    part[BY_COMPUTE] += times * (c->products + c->scores);
    part[BY_MEMORY] += times * (c->small + c->memory);
    part[BY_NETWORK] += network_seconds;
}

static void head_cost(const Plan *p, StagePlan *st, double tokens) {
    const Machine *g = &p->cluster.gpu;
    double once = 2 * tokens * (double)p->sum->model->d.vocab * (double)p->sum->model->d.hidden / p->layout.g.tp
                  / (g->flops * g->gemm);
    double logits =
        p->layout.fused_head ? 0 : 20 * tokens * (double)p->sum->model->d.vocab / p->layout.g.tp / g->bandwidth;
    st->forward[BY_COMPUTE] += once;
    st->forward[BY_MEMORY] += logits;
    st->backward[BY_COMPUTE] += (p->layout.fused_head ? 3 : 2) * once;
    st->backward[BY_MEMORY] += logits;
}

/* Forwards made twice, as a share of a layer's time: all of it, the experts (0.6 of a layer with experts), MLA's way
 * into the latent, or norms and the like (estimates from the FLOP and bytes of DeepSeek-V3's layer). */
static double repeated(int drop) {
    if (drop & DROP_ALL) return 1;
    if (drop & DROP_MOE) return 0.6;
    return drop & DROP_MLA_UP ? 0.08 : drop ? 0.05 : 0;
}
static double micro_tokens(const Plan *p) {
    return p->tokens / p->mini_batches * work_epochs(&p->work) / p->layout.g.dp / p->layout.g.cp / p->micro_batches;
}

void plan_layer_seconds(const Plan *p, double *layer, double *head) {
    double tokens = micro_tokens(p);
    for (int i = 0; i < p->sum->layers; i++) {
        Cost c = layer_cost(p, i, tokens, p->lengths.square);
        layer[i] =
            (c.products + c.scores + c.small + c.memory) * (3 + repeated(p->layout.drop)) + c.network + c.network_back;
    }
    StagePlan st = { 0 };
    head_cost(p, &st, tokens);
    *head = sum_of(st.forward) + sum_of(st.backward);
}

static void stage_cost(Plan *p, int stage, double tokens, double context) {
    const Layout *l = &p->layout;
    const Machine *g = &p->cluster.gpu;
    const ModelSum *s = p->sum;
    StagePlan *st = &p->stage[stage];
    double typical = s->at[s->layers - 1].gemm, passes = l->drop & DROP_ALL ? 4 : 3, h = (double)s->model->d.hidden;
    memset(st->forward, 0, sizeof st->forward), memset(st->backward, 0, sizeof st->backward);
    st->load = 0;
    for (int v = 0, from; v < l->g.vpp; v++) {
        int n = grid_chunk(&l->g, v * l->g.pp + stage, &from);
        for (int i = from; i < from + n; i++) {
            Cost c = layer_cost(p, i, tokens, context);
            put(st->forward, &c, 1, c.network);
            put(st->backward, &c, 2 + repeated(l->drop), c.network_back);
            st->load += passes * s->at[i].gemm / (passes * typical);
        }
    }
    st->backward[BY_MEMORY] +=
        2 * p->profile->grad * (st->dense + st->expert) / g->bandwidth; /* += into the gradients */
    if (stage == 0 && p->work.images.n > 0) {
        const Workload *w = &p->work;
        double pictures = tokens / (w->prompt_mean + w->mean) * w->images.n / l->g.tp; /* each answer's again */
        double once = pictures * flops_tower(&s->model->d, w->images.h, w->images.w) / (g->flops * g->gemm);
        st->forward[BY_COMPUTE] += once, st->backward[BY_COMPUTE] += once * (2 + repeated(l->drop));
    }
    if (stage == l->g.pp - 1) {
        head_cost(p, st, tokens);
        st->load += 3 * (double)s->model->d.vocab * h / (passes * typical);
    }
    if (p->profile->one_copy) {
        bool first = stage == 0, last = stage == l->g.pp - 1;
        st->forward[BY_NETWORK] += sent_seconds(p, sent_ends(p, first, last, false), tokens);
        st->backward[BY_NETWORK] += sent_seconds(p, sent_ends(p, first, last, true), tokens);
    }
    if (l->g.pp > 1) {
        bool near = l->g.tp * l->g.cp * l->g.dp * 2 <= plan_domain(p);
        double hop = 2 * tokens * h / l->g.tp / (near ? g->nvlink * p->profile->ring : g->nic * p->profile->ring);
        st->forward[BY_NETWORK] += hop * l->g.vpp,
            st->backward[BY_NETWORK] += hop * l->g.vpp; /* every chunk hands over */
    }
    st->t_forward = sum_of(st->forward), st->t_backward = sum_of(st->backward);
}

/* The slowest replica's share of a mini-batch over the mean one.  A stack that balances the whole step but cuts it into
 * mini-batches afterwards has, on each replica, a sum of few random lengths: the largest of dp of them. */
static double data_imbalance(const Plan *p, double variation, double longest) {
    double dp = p->layout.g.dp, each = p->tokens / (p->work.prompts * p->work.answers);
    double count = p->tokens / p->mini_batches * work_epochs(&p->work) / dp / each;
    if (dp <= 1) return 1;
    if (p->profile->balanced) return fmax(1, (longest + p->work.prompt_mean) / (count * each));
    return 1 + variation / sqrt(fmax(1, count)) * normal_quantile((dp - 0.375) / (dp + 0.25));
}

/* m micro-batches through the stages, seconds[i] each on stage i.  Filling and draining wait for the largest: a
 * sequence is not cut, so where micro-batches are small, the one with the longest answer is larger than the mean. */
static double pipeline(const Plan *p, const double *seconds, double m, double *mean) {
    double slowest = 0, sum = 0, longest = (p->lengths.longest + p->work.prompt_mean) / p->layout.g.cp;
    for (int i = 0; i < p->stages; i++) slowest = fmax(slowest, seconds[i]), sum += seconds[i];
    *mean = sum / p->stages;
    return m * slowest + (sum - slowest) / p->layout.g.vpp * fmax(1, longest / micro_tokens(p));
}

/* Spreads a pipelined phase over its causes: the mean stage's own work, then unequal stages, unequal data, bubble. */
static void pipelined(Plan *p, PhasePlan *ph, bool backward, double m, double rounds, double data) {
    double seconds[MAX_STAGES], part[BOUND_COUNT] = { 0 }, mean, slowest = 0;
    for (int i = 0; i < p->stages; i++) {
        const StagePlan *st = &p->stage[i];
        seconds[i] = st->t_forward + (backward ? st->t_backward : 0);
        slowest = fmax(slowest, seconds[i]);
        for (int b = 0; b < BOUND_COUNT; b++)
            part[b] += (st->forward[b] + (backward ? st->backward[b] : 0)) / p->stages;
    }
    double whole = pipeline(p, seconds, m, &mean);
    for (int b = 0; b < BOUND_COUNT; b++) ph->part[b] += rounds * m * part[b];
    ph->part[BY_IMBALANCE] += rounds * (m * (slowest - mean) + whole * (data - 1));
    ph->part[BY_BUBBLE] += rounds * (whole - m * slowest);
    settle(ph);
    if (backward) {
        p->imbalance_stage = slowest / mean;
        p->bubble = whole / (m * slowest) - 1;
    }
}

/* Seconds of a reduce-scatter and an all-gather of bytes over 'ranks' GPUs that stand 'stride' apart.  A ring enters
 * and leaves a domain once, and every member inside brings a network port: so many rings run side by side. */
static double ring_seconds(const Plan *p, double bytes, int stride, int ranks) {
    const Machine *g = &p->cluster.gpu;
    int domain = plan_domain(p), members = domain / stride > 1 ? domain / stride : 1;
    double rate = stride * ranks <= domain ? g->nvlink : fmin(g->nvlink, members * g->nic);
    return bytes * (ranks - 1) / ranks / (rate * p->profile->ring);
}

static void plan_optimizer(Plan *p) {
    const Layout *l = &p->layout;
    const Profile *f = p->profile;
    const Machine *g = &p->cluster.gpu;
    double device = 0, host = 0, net = 0, both = f->grad + f->weight;
    for (int i = 0; i < p->stages; i++) {
        const StagePlan *st = &p->stage[i];
        double dense = st->dense / (l->g.dp * l->g.cp), expert = st->expert / grid_edp(&l->g), n = dense + expert,
               off = n * l->offload;
        device = fmax(device, (n - off) * (2 * f->optimizer + f->grad + f->weight) / g->bandwidth);
        double node = off * fmin(g->per_node, p->cluster.gpus);
        double band =
            fmax(node * (2 * f->optimizer + f->grad + f->weight) / g->host_bandwidth, off * f->grad / g->pcie);
        double stepped = f->adam_whole ? (dense + st->expert) * l->offload : off;
        host = fmax(host, f->adam_rate > 0 ? stepped / f->adam_rate : band);
        net = fmax(net, ring_seconds(p, st->dense * both, l->g.tp, l->g.dp * l->g.cp)
                            + ring_seconds(p, st->expert * both, layout_expert_cut(l), grid_edp(&l->g)));
    }
    PhasePlan *ph = &p->phase[PH_OPTIMIZER];
    memset(ph, 0, sizeof *ph);
    ph->part[BY_OPTIMIZER] = p->mini_batches * (host + f->adam_fixed);
    ph->part[BY_MEMORY] = p->mini_batches * device;
    ph->part[BY_NETWORK] = p->mini_batches * net;
    settle(ph);
}

/* A rank receives its engine's slices, or, where every rank rebuilds every tensor, the whole model. */
static void plan_sync(Plan *p) {
    const Layout *l = &p->layout;
    const Machine *g = &p->cluster.gpu;
    const Profile *f = p->profile;
    PhasePlan *ph = &p->phase[PH_SYNC];
    memset(ph, 0, sizeof *ph);
    double whole = f->weight * p->sum->total;
    if (f->sync_whole) {
        int cut = layout_expert_cut(l) > l->g.tp ? layout_expert_cut(l) : l->g.tp;
        p->sync_bytes = whole;
        ph->part[BY_NETWORK] = (l->g.pp > 1 ? whole / cut / (g->nic * LINK_SHARE) : 0) + whole / (g->nvlink * f->ring);
        ph->part[BY_HOST] = p->sum->tensors * f->sync_tensor;
    } else if (!plan_shares(p)) {
        p->sync_bytes = p->engine_weights;
        ph->part[BY_NETWORK] =
            p->engine_weights / (p->cluster.gpus <= g->domain ? g->nvlink * f->ring : g->nic * LINK_SHARE);
        ph->part[BY_HOST] = p->sum->tensors / 64 * f->sync_tensor; /* stacked experts move together */
    } else {
        p->sync_bytes = 0;
    }
    settle(ph);
}

/* Seconds in which a stack that loads and offloads its optimizer around every phase touches the states it steps on the
 * host, on the fullest rank. */
static double host_states(const Plan *p) {
    const Layout *l = &p->layout;
    double most = 0;
    if (p->profile->state_rate <= 0) return 0;
    for (int i = 0; i < p->stages; i++)
        most = fmax(most, p->stage[i].dense / (l->g.dp * l->g.cp) + p->stage[i].expert / grid_edp(&l->g));
    return 2 * p->profile->optimizer * l->offload * most / p->profile->state_rate;
}

/* Loads and offloads between phases: out before the rollout, in for sync, old, reference and update, each way. */
static double moves(const Plan *p) {
    const Layout *l = &p->layout;
    if (!l->park_weights) return 0;
    double bytes = 0, times = p->profile->old_pass ? 6 + (p->work.kl ? 2 : 0) : 2;
    for (int i = 0; i < p->stages; i++)
        bytes = fmax(bytes, p->profile->weight * (p->stage[i].dense + p->stage[i].expert));
    double states = l->park_states ? 2 * p->stage[0].bytes[PH_UPDATE][MEM_OPTIM] : 0;
    double rate = p->profile->move_rate > 0 ? p->profile->move_rate : p->cluster.gpu.pcie * LINK_SHARE;
    return (times * bytes + states) / rate + host_states(p);
}

static void plan_rates(Plan *p, double square) {
    const Machine *g = &p->cluster.gpu;
    TokenFlops t = token_flops(&p->sum->model->d);
    double passes = work_epochs(&p->work), tokens = p->tokens * passes, squares = tokens * square;
    double time = p->phase[PH_UPDATE].seconds + p->phase[PH_OPTIMIZER].seconds, all = time * g->flops * p->cluster.gpus;
    double linear = 6 * (t.linear + 2 * t.head) * tokens,
           exact = 3 * (2 * (t.linear + t.head) * tokens + t.pair * squares);
    double heads =
        p->sum->score / (p->sum->score + p->sum->value); /* verl's older count squares the score width twice */
    p->mfu = (linear + 3 * t.pair * squares) / all;
    p->mfu_old = (linear + 12 * t.pair * heads * squares) / all;
    p->mfu_exact = exact / all;
    p->mfu_hardware = exact * (p->layout.drop & DROP_ALL ? 4.0 / 3 : 1) / all;
    p->tokens_per_gpu = p->tokens / (p->step * p->cluster.gpus);
}

void plan_moments(Plan *p) { p->lengths = lengths_moments(&p->work, p->work.prompts * p->work.answers); }

void plan_train(Plan *p) {
    double epochs = work_epochs(&p->work), tokens = micro_tokens(p);
    for (int i = 0; i < p->stages; i++) stage_cost(p, i, tokens, p->lengths.square);
    for (int i = 0; i < PH_COUNT; i++)
        if (i != PH_ROLLOUT) memset(&p->phase[i], 0, sizeof p->phase[i]);
    plan_sync(p);
    double all = p->micro_batches * p->mini_batches / epochs;
    if (p->profile->old_pass) pipelined(p, &p->phase[PH_OLD], false, all, 1, 1);
    if (p->work.kl) pipelined(p, &p->phase[PH_REF], false, all, 1, 1);
    p->imbalance_data = data_imbalance(p, p->lengths.variation, p->lengths.longest);
    pipelined(p, &p->phase[PH_UPDATE], true, p->micro_batches, p->mini_batches, p->imbalance_data);
    plan_optimizer(p);
}

void plan_total(Plan *p) {
    settle(&p->phase[PH_ROLLOUT]);
    p->step = 0;
    for (int i = 0; i < PH_MISC; i++) p->step += p->phase[i].seconds;
    double known = moves(p) + p->profile->sequence * p->work.prompts * p->work.answers;
    p->phase[PH_MISC].part[BY_HOST] = known + (p->step + known) * p->profile->misc / (1 - p->profile->misc);
    settle(&p->phase[PH_MISC]);
    p->step += p->phase[PH_MISC].seconds;
    plan_rates(p, p->lengths.square);
}

void plan_time(Plan *p) {
    plan_moments(p);
    plan_train(p);
    plan_rollout(p);
    plan_total(p);
}

void plan_make(Plan *p) {
    plan_memory(p);
    plan_time(p);
}
