/* attn_fwd.cuh - attention forward for heads of 128/128 and 64/64 columns, one kernel for training, prefill and
 * decode: bf16 in and out, float32 softmax, order of sums in attn_sums.cuh.
 *
 * Persistent CTAs take items (a tile of rows of one sequence and kv head) from a counter.  One producer thread
 * drives the copy engine; each of the consumer warpgroups has 64 rows.  A row is (position, head of the group): the
 * box of queries is {64 columns, group, positions}, so a group's heads share the keys they read.  A ring of slots
 * brings K0 K1 V0 K2 V1 ...; the loop issues S = Q K(j), then O += P V(j-1), and the softmax of block j runs under
 * the latter.
 *   W 2, 3   128 or 192 rows: training, prefill; running sums of the spans in shared memory.  Three warpgroups where
 *     heads are narrow: exponentials are what they wait for then
 *   W 1    64 rows: short chunks, decode of many sequences; two query buffers
 *   W 0    16 rows that count, one span an item, two CTAs an SM: decode of few sequences; float32 partials,
 *     attn_combine folds them
 *   W -1   the same, one CTA an SM with twice the slots: so few that not every SM has one (of half as many attn_one.cu
 *     may take over)
 *
 * ALL: without a mask, every row sees all keys of its sequence (a vision tower's windows and frames).  A head of WIDTH
 * < DK columns is read as one of DK: the copy engine brings zeros for the columns that are not there, and they are not
 * stored.
 *
 * A masked key has p = 0 but its value still enters the product, so what lies behind a sequence in its last page
 * must be finite: pools start zeroed.  Rows of the tile that do not exist hold anything: no row depends on another. */
#ifndef OP_CUDA_ATTN_FWD_CUH
#define OP_CUDA_ATTN_FWD_CUH

#include "op/cuda/sm90/attn_items.cuh"
#include "op/cuda/sm90/attn_sums.cuh"

struct AttnPar {
    bf16 *o;
    float *lse; /* null: not wanted */
    int64_t ld_o, ld_lse;
    float *part_o;   /* by span: [seq][kv head][max_spans][group][DV] */
    float2 *part_ml; /* the same without DV: maximum, sum */
    int max_spans;
    const int *at, *start; /* new rows at[s]..at[s+1] are positions start[s].. of sequence s; start null: 0 */
    KeyPages keys;
    int kv_heads, group, inv_group, q_box; /* q_box: positions the box of queries brings */
    float c;                               /* scale * log2(e) */
    bool early;                            /* lengths, tables and keys of other steps are there before the kernel
        before this one is done */
    ItemList list;
};
/* attn_one.cu: the partial sums of so few sequences that it takes them; false: it does not. */
bool attn_one_go(Dev *d, const CUtensorMap &pages, AttnPar p, Tensor q, int width);
DEV int by_group(int row, const AttnPar &p) { return row * p.inv_group >> 16; } /* row / group, rows < 192 */

/* row: first row of q and o; pos: its position, or ALL: of the last key; blocks j0..j1 */
struct Tile {
    int seq, head, span, row, rows, pos, j0, j1;
};

template <int DK, int DV, int W> struct AttnShape {
    static constexpr bool part = W <= 0;
    static constexpr int groups = part ? 1 : W, rows = 64 * groups, q_bufs = groups == 1 ? 2 : 1;
    static constexpr int q_rows = part ? 16 : rows,
                         q = q_rows * DK * 2; /* part: rows 16..63 of the tile are whatever lies behind */
    static constexpr int slot = ATTN_BLOCK * (DK > DV ? DK : DV) * 2, acc = part ? 0 : 64 * groups * DV * 4;
    static constexpr int room = ((W == 0 ? 115712 : 232448) - 512 - q_bufs * q - acc) / slot,
                         slots = room > 8 ? 8 : room;
    static constexpr int bytes = q_bufs * q + slots * slot + acc + 512, threads = (groups + 1) * 128;
};

template <int DV> DEV void add_values(float (&o)[DV / 2], const uint32_t (&p)[32], uint32_t v) {
#pragma unroll
    for (int k = 0; k < ATTN_BLOCK / 16; k++) wgmma_rs(o, p + 4 * k, operand(v + k * 2048, ATTN_BLOCK * 128));
}
DEV void weights_of(const float (&s)[64], uint32_t (&p)[32]) {
#pragma unroll
    for (int i = 0; i < 32; i++) p[i] = bf2(s[2 * i], s[2 * i + 1]);
}

/* ---- the producer: one thread ------------------------------------------------------------------------------------ */
template <int DK, int DV, int W, int SPAN, bool ALL>
DEV void attn_produce(const CUtensorMap *tq, const CUtensorMap *tk, const CUtensorMap *tv, const AttnPar &p,
                      uint32_t sQ, uint32_t sR, uint32_t bars, volatile Tile *tiles) {
    using S = AttnShape<DK, DV, W>;
    const uint32_t full = bars, empty = bars + 8 * S::slots, q_full = bars + 16 * S::slots,
                   q_empty = q_full + 8 * S::q_bufs;
    int slot = 0, qb = 0;
    uint32_t phase = 1, q_phase = 1;
    struct Next {
        Tile t;
        SeqKeys keys;
    };
    int item = blockIdx.x; /* by span there are a few items, which are counted through */
    auto take = [&](Item *x) {
        if (!S::part) return p.list.next(x);
        if (item >= p.list.total()) return false;
        *x = p.list.get(item), item += gridDim.x;
        return true;
    };
    auto fetch = [&] {
        Next n;
        Item x;
        n.t.j1 = -1;
        int start;
        do {
            if (!take(&x)) return n;
            start = p.start ? p.start[x.seq] : 0;
        } while (x.span > 0 && x.span * SPAN > start); /* that sequence has fewer spans */
        const int row0 = p.at[x.seq], rows = p.at[x.seq + 1] - row0;
        const int there = min(rows - x.q0, S::rows / p.group), last = ALL ? rows - 1 : start + x.q0 + there - 1,
                  blocks = last / ATTN_BLOCK + 1;
        constexpr int span_blocks = SPAN / ATTN_BLOCK;
        n.t = {
            x.seq, x.head, x.span, row0 + x.q0, there * p.group, ALL ? last : start + x.q0,
            x.span < 0 ? 0 : x.span * span_blocks, blocks
        };
        if (x.span >= 0) n.t.j1 = min(blocks, n.t.j0 + span_blocks);
        n.keys = seq_keys(p.keys, x.seq, row0, start + rows - 1);
        return n;
    };
    bool waited = !S::part;
    if (!waited && !p.early) pdl_wait(), waited = true;
    Next n = fetch();
    for (;;) {
        const Next x = n;
        const Tile t = x.t;
        auto load = [&](const CUtensorMap *m, int j, int slices, int slice0) {
            bar_await(empty + 8 * slot, phase);
            const uint32_t bar = full + 8 * slot, to = sR + slot * S::slot;
            bar_expect(bar, ATTN_BLOCK * 128 * slices);
            for (int r = 0; r < ATTN_BLOCK; r += p.keys.piece) {
                if (p.keys.table) {
                    const int pos = j * ATTN_BLOCK + r, s0 = x.keys.slice(p.keys, pos) + slice0 + t.head * slices;
                    for (int h = 0; h < slices; h++)
                        tma_load(to + h * ATTN_BLOCK * 128 + r * 128, m, 0, pos % p.keys.page, s0 + h, bar);
                } else
                    for (int h = 0; h < slices; h++)
                        tma_load(to + h * ATTN_BLOCK * 128 + r * 128, m, h * 64, t.head,
                                 x.keys.first + j * ATTN_BLOCK + r, bar);
            }
            if (++slot == S::slots) slot = 0, phase ^= 1;
        };
        auto keys = [&](int j) { load(tk, j, DK / 64, 0); };
        auto values = [&](int j) { load(tv, j, DV / 64, p.kv_heads * (DK / 64)); };
        auto queries = [&] { /* or that there are no more */
            if (!waited) pdl_wait(), waited = true;
            bar_await(q_empty + 8 * qb, q_phase);
            const uint32_t bar = q_full + 8 * qb;
            volatile Tile *to = tiles + qb;
            to->j1 = t.j1;
            if (t.j1 < 0) return bar_arrive(bar);
            to->seq = t.seq, to->head = t.head, to->span = t.span, to->row = t.row, to->rows = t.rows, to->pos = t.pos,
            to->j0 = t.j0;
            bar_expect(bar, DK * 2 * p.q_box * p.group);
#pragma unroll
            for (int h = 0; h < DK / 64; h++)
                tma_load(sQ + qb * S::q + h * S::q_rows * 128, tq, h * 64, t.head * p.group, t.row, bar);
            if (++qb == S::q_bufs) qb = 0, q_phase ^= 1;
        };
        if (t.j1 < 0) return queries();
        /* K0 K1 V0 K2 V1 ...: what was there before this step is loaded before the queries are made */
        if constexpr (S::part) {
            const int blocks = t.j1 - t.j0;
            bool asked = false;
            for (int i = 0; i < 2 * blocks; i++) {
                const bool last = i == 2 * blocks - 1, key = i == 0 || (i % 2 && !last);
                const int j = t.j0 + (i == 0 ? 0 : last ? blocks - 1 : key ? (i + 1) / 2 : i / 2 - 1);
                if (!asked && (waited || i == S::slots || (j + 1) * ATTN_BLOCK > t.pos)) queries(), asked = true;
                if (key) keys(j);
                else values(j);
            }
            if (!asked) queries();
            n = fetch();
        } else {
            keys(t.j0); /* the first keys of a tile are under way before its queries' buffer is free */
            queries();
            n = fetch();
            for (int j = t.j0; j < t.j1; j++) {
                if (j + 1 < t.j1) keys(j + 1);
                values(j);
            }
        }
    }
}

/* ---- what a consumer does with its sums at the end of a tile ----------------------------------------------------- */
/* A span's share as it is, in float32. */
template <int DV>
DEV void store_part(const AttnPar &p, const Tile &t, int r0, int quad, const float (&o)[DV / 2], const Run (&st)[2]) {
    const int64_t at = (((int64_t)t.seq * p.kv_heads + t.head) * p.max_spans + t.span) * p.group;
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (r0 + 8 * h < t.rows) {
            float *to = p.part_o + (at + r0 + 8 * h) * DV + 2 * quad;
#pragma unroll
            for (int j = 0; j < DV / 8; j++)
                *(float2 *)(to + 8 * j) = make_float2(o[4 * j + 2 * h], o[4 * j + 2 * h + 1]);
            if (quad == 0) p.part_ml[at + r0 + 8 * h] = make_float2(st[h].m, st[h].l);
        }
}
/* o (1 / l) in bf16 through shared memory, so that rows leave in whole pieces of 16 bytes (swizzled against bank
 * conflicts). */
template <int DV, int WIDTH>
DEV void store_rows(const AttnPar &p, const Tile &t, int warp_row, int lane, const float (&o)[DV / 2],
                    const Run (&st)[2], float *acc) {
    constexpr int PIECES = DV / 8;
    const int quad = lane & 3, heads = p.group * t.head;
    const float inv[2] = { __frcp_rn(st[0].l), __frcp_rn(st[1].l) };
    uint8_t *stage = (uint8_t *)acc;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < DV / 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = (lane >> 2) + 8 * h;
            *(uint32_t *)(stage + r * DV * 2 + ((j ^ (r & 7)) << 4) + quad * 4) =
                bf2(finish(o[4 * j + 2 * h], inv[h]), finish(o[4 * j + 2 * h + 1], inv[h]));
        }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * PIECES / 32; i++) {
        const int r = (i * 32 + lane) / PIECES, piece = lane % PIECES, row = warp_row + r, pos = by_group(row, p);
        const uint4 x = *(uint4 *)(stage + r * DV * 2 + ((piece ^ (r & 7)) << 4));
        if (row < t.rows && piece * 8 < WIDTH)
            *(uint4 *)(p.o + (t.row + pos) * p.ld_o + (heads + row - pos * p.group) * WIDTH + piece * 8) = x;
    }
    if (quad == 0 && p.lse)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = warp_row + (lane >> 2) + 8 * h, pos = by_group(row, p);
            if (row < t.rows) p.lse[(t.row + pos) * p.ld_lse + heads + row - pos * p.group] = lse_of(st[h]);
        }
    __syncwarp();
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */
template <int DK, int DV, int W, int SPAN, int WIDTH = DV, bool ALL = false>
__global__ void __launch_bounds__((AttnShape<DK, DV, W>::threads), (W == 0 ? 2 : 1))
    attn_fwd(const __grid_constant__ CUtensorMap tq, const __grid_constant__ CUtensorMap tk,
             const __grid_constant__ CUtensorMap tv, const AttnPar p) {
    using S = AttnShape<DK, DV, W>;
    extern __shared__ __align__(1024) uint8_t base[];
    const uint32_t sQ = smem_of(base), sR = sQ + S::q_bufs * S::q;
    uint8_t *acc_at = base + S::q_bufs * S::q + S::slots * S::slot;
    const uint32_t full = smem_of(acc_at + S::acc), empty = full + 8 * S::slots, q_full = full + 16 * S::slots,
                   q_empty = q_full + 8 * S::q_bufs;
    volatile Tile *tiles =
        (volatile Tile *)(acc_at + S::acc + 16 * S::slots + 16 * S::q_bufs); /* what the producer found out */
    if (sQ & 1023) __trap();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::slots; i++) bar_init(full + 8 * i, 1), bar_init(empty + 8 * i, 4 * S::groups);
        for (int i = 0; i < S::q_bufs; i++)
            bar_init(q_full + 8 * i, 1), bar_init(q_empty + 8 * i, 4 * LANES * S::groups);
        bar_fence_init();
    }
    __syncthreads();
    const int wg = uniform(threadIdx.x >> 7);
    if constexpr (S::part) pdl_let_next();               /* attn_combine may be set up already */
    else pdl_wait();
    if (wg == 0) {
        if constexpr (W == 3) regs_down<32>();
        else if constexpr (W == 0 || W == 2) regs_down<40>();
        if (threadIdx.x == 0) attn_produce<DK, DV, W, SPAN, ALL>(&tq, &tk, &tv, p, sQ, sR, full, tiles);
        return;
    }
    if constexpr (W == 3) regs_up<160>();
    else if constexpr (W == 2) regs_up<232>();
    else if constexpr (W == 0) regs_up<216>();
    const int w = wg - 1, warp = uniform((threadIdx.x >> 5) & 3), lane = threadIdx.x & 31, quad = lane & 3,
              warp_row = w * 64 + warp * 16;
    float *acc = (float *)acc_at + warp_row * DV; /* this warp's sums over the spans so far: [DV/2][32] */
    int slot = 0, qb = 0;
    uint32_t phase = 0, q_phase = 0;
    float s[64], o[DV / 2];
    uint32_t pr[32];
    if constexpr (W >= 2)
        if (w == W - 1) named_arrive(1, 256); /* warpgroups take turns at the tensor cores: the first may go */
    for (;;) {
        bar_await(q_full + 8 * qb, q_phase);
        const volatile Tile *now = tiles + qb;
        const int j1 = uniform(now->j1);
        if (j1 < 0) break;
        const int j0 = uniform(now->j0), pos_min = uniform(now->pos), span = uniform(now->span);
        const Tile t = { now->seq, now->head, span, now->row, now->rows, pos_min, j0, j1 };
        const uint32_t q = sQ + qb * S::q + w * 8192;
        const int r0 = warp_row + (lane >> 2), last0 = pos_min + (ALL ? 0 : by_group(r0, p)),
                  last1 = pos_min + (ALL ? 0 : by_group(r0 + 8, p));
        const float c = p.c;
        Run st[2] = { { NEG, 0.f }, { NEG, 0.f } }, total[2];
        float a[2];
        bool folded = false;
        auto next = [&] {
            if (++slot == S::slots) slot = 0, phase ^= 1;
        };
        auto scores = [&](uint32_t k) {
#pragma unroll
            for (int i = 0; i < (WIDTH < DK ? WIDTH : DK) / 16; i++)
                wgmma<0, 0>(s, operand(q + (i / 4) * S::q_rows * 128 + (i % 4) * 32),
                            operand(k + (i / 4) * ATTN_BLOCK * 128 + (i % 4) * 32), i > 0);
        };
        bar_await(full + 8 * slot, phase);
        wg_fence(), scores(sR + slot * S::slot), wg_commit();
#pragma unroll
        for (int i = 0; i < DV / 2; i++) o[i] = 0.f;
        wg_wait<0>();
        if (lane == 0) bar_arrive(empty + 8 * slot);
        next();
        if (j0 * ATTN_BLOCK + ATTN_BLOCK - 1 > pos_min) mask_block(s, j0 * ATTN_BLOCK + 2 * quad, last0, last1);
        softmax_block(s, st, a, c);
        weights_of(s, pr);
        for (int j = j0 + 1; j < j1; j++) { /* scores of block j while the values of block j-1 are added */
            const int k_slot = slot;
            bar_await(full + 8 * k_slot, phase);
            if constexpr (W >= 2) named_sync(1 + w, 256);
            wg_fence(), scores(sR + k_slot * S::slot), wg_commit();
            next();
            const int v_slot = slot;
            bar_await(full + 8 * v_slot, phase);
            wg_fence(), add_values<DV>(o, pr, sR + v_slot * S::slot), wg_commit();
            next();
            if constexpr (W >= 2) named_arrive(1 + (w + 1) % W, 256);
            wg_wait<1>();
            if (lane == 0) bar_arrive(empty + 8 * k_slot);
            const bool edge = !S::part && j % (SPAN / ATTN_BLOCK) == 0;
            Run done[2] = { st[0], st[1] };
            if (edge) st[0] = { NEG, 0.f }, st[1] = { NEG, 0.f };
            if (j * ATTN_BLOCK + ATTN_BLOCK - 1 > pos_min) mask_block(s, j * ATTN_BLOCK + 2 * quad, last0, last1);
            softmax_block(s, st, a, c);
            wg_wait<0>();
            if (lane == 0) bar_arrive(empty + 8 * v_slot);
            if (!edge) rescale(o, a);
            else { /* a span is complete */ done[0].l = quad_sum(done[0].l), done[1].l = quad_sum(done[1].l);
                if (!folded) {
                    total[0] = done[0], total[1] = done[1];
#pragma unroll
                    for (int i = 0; i < DV / 2; i++) acc[i * 32 + lane] = o[i];
                } else {
                    const Fold f[2] = { fold_factors(total[0], done[0]), fold_factors(total[1], done[1]) };
#pragma unroll
                    for (int i = 0; i < DV / 2; i++)
                        acc[i * 32 + lane] = fold(acc[i * 32 + lane], o[i], f[(i >> 1) & 1]);
                }
#pragma unroll
                for (int i = 0; i < DV / 2; i++) o[i] = 0.f;
                folded = true;
            }
            weights_of(s, pr);
        }
        warp_arrive(q_empty + 8 * qb, lane); /* all lanes have read the tile's words */
        if (++qb == S::q_bufs) qb = 0, q_phase ^= 1;
        bar_await(full + 8 * slot, phase);
        wg_fence(), add_values<DV>(o, pr, sR + slot * S::slot), wg_commit();
        st[0].l = quad_sum(st[0].l), st[1].l = quad_sum(st[1].l);
        wg_wait<0>();
        if (lane == 0) bar_arrive(empty + 8 * slot);
        next();
        if constexpr (S::part) store_part<DV>(p, t, r0, quad, o, st);
        else {
            if (folded) {
                const Fold f[2] = { fold_factors(total[0], st[0]), fold_factors(total[1], st[1]) };
                st[0] = total[0], st[1] = total[1];
#pragma unroll
                for (int i = 0; i < DV / 2; i++) o[i] = fold(acc[i * 32 + lane], o[i], f[(i >> 1) & 1]);
            }
            store_rows<DV, WIDTH>(p, t, warp_row, lane, o, st, acc);
        }
    }
}

/* Decode by span: folds a row's spans in ascending order.  One warp a row (sequence, head). */
template <int DV, int SPAN> __global__ void attn_combine(const AttnPar p, int seqs) {
    pdl_begin();
    constexpr int E = DV / 32;
    const int heads = p.kv_heads * p.group, row = (int)((blockIdx.x * blockDim.x + threadIdx.x) >> 5),
              lane = threadIdx.x & 31;
    if (row >= seqs * heads) return;
    const int seq = row / heads, h = row % heads, n = p.start[seq] / SPAN + 1;
    if (p.at[seq + 1] == p.at[seq]) return;
    Run t = {};
    float o[E] = {};
    for (int i = 0; i < n; i++) {
        const int64_t at = (((int64_t)seq * p.kv_heads + h / p.group) * p.max_spans + i) * p.group + h % p.group;
        const float2 ml = p.part_ml[at];
        const float *x = p.part_o + at * DV + lane * E;
        const Fold f = i == 0 ? Fold{} : fold_factors(t, Run{ ml.x, ml.y });
        if (i == 0) t = { ml.x, ml.y };
#pragma unroll
        for (int e = 0; e < E; e++) o[e] = i == 0 ? x[e] : fold(o[e], x[e], f);
    }
    const float inv = __frcp_rn(t.l);
    const int64_t out = p.at[seq];
#pragma unroll
    for (int e = 0; e < E; e += 2)
        *(uint32_t *)(p.o + out * p.ld_o + h * DV + lane * E + e) = bf2(finish(o[e], inv), finish(o[e + 1], inv));
    if (lane == 0 && p.lse) p.lse[out * p.ld_lse + h] = lse_of(t);
}

#endif
