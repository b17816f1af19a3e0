/* comm.c - what groups do with tensors and small values, in terms of a backend's calls; waiting with a deadline. */
#include "comm/comm.h"
#include "base/clock.h"
#include "base/last_words.h"
#include "comm/watch.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- waiting */

/* A transport fails because the peer is gone, and may know it before the watch does, which will say who it was and end
 * this rank: it is waited for, a while. */
NORETURN static void failed(const CommCall *w) {
    enum { A_WHILE_MS = 3000 };
    for (int ms = 0; watch_begun(w->c->watch) && ms < A_WHILE_MS; ms++)
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    die("%s of group %s failed (rank %d of %d%s)", w->what, w->c->name, w->c->rank, w->c->size,
        w->peer >= 0 ? ", with a neighbour" : "");
}

bool comm_done(CommCall *w) {
    if (!w->call) return true;
    if (w->d) w->d->ops->enter(w->d, false); /* bytes may arrive while we ask */
    int done = w->c->via->test(w->call);
    if (w->d) w->d->ops->leave(w->d);
    if (done < 0) failed(w);
    if (done) w->call = NULL;
    return done;
}

/* "a receipt from rank 1 of group pp, F32 [64,512], layer 3" */
static void describe(const CommCall *w, char *text, size_t room) {
    const Comm *c = w->c;
    size_t n;
    if (w->peer < 0) snprintf(text, room, "%s of group %s", w->what, c->name);
    else
        snprintf(text, room, "%s %s rank %d of group %s", w->what, strcmp(w->what, "a receipt") ? "to" : "from",
                 w->peer, c->name);
    n = strlen(text);
    if (w->x.cols)
        snprintf(text + n, room - n, ", %s [%ld,%ld]", dtype_name(w->x.dtype), (long)w->x.rows, (long)w->x.cols);
    watch_put_about(c->watch, text, room);
}

/* Ranks may be more than cores: whoever waits makes room, and after a millisecond sleeps, for a thirtieth of the time
 * that it has waited, so that little is lost when the peer comes.  While so many bytes may be coming in the sleeps stay
 * short: it is these calls that move them. */
static void make_room(double waited, size_t bytes) {
    enum { SHORTEST = 20000, LONGEST = 1000000 };
    double ns = (waited - (double)bytes / 2e8) * 1e9 / 32;
    if (waited < 1e-3) sched_yield();
    else nanosleep(&(struct timespec){ 0, ns < SHORTEST ? SHORTEST : ns > LONGEST ? LONGEST : (long)ns }, NULL);
}

void comm_pause(const CommCall *w, CommPause *p) {
    const Comm *c = w->c;
    char text[200];
    double now = clock_now();
    if (p->start == 0) p->start = now, p->device = c->via->awaits && c->via->awaits(w->call);
    double waited = now - p->start;
    make_room(waited, tensor_bytes(w->x.dtype, w->x.rows, w->x.cols));
    bool late = !watch_begun(c->watch) && c->wait > 0 && waited > c->wait;
    if (late || (waited > 0.02 && !p->told)) describe(w, text, sizeof text);
    if (waited > 0.02 && !p->told) watch_waits(c->watch, text), p->told = true;
    if (late)
        die_outside("rank %d waited %.0f s (trainer.wait_seconds) in vain, in %s, for %s", c->world, c->wait,
                    watch_phase_name(c->watch), text);
}

void comm_went_on(const Comm *c, CommPause *p) {
    if (p->told) watch_waits(c->watch, NULL);
    if (p->start > 0 && !p->device) watch_add_waited(c->watch, clock_now() - p->start);
    *p = (CommPause){ 0 };
}

void comm_wait(CommCall *w) {
    CommPause p = { 0 };
    if (w->call && w->c->via->follow && w->c->via->follow(w)) w->call = NULL;
    while (!comm_done(w)) comm_pause(w, &p);
    comm_went_on(w->c, &p);
}

static void finish(const Comm *c, void *call, const char *what, Tensor x) {
    CommCall w = { c, NULL, call, what, -1, x };
    comm_wait(&w);
}

void comm_about(const Comm *c, const char *tensor, int index) { watch_about(c->watch, tensor, index); }
CommAbout comm_about_now(const Comm *c) {
    CommAbout a = { NULL, -1 };
    watch_about_now(c->watch, &a.tensor, &a.index);
    return a;
}

/* ---- tensors */

static size_t row_bytes(Tensor x) { return (size_t)x.cols * dtype_size(x.dtype); }
static void want_rows(const char *what, Tensor x) {
    CHECK(x.rows <= 1 || x.ld == x.cols, "%s: rows of %ld, %ld apart; no gaps wanted", what, (long)x.cols, (long)x.ld);
}

static CommCall begun(const Comm *c, Dev *d, int peer, int tag, Tensor x, bool send) {
    CommCall w = { c, d, NULL, send ? "a sending" : "a receipt", peer, x };
    want_rows(w.what, x);
    if (!c->via) return w;
    size_t bytes = (size_t)x.rows * row_bytes(x);
    d->ops->enter(d, false);
    w.call = send ? c->via->send(c, peer, tag, x.data, bytes) : c->via->recv(c, peer, tag, x.data, bytes);
    d->ops->leave(d);
    return w;
}
CommCall comm_send(const Comm *c, Dev *d, int peer, int tag, Tensor x) { return begun(c, d, peer, tag, x, true); }
CommCall comm_recv(const Comm *c, Dev *d, int peer, int tag, Tensor x) { return begun(c, d, peer, tag, x, false); }

void comm_together(const Comm *c, bool begins) {
    if (c->via && c->via->together) c->via->together(c, begins);
}

CommCall comm_send_host(const Comm *c, int peer, int tag, const void *from, size_t bytes) {
    return (CommCall){ c, NULL, c->via ? c->via->send_host(c, peer, tag, from, bytes) : NULL, "a sending", peer };
}
CommCall comm_recv_host(const Comm *c, int peer, int tag, void *to, size_t bytes) {
    return (CommCall){ c, NULL, c->via ? c->via->recv_host(c, peer, tag, to, bytes) : NULL, "a receipt", peer };
}

Tensor comm_all_gather(const Comm *c, Dev *d, Arena *a, Tensor mine, int64_t total) {
    CHECK(mine.rows == comm_share(c, total), "all-gather over %s: %ld rows of %ld, %ld are this rank's", c->name,
          (long)mine.rows, (long)total, (long)comm_share(c, total));
    if (c->size == 1) return mine;
    Tensor all = tensor_push(a, mine.dtype, total, mine.cols);
    size_t mark = arena_mark(&d->tmp);
    if (mine.rows > 1 && mine.ld != mine.cols) {
        Tensor packed = tensor_push(&d->tmp, mine.dtype, mine.rows, mine.cols);
        op_copy(d, packed, mine);
        mine = packed;
    }
    CommPart get[COMM_MOST];
    CHECK(c->size <= COMM_MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) {
        int64_t first = comm_first_row(c, total, r);
        get[r] = (CommPart){ (size_t)first * row_bytes(all),
                             (size_t)(comm_first_row(c, total, r + 1) - first) * row_bytes(all) };
    }
    d->ops->enter(d, false);
    finish(c, c->via->all_gather(c, all.data, get, mine.data, (size_t)mine.rows * row_bytes(mine)), "an all-gather",
           all);
    d->ops->leave(d);
    arena_pop(&d->tmp, mark);
    return all;
}

CommCall comm_exchange_begin(const Comm *c, Dev *d, Tensor to, const CommRows *get, Tensor from, const CommRows *give) {
    want_rows("exchange", to);
    want_rows("exchange", from);
    CHECK(to.dtype == from.dtype && to.cols == from.cols && c->size <= COMM_MOST,
          "exchange over %s: %s x %ld to %s x %ld", c->name, dtype_name(from.dtype), (long)from.cols,
          dtype_name(to.dtype), (long)to.cols);
    CommCall w = { c, d, NULL, "an exchange", -1, to };
    if (c->size == 1) {
        if (give[0].n) op_copy(d, tensor_rows(to, get[0].at, get[0].n), tensor_rows(from, give[0].at, give[0].n));
        return w;
    }
    CommPart in[COMM_MOST], out[COMM_MOST];
    size_t row = row_bytes(to);
    for (int r = 0; r < c->size; r++) {
        in[r] = (CommPart){ (size_t)get[r].at * row, (size_t)get[r].n * row };
        out[r] = (CommPart){ (size_t)give[r].at * row, (size_t)give[r].n * row };
    }
    d->ops->enter(d, false);
    w.call = c->via->all_to_all(c, to.data, in, from.data, out);
    d->ops->leave(d);
    CHECK(w.call || comm_is_dry(c), "an exchange over %s could not begin", c->name);
    return w;
}
void comm_exchange(const Comm *c, Dev *d, Tensor to, const CommRows *get, Tensor from, const CommRows *give) {
    if (c->size > 1) d->ops->enter(d, false);
    CommCall w = comm_exchange_begin(c, d, to, get, from, give);
    comm_wait(&w);
    if (c->size > 1) d->ops->leave(d);
}

Tensor comm_partial(const Comm *c, Arena *a, Tensor mine, int64_t total) {
    return c->size == 1 ? mine : tensor_push(a, DT_F32, total, mine.cols);
}

void comm_reduce_scatter(const Comm *c, Dev *d, Tensor mine, Tensor partial) {
    if (c->size == 1 && partial.data == mine.data) return;
    CHECK((c->size & (c->size - 1)) == 0 && c->size <= 32, "a tree over %d ranks of %s", c->size, c->name);
    int64_t total = partial.rows, n = comm_share(c, total);
    CHECK(mine.rows == n && mine.cols == partial.cols, "reduce-scatter over %s: [%ld,%ld] of [%ld,%ld]", c->name,
          (long)mine.rows, (long)mine.cols, (long)total, (long)partial.cols);
    size_t mark = arena_mark(&d->tmp);
    if (partial.rows > 1 && partial.ld != partial.cols) {
        Tensor packed = tensor_push(&d->tmp, partial.dtype, total, partial.cols);
        op_copy(d, packed, partial);
        partial = packed;
    }
    Tensor all = tensor_push(&d->tmp, partial.dtype, n * c->size, partial.cols), part[32];
    CommRows get[32], give[32];
    for (int r = 0; r < c->size; r++) {
        int64_t first = comm_first_row(c, total, r);
        get[r] = (CommRows){ r * n, n };
        give[r] = (CommRows){ first, comm_first_row(c, total, r + 1) - first };
        part[r] = tensor_rows(all, r * n, n);
    }
    comm_exchange(c, d, all, get, partial, give);
    op_tree_add(d, mine, part, c->size);
    arena_pop(&d->tmp, mark);
}

/* ---- small host values */

void comm_gather_host(const Comm *c, void *all, const void *mine, size_t bytes) {
    if (!c->via) memcpy(all, mine, bytes);
    else
        finish(c, c->via->gather_host(c, all, NULL, mine, bytes), "a gathering of values",
               tensor_over(NULL, DT_U8, c->size, (int64_t)bytes));
}

void comm_gather_parts(const Comm *c, void *all, const CommPart *get, const void *mine) {
    size_t own = get[c->rank].bytes, sum = 0;
    for (int r = 0; r < c->size; r++) sum += get[r].bytes;
    if (c->via)
        finish(c, c->via->gather_host(c, all, get, mine, own), "a gathering of values",
               tensor_over(NULL, DT_U8, 1, (int64_t)sum));
    else if (own) memcpy((char *)all + get->at, mine, own);
}

CommCall comm_read_begin(const Comm *c, Dev *d, void *all, Tensor received, Tensor mine) {
    CommCall w = { c, d, NULL, "a reading of values", -1, received };
    size_t bytes = tensor_bytes(mine.dtype, mine.rows, mine.cols);
    want_rows(w.what, mine);
    CHECK(tensor_bytes(received.dtype, received.rows, received.cols) == bytes * (size_t)c->size,
          "values of %d ranks in %ld rows", c->size, (long)received.rows);
    if (c->size == 1) {
        op_get(d, all, mine);
        return w;
    }
    d->ops->enter(d, false);
    w.call = c->via->read(c, all, received.data, mine.data, bytes);
    d->ops->leave(d);
    return w;
}

void comm_read_room(const Comm *c, size_t bytes) {
    if (c->via && c->via->read_room) c->via->read_room(c, bytes);
}

#define GATHERED(T, x)                                                                                                 \
    T all_[COMM_MOST];                                                                                                 \
    CHECK(c->size <= COMM_MOST, "a group of %d ranks", c->size);                                                       \
    comm_gather_host(c, all_, &(x), sizeof(x))

double comm_sum(const Comm *c, double x) {
    GATHERED(double, x);
    double sum = all_[0];
    for (int r = 1; r < c->size; r++) sum += all_[r];
    return sum;
}
double comm_max(const Comm *c, double x) {
    GATHERED(double, x);
    double most = all_[0];
    for (int r = 1; r < c->size; r++)
        if (!(all_[r] <= most)) most = all_[r]; /* a NaN stays */
    return most;
}
int64_t comm_sum_i64(const Comm *c, int64_t x) {
    GATHERED(int64_t, x);
    int64_t sum = 0;
    for (int r = 0; r < c->size; r++) sum += all_[r];
    return sum;
}
bool comm_agree(const Comm *c, bool ok, Err *err) {
    if (c->size == 1) return ok;
    if (comm_sum_i64(c, !ok) == 0) return true;
    typedef struct {
        Err err;
        bool ok;
    } Word;
    Mem mem = { 0 };
    Word mine = { .ok = ok }, *word = MEM_ARRAY(&mem, Word, (size_t)c->size);
    if (!ok) mine.err = *err;
    comm_gather_host(c, word, &mine, sizeof mine);
    int bad = 0;
    while (word[bad].ok) bad++;
    *err = word[bad].err;
    char own[24];
    snprintf(own, sizeof own, "rank %d ", bad);
    if (bad && strncmp(err->msg, own, strlen(own))) err_wrap(err, "rank %d", bad);
    mem_free(&mem);
    return false;
}

void comm_barrier(const Comm *c) { comm_sum_i64(c, 0); }

void comm_broadcast(const Comm *c, int from, void *data, size_t bytes) {
    if (c->via)
        finish(c, c->via->broadcast_host(c, from, data, bytes), "a broadcast",
               tensor_over(NULL, DT_U8, 1, (int64_t)bytes));
}
