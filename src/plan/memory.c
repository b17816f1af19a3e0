/* memory.c - bytes on a rank of each stage in each phase, and on a node's host.
 *
 * Megatron's rank order (tp, then dp, then pp) puts a node's ranks on as few stages as possible; so does ours. */
#include "plan/kept.h"
#include "comm/nccl.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GRAD_WORK = 0.6;     /* of one layer's kept bytes: temporaries of its backward pass */
static const double GPU_SCRATCH = 2e9;   /* hone's kernels at least: 0.9 to 1.9 GB are counted for the published rows */
static const double HEAD_TILES = 256e6;  /* vocabulary tiles of the fused head */
static const double CPU_PROCESS = 0.2e9; /* hone itself beside its arenas */
static const double SYNC_BUFFER = 512e6; /* sends and receives of a tensor-by-tensor transfer */

static void stage_params(Plan *p) {
    const ModelSum *s = p->sum;
    const Layout *l = &p->layout;
    p->stages = l->g.pp;
    for (int i = 0; i < l->g.pp; i++) {
        StagePlan *st = &p->stage[i];
        memset(st, 0, sizeof *st);
        for (int v = 0, from; v < l->g.vpp; v++) {
            int n = grid_chunk(&l->g, v * l->g.pp + i, &from);
            const LayerSum *a = &s->before[from], *b = &s->before[from + n];
            st->layers += n;
            st->dense += (b->attn_cut - a->attn_cut) / l->g.tp + b->attn_whole - a->attn_whole + b->norm - a->norm
                         + (b->dense - a->dense) / l->g.tp + b->router - a->router + (b->shared - a->shared) / l->g.tp;
            st->expert += (b->experts - a->experts) / layout_expert_cut(l);
        }
        if (i == 0) st->dense += s->embed / l->g.tp + s->vision;
        if (i == l->g.pp - 1)
            st->dense += s->final_norm + (s->head > 0 ? s->head : l->g.pp > 1 ? s->embed : 0) / l->g.tp;
    }
}

/* 1F1B: a stage runs ahead of the last one by as many micro-batches as there are stages behind it. */
static double in_flight(const Plan *p, int stage) {
    const Layout *l = &p->layout;
    double behind = l->g.pp - stage;
    if (l->g.vpp <= 1) return fmin(p->micro_batches, behind);
    return fmin(p->micro_batches * l->g.vpp, 2 * (behind - 1) + (l->g.vpp - 1.0) * l->g.pp + 1) / l->g.vpp;
}

static KeptHow kept_how(const Plan *p, int drop) {
    return (KeptHow){ .recompute = recompute_of(drop),
                      .act = p->profile->weight == 4 ? DT_F32 : DT_BF16, /* activations are as weights are */
                      .gpu = !p->cluster.gpu.is_cpu,
                      .spread = p->layout.g.ep * p->layout.g.etp > 1 };
}

/* Bytes a token leaves in a layer: hone's own, or the usual stack's. */
static double kept_of(const Plan *p, int layer, int drop) {
    if (!p->profile->one_copy) return p->profile->weight / 2 * kept_bytes(sum_kept(p->sum, layer, drop, 1));
    return kept_layer(p->sum->kept, p->sum->model, layer, kept_how(p, drop));
}

/* ... and the rows of other ranks that etp gathers for its products, beside the rank's own. */
static double gathered_of(const Plan *p, int layer, int drop) {
    const Dims *d = &p->sum->model->d;
    bool kept = sum_is_moe(p->sum, layer) && !(drop & (DROP_ALL | DROP_MOE | DROP_ROWS));
    return kept ? p->profile->weight * (double)(d->topk * d->hidden) * (p->layout.g.etp - 1) : 0;
}

static void stage_activations(Plan *p, int stage, double *out) {
    const ModelSum *s = p->sum;
    const Layout *l = &p->layout;
    StagePlan *st = &p->stage[stage];
    double tokens = l->micro_tokens, h = (double)s->model->d.hidden, kept = 0, one = 0, largest = 0, most = 0;
    st->in_flight = in_flight(p, stage);
    for (int v = 0, from; v < l->g.vpp; v++) {
        int n = grid_chunk(&l->g, v * l->g.pp + stage, &from);
        double before = kept;
        for (int i = from; i < from + n; i++) {
            if (i == from || memcmp(&s->at[i], &s->at[i - 1], sizeof s->at[i])) { /* equal layers keep the same */
                one = kept_of(p, i, l->drop) + gathered_of(p, i, l->drop);
                largest = fmax(largest, kept_of(p, i, 0) + gathered_of(p, i, 0));
            }
            kept += one;
        }
        most = fmax(most, kept - before);
    }
    if (p->profile->one_copy) kept = most * l->g.vpp; /* what is in flight has the room of the largest chunk */
    if (stage == 0
        && p->work.images.n > 0) { /* the tower's, of the pictures that a micro-batch has; tp deals them out */
        const Workload *w = &p->work;
        double patches = tokens / (w->prompt_mean + w->mean) * w->images.n * w->images.h * w->images.w;
        patches = fmax(patches / l->g.tp, (double)w->images.h * w->images.w);
        out[MEM_ACT] = kept_tower(s->model, kept_how(p, l->drop)) * patches * st->in_flight;
    }
    double row = p->profile->weight * h / l->g.tp; /* one token's residual */
    out[MEM_ACT] += (kept / l->g.tp + (stage == 0 ? row : 0)) * tokens * st->in_flight;
    largest *= tokens / l->g.tp;
    out[MEM_WORK] = fmax(GRAD_WORK * largest, p->profile->one_copy && !p->cluster.gpu.is_cpu ? GPU_SCRATCH : 0)
                    + (l->drop & DROP_ALL ? largest : 0);
    if (stage == l->g.pp - 1) {
        double v = (double)s->model->d.vocab;
        out[MEM_HEAD] = l->fused_head ? tokens * h * 6 / l->g.tp + HEAD_TILES : tokens * v / l->g.tp * 10;
        out[MEM_HEAD] += row * tokens;
    }
}

/* The engine's cut of the weights; one engine is max(gen_tp, gen_ep) GPUs. */
static double engine_weights(const Plan *p) {
    const Layout *l = &p->layout;
    double experts = p->sum->before[p->sum->layers].experts;
    return p->profile->weight * ((p->sum->total - experts) / l->gen_tp + experts / layout_engine(l));
}

/* Beside the arenas.  Of this program: the driver's context with its kernels, the communicator of all with its links
 * (assumed), and buffers of each peer and channel of the machine's (comm/nccl.h; NCCL itself takes 32 where one machine
 * is all there is); not less than the profile says. */
static double runtime_of(const Plan *p) {
    const double context = 0.8e9, all = 0.6e9, channel = 9.4e6;
    const Machine *g = &p->cluster.gpu;
    if (!p->profile->one_copy || g->is_cpu || p->cluster.gpus == 1) return p->profile->runtime;
    int ranks = g->per_node < p->cluster.gpus ? g->per_node : p->cluster.gpus;
    int channels = cluster_nodes(&p->cluster) > 1 ? NCCL_NODE_CHANNELS : 32;
    return fmax(p->profile->runtime, context + all + (ranks - 1) * channels * channel);
}

static void stage_phases(Plan *p, int i) {
    const Layout *l = &p->layout;
    const Profile *f = p->profile;
    StagePlan *st = &p->stage[i];
    double weights = f->weight * (st->dense + st->expert),
           states = f->optimizer * (1 - l->offload) * (st->dense / (l->g.dp * l->g.cp) + st->expert / grid_edp(&l->g));
    double *up = st->bytes[PH_UPDATE], *roll = st->bytes[PH_ROLLOUT], *sync = st->bytes[PH_SYNC];
    up[MEM_WEIGHTS] = weights;
    up[MEM_GRADS] = f->grad * (st->dense + st->expert);
    up[MEM_OPTIM] = states;
    up[MEM_BUFFERS] = f->one_copy && l->g.dp * l->g.cp > 1 ? SYNC_BUFFER : 0;
    roll[MEM_WEIGHTS] = plan_shares(p) || l->park_weights ? 0 : weights;
    roll[MEM_OPTIM] = l->park_states ? 0 : states;
    roll[MEM_ENGINE] = p->engine_weights;
    roll[MEM_WORK] = f->gen_work;
    sync[MEM_WEIGHTS] = plan_shares(p) ? 0 : weights;
    sync[MEM_OPTIM] = l->park_states ? 0 : states;
    sync[MEM_ENGINE] = p->engine_weights;
    sync[MEM_BUFFERS] = plan_shares(p) || !f->one_copy ? 0 : SYNC_BUFFER;
    for (int ph = 0; ph < PH_COUNT; ph++)
        if (phase_has_memory(ph)) st->bytes[ph][MEM_RUNTIME] = runtime_of(p);
}

static double total_of(const double *bytes) {
    double t = 0;
    for (int k = 0; k < MEM_COUNT; k++) t += bytes[k];
    return t;
}

static double round_pow2(double x) { return x > 1 ? exp2(ceil(log2(ceil(x)))) : 1; }

/* One rank's share of the host.  pinned_pow2: as torch and verl spend it (docs/plan.md, "Host memory"). */
static void host_rank(const Plan *p, const StagePlan *st, double *out) {
    const Layout *l = &p->layout;
    const Profile *f = p->profile;
    const Dims *d = &p->sum->model->d;
    double e = st->expert / grid_edp(&l->g), n = st->dense / (l->g.dp * l->g.cp), all = st->dense + st->expert;
    double ce = e * l->offload, cn = n * l->offload;
    out[HOST_OPTIM] = f->optimizer * (ce + cn);
    out[HOST_OFFLOADED] = l->park_states ? f->optimizer * (e + n - ce - cn) : 0;
    out[HOST_REF] = p->work.kl ? f->weight * all : 0;
    out[HOST_SAVE] = f->one_copy && p->saves.whole ? (4 + 2 * p->saves.average) * (e + n) : 0;
    if (!f->pinned_pow2) {
        out[HOST_WEIGHTS] = l->park_weights && !plan_shares(p) ? f->weight * all : 0;
        return;
    }
    double per = (4 + 2) * 1.25; /* float32 and bfloat16 copies; a power of two is 1.25 times too large on average */
    if (st->expert > 0) {
        double up = 2 * (double)(d->expert_ffn * d->hidden), down = up / 2, share = 1.0 / (grid_edp(&l->g) * l->g.etp);
        double f32 = round_pow2(4 * up * share) + round_pow2(4 * down * share),
               b16 = round_pow2(2 * up * share) + round_pow2(2 * down * share);
        double reuse = round_pow2(2 * up * share) == round_pow2(4 * down * share) ? round_pow2(2 * up * share) : 0;
        per = (f32 + b16 - reuse) / ((up + down) * share);
    }
    out[HOST_GRADS] = per * ce + 6.5 * cn; /* small dense tensors waste less: 6 B and their rounding */
    if (l->park_weights)
        out[HOST_WEIGHTS] = 2 * (st->expert > 0 ? round_pow2(2 * st->expert) : 0) + 2 * round_pow2(2 * st->dense);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void plan_host(Plan *p) {
    const Layout *l = &p->layout;
    int node = p->cluster.gpu.per_node, ranks_per_stage = l->g.tp * l->g.dp * l->g.cp;
    if (node > p->cluster.gpus) node = p->cluster.gpus;
    int span = ranks_per_stage >= node ? 1 : node / ranks_per_stage, n = 0;
    double nodes[MAX_STAGES], sum = 0;
    p->host_worst = 0;
    for (int i = 0; i < l->g.pp; i += span, n++) {
        double kinds[HOST_COUNT] = { [HOST_BASE] = p->profile->host_base * node / 8 }, total = 0;
        if (p->cluster.gpu.is_cpu) kinds[HOST_BASE] = CPU_PROCESS;
        for (int k = 0; k < span; k++) {
            double rank[HOST_COUNT] = { 0 };
            host_rank(p, &p->stage[i + k < l->g.pp ? i + k : l->g.pp - 1], rank);
            for (int j = 0; j < HOST_COUNT; j++) kinds[j] += rank[j] * node / span;
        }
        for (int j = 0; j < HOST_COUNT; j++) total += kinds[j];
        nodes[n] = total;
        sum += total;
        if (total > p->host_worst) {
            p->host_worst = total;
            memcpy(p->host, kinds, sizeof kinds);
        }
    }
    p->host_mean = sum / n;
    qsort(nodes, (size_t)n, sizeof *nodes, by_size);
    p->host_typical = nodes[n / 2];
}

/* What the engine may still use for its cache.  A stack that gives the engine a share of the card counts the runtime
 * outside it; hone gives it whatever the phase leaves. */
static void plan_kv(Plan *p) {
    const Layout *l = &p->layout;
    double room = 0;
    int groups = l->gen_ep > l->gen_tp ? l->gen_ep / l->gen_tp : 1; /* attention replicas inside an engine */
    p->kv_per_token = sum_kv_bytes(p->sum, l->gen_tp, p->profile->kv);
    p->engines = (double)p->cluster.gpus / layout_engine(l);
    for (int i = 0; i < p->stages; i++) {
        double taken = total_of(p->stage[i].bytes[PH_ROLLOUT]) - (p->profile->one_copy ? 0 : p->profile->runtime);
        double left = l->gen_use * p->cluster.gpu.memory - taken;
        room = i == 0 ? left : fmin(room, left);
    }
    p->kv_pool = fmax(0, room);
    p->kv_tokens = p->kv_pool / p->kv_per_token * groups;
    for (int i = 0; i < p->stages; i++) p->stage[i].bytes[PH_ROLLOUT][MEM_KV] = p->kv_pool;
}

static void plan_verdict(Plan *p) {
    double memory = p->cluster.gpu.memory, longest = p->work.prompt_max + p->work.max;
    p->verdict[0] = 0;
    p->fits = false;
    for (int ph = 0; ph < PH_COUNT; ph++) {
        if (!phase_has_memory(ph)) continue;
        double over = p->stage[p->worst[ph]].total[ph] - memory;
        if (over <= 0) continue;
        snprintf(p->verdict, sizeof p->verdict, "%s needs %.1f GB on a rank of stage %d, %s has %.1f: short by %.1f GB",
                 PHASE_NAMES[ph], (over + memory) / 1e9, p->worst[ph], p->cluster.gpu.name, memory / 1e9, over / 1e9);
        return;
    }
    if (p->kv_tokens < longest) {
        snprintf(p->verdict, sizeof p->verdict,
                 "the key-value cache holds %.0f tokens an engine, one sequence may need %.0f: short by %.2f GB a GPU",
                 p->kv_tokens, longest, (longest - p->kv_tokens) * p->kv_per_token / 1e9);
        return;
    }
    /* a CPU's device is its host: what both hold comes out of the same memory */
    double host = p->host_worst + (p->cluster.gpu.is_cpu ? p->stage[p->worst[PH_UPDATE]].total[PH_UPDATE] : 0);
    if (host > p->cluster.gpu.host_memory) {
        snprintf(p->verdict, sizeof p->verdict,
                 "host memory: the fullest node needs %.0f GB and has %.0f: short by %.0f GB", host / 1e9,
                 p->cluster.gpu.host_memory / 1e9, (host - p->cluster.gpu.host_memory) / 1e9);
        return;
    }
    p->fits = true;
}

void plan_memory(Plan *p) {
    const Layout *l = &p->layout;
    const Workload *w = &p->work;
    double mean = w->prompt_mean + w->mean, mini = fmin(work_mini(w), w->prompts);
    p->mini_batches = fmax(1, round(w->prompts / mini)) * work_epochs(w);
    p->tokens = w->prompts * w->answers * mean;
    p->micro_batches = fmax(1, nearbyint(mini * w->answers * mean / l->g.dp / (l->micro_tokens * l->g.cp)) + 1);
    if (l->g.vpp > 1)
        p->micro_batches = ceil(p->micro_batches / l->g.pp) * l->g.pp; /* interleaving takes them in runs of pp */
    p->engine_weights = engine_weights(p);
    stage_params(p);
    for (int i = 0; i < p->stages; i++) {
        stage_activations(p, i, p->stage[i].bytes[PH_UPDATE]);
        stage_phases(p, i);
    }
    plan_kv(p);
    for (int ph = 0; ph < PH_COUNT; ph++)
        for (int i = 0; i < p->stages; i++) {
            p->stage[i].total[ph] = total_of(p->stage[i].bytes[ph]);
            if (i == 0 || p->stage[i].total[ph] > p->stage[p->worst[ph]].total[ph]) p->worst[ph] = i;
        }
    plan_host(p);
    plan_verdict(p);
}
