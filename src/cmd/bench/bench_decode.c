/* bench_decode.c - `hone bench decode`: the engine draws answers to prompts that fill the context, all
 * different; steps in which every sequence draws a token and none is prefilled are timed.  The roof: what
 * such a step must read, at the speed of a long copy. */
#include "base/clock.h"
#include "cmd/bench/bench.h"
#include "engine/engine.h"

#include <math.h>

enum { PAGE = 64, MOST_STEPS = 4096 };

typedef struct {
    Bench *b;
    SampleOpts opts;
    int32_t *tokens; /* [batch][prompt] */
    int batch, prompt, next;
    double at[MOST_STEPS], seconds[MOST_STEPS];
    int64_t had[MOST_STEPS];
    int steps;
    double first; /* when the first token of the last answer came */
} Work;

static bool next(void *user, Request *out) {
    Work *w = user;
    if (w->next == w->batch) return false;
    int32_t *t = w->tokens + (int64_t)w->next * w->prompt;
    *out = (Request){ .tokens = t, .n = w->prompt, .samples = 1, .key = (uint64_t)w->next++, .opts = &w->opts };
    return true;
}
static void answer(void *user, const Answer *a) { (void)user, (void)a; }
static bool tick(void *user, int64_t tokens, int running) {
    Work *w = user;
    (void)running;
    if (w->steps < MOST_STEPS) w->at[w->steps] = clock_now(), w->had[w->steps++] = tokens;
    return true;
}

/* Bytes that a step reads at least: weights that its tokens touch (experts: as many as fair
 * dice would), keys and values. */
static double step_bytes(const Opened *o, int batch, double context, size_t page_bytes) {
    const Dims *d = &o->desc.d;
    double all = (double)params_bytes(&o->desc, NULL, o->model.w.at[0].t.dtype, false),
           each = dtype_size(o->model.w.at[0].t.dtype);
    double embed = d->own_head ? (double)(d->vocab * d->hidden) * each : 0, untouched = 0;
    for (int64_t l = 0; l < d->layers; l++) {
        if (!dims_moe(d, l)) continue;
        double missed = 1;
        for (int i = 0; i < batch; i++) missed *= 1 - (double)d->topk / (double)d->experts;
        untouched += missed * (double)d->experts * 3 * (double)(d->hidden * d->expert_ffn) * each;
    }
    return all - embed - untouched + (double)page_bytes / PAGE * context * batch;
}

bool bench_decode(Bench *b, Err *err) {
    const BenchArgs *a = b->a;
    Opened *o = &b->o;
    int batch = (int)a->batch, answers = (int)a->answer, prompt = (int)a->context - answers / 2;
    if (prompt < 1)
        return err_set(err, "--context %lld is no longer than half an answer of %d", (long long)a->context, answers);
    int len = prompt + answers, each = (len + PAGE) / PAGE;
    EngineConf c = engine_conf(batch, len, a->tokens, PAGE);
    c.sched.max_seqs = batch, c.sched.pages = each * batch + 1;
    DevKind like = open_kind(o, a->leaves);
    size_t page = cache_page_bytes(&o->desc, NULL, PAGE, like);
    TRY(bench_weights(b, engine_tmp_bytes(&o->desc, &c, like),
                      (size_t)c.sched.pages * page + engine_sizes(&o->desc, &c, like).lists, err));
    Roof roof = bench_roof(b);
    Engine *e = engine_open(&o->model, &c, &o->mem);
    Work *w = MEM_NEW(&o->mem, Work);
    *w = (Work){ .b = b,
                 .batch = batch,
                 .prompt = prompt,
                 .opts = { .draw = DRAW_PLAIN, .ignore_eos = true, .max_tokens = answers } };
    w->tokens = MEM_ARRAY(&o->mem, int32_t, (size_t)batch * (size_t)prompt);
    uint32_t x = 1;
    for (int64_t i = 0; i < (int64_t)batch * prompt; i++)
        x = x * 1664525u + 1013904223u, w->tokens[i] = (int32_t)((x >> 8) % (uint32_t)o->desc.d.vocab);
    Feed f = { .next = next, .answer = answer, .tick = tick, .user = w, .seed = 1 };
    double t0 = clock_now();
    if (b->profile) profile_clear(&o->dev);
    EngineStats st = engine_run(e, &f);
    int n = 0, first = 0;
    for (int i = 1; i < w->steps; i++) {
        if (w->had[i] - w->had[i - 1] != batch) continue;
        if (!first) first = i;
        w->seconds[n++] = w->at[i] - w->at[i - 1];
    }
    engine_close(e);
    put_int(b, "batch", batch);
    put_int(b, "context", a->context);
    put_int(b, "steps", n);
    put_num(b, "prefill_tokens_per_s", first ? (double)st.prompt_tokens / (w->at[first - 1] - t0) : NAN);
    if (n < 3) return err_set(err, "only %d steps had all %d sequences: make --answer longer", n, batch);
    Times t = bench_times(w->seconds, n);
    double bytes = step_bytes(o, batch, (double)a->context, page);
    put_num(b, "seconds", t.median);
    put_num(b, "least", t.least);
    put_num(b, "tokens_per_s", batch / t.median);
    put_num(b, "roof_bytes", bytes);
    put_num(b, "roof_tokens_per_s", batch / (bytes / roof.bytes));
    put_num(b, "of_roof", bytes / roof.bytes / t.median);
    return put_profile(b, 1, err);
}
