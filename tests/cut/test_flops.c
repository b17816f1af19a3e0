/* test_flops.c - verl's counter on its own values, and the exact count by summing every product of a small model. */
#include "base/file.h"
#include "cut/flops.h"
#include "test.h"

#include <math.h>

static int64_t get(const Json *c, const char *key, int64_t otherwise) {
    Err err;
    int64_t v = otherwise;
    EXPECT(json_int(c, key, &v, &err), "%s", key);
    return v;
}

static Dims dims_of(const Json *c) {
    Dims d = { 0 };
    d.layers = get(c, "num_hidden_layers", 0), d.hidden = get(c, "hidden_size", 0), d.vocab = get(c, "vocab_size", 0);
    d.heads = get(c, "num_attention_heads", 0), d.kv_heads = get(c, "num_key_value_heads", 0);
    d.head_dim = get(c, "head_dim", d.hidden / d.heads), d.ffn = get(c, "intermediate_size", 0);
    d.experts = get(c, "num_experts", get(c, "n_routed_experts", get(c, "num_local_experts", 0)));
    d.topk = get(c, "num_experts_per_tok", 0), d.expert_ffn = get(c, "moe_intermediate_size", d.ffn);
    d.shared = get(c, "n_shared_experts", 0), d.q_lora = get(c, "q_lora_rank", 0),
    d.kv_lora = get(c, "kv_lora_rank", 0);
    d.nope_dim = get(c, "qk_nope_head_dim", 0), d.rope_dim = get(c, "qk_rope_head_dim", 0),
    d.v_dim = get(c, "v_head_dim", 0);
    int64_t dense = get(c, "first_k_dense_replace", 0);
    for (int64_t l = 0; l < d.layers; l++)
        d.layer[l] =
            (LayerSpec){ d.kv_lora ? MIXER_MLA : MIXER_GQA, d.experts && l >= dense ? FFN_EXPERTS : FFN_DENSE };
    return d;
}

static void golden(void) {
    Mem mem = { 0 };
    Buf text = { 0 };
    Err err = { { 0 } };
    Json file;
    bool ok = file_read(&text, FIXTURE("verl/flops.json"), &err) && json_parse(&file, text.data, text.n, &mem, &err);
    EXPECT(ok, "%s", err.msg);
    for (size_t i = 0; ok && i < file.n; i++) {
        const Json *c = &file.items[i], *lens = json_get(c, "seqlens");
        Dims d = dims_of(json_get(c, "config"));
        TokenFlops f = token_flops(&d);
        int64_t len[64];
        for (size_t k = 0; k < lens->n; k++) len[k] = lens->items[k].integer;
        double got = flops_verl(&f, len, (int64_t)lens->n) / 1e12,
               want = json_number(json_get(c, "tflops_for_one_second"));
        if (json_is_str(json_get(c, "model"), "mixtral")) EXPECT(want == 0 && got > 1, "mixtral %g", got);
        else EXPECT(fabs(got - want) <= 1e-12 * want, "%s: %.15g, verl %.15g", json_get(c, "model")->str, got, want);
    }
    buf_free(&text);
    mem_free(&mem);
}

/* Every product of two layers, one of them MoE, written out. */
static void exact(void) {
    Dims d = { .layers = 2,
               .hidden = 8,
               .vocab = 50,
               .heads = 4,
               .kv_heads = 2,
               .head_dim = 3,
               .ffn = 16,
               .experts = 6,
               .topk = 2,
               .expert_ffn = 5,
               .shared = 1 };
    d.layer[1].ffn = FFN_EXPERTS;
    TokenFlops f = token_flops(&d);
    double attn = 8 * 12 + 2 * 8 * 6 + 12 * 8;
    double dense = 3 * 8 * 16, moe = 8 * 6 + 3 * 3 * 8 * 5;
    EXPECT(f.linear == 2 * attn + dense + moe && f.head == 400, "%g", f.linear);
    static const int64_t lens[] = { 3, 1 };
    /* pairs 1+2+3 and 1, a multiplication and an addition for q.k and for p v, 4 heads of 3, 2 layers */
    double want = 2 * f.linear * 4 + 2 * 400 * 3 + (6 + 1) * (2 * 3 + 2 * 3) * 4 * 2;
    EXPECT(flops_forward(&f, lens, 2, 3) == want, "%g, by hand %g", flops_forward(&f, lens, 2, 3), want);
    EXPECT(flops_train(&f, lens, 2, 3) == 3 * want, "backward is twice forward");
}

/* GFLOP a token of Qwen2.5-VL-7B's tower on pictures of several sizes (an independent count); a small one by hand. */
static void tower(void) {
    static const struct {
        int h, w;
        double want;
    } some[] = { { 16, 16, 5.20 }, { 78, 138, 6.06 }, { 256, 256, 10.57 } };
    Mem mem = { 0 };
    Err err;
    ModelDesc m;
    CHECK(model_desc_load(&m, FIXTURE("configs/Qwen2.5-VL-7B.json"), &mem, &err), "%s", err.msg);
    for (size_t i = 0; i < COUNT(some); i++) {
        double got = flops_tower(&m.d, some[i].h, some[i].w) / (some[i].h * some[i].w / 4) / 1e9;
        EXPECT(got > some[i].want * 0.997 && got < some[i].want * 1.003, "%d x %d patches: %g, not %g", some[i].h,
               some[i].w, got, some[i].want);
    }
    Dims d = { .vis.layers = 2, .vis.hidden = 4, .vis.ffn = 6, .vis.pixels = 10, .vis.merged = 16, .hidden = 5 };
    d.vis.window = 8, d.vis.patch = 2, d.vis.merge = 2, d.vis.full[1] = 1; /* windows of 4 x 4 patches */
    double blocks = 2 * 2 * 24 * (4 * 16 + 3 * 24), windows = 4 * 4 * (16.0 * 16 + 8 * 8), full = 4 * 4 * 24.0 * 24;
    double want = 2 * 24 * 40 + blocks + windows + full + 2 * 6 * (16 * 16 + 16 * 5);
    EXPECT(flops_tower(&d, 4, 6) == want, "%g, by hand %g", flops_tower(&d, 4, 6), want);
    mem_free(&mem);
}

int main(void) {
    tower();
    golden();
    exact();
    return test_end();
}
