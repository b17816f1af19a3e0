/* fused_few.cu - gate, up and SwiGLU of experts with few rows (decode) in one pass over both weights: few.cuh's order,
 * so the bits of the parts.
 *
 * Weights are wgmma's M: 64 rows, eight of gate, eight of up, and so on, so that the thread that has a gate's sum has
 * its up's too; tokens are its N.  One map covers both weights, its third dimension being which of them.  An expert
 * with more than XR rows is done in several passes.  KB boxes of 64 columns a stage.  Four warps compute, one thread of
 * a fifth loads.  What gate and up round to stays in registers: nobody reads it later. */
#include "op/cuda/sm90/few.cuh"
#include "op/cuda/sm90/gemm_go.cuh"
#include "op/cuda/common/route.cuh"

enum { PAIR_COLS = 32 };                                                /* of h a block: of gate and of up each */
template <int XR, int KB> struct PairShape {
    static constexpr int X = XR * 128, W = 2 * PAIR_COLS * 128, BOX = X + W, STAGE = BOX * KB,
                         STAGES = 96 * 1024 / STAGE;
    static constexpr int SMEM = 1024 + STAGES * STAGE + STAGES * 16 + (PROD_EXPERTS + 1) * 4;
};
/* up_first: eight of up come before eight of gate */
typedef struct { const int *at; int E, N, K; bool up_first; bf16 *h; int64_t ld; } Pair;

/* 64 columns of 8 rows of one weight, the same of the other, and so on, 'groups' times. */
DEV void pair_load_once(uint32_t to, const CUtensorMap *m, int k, int group, int e, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%2, %3, %3, %4, %5}], [%6], %7;"
                 :: "r"(to), "l"(m), "r"(k), "r"(0), "r"(group), "r"(e), "r"(bar), "l"((uint64_t)READ_ONCE) : "memory");
}
DEV void pair_load(uint32_t to, const CUtensorMap *m, int k, int group, int e, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %3, %4, %5}], [%6];"
                 :: "r"(to), "l"(m), "r"(k), "r"(0), "r"(group), "r"(e), "r"(bar) : "memory");
}
template <int XR, int KB>
__global__ void __launch_bounds__(160)
    pair_few(const __grid_constant__ CUtensorMap tx, const __grid_constant__ CUtensorMap tw,
             const __grid_constant__ Pair p) {
    using S = PairShape<XR, KB>;
    static_assert(S::STAGES >= 2 && S::X % 1024 == 0, "");
    extern __shared__ uint8_t raw[];
    uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    pin(base);
    uint8_t *mem = raw + (base - smem_of(raw));
    const uint32_t full = base + S::STAGES * S::STAGE, empty = full + 8 * S::STAGES;
    int *cum = (int *)(mem + S::STAGES * S::STAGE + 16 * S::STAGES);
    const int nt = (p.N + PAIR_COLS - 1) / PAIR_COLS;
    const uint32_t warp = lane0(threadIdx.x / 32);
    if (threadIdx.x == 128) {
        for (int s = 0; s < S::STAGES; s++) bar_init(full + 8 * s, 1), bar_init(empty + 8 * s, 1);
        bar_fence_init();
        tma_prefetch(&tw), tma_prefetch(&tx);
    }
    pdl_begin();
    tiles_before<XR>(cum, p.at, p.E, 0, nt);
    const int total = (int)lane0(cum[p.E]), nb = ((p.K + 63) / 64 + KB - 1) / KB;
    int e = 0, s = 0, n0, row;
    uint32_t ph = 0;
    auto next = [&] { if (++s == S::STAGES) s = 0, ph ^= 1; };
    auto get = [&](int item) {
        e = expert_of(cum, p.E, item);
        const int i = item - cum[e];
        n0 = i % nt * PAIR_COLS, row = __ldg(p.at + e) + i / nt * XR;
    };
    if (warp >= 4) {
        if (elected())
            for (int item = blockIdx.x; item < total; item += gridDim.x) {
                get(item);
                for (int kb = 0; kb < nb; kb++, next()) {
                    bar_wait(empty + 8 * s, ph ^ 1);
                    bar_expect(full + 8 * s, S::STAGE);
                    for (int b = 0; b < KB; b++) {                      /* columns past K come as zeros */
                        const uint32_t to = base + s * S::STAGE + b * S::BOX;
                        const int k = (kb * KB + b) * 64;
                        pair_load(to, &tw, k, n0 / 8, e, full + 8 * s);
                        tma_load(to + S::W, &tx, k, row, 0, full + 8 * s);
                    }
                }
            }
        return;
    }
    const int lane = threadIdx.x & 31;
    const uint32_t w0 = low_operand(base), x0 = low_operand(base + S::W);
    float acc[XR / 2];
    for (int item = blockIdx.x; item < total; item += gridDim.x) {
        get(item);
        const int end = min(row + XR, __ldg(p.at + e + 1));
        int add = 0, prev = -1;
        for (int kb = 0; kb < nb; kb++, next()) {
            bar_wait(full + 8 * s, ph);
            const uint32_t w = w0 + s * (S::STAGE / 16), x = x0 + s * (S::STAGE / 16);
            wg_fence();
            #pragma unroll
            for (int i = 0; i < KB * 4; i++) {
                const int to = i / 4 * (S::BOX / 16) + i % 4 * 2;
                wgmma<0, 0>(acc, operand_of(w + to), operand_of(x + to), i ? 1 : add);
            }
            wg_commit();
            add = 1;
            wg_wait<1>();
            if (prev >= 0 && threadIdx.x == 0) bar_arrive(empty + 8 * prev);
            prev = s;
        }
        wg_wait<0>();
        if (threadIdx.x == 0) bar_arrive(empty + 8 * prev);
        const int n = n0 + warp * 8 + lane / 4;
        #pragma unroll
        for (int j = 0; j < XR / 8; j++)
            #pragma unroll
            for (int b = 0; b < 2; b++) {
                const int r = row + j * 8 + (lane & 3) * 2 + b;
                bf16 first, second;
                store(&first, acc[j * 4 + b]), store(&second, acc[j * 4 + 2 + b]);
                const float g = load(p.up_first ? &second : &first), u = load(p.up_first ? &first : &second);
                if (r < end && n < p.N) store(p.h + r * p.ld + n, g * sigmoid_f(g) * u);
            }
    }
}

/* Of very few rows (an expert has one, mostly) all multiprocessors must have their share: tiles of 24 columns, with
 * tokens as wgmma's M.  Its blocks come early, and let the next kernel come when experts' rows are known.  The tokens
 * stay in shared memory as a whole, in front of the weights' ring: sixteen bytes a thread are there sooner than a box
 * of the copy engine, and need not lie side by side (from). */
enum { THIN_COLS = 24, THIN_ROWS = 32 };
struct ThinShape {
    static constexpr int XR = 8, KB = 2, X = XR * 128, W = 2 * THIN_COLS * 128, STAGE = W * KB, STAGES = 8;
    static_assert(STAGE >= 8 * X, "wgmma reads 64 rows behind the last tokens");
};
/* One token's experts are chosen by every block for itself, which takes less than to wait for one that does: by the
 * warp that loads, which goes through it once before there are logits (early: fused_rows.cu).  What row a tile makes is
 * known without.  A sixth warp of the first block writes down what was chosen, and then lets the next kernel come. */
struct Choice {
    Routing r;                                                          /* r.T 0: they are chosen */
    int32_t *at, *from, *slot;
    bool early;
};
static __host__ __device__ int choice_bytes(const Routing &r) {         /* a warp's: chosen behind route_row's room */
    return (int)route_bytes(r.E, 1) + (THIN_ROWS + 3) / 4 * 16;
}
struct Thin {
    Pair p;
    const bf16 *x;
    int64_t ldx;
    const int *from;                                                    /* which row of x; NULL: in order */
    int rows, stages;                                                   /* of x; of weights on their way, at most */
    volatile Fault *fault;
    const char *next;                                                   /* weights of the product behind, or NULL; */
    int64_t next_step;                                                  /* bytes an expert has of them */
    Choice c;
};
DEV void choose_all(const Choice &c, char *room) {
    int *chosen = (int *)(room + route_bytes(c.r.E, 1)), lane = threadIdx.x % 32;
    float *s = (float *)room, *zeros = s + c.r.E;
    for (int e = lane; e < c.r.E; e += 32) zeros[e] = 0;
    __syncwarp();
    for (int real = !c.early; real < 2; real++) {
        float x[CHOOSE_EACH];
        unsigned on[CHOOSE_EACH];
        if (real) pdl_wait();
        choose(x, on, c.r, real ? c.r.logits.at : zeros, s);
        int had = 0;
#pragma unroll
        for (int i = 0; i < CHOOSE_EACH; i++) {
            if (on[i] >> lane & 1) chosen[had + __popc(on[i] & ((1u << lane) - 1))] = lane + 32 * i;
            had += __popc(on[i]);
        }
        __syncwarp();
    }
}
DEV void say_choice(const Choice &c, char *room) {
    int32_t *chosen = (int32_t *)(room + route_bytes(c.r.E, 1));
    const int lane = threadIdx.x % 32;
    pdl_wait();
    route_chosen(c.r, 0, room, chosen);
    __syncwarp();
    for (int e = lane; e <= c.r.E; e += 32) {
        int before = 0;
        for (int j = 0; j < c.r.topk; j++) before += chosen[j] < e;
        c.at[e] = before;
    }
    for (int j = lane; j < c.r.topk; j += 32) c.from[j] = 0, c.slot[j] = j;
    __threadfence();                                                    /* each lane its own, */
    __syncwarp();                                                       /* and all of them before anybody comes */
    pdl_let_next();
}
/* An item's share of the next weights begins its way to the cache when all of its own are under way: memory would stand
 * still between the two products. */
DEV void ask_for_next(const Thin &t, int e, int i, int nt) {
    const int64_t from = t.next_step * i / nt & ~127ll,
                  to = i + 1 < nt ? t.next_step * (i + 1) / nt & ~127ll : t.next_step;
    for (int64_t at = from; at < to; at += 16384)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                     :: "l"(t.next + e * t.next_step + at), "r"((int)min(to - at, (int64_t)16384)) : "memory");
}
static int thin_boxes(int64_t K) { return (int)((K + 64 * ThinShape::KB - 1) / (64 * ThinShape::KB)) * ThinShape::KB; }
static int thin_bytes(const Thin &t, int stages) {
    return 1024 + thin_boxes(t.p.K) * ThinShape::X + stages * ThinShape::STAGE + ThinShape::STAGES * 16
           + (t.c.r.T ? 2 * choice_bytes(t.c.r) : (t.p.E + 1) * 4);
}
template <bool CHOOSES>
__global__ void __launch_bounds__(CHOOSES ? 192 : 160)
    pair_thin(const __grid_constant__ CUtensorMap tw, const __grid_constant__ Thin t) {
    using S = ThinShape;
    const Pair &p = t.p;
    extern __shared__ uint8_t raw[];
    const int nt = (p.N + THIN_COLS - 1) / THIN_COLS, nb = ((p.K + 63) / 64 + S::KB - 1) / S::KB, stages = t.stages;
    uint32_t base = (smem_of(raw) + 1023) & ~1023u;
    pin(base);
    const uint32_t warp = lane0(threadIdx.x / 32), ring = base + nb * S::KB * S::X,
                   full = ring + stages * S::STAGE, empty = full + 8 * S::STAGES;
    int *cum = (int *)(raw + (empty + 8 * S::STAGES - smem_of(raw)));
    if (threadIdx.x == 128) {
        for (int s = 0; s < stages; s++) bar_init(full + 8 * s, 1), bar_init(empty + 8 * s, 1);
        bar_fence_init();
        tma_prefetch(&tw);
    }
    int total, e = 0, s = 0, i, n0, row, end;
    char *room = (char *)cum;
    const int *chosen = (const int *)(room + (CHOOSES ? route_bytes(p.E, 1) : 0));
    if constexpr (CHOOSES) {
        if (blockIdx.x) pdl_let_next();
        __syncthreads();
        total = t.c.r.topk * nt;
        if (warp == 5) {
            if (blockIdx.x == 0) say_choice(t.c, room + choice_bytes(t.c.r));
            return;
        }
        if (warp == 4) choose_all(t.c, room);
        else pdl_wait();
    } else {
        pdl_wait();
        pdl_let_next();
        tiles_before<S::XR>(cum, p.at, p.E, 0, nt);
        total = (int)lane0(cum[p.E]);
    }
    uint32_t ph = 0;
    auto next = [&] { if (++s == stages) s = 0, ph ^= 1; };
    auto get = [&](int item) {
        if constexpr (CHOOSES) i = item % nt, row = item / nt, end = row + 1;
        else {
            e = expert_of(cum, p.E, item), i = item - cum[e], row = __ldg(p.at + e) + i / nt * S::XR;
            end = min(row + S::XR, __ldg(p.at + e + 1));
        }
        n0 = i % nt * THIN_COLS;
    };
    if (warp >= 4) {
        if (elected())
            for (int item = blockIdx.x; item < total; item += gridDim.x) {
                get(item);
                if (CHOOSES) e = chosen[row];
                for (int kb = 0; kb < nb; kb++, next()) {
                    bar_wait(empty + 8 * s, ph ^ 1);
                    bar_expect(full + 8 * s, S::STAGE);
                    for (int b = 0; b < S::KB; b++)
                        pair_load_once(ring + s * S::STAGE + b * S::W, &tw, (kb * S::KB + b) * 64, n0 / 8, e,
                                       full + 8 * s);
                }
                if (t.next && i < nt) ask_for_next(t, e, i, nt);
            }
        return;
    }
    const int lane = threadIdx.x & 31, pieces = nb * S::KB * 8;
    const uint32_t x0 = low_operand(base), w0 = low_operand(ring);
    float acc[THIN_COLS];
    for (int item = blockIdx.x; item < total; item += gridDim.x) {
        get(item);
        asm volatile("bar.sync 1, 128;" ::: "memory");                  /* the tokens before are read */
        for (int j = threadIdx.x; j < (end - row) * pieces; j += 128) {
            const int r = j / pieces, c = j - r * pieces, at = CHOOSES ? 0 : t.from ? t.from[row + r] : row + r;
            uint4 v = make_uint4(0, 0, 0, 0);
            if (at < 0 || at >= t.rows) fault_at(t.fault, FAULT_ROW, row + r);
            else if (c * 8 < p.K) v = *(const uint4 *)(t.x + at * t.ldx + c * 8);
            asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};"
                         :: "r"(base + c / 8 * S::X + r * 128 + ((c % 8 ^ r) << 4)), "r"(v.x), "r"(v.y), "r"(v.z),
                            "r"(v.w)
                         : "memory");
        }
        fence_async();
        asm volatile("bar.sync 1, 128;" ::: "memory");
        int add = 0, prev = -1;
        for (int kb = 0; kb < nb; kb++, next()) {
            bar_wait(full + 8 * s, ph);
            const uint32_t x = x0 + kb * (S::KB * S::X / 16), w = w0 + s * (S::STAGE / 16);
            wg_fence();
            #pragma unroll
            for (int j = 0; j < S::KB * 4; j++)
                wgmma<0, 0>(acc, operand_of(x + j / 4 * (S::X / 16) + j % 4 * 2),
                            operand_of(w + j / 4 * (S::W / 16) + j % 4 * 2), j ? 1 : add);
            wg_commit();
            add = 1;
            wg_wait<1>();
            if (prev >= 0 && threadIdx.x == 0) bar_arrive(empty + 8 * prev);
            prev = s;
        }
        wg_wait<0>();
        if (threadIdx.x == 0) bar_arrive(empty + 8 * prev);
        if (warp) continue;                                             /* the first eight rows alone are tokens */
        const int r = row + lane / 4;
        #pragma unroll
        for (int g = 0; g < THIN_COLS / 8; g++)
            #pragma unroll
            for (int b = 0; b < 2; b++) {
                const int n = n0 + g * 8 + (lane & 3) * 2 + b;
                bf16 first, second;
                store(&first, acc[g * 8 + b]), store(&second, acc[g * 8 + 4 + b]);
                const float gate = load(p.up_first ? &second : &first), up = load(p.up_first ? &first : &second);
                if (r < end && n < p.N) store(p.h + r * p.ld + n, gate * sigmoid_f(gate) * up);
            }
    }
}

/* Both weights, [E][N][K] each, as [E][N / 8][2][8][K]: the second one lies 'apart' bytes behind the first. */
static CUtensorMap pair_map(const Dev *d, const Prod *first, size_t apart, int cols) {
    CUtensorMap m;
    const cuuint64_t row = (cuuint64_t)first->ldb * 2;
    const cuuint64_t dim[5] = { (cuuint64_t)first->K, 8, 2, (cuuint64_t)first->N / 8, (cuuint64_t)first->E };
    const cuuint64_t stride[4] = { row, apart, 8 * row, (cuuint64_t)first->step_b * 2 };
    const cuuint32_t box[5] = { 64, 8, 2, (cuuint32_t)cols / 8, 1 }, one[5] = { 1, 1, 1, 1, 1 };
    const CUresult e = cu(d)->prods->encode(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, (void *)first->b, dim, stride, box,
                                            one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    CHECK(e == CUDA_SUCCESS, "a map of two weights [%ld,%ld]: error %d", (long)first->N, (long)first->K, (int)e);
    return m;
}
/* Two blocks a multiprocessor, or one that has room for longer tokens; false: none has. */
template <bool CHOOSES> static bool thin_go(Dev *d, const CUtensorMap &tw, Thin t) {
    const int most = (int)cu(d)->smem, half = (most - 1024) / 2, two = (half - thin_bytes(t, 0)) / ThinShape::STAGE,
              one = (most - thin_bytes(t, 0)) / ThinShape::STAGE, room = two >= 4 ? two : one;
    if (room < 2) return false;
    t.stages = room < ThinShape::STAGES ? room : ThinShape::STAGES;
    int blocks = cu(d)->sms * (two >= 4 ? 2 : 1);
    const int tiles = t.c.r.topk * ((t.p.N + THIN_COLS - 1) / THIN_COLS);
    if (CHOOSES && tiles < blocks) blocks = tiles;
    CU(cudaFuncSetAttribute(pair_thin<CHOOSES>, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    launch_pdl(d, pair_thin<CHOOSES>, dim3(blocks), dim3(CHOOSES ? 192 : 160), thin_bytes(t, t.stages), tw, t);
    cu(d)->known = t.p.at;
    return true;
}
/* from: rows of x in the order of experts, where g's rows are not there; else NULL.  c: they are not chosen, or NULL */
template <int XR, int KB>
static bool pair_go(Dev *d, Tensor h, const Prod *g, const Prod *u, Tensor x, const int *from, Tensor next,
                    const Choice *c) {
    using S = PairShape<XR, KB>;
    const bool up_first = u->b < g->b;
    const size_t apart = up_first ? (char *)g->b - (char *)u->b : (char *)u->b - (char *)g->b;
    if (apart % 16 || apart >= (size_t)1 << 40) return false;
    Pair p = { g->at, g->E, (int)g->N, (int)g->K, up_first, (bf16 *)h.data, h.ld };
    Thin t = { p, (const bf16 *)x.data, x.ld, from, (int)x.rows, 0, cu(d)->fault, (const char *)next.data };
    if (next.data) t.next_step = next.rows / g->E * next.ld * (int64_t)dtype_size(next.dtype);
    if ((uintptr_t)t.next % 16 || t.next_step % 16) t.next = NULL;
    if (c) t.c = *c;
    if (g->rows <= THIN_ROWS && g->N >= 8 * THIN_COLS && g->N % 8 == 0) {
        const CUtensorMap tw = pair_map(d, up_first ? u : g, apart, THIN_COLS);
        if (c ? thin_go<true>(d, tw, t) : thin_go<false>(d, tw, t)) return true;
    }
    if (from) return false;
    CU(cudaFuncSetAttribute(pair_few<XR, KB>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SMEM));
    CUtensorMap tx = map_of(d, g->a, g->ta, g->rows, g->K, g->lda, 1, 0, XR, 64),
                tw = pair_map(d, up_first ? u : g, apart, PAIR_COLS);
    launch(d, pair_few<XR, KB>, dim3(cu(d)->sms * 2), dim3(160), S::SMEM, tx, tw, p);
    return true;
}
static Prod part(Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum) {
    Prod p = prod_nt(y, x, w, TENSOR_NONE, sum);
    p.at = (const int *)ex.at.data, p.E = ex.n, p.N = y.cols, p.step_b = y.cols * w.ld;
    return p;
}
/* Rows of the mean expert for which weights are only streamed, as in few.cuh. */
enum { PAIR_EACH = 8 };
static bool pair(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, const int *from, Tensor wg, Tensor wu,
                 Seqs ex, Leaves sum, Tensor next, const Choice *c) {
    if (sum.n > 1 || ex.n == 0 || own.rows == 0 || own.rows > PAIR_EACH * ex.n || h.dtype != DT_BF16
        || gate.dtype != DT_BF16)
        return false;
    Prod g = part(gate, own, wg, ex, sum), u = part(up, own, wu, ex, sum);
    if (!prod_fast(&g) || !prod_fast(&u) || g.ldb != u.ldb) return false;
    return pair_go<16, 2>(d, h, &g, &u, x, from, next, c);
}
bool cuda_grouped_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu, Seqs ex, Leaves sum,
                         bool keep) {
    return !keep && pair(d, h, gate, up, x, x, NULL, wg, wu, ex, sum, TENSOR_NONE, NULL);
}
bool cuda_permute_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from, Tensor slot,
                         Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next) {
    (void)slot; /* who makes few rows finds them by from */
    return wide_one(x) && pair(d, h, gate, up, own, x, (const int *)from.data, wg, wu, ex, sum, next, NULL);
}
bool cuda_route_swiglu(Dev *d, const Route *r, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from,
                       Tensor slot, Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next) {
    Choice c = { routing_of(r), (int32_t *)ex.at.data, (int32_t *)from.data, (int32_t *)slot.data, cu(d)->capturing };
    if (c.r.T != 1 || !can_choose(c.r) || c.r.E != ex.n || c.r.topk > THIN_ROWS || !wide_one(x)) return false;
    return pair(d, h, gate, up, own, x, (const int *)from.data, wg, wu, ex, sum, next, &c);
}
