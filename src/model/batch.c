/* batch.c - see batch.h. */
#include "model/batch.h"
#include "model/kept_set.h"

#include <string.h>

int64_t pack_outputs(const PackSeq *seqs, int n) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += seqs[i].n - seqs[i].from;
    return sum;
}

size_t batch_host_bytes(int64_t tokens, int seqs) {
    return 8 * arena_round((size_t)tokens * 4) + arena_round((size_t)(seqs + 1) * 4);
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

/* One row per output: the distribution its token was drawn from. */
static Dist put_dist(Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n, int64_t outputs) {
    Dist dist = { 0 };
    bool all_plain = true, all_whole = true;
    for (int i = 0; i < n; i++)
        all_plain = all_plain && plain(seqs[i].draw), all_whole = all_whole && whole(seqs[i].draw);
    if (all_plain) return dist;
    size_t bytes = (size_t)outputs * 4;
    float *temp = arena_push(host, bytes), *top_p = arena_push(host, bytes), *min_p = arena_push(host, bytes);
    int32_t *top_k = arena_push(host, bytes);
    int64_t o = 0;
    for (int i = 0; i < n; i++)
        for (int t = seqs[i].from; t < seqs[i].n; t++, o++) {
            const Drawing *s = &seqs[i].draw;
            temp[o] = 1.0f / s->temperature, top_p[o] = s->top_p, min_p[o] = s->min_p, top_k[o] = s->top_k;
        }
    dist.inv_temp = put_f32(d, a, temp, outputs);
    if (all_whole) return dist;
    dist.top_k = put_i32(d, a, top_k, outputs);
    dist.top_p = put_f32(d, a, top_p, outputs);
    dist.min_p = put_f32(d, a, min_p, outputs);
    return dist;
}

void batch_put(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n) {
    size_t mark = arena_mark(host);
    *b = (Batch){ .outputs = pack_outputs(seqs, n), .seqs = { .n = n } };
    for (int i = 0; i < n; i++) {
        CHECK(seqs[i].n >= 1 && seqs[i].from >= 1 && seqs[i].from <= seqs[i].n,
              "sequence of %d tokens, outputs from %d", seqs[i].n, seqs[i].from);
        b->tokens += seqs[i].n;
        if (seqs[i].n > b->seqs.longest) b->seqs.longest = seqs[i].n;
    }
    size_t all = (size_t)b->tokens * 4, outs = (size_t)b->outputs * 4;
    int32_t *ids = arena_push(host, all), *pos = arena_push(host, all), *at = arena_push(host, (size_t)(n + 1) * 4);
    int32_t *rows = arena_push(host, outs), *targets = arena_push(host, outs);
    int32_t t = 0, o = 0;
    for (int i = 0; i < n; i++) {
        at[i] = t;
        for (int p = seqs[i].from; p < seqs[i].n; p++, o++) rows[o] = t + p - 1, targets[o] = seqs[i].tokens[p];
        for (int p = 0; p < seqs[i].n; p++, t++) ids[t] = seqs[i].tokens[p], pos[t] = p;
    }
    at[n] = t;
    b->ids = put_i32(d, a, ids, b->tokens);
    b->pos = put_i32(d, a, pos, b->tokens);
    b->seqs.at = put_i32(d, a, at, n + 1);
    b->rows = put_i32(d, a, rows, b->outputs);
    b->targets = put_i32(d, a, targets, b->outputs);
    b->dist = put_dist(d, a, host, seqs, n, b->outputs);
    arena_pop(host, mark);
}

void batch_ban(Batch *b, Dev *d, Arena *a, const int32_t *ban, const int32_t *ids, int n) {
    b->banned = put_i32(d, a, ids, n);
    b->ban = put_i32(d, a, ban, b->outputs);
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
    b->kept = tensor_push(a, DT_I32, b->outputs, (int64_t)words);
    int64_t first = 0, rows = 0;
    for (int i = 0; i < n; i++) {
        const uint8_t *at = seqs[i].kept;
        for (int t = seqs[i].from; t < seqs[i].n; t++) {
            if (whole(seqs[i].draw)) memset(bits + (size_t)rows * words, 255, words * 4); /* not looked at */
            else at += kept_set_get(bits + (size_t)rows * words, at, vocab);
            if (++rows < KEEP_ROWS && first + rows < b->outputs) continue;
            op_put(d, tensor_rows(b->kept, first, rows), bits);
            first += rows, rows = 0;
        }
    }
    arena_pop(host, mark);
}
