/* test_adapter.c - which linear maps are targets, of which rank and scale, as peft has it; and the table made of
 * them. */
#include "arch/adapter.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const char config[] =
    "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":40,\"num_hidden_"
    "layers\":3,"
    "\"vocab_size\":131,\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":10,\"intermediate_size\":52,"
    "\"moe_intermediate_size\":18,\"num_experts\":12,\"num_experts_per_tok\":3,\"norm_topk_prob\":true,"
    "\"mlp_only_layers\":[1],\"decoder_sparse_step\":1,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,"
    "\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false}";

static Mem mem;
static ModelDesc m;

typedef struct {
    int n;
    int64_t elements;
} Sum;
static void add(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)p, (void)layer;
    Sum *s = user;
    s->n++, s->elements += experts * rows * cols;
}

static bool plan(AdapterPlan *out, AdapterSpec s, Err *err) { return adapter_plan_of(out, &m, &s, &mem, err); }
#define LIST(...)                                                                                                      \
    (const char *const[]) { __VA_ARGS__ }

static void targets(void) {
    AdapterPlan p;
    Err err;
    CHECK(plan(&p, (AdapterSpec){ .rank = 4, .alpha = 8, .targets = LIST("all-linear"), .n_targets = 1 }, &err), "%s",
          err.msg);
    EXPECT(p.rank[0][P_Q] == 4 && p.rank[2][P_O] == 4 && p.rank[1][P_GATE] == 4 && p.rank[0][P_E_UP] == 4,
           "all-linear");
    EXPECT(!p.rank[0][P_ROUTER] && !p.rank[0][P_HEAD] && !p.rank[0][P_EMBED] && !p.rank[0][P_NORM1], "more than that");
    EXPECT(!p.rank[0][P_GATE] && !p.rank[1][P_E_GATE], "a dense layer's and an expert layer's");
    EXPECT(p.scale[0][P_Q] == 2, "scale %g", (double)p.scale[0][P_Q]);

    ModelDesc a = arch_adapter(&m, &p, &mem);
    Sum s = { 0 };
    arch_each_row(&a, add, &s);
    /* A and B: attention of three layers, one dense, two of experts; elements by hand */
    int64_t attn = 4 * (40 + 60) + 2 * 4 * (40 + 20) + 4 * (60 + 40), dense = 3 * 4 * (40 + 52),
            experts = 12 * 3 * 4 * (40 + 18);
    EXPECT(s.n == 2 * (3 * 4 + 3 + 2 * 3) && s.elements == 3 * attn + dense + 2 * experts, "%d rows, %ld", s.n,
           (long)s.elements);
    EXPECT(s.elements == adapter_count(&a), "adapter_count");

    CHECK(plan(&p,
               (AdapterSpec){ .rank = 6,
                              .alpha = 6,
                              .rslora = true,
                              .divided = true,
                              .targets = LIST("q_proj", "gate", "down_proj"),
                              .n_targets = 3,
                              .exclude = LIST("layers.1.mlp.down_proj"),
                              .n_exclude = 1 },
               &err),
          "%s", err.msg);
    EXPECT(p.rank[0][P_ROUTER] == 6 && !p.rank[1][P_DOWN] && p.rank[1][P_Q] == 6 && !p.rank[0][P_K], "a list");
    EXPECT(p.rank[0][P_E_DOWN] == 2 && fabs((double)p.scale[0][P_E_DOWN] - 2 / sqrt(2)) < 1e-6,
           "an expert's share: %d, %g", p.rank[0][P_E_DOWN], (double)p.scale[0][P_E_DOWN]);
    EXPECT(fabs((double)p.scale[0][P_Q] - sqrt(6)) < 1e-6, "rslora: %g", (double)p.scale[0][P_Q]);

    static const AdapterPattern ranks[] = { { "layers.2.self_attn.q_proj", 7 }, { "q_proj", 3 }, { ".*k_proj", 5 } },
                                alphas[] = { { "layers.[01]..*", 9 } };
    CHECK(plan(&p,
               (AdapterSpec){ .rank = 2,
                              .alpha = 4,
                              .regex = ".*\\.(q_proj|k_proj|up_proj)",
                              .ranks = ranks,
                              .n_ranks = 3,
                              .alphas = alphas,
                              .n_alphas = 1 },
               &err),
          "%s", err.msg);
    EXPECT(p.rank[2][P_Q] == 7 && p.rank[0][P_Q] == 3 && p.rank[0][P_K] == 5 && p.rank[1][P_UP] == 2, "patterns");
    EXPECT(p.scale[0][P_Q] == 3 && fabsf(p.scale[2][P_Q] - 4 / 7.f) < 1e-6f, "their scale");
    EXPECT(!p.rank[0][P_V], "the expression");
    CHECK(plan(&p,
               (AdapterSpec){ .rank = 2,
                              .alpha = 4,
                              .targets = LIST("v_proj"),
                              .n_targets = 1,
                              .at = (const int64_t[]){ 1 },
                              .n_at = 1 },
               &err),
          "%s", err.msg);
    EXPECT(!p.rank[0][P_V] && p.rank[1][P_V] == 2, "one layer");
}

static void refused(void) {
    AdapterPlan p;
    Err err;
    static const AdapterPattern bad[] = { { "q_proj", 2.5 } }, broken[] = { { "(", 2 } };
    EXPECT(!plan(&p, (AdapterSpec){ .rank = 4, .alpha = 8, .targets = LIST("proj"), .n_targets = 1 }, &err)
               && strstr(err.msg, "no linear map"),
           "%s", err.msg);
    EXPECT(!plan(&p, (AdapterSpec){ .rank = 4, .alpha = 8, .targets = LIST("lm_head"), .n_targets = 1 }, &err),
           "the head");
    EXPECT(!plan(&p, (AdapterSpec){ .rank = 4, .alpha = 8, .regex = "[" }, &err) && strstr(err.msg, "regular"), "%s",
           err.msg);
    EXPECT(!plan(&p,
                 (AdapterSpec){
                     .rank = 4, .alpha = 8, .targets = LIST("q_proj"), .n_targets = 1, .ranks = bad, .n_ranks = 1 },
                 &err)
               && strstr(err.msg, "rank 2.5"),
           "%s", err.msg);
    EXPECT(!plan(&p,
                 (AdapterSpec){
                     .rank = 4, .alpha = 8, .targets = LIST("q_proj"), .n_targets = 1, .ranks = broken, .n_ranks = 1 },
                 &err),
           "a broken pattern");
    char longer[2000];
    memset(longer, 'x', sizeof longer), longer[sizeof longer - 1] = 0;
    EXPECT(!plan(&p, (AdapterSpec){ .rank = 4, .alpha = 8, .regex = longer }, &err) && strlen(err.msg) < 200, "%s",
           err.msg);
}

/* A delta net's maps that have a module of their own are targets, in the layers that are delta nets; its filters, and
 * what lies with others in one tensor, are none. */
static void delta_nets(void) {
    static const char next[] =
        "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":20,\"num_hidden_layers\":4,\"vocab_size\":64,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,\"intermediate_size\":36,"
        "\"max_position_embeddings\":64,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
        "\"linear_key_head_dim\":8,\"linear_value_head_dim\":12}";
    AdapterPlan p;
    Err err;
    ModelDesc d, a;
    CHECK(model_desc_parse(&d, next, strlen(next), &mem, &err), "%s", err.msg);
    AdapterSpec all = { .rank = 4, .alpha = 8, .targets = LIST("all-linear"), .n_targets = 1 };
    CHECK(adapter_plan_of(&p, &d, &all, &mem, &err), "%s", err.msg);
    EXPECT(p.rank[0][P_DN_OUT] == 4 && p.rank[2][P_DN_Z] == 4 && p.rank[3][P_Q] == 4 && !p.rank[3][P_DN_OUT],
           "the layers that have them");
    EXPECT(!p.rank[0][P_DN_Q] && !p.rank[0][P_DN_CONV_Q] && !p.rank[0][P_DN_LOG_A], "more than that");
    a = arch_adapter(&d, &p, &mem);
    Sum s = { 0 };
    arch_each_row(&a, add, &s);
    EXPECT(s.n == 2 * (3 * 4 + 4 + 4 * 3), "z, b, a and out of three layers, attention of one, mlp of four: %d", s.n);
}

int main(void) {
    Err err;
    CHECK(model_desc_parse(&m, config, strlen(config), &mem, &err), "%s", err.msg);
    targets();
    refused();
    delta_nets();
    mem_free(&mem);
    return test_end();
}
