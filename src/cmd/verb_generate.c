/* verb_generate.c - `hone generate`: answers to prompts, each with the log-prob of every token it drew.
 * Answers are written in the order of the input, the n answers to one line next to each
 * other, as soon as their turn comes. */
#include "base/clock.h"
#include "base/file.h"
#include "cmd/on_lines.h"
#include "cmd/options.h"
#include "ask/stops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *in, *out;
    int64_t n, threads, leaves, page, kv_tokens, max_batch, max_rows, budget, step;
    bool stats;
    SamplingArgs s;
    const char *device, *compute, *grid, *adapter, *prompt;
    int64_t random;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "in",        OPT_STR, offsetof(Args, in),        "FILE",
      "lines with \"tokens\", \"text\" or \"messages\"; - is standard input" },
    { "prompt",    OPT_STR, offsetof(Args, prompt),    "TEXT",
      "one question instead of lines: a user's message, or text where the model has no chat template" },
    { "out",       OPT_STR, offsetof(Args, out),       "FILE", "one line per answer; standard output if absent" },
    { "n",         OPT_INT, offsetof(Args, n),         "N",    "answers to each line; 1", 1, 1e6 },
    SAMPLING_OPTS(Args, s),
    { "step",      OPT_INT, offsetof(Args, step),      "N",
      "names the random numbers too, as a training step does; 0", 0, 4e9 },
    { "budget",    OPT_INT, offsetof(Args, budget),    "N",
      "answer tokens in all; what is under way then is cut; 0: no limit", 0, 9e18 },
    { "max-batch", OPT_INT, offsetof(Args, max_batch), "N",
      "sequences computed together (no effect on answers); 64", 1, 65536 },
    { "max-rows",  OPT_INT, offsetof(Args, max_rows),  "N",
      "rows of a step, prefill chunks included (no effect on answers); 512", 1, 1e7 },
    { "page",      OPT_INT, offsetof(Args, page),      "N",
      "positions in a page of the cache, a multiple of 16; 64", 16, 65536 },
    { "kv-tokens", OPT_INT, offsetof(Args, kv_tokens), "N",
      "positions in the cache; as many as the batch can need", 0, 1e12 },
    { "stats",     OPT_FLAG, offsetof(Args, stats),    "",
      "say at the end what was computed, shared and preempted, on standard error" },
    { "threads",   OPT_INT, offsetof(Args, threads),   "N",
      "threads (no effect on answers); all cores", 0, THREADS_MOST },
    SAMPLING_GRID(Args),
    LEAVES_OPTION(Args),
    ADAPTER_OPTION(Args),
    DEVICE_OPTIONS(Args),
    RANDOM_OPTION(Args),
    { 0 },
};
/* clang-format on */

typedef struct {
    PromptLine line;
    Sampling s;
    int waiting;  /* answers not there yet; -1: the line is bad */
    Buf *out;     /* [samples] finished answers, until their turn */
    bool *broken; /* [samples] the answer is the reason why there is none */
    Stops **stop; /* [samples], only with stop texts */
} Job;

typedef struct {
    OnLines on;
    const Args *a;
    VEC(Job *)
    jobs;
    size_t written; /* lines that are written out */
    VEC(int) good;  /* lines that can be answered */
    Replicas replicas;
    Queue *queue;
    int64_t asked; /* answers, of this replica */
    int64_t answers, total;
    double started, drawn;
    bool terminal;
} Gen;

/* ---- lines in */
static void bad(Job *j, Mem *mem, const char *why) {
    j->line.ok = false;
    j->line.err = mem_str(mem, why, strlen(why));
}

static void check_job(Gen *g, Job *j) {
    Err err;
    const Dims *d = &g->on.o.desc.d;
    if (!j->line.ok) return;
    if (!sampling_read(&j->s, &g->a->s, g->a->n, &j->line.json, d, &g->on.o.mem, &err)) {
        bad(j, &g->on.o.mem, err.msg);
        return;
    }
    if (j->s.n_stop && !g->on.reader.tok) {
        bad(j, &g->on.o.mem, "stop texts need a tokenizer, and the model's folder has none");
        return;
    }
    if (d->context && j->line.n >= d->context) {
        err_set(&err, "the prompt has %d tokens, the model's context is %" PRId64, j->line.n, d->context);
        bad(j, &g->on.o.mem, err.msg);
        return;
    }
    if (d->context && j->line.n + j->s.opts.max_tokens > d->context)
        j->s.opts.max_tokens = (int)(d->context - j->line.n);
    j->out = MEM_ARRAY(&g->on.o.mem, Buf, (size_t)j->s.samples);
    j->broken = MEM_ARRAY(&g->on.o.mem, bool, (size_t)j->s.samples);
    j->stop = MEM_ARRAY(&g->on.o.mem, Stops *, (size_t)j->s.samples);
    j->waiting = j->s.samples;
    g->total += j->s.samples;
}

static void add_job(void *user, const PromptLine *p) {
    Gen *g = user;
    Job *j = MEM_NEW(&g->on.o.mem, Job);
    j->line = *p;
    check_job(g, j);
    VEC_PUSH(g->jobs, j);
}

/* ---- answers out */
static void write_ready(Gen *g) {
    for (; g->on.out && g->written < g->jobs.n; g->written++) {
        Job *j = g->jobs.at[g->written];
        if (j->line.ok && j->waiting) return;
        if (!j->line.ok) jsonl_error(g->on.out, j->line.err);
        for (int i = 0; j->line.ok && i < j->s.samples; i++) {
            if (j->broken[i]) jsonl_error(g->on.out, j->out[i].data);
            else jsonl_put(g->on.out, &j->out[i]);
            buf_free(&j->out[i]);
        }
    }
}

static void put_floats(Buf *b, const char *name, const float *x, int n) {
    buf_printf(b, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) buf_putc(b, ',');
        json_put_f32(b, x[i]);
    }
    buf_putc(b, ']');
}

static void put_answer(Gen *g, Buf *b, const Job *j, const Answer *a) {
    buf_puts(b, "{\"tokens\":[");
    for (int i = 0; i < j->line.n; i++) buf_printf(b, "%s%d", i ? "," : "", j->line.tokens[i]);
    for (int i = 0; i < a->n; i++) buf_printf(b, ",%d", a->tokens[i]);
    buf_printf(b, "],\"prompt_length\":%d", j->line.n);
    put_floats(b, "logprobs", a->lp, a->n);
    put_floats(b, "entropy", a->ent, a->n);
    if (g->on.reader.tok) {
        Buf text = { 0 };
        Err err;
        if (j->stop[a->sample]) stops_text(j->stop[a->sample], &text);
        else if (!tok_decode(g->on.reader.tok, a->tokens, (size_t)a->n, true, &text, &err)) buf_clear(&text);
        buf_puts(b, ",\"text\":");
        json_put_str(b, text.data ? text.data : "", text.n);
        buf_free(&text);
    }
    buf_printf(b, ",\"finish\":\"%s\"", finish_name(a->finish));
    const Json *id = json_get(&j->line.json, "id");
    if (id) {
        buf_puts(b, ",\"id\":");
        json_put_value(b, id);
    }
    buf_putc(b, '}');
}

static bool feed_next(void *user, Request *out) {
    Gen *g = user;
    int k = queue_next(g->queue);
    if (k < 0) return false;
    Job *j = g->jobs.at[g->good.at[k]];
    uint64_t key = j->line.has_key ? j->line.key : request_key(j->line.tokens, j->line.n);
    for (int i = 0; i < j->line.pictures.n && !j->line.has_key; i++) key ^= j->line.pictures.at[i].picture->key[0];
    *out = (Request){ j->line.tokens, j->line.n, j->s.samples, key, &j->s.opts, j, .spans = j->line.pictures };
    g->asked += j->s.samples;
    return true;
}

static Join feed_join(void *user, bool busy) {
    Gen *g = user;
    int64_t open = (g->asked - g->answers + g->a->n - 1) / g->a->n; /* lines, if each has as many answers as said */
    return queue_join(g->queue, busy, (int)open, g->on.out && jsonl_broken(g->on.out));
}

static bool feed_token(void *user, const Request *r, int sample, int32_t id, float lp) {
    (void)lp;
    Gen *g = user;
    Job *j = r->user;
    if (!j->s.n_stop) return false;
    if (!j->stop[sample]) j->stop[sample] = stops_open(g->on.reader.tok, j->s.stop, j->s.n_stop);
    return stops_push(j->stop[sample], id);
}

static void feed_answer(void *user, const Answer *a) {
    Gen *g = user;
    Job *j = a->request->user;
    if (a->finish == FINISH_BROKEN) {
        Err err;
        finish_broken(&err, a->n);
        buf_puts(&j->out[a->sample], err.msg);
        j->broken[a->sample] = true;
    } else put_answer(g, &j->out[a->sample], j, a);
    stops_close(j->stop[a->sample]);
    j->waiting--;
    g->answers++;
    write_ready(g);
}

static bool feed_tick(void *user, int64_t tokens, int running) {
    Gen *g = user;
    double now = clock_now();
    if (g->terminal && now - g->drawn > 0.2) {
        int bar = g->total ? (int)(20 * g->answers / g->total) : 0;
        fprintf(stderr, "\r[%.*s%.*s] %" PRId64 "/%" PRId64 " answers  %" PRId64 " tokens  %.0f tokens/s  %d at once  ",
                bar, "####################", 20 - bar, "....................", g->answers, g->total, tokens,
                (double)tokens / (now - g->started), running);
        g->drawn = now;
    }
    return true;
}

/* ---- the other replicas' answers, on the first rank */
typedef struct {
    int32_t job, sample;
    uint64_t n;
    bool broken;
} Came;

static void pack(const Gen *g, Buf *b) {
    for (size_t i = 0; i < g->good.n; i++) {
        const Job *j = g->jobs.at[g->good.at[i]];
        for (int k = 0; k < j->s.samples; k++) {
            if (!j->out[k].n) continue;
            buf_put(b, &(Came){ g->good.at[i], k, j->out[k].n, j->broken[k] }, sizeof(Came));
            buf_put(b, j->out[k].data, j->out[k].n);
            buf_free(&j->out[k]);
        }
    }
}

static void unpack(Gen *g, const Buf *b) {
    Came c;
    for (size_t at = 0; at < b->n; at += sizeof c + c.n) {
        memcpy(&c, b->data + at, sizeof c);
        Job *j = g->jobs.at[c.job];
        buf_put(&j->out[c.sample], b->data + at + sizeof c, c.n);
        j->broken[c.sample] = c.broken;
        j->waiting--;
    }
}

enum { TAG_ANSWERS = 1 << 21 };
static void gather(Gen *g) {
    const Comm *all = &g->replicas.all;
    Buf mine = { 0 };
    Mem mem = { 0 };
    uint64_t *bytes = MEM_ARRAY(&mem, uint64_t, (size_t)all->size);
    if (all->rank && g->replicas.tp.rank == 0) pack(g, &mine);
    uint64_t have = mine.n;
    comm_gather_host(all, bytes, &have, sizeof have);
    for (int r = 1; r < all->size && all->rank == 0; r++) {
        Buf received = { 0 };
        buf_reserve(&received, bytes[r] + 1);
        received.n = bytes[r];
        CommCall get = comm_recv_host(all, r, TAG_ANSWERS, received.data, received.n);
        comm_wait(&get);
        unpack(g, &received);
        buf_free(&received);
    }
    if (mine.n) {
        CommCall give = comm_send_host(all, 0, TAG_ANSWERS, mine.data, mine.n);
        comm_wait(&give);
    }
    for (size_t i = 0; i < g->good.n && !g->on.out; i++) /* what is not written here is freed */
        for (int k = 0; k < g->jobs.at[g->good.at[i]]->s.samples; k++) buf_free(&g->jobs.at[g->good.at[i]]->out[k]);
    buf_free(&mine);
    mem_free(&mem);
    write_ready(g);
}

/* ---- how much of everything */
static EngineConf sizes(const Gen *g, const Shard *shard) {
    const Args *a = g->a;
    int64_t longest = 2, most = a->max_batch < g->total ? a->max_batch : g->total;
    int ban = 0;
    int64_t feats = 0, patches = 0;
    for (size_t i = 0; i < g->jobs.n; i++) {
        const Job *j = g->jobs.at[i];
        int64_t own, largest;
        engine_images(&g->on.o.desc, j->line.pictures, &own, &largest);
        feats = own > feats ? own : feats, patches = largest > patches ? largest : patches;
        if (j->line.ok && j->s.opts.min_tokens && j->s.opts.n_stop_ids > ban) ban = j->s.opts.n_stop_ids;
        int64_t n = j->line.ok ? j->line.n + j->s.opts.max_tokens : 0;
        if (n > longest) longest = n;
    }
    if (most < 1) most = 1;
    int64_t each = (longest + a->page - 1) / a->page, pages = a->kv_tokens ? a->kv_tokens / a->page : most * each + 1;
    int64_t free_pages =
        (int64_t)(memory_free(&g->on.o.dev) / 2
                  / cache_page_bytes(&g->on.o.desc, shard, (int)a->page, open_kind(&g->on.o, a->leaves)));
    free_pages = -(int64_t)comm_max(&g->on.o.ranks->world.all, (double)-free_pages); /* who has least */
    if (!a->kv_tokens && free_pages && pages > free_pages) pages = free_pages; /* then some answers wait for others */
    if (pages < each + 1) pages = each + 1;
    EngineConf c = engine_conf(most, longest, a->max_rows, a->page);
    int64_t fit = model_desc_most_tokens(&g->on.o.desc);
    if (c.sched.max_rows > fit) c.sched.max_rows = (int)fit;
    c.sched.pages = (int)(pages < INT32_MAX ? pages : INT32_MAX);
    c.max_ban = ban, c.shard = shard;
    c.feats = (int)(feats * (most < 16 ? most : 16)),
    c.patches = patches; /* requests whose pictures are there at once */
    return c;
}

static bool generate(Gen *g, Err *err) {
    const Args *a = g->a;
    Shard shard = open_shard(&g->on.o);
    EngineConf c = sizes(g, &shard);
    OpenOpts opts = { .threads = a->threads,
                      .leaves = a->leaves,
                      .random = random_fill(a->random),
                      .more = cache_bytes(&g->on.o.desc, &c, open_kind(&g->on.o, a->leaves)) };
    bool ok = open_weights(&g->on.o, &opts, engine_tmp_bytes(&g->on.o.desc, &c, open_kind(&g->on.o, a->leaves)), err);
    if (!ranks_agree(g->on.o.ranks, ok, err) || !open_same(g->on.o.ranks, &g->on.o.model, opts.random, err))
        return false;
    Engine *e = engine_open(&g->on.o.model, &c, &g->on.o.mem);
    for (size_t i = 0; i < g->jobs.n; i++)
        if (g->jobs.at[i]->line.ok) VEC_PUSH(g->good, (int)i);
    g->queue = queue_open(&g->replicas, (int)g->good.n, (int)(c.sched.max_batch / a->n), &g->on.o.mem);
    Feed f = { .next = feed_next,
               .token = feed_token,
               .answer = feed_answer,
               .tick = feed_tick,
               .join = feed_join,
               .user = g,
               .seed = (uint64_t)a->s.seed,
               .step = (uint32_t)a->step,
               .token_budget = a->budget };
    g->started = clock_now();
    write_ready(g);
    EngineStats st = engine_run(e, &f);
    queue_close(g->queue);
    gather(g);
    if (g->terminal || (a->stats && ranks_first(g->on.o.ranks)))
        fprintf(stderr,
                "%s%" PRId64 " answers, %" PRId64 " tokens in %.1f s: %.0f tokens/s; %" PRId64 " forks, %" PRId64
                " tokens found in the cache, %" PRId64 " preempted%s\n",
                g->terminal ? "\r" : "", st.answers, st.tokens, st.seconds, (double)st.tokens / st.seconds,
                st.sched.forks, st.sched.prefix_tokens, st.sched.preempted, g->terminal ? "                    " : "");
    engine_close(e);
    return true;
}

static bool budget_fits(const Gen *g, Err *err) {
    return g->replicas.n == 1 || !g->a->budget
           || err_set(err, "--budget counts the tokens of one replica: leave it out, or dp at 1");
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .n = 1, .page = 64, .max_batch = 64, .max_rows = 512, .s = SAMPLING_DEFAULT, .random = -1 };
    const char *model;
    Err err;
    int rc = opt_parse(v, &a, &model, 1, 1, NULL, argc, argv);
    if (rc >= 0 || (rc = on_lines_args(v, a.leaves, &a.s)) >= 0) return rc;
    if (a.prompt && a.in) return cmd_usage(v, "--prompt and --in are two sources of questions: one of them");
    if (a.page % 16) return cmd_usage(v, "--page must be a multiple of 16");
    Gen g = { .a = &a };
    OnLines *x = &g.on;
    OpenOpts opts = { .threads = a.threads,
                      .leaves = a.leaves,
                      .device = a.device,
                      .compute = a.compute,
                      .adapter = a.adapter,
                      .random = random_fill(a.random) };
    bool ok = on_lines_open(x, v, &a, model, opts, a.grid, &g.replicas, PROMPT_GENERATE, &err) && budget_fits(&g, &err)
              && (a.prompt ? on_lines_prompt(x, a.prompt, add_job, &g, &err)
                           : on_lines_read(x, a.in ? a.in : "-", add_job, &g, &err))
              && on_lines_out(x, a.out, &err);
    g.terminal = x->out && isatty(STDERR_FILENO);
    rc = on_lines_close(x, v, ok && generate(&g, &err), &err);
    vec_free(g.jobs.at);
    vec_free(g.good.at);
    return rc;
}

const Verb verb_generate = {
    .name = "generate",
    .usage = "MODEL --in FILE | --prompt TEXT [--out FILE] [--n N] [sampling options]",
    .summary = "sample answers to prompts, with their log-probs",
    .options = options,
    .run = run,
    .ranks = true,
    .detail =
        "A line may override n, temperature, top_p, top_k, min_p, max_tokens, min_tokens, greedy, ignore_eos, seed, "
        "stop,\nstop_token_ids.  "
        "Random numbers are named by the seed, the step, the line's \"id\" (its tokens if absent), the answer's number "
        "and the position:\n"
        "the same answers come in any batch and any order.  finish: stop, length (max-tokens or context) or budget; an "
        "answer\nwhose numbers are not finite is an error in its place.\n",
};
