/* gpu_sizes.c - what a plan promises: a batch that is smaller in every way than the one that was planned for takes no
 * more memory.  Sizes come from the dry device like a GPU, so this needs the backend's library, and no GPU. */
#include "model/fixture.h"

static int pick(uint64_t *seed, int lo, int hi) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return lo + (int)((*seed >> 33) % (uint64_t)(hi - lo + 1));
}

static void smaller(const ModelDesc *m, const char *name, DType act, int leaves) {
    DevKind like;
    Err err;
    CHECK(dev_kind_cuda(&like, act, &err), "%s", err.msg);
    uint64_t seed = 7;
    like.leaves = leaves;
    for (int i = 0; i < 60; i++) {
        int T = pick(&seed, 2, i % 3 ? 300 : 5000), seqs = pick(&seed, 1, T < 64 ? T : 64);
        ModelShape big = { .tokens = T,
                           .outputs = T - 1,
                           .seqs = seqs,
                           .longest = T,
                           .backward = i % 2,
                           .truncated = true,
                           .trained.recompute = (Recompute)(i % 3),
                           .like = like };
        ModelSizes most = model_sizes(m, &big);
        for (int k = 0; k < 8; k++) {
            ModelShape s = big;
            s.tokens = pick(&seed, 1, T), s.outputs = pick(&seed, 0, (int)s.tokens - 1);
            s.seqs = pick(&seed, 1, seqs < (int)s.tokens ? seqs : (int)s.tokens),
            s.longest = pick(&seed, ((int)s.tokens + s.seqs - 1) / s.seqs, (int)s.tokens);
            ModelSizes got = model_sizes(m, &s);
            EXPECT(got.tmp <= most.tmp && got.act <= most.act,
                   "%s %s: %ld tokens, %ld outputs, %d sequences up to %d take %zu + %zu bytes; planned for %d, %d: "
                   "%zu + %zu",
                   name, dtype_name(act), (long)s.tokens, (long)s.outputs, s.seqs, s.longest, got.tmp, got.act, T, seqs,
                   most.tmp, most.act);
        }
    }
    for (int i = 0; i < 40; i++) { /* the engine's rows */
        ExtendShape big = {
            .rows = pick(&seed, 1, 600), .seqs = 0, .max_pages = pick(&seed, 1, 40), .page = 16 * pick(&seed, 1, 8)
        };
        big.seqs = pick(&seed, 1, (int)big.rows), big.outputs = big.seqs, big.longest = (int)big.rows;
        size_t most = model_extend_tmp(m, &big, like);
        for (int k = 0; k < 8; k++) {
            ExtendShape s = big;
            s.rows = pick(&seed, 1, (int)big.rows),
            s.seqs = pick(&seed, 1, big.seqs < (int)s.rows ? big.seqs : (int)s.rows),
            s.outputs = pick(&seed, 0, s.seqs);
            s.longest = pick(&seed, ((int)s.rows + s.seqs - 1) / s.seqs, (int)s.rows);
            size_t got = model_extend_tmp(m, &s, like);
            EXPECT(got <= most,
                   "%s %s: %ld rows of %d sequences up to %d, %ld outputs take %zu bytes of scratch; planned for %ld, "
                   "%d: %zu",
                   name, dtype_name(act), (long)s.rows, s.seqs, s.longest, (long)s.outputs, got, (long)big.rows,
                   big.seqs, most);
        }
    }
}

int gpu_sizes(int argc, char **argv) {
    (void)argc, (void)argv;
    for (size_t k = 0; k < COUNT(reference_models) + COUNT(awkward); k++) {
        Mem mem = { 0 };
        ModelDesc m;
        Err err;
        char path[256];
        bool ref = k < COUNT(reference_models);
        const char *config = ref ? NULL : awkward[k - COUNT(reference_models)].config;
        if (ref) snprintf(path, sizeof path, FIXTURE("models/%s"), reference_models[k]);
        CHECK(ref ? model_desc_load(&m, path, &mem, &err) : model_desc_parse(&m, config, strlen(config), &mem, &err),
              "%s", err.msg);
        const char *name = ref ? reference_models[k] : awkward[k - COUNT(reference_models)].name;
        smaller(&m, name, DT_F32, 8), smaller(&m, name, DT_BF16, 8), smaller(&m, name, DT_BF16, 1);
        mem_free(&mem);
    }
    return test_end();
}
