/* verb_grade.c - `hone grade`: answers in, scores out, by the same scorers and the same pool that a training run uses.
 * Verdicts come back in any order; a ring of lines puts them into that of the input. */
#include "base/file.h"
#include "base/json.h"
#include "cmd/cmd.h"
#include "file/parquet.h"
#include "task/reward.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *in, *out, *scorer, *command, *library, *python, *function;
    int64_t threads, workers;
    double timeout;
    bool list;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "in",      OPT_STR,  offsetof(Args, in),      "FILE",
      "lines of data_source, solution_str, ... (standard input)" },
    { "out",     OPT_STR,  offsetof(Args, out),     "FILE", "a score for each line (standard output)" },
    { "scorer",  OPT_STR,  offsetof(Args, scorer),  "NAME",
      "judge every line by this scorer, whatever its data_source" },
    { "command", OPT_STR,  offsetof(Args, command), "CMD",
      "judge by your own command: a JSON line in, a JSON line out" },
    { "library", OPT_STR,  offsetof(Args, library), "SO",
      "judge by your own shared library (include/hone_reward.h)" },
    { "python",  OPT_STR,  offsetof(Args, python),  "FILE",
      "judge by your own Python file with compute_score (docs/rewards.md)" },
    { "function", OPT_STR, offsetof(Args, function), "NAME", "another function of that file" },
    { "workers", OPT_INT,  offsetof(Args, workers), "N",    "processes of the command (as many as threads)", 1, 1024 },
    { "timeout", OPT_REAL, offsetof(Args, timeout), "S",
      "seconds that an outside scorer has for a sample (10)", 0.001, 86400 },
    { "threads", OPT_INT,  offsetof(Args, threads), "N",    "threads (all cores)", 1, THREADS_MOST },
    { "list",    OPT_FLAG, offsetof(Args, list),    "",     "list the scorers and their data_source names" },
    { 0 }
};
/* clang-format on */

enum { WINDOW = 2048 }; /* lines in flight */

typedef struct {
    Rewards *pool;
    JsonlOut *out;
    struct {
        Buf line;
        bool ready, bad;
    } slot[WINDOW];
    int64_t read, written;
    bool any_source; /* data_source may be missing: it does not choose the scorer */
    RewardResult result;
} Grade;

static bool text_field(const Json *line, const char *key, bool needed, const Json **out, Err *err) {
    *out = json_get(line, key);
    if (!*out && needed) return err_set(err, "the line has no \"%s\"", key);
    if (*out && (*out)->kind != JSON_STRING)
        return err_set(err, "\"%s\" must be a string, not %s", key, json_kind_name((*out)->kind));
    return true;
}

/* A value as JSON text in mem, its numbers as the line has them. */
static const char *json_text(const Json *v, Mem *mem, size_t *n) {
    Buf b = { 0 };
    pq_put_value(&b, v);
    *n = b.n;
    const char *text = mem_str(mem, b.data, b.n);
    buf_free(&b);
    return text;
}

static bool submit(Grade *g, const char *text, size_t n, Mem *mem, Err *err) {
    Json line;
    TRY(json_parse(&line, text, n, mem, err));
    const Json *source, *solution, *truth = json_get(&line, "ground_truth"), *extra = json_get(&line, "extra_info");
    TRY(text_field(&line, "data_source", !g->any_source, &source, err));
    TRY(text_field(&line, "solution_str", true, &solution, err));
    if (!truth) return err_set(err, "the line has no \"ground_truth\"");
    RewardSample s = { .data_source = source ? source->str : "", .solution = solution->str, .solution_n = solution->n };
    s.ground_truth_is_json = truth->kind != JSON_STRING;
    s.ground_truth = s.ground_truth_is_json ? json_text(truth, mem, &s.ground_truth_n) : truth->str;
    if (!s.ground_truth_is_json) s.ground_truth_n = truth->n;
    if (extra && extra->kind != JSON_NULL) s.extra_info = json_text(extra, mem, &s.extra_info_n);
    return rewards_submit(g->pool, g->read, &s, err);
}

static void put_result(Buf *out, const RewardResult *r) {
    buf_clear(out);
    buf_puts(out, "{\"score\":");
    json_put_f64(out, r->score);
    if (r->extra.n) {
        buf_putc(out, ',');
        buf_put(out, r->extra.data, r->extra.n);
    }
    if (r->failed) {
        buf_puts(out, ",\"failed\":");
        json_put_str(out, r->reason, strlen(r->reason));
    }
    buf_putc(out, '}');
}

/* Writes the line that is next, waiting for its verdict if need be. */
static void write_next(Grade *g) {
    int64_t ticket, at = g->written % WINDOW;
    while (!g->slot[at].ready && rewards_collect(g->pool, &ticket, &g->result)) {
        put_result(&g->slot[ticket % WINDOW].line, &g->result);
        g->slot[ticket % WINDOW].ready = true;
    }
    if (g->slot[at].bad) jsonl_error(g->out, g->slot[at].line.data);
    else jsonl_put(g->out, &g->slot[at].line);
    g->slot[at].ready = g->slot[at].bad = false;
    g->written++;
}

static void grade_lines(Grade *g, LineReader *r) {
    const char *text;
    size_t n;
    Err err;
    while (!jsonl_broken(g->out) && lines_next(r, &text, &n)) {
        if (strspn(text, " \t") == n) continue;
        if (g->read - g->written == WINDOW) write_next(g);
        int64_t at = g->read % WINDOW;
        Mem mem = { 0 };
        if (!submit(g, text, n, &mem, &err)) {
            g->slot[at].ready = g->slot[at].bad = true;
            buf_clear(&g->slot[at].line);
            buf_puts(&g->slot[at].line, err.msg);
        }
        mem_free(&mem);
        g->read++;
    }
    while (!jsonl_broken(g->out) && g->written < g->read) write_next(g);
}

static int list(void) {
    for (size_t i = 0; reward_at(i); i++) {
        Buf b = { 0 };
        reward_sources(&b, reward_at(i));
        printf("%-22s %s\n", reward_at(i)->name, reward_at(i)->summary);
        if (b.n) printf("%-22s data_source: %s\n", "", b.data);
        buf_free(&b);
    }
    return 0;
}

static int grade_file(const Verb *v, const Args *a, Rewards *pool) {
    Err err, read_err;
    LineReader *r = lines_open(a->in ? a->in : "-", &err);
    if (!r) return cmd_fail(v, &err);
    JsonlOut *o = jsonl_open(a->out, &err);
    if (!o) {
        lines_close(r, &read_err);
        return cmd_fail(v, &err);
    }
    Mem mem = { 0 };
    Grade *g = MEM_NEW(&mem, Grade);
    g->pool = pool;
    g->out = o;
    g->any_source = a->scorer || a->command || a->library || a->python;
    grade_lines(g, r);
    for (int i = 0; i < WINDOW; i++) buf_free(&g->slot[i].line);
    reward_result_free(&g->result);
    mem_free(&mem);
    bool read_ok = lines_close(r, &read_err);
    int rc = jsonl_close(o, &err);
    if (!read_ok) return cmd_fail(v, &read_err);
    return rc < 0 ? cmd_fail(v, &err) : rc;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .threads = threads_default() };
    int rc = opt_parse(v, &a, NULL, 0, 0, NULL, argc, argv);
    if (rc >= 0) return rc;
    if (a.list) return list();
    if (a.workers && !a.command && !a.python) return cmd_usage(v, "--workers is for --command and --python");
    if (a.timeout > 0 && !a.command && !a.library && !a.python)
        return cmd_usage(v, "--timeout is for --command, --library and --python");
    if (a.function && !a.python) return cmd_usage(v, "--function is for --python");
    Err err;
    RewardOptions o = { .scorer = a.scorer,
                        .command = a.command,
                        .library = a.library,
                        .python = a.python,
                        .python_function = a.function,
                        .timeout_s = a.timeout };
    Rewards *pool = rewards_open(&o, (int)(a.workers ? a.workers : a.threads), &err);
    if (!pool) return cmd_fail(v, &err);
    rc = grade_file(v, &a, pool);
    RewardCounts c = rewards_counts(pool);
    rewards_close(pool);
    if (c.failed)
        fprintf(stderr, "hone grade: %lld of %lld samples could not be judged (\"failed\" says why)\n", //
                (long long)c.failed, (long long)c.done);
    return rc;
}

const Verb verb_grade = {
    .name = "grade",
    .usage = "--in F --out F [--scorer NAME | --command CMD | --library SO | --python FILE]",
    .summary = "score answers against their ground truth",
    .detail = "Without a scorer, command or library each line is judged by what its data_source names (--list).\n"
              "A sample that cannot be judged has \"failed\" with the reason; its score is the scorer's lowest (0 with "
              "--command, --library).\n",
    .options = options,
    .run = run,
};
