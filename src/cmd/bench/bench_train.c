/* bench_train.c - `hone bench train-slice` and `logprob`: a mini-batch of equal sequences through the
 * trainer's own loop of micro-batches: packing, forward, loss, backward, gradients added; no norm, no
 * optimizer.  Or forward alone: log-probs and entropies. */
#include "base/clock.h"
#include "cmd/bench/bench.h"
#include "train/policy.h"

#include <string.h>

TrainSeq *bench_seqs(int n, int len, int64_t vocab, Mem *mem) {
    int32_t *tokens = MEM_ARRAY(mem, int32_t, (size_t)n * (size_t)len);
    float *zero = MEM_ARRAY(mem, float, (size_t)len), *one = MEM_ARRAY(mem, float, (size_t)len);
    TrainSeq *s = MEM_ARRAY(mem, TrainSeq, (size_t)n);
    uint32_t x = 1;
    for (int64_t i = 0; i < (int64_t)n * len; i++)
        x = x * 1664525u + 1013904223u, tokens[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
    for (int i = 0; i < len; i++) one[i] = 1;
    for (int i = 0; i < n; i++)
        s[i] = (TrainSeq){ .tokens = tokens + (size_t)i * (size_t)len,
                           .n = len,
                           .prompt = 1,
                           .draw = DRAW_PLAIN,
                           .old = zero,
                           .adv = one };
    return s;
}

static bool recompute_of(Recompute *out, const char *text, Err *err) {
    static const char *const name[] = { "none", "selective", "full" };
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, name[i])) return *out = (Recompute)i, true;
    return err_set(err, "--recompute '%s': none, selective or full wanted", text);
}

typedef struct {
    Policy policy;
    TrainSeq *seqs;
    int n;
    float **lp, **ent;
    UpdateStats st;
} Work;

static bool once(Work *w, bool trains, Err *err) {
    LossConf loss = { .kind = LOSS_GPG, .agg = AGG_TOKEN_MEAN };
    return trains ? policy_grads(&w->policy, w->seqs, w->n, &loss, &w->st, err)
                  : policy_logprob(&w->policy, w->seqs, w->n, w->lp, w->ent, err);
}

static void report(Bench *b, const Work *w, bool trains, Times t, Roof roof) {
    const BenchArgs *a = b->a;
    int64_t len = a->length;
    double flops = 0, tokens = (double)(w->n * len);
    for (int i = 0; i < w->n; i++) flops += (trains ? flops_train : flops_forward)(&w->policy.flops, &len, 1, len - 1);
    put_int(b, "tokens", w->n * len);
    put_int(b, "length", len);
    if (trains)
        put_text(b, "recompute", a->recompute),
            put_text(b, "logits", model_keeps_logits(w->policy.m) ? "kept" : "made again"),
            put_num(b, "loss", w->st.total), put_int(b, "micro_batches", w->st.micros);
    put_num(b, "seconds", t.median);
    put_num(b, "least", t.least);
    put_num(b, "tokens_per_s", tokens / t.median);
    put_num(b, "tflops", flops / t.median * 1e-12);
    put_num(b, "of_roof", flops / t.median / roof.flops);
}

static bool run(Bench *b, bool trains, Err *err) {
    enum { MOST = 100, WARM = 2 };
    const BenchArgs *a = b->a;
    Opened *o = &b->o;
    Recompute recompute = RECOMPUTE_NONE;
    TRY(recompute_of(&recompute, a->recompute, err));
    if (a->tokens < a->length)
        return err_set(err, "--tokens %lld are not one sequence of %lld", (long long)a->tokens, (long long)a->length);
    Work w = { .n = (int)(a->tokens / a->length) };
    int64_t micro = (int64_t)w.n * a->length;
    PolicyConf conf = { .micro_tokens = micro,
                        .max_seqs = w.n,
                        .trained.recompute = recompute,
                        .trains = trains,
                        .no_steps = true,
                        .trained.keep_logits = a->keep_logits };
    PolicySizes s = policy_sizes(&o->desc, NULL, &conf, open_kind(o, a->leaves));
    TRY(bench_weights(b, s.tmp, s.act + s.io + s.grads + s.optim_dev, err));
    Roof roof = bench_roof(b);
    policy_open(&w.policy, &o->model, &conf, &o->mem);
    w.seqs = bench_seqs(w.n, (int)a->length, o->desc.d.vocab, &o->mem);
    w.lp = MEM_ARRAY(&o->mem, float *, (size_t)w.n), w.ent = MEM_ARRAY(&o->mem, float *, (size_t)w.n);
    for (int i = 0; i < w.n; i++)
        w.lp[i] = MEM_ARRAY(&o->mem, float, (size_t)a->length), w.ent[i] = MEM_ARRAY(&o->mem, float, (size_t)a->length);

    double seconds[MOST];
    int repeats = a->repeats < MOST ? (int)a->repeats : MOST;
    struct Profile *noted = o->dev.profile;
    o->dev.profile = NULL; /* times first, without it */
    for (int i = 0; i < repeats + WARM; i++) {
        double t0 = clock_now();
        TRY(once(&w, trains, err));
        bench_sync(b);
        if (i >= WARM) seconds[i - WARM] = clock_now() - t0;
    }
    report(b, &w, trains, bench_times(seconds, repeats), roof);
    o->dev.profile = noted;
    if (noted) {
        profile_clear(&o->dev);
        for (int i = 0; i < 2; i++) TRY(once(&w, trains, err));
        TRY(put_profile(b, 2, err));
    }
    policy_close(&w.policy);
    return true;
}
bool bench_train(Bench *b, Err *err) { return run(b, true, err); }
bool bench_logprob(Bench *b, Err *err) { return run(b, false, err); }
