/* evaluate.c - k answers to each question of a set, scored; means with their intervals. */
#include "step/evaluate.h"
#include "base/clock.h"

#include <math.h>

int evaluator_block(int64_t questions) { return questions < 1 ? 1 : questions < 256 ? (int)questions : 256; }

void evaluator_open(Evaluator *e, int64_t questions, int k, int max_prompt, int max_answer, Mem *mem) {
    *e = (Evaluator){ .max_questions = questions };
    rollouts_open(&e->roll, evaluator_block(questions), k, max_prompt, max_answer, mem);
    e->score = MEM_ARRAY(mem, double, 5 * (size_t)questions);
    e->acc = e->score + questions, e->passed = e->acc + questions, e->majority = e->passed + questions;
    e->pass = e->majority + questions;
}

/* Mean with a 95 % interval: Wilson's where every value is 0 or 1 (it stays inside [0, 1], and none right of 32 is not
 * taken for "certainly none"), else by the normal approximation, cut to [0, 1] where all values lie there. */
static Estimate estimate(const double *x, int64_t n) {
    const double z = 1.96, m = (double)n;
    double sum = 0, sq = 0;
    bool verdicts = true, shares = true;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        verdicts = verdicts && (x[i] == 0 || x[i] == 1);
        shares = shares && x[i] >= 0 && x[i] <= 1;
    }
    double mean = sum / m;
    for (int64_t i = 0; i < n; i++) sq += (x[i] - mean) * (x[i] - mean);
    if (verdicts) {
        double share = 1 / (1 + z * z / m), middle = share * (mean + z * z / (2 * m));
        double half = share * z * sqrt(mean * (1 - mean) / m + z * z / (4 * m * m));
        return (Estimate){ mean, fmax(0, middle - half), fmin(1, middle + half) };
    }
    double half = n > 1 ? z * sqrt(sq / (m - 1) / m) : 0;
    if (shares) return (Estimate){ mean, fmax(0, mean - half), fmin(1, mean + half) };
    return (Estimate){ mean, mean - half, mean + half };
}

static bool right(const Rollout *a) { return isnan(a->acc) ? a->score > 0 : a->acc >= 1; }

typedef struct {
    bool maj, acc;
    int64_t failed, broken, tokens;
} Seen;

static void question(Evaluator *e, int64_t q, const Rollout *a, int k, Seen *seen) {
    double score = 0, acc = 0;
    int passed = 0;
    for (int i = 0; i < k; i++) {
        score += a[i].score;
        acc += isnan(a[i].acc) ? 0 : a[i].acc;
        passed += right(&a[i]);
        seen->maj = seen->maj && (a[i].pred || a[i].failed);
        seen->acc = seen->acc && (!isnan(a[i].acc) || a[i].failed);
        seen->failed += a[i].failed;
        seen->broken += a[i].finish == FINISH_BROKEN;
        seen->tokens += answer_n(&a[i]);
    }
    e->score[q] = score / k;
    e->acc[q] = acc / k;
    e->passed[q] = passed;
    e->majority[q] = a[rollout_majority(a, k)].score;
}

/* Of n answers c are right: the share of the choices of k among them that hold a right one. */
static double pass_share(int n, int c, int k) {
    double none = 1;
    for (int i = 0; i < k; i++) none *= n - c - i > 0 ? (double)(n - c - i) / (n - i) : 0;
    return 1 - none;
}

static void pass_at(EvalResult *out, Evaluator *e, int64_t questions, int n) {
    for (int k = 1;; k = 2 * k < n ? 2 * k : n) {
        for (int64_t q = 0; q < questions; q++) e->pass[q] = pass_share(n, (int)e->passed[q], k);
        out->pass_at[out->n_pass].k = k;
        out->pass_at[out->n_pass++].e = out->pass = estimate(e->pass, questions);
        if (k == n) return;
    }
}

static bool add_prompts(Evaluator *e, const EvalRun *run, int64_t from, TokIds *ids, Err *err) {
    Rollouts *r = &e->roll;
    rollouts_clear(r);
    for (int64_t i = from; i < dataset_n(run->data) && r->n_prompts < r->max_prompts; i++) {
        const DataRow *row = dataset_row(run->data, i);
        ids->n = 0;
        Spans pics;
        Mem pixels = { 0 };
        if (!prompter_encode_images(run->prompter, 0, row, ids, &pics, &pixels, err))
            return mem_free(&pixels),
                   err_wrap(err, "%s, row %lld", dataset_file(run->data, row->file), (long long)row->row);
        bool cuts = run->long_prompts >= DATA_LONG_LEFT;
        if ((int)ids->n > run->max_prompt && cuts && !pics.n)
            ids->n = (size_t)data_cut(ids->at, (int64_t)ids->n, run->max_prompt, run->long_prompts);
        if ((int)ids->n > run->max_prompt)
            return mem_free(&pixels),
                   err_set(err, "%s, row %lld: the prompt has %zu tokens, at most %d are allowed here",
                           dataset_file(run->data, row->file), (long long)row->row, ids->n, run->max_prompt);
        Prompt *p = rollouts_add(r, row, i, ids->at, (int)ids->n);
        p->spans = pics, p->pixels = pixels;
    }
    return true;
}

bool evaluate(EvalResult *out, Evaluator *e, const EvalRun *run, Err *err) {
    double t0 = clock_now();
    Seen seen = { .maj = true, .acc = true };
    TokIds ids = { 0 };
    int64_t done = 0, n = dataset_n(run->data);
    int k = e->roll.samples;
    bool ok = n > 0 || err_set(err, "there are no questions to evaluate on");
    bool cut = false;
    while (ok && done < n && !cut) {
        EngineStats st;
        double wait;
        ok = add_prompts(e, run, done, &ids, err) && rollouts_run(&e->roll, 0, &run->run, &st, &wait, err);
        for (int p = 0; ok && p < e->roll.n_prompts; p++) question(e, done++, &e->roll.at[p * k], k, &seen);
        if (ok && run->each) run->each(run->user, &e->roll);
        cut = !rollouts_wanted(&run->run);
    }
    vec_free(ids.at);
    TRY(ok);
    if (cut) return *out = (EvalResult){ .cut = true }, true;
    *out = (EvalResult){ .questions = n,
                         .answers = n * k,
                         .k = k,
                         .failed = seen.failed,
                         .broken = seen.broken,
                         .has_maj = seen.maj,
                         .has_acc = seen.acc };
    out->mean = estimate(e->score, n);
    pass_at(out, e, n, k);
    out->maj = estimate(e->majority, n), out->acc = estimate(e->acc, n);
    out->length = (double)seen.tokens / (double)(n * k);
    out->seconds = clock_now() - t0;
    return true;
}
