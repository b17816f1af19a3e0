/* reward.c - which scorer judges which data_source: the table, and what is common to all of them. */
#include "task/reward.h"

#include "task/score.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const Reward scorers[] = {
    { "gsm8k",                "the number behind the last \"#### \", letter by letter: 1 or 0",       0, score_gsm8k },
    { "gsm8k_flexible",
      "the last number anywhere, letter by letter: 1 or 0",                   0, score_gsm8k_flexible },
    { "math_reward",
      "the last \\boxed{}, MATH's string normalisation: 1 or 0",              0, score_math_reward },
    { "math_dapo",
      "the last \"Answer:\" line, Minerva's string normalisation: 1 or -1",  -1, score_math_dapo },
    { "math_dapo_boxed",
      "math_dapo; without such a line, the last \\boxed{}: 1 or -1",         -1, score_math_dapo_boxed },
    { "math_dapo_strict_box",
      "the \\boxed{} in the last 100 characters, letter by letter: 1 or -1", -1, score_math_dapo_strict_box },
    { "geo3k",
      "geometry3k: 0.9 for the answer in the last \\boxed{}, 0.1 for <think> before it", 0, score_geo3k },
    { "math_exact",
      "the marked final answer, as mathematics, by exact arithmetic: 1 or 0",  0, score_math_exact },
    { "math_exact_flexible",
      "math_exact; where nothing is marked, the last number: 1 or 0",         0, score_math_exact_flexible },
};

/* verl's names.  One that ends with '*' stands for all that begin so. */
static const struct { const char *source, *scorer; } sources[] = {
    { "openai/gsm8k",                       "gsm8k" },
    { "lighteval/MATH",                     "math_reward" },
    { "DigitalLearningGmbH/MATH-lighteval", "math_reward" },
    { "HuggingFaceH4/MATH-500",             "math_reward" },
    { "math_dapo",                          "math_dapo" },
    { "math",                               "math_dapo" },
    { "math_dapo_reasoning",                "math_dapo" },
    { "hiyouga/geometry3k",                 "geo3k" },
    { "aime*",                              "math_dapo" },
};
/* clang-format on */

const Reward *reward_at(size_t i) { return i < COUNT(scorers) ? &scorers[i] : NULL; }

static const Reward *by_name(const char *name) {
    for (size_t i = 0; i < COUNT(scorers); i++)
        if (!strcmp(scorers[i].name, name)) return &scorers[i];
    return NULL;
}

const Reward *reward_find(const char *source) {
    for (size_t i = 0; i < COUNT(sources); i++) {
        const char *name = sources[i].source;
        size_t n = strlen(name);
        if (name[n - 1] == '*' ? !strncmp(name, source, n - 1) : !strcmp(name, source))
            return by_name(sources[i].scorer);
    }
    return by_name(source);
}

void reward_sources(Buf *out, const Reward *r) {
    const char *comma = "";
    for (size_t i = 0; i < COUNT(sources); i++) {
        if (r && strcmp(sources[i].scorer, r->name)) continue;
        buf_printf(out, "%s%s", comma, sources[i].source);
        comma = ", ";
    }
    for (size_t i = 0; !r && i < COUNT(scorers); i++)
        if (strcmp(scorers[i].name, "math_dapo")) buf_printf(out, ", %s", scorers[i].name);
}

bool reward_need(const Reward **out, const char *source, Err *err) {
    *out = reward_find(source);
    if (*out) return true;
    Buf known = { 0 };
    reward_sources(&known, NULL);
    err_set(err, "there is no scorer for data_source '%.80s'; known are %s; or bring your own", source, known.data);
    buf_free(&known);
    return false;
}

void reward_result_free(RewardResult *r) { buf_free(&r->extra); }

void reward_fail(RewardResult *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->reason, sizeof r->reason, fmt, ap);
    va_end(ap);
    r->failed = true;
    r->score = 0;
    r->acc = NAN;
    buf_clear(&r->extra);
}

void reward_score(const Reward *r, const RewardSample *s, RewardResult *out) {
    buf_clear(&out->extra);
    out->score = 0;
    out->failed = out->told = false;
    out->acc = NAN;
    out->vote = 0;
    out->reason[0] = 0;
    r->score(s, out);
    if (out->failed) out->score = r->lowest;
}

double reward_overlong(int64_t tokens, int64_t max_tokens, int64_t buffer, double factor) {
    int64_t over = tokens - (max_tokens - buffer);
    if (buffer <= 0 || over <= 0) return 0;
    return -(double)over / (double)buffer * factor;
}
