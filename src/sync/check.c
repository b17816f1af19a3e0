/* check.c - the same weights on both sides?  A tensor's sum is over its elements, each one's bits times a weight
 * that its place in the whole tensor names, modulo 2^64: whoever holds a part can sum that part, and parts that do
 * not overlap add up to the whole.  Weights are odd, so one wrong bit is always seen; slices that changed places or
 * are missing, but for one chance in 2^64 or so. */
#include "sync/sync.h"

#include <string.h>

static uint64_t mix(uint64_t x) { /* the finalizer of splitmix64: every bit of x moves every bit of the result */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
static uint64_t weight(uint64_t place) { return mix(place + 0x9E3779B97F4A7C15u) | 1; }

typedef struct {
    Dev *d;
    void *host; /* room for BLOCK bytes */
    uint64_t
        *by_word; /* [widest] of 8 bytes of a row: an element's weight is its word's, moved up by its place in it */
} Summing;
enum { BLOCK = 1 << 20 };

/* Columns c0 .. c0+n-1 of a row.  Words are taken whole, but for the ends: a cut may lie inside one. */
static uint64_t sum_row(const char *x, size_t size, const uint64_t *w, int64_t c0, int64_t n) {
    uint64_t sum = 0, word = 0;
    int64_t per = 8 / (int64_t)size, i = 0;
    for (; i < n && (c0 + i) % per; i++) {
        memcpy(&word, x + i * (int64_t)size, size);
        sum += (w[(c0 + i) / per] << 8 * size * (size_t)((c0 + i) % per)) * word;
    }
    for (w += (c0 + i) / per; i + per <= n; i += per) {
        memcpy(&word, x + i * (int64_t)size, 8);
        sum += *w++ * word;
    }
    for (int64_t k = 0; i < n; i++, k++) {
        word = 0;
        memcpy(&word, x + i * (int64_t)size, size);
        sum += (*w << 8 * size * (size_t)k) * word;
    }
    return sum;
}

/* Rows of several experts, as they lie in the host's memory. */
enum { PIECES = 64 };
typedef struct {
    const char *at;  /* the first of them, its column c0 */
    size_t ld, size; /* bytes: from one row to the next; of an element */
    const uint64_t *by_word;
    int64_t e0, experts, r0, rows, each, c0, cols; /* rows of an expert are summed, of 'each' that lie there */
    int pieces;
    uint64_t sum[PIECES];
} Box;

static void sum_piece(void *arg, int piece, int worker) {
    (void)worker;
    Box *b = arg;
    uint64_t sum = 0;
    int64_t n = b->experts * b->rows;
    for (int64_t k = n * piece / b->pieces; k < n * (piece + 1) / b->pieces; k++) {
        int64_t e = k / b->rows, r = k % b->rows;
        sum += weight((uint64_t)(b->e0 + e) << 40 | (uint64_t)(b->r0 + r) | (uint64_t)1 << 63)
               * sum_row(b->at + (size_t)(e * b->each + r) * b->ld, b->size, b->by_word, b->c0, b->cols);
    }
    b->sum[piece] = sum;
}

/* Of rows [r0,r1) and columns [c0,c1) of the experts of a box, in a rank's slice of the tensor. */
static uint64_t sum_box(Summing *x, const Param *p, int64_t e0, int64_t e1, int64_t r0, int64_t r1, int64_t c0,
                        int64_t c1) {
    enum { WORTH = 1 << 18 };
    const Slice *s = &p->slice;
    size_t size = dtype_size(p->t.dtype);
    int64_t cols = c1 - c0, rows = r1 - r0, fit = BLOCK / (int64_t)size / (cols > 0 ? cols : 1);
    Box b = { .size = size, .by_word = x->by_word, .c0 = c0, .cols = cols, .pieces = 1 };
    uint64_t sum = 0;
    if (e1 <= e0 || rows <= 0 || cols <= 0) return 0;
    Tensor all = tensor_cols(tensor_rows(p->t, (e0 - s->e0) * s->rows + r0 - s->r0, (e1 - e0 - 1) * s->rows + rows),
                             c0 - s->c0, cols);
    if (x->d->ops == &ops_cpu) { /* where it lies */
        b.at = all.data, b.ld = (size_t)all.ld * size;
        b.e0 = e0, b.experts = e1 - e0, b.r0 = r0, b.rows = rows, b.each = s->rows;
        if ((size_t)((e1 - e0) * rows * cols) * size > WORTH) b.pieces = 4 * threads_count(x->d->threads);
        if (b.pieces > PIECES) b.pieces = PIECES;
        x->d->ops->enter(x->d, false);
        threads_run(x->d->threads, b.pieces, sum_piece, &b);
        x->d->ops->leave(x->d);
        for (int i = 0; i < b.pieces; i++) sum += b.sum[i];
        return sum;
    }
    if (fit < 1) fit = 1;
    b.at = x->host, b.ld = (size_t)cols * size, b.experts = 1;
    for (b.e0 = e0; b.e0 < e1; b.e0++)
        for (b.r0 = r0; b.r0 < r1; b.r0 += fit) {
            b.rows = r1 - b.r0 < fit ? r1 - b.r0 : fit;
            op_get(x->d, x->host, tensor_rows(all, (b.e0 - e0) * s->rows + b.r0 - r0, b.rows));
            sum_piece(&b, 0, 0);
            sum += b.sum[0];
        }
    return sum;
}

static uint64_t sum_move(Summing *x, const Params *from, const SyncRow *row, const SyncMove *m) {
    const Param *p = &from->at[from->index[row->layer][row->p->id]];
    const Slice *s = &p->slice;
    if (row->p->cut == BY_COLS) return sum_box(x, p, m->e0, m->e1, s->r0, s->r0 + s->rows, m->a0, m->a1);
    return sum_box(x, p, m->e0, m->e1, m->a0, m->a1, s->c0, s->c0 + s->cols);
}
static uint64_t sum_slice(Summing *x, const Param *p) {
    const Slice *s = &p->slice;
    return sum_box(x, p, s->e0, s->e0 + s->experts, s->r0, s->r0 + s->rows, s->c0, s->c0 + s->cols);
}

static Summing summing_open(const Sync *s, Mem *mem) {
    int64_t widest = 1;
    for (int i = 0; i < s->list.rows; i++) {
        int64_t cols = param_cols(&s->from->model->d, s->list.row[i].p, s->list.row[i].layer);
        if (cols > widest) widest = cols;
    }
    size_t room = (size_t)widest * 4 > BLOCK ? (size_t)widest * 4 : BLOCK;
    Summing x = { s->dev, mem_push(mem, room), MEM_ARRAY(mem, uint64_t, (size_t)widest) };
    for (int64_t i = 0; i < widest; i++) x.by_word[i] = weight((uint64_t)i);
    return x;
}

typedef struct {
    int64_t *gives, *gets; /* [ranks] moves to and from each */
    uint64_t **out, **in;  /* [ranks][moves] their sums */
} Sums;

static void count_moves(Sums *x, const Sync *s, Mem *mem) {
    int me = s->world->all.rank;
    size_t ranks = (size_t)s->world->all.size;
    x->gives = MEM_ARRAY(mem, int64_t, ranks), x->gets = MEM_ARRAY(mem, int64_t, ranks);
    x->out = MEM_ARRAY(mem, uint64_t *, ranks), x->in = MEM_ARRAY(mem, uint64_t *, ranks);
    for (int i = 0; i < s->list.rows; i++)
        for (int k = 0; k < s->list.row[i].n; k++) {
            const SyncMove *m = &s->list.move[s->list.row[i].first + k];
            if (m->from == me) x->gives[m->to]++;
            if (m->to == me) x->gets[m->from]++;
        }
    for (size_t r = 0; r < ranks; r++) {
        x->out[r] = MEM_ARRAY(mem, uint64_t, (size_t)x->gives[r]);
        x->in[r] = MEM_ARRAY(mem, uint64_t, (size_t)x->gets[r]);
    }
}

enum { TAG_SUMS = (1 << 19) + 1 };

/* Every giver's sums, in the order of its moves, to their getter. */
static void exchange_sums(Sums *x, const Sync *s, Mem *mem) {
    const Comm *all = &s->world->all;
    CommCall *call = MEM_ARRAY(mem, CommCall, 2 * (size_t)all->size);
    int n = 0;
    for (int r = 0; r < all->size; r++) {
        if (r == all->rank) memcpy(x->in[r], x->out[r], (size_t)x->gives[r] * sizeof(uint64_t));
        else if (x->gets[r])
            call[n++] = comm_recv_host(all, r, TAG_SUMS, x->in[r], (size_t)x->gets[r] * sizeof(uint64_t));
    }
    for (int r = 0; r < all->size; r++)
        if (r != all->rank && x->gives[r])
            call[n++] = comm_send_host(all, r, TAG_SUMS, x->out[r], (size_t)x->gives[r] * sizeof(uint64_t));
    for (int i = 0; i < n; i++) comm_wait(&call[i]);
}

static bool wrong(const Sync *s, const SyncRow *row, Err *err) {
    Buf name = { 0 };
    arch_param_name(&name, row->p, row->layer, 0);
    err_set(err, "sync: the engine's slice of %s on rank %d is not the trainer's: memory or a transport changed it%s",
            name.data, s->world->all.rank, row->p->where == IN_EXPERT ? " (this expert's or another's)" : "");
    buf_free(&name);
    return false;
}

static bool same_part(const SyncMove *a, const SyncMove *b) {
    return a->e0 == b->e0 && a->e1 == b->e1 && a->a0 == b->a0 && a->a1 == b->a1;
}

bool sync_check(Sync *s, Err *err) {
    Mem mem = { 0 };
    Sums x;
    int me = s->world->all.rank;
    size_t ranks = (size_t)s->world->all.size;
    count_moves(&x, s, &mem);
    Summing sum = summing_open(s, &mem);
    int64_t *at = MEM_ARRAY(&mem, int64_t, ranks);
    for (int i = 0; i < s->list.rows; i++) {
        const SyncRow *row = &s->list.row[i];
        const SyncMove *last = NULL; /* several get the same: it is summed once */
        uint64_t value = 0;
        for (int k = 0; k < row->n; k++) {
            const SyncMove *m = &s->list.move[row->first + k];
            if (m->from != me) continue;
            if (!last || !same_part(m, last)) value = sum_move(&sum, s->from, row, m);
            x.out[m->to][at[m->to]++] = value, last = m;
        }
    }
    exchange_sums(&x, s, &mem);
    memset(at, 0, ranks * sizeof *at);
    bool ok = true;
    for (int i = 0; i < s->list.rows; i++) {
        const SyncRow *row = &s->list.row[i];
        uint64_t want = 0;
        bool gets = false;
        for (int k = 0; k < row->n; k++) {
            const SyncMove *m = &s->list.move[row->first + k];
            if (m->to == me) want += x.in[m->from][at[m->from]++], gets = true;
        }
        if (gets && ok && sum_slice(&sum, &s->to->at[s->to->index[row->layer][row->p->id]]) != want)
            ok = wrong(s, row, err);
    }
    mem_free(&mem);
    return comm_agree(&s->world->all, ok, err);
}
