/* test_lora.c - a model with an adapter: with B = 0, and with the adapter switched off, it has the bits of the model
 * without one; with B it has others, which depend neither on the batch (E1) nor on the number of threads; its gradients
 * not on what is recomputed (E4), and the base's table has none. */
#include "arch/adapter.h"
#include "model/fixture.h"
#include "param/peft.h"

enum { SEQS = 5, TOKENS = 200 };
static const int lengths[SEQS] = { 1 + 40, 2, 33, 70, 17 };

static void add_adapter(ModelDesc *out, Fixture *f, double rank) {
    static const char *const all[] = { "all-linear", "gate", "q_proj" };
    AdapterSpec spec = {
        .rank = (int64_t)rank, .alpha = 5, .targets = all, .n_targets = 1, .bias = f->desc.d.experts == 0
    };
    AdapterPlan plan;
    Err err;
    CHECK(adapter_plan_of(&plan, &f->desc, &spec, &f->mem, &err), "%s", err.msg);
    *out = arch_adapter(&f->desc, &plan, &f->mem);
    f->desc.adapter = out;
}

static void open_it(Fixture *f, ModelDesc *adapter, int which, int threads, bool backward, Recompute recompute) {
    Err err;
    *f = (Fixture){ 0 };
    CHECK(model_desc_parse(&f->desc, awkward[which].config, strlen(awkward[which].config), &f->mem, &err), "%s",
          err.msg);
    add_adapter(adapter, f, which == 2 ? 1 : 3);
    fixture_open(f, threads, TOKENS, backward, recompute);
    params_random(&f->model.w, &f->dev, 7);
    adapter_init(&f->model.lora, &f->dev, 3, which == 1);
}
/* Numbers of B and its bias. */
static void fill_b(Fixture *f) {
    const Params *p = &f->model.lora;
    for (int i = 0; i < p->n; i++) {
        if (p->at[i].desc->part == ADAPTER_A) continue;
        int64_t n = p->at[i].t.rows * p->at[i].t.cols;
        float *x = MEM_ARRAY(&f->mem, float, (size_t)n);
        for (int64_t k = 0; k < n; k++)
            x[k] = (float)(rng_unit(rng_u64(5, RNG_PLAN, (uint32_t)i, 0, 0, (uint32_t)k)) - 0.5);
        op_put(&f->dev, p->at[i].t, x);
    }
}

static void sequences(PackSeq *out, Fixture *f) {
    for (int i = 0; i < SEQS; i++)
        out[i] = (PackSeq){ random_tokens(f, lengths[i], (uint32_t)i), lengths[i], 1, DRAW_PLAIN };
}

static void values(int which) {
    Fixture f;
    ModelDesc adapter;
    float *first = NULL;
    for (int threads = 1; threads <= 3; threads += 2) {
        open_it(&f, &adapter, which, threads, false, RECOMPUTE_NONE);
        PackSeq seqs[SEQS];
        sequences(seqs, &f);
        size_t bytes = 2 * (size_t)pack_outputs(seqs, SEQS) * 4;
        f.model.lora_off = true;
        float *base = score_seqs(&f, seqs, SEQS);
        f.model.lora_off = false;
        float *zero = score_seqs(&f, seqs, SEQS);
        EXPECT(!memcmp(base, zero, bytes), "%s: B = 0 is not the base", awkward[which].name);
        fill_b(&f);
        float *with = score_seqs(&f, seqs, SEQS);
        EXPECT(memcmp(base, with, bytes), "%s: an adapter changes nothing", awkward[which].name);
        f.model.lora_off = true;
        float *off = score_seqs(&f, seqs, SEQS);
        EXPECT(!memcmp(base, off, bytes), "%s: switched off it is not the base", awkward[which].name);
        f.model.lora_off = false;
        int bad = 0;
        int64_t at = 0;
        for (int i = 0; i < SEQS; at += lengths[i++] - 1)
            bad += memcmp(score_seqs(&f, &seqs[i], 1), with + at, (size_t)(lengths[i] - 1) * 4) != 0;
        EXPECT(!bad, "%s: %d of %d sequences alone differ", awkward[which].name, bad, SEQS);
        if (!first) first = memcpy(malloc(bytes), with, bytes);
        EXPECT(!memcmp(first, with, bytes), "%s: other bits on %d threads", awkward[which].name, threads);
        fixture_close(&f);
    }
    free(first);
}

static float *gradients(int which, Recompute recompute, size_t *n) {
    Fixture f;
    ModelDesc adapter;
    open_it(&f, &adapter, which, 2, true, recompute);
    fill_b(&f);
    ModelShape s = { .tokens = TOKENS,
                     .outputs = TOKENS,
                     .seqs = SEQS,
                     .longest = TOKENS,
                     .backward = true,
                     .trained.recompute = recompute,
                     .like = dev_kind(&f.dev) };
    Arena act = dev_arena(&f.dev, "act", model_sizes(&f.desc, &s).act);
    Params g, none;
    params_open(&none, &f.desc, NULL, &f.dev, DT_F32, true, "none", &f.mem);
    EXPECT(!none.n, "%d rows of the base are trained", none.n);
    params_open(&g, arch_trained(&f.desc), NULL, &f.dev, DT_F32, true, "grads", &f.mem);
    PackSeq seqs[SEQS];
    sequences(seqs, &f);
    Batch b;
    batch_put(&b, &f.dev, &f.io, &f.host, seqs, SEQS);
    ModelKeep keep = model_keep(&f.desc, f.desc.d.layers, &f.mem);
    Tensor lp = tensor_push(&f.io, DT_F32, b.outputs, 1), ent = tensor_push(&f.io, DT_F32, b.outputs, 1);
    model_forward(&f.model, &b, &act, &keep, lp, ent);
    model_backward(&f.model, &g, &b, &act, &keep, lp, TENSOR_NONE);
    *n = (size_t)g.flat.cols;
    float *out = malloc(*n * 4);
    op_get(&f.dev, out, g.flat);
    for (int i = 0; i < g.n; i++) {
        double sum = op_sumsq(&f.dev, tensor_shape(g.at[i].t, 1, g.at[i].t.rows * g.at[i].t.cols));
        EXPECT(sum > 0, "%s: no gradient of %s in layer %d", awkward[which].name, g.at[i].desc->name, g.at[i].layer);
    }
    fixture_close(&f);
    return out;
}

int main(void) {
    for (int which = 0; which < (int)COUNT(awkward); which++) {
        values(which);
        size_t n, m;
        float *want = gradients(which, RECOMPUTE_NONE, &n);
        for (Recompute r = RECOMPUTE_SELECTIVE; r <= RECOMPUTE_FULL; r++) {
            float *got = gradients(which, r, &m);
            EXPECT(n == m && !memcmp(want, got, n * 4), "%s: other gradients with recomputation %d",
                   awkward[which].name, (int)r);
            free(got);
        }
        free(want);
    }
    return test_end();
}
