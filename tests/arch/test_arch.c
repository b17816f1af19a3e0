/* test_arch.c - published configs have the published sizes; both spellings of a config say the same; rope agrees with
 * numbers worked out elsewhere; what is not supported is refused by name. */
#include "arch/arch.h"
#include "base/file.h"
#include "test.h"

#include <math.h>

static const struct {
    const char *file;
    int64_t total, active; /* active 0: not checked */
} published[] = {
    { "DeepSeek-V3", 671026419200, 37552297472 },
    { "Qwen3-235B-A22B", 235093634560, 22190763520 },
    { "Qwen3-30B-A3B", 30532122624, 3353032704 },
    { "Qwen3-8B", 8190735360, 8190735360 },
    { "Qwen2.5-7B", 7615616512, 7615616512 },
    { "Qwen2.5-0.5B", 494032768, 494032768 },
    { "Mixtral-8x7B", 46702792704, 12879925248 },
    { "Moonlight-16B-A3B", 15960110208, 0 },
    { "Qwen2.5-VL-7B", 8292166656, 0 },
    { "Llama-3.1-8B", 8030261248, 8030261248 },
    { "SmolLM3-3B", 3075098624, 3075098624 },
    { "Mistral-7B-v0.3", 7248023552, 7248023552 },
    { "Seed-OSS-36B", 36151104512, 36151104512 },
    { "DeepSeek-V2-Lite", 15706484224, 0 },
    { "Kimi-K2", 1026408232448, 0 },
    { "ERNIE-4.5-21B-A3B", 21825437888, 0 },
    { "Qwen3-Next-80B-A3B", 79674391296, 0 },
    { "GLM-4.5-Air", 106852251264, 0 },
    { "GLM-4.7-Flash", 29943393920, 0 },
};

static void published_sizes(void) {
    for (size_t i = 0; i < COUNT(published); i++) {
        Mem mem = { 0 };
        Err err;
        ModelDesc m;
        char *path = mem_printf(&mem, FIXTURE("configs/%s.json"), published[i].file);
        bool ok = model_desc_load(&m, path, &mem, &err);
        EXPECT(ok, "%s", err.msg);
        if (ok) {
            int64_t n = arch_param_count(&m), a = arch_active_count(&m);
            EXPECT(n == published[i].total, "%s: %ld parameters, want %ld", published[i].file, (long)n,
                   (long)published[i].total);
            if (published[i].active)
                EXPECT(a == published[i].active, "%s: %ld active, want %ld", published[i].file, (long)a,
                       (long)published[i].active);
        }
        mem_free(&mem);
    }
}

static void add(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    (void)p, (void)layer, (void)expert;
    *(int64_t *)user += rows * cols;
}

/* config_v5.json differs from config.json in spelling only; layer by layer, expert by expert, the sum is the same. */
static void two_spellings(void) {
    static const char *const models[] = { "qwen2",       "qwen3",      "qwen3_moe",       "mixtral",
                                          "deepseek_v3", "moonlight",  "llama",           "qwen2_5_vl",
                                          "llama_long",  "qwen2_long", "qwen3_moe_plain", "deepseek_v3_yarn" };
    static const int64_t want[] = { 19744, 29920, 58080, 45472, 56616, 54744, 23712, 44176 };
    for (size_t i = 0; i < COUNT(models); i++) {
        Mem mem = { 0 };
        Err err = { "" };
        ModelDesc a, b;
        bool ok = model_desc_load(&a, mem_printf(&mem, FIXTURE("models/%s"), models[i]), &mem, &err)
                  && model_desc_load(&b, mem_printf(&mem, FIXTURE("models/%s/config_v5.json"), models[i]), &mem, &err);
        EXPECT(ok, "%s: %s", models[i], err.msg);
        if (ok) {
            EXPECT(!memcmp(&a.d, &b.d, sizeof a.d), "%s: the two spellings differ", models[i]);
            EXPECT(a.arch == b.arch, "%s", models[i]);
            int64_t sum = 0;
            arch_each_param(&a, add, &sum);
            EXPECT(sum == arch_param_count(&a), "%s: %ld by expert, %ld by row", models[i], (long)sum,
                   (long)arch_param_count(&a));
            if (i < COUNT(want))
                EXPECT(sum == want[i], "%s: %ld parameters, want %ld", models[i], (long)sum, (long)want[i]);
        }
        mem_free(&mem);
    }
}

/* ---- rope: equations worked out in double elsewhere, to the digits given */
typedef struct {
    int i;
    double f;
} At;
typedef struct {
    const char *file;
    double scale;
    At at[8];
} RopeCase;

static const RopeCase rope_cases[] = {
    { FIXTURE("models/deepseek_v3"),
      1.459129080 / 4.898979486,
      { { 0, 1 }, { 1, 0.0125 }, { 2, 0.00125 }, { 3, 0.000125 } } },
    { FIXTURE("configs/DeepSeek-V3.json"),
      0.135233779,
      { { 0, 1 },
        { 9, 0.0749894209 },
        { 10, 0.0562341325 },
        { 11, 0.0390069266 },
        { 22, 1.77827941e-4 },
        { 23, 3.33380358e-5 } } },
    { FIXTURE("models/llama"),
      0.35355339,
      { { 0, 1 }, { 1, 0.00470075387 }, { 2, 1.76776695e-4 }, { 3, 6.64786987e-6 } } },
    { FIXTURE("configs/Llama-3.1-8B.json"),
      0.088388348,
      { { 28, 0.00321144599 },
        { 29, 0.00216657076 },
        { 30, 0.00137189357 },
        { 34, 1.78507813e-4 },
        { 35, 9.55621235e-5 } } },
    { FIXTURE("configs/Qwen3-8B.json"), 0.088388348, { { 0, 1 }, { 1, 0.805842188 }, { 63, 1.24093776e-6 } } },
};

static void check_rope(const ModelDesc *m, const char *what, double amp, double scale, const At *at, size_t n) {
    float f[2048], a;
    arch_rope(m, f, &a);
    EXPECT(fabs(a - amp) < 1e-6, "%s: amplitude %.9g, want %.9g", what, a, amp);
    if (scale > 0)
        EXPECT(fabs(arch_attn_scale(m) / scale - 1) < 1e-6, "%s: scale %.9g, want %.9g", what, arch_attn_scale(m),
               scale);
    for (size_t i = 0; i < n && at[i].f > 0; i++)
        EXPECT(fabs(f[at[i].i] / at[i].f - 1) < 3e-7, "%s: f[%d] = %.9g, want %.9g", what, at[i].i, f[at[i].i],
               at[i].f);
}

static void rope_numbers(void) {
    for (size_t i = 0; i < COUNT(rope_cases); i++) {
        const RopeCase *c = &rope_cases[i];
        Mem mem = { 0 };
        Err err;
        ModelDesc m;
        bool ok = model_desc_load(&m, c->file, &mem, &err);
        EXPECT(ok, "%s", err.msg);
        if (ok) check_rope(&m, c->file, 1, c->scale, c->at, COUNT(c->at));
        mem_free(&mem);
    }
}

/* ---- refusals: one key of a good config changed, each gives one line that names it */
static const char *const base_moe =
    "'architectures':['Qwen3MoeForCausalLM'],'model_type':'qwen3_moe','hidden_size':32,'num_hidden_layers':2,'vocab_"
    "size':64,"
    "'num_attention_heads':4,'num_key_value_heads':2,'head_dim':16,'intermediate_size':48,'max_position_embeddings':"
    "40960,"
    "'num_experts':8,'num_experts_per_tok':2,'moe_intermediate_size':24,'rope_theta':1000000";
static const char *const base_mla =
    "'architectures':['DeepseekV3ForCausalLM'],'hidden_size':32,'num_hidden_layers':2,'vocab_size':64,'num_attention_"
    "heads':4,"
    "'intermediate_size':48,'max_position_embeddings':256,'kv_lora_rank':24,'q_lora_rank':null,'qk_nope_head_dim':16,"
    "'qk_rope_head_dim':8,'v_head_dim':16,'n_routed_experts':8,'num_experts_per_tok':2,'moe_intermediate_size':24,"
    "'n_shared_experts':1,'n_group':4,'topk_group':2,'routed_scaling_factor':2.5,'first_k_dense_replace':1";

/* JSON from text that has ' for ". */
static Json quoted(const char *text, Mem *mem) {
    char *t = mem_printf(mem, "{%s}", text);
    for (char *c = t; *c; c++)
        if (*c == '\'') *c = '"';
    Json j;
    Err err;
    CHECK(json_parse(&j, t, strlen(t), mem, &err), "%s: %s", text, err.msg);
    return j;
}

/* The base without the keys that 'over' sets, then 'over'. */
static bool parse_over(ModelDesc *m, const char *base, const char *over, Mem *mem, Err *err) {
    Json b = quoted(base, mem), o = quoted(over, mem);
    Buf t = { 0 };
    buf_putc(&t, '{');
    for (size_t i = 0; i < b.n + o.n; i++) {
        const JsonMember *k = i < b.n ? &b.members[i] : &o.members[i - b.n];
        if (i < b.n && json_get(&o, k->key)) continue;
        if (t.n > 1) buf_putc(&t, ',');
        json_put_str(&t, k->key, k->key_n);
        buf_putc(&t, ':');
        json_put_value(&t, &k->value);
    }
    buf_putc(&t, '}');
    bool ok = model_desc_parse(m, t.data, t.n, mem, err);
    buf_free(&t);
    return ok;
}

static const struct {
    bool mla;
    const char *over, *says; /* says NULL: it loads */
} refused[] = {
    { 0, "'x':1", NULL },
    { 1, "'x':1", NULL },
    { 0, "'hidden_act':'gelu'", "hidden_act is \"gelu\"" },
    { 0, "'model_type':'qw\\n3','architectures':null", "qw 3" },
    { 0, "'hidden_size':null", "hidden_size is missing" },
    { 0, "'hidden_size':-1", "hidden_size is -1" },
    { 0, "'hidden_size':9223372036854775807", "hidden_size is 9223372036854775807" },
    { 0, "'hidden_size':'32'", "hidden_size is \"32\"" },
    { 0, "'hidden_size':32.5", "hidden_size is 32.5" },
    { 0, "'num_hidden_layers':513", "num_hidden_layers is 513" },
    { 0, "'num_key_value_heads':3", "num_key_value_heads" },
    { 0, "'num_key_value_heads':0", "num_key_value_heads is 0" },
    { 0, "'head_dim':15", "head_dim is 15" },
    { 0, "'head_dim':576", NULL },
    { 0, "'head_dim':578", "head_dim is 578: attention takes at most 576" },
    { 0,
      "'model_type':'llama','architectures':['LlamaForCausalLM'],'head_dim':null,'hidden_size':8192,'num_attention_"
      "heads':1,'num_key_value_heads':1",
      "head_dim is 8192" }, /* not in the file: hidden_size / num_attention_heads */
    { 1, "'kv_lora_rank':600", "kv_lora_rank + qk_rope_head_dim is" },
    { 0, "'num_experts_per_tok':9", "num_experts_per_tok is 9" },
    { 0, "'num_experts':null", "num_experts is missing" },
    { 0, "'num_experts':null,'num_local_experts':12,'num_experts_per_tok':3", NULL },
    { 0, "'use_sliding_window':true,'sliding_window':4096", "sliding_window is 4096" },
    { 0, "'use_sliding_window':false,'sliding_window':4096", NULL },
    { 0, "'layer_types':['full_attention','sliding_attention']", "sliding_attention" },
    { 0, "'rope_scaling':{'type':'dynamic','factor':2}", "\"dynamic\"" },
    { 0, "'rope_scaling':{'type':'linear'}", "factor is missing" },
    { 0, "'rope_scaling':{'type':'linear','factor':-2}", "factor is -2" },
    { 0, "'rope_scaling':{'factor':2}", "rope_type" },
    { 0, "'rope_scaling':7", "rope_scaling" },
    { 0, "'rope_scaling':{'rope_type':'llama3','factor':8}", "low_freq_factor is missing" },
    { 0, "'rope_scaling':{'rope_type':'mrope','mrope_section':[2,3,3]}", "mrope_section" },
    { 0, "'rope_theta':0", "rope_theta is 0" },
    { 0, "'partial_rotary_factor':0.5", "partial_rotary_factor is 0.5" },
    { 0, "'quantization_config':{'quant_method':'awq'}", "awq" },
    { 0, "'quantization_config':{'quant_method':'fp8','weight_block_size':[64,128]}", "[64,128]" },
    { 0, "'quantization_config':{'quant_method':'fp8','activation_scheme':'static'}", "static" },
    { 0, "'num_attention_heads':193,'num_key_value_heads':1,'head_dim':2", "193 heads would share one key head" },
    { 1, "'num_attention_heads':200,'num_key_value_heads':200", "200 heads would share one key head" },
    { 0, "'eos_token_id':64", "eos_token_id is 64" },
    { 0, "'eos_token_id':[1,2,1]", NULL },
    { 0, "'decoder_sparse_step':0", "decoder_sparse_step is 0" },
    { 0, "'mlp_only_layers':['a']", "mlp_only_layers" },
    { 0, "'architectures':['GPT2LMHeadModel']", "GPT2LMHeadModel" },
    { 0, "'model_type':'llama'", "do not belong together" },
    { 0, "'architectures':null,'model_type':null", "is this a model's config.json" },
    { 1, "'scoring_func':'softmax'", "scoring_func is \"softmax\"" },
    { 1, "'topk_method':'greedy'", "topk_method is \"greedy\"" },
    { 1, "'moe_layer_freq':2", "moe_layer_freq is 2" },
    { 1, "'n_group':3", "n_group is 3" },
    { 1, "'n_group':8", "n_group is 8" },
    { 1, "'topk_group':5", "topk_group is 5" },
    { 1, "'topk_group':1,'num_experts_per_tok':3", "num_experts_per_tok is 3" },
    { 1, "'qk_rope_head_dim':7", "qk_rope_head_dim is 7" },
    { 1, "'num_key_value_heads':2", "num_key_value_heads is 2" },
    { 1, "'v_head_dim':null", "v_head_dim is missing" },
    { 1, "'rope_interleave':false", NULL },
    { 1, "'n_shared_experts':null", NULL },
    { 1, "'q_lora_rank':40", NULL },
};

static void refusals(void) {
    for (size_t i = 0; i < COUNT(refused); i++) {
        Mem mem = { 0 };
        Err err = { "" };
        ModelDesc m;
        bool ok = parse_over(&m, refused[i].mla ? base_mla : base_moe, refused[i].over, &mem, &err);
        if (!refused[i].says) EXPECT(ok, "%s: %s", refused[i].over, err.msg);
        else {
            EXPECT(!ok && strstr(err.msg, refused[i].says), "%s: %s", refused[i].over, ok ? "was taken" : err.msg);
            EXPECT(!strchr(err.msg, '\n'), "%s: more than one line", refused[i].over);
        }
        mem_free(&mem);
    }
}

static void variants(void) {
    Mem mem = { 0 };
    Err err;
    ModelDesc m;
    const char *yarn =
        "'rope_scaling':{'rope_type':'yarn','factor':4.0,'original_max_position_embeddings':32768},'head_dim':128";
    CHECK(parse_over(&m, base_moe, yarn, &mem, &err), "%s", err.msg);
    At q[] = { { 0, 1 }, { 23, 0.00697830585 }, { 40, 0.25 * 1.77827941e-4 } };
    check_rope(&m, "YaRN as for Qwen3", 1.138629436, 0.088388348, q, COUNT(q));
    CHECK(
        parse_over(&m, base_moe, "'rope_parameters':{'rope_type':'linear','factor':4,'rope_theta':10000}", &mem, &err),
        "%s", err.msg);
    At l[] = { { 0, 0.25 }, { 4, 0.0025 } };
    check_rope(&m, "linear", 1, 0.25, l, COUNT(l));

    CHECK(parse_over(&m, base_moe, "'num_hidden_layers':4,'mlp_only_layers':[1,99]", &mem, &err), "%s", err.msg);
    EXPECT(dims_moe(&m.d, 0) && !dims_moe(&m.d, 1) && dims_moe(&m.d, 2) && dims_moe(&m.d, 3),
           "a dense layer in the middle");
    CHECK(parse_over(&m, base_moe, "'num_hidden_layers':4,'decoder_sparse_step':2", &mem, &err), "%s", err.msg);
    EXPECT(!dims_moe(&m.d, 0) && dims_moe(&m.d, 1) && !dims_moe(&m.d, 2) && dims_moe(&m.d, 3), "every second layer");
    EXPECT(!m.d.norm_topk, "qwen3_moe renormalises only when told");
    CHECK(parse_over(&m, base_moe, "'eos_token_id':[3,5,3],'bos_token_id':1", &mem, &err), "%s", err.msg);
    EXPECT(m.d.special.n_eos == 2 && m.d.special.eos[0] == 3 && m.d.special.eos[1] == 5 && m.d.special.bos == 1
               && m.d.special.pad == -1,
           "token ids");
    /* many end tokens, as many as there may be, one more; each once */
    for (int n = 9; n <= 257; n += n == 9 ? 247 : 1) {
        Buf keys = { 0 };
        buf_puts(&keys, "'vocab_size':300,'eos_token_id':[");
        for (int i = 0; i < n + 3; i++) buf_printf(&keys, "%s%d", i ? "," : "", i % n);
        buf_putc(&keys, ']');
        bool ok = parse_over(&m, base_moe, keys.data, &mem, &err);
        EXPECT(n <= 256 ? ok && m.d.special.n_eos == n && m.d.special.eos[n - 1] == n - 1
                        : !ok && strstr(err.msg, "more than 256 different"),
               "%d end tokens: %s", n, err.msg);
        buf_free(&keys);
    }
    CHECK(parse_over(&m, base_mla, "'rope_interleave':false", &mem, &err), "%s", err.msg);
    EXPECT(!m.d.rope.pairs, "halves turn together when rope_interleave is false");
    EXPECT(!model_desc_load(&m, "tests/data/nothing", &mem, &err) && strstr(err.msg, "tests/data/nothing"), "%s",
           err.msg);
    EXPECT(!model_desc_load(&m, "tests/data", &mem, &err) && strstr(err.msg, "config.json"), "%s", err.msg);
    mem_free(&mem);
}

/* What the families of known parts read, and what they refuse. */
static const char *const base_dense =
    "'hidden_size':48,'num_hidden_layers':4,'vocab_size':64,'num_attention_heads':4,'num_key_value_heads':2,'"
    "intermediate_size':48,'max_position_embeddings':512,'rope_theta':10000";
static const struct {
    const char *over, *says; /* says NULL: it loads */
} families[] = {
    { "'model_type':'mistral','sliding_window':null", NULL },
    { "'model_type':'mistral'", "sliding_window is missing" },
    { "'model_type':'mistral','sliding_window':4096", "sliding_window is 4096" },
    { "'model_type':'llama','tie_word_embeddings':true,'rope_theta':1e5", NULL },
    { "'model_type':'smollm3','no_rope_layers':[1,0,1,1]", NULL },
    { "'model_type':'smollm3','no_rope_layers':[1,0,1]", "no_rope_layers" },
    { "'model_type':'smollm3','no_rope_layers':[1,0,1,2]", "no_rope_layers" },
    { "'model_type':'smollm3','no_rope_layer_interval':0", "no_rope_layer_interval is 0" },
    { "'model_type':'seed_oss'", NULL },
    { "'model_type':'ernie4_5'", NULL },
    { "'model_type':'hunyuan_v1_dense','rope_scaling':{'type':'dynamic','alpha':1000.0}", NULL },
    { "'model_type':'hunyuan_v1_dense','rope_scaling':{'type':'dynamic'}", "without alpha" },
    { "'model_type':'hunyuan_v1_dense','use_cla':true", "use_cla" },
    { "'model_type':'hunyuan_v1_moe','num_experts':4,'moe_topk':[2,2]", NULL },
    { "'model_type':'hunyuan_v1_moe','num_experts':4,'moe_topk':[2,1]", "moe_topk is [2,1]" },
    { "'model_type':'hunyuan_v1_moe','num_experts':4,'moe_topk':2,'moe_intermediate_size':[9]", "they must be the" },
    { "'model_type':'hunyuan_v1_moe','num_experts':4", "moe_topk is missing" },
    { "'model_type':'ernie4_5_moe','moe_num_experts':4,'moe_k':2,'moe_intermediate_size':8", NULL },
    { "'model_type':'ernie4_5_moe','moe_num_experts':4,'moe_k':2,'moe_intermediate_size':8,'use_bias':true",
      "use_bias is true" },
};
static void known_parts(void) {
    Mem mem = { 0 };
    Err err;
    ModelDesc m;
    for (size_t i = 0; i < COUNT(families); i++) {
        bool ok = parse_over(&m, base_dense, families[i].over, &mem, &err);
        if (families[i].says)
            EXPECT(!ok && strstr(err.msg, families[i].says), "%s: %s", families[i].over, ok ? "was taken" : err.msg);
        else EXPECT(ok, "%s: %s", families[i].over, err.msg);
    }
    CHECK(parse_over(&m, base_dense, "'model_type':'smollm3'", &mem, &err), "%s", err.msg);
    EXPECT(m.d.tied && !m.d.layer[2].still && m.d.layer[3].still, "smollm3: tied, every fourth layer without rope");
    const char *glm = "'model_type':'glm4_moe','head_dim':16,'moe_intermediate_size':8,'n_routed_experts':4,"
                      "'num_experts_per_tok':2,'first_k_dense_replace':1";
    CHECK(parse_over(&m, base_dense, glm, &mem, &err), "%s", err.msg);
    EXPECT(m.d.turned == 8 && arch_rope_dim(&m) == 8, "half of a head's columns turn: %ld", (long)m.d.turned);
    CHECK(parse_over(&m, base_dense,
                     mem_printf(&mem,
                                "%s,'rope_parameters':{'rope_type':'default','rope_theta':1e4,"
                                "'partial_rotary_factor':0.25}",
                                glm),
                     &mem, &err),
          "%s", err.msg);
    EXPECT(m.d.turned == 4, "a quarter: %ld", (long)m.d.turned);
    EXPECT(!parse_over(&m, base_dense, mem_printf(&mem, "%s,'partial_rotary_factor':0.05", glm), &mem, &err)
               && strstr(err.msg, "partial_rotary_factor"),
           "%s", err.msg);
    mem_free(&mem);
}

int main(void) {
    known_parts();
    published_sizes();
    two_spellings();
    rope_numbers();
    refusals();
    variants();
    return test_end();
}
