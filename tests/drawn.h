/* drawn.h - models, grids and batches that nobody chose: small ones of every family, with
 * numbers of heads, experts, ids and layers that divide nothing. */
#ifndef TESTS_DRAWN_H
#define TESTS_DRAWN_H

#include "cut/grid.h"
#include "base/rng.h"

typedef struct {
    uint32_t seed, at;
} Dice;
static inline int dice(Dice *d, int n) { return (int)(rng_u64(d->seed, RNG_PLAN, 77, 0, 0, d->at++) % (uint64_t)n); }
static inline int pick_of(Dice *d, const int *from, int n) { return from[dice(d, n)]; }
#define PICK(d, ...) pick_of(d, (int[]){ __VA_ARGS__ }, (int)(sizeof(int[]){ __VA_ARGS__ } / sizeof(int)))

static inline void draw_model(Dice *d, Buf *out) {
    static const struct {
        const char *class, *type;
        bool moe, mla;
    } FAMILY[] = { { "Qwen2ForCausalLM", "qwen2", 0, 0 },     { "Qwen3ForCausalLM", "qwen3", 0, 0 },
                   { "LlamaForCausalLM", "llama", 0, 0 },     { "Qwen3MoeForCausalLM", "qwen3_moe", 1, 0 },
                   { "MixtralForCausalLM", "mixtral", 1, 0 }, { "DeepseekV3ForCausalLM", "deepseek_v3", 1, 1 } };
    int f = dice(d, COUNT(FAMILY)), heads = PICK(d, 1, 2, 3, 4, 5, 6, 8, 12), kv = heads, layers = 1 + dice(d, 6),
        dim = PICK(d, 4, 6, 8, 12);
    if (!FAMILY[f].mla) do
            kv = 1 + dice(d, heads);
        while (heads % kv);
    int experts = 2 + dice(d, 9), topk = 1 + dice(d, experts < 4 ? experts : 4);
    buf_printf(out, "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",", FAMILY[f].class, FAMILY[f].type);
    buf_printf(out, "\"hidden_size\":%d,\"num_hidden_layers\":%d,\"vocab_size\":%d,\"num_attention_heads\":%d,",
               heads * dim, layers, PICK(d, 17, 64, 128, 131, 257, 513, 700), heads);
    buf_printf(out, "\"num_key_value_heads\":%d,\"head_dim\":%d,\"intermediate_size\":%d,\"tie_word_embeddings\":%s,",
               kv, dim, 3 + dice(d, 60), dice(d, 2) ? "true" : "false");
    if (f == 2) buf_printf(out, "\"attention_bias\":%s,\"mlp_bias\":true,", dice(d, 2) ? "true" : "false");
    if (FAMILY[f].moe)
        buf_printf(out, "\"moe_intermediate_size\":%d,\"%s\":%d,\"num_experts_per_tok\":%d,\"norm_topk_prob\":true,",
                   1 + dice(d, 20),
                   FAMILY[f].mla ? "n_routed_experts"
                   : f == 4      ? "num_local_experts"
                                 : "num_experts",
                   experts, topk);
    if (f == 3) buf_printf(out, "\"mlp_only_layers\":[%d],\"decoder_sparse_step\":1,", dice(d, layers));
    if (FAMILY[f].mla) {
        buf_printf(out, "\"n_shared_experts\":%d,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":1.3,",
                   1 + dice(d, 2));
        buf_printf(out, "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_k_dense_replace\":%d,",
                   dice(d, layers + 1));
        if (dice(d, 2)) buf_printf(out, "\"q_lora_rank\":%d,", 4 + dice(d, 20));
        else buf_puts(out, "\"q_lora_rank\":null,");
        buf_printf(out, "\"kv_lora_rank\":%d,\"qk_nope_head_dim\":%d,\"qk_rope_head_dim\":%d,\"v_head_dim\":%d,",
                   4 + dice(d, 20), 2 + dice(d, 12), PICK(d, 2, 4, 6), 2 + dice(d, 12));
    }
    buf_puts(out,
             "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",");
    buf_puts(out, "\"initializer_range\":0.2}");
}

static inline int divisor(Dice *d, int of, bool power) {
    int x;
    do x = 1 + dice(d, of);
    while (of % x || (power && x & (x - 1)));
    return x;
}

static inline void draw_grid(Dice *d, GridShape *g, int ranks) {
    *g = (GridShape){ 0 };
    int left = ranks, order = dice(d, 6);
    for (int i = 0; i < 3; i++) { /* who comes first may take most */
        int *axis = (int *[]){ &g->tp, &g->pp, &g->cp }[(order + i) % 3];
        *axis = divisor(d, left, axis == &g->tp);
        left /= *axis;
    }
    g->dp = left;
    g->vpp = g->pp > 1 ? 1 + dice(d, 3) : 1;
    int stage = g->tp * g->cp * g->dp;
    g->etp = divisor(d, stage, true);
    g->ep = divisor(d, stage / g->etp, false);
}

#endif
