/* test_exact.c - E1: a sequence's values do not depend on the batch, its order, or the number of threads; and a model's
 * gradient does not depend on threads or recomputation (E4).  Compared with memcmp, in checking mode. */
#include "model/fixture.h"

enum { SEQS = 24, TOKENS = 900 };

static int lengths(int i) { return (int[]){ 1, 2, 70, 17, 64, 65, 3, 33 }[i % 8]; }

/* Each sequence alone, against all of them in three orders. */
static void alone_and_together(const char *name, int which, int threads, float **want) {
    Fixture f;
    fixture_load(&f, name, which, threads, TOKENS, false, RECOMPUTE_NONE);
    PackSeq seqs[SEQS];
    for (int i = 0; i < SEQS; i++) {
        Drawing draw = i % 3 == 1   ? (Drawing){ 0.7f, 0.9f, 0, 0 }
                       : i % 3 == 2 ? (Drawing){ 1.5f, 1, 0.01f, 20 }
                                    : DRAW_PLAIN;
        seqs[i] = (PackSeq){ random_tokens(&f, lengths(i), (uint32_t)i), lengths(i), 1, draw };
    }
    int bad = 0;
    for (int i = 0; i < SEQS; i++) {
        float *alone = score_seqs(&f, &seqs[i], 1);
        size_t bytes = 2 * (size_t)(lengths(i) - 1) * sizeof(float);
        if (!want[i]) want[i] = memcpy(malloc(bytes + 1), alone, bytes);
        bad += memcmp(want[i], alone, bytes) != 0;
    }
    EXPECT(!bad, "%s: %d of %d sequences alone differ on %d threads", name ? name : awkward[which].name, bad, SEQS,
           threads);
    for (int order = 0; order < 3; order++) {
        PackSeq mixed[SEQS];
        int at[SEQS];
        for (int i = 0; i < SEQS; i++) at[i] = order == 0 ? i : order == 1 ? SEQS - 1 - i : (i * 7 + 5) % SEQS;
        for (int i = 0; i < SEQS; i++) mixed[i] = seqs[at[i]];
        int64_t outputs = pack_outputs(mixed, SEQS), o = 0;
        float *all = score_seqs(&f, mixed, SEQS);
        int differ = 0;
        for (int i = 0; i < SEQS; i++) {
            int n = lengths(at[i]) - 1;
            differ += memcmp(all + o, want[at[i]], (size_t)n * 4)
                      || memcmp(all + outputs + o, want[at[i]] + n, (size_t)n * 4);
            o += n;
        }
        EXPECT(!differ, "%s: %d of %d sequences differ in order %d on %d threads", name ? name : awkward[which].name,
               differ, SEQS, order, threads);
    }
    fixture_close(&f);
}

/* Attention is made once: full recomputation remembers what came of it (MLA's where its backward is expanded). */
static int attends;
static void counted(Dev *d, const Attn *a) {
    attends++;
    ops_cpu.attend(d, a);
}

/* Bytes of all gradients of a weighted sum of log-probs and entropies. */
static float *gradient(const char *name, int which, int threads, Recompute recompute, bool expands, size_t *n) {
    Fixture f;
    fixture_load(&f, name, which, threads, 200, true, recompute);
    const Ops *own = f.dev.ops;
    Ops ops = *own;
    bool cpu = own == &ops_cpu;
    if (cpu) ops.expands = expands, ops.attend = counted; /* the CPU has both ways; a GPU its own */
    attends = 0;
    f.dev.ops = &ops;
    ModelShape s = { .tokens = 115,
                     .outputs = 98,
                     .seqs = 3,
                     .longest = 70,
                     .backward = true,
                     .trained.recompute = recompute,
                     .like = dev_kind(&f.dev) };
    Arena act = dev_arena(&f.dev, "act", model_sizes(&f.desc, &s).act);
    Params g;
    params_open(&g, &f.desc, NULL, &f.dev, DT_F32, true, "grads", &f.mem);
    PackSeq seqs[] = { { random_tokens(&f, 70, 1), 70, 5, DRAW_PLAIN },
                       { random_tokens(&f, 33, 2), 33, 1, { 0.8f, 1, 0, 0 } },
                       { random_tokens(&f, 12, 3), 12, 11, DRAW_PLAIN } };
    Batch b;
    batch_put(&b, &f.dev, &f.io, &f.host, seqs, 3);
    Tensor lp = tensor_push(&f.io, DT_F32, b.outputs, 1), ent = tensor_push(&f.io, DT_F32, b.outputs, 1);
    ModelKeep keep = { .block = MEM_ARRAY(&f.mem, BlockKeep, (size_t)f.desc.d.layers) };
    op_zero(&f.dev, g.flat);
    model_forward(&f.model, &b, &act, &keep, lp, ent);
    float *d = MEM_ARRAY(&f.mem, float, (size_t)b.outputs);
    for (int64_t i = 0; i < b.outputs; i++) d[i] = 0.1f * (float)(i % 7 - 3);
    op_put(&f.dev, lp, d);
    op_put(&f.dev, ent, d);
    model_backward(&f.model, &g, &b, &act, &keep, lp, ent);
    *n = (size_t)g.flat.cols;
    float *out = malloc(*n * 4);
    op_get(&f.dev, out, g.flat);
    EXPECT(act.peak == act.size, "%s: activations peak at %zu of %zu planned bytes", name ? name : awkward[which].name,
           act.peak, act.size);
    bool again = recompute == RECOMPUTE_FULL && dims_latent(&f.desc.d) && !expands;
    int layers = 0;
    for (int l = 0; l < f.desc.d.layers; l++) layers += f.desc.d.layer[l].mixer != MIXER_DELTA;
    EXPECT(!cpu || attends == (1 + again) * layers, "%s: attention %d times in %ld layers, recompute %d",
           name ? name : awkward[which].name, attends, (long)f.desc.d.layers, recompute);
    f.dev.ops = own;
    fixture_close(&f);
    return out;
}

static void same_gradient(const char *name, int which, bool expands) {
    static const struct {
        int threads;
        Recompute r;
    } other[] = { { 1, RECOMPUTE_SELECTIVE }, { 3, RECOMPUTE_FULL }, { 2, RECOMPUTE_NONE } };
    size_t n, m;
    float *want = gradient(name, which, 1, RECOMPUTE_NONE, expands, &n);
    for (size_t i = 0; i < COUNT(other); i++) {
        float *got = gradient(name, which, other[i].threads, other[i].r, expands, &m);
        EXPECT(n == m && !memcmp(want, got, n * 4), "%s: gradient differs on %d threads, recompute %d",
               name ? name : awkward[which].name, other[i].threads, other[i].r);
        free(got);
    }
    free(want);
}

int main(void) {
    static const int threads[] = { 1, 2, 3, 7 };
    for (size_t k = 0; k < COUNT(reference_models) + COUNT(awkward); k++) {
        bool ref = k < COUNT(reference_models);
        const char *name = ref ? reference_models[k] : NULL;
        int which = ref ? 0 : (int)(k - COUNT(reference_models));
        float *want[SEQS] = { 0 };
        for (size_t t = 0; t < COUNT(threads); t++) alone_and_together(name, which, threads[t], want);
        for (int i = 0; i < SEQS; i++) free(want[i]);
        same_gradient(name, which, false);
    }
    same_gradient(NULL, 1, true); /* MLA's expanded backward, whose attention is remembered */
    return test_end();
}
