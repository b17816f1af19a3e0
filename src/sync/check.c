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

/* Of rows [r0,r1) and columns [c0,c1) of the experts of a box, in a rank's slice of the tensor. */
static uint64_t sum_box(Summing *x, const Param *p, int64_t e0, int64_t e1, int64_t r0, int64_t r1, int64_t c0,
                        int64_t c1) {
    const Slice *s = &p->slice;
    size_t size = dtype_size(p->t.dtype);
    uint64_t sum = 0;
    int64_t cols = c1 - c0, fit = BLOCK / (int64_t)size / (cols ? cols : 1);
    if (fit < 1) fit = 1;
    for (int64_t e = e0; e < e1; e++)
        for (int64_t r = r0; r < r1; r += fit) {
            int64_t n = r1 - r < fit ? r1 - r : fit;
            Tensor part = tensor_cols(tensor_rows(p->t, (e - s->e0) * s->rows + r - s->r0, n), c0 - s->c0, cols);
            op_get(x->d, x->host, part);
            for (int64_t i = 0; i < n; i++)
                sum += weight((uint64_t)e << 40 | (uint64_t)(r + i) | (uint64_t)1 << 63)
                       * sum_row((char *)x->host + (size_t)(i * cols) * size, size, x->by_word, c0, cols);
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
        int64_t cols = dim_at(&s->from->model->d, s->list.row[i].p->cols);
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

bool sync_check(Sync *s, Err *err) {
    Mem mem = { 0 };
    Sums x;
    int me = s->world->all.rank;
    size_t ranks = (size_t)s->world->all.size;
    count_moves(&x, s, &mem);
    Summing sum = summing_open(s, &mem);
    int64_t *at = MEM_ARRAY(&mem, int64_t, ranks);
    for (int i = 0; i < s->list.rows; i++)
        for (int k = 0; k < s->list.row[i].n; k++) {
            const SyncMove *m = &s->list.move[s->list.row[i].first + k];
            if (m->from == me) x.out[m->to][at[m->to]++] = sum_move(&sum, s->from, &s->list.row[i], m);
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
