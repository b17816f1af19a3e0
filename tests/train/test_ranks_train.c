/* test_ranks_train.c - training over ranks beside training on one: log-probs of the first step by memcmp, gradients to rounding, weights after
 * ten updates; the same grid twice, and any share of the states on the host, by memcmp.  Starts itself under mpirun. */
#include "train/ranks_fixture.h"

#include <math.h>

enum { SEQS = 13, STEPS = 10, MICRO = 96 };
static const AdamConf ADAM = { 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0 };
static const LossConf LOSS = {
    .kind = LOSS_VANILLA, .agg = AGG_TOKEN_MEAN, .clip_low = 0.2, .clip_high = 0.28, .clip_c = 3, .entropy_coef = 0.01
};

/* What a life of ten updates leaves, laid out as the whole model: trainable weights, and the first gradient. */
typedef struct {
    float *lp[SEQS], *ent[SEQS], *grad, *weight;
    double loss[STEPS], norm[STEPS];
    double most_diff, spread;  /* of the first comparison */
    double few_loss, few_norm; /* of one sequence alone: most ranks have nothing to compute */
    int64_t compared, n;
    size_t states;
} Life;

static int length(int i) { return (int[]){ 20, 35, 96, 64, 9, 3, 41 }[i % 7]; }

static void sequences(const Ranks *r, TrainSeq *seq, Life *l, Mem *mem) {
    for (int i = 0; i < SEQS; i++) {
        int n = length(i), prompt = 1 + i % 3 % n;
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
    float *flat = MEM_ARRAY(mem, float, (size_t)x->flat.cols), *mine = MEM_ARRAY(mem, float, (size_t)n),
          *all = MEM_ARRAY(mem, float, (size_t)(n * w->all.size));
    op_get(d, flat, x->flat);
    for (int64_t i = 0; i < n; i++) mine[i] = NAN;
    for (int i = 0; i < x->n; i++) {
        const Param *p = &x->at[i];
        int k = whole->index[p->layer][p->desc->id];
        for (int64_t e = 0; k >= 0 && e < p->t.rows * p->t.cols; e++)
            mine[params_from(whole, k) + element_of(&r->desc, p, e)] = flat[params_from(x, i) + e];
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

static Life live(const Ranks *r, const World *w, double offload, Mem *mem) {
    Life l = { 0 };
    Dev d;
    Model m;
    Policy p;
    Params whole;
    Err err = { "" };
    TrainSeq seq[SEQS];
    PolicyConf c = { .micro_tokens = MICRO, .max_seqs = SEQS, .offload = offload, .trains = true };
    PolicySizes plan = policy_sizes(&r->desc, &r->shard, &c, dev_kind_cpu());
    dev_open(&d, (DevOpts){ .threads = 1 });
    d.tmp = dev_arena(&d, "tmp", plan.tmp);
    model_open_shard(&m, &d, &r->desc, &r->shard, &r->par, DT_F32, 8, mem);
    params_random(&m.w, &d, 7);
    policy_open(&p, &m, &c, mem);
    params_open(&whole, &r->desc, NULL, &d, DT_F32, true, "names", mem);
    sequences(r, seq, &l, mem);
    bool ok = policy_logprob(&p, seq, SEQS, l.lp, l.ent, &err);
    Exact exact = { 0 };
    ok = ok && policy_compare(&p, seq, SEQS, &exact, &err);
    l.compared = exact.tokens, l.most_diff = exact.max_diff, l.n = whole.flat.cols;
    l.states = p.opt.dev.size + p.opt.host.size;
    UpdateStats st;
    ok = ok && policy_compare(&p, seq + 2, 1, &exact, &err)
         && policy_update(&p, seq + 2, 1, &LOSS, &ADAM, true, &st, &err);
    l.few_loss = st.total, l.few_norm = st.grad_norm;
    EXPECT(exact.tokens == l.compared + length(2) - 3 && exact.max_diff == 0, "one sequence alone: apart by %g",
           exact.max_diff);
    ok = ok && policy_update(&p, seq, SEQS, &LOSS, &ADAM, true, &st, &err);
    l.spread = st.spread;
    reduce_gather(&p.grads, &p.grads, &m.par, &d);
    l.grad = whole_of(r, w, &d, &p.grads, &whole, mem);
    for (int i = 0; ok && i < STEPS; i++) {
        ok = policy_update(&p, seq, SEQS, &LOSS, &ADAM, false, &st, &err) && st.stepped;
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

static void beside_one(const char *what, const Ranks *r, const Life *one, const Life *cut, const Params *whole) {
    for (int i = 0; i < SEQS; i++) {
        size_t bytes = (size_t)(length(i) - 1 - i % 3 % length(i)) * 4;
        EXPECT(!memcmp(one->lp[i], cut->lp[i], bytes) && !memcmp(one->ent[i], cut->ent[i], bytes),
               "%s: log-probs of sequence %d are not those of one rank", what, i);
    }
    EXPECT(cut->most_diff == 0 && cut->compared == one->compared, "%s: %lld tokens compared, apart by %g", what,
           (long long)cut->compared, cut->most_diff);
    EXPECT(fabs(cut->few_loss - one->few_loss) < 1e-6 && fabs(cut->few_norm / one->few_norm - 1) < 1e-5,
           "%s: one sequence alone: loss %g and norm %g, on one rank %g and %g", what, cut->few_loss, cut->few_norm,
           one->few_loss, one->few_norm);
    int64_t off = 0, far = 0, count = 0;
    for (int i = 0; i < whole->n; i++) {
        const Param *p = &whole->at[i];
        double most = 1e-30, bad = 0;
        for (int64_t e = params_from(whole, i); e < params_from(whole, i) + p->t.rows * p->t.cols; e++) {
            most = fmax(most, fabs((double)one->grad[e]));
            bad = fmax(bad, fabs((double)one->grad[e] - (double)cut->grad[e]));
            double moved = fabs((double)one->weight[e] - (double)cut->weight[e]);
            off += !(moved <= 1e-5), far += !(moved <= 2 * ADAM.lr * STEPS), count++;
        }
        EXPECT(bad <= 2e-5 * most, "%s: gradient of %s, layer %d: %.2e of its largest entry", what, p->desc->name,
               p->layer, bad / most);
    }
    EXPECT((double)off <= 1e-3 * (double)count && !far, "%s: %lld of %lld weights are off by 1e-5, %lld by 2 lr steps",
           what, (long long)off, (long long)count, (long long)far);
    for (int i = 0; i < STEPS; i++)
        EXPECT(fabs(cut->loss[i] - one->loss[i]) < 1e-4 && fabs(cut->norm[i] / one->norm[i] - 1) < 1e-3,
               "%s: update %d: loss %g and norm %g, on one rank %g and %g", what, i, cut->loss[i], cut->norm[i],
               one->loss[i], one->norm[i]);
    int shares = r->shard.g.dp * r->shard.g.cp;
    EXPECT(shares == 1 || r->shard.g.tp > 1 || (double)cut->states < 1.05 * (double)one->states / shares + 2048,
           "%s: %zu bytes of states, one rank has %zu", what, cut->states, one->states);
    EXPECT(cut->spread >= 1 && cut->spread < (r->shard.g.dp > 1 ? 1.4 : 1.0001), "%s: spread %g", what, cut->spread);
}

static void same(const char *what, const Life *a, const Life *b) {
    EXPECT(!memcmp(a->weight, b->weight, (size_t)a->n * 4) && !memcmp(a->grad, b->grad, (size_t)a->n * 4)
               && !memcmp(a->loss, b->loss, sizeof a->loss) && !memcmp(a->norm, b->norm, sizeof a->norm),
           "%s: not the same bytes", what);
}

static int ranks_main(const char *grid) {
    World w, alone = { .all = comm_self(), .local_size = 1 };
    Err err;
    CHECK(world_open(&w, 120, &err), "%s", err.msg);
    for (size_t i = 0; i < COUNT(rank_models); i++) {
        Ranks r, one;
        Mem mem = { 0 };
        char what[256];
        if (ranks_open(&r, &w, (int)i, grid) && ranks_open(&one, &alone, (int)i, "tp=1")) {
            Dev d;
            Params whole;
            dev_open(&d, (DevOpts){ .threads = 1 });
            params_open(&whole, &r.desc, NULL, &d, DT_F32, true, "names", &mem);
            Life a = live(&one, &alone, 0, &mem), b = live(&r, &w, 0, &mem), c = live(&r, &w, i % 2 ? 1 : 0.3, &mem);
            snprintf(what, sizeof what, "%s on %s", rank_models[i].name, grid);
            beside_one(what, &r, &a, &b, &whole);
            same(what, &b, &c);
            dev_close(&d);
            mem_free(&one.mem);
        }
        mem_free(&mem);
        mem_free(&r.mem);
    }
    return ranks_end(&w);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return ranks_main(argv[2]);
    if (!ranks_possible()) {
        SKIP("there is no mpirun: training over several ranks was not tried");
        return test_end();
    }
    static const struct {
        int n;
        const char *grid;
    } grids[] = { { 2, "dp=2" },
                  { 3, "dp=3" },
                  { 4, "dp=4" },
                  { 4, "tp=2,dp=2" },
                  { 4, "ep=4" },
                  { 8, "tp=4,dp=2" },
                  { 8, "tp=2,ep=4" },
                  { 8, "tp=2,pp=2,dp=2" },
                  { 2, "pp=2" },
                  { 2, "pp=2,vpp=2" },
                  { 4, "pp=4" },
                  { 2, "cp=2" },
                  { 8, "cp=2,tp=2,ep=4,dp=2" },
                  { 4, "pp=2,ep=2" } };
    for (size_t i = 0; i < COUNT(grids); i++) expect_ranks(argv[0], grids[i].n, grids[i].grid);
    return test_end();
}
