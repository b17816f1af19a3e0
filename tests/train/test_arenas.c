/* test_arenas.c - the plan of a trainer's memory against a real update: for 14 configurations (families,
 * ways to recompute, offload, shapes) each arena's peak lies under its plan and the plan within 5 % of the
 * peak, when the micro-batches are full. */
#include "model/model.h"
#include "train/policy.h"
#include "test.h"

typedef struct {
    const char *model;
    int64_t micro;
    int length, seqs;
    Recompute recompute;
    double offload;
    bool truncated, kept, logits;
} Case;
static const Case CASES[] = {
    { "qwen3", 128, 32, 8, RECOMPUTE_NONE, 0, false },
    { "qwen3", 256, 64, 8, RECOMPUTE_FULL, 0.3, false },
    { "qwen2", 120, 40, 6, RECOMPUTE_SELECTIVE, 1, false },
    { "qwen2_long", 192, 96, 4, RECOMPUTE_NONE, 0.5, true },
    { "qwen3", 160, 80, 4, RECOMPUTE_NONE, 0, true, true },
    { "llama", 150, 50, 3, RECOMPUTE_FULL, 0, false },
    { "mixtral", 128, 64, 4, RECOMPUTE_NONE, 0, false },
    { "mixtral", 96, 24, 8, RECOMPUTE_SELECTIVE, 0.25, false },
    { "qwen3_moe", 256, 32, 16, RECOMPUTE_NONE, 0, true },
    { "qwen3_moe_plain", 192, 48, 8, RECOMPUTE_FULL, 1, false },
    { "moonlight", 128, 32, 4, RECOMPUTE_SELECTIVE, 0, false },
    { "deepseek_v3", 100, 50, 4, RECOMPUTE_NONE, 0.7, false },
    { "deepseek_v3_yarn", 128, 128, 2, RECOMPUTE_FULL, 0, false },
    { "qwen3", 128, 32, 8, RECOMPUTE_NONE, 0, false, .logits = true },
};

static void compare(const Case *c, const char *what, size_t plan, size_t peak) {
    EXPECT(peak <= plan, "%s: %s: peak %zu exceeds the plan %zu", c->model, what, peak, plan);
    EXPECT((double)plan <= 1.05 * (double)peak, "%s: %s: plan %zu is %.1f %% above the peak %zu", c->model, what, plan,
           100 * ((double)plan / (double)peak - 1), peak);
}

static TrainSeq *sequences(const Case *c, int64_t vocab, Mem *mem) {
    TrainSeq *s = MEM_ARRAY(mem, TrainSeq, (size_t)c->seqs);
    for (int i = 0; i < c->seqs; i++) {
        int32_t *t = MEM_ARRAY(mem, int32_t, (size_t)c->length);
        float *old = MEM_ARRAY(mem, float, (size_t)c->length), *adv = MEM_ARRAY(mem, float, (size_t)c->length);
        for (int k = 0; k < c->length; k++)
            t[k] = (int32_t)((i * 131 + k * 17 + 3) % vocab), old[k] = -3, adv[k] = (i & 1) ? 1 : -1;
        Drawing draw = { 0.7f, 1, 0, 0 };
        if (c->truncated) draw.top_p = 0.9f;
        uint8_t *sets = MEM_ARRAY(mem, uint8_t, (size_t)c->length); /* everything: one byte */
        memset(sets, 1, (size_t)c->length);
        s[i] = (TrainSeq){ .kept = c->kept ? sets : NULL,
                           .tokens = t,
                           .n = c->length,
                           .prompt = 1,
                           .draw = draw,
                           .old = old,
                           .adv = adv };
    }
    return s;
}

static void check(const Case *c) {
    Mem mem = { 0 };
    Err err = { 0 };
    Dev dev;
    ModelDesc desc;
    CHECK(model_desc_load(&desc, mem_printf(&mem, FIXTURE("models/%s/config.json"), c->model), &mem, &err), "%s",
          err.msg);
    PolicyConf conf = { .micro_tokens = c->micro,
                        .max_seqs = c->seqs,
                        .trained.recompute = c->recompute,
                        .trained.keep_logits = c->logits,
                        .offload = c->offload,
                        .truncated = c->truncated,
                        .kept = c->kept,
                        .trains = true };
    dev_open(&dev, (DevOpts){ .threads = 2 });
    PolicySizes plan = policy_sizes(&desc, NULL, &conf, dev_kind_cpu());
    dev.tmp = dev_arena(&dev, "tmp", plan.tmp);
    Model m;
    Policy p;
    model_open(&m, &dev, &desc, DT_F32, 8, &mem);
    params_random(&m.w, &dev, 1);
    policy_open(&p, &m, &conf, &mem);
    LossConf loss = { .agg = AGG_TOKEN_MEAN, .clip_low = 0.2, .clip_high = 0.2, .clip_c = 3 };
    AdamConf adam = { .lr = 1e-6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1 };
    UpdateStats stats;
    TrainSeq *seqs = sequences(c, desc.d.vocab, &mem);
    bool ok = policy_update(&p, seqs, c->seqs, &loss, &adam, false, &stats, &err);
    int64_t fullest = stats.max_micro;
    size_t act = p.act.peak, io = p.io.peak;
    for (int i = 0; i < c->seqs; i += 2) memset((float *)seqs[i].adv, 0, (size_t)c->length * 4);
    ok = ok && policy_update(&p, seqs, c->seqs, &loss, &adam, false, &stats, &err) && stats.silent == (c->seqs + 1) / 2;
    EXPECT(p.act.peak == act && p.io.peak == io,
           "%s: with half of the sequences silent %zu and %zu bytes, before %zu and %zu", c->model, p.act.peak,
           p.io.peak, act, io);
    float **lp = MEM_ARRAY(&mem, float *, (size_t)c->seqs);
    for (int i = 0; i < c->seqs; i++) lp[i] = MEM_ARRAY(&mem, float, (size_t)c->length);
    ok = ok && policy_logprob(&p, seqs, c->seqs, lp, NULL, &err);
    EXPECT(ok && stats.stepped, "%s: %s", c->model, err.msg);
    EXPECT(fullest == c->micro, "%s: the fullest micro-batch has %lld of %lld tokens", c->model, (long long)fullest,
           (long long)c->micro);
    compare(c, "weights", params_bytes(&desc, NULL, DT_F32, false), m.w.arena.peak);
    compare(c, "gradients", plan.grads, p.grads.arena.peak);
    compare(c, "optimizer", plan.optim_dev + plan.optim_host, p.opt.dev.peak + p.opt.host.peak);
    compare(c, "activations", plan.act, p.act.peak);
    compare(c, "scratch", plan.tmp, dev.tmp.peak);
    compare(c, "train io", plan.io, p.io.peak);
    policy_close(&p);
    model_close(&m);
    dev_close(&dev);
    mem_free(&mem);
}

int main(void) {
    for (size_t i = 0; i < COUNT(CASES); i++) check(&CASES[i]);
    return test_end();
}
