/* gemm.cuh - products on tensor cores: one persistent, warp-specialised wgmma kernel for FWD, DX and DW (prod.h),
 * dense, grouped and by heads.
 *
 * 128 x BN a block, 64 k a stage.  One thread of the first warpgroup loads through the copy engine into a ring;
 * two warpgroups compute 64 x BN each.  A cluster of two blocks works on a pair of tiles: two row tiles of one
 * column tile (the blocks share B), or, for the last odd row tile, two column tiles (they share A).  What is
 * shared is loaded half by each block and sent to both.
 *
 * Experts' borders are read on the device only.  Rows past an expert's end are computed and not stored; a half of
 * a tile with no rows is not computed.  All maps have three dimensions, the last being the expert or head, so that
 * nothing of a neighbour's matrix is ever read or written; of DW's last step the neighbour's rows are set to zero
 * in shared memory (a NaN there must not leak).
 *
 * Pieces (FOLD): a piece's sums wait in memory of the block's own, one place per level of the tree, and are added
 * when their turn comes.  Cuts are multiples of 16, and no piece is empty.
 *
 * wgmma.fence and its wgmmas must stand in one basic block, else ptxas serialises them (C7520): no 'if' around a
 * step.  Look for spills (-Xptxas -v) after every edit. */
#ifndef OP_CUDA_GEMM_CUH
#define OP_CUDA_GEMM_CUH

#include "op/cuda/common/prod.h"
#include "op/cuda/sm90/ptx.cuh"
#include "op/cuda/sm90/wgmma.cuh"

struct Gemm {
    const int *at;                      /* [E+1] or NULL */
    int        E, rows, M, N, K;
    int        n_pieces, cut[PROD_PIECES + 1];
    int        wrap_a, wrap_b;          /* k after which A, or B, is read again; 64s */
    int        levels;                  /* of the tree: 2^levels pieces */
    float4    *fold;                    /* what waits: gemm_fold_bytes */
    bool       first;                   /* DW: c is written (as 0 + the sum), not added to */
    bool       one_b;                   /* DW: every matrix has the same B */
    int       *queue;                   /* 0 before and after a kernel: clusters count tiles from it */
};

/* Who has which tile.  A cluster that had every so many-th would begin, where another kernel holds its multiprocessors
 * (one of NCCL's that waits), when all others are done, and the product would take twice as long: tiles are counted out
 * (of experts, whose tiles cost what they have rows, the longest first), and a late cluster finds none left.  The
 * counter is the device's own, 0 before and after a kernel: every cluster asks once in vain, and the last resets it.
 *
 * The cluster's first block counts, tells the second by mail, and each block's loader tells those who compute beside
 * the tile's first stage.  Loaders are never apart by more tiles than the ring has stages, so mail is read before it is
 * written over.  A tile is asked for when the one before begins to be loaded, so nobody waits for the answer. */
enum { MAIL = 8 };

/* KB: blocks of 64 k a stage.  A narrow tile's steps are short, so it takes two: half the waiting, half the loads. */
template <int BN, class OUT> struct GemmShape {
    static constexpr int KB = BN <= 64 ? 2 : 1, A = KB * 128 * 128, B = KB * BN * 128, STAGE = A + B;
    static constexpr int STAGES = BN == 128 ? 6 : BN == 32 ? 5 : 4;
    static constexpr int QUEUE = 8 * MAIL + 4 * (STAGES + MAIL) + (OUT::ADD ? 4 * PROD_EXPERTS : 0);
    static constexpr int SMEM = 1024 + STAGES * STAGE + OUT::SPACE + STAGES * 16 + (PROD_EXPERTS + 1) * 4 + QUEUE;
    static_assert(STAGES < MAIL && SMEM <= 227 * 1024, "");
};

/* DX: k goes on over other tensors.  A[i] begins at k[i]; B goes on, or begins again with the matrix 'apart'
 * further. */
struct More { CUtensorMap a[2]; int k[2], apart; bool again; };
template <class OUT> constexpr bool goes_on = requires(const OUT &o) { o.more_k; };

/* Where a warpgroup's 64 x BN sums belong.  Thread 'tid': sum 4j + 2h + b is row warp * 16 + lane / 4 + 8h, column
 * 8j + lane % 4 * 2 + b. */
struct Place { int e, row, row_end, n0, w, tid, lane, warp; uint32_t space; };

DEV float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

/* row: the first row of A and c that this block holds; k0: where k starts */
struct GemmTile { int e, n, row, row_end, k0, K; bool live, share_a; };

/* Pairs of row tiles first (in groups of 8 pairs, so that a wave stays in the L2 cache), then the odd one. */
template <int BN> DEV int tiles_of(int rows, int N) {
    int mt = (rows + 127) / 128, nt = (N + BN - 1) / BN;
    return (mt >> 1) * nt + (mt & 1) * ((nt + 1) >> 1);
}
template <int KIND, int BN> DEV GemmTile tile_at(const Gemm &p, int i, int e, uint32_t rank) {
    GemmTile t;
    t.e = e;
    int m, lo = p.at ? __ldg(p.at + e) : 0, hi = p.at ? __ldg(p.at + e + 1) : p.rows, rows = KIND == DW ? p.M : hi - lo;
    int mt = (rows + 127) / 128, nt = (p.N + BN - 1) / BN, pairs = mt >> 1, all = pairs * nt;
    if (i < all) {
        constexpr int G = 8;
        int g = i / (G * nt), at = i - g * G * nt, gm = min(G, pairs - g * G);
        m = 2 * (g * G + at % gm) + rank, t.n = at / gm, t.share_a = false, t.live = true;
    } else m = mt - 1, t.n = 2 * (i - all) + rank, t.share_a = true, t.live = t.n < nt;
    t.row = KIND == DW ? m * 128 : lo + m * 128;
    t.row_end = KIND == DW ? p.M : hi;
    t.k0 = KIND == DW ? lo : 0, t.K = KIND == DW ? hi - lo : p.K;
    return t;
}

template <int KIND, int BN, class OUT, bool FOLD>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    gemm(const __grid_constant__ CUtensorMap ta, const __grid_constant__ CUtensorMap tb,
         const __grid_constant__ CUtensorMap tc, const __grid_constant__ Gemm p, const __grid_constant__ OUT out) {
    using S = GemmShape<BN, OUT>;
    extern __shared__ uint8_t raw[];
    const uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    uint8_t *mem = raw + (base - smem_of(raw));
    const uint32_t space = base + S::STAGES * S::STAGE, full = space + OUT::SPACE, empty = full + 8 * S::STAGES,
                   mail = empty + 8 * S::STAGES;                        /* its barriers */
    int *cum = (int *)(mem + S::STAGES * S::STAGE + OUT::SPACE + 16 * S::STAGES + 8 * MAIL);
    int *order = cum + PROD_EXPERTS + 1, *letter = order + (KIND == DW ? PROD_EXPERTS : 0);
    volatile int *tile_of = letter + MAIL;                              /* [STAGES] */
    const bool sorted = KIND == DW && p.at;
    const int wg = threadIdx.x / 128;
    const uint32_t rank = cluster_rank();
    const int step = gridDim.x / 2;

    if (threadIdx.x == 0) {
        int item = 0;
        if (rank == 0) item = atomicAdd(p.queue, 1);                    /* the cluster's first tile */
        for (int s = 0; s < S::STAGES; s++) bar_init(full + 8 * s, 1), bar_init(empty + 8 * s, 4);
        for (int i = 0; i < MAIL; i++) bar_init(mail + 8 * i, 1);
        bar_fence_init();
        tma_prefetch(&ta), tma_prefetch(&tb);
        if (rank == 0) letter[0] = item;
    }
    if (sorted) { /* experts by their rows */
        for (int e = threadIdx.x; e < p.E; e += blockDim.x) {
            const int n = p.at[e + 1] - p.at[e];
            int before = 0;
            for (int o = 0; o < p.E; o++) {
                const int m = __ldg(p.at + o + 1) - __ldg(p.at + o);
                before += m > n || (m == n && o < e);
            }
            order[before] = e;
        }
        __syncthreads();
    }
    if (threadIdx.x < 32) { /* how many tile pairs come before each expert */
        int sum = 0;
        for (int e0 = 0; e0 < p.E; e0 += 32) {
            int e = e0 + threadIdx.x, n = 0;
            if (e < p.E) {
                int x = sorted ? order[e] : e, rows = p.at ? p.at[x + 1] - p.at[x] : p.rows;
                n = KIND == DW ? (rows > 0 ? tiles_of<BN>(p.M, p.N) : 0) : tiles_of<BN>(rows, p.N);
            }
            for (int d = 1; d < 32; d *= 2) {
                int o = __shfl_up_sync(~0u, n, d);
                if (threadIdx.x >= d) n += o;
            }
            if (e < p.E) cum[e + 1] = sum + n;
            sum += __shfl_sync(~0u, n, 31);
        }
        if (threadIdx.x == 0) cum[0] = 0;
    }
    __syncthreads();
    cluster_sync();
    const int total = cum[p.E];
    int e = 0, s = 0;
    uint32_t ph = 0;
    auto next = [&] { if (++s == S::STAGES) s = 0, ph ^= 1; };
    auto get = [&](int item) {
        while (item >= cum[e + 1]) e++;
        return tile_at<KIND, BN>(p, item - cum[e], sorted ? order[e] : e, rank);
    };

    if (wg == 0) {                                                      /* ---- loads ---- */
        regs_down<56>();
        auto received = [&](int j) { /* the j-th mail */
            bar_wait_cluster(mail + 8 * (j % MAIL), j / MAIL & 1);
            return *(volatile int *)(letter + j % MAIL);
        };
        if (threadIdx.x == 0) {
            int item = word_of(smem_of(letter), 0), ahead = 0;
            for (int j = 0;; item = rank ? received(j) : ahead, j++) {
                if (item >= total) break;
                if (rank == 0) ahead = atomicAdd(p.queue, 1);
                const GemmTile t = get(item);
                const int bytes = t.share_a ? S::A + (t.live ? S::B : 0) : S::STAGE;
                const int n0 = t.n * BN, ea = p.at ? 0 : t.e;
                int eb = KIND == DW ? (p.one_b ? 0 : ea) : t.e;
                const CUtensorMap *pa = &ta;
                for (int q = 0; q < (FOLD ? p.n_pieces : 1); q++) {
                    const int from = FOLD ? p.cut[q] : 0,
                              nk = ((FOLD ? p.cut[q + 1] - from : t.K) + 64 * S::KB - 1) / (64 * S::KB);
                    int ka = t.k0 + from, kw = ka;
                    const int tell = q || rank ? -1 : min(nk - 1, S::STAGES);
                    for (int kb = 0; kb < nk; kb++, next()) {
                        const uint32_t a = base + s * S::STAGE, b = a + S::A, f = full + 8 * s;
                        bar_wait(empty + 8 * s, ph ^ 1);
                        if (kb == 0) tile_of[s] = item;
                        if (kb == tell)
                            send_to(smem_of(letter + j % MAIL), mail + 8 * (j % MAIL), 1, ahead);
                        bar_expect(f, bytes);
                        if constexpr (S::KB == 2) { /* FWD; of what is shared each block loads one block of k */
                            const int ka2 = ka + 64 == p.wrap_a ? 0 : ka + 64, kw2 = kw + 64 == p.wrap_b ? 0 : kw + 64;
                            if (t.share_a) {
                                tma_load_all(a + rank * 16384, &ta, rank ? ka2 : ka, t.row, ea, f, 3);
                                if (t.live) {
                                    tma_load(b, &tb, kw, n0, eb, f);
                                    tma_load(b + BN * 128, &tb, kw2, n0, eb, f);
                                }
                            } else {
                                tma_load_all(b + rank * BN * 128, &tb, rank ? kw2 : kw, n0, eb, f, 3);
                                tma_load(a, &ta, ka, t.row, ea, f);
                                tma_load(a + 16384, &ta, ka2, t.row, ea, f);
                            }
                            ka = ka2, kw = kw2;
                        } else if (!t.share_a) {
                            for (int h = 0; h < 2; h++) {
                                if (KIND == DW) tma_load(a + h * S::A / 2, &ta, t.row + h * 64, ka, ea, f);
                                else            tma_load(a + h * S::A / 2, pa, ka, t.row + h * 64, ea, f);
                            }
                            if (KIND == FWD)
                                tma_load_all(b + rank * S::B / 2, &tb, kw, n0 + rank * (BN / 2), eb, f, 3);
                            else
                                for (int c = rank * (BN / 128); c < (int)(rank + 1) * (BN / 128); c++)
                                    tma_load_all(b + c * 8192, &tb, n0 + c * 64, kw, eb, f, 3);
                        } else {
                            if (KIND == DW) tma_load_all(a + rank * S::A / 2, &ta, t.row + rank * 64, ka, ea, f, 3);
                            else            tma_load_all(a + rank * S::A / 2, pa, ka, t.row + rank * 64, ea, f, 3);
                            if (t.live) {
                                if (KIND == FWD)
                                    for (int h = 0; h < 2; h++)
                                        tma_load(b + h * S::B / 2, &tb, kw, n0 + h * (BN / 2), eb, f);
                                else
                                    for (int c = 0; c < BN / 64; c++)
                                        tma_load(b + c * 8192, &tb, n0 + c * 64, kw, eb, f);
                            }
                        }
                        ka += 64, kw += 64;
                        if constexpr (goes_on<OUT>)
                            for (int i = 0; i < 2; i++)
                                if ((kb + 1) * 64 == out.more_k.k[i]) {
                                    pa = &out.more_k.a[i], ka = 0;
                                    if (out.more_k.again) kw = 0, eb += out.more_k.apart;
                                }
                        if (KIND != DW && ka == p.wrap_a) ka = 0;
                        if (KIND != DW && kw == p.wrap_b) kw = 0;
                    }
                }
                if (OUT::ADD) /* what is added to comes through the same ring, 64 columns a stage */
                    for (int c = 0; c < BN / 64; c++, next()) {
                        const uint32_t f = full + 8 * s;
                        bar_wait(empty + 8 * s, ph ^ 1);
                        const int halves = !t.live || p.first ? 0 : t.row + 64 < t.row_end ? 2 : 1;
                        bar_expect(f, halves * 16384);
                        for (int q = 0; q < 2 * halves; q++)
                            tma_load(base + s * S::STAGE + q * 8192, &tc, n0 + c * 64 + (q & 1) * 32,
                                     t.row + (q >> 1) * 64, t.e, f);
                    }
            }
            if (rank == 0 && item == total + step - 1) *p.queue = 0;
            bar_wait(empty + 8 * s, ph ^ 1);                            /* no more */
            tile_of[s] = total;
            bar_expect(full + 8 * s, 0);
        }
    } else { /* ---- two warpgroups compute, 64 rows each ---- */
        regs_up<224>();
        const int w = wg - 1, tid = threadIdx.x & 127, lane = tid & 31, warp = tid / 32;
        float acc[BN / 2];
        constexpr int LEVEL = BN / 8 * 128;                             /* sums that wait, as each thread holds them */
        float4 *mine = FOLD ? p.fold + (size_t)(blockIdx.x * 2 + w) * p.levels * LEVEL + tid : NULL;
        auto release = [&](int stage) { if (tid < 2) bar_arrive_at(empty + 8 * stage, tid); };
        for (;;) {
            bar_await(full + 8 * s, ph);
            const int item = (int)lane0(tile_of[s]);
            if (item >= total) break;
            const GemmTile t = get(item);
            const int row = t.row + w * 64;
            /* DW: rows past the expert's end are another's.  What both warpgroups read both set to zero. */
            auto tail = [&] {
                if (KIND != DW || (t.K & 15) == 0) return;
                const int r0 = t.K & 63, n = 16 - (t.K & 15);
                const uint32_t a = base + s * S::STAGE;
                for (int i = tid; i < n * 8 * (1 + BN / 64); i += 128) {
                    const int c = i / (n * 8), o = i - c * n * 8;
                    asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};"
                                 :: "r"(a + (c ? c + 1 : w) * 8192 + r0 * 128 + o * 16), "r"(0) : "memory");
                }
                fence_async();
                asm volatile("bar.sync %0, 128;" :: "r"(2 + w) : "memory");
            };
            /* Nothing to compute here: the stages are handed back.  Where no wgmma keeps the four warps together a
             * barrier must: a warp that is two rounds of the ring behind the one that releases would take a later
             * round for its own, and wait for one that never comes. */
            auto seen = [&] {
                bar_wait(full + 8 * s, ph);
                asm volatile("bar.sync %0, 128;" :: "r"(2 + w) : "memory");
            };
            if (!(t.live && row < t.row_end)) {
                for (int q = 0; q < (FOLD ? p.n_pieces : 1); q++) {
                    const int nk = ((FOLD ? p.cut[q + 1] - p.cut[q] : t.K) + 64 * S::KB - 1) / (64 * S::KB);
                    for (int kb = 0; kb < nk; kb++, next()) {
                        seen();
                        release(s);
                    }
                }
                if (OUT::ADD)
                    for (int c = 0; c < BN / 64; c++, next()) {
                        seen();
                        release(s);
                    }
                continue;
            }
            auto mma = [&](uint32_t a, uint32_t b, int k, int add) {
                if (KIND == FWD)     wgmma<0, 0>(acc, operand(a + k * 32), operand(b + k * 32), add);
                else if (KIND == DX) wgmma<0, 1>(acc, operand(a + k * 32), operand(b + k * 2048, 8192), add);
                else                 wgmma<1, 1>(acc, operand(a + k * 2048, 8192), operand(b + k * 2048, 8192), add);
            };
            for (int q = 0; q < (FOLD ? p.n_pieces : 1); q++) {
                const int K = FOLD ? p.cut[q + 1] - p.cut[q] : t.K, nk = (K + 64 * S::KB - 1) / (64 * S::KB);
                const int whole = FOLD || KIND == DW ? K / 64 : nk; /* else columns past K are zeros in shared memory */
                int add = 0, prev = -1;
                for (int kb = 0; kb < whole; kb++) {
                    bar_wait(full + 8 * s, ph);
                    const uint32_t a = base + s * S::STAGE + w * 8192, b = base + s * S::STAGE + S::A;
                    wg_fence();
                    mma(a, b, 0, add), mma(a, b, 1, 1), mma(a, b, 2, 1), mma(a, b, 3, 1);
                    if constexpr (S::KB == 2) {
                        const uint32_t a2 = a + 16384, b2 = b + BN * 128;
                        mma(a2, b2, 0, 1), mma(a2, b2, 1, 1), mma(a2, b2, 2, 1), mma(a2, b2, 3, 1);
                    }
                    wg_commit();
                    add = 1;
                    wg_wait<1>();
                    if (prev >= 0) release(prev);
                    prev = s;
                    next();
                }
                if (whole < nk) {                                       /* the last, partial block of k */
                    bar_wait(full + 8 * s, ph);
                    tail();
                    const uint32_t a = base + s * S::STAGE + w * (S::A / 2), b = base + s * S::STAGE + S::A;
                    for (int k = 0; k < (K - whole * 64 + 15) / 16; k++) {
                        wg_fence();
                        mma(a, b, k, add);
                        wg_commit();
                        add = 1;
                    }
                    wg_wait<0>();
                    if (prev >= 0) release(prev);
                    prev = s;
                    next();
                }
                wg_wait<0>();
                if (prev >= 0) release(prev);
                if (FOLD && q + 1 < p.n_pieces) { /* a binary counter: the sums that this piece completes, then wait */
                    int done = 0;
                    while (q >> done & 1) done++;
                    float4 *to = mine + done * LEVEL, *sum = done > 1 ? mine : to;
                    #pragma unroll
                    for (int i0 = 0; i0 < BN / 8; i0 += 4) { /* four loads on their way at a time: more would spill */
                        float4 o[4];
                        #pragma unroll
                        for (int i = 0; i < 4; i++) o[i] = done > 0 ? mine[(i0 + i) * 128] : make_float4(0, 0, 0, 0);
                        #pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const int j = 4 * (i0 + i);
                            const float4 v = make_float4(acc[j], acc[j + 1], acc[j + 2], acc[j + 3]);
                            sum[(i0 + i) * 128] = done > 0 ? plus(o[i], v) : v;
                        }
                        asm volatile("" ::: "memory");
                    }
                    for (int l = 1; l < done; l++) {
                        float4 *up = l + 1 < done ? mine : to;
                        #pragma unroll 4
                        for (int i = 0; i < BN / 8; i++) up[i * 128] = plus(mine[l * LEVEL + i * 128], mine[i * 128]);
                    }
                }
            }
            const Place at = { t.e, row, t.row_end, t.n * BN, w, tid, lane, warp, space };
            if (FOLD) { /* the last piece completes all.  Nothing but wgmma writes acc, else ptxas serialises (C7515) */
                #pragma unroll
                for (int c = 0; c < BN / 64; c++) {
                    float v[32];
                    #pragma unroll
                    for (int i = 0; i < 32; i++) v[i] = acc[c * 32 + i];
                    for (int l = 0; l < p.levels; l++)
                        #pragma unroll
                        for (int i = 0; i < 8; i++) {
                            const float4 o = mine[l * LEVEL + (c * 8 + i) * 128];
                            v[4 * i] = o.x + v[4 * i], v[4 * i + 1] = o.y + v[4 * i + 1];
                            v[4 * i + 2] = o.z + v[4 * i + 2], v[4 * i + 3] = o.w + v[4 * i + 3];
                        }
                    Place part = at;
                    part.n0 += c * 64;
                    out.put(v, p, part);
                }
            }
            else if (!OUT::ADD) out.put(acc, p, at);
            else {                                  /* add in place in the ring, write back by the copy engine */
                const int g = lane / 4, od = g & 1; /* odd rows take the columns in another order: no bank conflicts */
                int pend = -1;
                #pragma unroll
                for (int c = 0; c < BN / 64; c++) {
                    bar_wait(full + 8 * s, ph);
                    const uint32_t box = base + s * S::STAGE + w * 16384,
                                   to = box + (warp * 16 + g) * 128 + (lane & 1) * 8;
        #pragma unroll
                    for (int q = 0; q < 2; q++)
                        #pragma unroll
                        for (int j = 0; j < 4; j++) {
                            const int i0 = (c * 8 + q * 4 + j) * 4, i1 = (c * 8 + q * 4 + (j ^ 2)) * 4;
                            const uint32_t x = to + q * 8192 + (((2 * (j ^ (od << 1)) + ((lane & 3) >> 1)) ^ g) << 4);
                            add2(x, od ? acc[i1] : acc[i0], od ? acc[i1 + 1] : acc[i0 + 1], p.first);
                            add2(x + 1024, od ? acc[i1 + 2] : acc[i0 + 2], od ? acc[i1 + 3] : acc[i0 + 3], p.first);
                        }
                    fence_async();
                    asm volatile("bar.sync %0, 128;" :: "r"(2 + w) : "memory");
                    if (tid == 0) {
                        for (int q = 0; q < 2; q++) tma_store(&tc, box + q * 8192, at.n0 + c * 64 + q * 32, row, t.e);
                        bulk_commit();
                        if (pend >= 0) {
                            bulk_wait_read<1>();
                            bar_arrive_at(empty + 8 * pend, 0), bar_arrive_at(empty + 8 * pend, 1);
                        }
                    }
                    pend = s;
                    next();
                }
                if (tid == 0) {
                    bulk_wait_read<0>();
                    bar_arrive_at(empty + 8 * pend, 0), bar_arrive_at(empty + 8 * pend, 1);
                }
            }
        }
        if (OUT::ADD) bulk_wait<0>();
    }
    cluster_sync(); /* a block's barriers stay until its peer has made its last arrival */
}

#endif
