/* batch.c - sequences laid side by side as the model takes them, on the device. */
#include "model/batch.h"
#include "model/kept_set.h"

#include <string.h>

int64_t pack_outputs(const PackSeq *seqs, int n) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += seqs[i].n - seqs[i].from;
    return sum;
}

size_t batch_host_bytes(int64_t tokens, int seqs) {
    return 11 * arena_round((size_t)tokens * 4) + 3 * arena_round((size_t)(2 * seqs + 1) * 4);
}
size_t batch_part_bytes(int64_t tokens, int seqs) {
    return 3 * arena_round((size_t)tokens * 4) + 3 * arena_round((size_t)(2 * seqs + 1) * 4);
}

static Tensor put_i32(Dev *d, Arena *a, const int32_t *from, int64_t n) {
    Tensor t = tensor_push(a, DT_I32, n, 1);
    op_put(d, t, from);
    return t;
}

static Tensor put_f32(Dev *d, Arena *a, const float *from, int64_t n) {
    Tensor t = tensor_push(a, DT_F32, n, 1);
    op_put(d, t, from);
    return t;
}

static bool plain(Drawing s) { return s.temperature == 1 && s.top_p >= 1 && s.min_p <= 0 && s.top_k <= 0; }
static bool whole(Drawing s) { return s.top_p >= 1 && s.min_p <= 0 && s.top_k <= 0; }

/* ---- whose row a position is.  A rank's rows: the first pieces of all sequences, then the last ones. */

static bool mine(const Batch *b, const PackSeq *s, int64_t pos) {
    return cp_rank(cp_piece_of(s->n, pos, b->ranks), b->ranks) == b->rank;
}

typedef struct {
    int ranks;
    int64_t row[2 * CP_MOST]; /* the row, of the rank that has it, of the next sequence's piece k */
} Places;

static int64_t piece_len(const PackSeq *s, int k, int ranks) {
    return cp_piece(s->n, k + 1, ranks) - cp_piece(s->n, k, ranks);
}
static void places_pass(Places *x, const PackSeq *s) { /* on to the next sequence */
    for (int k = 0; k < cp_pieces(x->ranks); k++) x->row[k] += piece_len(s, k, x->ranks);
}
static Places places_begin(int ranks, const PackSeq *seqs, int n) {
    Places x = { .ranks = ranks };
    for (int i = 0; i < n; i++) /* last pieces stand behind all first ones */
        for (int k = ranks; k < cp_pieces(ranks); k++) x.row[k] += piece_len(&seqs[i], cp_rank(k, ranks), ranks);
    return x;
}
static int64_t place_of(const Places *x, const PackSeq *s, int64_t pos, int *rank) {
    int k = cp_piece_of(s->n, pos, x->ranks);
    *rank = cp_rank(k, x->ranks);
    return x->row[k] + pos - cp_piece(s->n, k, x->ranks);
}

/* One row per own output: the distribution its token was drawn from. */
static Dist put_dist(const Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n) {
    Dist dist = { 0 };
    bool all_plain = true, all_whole = true;
    for (int i = 0; i < n; i++)
        all_plain = all_plain && plain(seqs[i].draw), all_whole = all_whole && whole(seqs[i].draw);
    if (all_plain) return dist;
    size_t bytes = (size_t)b->own * 4;
    float *temp = arena_push(host, bytes), *top_p = arena_push(host, bytes), *min_p = arena_push(host, bytes);
    int32_t *top_k = arena_push(host, bytes);
    int64_t o = 0;
    for (int i = 0; i < n; i++)
        for (int t = seqs[i].from; t < seqs[i].n; t++) {
            const Drawing *s = &seqs[i].draw;
            if (!mine(b, &seqs[i], t - 1)) continue;
            temp[o] = 1.0f / s->temperature, top_p[o] = s->top_p, min_p[o] = s->min_p, top_k[o++] = s->top_k;
        }
    dist.inv_temp = put_f32(d, a, temp, b->own);
    if (all_whole) return dist;
    dist.top_k = put_i32(d, a, top_k, b->own);
    dist.top_p = put_f32(d, a, top_p, b->own);
    dist.min_p = put_f32(d, a, min_p, b->own);
    return dist;
}

/* This rank's tokens, piece by piece. */
static void put_tokens(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n, int64_t all) {
    int32_t *ids = arena_push(host, (size_t)all * 4), *pos = arena_push(host, (size_t)all * 4);
    size_t list = (size_t)(2 * n + 1) * 4;
    int32_t *at = arena_push(host, list), *from = arena_push(host, list), *start = arena_push(host, list);
    for (int k = 0; k < cp_pieces(b->ranks); k++) {
        int64_t key0 = 0;
        if (cp_rank(k, b->ranks) != b->rank) continue;
        for (int i = 0; i < n; key0 += seqs[i++].n) {
            int64_t p0 = cp_piece(seqs[i].n, k, b->ranks), len = piece_len(&seqs[i], k, b->ranks);
            if (!len) continue;
            at[b->seqs.n] = (int32_t)b->tokens, from[b->seqs.n] = (int32_t)key0, start[b->seqs.n++] = (int32_t)p0;
            if (len > b->seqs.longest) b->seqs.longest = (int)len;
            for (int64_t p = p0; p < p0 + len; p++, b->tokens++)
                ids[b->tokens] = seqs[i].tokens[p], pos[b->tokens] = (int32_t)p;
        }
    }
    at[b->seqs.n] = (int32_t)b->tokens;
    b->ids = put_i32(d, a, ids, b->tokens);
    b->pos = put_i32(d, a, pos, b->tokens);
    b->seqs.at = put_i32(d, a, at, b->seqs.n + 1);
    if (b->ranks == 1) return;
    b->from = put_i32(d, a, from, b->seqs.n);
    b->start = put_i32(d, a, start, b->seqs.n);
}

static int64_t beside(int64_t *first, const CpRows *x,
                      int ranks) { /* where each rank's begin, one after the other; how many in all */
    int64_t sum = 0;
    for (int r = 0; r < ranks; sum += x->rows[r++]) first[r] = sum;
    return sum;
}

/* Outputs, and which rank has what. */
static void put_outputs(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n, int64_t all) {
    size_t outs = (size_t)b->outputs * 4;
    int32_t *rows = arena_push(host, outs), *targets = arena_push(host, outs), *own_at = arena_push(host, outs),
            *out_order = arena_push(host, outs), *order = arena_push(host, (size_t)all * 4);
    int64_t row0[CP_MOST], out0[CP_MOST], o = 0, t = 0;
    int r;
    Places x = places_begin(b->ranks, seqs, n);
    for (int i = 0; i < n; places_pass(&x, &seqs[i++]))
        for (int p = 0; p < seqs[i].n; p++) {
            int64_t row = place_of(&x, &seqs[i], p, &r);
            b->cp.rows[r]++;
            if (p + 1 < seqs[i].from || p + 1 == seqs[i].n) continue;
            if (r == b->rank) {
                rows[b->own] = (int32_t)row, targets[b->own] = seqs[i].tokens[p + 1];
                own_at[b->own++] = (int32_t)o;
            }
            b->outs.rows[r]++, o++;
        }
    b->rows = put_i32(d, a, rows, b->own);
    b->targets = put_i32(d, a, targets, b->own);
    b->cp.all = beside(row0, &b->cp, b->ranks);
    b->outs.all = beside(out0, &b->outs, b->ranks);
    if (b->ranks == 1) return;
    x = places_begin(b->ranks, seqs, n);
    o = 0;
    for (int i = 0; i < n; places_pass(&x, &seqs[i++]))
        for (int p = 0; p < seqs[i].n; p++) {
            int64_t row = place_of(&x, &seqs[i], p, &r);
            order[t++] = (int32_t)(row0[r] + row);
            if (p + 1 >= seqs[i].from && p + 1 < seqs[i].n) out_order[o++] = (int32_t)out0[r]++;
        }
    b->own_at = put_i32(d, a, own_at, b->own);
    b->cp.order = put_i32(d, a, order, all);
    b->outs.order = put_i32(d, a, out_order, b->outputs);
}

void batch_put_part(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n, const Comm *cp) {
    size_t mark = arena_mark(host);
    int64_t all = 0;
    CHECK(cp->size <= CP_MOST, "a sequence over %d ranks; %d are the most", cp->size, CP_MOST);
    *b = (Batch){ .outputs = pack_outputs(seqs, n), .rank = cp->rank, .ranks = cp->size };
    for (int i = 0; i < n; i++) {
        CHECK(seqs[i].n >= 1 && seqs[i].from >= 1 && seqs[i].from <= seqs[i].n,
              "sequence of %d tokens, outputs from %d", seqs[i].n, seqs[i].from);
        all += seqs[i].n;
    }
    put_tokens(b, d, a, host, seqs, n, all);
    put_outputs(b, d, a, host, seqs, n, all);
    b->dist = put_dist(b, d, a, host, seqs, n);
    arena_pop(host, mark);
}

void batch_put(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n) {
    Comm one = comm_self();
    batch_put_part(b, d, a, host, seqs, n, &one);
}

void batch_ban(Batch *b, Dev *d, Arena *a, Arena *host, const int32_t *ban, const int32_t *ids, int n) {
    size_t mark = arena_mark(host);
    int32_t *own = arena_push(host, (size_t)b->own * 4);
    if (b->ranks > 1) op_get(d, own, b->own_at);
    for (int64_t i = 0; i < b->own; i++) own[i] = ban[b->ranks > 1 ? own[i] : i];
    b->banned = put_i32(d, a, ids, n);
    b->ban = put_i32(d, a, own, b->own);
    arena_pop(host, mark);
}

/* Sets are spread out a few rows at a time: on the host they never lie side by side. */
enum { KEEP_ROWS = 16 };
size_t batch_keep_host_bytes(int64_t vocab) { return arena_round(KEEP_ROWS * (size_t)kept_words(vocab) * 4); }

void batch_keep(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n, int64_t vocab) {
    int cut = 0, told = 0;
    for (int i = 0; i < n; i++) cut += !whole(seqs[i].draw), told += !whole(seqs[i].draw) && seqs[i].kept;
    if (!told) return;
    CHECK(told == cut, "%d of %d cut sequences have their kept sets", told, cut);
    size_t words = (size_t)kept_words(vocab), mark = arena_mark(host);
    uint32_t *bits = arena_push(host, KEEP_ROWS * words * 4);
    b->kept = tensor_push(a, DT_I32, b->own, (int64_t)words);
    int64_t first = 0, rows = 0;
    for (int i = 0; i < n; i++) {
        const uint8_t *at = seqs[i].kept;
        for (int t = seqs[i].from; t < seqs[i].n; t++) {
            if (whole(seqs[i].draw)) memset(bits + (size_t)rows * words, 255, words * 4); /* not looked at */
            else at += kept_set_get(bits + (size_t)rows * words, at, vocab);
            if (!mine(b, &seqs[i], t - 1)) continue;
            if (++rows < KEEP_ROWS && first + rows < b->own) continue;
            op_put(d, tensor_rows(b->kept, first, rows), bits);
            first += rows, rows = 0;
        }
    }
    arena_pop(host, mark);
}

/* ---- pictures */

/* One address, or one name: a picture that several lines show was read for each of them. */
static bool same_picture(const Picture *p, const Picture *q) {
    static const uint64_t none[4];
    return p == q || (memcmp(p->key, none, sizeof none) && !memcmp(p->key, q->key, sizeof none));
}
typedef VEC(const Picture *) PictureList;
static int place_in(PictureList *l, const Picture *p) {
    for (size_t i = 0; i < l->n; i++)
        if (same_picture(l->at[i], p)) return (int)i;
    VEC_PUSH(*l, p);
    return (int)l->n - 1;
}
static PictureList distinct(const PackSeq *seqs, int n) {
    PictureList l = { 0 };
    for (int i = 0; i < n; i++)
        for (int k = 0; k < seqs[i].spans.n; k++) place_in(&l, seqs[i].spans.at[k].picture);
    return l;
}

PicturesShape batch_pictures(const PackSeq *seqs, int n, const Dims *d) {
    PictureList l = distinct(seqs, n);
    PicturesShape s = { 0 };
    for (size_t i = 0; i < l.n; i++) pictures_add(&s, l.at[i], d);
    vec_free(l.at);
    return s;
}

size_t batch_images_bytes(const PicturesShape *s, int64_t tokens, const Dims *d) {
    if (!d->vis.layers) return 0;
    return arena_round((size_t)tokens * 12) + arena_round((size_t)tokens * 4) + pictures_bytes(s, tokens, d);
}

/* Which of all tokens, one sequence behind the other, each row of this rank is: in put_tokens' order. */
static void own_rows(int32_t *own, const Batch *b, const PackSeq *seqs, int n) {
    int64_t t = 0;
    for (int k = 0; k < cp_pieces(b->ranks); k++) {
        int64_t first = 0;
        for (int i = 0; i < n && cp_rank(k, b->ranks) == b->rank; first += seqs[i++].n)
            for (int64_t p = cp_piece(seqs[i].n, k, b->ranks), to = p + piece_len(&seqs[i], k, b->ranks); p < to; p++)
                own[t++] = (int32_t)(first + p);
    }
    CHECK(t == b->tokens, "%lld rows of %lld", (long long)t, (long long)b->tokens);
}

/* Pictures that have a token here go each to the rank of tp with the fewest patches so far; the own ones stand in *l
 * then, and first[i] is where the results of what was i-th begin, or -1. */
static int64_t deal(int64_t *first, PictureList *l, const bool *here, const Dims *d, const Comm *tp, Mem *mem) {
    int64_t *load = MEM_ARRAY(mem, int64_t, (size_t)tp->size), rows = 0;
    size_t own = 0;
    for (size_t i = 0; i < l->n; i++) {
        int to = 0;
        first[i] = -1;
        if (!here[i]) continue;
        for (int r = 1; r < tp->size; r++)
            if (load[r] < load[to]) to = r;
        load[to] += grid_rows(l->at[i]->grid);
        if (to != tp->rank) continue;
        first[i] = rows, rows += picture_tokens(l->at[i], d);
        l->at[own++] = l->at[i];
    }
    l->n = own;
    return rows;
}

void batch_put_images(Batch *b, Dev *d, Arena *a, const PackSeq *seqs, int n, const Dims *dims, ClipRule rule,
                      const Comm *tp) {
    if (!dims->vis.layers) return;
    Mem mem = { 0 };
    size_t all = 0, rows = (size_t)b->tokens;
    for (int i = 0; i < n; i++) all += (size_t)seqs[i].n;
    int32_t(*pos)[3] = mem_array(&mem, all, sizeof *pos), (*own_pos)[3] = mem_array(&mem, rows, sizeof *pos);
    int32_t *which = MEM_ARRAY(&mem, int32_t, all),
            *row = MEM_ARRAY(&mem, int32_t, all); /* picture or -1; of its results */
    int32_t *own = MEM_ARRAY(&mem, int32_t, rows), *ids = MEM_ARRAY(&mem, int32_t, all);
    PictureList l = distinct(seqs, n);
    int64_t *first = MEM_ARRAY(&mem, int64_t, l.n + 1), t = 0;
    bool *here = MEM_ARRAY(&mem, bool, l.n + 1), any = l.n > 0;
    for (int i = 0; i < n; t += seqs[i++].n) {
        picture_positions(pos + t, seqs[i].n, seqs[i].spans, dims, rule);
        for (int k = 0; k < seqs[i].n; k++) ids[t + k] = seqs[i].tokens[k], which[t + k] = -1;
        for (int k = 0; k < seqs[i].spans.n; k++) {
            const RowSpan *p = &seqs[i].spans.at[k];
            int tokens = picture_tokens(p->picture, dims), at = place_in(&l, p->picture);
            CHECK(p->at >= 0 && p->at + tokens <= seqs[i].n, "a picture's tokens %d.. +%d of %d", p->at, tokens,
                  seqs[i].n);
            picture_order(row + t + p->at, p->picture, dims);
            for (int64_t j = t + p->at; j < t + p->at + tokens; j++) which[j] = at, ids[j] = (int32_t)dims->vocab;
        }
    }
    own_rows(own, b, seqs, n);
    for (int64_t i = 0; i < b->tokens; i++) {
        memcpy(own_pos[i], pos[own[i]], sizeof *pos);
        if (which[own[i]] >= 0) here[which[own[i]]] = true;
    }
    b->pos = tensor_push(a, DT_I32, b->tokens, 3);
    op_put(d, b->pos, own_pos);
    if (any && tp) {
        int64_t results = deal(first, &l, here, dims, tp, &mem);
        int32_t *own_ids = MEM_ARRAY(&mem, int32_t, rows), *from = MEM_ARRAY(&mem, int32_t, rows);
        for (int64_t i = 0; i < b->tokens; i++) {
            int at = which[own[i]];
            own_ids[i] = ids[own[i]];
            from[i] = (int32_t)(at >= 0 && first[at] >= 0 ? first[at] + row[own[i]] : results);
        }
        if (l.n) pictures_put(&b->images, d, a, l.at, (int)l.n, dims);
        b->ids = put_i32(d, a, own_ids, b->tokens);
        b->images.from = put_i32(d, a, from, b->tokens);
    }
    vec_free(l.at);
    mem_free(&mem);
}
