/* prod_rows.c - which of Hopper's kernels takes a product, and the scratch it wants: the table of prod_list.h. */
#include "op/cuda/sm90/prod_rows.h"

#include <limits.h>

/* ---- operands that the copy engine takes ------------------------------------------------------------------------- */
static bool aligned(const void *at, DType t, int64_t ld, int64_t step) {
    const int64_t unit = 16 / (int64_t)dtype_size(t);
    return (uintptr_t)at % 16 == 0 && ld % unit == 0 && step % unit == 0;
}
bool prod_fast(const Prod *p) {
    const int64_t most = (int64_t)1 << 31;
    bool ok = prod_is_bf16(p) && p->N % 8 == 0 && (p->kind == DW ? p->M : p->K) % 8 == 0 && p->E <= PROD_EXPERTS
              && p->rows < most && aligned(p->a, p->ta, p->lda, p->step_a) && aligned(p->b, p->tb, p->ldb, p->step_b)
              && aligned(p->c, p->tc, p->ldc, p->step_c) && p->N > 0 && (p->kind == DW ? p->M : p->K) > 0;
    for (int s = 1; s < p->n_pieces; s++) ok = ok && p->cut[s] % 16 == 0;
    for (int s = 0; s < p->n_pieces && p->n_pieces > 1; s++) ok = ok && p->cut[s] < p->cut[s + 1];
    return ok;
}

Three split_of(const Prod *p) {
    Three s = { .a = p->ta == DT_F32 };
    s.side = p->kind == FWD || (p->kind == DX && s.a);
    s.rows = s.a || p->kind == DW ? p->rows : (p->kind == FWD ? p->N : p->K) * p->E;
    s.cols = s.a ? (p->kind == DW ? p->M : p->K) : p->kind == FWD ? p->K : p->N;
    s.wide = s.side ? (s.cols + 63) / 64 * 64 : (s.cols + 7) / 8 * 8;
    s.ld = s.side ? 3 * s.wide : s.wide, s.part = s.side ? s.wide : s.rows * s.wide;
    s.bytes = arena_round((size_t)(3 * s.rows * s.wide) * 2);
    return s;
}
Prod split_prod(const Prod *p, const Three *s, const void *parts, int i) {
    const void *at = (const void *)((uintptr_t)parts + (p->kind == DW ? (size_t)(i * s->part) * 2 : 0));
    Prod q = *p;
    if (s->a) q.ta = DT_BF16, q.a = at, q.lda = s->ld;
    else q.tb = DT_BF16, q.b = at, q.ldb = s->ld, q.step_b = p->kind == DW ? 0 : s->rows / p->E * s->ld;
    if (p->kind == DW) return q;
    q.K = q.cut[1] = 3 * (int)s->wide;
    *(s->a ? &q.kb : &q.ka) = p->K, *(s->a ? &q.ka : &q.kb) = q.K, *(s->a ? &q.wrap_b : &q.wrap_a) = s->wide;
    return q;
}
int64_t pieces_of(const Prod *p) {
    return p->kind == DW && !p->at && p->E == 1 && p->rows >= 2 * PIECE_ROWS && p->M * p->N <= 1 << 20
               ? (p->rows + PIECE_ROWS - 1) / PIECE_ROWS
               : 0;
}
size_t pieces_bytes(const Prod *p) { return arena_round((size_t)(3 * pieces_of(p) * p->M * p->N) * 4); }
static size_t queue_bytes(const Prod *p) { return p->kind == DW && p->at ? arena_round(sizeof(int)) : 0; }

static bool takes_split(const ProdCall *c, const ProdKernel *k) {
    const Prod *p = c->p;
    (void)k;
    if (c->laid || c->act != DT_BF16 || p->ta == p->tb || p->n_pieces > 1 || p->add || (!p->at && p->E > 1))
        return false;
    const Three s = split_of(p);
    if (p->kind == DX && !s.a) return false; /* float32 weights of a gradient: none that is asked for */
    if (!s.a && p->kind != DW && p->E > 1 && p->step_b != s.rows / p->E * p->ldb) return false;
    const Prod q = split_prod(p, &s, NULL, 0);
    return prod_fast(&q);
}
static size_t split_scratch(const ProdCall *c, const ProdKernel *k) {
    (void)k;
    return split_of(c->p).bytes + pieces_bytes(c->p) + queue_bytes(c->p);
}

Prod padded_of(const Prod *p, int64_t *rows, int64_t *cols) {
    Prod q = *p;
    *rows = *cols = 0;
    if (aligned(p->b, p->tb, p->ldb, 0)) return q;
    *rows = p->kind == FWD ? p->N : p->K, *cols = p->kind == FWD ? p->K : p->N;
    q.ldb = (*cols + 7) / 8 * 8;
    return q;
}
size_t padded_bytes(const Prod *p) {
    int64_t rows, cols;
    const Prod q = padded_of(p, &rows, &cols);
    return (size_t)(rows * q.ldb) * 2;
}
static bool takes_padded(const ProdCall *c, const ProdKernel *k) {
    const Prod *p = c->p;
    (void)k;
    return !c->laid && c->act == DT_BF16 && prod_is_bf16(p) && !c->fast && !p->at && p->E == 1 && p->n_pieces == 1
           && !p->add && !p->n1 && aligned(p->a, p->ta, p->lda, 0) && aligned(p->c, p->tc, p->ldc, 0) && p->N > 0
           && p->rows < (int64_t)1 << 31 && (p->kind == DW ? p->M > 0 && aligned(p->b, p->tb, p->ldb, 0) : p->K > 0);
}
static size_t padded_scratch(const ProdCall *c, const ProdKernel *k) {
    (void)k;
    return arena_round(padded_bytes(c->p));
}

/* ---- few rows: weights are only streamed ------------------------------------------------------------------------- */
enum { FEW_ROWS = 64, FEW_ALL = INT_MAX, MID_LEAST = 9, MID_MOST = 256, EARLY_MEAN = 8 };
static bool streams(const ProdCall *c) { return c->fast && c->p->kind == FWD && c->p->n_pieces <= 1 && !c->p->add; }
static bool plain_k(const Prod *p) { return !p->wrap_a && !p->wrap_b && !p->ka && !p->kb; } /* both operands have K */

static bool takes_mid(const ProdCall *c, const ProdKernel *k) {
    const Prod *p = c->p;
    if (!streams(c) || p->at || p->E != 1 || p->tc != DT_BF16 || !plain_k(p) || p->rows < MID_LEAST
        || p->rows > MID_MOST || !prod_fast(p)) /* copied ones are not tried */
        return false;
    const int CM = p->rows > 64 ? 2 : 1, bn = k->n[0], tall = 64 * k->n[1] * CM; /* blocks of a cluster */
    const int64_t wide = (p->N + bn - 1) / bn, pairs = (p->rows + tall - 1) / tall;
    return bn / 8 % CM == 0 && wide * pairs * CM <= c->sms;
}
static bool takes_experts(const ProdCall *c, const ProdKernel *k) {
    return streams(c) && c->p->at && c->p->rows / c->p->E <= k->n[3];
}
static bool takes_experts_early(const ProdCall *c, const ProdKernel *k) {
    return streams(c) && c->p->at && c->p->rows / c->p->E <= EARLY_MEAN && c->captured && c->known
           && c->p->rows <= k->n[3];
}
static bool few_dense(const ProdCall *c) { return streams(c) && !c->p->at && c->p->rows <= FEW_ROWS; }
bool row_fits(const Prod *p, int sms, size_t smem, int cols) {
    return p->kind == FWD && p->rows == 1 && p->E == 1 && !p->at && p->n_pieces == 1 && !p->add && plain_k(p)
           && row_room(sms, smem, p->N, p->K, cols);
}
static bool takes_one(const ProdCall *c, const ProdKernel *k) {
    return few_dense(c) && c->captured && c->p->tc == DT_BF16 && row_fits(c->p, c->sms, c->smem, k->n[0]);
}
/* A block a multiprocessor has nearly all of the weight's rows that are its own in shared memory before it begins. */
static bool takes_few_early(const ProdCall *c, const ProdKernel *k) {
    const Prod *p = c->p;
    return few_dense(c) && c->captured && p->E == 1 && p->rows <= 8 && plain_k(p)
           && p->N <= (int64_t)k->n[0] * blocks_of_sms(c->sms);
}
static bool takes_few(const ProdCall *c, const ProdKernel *k) {
    const int64_t slots = 2 * blocks_of_sms(c->sms), cols = c->p->N * c->p->E;
    return few_dense(c) && c->p->rows <= k->n[1] && cols > k->n[3] * slots && cols <= k->n[4] * slots;
}

/* ---- many rows: tiles -------------------------------------------------------------------------------------------- */
/* Columns of a tile: the most that leave none of so many multiprocessors idle.  Experts' rows are not known here. */
static int bn_of(const Prod *p, int blocks) {
    if (p->kind == DW) { /* a tile takes as long as its rows are many: of few tiles narrow ones */
        const int64_t tiles = (p->M + 127) / 128 * ((p->N + 255) / 256) * p->E;
        return !p->at && tiles <= blocks / 2 ? 128 : 256;
    }
    if (p->at && p->N > 128) return 256;
    const int64_t row_tiles = (p->rows + 127) / 128 * (p->at ? 1 : p->E), enough = blocks * 7 / 8;
    const int narrow = p->kind == FWD && p->n_pieces == 1 && !p->at ? 32 : 128;
    int bn = 256;
    while (bn > narrow && (p->N <= bn / 2 || row_tiles * ((p->N + bn - 1) / bn) < enough)) bn /= 2;
    if (p->n1) /* no tile may lie on both sides of a border */
        while (p->n1 % bn || (p->n2 < p->N && p->n2 % bn)) bn /= 2;
    return bn;
}
static bool takes_tiles(const ProdCall *c, const ProdKernel *k) {
    return c->fast && (int)c->p->kind == k->n[0] && (c->p->n_pieces > 1) == k->n[2]
           && bn_of(c->p, blocks_of_sms(c->sms)) == k->n[1];
}
static size_t tiles_scratch(const ProdCall *c, const ProdKernel *k) {
    return k->n[2] ? gemm_fold_bytes(k->n[1], levels_of(c->p), blocks_of_sms(c->sms)) : queue_bytes(c->p);
}
static int64_t rounds(const Prod *p, int blocks, int tall, int wide) { /* of the card, by pairs of tiles */
    const int64_t pairs = (p->M + 2 * tall - 1) / (2 * tall) * ((p->N + wide - 1) / wide), at_once = blocks / 2;
    return (pairs + at_once - 1) / at_once;
}
/* A round of tall tiles takes 5/4 as long, and some percent must be won. */
static bool takes_tall(const ProdCall *c, const ProdKernel *k) {
    const int blocks = blocks_of_sms(c->sms);
    (void)k;
    return c->fast && c->p->kind == DW && !c->p->at && c->p->E == 1
           && rounds(c->p, blocks, TALL_ROWS, TALL_COLS) * 13 < rounds(c->p, blocks, 128, 256) * 10;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */
/* clang-format off */
#define LAUNCH(id)                      void run_##id(Dev *d, const Prod *p); int prepare_##id(void);
#define COPIED(name, words)             void run_##name(Dev *d, const Prod *p);
#define MID(bn, wg)                     LAUNCH(mid_##bn##_##wg)
#define EXPERTS_EARLY(bn, xr, kb, rows) LAUNCH(experts_early_##bn##_##xr##_##kb)
#define EXPERTS(bn, xr, kb, mean)       LAUNCH(experts_##bn##_##xr##_##kb)
#define ONE(bn)                         void run_one_##bn(Dev *d, const Prod *p);
#define FEW_EARLY(bn, xr, kb)           LAUNCH(few_early_##bn##_##xr##_##kb)
#define FEW(bn, xr, kb, over, upto)     LAUNCH(few_##bn##_##xr##_##kb)
#define TILES(kind, bn, fold)           LAUNCH(tiles_##kind##_##bn##_##fold)
#define DW_TALL()                       LAUNCH(dw_tall)
#define DW_TILES(bn)                    LAUNCH(dw_tiles_##bn)
#include "op/cuda/sm90/prod_list.h"
#undef LAUNCH

#define TENSOR "tensor cores"
#define ROW(id, takes, scratch, ...) { #id, TENSOR, takes, scratch, run_##id, prepare_##id, { __VA_ARGS__ } },
const ProdKernel prods_sm90[] = {
#define COPIED(name, words) { #name, TENSOR ", " words, takes_##name, name##_scratch, run_##name, NULL, { 0 } },
#define MID(bn, wg)                     ROW(mid_##bn##_##wg, takes_mid, NULL, bn, wg)
#define EXPERTS_EARLY(bn, xr, kb, rows) \
    ROW(experts_early_##bn##_##xr##_##kb, takes_experts_early, NULL, bn, xr, kb, rows)
#define EXPERTS(bn, xr, kb, mean)       ROW(experts_##bn##_##xr##_##kb, takes_experts, NULL, bn, xr, kb, mean)
#define ONE(bn)                         { "one_" #bn, TENSOR, takes_one, NULL, run_one_##bn, NULL, { bn } },
#define FEW_EARLY(bn, xr, kb)           ROW(few_early_##bn##_##xr##_##kb, takes_few_early, NULL, bn, xr, kb)
#define FEW(bn, xr, kb, over, upto)     ROW(few_##bn##_##xr##_##kb, takes_few, NULL, bn, xr, kb, over, upto)
#define TILES(kind, bn, fold)           ROW(tiles_##kind##_##bn##_##fold, takes_tiles, tiles_scratch, kind, bn, fold)
#define DW_TALL()                       ROW(dw_tall, takes_tall, NULL, 0)
#define DW_TILES(bn)                    ROW(dw_tiles_##bn, takes_tiles, tiles_scratch, DW, bn, false)
#include "op/cuda/sm90/prod_list.h"
    { 0 }
};
