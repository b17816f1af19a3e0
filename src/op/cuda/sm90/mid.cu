/* mid.cu - dense FWD for 9 to 256 rows (decode of many sequences): bound by reading the weights, if every
 * multiprocessor has one tile and no more, and if what comes between the tensor core's steps, which are short here,
 * takes no longer than they do.  The order of gemm.cuh, so its bits.
 *
 * A block has WG * 64 tokens (wgmma's M, a warpgroup each 64) and BN rows of the weight (its N): of the shapes with
 * which all tiles are one wave, the one that brings the fewest rows to a block's shared memory.  Two row tiles are a
 * cluster: each block loads half of the weight's rows and sends them to both.  (Of clusters of four only 30 fit on the
 * card.)  Two more warps load, one the weights and one the tokens: with one the time grew with the number of copies,
 * some 90 ns each.
 *
 * Blocks come to the card before the kernel before them is done (pdl.cuh), and wait there for the tokens; in a graph
 * that is being recorded, where nobody writes weights, these are on their way already.  Their shared memory is more
 * than half of a multiprocessor's, so that they do not come in pairs. */
#include "op/cuda/common/pdl.cuh"
#include "op/cuda/sm90/gemm_go.cuh"

/* KB boxes of 64 columns a stage: two are fewer barriers, but of wide boxes the ring should rather have more stages. */
template <int BN, int WG> struct MidShape {
    static constexpr int KB = WG == 1 && BN <= 112 ? 2 : 1, X = WG * 64 * 128, W = BN * 128, BOX = X + W;
    static constexpr int STAGE = BOX * KB, STAGES = 208 * 1024 / STAGE;
    static constexpr int PITCH = BN * 2 + (BN % 16 == 0 ? 16 : 0);      /* of a row of sums: no bank conflicts */
    static constexpr int SMEM = 1024 + STAGES * STAGE + STAGES * 16;
    static_assert(STAGES > 2 && STAGES * STAGE >= WG * 64 * PITCH && BN % 8 == 0, "");
};
struct Mid {
    int     rows, N, K, CM;             /* CM: row tiles of a cluster, 1 or 2 */
    int     box;                        /* rows of x in a copy */
    bool    early;                      /* weights may be read before the kernel before is done */
    bf16   *y;
    int64_t ld;
    Bias    bias;
    Split   split;
};
template <int BN, int WG>
__global__ void __launch_bounds__(WG * 128 + 64, 1)
    mid(const __grid_constant__ CUtensorMap tx, const __grid_constant__ CUtensorMap tw, const __grid_constant__ Mid p) {
    using S = MidShape<BN, WG>;
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    pin(base);
    const uint32_t full = base + S::STAGES * S::STAGE, empty = full + 8 * S::STAGES;
    const uint32_t warp = lane0(threadIdx.x / 32);
    const int m = p.CM > 1 ? (int)cluster_rank() : 0, row = (blockIdx.y * p.CM + m) * 64 * WG;
    const int n0 = blockIdx.x / p.CM * BN, part = BN / p.CM;
    const bool has_x = row < p.rows;                                    /* else what lies there is computed with */
    const int nb = (p.K + 64 * S::KB - 1) / (64 * S::KB);
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) bar_init(full + 8 * s, 1), bar_init(empty + 8 * s, WG * p.CM);
        bar_fence_init();
        tma_prefetch(&tx), tma_prefetch(&tw);
    }
    pdl_let_next();
    __syncthreads();
    cluster_sync();
    if (!p.early) pdl_wait();
    int s = 0;
    uint32_t ph = 0;
    auto next = [&] { if (++s == S::STAGES) s = 0, ph ^= 1; };
    if (warp >= WG * 4) {                                               /* ---- loads ---- */
        if (warp == WG * 4) {
            if (elected())
                for (int kb = 0, k = 0; kb < nb; kb++, next()) {
                    const uint32_t w = base + s * S::STAGE + S::X + m * part * 128, f = full + 8 * s;
                    bar_wait(empty + 8 * s, ph ^ 1);
                    bar_expect(f, S::KB * (S::W + (has_x ? p.box * 128 : 0)));
                    #pragma unroll
                    for (int b = 0; b < S::KB; b++, k += 64) {          /* columns past K come as zeros */
                        if (p.CM > 1) tma_load_all(w + b * S::BOX, &tw, k, n0 + m * part, 0, f, 3);
                        else          tma_load(w + b * S::BOX, &tw, k, n0, 0, f);
                    }
                }
        } else {
            pdl_wait();                                           /* no block writes, or is done, before that */
            if (elected() && has_x)
                for (int kb = 0, k = 0; kb < nb; kb++, next()) {
                    bar_wait(empty + 8 * s, ph ^ 1);
                    #pragma unroll
                    for (int b = 0; b < S::KB; b++, k += 64)
                        tma_load(base + s * S::STAGE + b * S::BOX, &tx, k, row, 0, full + 8 * s);
                }
        }
        __syncwarp();
        cluster_sync();
        return;
    }
    const int tid = threadIdx.x & 127, lane = tid & 31;
    float acc[BN / 2];
    int add = 0, prev = -1;
    const uint32_t x0 = low_operand(base + warp / 4 * 8192), w0 = low_operand(base + S::X);
    for (int kb = 0; kb < nb; kb++, next()) {
        bar_wait(full + 8 * s, ph);
        const uint32_t x = x0 + s * (S::STAGE / 16), w = w0 + s * (S::STAGE / 16);
        wg_fence();
        #pragma unroll
        for (int i = 0; i < S::KB * 4; i++) {
            const int to = i / 4 * (S::BOX / 16) + i % 4 * 2;
            wgmma<0, 0>(acc, operand_of(x + to), operand_of(w + to), i ? 1 : add);
        }
        wg_commit();
        add = 1;
        wg_wait<1>();
        if (prev >= 0 && tid < p.CM) bar_arrive_at(empty + 8 * prev, tid);
        prev = s;
    }
    wg_wait<0>();
    if (tid < p.CM) bar_arrive_at(empty + 8 * prev, tid);
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    /* All that comes to this block has come: its ring takes the sums, so that rows are written whole. */
    asm volatile("bar.sync 1, %0;" :: "n"(WG * 128) : "memory");
    #pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        const int c = n0 + j * 8 + (lane & 3) * 2;
        float v[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) v[i] = acc[j * 4 + i];
        if (p.bias.at)
            #pragma unroll
            for (int b = 0; b < 2; b++) {
                const float x = c + b >= p.N       ? 0
                                : p.bias.is_bf16 ? load((const bf16 *)p.bias.at + c + b)
                                                 : ((const float *)p.bias.at)[c + b];
                v[b] += x, v[2 + b] += x;
            }
        #pragma unroll
        for (int h = 0; h < 2; h++)
            asm volatile("st.shared.b32 [%0], %1;"
                         :: "r"(base + (warp * 16 + lane / 4 + h * 8) * S::PITCH + j * 16 + (lane & 3) * 4),
                            "r"(pack(v[2 * h], v[2 * h + 1]))
                         : "memory");
    }
    __syncwarp();
    for (int i = lane; i < 16 * (BN / 8); i += 32) {
        const int r = warp * 16 + i / (BN / 8), c = i % (BN / 8) * 8;
        if (row + r >= p.rows || n0 + c >= p.N) continue;
        uint4 q;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w) : "r"(base + r * S::PITCH + c * 2));
        const Split::Part o = p.split.part(p.y, p.ld, n0 + c);
        store_to((bf16 *)o.y + (row + r) * o.ld + n0 + c - o.from, q, p.N - n0 - c);
    }
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <int BN, int WG> static void mid_go(Dev *d, const Prod *p, int CM) {
    using S = MidShape<BN, WG>;
    const int64_t wide = (p->N + BN - 1) / BN, tall = (p->rows + 64 * WG - 1) / (64 * WG);
    const int box = tall > 1 ? 64 * WG : (int)(p->rows + 7) / 8 * 8;
    Mid a = { (int)p->rows, (int)p->N, (int)p->K, CM, box, cu(d)->capturing, (bf16 *)p->c, p->ldc,
              { p->bias, p->tbias == DT_BF16 }, { p->c1, p->c2, p->ldc1, p->ldc2, (int)p->n1, (int)p->n2 } };
    const CUtensorMap tx = map_of(d, p->a, p->ta, p->rows, p->K, p->lda, 1, 0, box, 64),
                      tw = map_of(d, p->b, p->tb, p->N, p->K, p->ldb, 1, 0, BN / CM, 64);
    cudaLaunchAttribute how[2] = {};
    how[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    how[0].val.programmaticStreamSerializationAllowed = 1;
    how[1].id = cudaLaunchAttributeClusterDimension;
    how[1].val.clusterDim.x = (unsigned)CM, how[1].val.clusterDim.y = how[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)(wide * CM), (unsigned)((tall + CM - 1) / CM)), c.blockDim = dim3(WG * 128 + 64);
    c.dynamicSmemBytes = S::SMEM, c.stream = stream_of(d), c.attrs = how, c.numAttrs = 2;
    cu(d)->known = NULL;
    CU(cudaLaunchKernelEx(&c, mid<BN, WG>, tx, tw, a));
}
extern "C" {
#define MID(bn, wg)                                                                                 \
    void run_mid_##bn##_##wg(Dev *d, const Prod *p) { mid_go<bn, wg>(d, p, p->rows > 64 ? 2 : 1); } \
    int prepare_mid_##bn##_##wg(void) { return allow(mid<bn, wg>, MidShape<bn, wg>::SMEM); }
#include "op/cuda/sm90/prod_list.h"
}
