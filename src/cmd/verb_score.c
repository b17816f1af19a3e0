/* verb_score.c - `hone score`: the log-prob and entropy of every predicted token of given texts, by the trainer's own forward. */
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/open.h"
#include "cmd/prompt_line.h"

#include <math.h>

typedef struct {
    const char *in, *out;
    int64_t threads, batch, leaves;
    double temperature, top_p, min_p;
    int64_t top_k;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "in",          OPT_STR,  offsetof(Args, in),          "FILE", "lines with \"tokens\" (or \"text\"); - is standard input" },
    { "out",         OPT_STR,  offsetof(Args, out),         "FILE", "lines {\"logprobs\",\"entropy\"}; standard output if absent" },
    { "temperature", OPT_REAL, offsetof(Args, temperature), "T",    "score under the distribution sampled at this temperature", 1e-4, 1e4 },
    { "top-k",       OPT_INT,  offsetof(Args, top_k),       "K",    "... of the K likeliest tokens; 0: all", 0, 1e9 },
    { "top-p",       OPT_REAL, offsetof(Args, top_p),       "P",    "... of the smallest set with mass P", 1e-9, 1 },
    { "min-p",       OPT_REAL, offsetof(Args, min_p),       "P",    "... of tokens at least P times as likely as the likeliest", 0, 1 },
    { "batch",       OPT_INT,  offsetof(Args, batch),       "N",    "tokens computed together (no effect on the result); 4096", 1, 1e9 },
    { "threads",     OPT_INT,  offsetof(Args, threads),     "N",    "threads (no effect on the result); all cores", 0, 256 },
    { "leaves",      OPT_INT,  offsetof(Args, leaves),      "N",    "pieces of every sum that tensor parallelism may cut: 1, 2, 4 or 8", 1, 8 },
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
} Scorer;

/* lp, ent: of all lines' predicted tokens, one after the other. */
static void score_batch(Scorer *s, const PromptLine *line, size_t n, float *lp, float *ent) {
    Dev *d = &s->o->dev;
    size_t io = arena_mark(&s->io), host = arena_mark(&s->host);
    PackSeq *seqs = arena_push(&s->host, n * sizeof *seqs);
    int k = 0;
    for (size_t i = 0; i < n; i++)
        if (line[i].ok) seqs[k++] = (PackSeq){ line[i].tokens, line[i].n, 1, s->draw };
    int64_t outputs = pack_outputs(seqs, k);
    if (outputs) {
        Batch b;
        batch_put(&b, d, &s->io, &s->host, seqs, k);
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
        int k = line[i].n - 1;
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

static bool score_all(Opened *o, const Args *a, const Lines *l, JsonlOut *out, Err *err) {
    int64_t budget = a->batch, longest = 1;
    size_t most = 1;
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i].ok && l->at[i].n > longest) longest = l->at[i].n;
    if (longest > budget) budget = longest;
    for (size_t i = 0, to; i < l->n; i = to) {
        to = batch_end(l, i, budget);
        if (to - i > most) most = to - i;
    }
    bool truncated = a->top_k > 0 || a->top_p < 1 || a->min_p > 0;
    ModelShape shape = { .tokens = budget, .outputs = budget, .seqs = (int)most, .longest = (int)longest, .truncated = truncated, .threads = threads_count(o->dev.threads) };
    OpenOpts opts = { .threads = a->threads, .leaves = a->leaves };
    TRY(open_weights(o, &opts, model_sizes(&o->desc, &shape).tmp, err));
    size_t small = 16 * arena_round((size_t)budget * 4) + 2 * arena_round((most + 1) * 4), host = batch_host_bytes(budget, (int)most) + arena_round(most * sizeof(PackSeq));
    Scorer s = {
        .o = o,
        .io = dev_arena(&o->dev, "score io", small),
        .host = arena_on_host("score host", host, &o->mem),
        .draw = { (float)a->temperature, (float)a->top_p, (float)a->min_p, (int32_t)a->top_k },
    };
    float *lp = MEM_ARRAY(&o->mem, float, (size_t)budget), *ent = MEM_ARRAY(&o->mem, float, (size_t)budget);
    for (size_t i = 0, to; i < l->n && !jsonl_broken(out); i = to) {
        to = batch_end(l, i, budget);
        score_batch(&s, l->at + i, to - i, lp, ent);
        write_batch(out, l->at + i, to - i, lp, ent);
    }
    return true;
}

static bool read_all(Lines *l, Opened *o, const char *in, PromptReader *r, Err *err) {
    LineReader *lines = lines_open(in, err);
    if (!lines) return false;
    const char *text;
    size_t n;
    while (lines_next(lines, &text, &n)) {
        PromptLine p;
        if (!prompt_line_read(&p, r, text, n, &o->mem)) continue;
        VEC_PUSH(*l, p);
    }
    return lines_close(lines, err);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .in = "-", .batch = 4096, .temperature = 1, .top_p = 1, .leaves = 8 };
    const char *model;
    Err err;
    int rc = opt_parse(v, &a, &model, 1, 1, NULL, argc, argv);
    if (rc >= 0) return rc;
    if (a.leaves & (a.leaves - 1)) return cmd_usage(v, "--leaves must be 1, 2, 4 or 8");
    Opened o;
    OpenOpts opts = { .threads = a.threads };
    if (!open_desc(&o, model, &opts, &err)) return cmd_fail(v, &err);
    Lines lines = { 0 };
    PromptReader reader;
    JsonlOut *out = NULL;
    bool ok = prompt_reader_open(&reader, &o.desc, PROMPT_SCORE, &err) && read_all(&lines, &o, a.in, &reader, &err)
              && (out = jsonl_open(a.out, &err)) && score_all(&o, &a, &lines, out, &err);
    rc = ok ? 0 : cmd_fail(v, &err);
    if (out) {
        int written = jsonl_close(out, &err);
        if (!rc) rc = written < 0 ? cmd_fail(v, &err) : written;
    }
    prompt_reader_close(&reader);
    vec_free(lines.at);
    open_close(&o);
    return rc;
}

const Verb verb_score = {
    .name = "score",
    .usage = "MODEL --in FILE [--out FILE]",
    .summary = "log-prob and entropy of every predicted token",
    .options = options,
    .run = run,
    .detail = "Each line's \"tokens\" (n of them) give n-1 values: of tokens 1..n-1.  Lines written by `hone generate` are taken as they\n"
              "are; with the same sampling options their log-probs come back bit for bit, and a token outside the kept set is null.\n",
};
