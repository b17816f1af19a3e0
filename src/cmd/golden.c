/* golden.c - a model held against the numbers that transformers wrote down for it.
 * How close: float32 against float32 in another order of summation, so log-probs to 2e-5,
 * gradients to 2e-4 of the largest entry of their tensor, greedy tokens equal; Adam divides by the gradient, so after
 * two steps 99.9 % of the entries to 2e-4 and all to 2e-2.
 * On a device that computes in bfloat16 errors are means without the worst tenth (of gradients: a norm over a norm), as
 * a bit decides between experts that are nearly equal, and 1.25 times what transformers in bfloat16 is off by on the
 * same model is allowed (bf16.json in the reference folder); what has no such measure is not compared. */
#include "cmd/golden.h"
#include "cmd/rank_note.h"
#include "base/file.h"
#include "file/safetensors.h"
#include "rollout/engine.h"
#include "train/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SEQS = 64, GREEDY = 16 };
#define OFFLOAD 0.5 /* of the optimizer's states: both arenas are tried */

typedef struct {
    const int32_t *ids;
    int n;
    const float *logits, *logprobs, *entropy, *weights;
    PlacedPicture *pictures;
    int n_pictures;
    const float *image_embeds, *video_embeds;
    const int32_t *position_ids; /* [3,n] */
    const int32_t *delta;
} GoldenSeq;

typedef struct {
    const GoldenOpts *opts;
    GoldenResult *r;
    Opened o;
    StFiles ref;
    GoldenSeq seq[MAX_SEQS];
    int n_seqs;
    int own[MAX_SEQS],
        n_own; /* those of this rank of dp; one that has none computes the first, and it does not count */
    bool idle;
    int64_t tokens, outputs;
    Arena io, act, host;
    Params grads;
    Json meta, half; /* half: bf16.json */
    bool has_meta, has_half;
    ClipRule rule; /* of clips' positions: the reference's own */
} Golden;

/* One check: how it ended, what was compared, in words, and where (or NULL). */
static void tell(Golden *g, const char *how, const char *what, const char *text, const char *where) {
    Buf *b = g->opts->json;
    if (!b) {
        printf("  %-6s %-24s %s\n", how, what, text);
        if (where) printf("         %s\n", where);
        return;
    }
    const char *const field[][2] = { { "check", what }, { "result", how }, { "text", text }, { "where", where } };
    buf_puts(b, b->n > 1 ? ",{" : "{");
    for (size_t i = 0; i < COUNT(field) && field[i][1]; i++) {
        buf_printf(b, "%s\"%s\":", i ? "," : "", field[i][0]);
        json_put_str(b, field[i][1], strlen(field[i][1]));
    }
    buf_puts(b, "}");
}

static void report_at(Golden *g, bool ok, const char *what, const char *where, const char *fmt, double a, double b) {
    char text[160];
    snprintf(text, sizeof text, fmt, a, b);
    tell(g, ok ? "ok" : "FAILED", what, text, where);
    if (ok) g->r->passed++;
    else g->r->failed++;
}
static void report(Golden *g, bool ok, const char *what, const char *fmt, double a, double b) {
    report_at(g, ok, what, NULL, fmt, a, b);
}

static void skip(Golden *g, const char *what, const char *why) {
    tell(g, "skip", what, why, NULL);
    g->r->skipped++;
}

static const Comm *all_ranks(const Golden *g) { return &g->opts->open.ranks->world.all; }
static bool many(const Golden *g) { return all_ranks(g)->size > 1; }

/* ---- the reference's sequences */
static const StTensor *column(Golden *g, int i, const char *name, DType t, int64_t n, Err *err) {
    char key[64];
    snprintf(key, sizeof key, "seq%d.%s", i, name);
    const StTensor *x = st_find(&g->ref, key);
    if (!x) return NULL;
    if (x->dtype != t || (n >= 0 && x->count != n)) {
        err_set(err, "golden.safetensors: %s has another type or size than expected", key);
        return NULL;
    }
    return x;
}

static const float *floats(Golden *g, int i, const char *name, int64_t n, Err *err) {
    const StTensor *x = column(g, i, name, DT_F32, n, err);
    return x ? mem_copy(&g->o.mem, x->data, x->bytes) : NULL;
}

/* ---- pictures of a sequence: pixel values, grids, and places, which are runs of their kind's token */
typedef struct {
    const StTensor *grids, *values, *seconds;
    int64_t token, row;
    int n, at;
} Shown;
static bool read_shown(Golden *g, int i, Shown *x, const char *grids, const char *values, int64_t token, Err *err) {
    *x = (Shown){ .token = token };
    if (!(x->grids = column(g, i, grids, DT_I32, -1, err))) return true;
    x->n = (int)(x->grids->count / 3);
    x->values = column(g, i, values, DT_F32, -1, err);
    return x->values || err_set(err, "golden.safetensors: seq%d has %s and no %s", i, grids, values);
}
static bool next_shown(Golden *g, int i, Shown *x, bool clip, int at, Picture *out, Err *err) {
    const Dims *d = &g->o.desc.d;
    int32_t grid[3];
    if (x->at == x->n) return err_set(err, "golden.safetensors: seq%d has more places than pictures", i);
    memcpy(grid, x->grids->data + 12 * x->at, 12);
    *out = (Picture){ .grid = { grid[0], grid[1], grid[2] }, .clip = clip };
    int64_t rows = grid_rows(out->grid), merge = d->vis_merge;
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1 || grid[1] % merge || grid[2] % merge
        || (x->row + rows) * d->vis_pixels > x->values->count || at + picture_tokens(out, d) > g->seq[i].n)
        return err_set(err, "golden.safetensors: seq%d: a grid of %d x %d x %d does not fit its pixel values or tokens",
                       i, grid[0], grid[1], grid[2]);
    out->values = (const float *)mem_copy(&g->o.mem, x->values->data, x->values->bytes) + x->row * d->vis_pixels;
    out->key[0] = (uint64_t)i + 1, out->key[1] = (uint64_t)at; /* all different */
    if (x->seconds) {
        float s;
        memcpy(&s, x->seconds->data + 4 * x->at, 4);
        out->seconds = (double)s;
    } else out->seconds = 1;
    x->row += rows, x->at++;
    return true;
}
static bool read_pictures(Golden *g, int i, Err *err) {
    const Dims *d = &g->o.desc.d;
    GoldenSeq *s = &g->seq[i];
    Shown image, video;
    VEC(PlacedPicture) all = { 0 };
    if (!d->vis_layers) return true;
    TRY(read_shown(g, i, &image, "image_grid_thw", "pixel_values", d->image_token, err));
    TRY(read_shown(g, i, &video, "video_grid_thw", "pixel_values_videos", d->video_token, err));
    video.seconds = column(g, i, "second_per_grid_ts", DT_F32, video.n, err);
    bool ok = true;
    for (int t = 0; ok && t < s->n;) {
        bool clip = s->ids[t] == d->video_token && video.n;
        if (!clip && !(s->ids[t] == d->image_token && image.n)) {
            t++;
            continue;
        }
        Picture *p = MEM_NEW(&g->o.mem, Picture);
        ok = next_shown(g, i, clip ? &video : &image, clip, t, p, err);
        if (ok) VEC_PUSH(all, (PlacedPicture){ p, t });
        t += ok ? picture_tokens(p, d) : 1;
    }
    s->n_pictures = (int)all.n;
    s->pictures = mem_copy(&g->o.mem, all.at, all.n * sizeof *all.at);
    vec_free(all.at);
    s->image_embeds = floats(g, i, "image_embeds", -1, err), s->video_embeds = floats(g, i, "video_embeds", -1, err);
    const StTensor *pos = column(g, i, "position_ids", DT_I32, 3 * (int64_t)s->n, err),
                   *delta = column(g, i, "delta", DT_I32, 1, err);
    if (pos) s->position_ids = mem_copy(&g->o.mem, pos->data, pos->bytes);
    if (delta) s->delta = mem_copy(&g->o.mem, delta->data, delta->bytes);
    return ok;
}

static bool read_seqs(Golden *g, Err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s/golden.safetensors", g->opts->golden);
    TRY(st_open(&g->ref, path, &g->o.mem, err));
    const StTensor *ids;
    while (g->n_seqs < MAX_SEQS && (ids = column(g, g->n_seqs, "input_ids", DT_I32, -1, err))) {
        int i = g->n_seqs++, n = (int)ids->count;
        int32_t *copy = MEM_ARRAY(&g->o.mem, int32_t, (size_t)n + 1);
        memcpy(copy, ids->data, (size_t)n * 4);
        for (int k = 0; k < n; k++)
            if (copy[k] < 0 || copy[k] >= g->o.desc.d.vocab)
                return err_set(err, "%s: seq%d.input_ids holds %d, beyond the vocabulary", path, i, copy[k]);
        g->seq[i] = (GoldenSeq){ copy, n };
        g->seq[i].logits = floats(g, i, "logits", n * g->o.desc.d.vocab, err);
        g->seq[i].logprobs = floats(g, i, "logprobs", n - 1, err);
        g->seq[i].entropy = floats(g, i, "entropy", n - 1, err);
        g->seq[i].weights = floats(g, i, "weights", n - 1, err);
        if (!g->seq[i].logprobs)
            return err_set(err, "%s: seq%d.logprobs is missing or has another size than input_ids - 1", path, i);
        TRY(read_pictures(g, i, err));
        g->tokens += n;
        g->outputs += n - 1;
    }
    if (!g->n_seqs) return err_set(err, "%s: holds no seq0.input_ids (32-bit integers)", path);
    return true;
}

static bool read_json(Golden *g, const char *name, Json *out) {
    char path[4096];
    Err err;
    Buf text = { 0 };
    snprintf(path, sizeof path, "%s/%s", g->opts->golden, name);
    bool ok = file_exists(path) && file_read(&text, path, &err) && json_parse(out, text.data, text.n, &g->o.mem, &err);
    buf_free(&text);
    return ok;
}

/* How far off a value may be: in float32 so much, in bfloat16 as bf16.json says; negative:
 * there is no measure of it. */
static bool is_half(const Golden *g) { return g->o.dev.act == DT_BF16; }
static double allowed(const Golden *g, const char *key, double f32) {
    if (!is_half(g)) return f32;
    const Json *v = g->has_half ? json_get(&g->half, key) : NULL;
    return v && (v->kind == JSON_REAL || v->kind == JSON_INT) ? 1.25 * json_number(v) : -1;
}
static const char NO_MEASURE[] = "computed in bfloat16, and no bf16.json says how far off that may be";

/* ---- memory: one batch of the rank's sequences, forward and backward */
static void deal(Golden *g) {
    const Comm *dp = &g->opts->open.ranks->groups.dp;
    for (int i = dp->rank; i < g->n_seqs; i += dp->size) g->own[g->n_own++] = i;
    if ((g->idle = !g->n_own)) g->own[g->n_own++] = 0;
    g->tokens = g->outputs = 0;
    for (int i = 0; i < g->n_own; i++) g->tokens += g->seq[g->own[i]].n, g->outputs += g->seq[g->own[i]].n - 1;
}

static void pack(const Golden *g, PackSeq *seqs, int extra) {
    for (int i = 0; i < g->n_own; i++) {
        const GoldenSeq *s = &g->seq[g->own[i]];
        seqs[i] =
            (PackSeq){ s->ids, s->n + extra, 1, DRAW_PLAIN, .pictures = s->pictures, .n_pictures = s->n_pictures };
    }
}

static bool open_all(Golden *g, Err *err) {
    int longest = 0;
    Shard shard = open_shard(&g->o);
    deal(g);
    for (int i = 0; i < g->n_seqs; i++) longest = g->seq[i].n > longest ? g->seq[i].n : longest;
    int64_t T = g->tokens + g->n_seqs + GREEDY;
    ModelShape s = { .tokens = T,
                     .outputs = T,
                     .seqs = g->n_seqs,
                     .longest = longest + GREEDY,
                     .backward = true,
                     .recompute = g->opts->recompute,
                     .like = open_kind(&g->o, g->opts->open.leaves),
                     .shard = &shard };
    PackSeq seqs[MAX_SEQS];
    pack(g, seqs, 0);
    s.pictures = batch_pictures(seqs, g->n_own, &g->o.desc.d);
    ModelSizes sizes = model_sizes(&g->o.desc, &s);
    size_t feats = (size_t)s.pictures.tokens * (size_t)g->o.desc.d.hidden * 4;
    size_t reduce = reduce_tmp(&g->o.desc, &shard, s.like);
    if (reduce > sizes.tmp) sizes.tmp = reduce;
    OpenOpts opts = g->opts->open;
    opts.trained = true, opts.weights = g->o.dev.act;
    TRY(open_weights(&g->o, &opts, sizes.tmp, err));
    g->o.model.recompute = g->opts->recompute;
    g->act = dev_arena(&g->o.dev, "act", sizes.act);
    g->io = dev_arena(&g->o.dev, "io",
                      32 * arena_round((size_t)T * 4) + arena_round((size_t)T * (size_t)g->o.desc.d.vocab * 4)
                          + batch_see_bytes(&s.pictures, T, &g->o.desc.d) + arena_round(feats));
    size_t host = batch_host_bytes(T, g->n_seqs) + 4096;
    g->host = arena_on_host("host", host, &g->o.mem);
    params_open(&g->grads, &g->o.desc, &shard, &g->o.dev, DT_F32, true, "grads", &g->o.mem);
    return true;
}

static void put_batch(Golden *g, Batch *b,
                      int extra) { /* extra 1: one more token, so that the last row is an output too */
    PackSeq seqs[MAX_SEQS];
    pack(g, seqs, extra);
    batch_put_part(b, &g->o.dev, &g->io, &g->host, seqs, g->n_own, &g->o.model.par.cp);
    model_see(&g->o.model, b, &g->io, seqs, g->n_own, g->rule);
}

/* ---- the checks */
typedef struct {
    double worst;
    VEC(float)
    all;
} Diff;
static void differ(Diff *d, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)a[i] - (double)b[i]);
        if (!(e <= d->worst)) d->worst = e; /* NaN too */
        VEC_PUSH(d->all, e == e ? (float)e : INFINITY);
    }
}
static int rising(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}
/* key: of bf16.json */
static void report_diff(Golden *g, const char *what, const char *key, Diff *d, double f32) {
    double most = allowed(g, key, f32), error = comm_max(all_ranks(g), d->worst);
    if (is_half(g)) {
        size_t n = d->all.n * 9 / 10;
        double sum = 0;
        if (n) qsort(d->all.at, d->all.n, sizeof *d->all.at, rising);
        for (size_t i = 0; i < n; i++) sum += (double)d->all.at[i];
        error = n ? sum / (double)n : 0;
    }
    if (most < 0) skip(g, what, NO_MEASURE);
    else report(g, error <= most, what, is_half(g) ? "mean error %.2e of %g" : "worst error %.2e of %g", error, most);
    vec_free(d->all.at);
}

static void check_values(Golden *g) {
    int at = 0;
    Batch b;
    size_t mark = arena_mark(&g->io);
    Mem mem = { 0 };
    put_batch(g, &b, 0);
    Tensor lp = tensor_push(&g->io, DT_F32, b.outputs, 1), ent = tensor_push(&g->io, DT_F32, b.outputs, 1);
    model_score(&g->o.model, &b, lp, ent);
    float *got = MEM_ARRAY(&mem, float, (size_t)b.outputs), *got_ent = MEM_ARRAY(&mem, float, (size_t)b.outputs);
    op_get(&g->o.dev, got, lp);
    op_get(&g->o.dev, got_ent, ent);
    Diff lps = { 0 }, ents = { 0 };
    bool has_ent = true;
    for (int k = 0; k < g->n_own; k++) {
        const GoldenSeq *s = &g->seq[g->own[k]];
        differ(&lps, got + at, s->logprobs, s->n - 1);
        if (s->entropy) differ(&ents, got_ent + at, s->entropy, s->n - 1);
        at += s->n - 1;
    }
    for (int i = 0; i < g->n_seqs; i++) has_ent = has_ent && g->seq[i].entropy;
    report_diff(g, "log-probs", "logprobs", &lps, 2e-5);
    if (has_ent) report_diff(g, "entropy", "entropy", &ents, 2e-5);
    else skip(g, "entropy", "not in golden.safetensors");
    mem_free(&mem);
    arena_pop(&g->io, mark);
}

static void check_logits(Golden *g) {
    if (!g->seq[0].logits || many(g)) {
        skip(g, "logits", many(g) ? "one rank's: here the vocabulary may be cut" : "not in golden.safetensors");
        return;
    }
    Batch b;
    size_t mark = arena_mark(&g->io);
    Mem mem = { 0 };
    int64_t V = g->o.desc.d.vocab;
    put_batch(g, &b, 1);
    Tensor logits = tensor_push(&g->io, DT_F32, b.outputs, V);
    model_logits(&g->o.model, &b, logits);
    float *got = MEM_ARRAY(&mem, float, (size_t)(b.outputs * V));
    op_get(&g->o.dev, got, logits);
    Diff all = { 0 };
    int64_t at = 0;
    for (int i = 0; i < g->n_seqs; at += g->seq[i++].n * V)
        if (g->seq[i].logits) differ(&all, got + at, g->seq[i].logits, g->seq[i].n * V);
    report_diff(g, "logits", "logits", &all, 5e-5);
    mem_free(&mem);
    arena_pop(&g->io, mark);
}

/* What the tower makes of each sequence's pictures and of its clips, and where its tokens stand. */
static void check_pictures(Golden *g) {
    if (many(g)) {
        skip(g, "tower", "one rank's: here pictures are dealt out");
        return;
    }
    const Dims *d = &g->o.desc.d;
    Diff images = { 0 }, clips = { 0 };
    int64_t wrong = 0, compared = 0, seen[2] = { 0 };
    Mem mem = { 0 };
    for (int k = 0; k < g->n_own; k++) {
        const GoldenSeq *s = &g->seq[g->own[k]];
        int32_t(*pos)[3] = mem_array(&mem, (size_t)s->n, sizeof *pos);
        int delta = picture_positions(pos, s->n, s->pictures, s->n_pictures, d, g->rule);
        for (int t = 0; t < s->n && s->position_ids; t++)
            for (int a = 0; a < 3; a++, compared++) wrong += pos[t][a] != s->position_ids[a * s->n + t];
        if (s->delta) compared++, wrong += delta != *s->delta;
        int64_t row[2] = { 0 };
        for (int i = 0; i < s->n_pictures; i++) {
            const Picture *p = s->pictures[i].picture;
            const float *want = p->clip ? s->video_embeds : s->image_embeds;
            int tokens = picture_tokens(p, d);
            size_t mark = arena_mark(&g->io), tmp = arena_mark(&g->o.dev.tmp);
            Pictures one;
            int32_t *order = MEM_ARRAY(&mem, int32_t, (size_t)tokens);
            float *got = MEM_ARRAY(&mem, float, (size_t)(tokens * d->hidden));
            pictures_put(&one, &g->o.dev, &g->io, &p, 1, d);
            picture_order(order, p, d);
            op_get(&g->o.dev, got, tower_forward(&g->o.model, &one, &g->o.dev.tmp, NULL, NULL));
            for (int t = 0; t < tokens && want; t++, row[p->clip]++)
                differ(p->clip ? &clips : &images, got + order[t] * d->hidden, want + row[p->clip] * d->hidden,
                       d->hidden);
            seen[p->clip] += want != NULL;
            arena_pop(&g->io, mark), arena_pop(&g->o.dev.tmp, tmp);
        }
    }
    mem_free(&mem);
    if (!compared) skip(g, "positions", "not in golden.safetensors");
    else report(g, !wrong, "positions", "%.0f of %.0f wrong", (double)wrong, (double)compared);
    if (seen[0]) report_diff(g, "tower, pictures", "image_embeds", &images, 5e-5);
    else skip(g, "tower, pictures", "no image_embeds in golden.safetensors");
    if (seen[1]) report_diff(g, "tower, clips", "video_embeds", &clips, 5e-5);
    else skip(g, "tower, clips", "no video_embeds in golden.safetensors");
}

/* d loss/d parameter of loss = -sum weights * logprobs, and the loss itself. */
static double gradients(Golden *g) {
    Batch b;
    size_t mark = arena_mark(&g->io), act = arena_mark(&g->act);
    Mem mem = { 0 };
    ModelKeep keep = model_keep(&g->o.desc, g->o.desc.d.layers, &mem);
    put_batch(g, &b, 0);
    Tensor lp = tensor_push(&g->io, DT_F32, b.outputs, 1), ent = tensor_push(&g->io, DT_F32, b.outputs, 1);
    op_zero(&g->o.dev, g->grads.flat);
    model_forward(&g->o.model, &b, &g->act, &keep, lp, ent);
    float *got = MEM_ARRAY(&mem, float, (size_t)b.outputs), *dlp = MEM_ARRAY(&mem, float, (size_t)b.outputs);
    op_get(&g->o.dev, got, lp);
    double loss = 0;
    for (int k = 0, at = 0; k < g->n_own; k++)
        for (int t = 0; t + 1 < g->seq[g->own[k]].n; t++, at++) {
            float w = g->idle ? 0 : g->seq[g->own[k]].weights[t];
            dlp[at] = -w;
            loss -= (double)w * (double)got[at];
        }
    op_put(&g->o.dev, lp, dlp);
    model_backward(&g->o.model, &g->grads, &b, &g->act, &keep, lp, TENSOR_NONE);
    reduce_grads(&g->grads, &g->o.model.par, &g->o.dev);
    mem_free(&mem);
    arena_pop(&g->io, mark);
    arena_pop(&g->act, act);
    return comm_sum(&g->o.model.par.dp, loss);
}

/* Calls fn for every tensor under its name on disk, expert by expert: what of it is this rank's. */
typedef struct {
    char name[256];
    Tensor t;
    int64_t n, r0, c0, rows, cols; /* where t begins in it; rows and cols of the whole */
    const ParamDesc *desc;
} Named;
typedef bool NamedFn(void *user, const Named *x);
static bool each_named(const Params *p, NamedFn *fn, void *user) {
    for (int i = 0; i < p->n; i++) {
        const Param *q = &p->at[i];
        const Slice *s = &q->slice;
        for (int e = (int)s->e0; e < s->e0 + s->experts; e++) {
            Named x = { .t = tensor_rows(q->t, (e - s->e0) * s->rows, s->rows),
                        .r0 = s->r0,
                        .c0 = s->c0,
                        .rows = dim_at(&p->model->d, q->desc->rows),
                        .cols = dim_at(&p->model->d, q->desc->cols),
                        .desc = q->desc };
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the table's own names */
            snprintf(x.name, sizeof x.name, q->desc->name, q->layer, e);
#pragma GCC diagnostic pop
            x.n = x.t.rows * x.t.cols;
            if (!fn(user, &x)) return false;
        }
    }
    return true;
}

typedef struct {
    Golden *g;
    StFiles file;
    Mem mem;
    double worst, most;  /* most: of an entry, before it counts as over */
    double wrong, whole; /* squares: of the differences, of the reference */
    int64_t over, all;
    bool step;
    char where[256], missing[256];
} Compare;

static bool compare_one(void *user, const Named *x) {
    Compare *c = user;
    const StTensor *ref = st_find(&c->file, x->name);
    if (!ref || ref->dtype != DT_F32 || ref->count != x->rows * x->cols) {
        if (x->desc->frozen) return true;
        snprintf(c->missing, sizeof c->missing, "%s", x->name);
        return true;
    }
    if (x->desc->frozen) return true;
    Mem mem = { 0 };
    float *got = MEM_ARRAY(&mem, float, (size_t)x->n + 1), *want = mem_copy(&mem, ref->data, ref->bytes), top = 0;
    if (x->n) op_get(&c->g->o.dev, got, x->t);
    for (int64_t i = 0; i < ref->count; i++) top = fmaxf(top, fabsf(want[i]));
    double scale = c->step ? 1 : fmax(top, 1e-3); /* an expert without tokens has gradient 0: a floor */
    for (int64_t i = 0; i < x->n; i++) {
        double ours = (double)got[i], theirs = (double)want[(x->r0 + i / x->t.cols) * x->cols + x->c0 + i % x->t.cols];
        double off = ours - theirs, d = fabs(off) / scale;
        c->wrong += off * off, c->whole += theirs * theirs;
        c->over += !(d <= c->most);
        if (!(d <= c->worst)) c->worst = d, snprintf(c->where, sizeof c->where, "%s", x->name);
    }
    c->all += x->n;
    mem_free(&mem);
    return true;
}

static void compare_file(Golden *g, const char *file, const Params *p, const char *what, bool step) {
    char path[4096];
    Err err;
    snprintf(path, sizeof path, "%s/%s", g->opts->golden, file);
    if (!file_exists(path)) {
        skip(g, what, "the file is not there");
        return;
    }
    Compare c = { .g = g, .step = step, .most = step ? 2e-4 : allowed(g, "gradients", 2e-4) };
    if (c.most < 0 || (step && is_half(g))) {
        skip(g, what, step ? "computed in bfloat16: Adam divides by the gradient" : NO_MEASURE);
        return;
    }
    if (!st_open(&c.file, path, &c.mem, &err)) {
        tell(g, "FAILED", what, err.msg, NULL);
        g->r->failed++;
    } else {
        each_named(p, compare_one, &c);
        c.worst = comm_max(all_ranks(g), c.worst);
        c.over = comm_sum_i64(all_ranks(g), c.over), c.all = comm_sum_i64(all_ranks(g), c.all);
        char where[640] = "";
        if (c.missing[0]) snprintf(where, sizeof where, "%s has no tensor %s of that size", file, c.missing);
        else snprintf(where, sizeof where, "worst in %s", c.where);
        bool ok = !c.missing[0];
        if (is_half(g)) {
            double share = sqrt(c.wrong / fmax(c.whole, 1e-30));
            ok = ok && share <= c.most;
            report_at(g, ok, what, ok ? NULL : where, "error's norm %.2e of the whole, %g allowed", share, c.most);
            st_close(&c.file);
            mem_free(&c.mem);
            return;
        }
        ok = ok && (step ? c.worst <= 2e-2 && (double)c.over <= 1e-3 * (double)c.all : c.over == 0);
        report_at(g, ok, what, ok ? NULL : where,
                  step ? "worst entry %.2e, %g of them beyond 2e-4" : "worst error %.2e of the tensor's largest entry",
                  c.worst, (double)c.over);
        st_close(&c.file);
    }
    mem_free(&c.mem);
}

/* ---- our own files, for others to compare */
typedef struct {
    Golden *g;
    VEC(StSpec)
    spec;
    StWriter *w;
    Mem mem;
    Err *err;
} Dump;

static bool dump_spec(void *user, const Named *x) {
    Dump *d = user;
    StSpec s = {
        mem_str(&d->mem, x->name, strlen(x->name)), DT_F32, x->desc->vector ? 1 : 2, { x->t.rows, x->t.cols }
    };
    if (x->desc->vector) s.shape[0] = x->n, s.shape[1] = 0;
    VEC_PUSH(d->spec, s);
    return true;
}

static bool dump_bytes(void *user, const Named *x) {
    Dump *d = user;
    Mem mem = { 0 };
    float *got = MEM_ARRAY(&mem, float, (size_t)x->n);
    weights_get(&d->g->o.dev, tensor_shape(x->t, 1, x->n), got);
    bool ok = st_write(d->w, got, (size_t)x->n * 4, d->err);
    mem_free(&mem);
    return ok;
}

static bool dump_params(Golden *g, const Params *p, const char *file, Err *err) {
    if (!g->opts->dump) return true;
    char path[4096];
    TRY(dir_make(g->opts->dump, err));
    snprintf(path, sizeof path, "%s/%s", g->opts->dump, file);
    Dump d = { .g = g, .err = err };
    each_named(p, dump_spec, &d);
    d.w = st_write_open(path, d.spec.at, d.spec.n, INT64_MAX, err);
    bool ok = d.w != NULL;
    if (ok && !each_named(p, dump_bytes, &d)) st_write_abort(d.w), ok = false;
    else if (ok) ok = st_write_close(d.w, err);
    vec_free(d.spec.at);
    mem_free(&d.mem);
    return ok;
}

static void check_number(Golden *g, const char *key, const char *what, double got, double tolerance) {
    const Json *v = json_get(&g->meta, key);
    if (!v || (v->kind != JSON_REAL && v->kind != JSON_INT)) return;
    double want = json_number(v), bound = tolerance * fmax(1, fabs(want));
    report(g, fabs(got - want) <= bound, what, "%.6f, reference %.6f", got, want);
}

static OptimTypes states_of(const Golden *g) { return (OptimTypes){ .weights = g->o.dev.act }; }

static bool check_training(Golden *g, Err *err) {
    for (int i = 0; i < g->n_seqs; i++)
        if (!g->seq[i].weights) {
            skip(g, "gradients", "no weights in golden.safetensors");
            skip(g, "optimizer steps", "no weights in golden.safetensors");
            return true;
        }
    double loss = gradients(g), norm = reduce_norm(&g->grads, &g->o.model.par, &g->o.dev);
    check_number(g, "loss", "loss", loss, is_half(g) ? 2e-2 : 1e-4);
    check_number(g, "grad_norm", "gradient norm", norm, is_half(g) ? 2e-2 : 1e-4);
    reduce_gather(&g->grads, &g->grads, &g->o.model.par, &g->o.dev);
    compare_file(g, "grad.safetensors", &g->grads, "gradients", false);
    TRY(dump_params(g, &g->grads, "grad.safetensors", err));

    AdamConf adam = { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1 };
    Optim opt;
    optim_open(&opt, &g->o.model.w, &g->grads, &g->o.dev, states_of(g), OFFLOAD);
    optim_step(&opt, &g->o.model.w, &g->grads, &g->o.model.par, &g->o.dev, &adam, norm);
    gradients(g);
    optim_step(&opt, &g->o.model.w, &g->grads, &g->o.model.par, &g->o.dev, &adam,
               reduce_norm(&g->grads, &g->o.model.par, &g->o.dev));
    optim_close(&opt, &g->o.dev);
    compare_file(g, "step.safetensors", &g->o.model.w, "two optimizer steps", true);
    return dump_params(g, &g->o.model.w, "step.safetensors", err);
}

/* ---- greedy continuation, through the rollout engine */
typedef struct {
    Request r;
    bool given;
    int32_t out[GREEDY];
    int n;
} Greedy;
static bool greedy_next(void *user, Request *out) {
    Greedy *x = user;
    if (x->given) return false;
    *out = x->r;
    return x->given = true;
}
static void greedy_answer(void *user, const Answer *a) {
    Greedy *x = user;
    x->n = a->n;
    memcpy(x->out, a->tokens, (size_t)a->n * sizeof *a->tokens);
}

static void check_greedy(Golden *g) {
    const Json *want = g->has_meta ? json_get(&g->meta, "greedy_seq0") : NULL;
    if (many(g)) {
        skip(g, "greedy continuation", "one rank's: sampling is not cut");
        return;
    }
    if (is_half(g)) {
        skip(g, "greedy continuation", "computed in bfloat16: near ties fall either way");
        return;
    }
    if (!want || want->kind != JSON_ARRAY || want->n > GREEDY || !want->n) {
        skip(g, "greedy continuation", "no greedy_seq0 in meta.json");
        return;
    }
    SampleOpts opts = { .draw = DRAW_PLAIN, .greedy = true, .ignore_eos = true, .max_tokens = (int)want->n };
    Greedy x = { .r = { g->seq[0].ids, g->seq[0].n, 1, 0, &opts, NULL, .pictures = g->seq[0].pictures,
                        .n_pictures = g->seq[0].n_pictures } };
    SchedConf c = {
        .page = 16, .max_seqs = 1, .max_batch = 1, .max_rows = g->seq[0].n, .max_len = g->seq[0].n + (int)want->n
    };
    c.pages = c.max_len / c.page + 2;
    int64_t feats;
    engine_seen(&g->o.desc, g->seq[0].pictures, g->seq[0].n_pictures, &feats, &c.patches);
    c.feats = (int)feats;
    Feed f = { .next = greedy_next, .answer = greedy_answer, .user = &x };
    Mem mem = { 0 };
    Engine *e = engine_open(&g->o.model, &c, &mem);
    engine_run(e, &f);
    engine_close(e);
    mem_free(&mem);
    int same = 0;
    for (int i = 0; i < x.n && i < (int)want->n; i++)
        same += want->items[i].kind == JSON_INT && want->items[i].integer == x.out[i];
    report(g, same == (int)want->n, "greedy continuation", "%.0f of %.0f tokens equal", same, (double)want->n);
}

static void tell_ranks(Golden *g) {
    const Model *m = &g->o.model;
    int64_t lens[MAX_SEQS], own = reduce_own_count(m->desc, &m->shard);
    for (int i = 0; i < g->n_own; i++) lens[i] = g->seq[g->own[i]].n;
    RankNote mine = { .read = g->o.model.w.read,
                      .weights = m->w.arena.size,
                      .grads = g->grads.arena.size,
                      .states = optim_bytes(own, states_of(g), OFFLOAD, false)
                                + optim_bytes(own, states_of(g), OFFLOAD, true),
                      .act = g->act.size,
                      .tmp = g->o.dev.tmp.size,
                      .io = g->io.size,
                      .flops = rank_flops(m, lens, g->idle ? 0 : g->n_own) };
    rank_notes_tell(all_ranks(g), &m->shard, &mine);
}

/* A step of opening that may fail on some ranks. */
static bool opened(Golden *g, bool ok, Err *err) { return ranks_agree(g->opts->open.ranks, ok, err); }

bool golden_verify(const GoldenOpts *opts, GoldenResult *r, Err *err) {
    Golden *g = &(Golden){ .opts = opts, .r = r };
    GridShape axes = { 0 };
    if (!opened(g, open_desc(&g->o, opts->model, &opts->open, err), err)) return open_close(&g->o), false;
    g->has_meta = read_json(g, "meta.json", &g->meta);
    g->has_half = read_json(g, "bf16.json", &g->half);
    g->rule = CLIP_RULE;
    const Json *by = g->has_meta ? json_get(&g->meta, "transformers") : NULL;
    if (by && by->kind == JSON_STRING) clip_rule_named(&g->rule, mem_printf(&g->o.mem, "transformers %s", by->str));
    int leaves = opts->open.leaves ? (int)opts->open.leaves : LEAVES_MOST;
    bool ok = (!opts->grid || grid_parse(&axes, opts->grid, err))
              && ranks_grid(opts->ranks, &axes, NULL, &g->o.desc, leaves, err) && opened(g, read_seqs(g, err), err)
              && opened(g, open_all(g, err), err);
    if (ok) {
        if (!opts->json) printf("%s (%s)\n", opts->model, g->o.desc.arch->name);
        if (many(g) && !opts->json) tell_ranks(g);
        check_values(g);
        check_logits(g);
        if (g->o.desc.d.vis_layers) check_pictures(g);
        check_greedy(g);
        ok = check_training(g, err);
    }
    st_close(&g->ref);
    open_close(&g->o);
    return ok;
}
