/* test_cut_head.c - a vocabulary cut over ranks: log-probs, entropies and drawn tokens under every cut of
 * the distribution are one rank's, bit for bit; so are the weights' gradients, and the rows' within
 * rounding.  Starts itself under mpirun. */
#include "base/rng.h"
#include "comm/world.h"
#include "model/fixture.h"
#include "ranks.h"

#include <math.h>

static const char config[] =
    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"hidden_size\":40,\"num_hidden_layers\":1,"
    "\"vocab_size\":%d,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":16,"
    "\"tie_word_embeddings\":%s,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":64,"
    "\"hidden_act\":\"silu\",\"initializer_range\":0.5}";
static const struct {
    const char *name;
    float temp, top_p, min_p;
    int top_k;
    bool ban, given, ties;
} kinds[] = {
    { "plain", 1, 1, 0, 0 },
    { "temperature", 0.6f, 1, 0, 0 },
    { "top-k", 1, 1, 0, 7 },
    { "top-p", 0.8f, 0.9f, 0, 0 },
    { "min-p", 1.3f, 1, 0.02f, 0 },
    { "all of them", 0.9f, 0.7f, 0.001f, 50 },
    { "top-k 1", 1, 1, 0, 1 },
    { "top-p, banned", 1, 0.5f, 0, 0, true },
    { "given sets", 1, 0.9f, 0, 0, false, true },
    { "ties", 1, 0.6f, 0, 9, false, false, true },
};
enum { V_MOST = 1111, T_MOST = 150 };

typedef struct {
    Dev d;
    Model m;
    Mem mem;
    Arena io;
    float lp[T_MOST], ent[T_MOST], drawn_lp[T_MOST], drawn_ent[T_MOST], *dh, *dw;
    int32_t id[T_MOST], *kept;
    Slice rows; /* of the head */
} Side;

static uint64_t bits(int what, int t, int v) {
    return rng_u64(11, RNG_PLAN, (uint32_t)what, 0, (uint32_t)t, (uint32_t)v);
}

static Tensor put(Side *s, DType t, const void *from, int64_t rows, int64_t cols) {
    Tensor x = tensor_push(&s->io, t, rows, cols);
    op_put(&s->d, x, from);
    return x;
}

static void open_side(Side *s, const ModelDesc *desc, const Shard *shard, const Par *par, bool ties) {
    *s = (Side){ 0 };
    dev_open(&s->d, (DevOpts){ .threads = 1, .guard = true });
    s->d.tmp = dev_arena(&s->d, "tmp", 64 << 20), s->io = dev_arena(&s->d, "io", 64 << 20);
    model_open_shard(&s->m, &s->d, desc, shard, par, DT_F32, 8, &s->mem);
    params_random(&s->m.w, &s->d, 3);
    int at = s->m.w.index[0][desc->d.tied ? P_EMBED : P_HEAD];
    s->rows = s->m.w.at[at].slice;
    Tensor w = model_head(&s->m);
    float *x = MEM_ARRAY(&s->mem, float, (size_t)(w.rows * w.cols) + 1);
    for (int64_t r = 0; ties && r < w.rows; r++) /* ids of one remainder have the same logit, on whatever rank */
        for (int64_t c = 0; c < w.cols; c++)
            x[r * w.cols + c] = (float)(bits(1, (int)((s->rows.r0 + r) % 13), (int)c) % 64) / 64 - 0.5f;
    if (ties && w.rows) op_put(&s->d, w, x);
}
static void close_side(Side *s) {
    model_close(&s->m);
    dev_close(&s->d);
    mem_free(&s->mem);
}

static void run(Side *s, size_t kind, int T) {
    const ModelDesc *desc = s->m.desc;
    int64_t V = desc->d.vocab, H = desc->d.hidden, words = kept_words(V);
    size_t mark = arena_mark(&s->io);
    float *h = MEM_ARRAY(&s->mem, float, (size_t)(T * H) + 1), one[4][T_MOST];
    int32_t ids[T_MOST], top_k[T_MOST], greedy[T_MOST], ban[T_MOST], banned[] = { 3, (int32_t)V - 1, 200 };
    int64_t random[T_MOST];
    uint32_t *sets = MEM_ARRAY(&s->mem, uint32_t, (size_t)(T * words) + 1);
    for (int t = 0; t < T; t++) {
        for (int64_t i = 0; i < H; i++) h[t * H + i] = (float)(bits(2, t, (int)i) % 2048) / 1024 - 1;
        ids[t] = t % 9 == 4 ? -1 : (int32_t)(bits(3, t, 0) % (uint64_t)V);
        bool off = t % 5 == 3; /* some rows are not cut */
        one[0][t] = 1 / kinds[kind].temp, one[1][t] = off ? 1 : kinds[kind].top_p,
        one[2][t] = off ? 0 : kinds[kind].min_p;
        top_k[t] = off ? 0 : kinds[kind].top_k, greedy[t] = t % 7 == 2, ban[t] = t % 2,
        random[t] = (int64_t)bits(4, t, 0);
        one[3][t] = 0.3f + 0.01f * (float)t;
        for (int64_t v = 0; v < V; v++)
            sets[t * words + v / 32] |= (uint32_t)(bits(5, t, (int)v) % 20 == 0 || v == ids[t]) << v % 32;
    }
    Dist dist = { put(s, DT_F32, one[0], T, 1), TENSOR_NONE, TENSOR_NONE, TENSOR_NONE };
    if (kind > 1)
        dist.top_k = put(s, DT_I32, top_k, T, 1), dist.top_p = put(s, DT_F32, one[1], T, 1),
        dist.min_p = put(s, DT_F32, one[2], T, 1);
    Head head = { .h = put(s, DT_F32, h, T, H),
                  .w = model_head(&s->m),
                  .vocab = { s->m.local.vocab0, V },
                  .ids = put(s, DT_I32, ids, T, 1),
                  .dist = dist,
                  .lp = tensor_push(&s->io, DT_F32, T, 1),
                  .ent = tensor_push(&s->io, DT_F32, T, 1),
                  .stat = tensor_push(&s->io, DT_U8, T, HEAD_STAT) };
    Tensor ban_ids = put(s, DT_I32, banned, 3, 1), ban_rows = put(s, DT_I32, ban, T, 1);
    if (kinds[kind].ban) head.banned = ban_ids, head.ban = ban_rows;
    if (kinds[kind].given) head.kept = put(s, DT_I32, sets, T, words);
    model_logprob(&s->m, &head);
    op_get(&s->d, s->lp, head.lp), op_get(&s->d, s->ent, head.ent);

    Tensor dlp = put(s, DT_F32, one[3], T, 1), dent = put(s, DT_F32, one[1], T, 1),
           dh = tensor_push(&s->io, DT_F32, T, H), dw = tensor_push(&s->io, DT_F32, head.w.rows, H);
    if (dw.rows) op_zero(&s->d, dw);
    op_logprob_bwd(&s->d, dh, dw, dlp, dent, &head);
    s->dh = MEM_ARRAY(&s->mem, float, (size_t)(T * H) + 1),
    s->dw = MEM_ARRAY(&s->mem, float, (size_t)(dw.rows * H) + 1);
    op_get(&s->d, s->dh, dh);
    if (dw.rows) op_get(&s->d, s->dw, dw);

    Sample draw = { .h = head.h, .w = head.w, .dist = dist, .banned = head.banned, .ban = head.ban };
    draw.random = put(s, DT_I64, random, T, 1), draw.greedy = put(s, DT_I32, greedy, T, 1);
    draw.id = tensor_push(&s->io, DT_I32, T, 1), draw.lp = tensor_push(&s->io, DT_F32, T, 1);
    draw.ent = tensor_push(&s->io, DT_F32, T, 1), draw.kept = tensor_push(&s->io, DT_I32, T, words);
    model_sample(&s->m, &draw);
    s->kept = MEM_ARRAY(&s->mem, int32_t, (size_t)(T * words) + 1);
    op_get(&s->d, s->id, draw.id), op_get(&s->d, s->drawn_lp, draw.lp), op_get(&s->d, s->drawn_ent, draw.ent);
    op_get(&s->d, s->kept, draw.kept);
    EXPECT(s->d.tmp.used == 0, "scratch is not given back");
    arena_pop(&s->io, mark);
}

static void compare(const World *w, const char *what, const Side *one, const Side *cut, int T, Mem *mem) {
    int64_t H = one->m.desc->d.hidden, words = kept_words(one->m.desc->d.vocab);
    size_t each = (size_t)T * 4;
    EXPECT(!memcmp(one->lp, cut->lp, each) && !memcmp(one->ent, cut->ent, each), "%s: log-probs or entropies", what);
    EXPECT(!memcmp(one->id, cut->id, each) && !memcmp(one->drawn_lp, cut->drawn_lp, each)
               && !memcmp(one->drawn_ent, cut->drawn_ent, each),
           "%s: what is drawn", what);
    EXPECT(!memcmp(one->kept, cut->kept, each * (size_t)words), "%s: kept sets", what);
    EXPECT(!memcmp(one->dw + cut->rows.r0 * H, cut->dw, (size_t)(cut->rows.rows * H) * 4),
           "%s: gradients of the head's rows", what);
    float *all = MEM_ARRAY(mem, float, (size_t)(T * H * w->all.size));
    comm_gather_host(&w->all, all, cut->dh, (size_t)(T * H) * 4);
    double worst = 0, most = 0;
    for (int64_t i = 0; i < T * H; i++) {
        double sum = 0;
        for (int r = 0; r < w->all.size; r++) sum += (double)all[r * T * H + i];
        worst = fmax(worst, fabs(sum - (double)one->dh[i])), most = fmax(most, fabs((double)one->dh[i]));
    }
    EXPECT(worst <= 2e-5 * most, "%s: gradients of the rows differ by %.1e of %.1e", what, worst,
           most); /* float32, summed otherwise */
}

static int ranks_main(void) {
    World w;
    Err err;
    if (!world_open(&w, 60, &err)) return fprintf(stderr, "%s\n", err.msg), 1;
    static const int vocab[] = { V_MOST, 300, 128 }, rows[] = { 1, 5, T_MOST };
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t v = 0; v < COUNT(vocab); v++) {
            Mem mem = { 0 };
            ModelDesc desc;
            char *text = mem_printf(&mem, config, vocab[v], k % 2 ? "true" : "false"), what[128];
            GridShape g = { .tp = w.all.size };
            CHECK(model_desc_parse(&desc, text, strlen(text), &mem, &err)
                      && grid_fill(&g, &desc, w.all.size, NULL, 8, &err),
                  "%s", err.msg);
            Groups groups = groups_self(), alone = groups_self();
            groups.tp = w.all;
            Shard whole = shard_whole(&desc), mine = { g, grid_at(&g, w.all.rank) };
            Side *one = MEM_NEW(&mem, Side), *cut = MEM_NEW(&mem, Side);
            open_side(one, &desc, &whole, &alone, kinds[k].ties);
            open_side(cut, &desc, &mine, &groups, kinds[k].ties);
            for (size_t t = 0; t < COUNT(rows); t++) {
                snprintf(what, sizeof what, "%s, %d words, %d rows on %d ranks", kinds[k].name, vocab[v], rows[t],
                         w.all.size);
                run(one, k, rows[t]);
                run(cut, k, rows[t]);
                compare(&w, what, one, cut, rows[t], &mem);
            }
            close_side(one);
            close_side(cut);
            mem_free(&mem);
        }
    double failed = comm_sum(&w.all, test_failed);
    bool first = w.all.rank == 0;
    world_close(&w);
    return first ? test_end() || failed > 0 : 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return ranks_main();
    if (!ranks_possible()) {
        SKIP("there is no mpirun: a vocabulary over several ranks was not tried");
        return test_end();
    }
    for (int n = 2; n <= 8; n *= 2) expect_ranks(argv[0], n, "head");
    return test_end();
}
