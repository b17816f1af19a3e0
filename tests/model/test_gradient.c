/* test_gradient.c - the whole backward against differences of the whole forward, on models of awkward shapes: along random
 * directions of each parameter, (loss(w + e d) - loss(w - e d)) / 2e against <gradient, d>.  The forward is float32, so a
 * difference is good to about 1e-3 of its size; a wrong or missing term shows as a factor. */
#include "model/fixture.h"

#include <math.h>

enum { TOKENS = 96 };

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

static void check_param(Net *n, const char *model, const Params *g, const Param *p, int *checked, double *worst) {
    int64_t k = p->t.rows * p->t.cols;
    Tensor w = param(&n->f.model.w, p->desc->id, p->layer);
    float *at = MEM_ARRAY(&n->f.mem, float, (size_t)k), *grad = MEM_ARRAY(&n->f.mem, float, (size_t)k),
          *dir = MEM_ARRAY(&n->f.mem, float, (size_t)k);
    op_get(&n->f.dev, at, w);
    op_get(&n->f.dev, grad, param(g, p->desc->id, p->layer));
    double norm = 0, along = 0;
    for (int64_t i = 0; i < k; i++) norm += (double)grad[i] * (double)grad[i];
    norm = sqrt(norm);
    if (norm < 1e-4) return; /* an expert without tokens, a cut that nothing reaches */
    /* half along the gradient, half random: large, and not blind to an entry that should be there and is not */
    double rn = 0;
    for (int64_t i = 0; i < k; i++)
        dir[i] =
            (float)(rng_unit(rng_u64(11, RNG_PLAN, (uint32_t)p->desc->id, (uint32_t)p->layer, 0, (uint32_t)i)) - 0.5),
        rn += (double)dir[i] * (double)dir[i];
    for (int64_t i = 0; i < k; i++)
        dir[i] = (float)((double)dir[i] / sqrt(rn) + (double)grad[i] / norm), along += (double)dir[i] * (double)grad[i];
    /* a step that carries a token to another expert jumps: the smallest step is the least likely to, the largest the least noisy */
    static const double step[] = { 1e-3, 2e-4, 5e-5 };
    double err = 1e9, got = 0;
    for (size_t i = 0; i < COUNT(step) && err > 0.01; i++) {
        move(n, w, at, dir, step[i]);
        double up = loss(n);
        move(n, w, at, dir, -step[i]);
        double slope = (up - loss(n)) / (2 * step[i]), off = fabs(slope - along) / (fabs(along) + 0.02);
        if (off < err) err = off, got = slope;
    }
    op_put(&n->f.dev, w, at);
    (*checked)++;
    if (err > *worst) *worst = err;
    EXPECT(err < 0.03, "%s: %s of layer %d: difference %g, gradient %g", model, p->desc->name, p->layer, got, along);
}

static void check_model(int which, bool plant) {
    Net n = { 0 };
    fixture_load(&n.f, NULL, which, 1, TOKENS, true, RECOMPUTE_NONE);
    PackSeq seqs[] = { { random_tokens(&n.f, 40, 5), 40, 1, DRAW_PLAIN },
                       { random_tokens(&n.f, 30, 6), 30, 3, { 0.8f, 1, 0, 0 } } };
    batch_put(&n.b, &n.f.dev, &n.f.io, &n.f.host, seqs, 2);
    n.lp = tensor_push(&n.f.io, DT_F32, n.b.outputs, 1), n.ent = tensor_push(&n.f.io, DT_F32, n.b.outputs, 1);
    float half[TOKENS];
    for (int i = 0; i < TOKENS; i++) n.weight[i] = 0.05f * (float)(i % 5 - 1), half[i] = 0.5f * n.weight[i];
    ModelShape s = {
        .tokens = TOKENS, .outputs = TOKENS, .seqs = 4, .longest = TOKENS, .backward = true, .threads = 1
    };
    Arena act = dev_arena(&n.f.dev, "act", model_sizes(&n.f.desc, &s).act);
    Params g;
    params_open(&g, &n.f.desc, &n.f.dev, DT_F32, true, "grads", &n.f.mem);
    ModelKeep keep = { .block = MEM_ARRAY(&n.f.mem, BlockKeep, (size_t)n.f.desc.d.layers) };
    op_zero(&n.f.dev, g.flat);
    model_forward(&n.f.model, &n.b, &act, &keep, n.lp, n.ent);
    op_put(&n.f.dev, n.lp, n.weight);
    op_put(&n.f.dev, n.ent, half);
    model_backward(&n.f.model, &g, &n.b, &act, &keep, n.lp, n.ent);
    int checked = 0, failed = test_failed;
    double worst = 0;
    if (plant) { /* a gradient that is 10 % too large must be seen */
        Tensor t = param(&g, P_O, 1);
        float *x = MEM_ARRAY(&n.f.mem, float, (size_t)(t.rows * t.cols));
        op_get(&n.f.dev, x, t);
        for (int64_t i = 0; i < t.rows * t.cols; i++) x[i] *= 1.1f;
        op_put(&n.f.dev, t, x);
    }
    for (int i = 0; i < g.n; i++) check_param(&n, awkward[which].name, &g, &g.at[i], &checked, &worst);
    if (plant) {
        EXPECT(test_failed > failed, "a planted fault was not caught");
        test_failed = failed;
    } else EXPECT(checked > 15, "%s: only %d parameters were checked", awkward[which].name, checked);
    fixture_close(&n.f);
}

int main(void) {
    for (int i = 0; i < (int)COUNT(awkward); i++) check_model(i, false);
    check_model(0, true);
    return test_end();
}
