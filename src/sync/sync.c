/* sync.c - weights from the trainer's cut to the sampler's, by a plan made once.
 * Every rank walks its moves, what it gives and what it gets, in the order that all have, with a few messages
 * under way.  The earliest message that is not done yet has all earlier ones of its giver and its getter behind it,
 * so both have begun it: nobody waits in a circle. */
#include "sync/sync.h"
#include "base/clock.h"
#include "base/stream.h"

#include <stdio.h>

/* ---- a move as memory: n runs of w elements, each ld behind the last */

static Tensor view_of(const Params *p, const ParamDesc *desc, int layer, const SyncMove *m) {
    const Param *x = &p->at[p->index[layer][desc->id]];
    const Slice *s = &x->slice;
    int64_t e = m->e0 - s->e0, experts = m->e1 - m->e0;
    Tensor t = x->t;
    CHECK(e >= 0 && experts <= s->experts, "experts [%ld,%ld) of [%ld,+%ld)", (long)m->e0, (long)m->e1, (long)s->e0,
          (long)s->experts);
    if (desc->cut == BY_COLS)
        return tensor_cols(tensor_rows(t, e * s->rows, experts * s->rows), m->a0 - s->c0, m->a1 - m->a0);
    Tensor runs = tensor_shape(t, s->experts, s->rows * s->cols); /* an expert's rows stand together */
    return tensor_cols(tensor_rows(runs, e, experts), (m->a0 - s->r0) * s->cols, (m->a1 - m->a0) * s->cols);
}

static bool is_near(const Sync *s, int rank) { return s->share && s->share[rank].near; }

static double bytes_of(Tensor x) { return (double)x.rows * (double)x.cols * (double)dtype_size(x.dtype); }

/* ---- copies.  Nobody reads the engine's weights before all of them are there. */
typedef struct {
    Tensor to, from;
    int pieces;
} Copy;
static void copy_piece(void *arg, int k, int worker) {
    (void)worker;
    const Copy *c = arg;
    size_t es = dtype_size(c->to.dtype);
    for (int64_t r = c->to.rows * k / c->pieces; r < c->to.rows * (k + 1) / c->pieces; r++)
        stream_copy((char *)c->to.data + (size_t)(r * c->to.ld) * es,
                    (const char *)c->from.data + (size_t)(r * c->from.ld) * es, (size_t)c->to.cols * es);
    stream_done();
}
static void copy(Dev *d, Tensor to, Tensor from) {
    enum { WORTH = 1 << 20, ROW = 1 << 16 };
    if (d->ops != &ops_cpu || to.dtype != from.dtype) {
        op_copy(d, to, from);
        return;
    }
    if (to.rows == 1 && to.cols % ROW == 0) /* as rows, for threads to share */
        to = tensor_shape(to, to.cols / ROW, ROW), from = tensor_shape(from, from.cols / ROW, ROW);
    Copy c = { to, from, bytes_of(to) < WORTH ? 1 : 4 * threads_count(d->threads) };
    d->ops->enter(d, false);
    if (c.pieces == 1) copy_piece(&c, 0, 0);
    else threads_run(d->threads, c.pieces, copy_piece, &c);
    d->ops->leave(d);
}

/* ---- messages: pieces of moves, in the order of cut/syncorder.c */
enum { SLOTS = 2 * SYNC_SLOTS };

typedef struct {
    Tensor data; /* where it lies here */
    const SyncRow *row;
    int peer;
    bool gives;
} Piece;

typedef struct {
    const Sync *s;
    SyncTurns turns;
    const SyncRow *row; /* where we are: at messages k of this row's moves, from 'move' on */
    int move;
    int64_t k;
    Piece next;
    bool more; /* 'next' is one */
    struct {
        CommCall call;
        Piece piece;
        Tensor slot; /* the piece itself where that travels */
        bool used;
    } at_once[SLOTS];
    double given, got; /* bytes */
} Walk;

/* The next piece of a move of this rank's; false: there are no more. */
static bool next_piece(Walk *w, Piece *out) {
    const Sync *s = w->s;
    int me = s->world->all.rank;
    for (; w->row; w->row = sync_next(&w->turns, &w->k), w->move = 0)
        while (w->move < w->row->n) {
            const SyncRow *row = w->row;
            const SyncMove *m = &s->list.move[row->first + w->move++];
            SyncRuns r = sync_runs(&w->turns.pieces, row, m);
            bool gives = m->from == me;
            int peer = gives ? m->to : m->from;
            if (m->from == m->to || is_near(s, peer) || w->k >= sync_pieces(&w->turns.pieces, r)) continue;
            Tensor all = view_of(gives ? s->from : s->to, row->p, row->layer, m);
            CHECK(all.rows == r.runs && all.cols == r.width, "%s: %ld runs of %ld, not %ld of %ld", row->p->name,
                  (long)all.rows, (long)all.cols, (long)r.runs, (long)r.width);
            SyncPiece p = sync_piece(&w->turns.pieces, r, w->k);
            *out = (Piece){ tensor_cols(tensor_rows(all, p.run, p.runs), p.at, p.n), row, peer, gives };
            *(gives ? &w->given : &w->got) += bytes_of(out->data);
            return true;
        }
    return false;
}

static bool in_one_piece(Tensor x) { return x.rows <= 1 || x.ld == x.cols; }

enum { TAG_SYNC = 1 << 19 };

static void begin(Walk *w, int k) {
    Dev *d = w->s->dev;
    Piece p = w->next;
    Tensor way = p.data;
    if (!in_one_piece(way))
        way = tensor_over(w->s->buffer.base + (size_t)k * (size_t)w->turns.pieces.slot, way.dtype, way.rows, way.cols);
    if (p.gives && way.data != p.data.data) op_copy(d, way, p.data);
    w->at_once[k].piece = p, w->at_once[k].slot = way, w->at_once[k].used = true;
    w->at_once[k].call = (p.gives ? comm_send : comm_recv)(&w->s->world->all, d, p.peer, TAG_SYNC, way);
    w->more = next_piece(w, &w->next);
}

static void end(Walk *w, int k) {
    const Piece *p = &w->at_once[k].piece;
    if (!p->gives && w->at_once[k].slot.data != p->data.data) copy(w->s->dev, p->data, w->at_once[k].slot);
    w->at_once[k].used = false;
}

/* Begins what there are slots for, as long as no two go the same way (comm_together).  Did it? */
static bool begin_some(Walk *w) {
    Piece begun[SLOTS];
    int n = 0;
    for (int k = 0; k < SLOTS && w->more; k++) {
        bool again = false;
        if (w->at_once[k].used) continue;
        for (int i = 0; i < n; i++) again = again || (begun[i].peer == w->next.peer && begun[i].gives == w->next.gives);
        if (again) break;
        if (!n) comm_together(&w->s->world->all, true);
        begun[n++] = w->next;
        begin(w, k);
    }
    if (n) comm_together(&w->s->world->all, false);
    return n > 0;
}

/* Ends what is done; *waits: a call that is still under way, or -1.  Did anything end? */
static bool end_some(Walk *w, int *waits) {
    bool any = false;
    for (int k = 0; k < SLOTS; k++) {
        if (w->at_once[k].used && comm_done(&w->at_once[k].call)) end(w, k), any = true;
        if (w->at_once[k].used) *waits = k;
    }
    return any;
}

static void move_all(Sync *s, SyncStats *stats) {
    SyncPieces pieces = sync_pieces_of((double)s->buffer.size, s->element, s->dev->ops->queue != NULL);
    Walk w = { .s = s, .turns = sync_turns(&s->list, pieces) };
    CommPause pause = { 0 };
    _Static_assert((int)SLOTS <= (int)COMM_TOGETHER, "a bundle takes a message of every slot");
    w.row = sync_next(&w.turns, &w.k);
    w.more = next_piece(&w, &w.next);
    for (;;) {
        int waits = -1;
        bool ended = end_some(&w, &waits), begun = begin_some(&w);
        if (waits < 0 && !begun && !w.more) break;
        if (ended || begun) {
            comm_went_on(&s->world->all, &pause);
            continue;
        }
        const SyncRow *row = w.at_once[waits].piece.row;
        comm_about(&s->world->all, row->p->name, row->layer);
        comm_pause(&w.at_once[waits].call, &pause);
    }
    stats->sent += w.given, stats->received += w.got;
}

/* What ranks of this machine have, out of their memory.  All have come to the sync: nobody writes there any more; and
 * nobody goes on before all have summed up what they got (sync_run). */
static void read_near(Sync *s, SyncStats *stats) {
    int me = s->world->all.rank;
    comm_about(&s->world->all, "all ranks' weights", -1);
    comm_barrier(&s->world->all);
    for (int i = 0; i < s->list.rows; i++) {
        const SyncRow *row = &s->list.row[i];
        for (int k = 0; k < row->n; k++) {
            const SyncMove *m = &s->list.move[row->first + k];
            if (m->from == me && is_near(s, m->to)) stats->sent += bytes_of(view_of(s->from, row->p, row->layer, m));
            if (m->to != me || !is_near(s, m->from)) continue;
            Tensor to = view_of(s->to, row->p, row->layer, m);
            copy(s->dev, to, view_of(s->theirs[m->from], row->p, row->layer, m));
            stats->received += bytes_of(to);
        }
    }
}

static bool same_slice(const Slice *a, const Slice *b) {
    return a->e0 == b->e0 && a->experts == b->experts && a->r0 == b->r0 && a->rows == b->rows && a->c0 == b->c0
           && a->cols == b->cols;
}

/* Rows whose cuts coincide, where the engine has memory of its own for them. */
static void copy_equal(Sync *s, SyncStats *stats) {
    for (int i = 0; i < s->to->n; i++) {
        const Param *to = &s->to->at[i];
        int k = s->from->index[to->layer][to->desc->id];
        if (k < 0 || s->from->at[k].t.data == to->t.data || !same_slice(&s->from->at[k].slice, &to->slice)) continue;
        copy(s->dev, to->t, s->from->at[k].t);
        stats->copied += bytes_of(to->t);
    }
}

/* What the rank has already, in its other cut. */
static void copy_own(Sync *s, SyncStats *stats) {
    int me = s->world->all.rank;
    for (int i = 0; i < s->list.rows; i++) {
        const SyncRow *row = &s->list.row[i];
        for (int k = 0; k < row->n; k++) {
            const SyncMove *m = &s->list.move[row->first + k];
            if (m->from != me || m->to != me) continue;
            Tensor to = view_of(s->to, row->p, row->layer, m);
            copy(s->dev, to, view_of(s->from, row->p, row->layer, m));
            stats->copied += bytes_of(to);
        }
    }
}

/* ---- opening */

static bool is_lent(const Sync *s, const Param *p) {
    int i = s->from->index[p->layer][p->desc->id];
    return i >= 0 && p->t.data && s->from->at[i].t.data == p->t.data;
}

static double largest_received(const SyncList *l, const ModelDesc *m, const GridShape *to, DType t, int me) {
    double largest = 0;
    for (int i = 0; i < l->rows; i++) {
        const ParamDesc *p = l->row[i].p;
        bool gets = false;
        for (int k = 0; k < l->row[i].n; k++) {
            const SyncMove *x = &l->move[l->row[i].first + k];
            gets = gets || (x->to == me && x->from != me);
        }
        if (!gets) continue;
        Slice n = param_slice(m, p, l->row[i].layer, to, grid_at(to, me));
        double bytes = (double)(n.rows * n.cols) * (double)(p->vector ? 4 : dtype_size(t));
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

static double buffer_of(const SyncList *l, const ModelDesc *m, const GridShape *to, DType t, const World *w,
                        int64_t most) {
    return sync_buffer(comm_max(&w->all, largest_received(l, m, to, t, w->all.rank)), (double)most);
}

size_t sync_buffer_bytes(const ModelDesc *m, const GridShape *from, const GridShape *to, DType t, const World *w,
                         int64_t most) {
    SyncPair pair = { m, from, to, w->all.size, w->local_size };
    return (size_t)sync_buffer(sync_largest(&pair, (double)dtype_size(t)), (double)most);
}

/* The weights of the ranks of this machine, as they lie in those ranks' memory. */
static void open_near(Sync *s, DType t, Mem *mem) {
    const Params *from = s->from;
    const Comm *all = &s->world->all;
    Err err;
    s->share = MEM_ARRAY(mem, Share, (size_t)all->size);
    s->theirs = MEM_ARRAY(mem, Params *, (size_t)all->size);
    s->dev->ops->enter(s->dev, false);
    bool ok = share_open(s->share, s->world, from->arena.base, from->arena.size, &err);
    s->dev->ops->leave(s->dev);
    if (!ok) {
        if (speaks()) fprintf(stderr, "hone: sync: %s: weights go by messages\n", err.msg);
        s->share = NULL;
        return;
    }
    for (int i = 0; i < s->list.moves; i++) {
        int r = s->list.move[i].from;
        if (s->list.move[i].to != all->rank || !is_near(s, r) || s->theirs[r]) continue;
        Shard shard = { from->shard.g, grid_at(&from->shard.g, r) };
        s->theirs[r] = MEM_NEW(mem, Params);
        params_open_in(s->theirs[r], from->model, &shard,
                       arena_over("near", (char *)(uintptr_t)s->share[r].at, s->share[r].bytes), t, false, mem);
    }
}

void sync_open(Sync *s, const Params *from, const Params *to, Dev *d, const World *w, int64_t most, bool share,
               Mem *mem) {
    double t0 = clock_now();
    *s = (Sync){ .from = from, .to = to, .dev = d, .world = w };
    SyncPair pair = { from->model, &from->shard.g, &to->shard.g, w->all.size, w->local_size };
    sync_list(&s->list, &pair, w->all.rank, mem);
    DType t = DT_F32;
    for (int i = 0; i < from->n; i++)
        if (!from->at[i].desc->vector) t = from->at[i].t.dtype;
    s->element = (int)dtype_size(t);
    size_t bytes = (size_t)buffer_of(&s->list, from->model, pair.to, t, w, most);
    if (bytes) s->buffer = dev_arena(d, "sync", bytes);
    share =
        share && d->ops == &ops_cpu && !from->borrowed; /* weights that are parked lie amid what is not everybody's */
    if (bytes && comm_max(&w->all, !share) == 0) open_near(s, t, mem);
    s->plan = clock_now() - t0;
}

void sync_close(Sync *s) {
    if (s->buffer.base) dev_free(s->dev, s->buffer.base);
    if (s->share) share_close(s->share, s->world->all.size);
    *s = (Sync){ 0 };
}

bool sync_run(Sync *s, bool check, SyncStats *stats, Err *err) {
    double t0 = clock_now();
    *stats = (SyncStats){ .buffer = (double)s->buffer.size };
    for (int i = 0; i < s->to->n; i++)
        if (is_lent(s, &s->to->at[i])) stats->shared += bytes_of(s->to->at[i].t);
    if (s->share) read_near(s, stats);
    copy_equal(s, stats);
    copy_own(s, stats);
    move_all(s, stats);
    stats->moved = comm_sum(&s->world->all, stats->received);
    bool ok = !check || sync_check(s, err);
    stats->seconds = clock_now() - t0;
    return ok;
}
