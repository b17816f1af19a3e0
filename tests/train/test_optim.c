/* test_optim.c - AdamW over a model's table through a long life: each of 20,000 updates beside the same in double. */
#include "base/rng.h"
#include "test.h"
#include "train/optim.h"

#include <math.h>

static const char TINY[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,"
    "\"vocab_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":6,\"rms_norm_eps\":1e-"
    "6,"
    "\"rope_theta\":10000,\"max_position_embeddings\":64,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false}";

typedef struct {
    Mem mem;
    ModelDesc desc;
    Dev dev;
    Params w, grads;
    Optim opt;
    int64_t n;
    double *dw, *dm, *dv; /* the life in double */
    float *g, *before, *after;
} Life;

static void life_open(Life *l, double offload) {
    Err err;
    *l = (Life){ 0 };
    CHECK(model_desc_parse(&l->desc, TINY, strlen(TINY), &l->mem, &err), "%s", err.msg);
    dev_open(&l->dev, (DevOpts){ .threads = 1 });
    params_open(&l->w, &l->desc, NULL, &l->dev, DT_F32, false, "weights", &l->mem);
    params_open(&l->grads, &l->desc, NULL, &l->dev, DT_F32, true, "gradients", &l->mem);
    params_random(&l->w, &l->dev, 7);
    optim_open(&l->opt, &l->w, &l->grads, &l->dev, (OptimTypes){ 0 }, offload);
    CHECK((l->opt.split > 0) == (offload > 0) && l->opt.split < l->opt.n, "%lld of %lld on the host",
          (long long)l->opt.split, (long long)l->opt.n);
    size_t n = (size_t)l->grads.flat.cols;
    l->n = (int64_t)n;
    l->dw = MEM_ARRAY(&l->mem, double, n), l->dm = MEM_ARRAY(&l->mem, double, n), l->dv = MEM_ARRAY(&l->mem, double, n);
    l->g = MEM_ARRAY(&l->mem, float, n), l->before = MEM_ARRAY(&l->mem, float, n),
    l->after = MEM_ARRAY(&l->mem, float, n);
    op_get(&l->dev, l->after, l->w.flat); /* no row of this family is frozen: both tables have the same places */
    for (size_t i = 0; i < n; i++) l->dw[i] = (double)l->after[i];
}

static void life_close(Life *l) {
    dev_close(&l->dev);
    mem_free(&l->mem);
}

/* What pulls a weight to its aim, and noise that no average takes away. */
static float pull(const Life *l, int64_t i, int64_t t) {
    double noise = (double)(rng_u64(3, RNG_PLAN, 0, 0, (uint32_t)i, (uint32_t)t) >> 40) / 16777216.0 - 0.5;
    return (float)(0.1 * (l->dw[i] - (i % 3 ? 0.5 : -0.25)) + 0.02 * noise);
}

/* By how much the update moved the weight that it moved most wrongly, as a share of the rate. */
static double one_update(Life *l, const AdamConf *c, int64_t t) {
    double worst = 0, sum = 0, b1 = (double)(float)c->beta1, b2 = (double)(float)c->beta2;
    for (int k = 0; k < l->grads.n; k++) { /* the gaps between them stay 0 */
        const Param *p = &l->grads.at[k];
        int64_t from = (float *)p->t.data - (float *)l->grads.flat.data, n = p->t.rows * p->t.cols;
        for (int64_t i = from; i < from + n; i++) l->g[i] = pull(l, i, t), sum += (double)l->g[i] * (double)l->g[i];
    }
    float *swap = l->before;
    l->before = l->after, l->after = swap;
    op_put(&l->dev, l->grads.flat, l->g);
    Groups one = groups_self();
    optim_step(&l->opt, &l->w, &l->grads, &one, &l->dev, c, reduce_norm(&l->grads, &one, &l->dev));
    op_get(&l->dev, l->after, l->w.flat);
    double scale = fmin(1, c->clip / (sqrt(sum) + 1e-6)), c1 = 1 - pow(b1, (double)t), c2 = 1 - pow(b2, (double)t);
    for (int k = 0; k < l->grads.n; k++) {
        const Param *p = &l->grads.at[k];
        int64_t from = (float *)p->t.data - (float *)l->grads.flat.data, n = p->t.rows * p->t.cols;
        double shrink =
            p->desc->vector ? 1 : (double)(float)(1 - c->lr * c->decay); /* it is a float: 3e-8 each update */
        for (int64_t i = from; i < from + n; i++) {
            double g = (double)l->g[i] * scale, was = l->dw[i];
            l->dm[i] = b1 * l->dm[i] + (1 - b1) * g, l->dv[i] = b2 * l->dv[i] + (1 - b2) * g * g;
            l->dw[i] = was * shrink - c->lr / c1 * l->dm[i] / (sqrt(l->dv[i] / c2) + c->eps);
            double moved = (double)l->after[i] - (double)l->before[i], e = fabs(moved - (l->dw[i] - was)) / c->lr;
            worst = fmax(worst, isfinite(e) ? e : 1e30);
        }
    }
    return worst;
}

static void live(const AdamConf *c, double offload, int64_t updates) {
    Life l;
    life_open(&l, offload);
    double worst = 0, drift = 0;
    int64_t bad = 0, first = 0;
    for (int64_t t = 1; t <= updates; t++) {
        double e = one_update(&l, c, t);
        /* weights below 2 are stored to 1.2e-7, which is 1.2e-4 of this rate, and moments to 6e-8 of themselves */
        if (!(e < 3e-4) && !bad++) first = t;
        worst = fmax(worst, e);
    }
    EXPECT(!bad, "betas %g, %g: %lld of %lld updates are not AdamW's, the first is %lld (by %g of the rate)", c->beta1,
           c->beta2, (long long)bad, (long long)updates, (long long)first, worst);
    for (int64_t i = 0; i < l.n; i++) drift = fmax(drift, fabs((double)l.after[i] - l.dw[i]));
    EXPECT(drift < 1e-4, "betas %g, %g: after %lld updates a weight is off by %g", c->beta1, c->beta2,
           (long long)updates, drift); /* 20,000 roundings of 6e-8 as a random walk: 1e-5 */
    EXPECT(l.opt.step == updates, "%lld updates are counted", (long long)l.opt.step);
    life_close(&l);
}

/* The tower's own rate moves its rows as that rate would alone, and no other row. */
static void tower_rate(void) {
    float *got[3];
    Life l;
    static const AdamConf conf[] = { { 1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 3e-4 },
                                     { 1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 0 },
                                     { 3e-4, 0.9, 0.95, 1e-8, 0.1, 1, 0 } };
    int64_t own = 0, others = 0;
    for (int k = 0; k < 3; k++) {
        Err err;
        Groups one = groups_self();
        l = (Life){ 0 };
        CHECK(model_desc_load(&l.desc, FIXTURE("models/qwen2_5_vl"), &l.mem, &err), "%s", err.msg);
        dev_open(&l.dev, (DevOpts){ .threads = 1 });
        params_open(&l.w, &l.desc, NULL, &l.dev, DT_F32, false, "weights", &l.mem);
        params_open(&l.grads, &l.desc, NULL, &l.dev, DT_F32, true, "gradients", &l.mem);
        params_random(&l.w, &l.dev, 7);
        params_random(&l.grads, &l.dev, 8);
        optim_open(&l.opt, &l.w, &l.grads, &l.dev, (OptimTypes){ 0 }, 0.3);
        optim_step(&l.opt, &l.w, &l.grads, &one, &l.dev, &conf[k], 1);
        got[k] = malloc((size_t)l.w.flat.cols * 4);
        op_get(&l.dev, got[k], l.w.flat);
        for (int i = 0; k == 2 && i < l.w.n; i++) {
            const Param *p = &l.w.at[i];
            size_t from = (size_t)((float *)p->t.data - (float *)l.w.flat.data), n = (size_t)(p->t.rows * p->t.cols);
            bool tower = !strncmp(p->desc->name, "visual.", 7);
            *(tower ? &own : &others) += 1;
            EXPECT(!memcmp(got[0] + from, got[tower ? 2 : 1] + from, n * 4), "%s: not the rate of its own",
                   p->desc->name);
        }
        life_close(&l);
    }
    EXPECT(own > 10 && others > 10, "%lld rows of the tower, %lld others", (long long)own, (long long)others);
    for (int k = 0; k < 3; k++) free(got[k]);
}

int main(void) {
    tower_rate();
    live(&(AdamConf){ 1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 0 }, 0, 20000);
    live(&(AdamConf){ 1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5, 0 }, 0.7, 20000);
    live(&(AdamConf){ 1e-3, 0, 0.5, 1e-8, 0, 1, 0 }, 0.7, 2000);
    return test_end();
}
