/* engine_fixture.h - a fixed set of requests, run by an engine of any shape, and compared answer by answer. */
#ifndef ENGINE_ENGINE_FIXTURE_H
#define ENGINE_ENGINE_FIXTURE_H

#include "model/fixture.h"
#include "op/op_check.h"
#include "engine/engine.h"

enum {
    REQUESTS = 7,
    MAX_ANSWER = 14,
    MAX_SAMPLES = 5,
    MAX_PROMPT = 40,
    LONGEST = MAX_PROMPT + MAX_ANSWER,
    MAX_SET = 40
};

/* Prompts 4 and 5 begin with the whole of prompt 3, prompt 6 is prompt 5. */
static const struct { const char *name; int prompt, samples; SampleOpts o; } asked[REQUESTS] = {
    { "plain",       1,  2, { .draw = { 1, 1, 0, 0 } } },
    { "temperature", 5,  3, { .draw = { 1.7f, 1, 0, 0 } } },
    { "top-k",       17, 2, { .draw = { 1, 1, 0, 9 } } },
    { "top-p",       33, 5, { .draw = { 0.8f, 0.7f, 0, 0 } } },
    { "min-p",       40, 2, { .draw = { 1.2f, 1, 0.05f, 0 } } },
    { "greedy",      36, 1, { .draw = { 1, 1, 0, 0 }, .greedy = true } },
    { "all of them", 36, 3, { .draw = { 1.3f, 0.9f, 0.01f, 30 } } },
};

typedef struct { int n; Finish finish; int32_t tokens[MAX_ANSWER]; float lp[MAX_ANSWER], ent[MAX_ANSWER];
    uint8_t kept[MAX_ANSWER * MAX_SET]; size_t kept_n; } Got;
typedef struct { Got at[REQUESTS][MAX_SAMPLES]; int answers; EngineStats stats; } Result;

typedef struct {
    const char *name;
    int threads, page, pages, seqs, batch, rows;
    enum { TOGETHER, REVERSED, ALONE } how;
} Shape;

typedef struct {
    Fixture *f;
    const int32_t *prompt[REQUESTS];
    SampleOpts opts[REQUESTS];
    Shape shape;
    int next, left;
    bool no_sets; /* nobody is told of them */
    Result *out;
} Asking;

static inline void engine_prompts(Asking *a, Fixture *f) {
    a->f = f;
    for (int i = 0; i < REQUESTS; i++) {
        int32_t *t = random_tokens(f, asked[i].prompt, i > 3 ? 5u : (uint32_t)i);
        if (i > 3) memcpy(t, a->prompt[3], 33 * sizeof *t);
        a->prompt[i] = t;
        a->opts[i] = asked[i].o;
        a->opts[i].max_tokens = MAX_ANSWER - i % 3;
        a->opts[i].ignore_eos = i % 2;
    }
}

static inline bool asking_next(void *user, Request *out) {
    Asking *a = user;
    if (!a->left) return false;
    int i = a->shape.how == REVERSED ? REQUESTS - 1 - a->next : a->next;
    a->next++, a->left--;
    *out = (Request){ a->prompt[i], asked[i].prompt, asked[i].samples, 77 + (uint64_t)i, &a->opts[i],
                      (void *)(intptr_t)i };
    return true;
}

static inline void asking_answer(void *user, const Answer *x) {
    Asking *a = user;
    Got *g = &a->out->at[(intptr_t)x->request->user][x->sample];
    g->n = x->n, g->finish = x->finish;
    memcpy(g->tokens, x->tokens, (size_t)x->n * 4);
    memcpy(g->lp, x->lp, (size_t)x->n * 4);
    memcpy(g->ent, x->ent, (size_t)x->n * 4);
    a->out->answers++;
}

static inline bool asking_kept(void *user, const Request *r, int sample, const uint8_t *set, size_t n) {
    Asking *a = user;
    Got *g = &a->out->at[(intptr_t)r->user][sample];
    CHECK(g->kept_n + n <= sizeof g->kept, "kept sets of %zu and %zu bytes", g->kept_n, n);
    memcpy(g->kept + g->kept_n, set, n);
    g->kept_n += n;
    return false;
}

static inline EngineConf shape_conf(const Shape *s) {
    return (EngineConf){ .sched = { .page = s->page,
                                    .pages = s->pages,
                                    .max_seqs = s->seqs,
                                    .max_batch = s->batch,
                                    .max_rows = s->rows,
                                    .max_len = LONGEST } };
}

/* Checking mode closes and opens all memory around every op, which is most of the time of a
 * model this small: a test that has run in it once goes on without. */
static inline void unguarded(Fixture *f) { f->dev.ops->enter(&f->dev, false); }

/* Scratch for the model's own batches and for an engine of that shape. */
static inline void engine_room(Fixture *f, const Shape *s) {
    EngineConf c = shape_conf(s);
    size_t want = engine_tmp_bytes(&f->desc, &c, dev_kind(&f->dev));
    if (want <= f->dev.tmp.size) return;
    dev_free(&f->dev, f->dev.tmp.base);
    f->dev.tmp = dev_arena(&f->dev, "tmp", want);
}

/* Runs everything that is asked; e may be warm from an earlier run. */
static inline void ask(Asking *a, Engine *e, const Shape *s, Result *out) {
    memset(out, 0, sizeof *out);
    a->shape = *s, a->out = out, a->next = 0;
    Feed feed = { asking_next, NULL, asking_answer, NULL, a, 1234, 5, 0, a->no_sets ? NULL : asking_kept };
    for (int i = 0; i < (s->how == ALONE ? REQUESTS : 1); i++) {
        a->left = s->how == ALONE ? 1 : REQUESTS;
        EngineStats st = engine_run(e, &feed);
        out->stats.sched.preempted += st.sched.preempted, out->stats.sched.forks += st.sched.forks;
        out->stats.sched.prefix_tokens += st.sched.prefix_tokens, out->stats.tokens += st.tokens;
        out->stats.ahead += st.ahead;
    }
}

/* The answers as the trainer reads them; returns how many. */
static inline int as_seqs(Asking *a, const Result *r, bool sets, PackSeq *seqs, const Got **got) {
    int n = 0;
    for (int i = 0; i < REQUESTS; i++)
        for (int k = 0; k < asked[i].samples; k++) {
            const Got *g = &r->at[i][k];
            int p = asked[i].prompt;
            int32_t *t = MEM_ARRAY(&a->f->mem, int32_t, (size_t)(p + g->n));
            memcpy(t, a->prompt[i], (size_t)p * 4);
            memcpy(t + p, g->tokens, (size_t)g->n * 4);
            Drawing d = a->opts[i].draw;
            if (a->opts[i].greedy) d = (Drawing){ d.temperature, 1, 0, 0 };
            got[n] = g;
            seqs[n++] = (PackSeq){ t, p + g->n, p, d, sets ? g->kept : NULL };
        }
    return n;
}

/* Answers whose log-probs or entropies are not the trainer's, bit for bit; with their kept
 * sets, or with sets found again. */
static inline int not_scored(Asking *a, const Result *r, bool sets) {
    PackSeq seqs[REQUESTS * MAX_SAMPLES];
    const Got *got[REQUESTS * MAX_SAMPLES];
    int n = as_seqs(a, r, sets, seqs, got), bad = 0;
    int64_t outputs = pack_outputs(seqs, n), o = 0;
    float *s = score_seqs(a->f, seqs, n);
    for (int i = 0; i < n; o += got[i]->n, i++)
        bad += memcmp(s + o, got[i]->lp, (size_t)got[i]->n * 4)
               || memcmp(s + outputs + o, got[i]->ent, (size_t)got[i]->n * 4);
    return bad;
}

#endif
