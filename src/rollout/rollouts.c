/* rollouts.c - a step's questions, n answers to each, and their scores. */
#include "rollout/rollouts.h"
#include "base/clock.h"
#include "ask/stops.h"
#include "rollout/turns.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 2 }; /* of floats, per answer token */

void rollouts_open(Rollouts *r, int prompts, int samples, int max_prompt, int max_answer, Mem *mem) {
    size_t n = (size_t)prompts * (size_t)samples, len = (size_t)max_answer;
    *r = (Rollouts){ .max_prompts = prompts, .samples = samples, .max_prompt = max_prompt, .max_answer = max_answer };
    r->prompt = MEM_ARRAY(mem, Prompt, (size_t)prompts);
    r->at = MEM_ARRAY(mem, Rollout, n);
    r->lp = MEM_ARRAY(mem, float, n *len), r->ent = MEM_ARRAY(mem, float, n *len);
    for (int i = 0; i < prompts; i++) r->prompt[i].tokens = MEM_ARRAY(mem, int32_t, (size_t)max_prompt);
    for (size_t i = 0; i < n; i++) {
        Rollout *a = &r->at[i];
        a->tokens = MEM_ARRAY(mem, int32_t, (size_t)max_prompt + len);
        a->lp = r->lp + i * len, a->ent = r->ent + i * len;
    }
}

void rollouts_keep(Rollouts *r, size_t room, size_t most, Mem *mem) {
    CHECK(most > 0 && room >= most, "room of %zu bytes for kept sets of up to %zu", room, most);
    r->kept_room = room, r->kept_most = most;
    size_t n = (size_t)r->max_prompts * (size_t)r->samples;
    uint8_t *all = mem_array(mem, n, room);
    for (size_t i = 0; i < n; i++) r->at[i].kept = all + i * room;
}

void rollouts_mask(Rollouts *r, Mem *mem) {
    size_t n = (size_t)r->max_prompts * (size_t)r->samples, len = (size_t)r->max_answer;
    r->mask = mem_array(mem, n, len);
    for (size_t i = 0; i < n; i++) r->at[i].mask = r->mask + i * len;
}

void rollouts_cut(Rollouts *r, int n) {
    for (int i = n; i < r->n_prompts; i++) mem_free(&r->prompt[i].pixels);
    r->n_prompts = n;
}

Prompt *rollouts_add(Rollouts *r, const DataRow *row, int64_t index, const int32_t *tokens, int n) {
    CHECK(r->n_prompts < r->max_prompts && n >= 1 && n <= r->max_prompt, "prompt %d of %d with %d tokens of %d",
          r->n_prompts, r->max_prompts, n, r->max_prompt);
    Prompt *p = &r->prompt[r->n_prompts++];
    p->row = row, p->index = index, p->n = n, p->again = 0, p->spans = (Spans){ 0 };
    memcpy(p->tokens, tokens, (size_t)n * sizeof *tokens);
    return p;
}

void rollout_text(const Rollout *a, const Tok *tok, Buf *out) {
    Err err;
    if (!tok_decode(tok, a->tokens + a->n_prompt + a->said, (size_t)(answer_n(a) - a->said), true, out, &err))
        buf_clear(out);
    if (a->text_n >= 0 && (size_t)a->text_n < out->n) out->n = (size_t)a->text_n, out->data[out->n] = 0;
}

/* ---- one run */
typedef struct {
    Rollouts *r;
    const RolloutRun *run;
    int answers, from, given; /* given: answers that were asked of the engine */
    Replicas replicas;
    Queue *queue;
    bool *own;                       /* [answers] judged here, for all ranks */
    int *drawn;                      /* [answers] tokens so far, where a question's are limited; or NULL, as are: */
    int *finished;                   /* [questions] finished answers */
    size_t *sets;                    /* [answers][max_answer] where each token's kept set begins */
    Stops **stops;                   /* [answers], or NULL */
    Turns *turns;                    /* [answers], or NULL: an answer is one turn */
    int *ready, n_ready, next_ready; /* answers whose next turn can be sampled */
    Buf text;
    bool ok;
    Err err;
} Going;

static bool next_request(void *user, Request *out) {
    Going *g = user;
    if (g->next_ready < g->n_ready) { /* what has begun comes first */
        *out = g->turns[g->ready[g->next_ready++]].request;
        if (g->next_ready == g->n_ready) g->next_ready = g->n_ready = 0;
        return true;
    }
    int k = queue_next(g->queue), n = g->r->samples;
    if (k < 0) return false;
    k += g->from;
    for (int i = 0; i < n; i++) g->r->at[k * n + i].kept_n = 0;
    Prompt *p = &g->r->prompt[k];
    *out = (Request){ p->tokens, p->n, n, (uint64_t)p->index, g->run->opts, p, p->again, p->spans };
    g->given += n;
    return true;
}

/* Questions under way, and whether this rank wants to end: told to, or by an error. */
static Join join(void *user, bool busy) {
    Going *g = user;
    int n = g->r->samples, open = (g->given - g->answers + n - 1) / n;
    bool stop = !g->ok || (g->run->go_on && !g->run->go_on(g->run->user));
    return queue_join(g->queue, busy, open, stop);
}

static int slot_of(const Going *g, const Request *q, int sample) {
    const Turns *t = q->user;
    if (g->turns && t >= g->turns && t < g->turns + rollouts_n(g->r)) return (int)(t - g->turns);
    return (int)((const Prompt *)q->user - g->r->prompt) * g->r->samples + sample;
}

/* Tokens of the answers to a question if none were longer than 'most'.  What is still being
 * drawn counts as far as it is: the sum only grows. */
static int64_t tokens_within(const Going *g, int question, int most) {
    int64_t sum = 0;
    for (int i = question * g->r->samples; i < (question + 1) * g->r->samples; i++)
        sum += g->drawn[i] < most ? g->drawn[i] : most;
    return sum;
}

static bool on_token(void *user, const Request *q, int sample, int32_t id, float lp) {
    (void)lp;
    Going *g = user;
    int slot = slot_of(g, q, sample);
    bool over = false;
    if (g->drawn) over = tokens_within(g, slot / g->r->samples, ++g->drawn[slot]) > g->run->question_tokens;
    if (!g->stops) return over;
    Stops **s = &g->stops[slot];
    if (!*s) *s = stops_open(g->run->tok, g->run->stop, g->run->n_stop);
    return stops_push(*s, id) || over;
}

static bool on_kept(void *user, const Request *q, int sample, const uint8_t *set, size_t n) {
    Going *g = user;
    Rollout *a = &g->r->at[slot_of(g, q, sample)];
    CHECK(n <= g->r->kept_most && a->kept_n + n <= g->r->kept_room, "a kept set of %zu bytes at %zu of %zu", n,
          a->kept_n, g->r->kept_room);
    memcpy(a->kept + a->kept_n, set, n);
    if (g->sets)
        g->sets[(size_t)(a - g->r->at) * (size_t)g->r->max_answer + (size_t)g->drawn[a - g->r->at]] = a->kept_n;
    a->kept_n += n;
    return g->r->kept_room - a->kept_n < g->r->kept_most;
}

static void submit(Going *g, int slot) {
    Rollout *a = &g->r->at[slot];
    const DataRow *row = g->r->prompt[a->prompt].row;
    buf_clear(&g->text);
    if (a->finish == FINISH_BROKEN) {
    } /* judged as if nothing had been said, and failed whatever the verdict */
    else if (g->stops && g->stops[slot]) {
        stops_text(g->stops[slot], &g->text);
        a->text_n = (int64_t)g->text.n;
    } else rollout_text(a, g->run->tok, &g->text);
    RewardSample s = {
        .data_source = row->source,
        .solution = g->text.data ? g->text.data : "",
        .solution_n = g->text.n,
        .ground_truth = row->truth ? row->truth : "",
        .ground_truth_n = row->truth_n,
        .ground_truth_is_json = row->truth_json,
        .extra_info = row->extra,
        .extra_info_n = row->extra_n,
    };
    if (g->ok) g->ok = rewards_submit(g->run->rewards, slot, &s, &g->err);
}

static void judge(Going *g, int slot) {
    g->own[slot] = slot % g->replicas.tp.size == g->replicas.tp.rank;
    if (g->own[slot]) submit(g, slot);
    if (g->stops) stops_close(g->stops[slot]), g->stops[slot] = NULL;
}

/* All answers to a question are there: none stays longer than the limit on their sum allows,
 * whoever was drawn first. */
static void trim(Going *g, int question) {
    int first = question * g->r->samples, n = g->r->samples, most = g->r->max_answer;
    for (int i = first; i < first + n; i++) g->drawn[i] = answer_n(&g->r->at[i]);
    while (most > 0 && tokens_within(g, question, most) > g->run->question_tokens) most--;
    for (int i = first; i < first + n; i++) {
        Rollout *a = &g->r->at[i];
        if (answer_n(a) > most) {
            if (a->kept) a->kept_n = g->sets[(size_t)i * (size_t)g->r->max_answer + (size_t)most];
            a->n = a->n_prompt + most, a->finish = FINISH_BUDGET;
            if (g->stops) stops_close(g->stops[i]), g->stops[i] = NULL;
        }
        judge(g, i);
    }
}

/* The tokens of a turn behind those that are there. */
static void take_turn(Rollout *a, const Answer *x) {
    size_t bytes = (size_t)x->n * sizeof(float), at = (size_t)answer_n(a);
    if (x->n) {
        memcpy(a->tokens + a->n, x->tokens, bytes);
        memcpy(a->lp + at, x->lp, bytes), memcpy(a->ent + at, x->ent, bytes);
        if (a->mask) memset(a->mask + at, 1, (size_t)x->n);
    }
    a->n += x->n, a->finish = x->finish, a->turns++;
}

static void on_answer(void *user, const Answer *x) {
    Going *g = user;
    int slot = slot_of(g, x->request, x->sample);
    Rollout *a = &g->r->at[slot];
    const Prompt *p = &g->r->prompt[slot / g->r->samples];
    if (x->request->user == p) { /* its first turn */
        a->prompt = (int)(p - g->r->prompt), a->sample = x->sample;
        a->n_prompt = a->n = p->n, a->text_n = -1;
        a->said = a->turns = a->calls = a->bad_calls = a->given = 0;
        memcpy(a->tokens, p->tokens, (size_t)p->n * sizeof *a->tokens);
    }
    take_turn(a, x);
    if (x->finish == FINISH_BROKEN && g->run->refuse_broken && g->ok) {
        finish_broken(&g->err, x->n);
        g->ok = err_wrap(&g->err, "answer %d to question %lld", a->sample + 1, (long long)p->index);
    }
    if (g->turns && a->finish == FINISH_STOP
        && turns_next(g->run->turns, &g->turns[slot], a, p, g->run->opts, g->r->max_answer)) {
        g->ready[g->n_ready++] = slot;
        return;
    }
    if (g->turns) turns_close(&g->turns[slot]);
    g->answers++;
    if (!g->drawn) judge(g, slot);
    else if (++g->finished[a->prompt] == g->r->samples) trim(g, a->prompt);
}

static bool on_tick(void *user, int64_t tokens, int running) {
    (void)running;
    Going *g = user;
    int of = (g->r->n_prompts - g->from) * g->r->samples, n = g->answers * g->replicas.n; /* others do about as much */
    if (g->run->progress) g->run->progress(g->run->user, n < of ? n : of, of, tokens * g->replicas.n);
    return true;
}

/* Nobody says what an outside scorer gives a wrong answer: what it could not judge earns no
 * more than the worst of what it did judge here, and no more than 0. */
static void lower_failed(Rollouts *r, int from) {
    double lowest = 0;
    for (int i = from * r->samples; i < rollouts_n(r); i++)
        if (!r->at[i].failed && r->at[i].score < lowest) lowest = r->at[i].score;
    for (int i = from * r->samples; i < rollouts_n(r); i++)
        if (r->at[i].failed) r->at[i].score = lowest;
}

/* A scorer that cannot judge teaches nothing: better to hear of it now than after a night. */
static bool judged(const Rollouts *r, int from, double most, Err *err) {
    int failed = 0, n = rollouts_n(r) - from * r->samples;
    const char *why = "";
    for (int i = from * r->samples; i < rollouts_n(r); i++)
        if (r->at[i].failed && r->at[i].finish != FINISH_BROKEN && !failed++) why = r->at[i].reason;
    if (failed <= most * n) return true;
    return err_set(
        err, "the scorer could not judge %d of %d answers, more than reward.max_failed_ratio allows; the first: %s",
        failed, n, why);
}

/* The answers to this replica's part of questions from .. n_prompts-1; own: which are judged here. */
static bool answer(Rollouts *r, int from, const RolloutRun *run, const Replicas *replicas, bool *own,
                   EngineStats *stats, double *score_wait, Err *err) {
    Mem mem = { 0 };
    int n = r->n_prompts - from, at_once = run->at_once ? run->at_once / r->samples : n;
    Going g = { .r = r, .run = run, .from = from, .ok = true, .replicas = *replicas, .own = own };
    g.queue = queue_open(replicas, n, at_once, &mem);
    if (run->question_tokens) {
        g.drawn = MEM_ARRAY(&mem, int, (size_t)rollouts_n(r));
        g.finished = MEM_ARRAY(&mem, int, (size_t)r->n_prompts);
        if (r->kept_room) g.sets = MEM_ARRAY(&mem, size_t, (size_t)rollouts_n(r) * (size_t)r->max_answer);
    }
    if (run->turns) { /* a conversation is in the list once at most, but the list is read while it grows */
        g.turns = MEM_ARRAY(&mem, Turns, (size_t)rollouts_n(r));
        g.ready = MEM_ARRAY(&mem, int, (size_t)rollouts_n(r) * (size_t)turns_most(run->turns));
    }
    if (run->n_stop) g.stops = MEM_ARRAY(&mem, Stops *, (size_t)rollouts_n(r));
    Feed f = { .next = next_request,
               .token = on_token,
               .answer = on_answer,
               .tick = on_tick,
               .join = join,
               .user = &g,
               .seed = run->seed,
               .step = run->step,
               .kept = r->kept_room ? on_kept : NULL };
    *stats = engine_run(run->engine, &f);
    queue_close(g.queue);
    double t0 = clock_now();
    int64_t slot;
    RewardResult v = { 0 };
    for (int got; (got = rewards_poll(run->rewards, &slot, &v, 0.1)) >= 0;) {
        if (run->go_on && !run->go_on(run->user)) rewards_give_up(run->rewards);
        if (!got) continue;
        Rollout *a = &r->at[slot];
        snprintf(a->reason, sizeof a->reason, "%s", v.failed ? v.reason : "");
        a->score = v.score, a->acc = v.acc, a->failed = v.failed || a->finish == FINISH_BROKEN, a->pred = v.vote;
    }
    *score_wait = clock_now() - t0;
    reward_result_free(&v);
    buf_free(&g.text);
    for (int i = 0; g.turns && i < rollouts_n(r); i++) turns_close(&g.turns[i]); /* of those that were given up */
    mem_free(&mem);
    if (!g.ok) *err = g.err;
    return g.ok;
}

bool rollouts_wanted(const RolloutRun *run) {
    bool mine = !run->go_on || run->go_on(run->user);
    return run->replicas ? comm_sum_i64(&run->replicas->all, !mine) == 0 : mine;
}

/* Ranks of a replica did the same: its first one's count. */
static void add_stats(EngineStats *s, const Replicas *r) {
    int64_t *const counts[] = { &s->tokens, &s->prompt_tokens,   &s->answers,
                                &s->broken, &s->sched.preempted, &s->sched.prefix_tokens };
    for (size_t i = 0; i < COUNT(counts); i++) *counts[i] = comm_sum_i64(&r->all, r->tp.rank ? 0 : *counts[i]);
}

bool rollouts_run(Rollouts *r, int from, const RolloutRun *run, EngineStats *stats, double *score_wait, Err *err) {
    Replicas one = replicas_one();
    const Replicas *replicas = run->replicas ? run->replicas : &one;
    Mem mem = { 0 };
    bool *own = MEM_ARRAY(&mem, bool, (size_t)rollouts_n(r));
    bool ok = comm_agree(&replicas->all, answer(r, from, run, replicas, own, stats, score_wait, err), err), wanted = ok;
    if (ok) wanted = rollouts_wanted(run); /* what was given up was not judged either */
    if (wanted && replicas->all.size > 1) rollouts_share(r, own, &replicas->all);
    if (replicas->all.size > 1) add_stats(stats, replicas);
    mem_free(&mem);
    TRY(ok);
    if (run->question_tokens && wanted) { /* those that count, not those that were drawn before the limit was known */
        stats->tokens = 0;
        for (int i = from * r->samples; i < rollouts_n(r); i++) stats->tokens += answer_n(&r->at[i]);
    }
    if (!rewards_lowest_known(run->rewards)) lower_failed(r, from);
    return run->max_failed <= 0 || !wanted || judged(r, from, run->max_failed, err);
}

static bool votes(const Rollout *a) { return a->pred && !a->failed; }

int rollout_majority(const Rollout *a, int k) {
    int best = 0, most = 0;
    for (int i = 0; i < k; i++) {
        int same = 0;
        for (int j = 0; j < k && votes(&a[i]); j++) same += votes(&a[j]) && a[j].pred == a[i].pred;
        if (same > most) most = same, best = i;
    }
    return best;
}
