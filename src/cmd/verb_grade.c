/* verb_grade.c - `hone grade`: answers in, scores out, by the same scorers that a training run uses. */
#include "base/json.h"
#include "cmd/cmd.h"
#include "task/reward.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *in, *out, *scorer;
    int64_t threads;
    bool list;
} Args;

static const Opt options[] = {
    { "in", OPT_STR, offsetof(Args, in), "FILE", "data_source, solution_str, ground_truth, extra_info a line (standard input)" },
    { "out", OPT_STR, offsetof(Args, out), "FILE", "lines with score (standard output)" },
    { "scorer", OPT_STR, offsetof(Args, scorer), "NAME", "judge every line by this scorer, whatever its data_source" },
    { "threads", OPT_INT, offsetof(Args, threads), "N", "threads (all cores)", 1, 256 },
    { "list", OPT_FLAG, offsetof(Args, list), "", "list the scorers and their data_source names" },
    { 0 }
};

static bool text_field(const Json *line, const char *key, bool needed, const Json **out, Err *err) {
    *out = json_get(line, key);
    if (!*out && needed) return err_set(err, "the line has no \"%s\"", key);
    if (*out && (*out)->kind != JSON_STRING)
        return err_set(err, "\"%s\" must be a string, not %s", key, json_kind_name((*out)->kind));
    return true;
}

static bool grade(void *ctx, int worker, const Json *line, Mem *mem, Buf *out, Err *err) {
    (void)worker;
    const Args *a = ctx;
    const Json *source, *solution, *truth = json_get(line, "ground_truth"), *extra = json_get(line, "extra_info");
    TRY(text_field(line, "data_source", !a->scorer, &source, err));
    TRY(text_field(line, "solution_str", true, &solution, err));
    if (!truth) return err_set(err, "the line has no \"ground_truth\"");
    const Reward *r;
    TRY(reward_need(&r, a->scorer ? a->scorer : source->str, err));
    RewardSample s = { .data_source = source ? source->str : "", .solution = solution->str, .solution_n = solution->n };
    Buf json = { 0 };
    if (truth->kind == JSON_STRING) {
        s.ground_truth = truth->str;
        s.ground_truth_n = truth->n;
    } else {
        json_put_value(&json, truth);
        s.ground_truth = mem_str(mem, json.data, json.n);
        s.ground_truth_n = json.n;
        s.ground_truth_is_json = true;
    }
    if (extra && extra->kind != JSON_NULL) {
        buf_clear(&json);
        json_put_value(&json, extra);
        s.extra_info = mem_str(mem, json.data, json.n);
        s.extra_info_n = json.n;
    }
    buf_free(&json);
    RewardResult res = { 0 };
    reward_score(r, &s, &res);
    buf_puts(out, "{\"score\":");
    json_put_f64(out, res.score);
    if (res.extra.n) {
        buf_putc(out, ',');
        buf_put(out, res.extra.data, res.extra.n);
    }
    if (res.failed) {
        buf_puts(out, ",\"failed\":");
        json_put_str(out, res.reason, strlen(res.reason));
    }
    buf_putc(out, '}');
    reward_result_free(&res);
    return true;
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

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .threads = threads_default() };
    int rc = opt_parse(v, &a, NULL, 0, 0, NULL, argc, argv);
    if (rc >= 0) return rc;
    if (a.list) return list();
    Err err;
    const Reward *r;
    if (a.scorer && !reward_need(&r, a.scorer, &err)) return cmd_fail(v, &err);
    Threads *t = threads_open((int)a.threads);
    rc = jsonl_map(v, a.in, a.out, t, grade, &a);
    threads_close(t);
    return rc;
}

const Verb verb_grade = {
    .name = "grade",
    .usage = "--in F --out F [--scorer NAME]",
    .summary = "score answers against their ground truth",
    .options = options,
    .run = run,
};
