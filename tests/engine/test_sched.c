/* test_sched.c - the scheduler alone: a machine without tensors that remembers which position of which text every slot
 * of every page was written with, and looks at everything a step would read. */
#include "base/rng.h"
#include "engine/sched.h"
#include "test.h"

typedef struct {
    Sched *s;
    SchedConf c;
    uint64_t
        *slot;   /* [pages*page] hash of the text up to and including the position that was written there; 0: nothing */
    int *writer; /* [pages*page] in this step: 1 + the sequence that writes here */
    int64_t rows, draws, answers;
    int misread, clash, moved;
} Machine;

static uint64_t step_hash(uint64_t h, int32_t token) { return (h ^ (uint32_t)(token + 1)) * 1099511628211u | 1; }

static uint64_t *slot_of(Machine *m, const Seq *q, int pos) {
    return &m->slot[(size_t)q->pages[pos / m->c.page] * (size_t)m->c.page + (size_t)(pos % m->c.page)];
}

/* Computes a step: writes the rows' slots, and checks that each row finds its whole past. */
static void compute(Machine *m, const Step *st) {
    memset(m->writer, 0, (size_t)m->c.pages * (size_t)m->c.page * sizeof *m->writer);
    for (int i = 0; i < st->n_pieces; i++) {
        const Piece *p = &st->piece[i];
        const Seq *q = sched_seq(m->s, p->seq);
        uint64_t h = 1;
        for (int k = 0; k < p->start + p->rows; k++) {
            h = step_hash(h, q->tokens[k]);
            uint64_t *slot = slot_of(m, q, k);
            if (k < p->start) {
                m->misread += *slot != h;
                continue;
            }
            int *w = &m->writer[slot - m->slot];
            m->clash += *w != 0;
            *w = p->seq + 1;
            *slot = h;
        }
        m->rows += p->rows;
    }
    for (int i = 0; i < st->n_copies; i++) { /* a fork's own copy of the last page */
        const Copy *d = &st->copy[i];
        size_t page = (size_t)m->c.page;
        memcpy(m->slot + (size_t)d->to * page, m->slot + (size_t)d->from * page, page * sizeof *m->slot);
    }
}

/* The "model": a token is a function of all tokens before it and the answer's number. */
static int32_t token_of(const Seq *q, int letters) {
    uint64_t h = (uint64_t)q->sample * 7919;
    for (int i = 0; i < q->n; i++) h = step_hash(h, q->tokens[i]);
    return (int32_t)((h >> 20) % (uint64_t)letters);
}

static Machine machine(const SchedConf *c, Mem *mem) {
    size_t slots = (size_t)c->pages * (size_t)c->page;
    return (Machine){
        .s = sched_open(c, mem), .c = *c, .slot = MEM_ARRAY(mem, uint64_t, slots), .writer = MEM_ARRAY(mem, int, slots)
    };
}

static void check_limits(Machine *m, const Step *st) {
    m->moved += st->n_pieces > m->c.max_batch || st->n_rows > m->c.max_rows || st->n_pieces < 1;
    for (int i = 0; i < st->n_pieces; i++) {
        const Seq *q = sched_seq(m->s, st->piece[i].seq);
        m->moved += st->piece[i].start != q->done || st->piece[i].draws != (q->done + st->piece[i].rows == q->n)
                    || q->state != SEQ_RUNNING;
        m->moved += q->n_pages * m->c.page < st->piece[i].start + st->piece[i].rows;
    }
}

typedef struct {
    int32_t *tokens;
    int n, samples, max;
    int answered;
} Job;

/* Feeds jobs as there is room, until all are answered; an answer ends with token 0 or at its limit. */
static void serve_all(Machine *m, Job *job, int n, int letters, int *wrong) {
    Mem mem = { 0 };
    int *of = MEM_ARRAY(&mem, int, (size_t)m->c.max_seqs), *done = MEM_ARRAY(&mem, int, (size_t)m->c.max_seqs),
        next = 0;
    for (int64_t guard = 0; guard < 4000000; guard++) {
        while (next < n && sched_room(m->s)) {
            int g = sched_add(m->s, job[next].tokens, job[next].n, job[next].samples, job[next].max);
            of[g] = next++;
        }
        if (sched_idle(m->s)) break;
        const Step *st = sched_next(m->s);
        check_limits(m, st);
        compute(m, st);
        for (int i = 0; i < st->n_draws; i++) {
            Seq *q = sched_seq(m->s, st->draw[i].seq);
            int32_t id = token_of(q, letters);
            sched_token(m->s, st->draw[i].seq, id, 0, 0);
            done[i] = id == 0 || q->n == q->limit;
            m->draws++;
        }
        sched_done(m->s);
        for (int i = 0; i < st->n_draws; i++) {
            if (!done[i]) continue;
            Seq *q = sched_seq(m->s, st->draw[i].seq);
            Job *j = &job[of[q->group]];
            *wrong += q->prompt != j->n || memcmp(q->tokens, j->tokens, (size_t)j->n * 4);
            Seq replay = *q; /* the answer is what the "model" says, token by token */
            for (replay.n = q->prompt; replay.n < q->n; replay.n++)
                *wrong += token_of(&replay, letters) != q->tokens[replay.n];
            j->answered++;
            m->answers++;
            sched_finish(m->s, st->draw[i].seq);
        }
    }
    *wrong += next != n;
    mem_free(&mem);
}

static int upto(uint64_t seed, uint32_t i, int most) {
    return 1 + (int)(rng_u64(seed, RNG_PLAN, 1, 0, 0, i) % (uint64_t)most);
}

/* Random jobs on a random small machine; texts over few letters share beginnings. */
static SchedStats random_work(uint64_t seed) {
    Mem mem = { 0 };
    int page = (int[]){ 1, 2, 4, 16 }[upto(seed, 1, 4) - 1], max_len = 8 + upto(seed, 2, 60),
        least = (max_len + page - 1) / page + 1;
    int seqs = upto(seed, 3, 12), batch = upto(seed, 4, seqs);
    SchedConf c = { .page = page,
                    .pages = least + upto(seed, 5, 2 * least) - 1,
                    .max_seqs = seqs,
                    .max_batch = batch,
                    .max_rows = upto(seed, 6, 24),
                    .max_len = max_len };
    Machine m = machine(&c, &mem);
    int n = 10 + upto(seed, 7, 30), letters = 2 + upto(seed, 8, 20), wrong = 0;
    Job *job = MEM_ARRAY(&mem, Job, (size_t)n);
    int64_t want = 0;
    for (int i = 0; i < n; i++) {
        uint32_t k = 100 + 10 * (uint32_t)i;
        job[i].n = upto(seed, k, max_len - 1);
        job[i].samples = upto(seed, k + 1, 6);
        job[i].max = upto(seed, k + 2, 40);
        job[i].tokens = MEM_ARRAY(&mem, int32_t, (size_t)job[i].n);
        int same = i % 3 ? 0 : job[i].n; /* two in three begin alike */
        for (int t = 0; t < job[i].n; t++)
            job[i].tokens[t] = t < same ? upto(seed, (uint32_t)(9000 + i * 100 + t), letters) : t % 3;
        want += job[i].samples;
    }
    serve_all(&m, job, n, letters, &wrong);
    int unanswered = 0;
    for (int i = 0; i < n; i++) unanswered += job[i].answered != job[i].samples;
    EXPECT(!unanswered && m.answers == want, "seed %d: %d jobs without all their answers", (int)seed, unanswered);
    EXPECT(!m.misread, "seed %d: %d positions were read from a page that holds something else", (int)seed, m.misread);
    EXPECT(!m.clash, "seed %d: %d slots were written twice in a step", (int)seed, m.clash);
    EXPECT(!m.moved && !wrong, "seed %d: %d steps broke a limit, %d answers are wrong", (int)seed, m.moved, wrong);
    SchedStats st = sched_stats(m.s);
    EXPECT(sched_idle(m.s) && st.rows == m.rows, "seed %d: not idle at the end", (int)seed);
    EXPECT(sched_pages_free(m.s) == c.pages, "seed %d: %d of %d pages are free at the end", (int)seed,
           sched_pages_free(m.s), c.pages);
    mem_free(&mem);
    return st;
}

/* n answers to one long prompt: the prompt is computed once. */
static void one_prefill(int samples, int max_rows, int prompt) {
    enum { MAX = 20 };
    Mem mem = { 0 };
    int page = 16, pages = (prompt + MAX) / page + 2 + samples * (MAX / page + 3);
    SchedConf c = { .page = page,
                    .pages = pages,
                    .max_seqs = samples,
                    .max_batch = samples,
                    .max_rows = max_rows,
                    .max_len = prompt + MAX };
    Machine m = machine(&c, &mem);
    Job job = { MEM_ARRAY(&mem, int32_t, (size_t)prompt), prompt, samples, MAX, 0 };
    for (int i = 0; i < prompt; i++) job.tokens[i] = i % 97;
    int wrong = 0;
    serve_all(&m, &job, 1, 1000000, &wrong);
    /* an answer's last token is never fed back, and the first of each came from the prompt's last row */
    int64_t decode = m.draws - samples, forks = sched_stats(m.s).forks;
    EXPECT(m.rows == prompt + decode && !wrong, "%d answers: %d rows for a prompt of %d and %d tokens", samples,
           (int)m.rows, prompt, (int)m.draws);
    EXPECT(forks == samples - 1 && !m.misread && !m.clash, "%d answers: %d forks, %d misread", samples, (int)forks,
           m.misread);
    mem_free(&mem);
}

/* A later turn of a conversation finds the earlier one's pages; after a flush it does not. */
static void later_turn(void) {
    Mem mem = { 0 };
    SchedConf c = { .page = 4, .pages = 40, .max_seqs = 2, .max_batch = 2, .max_rows = 64, .max_len = 60 };
    Machine m = machine(&c, &mem);
    int32_t text[40];
    for (int i = 0; i < 40; i++) text[i] = i;
    Job first = { text, 20, 1, 4, 0 }, second = { text, 32, 1, 4, 0 }, third = second;
    int wrong = 0;
    serve_all(&m, &first, 1, 1000, &wrong);
    int64_t rows = m.rows;
    serve_all(&m, &second, 1, 1000, &wrong);
    EXPECT(sched_stats(m.s).prefix_tokens == 20 && !m.misread, "%d tokens of the earlier turn were found",
           (int)sched_stats(m.s).prefix_tokens);
    EXPECT(m.rows - rows < 32, "%d rows for a turn of 32 tokens, 20 of them known", (int)(m.rows - rows));
    sched_flush(m.s);
    serve_all(&m, &third, 1, 1000, &wrong);
    EXPECT(sched_stats(m.s).prefix_tokens == 20 && !wrong, "after a flush nothing is known");
    mem_free(&mem);
}

/* Answers not begun can be given up. */
static void given_up(void) {
    Mem mem = { 0 };
    SchedConf c = { .page = 4, .pages = 20, .max_seqs = 3, .max_batch = 3, .max_rows = 8, .max_len = 16 };
    Sched *s = sched_open(&c, &mem);
    int32_t text[4] = { 1, 2, 3, 4 };
    sched_add(s, text, 4, 2, 4);
    int g = -1, k, n = 0;
    for (; sched_cancel(s, &g, &k); g = -1) n++;
    EXPECT(n == 2 && sched_idle(s), "%d of 2 given up", n);
    int first = sched_add(s, text, 4, 2, 4), second = sched_add(s, text, 4, 3, 4);
    for (n = 0, g = second; sched_cancel(s, &g, &k); n++)
        EXPECT(g == second, "an answer of group %d, not %d", g, second);
    EXPECT(n == 3 && sched_over(s, second) && !sched_over(s, first), "%d of 3 of one group given up", n);
    mem_free(&mem);
}

int main(void) {
    SchedStats all = { 0 };
    for (uint64_t seed = 0; seed < 300; seed++) {
        SchedStats s = random_work(seed);
        all.preempted += s.preempted, all.forks += s.forks, all.prefix_tokens += s.prefix_tokens;
    }
    EXPECT(all.preempted > 1000 && all.forks > 1000 && all.prefix_tokens > 1000,
           "%d preempted, %d forks, %d tokens found: this test saw too little", (int)all.preempted, (int)all.forks,
           (int)all.prefix_tokens);
    one_prefill(16, 512, 1024);
    one_prefill(16, 100, 1000);
    one_prefill(1, 2048, 1024);
    later_turn();
    given_up();
    return test_end();
}
