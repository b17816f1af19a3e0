/* prod_dw.cu - products that are gradients of weights: gemm.cuh's DW, or, dense, by tiles of 256 x 160 where those of
 * gemm.cuh (128 x 256) would leave much of the last round of the card empty.  One order of the sums: the same bits. */
#include "op/cuda/sm90/gemm_go.cuh"

/* ---- tiles of 256 x 160 -------------------------------------------------------------------------------------------
 * One warpgroup loads, two compute 128 x 160 each.  A cluster of two blocks has two tiles, one below the other: x is
 * loaded half by each block and sent to both. */
enum { TALL = TALL_ROWS, WIDE = TALL_COLS };
enum { TALL_A = TALL * 128, TALL_B = 3 * 8192, TALL_STAGE = TALL_A + TALL_B, TALL_STAGES = 4 };  /* of 64 rows */
enum { TALL_SMEM = 1024 + TALL_STAGES * (TALL_STAGE + 16) + 12 * MAIL + 4 * TALL_STAGES };
static_assert(TALL_SMEM <= 227 * 1024, "");

DEV uint32_t low_chunks(uint32_t at) { return lane0((uint32_t)operand(at, 8192)); }    /* chunks of 64 columns */

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    tall_dw(const __grid_constant__ CUtensorMap ta, const __grid_constant__ CUtensorMap tb,
            const __grid_constant__ CUtensorMap tc, int rows, int M, int N, bool c_first, int *queue) {
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    pin(base);
    const uint32_t full = base + TALL_STAGES * TALL_STAGE, empty = full + 8 * TALL_STAGES,
                   mail = empty + 8 * TALL_STAGES, tile_of = mail + 8 * MAIL, letter = tile_of + 4 * TALL_STAGES;
    const uint32_t warp = lane0(threadIdx.x / 32);
    const int rank = (int)cluster_rank(), step = gridDim.x / 2;
    if (threadIdx.x == 0) {
        int item = 0;
        if (rank == 0) item = atomicAdd(queue, 1);
        for (int i = 0; i < MAIL; i++) bar_init(mail + 8 * i, 1);
        for (int s = 0; s < TALL_STAGES; s++) bar_init(full + 8 * s, 1), bar_init(empty + 8 * s, 4);
        bar_fence_init();
        tma_prefetch(&ta), tma_prefetch(&tb);
        if (rank == 0) put_word(letter, item);
    }
    __syncthreads();
    cluster_sync();
    const int down = (M + 2 * TALL - 1) / (2 * TALL), across = (N + WIDE - 1) / WIDE, nk = (rows + 63) / 64,
              total = down * across;
    int s = 0;
    uint32_t ph = 0;
    auto next = [&] { if (++s == TALL_STAGES) s = 0, ph ^= 1; };
    struct Tile { int row, n0; };
    auto get = [&](int i) { /* pairs of row tiles in groups of 8, so that a wave stays in the L2 cache */
        constexpr int G = 8;
        const int g = i / (G * across), at = i - g * G * across, gm = min(G, down - g * G);
        return Tile{ (2 * (g * G + at % gm) + rank) * TALL, at / gm * WIDE };
    };

    if (warp < 4) {                                                     /* ---- loads ---- */
        regs_down<40>();
        auto received = [&](int j) { /* the j-th mail */
            bar_wait_cluster(mail + 8 * (j % MAIL), j / MAIL & 1);
            return word_at(letter + 4 * (j % MAIL));
        };
        if (warp == 0 && elected()) {
            int item = word_of(letter, 0), ahead = 0;
            const int tell = rank ? -1 : min(nk - 1, (int)TALL_STAGES);
            for (int j = 0; item < total; item = rank ? received(j) : ahead, j++) {
                if (rank == 0) ahead = atomicAdd(queue, 1);
                const Tile t = get(item);
                for (int kb = 0; kb < nk; kb++, next()) {
                    const uint32_t a = base + s * TALL_STAGE, b = a + TALL_A, f = full + 8 * s;
                    bar_wait(empty + 8 * s, ph ^ 1);
                    if (kb == 0) put_word(tile_of + 4 * s, item);
                    if (kb == tell) send_to(letter + 4 * (j % MAIL), mail + 8 * (j % MAIL), 1, ahead);
                    bar_expect(f, TALL_STAGE);
                    #pragma unroll
                    for (int c = 0; c < 3; c++)
                        tma_load_all(b + c * 8192 + rank * 4096, &tb, t.n0 + c * 64, kb * 64 + rank * 32, 0, f, 3);
                    #pragma unroll
                    for (int c = 0; c < 4; c++) tma_load(a + c * 8192, &ta, t.row + c * 64, kb * 64, 0, f);
                }
                for (int c = 0; c < WIDE / 32; c++, next()) {           /* what is added to, 32 columns a stage */
                    const uint32_t f = full + 8 * s;
                    bar_wait(empty + 8 * s, ph ^ 1);
                    bar_expect(f, c_first ? 0 : 4 * 8192);
                    for (int q = 0; q < 4 && !c_first; q++)
                        tma_load(base + s * TALL_STAGE + q * 8192, &tc, t.n0 + c * 32, t.row + q * 64, 0, f);
                }
            }
            if (rank == 0 && item == total + step - 1) *queue = 0;
            bar_wait(empty + 8 * s, ph ^ 1);                            /* no more */
            put_word(tile_of + 4 * s, total);
            bar_expect(full + 8 * s, 0);
        }
        __syncwarp();
    } else {                                                            /* ---- sums ---- */
        regs_up<232>();
        const int w = warp / 4 - 1, tid = threadIdx.x & 127, lane = tid & 31, quarter = warp & 3;
        const uint32_t a0 = low_chunks(base + w * 16384), b0 = low_chunks(base + TALL_A);
        for (;;) {
            bar_await(full + 8 * s, ph);
            const int item = (int)lane0(word_at(tile_of + 4 * s));
            if (item >= total) break;
            const Tile t = get(item);
            float upper[WIDE / 2], lower[WIDE / 2];                     /* of 64 rows each */
            int add = 0, prev = -1;
            for (int kb = 0; kb < nk; kb++) {
                bar_wait(full + 8 * s, ph);
                const uint32_t a = a0 + s * (TALL_STAGE / 16), b = b0 + s * (TALL_STAGE / 16);
                wg_fence();
                #pragma unroll
                for (int k = 0; k < 4; k++) {
                    wgmma<1, 1>(upper, operand_of(a + k * 128), operand_of(b + k * 128), k ? 1 : add);
                    wgmma<1, 1>(lower, operand_of(a + 512 + k * 128), operand_of(b + k * 128), k ? 1 : add);
                }
                wg_commit();
                add = 1;
                wg_wait<1>();
                if (prev >= 0 && tid < 2) bar_arrive_at(empty + 8 * prev, tid);
                prev = s;
                next();
            }
            wg_wait<0>();
            if (tid < 2) bar_arrive_at(empty + 8 * prev, tid);
            /* add in place in the ring, write back by the copy engine: as gemm.cuh */
            const int g = lane / 4, od = g & 1;
            int pend = -1;
            #pragma unroll
            for (int c = 0; c < WIDE / 32; c++) {
                bar_wait(full + 8 * s, ph);
                const uint32_t box = base + s * TALL_STAGE + w * 16384,
                               to = box + (quarter * 16 + g) * 128 + (lane & 1) * 8;
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float *v = h ? lower : upper;
                    #pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int i0 = (c * 4 + j) * 4, i1 = (c * 4 + (j ^ 2)) * 4;
                        const uint32_t x = to + h * 8192 + (((2 * (j ^ (od << 1)) + ((lane & 3) >> 1)) ^ g) << 4);
                        add2(x, od ? v[i1] : v[i0], od ? v[i1 + 1] : v[i0 + 1], c_first);
                        add2(x + 1024, od ? v[i1 + 2] : v[i0 + 2], od ? v[i1 + 3] : v[i0 + 3], c_first);
                    }
                }
                fence_async();
                asm volatile("bar.sync %0, 128;" :: "r"(2 + w) : "memory");
                if (tid == 0) {
                    for (int h = 0; h < 2; h++)
                        tma_store(&tc, box + h * 8192, t.n0 + c * 32, t.row + w * 128 + h * 64, 0);
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
    bulk_wait<0>();                                                     /* here: above it costs registers */
    cluster_sync(); /* a block's barriers stay until its peer has made its last arrival */
}

/* ---- rows of prod_list.h ----------------------------------------------------------------------------------------- */
extern "C" {
void run_dw_tall(Dev *d, const Prod *p) {
    launch(d, tall_dw, dim3(blocks_at_once(d)), dim3(384), TALL_SMEM,
           map_of(d, p->a, p->ta, p->rows, p->M, p->lda, 1, 0, 64, 64),
           map_of(d, p->b, p->tb, p->rows, p->N, p->ldb, 1, 0, 32, 64),
           map_of(d, p->c, DT_F32, p->M, p->N, p->ldc, 1, 0, 64, 32), (int)p->rows, (int)p->M, (int)p->N, p->first,
           cu(d)->prods->taken);
}
int prepare_dw_tall(void) { return allow(tall_dw, TALL_SMEM); }
#define DW_TILES(bn)                                                                                 \
    void run_dw_tiles_##bn(Dev *d, const Prod *p) { gemm_go<DW, bn, OutAdd, false>(d, p, {}); }      \
    int prepare_dw_tiles_##bn(void) { return allow_gemm<DW, bn, OutAdd, false>(); }
#include "op/cuda/sm90/prod_list.h"
}
