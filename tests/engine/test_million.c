/* test_million.c - many tokens sampled and scored, over the reference models and random ones of realistic shape, every
 * family: batches of 1 to 512, with and without preemption, prefix hits, chunked prefill.  Three numbers
 * count, and are 0: the largest difference between the sampler's and the trainer's log-prob, entropies that
 * differ, routes that differ.
 *   test_million                ten thousand tokens, in ./check
 *   test_million --all [MODEL]  over a million (tests/all/million.sh)
 *   test_million --one          one and two sequences at a time, with ops at once and steps noted, which leaves routes
 *                               unseen: what a GPU does otherwise where tokens are few */
#include "model/fixture.h"
#include "op/op_check.h"
#include "engine/engine.h"
#include "engine/routes.h"

#include <math.h>

#define BASE                                                                                                           \
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":8192,\"hidden_act\":\"silu\","             \
    "\"initializer_range\":0.06,\"torch_dtype\":\"float32\"}"
#define SPARSE "\"norm_topk_prob\":true,\"decoder_sparse_step\":1,\"mlp_only_layers\":[],"
#define LATENT                                                                                                         \
    "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":256,"               \
    "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":640,"           \
    "\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"                        \
    "\"first_k_dense_replace\":1,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\","   \
    "\"tie_word_embeddings\":false,"

/* Head widths, experts, choices and groups of the published models; fewer layers, narrower, fewer words. */
static const struct {
    const char *name, *config; /* config NULL: a reference model */
} models[] = {
    { "llama", NULL },
    { "qwen2", NULL },
    { "qwen3", NULL },
    { "qwen3_moe", NULL },
    { "qwen3_moe_plain", NULL },
    { "mixtral", NULL },
    { "deepseek_v3", NULL },
    { "moonlight", NULL },
    { "deepseek_v3_yarn", NULL },
    { "random-llama",
      "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":512,\"num_hidden_layers\":4,"
      "\"num_attention_heads\":4,\"num_key_value_heads\":1,\"head_dim\":128,\"intermediate_size\":1376,"
      "\"tie_word_embeddings\":false,\"vocab_size\":16000," BASE },
    { "random-qwen2",
      "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_size\":448,\"num_hidden_layers\":6,"
      "\"num_attention_heads\":7,\"num_key_value_heads\":1,\"intermediate_size\":1216,\"tie_word_embeddings\":true,"
      "\"vocab_size\":15003," BASE },
    { "random-qwen3",
      "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":512,\"num_hidden_layers\":4,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":128,\"intermediate_size\":1536,"
      "\"tie_word_embeddings\":true,\"vocab_size\":12001," BASE },
    { "random-qwen3_moe",
      "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":256,"
      "\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_value_heads\":1,\"head_dim\":128,"
      "\"intermediate_size\":512,\"moe_intermediate_size\":96,\"num_experts\":128,\"num_experts_per_tok\":8,"
      "\"tie_word_embeddings\":false,\"vocab_size\":12000," SPARSE BASE },
    { "random-mixtral",
      "{\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\",\"hidden_size\":512,"
      "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":1,\"intermediate_size\":896,"
      "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"sliding_window\":null,\"tie_word_embeddings\":false,"
      "\"vocab_size\":8000," BASE },
    { "random-deepseek_v3",
      LATENT "\"q_lora_rank\":192,\"moe_intermediate_size\":64,\"n_routed_experts\":256,\"num_experts_per_tok\":8,"
             "\"n_shared_experts\":1,\"n_group\":8,\"topk_group\":4,\"routed_scaling_factor\":2.5,"
             "\"vocab_size\":10000," BASE },
    { "random-moonlight",
      LATENT "\"q_lora_rank\":null,\"moe_intermediate_size\":96,\"n_routed_experts\":64,\"num_experts_per_tok\":6,"
             "\"n_shared_experts\":2,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":2.446,"
             "\"vocab_size\":5003," BASE },
    { "wide-qwen3_moe", /* as wide as Qwen3-30B-A3B, as Moonlight-16B-A3B: on a GPU */
      "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":2048,"
      "\"num_hidden_layers\":2,\"num_attention_heads\":32,\"num_key_value_heads\":4,\"head_dim\":128,"
      "\"intermediate_size\":6144,\"moe_intermediate_size\":768,\"num_experts\":128,\"num_experts_per_tok\":8,"
      "\"tie_word_embeddings\":false,\"vocab_size\":151936," SPARSE BASE },
    { "wide-moonlight",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":2048,"
      "\"num_hidden_layers\":3,\"num_attention_heads\":16,\"num_key_value_heads\":16,\"intermediate_size\":11264,"
      "\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
      "\"first_k_dense_replace\":1,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\","
      "\"tie_word_embeddings\":false,\"q_lora_rank\":null,\"moe_intermediate_size\":1408,\"n_routed_experts\":64,"
      "\"num_experts_per_tok\":6,\"n_shared_experts\":2,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":2.446,"
      "\"vocab_size\":163840," BASE },
};

/* prompts, answers each and their tokens, for a reference model and for a random one; the engine's shape */
typedef struct {
    int prompts[2], samples[2], tokens[2], threads, page, pages, batch, rows;
    Drawing draw;
    int longest; /* prompt; 0: PROMPT */
} Plan;
static const Plan plans[] = {
    { { 4, 4 }, { 1, 1 }, { 128, 64 }, 2, 64, 60, 1, 512, { 1, 1, 0, 0 } },
    { { 16, 16 }, { 4, 2 }, { 128, 64 }, 1, 16, 600, 16, 33, { 0.8f, 0.9f, 0, 0 } },
    { { 16, 16 }, { 8, 8 }, { 128, 64 }, 2, 48, 50, 64, 256, { 1.2f, 1, 0, 50 } }, /* most are preempted */
    { { 64, 64 }, { 8, 8 }, { 128, 48 }, 1, 64, 2600, 512, 2048, { 1, 1, 0, 0 } },
};
/* contexts to 8192, prefilled in chunks, with a long common beginning, in too few pages: on a GPU */
static const Plan long_plan = { { 6, 6 }, { 4, 4 }, { 64, 64 }, 4, 64, 420, 16, 1024, { 0.9f, 0.95f, 0, 0 }, 8100 };
static const Plan one_plan = { { 3, 3 }, { 1, 1 }, { 64, 64 }, 2, 64, 60, 1, 512, { 1, 1, 0, 0 }, 1500 };
static const Plan two_plan = { { 4, 4 }, { 1, 1 }, { 64, 64 }, 2, 48, 160, 2, 512, { 1, 1, 0, 0 }, 1500 };
static const Plan quick_plan = { { 6, 6 }, { 4, 4 }, { 40, 20 }, 2, 16, 40, 16, 33, { 0.9f, 0.95f, 0, 0 } };

enum {
    TOKENS = 4096,
    PROMPT = 90,
    ALIKE = 40
}; /* of a batch of the trainer (or one answer); of a prompt; that two in three have */
typedef struct {
    int32_t *tokens; /* prompt, then answer */
    float *lp, *ent;
    int n, prompt;
} Said;
typedef struct {
    Fixture f;
    const Plan *plan;
    int random, asked, n; /* n answers */
    int32_t *prompt[64];
    int len[64];
    SampleOpts opts;
    Said *said;
} Run;
static struct Sums {
    int64_t tokens, ent_differ, routes, routes_differ, forks, shared, preempted;
    double largest;
} sum;

static bool next(void *user, Request *out) {
    Run *r = user;
    if (r->asked == r->plan->prompts[r->random]) return false;
    int i = r->asked++;
    *out = (Request){ r->prompt[i], r->len[i], r->plan->samples[r->random], 1000 + (uint64_t)i, &r->opts, NULL };
    return true;
}
static void answer(void *user, const Answer *a) {
    Run *r = user;
    Said *s = &r->said[r->n++];
    *s = (Said){ .n = a->n, .prompt = a->request->n };
    s->tokens = MEM_ARRAY(&r->f.mem, int32_t, (size_t)(s->prompt + s->n));
    memcpy(s->tokens, a->request->tokens, (size_t)s->prompt * 4);
    memcpy(s->tokens + s->prompt, a->tokens, (size_t)s->n * 4);
    s->lp = mem_copy(&r->f.mem, a->lp, (size_t)s->n * 4);
    s->ent = mem_copy(&r->f.mem, a->ent, (size_t)s->n * 4);
}

static void compare(const Run *r, int from, int to) { /* answers that make one batch of the trainer */
    PackSeq seqs[TOKENS];
    for (int i = from; i < to; i++) {
        const Said *s = &r->said[i];
        seqs[i - from] = (PackSeq){ s->tokens, s->prompt + s->n, s->prompt, r->plan->draw };
    }
    int64_t outputs = pack_outputs(seqs, to - from), o = 0;
    const float *got = score_seqs((Fixture *)&r->f, seqs, to - from);
    for (int i = from; i < to; i++)
        for (int k = 0; k < r->said[i].n; k++, o++) {
            double d = fabs((double)got[o] - (double)r->said[i].lp[k]);
            if (!(d <= sum.largest)) sum.largest = d == d ? d : INFINITY;
            sum.ent_differ += memcmp(&got[outputs + o], &r->said[i].ent[k], 4) != 0;
            sum.tokens++;
        }
}

/* as_is: the device's own table, with nobody between */
static void run(size_t which, const Plan *plan, bool fault, bool as_is) {
    Run r = { .plan = plan, .random = models[which].config != NULL };
    const int longest = plan->longest ? plan->longest : PROMPT, tokens = plan->longest ? 2 * TOKENS : TOKENS;
    if (r.random) fixture_made(&r.f, models[which].config, plan->threads, tokens, false, RECOMPUTE_NONE);
    else fixture_load(&r.f, models[which].name, 0, plan->threads, tokens, false, RECOMPUTE_NONE);
    r.f.dev.ops->enter(&r.f.dev, false); /* checking mode closes memory around every op: test_engine.c does that */
    int max = plan->tokens[r.random], answers = plan->prompts[r.random] * plan->samples[r.random];
    EngineConf c = { .sched = { .page = plan->page,
                                .pages = plan->pages,
                                .max_seqs = plan->batch + 8,
                                .max_batch = plan->batch,
                                .max_rows = plan->rows,
                                .max_len = longest + 130 } };
    size_t want = engine_tmp_bytes(&r.f.desc, &c, dev_kind(&r.f.dev));
    if (want > r.f.dev.tmp.size) dev_free(&r.f.dev, r.f.dev.tmp.base), r.f.dev.tmp = dev_arena(&r.f.dev, "tmp", want);
    const int same = plan->longest ? longest / 2 : ALIKE;
    int32_t *alike = random_tokens(&r.f, same, 99);
    for (int i = 0; i < plan->prompts[r.random]; i++) { /* two in three begin alike */
        r.len[i] = 1 + (int)(rng_u64(5, RNG_PLAN, 1, 0, 0, (uint32_t)i) % (uint64_t)longest);
        if (plan->longest && i == 1) r.len[i] = longest;
        r.prompt[i] = random_tokens(&r.f, r.len[i], 100 + (uint32_t)i);
        if (i % 3) memcpy(r.prompt[i], alike, (size_t)(r.len[i] < same ? r.len[i] : same) * 4);
    }
    r.opts = (SampleOpts){ .draw = plan->draw, .ignore_eos = true, .max_tokens = max };
    r.said = MEM_ARRAY(&r.f.mem, Said, (size_t)answers);
    const Ops *own = r.f.dev.ops;
    Ops ops = routes_ops(own);
    if (!as_is) r.f.dev.ops = &ops;
    else r.f.model.leaves = 1; /* as a GPU takes them: else the experts' sum is not made at once */
    Engine *e = engine_open(&r.f.model, &c, &r.f.mem);
    engine_ahead(e, which % 2 == 0 || !on_cpu());
    routes.side = 0, routes.fault = fault;
    Feed feed = { next, NULL, answer, NULL, &r, 1234, 5, 0 };
    EngineStats st = engine_run(e, &feed);
    EXPECT(r.n == answers && st.tokens == (int64_t)answers * max, "%s: %d answers of %ld tokens", models[which].name,
           r.n, (long)st.tokens);
    sum.forks += st.sched.forks, sum.shared += st.sched.prefix_tokens, sum.preempted += st.sched.preempted;
    routes.side = 1;
    for (int i = 0, to, rows; i < r.n; i = to) {
        for (to = i, rows = 0; to < r.n && rows + r.said[to].prompt + r.said[to].n <= tokens; to++)
            rows += r.said[to].prompt + r.said[to].n;
        compare(&r, i, to);
    }
    int64_t compared = 0, differ = routes_differ(&compared);
    EXPECT(fault ? differ > 0 : !differ, "%s: %ld of %ld routes differ", models[which].name, (long)differ,
           (long)compared);
    EXPECT(as_is || r.f.desc.d.experts == 0 || compared > st.tokens, "%s: only %ld routes were seen",
           models[which].name, (long)compared);
    sum.routes += compared, sum.routes_differ += differ;
    r.f.dev.ops = own;
    engine_close(e);
    fixture_close(&r.f);
}

/* One expert of one row of the engine's is another: both counts see it. */
static void planted(void) {
    struct Sums was = sum;
    sum.largest = 0;
    run(3, &quick_plan, true, false);
    EXPECT(sum.largest > 0, "a wrong expert left all log-probs as they were");
    sum = was;
}

int main(int argc, char **argv) {
    bool all = argc > 1 && !strcmp(argv[1], "--all"), one = argc > 1 && !strcmp(argv[1], "--one");
    const char *only = all && argc > 2 ? argv[2] : NULL;
    int ran = 0;
    for (size_t m = 0; m < COUNT(models); m++) {
        if (only && strcmp(only, models[m].name)) continue;
        if (!all && !one && models[m].config) continue;
        if (on_cpu() && !strncmp(models[m].name, "wide-", 5)) continue;
        bool wide = !strcmp(models[m].name, "wide-qwen3_moe");
        if (one && !wide && strcmp(models[m].name, "wide-moonlight") && strcmp(models[m].name, "random-qwen3"))
            continue;
        ran++;
        if (one) run(m, &plans[0], false, true);
        if (one && wide) run(m, &one_plan, false, true), run(m, &two_plan, false, true);
        if (!all && !one) run(m, &quick_plan, false, false);
        for (size_t p = 0; all && p < COUNT(plans); p++) run(m, &plans[p], false, false);
        if (all && !on_cpu() && models[m].config) run(m, &long_plan, false, false);
        if (all) printf("%s: %ld tokens so far\n", models[m].name, (long)sum.tokens), fflush(stdout);
    }
    if (!all && !one && on_cpu()) planted();
    EXPECT(ran > 0, "there is no model %s", only);
    EXPECT(sum.largest == 0, "the largest difference of log-probs is %g", sum.largest);
    EXPECT(sum.ent_differ == 0, "%ld entropies differ", (long)sum.ent_differ);
    EXPECT(one || (sum.preempted > 0 && sum.shared > 0 && sum.forks > 0),
           "%ld preempted, %ld found in the cache, %ld forks", (long)sum.preempted, (long)sum.shared, (long)sum.forks);
    printf("tokens %ld largest_difference %g entropies_differing %ld routes %ld routes_differing %ld forks %ld "
           "cached_tokens %ld preempted %ld\n",
           (long)sum.tokens, sum.largest, (long)sum.ent_differ, (long)sum.routes, (long)sum.routes_differ,
           (long)sum.forks, (long)sum.shared, (long)sum.preempted);
    routes_free();
    return test_end();
}
