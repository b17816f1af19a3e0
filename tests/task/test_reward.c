/* test_reward.c - verl's scorers: every verdict that verl's own code gave, the names, the over-long penalty. */
#include "base/file.h"
#include "base/json.h"
#include "task/reward.h"
#include "test.h"

typedef struct {
    const char *at;
    size_t n;
} Text;

static RewardSample sample(const char *source, Text solution, Text truth) {
    return (RewardSample){ .data_source = source,
                           .solution = solution.at,
                           .solution_n = solution.n, //
                           .ground_truth = truth.at,
                           .ground_truth_n = truth.n };
}

/* Scores each line of a file of verdicts; where it has acc and pred, those count too. */
static void verdicts(const char *path, int least) {
    Err err;
    LineReader *r = lines_open(path, &err);
    EXPECT(r, "%s", err.msg);
    if (!r) return;
    const char *line;
    size_t n;
    int rows = 0;
    RewardResult got = { 0 };
    for (; lines_next(r, &line, &n); rows++) {
        Mem mem = { 0 };
        Json v;
        EXPECT(json_parse(&v, line, n, &mem, &err), "%s:%d: %s", path, rows + 1, err.msg);
        const Json *source = json_get(&v, "data_source"), *sol = json_get(&v, "solution_str");
        const Json *truth = json_get(&v, "ground_truth");
        const Json *acc = json_get(&v, "acc"), *pred = json_get(&v, "pred");
        const Reward *scorer = reward_find(source->str);
        EXPECT(scorer, "no scorer for %s", source->str);
        if (!scorer) continue;
        RewardSample s = sample(source->str, (Text){ sol->str, sol->n }, (Text){ truth->str, truth->n });
        reward_score(scorer, &s, &got);
        EXPECT(got.score == json_number(json_get(&v, "score")) && !got.failed, "%s:%d: scored %g", path, rows + 1,
               got.score);
        if (acc && !pred) EXPECT(got.acc == json_number(acc), "%s:%d: acc %g", path, rows + 1, got.acc);
        if (acc && pred) {
            Buf want = { 0 };
            buf_printf(&want, "\"acc\":%s,\"pred\":", acc->flag ? "true" : "false");
            json_put_value(&want, pred);
            EXPECT(got.extra.n == want.n && !memcmp(got.extra.data, want.data, want.n), "%s:%d: %s, not %s", path,
                   rows + 1, got.extra.data, want.data);
            EXPECT(got.acc == acc->flag, "%s:%d: acc %g", path, rows + 1, got.acc);
            buf_free(&want);
        }
        mem_free(&mem);
    }
    reward_result_free(&got);
    lines_close(r, &err);
    EXPECT(rows >= least, "%s has %d rows", path, rows);
}

static void names(void) {
    static const char *const rows[][2] = {
        { "openai/gsm8k", "gsm8k" },
        { "lighteval/MATH", "math_reward" },
        { "DigitalLearningGmbH/MATH-lighteval", "math_reward" },
        { "HuggingFaceH4/MATH-500", "math_reward" },
        { "math_dapo", "math_dapo" },
        { "math", "math_dapo" },
        { "math_dapo_reasoning", "math_dapo" },
        { "aime", "math_dapo" },
        { "aime_2024", "math_dapo" },
        { "gsm8k_flexible", "gsm8k_flexible" },
        { "aim", NULL },
        { "", NULL },
        { "openai/gsm8k ", NULL },
        { "GSM8K", NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const Reward *r = reward_find(rows[i][0]);
        EXPECT(rows[i][1] ? r && !strcmp(r->name, rows[i][1]) : !r, "'%s' is judged by %s", rows[i][0],
               r ? r->name : "nobody");
    }
    Err err = { 0 };
    const Reward *r;
    bool found = reward_need(&r, "my/data", &err);
    EXPECT(!found && strstr(err.msg, "my/data"), "%s", err.msg);
    EXPECT(strstr(err.msg, "openai/gsm8k") && strstr(err.msg, "gsm8k_flexible"), "%s", err.msg);
}

static void overlong(void) {
    EXPECT(reward_overlong(100, 1000, 200, 1) == 0, "short answers are not punished");
    EXPECT(reward_overlong(800, 1000, 200, 1) == 0, "the buffer begins behind 800");
    EXPECT(reward_overlong(900, 1000, 200, 1) == -0.5, "half way: %g", reward_overlong(900, 1000, 200, 1));
    EXPECT(reward_overlong(1000, 1000, 200, 0.25) == -0.25, "the end costs the factor");
    EXPECT(reward_overlong(1000, 1000, 0, 1) == 0, "no buffer, no punishment");
}

static void not_a_string(void) {
    RewardSample s = sample("openai/gsm8k", (Text){ "#### 5", 6 }, (Text){ "5", 1 });
    s.ground_truth_is_json = true;
    RewardResult got = { 0 };
    reward_score(reward_find(s.data_source), &s, &got);
    EXPECT(got.failed && got.score == 0 && strstr(got.reason, "string"), "a number as ground truth: %s", got.reason);
    static const struct {
        const char *scorer;
        double lowest;
    } rows[] = { { "gsm8k", 0 },
                 { "math_reward", 0 },
                 { "math_dapo", -1 },
                 { "math_dapo_boxed", -1 },
                 { "math_dapo_strict_box", -1 } };
    for (size_t i = 0; i < COUNT(rows); i++) { /* what cannot be judged earns no more than what is wrong */
        s.ground_truth_is_json = true;
        reward_score(reward_find(rows[i].scorer), &s, &got);
        double failed = got.score;
        EXPECT(got.failed && failed == rows[i].lowest, "%s: a failed score is %g", rows[i].scorer, failed);
        s.ground_truth_is_json = false, s.solution = "no idea", s.solution_n = 7;
        reward_score(reward_find(rows[i].scorer), &s, &got);
        EXPECT(!got.failed && got.score == failed, "%s: wrong is %g, failed %g", rows[i].scorer, got.score, failed);
    }
    reward_result_free(&got);
}

int main(void) {
    verdicts(FIXTURE("verl/rewards.jsonl"), 3324);
    verdicts(FIXTURE("verl/odd.jsonl"), 700);
    verdicts(FIXTURE("vision/geo3k_rewards.jsonl"), 209);
    names();
    overlong();
    not_a_string();
    return test_end();
}
