/* attn.cu - which kernel serves attention, and its launches: tensor maps, the list of items, whole sequences or
 * spans of them.  None of these choices changes a bit: attn_sums.cuh says what is free. */
#include "op/cuda/sm90/attn_fwd.cuh"
#include "op/cuda/sm90/attn_bwd.cuh"
#include "op/cuda/sm90/attn_rows.h"
#include "op/cuda/sm90/mla_fwd.cuh"
#include "op/cuda_open.h"

/* scratch is planned without a GPU: for the largest; of partial sums, at most, and in backward */
enum { MOST_CTAS = 132, PART_MOST = 256 << 20, BACK_MOST = 96 << 20 };

typedef CUresult EncodeFn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                          const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                          CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
struct Attns {
    EncodeFn *encode;
    int *taken; /* the counter of items */
};
static Attns *at_of(const Dev *d) { return cu(d)->attns; }

/* ---- which kernel ------------------------------------------------------------------------------------------------ */
static bool is_latent(const Attn *a) {
    return a->kv_heads == 1 && a->v.data == a->k.data && a->v.ld == a->k.ld && a->dv < a->dk;
}
template <class... X> static bool halves(const Dev *d, X... x) {        /* all in bf16, in which it computes */
    return d->act == DT_BF16 && (... && (x.dtype == DT_BF16));
}
static AttnCall call_of(const Attn *a, bool half, int pass, bool all, bool latent) {
    return { half, CUDA_CARD, pass, all, latent, a->heads, a->kv_heads, a->dk, a->dv };
}
static const AttnKernel *by_packed(const Dev *d, const Attn *a) {
    const AttnCall c = call_of(a, halves(d, a->q, a->k, a->v, a->o), ATTN_FORWARD, false, is_latent(a));
    return attn_choose(&c);
}
static const AttnKernel *by_all(const Dev *d, const Attn *a) {
    const AttnCall c = call_of(a, halves(d, a->q, a->k, a->v, a->o), ATTN_FORWARD, true, false);
    return attn_choose(&c);
}
static const AttnKernel *by_paged(const Dev *d, Tensor o, Tensor q, const Kv *kv, int heads) {
    const AttnCall c = { halves(d, q, o), CUDA_CARD, ATTN_FORWARD, false,  kv->latent,
                         heads,           kv->kv_heads, kv->dk, kv->dv };
    return attn_choose(&c);
}
static const AttnKernel *by_back(const Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a, bool all) {
    const AttnCall c = call_of(a, halves(d, a->q, a->k, a->v, a->o, dq, dk, dv, dO), ATTN_BACKWARD, all, false);
    return attn_choose(&c);
}
enum { ALL_WIDTH = 80 };                /* columns of a head without a mask: those of towers that are published */

/* ---- tensor maps ------------------------------------------------------------------------------------------------- */
/* elements, innermost first; strides of the outer two in bytes */
struct Box {
    uint64_t dim[3], stride[2];
    uint32_t box[3];
};
static CUtensorMap map_of(const Dev *d, const void *at, Box b) {
    CUtensorMap m;
    cuuint32_t each[3] = { 1, 1, 1 };
    CHECK((uintptr_t)at % 16 == 0 && b.stride[0] % 16 == 0 && b.stride[1] % 16 == 0,
          "attention: rows at %p, %lu and %lu bytes apart; 16 wanted", at, (unsigned long)b.stride[0],
          (unsigned long)b.stride[1]);
    /* promotion to 256 bytes would cost decode 5 % */
    CUresult r = at_of(d)->encode(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)at, (const cuuint64_t *)b.dim,
                                  (const cuuint64_t *)b.stride, b.box, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    CHECK(r == CUDA_SUCCESS, "attention: tensor map of %lu x %lu x %lu: error %d", (unsigned long)b.dim[0],
          (unsigned long)b.dim[1], (unsigned long)b.dim[2], (int)r);
    return m;
}
static uint64_t u64(int64_t x) { return (uint64_t)x; }
/* x [rows, heads * width]: boxes of 64 columns, some heads, some rows */
static CUtensorMap map_heads(const Dev *d, Tensor x, int heads, int width, int box_heads, int box_rows) {
    return map_of(d, x.data,
                  { { u64(width), u64(heads), u64(x.rows) },
                    { u64(width) * 2, u64(x.ld) * 2 },
                    { 64, (uint32_t)box_heads, (uint32_t)box_rows } });
}
static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }
static int slices_of(const Kv *kv) { return kv->kv_heads * (kv->dk + (kv->latent ? 0 : kv->dv)) / 64; }
static CUtensorMap map_pages(const Dev *d, const Kv *kv, int piece) {
    CHECK(kv->pool.ld == kv->pool.cols, "attend_kv: pages %ld bytes apart, each of %ld", (long)kv->pool.ld,
          (long)kv->pool.cols);
    return map_of(d, kv->pool.data,
                  { { 64, u64(kv->page), u64(kv->pool.rows * slices_of(kv)) },
                    { 128, u64(kv->page) * 128 },
                    { 64, (uint32_t)piece, 1 } });
}
static KeyPages key_pages(const Dev *d, const Kv *kv, const Paged *rows, int block) {
    KeyPages k = {};
    k.table = (const int *)rows->table.data, k.ld_table = rows->table.ld, k.n_table = (int)rows->table.cols,
    k.n_pages = (int)kv->pool.rows;
    k.page = kv->page, k.piece = gcd(kv->page, block), k.slices = slices_of(kv), k.fault = cu(d)->fault;
    return k;
}
static KeyPages key_rows(const Dev *d, int block, const Attn *a) {
    KeyPages k = {};
    k.page = k.piece = block, k.fault = cu(d)->fault, k.from = (const int *)a->from.data;
    return k;
}

/* ---- the shape of a call: how it is cut, and the scratch that takes ---------------------------------------------- */
struct Cut {
    AttnBy by;
    int rows_tile, positions; /* rows a tile has room for; positions they are */
    int heads, group;         /* kv heads or blocks of heads; heads that share a tile */
    int64_t items;            /* at most */
    int spans;                /* > 0: an item a span, so many at most */
    int block;                /* attn_dkv: positions a block of rows has */
    size_t list, parts, sums; /* bytes: items and their count; partial sums o; (m, l) */
    size_t folds;             /* running sums of CTAs: MLA's, attn_dkv's */
};
static size_t cut_bytes(const Cut &c) {
    return arena_round(c.list) + arena_round(c.parts) + arena_round(c.sums) + arena_round(c.folds);
}

/* of a tile of training: heads of 64 columns leave room for three warpgroups */
static constexpr int most_rows(int width) { return width == 64 ? 192 : 128; }
static int span_of(AttnBy by) { return by == BY_MLA ? MLA_SPAN : ATTN_SPAN; }
static int block_of(AttnBy by) { return by == BY_MLA ? MLA_BLOCK : ATTN_BLOCK; }
static void cut_mla(Cut *c, int heads) {
    c->group = heads < MLA_ROWS ? heads : MLA_ROWS, c->rows_tile = MLA_ROWS;
    c->positions = MLA_ROWS / c->group, c->heads = (heads + MLA_ROWS - 1) / MLA_ROWS;
}
static Cut cut_of(AttnBy by, int heads, int kv_heads, int rows_tile, int64_t rows, int seqs, int64_t most_keys) {
    Cut c = {};
    c.by = by;
    if (by == BY_MLA) cut_mla(&c, heads);
    else c.group = heads / kv_heads, c.rows_tile = rows_tile, c.positions = rows_tile / c.group, c.heads = kv_heads;
    c.items = (rows / c.positions + seqs) * c.heads;
    if (by == BY_MLA && most_keys > MLA_SPAN) c.folds = (size_t)MOST_CTAS * MLA_SCRATCH * 4;
    return c;
}
static size_t first_bytes(int seqs) { return arena_round((size_t)(seqs + 1) * 4); }
static void cut_list(Cut *c, int seqs) { c->list = ARENA_ALIGN + first_bytes(seqs) + (size_t)c->items * sizeof(Item); }
static int64_t most_keys(const Attn *a) { return a->from.data ? a->k.rows : a->seqs.longest; }
static Cut cut_packed(AttnBy by, const Attn *a) {
    Cut c = cut_of(by, a->heads, a->kv_heads, most_rows(a->dk), a->q.rows, a->seqs.n, most_keys(a));
    cut_list(&c, a->seqs.n);
    return c;
}
static Cut cut_all(const Attn *a) { /* windows have at most 64 rows, as a rule */
    const bool windows = (int64_t)a->seqs.longest * (a->heads / a->kv_heads) <= 64;
    Cut c = cut_of(BY_ALL, a->heads, a->kv_heads, windows ? 64 : 128, a->q.rows, a->seqs.n, a->seqs.longest);
    cut_list(&c, a->seqs.n);
    return c;
}
/* Decode by span where whole sequences would leave SMs idle, or where (heads of 64) two CTAs an SM are quicker than
 * one; no list is made. */
static Cut cut_paged(AttnBy by, Tensor q, const Kv *kv, const Paged *r, int heads) {
    const int64_t keys = (int64_t)r->table.cols * kv->page, spans = (keys + span_of(by) - 1) / span_of(by);
    const int group = heads / kv->kv_heads, n = r->rows.n, longest = r->rows.longest;
    Cut c = cut_of(by, heads, kv->kv_heads, (int64_t)longest * group > 64 ? most_rows(kv->dk) : 64, q.rows, n, keys);
    const size_t parts = (size_t)n * (size_t)heads * (size_t)spans;
    const bool few = (int64_t)n * c.heads < MOST_CTAS || by == BY_64;
    const bool can = (by == BY_MLA || group <= 16) && parts * (size_t)kv->dv * 4 <= PART_MOST;
    if (longest == 1 && spans > 1 && few && can) {
        c.spans = (int)spans, c.items *= spans, c.folds = 0;
        c.parts = parts * (size_t)kv->dv * 4, c.sums = parts * 8;
    }
    if (longest > 1) cut_list(&c, n);
    return c;
}

struct Scratch {
    int *count;
    float *part_o;
    float2 *part_ml;
    float *folds;
};
static Scratch take(Dev *d, const Cut &c) {
    Scratch s = {};
    if (c.list) s.count = (int *)arena_push(&d->tmp, c.list);
    if (c.parts) s.part_o = (float *)arena_push(&d->tmp, c.parts);
    if (c.sums) s.part_ml = (float2 *)arena_push(&d->tmp, c.sums);
    if (c.folds) s.folds = (float *)arena_push(&d->tmp, c.folds);
    return s;
}
/* Sections begin with their longest tiles, so the last one ends late where tiles are few and long: then there is one,
 * which is called 0. */
static int64_t sections(const Cut &c, int64_t section) { return c.items < 16 * MOST_CTAS ? 0 : section; }
/* The list of tiles: its length, the kernel's own numbers, the items. */
static ItemWork work_of(const Cut &c, const Scratch &s, Seqs seqs, Tensor start, int64_t keys, int64_t section,
                        bool later, Tensor from = TENSOR_NONE) {
    int *first = (int *)((char *)s.count + ARENA_ALIGN);
    Item *items = (Item *)((char *)first + first_bytes(seqs.n));
    return { (const int *)seqs.at.data,
             (const int *)start.data,
             (const int *)from.data,
             seqs.n,
             c.positions,
             c.heads,
             (int)keys,
             (unsigned)sections(c, section),
             later,
             c.spans,
             c.block,
             first,
             s.count,
             items };
}
/* One sequence needs no list: its tiles are counted through, by sections of whole heads. */
static ItemList list_one(const Dev *d, const Cut &c, Seqs seqs, int64_t section) {
    const int64_t rows = sections(c, section), each = rows ? max(rows / max(seqs.longest, 1), (int64_t)1) : c.heads;
    return { nullptr, nullptr, at_of(d)->taken, 1, c.heads, 0, (const int *)seqs.at.data, c.positions,
             (int)min(each, (int64_t)c.heads) };
}
static ItemList list_at(const Dev *d, const ItemWork &w) { return { w.out, w.count, at_of(d)->taken }; }
static ItemList list_of(Dev *d, const Cut &c, const Scratch &s, Seqs seqs, Tensor start, int64_t keys,
                        int64_t section) {
    if (!c.list) return { nullptr, nullptr, at_of(d)->taken, seqs.n, c.heads, c.spans };
    if (seqs.n == 1) return list_one(d, c, seqs, section);
    ItemWork w = work_of(c, s, seqs, start, keys, section, false);
    launch(d, attn_list, dim3(1), dim3(ITEM_THREADS), 0, w, w);
    return list_at(d, w);
}
static unsigned ctas(const Dev *d, const Cut &c, int each) {
    int64_t most = (cu(d)->sms < MOST_CTAS ? cu(d)->sms : MOST_CTAS) * each;
    return (unsigned)(c.items < most ? c.items : most);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */
template <int D, int W, int WIDTH = D, bool ALL = false>
static void fwd(Dev *d, const Cut &c, const CUtensorMap &q, const CUtensorMap &k, const CUtensorMap &v,
                const AttnPar &p) {
    using S = AttnShape<D, D, W>;
    const dim3 grid = ctas(d, c, W ? 1 : 2);
    launch_pdl(d, attn_fwd<D, D, W, ATTN_SPAN, WIDTH, ALL>, grid, dim3(S::threads), S::bytes, q, k, v, p);
}
/* As soon as the partial sums are there: set up while they are being made. */
template <int D> static void combine(Dev *d, const AttnPar &p, int seqs) {
    launch_pdl(d, attn_combine<D, ATTN_SPAN>, dim3(blocks_of((int64_t)seqs * p.kv_heads * p.group, 4)), dim3(128), 0,
                 p, seqs);
}
template <int D>
static void fwd_any(Dev *d, const Cut &c, const CUtensorMap &q, const CUtensorMap &k, const CUtensorMap &v,
                    const AttnPar &p, int seqs) {
    if (c.spans) {
        AttnPar now = p;
        now.early = cu(d)->capturing;
        c.items <= cu(d)->sms ? fwd<D, -1>(d, c, q, k, v, now) : fwd<D, 0>(d, c, q, k, v, now);
        combine<D>(d, p, seqs);
    }
    else if (c.rows_tile == 64) fwd<D, 1>(d, c, q, k, v, p);
    else fwd<D, most_rows(D) / 64>(d, c, q, k, v, p);
}
static void fwd_mla(Dev *d, const Cut &c, const CUtensorMap &q, const CUtensorMap &k, const MlaPar &p, int seqs) {
    mla_fwd<<<ctas(d, c, 1), 384, MLA_SMEM, stream_of(d)>>>(q, k, p);
    CU(cudaGetLastError());
    if (c.spans) launch(d, mla_combine, dim3((unsigned)(seqs * p.heads)), dim3(128), 0, p, seqs);
}
static float base2(float scale) { return scale * 1.4426950408889634f; }
static int inverse(int n) { return (65536 + n - 1) / n; }

static AttnPar attn_par(const Cut &c, const Scratch &s, Tensor o, Tensor lse, Seqs seqs, Tensor start, KeyPages keys,
                        ItemList list, float scale) {
    AttnPar p = {};
    p.o = (bf16 *)o.data, p.ld_o = o.ld, p.lse = (float *)lse.data, p.ld_lse = lse.ld;
    p.part_o = s.part_o, p.part_ml = s.part_ml, p.max_spans = c.spans;
    p.at = (const int *)seqs.at.data, p.start = (const int *)start.data, p.keys = keys;
    p.kv_heads = c.heads, p.group = c.group, p.inv_group = inverse(c.group), p.q_box = c.positions;
    p.c = base2(scale), p.list = list;
    return p;
}
static MlaPar mla_par(const Cut &c, const Scratch &s, Tensor o, Tensor lse, Seqs seqs, Tensor start, KeyPages keys,
                      ItemList list, int heads, float scale) {
    MlaPar p = {};
    p.o = (bf16 *)o.data, p.ld_o = o.ld, p.lse = (float *)lse.data, p.ld_lse = lse.ld;
    p.part_o = s.part_o, p.part_ml = s.part_ml, p.max_spans = c.spans, p.scratch = s.folds;
    p.at = (const int *)seqs.at.data, p.start = (const int *)start.data, p.keys = keys;
    p.heads = heads, p.tile_heads = c.group, p.inv_heads = inverse(c.group), p.tokens = c.positions;
    p.c = base2(scale), p.list = list;
    return p;
}

/* half of the L2 cache for a section's keys and values */
static int64_t section_of(int dk, int dv) { return (24 << 20) / ((dk + dv) * 2); }

/* ---- the ops ----------------------------------------------------------------------------------------------------- */
static AttnBy said(Dev *d, const AttnKernel *k) {
    d->by = k->words;
    return k->by;
}
size_t cuda_tmp_attend(Dev *d, const Attn *a) {
    AttnBy by = said(d, by_packed(d, a));
    return by == BY_PLAIN ? 0 : cut_bytes(cut_packed(by, a));
}
void cuda_attend(Dev *d, const Attn *a) {
    AttnBy by = by_packed(d, a)->by;
    if (a->q.rows == 0) return;
    if (by == BY_PLAIN) return plain_attend(d, a, false);
    size_t mark = arena_mark(&d->tmp);
    Cut c = cut_packed(by, a);
    Scratch s = take(d, c);
    ItemList list =
        list_of(d, c, s, a->seqs, a->start, most_keys(a), by == BY_MLA ? 0 : section_of(a->dk, a->dv));
    if (by == BY_MLA) {
        CUtensorMap q = map_heads(d, a->q, a->heads, MLA_DK, c.group, c.positions);
        CUtensorMap k = map_of(d, a->k.data,
                               { { MLA_DK, u64(a->k.rows), 1 },
                                 { u64(a->k.ld) * 2, u64(a->k.rows * a->k.ld) * 2 },
                                 { 64, MLA_BLOCK, 1 } });
        fwd_mla(d, c, q, k,
                mla_par(c, s, a->o, a->lse, a->seqs, a->start, key_rows(d, MLA_BLOCK, a), list, a->heads, a->scale),
                a->seqs.n);
    } else {
        AttnPar p = attn_par(c, s, a->o, a->lse, a->seqs, a->start, key_rows(d, ATTN_BLOCK, a), list, a->scale);
        CUtensorMap q = map_heads(d, a->q, a->heads, a->dk, c.group, c.positions);
        CUtensorMap k = map_heads(d, a->k, a->kv_heads, a->dk, 1, ATTN_BLOCK),
                    v = map_heads(d, a->v, a->kv_heads, a->dv, 1, ATTN_BLOCK);
        if (by == BY_128) fwd_any<128>(d, c, q, k, v, p, a->seqs.n);
        else fwd_any<64>(d, c, q, k, v, p, a->seqs.n);
    }
    arena_pop(&d->tmp, mark);
}

size_t cuda_tmp_attend_all(Dev *d, const Attn *a) {
    AttnBy by = said(d, by_all(d, a));
    return by == BY_PLAIN ? 0 : cut_bytes(cut_all(a));
}
void cuda_attend_all(Dev *d, const Attn *a) {
    if (a->q.rows == 0) return;
    if (by_all(d, a)->by == BY_PLAIN) return plain_attend(d, a, true);
    size_t mark = arena_mark(&d->tmp);
    Cut c = cut_all(a);
    Scratch s = take(d, c);
    ItemList list = list_of(d, c, s, a->seqs, TENSOR_NONE, a->seqs.longest, section_of(128, 128));
    AttnPar p = attn_par(c, s, a->o, a->lse, a->seqs, TENSOR_NONE, key_rows(d, ATTN_BLOCK, a), list, a->scale);
    CUtensorMap q = map_heads(d, a->q, a->heads, a->dk, c.group, c.positions);
    CUtensorMap k = map_heads(d, a->k, a->kv_heads, a->dk, 1, ATTN_BLOCK),
                v = map_heads(d, a->v, a->kv_heads, a->dv, 1, ATTN_BLOCK);
    if (c.rows_tile == 64) fwd<128, 1, ALL_WIDTH, true>(d, c, q, k, v, p);
    else fwd<128, 2, ALL_WIDTH, true>(d, c, q, k, v, p);
    arena_pop(&d->tmp, mark);
}

size_t cuda_tmp_attend_kv(Dev *d, Tensor o, Tensor q, Kv kv, Paged rows, int heads, float scale) {
    AttnBy by = said(d, by_paged(d, o, q, &kv, heads));
    (void)scale;
    return by == BY_PLAIN ? 0 : cut_bytes(cut_paged(by, q, &kv, &rows, heads));
}
void cuda_attend_kv(Dev *d, Tensor o, Tensor q, Kv kv, Paged rows, int heads, float scale) {
    AttnBy by = by_paged(d, o, q, &kv, heads)->by;
    if (q.rows == 0) return;
    if (by == BY_PLAIN) return plain_attend_kv(d, o, q, &kv, &rows, heads, scale);
    size_t mark = arena_mark(&d->tmp);
    Cut c = cut_paged(by, q, &kv, &rows, heads);
    Scratch s = take(d, c);
    const int64_t keys = rows.table.cols * kv.page;
    ItemList list = list_of(d, c, s, rows.rows, rows.start, keys, 0);
    KeyPages k = key_pages(d, &kv, &rows, block_of(by));
    CUtensorMap mk = map_pages(d, &kv, k.piece);
    const int q_box = rows.rows.longest == 1 ? 1 : c.positions;
    CUtensorMap mq = map_heads(d, q, heads, kv.dk, c.group, by == BY_MLA ? c.positions : q_box);
    if (by == BY_MLA)
        fwd_mla(d, c, mq, mk, mla_par(c, s, o, TENSOR_NONE, rows.rows, rows.start, k, list, heads, scale), rows.rows.n);
    else {
        AttnPar p = attn_par(c, s, o, TENSOR_NONE, rows.rows, rows.start, k, list, scale);
        p.q_box = q_box;
        if (c.spans && attn_one_go(d, mk, p, q, kv.dk)) combine<128>(d, p, rows.rows.n);
        else if (by == BY_128) fwd_any<128>(d, c, mq, mk, mk, p, rows.rows.n);
        else fwd_any<64>(d, c, mq, mk, mk, p, rows.rows.n);
    }
    arena_pop(&d->tmp, mark);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */
/* widths of a head; rows a block of attn_dkv has, keys a block of attn_dq, warpgroups: what registers allow */
template <int DK, int DV, int ROWS, int KEYS, int W, int WK = DK, int WV = DV, bool ALL = false> struct BackShape {
    static constexpr int dk = DK, dv = DV, rows = ROWS, keys = KEYS, w = W, tile = 64 * W, threads = 128 * (W + 1);
    static constexpr int wk = WK, wv = WV; /* columns that a head has */
    static constexpr auto *dkv_kernel = attn_dkv<DK, DV, ROWS, W, WK, WV, ALL>;
    static constexpr auto *dq_kernel = attn_dq<DK, DV, KEYS, W, WK, WV, ALL>;
    using Dkv = DkvShape<DK, DV, ROWS, W>;
    using Dq = DqShape<DK, DV, KEYS, W>;
};
using Back128 = BackShape<128, 128, 64, 128, 2>;
using Back64 = BackShape<64, 64, 64, 64, 3>;
using BackMla = BackShape<192, 128, 32, 64, 2>; /* MLA in the expanded form */
using BackAll = BackShape<128, 128, 64, 128, 2, ALL_WIDTH, ALL_WIDTH, true>;
static int back_tile(AttnBy by) { return by == BY_64 ? Back64::tile : by == BY_MLA ? BackMla::tile : Back128::tile; }
static_assert(BackAll::tile == Back128::tile, "back_tile");

static_assert(BackMla::rows == 32 && Back128::rows == 64, "attn_rows.c: heads that may share a kv head");
static_assert(Back128::rows == Back64::rows, "cut_spans");
/* At least the spans that a sequence of at most 'longest' positions has: a longer one may have fewer. */
static int64_t most_spans(const Cut *c, int64_t longest, int kv_heads) {
    int64_t most = 1;
    for (int64_t from = 0; from < longest && from * kv_heads <= 2 * BACK_WORK * c->rows_tile; from += c->rows_tile) {
        const int64_t to = min(from + c->rows_tile, longest),
                      span = (int64_t)back_span((int)from + 1, kv_heads, c->rows_tile, c->block) * c->block;
        most = max(most, (to + span - 1) / span);
    }
    return most;
}
/* Spans of rows are items where whole tiles, of which the longest is twice the mean, would be less than two a
 * multiprocessor.  Scratch is planned for the largest call, and a smaller one, whose tiles are few, must not take more:
 * all take what the largest with few tiles would. */
enum { FEW_TILES = 2 * MOST_CTAS };
static void cut_spans(Cut *c, const Attn *a) {
    const int64_t longest = most_keys(a), spans = most_spans(c, longest, a->kv_heads),
                  row = (int64_t)a->kv_heads * (a->dk + a->dv) * 4,
                  few = min(a->k.rows, (int64_t)FEW_TILES * c->rows_tile / a->kv_heads), /* keys of few tiles */
                  few_spans = most_spans(c, min(few, longest), a->kv_heads), tiles = c->items;
    if (spans > 1) {
        const size_t folds = (size_t)MOST_CTAS * (size_t)(c->rows_tile * (a->dk + a->dv) * 4),
                     room = max(folds, min((size_t)(few_spans * few * row), (size_t)BACK_MOST));
        if (tiles < FEW_TILES && !a->from.data && spans * a->k.rows * row <= BACK_MOST)
            c->spans = (int)spans, c->parts = room;
        else c->folds = room;
    }
    c->items = max(tiles, FEW_TILES * few_spans);
    cut_list(c, a->seqs.n);
    c->items = tiles * (c->spans ? spans : 1);
}
static Cut cut_dkv(AttnBy by, const Attn *a) {
    Cut c = { by, back_tile(by), back_tile(by), a->kv_heads, a->heads / a->kv_heads };
    c.items = (a->k.rows / c.positions + a->seqs.n) * a->kv_heads;
    c.block = Back128::rows / c.group;
    if (by == BY_128 || by == BY_64) cut_spans(&c, a);
    else cut_list(&c, a->seqs.n);
    return c;
}
static Cut cut_dq(AttnBy by, const Attn *a) {
    Cut c = { by, back_tile(by), back_tile(by) / (a->heads / a->kv_heads), a->kv_heads, a->heads / a->kv_heads };
    c.items = (a->q.rows / c.positions + a->seqs.n) * a->kv_heads;
    cut_list(&c, a->seqs.n);
    return c;
}
static size_t sums_bytes(const Attn *a) { return (size_t)a->q.rows * (size_t)a->heads * 4; }

template <class B> static void back(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a, AttnBy by) {
    const int group = a->heads / a->kv_heads;
    Cut cv = cut_dkv(by, a), cq = cut_dq(by, a);
    float *sums = (float *)arena_push(&d->tmp, sums_bytes(a)),
          *own = by == BY_MLA ? (float *)arena_push(&d->tmp, sums_bytes(a)) : NULL;
    Scratch sv = take(d, cv), sq = take(d, cq);
    ItemWork wq = work_of(cq, sq, a->seqs, a->start, most_keys(a), section_of(B::dk, B::dv), false);
    ItemWork wv =
        work_of(cv, sv, a->seqs, a->start, most_keys(a), section_of((B::dk + B::dv) * group, 0), true, a->from);
    if constexpr (!B::Dq::o)
        launch(d, attn_row_sum<B::wv>, dim3(blocks_of(a->q.rows * a->heads, 8)), dim3(256), 0, sums,
               (const bf16 *)dO.data, dO.ld, (const bf16 *)a->o.data, a->o.ld, a->heads, a->q.rows * a->heads);
    /* spans are listed always.  Not launch_pdl: attn_dq of one sequence reads its operands without waiting */
    launch(d, attn_list, dim3(a->seqs.n > 1 ? 2 : 1), dim3(ITEM_THREADS), 0, wv, wq);
    BackPar p = {};
    p.dq = (bf16 *)dq.data, p.dk = (bf16 *)dk.data, p.dv = (bf16 *)dv.data, p.ld_dq = dq.ld, p.ld_dk = dk.ld,
    p.ld_dv = dv.ld;
    p.lse = (const float *)a->lse.data, p.ld_lse = a->lse.ld, p.row_sum = sums, p.own_lse = own;
    p.at = (const int *)a->seqs.at.data, p.start = (const int *)a->start.data, p.from = (const int *)a->from.data;
    p.seqs = a->seqs.n, p.kv_heads = a->kv_heads, p.group = group, p.inv_group = inverse(group), p.c = base2(a->scale),
    p.scale = a->scale;
    auto rows = [&](Tensor x, int width) { return map_heads(d, x, a->heads, width, group, p.positions); };
    auto keys = [&](Tensor x, int width, int n) { return map_heads(d, x, a->kv_heads, width, 1, n); };

    p.positions = cq.positions;
    p.list = a->seqs.n > 1 ? list_at(d, wq) : list_one(d, cq, a->seqs, section_of(B::dk, B::dv));
    launch_pdl(d, B::dq_kernel, dim3(ctas(d, cq, 1)), dim3(B::threads), B::Dq::bytes, rows(a->q, B::wk),
                 keys(a->k, B::wk, B::keys), keys(a->v, B::wv, B::keys), rows(dO, B::wv), rows(a->o, B::wv), p);
    if (p.own_lse) p.lse = p.own_lse, p.ld_lse = a->heads;
    p.positions = B::rows / group, p.keys = a->k.rows, p.parts = sv.part_o, p.folds = sv.folds;
    p.list = list_at(d, wv);
    launch_pdl(d, B::dkv_kernel, dim3(ctas(d, cv, 1)), dim3(B::threads), B::Dkv::bytes, rows(a->q, B::wk),
                 keys(a->k, B::wk, B::tile), keys(a->v, B::wv, B::tile), rows(dO, B::wv), p);
    if constexpr (B::dk == B::dv)
        if (p.parts)
            launch_pdl(d, attn_dkv_add<B::dk, B::tile>, dim3(blocks_of(a->k.rows * a->kv_heads * (B::dk / 2), 256)),
                         dim3(256), 0, p);
}
size_t cuda_tmp_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    AttnBy by = said(d, by_back(d, dq, dk, dv, dO, a, false));
    if (by == BY_PLAIN) return plain_attend_bwd_tmp(a);
    return (by == BY_MLA ? 2 : 1) * arena_round(sums_bytes(a)) + cut_bytes(cut_dkv(by, a)) + cut_bytes(cut_dq(by, a));
}
void cuda_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    AttnBy by = by_back(d, dq, dk, dv, dO, a, false)->by;
    size_t mark = arena_mark(&d->tmp);
    if (a->from.data) cuda_zero(d, dk), cuda_zero(d, dv); /* of keys that no row here sees */
    if (a->q.rows == 0) return;
    if (by == BY_PLAIN) plain_attend_bwd(d, dq, dk, dv, dO, a, false);
    else if (by == BY_128) back<Back128>(d, dq, dk, dv, dO, a, by);
    else if (by == BY_64) back<Back64>(d, dq, dk, dv, dO, a, by);
    else back<BackMla>(d, dq, dk, dv, dO, a, by);
    arena_pop(&d->tmp, mark);
}

size_t cuda_tmp_attend_all_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    AttnBy by = said(d, by_back(d, dq, dk, dv, dO, a, true));
    if (by == BY_PLAIN) return plain_attend_bwd_tmp(a);
    return arena_round(sums_bytes(a)) + cut_bytes(cut_dkv(by, a)) + cut_bytes(cut_dq(by, a));
}
void cuda_attend_all_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    AttnBy by = by_back(d, dq, dk, dv, dO, a, true)->by;
    size_t mark = arena_mark(&d->tmp);
    if (a->q.rows == 0) return;
    if (by == BY_PLAIN) plain_attend_bwd(d, dq, dk, dv, dO, a, true);
    else back<BackAll>(d, dq, dk, dv, dO, a, by);
    arena_pop(&d->tmp, mark);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */
template <int D, int W, int WIDTH = D, bool ALL = false> static cudaError_t allow(void) {
    return cudaFuncSetAttribute(attn_fwd<D, D, W, ATTN_SPAN, WIDTH, ALL>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                AttnShape<D, D, W>::bytes);
}
template <class B> static cudaError_t allow_back(void) {
    cudaError_t e =
        cudaFuncSetAttribute(B::dkv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, B::Dkv::bytes);
    return e ? e : cudaFuncSetAttribute(B::dq_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, B::Dq::bytes);
}
bool attns_open(Dev *d, Err *err) {
    Attns *x = cu(d)->attns = MEM_NEW(&d->mem, Attns);
    cudaDriverEntryPointQueryResult found;
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&x->encode, 12000,
                                                     cudaEnableDefault, &found);
    if (e == cudaSuccess && found != cudaDriverEntryPointSuccess)
        return err_set(err, "the GPU driver has no tensor maps: install a newer one");
    if (e == cudaSuccess) e = cudaMalloc((void **)&x->taken, sizeof *x->taken);
    if (e == cudaSuccess) e = cudaMemset(x->taken, 0, sizeof *x->taken);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(mla_fwd, cudaFuncAttributeMaxDynamicSharedMemorySize, MLA_SMEM);
    if (e == cudaSuccess) e = allow<128, -1>();
    if (e == cudaSuccess) e = allow<128, 0>();
    if (e == cudaSuccess) e = allow<128, 1>();
    if (e == cudaSuccess) e = allow<128, 2>();
    if (e == cudaSuccess) e = allow<64, -1>();
    if (e == cudaSuccess) e = allow<64, 0>();
    if (e == cudaSuccess) e = allow<64, 1>();
    if (e == cudaSuccess) e = allow<64, 3>();
    if (e == cudaSuccess) e = allow<128, 1, ALL_WIDTH, true>();
    if (e == cudaSuccess) e = allow<128, 2, ALL_WIDTH, true>();
    if (e == cudaSuccess) e = allow_back<BackAll>();
    if (e == cudaSuccess) e = allow_back<Back128>();
    if (e == cudaSuccess) e = allow_back<Back64>();
    if (e == cudaSuccess) e = allow_back<BackMla>();
    if (e != cudaSuccess) return err_set(err, "attention: %s", cudaGetErrorString(e));
    plain_attn_open();
    return true;
}
void attns_close(Dev *d) {
    Attns *x = at_of(d);
    if (!x) return;
    if (x->taken) cudaFree(x->taken);
    cu(d)->attns = NULL;
}
