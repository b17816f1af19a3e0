/* local.c - what a step takes on this machine: a slice of the model timed, the whole put together from it. */
#include "cmd/local.h"

#include "base/clock.h"
#include "config/config.h"
#include "sync/sync.h"

#include <math.h>
#include <string.h>

/* As many bytes a parameter as the plan counts. */
static OptimTypes states_of(const Profile *f) {
    static const OptimTypes some[] = { { DT_F32, DT_F32, DT_F32 },   { DT_F32, DT_F32, DT_BF16 },
                                       { DT_BF16, DT_F32, DT_F32 },  { DT_BF16, DT_F32, DT_BF16 },
                                       { DT_BF16, DT_I16, DT_BF16 }, { DT_BF16, DT_I16, DT_F32 } };
    for (size_t i = 0; i < COUNT(some); i++)
        if ((double)dtype_size(some[i].weights) == f->weight && (double)optim_param_bytes(some[i]) == f->optimizer)
            return some[i];
    return some[0];
}

LocalWork local_work(const Plan *p, int threads) {
    const Workload *w = &p->work;
    int64_t len = (int64_t)(w->prompt_max + w->max), answers = (int64_t)(w->prompts * w->answers);
    int64_t batch = answers < 256 ? answers : 256, page = 16, rows = batch > 512 ? batch : 512;
    if (rows > answers * len) rows = answers * len;
    double mini = w->mini > 0 ? w->mini : w->prompts;
    int ranks = p->cluster.gpus, each_has = threads / ranks > 0 ? threads / ranks : 1;
    LocalWork out = { .threads = each_has,
                      .slow = fmax(1, (double)ranks * each_has / threads),
                      .work = *w,
                      .save_buffer = CHECKPOINT_BUFFER,
                      .now = clock_now };
    const ModelDesc *m = p->sum->model;
    const Layout *l = &p->layout;
    Err err;
    GridShape g = { .tp = l->gen_tp, .ep = l->gen_ep, .etp = m->d.experts && l->gen_ep == 1 ? l->gen_tp : 1 };
    if (!grid_fill(&g, m, ranks, NULL, 0, &err)) g = l->g; /* the configuration will be refused, with the reason */
    out.shard = (Shard){ l->g, grid_at(&l->g, 0) }, out.sampler = (Shard){ g, grid_at(&g, 0) };
    out.engine = engine_conf(batch, len, rows, page);
    out.engine.sched.max_rows = (int)rows; /* no more than all tokens there are */
    out.policy = (PolicyConf){ .micro_tokens = (int64_t)p->layout.micro_tokens,
                               .max_seqs = (int)(mini * w->answers),
                               .states = states_of(p->profile),
                               .offload = p->layout.offload,
                               .park_states = p->layout.park_states,
                               .park_weights = p->layout.park_weights,
                               .trained.recompute = recompute_of(p->layout.drop),
                               .trains = true };
    ImageStats images = { .feats = (int64_t)(ceil(w->images.n) * w->images.tokens),
                          .patches = (int64_t)w->images.h * w->images.w,
                          .share = w->images.n * w->images.tokens / w->prompt_mean };
    out.policy.pictures = image_stats_micro(&images, out.policy.micro_tokens, &m->d);
    out.engine.feats = (int)(images.feats * (w->prompts < 32 ? (int64_t)w->prompts : 32)),
    out.engine.patches = images.patches;
    out.pixels = image_stats_pixels(&images, &m->d);
    return out;
}

bool local_possible(const ModelDesc *m, const Plan *p, Err *err) {
    double answers = p->work.prompts * p->work.answers;
    int64_t most = model_desc_most_tokens(m);
    if (answers > MOST_ANSWERS)
        return err_set(err, "%.0f answers a step; a run has at most %d (--prompts, --answers)", answers, MOST_ANSWERS);
    if (p->layout.micro_tokens > (double)most)
        return err_set(err,
                       "micro-batches of %.0f tokens; this model computes at most %lld at once (--micro-tokens, --max)",
                       p->layout.micro_tokens, (long long)most);
    return true;
}

/* Of the folder that a run would begin from. */
static size_t carried_bytes(const ModelDesc *m) {
    Mem mem = { 0 };
    Carried c = { 0 };
    Err none; /* a run says what is wrong with it */
    size_t bytes = m->dir && params_carry(&c, m->dir, m->dir, NULL, &mem, &none) ? c.bytes : 0;
    mem_free(&mem);
    return bytes;
}

int local_needs(const ModelDesc *m, const LocalWork *w, Need out[MOST_NEEDS]) {
    int ranks = grid_ranks(&w->shard.g);
    World dry = world_dry(0, ranks);
    dry.local_size = ranks;
    RunShape s = { .m = m,
                   .shard = &w->shard,
                   .sampler = &w->sampler,
                   .sync_buffer = sync_buffer_bytes(m, &w->shard.g, &w->sampler.g, DT_F32, &dry, SYNC_BUFFER),
                   .like = dev_kind_cpu(),
                   .threads = w->threads,
                   .policy = w->policy,
                   .reference = w->policy,
                   .has_reference = w->work.kl,
                   .reference_dtype = w->policy.states.weights, /* that of the files is not known here */
                   .rolls = true,
                   .engine = w->engine,
                   .questions = (int)w->work.prompts,
                   .answers = (int)w->work.answers,
                   .max_prompt = (int)w->work.prompt_max,
                   .max_answer = (int)w->work.max,
                   .pixels = w->pixels,
                   .save_buffer = w->save_buffer,
                   .carried = carried_bytes(m) };
    s.engine.shard = &w->sampler;
    s.reference.trains = false;
    s.reference.max_seqs = (int)(w->work.prompts * w->work.answers);
    return run_needs(out, &s);
}

/* ---- One slice --------------------------------------------------------------------------------------------------- */

typedef struct {
    double train, score, few, many, adam;
} SliceCost;

typedef struct {
    Mem mem;
    Dev dev;
    ModelDesc desc;
    Model model;
} Small;

static ModelDesc slice_of(const ModelDesc *m, int n, const int *which) {
    ModelDesc s = *m;
    s.d.layers = n;
    for (int i = 0; i < n; i++) s.d.layer[i] = m->d.layer[which[i]];
    return s;
}

static int64_t sequence_length(const LocalWork *w, int64_t micro) {
    int64_t len = (int64_t)llround(w->work.prompt_mean + w->work.mean);
    return len < 2 ? 2 : len > micro ? micro : len;
}

static int32_t *some_tokens(int64_t n, int64_t vocab, uint32_t salt, Mem *mem) {
    int32_t *t = MEM_ARRAY(mem, int32_t, (size_t)n);
    for (int64_t i = 0; i < n; i++) t[i] = (int32_t)((uint64_t)(i * 2654435761u + salt * 40503u) % (uint64_t)vocab);
    return t;
}

/* The least: whatever else the machine does only ever adds. */
static double least(const double *x, int n) {
    double m = x[0];
    for (int i = 1; i < n; i++) m = fmin(m, x[i]);
    return m;
}

/* A full micro-batch, three times; and AdamW on what the slice has. */
static bool time_training(Small *s, const LocalWork *w, const PolicyConf *pc, SliceCost *out, Err *err) {
    Policy p;
    int64_t len = sequence_length(w, pc->micro_tokens), n = pc->max_seqs, prompt = (int64_t)w->work.prompt_mean;
    if (prompt < 1) prompt = 1;
    if (prompt >= len) prompt = len - 1;
    TrainSeq *q = MEM_ARRAY(&s->mem, TrainSeq, (size_t)n);
    float *zeros = MEM_ARRAY(&s->mem, float, (size_t)len), *ones = MEM_ARRAY(&s->mem, float, (size_t)len);
    float **lp = MEM_ARRAY(&s->mem, float *, (size_t)n);
    for (int64_t i = 0; i < len; i++) ones[i] = 1; /* advantages of 0 would cost no backward */
    for (int64_t i = 0; i < n; i++) {
        q[i] = (TrainSeq){ .tokens = some_tokens(len, s->desc.d.vocab, (uint32_t)i, &s->mem),
                           .n = (int)len,
                           .prompt = (int)prompt,
                           .draw = DRAW_PLAIN,
                           .old = zeros,
                           .adv = ones };
        lp[i] = MEM_ARRAY(&s->mem, float, (size_t)len);
    }
    policy_open(&p, &s->model, pc, &s->mem);
    LossConf loss = { .agg = AGG_TOKEN_MEAN, .clip_low = 0.2, .clip_high = 0.2, .clip_c = 3 };
    AdamConf adam = { .lr = 1e-9, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1 };
    UpdateStats stats;
    double train[3], score[3], step[3], tokens = (double)(n * len);
    bool ok = true;
    for (int k = -1; ok && k < 3; k++) { /* the first warms up */
        double t0 = w->now();
        ok = policy_update(&p, q, (int)n, &loss, &adam, true, &stats, err);
        double t1 = w->now();
        ok = ok && policy_logprob(&p, q, (int)n, lp, NULL, err);
        double t2 = w->now();
        optim_step(&p.opt, &s->model.w, &p.grads, &s->model.par, &s->dev, &adam,
                   reduce_norm(&p.grads, &s->model.par, &s->dev));
        double t3 = w->now();
        if (k >= 0)
            train[k] = (t1 - t0) / tokens, score[k] = (t2 - t1) / tokens,
            step[k] = (t3 - t2) / (double)p.grads.flat.cols;
    }
    policy_close(&p);
    if (ok) out->train = least(train, 3), out->score = least(score, 3), out->adam = least(step, 3);
    return ok;
}

enum { DECODE_STEPS = 24 };
typedef struct {
    Request *at;
    int n, next, batch, n_steps;
    double last, steps[2 * DECODE_STEPS];
    double (*now)(void);
} Feeding;

static bool feed_next(void *user, Request *out) {
    Feeding *f = user;
    if (f->next == f->n) return false;
    *out = f->at[f->next++];
    return true;
}
static void feed_answer(void *user, const Answer *a) { (void)user, (void)a; }
static bool feed_tick(void *user, int64_t tokens, int running) {
    Feeding *f = user;
    double now = f->now();
    (void)tokens;
    if (running == f->batch && f->last > 0 && f->n_steps < (int)COUNT(f->steps)) f->steps[f->n_steps++] = now - f->last;
    f->last = now;
    return true;
}

/* A decode step with this many sequences, at the context they have half way. */
static double time_decoding(Small *s, const LocalWork *w, int batch) {
    int len = (int)fmax(1, w->work.prompt_mean + w->work.mean / 2 - DECODE_STEPS / 2);
    Mem mem = { 0 };
    SampleOpts o = { .draw = DRAW_PLAIN, .ignore_eos = true, .max_tokens = DECODE_STEPS };
    Feeding f = { .at = MEM_ARRAY(&mem, Request, (size_t)batch), .n = batch, .batch = batch, .now = w->now };
    for (int i = 0; i < batch; i++)
        f.at[i] = (Request){ .tokens = some_tokens(len, s->desc.d.vocab, (uint32_t)i + 7, &mem),
                             .n = len,
                             .samples = 1,
                             .key = (uint64_t)i,
                             .opts = &o };
    int page = w->engine.sched.page;
    EngineConf c = engine_conf(batch, len + DECODE_STEPS + 1, 256, page);
    Engine *e = engine_open(&s->model, &c, &mem);
    engine_run(e, &(Feed){ .next = feed_next, .answer = feed_answer, .tick = feed_tick, .user = &f, .seed = 1 });
    engine_close(e);
    mem_free(&mem);
    int skip = f.n_steps > 4 ? 2 : 0; /* steps that still prefill */
    return f.n_steps > skip ? least(f.steps + skip, f.n_steps - skip) : 0;
}

static size_t scratch_of(const ModelDesc *m, const LocalWork *w, const PolicyConf *pc, int batch) {
    int len = (int)(w->work.prompt_mean + w->work.mean) + DECODE_STEPS + 2;
    EngineConf c = engine_conf(batch, len, 256, w->engine.sched.page);
    size_t a = engine_tmp_bytes(m, &c, dev_kind_cpu()), b = policy_sizes(m, NULL, pc, dev_kind_cpu()).tmp;
    return a > b ? a : b;
}

static bool time_slice(const ModelDesc *desc, const LocalWork *w, int few, int many, SliceCost *out, Err *err) {
    Mem mem = { 0 };
    Small *s = MEM_NEW(&mem, Small);
    s->desc = *desc;
    PolicyConf pc = w->policy;
    pc.room = 0; /* memory of its own, that nobody shares */
    double all = w->work.answers * (w->work.mini > 0 ? w->work.mini : w->work.prompts);
    if (pc.micro_tokens > 1024) pc.micro_tokens = 1024;
    int64_t len = sequence_length(w, pc.micro_tokens), n = pc.micro_tokens / len;
    if ((double)n > all) n = (int64_t)all;
    pc.max_seqs = (int)(n < 1 ? 1 : n);
    dev_open(&s->dev, (DevOpts){ .threads = w->threads });
    s->dev.tmp = dev_arena(&s->dev, "scratch", scratch_of(desc, w, &pc, many));
    model_open(&s->model, &s->dev, &s->desc, DT_F32, 8, &s->mem);
    params_random(&s->model.w, &s->dev, 1);
    bool ok = time_training(s, w, &pc, out, err);
    if (ok) out->few = time_decoding(s, w, few), out->many = few == many ? out->few : time_decoding(s, w, many);
    model_close(&s->model);
    dev_close(&s->dev);
    mem_free(&s->mem);
    mem_free(&mem);
    return ok;
}

/* ---- The whole from its slices ----------------------------------------------------------------------------------- */

static double whole(double one, double two, double mixed, int same, int other) {
    double layer = fmax(0, two - one), odd = fmax(0, mixed - one);
    return one + layer * (same - 1) + odd * other;
}

/* A small model is timed whole; of a larger one, one layer, two, and one of the other kind
 * where there are two kinds. */
static bool time_whole(const ModelDesc *m, const LocalWork *w, int few, int many, SliceCost *out, Err *err) {
    enum { SMALL = 60 * 1000 * 1000 };
    if (arch_param_count(m) <= SMALL) return time_slice(m, w, few, many, out, err);
    int layers = (int)m->d.layers, last = layers - 1, other = -1, same = 0;
    for (int i = 0; i < layers; i++) {
        if (!memcmp(&m->d.layer[i], &m->d.layer[last], sizeof m->d.layer[i])) same++;
        else other = i;
    }
    ModelDesc a = slice_of(m, 1, (int[]){ last }), b = slice_of(m, 2, (int[]){ last, last });
    ModelDesc c = slice_of(m, 2, (int[]){ last, other < 0 ? last : other });
    SliceCost one, two, mixed;
    TRY(time_slice(&a, w, few, many, &one, err) && time_slice(&b, w, few, many, &two, err));
    mixed = one;
    if (other >= 0) TRY(time_slice(&c, w, few, many, &mixed, err));
    int odd = layers - same;
    *out =
        (SliceCost){ whole(one.train, two.train, mixed.train, same, odd),
                     whole(one.score, two.score, mixed.score, same, odd), whole(one.few, two.few, mixed.few, same, odd),
                     whole(one.many, two.many, mixed.many, same, odd), two.adam };
    return true;
}

bool local_measure(const ModelDesc *m, const LocalWork *w, LocalRates *out, Err *err) {
    double t0 = clock_now();
    int many = w->engine.sched.max_batch, few = many > 4 ? many / 4 : 1;
    SliceCost s;
    TRY(time_whole(m, w, few, many, &s, err));
    *out = (LocalRates){ .train = s.train, .score = s.score, .adam = s.adam };
    out->row = many > few ? fmax((s.many - s.few) / (many - few), 0.02 * s.many / many) : s.many / many;
    out->fixed = fmax(0, s.many - out->row * many);
    out->took = clock_now() - t0;
    return true;
}

/* The work, and what moves between ranks. */
static void measured(PhasePlan *ph, Bound b, double seconds) {
    double moves = ph->part[BY_NETWORK];
    *ph = (PhasePlan){ .seconds = seconds + moves, .bound = seconds > moves ? b : BY_NETWORK };
    ph->part[b] = seconds, ph->part[BY_NETWORK] = moves;
}

/* Rates are those of a rank's threads with the whole model; a rank has its share of the work, and of the cores. */
void local_apply(Plan *p, const LocalWork *w, const LocalRates *r) {
    const Layout *l = &p->layout;
    double epochs = work_epochs(&p->work), share = w->slow / p->cluster.gpus, engine = w->slow / layout_engine(l);
    double bubble = p->micro_batches > 0 ? (p->micro_batches + l->g.pp - 1) / p->micro_batches : 1;
    p->measured.fixed = r->fixed * engine, p->measured.row = r->row * engine;
    plan_rollout(p);
    double prefill = p->work.prompts * p->work.prompt_mean * r->score * share;
    p->phase[PH_ROLLOUT].part[BY_COMPUTE] += prefill;
    measured(&p->phase[PH_UPDATE], BY_COMPUTE, p->tokens * epochs * r->train * share * bubble);
    measured(&p->phase[PH_REF], BY_COMPUTE, p->work.kl ? p->tokens * r->score * share * bubble : 0);
    measured(&p->phase[PH_OPTIMIZER], BY_MEMORY, p->mini_batches * p->sum->total * r->adam * share);
    measured(&p->phase[PH_SYNC], BY_MEMORY, 0);
    plan_total(p);
}
