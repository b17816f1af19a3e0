/* test_layers.c - each layer alone against the same equations in double (reference.h): forward; backward against
 * differences of the double forward, entry by entry for x and along random directions for each weight.  One token, no
 * token, empty sequences among others, sequences longer than a tile.  Weight gradients are added to what is there,
 * those of other layers are untouched.  Then with a backward operation a tenth too large: that is seen. */
#include "layer/reference.h"
#include "model/fixture.h"
#include "op/planted.h"

enum { MOST = 160 };

typedef enum { NORM, GQA, MLA, MLA_EXPANDED, MLP, MOE } Kind;
static const char *const kind_name[] = { "norm", "gqa", "mla", "mla, expanded backward", "mlp", "moe" };

static const char llama[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":36,"
                            "\"num_hidden_layers\":2,\"vocab_size\":97,"
                            "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"head_dim\":8,\"intermediate_size\":"
                            "50,\"rms_norm_eps\":1e-5,\"rope_theta\":10000,"
                            "\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,"
                            "\"attention_bias\":true,\"mlp_bias\":true,"
                            "\"initializer_range\":0.2}";
static const char no_q_latent[] =
    "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":24,\"num_hidden_"
    "layers\":2,\"vocab_size\":97,"
    "\"num_attention_heads\":3,\"num_key_value_heads\":3,\"intermediate_size\":20,\"moe_intermediate_size\":6,\"n_"
    "routed_experts\":4,"
    "\"num_experts_per_tok\":4,\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":2.5,"
    "\"norm_topk_prob\":false,"
    "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_k_dense_replace\":1,\"q_lora_rank\":null,\"kv_"
    "lora_rank\":16,"
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":8,\"rms_norm_eps\":1e-5,\"rope_theta\":10000,"
    "\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,\"initializer_range\":0.2}";

typedef struct {
    Fixture f;
    Kind kind;
    int layer, n_seqs;
    int64_t T, H;
    int32_t at[9];
    Ops ops;
    Ctx c;
    Params g;
    Ref ref;
    Mem mem;
    float *x, *r; /* [T,H]; the loss is <r, y> */
} Rig;

static double number(uint32_t what, uint32_t i) { return 2 * rng_unit(rng_u64(3, RNG_PLAN, what, 0, 0, i)) - 1; }

static void fetch(Rig *k) {
    for (int i = 0; i < k->g.n; i++) {
        const Param *p = &k->f.model.w.at[i];
        if (p->layer != k->layer && p->desc->where != IN_LAST) continue;
        int64_t n = p->t.rows * p->t.cols;
        float *w = MEM_ARRAY(&k->f.mem, float, (size_t)n);
        op_get(&k->f.dev, w, p->t);
        k->ref.w[p->desc->id] = MEM_ARRAY(&k->f.mem, double, (size_t)n);
        for (int64_t j = 0; j < n; j++) k->ref.w[p->desc->id][j] = (double)w[j];
    }
}

static void rig_open(Rig *k, Kind kind, const char *config, int layer, const int *lens, int n_seqs) {
    *k = (Rig){ .kind = kind, .layer = layer, .n_seqs = n_seqs };
    int longest = 0;
    for (int i = 0; i < n_seqs; i++) {
        k->at[i + 1] = k->at[i] + lens[i];
        if (lens[i] > longest) longest = lens[i];
    }
    k->T = k->at[n_seqs];
    fixture_made(&k->f, config, 2, MOST, true, RECOMPUTE_NONE);
    Dev *d = &k->f.dev;
    Model *m = &k->f.model;
    k->ops = *d->ops, k->ops.expands = kind == MLA_EXPANDED, d->ops = &k->ops;
    /* vectors (norms, biases) are all one or all zero in a random model */
    for (int i = 0; i < m->w.n; i++) {
        Tensor t = m->w.at[i].t;
        if (!m->w.at[i].desc->vector && !m->w.at[i].desc->frozen) continue;
        float *v = MEM_ARRAY(&k->f.mem, float, (size_t)(t.rows * t.cols));
        for (int64_t j = 0; j < t.rows * t.cols; j++)
            v[j] = (float)(0.8 + 0.4 * number(100 + (uint32_t)i, (uint32_t)j));
        op_put(d, t, v);
    }
    params_open(&k->g, &k->f.desc, NULL, d, DT_F32, true, "grads", &k->f.mem);
    int32_t pos[MOST];
    for (int s = 0; s < n_seqs; s++)
        for (int i = k->at[s]; i < k->at[s + 1]; i++) pos[i] = 3 + i - k->at[s];
    Tensor at = tensor_push(&k->f.io, DT_I32, n_seqs + 1, 1), p = tensor_push(&k->f.io, DT_I32, k->T, 1);
    op_put(d, at, k->at);
    op_put(d, p, pos);
    Arena *act = MEM_NEW(&k->f.mem, Arena);
    *act = dev_arena(d, "act", 8 << 20);
    k->c = (Ctx){ .dev = d,
                  .act = act,
                  .m = &k->f.desc,
                  .l = m->local,
                  .tokens = k->T,
                  .w = &m->w,
                  .par = m->par,
                  .leaves = m->leaves,
                  .seqs = { .n = n_seqs, .longest = longest, .at = at },
                  .scale = m->scale };
    k->c.cossin = tensor_push(act, DT_F32, k->T, arch_rope_dim(&k->f.desc));
    op_rope_table(d, k->c.cossin, p, m->freq, m->amp);
    float *cs = MEM_ARRAY(&k->f.mem, float, (size_t)(k->T * k->c.cossin.cols + 1));
    double *cd = MEM_ARRAY(&k->f.mem, double, (size_t)(k->T * k->c.cossin.cols + 1));
    op_get(d, cs, k->c.cossin);
    for (int64_t i = 0; i < k->T * k->c.cossin.cols; i++) cd[i] = (double)cs[i];
    k->H = k->f.desc.d.hidden;
    k->ref = (Ref){ .m = &k->f.desc,
                    .T = k->T,
                    .seqs = n_seqs,
                    .at = k->at,
                    .cossin = cd,
                    .dim = k->c.cossin.cols,
                    .scale = (double)m->scale,
                    .mem = &k->mem };
    fetch(k);
    k->x = MEM_ARRAY(&k->f.mem, float, (size_t)(k->T * k->H + 1)),
    k->r = MEM_ARRAY(&k->f.mem, float, (size_t)(k->T * k->H + 1));
    for (int64_t i = 0; i < k->T * k->H; i++)
        k->x[i] = (float)number(1, (uint32_t)i), k->r[i] = (float)number(2, (uint32_t)i);
}

static void rig_close(Rig *k) {
    dev_free(&k->f.dev, k->c.act->base);
    k->f.dev.ops = &ops_cpu;
    params_close(&k->g, &k->f.dev);
    fixture_close(&k->f);
    mem_free(&k->mem);
}

static void reference(const Rig *k, double *y, const double *x) {
    static void (*const all[])(const Ref *, double *, const double *) = { NULL,    ref_gqa, ref_mla,
                                                                          ref_mla, ref_mlp, ref_moe };
    if (k->kind == NORM) ref_norm(y, k->H, x, k->H, k->ref.w[P_NORM1], k->T, k->H, k->f.desc.d.eps);
    else all[k->kind](&k->ref, y, x);
    mem_free(k->ref.mem);
}

/* Forward with or without keeping; then, if it is asked for, backward. */
static void run(Rig *k, Recompute recompute, bool keeps, float *y, float *dx, float *grads, const Ops *backward) {
    Dev *d = &k->f.dev;
    Arena *act = k->c.act;
    size_t mark = arena_mark(act);
    Ctx c = k->c;
    c.recompute = recompute;
    Tensor X = tensor_push(act, DT_F32, k->T, k->H), Y = tensor_push(act, DT_F32, k->T, k->H),
           dX = tensor_push(act, DT_F32, k->T, k->H), dY = tensor_push(act, DT_F32, k->T, k->H);
    op_put(d, X, k->x);
    op_put(d, dY, k->r);
    size_t tmp = arena_mark(&d->tmp);
    MixerKeep mixer;
    MlpKeep mlp;
    MoeKeep moe;
    NormKeep norm;
    Attended none = { 0 };
    Routing routing = k->kind == MOE ? routing_push(&c, k->T, act) : (Routing){ 0 };
    switch (k->kind) {
    case NORM:
        Y = norm_forward(&c, X, param(c.w, P_NORM1, k->layer), (float)k->f.desc.d.eps, act, keeps ? &norm : NULL);
        break;
    case GQA:
    case MLA:
    case MLA_EXPANDED:
        mixer_of(c.m, k->layer)->forward(&c, k->layer, Y, X, NULL, &none, false, keeps ? &mixer : NULL);
        break;
    case MLP: mlp_forward(&c, &mlp_dense, k->layer, Y, X, keeps ? &mlp : NULL); break;
    case MOE: moe_forward(&c, k->layer, Y, X, &routing, false, NULL, NULL, keeps ? &moe : NULL); break;
    }
    op_get(d, y, Y);
    if (dx) {
        float *quarter = MEM_ARRAY(&k->f.mem, float, (size_t)k->g.flat.cols);
        for (int64_t i = 0; i < k->g.flat.cols; i++) quarter[i] = 0.25f;
        op_put(d, k->g.flat, quarter);
        if (backward) d->ops = backward;
        switch (k->kind) {
        case NORM:
            norm_backward(&c, dX, param(&k->g, P_NORM1, k->layer), dY, param(c.w, P_NORM1, k->layer), &norm);
            break;
        case GQA:
        case MLA:
        case MLA_EXPANDED: mixer_of(c.m, k->layer)->backward(&c, k->layer, &k->g, dX, dY, X, &mixer); break;
        case MLP: mlp_backward(&c, &mlp_dense, k->layer, &k->g, dX, dY, X, &mlp); break;
        case MOE: moe_backward(&c, k->layer, &k->g, dX, dY, X, &moe); break;
        }
        d->ops = &k->ops;
        op_get(d, dx, dX);
        op_get(d, grads, k->g.flat);
    }
    EXPECT(k->kind == NORM || arena_mark(&d->tmp) == tmp, "%s leaves %zu bytes of scratch", kind_name[k->kind],
           arena_mark(&d->tmp) - tmp);
    arena_pop(act, mark);
}

/* Slope of the loss in double along dir, of the numbers at 'at'. */
static double slope(const Rig *k, double *at, const double *dir, int64_t n, const double *x) {
    const double e = 1e-5;
    double sum[2] = { 0 }, *was = malloc((size_t)n * sizeof *was + 1),
           *y = malloc((size_t)(k->T * k->H) * sizeof *y + 1);
    memcpy(was, at, (size_t)n * sizeof *was);
    for (int s = 0; s < 2; s++) {
        for (int64_t i = 0; i < n; i++) at[i] = was[i] + (s ? -e : e) * dir[i];
        reference(k, y, x);
        for (int64_t i = 0; i < k->T * k->H; i++) sum[s] += (double)k->r[i] * y[i];
    }
    memcpy(at, was, (size_t)n * sizeof *was);
    free(was);
    free(y);
    return (sum[0] - sum[1]) / (2 * e);
}

/* What the gradients g [n] say of dir, beside what the double forward does: relative to the gradient's size. */
static double off_by(const Rig *k, double *at, const float *g, float base, int64_t n, const double *x, uint32_t seed) {
    double worst = 0, norm = 0, *dir = malloc((size_t)n * sizeof *dir + 1);
    for (int64_t i = 0; i < n; i++) norm += ((double)g[i] - (double)base) * ((double)g[i] - (double)base);
    norm = sqrt(norm);
    for (uint32_t trial = 0; trial < 3; trial++) {
        double said = 0, size = 0;
        for (int64_t i = 0; i < n; i++) dir[i] = number(seed + trial, (uint32_t)i), size += dir[i] * dir[i];
        /* half along the gradient, half random: large, and not blind to an entry that should be there and is not */
        for (int64_t i = 0; i < n; i++)
            dir[i] = dir[i] / sqrt(size) + (norm > 0 ? ((double)g[i] - (double)base) / norm : 0);
        for (int64_t i = 0; i < n; i++) said += ((double)g[i] - (double)base) * dir[i];
        worst = fmax(worst, fabs(slope(k, at, dir, n, x) - said)
                                / (norm + 1)); /* (one token: q and k teach nothing, but for rounding) */
    }
    free(dir);
    return worst;
}

/* The largest fault found: of y, of x's gradient, of a weight's. */
typedef struct {
    double y, dx, dw;
    const char *which;
} Off;
static Off compare(Rig *k, const float *y, const float *dx, const float *grads) {
    Off off = { 0 };
    int64_t n = k->T * k->H;
    double *x = MEM_ARRAY(&k->f.mem, double, (size_t)n + 1), *want = MEM_ARRAY(&k->f.mem, double, (size_t)n + 1),
           most = 0;
    for (int64_t i = 0; i < n; i++) x[i] = (double)k->x[i];
    reference(k, want, x);
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(want[i])), off.y = fmax(off.y, fabs((double)y[i] - want[i]));
    off.y /= most + 1e-30;
    off.dx = off_by(k, x, dx, 0, n, x, 10);
    for (int64_t i = 0; i < n && n <= 500; i++) { /* every entry alone */
        double *dir = MEM_ARRAY(&k->f.mem, double, (size_t)n);
        dir[i] = 1;
        off.dx = fmax(off.dx, fabs(slope(k, x, dir, n, x) - (double)dx[i]) / 3);
    }
    for (int i = 0; i < k->g.n; i++) {
        const Param *p = &k->g.at[i];
        int64_t first = (const float *)p->t.data - (const float *)k->g.flat.data, all = p->t.rows * p->t.cols;
        double *w = p->layer == k->layer ? k->ref.w[p->desc->id] : NULL, one = 0;
        if (w) one = off_by(k, w, grads + first, 0.25f, all, x, 20 + (uint32_t)i);
        for (int64_t j = 0; !w && j < all; j++) one = grads[first + j] == 0.25f ? one : 1; /* another layer's */
        if (one > off.dw) off.dw = one, off.which = p->desc->name;
    }
    return off;
}

/* Float32 sums of up to 60 numbers of size 1, through four products: 1e-5 of the largest. */
static const double TOLERANCE = 2e-5;

static void check(Kind kind, const char *config, int layer, const int *lens, int n_seqs) {
    Rig k;
    rig_open(&k, kind, config, layer, lens, n_seqs);
    size_t n = (size_t)(k.T * k.H), all = (size_t)k.g.flat.cols;
    float *y = MEM_ARRAY(&k.f.mem, float, n + 1), *dx = MEM_ARRAY(&k.f.mem, float, n + 1),
          *g = MEM_ARRAY(&k.f.mem, float, all);
    float *y2 = MEM_ARRAY(&k.f.mem, float, n + 1), *dx2 = MEM_ARRAY(&k.f.mem, float, n + 1),
          *g2 = MEM_ARRAY(&k.f.mem, float, all);
    run(&k, RECOMPUTE_NONE, true, y, dx, g, NULL);
    Off off = compare(&k, y, dx, g);
    char what[100];
    snprintf(what, sizeof what, "%s of %s, layer %d, %d sequences, %d tokens", kind_name[kind], k.f.desc.arch->name,
             layer, n_seqs, (int)k.T);
    EXPECT(off.y < TOLERANCE, "%s: y is %.2g off", what, off.y);
    EXPECT(off.dx < TOLERANCE, "%s: dx is %.2g off", what, off.dx);
    EXPECT(off.dw < TOLERANCE, "%s: the gradient of %s is %.2g off", what, off.which, off.dw);
    run(&k, RECOMPUTE_NONE, false, y2, NULL, NULL, NULL);
    EXPECT(!memcmp(y, y2, n * 4), "%s: y differs where nothing is kept", what);
    run(&k, RECOMPUTE_SELECTIVE, true, y2, dx2, g2, NULL);
    EXPECT(!memcmp(y, y2, n * 4) && !memcmp(dx, dx2, n * 4) && !memcmp(g, g2, all * 4),
           "%s: other bits where the cheap is made again", what);
    rig_close(&k);
}

static const int one[] = { 1 }, none[] = { 0, 0 }, among[] = { 0, 3, 0, 1, 7, 0 }, tiles[] = { 65, 0, 1, 70 };
static const struct {
    const int *lens;
    int n;
} batch[] = { { one, 1 }, { among, COUNT(among) }, { tiles, COUNT(tiles) }, { none, COUNT(none) } };

int main(void) {
    const struct {
        Kind kind;
        const char *config;
        int layer;
    } layers[] = {
        { NORM, llama, 1 },
        { GQA, llama, 0 },
        { GQA, awkward[0].config, 1 },
        { GQA, awkward[2].config, 1 },
        { MLA, awkward[1].config, 2 },
        { MLA_EXPANDED, awkward[1].config, 2 },
        { MLA, no_q_latent, 0 },
        { MLA_EXPANDED, no_q_latent, 1 },
        { MLP, llama, 1 },
        { MLP, awkward[2].config, 0 },
        { MOE, awkward[0].config, 2 },
        { MOE, awkward[1].config, 1 },
        { MOE, no_q_latent, 1 },
    };
    for (size_t i = 0; i < COUNT(layers); i++)
        for (size_t b = 0; b < COUNT(batch); b++)
            check(layers[i].kind, layers[i].config, layers[i].layer, batch[b].lens, batch[b].n);

    static const struct {
        size_t layer;
        const char *fault;
    } planted[] = {
        { 0, "rmsnorm_bwd.dx" }, { 1, "linear_dw.db" },   { 1, "sum_rows" },
        { 2, "attend_bwd.dk" },  { 2, "rope" },           { 4, "headwise_dw" },
        { 5, "sum_heads" },      { 8, "swiglu_bwd.dup" }, { 10, "combine_bwd.dweight" },
        { 11, "route_bwd" },     { 12, "grouped_dw" },
    };
    for (size_t i = 0; i < COUNT(planted); i++) {
        Rig k;
        const size_t l = planted[i].layer;
        rig_open(&k, layers[l].kind, layers[l].config, layers[l].layer, among, COUNT(among));
        Ops ops = planted_ops(planted[i].fault, spoil_scale);
        ops.expands = k.ops.expands;
        size_t n = (size_t)(k.T * k.H);
        float *y = MEM_ARRAY(&k.f.mem, float, n + 1), *dx = MEM_ARRAY(&k.f.mem, float, n + 1),
              *g = MEM_ARRAY(&k.f.mem, float, (size_t)k.g.flat.cols);
        run(&k, RECOMPUTE_NONE, true, y, dx, g, &ops);
        Off off = compare(&k, y, dx, g);
        EXPECT(off.dx > 10 * TOLERANCE || off.dw > 10 * TOLERANCE, "%s: a wrong %s was not noticed", kind_name[k.kind],
               planted[i].fault);
        rig_close(&k);
    }
    return test_end();
}
