/* verb_eval.c - `hone eval`: how good a model is at the questions of a file: mean@k, pass@k,
 * maj@k with confidence intervals. */
#include "base/meter.h"
#include "cmd/asked.h"
#include "cmd/options.h"
#include "rollout/turns.h"
#include "step/evaluate.h"
#include "step/found.h"
#include "model/open.h"
#include "cmd/sampling.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    SamplingArgs s;
    int64_t n, threads, leaves, max_prompt, max_rows, max_batch, questions, workers, max_turns;
    const char *scorer, *command, *library, *python, *function, *out, *chat_template, *template_args, *prompt_key,
        *answer_key, *tools, *tool_format;
    double timeout;
    bool json;
    const char *device, *compute, *grid, *adapter;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "n",             OPT_INT,  offsetof(Args, n),             "K",    "answers to each question; 1", 1, 65536 },
    SAMPLING_OPTS(Args, s),
    { "max-prompt",    OPT_INT,  offsetof(Args, max_prompt),    "N",    "longest prompt in tokens; 2048", 1, 1e9 },
    { "questions",     OPT_INT,  offsetof(Args, questions),     "N",    "only the first N; all", 0, 1e12 },
    { "prompt-key",    OPT_STR,  offsetof(Args, prompt_key),    "COLUMN", "where the question stands; prompt" },
    { "answer-key",    OPT_STR,  offsetof(Args, answer_key),    "COLUMN",
      "where the right answer stands; reward_model.ground_truth" },
    { "scorer",        OPT_STR,  offsetof(Args, scorer),        "NAME",
      "judge every answer by this scorer; by data_source" },
    { "command",       OPT_STR,  offsetof(Args, command),       "CMD",  "your own scorer, a command" },
    { "library",       OPT_STR,  offsetof(Args, library),       "FILE", "your own scorer, a shared library" },
    { "python",        OPT_STR,  offsetof(Args, python),        "FILE",
      "your own scorer, a Python file with compute_score" },
    { "function",      OPT_STR,  offsetof(Args, function),      "NAME", "the function in that file; compute_score" },
    { "workers",       OPT_INT,  offsetof(Args, workers),       "N",
      "scorers that run at once; as many as threads", 0, 1024 },
    { "timeout",       OPT_REAL, offsetof(Args, timeout),       "S",
      "seconds until an answer counts as failed; 10", 0.001, 86400 },
    { "chat-template", OPT_STR,  offsetof(Args, chat_template), "FILE", "in the place of the model's own" },
    { "template-args", OPT_STR,  offsetof(Args, template_args), "JSON",
      "its arguments, such as '{\"enable_thinking\": false}'" },
    { "tools",         OPT_STR,  offsetof(Args, tools),         "NAME,...", "tools that answers may call: calculator" },
    { "tool-format",   OPT_STR,  offsetof(Args, tool_format),   "NAME",
      "with tools: how calls are written; by the chat template" },
    { "max-turns",     OPT_INT,  offsetof(Args, max_turns),     "N",    "with tools: the model's turns; 8", 1, 1000 },
    { "out",           OPT_STR,  offsetof(Args, out),           "FILE", "every answer with its score, a line each" },
    { "json",          OPT_FLAG, offsetof(Args, json),          "",     "the result as one JSON object" },
    { "max-batch",     OPT_INT,  offsetof(Args, max_batch),     "N",
      "sequences computed together (no effect on answers); 64", 1, 65536 },
    { "max-rows",      OPT_INT,  offsetof(Args, max_rows),      "N",
      "rows of a step (no effect on answers); 512", 1, 1e7 },
    { "threads",       OPT_INT,  offsetof(Args, threads),       "N",
      "threads (no effect on answers); all cores", 0, THREADS_MOST },
    SAMPLING_GRID(Args),
    LEAVES_OPTION(Args),
    ADAPTER_OPTION(Args),
    DEVICE_OPTIONS(Args),
    { 0 },
};
/* clang-format on */

typedef struct {
    const Args *a;
    Opened o;
    const char *now; /* in every prompt, where the template prints the time */
    Replicas replicas;
    int at_once;
    Prompter *prompter;
    Dataset *data;
    Rewards *rewards;
    TurnConf *turns; /* or NULL */
    Evaluator eval;
    Engine *engine;
    JsonlOut *out;
    Meter *meter;  /* the first rank's */
    double tokens; /* of all answers so far */
} Eval;

static void write_block(void *user, const Rollouts *r) {
    Eval *e = user;
    Buf b = { 0 }, text = { 0 };
    for (int i = 0; e->out && i < rollouts_n(r); i++) {
        const Rollout *a = &r->at[i];
        const DataRow *row = r->prompt[a->prompt].row;
        buf_clear(&b);
        buf_clear(&text);
        rollout_text(a, prompter_tok(e->prompter), &text);
        buf_printf(&b, "{\"row\":%" PRId64 ",\"sample\":%d,\"score\":", r->prompt[a->prompt].index, a->sample);
        json_put_f64(&b, a->score);
        buf_printf(&b, ",\"finish\":\"%s\",\"output\":", finish_name(a->finish));
        json_put_str(&b, text.data ? text.data : "", text.n);
        buf_puts(&b, ",\"gts\":");
        json_put_str(&b, row->truth ? row->truth : "", row->truth_n);
        buf_puts(&b, a->failed ? ",\"failed\":true}" : "}");
        jsonl_put(e->out, &b);
    }
    for (int i = 0; i < rollouts_n(r); i++) e->tokens += r->at[i].n - r->at[i].n_prompt;
    if (e->meter) meter_beside(e->meter, "tokens", e->tokens), meter_add(e->meter, r->n_prompts);
    buf_free(&b);
    buf_free(&text);
}

enum { TOOLS_MOST = 64, CALLS_MOST = 64, REPLY_MOST = 1024 };

static bool open_tools(Eval *e, Err *err) {
    const char *names[TOOLS_MOST];
    TurnOptions o = { .tools = names,
                      .format = e->a->tool_format ? e->a->tool_format : "auto",
                      .max_calls = CALLS_MOST };
    if (!e->a->tools) return true;
    char *at = mem_str(&e->o.mem, e->a->tools, strlen(e->a->tools));
    for (char *name; (name = strsep(&at, ",")) && o.n_tools < TOOLS_MOST;) names[o.n_tools++] = name;
    o.max_turns = (int)e->a->max_turns, o.max_reply = REPLY_MOST;
    return (e->turns = turns_open(&o, err)) || err_wrap(err, "--tools");
}

static bool bind_tools(Eval *e, Err *err) {
    if (!e->turns) return true;
    for (int64_t i = 0; i < dataset_n(e->data); i++)
        if (row_has_images(dataset_row(e->data, i)))
            return err_set(err, "--tools: questions with pictures cannot call tools yet");
    return turns_bind(e->turns, e->prompter, e->o.desc.d.vocab, err) || err_wrap(err, "--tools");
}

static bool open_data(Eval *e, const char *const *files, int n, Err *err) {
    const Args *a = e->a;
    TRY(open_tools(e, err));
    bool own = a->scorer || a->command || a->library || a->python;
    DataOptions d = { .files = files,
                      .n_files = n,
                      .columns = { .prompt = a->prompt_key, .truth = a->answer_key },
                      .source = own ? "own" : NULL,
                      .need_truth = !(a->command || a->library || a->python),
                      .max_rows = a->questions,
                      .threads = e->o.dev.threads };
    if (e->o.desc.d.vis.layers) d.pictures = true;
    PromptOptions p = { .model = e->o.desc.dir,
                        .chat_template = a->chat_template,
                        .variables = a->template_args,
                        .vocab = e->o.desc.d.vocab,
                        .end = -1,
                        .now = e->now,
                        .tools = e->turns ? turns_tools(e->turns) : NULL,
                        .desc = &e->o.desc };
    if (!(e->data = dataset_open(&d, err)) || !(e->prompter = prompter_open(&p, threads_count(e->o.dev.threads), err)))
        return false;
    TRY(bind_tools(e, err));
    const char *source;
    int64_t rows;
    const Reward *scorer;
    for (int i = 0; !own && (source = dataset_source(e->data, i, &rows)); i++) TRY(reward_need(&scorer, source, err));
    DataCounts counts;
    TRY(dataset_measure(e->data, e->o.dev.threads, a->max_prompt, DATA_LONG_REFUSE, prompter_length, e->prompter,
                        &counts, err));
    RewardOptions r = { .scorer = a->scorer,
                        .command = a->command,
                        .library = a->library,
                        .python = a->python,
                        .python_function = a->function,
                        .timeout_s = a->timeout };
    e->rewards = rewards_open(&r, a->workers ? (int)a->workers : threads_count(e->o.dev.threads), err);
    return e->rewards != NULL;
}

static bool open_engine(Eval *e, Err *err) {
    const Args *a = e->a;
    int64_t longest = 1, n = dataset_n(e->data), context = e->o.desc.d.context;
    for (int64_t i = 0; i < n; i++)
        if (dataset_row(e->data, i)->tokens > longest) longest = dataset_row(e->data, i)->tokens;
    int64_t len = longest + a->s.max_tokens, answers = n * a->n,
            batch = a->max_batch < answers ? a->max_batch : answers;
    if (context && len > context)
        return err_set(err,
                       "the longest prompt (%" PRId64 " tokens) and --max-tokens %" PRId64
                       " are more than the model's context of %" PRId64,
                       longest, a->s.max_tokens, context);
    if (batch < 1) batch = 1;
    EngineConf c = engine_conf(batch, len, a->max_rows, 64);
    int64_t most = model_desc_most_tokens(&e->o.desc);
    if (c.sched.max_rows > most) c.sched.max_rows = (int)most;
    c.shard = &e->o.ranks->shard;
    e->at_once = c.sched.max_batch;
    ImageStats image_stats = { 0 };
    TRY(image_stats_add(&image_stats, &e->o.desc, e->prompter, e->data, err));
    c.feats = (int)(image_stats.feats * (n < 32 ? n : 32)), c.patches = image_stats.patches;
    OpenOpts oo = { .leaves = a->leaves };
    TRY(open_weights(&e->o, &oo, engine_tmp_bytes(&e->o.desc, &c, open_kind(&e->o, a->leaves)), err));
    e->engine = engine_open(&e->o.model, &c, &e->o.mem);
    evaluator_open(&e->eval, n, (int)a->n, (int)longest, (int)a->s.max_tokens, &e->o.mem);
    return true;
}

static void put_estimate(Buf *b, const char *name, Estimate x) {
    buf_printf(b, ",\"%s\":{\"value\":%.6f,\"low\":%.6f,\"high\":%.6f}", name, x.value, x.low, x.high);
}

static void print_result(const EvalResult *r, bool json) {
    if (json) {
        Buf b = { 0 };
        buf_printf(&b, "{\"questions\":%" PRId64 ",\"answers\":%" PRId64 ",\"k\":%d,\"failed\":%" PRId64, r->questions,
                   r->answers, r->k, r->failed);
        put_estimate(&b, "mean", r->mean);
        put_estimate(&b, "pass", r->pass);
        for (int i = 0; i < r->n_pass; i++) {
            char name[16];
            snprintf(name, sizeof name, "pass@%d", r->pass_at[i].k);
            put_estimate(&b, name, r->pass_at[i].e);
        }
        if (r->has_maj) put_estimate(&b, "maj", r->maj);
        if (r->has_acc) put_estimate(&b, "acc", r->acc);
        buf_printf(&b, ",\"response_length\":%.3f,\"seconds\":%.3f}", r->length, r->seconds);
        puts(b.data);
        buf_free(&b);
        return;
    }
    const struct {
        const char *name, *needs;
        Estimate e;
        bool have;
    } row[] = {
        { "mean", "score", r->mean, true },
        { "maj", "pred, what it read out of an answer", r->maj, r->has_maj },
        { "acc", "acc, how right it is", r->acc, r->has_acc },
    };
    printf("%" PRId64 " questions, %d answers each, %.1f tokens an answer, %.1f s\n", r->questions, r->k, r->length,
           r->seconds);
    for (size_t i = 0; i < COUNT(row); i++) {
        if (row[i].have)
            printf("  %4s@%-4d %.4f   95 %% [%.4f, %.4f]\n", row[i].name, r->k, row[i].e.value, row[i].e.low,
                   row[i].e.high);
        else if (r->k > 1)
            printf("  %4s@%-4d not known: the scorer's verdicts have no %s\n", row[i].name, r->k, row[i].needs);
    }
    for (int i = 0; i < r->n_pass; i++)
        printf("  pass@%-4d %.4f   95 %% [%.4f, %.4f]%s\n", r->pass_at[i].k, r->pass_at[i].e.value, r->pass_at[i].e.low,
               r->pass_at[i].e.high, i || r->has_acc ? "" : "   a score above 0 passes");
    if (r->failed) printf("  %" PRId64 " answers could not be judged and count as 0\n", r->failed);
}

static bool evaluate_all(Eval *e, EvalResult *result, Err *err) {
    const Args *a = e->a;
    Sampling s;
    Json none = { .kind = JSON_OBJECT };
    TRY(sampling_read(&s, &a->s, 1, &none, &e->o.desc.d, &e->o.mem, err));
    if (e->turns && s.n_stop) return err_set(err, "--stop: a turn with --tools ends with its end token alone");
    EvalRun run = {
        .prompter = e->prompter, .data = e->data, .max_prompt = e->eval.roll.max_prompt, .each = write_block, .user = e
    };
    run.run = (RolloutRun){ .engine = e->engine,
                            .tok = prompter_tok(e->prompter),
                            .rewards = e->rewards,
                            .opts = &s.opts,
                            .stop = s.stop,
                            .n_stop = s.n_stop,
                            .seed = (uint64_t)a->s.seed,
                            .turns = e->turns,
                            .replicas = &e->replicas,
                            .at_once = e->at_once };
    return evaluate(result, &e->eval, &run, err);
}

/* Before anything loads, and before weights do. */
static bool files_alike(Eval *e, const Ranks *ranks, Err *err) {
    const Args *a = e->a;
    AskedModel m = { .model = e->o.desc.dir, .chat_template = a->chat_template, .seed = (uint64_t)a->s.seed };
    Identity id = { 0 };
    TRY(asked_model(ranks, &m, err));
    bool ok = identity_scorer(&id, a->python, a->library, a->command, err);
    ok = asked_alike(ranks, &id, ok, err);
    identity_free(&id);
    return ok;
}

static bool data_alike(Eval *e, const Ranks *ranks, bool ok, Err *err) {
    Identity id = { 0 };
    ok = ok && found_data(&id, "data", e->data, (uint64_t)e->a->s.seed, err);
    ok = asked_alike(ranks, &id, ok, err);
    identity_free(&id);
    return ok;
}

static bool open_all(Eval *e, Ranks *ranks, const char *const *files, int n, Err *err) {
    const Args *a = e->a;
    bool writes = a->out && ranks_first(ranks);
    TRY(sampling_grid(ranks, &e->replicas, a->grid, &e->o.desc, a->leaves, err));
    TRY(files_alike(e, ranks, err));
    e->now = sampling_clock(ranks, &e->o.mem);
    TRY(data_alike(e, ranks, open_data(e, files, n, err), err));
    TRY(ranks_agree(ranks, open_engine(e, err), err));
    TRY(open_same(ranks, &e->o.model, (RandomFill){ 0 }, err));
    if (ranks_first(ranks) && prompter_tells_time(e->prompter))
        fprintf(stderr,
                "hone eval: the chat template prints the time (strftime_now): %s in every prompt; "
                "--template-args '{\"now\":\"...\"}' sets another\n",
                e->now);
    return ranks_agree(ranks, !writes || (e->out = jsonl_open(a->out, err)), err);
}

static int eval_on(const Verb *v, const Args *a, Ranks *ranks, const char *const *words, int n) {
    bool first = ranks_first(ranks);
    Err err;
    Eval e = { .a = a };
    OpenOpts oo = {
        .threads = a->threads, .device = a->device, .compute = a->compute, .ranks = ranks, .adapter = a->adapter
    };
    if (!ranks_agree(ranks, open_desc(&e.o, words[0], &oo, &err), &err)) return open_close(&e.o), cmd_fail(v, &err);
    EvalResult result;
    bool ok = open_all(&e, ranks, words + 1, n - 1, &err);
    if (ok && first) e.meter = meter_open("hone eval", "questions", (double)dataset_n(e.data));
    ok = ok && evaluate_all(&e, &result, &err);
    meter_close(e.meter);
    int rc = ok ? 0 : cmd_fail(v, &err);
    if (ok && first) print_result(&result, a->json);
    if (ok && result.broken) {
        err_set(&err,
                "%" PRId64 " of %" PRId64
                " answers ended because the model's numbers were not finite (NaN or infinite); "
                "they count as failed",
                result.broken, result.answers);
        rc = cmd_fail(v, &err);
    }
    if (e.out && jsonl_close(e.out, &err) < 0 && !rc) rc = cmd_fail(v, &err);
    if (e.rewards) rewards_close(e.rewards);
    turns_conf_close(e.turns);
    if (e.prompter) prompter_close(e.prompter);
    if (e.data) dataset_close(e.data);
    if (e.engine) engine_close(e.engine);
    rollouts_clear(&e.eval.roll); /* the last questions' pictures */
    open_close(&e.o);
    return rc;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .n = 1,
               .max_turns = 8,
               .max_prompt = 2048,
               .max_rows = 512,
               .max_batch = 64,
               .timeout = 10,
               .s = SAMPLING_DEFAULT };
    const char *words[64];
    Ranks ranks;
    Err err;
    int n, rc = opt_parse(v, &a, words, 2, 64, &n, argc, argv);
    if (rc >= 0) return rc;
    if (a.leaves && !leaves_fit(a.leaves)) return cmd_usage(v, LEAVES_WANTED);
    if ((rc = sampling_opts(v, &a.s)) >= 0) return rc;
    if (!asked_ranks(&ranks, v, &a, &err)) return cmd_fail(v, &err);
    rc = eval_on(v, &a, &ranks, words, n);
    ranks_close(&ranks);
    return rc;
}

const Verb verb_eval = {
    .name = "eval",
    .usage = "MODEL DATA... [--n K] [sampling options]",
    .summary = "how good a model is at the questions of a file",
    .options = options,
    .run = run,
    .ranks = true,
};
