/* head_back.cu - the head's gradients, in chunks of rows and of ids: logits once more, their gradients, then two
 * products. bf16: the gradients come where the product leaves its sums, or from those that logprob kept, and are bf16;
 * their sums over ids stay float32 until the row is whole. */
#include "op/cuda/sm90/gemm_go.cuh"
#include "op/cuda/sm90/head.cuh"

/* Ids of a chunk: its gradient's tiles are eight for each of 132 blocks (of 2048 columns), and the sum over ids, which
 * is read and written by each chunk, is so nine times in a vocabulary of 150,000. */
enum { BACK_ROWS = 16384, BACK_COLS = 132 * 128 };

/* dl = -(p (dlp + dent (log p + ent))) / temperature with p = e^(l - max) / z; the chosen id has 'plus' beside: its own
 * dlp.  With t = log2 p, which is the sum times c plus d, that is 2^t (t a + b).  partial: some ids are outside.  Of a
 * row without a distribution the entropy is NaN, and b with it. */
typedef struct { float a, b, c, d, inv_temp, plus; int id; bool partial; } RowGrad;
__global__ void row_grads(RowGrad *g, const HeadIn a, Rows<const unsigned char> stat, Col<float> dlp, Col<float> dent,
                          int64_t n) {
    const int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    HeadRow r;
    memcpy(&r, stat.row(t), sizeof r);
    const double z = (double)r.z / HEAD_ONE, log2e = 1.4426950408889634, e = dent.get(t, 0.0f),
                 f = r.chosen ? dlp.get(t, 0.0f) : 0.0f;
    g[t] = { (float)(-r.inv_temp * e / log2e),
             (float)(-r.inv_temp * (f + e * head_ent(r))),
             (float)(r.inv_temp * log2e),
             (float)(-(r.max + head_log(z)) * log2e),
             r.inv_temp,
             (float)(f * r.inv_temp),
             r.chosen ? a.ids.get(t, -1) - (int)a.first : -1,
             r.cut != CUT_NONE || r.ban };
}
/* Is id v, whose shaped logit is l, outside the row's distribution?  Not inlined: seldom asked, and an epilogue
 * has no registers to spare. */
static __device__ __noinline__ bool hidden(const HeadIn *a, const unsigned char *stat, int64_t t, float l, int64_t v) {
    const HeadRow &r = *(const HeadRow *)stat;
    if (r.ban && a->banned && bit_of(a->banned, v)) return true;
    if (r.cut == CUT_GIVEN) return !bit_of(a->kept + t * a->ld_kept, v);
    return r.cut == CUT_FOUND && !head_kept(r, l, r.qmin > 0 ? head_mass(l, r.max) : 0, v);
}
DEV float logit_grad(float sum, const RowGrad &g) {             /* -inf: hidden, 0 */
    const float t = fmaxf(__fmaf_rn(sum, g.c, g.d), -200.0f);
    return __fmul_rn(exp2_fast(t), __fmaf_rn(t, g.a, g.b));
}
/* Logits of rows t0.. and ids v0.. become their gradients where they lie. */
__global__ void __launch_bounds__(256)
    logit_grads(float *logits, int64_t ld, const __grid_constant__ HeadIn a, const RowGrad *grads,
                Rows<const unsigned char> stat, int64_t t0, int64_t v0, int64_t n) {
    const int64_t t = t0 + blockIdx.y;
    const RowGrad g = grads[t];
    for (int64_t c = (int64_t)blockIdx.x * 1024 + threadIdx.x; c < n && c < ((int64_t)blockIdx.x + 1) * 1024;
         c += 256) {
        float *at = logits + blockIdx.y * ld + c, l = *at;
        if (g.partial && hidden(&a, stat.row(t), t, __fmul_rn(l, g.inv_temp), v0 + c)) l = -INFINITY;
        l = logit_grad(l, g);
        *at = v0 + c == g.id ? __fadd_rn(l, g.plus) : l;
    }
}
/* ... from the product's sums, as bf16 */
struct OutGrad {
    static constexpr int SPACE = OutBf16::SPACE;
    static constexpr bool ADD = false;
    OutBf16        out;
    HeadIn         a;
    const RowGrad *grads;
    Rows<const unsigned char> stat;
    int64_t        t0, v0;
    template <int N> __device__ __forceinline__ void put(float (&v)[N], const Gemm &p, const Place &t) const {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = min(t.row + t.warp * 16 + t.lane / 4 + 8 * h, t.row_end - 1), c0 = t.n0 + t.lane % 4 * 2;
            const RowGrad g = grads[t0 + r];
            if (g.partial)
                #pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    float &l = v[i / 2 * 4 + h * 2 + i % 2];
                    if (hidden(&a, stat.row(t0 + r), t0 + r, __fmul_rn(l, g.inv_temp), v0 + c0 + i / 2 * 8 + i % 2))
                        l = -INFINITY;
                }
            #pragma unroll
            for (int i = 0; i < N / 2; i++) {
                float &l = v[i / 2 * 4 + h * 2 + i % 2];
                l = logit_grad(l, g);
            }
            const int id = g.id - (int)v0 - c0;
            if ((unsigned)id < 2 * N) /* in one tile of hundreds */
                #pragma unroll
                for (int i = 0; i < N / 2; i++)
                    if (i / 2 * 8 + i % 2 == id)
                        v[i / 2 * 4 + h * 2 + i % 2] = __fadd_rn(v[i / 2 * 4 + h * 2 + i % 2], g.plus);
        }
        out.put(v, p, t);
    }
};
/* ... from sums that were kept: the same bits.  Eight ids a thread. */
__global__ void __launch_bounds__(256)
    kept_grads(bf16 *to, int64_t ld, const float *logits, int64_t ld_logits, const __grid_constant__ HeadIn a,
               const RowGrad *grads, Rows<const unsigned char> stat, int64_t t0, int64_t v0, int64_t n) {
    const int64_t t = t0 + blockIdx.y, c = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 8;
    if (c >= n) return;
    const RowGrad g = grads[t];
    const float4 *from = (const float4 *)(logits + t * ld_logits + v0 + c), x = __ldcs(from), y = __ldcs(from + 1);
    float v[8] = { x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w };
    const int64_t id = g.id - v0 - c;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        if (g.partial && hidden(&a, stat.row(t), t, __fmul_rn(v[i], g.inv_temp), v0 + c + i)) v[i] = -INFINITY;
        v[i] = logit_grad(v[i], g);
        if (i == id) v[i] = __fadd_rn(v[i], g.plus);
    }
    *(uint4 *)(to + blockIdx.y * ld + c) =
        make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
}
cudaError_t head_back_allow(void) { return allow_gemm<FWD, 256, OutGrad, false>(); }

typedef struct { int64_t rows, cols, ld; bool half, fused; size_t logits, grads, sum, row; } Back;
static Back back_of(const Head *h, Tensor dh) {
    Back b = { least(h->h.rows, BACK_ROWS), least(h->w.rows, BACK_COLS) };
    b.ld = round8(b.cols), b.half = h->h.dtype == DT_BF16 && h->w.dtype == DT_BF16;
    const Prod p = prod_nt({ (void *)(uintptr_t)ARENA_ALIGN, DT_F32, b.rows, b.ld, b.ld }, h->h, h->w, TENSOR_NONE,
                           leaves_one(h->h.cols));
    b.fused = h->w.rows % 8 == 0 && !head_odd(head_words(h)) && prod_fast(&p);
    b.logits = b.fused ? 0 : arena_round((size_t)(b.rows * b.ld) * 4);
    b.grads = b.half ? arena_round((size_t)(b.rows * b.ld) * 2) : 0;
    b.sum = dh.dtype == DT_F32 ? 0 : arena_round((size_t)(b.rows * dh.cols) * 4);
    b.row = arena_round((size_t)h->h.rows * sizeof(RowGrad));
    return b;
}
bool head_keeps(const Head *h) {
    return h->logits.data && h->logits.ld % 4 == 0 && !may_cut(&h->dist) && h->h.rows && h->w.rows
           && back_of(h, h->h).fused;
}
static size_t most(size_t a, size_t b) { return a > b ? a : b; }
size_t cuda_tmp_logprob_bwd(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h) {
    (void)dlp, (void)dent;
    if (h->w.rows == 0) return 0;
    const Back b = back_of(h, dh);
    /* one chunk's products, by any tensors of their shapes and types: what they take themselves */
    const Tensor x = tensor_rows(h->h, 0, b.rows), w = tensor_rows(h->w, 0, b.cols);
    void *some = (void *)(uintptr_t)ARENA_ALIGN;
    const Tensor l = { some, DT_F32, b.rows, b.cols, b.ld };
    const Tensor g = { some, b.half ? DT_BF16 : DT_F32, b.rows, b.cols, b.ld };
    const Tensor to = { b.sum ? some : dh.data, DT_F32, b.rows, dh.cols, b.sum ? dh.cols : dh.ld };
    const Prod nt = prod_nt(l, x, w, TENSOR_NONE, leaves_one(x.cols)), nn = prod_nn(to, g, w, leaves_one(b.cols));
    size_t own = most(b.fused ? 0 : prod_tmp(d, &nt), prod_tmp(d, &nn));
    if (dw.data) {
        const Prod tn = prod_tn(tensor_rows(dw, 0, b.cols), g, x);
        own = most(own, prod_tmp(d, &tn));
    }
    return head_ban_bytes(h->banned, h->ban, head_words(h)) + b.logits + b.grads + b.sum + b.row + own;
}
static void back(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h, bool first) {
    const int64_t T = h->h.rows, V = h->w.rows;
    const Back b = back_of(h, dh);
    const bool kept = head_keeps(h);
    if (T == 0) return;
    if (V == 0) { /* a part without ids */
        cuda_zero(d, dh);
        return;
    }
    CHECK((uintptr_t)h->stat.data % 8 == 0 && h->stat.ld % 8 == 0, "logprob_bwd: stat's rows are %ld bytes apart",
          (long)h->stat.ld);
    const size_t mark = arena_mark(&d->tmp);
    const HeadIn a = head_of(d, h);
    float *logits = b.logits ? (float *)arena_push(&d->tmp, b.logits) : NULL,
          *sum = b.sum ? (float *)arena_push(&d->tmp, b.sum) : NULL;
    void *grads = b.grads ? arena_push(&d->tmp, b.grads) : logits;
    RowGrad *row = (RowGrad *)arena_push(&d->tmp, b.row);
    const Rows<const unsigned char> stat = rows_of<const unsigned char>(h->stat);
    launch(d, row_grads, dim3(blocks_of(T, 128)), dim3(128), 0, row, a, stat, col_of<float>(dlp), col_of<float>(dent),
           T);
    for (int64_t t = 0, n; t < T; t += n) {
        n = least(b.rows, T - t);
        const Tensor x = tensor_rows(h->h, t, n), dx = tensor_rows(dh, t, n);
        const Tensor to = sum ? Tensor{ sum, DT_F32, n, dh.cols, dh.cols } : dx;
        for (int64_t v = 0, c; v < V; v += c) {
            c = least(b.cols, V - v);
            const Tensor w = tensor_rows(h->w, v, c), l = { logits, DT_F32, n, c, b.ld };
            const Tensor g = { grads, b.half ? DT_BF16 : DT_F32, n, c, b.ld };
            Prod p = prod_nt(l, x, w, TENSOR_NONE, leaves_one(x.cols));
            if (kept)
                launch(d, kept_grads, dim3(blocks_of(c, 2048), (unsigned)n), dim3(256), 0, (bf16 *)grads, b.ld,
                       (const float *)h->logits.data, h->logits.ld, a, row, stat, t, v, c);
            else if (b.fused)
                gemm_go<FWD, 256, OutGrad, false>(d, &p,
                                                  { { (bf16 *)grads, b.ld, 0, { NULL, false } }, a, row, stat, t, v });
            else {
                head_logits(d, &p, a.all);
                launch(d, logit_grads, dim3(blocks_of(c, 1024), (unsigned)n), dim3(256), 0, logits, b.ld, a, row, stat,
                       t, v, c);
                if (b.half) cuda_copy(d, g, l);
            }
            p = prod_nn(to, g, w, leaves_one(c));
            p.add = v > 0;
            prod_run(d, &p);
            if (!dw.data) continue;
            p = prod_tn(tensor_rows(dw, v, c), g, x);
            p.first = first && t == 0;
            prod_run(d, &p);
        }
        if (sum) cuda_copy(d, dx, to);
    }
    arena_pop(&d->tmp, mark);
}
void cuda_logprob_bwd(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h) {
    back(d, dh, dw, dlp, dent, h, false);
}
bool cuda_logprob_bwd_first(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h) {
    if (!dw.data || h->h.rows == 0 || h->w.rows == 0) return false;
    const Back b = back_of(h, dh);
    const Tensor g = { (void *)(uintptr_t)ARENA_ALIGN, DT_BF16, b.rows, b.cols, b.ld };
    const Prod tn = prod_tn(tensor_rows(dw, 0, b.cols), g, tensor_rows(h->h, 0, b.rows));
    if (!b.fused || !prod_fast(&tn)) return false; /* gemm.cuh alone writes */
    back(d, dh, dw, dlp, dent, h, true);
    return true;
}
