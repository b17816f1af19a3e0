/* verb_score.c - `hone score`: the log-prob and entropy of every predicted token of given
 * texts, by the trainer's own forward. */
#include "base/file.h"
#include "cmd/on_lines.h"
#include "cmd/options.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct {
    const char *in, *out;
    int64_t threads, batch, leaves;
    SamplingArgs s;
    const char *device, *compute, *grid, *adapter;
    int64_t random;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "in",          OPT_STR,  offsetof(Args, in),          "FILE",
      "lines with \"tokens\" (or \"text\"); - is standard input" },
    { "out",         OPT_STR,  offsetof(Args, out),         "FILE",
      "lines {\"logprobs\",\"entropy\"}; standard output if absent" },
    SAMPLING_OPTS(Args, s),
    { "batch",       OPT_INT,  offsetof(Args, batch),       "N",
      "tokens computed together (no effect on the result); 4096", 1, 1e9 },
    { "threads",     OPT_INT,  offsetof(Args, threads),     "N",
      "threads (no effect on the result); all cores", 0, THREADS_MOST },
    LEAVES_OPTION(Args),
    GRID_OPTION(Args),
    ADAPTER_OPTION(Args),
    DEVICE_OPTIONS(Args),
    RANDOM_OPTION(Args),
    { 0 },
};
/* clang-format on */

typedef VEC(PromptLine) Lines;

/* Lines [from,to) fit into one batch; a bad line takes no room. */
static size_t batch_end(const Lines *l, size_t from, int64_t budget) {
    int64_t sum = 0;
    size_t to = from;
    for (; to < l->n; to++) {
        int64_t n = l->at[to].ok ? l->at[to].n : 0;
        if (sum && sum + n > budget) break;
        sum += n;
    }
    return to;
}

static void put_values(Buf *b, const char *name, const float *x, int n) {
    buf_printf(b, "\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) buf_putc(b, ',');
        json_put_f32(b, x[i]);
    }
    buf_putc(b, ']');
}

typedef struct {
    Opened *o;
    Arena io, host;
    Drawing draw;
    int64_t min_tokens;
    int32_t *eos;
} Scorer;

/* Answer tokens before min_tokens were drawn without the end tokens. */
static void ban_early(Scorer *s, Batch *b, const PromptLine *line, size_t n) {
    const Dims *d = &s->o->desc.d;
    if (!s->min_tokens || !d->special.n_eos) return;
    size_t mark = arena_mark(&s->host);
    int32_t *ban = arena_push(&s->host, (size_t)b->outputs * 4);
    int64_t o = 0;
    for (size_t i = 0; i < n; i++)
        for (int t = 1; line[i].ok && t < line[i].n; t++)
            ban[o++] = t >= line[i].prompt && t < line[i].prompt + s->min_tokens;
    batch_ban(b, &s->o->dev, &s->io, &s->host, ban, s->eos, (int)d->special.n_eos);
    arena_pop(&s->host, mark);
}

static PackSeq pack_line(const PromptLine *l, Drawing draw) {
    return (PackSeq){ l->tokens, l->n, 1, draw, .spans = l->pictures };
}

/* lp, ent: of all lines' predicted tokens, one after the other. */
static void score_batch(Scorer *s, const PromptLine *line, size_t n, float *lp, float *ent) {
    Dev *d = &s->o->dev;
    size_t io = arena_mark(&s->io), host = arena_mark(&s->host);
    PackSeq *seqs = arena_push(&s->host, n * sizeof *seqs);
    int k = 0;
    for (size_t i = 0; i < n; i++)
        if (line[i].ok) seqs[k++] = pack_line(&line[i], s->draw);
    int64_t outputs = pack_outputs(seqs, k);
    if (outputs) {
        Batch b;
        batch_put_part(&b, d, &s->io, &s->host, seqs, k, &s->o->model.par.cp);
        model_put_images(&s->o->model, &b, &s->io, seqs, k, CLIP_RULE);
        ban_early(s, &b, line, n);
        Tensor tlp = tensor_push(&s->io, DT_F32, outputs, 1), tent = tensor_push(&s->io, DT_F32, outputs, 1);
        model_score(&s->o->model, &b, tlp, tent);
        op_get(d, lp, tlp);
        op_get(d, ent, tent);
    }
    arena_pop(&s->io, io);
    arena_pop(&s->host, host);
}

static void write_batch(JsonlOut *out, const PromptLine *line, size_t n, const float *lp, const float *ent) {
    Buf b = { 0 };
    for (size_t i = 0; i < n; i++) {
        if (!line[i].ok) {
            jsonl_error(out, line[i].err);
            continue;
        }
        int k = line[i].n - 1, bad = 0;
        while (bad < k && !isnan(lp[bad])) bad++;
        if (bad < k) {
            Err err;
            err_set(
                &err,
                "the log-prob of token %d is not a number: the model's numbers are not finite there (its weights are "
                "too large for float32, or the temperature too small for them)",
                bad + 1);
            jsonl_error(out, err.msg);
            lp += k, ent += k;
            continue;
        }
        buf_clear(&b);
        buf_putc(&b, '{');
        put_values(&b, "logprobs", lp, k);
        buf_putc(&b, ',');
        put_values(&b, "entropy", ent, k);
        buf_putc(&b, '}');
        jsonl_put(out, &b);
        lp += k, ent += k;
    }
    buf_free(&b);
}

/* Batches of lines go to the ranks of dp in turn, and a round of them is told before the next begins. */
typedef struct {
    size_t from, to;
} Lot;
typedef VEC(Lot) Lots;

static Lots lots_of(const Lines *l, int64_t budget) {
    Lots lots = { 0 };
    for (size_t i = 0, to; i < l->n; i = to) {
        to = batch_end(l, i, budget);
        VEC_PUSH(lots, ((Lot){ i, to }));
    }
    return lots;
}

/* Experts may span dp: whoever has no batch in a round then computes the round's first one with the others. */
static const Lot *lot_of(const Scorer *s, const Lots *lots, size_t round, int dp) {
    const GridShape *g = &s->o->model.shard.g;
    size_t first = round * (size_t)g->dp, at = first + (size_t)dp;
    if (at < lots->n) return &lots->at[at];
    return g->ep > 1 || g->etp > 1 ? &lots->at[first] : NULL;
}

static void score_rounds(Scorer *s, const Lines *l, const Lots *lots, int64_t budget, JsonlOut *out) {
    const Ranks *ranks = s->o->ranks;
    const Comm *dp = &ranks->groups.dp;
    float *mine = MEM_ARRAY(&s->o->mem, float, (size_t)(2 * budget)),
          *all = MEM_ARRAY(&s->o->mem, float, (size_t)(2 * budget * dp->size));
    for (size_t round = 0; round * (size_t)dp->size < lots->n; round++) {
        const Lot *lot = lot_of(s, lots, round, dp->rank);
        if (lot) score_batch(s, l->at + lot->from, lot->to - lot->from, mine, mine + budget);
        comm_gather_host(dp, all, mine, (size_t)(2 * budget) * sizeof *all);
        for (int r = 0; out && r < dp->size && round * (size_t)dp->size + (size_t)r < lots->n; r++) {
            const Lot *one = lot_of(s, lots, round, r);
            const float *lp = all + 2 * budget * r;
            write_batch(out, l->at + one->from, one->to - one->from, lp, lp + budget);
        }
        if (ranks_any(ranks, out && jsonl_broken(out))) return;
    }
}

static bool score_all(Opened *o, const Args *a, const Lines *l, JsonlOut *out, Err *err) {
    int64_t budget = a->batch, longest = 1;
    size_t most = 1;
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i].ok && l->at[i].n > longest) longest = l->at[i].n;
    if (budget > model_desc_most_tokens(&o->desc)) budget = model_desc_most_tokens(&o->desc);
    if (longest > budget) budget = longest;
    Lots lots = lots_of(l, budget);
    for (size_t i = 0; i < lots.n; i++)
        if (lots.at[i].to - lots.at[i].from > most) most = lots.at[i].to - lots.at[i].from;
    const SamplingArgs *sa = &a->s;
    float temperature = sa->temperature > 0 ? (float)sa->temperature : 1; /* 0 is greedy */
    bool truncated = !sa->greedy && sa->temperature > 0 && (sa->top_k > 0 || sa->top_p < 1 || sa->min_p > 0);
    PicturesShape images = { 0 };
    for (size_t i = 0; i < lots.n && o->desc.d.vis.layers; i++) { /* the most of every kind */
        Mem mem = { 0 };
        PackSeq *seqs = MEM_ARRAY(&mem, PackSeq, most + 1);
        int k = 0;
        for (size_t j = lots.at[i].from; j < lots.at[i].to; j++)
            if (l->at[j].ok) seqs[k++] = pack_line(&l->at[j], DRAW_PLAIN);
        PicturesShape s = batch_pictures(seqs, k, &o->desc.d);
        images.patches = s.patches > images.patches ? s.patches : images.patches;
        images.tokens = s.tokens > images.tokens ? s.tokens : images.tokens;
        images.windows = s.windows > images.windows ? s.windows : images.windows;
        images.frames = s.frames > images.frames ? s.frames : images.frames;
        images.longest = s.longest > images.longest ? s.longest : images.longest;
        mem_free(&mem);
    }
    Shard shard = open_shard(o);
    ModelShape shape = { .tokens = budget,
                         .outputs = budget,
                         .seqs = (int)most,
                         .longest = (int)longest,
                         .truncated = truncated,
                         .like = open_kind(o, a->leaves),
                         .shard = &shard,
                         .pictures = images };
    OpenOpts opts = { .threads = a->threads, .leaves = a->leaves, .random = random_fill(a->random) };
    bool ok = open_weights(o, &opts, model_sizes(&o->desc, &shape).tmp, err);
    ok = ranks_agree(o->ranks, ok, err) && open_same(o->ranks, &o->model, opts.random, err);
    if (!ok) return vec_free(lots.at), false;
    size_t small = 17 * arena_round((size_t)budget * 4) + 2 * arena_round((most + 1) * 4)
                   + arena_round((size_t)o->desc.d.special.n_eos * 4) + batch_part_bytes(budget, (int)most)
                   + batch_images_bytes(&shape.pictures, budget, &o->desc.d);
    size_t host = batch_host_bytes(budget, (int)most) + arena_round(most * sizeof(PackSeq));
    Scorer s = {
        .o = o,
        .io = dev_arena(&o->dev, "score io", small),
        .host = arena_on_host("score host", host, &o->mem),
        .draw = { temperature, (float)sa->top_p, (float)sa->min_p, (int32_t)sa->top_k },
        .min_tokens = sa->min_tokens,
        .eos = MEM_ARRAY(&o->mem, int32_t, (size_t)o->desc.d.special.n_eos + 1),
    };
    if (!truncated) s.draw = (Drawing){ s.draw.temperature, 1, 0, 0 }; /* greedy is told under the whole distribution */
    for (int64_t i = 0; i < o->desc.d.special.n_eos; i++) s.eos[i] = (int32_t)o->desc.d.special.eos[i];
    score_rounds(&s, l, &lots, budget, out);
    vec_free(lots.at);
    return true;
}

static void check_line(PromptLine *p, const Args *a, Opened *o) {
    Err err;
    int64_t context = o->desc.d.context, prompt = -1;
    bool ok = json_int(&p->json, "prompt_length", &prompt, &err);
    if (ok && context && p->n > context)
        ok = err_set(&err, "the line has %d tokens, the model's context is %" PRId64, p->n, context);
    if (ok && p->n > model_desc_most_tokens(&o->desc))
        ok = err_set(&err, "the line has %d tokens, this model computes at most %" PRId64 " at once", p->n,
                     model_desc_most_tokens(&o->desc));
    if (ok && prompt > p->n)
        ok = err_set(&err, "\"prompt_length\" is %" PRId64 ", but there are %d tokens", prompt, p->n);
    if (ok && a->s.min_tokens && prompt < 0)
        ok = err_set(&err, "--min-tokens needs to know where the answer begins: \"prompt_length\"");
    p->prompt = prompt < 0 ? 0 : (int)prompt;
    if (ok) return;
    p->ok = false;
    p->err = mem_str(&o->mem, err.msg, strlen(err.msg));
}

typedef struct {
    OnLines on;
    const Args *a;
    Lines lines;
} Score;

static void add_line(void *user, const PromptLine *p) {
    Score *s = user;
    VEC_PUSH(s->lines, *p);
    if (p->ok) check_line(&s->lines.at[s->lines.n - 1], s->a, &s->on.o);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .in = "-", .batch = 4096, .s = SAMPLING_DEFAULT, .random = -1 };
    const char *model;
    Err err;
    int rc = opt_parse(v, &a, &model, 1, 1, NULL, argc, argv);
    if (rc >= 0 || (rc = on_lines_args(v, a.leaves, &a.s)) >= 0) return rc;
    Score s = { .a = &a };
    OnLines *x = &s.on;
    OpenOpts opts = { .threads = a.threads,
                      .leaves = a.leaves,
                      .device = a.device,
                      .compute = a.compute,
                      .adapter = a.adapter,
                      .random = random_fill(a.random) };
    bool ok = on_lines_open(x, v, &a, model, opts, a.grid, NULL, PROMPT_SCORE, &err)
              && on_lines_read(x, a.in, add_line, &s, &err) && on_lines_out(x, a.out, &err)
              && score_all(&x->o, &a, &s.lines, x->out, &err);
    rc = on_lines_close(x, v, ok, &err);
    vec_free(s.lines.at);
    return rc;
}

const Verb verb_score = {
    .name = "score",
    .usage = "MODEL --in FILE [--out FILE]",
    .summary = "log-prob and entropy of every predicted token",
    .options = options,
    .run = run,
    .ranks = true,
    .detail =
        "Each line's \"tokens\" (n of them) give n-1 values: of tokens 1..n-1.  Lines written by `hone generate` "
        "are taken as they\n"
        "are; with the same sampling options their log-probs come back bit for bit, and a token outside the kept "
        "set is null.\n"
        "Of those options the ones that only say when to stop or which random number to take have no effect "
        "here; --min-tokens\n"
        "knows of the model's end tokens, not of a request's own \"stop_token_ids\".  Where a prompt had pictures "
        "the line must\n"
        "be given as \"messages\", which name them.\n",
};
