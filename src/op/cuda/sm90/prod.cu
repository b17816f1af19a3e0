/* prod.cu - who computes a product.
 *
 * All kernels of one Prod give the same bits (prod.h), so the choice may depend on rows: few rows go to few.cuh,
 * which only streams the weights, or, dense, to mid.cu, which does so with up to 256; aligned rows to gemm.cuh, with a
 * copy of the weights where their width is no multiple of 8; everything else to plain_prod.cu. */
#include "op/cuda/sm90/few.cuh"
#include "op/cuda/sm90/gemm_go.cuh"

/* ---- gemm.cuh -------------------------------------------------------------------------------------------------- */
bool prod_is_bf16(const Prod *p) { return p->ta == DT_BF16 && p->tb == DT_BF16; }

static bool aligned(const void *at, DType t, int64_t ld, int64_t step) {
    const int64_t unit = 16 / (int64_t)dtype_size(t);
    return (uintptr_t)at % 16 == 0 && ld % unit == 0 && step % unit == 0;
}
bool prod_fast(const Prod *p) {
    const int64_t most = (int64_t)1 << 31;
    bool ok = prod_is_bf16(p) && p->N % 8 == 0 && (p->kind == DW ? p->M : p->K) % 8 == 0 && p->E <= PROD_EXPERTS
              && p->rows < most && aligned(p->a, p->ta, p->lda, p->step_a) && aligned(p->b, p->tb, p->ldb, p->step_b)
              && aligned(p->c, p->tc, p->ldc, p->step_c) && p->N > 0 && (p->kind == DW ? p->M : p->K) > 0;
    for (int s = 1; s < p->n_pieces; s++) ok = ok && p->cut[s] % 16 == 0;
    for (int s = 0; s < p->n_pieces && p->n_pieces > 1; s++) ok = ok && p->cut[s] < p->cut[s + 1];
    return ok;
}
size_t prod_gemm_tmp(const Prod *p) {
    if (p->kind == DW) return p->at ? arena_round(sizeof(int)) : 0;
    size_t most = 0; /* on any card */
    for (int n = 2; p->n_pieces > 1 && n <= GEMM_BLOCKS; n += 2) {
        const size_t bytes = gemm_fold_bytes(bn_of(p, n), levels_of(p), n);
        if (bytes > most) most = bytes;
    }
    return most;
}


static Bias bias_of(const Prod *p) { return { p->bias, p->tbias == DT_BF16 }; }
static Split splits_of(const Prod *p) { return { p->c1, p->c2, p->ldc1, p->ldc2, (int)p->n1, (int)p->n2 }; }
static int64_t out_step(const Prod *p) { return p->at ? 0 : p->step_c; }
template <int KIND, int BN, bool FOLD> static void gemm_out(Dev *d, const Prod *p) {
    if (p->tc == DT_BF16)
        gemm_go<KIND, BN, OutBf16, FOLD>(d, p, { (bf16 *)p->c, p->ldc, out_step(p), bias_of(p), splits_of(p) });
    else gemm_go<KIND, BN, OutF32, FOLD>(d, p, { (float *)p->c, p->ldc, out_step(p), bias_of(p), p->add });
}
template <int KIND> static void gemm_wide(Dev *d, const Prod *p) {
    const int bn = bn_of(p, blocks_at_once(d));
    if (p->n_pieces > 1) bn == 128 ? gemm_out<KIND, 128, true>(d, p) : gemm_out<KIND, 256, true>(d, p);
    else if constexpr (KIND == FWD) {
        if (bn == 32) gemm_out<FWD, 32, false>(d, p);
        else if (bn == 64) gemm_out<FWD, 64, false>(d, p);
        else bn == 128 ? gemm_out<FWD, 128, false>(d, p) : gemm_out<FWD, 256, false>(d, p);
    } else bn == 128 ? gemm_out<KIND, 128, false>(d, p) : gemm_out<KIND, 256, false>(d, p);
}
void prod_gemm(Dev *d, const Prod *p) {
    if (p->kind == DW) prod_dw(d, p);
    else if (p->kind == DX) gemm_wide<DX>(d, p);
    else gemm_wide<FWD>(d, p);
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
        launch_after(d, few<BN, XR, KB, SWAP, bf16, true>, dim3(blocks), dim3(160), S::SMEM, tx, tw, gemm_of(p), out);
    else launch_after(d, few<BN, XR, KB, SWAP, float, true>, dim3(blocks), dim3(160), S::SMEM, tx, tw, gemm_of(p), out);
}
/* A block a multiprocessor has nearly all of the weight's rows that are its own in shared memory before it begins. */
static bool few_at_once(Dev *d, const Prod *p) {
    const int64_t sms = blocks_at_once(d);
    if (!cu(d)->noting || p->at || p->E != 1 || p->rows > 8 || p->N > 56 * sms || p->wrap_a || p->wrap_b || p->ka
        || p->kb)
        return false;
    if (p->N <= 16 * sms) few_early<16, 8, 8, false>(d, p);
    else if (p->N <= 40 * sms) few_early<40, 8, 4, false>(d, p);
    else if (p->N <= 48 * sms) few_early<48, 8, 4, false>(d, p);
    else few_early<56, 8, 4, false>(d, p);
    return true;
}
/* Boxes that reach past the last row are slow: take the smallest that holds all.  More rows, shorter stages: there
 * must be several of them. */
template <int BN, int KB> static void few_rows(Dev *d, const Prod *p) {
    if (p->rows <= 8) few_out<BN, 8, KB, false>(d, p);
    else if (p->rows <= 16) few_out<BN, 16, KB, false>(d, p);
    else if (p->rows <= 32) few_out<BN, 32, KB, false>(d, p);
    else if (p->rows <= 48) few_out<BN, 48, 2, false>(d, p);
    else few_out<BN, 64, 2, false>(d, p);
}
/* Rows for which weights are only streamed: of the mean expert, or of all. */
enum { FEW_ROWS = 64, FEW_EACH = 16 };
bool prod_few(Dev *d, const Prod *p) {
    if (p->kind != FWD || p->n_pieces > 1 || p->add) return false;
    if (prod_mid(d, p)) return true;
    if (p->at) {
        const int64_t mean = p->rows / p->E;
        if (mean > FEW_EACH) return false;
        if (mean <= FEW_EACH / 2 && cu(d)->noting && cu(d)->known == p->at) {
            p->rows <= 8 ? few_early<64, 8, 2, true>(d, p) : few_early<64, 16, 2, true>(d, p);
            return true;
        }
        mean <= FEW_EACH / 2 ? few_out<64, 16, 2, true>(d, p) : few_out<64, 32, 2, true>(d, p);
        return true;
    }
    if (p->rows > FEW_ROWS) return false;
    if (prod_one(d, p) || few_at_once(d, p)) return true;
    /* As narrow as makes all blocks busy; but with more tokens wide ones, which read those less often.  Long stages are
     * waited for less often: 2048 x 4096 by one row takes 8.8 us, with tiles of 32 and short stages 11.4. */
    const int64_t slots = 2 * blocks_at_once(d), cols = p->N * p->E;
    if (cols <= 8 * slots && p->rows <= 8) few_out<16, 8, 8, false>(d, p);
    else if (cols > 8 * slots && cols <= 16 * slots) few_rows<16, 4>(d, p);
    else if (cols <= 32 * slots) p->rows <= 8 ? few_out<32, 8, 4, false>(d, p) : few_rows<32, 2>(d, p);
    else few_rows<64, 2>(d, p);
    return true;
}

/* ---- a float32 operand beside a bf16 one (the router's gradients, a float32 router) ---------------------------- */
/* A float32 is the sum of three bf16, exactly, but for numbers near the ends of the range: its copy has its
 * smallest parts first, then the middle, then the largest, and the sum goes on over all three while the other
 * operand is read three times.  DW adds three sums. Only where the device computes in bf16: else chains, as
 * op/cpu. */
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
typedef struct {
    bool a, side;
    int64_t rows, cols, wide, ld, part;
    size_t bytes;
} Three; /* side: parts side by side, else one below the other */
static Three split_of(const Prod *p) {
    Three s = { p->ta == DT_F32 };
    s.side = p->kind == FWD || (p->kind == DX && s.a);
    s.rows = s.a || p->kind == DW ? p->rows : (p->kind == FWD ? p->N : p->K) * p->E;
    s.cols = s.a ? (p->kind == DW ? p->M : p->K) : p->kind == FWD ? p->K : p->N;
    s.wide = s.side ? (s.cols + 63) / 64 * 64 : (s.cols + 7) / 8 * 8;
    s.ld = s.side ? 3 * s.wide : s.wide, s.part = s.side ? s.wide : s.rows * s.wide;
    s.bytes = arena_round((size_t)(3 * s.rows * s.wide) * 2);
    return s;
}
/* FWD, DX: the whole.  DW: its i-th part. */
static Prod split_prod(const Prod *p, const Three *s, const bf16 *parts, int i) {
    Prod q = *p;
    if (p->kind == DW) parts += i * s->part;
    if (s->a) q.ta = DT_BF16, q.a = parts, q.lda = s->ld;
    else q.tb = DT_BF16, q.b = parts, q.ldb = s->ld, q.step_b = p->kind == DW ? 0 : s->rows / p->E * s->ld;
    if (p->kind == DW) return q;
    q.K = q.cut[1] = 3 * (int)s->wide;
    *(s->a ? &q.kb : &q.ka) = p->K, *(s->a ? &q.ka : &q.kb) = q.K, *(s->a ? &q.wrap_b : &q.wrap_a) = s->wide;
    return q;
}
static bool prod_splits(const Dev *d, const Prod *p) {
    if (d->act != DT_BF16 || p->ta == p->tb || p->n_pieces > 1 || p->add || (!p->at && p->E > 1)) return false;
    const Three s = split_of(p);
    if (p->kind == DX && !s.a) return false; /* float32 weights of a gradient: none that is asked for */
    if (!s.a && p->kind != DW && p->E > 1 && p->step_b != s.rows / p->E * p->ldb) return false;
    const Prod q = split_prod(p, &s, (const bf16 *)0, 0);
    return prod_fast(&q);
}
/* A small DW over many rows (the router's) would be one wave of a few tiles: its rows are cut into pieces, each summed
 * for itself, and dw += the chain over parts, smallest first, and pieces. */
enum { PIECE_ROWS = 1024 };
static int64_t pieces_of(const Prod *p) {
    return p->kind == DW && !p->at && p->E == 1 && p->rows >= 2 * PIECE_ROWS && p->M * p->N <= 1 << 20
               ? (p->rows + PIECE_ROWS - 1) / PIECE_ROWS
               : 0;
}
static size_t pieces_bytes(const Prod *p) { return arena_round((size_t)(3 * pieces_of(p) * p->M * p->N) * 4); }
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
        prod_gemm(d, &q);
        if (n == all) continue;
        rest.a = (const bf16 *)rest.a + n * q.step_a, rest.b = (const bf16 *)rest.b + n * q.step_b;
        rest.rows -= n * PIECE_ROWS, rest.c = sums + (i * all + n) * each, rest.ldc = p->N, rest.first = true;
        prod_gemm(d, &rest);
    }
    launch(d, add_pieces, dim3(blocks_of(each, 256)), dim3(256), 0, Rows<float>{ (float *)p->c, p->ldc }, sums, p->M,
           p->N, 3 * all);
}
static void split_run(Dev *d, const Prod *p) {
    const Three s = split_of(p);
    const size_t mark = arena_mark(&d->tmp);
    bf16 *parts = (bf16 *)arena_push(&d->tmp, s.bytes);
    const Rows<const float> from = { (const float *)(s.a ? p->a : p->b), s.a ? p->lda : p->ldb };
    launch(d, split_rows, dim3(blocks_of(s.rows * s.wide, 1024)), dim3(256), 0, parts, from, s.rows, s.cols, s.wide,
           s.ld, s.part);
    if (pieces_of(p)) split_pieces(d, p, &s, parts);
    else for (int i = 0; i < (p->kind == DW ? 3 : 1); i++) {
        const Prod q = split_prod(p, &s, parts, i);
        if (!prod_few(d, &q)) prod_gemm(d, &q);
    }
    arena_pop(&d->tmp, mark);
}

/* ---- widths that are no multiples of 8, by rows that are 16 bytes apart (a tower's 3420 columns) ----------------- */
/* The copy engine brings zeros for columns past the end, and what lies there is not written.  Weights lie as they do on
 * disk, without gaps: they are copied to rows that the copy engine takes, which costs some percent of a product with
 * many rows. */
static bool prod_padded(const Dev *d, const Prod *p) {
    return d->act == DT_BF16 && prod_is_bf16(p) && !prod_fast(p) && !p->at && p->E == 1 && p->n_pieces == 1 && !p->add
           && !p->n1 && aligned(p->a, p->ta, p->lda, 0) && aligned(p->c, p->tc, p->ldc, 0) && p->N > 0
           && p->rows < (int64_t)1 << 31 && (p->kind == DW ? p->M > 0 && aligned(p->b, p->tb, p->ldb, 0) : p->K > 0);
}
static Prod padded_of(const Prod *p, int64_t *rows, int64_t *cols) { /* of b: 0 where it lies well */
    Prod q = *p;
    *rows = *cols = 0;
    if (aligned(p->b, p->tb, p->ldb, 0)) return q;
    *rows = p->kind == FWD ? p->N : p->K, *cols = p->kind == FWD ? p->K : p->N;
    q.ldb = (*cols + 7) / 8 * 8;
    return q;
}
static size_t padded_bytes(const Prod *p) {
    int64_t rows, cols;
    const Prod q = padded_of(p, &rows, &cols);
    return (size_t)(rows * q.ldb) * 2;
}
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
static void padded_run(Dev *d, const Prod *p) {
    int64_t rows, cols;
    Prod q = padded_of(p, &rows, &cols);
    const size_t mark = arena_mark(&d->tmp);
    if (rows) {
        const bf16 *from = (const bf16 *)p->b;
        q.b = arena_push(&d->tmp, padded_bytes(p));
        launch(d, pad_rows, dim3(blocks_of(rows * q.ldb / 4, 1024)), dim3(256), 0, (uint2 *)q.b, from, rows, cols,
               q.ldb, p->ldb, (uintptr_t)from % 8 == 0 && p->ldb % 4 == 0);
    }
    if (!prod_few(d, &q)) prod_gemm(d, &q);
    arena_pop(&d->tmp, mark);
}

/* ---- who computes it ------------------------------------------------------------------------------------------- */
const char *prod_by(const Dev *d, const Prod *p) {
    return prod_fast(p)        ? "tensor cores"
           : prod_splits(d, p) ? "tensor cores, three parts"
           : prod_padded(d, p) ? "tensor cores, padded"
                               : "plain";
}
size_t prod_tmp(const Dev *d, const Prod *p) {
    if (prod_fast(p)) return prod_gemm_tmp(p);
    return prod_splits(d, p)   ? split_of(p).bytes + pieces_bytes(p) + prod_gemm_tmp(p)
           : prod_padded(d, p) ? arena_round(padded_bytes(p))
                               : 0;
}
void prod_run(Dev *d, const Prod *p) {
    if (p->E == 0 || p->N == 0 || (p->rows == 0 && p->kind != DW)) return;
    if (p->rows == 0) return;                                            /* a gradient over no rows adds nothing */
    if (prod_splits(d, p)) split_run(d, p);
    else if (prod_padded(d, p)) padded_run(d, p);
    else if (!prod_fast(p)) prod_plain(d, p);
    else if (!prod_few(d, p)) prod_gemm(d, p);
}

template <int BN, int XR, int KB, bool SWAP> static cudaError_t allow_few(void) {
    const int n = FewShape<BN, XR, KB>::SMEM;
    cudaError_t e =
        cudaFuncSetAttribute(few<BN, XR, KB, SWAP, bf16, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, n);
    return e ? e
             : cudaFuncSetAttribute(few<BN, XR, KB, SWAP, float, false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    n);
}
template <int BN, int XR, int KB, bool SWAP> static cudaError_t allow_early(void) {
    const int n = FewShape<BN, XR, KB, true>::SMEM;
    cudaError_t e =
        cudaFuncSetAttribute(few<BN, XR, KB, SWAP, bf16, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, n);
    return e ? e
             : cudaFuncSetAttribute(few<BN, XR, KB, SWAP, float, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, n);
}
template <int BN, int KB> static cudaError_t allow_few_rows(void) {
    cudaError_t e = allow_few<BN, 8, KB, false>();
    e = e ? e : allow_few<BN, 16, KB, false>();
    e = e ? e : allow_few<BN, 32, KB, false>();
    e = e ? e : allow_few<BN, 48, 2, false>();
    return e ? e : allow_few<BN, 64, 2, false>();
}
template <int KIND, int BN, bool FOLD> static cudaError_t allow_outs(void) {
    cudaError_t e = allow_gemm<KIND, BN, OutBf16, FOLD>();
    return e ? e : allow_gemm<KIND, BN, OutF32, FOLD>();
}
bool prods_open(Dev *d, Err *err) {
    Prods *s = cu(d)->prods = MEM_NEW(&d->mem, Prods);
    cudaDriverEntryPointQueryResult q;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&s->encode, 12000, cudaEnableDefault, &q);
    if (e != cudaSuccess || !s->encode)
        return err_set(err, "the driver knows no tensor maps (%s)", cudaGetErrorString(e));
    if (TAKEN) {
        CU(cudaMalloc((void **)&s->taken, sizeof(int)));
        CU(cudaMemsetAsync(s->taken, 0, sizeof(int), stream_of(d)));
    }
    cudaError_t all[] = { allow_outs<FWD, 32, false>(),
                          allow_outs<FWD, 64, false>(),
                          allow_outs<FWD, 128, false>(),
                          allow_outs<FWD, 256, false>(),
                          allow_outs<FWD, 128, true>(),
                          allow_outs<FWD, 256, true>(),
                          allow_outs<DX, 128, false>(),
                          allow_outs<DX, 256, false>(),
                          allow_outs<DX, 128, true>(),
                          allow_outs<DX, 256, true>(),
                          dw_allow(),
                          allow_few<64, 16, 2, true>(),
                          allow_few<64, 32, 2, true>(),
                          allow_early<16, 8, 8, false>(),
                          allow_early<40, 8, 4, false>(),
                          allow_early<48, 8, 4, false>(),
                          allow_early<56, 8, 4, false>(),
                          allow_early<64, 16, 2, true>(),
                          allow_early<64, 8, 2, true>(),
                          allow_few<16, 8, 8, false>(),
                          allow_few<32, 8, 4, false>(),
                          allow_few_rows<16, 4>(),
                          allow_few_rows<32, 2>(),
                          allow_few_rows<64, 2>(),
                          head_allow(),
                          head_back_allow(),
                          fused_allow(),
                          mid_allow() };
    for (size_t i = 0; i < COUNT(all); i++)
        if (all[i] != cudaSuccess) return err_set(err, "shared memory for products: %s", cudaGetErrorString(all[i]));
    return true;
}
void prods_close(Dev *d) {
    if (cu(d)->prods && cu(d)->prods->taken) CU(cudaFree(cu(d)->prods->taken));
    cu(d)->prods = NULL;
}
