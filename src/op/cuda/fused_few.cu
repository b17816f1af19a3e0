/* fused_few.cu - gate, up and SwiGLU of experts with few rows (decode) in one pass over both weights: few.cuh's order, so the bits of the parts.
 *
 * A block streams BN rows of gate and the same of up beside its expert's tokens, which are wgmma's M; an expert with more than XR rows is done in
 * several passes.  KB boxes of 64 columns a stage.  Four warps compute, one thread of a fifth loads.  What gate and up round to stays in
 * registers: nobody reads it later. */
#include "op/cuda/eights.cuh"
#include "op/cuda/gemm_go.cuh"

extern "C" {
#include "op/op_fused.h"
}
bool cuda_grouped_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu, Seqs ex, Leaves sum, bool keep);

template <int BN, int XR, int KB> struct PairShape {
    static constexpr int X = XR * 128, W = BN * 128, BOX = X + 2 * W, STAGE = BOX * KB, STAGES = 96 * 1024 / STAGE;
    static constexpr int PAST = 64 * 128;                               /* what wgmma reads past the last tokens */
    static constexpr int SMEM = 1024 + STAGES * STAGE + PAST + STAGES * 16 + (PROD_EXPERTS + 1) * 4;
};
typedef struct { const int *at; int E, N, K; bf16 *h; int64_t ld; } Pair;

template <int BN, int XR, int KB>
__global__ void __launch_bounds__(160)
pair_few(const __grid_constant__ CUtensorMap tx, const __grid_constant__ CUtensorMap tg, const __grid_constant__ CUtensorMap tu,
         const __grid_constant__ Pair p) {
    using S = PairShape<BN, XR, KB>;
    static_assert(S::STAGES >= 2 && S::W % 1024 == 0 && S::X % 1024 == 0, "");
    extern __shared__ uint8_t raw[];
    const uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    uint8_t *mem = raw + (base - smem_of(raw));
    const uint32_t full = base + S::STAGES * S::STAGE + S::PAST, empty = full + 8 * S::STAGES;
    int *cum = (int *)(mem + S::STAGES * S::STAGE + S::PAST + 16 * S::STAGES);
    const int nt = (p.N + BN - 1) / BN;
    if (threadIdx.x == 128) {
        for (int s = 0; s < S::STAGES; s++) bar_init(full + 8 * s, 1), bar_init(empty + 8 * s, 1);
        bar_fence_init();
        tma_prefetch(&tg), tma_prefetch(&tu), tma_prefetch(&tx);
    }
    if (threadIdx.x < 32) {
        int sum = 0;
        for (int e0 = 0; e0 < p.E; e0 += 32) {
            int e = e0 + threadIdx.x, n = e < p.E ? (p.at[e + 1] - p.at[e] + XR - 1) / XR * nt : 0;
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
    const int total = cum[p.E], nb = ((p.K + 63) / 64 + KB - 1) / KB;
    int e = 0, s = 0, n0, row;
    uint32_t ph = 0;
    auto next = [&] { if (++s == S::STAGES) s = 0, ph ^= 1; };
    auto get = [&](int item) {
        while (item >= cum[e + 1]) e++;
        const int i = item - cum[e];
        n0 = i % nt * BN, row = __ldg(p.at + e) + i / nt * XR;
    };
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128)
            for (int item = blockIdx.x; item < total; item += gridDim.x) {
                get(item);
                for (int kb = 0; kb < nb; kb++, next()) {
                    bar_wait(empty + 8 * s, ph ^ 1);
                    bar_expect(full + 8 * s, S::STAGE);
                    for (int b = 0; b < KB; b++) {                      /* columns past K come as zeros */
                        const uint32_t to = base + s * S::STAGE + b * S::BOX;
                        const int k = (kb * KB + b) * 64;
                        tma_load(to + S::X, &tg, k, n0, e, full + 8 * s);
                        tma_load(to + S::X + S::W, &tu, k, n0, e, full + 8 * s);
                        tma_load(to, &tx, k, row, 0, full + 8 * s);
                    }
                }
            }
        return;
    }
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    float g[BN / 2], u[BN / 2];
    for (int item = blockIdx.x; item < total; item += gridDim.x) {
        get(item);
        const int end = min(row + XR, __ldg(p.at + e + 1));
        int add = 0, prev = -1;
        for (int kb = 0; kb < nb; kb++, next()) {
            bar_wait(full + 8 * s, ph);
            wg_fence();
            #pragma unroll
            for (int b = 0; b < KB; b++) {
                const uint32_t x = base + s * S::STAGE + b * S::BOX, w = x + S::X;
                #pragma unroll
                for (int k = 0; k < 4; k++) {
                    wgmma<0, 0>(g, operand(x + k * 32), operand(w + k * 32), b + k ? 1 : add);
                    wgmma<0, 0>(u, operand(x + k * 32), operand(w + S::W + k * 32), b + k ? 1 : add);
                }
            }
            wg_commit();
            add = 1;
            wg_wait<1>();
            if (prev >= 0 && threadIdx.x == 0) bar_arrive(empty + 8 * prev);
            prev = s;
        }
        wg_wait<0>();
        if (threadIdx.x == 0) bar_arrive(empty + 8 * prev);
        #pragma unroll
        for (int i = 0; i < BN / 2; i++) {
            const int r = row + warp * 16 + lane / 4 + (i & 2) * 4, n = n0 + i / 4 * 8 + (lane & 3) * 2 + (i & 1);
            bf16 a, b;
            store(&a, g[i]), store(&b, u[i]);
            const float x = load(&a);
            if (r < end && n < p.N) store(p.h + r * p.ld + n, x * sigmoid_f(x) * load(&b));
        }
    }
}

template <int BN, int XR, int KB> static bool pair_go(Dev *d, Tensor h, Tensor x, const Prod *g, const Prod *u) {
    using S = PairShape<BN, XR, KB>;
    CU(cudaFuncSetAttribute(pair_few<BN, XR, KB>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SMEM));
    CUtensorMap tx = map_of(d, g->a, g->ta, g->rows, g->K, g->lda, 1, 0, XR, 64);
    CUtensorMap tg = map_of(d, g->b, g->tb, g->N, g->K, g->ldb, g->E, g->step_b, BN, 64);
    CUtensorMap tu = map_of(d, u->b, u->tb, u->N, u->K, u->ldb, u->E, u->step_b, BN, 64);
    Pair p = { g->at, g->E, (int)g->N, (int)g->K, (bf16 *)h.data, h.ld };
    launch(d, pair_few<BN, XR, KB>, dim3(cu(d)->sms * 2), dim3(160), S::SMEM, tx, tg, tu, p);
    return true;
}
static Prod part(Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum) {
    Prod p = prod_nt(y, x, w, TENSOR_NONE, sum);
    p.at = (const int *)ex.at.data, p.E = ex.n, p.N = y.cols, p.step_b = y.cols * w.ld;
    return p;
}
/* Rows of the mean expert for which this pays; more of them want few.cuh's other form. */
enum { PAIR_EACH = 2 };
bool cuda_grouped_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu, Seqs ex, Leaves sum, bool keep) {
    if (keep || sum.n > 1 || ex.n == 0 || x.rows == 0 || x.rows > PAIR_EACH * ex.n || h.dtype != DT_BF16 || gate.dtype != DT_BF16) return false;
    Prod g = part(gate, x, wg, ex, sum), u = part(up, x, wu, ex, sum);
    if (!prod_fast(&g) || !prod_fast(&u)) return false;
    return pair_go<16, 8, 4>(d, h, x, &g, &u);
}
