/* one.cu - products of one token's row (decode): few.cuh's order, so the bits of gemm.cuh, and what comes before or
 * behind the product by its own blocks.
 *
 * A block has all of its weights in shared memory, or on their way there, before the row is.  Weights are wgmma's M and
 * the row its N of eight, of which one counts: a step takes as long as both take to be read, and 64 rows are read of
 * M whether they count or not. */
#include "op/cuda/common/eights.cuh"
#include "op/cuda/sm90/few.cuh"
#include "op/cuda/sm90/gemm_go.cuh"

/* ---- z = y w' of one row; y is a, or a normed, or sum = a + b normed --------------------------------------------- */
/* Every block norms for itself: as norm_k, whose team is twice its threads, so each is two of those.  The first block
 * writes sum and y. */
enum RowHow { ROW_PLAIN, ROW_NORM, ROW_ADD_NORM };
enum { NORM_MOST = 2048, BOX_X = ROW_BOX, BOXES = ROW_BOXES };          /* NORM_MOST: columns of a normed row */
static_assert(ROW_TEAM == ROW_THREADS, "row_bytes");
struct RowProd {
    bf16 *sum, *y;
    const bf16 *a, *b;
    Any g;
    float eps;
    void *z;
    Bias bias;
    Split split;
    int N, K;
    bool early;                                                         /* nobody writes weights meanwhile */
};
/* Eight columns of row 0, which no swizzle moves. */
DEV void put_row(uint32_t x, int c, const unsigned (&w)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};"
                 :: "r"(x + c / 64 * BOX_X + c % 64 * 2), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
DEV void four_warps() { asm volatile("bar.sync 1, 128;" ::: "memory"); }
DEV void sixteen(unsigned (&w)[4], const bf16 *at) {
    const uint4 u = *(const uint4 *)at;
    w[0] = u.x, w[1] = u.y, w[2] = u.z, w[3] = u.w;
}
/* The row normed, into shared memory; g: this thread's eights of the weights.  write: the first block, in earnest. */
template <bool ADD>
DEV void norm_row(const RowProd &p, uint32_t x, const bf16 *a, const bf16 *b, const float (&g)[2][8], float *part,
                  bool write) {
    unsigned u[2][4] = {}, o[2][4] = {};
    float v[2][8], e[8], sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int c = 8 * (threadIdx.x + 128 * h);
        if (c < p.K) sixteen(u[h], a + c);
        if (ADD && c < p.K) sixteen(o[h], b + c);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int c = 8 * (threadIdx.x + 128 * h);
        unpack8(v[h], u[h]);
        if (ADD) {
            unpack8(e, o[h]);
#pragma unroll
            for (int k = 0; k < 8; k++) v[h][k] += e[k];
            pack8(u[h], v[h]), unpack8(v[h], u[h]);
            if (write && c < p.K) *(uint4 *)(p.sum + c) = make_uint4(u[h][0], u[h][1], u[h][2], u[h][3]);
        }
        sum[h] = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) sum[h] = __fmaf_rn(v[h][k], v[h][k], sum[h]);
    }
#pragma unroll
    for (int j = 16; j; j /= 2)
#pragma unroll
        for (int h = 0; h < 2; h++) sum[h] += __shfl_xor_sync(0xFFFFFFFFu, sum[h], j);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum[0], part[threadIdx.x / 32 + 4] = sum[1];
    four_warps();
    const float all = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])),
                rstd = 1.0f / sqrtf(all / (float)p.K + p.eps);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int c = 8 * (threadIdx.x + 128 * h);
#pragma unroll
        for (int k = 0; k < 8; k++) v[h][k] = v[h][k] * rstd * g[h][k];
        pack8(u[h], v[h]);
        if (c >= p.K) continue;
        put_row(x, c, u[h]);
        if (write) *(uint4 *)(p.y + c) = make_uint4(u[h][0], u[h][1], u[h][2], u[h][3]);
    }
}
template <int COLS, int HOW, class T>
__global__ void __launch_bounds__(160)
    row_prod(const __grid_constant__ CUtensorMap tw, const __grid_constant__ RowProd p) {
    extern __shared__ uint8_t raw[];                                    /* all of it: a block may have 227 KB in all */
    constexpr int W = COLS * 128;
    uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    pin(base);
    const uint32_t warp = lane0(threadIdx.x / 32), boxes = p.K / 64, stages = boxes / BOXES,
                   ring = base + boxes * BOX_X, full = ring + boxes * W + (64 - COLS) * 128;
    float *part = (float *)(raw + (full + 8 * stages - smem_of(raw)));
    const int n0 = blockIdx.x * COLS, lane = threadIdx.x % 32;
    if (threadIdx.x == 128) {
#pragma unroll 1
        for (uint32_t s = 0; s < stages; s++) bar_init(full + 8 * s, 1);
        bar_fence_init();
        tma_prefetch(&tw);
    }
    pdl_let_next();
    __syncthreads();
    if (warp == 4) {
        if (elected()) {
            if (!p.early) pdl_wait();
#pragma unroll 1
            for (uint32_t s = 0; s < stages; s++) {
                bar_expect(full + 8 * s, BOXES * W);
                for (uint32_t b = s * BOXES; b < (s + 1) * BOXES; b++)
                    tma_load_once(ring + b * W, &tw, b * 64, n0, 0, full + 8 * s);
            }
        }
        return;
    }
    const uint32_t x0 = low_operand(base), w0 = low_operand(ring);
    float acc[4];
    auto product = [&] {
        fence_async();
        four_warps();
        for (uint32_t s = 0; s < stages; s++) {
            bar_wait(full + 8 * s, 0);
            const uint32_t w = w0 + s * (BOXES * W / 16), x = x0 + s * (BOXES * BOX_X / 16);
            wg_fence();
#pragma unroll
            for (int i = 0; i < BOXES * 4; i++)
                wgmma<0, 0>(acc, operand_of(w + i / 4 * (W / 16) + i % 4 * 2),
                            operand_of(x + i / 4 * (BOX_X / 16) + i % 4 * 2), i ? 1 : s > 0);
            wg_commit();
        }
        wg_wait<0>();
    };
    if constexpr (HOW == ROW_PLAIN) {
        pdl_wait();
        for (int c0 = 8 * threadIdx.x; c0 < p.K; c0 += 4 * 8 * 128) {
            unsigned u[4][4] = {};
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (c0 + 1024 * i < p.K) sixteen(u[i], p.a + c0 + 1024 * i);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (c0 + 1024 * i < p.K) put_row(base, c0 + 1024 * i, u[i]);
        }
        product();
    } else {
        constexpr bool ADD = HOW == ROW_ADD_NORM;
        float g[2][8] = {};
        if (!p.early) pdl_wait();
        for (int h = 0; h < 2; h++)
            if (8 * (int)(threadIdx.x + 128 * h) < p.K) load8(g[h], p.g, 0, 8 * (threadIdx.x + 128 * h), 8, true);
        for (int real = !p.early; real < 2; real++) {                   /* a rehearsal, as in fused_rows.cu */
            if (real) pdl_wait();
            const bf16 *other = (const bf16 *)p.g.at;
            norm_row<ADD>(p, base, real ? p.a : other, real ? p.b : other, g, part, real && blockIdx.x == 0);
            if (ADD || real) product();                                 /* many weights come late: no rehearsal of it */
            else four_warps();
        }
    }
    if (lane % 4) return;                                               /* the row's sums are every fourth thread's */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int c = (int)warp * 16 + lane / 4 + 8 * h, n = n0 + c;
        if (c >= COLS || n >= p.N) continue;
        float v = acc[2 * h];
        if (p.bias.at) v += p.bias.is_bf16 ? load((const bf16 *)p.bias.at + n) : ((const float *)p.bias.at)[n];
        const Split::Part o = p.split.part(p.z, 0, n);
        store((T *)o.y + n - o.from, v);
    }
}
template <int COLS, int HOW, class T> static void row_go(Dev *d, const Prod *w, RowProd r) {
    r.z = w->c, r.bias = { w->bias, w->tbias == DT_BF16 };
    r.split = { w->c1, w->c2, w->ldc1, w->ldc2, (int)w->n1, (int)w->n2 };
    r.N = (int)w->N, r.K = (int)w->K, r.early = cu(d)->capturing;
    CU(cudaFuncSetAttribute(row_prod<COLS, HOW, T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)cu(d)->smem));
    launch_pdl(d, row_prod<COLS, HOW, T>, dim3(blocks_of(w->N, COLS)), dim3(160), row_bytes(COLS, w->K),
                 map_of(d, w->b, w->tb, w->N, w->K, w->ldb, 1, 0, COLS, 64), r);
}
static bool fits(const Dev *d, const Prod *p, int cols) { return row_fits(p, cu(d)->sms, cu(d)->smem, cols); }
extern "C" {
#define ONE(bn) \
    void run_one_##bn(Dev *d, const Prod *p) { row_go<bn, ROW_PLAIN, bf16>(d, p, { .a = (const bf16 *)p->a }); }
#include "op/cuda/sm90/prod_list.h"
}
/* Where a row of norm_k is a block's, with one eight a thread: other widths add in another order. */
static bool norm_fits(int64_t K) { return K <= NORM_MOST && team_size(K) == ROW_THREADS; }
bool cuda_add_rmsnorm_linear(Dev *d, Tensor sum, Tensor y, Tensor z, Tensor a, Tensor b, Tensor g, float eps, Tensor w,
                             Leaves over) {
    const Prod p = prod_nt(z, y, w, TENSOR_NONE, over);
    if (sum.dtype != DT_BF16 || z.dtype != DT_F32 || over.n > 1 || !prod_fast(&p) || !fits(d, &p, 16)
        || !norm_fits(sum.cols) || !wide_all(sum.cols, sum, y, a, b, g))
        return false;
    row_go<16, ROW_ADD_NORM, float>(
        d, &p, { (bf16 *)sum.data, (bf16 *)y.data, (const bf16 *)a.data, (const bf16 *)b.data, any_of(g), eps });
    return true;
}
bool cuda_rmsnorm_linear3(Dev *d, const Tensor *y, Tensor n, Tensor x, Tensor g, float eps, const Tensor *w,
                          const Tensor *b, Leaves over) {
    Prod p;
    if (!prod_joined(&p, y, 3, n, w, b, over) || !fits(d, &p, 40) || !norm_fits(x.cols) || x.dtype != DT_BF16
        || !wide_all(x.cols, n, x, g))
        return false;
    row_go<40, ROW_NORM, bf16>(d, &p, { NULL, (bf16 *)n.data, (const bf16 *)x.data, NULL, any_of(g), eps });
    return true;
}

/* ---- sum = a + what one token's experts return ------------------------------------------------------------------- */
/* A block has eight columns of each of the token's experts: 64 rows of weights, one M, against the rows of all of them,
 * of which each expert's own counts.  So what experts return is in one block, which adds it up as op_combine does.
 * What was chosen is known before the kernel before is done (Dev.known). */
enum { DOWN_COLS = 8, DOWN_MOST = 8 };                                  /* of an expert a block; experts */
struct DownOne {
    bf16 *sum;
    const bf16 *a, *h;
    int64_t ldh;
    const int32_t *pick;
    const float *weight;
    int topk, boxes;                                                    /* boxes of K */
};
static int down_bytes(int64_t boxes) {
    return (int)(1024 + boxes * (DOWN_MOST + 1) * 1024 + boxes / BOXES * 8 + DOWN_MOST * DOWN_COLS * 4);
}
static bool down_room(const Dev *d, int64_t N, int64_t K, int64_t topk) {
    return topk <= DOWN_MOST && K % (64 * BOXES) == 0 && N % DOWN_COLS == 0
           && (size_t)down_bytes(K / 64) <= cu(d)->smem;
}
DEV void down_load(uint32_t to, const CUtensorMap *m, int row, int box, int e, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
                 :: "r"(to), "l"(m), "r"(0), "r"(row), "r"(box), "r"(e), "r"(bar), "l"((uint64_t)READ_ONCE) : "memory");
}
__global__ void __launch_bounds__(160)
    down_one(const __grid_constant__ CUtensorMap tw, const __grid_constant__ DownOne p) {
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    pin(base);
    const uint32_t warp = lane0(threadIdx.x / 32), own = p.boxes * 1024, ring = base + own,
                   full = ring + DOWN_MOST * own;
    const int n0 = blockIdx.x * DOWN_COLS, lane = threadIdx.x % 32, stages = p.boxes / BOXES;
    float(*made)[DOWN_COLS] = (float(*)[DOWN_COLS])(raw + (full + 8 * stages - smem_of(raw)));
    if (threadIdx.x == 128) {
#pragma unroll 1
        for (int s = 0; s < stages; s++) bar_init(full + 8 * s, 1);
        bar_fence_init();
        tma_prefetch(&tw);
    }
    pdl_let_next();
    __syncthreads();
    if (warp == 4) {
        const int mine = lane < p.topk ? written(p.pick + lane) : 0;
        int e[DOWN_MOST];
#pragma unroll
        for (int j = 0; j < DOWN_MOST; j++) e[j] = __shfl_sync(~0u, mine, j);
        if (elected()) {
#pragma unroll 1
            for (int s = 0; s < stages; s++) {
                bar_expect(full + 8 * s, p.topk * BOXES * 1024);
#pragma unroll
                for (int j = 0; j < DOWN_MOST; j++)
                    if (j < p.topk)
                        down_load(ring + j * own + s * BOXES * 1024, &tw, n0, s * BOXES, e[j], full + 8 * s);
            }
        }
        return;
    }
    const uint32_t x0 = low_operand(base), w0 = low_operand(ring), high = lane0(1u << 30 | p.boxes * (1024 >> 4));
    const int pieces = p.boxes * 8;
    float acc[4], a = 0, weight[DOWN_MOST] = {};
    pdl_wait();
    if (threadIdx.x < DOWN_COLS) {
        a = load(p.a + n0 + lane);
#pragma unroll
        for (int j = 0; j < DOWN_MOST; j++)
            if (j < p.topk) weight[j] = p.weight[j];
    }
    for (int c0 = lane; c0 < pieces; c0 += 3 * 32) {                    /* a warp has rows warp and warp + 4 */
        uint4 u[2][3];
#pragma unroll
        for (int i = 0; i < 6; i++) {
            const int r = (int)warp + i / 3 * 4, c = c0 + i % 3 * 32;
            u[i / 3][i % 3] = make_uint4(0, 0, 0, 0);
            if (r < p.topk && c < pieces) u[i / 3][i % 3] = *(const uint4 *)(p.h + r * p.ldh + c * 8);
        }
#pragma unroll
        for (int i = 0; i < 6; i++) {
            const int r = (int)warp + i / 3 * 4, c = c0 + i % 3 * 32;
            const uint4 v = u[i / 3][i % 3];
            if (c < pieces)
                asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};"
                             :: "r"(base + c / 8 * 1024 + r * 128 + ((c % 8 ^ r) << 4)), "r"(v.x), "r"(v.y), "r"(v.z),
                                "r"(v.w)
                             : "memory");
        }
    }
    fence_async();
    four_warps();
    for (int s = 0; s < stages; s++) {
        bar_wait(full + 8 * s, 0);
        const uint32_t w = w0 + s * (BOXES * 64), x = x0 + s * (BOXES * 64);
        wg_fence();
#pragma unroll
        for (int i = 0; i < BOXES * 4; i++)
            wgmma<0, 0>(acc, (uint64_t)high << 32 | (w + i / 4 * 64 + i % 4 * 2),
                        operand_of(x + i / 4 * 64 + i % 4 * 2), i ? 1 : s > 0);
        wg_commit();
    }
    wg_wait<0>();
    if (lane % 4 == (int)warp) {        /* row 16 warp + lane / 4 is expert 2 warp's; its own token is column 2 warp */
        made[2 * warp][lane / 4] = as_kept(acc[0], true);
        made[2 * warp + 1][lane / 4] = as_kept(acc[3], true);
    }
    four_warps();
    if (threadIdx.x >= DOWN_COLS) return;
    float v = 0;
#pragma unroll
    for (int j = 0; j < DOWN_MOST; j++)
        if (j < p.topk) v = __fmaf_rn(weight[j], made[j][lane], v);
    store(p.sum + n0 + lane, a + as_kept(v, true));
}
bool cuda_grouped_combine_add(Dev *d, Tensor sum, Tensor part, Tensor out, Tensor a, Tensor h, Tensor w, Seqs ex,
                              Leaves over, Tensor pick, Tensor slot, Tensor weight) {
    (void)part, (void)slot;
    const int64_t N = out.cols, K = h.cols, boxes = K / 64;
    Prod p = prod_nt(out, h, w, TENSOR_NONE, over);
    p.at = (const int *)ex.at.data, p.E = ex.n, p.N = N, p.step_b = N * w.ld;
    if (!cu(d)->capturing || cu(d)->known != p.at || sum.rows != 1 || sum.dtype != DT_BF16 || out.dtype != DT_BF16
        || over.n > 1 || !prod_fast(&p) || !down_room(d, N, K, h.rows) || !wide_all(K, h))
        return false;
    const DownOne o = { (bf16 *)sum.data, (const bf16 *)a.data, (const bf16 *)h.data, h.ld, (const int32_t *)pick.data,
                  (const float *)weight.data, (int)h.rows, (int)boxes };
    CUtensorMap m;
    const cuuint64_t dim[4] = { 64, (cuuint64_t)N, (cuuint64_t)boxes, (cuuint64_t)p.E },
                     stride[3] = { (cuuint64_t)p.ldb * 2, 128, (cuuint64_t)p.step_b * 2 };
    const cuuint32_t box[4] = { 64, DOWN_COLS, BOXES, 1 }, one[4] = { 1, 1, 1, 1 };
    const CUresult r = cu(d)->prods->encode(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)p.b, dim, stride, box, one,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    CHECK(r == CUDA_SUCCESS, "a map of experts' weights [%ld,%ld]: error %d", (long)N, (long)K, (int)r);
    CU(cudaFuncSetAttribute(down_one, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)cu(d)->smem));
    launch_pdl(d, down_one, dim3((unsigned)(N / DOWN_COLS)), dim3(160), down_bytes(boxes), m, o);
    return true;
}
bool cuda_defers_norms(const Dev *d, int64_t hidden, int64_t qkv, int64_t expert, int64_t topk) {
    return cu(d)->capturing && d->act == DT_BF16 && norm_fits(hidden)
           && row_room(cu(d)->sms, cu(d)->smem, qkv, hidden, 40)
           && down_room(d, hidden, expert, topk);
}
