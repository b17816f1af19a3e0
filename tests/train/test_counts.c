/* test_counts.c - tokens, elements and bytes beyond 2^31, without the memory: packing and counting are pure, the
 * trainer's tables and an update run on the dry device, at DeepSeek-V3's 671 billion parameters. */
#include "algo/loss.h"
#include "test.h"
#include "train/checkpoint.h"
#include "train/lr.h"
#include "train/moments.h"

#include <math.h>

enum { GIGA = 1000000000 };

/* Micro-batches as long as they may be, more tokens than 32 bits count. */
static void packing(void) {
    static const int64_t lens[] = { GIGA, 999999999, 1, GIGA / 2, GIGA / 2 + 1, GIGA, GIGA / 2 - 1, 7 };
    enum { N = COUNT(lens) };
    Mem mem = { 0 };
    Arena keep = arena_in(&mem, "keep", pack_keep(N)), tmp = arena_in(&mem, "tmp", pack_scratch(N, 1));
    Pack p;
    Err err = { { 0 } };
    bool ok = pack(&p, lens, N, &(PackConf){ GIGA, { 1e12, 1e6 }, 1, 0 }, &keep, &tmp, &err);
    EXPECT(ok && p.n_micro >= 5 && p.n_micro <= 6 && p.max_tokens == GIGA && p.first[p.n_micro] == N,
           "%lld micro-batches of up to %lld: %s", (long long)p.n_micro, (long long)p.max_tokens, err.msg);
    int64_t sum = 0, over = 0;
    for (int64_t k = 0; ok && k < p.n_micro; k++) {
        int64_t tokens = 0;
        for (int64_t i = p.first[k]; i < p.first[k + 1]; i++) tokens += lens[p.item[i]];
        sum += tokens, over += tokens > GIGA;
    }
    EXPECT(sum == 4500000007 && !over, "%lld tokens, %lld micro-batches too full", (long long)sum, (long long)over);
    mem_free(&mem);
}

static void counting(void) {
    int64_t at[] = { 0, 3000000000, 3000000000, 9000000000, 9000000001 };
    Answers a = { COUNT(at) - 1, at, at + 1, NULL };
    LossCounts n = { 0 };
    loss_count(&n, &a);
    EXPECT(n.tokens == 9000000001 && n.answers == 3 && n.rows == 4, "%lld tokens of %lld answers", (long long)n.tokens,
           (long long)n.answers);
    LrConf c = { LR_LINEAR, 1e-3, 0.1, 10, 3000000000, 0 };
    EXPECT(fabs(lr_at(&c, 3000000000) - 1e-4) < 1e-9 && lr_at(&c, 1500000000) > 5e-4 && lr_at(&c, 1500000000) < 6e-4,
           "rates %g and %g", lr_at(&c, 1500000000), lr_at(&c, 3000000000));
}

/* Where each average stands in the flat order: one behind the other up to the last, borders between rows aside. */
static void places(const Moments *x, int64_t trainable, const char *name) {
    int64_t sum = 0, last = 0, bad = 0;
    for (size_t k = 0; k < x->n / 2; k++) {
        const StSpec *s = &x->spec[2 * k];
        int64_t count = s->shape[0] * (s->n_dims > 1 ? s->shape[1] : 1);
        bad += x->flat[k] < last || x->flat[k] > last + 64;
        sum += count, last = x->flat[k] + count;
    }
    EXPECT(!bad && sum == trainable && last >= sum && (double)last < (double)sum * 1.001,
           "%s: %lld elements up to %lld, %lld trainable", name, (long long)sum, (long long)last, (long long)trainable);
}

static void add_frozen(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    (void)layer, (void)expert;
    if (p->frozen) *(int64_t *)user += rows * cols;
}

static void update(const char *name, double offload) {
    char path[200];
    Mem mem = { 0 };
    Err err = { { 0 } };
    ModelDesc desc;
    Dev dry;
    Model m;
    Policy p;
    snprintf(path, sizeof path, FIXTURE("configs/%s.json"), name);
    CHECK(model_desc_load(&desc, path, &mem, &err), "%s", err.msg);
    DevKind like = dev_kind_cpu();
    dev_open_dry(&dry, like);
    PolicyConf conf = { .micro_tokens = 4096, .max_seqs = 8, .offload = offload, .trains = true };
    PolicySizes s = policy_sizes(&desc, NULL, &conf, like);
    dry.tmp = dev_arena(&dry, "tmp", s.tmp);
    model_open(&m, &dry, &desc, DT_F32, 8, &mem);
    policy_open(&p, &m, &conf, &mem);
    int64_t all = arch_param_count(&desc), frozen = 0;
    arch_each_param(&desc, add_frozen, &frozen);
    Moments x = moments_of(&p.grads, DT_F32, &mem);
    places(&x, all - frozen, name);
    EXPECT((double)p.opt.split >= floor((double)p.opt.n * offload) - 1024 && p.opt.n >= all - frozen,
           "%s: %lld of %lld on the host", name, (long long)p.opt.split, (long long)p.opt.n);
    double states = (double)(s.optim_dev + s.optim_host), grads = (double)s.grads;
    EXPECT(fabs(states / (8 * (double)(all - frozen)) - 1) < 1e-3
               && fabs(grads / (4 * (double)(all - frozen)) - 1) < 1e-3,
           "%s: %g bytes of states, %g of gradients", name, states, grads);
    double save = (double)checkpoint_bytes(&desc, NULL, 0, SAVED_F32);
    EXPECT(fabs(save / (12 * (double)all) - 1) < 1e-3, "%s: a save of %g bytes", name, save);
    p.opt.step = 5000000000;
    optim_step(&p.opt, &m.w, &p.grads, &m.par, &dry, &(AdamConf){ 1e-6, 0.9, 0.999, 1e-8, 0.1, 1, 0 }, 1);
    EXPECT(p.opt.step == 5000000001, "%s: update %lld", name, (long long)p.opt.step);

    /* What a token takes does not depend on how many there are: 3 x 10^6 beside 3 x 10^4. */
    conf.micro_tokens = 3000000, conf.trained.recompute = RECOMPUTE_FULL;
    PolicySizes many = policy_sizes(&desc, NULL, &conf, like);
    conf.micro_tokens = 30000;
    PolicySizes few = policy_sizes(&desc, NULL, &conf, like);
    EXPECT(fabs((double)many.act / (100 * (double)few.act) - 1) < 0.02 && many.act > (size_t)1 << 33,
           "%s: activations of %zu and %zu bytes", name, many.act, few.act);
    policy_close(&p);
    model_close(&m);
    dev_close(&dry);
    mem_free(&mem);
}

int main(void) {
    packing();
    counting();
    update("DeepSeek-V3", 0);
    update("DeepSeek-V3", 0.3);
    update("Qwen3-235B-A22B", 1);
    update("Qwen3-0.6B", 0.5);
    return test_end();
}
