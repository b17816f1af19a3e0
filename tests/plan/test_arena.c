/* test_arena.c - the closed list of what hone keeps, against the model's own code: equal to the byte, for every family,
 * every way to recompute, several shapes. */
#include "model/model.h"
#include "plan/arena.h"
#include "test.h"

/* What the tower keeps: as the model takes it, but for what each tensor is rounded up by. */
static void tower(void) {
    static const Recompute WAYS[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
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
                             .recompute = WAYS[w],
                             .like = dev_kind_cpu() };
        double without = (double)model_sizes(&d, &shape).act;
        shape.pictures =
            (PicturesShape){ .patches = 34 * 46, .tokens = 391, .windows = 30, .frames = 1, .longest = 1564 };
        double got = arena_tower_bytes(&d.d, WAYS[w], 4) * 1564, want = (double)model_sizes(&d, &shape).act - without;
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
    static const struct {
        int64_t tokens, outputs;
        int seqs, longest;
    } SHAPES[] = { { 7, 3, 1, 7 }, { 96, 50, 4, 40 }, { 1000, 999, 3, 500 } };
    static const Recompute WAYS[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    for (size_t m = 0; m < COUNT(MODELS); m++) {
        Mem mem = { 0 };
        Err err = { 0 };
        ModelDesc d;
        CHECK(model_desc_load(&d, mem_printf(&mem, FIXTURE("models/%s/config.json"), MODELS[m]), &mem, &err), "%s",
              err.msg);
        for (size_t s = 0; s < COUNT(SHAPES); s++)
            for (size_t w = 0; w < COUNT(WAYS); w++) {
                ModelShape shape = { .tokens = SHAPES[s].tokens,
                                     .outputs = SHAPES[s].outputs,
                                     .seqs = SHAPES[s].seqs,
                                     .longest = SHAPES[s].longest,
                                     .backward = true,
                                     .recompute = WAYS[w],
                                     .like = dev_kind_cpu() };
                size_t want = model_sizes(&d, &shape).act,
                       got = arena_act_bytes(&d, WAYS[w], shape.tokens, shape.outputs);
                EXPECT(got == want, "%s, %lld tokens, way %zu: planned %zu, the model takes %zu", MODELS[m],
                       (long long)shape.tokens, w, got, want);
            }
        mem_free(&mem);
    }
    return test_end();
}
