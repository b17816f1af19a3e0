/* mla_fwd.cuh - absorbed MLA forward: q [T,heads,576] (latent part, then rope part), latent k [.,576], the value is
 * its first 512 columns.  Order of sums in attn_sums.cuh.
 *
 * A tile is 64 rows: a block of 64 heads of one token, or, where there are fewer heads, all heads of several
 * tokens.  Shared memory: queries 72 KB, two key blocks of 64 x 576 (72 KB each), P 8 KB.  Warpgroup A: scores,
 * softmax, output columns 0..255; B: columns 256..511, P through shared memory.  A publishes P and the factors
 * before it waits for its own product.  The two halves of a key block (slices 4..8; 0..3) have their own barriers:
 * the first is free after B's product and is what the next scores read first. */
#ifndef OP_CUDA_MLA_FWD_CUH
#define OP_CUDA_MLA_FWD_CUH

#include "op/cuda/sm90/attn_items.cuh"
#include "op/cuda/sm90/attn_sums.cuh"

/* MLA_SLICE: bytes of 64 columns of a block */
enum {
    MLA_DK = 576,
    MLA_DV = 512,
    MLA_SLICES = 9,
    MLA_ROWS = 64,
    MLA_SLICE = MLA_BLOCK * 128
};
/* scratch: floats a CTA */
enum {
    MLA_SMEM = 3 * MLA_SLICES * MLA_SLICE + MLA_SLICE + 1024 + 128,
    MLA_SCRATCH = 2 * 128 * 128
};

struct MlaPar {
    bf16 *o;
    float *lse; /* null: not wanted */
    int64_t ld_o, ld_lse;
    float *part_o;   /* by span: [row][span][heads][512] */
    float2 *part_ml; /* the same without 512: maximum, sum */
    int max_spans;
    float *scratch; /* [CTA][2][128][128]: the sums over the spans so far */
    const int *at, *start;
    KeyPages keys;
    int heads, tile_heads, inv_heads, tokens; /* heads in all, of a tile; tokens a tile */
    float c;
    ItemList list;
};
DEV int by_heads(int row, const MlaPar &p) { return row * p.inv_heads >> 16; } /* row / tile_heads */

struct MlaTile {
    int row, pos, tokens, head0, span, j0, j1, seq, last;
    __device__ MlaTile(const MlaPar &p, int i) {
        const Item x = p.list.get(i);
        const int row0 = p.at[x.seq], rows = p.at[x.seq + 1] - row0, start = p.start ? p.start[x.seq] : 0;
        seq = x.seq, head0 = x.head * MLA_ROWS, row = row0 + x.q0, tokens = min(p.tokens, rows - x.q0),
        pos = uniform(start + x.q0);
        span = uniform(x.span), last = start + rows - 1;
        const int blocks = uniform((pos + tokens - 1) / MLA_BLOCK + 1);
        j0 = span < 0 ? 0 : span * (MLA_SPAN / MLA_BLOCK),
        j1 = span < 0 ? blocks : min(blocks, j0 + MLA_SPAN / MLA_BLOCK);
    }
    /* row r of the tile: its token and head; false: there is none */
    __device__ bool find(const MlaPar &p, int r, int64_t *token, int *head) const {
        const int t = by_heads(r, p);
        *token = row + t, *head = head0 + r - t * p.tile_heads;
        return t < tokens && *head < p.heads;
    }
};

/* Ends a tile for one half of the columns: fold, normalise, store; or store the partial.  f: factors of the fold, a
 * then b, and 1/l, by row. */
DEV void mla_store(float (&o)[128], const MlaPar &p, const MlaTile &t, int half, const float *f, const float *acc,
                   bool folded, int warp, int lane) {
    const int quad = lane & 3, r0 = warp * 16 + (lane >> 2);
    int64_t token[2];
    int head[2];
    bool there[2];
    for (int h = 0; h < 2; h++) there[h] = t.find(p, r0 + 8 * h, &token[h], &head[h]);
    if (t.span >= 0) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float *to =
                p.part_o + ((token[h] * p.max_spans + t.span) * p.heads + head[h]) * MLA_DV + half * 256 + 2 * quad;
            if (there[h])
#pragma unroll
                for (int j = 0; j < 32; j++)
                    *(float2 *)(to + 8 * j) = make_float2(o[4 * j + 2 * h], o[4 * j + 2 * h + 1]);
        }
        return;
    }
    if (folded) {
        const Fold k[2] = { { f[r0], f[64 + r0] }, { f[r0 + 8], f[64 + r0 + 8] } };
#pragma unroll
        for (int i = 0; i < 128; i++) o[i] = fold(acc[i * 128], o[i], k[(i >> 1) & 1]);
    }
    const float inv[2] = { f[128 + r0], f[128 + r0 + 8] };
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bf16 *to = p.o + token[h] * p.ld_o + head[h] * MLA_DV + half * 256 + 8 * quad;
#pragma unroll
        for (int j = 0; j < 32; j += 4) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = bf2(finish(o[4 * (j + i) + 2 * h], inv[h]), finish(o[4 * (j + i) + 2 * h + 1], inv[h]));
            const uint4 x = quad_turn(w[0], w[1], w[2], w[3], quad);
            if (there[h]) *(uint4 *)(to + 8 * j) = x;
        }
    }
}
/* A span is complete: its sums join those before it. */
DEV void mla_fold(float (&o)[128], float *acc, bool folded, Fold f0, Fold f1) {
    if (!folded) {
#pragma unroll
        for (int i = 0; i < 128; i++) acc[i * 128] = o[i];
    } else {
#pragma unroll
        for (int i = 0; i < 128; i++) acc[i * 128] = fold(acc[i * 128], o[i], (i >> 1) & 1 ? f1 : f0);
    }
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] = 0.f;
}

/* r: slices 4..8; l: 0..3 */
struct MlaBars {
    uint32_t full_r, full_l, empty_r, empty_l, q_full, q_empty;
};

DEV void mla_produce(const CUtensorMap *tq, const CUtensorMap *tk, const MlaPar &p, uint32_t sQ, uint32_t sK, MlaBars b,
                     int n_items) {
    int n = 0;
    uint32_t q_phase = 1;
    const bool paged = p.keys.table;
    for (int i = blockIdx.x; i < n_items; i += gridDim.x) {
        const Item x = p.list.get(i);
        const int row0 = p.at[x.seq], rows = p.at[x.seq + 1] - row0, start = p.start ? p.start[x.seq] : 0,
                  pos = start + x.q0;
        const int blocks = (pos + min(p.tokens, rows - x.q0) - 1) / MLA_BLOCK + 1;
        const int j0 = x.span < 0 ? 0 : x.span * (MLA_SPAN / MLA_BLOCK),
                  j1 = x.span < 0 ? blocks : min(blocks, j0 + MLA_SPAN / MLA_BLOCK);
        const SeqKeys keys = seq_keys(p.keys, x.seq, row0, start + rows - 1);
        for (int j = j0; j < j1; j++, n++) {
            const int half = n & 1;
            const uint32_t phase = ~(n >> 1) & 1, to = sK + half * MLA_SLICES * MLA_SLICE;
            /* where the block's first piece lies; further ones (small pages only) are looked up for each slice */
            int row = keys.first + j * MLA_BLOCK, slice = 0;
            if (paged) row = j * MLA_BLOCK % p.keys.page, slice = keys.slice(p.keys, j * MLA_BLOCK);
            auto get = [&](int c, uint32_t bar) {
                tma_load(to + c * MLA_SLICE, tk, paged ? 0 : c * 64, row, paged ? slice + c : 0, bar);
                for (int r = p.keys.piece; r < MLA_BLOCK; r += p.keys.piece) {
                    const int at = j * MLA_BLOCK + r;
                    tma_load(to + c * MLA_SLICE + r * 128, tk, 0, at % p.keys.page, keys.slice(p.keys, at) + c, bar);
                }
            };
            bar_await(b.empty_r + 8 * half, phase);
            bar_expect(b.full_r + 8 * half, 5 * MLA_SLICE);
            get(8, b.full_r + 8 * half);
#pragma unroll
            for (int c = 4; c < 8; c++) get(c, b.full_r + 8 * half);
            if (j == j0) {
                bar_await(b.q_empty, q_phase), q_phase ^= 1;
                bar_expect(b.q_full, MLA_SLICES * p.tile_heads * p.tokens * 128);
                for (int c = 0; c < MLA_SLICES; c++)
                    tma_load(sQ + c * MLA_ROWS * 128, tq, c * 64, x.head * MLA_ROWS, row0 + x.q0, b.q_full);
            }
            bar_await(b.empty_l + 8 * half, phase);
            bar_expect(b.full_l + 8 * half, 4 * MLA_SLICE);
#pragma unroll
            for (int c = 0; c < 4; c++) get(c, b.full_l + 8 * half);
        }
    }
}

static __global__ void __launch_bounds__(384, 1)
    mla_fwd(const __grid_constant__ CUtensorMap tq, const __grid_constant__ CUtensorMap tk, const MlaPar p) {
    constexpr int SPAN = MLA_SPAN / MLA_BLOCK, BLOCK = MLA_SLICES * MLA_SLICE;
    extern __shared__ __align__(1024) uint8_t base[];
    const uint32_t sQ = smem_of(base), sK = sQ + BLOCK, sP = sK + 2 * BLOCK;
    float *factors = (float *)(base + 3 * BLOCK + MLA_SLICE),
          *folds = factors + 64; /* of a block; of a fold: a, b, 1/l */
    const uint32_t bars = smem_of(folds + 192);
    const MlaBars b = { bars, bars + 16, bars + 32, bars + 48, bars + 64, bars + 72 };
    if (sQ & 1023) __trap();
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++)
            bar_init(b.full_r + 8 * i, 1), bar_init(b.full_l + 8 * i, 1), bar_init(b.empty_r + 8 * i, 4),
                bar_init(b.empty_l + 8 * i, 4);
        bar_init(b.q_full, 1), bar_init(b.q_empty, 4);
        bar_fence_init();
    }
    __syncthreads();
    const int wg = uniform(threadIdx.x >> 7), warp = uniform((threadIdx.x >> 5) & 3), lane = threadIdx.x & 31,
              quad = lane & 3;
    const int r0 = warp * 16 + (lane >> 2), n_items = uniform(p.list.total());
    enum { TAKEN = 5, GIVEN = 4 }; /* named barriers: B has read P; A has written it */

    if (wg == 0) {
        regs_down<40>();
        if (threadIdx.x == 0) mla_produce(&tq, &tk, p, sQ, sK, b, n_items);
    } else if (wg == 1) { /* ---- A */
        regs_up<232>();
        float s[32], o[128];
        uint32_t pr[16], q_phase = 0;
        int n = 0;
        float *acc = p.scratch + (int64_t)blockIdx.x * MLA_SCRATCH + (threadIdx.x & 127);
        const float c = p.c;
        for (int i = blockIdx.x; i < n_items; i += gridDim.x) {
            const MlaTile t(p, i);
            if (t.j0 >= t.j1) continue; /* that sequence has fewer spans */
            const int last0 = t.pos + by_heads(r0, p), last1 = t.pos + by_heads(r0 + 8, p);
            Run st[2] = { { NEG, 0.f }, { NEG, 0.f } }, total[2];
            bool folded = false;
            float a[2] = { 0.f, 0.f };
            auto scores = [&](int m) { /* slices 8, 4..7, then 0..3: the first five are there earlier */
                                       const uint32_t k = sK + (m & 1) * BLOCK, phase = (m >> 1) & 1;
                                       bar_await(b.full_r + 8 * (m & 1), phase);
                                       wg_fence();
#pragma unroll
                                       for (int q = 0; q < MLA_SLICES; q++) {
                                           const int ch = q == 0 ? 8 : q < 5 ? q + 3 : q - 5;
                                           if (q == 5) bar_await(b.full_l + 8 * (m & 1), phase);
#pragma unroll
                                           for (int kk = 0; kk < 4; kk++)
                                               wgmma<0, 0>(s, operand(sQ + ch * MLA_SLICE + kk * 32),
                                                           operand(k + ch * MLA_SLICE + kk * 32), q + kk > 0);
                                       }
                                       wg_commit();
            };
            auto values = [&](int m) {
                wg_fence();
#pragma unroll
                for (int kk = 0; kk < 4; kk++)
                    wgmma_rs(o, pr + 4 * kk, operand(sK + (m & 1) * BLOCK + kk * 2048, MLA_SLICE));
                wg_commit();
            };
            auto publish = [&] {
#pragma unroll
                for (int j = 0; j < 8; j++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const int r = r0 + 8 * h;
                        asm volatile("st.shared.b32 [%0], %1;" ::"r"(sP + r * 128 + ((j ^ (r & 7)) << 4) + quad * 4),
                                     "r"(bf2(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]))
                                     : "memory");
                    }
                if (quad == 0) factors[r0] = a[0], factors[r0 + 8] = a[1];
                fence_async();
                named_give(GIVEN, 256);
            };
            auto soften = [&](int j) {
                if (j * MLA_BLOCK + MLA_BLOCK - 1 > t.pos) mask_block(s, j * MLA_BLOCK + 2 * quad, last0, last1);
                softmax_block(s, st, a, c);
            };
            auto weights = [&] { /* not before the products that read pr are done */
#pragma unroll
                                 for (int x = 0; x < 16; x++) pr[x] = bf2_here(s[2 * x], s[2 * x + 1]);
            };
            bar_await(b.q_full, q_phase), q_phase ^= 1;
            scores(n);
#pragma unroll
            for (int x = 0; x < 128; x++) o[x] = 0.f;
            wg_wait<0>();
            soften(t.j0);
            weights();
            named_sync(TAKEN, 256);
            publish();
            for (int j = t.j0 + 1; j < t.j1; j++) {
                n++;
                scores(n), values(n - 1);
                wg_wait<1>();
                const bool edge = j % SPAN == 0;
                Run done[2] = { st[0], st[1] };
                Fold f[2] = {};
                if (edge) st[0] = { NEG, 0.f }, st[1] = { NEG, 0.f };
                soften(j);
                if (edge) {
                    done[0].l = quad_sum(done[0].l), done[1].l = quad_sum(done[1].l);
                    if (!folded) total[0] = done[0], total[1] = done[1];
                    else f[0] = fold_factors(total[0], done[0]), f[1] = fold_factors(total[1], done[1]);
                }
                named_sync(TAKEN, 256);
                if (edge && quad == 0)
                    folds[r0] = f[0].a, folds[64 + r0] = f[0].b, folds[r0 + 8] = f[1].a, folds[64 + r0 + 8] = f[1].b;
                publish();
                wg_wait<0>();
                if (lane == 0) bar_arrive(b.empty_l + 8 * ((n - 1) & 1));
                if (!edge) rescale(o, a);
                else mla_fold(o, acc, folded, f[0], f[1]), folded = true;
                weights();
            }
            if (lane == 0) bar_arrive(b.q_empty);
            values(n);
            st[0].l = quad_sum(st[0].l), st[1].l = quad_sum(st[1].l);
            Fold f[2] = {};
            const Run mine[2] = { st[0], st[1] };
            if (folded) {
                f[0] = fold_factors(total[0], st[0]), f[1] = fold_factors(total[1], st[1]);
                st[0] = total[0], st[1] = total[1];
            }
            named_sync(TAKEN, 256);
            if (quad == 0)
                for (int h = 0; h < 2; h++) {
                    const int r = r0 + 8 * h;
                    int64_t token;
                    int head;
                    const bool there = t.find(p, r, &token, &head);
                    folds[r] = f[h].a, folds[64 + r] = f[h].b, folds[128 + r] = __frcp_rn(st[h].l);
                    if (there && t.span >= 0)
                        p.part_ml[(token * p.max_spans + t.span) * p.heads + head] = make_float2(mine[h].m, mine[h].l);
                    if (there && t.span < 0 && p.lse) p.lse[token * p.ld_lse + head] = lse_of(st[h]);
                }
            __syncwarp();
            named_give(GIVEN, 256);
            wg_wait<0>();
            if (lane == 0) bar_arrive(b.empty_l + 8 * (n & 1));
            n++;
            mla_store(o, p, t, 0, folds, acc, folded, warp, lane);
        }
    } else { /* ---- B */
        regs_up<232>();
        float o[128];
        int n = 0;
        float *acc = p.scratch + (int64_t)blockIdx.x * MLA_SCRATCH + 128 * 128 + (threadIdx.x & 127);
        for (int i = blockIdx.x; i < n_items; i += gridDim.x) {
            const MlaTile t(p, i);
            if (t.j0 >= t.j1) continue;
            bool folded = false;
#pragma unroll
            for (int x = 0; x < 128; x++) o[x] = 0.f;
            named_give(TAKEN, 256);
            for (int j = t.j0; j < t.j1; j++, n++) {
                named_sync(GIVEN, 256);
                const float a[2] = { factors[r0], factors[r0 + 8] };
                if (j == t.j0 || j % SPAN) rescale(o, a);
                else {
                    mla_fold(o, acc, folded, Fold{ folds[r0], folds[64 + r0] },
                             Fold{ folds[r0 + 8], folds[64 + r0 + 8] });
                    folded = true;
                }
                bar_await(b.full_r + 8 * (n & 1), (n >> 1) & 1);
                wg_fence();
#pragma unroll
                for (int kk = 0; kk < 4; kk++)
                    wgmma<0, 1>(o, operand(sP + kk * 32),
                                operand(sK + (n & 1) * BLOCK + 4 * MLA_SLICE + kk * 2048, MLA_SLICE), 1);
                wg_commit();
                wg_wait<0>();
                if (lane == 0) bar_arrive(b.empty_r + 8 * (n & 1));
                named_give(TAKEN, 256);
            }
            named_sync(GIVEN, 256);
            mla_store(o, p, t, 1, folds, acc, folded, warp, lane);
        }
    }
}

/* By span: one CTA of 128 threads a (row, head) folds the spans in ascending order.  Rows are one a sequence. */
static __global__ void mla_combine(const MlaPar p, int seqs) {
    const int seq = blockIdx.x / p.heads, h = blockIdx.x % p.heads, n = p.start[seq] / MLA_SPAN + 1;
    if (p.at[seq + 1] == p.at[seq]) return;
    const int64_t row = p.at[seq];
    Run t = {};
    float4 o = {};
    for (int i = 0; i < n; i++) {
        const int64_t at = (row * p.max_spans + i) * p.heads + h;
        const float2 ml = p.part_ml[at];
        const float4 x = ((const float4 *)(p.part_o + at * MLA_DV))[threadIdx.x];
        if (i == 0) t = { ml.x, ml.y }, o = x;
        else {
            const Fold f = fold_factors(t, Run{ ml.x, ml.y });
            o = make_float4(fold(o.x, x.x, f), fold(o.y, x.y, f), fold(o.z, x.z, f), fold(o.w, x.w, f));
        }
    }
    const float inv = __frcp_rn(t.l);
    ((uint2 *)(p.o + row * p.ld_o + h * MLA_DV))[threadIdx.x] =
        make_uint2(bf2(finish(o.x, inv), finish(o.y, inv)), bf2(finish(o.z, inv), finish(o.w, inv)));
    if (threadIdx.x == 0 && p.lse) p.lse[row * p.ld_lse + h] = lse_of(t);
}

#endif
