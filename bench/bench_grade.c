/* bench_grade.c - answers judged a second, on one core (its processor time) and through the pool (by the clock).  Run
 * from the repository root.  The answers are those of the fixtures: verl's (GSM8K solutions of some 300 bytes,
 * MATH-style boxes), and the pairs of math_exact, each in a solution of 600 bytes, hard ones included. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "task/score.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    Mem mem;
    VEC(RewardSample)
    at;
} Samples;

static RewardSample sample(const char *source, Span solution, Span truth) {
    return (RewardSample){ .data_source = source,
                           .solution = solution.at,
                           .solution_n = solution.n, //
                           .ground_truth = truth.at,
                           .ground_truth_n = truth.n };
}

static void load_verl(Samples *s, const char *source) {
    Err err;
    LineReader *r = lines_open("tests/data/verl/rewards.jsonl", &err);
    CHECK(r, "%s", err.msg);
    const char *line;
    size_t n;
    while (lines_next(r, &line, &n)) {
        Json v;
        CHECK(json_parse(&v, line, n, &s->mem, &err), "%s", err.msg);
        const Json *sol = json_get(&v, "solution_str"), *truth = json_get(&v, "ground_truth");
        if (json_is_str(json_get(&v, "data_source"), source))
            VEC_PUSH(s->at, sample(source, (Span){ sol->str, sol->n }, (Span){ truth->str, truth->n }));
    }
    lines_close(r, &err);
}

static void load_pairs(Samples *s) {
    Err err;
    LineReader *r = lines_open("tests/data/math_exact/pairs.tsv", &err);
    CHECK(r, "%s", err.msg);
    const char *line;
    size_t n;
    while (lines_next(r, &line, &n)) {
        char *at = mem_str(&s->mem, line, n), *save = NULL;
        if (at[0] == '#' || !strtok_r(at, "\t", &save)) continue;
        const char *a = strtok_r(NULL, "\t", &save), *b = strtok_r(NULL, "\t", &save);
        if (!a || !b) continue;
        char *text = mem_push(&s->mem, 700 + strlen(a));
        memset(text, 'w', 600);
        for (int i = 6; i < 600; i += 7) text[i] = ' ';
        sprintf(text + 600, " so the answer is $\\boxed{%s}$.", a);
        VEC_PUSH(s->at, sample("math_exact", span_of(text), span_of(b)));
    }
    lines_close(r, &err);
}

/* Of this thread alone: what a busy machine does beside it does not count. */
static double cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void one_core(const Samples *s, const char *scorer) {
    const Reward *r = reward_find(scorer);
    RewardResult res = { 0 };
    double start = cpu_now(), took = 0, right = 0;
    int64_t n = 0;
    while ((took = cpu_now() - start) < 1)
        for (size_t i = 0; i < s->at.n; i++, n++) {
            reward_score(r, &s->at.at[i], &res);
            right += res.score > 0;
        }
    printf("%-16s one core   %10.0f answers/s   (%zu different ones, %.0f %% right)\n", r->name, (double)n / took,
           s->at.n, 100 * right / (double)n);
    reward_result_free(&res);
}

static void pool(const Samples *s, int threads) {
    Err err;
    Rewards *p = rewards_open(&(RewardOptions){ 0 }, threads, &err);
    RewardResult res = { 0 };
    int64_t n = 0, ticket;
    double start = clock_now(), took = 0;
    while ((took = clock_now() - start) < 1) {
        for (size_t i = 0; i < s->at.n; i++, n++)
            CHECK(rewards_submit(p, (int64_t)i, &s->at.at[i], &err), "%s", err.msg);
        while (rewards_collect(p, &ticket, &res)) continue;
    }
    printf("%-16s pool of %d  %10.0f answers/s\n", s->at.at[0].data_source, threads, (double)n / took);
    reward_result_free(&res);
    rewards_close(p);
}

int main(void) {
    static const char *const sources[] = { "openai/gsm8k", "lighteval/MATH", "math_dapo" };
    for (size_t i = 0; i < COUNT(sources); i++) {
        Samples s = { 0 };
        load_verl(&s, sources[i]);
        one_core(&s, sources[i]);
        if (i == 1) one_core(&s, "math_exact");
        vec_free(s.at.at);
        mem_free(&s.mem);
    }
    Samples s = { 0 };
    load_pairs(&s);
    one_core(&s, "math_exact");
    pool(&s, 1);
    pool(&s, 2);
    vec_free(s.at.at);
    mem_free(&s.mem);
    return 0;
}
