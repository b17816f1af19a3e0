/* train_fixture.h - a small model that can be trained, and answers drawn from random tokens with their log-probs. */
#ifndef TESTS_TRAIN_FIXTURE_H
#define TESTS_TRAIN_FIXTURE_H

#include "model/fixture.h"
#include "model/kept_set.h"
#include "train/policy.h"

enum { TRAIN_SEQS = 21, TRAIN_MAX = 200 };

typedef struct {
    Mem mem;
    ModelDesc desc;
    Dev dev;
    Model model;
    Policy policy;
    TrainSeq seq[TRAIN_SEQS];
    float *old[TRAIN_SEQS], *ent[TRAIN_SEQS];
} Trainer;

static inline int train_len(int i) { return (int[]){ 20, 35, 130, 64, 9, 200, 41 }[i % 7]; }

static inline void trainer_open(Trainer *t, const char *name, PolicyConf c, int threads) {
    Err err = { { 0 } };
    *t = (Trainer){ 0 };
    char path[256];
    snprintf(path, sizeof path, FIXTURE("models/%s"), name);
    CHECK(model_desc_load(&t->desc, path, &t->mem, &err), "%s", err.msg);
    test_device(&t->dev, threads, false);
    c.max_seqs = TRAIN_SEQS, c.trains = true;
    if (t->dev.act == DT_BF16) c.states.weights = DT_BF16;
    t->dev.tmp = dev_arena(&t->dev, "tmp", policy_sizes(&t->desc, NULL, &c, dev_kind(&t->dev)).tmp);
    model_open(&t->model, &t->dev, &t->desc, c.states.weights, 8, &t->mem);
    CHECK(model_load(&t->model, path, &err), "%s", err.msg);
    policy_open(&t->policy, &t->model, &c, &t->mem);
    for (int i = 0; i < TRAIN_SEQS; i++) {
        int n = train_len(i), prompt = 1 + i % 6;
        int32_t *tok = MEM_ARRAY(&t->mem, int32_t, (size_t)n);
        float *adv = MEM_ARRAY(&t->mem, float, (size_t)n);
        for (int k = 0; k < n; k++) {
            tok[k] = (int32_t)(rng_u64(11, RNG_PLAN, 0, 0, (uint32_t)i, (uint32_t)k) % (uint64_t)t->desc.d.vocab);
            adv[k] = (float)(i % 5 - 2) * 0.7f;
        }
        t->old[i] = MEM_ARRAY(&t->mem, float, (size_t)n), t->ent[i] = MEM_ARRAY(&t->mem, float, (size_t)n);
        t->seq[i] = (TrainSeq){
            .tokens = tok, .n = n, .prompt = prompt, .draw = { i % 2 ? 0.8f : 1, 1, 0, 0 }, .old = t->old[i], .adv = adv
        };
    }
    CHECK(policy_logprob(&t->policy, t->seq, TRAIN_SEQS, t->old, t->ent, &err), "%s", err.msg);
}

static inline void trainer_close(Trainer *t) {
    policy_close(&t->policy);
    model_close(&t->model);
    dev_close(&t->dev);
    mem_free(&t->mem);
}

/* From now on every other sequence is drawn from a cut distribution, with kept sets of every
 * size that hold its tokens. */
static inline void trainer_cut(Trainer *t) {
    int64_t V = t->desc.d.vocab;
    uint32_t *bits = MEM_ARRAY(&t->mem, uint32_t, (size_t)kept_words(V));
    for (int i = 0; i < TRAIN_SEQS; i += 2) {
        TrainSeq *s = &t->seq[i];
        uint8_t *at = MEM_ARRAY(&t->mem, uint8_t, (size_t)(s->n - s->prompt) * kept_set_most(V, 0));
        s->draw = (Drawing){ 0.9f, 0.8f, 0, 0 }, s->kept = at;
        for (int k = s->prompt; k < s->n; k++) {
            memset(bits, 0, (size_t)kept_words(V) * 4);
            for (int64_t v = 0; v < V; v++)
                if (v == s->tokens[k]
                    || rng_u64(13, RNG_PLAN, (uint32_t)i, 0, (uint32_t)k, (uint32_t)v) % (uint64_t)(1 + k % 9) == 0)
                    bits[v / 32] |= (uint32_t)1 << v % 32;
            at += kept_set_put(at, bits, V);
        }
    }
}

static inline float *flat_of(Trainer *t, Tensor x, int64_t *n) {
    float *out = malloc((size_t)x.cols * 4 + 1);
    op_get(&t->dev, out, x);
    *n = x.cols;
    return out;
}

/* All that an update moves, in F32: weights, masters and moments of each parameter. */
static inline float *trained_of(Trainer *t, int64_t *n) {
    const Params *g = &t->policy.grads;
    *n = 0;
    for (int i = 0; i < g->n; i++) *n += 4 * g->at[i].t.rows * g->at[i].t.cols;
    float *all = malloc((size_t)*n * 4 + 1), *at = all;
    for (int i = 0; i < g->n; i++) {
        int64_t from, k = g->at[i].t.rows * g->at[i].t.cols;
        Tensor w = tensor_shape(param(&t->model.w, g->at[i].desc->id, g->at[i].layer), 1, k);
        optim_own(&t->policy.opt, g, i, &from);
        weights_get(&t->dev, w, at);
        if (w.dtype == DT_F32) memcpy(at + k, at, (size_t)k * 4);
        else optim_get(&t->policy.opt, &t->dev, STATE_MASTER, from, k, w, at + k);
        optim_get(&t->policy.opt, &t->dev, STATE_M, from, k, w, at + 2 * k);
        optim_get(&t->policy.opt, &t->dev, STATE_V, from, k, w, at + 3 * k);
        at += 4 * k;
    }
    return all;
}

/* How a run may keep weights and states, and what it takes a parameter. */
static const struct { const char *name; OptimTypes t; size_t bytes; } kept_as[] = {
    { "f32", { DT_F32, DT_F32, DT_F32 }, 8 },
    { "f32, bf16 moments", { DT_F32, DT_F32, DT_BF16 }, 4 },
    { "bf16", { DT_BF16, DT_F32, DT_F32 }, 12 },
    { "bf16, bf16 moments", { DT_BF16, DT_F32, DT_BF16 }, 8 },
    { "bf16, remainder, bf16 moments", { DT_BF16, DT_I16, DT_BF16 }, 6 },
    { "bf16, remainder", { DT_BF16, DT_I16, DT_F32 }, 10 },
};

static const LossConf PPO = {
    .kind = LOSS_VANILLA, .agg = AGG_TOKEN_MEAN, .clip_low = 0.2, .clip_high = 0.28, .clip_c = 3, .entropy_coef = 0.01
};
static const AdamConf ADAM = { 1e-3, 0.9, 0.999, 1e-8, 0.01, 1.0, 0 };

#endif
