/* sched.c - which rows of which sequences run next.
 * Running and waiting sequences are two lists sorted by age; a step serves decode rows first, then
 * prefill chunks by age, then admits. */
#include "engine/sched.h"

#include <string.h>

typedef struct {
    bool used, prompt_done; /* prompt_done: its first answer is past the prompt, nobody waits to fork from it */
    bool whole;             /* sched_whole */
    const int32_t *prompt;  /* the caller's, until the group is finished */
    int n, samples, started, finished, limit;
    int64_t order;
} Group;

typedef struct {
    int *at, n;
} List;

struct Sched {
    SchedConf c;
    Pages *pages;
    Seq *seq;
    Group *group;
    List running, waiting, idle, fresh; /* fresh: groups that have answers not begun, by age */
    bool *in_step;
    Step step;
    int64_t orders;
    int active; /* groups in use */
    SchedStats stats;
};

static int pages_of_one(const SchedConf *c) { return (c->max_len + c->page - 1) / c->page; }

Sched *sched_open(const SchedConf *c, Mem *mem) {
    int most_pages = pages_of_one(c);
    CHECK(c->pages >= most_pages + 1, "%d pages of %d cannot hold one sequence of %d tokens", c->pages, c->page,
          c->max_len);
    Sched *s = MEM_NEW(mem, Sched);
    size_t n = (size_t)c->max_seqs, len = (size_t)c->max_len;
    *s = (Sched){ .c = *c, .pages = pages_open(c->pages, c->page, mem) };
    s->seq = MEM_ARRAY(mem, Seq, n);
    s->group = MEM_ARRAY(mem, Group, n);
    s->in_step = MEM_ARRAY(mem, bool, n);
    List *const lists[] = { &s->running, &s->waiting, &s->idle, &s->fresh };
    for (size_t i = 0; i < COUNT(lists); i++) lists[i]->at = MEM_ARRAY(mem, int, n);
    for (size_t i = 0; i < n; i++) {
        Seq *q = &s->seq[i];
        q->tokens = MEM_ARRAY(mem, int32_t, len);
        q->lp = MEM_ARRAY(mem, float, len);
        q->ent = MEM_ARRAY(mem, float, len);
        q->pages = MEM_ARRAY(mem, int, (size_t)most_pages + 1);
        s->idle.at[s->idle.n++] = (int)(n - 1 - i);
    }
    s->step.piece = MEM_ARRAY(mem, Piece, n);
    s->step.draw = MEM_ARRAY(mem, Draw, n);
    s->step.copy = MEM_ARRAY(mem, Copy, 2 * n);
    return s;
}

void sched_flush(Sched *s) {
    CHECK(!s->running.n && !s->waiting.n, "flush with %d sequences running", s->running.n);
    pages_flush(s->pages);
}

static void list_cut(List *l, int i) {
    memmove(l->at + i, l->at + i + 1, (size_t)(l->n - i - 1) * sizeof *l->at);
    l->n--;
}

static void seq_list_add(Sched *s, List *l, int seq) { /* by age */
    int i = l->n++;
    for (; i > 0 && s->seq[l->at[i - 1]].order > s->seq[seq].order; i--) l->at[i] = l->at[i - 1];
    l->at[i] = seq;
}

static void seq_list_remove(List *l, int seq) {
    int i = 0;
    while (l->at[i] != seq) i++;
    list_cut(l, i);
}

int sched_next_group(const Sched *s) {
    int g = 0;
    while (s->group[g].used) g++;
    return g;
}
bool sched_over(const Sched *s, int group) { return !s->group[group].used; }

int sched_add(Sched *s, const int32_t *prompt, int n, int samples, int max_tokens) {
    if (!sched_room(s)) return -1;
    int g = sched_next_group(s);
    int limit = n + max_tokens < s->c.max_len ? n + max_tokens : s->c.max_len;
    CHECK(n >= 1 && samples >= 1 && limit > n, "prompt of %d tokens, %d answers of %d, at most %d in all", n, samples,
          max_tokens, s->c.max_len);
    s->group[g] =
        (Group){ .used = true, .prompt = prompt, .n = n, .samples = samples, .limit = limit, .order = s->orders };
    s->orders += samples;
    s->fresh.at[s->fresh.n++] = g;
    s->active++;
    return g;
}

void sched_whole(Sched *s, int group) { s->group[group].whole = true; }
bool sched_room(const Sched *s) { return s->active < s->c.max_seqs; }
bool sched_idle(const Sched *s) { return s->active == 0; }
Seq *sched_seq(Sched *s, int seq) { return &s->seq[seq]; }

/* Pages go back last first, so that of a cached text the end is forgotten before the beginning. */
static void give_back(Sched *s, Seq *q) {
    while (q->n_pages > 0) pages_drop(s->pages, q->pages[--q->n_pages]);
    q->done = q->entered = 0;
}

static void preempt(Sched *s, int seq) {
    seq_list_remove(&s->running, seq);
    give_back(s, &s->seq[seq]);
    s->seq[seq].state = SEQ_WAITING;
    seq_list_add(s, &s->waiting, seq);
    s->stats.preempted++;
}

/* Pages for positions below 'upto'.  False: none could be had without taking them from an older sequence. */
static bool grow(Sched *s, int seq, int upto) {
    Seq *q = &s->seq[seq];
    while (q->n_pages * s->c.page < upto) {
        int p = pages_take(s->pages);
        if (p >= 0) {
            q->pages[q->n_pages++] = p;
            continue;
        }
        int young = s->running.at[s->running.n - 1];
        if (young == seq || s->in_step[young]) return false;
        preempt(s, young);
    }
    return true;
}

static Seq *begin(Sched *s, Group *g, int group, int *index) {
    int i = s->idle.at[--s->idle.n];
    Seq *q = &s->seq[i];
    q->group = group, q->sample = g->started, q->order = g->order + g->started;
    q->n = q->prompt = g->n, q->limit = g->limit;
    q->done = q->n_pages = q->entered = 0;
    memcpy(q->tokens, g->prompt, (size_t)g->n * sizeof *q->tokens);
    g->started++;
    *index = i;
    return q;
}

static void to_run(Sched *s, int i) {
    s->seq[i].state = SEQ_RUNNING;
    seq_list_add(s, &s->running, i);
    if (s->running.n > s->stats.peak_seqs) s->stats.peak_seqs = s->running.n;
}

/* The other answers of a prompt that has just been computed: they draw their first token from the same row. */
static void fork_group(Sched *s, int leader, int piece) {
    Seq *from = &s->seq[leader];
    Group *g = &s->group[from->group];
    bool partial = from->prompt % s->c.page != 0;
    g->prompt_done = true;
    while (g->started < g->samples && s->idle.n && s->running.n < s->c.max_batch) {
        int copy = partial ? pages_take(s->pages) : -1, i;
        if (partial && copy < 0) break;
        Seq *q = begin(s, g, from->group, &i);
        int full = q->prompt / s->c.page;
        for (; q->n_pages < full; q->n_pages++) {
            q->pages[q->n_pages] = from->pages[q->n_pages];
            pages_hold(s->pages, q->pages[q->n_pages]);
        }
        if (partial) q->pages[q->n_pages++] = copy;
        q->done = q->prompt;
        q->entered = full;
        to_run(s, i);
        s->in_step[i] = true;
        s->step.draw[s->step.n_draws++] = (Draw){ i, piece };
        if (partial) s->step.copy[s->step.n_copies++] = (Copy){ STORE_PAGES, copy, from->pages[full] };
        if (s->c.states) s->step.copy[s->step.n_copies++] = (Copy){ STORE_STATE, i, leader };
        s->stats.forks++;
    }
    if (g->started == g->samples) {
        int k = 0;
        while (k < s->fresh.n && s->fresh.at[k] != from->group) k++;
        if (k < s->fresh.n) list_cut(&s->fresh, k);
    }
}

static void add_piece(Sched *s, int seq, int rows) {
    Seq *q = &s->seq[seq];
    int piece = s->step.n_pieces++;
    bool draws = q->done + rows == q->n;
    s->step.piece[piece] = (Piece){ seq, q->done, rows, draws };
    s->step.n_rows += rows;
    s->in_step[seq] = true;
    if (!draws) return;
    s->step.draw[s->step.n_draws++] = (Draw){ seq, piece };
    if (!s->group[q->group].prompt_done) fork_group(s, seq, piece);
}

/* Running sequences that want one row (decode) or several (prefill). */
static void serve(Sched *s, bool decode) {
    for (int i = 0; i < s->running.n; i++) {
        int seq = s->running.at[i];
        Seq *q = &s->seq[seq];
        int want = q->n - q->done, room = s->c.max_rows - s->step.n_rows, rows = want < room ? want : room;
        if ((want == 1) != decode || s->in_step[seq] || rows <= 0 || s->step.n_pieces == s->c.max_batch) continue;
        if (grow(s, seq, q->done + rows)) add_piece(s, seq, rows);
        else if (q->n_pages && s->running.at[s->running.n - 1] == seq && s->step.n_pieces) preempt(s, seq);
    }
}

/* What the prefix table already knows of its tokens; at least one is left to compute, as its row is drawn from. */
static void reuse(Sched *s, Seq *q) {
    int before = -1;
    bool all = s->c.states || (s->group[q->group].whole && q->sample == 0);
    while (!all && (q->n_pages + 1) * s->c.page < q->n) {
        int p = pages_find(s->pages, before, q->tokens + q->n_pages * s->c.page);
        if (p < 0) break;
        q->pages[q->n_pages++] = before = p;
    }
    q->entered = q->n_pages;
    q->done = q->n_pages * s->c.page;
}

/* The oldest that is not running: a preempted sequence, or the next answer of a group; -1: none may start now. */
static int next_candidate(Sched *s) {
    int fresh = -1;
    for (int i = 0; i < s->fresh.n && fresh < 0; i++) {
        Group *g = &s->group[s->fresh.at[i]];
        if (g->started == 0 || g->prompt_done) fresh = i;
    }
    int64_t fresh_order = INT64_MAX;
    if (fresh >= 0 && s->idle.n) {
        Group *g = &s->group[s->fresh.at[fresh]];
        fresh_order = g->order + g->started;
    }
    if (s->waiting.n && s->seq[s->waiting.at[0]].order < fresh_order) {
        int seq = s->waiting.at[0];
        list_cut(&s->waiting, 0);
        return seq;
    }
    if (fresh_order == INT64_MAX) return -1;
    int group = s->fresh.at[fresh], seq;
    begin(s, &s->group[group], group, &seq);
    if (s->group[group].started == s->group[group].samples) list_cut(&s->fresh, fresh);
    return seq;
}

static void admit(Sched *s) {
    while (s->running.n < s->c.max_batch && s->step.n_rows < s->c.max_rows && s->step.n_pieces < s->c.max_batch) {
        if (s->running.n && pages_free(s->pages) < 2) return;
        int seq = next_candidate(s);
        if (seq < 0) return;
        Seq *q = &s->seq[seq];
        reuse(s, q);
        int need = (q->n + s->c.page) / s->c.page - q->n_pages; /* all its tokens and one more */
        if (s->running.n && need > pages_free(s->pages)) {      /* it would only push others out: wait */
            give_back(s, q);
            q->state = SEQ_WAITING;
            seq_list_add(s, &s->waiting, seq);
            return;
        }
        int room = s->c.max_rows - s->step.n_rows, rows = q->n - q->done < room ? q->n - q->done : room;
        int found = q->done;
        to_run(s, seq);
        if (!grow(s, seq, q->done + rows)) {
            preempt(s, seq);
            return;
        }
        s->stats.prefix_tokens += found;
        add_piece(s, seq, rows);
    }
}

const Step *sched_next(Sched *s) {
    s->step.n_pieces = s->step.n_draws = s->step.n_copies = s->step.n_rows = 0;
    memset(s->in_step, 0, (size_t)s->c.max_seqs * sizeof *s->in_step);
    serve(s, true);
    serve(s, false);
    admit(s);
    CHECK(s->step.n_pieces || sched_idle(s), "nothing can run: %d running, %d waiting, %d pages free", s->running.n,
          s->waiting.n, pages_free(s->pages));
    s->stats.steps++;
    s->stats.rows += s->step.n_rows;
    return &s->step;
}

const Step *sched_step(const Sched *s) { return &s->step; }

bool sched_goes_on(const Sched *s) {
    const Step *st = &s->step;
    int need = 0;
    if (st->n_rows != st->n_pieces || st->n_draws != st->n_pieces || s->running.n != st->n_pieces) return false;
    if (s->running.n < s->c.max_batch && (s->waiting.n || s->fresh.n)) return false;
    for (int i = 0; i < s->running.n; i++) {
        const Seq *q = &s->seq[s->running.at[i]];
        need += q->n_pages * s->c.page < q->n + 1;
    }
    return need <= pages_free(s->pages);
}

void sched_done(Sched *s) {
    for (int i = 0; i < s->step.n_pieces; i++) {
        const Piece *p = &s->step.piece[i];
        Seq *q = &s->seq[p->seq];
        if (q->state != SEQ_RUNNING) continue; /* finished by its token */
        q->done = p->start + p->rows;
        for (; (q->entered + 1) * s->c.page <= q->done; q->entered++) {
            int before = q->entered ? q->pages[q->entered - 1] : -1;
            q->pages[q->entered] =
                pages_enter(s->pages, before, q->pages[q->entered], q->tokens + q->entered * s->c.page);
        }
    }
}

void sched_token(Sched *s, int seq, int32_t id, float lp, float ent) {
    Seq *q = &s->seq[seq];
    CHECK(q->n < q->limit, "sequence of %d tokens, at most %d", q->n, q->limit);
    q->tokens[q->n] = id, q->lp[q->n] = lp, q->ent[q->n] = ent;
    q->n++;
}

static bool group_answered(Sched *s, Group *g) {
    if (++g->finished < g->samples) return false;
    g->used = false;
    s->active--;
    return true;
}

bool sched_cancel(Sched *s, int *group, int *sample) {
    int i = 0;
    while (i < s->fresh.n && *group >= 0 && s->fresh.at[i] != *group) i++;
    if (i == s->fresh.n) return false;
    *group = s->fresh.at[i];
    Group *g = &s->group[*group];
    *sample = g->started++;
    if (g->started == g->samples) list_cut(&s->fresh, i);
    group_answered(s, g);
    return true;
}

bool sched_finish(Sched *s, int seq) {
    Seq *q = &s->seq[seq];
    Group *g = &s->group[q->group];
    seq_list_remove(q->state == SEQ_RUNNING ? &s->running : &s->waiting, seq);
    give_back(s, q);
    q->state = SEQ_IDLE;
    s->idle.at[s->idle.n++] = seq;
    return group_answered(s, g);
}

SchedStats sched_stats(const Sched *s) { return s->stats; }
int sched_pages_free(const Sched *s) { return pages_free(s->pages); }
