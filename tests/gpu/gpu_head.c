/* gpu_head.c - log-probs, entropies, gradients and drawing on a GPU: against the CPU by bound, against themselves
 * by memcmp: what was drawn is scored with the same bits, rows alone and in any batch, with and without truncation
 * beside them, everything twice. */
#include "gpu/duo.h"
#include "op/op_fused.h"

typedef struct {
    const char *name;
    float temp, top_p, min_p;
    int top_k, ties;       /* every so many ids have the same logits, or 0 */
    bool ban, given, wide; /* wide: float32 weights beside bf16 rows */
} Kind;
static bool cuts(const Kind *k) { return k->top_k > 0 || k->top_p < 1 || k->min_p > 0; }
typedef struct {
    Two h, w, ids, temp, top_p, min_p, top_k, ban, banned, greedy, random, lp, ent, stat, id, slp, sent, kept;
    int T;
} Made;

static Two two_raw(Duo *q, DType t, int64_t rows, int64_t cols, const void *x) {
    return (Two){ { rig_put(&q->r[CPU], t, rows, cols, x), rig_put(&q->r[GPU], t, rows, cols, x) } };
}
static Made make(Duo *q, const Kind *k, int T, int H, int V) {
    Mem *m = &q->r[GPU].m;
    float *h = rnds(m, (int64_t)T * H, ++q->seed, 3), *w = rnds(m, (int64_t)V * H, ++q->seed, 2.0f / sqrtf((float)H));
    if (k->ties)
        for (int64_t v = 0; v < V; v++) memcpy(w + v * H, w + v % k->ties * H, (size_t)H * 4);
    float *temp = MEM_ARRAY(m, float, T), *tp = MEM_ARRAY(m, float, T), *mp = MEM_ARRAY(m, float, T);
    int32_t *ids = MEM_ARRAY(m, int32_t, T), *tk = MEM_ARRAY(m, int32_t, T), *ban = MEM_ARRAY(m, int32_t, T),
            *gr = MEM_ARRAY(m, int32_t, T);
    int64_t *random = MEM_ARRAY(m, int64_t, T);
    int32_t banned[2] = { 3, V / 2 };
    for (int t = 0; t < T; t++) {
        bool off = t % 5 == 4; /* a row that is not cut, among those that are */
        ids[t] = t % 7 == 3 ? -1 : (int32_t)(mix(++q->seed) % (uint64_t)V), temp[t] = 1 / k->temp;
        tp[t] = off ? 1 : k->top_p, mp[t] = off ? 0 : k->min_p, tk[t] = off ? 0 : k->top_k, ban[t] = t % 2,
        gr[t] = t % 6 == 1;
        random[t] = (int64_t)mix(++q->seed);
    }
    DType wt = k->wide ? DT_F32 : q->act;
    Made d = { .T = T,
               .h = two_of(q, q->act, T, H, 8, h),
               .ids = two_i32(q, T, 1, 0, ids),
               .temp = two_of(q, DT_F32, T, 1, 0, temp),
               .top_p = two_of(q, DT_F32, T, 1, 0, tp),
               .min_p = two_of(q, DT_F32, T, 1, 0, mp),
               .top_k = two_i32(q, T, 1, 0, tk),
               .ban = two_i32(q, T, 1, 0, ban),
               .banned = two_i32(q, 2, 1, 0, banned),
               .greedy = two_i32(q, T, 1, 0, gr),
               .random = two_raw(q, DT_I64, T, 1, random),
               .lp = two(q, DT_F32, T, 1, 2, 1),
               .ent = two(q, DT_F32, T, 1, 0, 1),
               .stat = two_raw(q, DT_U8, T, HEAD_STAT, NULL),
               .id = two_i32(q, T, 1, 0, ids),
               .slp = two(q, DT_F32, T, 1, 0, 1),
               .sent = two(q, DT_F32, T, 1, 0, 1),
               .kept = two_raw(q, DT_I32, T, kept_words(V), NULL) };
    uint16_t *w16 = bf16s(m, w, (int64_t)V * H);
    d.w = two_raw(q, wt, V, H, wt == DT_BF16 ? (void *)w16 : w);
    return d;
}
static Tensor part(Two x, int s, int64_t at, int64_t n) { return tensor_rows(x.t[s], at, n); }
static Dist dist_of(const Made *m, const Kind *k, int s, int64_t at, int64_t n) {
    Dist p = { .inv_temp = k->temp != 1 ? part(m->temp, s, at, n) : TENSOR_NONE };
    if (cuts(k))
        p.top_k = part(m->top_k, s, at, n), p.top_p = part(m->top_p, s, at, n), p.min_p = part(m->min_p, s, at, n);
    return p;
}
static Sample draw_of(const Made *m, const Kind *k, int s, int64_t at, int64_t n) {
    return (Sample){ .h = part(m->h, s, at, n),
                     .w = m->w.t[s],
                     .dist = dist_of(m, k, s, at, n),
                     .random = part(m->random, s, at, n),
                     .greedy = part(m->greedy, s, at, n),
                     .banned = m->banned.t[s],
                     .ban = k->ban ? part(m->ban, s, at, n) : TENSOR_NONE,
                     .id = part(m->id, s, at, n),
                     .lp = part(m->slp, s, at, n),
                     .ent = part(m->sent, s, at, n),
                     .kept = part(m->kept, s, at, n) };
}
static Head score_of(const Made *m, const Kind *k, int s, int64_t at, int64_t n) {
    return (Head){ .h = part(m->h, s, at, n),
                   .w = m->w.t[s],
                   .ids = part(m->ids, s, at, n),
                   .dist = dist_of(m, k, s, at, n),
                   .lp = part(m->lp, s, at, n),
                   .ent = part(m->ent, s, at, n),
                   .stat = part(m->stat, s, at, n),
                   .banned = m->banned.t[s],
                   .ban = k->ban ? part(m->ban, s, at, n) : TENSOR_NONE,
                   .kept = k->given ? part(m->kept, s, at, n) : TENSOR_NONE };
}
static int other_ids(Duo *q, Two x, int64_t n) {
    int32_t *a = rig_get(&q->r[CPU], x.t[CPU]), *b = rig_get(&q->r[GPU], x.t[GPU]);
    int d = 0;
    for (int64_t i = 0; i < n; i++) d += a[i] != b[i];
    return d;
}
/* What a call took of tmp is no more than it said before. */
#define WITHIN(d, name, ...)                                                                                           \
    do {                                                                                                               \
        (d)->tmp.peak = 0;                                                                                             \
        op_##name(d, __VA_ARGS__);                                                                                     \
        size_t said = (d)->ops->tmp.name(d, __VA_ARGS__);                                                              \
        EXPECT((d)->tmp.peak <= said, #name " took %zu bytes of tmp, %zu were said", (d)->tmp.peak, said);             \
    } while (0)
static void head(Duo *q, const Kind *k, int T, int H, int V) {
    Dev *g = duo_dev(q, GPU);
    Rig *r = &q->r[GPU];
    Made m = make(q, k, T, H, V);
    for (int s = 0; s < 2; s++) {
        Sample draw = draw_of(&m, k, s, 0, T);
        op_sample(duo_dev(q, s), &draw);
    }
    /* logits that differ in their last bits move a threshold now and then, seldom an id */
    EXPECT(other_ids(q, m.id, T) <= 1 + T / 20, "%s V %d: %d of %d ids are not the CPU's", k->name, V,
           other_ids(q, m.id, T), T);
    EXPECT(other_ids(q, m.kept, T * kept_words(V)) <= 1 + T / 4, "%s V %d: kept sets", k->name, V);
    op_put(g, m.kept.t[GPU], rig_get(&q->r[CPU], m.kept.t[CPU]));
    for (int s = 0; s < 2; s++) {
        Head h = score_of(&m, k, s, 0, T);
        op_logprob(duo_dev(q, s), &h);
    }
    if (!cuts(k) || k->given) duo_near(q, k->name, m.lp, 2e-6), duo_near(q, k->name, m.ent, 4e-6);
    Two dlp = two(q, DT_F32, T, 1, 0, 1), dent = two(q, DT_F32, T, 1, 0, 1), dh = two(q, q->act, T, H, 8, 1),
        dw = two(q, DT_F32, V, H, 0, 1);
    Tensor dh2 = rig_put(r, q->act, T, H, NULL), dw2 = rig_put(r, DT_F32, V, H, rig_get(r, dw.t[GPU]));
    Tensor dh3 = rig_put(r, q->act, T, H, NULL), dw3 = rig_put(r, DT_F32, V, H, rig_get(r, dw.t[GPU]));
    for (int s = 0; s < 2; s++) {
        Head h = score_of(&m, k, s, 0, T);
        op_logprob_bwd(duo_dev(q, s), dh.t[s], dw.t[s], dlp.t[s], dent.t[s], &h);
    }
    if (!cuts(k) || k->given)
        duo_near(q, "dh", dh, q->act == DT_BF16 ? 6e-3 : 4e-6), duo_near(q, "dw", dw, q->act == DT_BF16 ? 6e-3 : 4e-6);
    Head h = score_of(&m, k, GPU, 0, T);
    WITHIN(g, logprob_bwd, dh2, dw2, dlp.t[GPU], dent.t[GPU], &h);
    duo_equal(q, "dh again", dh.t[GPU], dh2), duo_equal(q, "dw again", dw.t[GPU], dw2);
    Head keeps = h; /* with room for logits: the same bits, and the room is used where it can be */
    keeps.logits = rig_put(r, DT_F32, T, V, NULL), keeps.lp = rig_put(r, DT_F32, T, 1, NULL),
    keeps.ent = rig_put(r, DT_F32, T, 1, NULL);
    op_zero(g, keeps.logits);
    WITHIN(g, logprob, &keeps);
    duo_equal(q, "lp, logits kept", h.lp, keeps.lp), duo_equal(q, "entropy, logits kept", h.ent, keeps.ent);
    const float *kept = rig_get(r, keeps.logits);
    int written = 0;
    for (int64_t i = 0; i < (int64_t)T * V; i++) written += kept[i] != 0;
    bool can = q->act == DT_BF16 && V % 8 == 0 && H % 8 == 0 && !cuts(k);
    EXPECT(!can || m.w.t[GPU].dtype != DT_BF16 || written > T * V / 2, "%s V %d: %d of %d logits are kept", k->name, V,
           written, T * V);
    WITHIN(g, logprob_bwd, dh3, dw3, dlp.t[GPU], dent.t[GPU], &keeps);
    duo_equal(q, "dh, logits kept", dh2, dh3), duo_equal(q, "dw, logits kept", dw2, dw3);
    op_zero(g, dw2), op_logprob_bwd(g, dh2, dw2, dlp.t[GPU], dent.t[GPU], &h);
    op_logprob_bwd_first(g, dh3, dw3, dlp.t[GPU], dent.t[GPU], &h); /* where something else lies */
    duo_equal(q, "dh, first", dh2, dh3), duo_equal(q, "dw, first", dw2, dw3);
    /* E3: what was drawn is scored with the bits that drawing gave, told its kept set or not; a few rows at a time */
    Sample again = draw_of(&m, k, GPU, 0, T);
    WITHIN(g, sample, &again);
    op_put(g, m.ids.t[GPU], rig_get(r, m.id.t[GPU]));
    int32_t *greedy = rig_get(r, m.greedy.t[GPU]);
    float *slp = rig_get(r, m.slp.t[GPU]), *sent = rig_get(r, m.sent.t[GPU]);
    for (int told = 0; told < 2; told++)
        for (int few = 0; few < 2; few++) {
            for (int64_t at = 0, n; at < T; at += n) {
                n = few ? pick_int(q, 1, 9) : T;
                if (n > T - at) n = T - at;
                Head one = score_of(&m, k, GPU, at, n);
                one.kept = told ? part(m.kept, GPU, at, n) : TENSOR_NONE, one.stat = TENSOR_NONE;
                WITHIN(g, logprob, &one);
            }
            float *lp = rig_get(r, m.lp.t[GPU]), *ent = rig_get(r, m.ent.t[GPU]);
            int bad = 0;
            for (int t = 0; t < T; t++) /* a greedy row is scored whole, which a cut one is not here */
                if (!(greedy[t] && cuts(k))) bad += memcmp(&lp[t], &slp[t], 4) || memcmp(&ent[t], &sent[t], 4);
            EXPECT(bad == 0,
                   "%s V %d, told %d, few %d: %d of %d rows are scored with other bits than they were drawn with",
                   k->name, V, told, few, bad, T);
        }
    /* rows drawn a few at a time: the same ids */
    int32_t *ids = rig_get(r, m.id.t[GPU]);
    for (int64_t at = 0, n; at < T; at += n) {
        n = pick_int(q, 1, 9);
        if (n > T - at) n = T - at;
        Sample few = draw_of(&m, k, GPU, at, n);
        op_sample(g, &few);
    }
    EXPECT(!memcmp(ids, rig_get(r, m.id.t[GPU]), (size_t)T * 4), "%s V %d: other ids drawn in other batches", k->name,
           V);
    duo_clear(q, k->name);
}
/* The vocabulary over ranks, one of them without any: the bits of the whole, also of what backward reads and of dw. */
static void parts(Duo *q, const Kind *k, int T, int H, int V) {
    const int64_t cut[] = { 0, 128, 128, V / 256 * 128, V };
    enum { N = COUNT(cut) - 1 };
    Dev *g = duo_dev(q, GPU);
    Rig *r = &q->r[GPU];
    Made m = make(q, k, T, H, V);
    Head whole = score_of(&m, k, GPU, 0, T), end = whole, h[N];
    end.vocab = part_whole(V), end.lp = rig_put(r, DT_F32, T, 1, NULL), end.ent = rig_put(r, DT_F32, T, 1, NULL);
    end.stat = rig_put(r, DT_U8, T, HEAD_STAT, NULL);
    op_zero(g, whole.stat);
    op_logprob(g, &whole);
    Tensor part[N], dlp = two(q, DT_F32, T, 1, 0, 1).t[GPU], dh = rig_put(r, q->act, T, H, NULL);
    Tensor dw = rig_put(r, DT_F32, V, H, NULL), dw2 = rig_put(r, DT_F32, V, H, NULL);
    op_logprob_bwd(g, dh, dw, dlp, dlp, &whole);
    for (int p = 0; p < N; p++) {
        h[p] = end, h[p].vocab.first = cut[p], h[p].w = tensor_rows(whole.w, cut[p], cut[p + 1] - cut[p]);
        part[p] = rig_put(r, DT_F32, T, 3 * ((h[p].w.rows + 127) / 128) + 1, NULL);
        WITHIN(g, logprob_part, part[p], &h[p]);
    }
    op_logprob_end(g, part, N, &end);
    duo_equal(q, "lp of parts", whole.lp, end.lp), duo_equal(q, "entropy of parts", whole.ent, end.ent);
    duo_equal(q, "stat of parts", whole.stat, end.stat);
    for (int p = 0; p < N; p++) op_logprob_bwd(g, dh, tensor_rows(dw2, cut[p], cut[p + 1] - cut[p]), dlp, dlp, &h[p]);
    duo_equal(q, "dw of parts", dw, dw2);
    duo_clear(q, "parts");
}
/* As tp ranks share a head: each makes the logits of its leaves of the vocabulary, then the
 * whole rows of its share of them; the bits of one rank. */
static void ranks(Duo *q, const Kind *k, int T, int H, int V, int tp) {
    Dev *g = duo_dev(q, GPU);
    Rig *r = &q->r[GPU];
    Made m = make(q, k, T, H, V);
    Sample draw = draw_of(&m, k, GPU, 0, T), drawn = draw;
    op_sample(g, &draw);
    Head score = score_of(&m, k, GPU, 0, T), scored = score;
    op_zero(g, score.stat), op_logprob(g, &score);
    drawn.id = rig_put(r, DT_I32, T, 1, NULL), drawn.lp = rig_put(r, DT_F32, T, 1, NULL);
    drawn.ent = rig_put(r, DT_F32, T, 1, NULL), drawn.kept = rig_put(r, DT_I32, T, kept_words(V), NULL);
    scored.lp = rig_put(r, DT_F32, T, 1, NULL), scored.ent = rig_put(r, DT_F32, T, 1, NULL);
    scored.stat = rig_put(r, DT_U8, T, HEAD_STAT, NULL);
    Tensor logits[2] = { rig_put(r, DT_F32, T, V, NULL), rig_put(r, DT_F32, T, V, NULL) }, part[32];
    Head end = scored;
    const int leaves = (V + 127) / 128;
    end.vocab = part_whole(V), end.lp = rig_put(r, DT_F32, T, 1, NULL), end.ent = rig_put(r, DT_F32, T, 1, NULL);
    end.stat = rig_put(r, DT_U8, T, HEAD_STAT, NULL);
    for (int p = 0; p < tp; p++) {
        int64_t a = leaves * p / tp * 128, b = leaves * (p + 1) / tp * 128;
        b = b > V ? V : b;
        Tensor w = tensor_rows(score.w, a, b - a);
        Head h = end;
        h.vocab.first = a, h.w = w, part[p] = rig_put(r, DT_F32, T, 3 * ((w.rows + 127) / 128) + 1, NULL);
        if (!cuts(k)) op_logprob_part(g, part[p], &h);
        for (int i = 0; i < 2; i++)
            if (w.rows) op_linear(g, tensor_cols(logits[i], a, w.rows), score.h, w, TENSOR_NONE, leaves_one(H));
    }
    for (int p = 0; p < tp; p++) {
        int64_t a = (int64_t)T * p / tp, n = (int64_t)T * (p + 1) / tp - a;
        Made part_of = m;
        part_of.id.t[GPU] = drawn.id, part_of.slp.t[GPU] = drawn.lp, part_of.sent.t[GPU] = drawn.ent;
        part_of.kept.t[GPU] = drawn.kept, part_of.lp.t[GPU] = scored.lp, part_of.ent.t[GPU] = scored.ent;
        part_of.stat.t[GPU] = scored.stat;
        Sample s = draw_of(&part_of, k, GPU, a, n);
        part_of.kept = m.kept; /* what scoring is told */
        Head h = score_of(&part_of, k, GPU, a, n);
        op_zero(g, h.stat);
        WITHIN(g, sample_rows, tensor_rows(logits[0], a, n), &s);
        WITHIN(g, logprob_rows, tensor_rows(logits[1], a, n), &h);
    }
    char name[64];
    snprintf(name, sizeof name, "%s over %d ranks", k->name, tp);
    duo_equal(q, name, draw.id, drawn.id), duo_equal(q, name, draw.lp, drawn.lp);
    duo_equal(q, name, draw.ent, drawn.ent), duo_equal(q, name, draw.kept, drawn.kept);
    duo_equal(q, name, score.lp, scored.lp), duo_equal(q, name, score.ent, scored.ent);
    duo_equal(q, name, score.stat, scored.stat);
    if (!cuts(k)) {
        op_zero(g, end.stat), op_logprob_end(g, part, tp, &end);
        duo_equal(q, name, score.lp, end.lp), duo_equal(q, name, score.ent, end.ent);
        duo_equal(q, name, score.stat, end.stat);
    }
    duo_clear(q, name);
}
/* Rows without a distribution: NaN, +inf, nothing but -inf; those beside them keep their bits. */
static void broken(Duo *q, int V) {
    enum { T = 9, H = 32 };
    Kind k = { "broken", 1, 1, 0, 0, 0, 0, 0 };
    Dev *g = duo_dev(q, GPU);
    Rig *r = &q->r[GPU];
    Made m = make(q, &k, T, H, V);
    Head h = score_of(&m, &k, GPU, 0, T);
    Sample s = draw_of(&m, &k, GPU, 0, T);
    op_logprob(g, &h);
    float *lp = rig_get(r, m.lp.t[GPU]);
    float nan[H];
    for (int i = 0; i < H; i++) nan[i] = i == 5 ? NAN : 1;
    Tensor two_nan = rig_put(r, DT_F32, 1, H, nan);
    op_copy(g, tensor_rows(m.h.t[GPU], 4, 1), two_nan);
    op_logprob(g, &h), op_sample(g, &s);
    float *now = rig_get(r, m.lp.t[GPU]), *ent = rig_get(r, m.ent.t[GPU]);
    int32_t *id = rig_get(r, m.id.t[GPU]);
    for (int t = 0; t < T; t++)
        if (t == 4)
            EXPECT(isnan(now[t]) && isnan(ent[t]) && id[t] == -1, "a row with NaN: lp %g, ent %g, id %d",
                   (double)now[t], (double)ent[t], id[t]);
        else
            EXPECT(!memcmp(&now[t], &lp[t], 4) && id[t] >= 0, "a row beside NaN: %g, was %g", (double)now[t],
                   (double)lp[t]);
    Two dlp = two(q, DT_F32, T, 1, 0, 1), dh = two(q, q->act, T, H, 0, 1);
    op_logprob_bwd(g, dh.t[GPU], TENSOR_NONE, dlp.t[GPU], TENSOR_NONE, &h);
    float *x = floats(r, dh.t[GPU]);
    for (int t = 0; t < T; t++) EXPECT(isnan(x[t * H]) == (t == 4), "row %d's gradient: %g", t, (double)x[t * H]);
    duo_clear(q, "broken");
}

int gpu_head(int argc, char **argv) {
    (void)argc, (void)argv;
    static const Kind kinds[] = {
        { "plain", 1, 1, 0, 0, 0, 0, 0 },
        { "temperature", .7f, 1, 0, 0, 0, 0, 0 },
        { "ban", 1.3f, 1, 0, 0, 0, 1, 0 },
        { "top-k", 1, 1, 0, 20, 0, 1, 0 },
        { "top-k ties", 1, 1, 0, 20, 50, 0, 0 },
        { "top-p", .9f, .8f, 0, 0, 0, 0, 0 },
        { "top-p ties", 1, .6f, 0, 0, 50, 1, 0 },
        { "min-p", 1, 1, .05f, 0, 0, 0, 0 },
        { "all three", .8f, .9f, .02f, 50, 50, 1, 0 },
        { "given", 1, .9f, 0, 30, 0, 0, 1 },
        { "float32 weights", .9f, 1, 0, 0, 0, 1, 0, 1 },
        { "top-p of many ties", 1, .6f, 0, 0, 3, 0, 0 },
        { "top-k of many ties", 1, 1, 0, 2500, 3, 1, 0 },
        { "top-p of nearly all", 3, .9999f, 0, 0, 0, 0, 0 },
        { "top-k of nearly all", 1, 1, 0, 990, 0, 0, 0 },
        { "float32 weights, top-p", 1, .9f, 0, 0, 0, 0, 0, 1 },
    };
    for (int half = gpu_test_few; half < 2; half++) {
        Duo q;
        duo_open(&q, half ? DT_BF16 : DT_F32, 500, 512u << 20);
        for (size_t k = 0; k < COUNT(kinds); k += gpu_test_few ? 8 : 1) {
            if (gpu_test_few) { /* the same kernels; a sanitizer takes a thousand times as long */
                head(&q, &kinds[k], 9, 24, 131), head(&q, &kinds[k], 9, 64, 520);
                continue;
            }
            head(&q, &kinds[k], 53, 24, 131);
            head(&q, &kinds[k], 40, 96, 1000);
            if (half) head(&q, &kinds[k], 70, 128, 9000), head(&q, &kinds[k], 150, 64, 1288);
        }
        if (gpu_test_few) parts(&q, &kinds[0], 9, 64, 520), ranks(&q, &kinds[8], 9, 64, 520, 2);
        for (size_t k = 0; k < (gpu_test_few ? 0 : COUNT(kinds)); k += 2)
            for (int tp = 2; tp <= 32; tp *= 2) {
                if (!kinds[k].wide || !half) /* float32 beside bfloat16 by the plain kernels: a run has none */
                    ranks(&q, &kinds[k], 40, 64, 131, tp);
                ranks(&q, &kinds[k], 37, 96, 1000, tp);
                if (half) ranks(&q, &kinds[k + 1], 70, 128, 9000, tp);
            }
        for (int k = 0; k < (gpu_test_few ? 0 : 3); k++)
            parts(&q, &kinds[k], 40, 96, 1000), parts(&q, &kinds[k], 150, 64, 1003);
        broken(&q, 131), broken(&q, 1000);
        duo_close(&q);
    }
    return test_end();
}
