/* test_ranks.c - a model cut over ranks gives the bits of one rank (E2): log-probs and entropies of packed batches by
 * memcmp, gradients summed over ranks within rounding.  Every rank computes the whole model beside its share of it;
 * models and grids of a list, and drawn ones (--ranks random=SEED,COUNT).  Starts itself under mpirun. */
#include "backend.h"
#include "comm/world.h"
#include "drawn.h"
#include "model/fixture.h"
#include "ranks.h"

#include <math.h>
#include <unistd.h>

#define COMMON                                                                                                         \
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":4096,\"hidden_act\":\"silu\","             \
    "\"initializer_range\":0.2"
static const struct {
    const char *name, *config;
} models[] = {
    { "qwen3_moe, 8 heads over 2, 700 words",
      "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":48,\"num_hidden_"
      "layers\":4,\"vocab_size\":700,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":12,\"intermediate_size\":70,\"moe_intermediate_"
      "size\":18,\"num_experts\":6,"
      "\"num_experts_per_tok\":2,\"norm_topk_prob\":true,\"mlp_only_layers\":[1],\"decoder_sparse_step\":1,\"tie_word_"
      "embeddings\":false," COMMON "}" },
    { "qwen2 with biases, tied, 14 heads over 2", "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\","
                                                  "\"hidden_size\":56,\"num_hidden_layers\":2,\"vocab_size\":1111,"
                                                  "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"intermediate_"
                                                  "size\":45,\"tie_word_embeddings\":true," COMMON "}" },
    { "llama with biases everywhere, 8 heads", "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
                                               "\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":300,"
                                               "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"head_dim\":8,"
                                               "\"intermediate_size\":40,\"attention_bias\":true,\"mlp_bias\":true,"
                                               "\"tie_word_embeddings\":false," COMMON "}" },
    { "deepseek_v3 with a query latent and shared experts",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":40,\"num_hidden_"
      "layers\":3,\"vocab_size\":900,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":44,\"moe_intermediate_size\":22,\"n_"
      "routed_experts\":8,"
      "\"num_experts_per_tok\":3,\"n_shared_experts\":2,\"n_group\":4,\"topk_group\":2,\"routed_scaling_factor\":1.7,"
      "\"norm_topk_prob\":true,"
      "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_k_dense_replace\":1,\"q_lora_rank\":20,\"kv_"
      "lora_rank\":24,"
      "\"qk_nope_head_dim\":14,\"qk_rope_head_dim\":6,\"v_head_dim\":10,\"tie_word_embeddings\":false," COMMON "}" },
    { "moonlight: no query latent",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":40,\"num_hidden_"
      "layers\":2,\"vocab_size\":500,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":44,\"moe_intermediate_size\":22,\"n_"
      "routed_experts\":8,"
      "\"num_experts_per_tok\":3,\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":2.4,"
      "\"norm_topk_prob\":true,"
      "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_k_dense_replace\":1,\"q_lora_rank\":null,\"kv_"
      "lora_rank\":16,"
      "\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_head_dim\":8,\"tie_word_embeddings\":false," COMMON "}" },
    { "qwen3, 12 heads over 3, 8 layers, tied",
      "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":32,\"num_hidden_layers\":8,"
      "\"vocab_size\":260,\"num_attention_heads\":12,\"num_key_value_heads\":3,\"head_dim\":8,\"intermediate_size\":24,"
      "\"tie_word_embeddings\":true," COMMON "}" },
    { "deepseek_v3, 2 heads, 5 layers",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":24,\"num_hidden_"
      "layers\":5,\"vocab_size\":131,"
      "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"intermediate_size\":20,\"moe_intermediate_size\":12,\"n_"
      "routed_experts\":12,"
      "\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":1.1,"
      "\"norm_topk_prob\":true,"
      "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_k_dense_replace\":1,\"q_lora_rank\":12,\"kv_"
      "lora_rank\":8,"
      "\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_head_dim\":6,\"tie_word_embeddings\":false," COMMON "}" },
#include "model/families.inc"
    { "deepseek_v3, every token to the same two experts",
      "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"deepseek_v3\",\"hidden_size\":24,\"num_hidden_"
      "layers\":3,\"vocab_size\":131,"
      "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":20,\"moe_intermediate_size\":12,\"n_"
      "routed_experts\":16,"
      "\"num_experts_per_tok\":2,\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":1.1,"
      "\"norm_topk_prob\":true,"
      "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"first_k_dense_replace\":0,\"q_lora_rank\":12,\"kv_"
      "lora_rank\":8,"
      "\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_head_dim\":6,\"tie_word_embeddings\":false," COMMON "}" },
};
enum { CROWDED = COUNT(models) - 1 };

typedef struct {
    int n, length[5];
} Seqlens;
static const Seqlens usual = { 3, { 29, 1, 17 } };

static Dev device; /* a GPU stays open: what moves its tensors between ranks knows it */
static Dev *device_begin(void) {
    if (on_cpu() || !device.ops) test_device(&device, 1, true);
    return &device;
}
static void device_end(Dev *d) {
    if (on_cpu()) dev_close(d);
}

/* ---- which experts each row was given: rows are named by the bits of their router's logits, so that the rows of all
 * ranks together are those of one, whoever had which. */
typedef struct {
    uint64_t row, pick;
} Routed;
static struct {
    const Ops *under; /* NULL: nothing is recorded */
    Routed *at;
    int64_t n, room;
} seen;

static uint64_t hash_of(const void *x, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)x)[i]) * 0x100000001B3u;
    return h;
}
static void route_seen(Dev *d, const Route *r) {
    seen.under->route(d, r);
    for (int64_t t = 0; t < r->pick.rows; t++) {
        CHECK(seen.n < seen.room, "more than %lld routes", (long long)seen.room);
        const int32_t *pick = (const int32_t *)r->pick.data + t * r->pick.ld;
        seen.at[seen.n++] =
            (Routed){ hash_of((const float *)r->logits.data + t * r->logits.ld, (size_t)r->logits.cols * 4),
                      hash_of(pick, (size_t)r->pick.cols * 4) };
    }
}
static int by_row(const void *a, const void *b) { return memcmp(a, b, sizeof(Routed)); }
static int64_t each_once(Routed *x, int64_t n) {
    int64_t to = 0;
    qsort(x, (size_t)n, sizeof *x, by_row);
    for (int64_t i = 0; i < n; i++)
        if (!i || by_row(&x[i], &x[i - 1])) x[to++] = x[i];
    return to;
}

typedef struct {
    float *lp, *ent;
    Routed *route;
    int64_t routes;
    double **grad; /* [params of the whole][elements], this rank's contribution */
    int outputs;
} Result;

/* The share's gradient of one parameter, laid into the whole one. */
static void spread(const Param *p, const float *from, double *to, int64_t whole_rows, int64_t whole_cols) {
    const Slice *s = &p->slice;
    for (int64_t e = 0; e < s->experts; e++)
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t c = 0; c < s->cols; c++)
                to[((s->e0 + e) * whole_rows + s->r0 + r) * whole_cols + s->c0 + c] =
                    (double)from[(e * s->rows + r) * s->cols + c];
}

/* Experts 0 and 1 before all others, in every layer. */
static void crowd(Dev *d, const Params *w) {
    for (int l = 0; l < w->model->d.layers; l++) {
        Tensor bias = param(w, P_ROUTER_BIAS, l);
        float x[64] = { 9, 8 };
        if (bias.data) op_put(d, bias, x);
    }
}

static Result run(const ModelDesc *desc, const Shard *shard, const Par *par, const Seqlens *lens, Recompute recompute,
                  bool crowded, Mem *mem) {
    Dev *d = device_begin();
    Model m;
    Params g, whole;
    d->tmp = dev_arena(d, "tmp", 64 << 20);
    model_open_shard(&m, d, desc, shard, par, d->act, 8, mem);
    m.trained.recompute = recompute;
    params_random(&m.w, d, 7);
    if (crowded) crowd(d, &m.w);
    params_open(&g, desc, shard, d, DT_F32, true, "grads", mem);
    params_open(&whole, desc, NULL, d, DT_F32, true, "names", mem); /* for its layout */
    Arena io = dev_arena(d, "io", 16 << 20), act = dev_arena(d, "act", 64 << 20),
          host = arena_on_host("host", 1 << 20, mem);
    PackSeq seqs[COUNT(lens->length)];
    int64_t tokens = 0;
    int longest = 0;
    for (int i = 0; i < lens->n; i++) {
        int n = lens->length[i];
        int32_t *t = MEM_ARRAY(mem, int32_t, (size_t)n);
        tokens += n, longest = n > longest ? n : longest;
        for (int k = 0; k < n; k++)
            t[k] = (int32_t)(rng_u64(5, RNG_PLAN, (uint32_t)i, 0, 0, (uint32_t)k) % (uint64_t)desc->d.vocab);
        seqs[i] = (PackSeq){ .tokens = t, .n = n, .from = 1, .draw = { 0.7f, 1, 0, 0 } };
    }
    Batch b;
    batch_put_part(&b, d, &io, &host, seqs, lens->n, &par->cp);
    Tensor lp = tensor_push(&io, DT_F32, b.outputs, 1), ent = tensor_push(&io, DT_F32, b.outputs, 1);
    ModelKeep keep = { .block = MEM_ARRAY(mem, BlockKeep, (size_t)desc->d.layers) };
    const Ops *own = d->ops;
    Ops spied = *own;
    seen.under = own, seen.n = 0, seen.room = desc->d.layers * tokens + 64;
    seen.at = MEM_ARRAY(mem, Routed, (size_t)seen.room);
    spied.route = route_seen;
    if (on_cpu()) d->ops = &spied;
    model_forward(&m, &b, &act, &keep, lp, ent);
    d->ops = own;
    Result r = { .outputs = (int)b.outputs,
                 .route = seen.at,
                 .routes = each_once(seen.at, seen.n),
                 .lp = MEM_ARRAY(mem, float, (size_t)b.outputs),
                 .ent = MEM_ARRAY(mem, float, (size_t)b.outputs) };
    op_get(d, r.lp, lp);
    op_get(d, r.ent, ent);
    float *again = MEM_ARRAY(mem, float, (size_t)b.outputs), *dl = MEM_ARRAY(mem, float, (size_t)b.outputs);
    model_score(&m, &b, lp, ent);
    op_get(d, again, lp);
    EXPECT(!memcmp(again, r.lp, (size_t)b.outputs * 4), "scoring and training differ on the same ranks");
    for (int i = 0; i < b.outputs; i++) dl[i] = 0.5f + 0.1f * (float)(i % 7);
    op_put(d, lp, dl);
    for (int i = 0; i < b.outputs; i++) dl[i] = 0.05f * (float)(i % 3);
    op_put(d, ent, dl);
    op_zero(d, g.flat);
    model_backward(&m, &g, &b, &act, &keep, lp, ent);
    EXPECT(d->tmp.used == 0, "tmp is not empty");
    ModelShape shape = {
        .tokens = tokens, .outputs = b.outputs, .seqs = lens->n, .longest = longest, .backward = true
    };
    shape.trained.recompute = recompute, shape.like = model_kind(&m), shape.shard = shard;
    ModelSizes planned = model_sizes(desc, &shape);
    bool exact =
        shard->g.ep * shard->g.etp * shard->g.cp == 1; /* experts on several ranks plan for routing that is uneven */
    EXPECT((exact ? planned.tmp == d->tmp.peak : planned.tmp >= d->tmp.peak)
               && (shard->g.cp == 1 ? planned.act == act.peak : planned.act >= act.peak),
           "planned tmp %zu, act %zu; taken %zu, %zu", planned.tmp, planned.act, d->tmp.peak, act.peak);
    r.grad = MEM_ARRAY(mem, double *, (size_t)whole.n);
    for (int i = 0; i < whole.n; i++) {
        const Param *w = &whole.at[i];
        int64_t rows = dim_at(&desc->d, w->desc->rows), cols = dim_at(&desc->d, w->desc->cols);
        r.grad[i] = MEM_ARRAY(mem, double, (size_t)(w->t.rows * w->t.cols));
        int k = g.index[w->layer][w->desc->id];
        if (k < 0) continue;
        float *x = MEM_ARRAY(mem, float, (size_t)(g.at[k].t.rows * g.at[k].t.cols) + 1);
        op_get(d, x, g.at[k].t);
        spread(&g.at[k], x, r.grad[i], rows, cols);
    }
    params_close(&whole, d);
    params_close(&g, d);
    model_close(&m);
    dev_free(d, io.base), dev_free(d, act.base), dev_free(d, d->tmp.base);
    device_end(d);
    return r;
}

/* Each rank of dp computed the whole batch.  least: of the model's largest entry, under which
 * a tensor's own is nothing but rounding (q of a token that sees itself alone). */
static bool same_routes(const World *w, const Result *one, const Result *cut, Mem *mem) {
    int64_t *many = MEM_ARRAY(mem, int64_t, (size_t)w->all.size), most = 0, n = 0;
    comm_gather_host(&w->all, many, &cut->routes, sizeof cut->routes);
    for (int r = 0; r < w->all.size; r++) most = many[r] > most ? many[r] : most;
    Routed *mine = MEM_ARRAY(mem, Routed, (size_t)most + 1),
           *all = MEM_ARRAY(mem, Routed, (size_t)(most * w->all.size) + 1);
    memcpy(mine, cut->route, (size_t)cut->routes * sizeof *mine);
    comm_gather_host(&w->all, all, mine, (size_t)most * sizeof *mine);
    for (int r = 0; r < w->all.size; r++)
        for (int64_t i = 0; i < many[r]; i++) all[n++] = all[r * most + i];
    n = each_once(all, n);
    return n == one->routes && !memcmp(all, one->route, (size_t)n * sizeof *all);
}

static void compare(const World *w, int dp, double least, const char *what, const ModelDesc *desc, const Result *one,
                    const Result *cut, Mem *mem) {
    EXPECT(!memcmp(one->lp, cut->lp, (size_t)one->outputs * 4), "%s: log-probs are not those of one rank", what);
    EXPECT(!memcmp(one->ent, cut->ent, (size_t)one->outputs * 4), "%s: entropies are not those of one rank", what);
    if (on_cpu()) {
        bool routed = false;
        for (int l = 0; l < desc->d.layers; l++) routed = routed || dims_moe(&desc->d, l);
        EXPECT(same_routes(w, one, cut, mem) && (one->routes > 0) == routed,
               "%s: the experts of rows are not those of one rank's %lld", what, (long long)one->routes);
        if (cut->routes) cut->route[0].pick ^= (uint64_t)!w->all.rank; /* planted: one row of rank 0 goes elsewhere */
        EXPECT(!comm_sum(&w->all, w->all.rank ? 0 : (double)cut->routes) || !same_routes(w, one, cut, mem),
               "%s: a wrong expert was not noticed", what);
    }
    Params whole;
    Dev *d = device_begin();
    double bound = d->act == DT_BF16 ? 3e-2 : 2e-5; /* bfloat16: the whole's sums are rounded once, each rank's too */
    params_open(&whole, desc, NULL, d, DT_F32, true, "names", mem);
    double largest = 1e-30;
    for (int i = 0; i < whole.n; i++)
        for (int64_t k = 0; k < whole.at[i].t.rows * whole.at[i].t.cols; k++)
            largest = fmax(largest, fabs(one->grad[i][k]));
    for (int i = 0; i < whole.n; i++) {
        int64_t n = whole.at[i].t.rows * whole.at[i].t.cols;
        double *all = MEM_ARRAY(mem, double, (size_t)(n * w->all.size)), most = fmax(1e-30, least * largest), bad = 0;
        comm_gather_host(&w->all, all, cut->grad[i], (size_t)n * sizeof *all);
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int r = 0; r < w->all.size; r++) sum += all[r * n + k];
            most = fmax(most, fabs(one->grad[i][k]));
            bad = fmax(bad, fabs(sum / dp - one->grad[i][k]));
        }
        EXPECT(bad <= bound * most, "%s: gradient of %s, layer %d: %.2e of its largest entry", what,
               whole.at[i].desc->name, whole.at[i].layer, bad / most);
    }
    params_close(&whole, d);
    device_end(d);
}

static void one_grid(const World *w, const ModelDesc *desc, int which, const Result *one, const char *grid, Mem *mem) {
    GridShape g;
    Err err;
    CHECK(grid_parse(&g, grid, &err), "%s", err.msg);
    if ((g.ep > 1 || g.etp > 1) && (!desc->d.experts || desc->d.experts < g.ep)) return;
    if (g.pp * (g.vpp > 1 ? g.vpp : 1) > desc->d.layers) return;
    if (g.cp > 1 && desc->d.dn_keys) return; /* which is refused */
    CHECK(grid_fill(&g, desc, w->all.size, NULL, 8, &err), "%s", err.msg);
    Groups groups;
    world_groups(w, &g, &groups);
    Shard mine = { g, grid_at(&g, w->all.rank) };
    Result cut = run(desc, &mine, &groups, &usual, (Recompute)(which % 3), which == CROWDED, mem);
    char what[256];
    snprintf(what, sizeof what, "%s on %s", models[which].name, grid);
    compare(w, g.dp, 0, what, desc, one, &cut, mem);
}

/* "tp=2+cp=2": every model on each of them that it goes on. */
static int ranks_main(const char *grids) {
    World w;
    Err err;
    if (!world_open(&w, 60, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    if (!on_cpu()) CHECK(world_device(&w, device_begin(), true, &err), "%s", err.msg);
    for (int i = 0; i < (int)COUNT(models); i++) {
        Mem mem = { 0 };
        ModelDesc desc;
        CHECK(model_desc_parse(&desc, models[i].config, strlen(models[i].config), &mem, &err), "%s", err.msg);
        Shard whole = shard_whole(&desc);
        Par alone = groups_self();
        Result one = run(&desc, &whole, &alone, &usual, (Recompute)(i % 3), i == CROWDED, &mem);
        for (const char *at = grids; *at;) {
            size_t n = strcspn(at, "+");
            one_grid(&w, &desc, i, &one, mem_str(&mem, at, n), &mem);
            at += n + (at[n] == '+');
        }
        mem_free(&mem);
    }
    double failed = comm_sum(&w.all, test_failed);
    bool first = w.all.rank == 0;
    world_close(&w);
    if (!on_cpu()) dev_close(&device);
    return first ? test_end() || failed > 0 : 0;
}

/* Models, grids and batches of tests/drawn.h. */
static int random_main(uint32_t seed, int count) {
    World w;
    Err err;
    CHECK(world_open(&w, 60, &err), "%s", err.msg);
    int tried = 0;
    for (int i = 0; i < count; i++) {
        Mem mem = { 0 };
        Buf what = { 0 };
        ModelDesc desc;
        GridShape g;
        Dice d = { seed + (uint32_t)i, 0 };
        draw_model(&d, &what);
        CHECK(model_desc_parse(&desc, what.data, what.n, &mem, &err), "%s: %s", what.data, err.msg);
        draw_grid(&d, &g, w.all.size);
        if (!desc.d.experts) g.ep = g.etp = 1;
        Seqlens lens = { .n = 1 + dice(&d, COUNT(lens.length)) };
        for (int k = 0; k < lens.n; k++) lens.length[k] = PICK(&d, 1, 1, 2, 3, 7, 17, 29, 41);
        if (grid_fill(&g, &desc, w.all.size, NULL, 8, &err)) { /* else it was refused, which is an answer too */
            Groups groups;
            world_groups(&w, &g, &groups);
            Shard whole = shard_whole(&desc), mine = { g, grid_at(&g, w.all.rank) };
            Par alone = groups_self();
            Recompute how = (Recompute)dice(&d, 3);
            buf_printf(&what, " seed %u on ", seed + (uint32_t)i);
            grid_text(&g, &what);
            for (int k = 0; k < lens.n; k++) buf_printf(&what, " %d", lens.length[k]);
            if (!w.all.rank) fprintf(stderr, "%s\n", what.data);
            Result one = run(&desc, &whole, &alone, &lens, how, false, &mem),
                   cut = run(&desc, &mine, &groups, &lens, how, false, &mem);
            compare(&w, g.dp, 0.1, what.data, &desc, &one, &cut, &mem);
            tried++;
        }
        buf_free(&what);
        mem_free(&mem);
    }
    EXPECT(4 * tried >= count, "only %d of %d grids were possible", tried, count);
    double failed = comm_sum(&w.all, test_failed);
    bool first = w.all.rank == 0;
    world_close(&w);
    return first ? test_end() || failed > 0 : 0;
}

/* One sequence of 32,768 tokens over cp: the bits of one rank, activations cut by as many,
 * work as even as the pieces. */
static int long_main(void) {
    enum { LONG = 32768 };
    World w;
    Err err;
    Mem mem = { 0 };
    ModelDesc desc;
    Groups groups;
    CHECK(world_open(&w, 600, &err), "%s", err.msg);
    static const char config[] =
        "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":16,"
        "\"num_hidden_layers\":2,\"vocab_size\":260,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"head_dim\":8,\"intermediate_size\":24,\"tie_word_embeddings\":false," COMMON "}";
    CHECK(model_desc_parse(&desc, config, strlen(config), &mem, &err), "%s", err.msg);
    GridShape g = { .cp = w.all.size };
    CHECK(grid_fill(&g, &desc, w.all.size, NULL, 8, &err), "%s", err.msg);
    world_groups(&w, &g, &groups);
    Shard shard[2] = { { g, grid_at(&g, w.all.rank) }, shard_whole(&desc) };
    Groups par[2] = { groups, groups_self() };
    float *lp[2];
    ModelSizes size[2];
    int32_t *tokens = MEM_ARRAY(&mem, int32_t, LONG);
    for (int k = 0; k < LONG; k++) tokens[k] = (int32_t)(rng_u64(5, RNG_PLAN, 0, 0, 0, (uint32_t)k) % 260);
    PackSeq seq = { .tokens = tokens, .n = LONG, .from = 1, .draw = DRAW_PLAIN };
    for (int i = 0; i < 2; i++) {
        ModelShape shape = { .tokens = LONG,
                             .outputs = LONG - 1,
                             .seqs = 1,
                             .longest = LONG,
                             .backward = true,
                             .like = dev_kind_cpu(),
                             .shard = &shard[i] };
        size[i] = model_sizes(&desc, &shape);
        lp[i] = MEM_ARRAY(&mem, float, LONG);
        if (i && w.all.rank) continue; /* one rank computes it whole */
        Dev d;
        Model m;
        Batch b;
        Mem own = { 0 };
        dev_open(&d, (DevOpts){ .threads = 1 });
        d.tmp = dev_arena(&d, "tmp", size[i].tmp);
        model_open_shard(&m, &d, &desc, &shard[i], &par[i], DT_F32, 8, &own);
        params_random(&m.w, &d, 7);
        Arena io = dev_arena(&d, "io", 8 << 20), act = dev_arena(&d, "act", size[i].act),
              host = arena_on_host("host", batch_host_bytes(LONG, 1), &own);
        batch_put_part(&b, &d, &io, &host, &seq, 1, &par[i].cp);
        Tensor out = tensor_push(&io, DT_F32, LONG - 1, 1), ent = tensor_push(&io, DT_F32, LONG - 1, 1);
        ModelKeep keep = { .block = MEM_ARRAY(&own, BlockKeep, (size_t)desc.d.layers) };
        model_forward(&m, &b, &act, &keep, out, ent);
        op_get(&d, lp[i], out);
        model_close(&m);
        dev_close(&d);
        mem_free(&own);
    }
    if (!w.all.rank)
        EXPECT(!memcmp(lp[0], lp[1], (LONG - 1) * 4), "log-probs over %d ranks are not those of one", w.all.size);
    double share = (double)size[0].act / (double)size[1].act * w.all.size, pairs = 0;
    EXPECT(share <= 1.1, "activations of a rank are %.3f of its share", share);
    for (int k = 0; k < cp_pieces(w.all.size); k++) {
        double p0 = (double)cp_piece(LONG, k, w.all.size), p1 = (double)cp_piece(LONG, k + 1, w.all.size);
        if (cp_rank(k, w.all.size) == w.all.rank) pairs += (p1 - p0) * (p1 + p0 + 1) / 2;
    }
    double worst = comm_max(&w.all, pairs) / (comm_sum(&w.all, pairs) / w.all.size);
    EXPECT(worst <= 1.05, "the busiest rank has %.3f of the mean", worst);
    if (!w.all.rank) printf("activations %.3f of a share, worst / mean attention %.4f\n", share, worst);
    double failed = comm_sum(&w.all, test_failed);
    bool first = w.all.rank == 0;
    world_close(&w);
    mem_free(&mem);
    return first ? test_end() || failed > 0 : 0;
}

int main(int argc, char **argv) {
    unsigned seed;
    int count;
    if (argc == 3 && sscanf(argv[2], "random=%u,%d", &seed, &count) == 2) return random_main(seed, count);
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return !strcmp(argv[2], "long") ? long_main() : ranks_main(argv[2]);
    if (!ranks_possible()) {
        SKIP("there is no mpirun: models over several ranks were not tried");
        return test_end();
    }
    char self[4200] = "";
    if (readlink("/proc/self/exe", self, 4096) <= 0) strcpy(self, argv[0]);
#ifdef HONE_GPU_TEST
    strcat(self, gpu_test_act == DT_BF16 ? " here bf16 test_model_ranks --" : " here f32 test_model_ranks --");
#endif
    static const struct {
        int n;
        bool gpu; /* there, ranks take a second to begin and a millisecond a message */
        const char *grids;
    } list[] = { { 2, 1, "tp=2+ep=2,tp=2+cp=2+pp=2,vpp=2" },
                 { 4, 1, "tp=2,pp=2+ep=4+tp=2,ep=2+dp=4+tp=2,ep=2,pp=2+tp=4,ep=4+cp=2,tp=2" },
                 { 8, 1, "tp=2,ep=2,pp=4" },
                 { 2, 0, "pp=2" },
                 { 4, 0, "tp=4+tp=4,ep=2,etp=2+tp=4,etp=4+pp=4+cp=4" },
                 { 8, 0, "tp=8+tp=8,ep=4,etp=2+cp=2,tp=2,pp=2,ep=4+tp=8,ep=8" },
                 { 3, 0, "cp=3" },
                 { 4, 0, "long" },
                 { 3, 0, "random=1,40" },
                 { 4, 0, "random=1,60" },
                 { 6, 0, "random=1,40" },
                 { 8, 0, "random=1,60" } };
    static const int many[] = { 2, 3, 4, 5, 6, 8 };
    bool drawn = argc > 1 && !strcmp(argv[1], "--drawn"); /* more of these, and nothing else */
    for (size_t k = 0; !drawn && k < COUNT(list); k++)
        if (on_cpu() || list[k].gpu) expect_ranks(self, list[k].n, list[k].grids);
    for (size_t k = 0; drawn && k < COUNT(many); k++) expect_ranks(self, many[k], "random=10000,40");
    return test_end();
}
