/* test_sampling.c - the tokens drawn follow the distribution that was asked for (chi-square,
 * each option), and the rules about when an answer may end and must end.
 *
 * A head of 24 rows over hidden size 24 whose weights are the unit matrix: the logits are the hidden row itself. */
#include "op/op.h"
#include "engine/engine_fixture.h"

#include <math.h>

enum { WORDS = 24, ROWS = 500 };

static const float logits[WORDS] = { 1.5f, 0.2f, -1,    2.1f, 0.9f, 0.9f,  -2.5f, 0,     1.1f, -0.4f, 2.0f, -3,
                                     0.5f, 0.7f, -1.2f, 1.9f, 0.3f, -0.1f, 0.6f,  -0.8f, 1.2f, -0.6f, 0.1f, 1.7f };

typedef struct {
    const char *name;
    Drawing draw;
    bool ban;
} Option;
static const Option options[] = {
    { "plain", { 1, 1, 0, 0 }, false },
    { "temperature 0.5", { 0.5f, 1, 0, 0 }, false },
    { "temperature 2.5", { 2.5f, 1, 0, 0 }, false },
    { "top-k 6", { 1, 1, 0, 6 }, false },
    { "top-p 0.7", { 1, 0.7f, 0, 0 }, false },
    { "min-p 0.2", { 1, 1, 0.2f, 0 }, false },
    { "all of them", { 1.3f, 0.9f, 0.05f, 12 }, false },
    { "banned ids", { 1, 1, 0, 0 }, true },
    { "banned ids, top-k 5", { 0.8f, 1, 0, 5 }, true },
};
static const int32_t banned[] = { 3, 10, 0 };

/* The distribution by its definition: temperature, then top-k, then top-p among those, then min-p. */
static void expected(double *p, const Option *o) {
    double most = -INFINITY, sum = 0;
    int order[WORDS];
    for (int i = 0; i < WORDS; i++) {
        p[i] = logits[i] / o->draw.temperature;
        for (size_t b = 0; o->ban && b < COUNT(banned); b++)
            if (banned[b] == i) p[i] = -INFINITY;
        most = fmax(most, p[i]);
        order[i] = i;
    }
    for (int i = 0; i < WORDS; i++) p[i] = exp(p[i] - most), sum += p[i];
    for (int i = 0; i < WORDS; i++)
        for (int k = i + 1; k < WORDS; k++)
            if (p[order[k]] > p[order[i]]
                || (p[order[k]] == p[order[i]] && order[k] < order[i])) { /* of equals the lower id */
                int t = order[i];
                order[i] = order[k], order[k] = t;
            }
    int keep = o->draw.top_k > 0 && o->draw.top_k < WORDS ? o->draw.top_k : WORDS;
    double kept = 0, mass = 0;
    for (int i = 0; i < keep; i++) kept += p[order[i]];
    if (o->draw.top_p < 1) {
        int n = 0;
        while (n < keep && mass < (double)o->draw.top_p * kept) mass += p[order[n++]];
        keep = n;
    }
    sum = 0;
    for (int i = 0; i < WORDS; i++) {
        int id = order[i];
        if (i >= keep || p[id] < (double)o->draw.min_p) p[id] = 0; /* the likeliest has p = 1 here */
        sum += p[id];
    }
    for (int i = 0; i < WORDS; i++) p[i] /= sum;
}

/* Upper 1e-5 quantile of chi-square (Wilson and Hilferty, 1931). */
static double chi_limit(int dof) {
    double z = 4.265, a = 2.0 / (9 * dof);
    return dof * pow(1 - a + z * sqrt(a), 3);
}

static void fits(const Option *o, int samples) {
    Dev d;
    dev_open(&d, (DevOpts){ .threads = 2, .guard = true });
    d.tmp = dev_arena(&d, "tmp", (size_t)1 << 20);
    Arena a = dev_arena(&d, "io", (size_t)1 << 20);
    float h[ROWS][WORDS], w[WORDS][WORDS] = { { 0 } }, f[3][ROWS], lp[ROWS], ent[ROWS];
    int32_t k[ROWS], ones[ROWS], id[ROWS];
    int64_t bits[ROWS];
    for (int i = 0; i < WORDS; i++) w[i][i] = 1;
    for (int r = 0; r < ROWS; r++) {
        memcpy(h[r], logits, sizeof logits);
        f[0][r] = 1 / o->draw.temperature, f[1][r] = o->draw.top_p, f[2][r] = o->draw.min_p, k[r] = o->draw.top_k,
        ones[r] = 1;
    }
    Sample s = { .h = tensor_push(&a, DT_F32, ROWS, WORDS),
                 .w = tensor_push(&a, DT_F32, WORDS, WORDS),
                 .random = tensor_push(&a, DT_I64, ROWS, 1) };
    s.id = tensor_push(&a, DT_I32, ROWS, 1), s.lp = tensor_push(&a, DT_F32, ROWS, 1),
    s.ent = tensor_push(&a, DT_F32, ROWS, 1);
    s.dist = (Dist){ tensor_push(&a, DT_F32, ROWS, 1), tensor_push(&a, DT_I32, ROWS, 1),
                     tensor_push(&a, DT_F32, ROWS, 1), tensor_push(&a, DT_F32, ROWS, 1) };
    op_put(&d, s.h, h), op_put(&d, s.w, w);
    op_put(&d, s.dist.inv_temp, f[0]), op_put(&d, s.dist.top_p, f[1]), op_put(&d, s.dist.min_p, f[2]),
        op_put(&d, s.dist.top_k, k);
    if (o->ban) {
        s.banned = tensor_push(&a, DT_I32, COUNT(banned), 1), s.ban = tensor_push(&a, DT_I32, ROWS, 1);
        op_put(&d, s.banned, banned), op_put(&d, s.ban, ones);
    }
    double p[WORDS], chi = 0, entropy = 0;
    int seen[WORDS] = { 0 }, outside = 0, dof = -1, wrong = 0;
    expected(p, o);
    for (int i = 0; i < WORDS; i++) entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    for (int n = 0; n < samples; n += ROWS) {
        for (int r = 0; r < ROWS; r++)
            bits[r] = (int64_t)rng_u64(99, RNG_SAMPLE, 0, 0, (uint32_t)(o - options), (uint32_t)(n + r));
        op_put(&d, s.random, bits);
        op_sample(&d, &s);
        op_get(&d, id, s.id), op_get(&d, lp, s.lp), op_get(&d, ent, s.ent);
        for (int r = 0; r < ROWS; r++) {
            seen[id[r]]++;
            outside += p[id[r]] == 0;
            wrong +=
                p[id[r]] > 0 && (fabs((double)lp[r] - log(p[id[r]])) > 1e-5 || fabs((double)ent[r] - entropy) > 1e-5);
        }
    }
    for (int i = 0; i < WORDS; i++)
        if (p[i] > 0) chi += pow(seen[i] - samples * p[i], 2) / (samples * p[i]), dof++;
    EXPECT(!outside, "%s: %d of %d samples are outside the kept set", o->name, outside, samples);
    EXPECT(chi < chi_limit(dof), "%s: chi-square %.1f with %d degrees of freedom, at most %.1f", o->name, chi, dof,
           chi_limit(dof));
    EXPECT(!wrong, "%s: %d of %d log-probs or entropies are wrong", o->name, wrong, samples);
    dev_close(&d);
}

/* ---- when an answer ends: the awkward qwen2, told that many of its ids end a text, so that answers are short */
typedef struct {
    int min, max, n, early, late, stopped, cut, n_stop;
    const int32_t *stop;
    bool ignore;
    int64_t budget, tokens, answers;
    int sent, of;
    SampleOpts opts;
    int32_t prompt[6];
    ModelDesc *desc;
} Ends;

static bool ends_next(void *user, Request *out) {
    Ends *e = user;
    if (e->sent == e->of) return false;
    *out = (Request){ e->prompt, 6, 4, (uint64_t)e->sent++, &e->opts, NULL };
    return true;
}

static bool is_end(const Ends *e, int32_t id) {
    for (int64_t i = 0; i < e->desc->d.special.n_eos && !e->ignore; i++)
        if (e->desc->d.special.eos[i] == id) return true;
    for (int i = 0; i < e->n_stop; i++)
        if (e->stop[i] == id) return true;
    return false;
}

static void ends_answer(void *user, const Answer *a) {
    Ends *e = user;
    e->answers++, e->tokens += a->n;
    for (int i = 0; i + 1 < a->n; i++) e->early += is_end(e, a->tokens[i]); /* nothing behind a stop token */
    bool end = a->n && is_end(e, a->tokens[a->n - 1]);
    e->early += end && a->n <= e->min;
    e->late += a->n > e->max;
    e->late += a->finish == FINISH_STOP ? !end : a->finish == FINISH_LENGTH ? a->n != e->max || end : 0;
    e->stopped += a->finish == FINISH_STOP, e->cut += a->finish == FINISH_BUDGET;
}

static void ends(const char *what, Ends e) {
    Fixture f;
    Shape s = { what, 1, 16, 60, 16, 16, 64, TOGETHER };
    EngineConf c = shape_conf(&s);
    fixture_load(&f, NULL, 2, 1, 300, false, RECOMPUTE_NONE);
    unguarded(&f);
    f.desc.d.special.n_eos = 4;
    for (int i = 0; i < 4; i++) f.desc.d.special.eos[i] = 60 * i + 7;
    engine_room(&f, &s);
    for (int i = 0; i < 6; i++) e.prompt[i] = 11 * i + 2;
    e.of = 60, e.desc = &f.desc;
    e.opts = (SampleOpts){ .draw = { 3, 1, 0, 0 },
                           .ignore_eos = e.ignore,
                           .max_tokens = e.max,
                           .min_tokens = e.min,
                           .stop_ids = e.stop,
                           .n_stop_ids = e.n_stop };
    Engine *eng = engine_open(&f.model, &c, &f.mem);
    Feed feed = { ends_next, NULL, ends_answer, NULL, &e, 1, 0, e.budget };
    engine_run(eng, &feed);
    EXPECT(e.answers == 240, "%s: %d of 240 answers", what, (int)e.answers);
    EXPECT(!e.early, "%s: %d stop tokens where none may be", what, e.early);
    EXPECT(!e.late, "%s: %d answers do not end as they say", what, e.late);
    EXPECT((e.cut > 0) == (e.budget > 0), "%s: %d answers were cut", what, e.cut);
    EXPECT(!e.budget || (e.tokens >= e.budget && e.tokens < e.budget + 16), "%s: %d tokens, the budget is %d", what,
           (int)e.tokens, (int)e.budget);
    EXPECT(e.ignore ? e.stopped == 0 || e.n_stop : e.stopped > 0, "%s: %d answers stopped", what, e.stopped);
    engine_close(eng);
    fixture_close(&f);
}

int main(void) {
    for (size_t i = 0; i < COUNT(options); i++) fits(&options[i], 100000);
    static int32_t stops[40];
    for (int i = 0; i < 40; i++) stops[i] = 6 * i;
    ends("end tokens", (Ends){ .max = 40 });
    ends("min_tokens", (Ends){ .max = 40, .min = 9 });
    ends("stop ids", (Ends){ .max = 40, .stop = stops, .n_stop = 40 });
    ends("stop ids, min_tokens", (Ends){ .max = 40, .min = 12, .stop = stops, .n_stop = 40 });
    ends("ignore_eos", (Ends){ .max = 12, .ignore = true });
    ends("ignore_eos with stop ids", (Ends){ .max = 30, .ignore = true, .stop = stops, .n_stop = 40 });
    ends("a token budget", (Ends){ .max = 40, .budget = 300 });
    return test_end();
}
