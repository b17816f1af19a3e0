/* test_kept.c - what the planner says a layer keeps, against what models of all their layers take more for more tokens:
 * every family, every way to recompute, and a GPU's layers where its library is beside the program (hone_gpu_test). */
#include "model/model.h"
#include "plan/kept.h"
#include "test.h"

static const Recompute WAYS[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
enum { TOKENS = 512 };

static double act_of(const ModelDesc *m, int layers, Recompute way, DevKind like, int tokens) {
    ModelDesc some = *m;
    some.d.layers = layers;
    ModelShape s = { .tokens = tokens,
                     .outputs = 1,
                     .seqs = 1,
                     .longest = tokens,
                     .backward = true,
                     .trained.recompute = way,
                     .like = like };
    return (double)model_sizes(&some, &s).act;
}
static double more_of(const ModelDesc *m, int layers, Recompute way, DevKind like) {
    return (act_of(m, layers, way, like, 3 * TOKENS) - act_of(m, layers, way, like, TOKENS)) / (2 * TOKENS);
}
/* All layers but the first: of those that are made again in backward the largest comes on top, so models whose layers
 * differ are not compared in that way. */
static void layers(const char *name, const ModelDesc *m, DevKind like, bool gpu) {
    KeptMemo memo = { 0 };
    bool differ = false;
    for (int l = 1; l < m->d.layers; l++) differ = differ || m->d.layer[l].ffn != m->d.layer[0].ffn;
    for (size_t w = 0; w < COUNT(WAYS); w++) {
        KeptHow how = { .recompute = WAYS[w], .act = like.act, .gpu = gpu };
        double sum = 0, want = more_of(m, (int)m->d.layers, WAYS[w], like) - more_of(m, 1, WAYS[w], like);
        for (int l = 1; l < m->d.layers; l++) sum += kept_layer(&memo, m, l, how);
        if (WAYS[w] == RECOMPUTE_FULL && differ) continue;
        EXPECT(sum == want && sum > 0, "%s, %s, way %zu: planned %g a token, the model takes %g", name,
               gpu ? "gpu" : "cpu", w, sum, want);
        KeptHow spread = how;
        spread.spread = true;
        int last = (int)m->d.layers - 1;
        double more = kept_layer(&memo, m, last, spread) - kept_layer(&memo, m, last, how);
        EXPECT(dims_moe(&m->d, last) ? more >= 0 : more == 0, "%s: rows of other ranks take %g", name, more);
    }
    CHECK(memo.n > 0 && memo.n <= 12, "%d kinds", memo.n);
}

static void tower(void) {
    Mem mem = { 0 };
    Err err = { 0 };
    ModelDesc d;
    CHECK(model_desc_load(&d, FIXTURE("configs/Qwen2.5-VL-3B.json"), &mem, &err), "%s", err.msg);
    for (size_t w = 0; w < COUNT(WAYS); w++) {
        ModelShape shape = { .tokens = 4096,
                             .outputs = 1000,
                             .seqs = 1,
                             .longest = 4096,
                             .backward = true,
                             .trained.recompute = WAYS[w],
                             .like = dev_kind_cpu() };
        double without = (double)model_sizes(&d, &shape).act;
        shape.pictures =
            (PicturesShape){ .patches = 34 * 46, .tokens = 391, .windows = 30, .frames = 1, .longest = 1564 };
        double got = kept_tower(&d, (KeptHow){ .recompute = WAYS[w], .act = DT_F32 }) * 1564,
               want = (double)model_sizes(&d, &shape).act - without;
        EXPECT(got > want * 0.99 && got < want * 1.01, "way %zu: planned %g, the model takes %g", w, got, want);
    }
    mem_free(&mem);
}

int main(void) {
    tower();
    static const char *const MODELS[] = {
        "deepseek_v3", "deepseek_v3_yarn", "moonlight", "qwen3_moe", "qwen3_moe_plain", "mixtral", "qwen3",
        "qwen2",       "qwen2_long",       "llama",     "llama_long"
    };
    DevKind gpu;
    Err none;
    bool has_gpu = dev_kind_cuda(&gpu, DT_BF16, &none);
    for (size_t m = 0; m < COUNT(MODELS); m++) {
        Mem mem = { 0 };
        Err err = { 0 };
        ModelDesc d;
        CHECK(model_desc_load(&d, mem_printf(&mem, FIXTURE("models/%s/config.json"), MODELS[m]), &mem, &err), "%s",
              err.msg);
        layers(MODELS[m], &d, dev_kind_cpu(), false);
        if (has_gpu) layers(MODELS[m], &d, gpu, true);
        mem_free(&mem);
    }
    return test_end();
}
