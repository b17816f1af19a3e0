/* tiny_fixture.h - a model of 1,600 weights with a policy, moved by gradients that are
 * functions of (update, element): for tests of what is saved and of long lives. */
#ifndef TESTS_TINY_FIXTURE_H
#define TESTS_TINY_FIXTURE_H

#include "base/rng.h"
#include "test.h"
#include "train/policy.h"

static const char TINY[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,"
    "\"vocab_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":6,\"rms_norm_eps\":1e-"
    "6,"
    "\"rope_theta\":10000,\"max_position_embeddings\":64,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false}";

typedef struct { Mem mem; ModelDesc desc; Dev dev; Model model; Policy policy; } Tiny;

/* 'params': the family's rows in another order, or NULL. */
static inline void tiny_open(Tiny *t, const ParamDesc *params, double offload) {
    Err err;
    *t = (Tiny){ 0 };
    CHECK(model_desc_parse(&t->desc, TINY, strlen(TINY), &t->mem, &err), "%s", err.msg);
    if (params) {
        Arch *a = mem_copy(&t->mem, t->desc.arch, sizeof *a);
        a->params = params;
        t->desc.arch = a;
    }
    PolicyConf c = { .micro_tokens = 64, .max_seqs = 4, .offload = offload, .trains = true };
    dev_open(&t->dev, (DevOpts){ .threads = 1 });
    t->dev.tmp = dev_arena(&t->dev, "tmp", policy_sizes(&t->desc, NULL, &c, dev_kind(&t->dev)).tmp);
    model_open(&t->model, &t->dev, &t->desc, DT_F32, 8, &t->mem);
    params_random(&t->model.w, &t->dev, 7);
    policy_open(&t->policy, &t->model, &c, &t->mem);
}

static inline void tiny_close(Tiny *t) {
    policy_close(&t->policy);
    model_close(&t->model);
    dev_close(&t->dev);
    mem_free(&t->mem);
}

/* An update whose gradients are named by the weight and not by its place; the norm plays no part (clip 0). */
static inline void tiny_update(Tiny *t) {
    const Params *g = &t->policy.grads;
    for (int k = 0; k < g->n; k++) {
        const Param *p = &g->at[k];
        int64_t n = p->t.rows * p->t.cols;
        float *x = MEM_ARRAY(&t->mem, float, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)(int)(rng_u64(3, RNG_PLAN, (uint32_t)p->desc->id, (uint32_t)p->layer, (uint32_t)i,
                                        (uint32_t)t->policy.opt.step)
                                >> 44)
                       / 1048576.0f
                   - 0.5f;
        op_put(&t->dev, p->t, x);
    }
    AdamConf c = { 1e-2, 0.9, 0.95, 1e-8, 0.1, 0, 0 };
    optim_step(&t->policy.opt, &t->model.w, g, &t->model.par, &t->dev, &c, 0);
}

#endif
