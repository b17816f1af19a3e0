/* attn_bwd.cuh - attention backward by tensor cores, bf16 in and out: one kernel for dk and dv, one for dq, each
 * with one fixed order of sums, so the same call twice gives the same bytes and a sequence's gradients do not depend
 * on what it is packed with.  The scores are computed in both: seven products instead of five, and no scratch that
 * grows with the square of the length, no sum that depends on who comes first.
 *
 * With o and lse of the forward, D = sum of dO o over a row (by attn_dq, which has dO at hand), c = scale log2(e):
 *   p = ex2(fma(s, c, -lse log2 e));  dS = p (dO v' - D);  dv = p' dO;  dk = scale dS' q;  dq = scale dS k
 * where p and dS are rounded to bf16 for the products.  dk, dv: query rows (position, then head of the group) in
 * blocks descending, to the one that holds the tile's first key (tiles that begin together read the same rows, which
 * are in the L2 cache then); of parts of a sequence one after the other.  dq: keys in blocks ascending from 0.  The
 * heads of a group are added in float32 in the same sum.  Of dk and dv a span of rows, back_span blocks, is a sum of
 * its own, and spans are added descending: a block does them one after the other, keeping what it has in scratch
 * meanwhile; or, where tiles are too few to fill the card, each span is an item, and attn_dkv_add adds them.
 *
 * MLA's o and lse come from the forward over the latent, whose scores and values are rounded elsewhere: rows of p do
 * not add up to 1, rows of dS not to 0.  attn_dq has both sums in hand, so it runs first and leaves an lse and a D
 * that fit the expanded scores to attn_dkv.
 *
 * attn_dkv: a tile is 64 keys of a kv head for each of W warpgroups, and scores are made turned (keys x rows), so
 * that p' and dS' are operands in registers.  attn_dq: a tile is 64 W rows, as in the forward.  One warp of
 * producers: one thread drives the copy engine, all bring lse and D.
 *
 * ALL: without a mask.  WK, WV: columns that a head has, of DK and DV that are read; the others are zeros
 * (attn_fwd.cuh). */
#ifndef OP_CUDA_ATTN_BWD_CUH
#define OP_CUDA_ATTN_BWD_CUH

#include "op/cuda/sm90/attn_items.cuh"
#include "op/cuda/sm90/attn_sums.cuh"

struct BackPar {
    bf16 *dq, *dk, *dv;
    int64_t ld_dq, ld_dk, ld_dv, ld_lse;
    const float *lse;
    /* [T,heads], these without gaps; own_lse: MLA's, written by attn_dq beside a new row_sum */
    float *row_sum, *own_lse;
    const int *at, *start, *from; /* start and from: Attn's, or null */
    /* positions: a block of rows has (attn_dkv), a tile has (attn_dq) */
    int seqs, kv_heads, group, inv_group, positions;
    float c, scale;
    ItemList list;
    /* attn_dkv, where sequences have several spans: parts [span][key][kv head][dk, dv], if each is an item; else folds,
     * the sums so far of each thread */
    float *parts, *folds;
    int64_t keys;
};
DEV int by_group(int row, const BackPar &p) { return row * p.inv_group >> 16; }

/* MLA's D, whose attn_dq has no room for o: one warp a row, columns 32 pairs apart in a chain, then a tree. */
template <int D>
__global__ void attn_row_sum(float *to, const bf16 *dO, int64_t ld_do, const bf16 *o, int64_t ld_o, int heads,
                             int64_t n) {
    const int64_t i = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32, row = i / heads, h = i % heads;
    if (i >= n) return;
    const __nv_bfloat162 *x = (const __nv_bfloat162 *)(dO + row * ld_do + h * D),
                         *y = (const __nv_bfloat162 *)(o + row * ld_o + h * D);
    float s = 0;
#pragma unroll
    for (int c = threadIdx.x & 31; c < D / 2; c += 32) {
        const float2 a = __bfloat1622float2(x[c]), b = __bfloat1622float2(y[c]);
        s = __fmaf_rn(a.y, b.y, __fmaf_rn(a.x, b.x, s));
    }
    s = warp_sum(s);
    if ((threadIdx.x & 31) == 0) to[i] = s;
}
/* dO o of one row, both in slices of 64 columns as the copy engine leaves them: lane t of 4 has columns 8t to 8t + 7 of
 * each 32 in a chain; lanes (0+1)+(2+3). */
template <int D> DEV float row_sum(const uint8_t *x, const uint8_t *y, int slice, int row, int quad) {
    float s = 0;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        const int at = (i / 2) * slice + row * 128 + (((i % 2 * 4 + quad) ^ (row & 7)) << 4);
        const uint4 a = *(const uint4 *)(x + at), b = *(const uint4 *)(y + at);
        const uint32_t *u = &a.x, *v = &b.x;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 f = __bfloat1622float2(*(const __nv_bfloat162 *)(u + j)),
                         g = __bfloat1622float2(*(const __nv_bfloat162 *)(v + j));
            s = __fmaf_rn(f.y, g.y, __fmaf_rn(f.x, g.x, s));
        }
    }
    return quad_sum(s);
}

/* Two rows of a thread's sums, times a factor, to bf16: 16 bytes a lane, as far as there are columns. */
template <int WIDTH, int N> DEV void store_sums(bf16 *row0, bf16 *row1, const float (&x)[N], float by, int quad) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < N / 4; j += 4) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = bf2(__fmul_rn(x[4 * (j + i) + 2 * h], by), __fmul_rn(x[4 * (j + i) + 2 * h + 1], by));
            const uint4 y = quad_turn(w[0], w[1], w[2], w[3], quad);
            bf16 *to = h ? row1 : row0;
            if (to && 8 * (j + quad) < WIDTH) *(uint4 *)(to + 8 * (j + quad)) = y;
        }
}
/* One of them as it is. */
template <int N> DEV void store_part(float *row, const float (&x)[N], int h, int quad) {
#pragma unroll
    for (int j = 0; j < N / 4; j++)
        *(float2 *)(row + 8 * j + 2 * quad) = make_float2(x[4 * j + 2 * h], x[4 * j + 2 * h + 1]);
}
/* A thread's sums so far, 16 bytes of each thread side by side: x after them, or x to them. */
template <int N> DEV void add_fold(float (&x)[N], const float4 *fold, int threads) {
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const float4 y = fold[i * threads];
        x[4 * i] = __fadd_rn(y.x, x[4 * i]), x[4 * i + 1] = __fadd_rn(y.y, x[4 * i + 1]),
        x[4 * i + 2] = __fadd_rn(y.z, x[4 * i + 2]), x[4 * i + 3] = __fadd_rn(y.w, x[4 * i + 3]);
    }
}
template <int N> DEV void put_fold(float4 *fold, float (&x)[N], int threads) {
#pragma unroll
    for (int i = 0; i < N / 4; i++) fold[i * threads] = make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = 0.f;
}
/* s -> bf16 operand of the next product */
template <int N> DEV void to_operand(uint32_t (&p)[N / 2], const float (&s)[N]) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) p[i] = bf2(s[2 * i], s[2 * i + 1]);
}
/* s (+)= a b' over D columns, both in slices of 64: a's slices are 'a_slice' bytes apart, b's 'b_slice' */
template <int D, int N> DEV void scores_of(float (&s)[N], uint32_t a, uint32_t a_slice, uint32_t b, uint32_t b_slice) {
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        wgmma<0, 0>(s, operand(a + (i / 4) * a_slice + (i % 4) * 32), operand(b + (i / 4) * b_slice + (i % 4) * 32),
                    i > 0);
}
/* acc += p b: p [64, rows] in registers, b [rows, columns] in slices of 64 columns */
template <int N, int P> DEV void add_rows(float (&acc)[N], const uint32_t (&p)[P], uint32_t b, uint32_t slice) {
#pragma unroll
    for (int k = 0; k < P / 4; k++) wgmma_rs(acc, p + 4 * k, operand(b + k * 2048, slice));
}

/* ---- dk, dv ------------------------------------------------------------------------------------------------------ */
template <int DK, int DV, int ROWS, int W> struct DkvShape {
    static constexpr int keys = 64 * W, threads = 128 * (W + 1);
    static constexpr int k = keys * DK * 2, v = keys * DV * 2, q = ROWS * DK * 2, slot = ROWS * (DK + DV) * 2;
    static constexpr int room = (232448 - 4096 - k - v) / slot, slots = room > 4 ? 4 : room;
    static constexpr int bytes = k + v + slots * slot + slots * ROWS * 8 + slots * 4 + 256;
};
/* of the sequence: the row of its first key, how many it has; blocks of rows that see the tile's; -1: no more */
struct DkvTile {
    int row0, len, head, key0, blocks, span;
};

template <int DK, int DV, int ROWS, int W, int WK = DK, int WV = DV, bool ALL = false>
__global__ void __launch_bounds__(128 * (W + 1), 1)
    attn_dkv(const __grid_constant__ CUtensorMap tq, const __grid_constant__ CUtensorMap tk,
             const __grid_constant__ CUtensorMap tv, const __grid_constant__ CUtensorMap tdo, const BackPar p) {
    using S = DkvShape<DK, DV, ROWS, W>;
    constexpr bool SPANS = DK == DV && !ALL; /* MLA has no groups, and so as many tiles as heads */
    extern __shared__ __align__(1024) uint8_t base[];
    const uint32_t sK = smem_of(base), sV = sK + S::k, sR = sV + S::v;
    float2 *stats = (float2 *)(base + S::k + S::v + S::slots * S::slot); /* [slot][row]: lse log2 e, D */
    const uint32_t full = smem_of(stats + S::slots * ROWS), empty = full + 8 * S::slots, kv_full = empty + 8 * S::slots,
                   kv_empty = kv_full + 8;
    constexpr int NEW_SPAN = 1 << 30;
    /* [slot]: of its first row, and whether a span begins with it behind another */
    volatile int *block_pos = (volatile int *)(stats + S::slots * ROWS) + 4 * S::slots + 4;
    __shared__ volatile DkvTile shared_tile;
    if (sK & 1023) __trap();
    /* rows of a block that no box ever fills meet p = 0: they must be finite */
    for (int i = threadIdx.x; i < S::slots * S::slot / 16; i += S::threads)
        ((uint4 *)(base + S::k + S::v))[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::slots; i++) bar_init(full + 8 * i, LANES), bar_init(empty + 8 * i, 4 * LANES * W);
        bar_init(kv_full, 1), bar_init(kv_empty, 4 * LANES * W);
        bar_fence_init();
    }
    fence_async();
    pdl_begin();
    __syncthreads();
    const int wg = uniform(threadIdx.x >> 7), warp = uniform((threadIdx.x >> 5) & 3), lane = threadIdx.x & 31,
              quad = lane & 3;
    if (wg == 0) {
        regs_down<W == 3 ? 32 : 40>();
        if (warp) return;
        int slot = 0;
        uint32_t phase = 1, kv_phase = 1;
        const int rows = p.positions * p.group;
        for (;;) {
            Item x = {};
            int more = 0;
            if (lane == 0) more = p.list.next(&x);
            more = uniform(more), x.seq = uniform(x.seq), x.head = uniform(x.head), x.q0 = uniform(x.q0);
            const int span = SPANS ? uniform(x.span) : -1;
            bar_await(kv_empty, kv_phase), kv_phase ^= 1;
            if (!more) {
                if (lane == 0) shared_tile.blocks = -1, bar_arrive(kv_full);
                return;
            }
            auto blocks_of_span = [&](int n) { return back_span(n, p.kv_heads, S::keys, p.positions); };
            const int own = span < 0 ? 0 : blocks_of_span(p.at[x.seq + 1] - p.at[x.seq]);
            /* the rows of sequence s that see the tile's keys: blocks b0..b1, b0 counted from the first that holds
             * one */
            auto part = [&](int s, int *row0, int *start, int *len, int *b0) {
                *row0 = p.at[s], *start = p.start ? p.start[s] : 0, *len = p.at[s + 1] - *row0;
                *b0 = max(!ALL && x.q0 > *start ? (x.q0 - *start) / p.positions : 0, span * own);
                const int end = (*len + p.positions - 1) / p.positions;
                return span < 0 ? end : min(end, (span + 1) * own);
            };
            int row0, start, len, b0, b1, blocks = 0;
            for (int s = x.seq; s < p.seqs; s = next_part(p.from, p.seqs, s))
                b1 = part(s, &row0, &start, &len, &b0), blocks += max(b1 - b0, 0);
            if (lane == 0) {
                const int key0 = p.from ? p.from[x.seq] : row0;
                shared_tile.row0 = key0, shared_tile.len = start + len, shared_tile.head = x.head,
                shared_tile.key0 = x.q0, shared_tile.blocks = blocks, shared_tile.span = span;
                bar_expect(kv_full, S::k + S::v);
                for (int h = 0; h < DK / 64; h++)
                    tma_load(sK + h * S::keys * 128, &tk, h * 64, x.head, key0 + x.q0, kv_full);
                for (int h = 0; h < DV / 64; h++)
                    tma_load(sV + h * S::keys * 128, &tv, h * 64, x.head, key0 + x.q0, kv_full);
            }
            const int each = SPANS && p.folds ? blocks_of_span(start + len) * p.positions : 0;
            int last = -1; /* the span before */
            for (int s = x.seq; s < p.seqs; s = next_part(p.from, p.seqs, s))
                for (int b = (b1 = part(s, &row0, &start, &len, &b0)) - 1; b >= b0; b--) {
                    float2 st[(ROWS + 31) / 32];
#pragma unroll
                    for (int i = 0; i < ROWS / 32; i++) {
                        const int j = i * 32 + lane, n = by_group(j, p), pos = b * p.positions + n;
                        const int64_t row = row0 + pos, h = x.head * p.group + j - n * p.group;
                        st[i] = make_float2(INFINITY, 0.f); /* a row that is not there: p = 0 */
                        if (j < rows && pos < len)
                            st[i] = make_float2(__fmul_rn(p.lse[row * p.ld_lse + h], 1.4426950408889634f),
                                                p.row_sum[row * p.kv_heads * p.group + h]);
                    }
                    bar_await(empty + 8 * slot, phase);
#pragma unroll
                    for (int i = 0; i < ROWS / 32; i++) stats[slot * ROWS + i * 32 + lane] = st[i];
                    int word = start + b * p.positions;
                    if constexpr (SPANS)
                        if (each) {
                            const int now = word / each;
                            if (last >= 0 && now != last) word |= NEW_SPAN;
                            last = now;
                        }
                    if (lane == 0) block_pos[slot] = word;
                    __syncwarp();
                    if (lane == 0) {
                        const uint32_t to = sR + slot * S::slot, bar = full + 8 * slot;
                        bar_expect(bar, rows * (DK + DV) * 2);
                        for (int h = 0; h < DK / 64; h++)
                            tma_load(to + h * ROWS * 128, &tq, h * 64, x.head * p.group, row0 + b * p.positions, bar);
                        for (int h = 0; h < DV / 64; h++)
                            tma_load(to + S::q + h * ROWS * 128, &tdo, h * 64, x.head * p.group, row0 + b * p.positions,
                                     bar);
                    } else if (lane < LANES) bar_arrive(full + 8 * slot);
                    if (++slot == S::slots) slot = 0, phase ^= 1;
                }
        }
    }
    regs_up<W == 3 ? 160 : 232>();
    const int w = wg - 1, r0 = w * 64 + warp * 16 + (lane >> 2);
    int slot = 0;
    uint32_t phase = 0, kv_phase = 0;
    float dk[DK / 2], dv[DV / 2];
    constexpr int others = 128 * W;
    auto fold_at = [&] { /* of this thread */
        return (float4 *)p.folds + (int64_t)blockIdx.x * (DK + DV) / 8 * others + threadIdx.x - 128;
    };
    for (;;) {
        bar_await(kv_full, kv_phase), kv_phase ^= 1;
        const int blocks = uniform(shared_tile.blocks);
        if (blocks < 0) return;
        const int key0 = uniform(shared_tile.key0);
#pragma unroll
        for (int i = 0; i < DK / 2; i++) dk[i] = 0.f;
#pragma unroll
        for (int i = 0; i < DV / 2; i++) dv[i] = 0.f;
        bool folded = false;
        for (int b = 0; b < blocks; b++) {
            const uint32_t q = sR + slot * S::slot, dO = q + S::q;
            float s[ROWS / 2], dp[ROWS / 2];
            bar_await(full + 8 * slot, phase);
            const int word = uniform(block_pos[slot]), pos0 = word & (NEW_SPAN - 1);
            if (SPANS && word & NEW_SPAN) {
                float4 *fold = fold_at();
                if (folded) add_fold(dk, fold, others), add_fold(dv, fold + DK / 8 * others, others);
                put_fold(fold, dk, others), put_fold(fold + DK / 8 * others, dv, others);
                folded = true;
            }
            wg_fence();
            scores_of<WK>(s, sK + w * 8192, S::keys * 128, q, ROWS * 128);
            wg_commit();
            scores_of<WV>(dp, sV + w * 8192, S::keys * 128, dO, ROWS * 128);
            wg_commit();
            wg_wait<1>();
            const float2 *st = stats + slot * ROWS + 2 * quad;
            const bool edge = !ALL && pos0 < key0 + S::keys; /* some row may be before some key */
#pragma unroll
            for (int j = 0; j < ROWS / 8; j++) {
                const float4 y = *(const float4 *)(st + 8 * j);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    s[4 * j + 2 * h] = ex2(__fmaf_rn(s[4 * j + 2 * h], p.c, -y.x));
                    s[4 * j + 2 * h + 1] = ex2(__fmaf_rn(s[4 * j + 2 * h + 1], p.c, -y.z));
                }
                if (edge)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int pos = pos0 + by_group(8 * j + 2 * quad + e, p);
                        if (pos < key0 + r0) s[4 * j + e] = 0.f;
                        if (pos < key0 + r0 + 8) s[4 * j + 2 + e] = 0.f;
                    }
            }
            wg_wait<0>();
#pragma unroll
            for (int j = 0; j < ROWS / 8; j++) {
                const float4 y = *(const float4 *)(st + 8 * j);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    dp[4 * j + 2 * h] = __fmul_rn(s[4 * j + 2 * h], __fsub_rn(dp[4 * j + 2 * h], y.y));
                    dp[4 * j + 2 * h + 1] = __fmul_rn(s[4 * j + 2 * h + 1], __fsub_rn(dp[4 * j + 2 * h + 1], y.w));
                }
            }
            uint32_t pr[ROWS / 4], ds[ROWS / 4];
            to_operand(pr, s), to_operand(ds, dp);
            wg_fence();
            add_rows(dv, pr, dO, ROWS * 128);
            add_rows(dk, ds, q, ROWS * 128);
            wg_commit();
            wg_wait<0>();
            warp_arrive(empty + 8 * slot, lane); /* all lanes have read lse and D */
            if (++slot == S::slots) slot = 0, phase ^= 1;
        }
        const int row0 = shared_tile.row0, len = shared_tile.len, head = shared_tile.head,
                  span = shared_tile.span;
        warp_arrive(kv_empty, lane);
        if (SPANS && folded) add_fold(dk, fold_at(), others), add_fold(dv, fold_at() + DK / 8 * others, others);
        if (SPANS && span >= 0) {
            auto part = [&](int r) {
                const int64_t row = span * p.keys + row0 + key0 + r;
                return p.parts + (row * p.kv_heads + head) * (DK + DV);
            };
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (blocks && key0 + r0 + 8 * h < len)
                    store_part(part(r0 + 8 * h), dk, h, quad), store_part(part(r0 + 8 * h) + DK, dv, h, quad);
            continue;
        }
        auto to = [&](bf16 *x, int64_t ld, int width, int r) {
            return key0 + r < len ? x + (row0 + key0 + r) * ld + head * width : nullptr;
        };
        store_sums<WK>(to(p.dk, p.ld_dk, WK, r0), to(p.dk, p.ld_dk, WK, r0 + 8), dk, p.scale, quad);
        store_sums<WV>(to(p.dv, p.ld_dv, WV, r0), to(p.dv, p.ld_dv, WV, r0 + 8), dv, 1.f, quad);
    }
}

/* Spans' sums, descending, to dk and dv: four columns a thread. */
template <int D, int TILE> __global__ void attn_dkv_add(const BackPar p) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, each = p.kv_heads * (D / 2), row = i / each;
    pdl_begin();
    const int s = seq_of_row(p.at, p.seqs, row);
    if (s < 0) return;
    const int len = p.at[s + 1] - p.at[s], tile = ((int)row - p.at[s]) / TILE * TILE,
              positions = back_span(len, p.kv_heads, TILE, p.positions) * p.positions, first = tile / positions;
    int span = (len - 1) / positions;
    const float4 *part = (const float4 *)p.parts + i;
    float4 x = part[span * p.keys * each];
    while (--span >= first) {
        const float4 y = part[span * p.keys * each];
        x.x = __fadd_rn(x.x, y.x), x.y = __fadd_rn(x.y, y.y), x.z = __fadd_rn(x.z, y.z), x.w = __fadd_rn(x.w, y.w);
    }
    const int head = (int)(i / (D / 2) % p.kv_heads), c = (int)(i % (D / 2)) * 4;
    const float by = c < D ? p.scale : 1.f;
    bf16 *to = c < D ? p.dk + row * p.ld_dk + head * D + c : p.dv + row * p.ld_dv + head * D + c - D;
    *(uint2 *)to = make_uint2(bf2(__fmul_rn(x.x, by), __fmul_rn(x.y, by)), bf2(__fmul_rn(x.z, by), __fmul_rn(x.w, by)));
}

/* ---- dq ---------------------------------------------------------------------------------------------------------- */
template <int DK, int DV, int KEYS, int W> struct DqShape {
    static constexpr int rows = 64 * W, q = rows * DK * 2, dO = rows * DV * 2, o = DK == DV ? dO : 0,
                         k = KEYS * DK * 2, slot = KEYS * (DK + DV) * 2;
    static constexpr int room = (232448 - 1024 - q - dO - o) / slot, slots = room > 4 ? 4 : room;
    static constexpr int bytes = q + dO + o + slots * slot + 256;
};
/* first row; rows x group; its position, or ALL: of the last key; blocks of keys 0..b1; -1: no more */
struct DqTile {
    int row, rows, head, pos, b1;
};

template <int DK, int DV, int KEYS, int W, int WK = DK, int WV = DV, bool ALL = false>
__global__ void __launch_bounds__(128 * (W + 1), 1)
    attn_dq(const __grid_constant__ CUtensorMap tq, const __grid_constant__ CUtensorMap tk,
            const __grid_constant__ CUtensorMap tv, const __grid_constant__ CUtensorMap tdo,
            const __grid_constant__ CUtensorMap t_o, const BackPar p) {
    using S = DqShape<DK, DV, KEYS, W>;
    extern __shared__ __align__(1024) uint8_t base[];
    const uint32_t sQ = smem_of(base), sO = sQ + S::q, sR = sO + S::dO + S::o;
    const uint32_t full = sR + S::slots * S::slot, empty = full + 8 * S::slots, q_full = empty + 8 * S::slots,
                   q_empty = q_full + 8;
    __shared__ volatile DqTile shared_tile;
    if (sQ & 1023) __trap();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::slots; i++) bar_init(full + 8 * i, 1), bar_init(empty + 8 * i, 4 * W);
        bar_init(q_full, 1), bar_init(q_empty, 4 * LANES * W);
        bar_fence_init();
    }
    pdl_let_next();
    if (p.list.at) pdl_wait(); /* without a list: the one before lists attn_dkv's items, and has waited */
    __syncthreads();
    const int wg = uniform(threadIdx.x >> 7), warp = uniform((threadIdx.x >> 5) & 3), lane = threadIdx.x & 31,
              quad = lane & 3;
    if (wg == 0) {
        regs_down<W == 3 ? 32 : 40>();
        if (threadIdx.x) return;
        int slot = 0;
        uint32_t phase = 1, q_phase = 1;
        for (Item x;;) {
            if (!p.list.next(&x)) {
                bar_await(q_empty, q_phase);
                shared_tile.b1 = -1;
                bar_arrive(q_full);
                pdl_wait(); /* is done, if this is */
                return;
            }
            const int row0 = p.at[x.seq], len = p.at[x.seq + 1] - row0, there = min(p.positions, len - x.q0),
                      pos = ALL ? len - 1 : (p.start ? p.start[x.seq] : 0) + x.q0, key0 = p.from ? p.from[x.seq] : row0,
                      b1 = (ALL ? pos : pos + there - 1) / KEYS + 1;
            auto block = [&](int b) {
                bar_await(empty + 8 * slot, phase);
                const uint32_t to = sR + slot * S::slot, bar = full + 8 * slot;
                bar_expect(bar, S::slot);
                for (int h = 0; h < DK / 64; h++)
                    tma_load(to + h * KEYS * 128, &tk, h * 64, x.head, key0 + b * KEYS, bar);
                for (int h = 0; h < DV / 64; h++)
                    tma_load(to + S::k + h * KEYS * 128, &tv, h * 64, x.head, key0 + b * KEYS, bar);
                if (++slot == S::slots) slot = 0, phase ^= 1;
            };
            block(0); /* under way before there is room for the queries */
            bar_await(q_empty, q_phase), q_phase ^= 1;
            shared_tile.row = row0 + x.q0, shared_tile.rows = there * p.group, shared_tile.head = x.head,
            shared_tile.pos = pos, shared_tile.b1 = b1;
            bar_expect(q_full, p.positions * p.group * (DK + DV + (S::o ? DV : 0)) * 2);
            for (int h = 0; h < DK / 64; h++)
                tma_load(sQ + h * S::rows * 128, &tq, h * 64, x.head * p.group, row0 + x.q0, q_full);
            for (int h = 0; h < DV / 64; h++)
                tma_load(sO + h * S::rows * 128, &tdo, h * 64, x.head * p.group, row0 + x.q0, q_full);
            for (int h = 0; S::o && h < DV / 64; h++)
                tma_load(sO + S::dO + h * S::rows * 128, &t_o, h * 64, x.head * p.group, row0 + x.q0, q_full);
            for (int b = 1; b < b1; b++) block(b);
        }
    }
    regs_up<W == 3 ? 160 : 232>();
    constexpr bool OWN = DK != DV; /* MLA */
    const int w = wg - 1, r0 = w * 64 + warp * 16 + (lane >> 2);
    int slot = 0;
    uint32_t phase = 0, q_phase = 0;
    float dq[DK / 2];
    for (;;) {
        bar_await(q_full, q_phase), q_phase ^= 1;
        const int b1 = uniform(shared_tile.b1);
        if (b1 < 0) return;
        const int pos_min = uniform(shared_tile.pos), row = shared_tile.row, rows = shared_tile.rows,
                  head = shared_tile.head;
        float lse2[2], sum[2], of_p[2] = { 0.f, 0.f }, of_ds[2] = { 0.f, 0.f };
        int last[2];
        bf16 *to[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = r0 + 8 * h, n = by_group(r, p);
            const int64_t at = row + n, hd = head * p.group + r - n * p.group;
            const bool there = r < rows;
            last[h] = pos_min + (ALL ? 0 : n), to[h] = there ? p.dq + at * p.ld_dq + hd * WK : nullptr;
            lse2[h] = there ? __fmul_rn(p.lse[at * p.ld_lse + hd], 1.4426950408889634f) : INFINITY;
            if constexpr (S::o > 0) {
                const uint8_t *dO = base + S::q;
                const float x = row_sum<DV>(dO, dO + S::dO, S::rows * 128, r, quad);
                sum[h] = there ? x : 0.f;
                if (there && quad == 0) p.row_sum[at * p.kv_heads * p.group + hd] = x;
            } else sum[h] = there ? p.row_sum[at * p.kv_heads * p.group + hd] : 0.f;
        }
#pragma unroll
        for (int i = 0; i < DK / 2; i++) dq[i] = 0.f;
        for (int b = 0; b < b1; b++) {
            const uint32_t k = sR + slot * S::slot, v = k + S::k;
            float s[KEYS / 2], dp[KEYS / 2];
            bar_await(full + 8 * slot, phase);
            wg_fence();
            scores_of<WK>(s, sQ + w * 8192, S::rows * 128, k, KEYS * 128);
            wg_commit();
            scores_of<WV>(dp, sO + w * 8192, S::rows * 128, v, KEYS * 128);
            wg_commit();
            wg_wait<1>();
            if (b * KEYS + KEYS - 1 > pos_min) mask_block(s, b * KEYS + 2 * quad, last[0], last[1]);
#pragma unroll
            for (int i = 0; i < KEYS / 2; i++) {
                s[i] = ex2(__fmaf_rn(s[i], p.c, -lse2[(i >> 1) & 1]));
                if constexpr (OWN) of_p[(i >> 1) & 1] = __fadd_rn(of_p[(i >> 1) & 1], s[i]);
            }
            wg_wait<0>();
            if (b + 1 == b1) warp_arrive(q_empty, lane); /* nothing reads the rows, or the tile's words, after this */
#pragma unroll
            for (int i = 0; i < KEYS / 2; i++) {
                s[i] = __fmul_rn(s[i], __fsub_rn(dp[i], sum[(i >> 1) & 1]));
                if constexpr (OWN) of_ds[(i >> 1) & 1] = __fadd_rn(of_ds[(i >> 1) & 1], s[i]);
            }
            uint32_t ds[KEYS / 4];
            to_operand(ds, s);
            wg_fence();
            add_rows(dq, ds, k, KEYS * 128);
            wg_commit();
            wg_wait<0>();
            if (lane == 0) bar_arrive(empty + 8 * slot);
            if (++slot == S::slots) slot = 0, phase ^= 1;
        }
        if constexpr (OWN)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float all = quad_sum(of_p[h]), off = quad_sum(of_ds[h]);
                const int r = r0 + 8 * h, n = by_group(r, p), hd = head * p.group + r - n * p.group;
                const int64_t at = (int64_t)(row + n) * p.kv_heads * p.group + hd;
                if (r >= rows || quad) continue;
                p.own_lse[at] = lse_of(Run{ lse2[h], all });
                p.row_sum[at] = __fadd_rn(sum[h], __fmul_rn(off, __frcp_rn(all)));
            }
        store_sums<WK>(to[0], to[1], dq, p.scale, quad);
    }
}

#endif
