/* test_reward_python.c - a scorer of verl's shape in Python: 1,000 answers with failures, crashes and endless loops
 * among them, every kind of result, and files that cannot be loaded.  Skipped where there is no python3. */
#include "base/file.h"
#include "task/external.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

#define FILE_PY FIXTURE("scorers/verl_shape.py")

static RewardSample sample(const char *solution, const char *truth) {
    return (RewardSample){ .data_source = "own",
                           .solution = solution,
                           .solution_n = strlen(solution),
                           .ground_truth = truth,
                           .ground_truth_n = strlen(truth),
                           .extra_info = "{\"split\":\"train\"}",
                           .extra_info_n = 17 };
}

/* One answer by one function of the file. */
static RewardResult one(const char *function, const char *args, const char *solution, const char *truth) {
    Err err = { 0 };
    RewardResult r = { 0 };
    int64_t ticket;
    RewardOptions o = { .python = FILE_PY, .python_function = function, .python_args = args, .timeout_s = 2 };
    Rewards *p = rewards_open(&o, 1, &err);
    EXPECT(p, "%s", err.msg);
    if (!p) return r;
    RewardSample s = sample(solution, truth);
    EXPECT(rewards_submit(p, 1, &s, &err) && rewards_collect(p, &ticket, &r), "%s", err.msg);
    rewards_close(p);
    return r;
}

static const struct {
    const char *function, *args, *solution, *truth;
    double score;
    const char *reason, *extra;
} CASES[] = {
    { NULL, NULL, "5", "5", 1, NULL, NULL },
    { NULL, NULL, "5", "6", 0, NULL, NULL },
    { NULL, "{\"bonus\":0.5}", "5", "5", 1.5, NULL, NULL },
    { NULL, NULL, "list", "", 0.25, NULL, NULL },
    { NULL, NULL, "dict", "", 0.75, NULL, "\"extra\":{\"split\":\"train\"}" },
    { NULL, NULL, "raise", "", 0, "verl_shape.py:12: KeyError: 'no such thing'", NULL },
    { NULL, NULL, "nan", "", 0, "ValueError: the score is nan", NULL },
    { NULL, NULL, "die", "", 0, "exited with code 3", NULL },
    { NULL, NULL, "hang", "", 0, "did not answer within 2 s", NULL },
    { NULL, NULL, "sleep", "", 0, "did not answer within 2 s", NULL },
    { "compute_scores", NULL, "5", "5", 1, NULL, NULL },
    { "compute_scores", NULL, "raise", "", 0, "verl_shape.py:12: KeyError: 'no such thing'", NULL },
    { "compute_too_few", NULL, "5", "5", 0, "ValueError: 0 scores for 1 answers", NULL },
    { "compute_later", NULL, "5", "5", 1, NULL, NULL },
    { "compute_number", NULL, "5", "5", 1, NULL,
      "\"from\":[\"data_source\",\"extra_info\",\"ground_truth\"],\"number\":7" },
    /* what stands beside a score costs nobody the score */
    { "compute_beside", NULL, "not finite", "", 1, NULL, "\"acc\":0.5,\"beside\":[null,null,null,1.5]" },
    { "compute_beside", NULL, "keys", "", 1, NULL, "\"beside\":{\"(1, 2)\":\"a\",\"3\":\"b\",\"None\":\"c\"}" },
    { "compute_beside", NULL, "circle", "", 1, NULL, "\"beside\":[1,\"[1, [...]]\"]" },
    { "compute_beside", NULL, "deep", "", 1, NULL, "\"beside\":[[[" },
    { "compute_beside", NULL, "surrogate", "", 1, NULL, "\"beside\":\"a?b\"" },
    { "compute_beside", NULL, "mute", "", 1, NULL, "\"beside\":[\"<Mute>\",\"{1}\",\"b'x'\"]" },
    { "compute_beside", NULL, "long", "", 1, NULL, "\"beside\":\"<int>\"" },
    { "compute_beside", NULL, "long", "100", 1, NULL, "\"beside\":1267650600228229401496703205376" },
    { "compute_much", NULL, "one", "", 1, NULL, "\"acc\":0.5" },
    { "compute_much", NULL, "many", "", 1, NULL, "\"acc\":0.5" },
    /* text is UTF-8 both ways, whatever the locale (main sets one) */
    { "compute_beside", NULL, "caf\xc3\xa9", "caf\xc3\xa9", 1, NULL, "\"beside\":[\"caf\xc3\xa9\",4,true]" },
};

static void kinds(void) {
    for (size_t i = 0; i < COUNT(CASES); i++) {
        RewardResult r = one(CASES[i].function, CASES[i].args, CASES[i].solution, CASES[i].truth);
        EXPECT(r.failed == (CASES[i].reason != NULL) && r.score == CASES[i].score, "%s: %g, %s", CASES[i].solution,
               r.score, r.reason);
        EXPECT(!CASES[i].reason || strstr(r.reason, CASES[i].reason), "%s: %s", CASES[i].solution, r.reason);
        EXPECT(!CASES[i].extra || (r.extra.data && strstr(r.extra.data, CASES[i].extra)), "%s: %s", CASES[i].solution,
               r.extra.data ? r.extra.data : "");
        reward_result_free(&r);
    }
}

/* How many answers were judged in one call with this one. */
static int64_t together(const RewardResult *r) {
    const char *at = r->extra.n ? strstr(r->extra.data, "\"together\":") : NULL;
    return at ? strtoll(at + 11, NULL, 10) : 0;
}

/* A thousand answers; every hundredth breaks the scorer in its own way, and no other one suffers: not by a function of
 * one answer, not by one of many, whose calls it breaks for all of them. */
static void thousand(const char *function, int64_t restarts, int64_t most_together) {
    static const char *const BAD[] = { "raise", "die", "hang", "nan", "raise", "die", "raise", "nan", "die", "raise" };
    enum { ALL = 1000 };
    Err err = { 0 };
    RewardOptions o = { .python = FILE_PY, .python_function = function, .timeout_s = 3 };
    Rewards *p = rewards_open(&o, 2, &err);
    EXPECT(p, "%s", err.msg);
    if (!p) return;
    for (int64_t i = 0; i < ALL; i++) {
        RewardSample s = sample(i % 100 == 50 ? BAD[i / 100] : i % 2 ? "right" : "wrong", "right");
        EXPECT(rewards_submit(p, i, &s, &err), "%s", err.msg);
    }
    RewardResult r = { 0 };
    int64_t ticket, right = 0, wrong = 0, failed = 0, most = 0;
    while (rewards_collect(p, &ticket, &r)) {
        bool bad = ticket % 100 == 50;
        if (r.failed != bad || (!bad && r.score != (double)(ticket % 2)))
            EXPECT(false, "sample %lld: %g, %s", (long long)ticket, r.score, r.reason);
        if (together(&r) > most) most = together(&r);
        right += !r.failed && r.score == 1, wrong += !r.failed && r.score == 0, failed += r.failed;
    }
    RewardCounts c = rewards_counts(p);
    EXPECT(right == 500 && wrong == 490 && failed == 10, "%lld right, %lld wrong, %lld failed", (long long)right,
           (long long)wrong, (long long)failed);
    EXPECT(c.restarts <= restarts, "%lld restarts: only a crash and a hang cost a process", (long long)c.restarts);
    EXPECT(most == most_together, "%lld answers in one call, %lld are wanted", (long long)most,
           (long long)most_together);
    reward_result_free(&r);
    rewards_close(p);
}

static void write_scorer(const char *path, const char *score) {
    Buf b = { 0 };
    Err err = { 0 };
    buf_printf(&b,
               "# -*- coding: latin-1 -*-\nimport os\nword = 'caf\xe9'\ndef compute_score(solution_str):\n"
               "    if solution_str == 'die': os._exit(3)\n"
               "    if solution_str == 'raise': raise KeyError(len(word))\n    return %s\n",
               score);
    EXPECT(file_write(path, b.data, b.n, &err), "%s", err.msg);
    buf_free(&b);
}

/* A file that is edited while a run goes on judges nothing of it: a process that replaces another has the text that the
 * first one had; also one that is not UTF-8. */
static void edited(void) {
    static const char *const answers[] = { "a", "die", "b", "raise", "c" };
    char path[64];
    Err err = { 0 };
    snprintf(path, sizeof path, "/tmp/hone_scorer_%d.py", (int)getpid());
    write_scorer(path, "0.25");
    RewardOptions o = { .python = path, .timeout_s = 20 };
    Rewards *p = rewards_open(&o, 1, &err);
    EXPECT(p, "%s", err.msg);
    write_scorer(path, "0.75");
    RewardResult r = { 0 };
    int64_t ticket;
    for (size_t i = 0; p && i < COUNT(answers); i++) {
        RewardSample s = sample(answers[i], "");
        EXPECT(rewards_submit(p, 1, &s, &err) && rewards_collect(p, &ticket, &r), "%s", err.msg);
        bool fails = answers[i][1];
        EXPECT(r.failed == fails && r.score == (fails ? 0 : 0.25), "%s: %g, %s", answers[i], r.score, r.reason);
        if (i == 3) EXPECT(strstr(r.reason, ".py:6: KeyError: 4"), "%s", r.reason);
    }
    EXPECT(!p || rewards_counts(p).restarts == 1, "the process was not replaced");
    rewards_close(p);
    reward_result_free(&r);
    unlink(path);
}

/* What cannot be loaded is said when the pool is opened. */
static void unusable(void) {
    static const struct {
        const char *file, *function, *why;
    } WRONG[] = {
        { FIXTURE("scorers/broken.py"), NULL, "broken.py:1: SyntaxError" },
        { FIXTURE("scorers/no_such.py"), NULL, "no_such.py: cannot open" },
        { FILE_PY, "no_such_function",
          "LookupError: there is no function no_such_function; there are compute_score, compute_scores, " },
        { FILE_PY, "own_names", "TypeError: own_names wants 'answer'; it is given data_source, solution_str, " },
    };
    for (size_t i = 0; i < COUNT(WRONG); i++) {
        Err err = { 0 };
        RewardOptions o = { .python = WRONG[i].file, .python_function = WRONG[i].function };
        Rewards *p = rewards_open(&o, 2, &err);
        EXPECT(!p && strstr(err.msg, WRONG[i].why), "%s: %s", WRONG[i].file, p ? "is opened" : err.msg);
        rewards_close(p);
    }
}

int main(void) {
    if (system("python3 -c pass >/dev/null 2>&1")) SKIP("there is no python3");
    else {
        setenv("PYTHONIOENCODING", "latin-1", 1);
        kinds();
        unsetenv("PYTHONIOENCODING");
        edited();
        thousand("compute_score", 4, 0);
        thousand("compute_scores", 8, 64); /* once in its call, once alone */
        unusable();
    }
    return test_end();
}
