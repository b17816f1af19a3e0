/* prod.cu - products by Hopper's tensor cores: launches of gemm.cuh and few.cuh, and copies of operands that do not lie
 * as the copy engine takes them.  Which of them computes a product: prod_list.h.  All give the same bits (prod.h). */
#include "op/cuda/sm90/few.cuh"
#include "op/cuda/sm90/gemm_go.cuh"

/* ---- gemm.cuh -------------------------------------------------------------------------------------------------- */
static Bias bias_of(const Prod *p) { return { p->bias, p->tbias == DT_BF16 }; }
static Split splits_of(const Prod *p) { return { p->c1, p->c2, p->ldc1, p->ldc2, (int)p->n1, (int)p->n2 }; }
static int64_t out_step(const Prod *p) { return p->at ? 0 : p->step_c; }
template <int KIND, int BN, bool FOLD> static void gemm_out(Dev *d, const Prod *p) {
    if (p->tc == DT_BF16)
        gemm_go<KIND, BN, OutBf16, FOLD>(d, p, { (bf16 *)p->c, p->ldc, out_step(p), bias_of(p), splits_of(p) });
    else gemm_go<KIND, BN, OutF32, FOLD>(d, p, { (float *)p->c, p->ldc, out_step(p), bias_of(p), p->add });
}
template <int KIND, int BN, bool FOLD> static int allow_outs(void) {
    const cudaError_t e = allow_gemm<KIND, BN, OutBf16, FOLD>();
    return e ? e : allow_gemm<KIND, BN, OutF32, FOLD>();
}

/* ---- few.cuh --------------------------------------------------------------------------------------------------- */
template <int BN, int XR, int KB, bool SWAP, class T> static void few_go(Dev *d, const Prod *p) {
    using S = FewShape<BN, XR, KB>;
    CUtensorMap tx = map_of(d, p->a, p->ta, p->rows, k_of(p, p->ka), p->lda, batches(p), p->step_a, XR, 64);
    CUtensorMap tw = map_of(d, p->b, p->tb, p->N, k_of(p, p->kb), p->ldb, p->E, p->step_b, BN, 64);
    /* two to a multiprocessor; but not more than tiles: they would come in pairs where others have none */
    const int64_t per = S::SMEM * 2 <= (int64_t)cu(d)->smem ? 2 : 1, tiles = (p->N + BN - 1) / BN * p->E;
    FewOut out = { p->c, p->ldc, out_step(p), bias_of(p), splits_of(p) };
    launch(d, few<BN, XR, KB, SWAP, T, false>,
           dim3((unsigned)(!p->at && tiles <= cu(d)->sms ? tiles : cu(d)->sms * per)), dim3(160), S::SMEM, tx, tw,
           gemm_of(p), out);
}
template <int BN, int XR, int KB, bool SWAP> static void few_out(Dev *d, const Prod *p) {
    p->tc == DT_BF16 ? few_go<BN, XR, KB, SWAP, bf16>(d, p) : few_go<BN, XR, KB, SWAP, float>(d, p);
}
template <int BN, int XR, int KB, bool SWAP> static void few_early(Dev *d, const Prod *p) {
    using S = FewShape<BN, XR, KB, true>;
    CUtensorMap tx = map_of(d, p->a, p->ta, p->rows, p->K, p->lda, 1, 0, XR, 64);
    CUtensorMap tw = map_of(d, p->b, p->tb, p->N, p->K, p->ldb, p->E, p->step_b, BN, 64);
    FewOut out = { p->c, p->ldc, 0, bias_of(p), splits_of(p), (const bf16 *)p->a, p->lda };
    const unsigned blocks = p->at ? 2 * cu(d)->sms : (unsigned)((p->N + BN - 1) / BN);
    if (p->tc == DT_BF16)
        launch_pdl(d, few<BN, XR, KB, SWAP, bf16, true>, dim3(blocks), dim3(160), S::SMEM, tx, tw, gemm_of(p), out);
    else launch_pdl(d, few<BN, XR, KB, SWAP, float, true>, dim3(blocks), dim3(160), S::SMEM, tx, tw, gemm_of(p), out);
}
template <int BN, int XR, int KB, bool SWAP> static int allow_few(void) {
    const int n = FewShape<BN, XR, KB>::SMEM;
    const cudaError_t e = allow(few<BN, XR, KB, SWAP, bf16, false>, n);
    return e ? e : allow(few<BN, XR, KB, SWAP, float, false>, n);
}
template <int BN, int XR, int KB, bool SWAP> static int allow_early(void) {
    const int n = FewShape<BN, XR, KB, true>::SMEM;
    const cudaError_t e = allow(few<BN, XR, KB, SWAP, bf16, true>, n);
    return e ? e : allow(few<BN, XR, KB, SWAP, float, true>, n);
}

/* ---- rows of prod_list.h --------------------------------------------------------------------------------------- */
extern "C" {
#define LAUNCH(id, go, allow)                      \
    void run_##id(Dev *d, const Prod *p) { go(d, p); } \
    int prepare_##id(void) { return allow(); }
#define EXPERTS_EARLY(bn, xr, kb, rows) \
    LAUNCH(experts_early_##bn##_##xr##_##kb, (few_early<bn, xr, kb, true>), (allow_early<bn, xr, kb, true>))
#define EXPERTS(bn, xr, kb, mean) \
    LAUNCH(experts_##bn##_##xr##_##kb, (few_out<bn, xr, kb, true>), (allow_few<bn, xr, kb, true>))
#define FEW_EARLY(bn, xr, kb) \
    LAUNCH(few_early_##bn##_##xr##_##kb, (few_early<bn, xr, kb, false>), (allow_early<bn, xr, kb, false>))
#define FEW(bn, xr, kb, over, upto) \
    LAUNCH(few_##bn##_##xr##_##kb, (few_out<bn, xr, kb, false>), (allow_few<bn, xr, kb, false>))
#define TILES(kind, bn, fold) \
    LAUNCH(tiles_##kind##_##bn##_##fold, (gemm_out<kind, bn, fold>), (allow_outs<kind, bn, fold>))
#include "op/cuda/sm90/prod_list.h"
#undef LAUNCH
}

/* ---- a float32 operand beside a bf16 one (the router's gradients, a float32 router) ---------------------------- */
__global__ void split_rows(bf16 *to, Rows<const float> from, int64_t rows, int64_t cols, int64_t wide, int64_t ld,
                           int64_t part) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * wide;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / wide, c = i % wide;
        const float x = c < cols ? from.row(r)[c] : 0;
        const bf16 hi = __float2bfloat16_rn(x);
        const float y = __fsub_rn(x, load(&hi));
        const bf16 mid = __float2bfloat16_rn(y), lo = __float2bfloat16_rn(__fsub_rn(y, load(&mid)));
        bf16 *at = to + r * ld + c;
        at[0] = lo, at[part] = mid, at[2 * part] = hi;
    }
}
__global__ void add_pieces(Rows<float> dw, const float *from, int64_t M, int64_t N, int64_t pieces) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= M * N) return;
    float sum = 0;
#pragma unroll 8
    for (int64_t k = 0; k < pieces; k++) sum = __fadd_rn(sum, from[k * M * N + i]);
    float *to = dw.row(i / N) + i % N;
    *to = __fadd_rn(*to, sum);
}
static void split_pieces(Dev *d, const Prod *p, const Three *s, const bf16 *parts) {
    const int64_t n = p->rows / PIECE_ROWS, all = pieces_of(p), each = p->M * p->N;
    float *sums = (float *)arena_push(&d->tmp, pieces_bytes(p));
    for (int i = 0; i < 3; i++) {
        Prod q = split_prod(p, s, parts, i), rest = q;
        q.E = (int)n, q.rows = PIECE_ROWS, q.step_a = PIECE_ROWS * q.lda, q.step_b = PIECE_ROWS * q.ldb;
        q.c = sums + i * all * each, q.ldc = p->N, q.step_c = each, q.first = true;
        prod_run(d, &q);
        if (n == all) continue;
        rest.a = (const bf16 *)rest.a + n * q.step_a, rest.b = (const bf16 *)rest.b + n * q.step_b;
        rest.rows -= n * PIECE_ROWS, rest.c = sums + (i * all + n) * each, rest.ldc = p->N, rest.first = true;
        prod_run(d, &rest);
    }
    launch(d, add_pieces, dim3(blocks_of(each, 256)), dim3(256), 0, Rows<float>{ (float *)p->c, p->ldc }, sums, p->M,
           p->N, 3 * all);
}
extern "C" void run_split(Dev *d, const Prod *p) {
    const Three s = split_of(p);
    const size_t mark = arena_mark(&d->tmp);
    bf16 *parts = (bf16 *)arena_push(&d->tmp, s.bytes);
    const Rows<const float> from = { (const float *)(s.a ? p->a : p->b), s.a ? p->lda : p->ldb };
    launch(d, split_rows, dim3(blocks_of(s.rows * s.wide, 1024)), dim3(256), 0, parts, from, s.rows, s.cols, s.wide,
           s.ld, s.part);
    if (pieces_of(p)) split_pieces(d, p, &s, parts);
    else for (int i = 0; i < (p->kind == DW ? 3 : 1); i++) {
        const Prod q = split_prod(p, &s, parts, i);
        prod_run(d, &q);
    }
    arena_pop(&d->tmp, mark);
}

/* ---- widths that are no multiples of 8, by rows that are 16 bytes apart (a tower's 3420 columns) ----------------- */
__global__ void pad_rows(uint2 *to, const bf16 *from, int64_t rows, int64_t cols, int64_t ld_to, int64_t ld,
                         bool wide) {
    const int64_t fours = ld_to / 4;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * fours;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t r = i / fours, c = i % fours * 4;
        const uint16_t *x = (const uint16_t *)from + r * ld + c;
        uint2 w = make_uint2(0, 0);
        if (wide && c + 4 <= cols) w = *(const uint2 *)x;
        else
            for (int k = 0; k < 4 && c + k < cols; k++) (k < 2 ? w.x : w.y) |= (uint32_t)x[k] << (k % 2 * 16);
        to[i] = w;
    }
}
extern "C" void run_padded(Dev *d, const Prod *p) {
    int64_t rows, cols;
    Prod q = padded_of(p, &rows, &cols);
    const size_t mark = arena_mark(&d->tmp);
    if (rows) {
        const bf16 *from = (const bf16 *)p->b;
        q.b = arena_push(&d->tmp, padded_bytes(p));
        launch(d, pad_rows, dim3(blocks_of(rows * q.ldb / 4, 1024)), dim3(256), 0, (uint2 *)q.b, from, rows, cols,
               q.ldb, p->ldb, (uintptr_t)from % 8 == 0 && p->ldb % 4 == 0);
    }
    prod_run_laid(d, &q);
    arena_pop(&d->tmp, mark);
}

/* ---- open and close -------------------------------------------------------------------------------------------- */
bool prods_open(Dev *d, Err *err) {
    Prods *s = cu(d)->prods = MEM_NEW(&d->mem, Prods);
    cudaDriverEntryPointQueryResult q;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&s->encode, 12000, cudaEnableDefault, &q);
    if (e != cudaSuccess || !s->encode)
        return err_set(err, "the driver knows no tensor maps (%s)", cudaGetErrorString(e));
    CU(cudaMalloc((void **)&s->taken, sizeof(int)));
    CU(cudaMemsetAsync(s->taken, 0, sizeof(int), stream_of(d)));
    cudaError_t all[] = { head_allow(), head_back_allow(), fused_allow() };
    for (const ProdKernel *k = prods_sm90; k->name && e == cudaSuccess; k++)
        if (k->prepare) e = (cudaError_t)k->prepare();
    for (size_t i = 0; i < COUNT(all) && e == cudaSuccess; i++) e = all[i];
    if (e != cudaSuccess) return err_set(err, "shared memory for products: %s", cudaGetErrorString(e));
    return true;
}
void prods_close(Dev *d) {
    if (cu(d)->prods && cu(d)->prods->taken) CU(cudaFree(cu(d)->prods->taken));
    cu(d)->prods = NULL;
}
