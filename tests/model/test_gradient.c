/* test_gradient.c - the whole backward against differences of the whole forward, on models of awkward shapes: along
 * random directions of each parameter, (loss(w + e d) - loss(w - e d)) / 2e against <gradient, d>.  The forward is
 * float32, so a difference is good to about 1e-3 of its size; a wrong or missing term shows as a factor.  Then once
 * more with each backward operation a tenth too large: every such fault is seen. */
#include "model/fixture.h"
#include "op/planted.h"

#include <math.h>

enum { TOKENS = 96, DELTA = COUNT(awkward) - 1, GATES = COUNT(awkward) - 3 }; /* (the last of families.inc) */

typedef struct {
    Fixture f;
    Batch b;
    Tensor lp, ent;
    float weight[TOKENS];
} Net;

static double loss(Net *n) {
    float lp[TOKENS], ent[TOKENS];
    model_score(&n->f.model, &n->b, n->lp, n->ent);
    op_get(&n->f.dev, lp, n->lp);
    op_get(&n->f.dev, ent, n->ent);
    double sum = 0;
    for (int64_t i = 0; i < n->b.outputs; i++) sum += (double)n->weight[i] * ((double)lp[i] + 0.5 * (double)ent[i]);
    return sum;
}

static void move(Net *n, Tensor w, const float *at, const float *dir, double e) {
    int64_t k = w.rows * w.cols;
    float *moved = MEM_ARRAY(&n->f.mem, float, (size_t)k);
    for (int64_t i = 0; i < k; i++) moved[i] = (float)((double)at[i] + e * (double)dir[i]);
    op_put(&n->f.dev, w, moved);
}

/* How far the gradient is from the difference, relative; -1: too small to say. */
static double check_param(Net *n, const Params *g, const Param *p) {
    int64_t k = p->t.rows * p->t.cols;
    Tensor w = param(&n->f.model.w, p->desc->id, p->layer);
    float *at = MEM_ARRAY(&n->f.mem, float, (size_t)k), *grad = MEM_ARRAY(&n->f.mem, float, (size_t)k),
          *dir = MEM_ARRAY(&n->f.mem, float, (size_t)k);
    op_get(&n->f.dev, at, w);
    op_get(&n->f.dev, grad, param(g, p->desc->id, p->layer));
    double norm = 0, along = 0;
    for (int64_t i = 0; i < k; i++) norm += (double)grad[i] * (double)grad[i];
    norm = sqrt(norm);
    if (norm < 1e-4) return -1; /* an expert without tokens, a cut that nothing reaches */
    /* half along the gradient, half random: large, and not blind to an entry that should be there and is not */
    double rn = 0;
    for (int64_t i = 0; i < k; i++)
        dir[i] =
            (float)(rng_unit(rng_u64(11, RNG_PLAN, (uint32_t)p->desc->id, (uint32_t)p->layer, 0, (uint32_t)i)) - 0.5),
        rn += (double)dir[i] * (double)dir[i];
    for (int64_t i = 0; i < k; i++)
        dir[i] = (float)((double)dir[i] / sqrt(rn) + (double)grad[i] / norm), along += (double)dir[i] * (double)grad[i];
    /* a step that carries a token to another expert jumps: the smallest step is the least
     * likely to, the largest the least noisy */
    static const double step[] = { 1e-3, 2e-4, 5e-5 };
    double err = 1e9;
    for (size_t i = 0; i < COUNT(step) && err > 0.01; i++) {
        move(n, w, at, dir, step[i]);
        double up = loss(n);
        move(n, w, at, dir, -step[i]);
        double slope = (up - loss(n)) / (2 * step[i]);
        err = fmin(err, fabs(slope - along) / (fabs(along) + 0.02));
    }
    op_put(&n->f.dev, w, at);
    return err;
}

static void check_model(int which, const char *fault, bool expands) {
    Net n = { 0 };
    fixture_load(&n.f, NULL, which, 1, TOKENS, true, RECOMPUTE_NONE);
    Ops plain = *n.f.dev.ops;
    plain.expands = expands; /* MLA's other backward */
    n.f.dev.ops = &plain;
    PackSeq seqs[] = { { random_tokens(&n.f, 40, 5), 40, 1, DRAW_PLAIN },
                       { random_tokens(&n.f, 30, 6), 30, 3, { 0.8f, 1, 0, 0 } } };
    batch_put(&n.b, &n.f.dev, &n.f.io, &n.f.host, seqs, 2);
    n.lp = tensor_push(&n.f.io, DT_F32, n.b.outputs, 1), n.ent = tensor_push(&n.f.io, DT_F32, n.b.outputs, 1);
    float half[TOKENS];
    for (int i = 0; i < TOKENS; i++) n.weight[i] = 0.05f * (float)(i % 5 - 1), half[i] = 0.5f * n.weight[i];
    ModelShape s = {
        .tokens = TOKENS, .outputs = TOKENS, .seqs = 4, .longest = TOKENS, .backward = true, .like = dev_kind(&n.f.dev)
    };
    Arena act = dev_arena(&n.f.dev, "act", model_sizes(&n.f.desc, &s).act);
    Params g;
    params_open(&g, &n.f.desc, NULL, &n.f.dev, DT_F32, true, "grads", &n.f.mem);
    ModelKeep keep = { .block = MEM_ARRAY(&n.f.mem, BlockKeep, (size_t)n.f.desc.d.layers) };
    op_zero(&n.f.dev, g.flat);
    model_forward(&n.f.model, &n.b, &act, &keep, n.lp, n.ent);
    op_put(&n.f.dev, n.lp, n.weight);
    op_put(&n.f.dev, n.ent, half);
    Ops ops = fault ? planted_ops(fault, spoil_scale) : plain;
    ops.expands = expands;
    n.f.dev.ops = &ops;
    model_backward(&n.f.model, &g, &n.b, &act, &keep, n.lp, n.ent);
    n.f.dev.ops = &plain;
    int checked = 0, wrong = 0;
    for (int i = 0; i < g.n && !(fault && wrong); i++) {
        double err = check_param(&n, &g, &g.at[i]);
        checked += err >= 0, wrong += err >= 0.03;
        EXPECT(fault || err < 0.03, "%s: %s of layer %d: %.0f %% off", awkward[which].name, g.at[i].desc->name,
               g.at[i].layer, err * 100);
    }
    EXPECT(fault || checked > 15, "%s: only %d parameters were checked", awkward[which].name, checked);
    EXPECT(!fault || wrong, "%s: a wrong %s was not noticed", awkward[which].name, fault);
    n.f.dev.ops = &ops_cpu;
    fixture_close(&n.f);
}

int main(void) {
    static const struct {
        int which;
        const char *fault;
        bool expands;
    } planted[] = {
        { 0, "linear_dx" },
        { 0, "linear_dw.dw" },
        { 2, "linear_dw.db" },
        { 0, "grouped_dx" },
        { 0, "grouped_dw" },
        { 1, "headwise_dw" },
        { 2, "embed_bwd" },
        { 0, "rmsnorm_bwd.dx" },
        { 1, "rmsnorm_bwd.dg" },
        { 2, "swiglu_bwd.dup" },
        { 1, "swiglu_bwd.dgate" },
        { 0, "attend_bwd.dq" },
        { 2, "attend_bwd.dk" },
        { 1, "attend_bwd.dv" },
        { 0, "route_bwd" },
        { 1, "permute_bwd" },
        { 0, "combine_bwd.drows" },
        { 1, "combine_bwd.dweight" },
        { 1, "logprob_bwd.dh" },
        { 0, "logprob_bwd.dw" },
        { 1, "copy_heads", true },
        { 1, "attend_bwd.dv", true },
        { GATES, "gate_bwd.da" },
        { GATES, "gate_bwd.dg" },
        { DELTA, "conv_bwd.dx" },
        { DELTA, "conv_bwd.dw" },
        { DELTA, "unit_bwd" },
        { DELTA, "decay_bwd.da" },
        { DELTA, "decay_bwd.db" },
        { DELTA, "decay_bwd.dA" },
        { DELTA, "decay_bwd.ddt" },
        { DELTA, "delta_bwd.q" },
        { DELTA, "delta_bwd.k" },
        { DELTA, "delta_bwd.v" },
        { DELTA, "delta_bwd.g" },
        { DELTA, "delta_bwd.beta" },
        { DELTA, "norm_gate_bwd.dx" },
        { DELTA, "norm_gate_bwd.dz" },
        { DELTA, "norm_gate_bwd.dw" },
    };
    for (int i = 0; i < (int)COUNT(awkward); i++) check_model(i, NULL, false);
    check_model(1, NULL, true);
    for (size_t i = 0; i < COUNT(planted) && on_cpu(); i++)
        check_model(planted[i].which, planted[i].fault, planted[i].expands);
    return test_end();
}
