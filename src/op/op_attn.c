/* op_attn.c - what attention and the head want of their tensors. */
#include "op/op_check.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* a check sees all that the op does, and seldom needs all of it */

#define F DT_F32
#define I DT_I32

static void want_attn(const Dev *d, const char *op, const Attn *a) {
    int64_t T = a->q.rows;
    CHECK(a->heads >= 1 && a->kv_heads >= 1 && a->heads % a->kv_heads == 0, "%s: %d heads over %d kv heads", op,
          a->heads, a->kv_heads);
    CHECK(a->dk >= 1 && a->dk <= 576 && a->dv >= 1 && a->dv <= 576,
          "%s: heads of %d and %d columns; at most 576 are supported", op, a->dk, a->dv);
    WANT_A(op, a->q, T, (int64_t)a->heads * a->dk);
    bool parts = !is_none(a->from);
    WANT_A(op, a->k, parts ? -1 : T, (int64_t)a->kv_heads * a->dk);
    WANT_A(op, a->v, a->k.rows, (int64_t)a->kv_heads * a->dv);
    if (parts) WANT(op, a->from, I, a->seqs.n, 1);
    if (parts) WANT(op, a->start, I, a->seqs.n, 1);
    WANT_A(op, a->o, T, (int64_t)a->heads * a->dv);
    if (!is_none(a->lse)) WANT(op, a->lse, F, T, a->heads);
    WANT(op, a->seqs.at, I, -1, -1);
    CHECK(a->seqs.at.rows * a->seqs.at.cols == a->seqs.n + 1 && a->seqs.longest <= T && (a->seqs.longest > 0 || T == 0),
          "%s: %d sequences, the longest of %d, in %ld rows, with %ld borders", op, a->seqs.n, a->seqs.longest, (long)T,
          (long)(a->seqs.at.rows * a->seqs.at.cols));
}
void check_attend(Dev *d, const Attn *a) { want_attn(d, "attend", a); }
static void want_attn_bwd(const Dev *d, const char *op, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    want_attn(d, op, a);
    WANT_A(op, dq, a->q.rows, a->q.cols);
    WANT_A(op, dk, a->k.rows, a->k.cols);
    WANT_A(op, dv, a->v.rows, a->v.cols);
    WANT_A(op, dO, a->o.rows, a->o.cols);
    WANT(op, a->lse, F, a->q.rows, a->heads);
}
void check_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    want_attn_bwd(d, "attend_bwd", dq, dk, dv, dO, a);
}
void check_attend_all(Dev *d, const Attn *a) {
    want_attn(d, "attend_all", a);
    CHECK(is_none(a->from) && is_none(a->start), "attend_all: sequences have their own keys");
}
void check_attend_all_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    want_attn_bwd(d, "attend_all_bwd", dq, dk, dv, dO, a);
    CHECK(is_none(a->from) && is_none(a->start), "attend_all_bwd: sequences have their own keys");
}

static void want_kv(const char *op, const Kv *kv) {
    CHECK(kv->page >= 16 && kv->page % 16 == 0, "%s: pages of %d positions; a multiple of 16 wanted", op, kv->page);
    CHECK(kv->kv_heads >= 1 && kv->dk >= 1 && kv->dk <= 576 && kv->dv >= 1 && kv->dv <= 576,
          "%s: %d kv heads of %d and %d columns", op, kv->kv_heads, kv->dk, kv->dv);
    CHECK(!kv->latent || kv->dv <= kv->dk, "%s: a latent of %d columns holds no value of %d", op, kv->dk, kv->dv);
}
static void want_paged(const char *op, const Dev *d, const Kv *kv, const Paged *p, int64_t rows) {
    want_kv(op, kv);
    WANT(op, kv->pool, DT_U8, -1, (int64_t)d->ops->kv_bytes(d, kv));
    WANT(op, p->rows.at, I, -1, -1);
    WANT(op, p->start, I, -1, -1);
    WANT(op, p->table, I, p->rows.n, -1);
    CHECK(p->rows.at.rows * p->rows.at.cols == p->rows.n + 1 && p->start.rows * p->start.cols == p->rows.n
              && p->rows.longest <= rows,
          "%s: %d sequences, %ld borders, %ld starts, the longest %d of %ld rows", op, p->rows.n,
          (long)(p->rows.at.rows * p->rows.at.cols), (long)(p->start.rows * p->start.cols), p->rows.longest,
          (long)rows);
}
size_t op_kv_bytes(const Dev *d, const Kv *kv) {
    want_kv("kv_bytes", kv);
    return d->ops->kv_bytes(d, kv);
}
void check_kv_put(Dev *d, Kv kv, Tensor k, Tensor v, Paged rows) {
    want_paged("kv_put", d, &kv, &rows, k.rows);
    WANT_A("kv_put", k, -1, (int64_t)kv.kv_heads * kv.dk);
    if (!kv.latent) WANT_A("kv_put", v, k.rows, (int64_t)kv.kv_heads * kv.dv);
}
void check_kv_copy(Dev *d, Kv kv, int to_page, int from_page) {
    want_kv("kv_copy", &kv);
    WANT("kv_copy", kv.pool, DT_U8, -1, (int64_t)d->ops->kv_bytes(d, &kv));
    CHECK(to_page >= 0 && to_page < kv.pool.rows && from_page >= 0 && from_page < kv.pool.rows,
          "kv_copy: page %d to %d of %ld", from_page, to_page, (long)kv.pool.rows);
}
void check_attend_kv(Dev *d, Tensor o, Tensor q, Kv kv, Paged rows, int heads, float scale) {
    want_paged("attend_kv", d, &kv, &rows, q.rows);
    CHECK(heads >= 1 && heads % kv.kv_heads == 0, "attend_kv: %d heads over %d kv heads", heads, kv.kv_heads);
    WANT_A("attend_kv", q, -1, (int64_t)heads * kv.dk);
    WANT_A("attend_kv", o, q.rows, (int64_t)heads * kv.dv);
}

static void want_dist(const char *op, const Dist *p, int64_t T) {
    if (!is_none(p->inv_temp)) WANT(op, p->inv_temp, F, T, 1);
    if (!is_none(p->top_k)) WANT(op, p->top_k, I, T, 1);
    if (!is_none(p->top_p)) WANT(op, p->top_p, F, T, 1);
    if (!is_none(p->min_p)) WANT(op, p->min_p, F, T, 1);
}
static void want_ban(const char *op, Tensor banned, Tensor ban, int64_t T) {
    if (!is_none(ban)) WANT(op, ban, I, T, 1);
    if (!is_none(ban)) WANT(op, banned, I, -1, 1);
}
static void want_kept(const char *op, Tensor kept, int64_t T, int64_t V) {
    if (!is_none(kept)) WANT(op, kept, I, T, kept_words(V));
}
static void want_asked(const char *op, const Head *h, int64_t T, int64_t V) {
    WANT(op, h->ids, I, T, 1);
    want_dist(op, &h->dist, T);
    want_ban(op, h->banned, h->ban, T);
    want_kept(op, h->kept, T, V);
}
static void want_head(const Dev *d, const char *op, const Head *h) {
    int64_t T = h->h.rows;
    WANT_A(op, h->h, -1, -1);
    WANT_W(op, h->w, -1, h->h.cols);
    want_asked(op, h, T, h->vocab.of ? h->vocab.of : h->w.rows);
    if (!is_none(h->logits)) WANT(op, h->logits, F, T, h->w.rows);
}
static void want_told(const char *op, const Head *h, int64_t T) {
    WANT(op, h->lp, F, T, 1);
    if (!is_none(h->ent)) WANT(op, h->ent, F, T, 1);
    if (!is_none(h->stat)) WANT(op, h->stat, DT_U8, T, HEAD_STAT);
}
void check_logprob(Dev *d, const Head *h) {
    want_head(d, "logprob", h);
    want_told("logprob", h, h->h.rows);
}
void check_logprob_rows(Dev *d, Tensor logits, const Head *h) {
    WANT("logprob_rows", logits, F, -1, -1);
    want_asked("logprob_rows", h, logits.rows, logits.cols);
    want_told("logprob_rows", h, logits.rows);
}
static void want_leaves_of(Tensor part, int64_t T) {
    WANT("logprob_part", part, F, T, -1);
    CHECK(part.cols % 3 == 1 && (part.rows <= 1 || part.ld == part.cols),
          "logprob_part: %ld columns; three a leaf and one are wanted, without gaps", (long)part.cols);
}
void check_logprob_part(Dev *d, Tensor part, const Head *h) {
    want_head(d, "logprob_part", h);
    want_leaves_of(part, h->h.rows);
    CHECK((part.cols - 1) / 3 == (h->w.rows + 127) / 128 && h->vocab.first % 128 == 0
              && h->vocab.first + h->w.rows <= h->vocab.of,
          "logprob_part: %ld columns for ids %ld..+%ld of %ld", (long)part.cols, (long)h->vocab.first, (long)h->w.rows,
          (long)h->vocab.of);
    CHECK(is_none(h->dist.top_k) && is_none(h->dist.top_p) && is_none(h->dist.min_p) && is_none(h->kept),
          "logprob_part: a cut distribution");
}
void check_logprob_end(Dev *d, const Tensor *part, int n, const Head *h) {
    want_head(d, "logprob_end", h);
    int64_t leaves = 0;
    for (int i = 0; i < n; i++) want_leaves_of(part[i], h->h.rows), leaves += (part[i].cols - 1) / 3;
    CHECK(leaves == (h->vocab.of + 127) / 128, "logprob_end: %ld leaves of %ld ids", (long)leaves, (long)h->vocab.of);
    want_told("logprob_end", h, h->h.rows);
}
void check_logprob_bwd(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h) {
    want_head(d, "logprob_bwd", h);
    WANT("logprob_bwd", h->stat, DT_U8, h->h.rows, HEAD_STAT);
    WANT_A("logprob_bwd", dh, h->h.rows, h->h.cols);
    if (!is_none(dw)) WANT("logprob_bwd", dw, F, h->w.rows, h->w.cols);
    WANT("logprob_bwd", dlp, F, h->h.rows, 1);
    if (!is_none(dent)) WANT("logprob_bwd", dent, F, h->h.rows, 1);
}
static void want_drawn(const char *op, const Sample *s, int64_t B, int64_t V) {
    want_dist(op, &s->dist, B);
    want_ban(op, s->banned, s->ban, B);
    WANT(op, s->random, DT_I64, B, 1);
    if (!is_none(s->greedy)) WANT(op, s->greedy, I, B, 1);
    WANT(op, s->id, I, B, 1);
    WANT(op, s->lp, F, B, 1);
    if (!is_none(s->ent)) WANT(op, s->ent, F, B, 1);
    if (!is_none(s->next)) WANT(op, s->next, I, B, 1);
    want_kept(op, s->kept, B, V);
}
void check_sample(Dev *d, const Sample *s) {
    WANT_A("sample", s->h, -1, -1);
    WANT_W("sample", s->w, -1, s->h.cols);
    want_drawn("sample", s, s->h.rows, s->w.rows);
}
void check_sample_rows(Dev *d, Tensor logits, const Sample *s) {
    WANT("sample_rows", logits, F, -1, -1);
    want_drawn("sample_rows", s, logits.rows, logits.cols);
}
