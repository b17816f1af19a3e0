/* test_ranks_train.c - training over ranks beside training on one: log-probs of the first step by memcmp, gradients to
 * rounding, weights after ten updates; the same grid twice, and any share of the states on the host, by memcmp.  Starts
 * itself under mpirun.  --all: 38 grids of models of all families with enough of everything for 8 ranks, half of them
 * with a KL to a reference model, and drawn models on drawn grids (--all K/N: a part of them). */
#include "drawn.h"
#include "train/ranks_fixture.h"

#include <math.h>

enum { SEQS = 13, STEPS = 10 };
static const AdamConf ADAM = { 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 0 };
static LossConf loss_with(double kl) {
    return (LossConf){ .kind = LOSS_VANILLA,
                       .agg = AGG_TOKEN_MEAN,
                       .clip_low = 0.2,
                       .clip_high = 0.28,
                       .clip_c = 3,
                       .entropy_coef = 0.01,
                       .kl_coef = kl,
                       .kl_kind = KL_K3 };
}

/* What is learned: sequences of these lengths, and one of them alone. */
typedef struct {
    int n, length[SEQS], alone;
    int64_t micro;
    Recompute recompute;
    double kl;  /* to a reference model, which is cut alike */
    bool drawn; /* so short that some gradients are rounding alone (q of a token that sees
                * itself only), which AdamW makes whole steps of */
    OptimTypes states;
} Task;
static const Task usual = { SEQS, { 20, 35, 96, 64, 9, 3, 41, 20, 35, 96, 64, 9, 3 }, 2, 96, RECOMPUTE_NONE, 0, false };
static int prompt_of(const Task *t, int i) { return 1 + i % 3 % t->length[i]; }

/* What a life of ten updates leaves, laid out as the whole model: trainable weights, and the first gradient. */
typedef struct {
    float *lp[SEQS], *ent[SEQS], *grad, *weight;
    double loss[STEPS], norm[STEPS];
    double most_diff, spread;  /* of the first comparison */
    double few_loss, few_norm; /* of one sequence alone: most ranks have nothing to compute */
    int64_t compared, n;
    size_t states;
} Life;

static void sequences(const Ranks *r, const Task *t, TrainSeq *seq, Life *l, Mem *mem) {
    for (int i = 0; i < t->n; i++) {
        int n = t->length[i], prompt = prompt_of(t, i);
        int32_t *tok = MEM_ARRAY(mem, int32_t, (size_t)n);
        float *adv = MEM_ARRAY(mem, float, (size_t)n);
        for (int k = 0; k < n; k++) {
            tok[k] = (int32_t)(rng_u64(11, RNG_PLAN, 0, 0, (uint32_t)i, (uint32_t)k) % (uint64_t)r->desc.d.vocab);
            adv[k] = (float)(i % 5 - 2) * 0.7f + 0.1f; /* none is 0: an entropy bonus moves silent ones anyway */
        }
        l->lp[i] = MEM_ARRAY(mem, float, (size_t)n), l->ent[i] = MEM_ARRAY(mem, float, (size_t)n);
        seq[i] = (TrainSeq){
            .tokens = tok, .n = n, .prompt = prompt, .draw = { i % 2 ? 0.8f : 1, 1, 0, 0 }, .old = l->lp[i], .adv = adv
        };
    }
}

/* A shard's rows, summed up over ranks where each has its own: the whole model. */
static float *whole_of(const Ranks *r, const World *w, Dev *d, const Params *x, const Params *whole, Mem *mem) {
    int64_t n = whole->flat.cols;
    float *flat = MEM_ARRAY(mem, float, (size_t)n), *mine = MEM_ARRAY(mem, float, (size_t)n),
          *all = MEM_ARRAY(mem, float, (size_t)(n * w->all.size));
    for (int64_t i = 0; i < n; i++) mine[i] = NAN;
    for (int i = 0; i < x->n; i++) {
        const Param *p = &x->at[i];
        int k = whole->index[p->layer][p->desc->id];
        if (k < 0) continue;
        weights_get(d, tensor_shape(p->t, 1, p->t.rows * p->t.cols), flat);
        for (int64_t e = 0; e < p->t.rows * p->t.cols; e++)
            mine[params_from(whole, k) + element_of(&r->desc, p, e)] = flat[e];
    }
    comm_gather_host(&w->all, all, mine, (size_t)n * 4);
    int64_t apart = 0;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < w->all.size; k++) {
            float v = all[k * n + i];
            if (isnan(v)) continue;
            apart += !isnan(mine[i]) && memcmp(&mine[i], &v, 4);
            mine[i] = v;
        }
    EXPECT(!apart, "%lld copies of weights or gradients differ between ranks", (long long)apart);
    return mine;
}

/* Log-probs by a model of other weights, which has the same share. */
static void refer(const Ranks *r, const Task *t, Dev *d, TrainSeq *seq, Mem *mem) {
    Model m;
    Policy p;
    Err err;
    PolicyConf c = { .micro_tokens = t->micro, .max_seqs = SEQS };
    float *ref[SEQS];
    for (int i = 0; i < t->n; i++) seq[i].ref = ref[i] = MEM_ARRAY(mem, float, (size_t)t->length[i]);
    model_open_shard(&m, d, &r->desc, &r->shard, &r->par, DT_F32, 8, mem);
    params_random(&m.w, d, 8);
    policy_open(&p, &m, &c, mem);
    EXPECT(policy_logprob(&p, seq, t->n, ref, NULL, &err), "%s", err.msg);
    policy_close(&p);
    model_close(&m);
}

static Life live(const Ranks *r, const World *w, const Task *t, double offload, Mem *mem) {
    Life l = { 0 };
    Dev d;
    Model m;
    Policy p;
    Params whole;
    Err err = { "" };
    TrainSeq seq[SEQS];
    LossConf loss = loss_with(t->kl);
    PolicyConf c = { .micro_tokens = t->micro,
                     .max_seqs = SEQS,
                     .states = t->states,
                     .offload = offload,
                     .trained.recompute = t->recompute,
                     .trains = true };
    PolicySizes plan = policy_sizes(&r->desc, &r->shard, &c, dev_kind_cpu());
    dev_open(&d, (DevOpts){ .threads = 1 });
    d.tmp = dev_arena(&d, "tmp", plan.tmp);
    model_open_shard(&m, &d, &r->desc, &r->shard, &r->par, t->states.weights, 8, mem);
    params_random(&m.w, &d, 7);
    policy_open(&p, &m, &c, mem);
    params_open(&whole, &r->desc, NULL, &d, DT_F32, true, "names", mem);
    sequences(r, t, seq, &l, mem);
    if (t->kl != 0) refer(r, t, &d, seq, mem);
    bool ok = policy_logprob(&p, seq, t->n, l.lp, l.ent, &err);
    Exact exact = { 0 };
    ok = ok && policy_compare(&p, seq, t->n, &exact, &err);
    l.compared = exact.tokens, l.most_diff = exact.max_diff, l.n = whole.flat.cols;
    l.states = p.opt.dev.size + p.opt.host.size;
    UpdateStats st;
    const TrainSeq *few = &seq[t->alone];
    ok = ok && policy_compare(&p, few, 1, &exact, &err) && policy_update(&p, few, 1, &loss, &ADAM, true, &st, &err);
    l.few_loss = st.total, l.few_norm = st.grad_norm;
    EXPECT(exact.tokens == l.compared + few->n - few->prompt && exact.max_diff == 0, "one sequence alone: apart by %g",
           exact.max_diff);
    ok = ok && policy_update(&p, seq, t->n, &loss, &ADAM, true, &st, &err);
    l.spread = st.spread;
    reduce_gather(&p.grads, &p.grads, &m.par, &d);
    l.grad = whole_of(r, w, &d, &p.grads, &whole, mem);
    for (int i = 0; ok && i < STEPS; i++) {
        ok = policy_update(&p, seq, t->n, &loss, &ADAM, false, &st, &err) && st.stepped;
        l.loss[i] = st.total, l.norm[i] = st.grad_norm;
    }
    EXPECT(ok, "%s", err.msg);
    l.weight = whole_of(r, w, &d, &m.w, &whole, mem);
    EXPECT(plan.optim_dev + plan.optim_host == l.states && plan.grads == p.grads.arena.size && p.act.size == plan.act
               && d.tmp.peak <= plan.tmp,
           "memory is not what was planned");
    policy_close(&p);
    params_close(&whole, &d);
    model_close(&m);
    dev_close(&d);
    return l;
}

/* Rounded weights may fall to either side, and so may moments at other places in memory: then
 * only the first step is close. */
static void beside_one(const char *what, const Ranks *r, const Task *t, const Life *one, const Life *cut,
                       const Params *whole) {
    for (int i = 0; i < t->n; i++) {
        size_t bytes = (size_t)(t->length[i] - prompt_of(t, i)) * 4;
        EXPECT(!memcmp(one->lp[i], cut->lp[i], bytes) && !memcmp(one->ent[i], cut->ent[i], bytes),
               "%s: log-probs of sequence %d are not those of one rank", what, i);
    }
    EXPECT(cut->most_diff == 0 && cut->compared == one->compared, "%s: %lld tokens compared, apart by %g", what,
           (long long)cut->compared, cut->most_diff);
    EXPECT(fabs(cut->few_loss - one->few_loss) < 1e-6 && fabs(cut->few_norm / one->few_norm - 1) < 1e-5,
           "%s: one sequence alone: loss %g and norm %g, on one rank %g and %g", what, cut->few_loss, cut->few_norm,
           one->few_loss, one->few_norm);
    int64_t off = 0, far = 0, count = 0;
    bool coarse = t->states.weights != DT_F32 || t->states.moments != DT_F32, loose = t->drawn || coarse;
    double largest = 0;
    for (int64_t e = 0; t->drawn && e < whole->flat.cols; e++) largest = fmax(largest, fabs((double)one->grad[e]));
    for (int i = 0; i < whole->n; i++) {
        const Param *p = &whole->at[i];
        double most = fmax(1e-30, 0.1 * largest), bad = 0;
        for (int64_t e = params_from(whole, i); e < params_from(whole, i) + p->t.rows * p->t.cols; e++) {
            most = fmax(most, fabs((double)one->grad[e]));
            bad = fmax(bad, fabs((double)one->grad[e] - (double)cut->grad[e]));
            double moved = fabs((double)one->weight[e] - (double)cut->weight[e]);
            off += !(moved <= 1e-5), count++;
            far += !(moved <= 2 * ADAM.lr * STEPS + (coarse ? 0x1p-7 * fabs((double)one->weight[e]) : 0));
        }
        EXPECT(bad <= 2e-5 * most, "%s: gradient of %s, layer %d: %.2e of its largest entry", what, p->desc->name,
               p->layer, bad / most);
    }
    EXPECT((loose || (double)off <= 1e-3 * (double)count) && !far,
           "%s: %lld of %lld weights are off by 1e-5, %lld by 2 lr steps", what, (long long)off, (long long)count,
           (long long)far);
    for (int i = 0; i < (loose ? 1 : STEPS); i++)
        EXPECT(fabs(cut->loss[i] - one->loss[i]) < 1e-4 && fabs(cut->norm[i] / one->norm[i] - 1) < 1e-3,
               "%s: update %d: loss %g and norm %g, on one rank %g and %g", what, i, cut->loss[i], cut->norm[i],
               one->loss[i], one->norm[i]);
    int shares = r->shard.g.dp * r->shard.g.cp;
    bool uneven = t->drawn || r->desc.d.experts % r->shard.g.ep; /* some ranks have more experts than others */
    EXPECT(uneven || shares == 1 || r->shard.g.tp > 1
               || (double)cut->states < 1.05 * (double)one->states / shares + 2048,
           "%s: %zu bytes of states, one rank has %zu", what, cut->states, one->states);
    EXPECT(cut->spread >= 1 && (t->n < SEQS || cut->spread < (r->shard.g.dp > 1 ? 1.4 : 1.0001)), "%s: spread %g", what,
           cut->spread);
}

static void same(const char *what, const Life *a, const Life *b) {
    EXPECT(!memcmp(a->weight, b->weight, (size_t)a->n * 4) && !memcmp(a->grad, b->grad, (size_t)a->n * 4)
               && !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm),
           "%s: not the same bytes", what);
}

/* One model on one grid; with that share of its states on the host the same once more. */
static void check(const World *w, const char *name, const char *config, const char *grid, const Task *t, double share) {
    World alone = { .all = comm_self(), .local_size = 1 };
    Ranks r, one;
    Mem mem = { 0 };
    char what[2048];
    snprintf(what, sizeof what, "%s on %s", name, grid);
    if (ranks_open_config(&r, w, config, grid) && ranks_open_config(&one, &alone, config, "tp=1")) {
        Dev d;
        Params whole;
        dev_open(&d, (DevOpts){ .threads = 1 });
        params_open(&whole, &r.desc, NULL, &d, DT_F32, true, "names", &mem);
        Life a = live(&one, &alone, t, 0, &mem), b = live(&r, w, t, 0, &mem);
        beside_one(what, &r, t, &a, &b, &whole);
        if (share > 0) {
            Life c = live(&r, w, t, share, &mem);
            same(what, &b, &c);
        }
        params_close(&whole, &d);
        dev_close(&d);
        mem_free(&one.mem);
    }
    mem_free(&mem);
    mem_free(&r.mem);
}

static void check_drawn(const World *w, uint32_t seed) {
    Dice d = { seed, 0 };
    Buf config = { 0 }, grid = { 0 };
    Mem mem = { 0 };
    ModelDesc desc;
    GridShape g;
    Err err;
    draw_model(&d, &config);
    CHECK(model_desc_parse(&desc, config.data, config.n, &mem, &err), "%s: %s", config.data, err.msg);
    draw_grid(&d, &g, w->all.size);
    if (!desc.d.experts) g.ep = g.etp = 1;
    Task t = { .n = 1 + dice(&d, 6), .recompute = (Recompute)dice(&d, 3), .kl = dice(&d, 2) ? 0.1 : 0, .drawn = true };
    if (seed % 3 == 0) t.states = (OptimTypes){ DT_BF16, seed % 2 ? DT_I16 : DT_F32, seed % 4 < 2 ? DT_BF16 : DT_F32 };
    for (int i = 0; i < t.n; i++) {
        t.length[i] = PICK(&d, 2, 2, 3, 5, 17, 29);
        if (t.length[i] > t.micro) t.micro = t.length[i];
    }
    t.length[t.alone = dice(&d, t.n)] = t.micro; /* the longest: the norm of what two tokens say is rounding */
    t.micro += dice(&d, 3) * 16;
    grid_text(&g, &grid);
    char name[4096];
    snprintf(name, sizeof name, "seed %u, %s", seed, config.data);
    if (grid_fill(&g, &desc, w->all.size, NULL, 8, &err)) {
        if (!w->all.rank) fprintf(stderr, "seed %u on %s\n", seed, grid.data);
        check(w, name, config.data, grid_ranks(&g) > 1 ? grid.data : "tp=1", &t, 0.3);
    }
    buf_free(&config);
    buf_free(&grid);
    mem_free(&mem);
}

/* "GRID": the small models; "wide:GRID": those of --all; "random=SEED,COUNT". */
static int ranks_main(const char *mode) {
    World w;
    Err err;
    unsigned seed;
    int count;
    CHECK(world_open(&w, 300, &err), "%s", err.msg);
    if (sscanf(mode, "random=%u,%d", &seed, &count) == 2)
        for (int i = 0; i < count; i++) check_drawn(&w, seed + (unsigned)i);
    else if (!strncmp(mode, "wide:", 5))
        for (size_t i = strlen(mode) % 2; i < COUNT(wide_models); i += 2) { /* every other family, in turn */
            Task t = { 9, { 20, 35, 48, 33, 9, 3, 41, 17, 2 }, 2, 48, (Recompute)(i % 3), i % 2 ? 0.05 : 0, false };
            check(&w, wide_models[i].name, wide_models[i].config, mode + 5, &t, i % 3 ? 0 : 0.3);
        }
    else {
        Task least = usual;
        least.states = (OptimTypes){ DT_BF16, DT_I16, DT_BF16 };
        for (size_t i = 0; i < COUNT(rank_models); i++)
            check(&w, rank_models[i].name, rank_models[i].config, mode, &usual, i % 2 ? 1 : 0.3);
        check(&w, "bf16 weights", rank_models[3].config, mode, &least, 0.3);
        check(&w, "bf16 weights, tied", rank_models[2].config, mode, &least, 0);
    }
    return ranks_end(&w);
}

typedef struct {
    int n;
    const char *grid;
} On;
/* clang-format off */
static const On quick[] = {
    { 2, "dp=2" }, { 3, "dp=3" }, { 4, "dp=4" }, { 4, "tp=2,dp=2" }, { 4, "ep=4" }, { 8, "tp=4,dp=2" },
    { 8, "tp=2,ep=4" }, { 8, "tp=2,pp=2,dp=2" }, { 2, "pp=2" }, { 2, "pp=2,vpp=2" }, { 4, "pp=4" }, { 2, "cp=2" },
    { 8, "cp=2,tp=2,ep=4,dp=2" }, { 4, "pp=2,ep=2" }, { 4, "random=1,12" },
};
static const On all[] = {
    { 2, "wide:tp=2" }, { 4, "wide:tp=4" }, { 8, "wide:tp=8" }, { 8, "wide:tp=4,dp=2" }, { 2, "wide:dp=2" },
    { 5, "wide:dp=5" }, { 8, "wide:dp=8" }, { 2, "wide:pp=2" }, { 3, "wide:pp=3" }, { 4, "wide:pp=4@3,2,2,1" },
    { 4, "wide:pp=4@1,1,1,5" }, { 8, "wide:pp=8" }, { 2, "wide:pp=2,vpp=2" }, { 4, "wide:pp=4,vpp=2" },
    { 2, "wide:pp=2,vpp=4" }, { 3, "wide:pp=3,vpp=2" }, { 2, "wide:ep=2" }, { 4, "wide:ep=4" }, { 8, "wide:ep=8" },
    { 8, "wide:ep=4,etp=2" }, { 8, "wide:etp=8" }, { 3, "wide:ep=3" }, { 2, "wide:cp=2" }, { 3, "wide:cp=3" },
    { 4, "wide:cp=4" }, { 8, "wide:cp=8" }, { 4, "wide:cp=2,tp=2" }, { 8, "wide:cp=4,tp=2" },
    { 8, "wide:tp=2,pp=2,dp=2" }, { 8, "wide:tp=2,ep=4" }, { 8, "wide:tp=4,ep=8" }, { 8, "wide:pp=2,ep=4,tp=2" },
    { 8, "wide:pp=2,vpp=2,tp=2,ep=2,dp=2" }, { 8, "wide:cp=2,pp=2,ep=4,dp=2" }, { 8, "wide:cp=2,pp=2,vpp=2,tp=2" },
    { 6, "wide:cp=3,ep=6,dp=2" }, { 8, "wide:tp=2,cp=2,ep=2,etp=4,dp=2" }, { 7, "wide:dp=7,ep=7" },
    { 2, "random=1000,12" }, { 3, "random=2000,12" }, { 4, "random=3000,12" }, { 6, "random=4000,12" },
    { 8, "random=5000,12" },
};
/* clang-format on */

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return ranks_main(argv[2]);
    if (!ranks_possible()) {
        SKIP("there is no mpirun: training over several ranks was not tried");
        return test_end();
    }
    bool long_list = argc > 1 && !strcmp(argv[1], "--all");
    const On *list = long_list ? all : quick;
    int share = 0, of = 1; /* --all 1/4: every fourth, from the second on */
    CHECK(!long_list || argc < 3 || (sscanf(argv[2], "%d/%d", &share, &of) == 2 && of > 0), "--all [K/N]");
    for (size_t i = (size_t)share; i < (long_list ? COUNT(all) : COUNT(quick)); i += (size_t)of)
        expect_ranks(argv[0], list[i].n, list[i].grid);
    return test_end();
}
