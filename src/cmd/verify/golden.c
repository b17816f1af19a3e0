/* golden.c - a model held against the numbers that transformers wrote down for it.
 * How close: float32 against float32 in another order of summation, so log-probs to 2e-5,
 * gradients to 2e-4 of the largest entry of their tensor, greedy tokens equal; Adam divides by the gradient, so after
 * two steps 99.9 % of the entries to 2e-4 and all to 2e-2.
 * On a device that computes in bfloat16 errors are means without the worst tenth (of gradients: a norm over a norm), as
 * a bit decides between experts that are nearly equal, and 1.25 times what transformers in bfloat16 is off by on the
 * same model is allowed (bf16.json in the reference folder); what has no such measure is not compared. */
#include "cmd/verify/golden_in.h"
#include "cmd/rank_note.h"
#include "engine/engine.h"
#include "train/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GREEDY = 16 };
#define OFFLOAD 0.5 /* of the optimizer's states: both arenas are tried */

void golden_tell(Golden *g, const char *how, const char *what, const char *text, const char *where) {
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

void golden_report(Golden *g, bool ok, const char *what, const char *where, const char *fmt, double a, double b) {
    char text[160];
    snprintf(text, sizeof text, fmt, a, b);
    golden_tell(g, ok ? "ok" : "FAILED", what, text, where);
    if (ok) g->r->passed++;
    else g->r->failed++;
}
static void report(Golden *g, bool ok, const char *what, const char *fmt, double a, double b) {
    golden_report(g, ok, what, NULL, fmt, a, b);
}

void golden_skip(Golden *g, const char *what, const char *why) {
    golden_tell(g, "skip", what, why, NULL);
    g->r->skipped++;
}

double golden_allowed(const Golden *g, const char *key, double f32) {
    if (!is_half(g)) return f32;
    const Json *v = g->has_half ? json_get(&g->half, key) : NULL;
    return v && (v->kind == JSON_REAL || v->kind == JSON_INT) ? 1.25 * json_number(v) : -1;
}

static bool many(const Golden *g) { return all_ranks(g)->size > 1; }

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
        seqs[i] = (PackSeq){ s->ids, s->n + extra, 1, DRAW_PLAIN, .spans = s->spans };
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
                     .trained.recompute = g->opts->recompute,
                     .like = open_kind(&g->o, g->opts->open.leaves),
                     .shard = &shard };
    PackSeq seqs[MAX_SEQS];
    pack(g, seqs, 0);
    s.pictures = batch_pictures(seqs, g->n_own, &g->o.desc.d);
    ModelSizes sizes = model_sizes(&g->o.desc, &s);
    size_t feats = (size_t)s.pictures.tokens * (size_t)g->o.desc.d.hidden * 4;
    size_t reduce = reduce_tmp(arch_trained(&g->o.desc), &shard, s.like);
    if (reduce > sizes.tmp) sizes.tmp = reduce;
    OpenOpts opts = g->opts->open;
    opts.trained = true, opts.weights = g->o.dev.act;
    TRY(open_weights(&g->o, &opts, sizes.tmp, err));
    g->o.model.trained.recompute = g->opts->recompute;
    g->act = dev_arena(&g->o.dev, "act", sizes.act);
    g->io = dev_arena(&g->o.dev, "io",
                      32 * arena_round((size_t)T * 4) + arena_round((size_t)T * (size_t)g->o.desc.d.vocab * 4)
                          + batch_images_bytes(&s.pictures, T, &g->o.desc.d) + arena_round(feats));
    size_t host = batch_host_bytes(T, g->n_seqs) + 4096;
    g->host = arena_on_host("host", host, &g->o.mem);
    params_open(&g->grads, arch_trained(&g->o.desc), &shard, &g->o.dev, DT_F32, true, "grads", &g->o.mem);
    return true;
}

static void put_batch(Golden *g, Batch *b,
                      int extra) { /* extra 1: one more token, so that the last row is an output too */
    PackSeq seqs[MAX_SEQS];
    pack(g, seqs, extra);
    batch_put_part(b, &g->o.dev, &g->io, &g->host, seqs, g->n_own, &g->o.model.par.cp);
    model_put_images(&g->o.model, b, &g->io, seqs, g->n_own, g->rule);
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
    double most = golden_allowed(g, key, f32), error = comm_max(all_ranks(g), d->worst);
    if (is_half(g)) {
        size_t n = d->all.n * 9 / 10;
        double sum = 0;
        if (n) qsort(d->all.at, d->all.n, sizeof *d->all.at, rising);
        for (size_t i = 0; i < n; i++) sum += (double)d->all.at[i];
        error = n ? sum / (double)n : 0;
    }
    if (most < 0) golden_skip(g, what, NO_MEASURE);
    else report(g, error <= most, what, is_half(g) ? "mean error %.2e of %g" : "worst error %.2e of %g", error, most);
    vec_free(d->all.at);
}

/* base: of the weights alone, what they are without the adapter. */
static void check_values(Golden *g, bool base) {
    int at = 0;
    Batch b;
    size_t mark = arena_mark(&g->io);
    Mem mem = { 0 };
    put_batch(g, &b, 0);
    Tensor lp = tensor_push(&g->io, DT_F32, b.outputs, 1), ent = tensor_push(&g->io, DT_F32, b.outputs, 1);
    g->o.model.lora_off = base;
    model_score(&g->o.model, &b, lp, ent);
    g->o.model.lora_off = false;
    float *got = MEM_ARRAY(&mem, float, (size_t)b.outputs), *got_ent = MEM_ARRAY(&mem, float, (size_t)b.outputs);
    op_get(&g->o.dev, got, lp);
    op_get(&g->o.dev, got_ent, ent);
    Diff lps = { 0 }, ents = { 0 };
    bool has_ent = true;
    for (int k = 0; k < g->n_own; k++) {
        const GoldenSeq *s = &g->seq[g->own[k]];
        differ(&lps, got + at, base ? s->base_logprobs : s->logprobs, s->n - 1);
        if (s->entropy && !base) differ(&ents, got_ent + at, s->entropy, s->n - 1);
        at += s->n - 1;
    }
    for (int i = 0; i < g->n_seqs; i++) has_ent = has_ent && g->seq[i].entropy;
    report_diff(g, base ? "log-probs without it" : "log-probs", "logprobs", &lps, 2e-5);
    if (base) vec_free(ents.all.at);
    else if (has_ent) report_diff(g, "entropy", "entropy", &ents, 2e-5);
    else golden_skip(g, "entropy", "not in golden.safetensors");
    mem_free(&mem);
    arena_pop(&g->io, mark);
}

static void check_logits(Golden *g) {
    if (!g->seq[0].logits || many(g)) {
        golden_skip(g, "logits", many(g) ? "one rank's: here the vocabulary may be cut" : "not in golden.safetensors");
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
        golden_skip(g, "tower", "one rank's: here pictures are dealt out");
        return;
    }
    const Dims *d = &g->o.desc.d;
    Diff images = { 0 }, clips = { 0 };
    int64_t wrong = 0, compared = 0, seen[2] = { 0 };
    Mem mem = { 0 };
    for (int k = 0; k < g->n_own; k++) {
        const GoldenSeq *s = &g->seq[g->own[k]];
        int32_t(*pos)[3] = mem_array(&mem, (size_t)s->n, sizeof *pos);
        int delta = picture_positions(pos, s->n, s->spans, d, g->rule);
        for (int t = 0; t < s->n && s->position_ids; t++)
            for (int a = 0; a < 3; a++, compared++) wrong += pos[t][a] != s->position_ids[a * s->n + t];
        if (s->delta) compared++, wrong += delta != *s->delta;
        int64_t row[2] = { 0 };
        for (int i = 0; i < s->spans.n; i++) {
            const Picture *p = s->spans.at[i].picture;
            const float *want = p->clip ? s->video_embeds : s->image_embeds;
            int tokens = picture_tokens(p, d);
            size_t mark = arena_mark(&g->io), tmp = arena_mark(&g->o.dev.tmp);
            Pictures one;
            int32_t *order = MEM_ARRAY(&mem, int32_t, (size_t)tokens);
            float *got = MEM_ARRAY(&mem, float, (size_t)(tokens * d->hidden));
            pictures_put(&one, &g->o.dev, &g->io, &p, 1, d);
            picture_order(order, p, d);
            Tensor made = tower_forward(&g->o.model, &one, &g->o.dev.tmp, NULL, NULL),
                   wide = tensor_push(&g->io, DT_F32, made.rows, made.cols);
            op_copy(&g->o.dev, wide, made);
            op_get(&g->o.dev, got, wide);
            for (int t = 0; t < tokens && want; t++, row[p->clip]++)
                differ(p->clip ? &clips : &images, got + order[t] * d->hidden, want + row[p->clip] * d->hidden,
                       d->hidden);
            seen[p->clip] += want != NULL;
            arena_pop(&g->io, mark), arena_pop(&g->o.dev.tmp, tmp);
        }
    }
    mem_free(&mem);
    if (!compared) golden_skip(g, "positions", "not in golden.safetensors");
    else report(g, !wrong, "positions", "%.0f of %.0f wrong", (double)wrong, (double)compared);
    if (seen[0]) report_diff(g, "tower, pictures", "image_embeds", &images, 5e-5);
    else golden_skip(g, "tower, pictures", "no image_embeds in golden.safetensors");
    if (seen[1]) report_diff(g, "tower, clips", "video_embeds", &clips, 5e-5);
    else golden_skip(g, "tower, clips", "no video_embeds in golden.safetensors");
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

static void check_number(Golden *g, const char *key, const char *what, double got, double tolerance) {
    const Json *v = json_get(&g->meta, key);
    if (!v || (v->kind != JSON_REAL && v->kind != JSON_INT)) return;
    double want = json_number(v), bound = tolerance * fmax(1, fabs(want));
    report(g, fabs(got - want) <= bound, what, "%.6f, reference %.6f", got, want);
}

static OptimTypes states_of(const Golden *g) {
    return (OptimTypes){ .weights = g->o.desc.adapter ? DT_F32 : g->o.dev.act };
}

static bool check_training(Golden *g, Err *err) {
    for (int i = 0; i < g->n_seqs; i++)
        if (!g->seq[i].weights) {
            golden_skip(g, "gradients", "no weights in golden.safetensors");
            golden_skip(g, "optimizer steps", "no weights in golden.safetensors");
            return true;
        }
    double loss = gradients(g), norm = reduce_norm(&g->grads, &g->o.model.par, &g->o.dev);
    check_number(g, "loss", "loss", loss, is_half(g) ? 2e-2 : 1e-4);
    check_number(g, "grad_norm", "gradient norm", norm, is_half(g) ? 2e-2 : 1e-4);
    reduce_gather(&g->grads, &g->grads, &g->o.model.par, &g->o.dev);
    golden_compare(g, "grad.safetensors", &g->grads, "gradients", false);
    TRY(golden_dump(g, &g->grads, "grad.safetensors", err));

    AdamConf adam = { .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1 };
    Params *w = model_trained(&g->o.model);
    Optim opt;
    optim_open(&opt, w, &g->grads, &g->o.dev, states_of(g), OFFLOAD);
    optim_step(&opt, w, &g->grads, &g->o.model.par, &g->o.dev, &adam, norm);
    gradients(g);
    optim_step(&opt, w, &g->grads, &g->o.model.par, &g->o.dev, &adam,
               reduce_norm(&g->grads, &g->o.model.par, &g->o.dev));
    optim_close(&opt, &g->o.dev);
    golden_compare(g, "step.safetensors", w, "two optimizer steps", true);
    return golden_dump(g, w, "step.safetensors", err);
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
        golden_skip(g, "greedy continuation", "one rank's: sampling is not cut");
        return;
    }
    if (is_half(g)) {
        golden_skip(g, "greedy continuation", "computed in bfloat16: near ties fall either way");
        return;
    }
    if (!want || want->kind != JSON_ARRAY || want->n > GREEDY || !want->n) {
        golden_skip(g, "greedy continuation", "no greedy_seq0 in meta.json");
        return;
    }
    SampleOpts opts = { .draw = DRAW_PLAIN, .greedy = true, .ignore_eos = true, .max_tokens = (int)want->n };
    Greedy x = { .r = { g->seq[0].ids, g->seq[0].n, 1, 0, &opts, NULL, .spans = g->seq[0].spans } };
    EngineConf c = engine_conf(1, g->seq[0].n + (int)want->n, g->seq[0].n, 16);
    int64_t feats;
    engine_images(&g->o.desc, g->seq[0].spans, &feats, &c.patches);
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
    int64_t lens[MAX_SEQS], own = reduce_own_count(arch_trained(m->desc), &m->shard);
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
    if (m->shard.g.tp > 1) rank_whole_tell(m);
}

/* A step of opening that may fail on some ranks. */
static bool opened(Golden *g, bool ok, Err *err) { return ranks_agree(g->opts->open.ranks, ok, err); }

bool golden_verify(const GoldenOpts *opts, GoldenResult *r, Err *err) {
    Golden *g = &(Golden){ .opts = opts, .r = r };
    GridShape axes = { 0 };
    if (!opened(g, open_desc(&g->o, opts->model, &opts->open, err), err)) return open_close(&g->o), false;
    g->has_meta = golden_read_json(g, "meta.json", &g->meta);
    g->has_half = golden_read_json(g, "bf16.json", &g->half);
    g->rule = CLIP_RULE;
    const Json *by = g->has_meta ? json_get(&g->meta, "transformers") : NULL;
    if (by && by->kind == JSON_STRING) clip_rule_named(&g->rule, mem_printf(&g->o.mem, "transformers %s", by->str));
    int leaves = opts->open.leaves ? (int)opts->open.leaves : LEAVES_MOST;
    bool ok = (!opts->grid || grid_parse(&axes, opts->grid, err))
              && ranks_grid(opts->ranks, &axes, NULL, &g->o.desc, leaves, err) && opened(g, golden_read(g, err), err)
              && opened(g, open_all(g, err), err);
    if (ok) {
        if (!opts->json) printf("%s (%s)\n", opts->model, g->o.desc.arch->name);
        if (many(g) && !opts->json) tell_ranks(g);
        check_values(g, false);
        if (g->o.desc.adapter && g->seq[0].base_logprobs) check_values(g, true);
        check_logits(g);
        if (g->o.desc.d.vis.layers) check_pictures(g);
        check_greedy(g);
        ok = check_training(g, err);
    }
    st_close(&g->ref);
    open_close(&g->o);
    return ok;
}
