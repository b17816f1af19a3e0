/* head.c - the head where ranks of tp have parts of the vocabulary.  Every rank has all rows
 * of h and ends with what one rank would have.
 *
 * Whole distributions: each rank sums its own leaves, which are few numbers, and all end from everybody's leaves.
 * Cut distributions and drawing need a row's logits side by side: each rank makes the logits of its ids, the ranks
 * exchange them so that each has some whole rows, and what came of the rows goes to all.  That moves a row's logits
 * once, and divides the search for thresholds among the ranks. */
#include "model/model.h"

enum { ROWS = 1024, MOST_RANKS = 32 };

static Local local_of(const Model *m, int tp) {
    GridAt there = m->shard.at;
    there.tp = tp;
    return grid_local(m->desc, &m->shard.g, there);
}

static Tensor rows_of(Tensor x, int64_t from, int64_t n) { return x.data ? tensor_rows(x, from, n) : x; }

static void dist_rows(Dist *p, int64_t from, int64_t n) {
    p->inv_temp = rows_of(p->inv_temp, from, n), p->top_k = rows_of(p->top_k, from, n);
    p->top_p = rows_of(p->top_p, from, n), p->min_p = rows_of(p->min_p, from, n);
}

static Head head_rows(Head h, int64_t from, int64_t n) {
    Tensor *all[] = { &h.h, &h.ids, &h.lp, &h.ent, &h.stat, &h.ban, &h.kept };
    for (size_t i = 0; i < COUNT(all); i++) *all[i] = rows_of(*all[i], from, n);
    dist_rows(&h.dist, from, n);
    return h;
}

static Sample sample_rows(Sample s, int64_t from, int64_t n) {
    Tensor *all[] = { &s.h, &s.random, &s.greedy, &s.ban, &s.id, &s.lp, &s.ent, &s.kept };
    for (size_t i = 0; i < COUNT(all); i++) *all[i] = rows_of(*all[i], from, n);
    dist_rows(&s.dist, from, n);
    return s;
}

/* ---- leaves of every rank's ids, in the ids' order, then one end for all; a block of rows at a time bounds what
 * travels */
static void by_leaves(Model *m, const Head *head) {
    const Comm *tp = &m->par.tp;
    Dev *d = m->dev;
    for (int64_t at = 0; at < head->h.rows; at += ROWS) {
        size_t mark = arena_mark(&d->tmp);
        int64_t n = head->h.rows - at < ROWS ? head->h.rows - at : ROWS, cols[MOST_RANKS], most = 0;
        Tensor part[MOST_RANKS];
        Head rows = head_rows(*head, at, n);
        for (int r = 0; r < tp->size; r++) {
            cols[r] = 3 * ((local_of(m, r).vocab + VOCAB_UNIT - 1) / VOCAB_UNIT) + 1;
            if (cols[r] > most) most = cols[r];
        }
        Tensor all = tensor_push(&d->tmp, DT_F32, tp->size, n * most), mine = tensor_push(&d->tmp, DT_F32, 1, n * most);
        op_logprob_part(d, tensor_over(mine.data, DT_F32, n, cols[tp->rank]), &rows);
        CommRows get[MOST_RANKS], give[MOST_RANKS];
        for (int r = 0; r < tp->size; r++) get[r] = (CommRows){ r, 1 }, give[r] = (CommRows){ 0, 1 };
        comm_exchange(tp, d, all, get, mine, give);
        for (int r = 0; r < tp->size; r++) part[r] = tensor_over(tensor_rows(all, r, 1).data, DT_F32, n, cols[r]);
        op_logprob_end(d, part, tp->size, &rows);
        arena_pop(&d->tmp, mark);
    }
}

/* ---- whole rows */
/* So many rows at a time, over all ranks: a few a rank of a large vocabulary. */
static int64_t block_rows(const Model *m) { return m->par.tp.size * (m->desc->d.vocab <= 32768 ? 64 : 16); }

/* Logits [share,V] of this rank's share of h's rows, in tmp. */
static Tensor whole_rows(Model *m, Tensor h) {
    const Comm *tp = &m->par.tp;
    Dev *d = m->dev;
    int64_t n = comm_share(tp, h.rows), most = 0;
    Local l = m->local;
    for (int r = 0; r < tp->size; r++) most = local_of(m, r).vocab > most ? local_of(m, r).vocab : most;
    Tensor all = tensor_push(&d->tmp, DT_F32, n, m->desc->d.vocab);
    size_t mark = arena_mark(&d->tmp);
    Tensor mine = tensor_push(&d->tmp, DT_F32, h.rows, most), got = tensor_push(&d->tmp, DT_F32, n * tp->size, most);
    if (l.vocab) op_linear(d, tensor_cols(mine, 0, l.vocab), h, model_head(m), TENSOR_NONE, leaves_one(h.cols));
    CommRows get[MOST_RANKS], give[MOST_RANKS];
    for (int r = 0; r < tp->size; r++) {
        int64_t first = comm_first_row(tp, h.rows, r);
        get[r] = (CommRows){ r * n, n };
        give[r] = (CommRows){ first, comm_first_row(tp, h.rows, r + 1) - first };
    }
    comm_exchange(tp, d, got, get, mine, give);
    for (int r = 0; r < tp->size; r++) {
        Local there = local_of(m, r);
        if (n && there.vocab)
            op_copy(d, tensor_cols(all, there.vocab0, there.vocab),
                    tensor_cols(tensor_rows(got, r * n, n), 0, there.vocab));
    }
    arena_pop(&d->tmp, mark);
    return all;
}

/* This rank's share of the rows of 'all' is known: now the others' too. */
static void to_all(Model *m, Tensor all) {
    const Comm *tp = &m->par.tp;
    Dev *d = m->dev;
    if (!all.data) return;
    size_t mark = arena_mark(&d->tmp);
    op_copy(d, all, comm_all_gather(tp, d, &d->tmp, tp_mine(&m->par, all), all.rows));
    arena_pop(&d->tmp, mark);
}

static void by_rows(Model *m, const Head *head) {
    const Comm *tp = &m->par.tp;
    int64_t block = block_rows(m);
    for (int64_t at = 0; at < head->h.rows; at += block) {
        size_t mark = arena_mark(&m->dev->tmp);
        int64_t n = head->h.rows - at < block ? head->h.rows - at : block;
        Head rows = head_rows(*head, at, n), mine = head_rows(rows, comm_first_row(tp, n, tp->rank), comm_share(tp, n));
        op_logprob_rows(m->dev, whole_rows(m, rows.h), &mine);
        to_all(m, rows.lp), to_all(m, rows.ent), to_all(m, rows.stat);
        arena_pop(&m->dev->tmp, mark);
    }
}

void model_logprob(Model *m, const Head *head) {
    bool cut = head->dist.top_k.data || head->dist.top_p.data || head->dist.min_p.data;
    if (!head->h.rows) return; /* of cp: this rank has none of the outputs */
    if (m->par.tp.size == 1) op_logprob(m->dev, head);
    else if (cut) by_rows(m, head);
    else by_leaves(m, head);
}

void model_sample(Model *m, const Sample *s) {
    const Comm *tp = &m->par.tp;
    int64_t block = block_rows(m);
    if (tp->size == 1) {
        op_sample(m->dev, s);
        return;
    }
    for (int64_t at = 0; at < s->h.rows; at += block) {
        size_t mark = arena_mark(&m->dev->tmp);
        int64_t n = s->h.rows - at < block ? s->h.rows - at : block;
        Sample rows = sample_rows(*s, at, n),
               mine = sample_rows(rows, comm_first_row(tp, n, tp->rank), comm_share(tp, n));
        op_sample_rows(m->dev, whole_rows(m, rows.h), &mine);
        to_all(m, rows.id), to_all(m, rows.lp), to_all(m, rows.ent), to_all(m, rows.kept);
        arena_pop(&m->dev->tmp, mark);
    }
}

void model_rows_logits(Model *m, Tensor logits, Tensor h) {
    CHECK(m->par.tp.size == 1, "a row's logits side by side, and %d ranks have parts of them", m->par.tp.size);
    op_linear(m->dev, logits, h, model_head(m), TENSOR_NONE, leaves_one(h.cols));
}
void model_rows_logprob(Model *m, Tensor logits, const Head *head) { op_logprob_rows(m->dev, logits, head); }
