/* fixture.h - small models for tests: the reference ones from disk, and random ones of awkward shapes. */
#ifndef TESTS_MODEL_FIXTURE_H
#define TESTS_MODEL_FIXTURE_H

#include "base/rng.h"
#include "backend.h"
#include "model/model.h"
#include "test.h"

static const char *const reference_models[] = { "llama",       "qwen2",           "qwen3",
                                                "qwen3_moe",   "qwen3_moe_plain", "mixtral",
                                                "deepseek_v3", "moonlight",       "deepseek_v3_yarn" };

/* Shapes that published models do not have: they find what equal sizes hide. */
static const struct { const char *name, *config;
} awkward[] = {
    { "qwen3_moe, 12 experts of which 3, 6 heads, a dense layer in the middle, 131 words",
      "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":40,\"num_hidden_"
      "layers\":3,\"vocab_size\":131,"
      "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":10,\"intermediate_size\":52,\"moe_intermediate_"
      "size\":18,\"num_experts\":12,"
      "\"num_experts_per_tok\":3,\"norm_topk_prob\":true,\"mlp_only_layers\":[1],\"decoder_sparse_step\":1,\"rms_norm_"
      "eps\":1e-6,\"rope_theta\":10000,"
      "\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,\"initializer_range\":0."
      "2}" },
    { "deepseek_v3, 6 heads, v_head_dim 10 and nope 14, two shared experts",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":36,\"num_hidden_"
      "layers\":3,\"vocab_size\":97,"
      "\"num_attention_heads\":6,\"num_key_value_heads\":6,\"intermediate_size\":44,\"moe_intermediate_size\":22,\"n_"
      "routed_experts\":12,"
      "\"num_experts_per_tok\":3,\"n_shared_experts\":2,\"n_group\":4,\"topk_group\":2,\"routed_scaling_factor\":1.7,"
      "\"norm_topk_prob\":true,"
      "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_k_dense_replace\":1,\"q_lora_rank\":20,\"kv_"
      "lora_rank\":24,"
      "\"qk_nope_head_dim\":14,\"qk_rope_head_dim\":6,\"v_head_dim\":10,\"rms_norm_eps\":1e-5,\"rope_theta\":10000,"
      "\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,\"initializer_range\":0."
      "2}" },
    { "qwen2, tied, 5 heads", "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_size\":60,"
                              "\"num_hidden_layers\":2,\"vocab_size\":259,"
                              "\"num_attention_heads\":5,\"num_key_value_heads\":1,\"intermediate_size\":33,\"rms_norm_"
                              "eps\":1e-6,\"rope_theta\":10000,"
                              "\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,"
                              "\"initializer_range\":0.2}" },
#include "model/families.inc"
};

typedef struct { Mem mem; ModelDesc desc; Dev dev; Model model; Arena io, host; } Fixture;

static inline void fixture_open(Fixture *f, int threads, int64_t tokens, bool backward, Recompute recompute) {
    test_device(&f->dev, threads, true);
    ModelShape s = { .tokens = tokens,
                     .outputs = tokens,
                     .seqs = (int)tokens,
                     .longest = (int)tokens,
                     .backward = backward,
                     .truncated = true,
                     .trained.recompute = recompute,
                     .like = dev_kind(&f->dev) };
    f->dev.tmp = dev_arena(&f->dev, "tmp", model_sizes(&f->desc, &s).tmp);
    test_model(&f->model, &f->dev, &f->desc, &f->mem);
    f->model.trained.recompute = recompute;
    f->io = dev_arena(&f->dev, "io", 64 * arena_round((size_t)tokens * 8));
    size_t host = batch_host_bytes(tokens, (int)tokens) + batch_keep_host_bytes(f->desc.d.vocab) + (size_t)tokens * 64;
    f->host = arena_on_host("host", host, &f->mem);
}

/* A random model of that config.json. */
static inline void fixture_made(Fixture *f, const char *config, int threads, int64_t tokens, bool backward,
                                Recompute recompute) {
    Err err = { { 0 } };
    *f = (Fixture){ 0 };
    CHECK(model_desc_parse(&f->desc, config, strlen(config), &f->mem, &err), "%s", err.msg);
    fixture_open(f, threads, tokens, backward, recompute);
    params_random(&f->model.w, &f->dev, 7);
}

/* A reference model by name, or an awkward one by number (name NULL). */
static inline void fixture_load(Fixture *f, const char *name, int which, int threads, int64_t tokens, bool backward,
                                Recompute recompute) {
    if (!name) {
        fixture_made(f, awkward[which].config, threads, tokens, backward, recompute);
        return;
    }
    Err err = { { 0 } };
    *f = (Fixture){ 0 };
    char path[256];
    snprintf(path, sizeof path, FIXTURE("models/%s"), name);
    CHECK(model_desc_load(&f->desc, path, &f->mem, &err), "%s", err.msg);
    fixture_open(f, threads, tokens, backward, recompute);
    CHECK(model_load(&f->model, path, &err), "%s", err.msg);
}

static inline void fixture_close(Fixture *f) {
    model_close(&f->model);
    dev_close(&f->dev);
    mem_free(&f->mem);
}

/* n random token ids, the same for the same seed. */
static inline int32_t *random_tokens(Fixture *f, int n, uint32_t seed) {
    int32_t *t = MEM_ARRAY(&f->mem, int32_t, (size_t)n);
    for (int i = 0; i < n; i++)
        t[i] = (int32_t)(rng_u64(seed, RNG_PLAN, 0, 0, 0, (uint32_t)i) % (uint64_t)f->desc.d.vocab);
    return t;
}

/* lp and entropy of packed sequences, lp first: [2*outputs]. */
static inline float *score_seqs(Fixture *f, const PackSeq *seqs, int n) {
    Batch b;
    size_t mark = arena_mark(&f->io);
    batch_put(&b, &f->dev, &f->io, &f->host, seqs, n);
    batch_keep(&b, &f->dev, &f->io, &f->host, seqs, n, f->desc.d.vocab);
    Tensor lp = tensor_push(&f->io, DT_F32, b.outputs, 1), ent = tensor_push(&f->io, DT_F32, b.outputs, 1);
    model_score(&f->model, &b, lp, ent);
    float *out = MEM_ARRAY(&f->mem, float, 2 * (size_t)b.outputs);
    op_get(&f->dev, out, lp);
    op_get(&f->dev, out + b.outputs, ent);
    arena_pop(&f->io, mark);
    return out;
}

#endif
