/* few.cuh - FWD for few rows (decode), bound by memory: the order of gemm.cuh, so its bits.  One block streams BN
 * rows of a weight; its tokens are one operand of at most XR rows, and an expert with more is done in several
 * passes over its weight.
 *   SWAP 0: tokens are wgmma's M (64 rows; those past XR are whatever lies in shared memory, and are not
 *           stored), weights its N
 *   SWAP 1: weights are wgmma's M (BN = 64), tokens its N
 * KB boxes of 64 columns a stage.  Four warps compute, one thread of a fifth loads.
 * EARLY: it comes to the card before the kernel before it is done (pdl.cuh), and its weights, which that one does not
 * make, are on their way already when the tokens are there.  Where experts' rows begin is known by then. */
#ifndef OP_CUDA_FEW_CUH
#define OP_CUDA_FEW_CUH

#include "op/cuda/common/pdl.cuh"
#include "op/cuda/sm90/out.cuh"

template <int BN, int XR, int KB, bool EARLY = false> struct FewShape {
    static constexpr int X = XR * 128, W = BN * 128, BOX = W + X, STAGE = BOX * KB,
                         LIMIT = (EARLY && BN < 64 ? 200 : 96) * 1024;
    static constexpr int STAGES = LIMIT / STAGE > 16 ? 16 : LIMIT / STAGE;
    static constexpr int PAST = 64 * 128;                               /* what wgmma reads past the last tokens */
    static constexpr int SMEM = 1024 + STAGES * STAGE + PAST + STAGES * 16 + (PROD_EXPERTS + 1) * 4;
};
/* Weights that are read once a step: what is read again, instructions too, stays in the cache in their stead. */
enum : uint64_t { READ_ONCE = 0x12F0000000000000ull };                  /* L2's policy: these go first */
DEV void tma_load_once(uint32_t to, const CUtensorMap *m, int c0, int c1, int c2, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4}], [%5], %6;"
                 :: "r"(to), "l"(m), "r"(c0), "r"(c1), "r"(c2), "r"(bar), "l"((uint64_t)READ_ONCE) : "memory");
}
/* Where an expert's rows begin may have been written by the kernel before, which is not done (fused_few.cu: then it was
 * before this one came): not from this multiprocessor's own cache. */
DEV int written(const int *at) {
    int x;
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
    return x;
}
/* How many tiles come before each expert: cum [E+1], by the whole block. */
template <int XR> DEV void tiles_before(int *cum, const int *at, int E, int rows, int nt) {
    for (int e = threadIdx.x; e < E; e += blockDim.x)
        cum[e + 1] = ((at ? written(at + e + 1) - written(at + e) : rows) + XR - 1) / XR * nt;
    if (threadIdx.x == 0) cum[0] = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        int sum = 0;
        for (int e = threadIdx.x; e - (int)threadIdx.x < E; e += 32) {
            int n = e < E ? cum[e + 1] : 0;
            for (int d = 1; d < 32; d *= 2) {
                int o = __shfl_up_sync(~0u, n, d);
                if (threadIdx.x >= d) n += o;
            }
            if (e < E) cum[e + 1] = sum + n;
            sum += __shfl_sync(~0u, n, 31);
        }
    }
    __syncthreads();
}
/* Whose tile it is: found by halving, since a step of decoding waits for it (a hundred experts one by one are 2 us). */
DEV int expert_of(const int *cum, int E, int item) {
    int e = 0;
    for (int end = E; end - e > 1;) {
        const int mid = (e + end) / 2;
        if (cum[mid] <= item) e = mid;
        else end = mid;
    }
    return e;
}
struct FewOut {
    void   *y;
    int64_t ld, step;
    Bias    bias;
    Split   split;
    const bf16 *x;                      /* EARLY, dense: the tokens */
    int64_t ldx;
};

template <int BN, int XR, int KB, bool SWAP, class T, bool EARLY>
__global__ void __launch_bounds__(160)
few(const __grid_constant__ CUtensorMap tx, const __grid_constant__ CUtensorMap tw, const __grid_constant__ Gemm p,
    const __grid_constant__ FewOut out) {
    using S = FewShape<BN, XR, KB, EARLY>;
    static_assert(S::STAGES >= 2 && S::W % 1024 == 0 && S::X % 1024 == 0 && (!SWAP || BN == 64), "");
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    pin(base);
    uint8_t *mem = raw + (base - smem_of(raw));
    const uint32_t full = base + S::STAGES * S::STAGE + S::PAST, empty = full + 8 * S::STAGES;
    int *cum = (int *)(mem + S::STAGES * S::STAGE + S::PAST + 16 * S::STAGES);
    const int nt = (p.N + BN - 1) / BN;
    const uint32_t warp = lane0(threadIdx.x / 32);
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) bar_init(full + 8 * s, 1), bar_init(empty + 8 * s, 1);
        bar_fence_init();
        tma_prefetch(&tx), tma_prefetch(&tw);
    }
    if constexpr (EARLY) pdl_let_next();
    else pdl_begin();
    tiles_before<XR>(cum, p.at, p.E, p.rows, nt);
    const int total = (int)lane0(cum[p.E]), nk = (p.K + 63) / 64, nb = (nk + KB - 1) / KB;
    int e = 0, s = 0, n0, row;
    uint32_t ph = 0;
    auto next = [&] { if (++s == S::STAGES) s = 0, ph ^= 1; };
    auto get = [&](int item) {
        e = expert_of(cum, p.E, item);
        const int i = item - cum[e];
        n0 = i % nt * BN, row = (p.at ? EARLY ? written(p.at + e) : __ldg(p.at + e) : 0) + i / nt * XR;
    };
    if (warp >= 4) {
        if (elected()) {
            for (int item = blockIdx.x; item < total; item += gridDim.x) {
                get(item);
                int kx = 0, kw = 0, kb = 0;
                /* as much of the weights as there is room for, and then the tokens */
                if (EARLY && item == (int)blockIdx.x) {
                    const int ahead = min(nb, S::STAGES);
                    for (; kb < ahead; kb++) {
                        bar_expect(full + 8 * kb, KB * (SWAP ? BN + XR : BN) * 128);
                        for (int b = 0; b < KB; b++, kw += 64)
                            tma_load_once(base + kb * S::STAGE + b * S::BOX + S::X, &tw, kw, n0, e, full + 8 * kb);
                    }
                    pdl_wait();
                    for (int i = 0; i < ahead; i++, next())
                        for (int b = 0; b < KB; b++, kx += 64)
                            if (SWAP) tma_load(base + i * S::STAGE + b * S::BOX, &tx, kx, row, 0, full + 8 * i);
                }
                for (; kb < nb; kb++, next()) {
                    bar_wait(empty + 8 * s, ph ^ 1);
                    bar_expect(full + 8 * s, KB * (BN + XR) * 128);
                    for (int b = 0; b < KB; b++) {
                        const uint32_t to = base + s * S::STAGE + b * S::BOX;
                        if (EARLY) tma_load_once(to + S::X, &tw, kw, n0, e, full + 8 * s);
                        else tma_load(to + S::X, &tw, kw, n0, e, full + 8 * s);
                        tma_load(to, &tx, kx, row, p.at ? 0 : e, full + 8 * s);
                        kx += 64, kw += 64;
                        if (kx == p.wrap_a) kx = 0;
                        if (kw == p.wrap_b) kw = 0;
                    }
                }
            }
            if (EARLY && (int)blockIdx.x >= total) pdl_wait();    /* nobody is done before that one is */
        }
        return;
    }
    const int lane = threadIdx.x & 31;
    const uint32_t m0 = low_operand(base + (SWAP ? S::X : 0)), q0 = low_operand(base + (SWAP ? 0 : S::X));
    float acc[(SWAP ? XR : BN) / 2];
    if constexpr (EARLY && !SWAP) { /* a few rows: sixteen bytes a thread are there sooner than dozens of boxes */
        const int pieces = min(nb, S::STAGES) * KB * 8;
        pdl_wait();
        for (int i = threadIdx.x; i < p.rows * pieces; i += 128) {
            const int r = i / pieces, c = i - r * pieces, b = c / 8;
            uint4 v = make_uint4(0, 0, 0, 0);
            if (c * 8 < p.K) v = *(const uint4 *)(out.x + r * out.ldx + c * 8);
            asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};"
                         :: "r"(base + b / KB * S::STAGE + b % KB * S::BOX + r * 128 + ((c % 8 ^ r) << 4)), "r"(v.x),
                            "r"(v.y), "r"(v.z), "r"(v.w)
                         : "memory");
        }
        fence_async();
        asm volatile("bar.sync 1, 128;" ::: "memory");
    }
    for (int item = blockIdx.x; item < total; item += gridDim.x) {
        get(item);
        const int end = min(row + XR, p.at ? EARLY ? written(p.at + e + 1) : __ldg(p.at + e + 1) : p.rows);
        int add = 0, prev = -1;
        for (int kb = 0; kb < nb; kb++, next()) {
            bar_wait(full + 8 * s, ph);
            const uint32_t m = m0 + s * (S::STAGE / 16), n = q0 + s * (S::STAGE / 16);
            wg_fence();
            #pragma unroll
            for (int i = 0; i < KB * 4; i++) {                          /* columns past K are zeros in shared memory */
                const int to = i / 4 * (S::BOX / 16) + i % 4 * 2;
                wgmma<0, 0>(acc, operand_of(m + to), operand_of(n + to), i ? 1 : add);
            }
            wg_commit();
            add = 1;
            wg_wait<1>();
            if (prev >= 0 && threadIdx.x == 0) bar_arrive(empty + 8 * prev);
            prev = s;
        }
        wg_wait<0>();
        if (threadIdx.x == 0) bar_arrive(empty + 8 * prev);
        const int g = warp * 16 + lane / 4, c = (lane & 3) * 2;
        T *y = (T *)out.y + e * out.step;
        auto put = [&](int r, int n, float v) {
            if (r >= end || n >= p.N) return;
            if (out.bias.at)
                v += out.bias.is_bf16 ? load((const bf16 *)out.bias.at + n) : ((const float *)out.bias.at)[n];
            const Split::Part o = out.split.part(y, out.ld, n);
            store((T *)o.y + r * o.ld + n - o.from, v);
        };
        #pragma unroll
        for (int j = 0; j < (SWAP ? XR : BN) / 8; j++)
            #pragma unroll
            for (int h = 0; h < 2; h++)
                #pragma unroll
                for (int b = 0; b < 2; b++) {
                    if (SWAP) put(row + j * 8 + c + b, n0 + g + h * 8, acc[j * 4 + h * 2 + b]);
                    else      put(row + g + h * 8, n0 + j * 8 + c + b, acc[j * 4 + h * 2 + b]);
                }
    }
}

#endif
