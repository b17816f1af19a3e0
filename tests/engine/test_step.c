/* test_step.c - the engine in pieces (add, step, drop): answers are engine_run's, also of those that stay when others
 * are dropped; what is told of tokens has the bits of what is drawn and scored. */
#include "engine_fixture.h"
#include "engine/engine_int.h"

#include <math.h>

static const Shape shapes[] = {
    { "all together", 1, 16, 120, 40, 40, 128, TOGETHER },
    { "few, in chunks, pushed out", 2, 16, 8, 6, 3, 7, TOGETHER },
};

typedef struct {
    Asking *a;
    int of[REQUESTS], dropped; /* of: a request's user is a place in here */
    Result *out;
    struct {
        Likely token, top[TOP_MOST];
        int n;
    } told[REQUESTS][MAX_SAMPLES][LONGEST];
} Stepping;

static int number(const Stepping *s, const Request *r) { return (int)((const int *)r->user - s->of); }
static void on_answer(void *user, const Answer *x) {
    Stepping *s = user;
    Got *g = &s->out->at[number(s, x->request)][x->sample];
    g->n = x->n, g->finish = x->finish;
    if (x->n) { /* given up before its first token, it has no columns */
        memcpy(g->tokens, x->tokens, (size_t)x->n * 4);
        memcpy(g->lp, x->lp, (size_t)x->n * 4);
        memcpy(g->ent, x->ent, (size_t)x->n * 4);
    }
    s->dropped += x->finish == FINISH_DROPPED;
    s->out->answers++;
}
static void on_told(void *user, const Request *r, int sample, int at, Likely token, const Likely *top, int n) {
    Stepping *s = user;
    int i = number(s, r);
    s->told[i][sample][at].token = token, s->told[i][sample][at].n = n + 1; /* 0: nothing was told */
    memcpy(s->told[i][sample][at].top, top, (size_t)n * sizeof *top);
}

/* Requests that find room are added before each step; 'gone' is dropped when so many steps were done. */
static void run(Stepping *s, Engine *e, int gone, int steps) {
    Feed f = { .answer = on_answer, .told = on_told, .user = s, .seed = 1234, .step = 5 };
    engine_begin(e);
    memset(s->told, 0, sizeof s->told);
    memset(s->out, 0, sizeof *s->out);
    s->dropped = 0;
    for (int next = 0, step = 0; next < REQUESTS || !engine_idle(e); step++) {
        for (; next < REQUESTS; next++) {
            Request r = { s->a->prompt[next],  asked[next].prompt, asked[next].samples,
                          77 + (uint64_t)next, &s->a->opts[next],  &s->of[next] };
            if (!engine_add(e, &r)) break;
        }
        if (step == steps) engine_drop(e, &f, &s->of[gone]);
        if (!engine_idle(e)) engine_step(e, &f);
    }
}

static bool same(const Got *a, const Got *b) {
    return a->n == b->n && a->finish == b->finish && !memcmp(a->tokens, b->tokens, (size_t)a->n * 4)
           && !memcmp(a->lp, b->lp, (size_t)a->n * 4) && !memcmp(a->ent, b->ent, (size_t)a->n * 4);
}
static int differ(const Stepping *s, const Result *want, int but) {
    int bad = 0;
    for (int i = 0; i < REQUESTS; i++)
        for (int k = 0; k < asked[i].samples && i != but; k++) bad += !same(&s->out->at[i][k], &want->at[i][k]);
    return bad;
}

static void dropping(const char *model, const Shape *shape) {
    EngineConf c = shape_conf(shape);
    Fixture f;
    fixture_load(&f, model, 0, shape->threads, 64, false, RECOMPUTE_NONE);
    unguarded(&f);
    engine_room(&f, shape);
    Asking a = { .no_sets = true };
    engine_prompts(&a, &f);
    Engine *e = engine_open(&f.model, &c, &f.mem);
    Result *want = MEM_NEW(&f.mem, Result);
    ask(&a, e, shape, want);
    Stepping *s = MEM_NEW(&f.mem, Stepping);
    s->a = &a, s->out = MEM_NEW(&f.mem, Result);
    engine_flush(e);
    int pages = sched_pages_free(e->s);
    run(s, e, 0, -1);
    EXPECT(!differ(s, want, -1) && !s->dropped, "%s, %s: %d answers differ step by step", model, shape->name,
           differ(s, want, -1));
    int cut = 0;
    for (int gone = 0; gone < REQUESTS; gone++)
        for (int steps = 0; steps < 12; steps += 3) {
            engine_flush(e);
            run(s, e, gone, steps);
            cut += s->dropped;
            EXPECT(!differ(s, want, gone), "%s, %s: without request %d from step %d on %d others differ", model,
                   shape->name, gone, steps, differ(s, want, gone));
            for (int k = 0; k < asked[gone].samples; k++) {
                const Got *g = &s->out->at[gone][k], *w = &want->at[gone][k];
                EXPECT(g->finish != FINISH_DROPPED || (g->n <= w->n && !memcmp(g->tokens, w->tokens, (size_t)g->n * 4)),
                       "%s, %s: what was drawn of a dropped answer", model, shape->name);
            }
            EXPECT(s->out->answers == want->answers && sched_pages_free(e->s) == pages,
                   "%s, %s: %d answers of %d, %d pages of %d are free", model, shape->name, s->out->answers,
                   want->answers, sched_pages_free(e->s), pages);
        }
    EXPECT(cut > 10, "%d answers were dropped: this test would see little", cut);
    engine_close(e);
    fixture_close(&f);
}

/* A sequence's log-probs from its second token on, each place under the request's distribution. */
static float *scored(Fixture *f, const SampleOpts *o, const int32_t *tokens, int n) {
    Drawing d = o->draw;
    if (o->greedy) d = (Drawing){ d.temperature, 1, 0, 0 };
    PackSeq s = { tokens, n, 1, d };
    return score_seqs(f, &s, 1);
}

static void telling(const char *model, const Shape *shape) {
    EngineConf c = shape_conf(shape);
    c.tells = true;
    Fixture f;
    fixture_load(&f, model, 0, shape->threads, 64, false, RECOMPUTE_NONE);
    unguarded(&f);
    engine_room(&f, shape);
    size_t room = engine_tmp_bytes(&f.desc, &c, dev_kind(&f.dev));
    if (room > f.dev.tmp.size) dev_free(&f.dev, f.dev.tmp.base), f.dev.tmp = dev_arena(&f.dev, "tmp", room);
    Asking a = { .no_sets = true };
    engine_prompts(&a, &f);
    Engine *e = engine_open(&f.model, &c, &f.mem);
    Result *want = MEM_NEW(&f.mem, Result);
    ask(&a, e, shape, want);
    for (int i = 0; i < REQUESTS; i++) a.opts[i].top = i == 2 ? 20 : i % 4, a.opts[i].prompt = i != 3;
    Stepping *s = MEM_NEW(&f.mem, Stepping);
    s->a = &a, s->out = MEM_NEW(&f.mem, Result);
    int drawn = 0, others = 0, prompts = 0;
    for (int pass = 0; pass < 2; pass++) { /* of the second the prompts are in the prefix table */
        run(s, e, 0, -1);
        EXPECT(!differ(s, want, -1), "%s, %s: %d answers differ when they are told of", model, shape->name,
               differ(s, want, -1));
        for (int i = 0; i < REQUESTS; i++) {
            int p = asked[i].prompt, top = a.opts[i].top;
            float *lp = scored(&f, &a.opts[i], a.prompt[i], p);
            for (int t = 1; t < p && a.opts[i].prompt; t++, prompts++)
                EXPECT(s->told[i][0][t].n == top + 1 && s->told[i][0][t].token.id == a.prompt[i][t]
                           && !memcmp(&s->told[i][0][t].token.lp, &lp[t - 1], 4),
                       "%s, %s, prompt %d at %d: %g told, %g scored", model, shape->name, i, t,
                       (double)s->told[i][0][t].token.lp, (double)lp[t - 1]);
            for (int k = 0; k < asked[i].samples && top; k++)
                for (int t = 0; t < want->at[i][k].n; t++, drawn++) {
                    const Got *g = &want->at[i][k];
                    const Likely *best = s->told[i][k][p + t].top, *token = &s->told[i][k][p + t].token;
                    bool sorted = true, there = false;
                    for (int j = 0; j < top; j++) {
                        sorted &= j == 0 || best[j].lp <= best[j - 1].lp;
                        there |= best[j].id == g->tokens[t] && best[j].lp == g->lp[t];
                    }
                    EXPECT(s->told[i][k][p + t].n == top + 1 && token->id == g->tokens[t] && token->lp == g->lp[t]
                               && sorted && best[0].lp >= token->lp && (there || best[top - 1].lp >= token->lp)
                               && (!a.opts[i].greedy || best[0].id == token->id),
                           "%s, %s, answer %d at %d: %d (%g) told, %d (%g) drawn", model, shape->name, i, t, token->id,
                           (double)token->lp, g->tokens[t], (double)g->lp[t]);
                }
            if (!top || pass) continue;
            int32_t other[MAX_PROMPT + 1]; /* the others' numbers are those that they would be scored with */
            memcpy(other, a.prompt[i], (size_t)p * 4);
            for (int j = 0; j < top; j++, others++) {
                const Likely *x = &s->told[i][0][p].top[j];
                other[p] = x->id;
                lp = scored(&f, &a.opts[i], other, p + 1);
                EXPECT(!memcmp(&lp[p - 1], &x->lp, 4), "%s, %s: %d of %d is %g, scored %g", model, shape->name, j, i,
                       (double)x->lp, (double)lp[p - 1]);
            }
        }
    }
    EXPECT(drawn > 60 && others > 10 && prompts > 100, "%d, %d, %d: this test would see little", drawn, others,
           prompts);
    engine_close(e);
    fixture_close(&f);
}

int main(void) {
    const char *models[] = { "llama", "qwen3_moe", "deepseek_v3" };
    for (size_t m = 0; m < COUNT(models); m++)
        for (size_t i = 0; i < COUNT(shapes); i++) dropping(models[m], &shapes[i]), telling(models[m], &shapes[i]);
    return test_end();
}
