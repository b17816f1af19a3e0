/* ranks_fixture.h - small models whose sizes no grid divides evenly, for tests of training over ranks. */
#ifndef TESTS_RANKS_FIXTURE_H
#define TESTS_RANKS_FIXTURE_H

#include "base/rng.h"
#include "comm/world.h"
#include "ranks.h"
#include "train/policy.h"

#define RANKS_COMMON                                                                                                   \
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":4096,\"hidden_act\":\"silu\","             \
    "\"initializer_range\":0.1}"

static const struct { const char *name, *config;
} rank_models[] = {
    { "qwen3_moe, 10 heads over 5, a dense layer, 700 words",
      "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":48,\"num_hidden_"
      "layers\":4,\"vocab_size\":700,"
      "\"num_attention_heads\":10,\"num_key_value_heads\":5,\"head_dim\":12,\"intermediate_size\":70,\"moe_"
      "intermediate_size\":18,\"num_experts\":8,"
      "\"num_experts_per_tok\":2,\"norm_topk_prob\":true,\"mlp_only_layers\":[1],\"decoder_sparse_step\":1,\"tie_word_"
      "embeddings\":false," RANKS_COMMON },
    { "qwen3_moe, 8 heads over 2, a dense layer, 700 words",
      "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":48,\"num_hidden_"
      "layers\":4,\"vocab_size\":700,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":12,\"intermediate_size\":70,\"moe_intermediate_"
      "size\":18,\"num_experts\":8,"
      "\"num_experts_per_tok\":2,\"norm_topk_prob\":true,\"mlp_only_layers\":[1],\"decoder_sparse_step\":1,\"tie_word_"
      "embeddings\":false," RANKS_COMMON },
    { "qwen2 with biases, tied, 14 heads over 2", "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\","
                                                  "\"hidden_size\":56,\"num_hidden_layers\":2,\"vocab_size\":1111,"
                                                  "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"intermediate_"
                                                  "size\":45,\"tie_word_embeddings\":true," RANKS_COMMON },
    { "deepseek_v3 with a query latent, shared experts and a router's bias",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":40,\"num_hidden_"
      "layers\":3,\"vocab_size\":900,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":44,\"moe_intermediate_size\":22,\"n_"
      "routed_experts\":8,"
      "\"num_experts_per_tok\":3,\"n_shared_experts\":2,\"n_group\":4,\"topk_group\":2,\"routed_scaling_factor\":1.7,"
      "\"norm_topk_prob\":true,"
      "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_k_dense_replace\":1,\"q_lora_rank\":20,\"kv_"
      "lora_rank\":24,"
      "\"qk_nope_head_dim\":14,\"qk_rope_head_dim\":6,\"v_head_dim\":10,\"tie_word_embeddings\":false," RANKS_COMMON },
};

/* Enough of everything for eight ranks, all families: 8 heads, 8 layers, 8 or 16 experts. */
static const struct { const char *name, *config;
} wide_models[] = {
    { "qwen2, tied", "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_size\":48,\"num_"
                     "hidden_layers\":8,\"vocab_size\":1300,"
                     "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":8,\"intermediate_size\":40,"
                     "\"tie_word_embeddings\":true," RANKS_COMMON },
    { "qwen3", "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":48,\"num_hidden_"
               "layers\":8,\"vocab_size\":1300,"
               "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":8,\"intermediate_size\":40,\"tie_word_"
               "embeddings\":false," RANKS_COMMON },
    { "llama with biases", "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":48,"
                           "\"num_hidden_layers\":8,\"vocab_size\":1300,"
                           "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"head_dim\":8,\"intermediate_size\":"
                           "40,\"tie_word_embeddings\":false,\"attention_bias\":true,\"mlp_bias\":true," RANKS_COMMON },
    { "qwen3_moe", "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":48,\"num_"
                   "hidden_layers\":8,\"vocab_size\":1300,"
                   "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":8,\"intermediate_size\":40,\"tie_"
                   "word_embeddings\":false,\"moe_intermediate_size\":18,\"num_experts\":8,\"num_experts_per_tok\":2,"
                   "\"norm_topk_prob\":true,\"mlp_only_layers\":[3],\"decoder_sparse_step\":1," RANKS_COMMON },
    { "mixtral", "{\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\",\"hidden_size\":48,\"num_"
                 "hidden_layers\":8,\"vocab_size\":1300,"
                 "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":8,\"intermediate_size\":40,\"tie_"
                 "word_embeddings\":false,\"num_local_experts\":8,\"num_experts_per_tok\":2," RANKS_COMMON },
    { "deepseek_v3",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":48,\"num_hidden_"
      "layers\":8,\"vocab_size\":1300,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":44,\"moe_intermediate_size\":16,\"n_"
      "routed_experts\":16,\"num_experts_per_tok\":3,\"n_shared_experts\":1,\"n_group\":4,\"topk_group\":2,\"routed_"
      "scaling_factor\":1.7,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_"
      "k_dense_replace\":2,\"q_lora_rank\":20,\"kv_lora_rank\":16,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_"
      "head_dim\":8,\"tie_word_embeddings\":false," RANKS_COMMON },
    { "moonlight",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":48,\"num_hidden_"
      "layers\":8,\"vocab_size\":1300,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":44,\"moe_intermediate_size\":16,\"n_"
      "routed_experts\":16,\"num_experts_per_tok\":3,\"n_shared_experts\":2,\"n_group\":1,\"topk_group\":1,\"routed_"
      "scaling_factor\":1.7,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_"
      "k_dense_replace\":1,\"q_lora_rank\":null,\"kv_lora_rank\":16,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_"
      "head_dim\":8,\"tie_word_embeddings\":false," RANKS_COMMON },
};

/* w: not to be closed through it */
typedef struct { World w; Mem mem; ModelDesc desc; Shard shard; Groups par; } Ranks;

/* That model on that grid ("pp=4", or with the layers of each stage: "pp=4@3,2,2,1"); false
 * where it does not go there (experts of a model that has none). */
static inline bool ranks_open_config(Ranks *r, const World *w, const char *config, const char *grid) {
    Err err = { "" };
    *r = (Ranks){ .w = *w };
    CHECK(model_desc_parse(&r->desc, config, strlen(config), &r->mem, &err), "%s", err.msg);
    const char *split = strchr(grid, '@');
    char *axes = mem_str(&r->mem, grid, split ? (size_t)(split - grid) : strlen(grid));
    CHECK(grid_parse(&r->shard.g, axes, &err), "%s", err.msg);
    if ((r->shard.g.ep > 1 || r->shard.g.etp > 1) && !r->desc.d.experts) return false;
    if (r->shard.g.pp * (r->shard.g.vpp > 1 ? r->shard.g.vpp : 1) > r->desc.d.layers) return false;
    CHECK(grid_fill(&r->shard.g, &r->desc, w->all.size, split ? split + 1 : NULL, 8, &err), "%s", err.msg);
    r->shard.at = grid_at(&r->shard.g, w->all.rank);
    world_groups(w, &r->shard.g, &r->par);
    return true;
}
static inline bool ranks_open(Ranks *r, const World *w, int which, const char *grid) {
    return ranks_open_config(r, w, rank_models[which].config, grid);
}

/* Where element e of a shard's parameter lies in the whole row of the table: all experts of
 * it, one behind the other. */
static inline int64_t element_of(const ModelDesc *m, const Param *p, int64_t e) {
    const Slice *s = &p->slice;
    int64_t rows = dim_at(&m->d, p->desc->rows), cols = dim_at(&m->d, p->desc->cols);
    int64_t expert = e / (s->rows * s->cols), r = e / s->cols % s->rows, c = e % s->cols;
    return ((s->e0 + expert) * rows + s->r0 + r) * cols + s->c0 + c;
}

static inline int ranks_end(World *w) {
    double failed = comm_sum(&w->all, test_failed);
    bool first = w->all.rank == 0;
    world_close(w);
    return first ? test_end() || failed > 0 : 0;
}

#endif
