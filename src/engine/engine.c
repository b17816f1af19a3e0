/* engine.c - the loop: requests in, step after step until nothing runs, answers out. */
#include "engine/engine_int.h"
#include "base/clock.h"
#include "base/hash.h"
#include "op/watch.h"

const char *finish_name(Finish f) {
    static const char *const name[] = { "stop", "length", "budget", "room", "broken", "dropped" };
    return name[f];
}

void finish_broken(Err *err, int tokens) {
    err_set(err,
            "after %d tokens of the answer the model's numbers are not finite (NaN or infinite): its weights are too "
            "large for float32, or the temperature too small for them",
            tokens);
}

uint64_t request_key(const int32_t *tokens, int n) {
    uint64_t h = hash_ids(HASH_RUN, tokens, (size_t)n);
    return h ^ h >> 31;
}

void engine_ahead(Engine *e, bool on) { e->ahead = on; }

void engine_flush(Engine *e) {
    sched_flush(e->s);
    if (e->images) images_flush(e->images);
}

/* May the next step begin before the host knows what this one drew? */
static bool may_run_ahead(Engine *e, const Feed *f, const Step *st) {
    bool alone = e->m->par.tp.size == 1 && e->m->par.experts.size == 1;
    if (!e->ahead || !alone || f->kept || e->images || e->plain) return false;
    if (st->n_rows != st->n_pieces || st->n_draws != st->n_pieces || back_bytes(st->n_draws) > DEV_ASK) return false;
    for (int i = 0; i < st->n_draws; i++) {
        const SampleOpts *o = request_of(e, st->draw[i].seq)->opts;
        if (o->min_tokens > 0 || o->top > 0) return false; /* such rows may be drawn alone, or are told of */
    }
    return true;
}

static RowName name_of(Engine *e, int seq, int at) {
    return (RowName){ request_of(e, seq)->user, sched_seq(e->s, seq)->sample, at };
}
static void name_rows(Engine *e, const Step *st) {
    Watch *w = e->m->dev->watch;
    if (!w || !w->rows) return;
    Mem mem = { 0 };
    RowName *row = MEM_ARRAY(&mem, RowName, (size_t)st->n_rows), *draw = MEM_ARRAY(&mem, RowName, (size_t)st->n_draws);
    int64_t n = 0;
    for (int i = 0; i < st->n_pieces; i++)
        for (int k = 0; k < st->piece[i].rows; k++) row[n++] = name_of(e, st->piece[i].seq, st->piece[i].start + k);
    for (int i = 0; i < st->n_draws; i++)
        draw[i] = name_of(e, st->draw[i].seq, sched_seq(e->s, st->draw[i].seq)->n - 1);
    w->rows(w, row, n, draw, st->n_draws);
    mem_free(&mem);
}

static void compute(Engine *e, const Feed *f, const Step *st, bool fed) {
    size_t io = arena_mark(&e->io), host = arena_mark(&e->host);
    e->readback = !may_run_ahead(e, f, st) ? NO_READBACK : e->readback == 0;
    Decode x = graph_decode(e, st);
    Rows r = stage_rows(e, st, fed, x.rows - st->n_rows);
    name_rows(e, st);
    Tensor h = tensor_push(&e->io, e->m->dev->act, r.rows.rows, e->m->desc->d.hidden);
    graph_extend(e, &x, &r, h);
    for (int i = 0; i < st->n_copies; i++) cache_copy(&e->cache, e->m->dev, &st->copy[i]);
    if (tell_rows(e, st)) tell_prompts(e, f, st, h);
    draw_all(e, f, st, h, r.ids);
    arena_pop(&e->io, io);
    arena_pop(&e->host, host);
}

/* ---- the loop */
static void deliver(Engine *e, const Feed *f, int seq, Finish why) {
    Seq *q = sched_seq(e->s, seq);
    Answer a = { .request = &e->request[q->group],
                 .sample = q->sample,
                 .n = q->n - q->prompt,
                 .tokens = q->tokens + q->prompt,
                 .lp = q->lp + q->prompt,
                 .ent = q->ent + q->prompt,
                 .finish = why };
    e->stats.answers++;
    f->answer(f->user, &a);
    int group = q->group;
    if (sched_finish(e->s, seq) && e->images) images_drop(e->images, group);
}

/* Will every sequence of this step be in the next one, unless its answer ends with a token that nobody knows yet? */
static bool goes_on(Engine *e, const Feed *f, int n) {
    if (e->readback < 0 || !sched_goes_on(e->s)) return false;
    for (int i = 0; i < n; i++) {
        const Seq *q = sched_seq(e->s, e->drawn[i].seq);
        if (q->state != SEQ_RUNNING || q->n + 1 >= q->limit) return false;
    }
    return !f->token_budget || e->stats.tokens + n < f->token_budget;
}

/* The next step begins; its ids are where this one's sampler leaves them, their places in the sequences are filled when
 * they are known. */
static void begin_next(Engine *e, const Feed *f, int n) {
    for (int i = 0; i < n; i++) sched_token(e->s, e->drawn[i].seq, 0, 0, 0);
    sched_done(e->s);
    const Step *st = sched_next(e->s);
    CHECK(st->n_draws == n && st->n_rows == n, "a step of %d rows and %d draws was to have %d", st->n_rows, st->n_draws,
          n);
    compute(e, f, st, true);
    e->begun = true;
    e->stats.ahead++;
}

static bool is_stop(const Engine *e, const SampleOpts *o, int32_t id) {
    const Dims *d = &e->m->desc->d;
    for (int64_t i = 0; i < d->special.n_eos && !o->ignore_eos; i++)
        if (d->special.eos[i] == id) return true;
    for (int i = 0; i < o->n_stop_ids; i++)
        if (o->stop_ids[i] == id) return true;
    return false;
}

/* Returns how many tokens there were: answers that ended a step ago, when this one had begun, have none. */
static int take_tokens(Engine *e, const Feed *f, const Step *st) {
    int n = st->n_draws, readback = e->readback, had = 0;
    for (int i = 0; i < n; i++) e->drawn[i] = (Drawn){ st->draw[i].seq, sched_seq(e->s, st->draw[i].seq)->n };
    e->begun = false;
    if (goes_on(e, f, n)) begin_next(e, f, n);
    if (readback >= 0) draw_wait(e, readback, n);
    for (int i = 0; i < n; i++) {
        int seq = e->drawn[i].seq, at = e->drawn[i].at;
        Seq *q = sched_seq(e->s, seq);
        e->finished[i] = false;
        if (q->state != SEQ_RUNNING) continue;
        const Request *r = &e->request[q->group];
        if (e->id[i] < 0) {
            q->n = at;
            e->finished[i] = true, e->finish[i] = FINISH_BROKEN;
            e->stats.broken++;
            continue;
        }
        if (e->begun) q->tokens[at] = e->id[i], q->lp[at] = e->lp[i], q->ent[at] = e->ent[i];
        else sched_token(e->s, seq, e->id[i], e->lp[i], e->ent[i]);
        e->stats.tokens++, had++;
        bool text_stop = f->token && f->token(f->user, r, q->sample, e->id[i], e->lp[i]);
        bool stop = text_stop || is_stop(e, r->opts, e->id[i]);
        bool full = f->kept && e->full[i];
        e->finished[i] = stop || full || q->n == q->limit;
        e->finish[i] = stop ? FINISH_STOP : q->n == q->limit ? FINISH_LENGTH : FINISH_ROOM;
    }
    if (!e->begun) sched_done(e->s);
    for (int i = 0; i < n; i++)
        if (e->finished[i]) deliver(e, f, e->drawn[i].seq, e->finish[i]);
    return had;
}

/* Answers that have not begun, of a group, or of all where it is -1. */
static void give_up(Engine *e, const Feed *f, int group, Finish why) {
    int of = group, sample;
    for (; sched_cancel(e->s, &of, &sample); of = group) {
        Answer a = { .request = &e->request[of], .sample = sample, .finish = why };
        e->stats.answers++;
        f->answer(f->user, &a);
        if (e->images && sched_over(e->s, of)) images_drop(e->images, of);
    }
}

/* Everything that is under way or has not begun is cut here and handed out as it is; of one user's requests, or of all
 * where it is NULL. */
static void cut(Engine *e, const Feed *f, const void *user, Finish why) {
    for (int i = 0; i < e->c.sched.max_seqs; i++)
        if (sched_seq(e->s, i)->state != SEQ_IDLE && (!user || request_of(e, i)->user == user)) deliver(e, f, i, why);
    for (int i = 0; user && i < e->c.sched.max_seqs; i++)
        if (!sched_over(e->s, i) && e->request[i].user == user) give_up(e, f, i, why);
    if (!user) give_up(e, f, -1, why);
}

void engine_begin(Engine *e) {
    bool seen = e->m->dev->profile || e->m->dev->watch; /* call by call */
    e->is_waiting = e->begun = false;
    e->stats = (EngineStats){ 0 };
    e->before = sched_stats(e->s);
    e->plain = comm_max(&e->m->par.experts, comm_max(&e->m->par.tp, seen)) > 0;
}

/* False: there are as many as the scheduler takes, or its pictures find no room while others have theirs. */
bool engine_add(Engine *e, const Request *r) {
    CHECK(!r->spans.n || e->images, "a prompt with pictures, and the engine was opened for none");
    CHECK(e->c.tells || (!r->opts->top && !r->opts->prompt),
          "a request that is told, and the engine was opened for none");
    CHECK(r->opts->top <= TOP_MOST, "%d likeliest tokens; %d are the most", r->opts->top, TOP_MOST);
    if (!sched_room(e->s)) return false;
    int g = sched_next_group(e->s);
    if (e->images && !images_take(e->images, g, r)) {
        CHECK(!sched_idle(e->s), "a prompt's pictures find no room in %d rows", e->c.feats);
        return false;
    }
    sched_add(e->s, e->images ? images_tokens(e->images, g) : r->tokens, r->n, r->samples, r->opts->max_tokens);
    if (r->opts->prompt) sched_whole(e->s, g);
    e->request[g] = *r;
    e->stats.prompt_tokens += r->n;
    return true;
}

int engine_step(Engine *e, const Feed *f) {
    const Step *st = e->begun ? sched_step(e->s) : sched_next(e->s);
    if (!e->begun) compute(e, f, st, false);
    return take_tokens(e, f, st);
}

void engine_drop(Engine *e, const Feed *f, const void *user) { cut(e, f, user, FINISH_DROPPED); }
bool engine_idle(const Engine *e) { return sched_idle(e->s); }

const EngineStats *engine_stats(Engine *e) {
    SchedStats s = sched_stats(e->s);
    const SchedStats *b = &e->before;
    s.steps -= b->steps, s.rows -= b->rows, s.preempted -= b->preempted;
    s.prefix_tokens -= b->prefix_tokens, s.forks -= b->forks;
    e->stats.sched = s;
    return &e->stats;
}

/* ---- all of a feed's requests.  One that finds no room waits, with those behind it, until others are done. */
static bool fill(Engine *e, const Feed *f) {
    while (sched_room(e->s)) {
        if (!e->is_waiting && !f->next(f->user, &e->waiting)) return false;
        e->is_waiting = !engine_add(e, &e->waiting);
        if (e->is_waiting) return true;
    }
    return true;
}

static Join join(Engine *e, const Feed *f) {
    bool busy = !sched_idle(e->s);
    if (f->join) return f->join(f->user, busy);
    return busy ? JOIN_STEP : JOIN_END;
}

EngineStats engine_run(Engine *e, const Feed *f) {
    double t0 = clock_now();
    bool more = true;
    engine_begin(e);
    for (;;) {
        if (more) more = fill(e, f) || f->join; /* who joins others may be given more later */
        Join how = join(e, f);
        if (how == JOIN_AGAIN) continue;
        if (how == JOIN_CUT) cut(e, f, NULL, FINISH_BUDGET);
        if (how != JOIN_STEP) break;
        int had = engine_step(e, f);
        bool go_on = !f->tick || f->tick(f->user, e->stats.tokens, had);
        if ((f->token_budget && e->stats.tokens >= f->token_budget) || !go_on) {
            do { cut(e, f, NULL, FINISH_BUDGET); } while (go_on && more && (more = fill(e, f), !sched_idle(e->s)));
            break;
        }
    }
    e->stats.seconds = clock_now() - t0;
    return *engine_stats(e);
}
