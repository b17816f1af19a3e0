/* fused_rows.cu - row by row, more than one op of the list at once (op_fused_list.h), each with the bits of its parts:
 * what a part would have written is rounded as it would be, and sums have the order of rows.cu. */
#include "op/cuda/common/attn.h"
#include "op/cuda/common/eights.cuh"

/* Few rows wait for one thing after the other.  What the kernel before does not make may be on its way to the cache;
 * and a kernel whose instructions are far away takes twice as long, so it goes through them once before there is
 * anything to do: a rehearsal, which reads a norm's weights instead, since what it reads stays in the multiprocessor's
 * own cache, and writes nothing.  early: nobody writes weights meanwhile. */
__device__ __forceinline__ void ask_for(const Any &x, int64_t c) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(x.at + c * (x.half ? 2 : 4)));
}

/* ---- sum = a + b, y = sum normed: a team a row, as norm_k -------------------------------------------------------- */
typedef struct {
    int64_t rows, cols;
    float eps;
    Any sum, y, a, b, g;
    Rows<float> rstd;
} AddNorm;
template <class K> static __global__ void add_norm_k(int team, AddNorm p) {
    if (8 * threadIdx.x < p.cols) ask_for(p.g, 8 * threadIdx.x);
    Team m = team_of(team);
    bool mine = m.row < p.rows;
    float v[K::N][8], sum = 0;
#pragma unroll
    for (int i = 0; i < K::N; i++) {
        int64_t c = 8 * (int64_t)(m.me + i * m.n);
        if (mine && c < p.cols) {
            float u[8];
            load8(v[i], p.a, m.row, c, 8, true), load8(u, p.b, m.row, c, 8, true);
#pragma unroll
            for (int k = 0; k < 8; k++) v[i][k] += u[k];
            keep8(v[i], p.sum.half);
            store8(p.sum, m.row, c, 8, true, v[i]);
#pragma unroll
            for (int k = 0; k < 8; k++) sum = __fmaf_rn(v[i][k], v[i][k], sum);
        }
    }
    sum = team_sum(team, sum);
    float rstd = 1.0f / sqrtf(sum / (float)p.cols + p.eps), g[8];
    if (mine && m.me == 0 && p.rstd.at) *p.rstd.row(m.row) = rstd;
#pragma unroll
    for (int i = 0; i < K::N; i++) {
        int64_t c = 8 * (int64_t)(m.me + i * m.n);
        if (mine && c < p.cols) {
            load8(g, p.g, 0, c, 8, true);
#pragma unroll
            for (int k = 0; k < 8; k++) v[i][k] = v[i][k] * rstd * g[k];
            store8(p.y, m.row, c, 8, true, v[i]);
        }
    }
}
bool cuda_add_rmsnorm(Dev *d, Tensor sum, Tensor y, Tensor rstd, Tensor a, Tensor b, Tensor g, float eps) {
    bool kept = false;
    if (!wide_all(sum.cols, sum, y, a, b, g)) return false;
    AddNorm p = {
        sum.rows, sum.cols, eps, any_of(sum), any_of(y), any_of(a), any_of(b), any_of(g), rows_of<float>(rstd)
    };
    with_kept(sum.cols, [&](auto k) {
        if constexpr (decltype(k)::KEEPS) launch_teams(d, add_norm_k<decltype(k)>, sum.rows, sum.cols, p), kept = true;
    });
    return kept; /* a row too long for registers would be read again: nothing is won */
}

/* ---- sum = a + what a token's experts return, y = sum normed: few tokens, a block a row -------------------------- */
/* bf16 alone, and one eight of columns a thread: a step of decoding waits for this kernel's instructions too. */
typedef struct {
    int64_t rows, cols, theirs;
    int k;
    float eps;
    Rows<bf16> sum, y;
    Rows<const bf16> a, x;
    Any g;
    Rows<const int32_t> slot;
    Rows<const float> w;
    volatile Fault *fault;
    bool early;
} Gather;
enum { GATHER_AT_ONCE = 8, GATHER_ROWS = 64 };
__device__ __forceinline__ void halves(float (&v)[8], const uint4 &u) {
    const unsigned w[4] = { u.x, u.y, u.z, u.w };
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[2 * i] = __uint_as_float(w[i] << 16), v[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
}
__device__ __forceinline__ uint4 halved(const float (&v)[8]) {
    unsigned w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = (unsigned)bf16_bits(v[2 * i]) | (unsigned)bf16_bits(v[2 * i + 1]) << 16;
    return make_uint4(w[0], w[1], w[2], w[3]);
}
static __global__ void __launch_bounds__(ROW_THREADS) gather_norm_k(Gather p) {
    const int c = 8 * threadIdx.x;
    const int64_t row = blockIdx.x;
    const bool mine = c < p.cols;
    pdl_let_next();
    for (int real = !p.early; real < 2; real++) {
        if (real) pdl_wait();
        const bf16 *other = (const bf16 *)p.g.at, *a_row = real ? p.a.row(row) : other;
        const int32_t *slot = real ? p.slot.row(row) : (const int32_t *)other;
        const float *w = real ? p.w.row(row) : (const float *)other;
        float v[8], e[8], sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = 0;
        uint4 a = make_uint4(0, 0, 0, 0);
        if (mine) a = *(const uint4 *)(a_row + c);
        for (int j0 = 0; j0 < p.k; j0 += GATHER_AT_ONCE) { /* loads first: the sums wait for one another */
            uint4 u[GATHER_AT_ONCE];
            float f[GATHER_AT_ONCE];
            unsigned there = 0;
#pragma unroll
            for (int b = 0; b < GATHER_AT_ONCE; b++) {
                const int s = j0 + b < p.k ? slot[j0 + b] : -1;
                const bool ok = mine && (!real || (s >= 0 && s < p.theirs));
                u[b] = make_uint4(0, 0, 0, 0), f[b] = 0;
                if (ok) u[b] = *(const uint4 *)((real ? p.x.row(s) : other) + c), f[b] = w[j0 + b];
                there |= (unsigned)ok << b;
            }
#pragma unroll
            for (int b = 0; b < GATHER_AT_ONCE; b++) {
                halves(e, u[b]);
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] = there >> b & 1 ? __fmaf_rn(f[b], e[i], v[i]) : v[i];
            }
            if (real && mine && __popc(there) < min(p.k - j0, GATHER_AT_ONCE)) fault_at(p.fault, FAULT_ROW, row);
        }
        halves(e, a);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = as_kept(e[i] + as_kept(v[i], true), true);
        if (mine && real) *(uint4 *)(p.sum.row(row) + c) = halved(v);
#pragma unroll
        for (int i = 0; i < 8; i++) sum = __fmaf_rn(v[i], v[i], sum);
        sum = team_sum(ROW_THREADS, mine ? sum : 0.0f);
        const float rstd = 1.0f / sqrtf(sum / (float)p.cols + p.eps);
        if (mine) load8(e, p.g, 0, c, 8, true);
#pragma unroll
        for (int i = 0; i < 8; i++) v[i] = v[i] * rstd * e[i];
        if (mine && real) *(uint4 *)(p.y.row(row) + c) = halved(v);
    }
}
/* Where a row of norm_k is a block's, with one eight a thread: other widths add in another order. */
bool cuda_combine_add_rmsnorm(Dev *d, Tensor sum, Tensor y, Tensor part, Tensor a, Tensor rows, Tensor slot,
                              Tensor weight, Tensor g, float eps) {
    (void)part;
    if (sum.dtype != DT_BF16 || sum.rows > GATHER_ROWS || team_size(sum.cols) != ROW_THREADS
        || sum.cols > 8 * ROW_THREADS || !wide_all(sum.cols, sum, y, a, rows, g))
        return false;
    Gather p = { sum.rows,
                 sum.cols,
                 rows.rows,
                 (int)slot.cols,
                 eps,
                 rows_of<bf16>(sum),
                 rows_of<bf16>(y),
                 rows_of<const bf16>(a),
                 rows_of<const bf16>(rows),
                 any_of(g),
                 rows_of<const int32_t>(slot),
                 rows_of<const float>(weight),
                 cu(d)->fault,
                 cu(d)->capturing };
    launch_pdl(d, gather_norm_k, dim3((unsigned)sum.rows), ROW_THREADS, 0, p);
    return true;
}

/* ---- heads normed and turned: eight columns a thread, half a head's threads away lies what they turn with -------- */
typedef struct {
    Any y, raw, g;
    Rows<float> rstd;
    int64_t rows; /* tokens x heads */
    int heads;
} Heads;
/* PUT: keys and values go into pages too (kv.cu), by the same threads; tokens are few. */
typedef struct {
    Heads q, k;
    Any cs;
    int width;
    float eps;
    const int *at, *start;
    int n;
    Rows<const bf16> v;
    Pages p;
    bool early;
} Turn;
static __device__ __forceinline__ void put_eight(const Turn &x, int64_t t, int head, int c, uint4 u, bool value,
                                                 bool real) {
    const int lo = seq_of_row(x.at, x.n, t);
    if (lo < 0) return;
    const int *table = x.p.table + lo * x.p.ld_table;
    const int start = x.start[lo], pos = start + (int)(t - x.at[lo]), page = pos / x.p.page, first = page * x.p.page;
    if (page >= x.p.n_table) return fault_at(x.p.fault, FAULT_LENGTH, t);
    if ((unsigned)table[page] >= (unsigned)x.p.n_pages) return fault_at(x.p.fault, FAULT_PAGE, t);
    char *to = value ? x.p.value_at(table, pos, head, c) : x.p.key_at(table, pos, head, c);
    if (!real) return;
    *(uint4 *)to = u;
    if (t + 1 != x.at[lo + 1] || first < start) return;
    const int step = 2 * (value ? x.p.slice_v : x.p.slice_k); /* whoever begins a page leaves zeros behind */
    for (int i = pos + 1; i < first + x.p.page; i++) *(uint4 *)(to + (i - pos) * step) = make_uint4(0, 0, 0, 0);
}
template <bool PUT> static __global__ void __launch_bounds__(ROW_THREADS) norm_rope_k(int team, Turn p) {
    const Team m = { team, (int)threadIdx.x % team,
                     (int64_t)blockIdx.x * (ROW_THREADS / team) + threadIdx.x / team }; /* as team_of, which waits */
    const bool is_q = m.row < p.q.rows;
    const Heads &h = is_q ? p.q : p.k;
    const int64_t row = is_q ? m.row : m.row - p.q.rows;
    const unsigned t = (unsigned)row / (unsigned)h.heads; /* rows are fewer than 2^31, and long division is long */
    const int at = (int)((unsigned)row - t * (unsigned)h.heads) * p.width + 8 * m.me;
    const bool mine = row < h.rows;
    const int half = p.width / 2, c = 8 * m.me % half;
    pdl_let_next();
    for (int real = !p.early; real < 2; real++) {
        if (real) pdl_wait();
        float v[8] = { 0 }, sum = 0, g[8], co[8], si[8];
        if (PUT && !mine && row < 2 * h.rows) { /* values behind the keys, as they are */
            const int64_t r = row - h.rows, to = r / h.heads;
            const int head = (int)(r % h.heads);
            const bf16 *from = real ? p.v.row(to) + head * p.width : (const bf16 *)h.g.at;
            put_eight(p, to, head, 8 * m.me, *(const uint4 *)(from + 8 * m.me), true, real);
        }
        if (mine) {
            load8(v, real ? h.raw : h.g, real ? t : 0, real ? at : 8 * m.me, 8, true);
            load8(g, h.g, 0, 8 * m.me, 8, true);
            const Any &cs = real ? p.cs : h.g;
            load8(co, cs, real ? t : 0, c, 8, true), load8(si, cs, real ? t : 0, half + c, 8, true);
#pragma unroll
            for (int k = 0; k < 8; k++) sum = __fmaf_rn(v[k], v[k], sum);
        }
        sum = team_sum(team, sum);
        const float rstd = 1.0f / sqrtf(sum / (float)p.width + p.eps);
        if (mine) {
            if (real && m.me == 0 && h.rstd.at) *h.rstd.row(row) = rstd;
#pragma unroll
            for (int k = 0; k < 8; k++) v[k] = v[k] * rstd * g[k];
            keep8(v, h.y.half);
        }
        const bool low = 8 * m.me < half;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float o = __shfl_xor_sync(0xFFFFFFFFu, v[k], team / 2);
            v[k] = v[k] * co[k] + o * (low ? -si[k] : si[k]);
        }
        if (mine && real) store8(h.y, t, at, 8, true, v);
        if (PUT && mine && !is_q) put_eight(p, t, (int)(row % h.heads), 8 * m.me, halved(v), false, real);
    }
}
static bool fits(const NormRope *n) {
    const RopeShape s = n->s;
    return !s.pairs && s.from == 0 && s.dim == s.width && (s.width == 64 || s.width == 128 || s.width == 256)
           && wide_all(s.width, n->y, n->raw, n->g);
}
static bool both_fit(const NormRope *q, const NormRope *k, Tensor cossin) {
    return fits(q) && fits(k) && q->s.width == k->s.width && wide_all(8, cossin)
           && q->raw.rows * (q->s.heads + 2 * k->s.heads) < (int64_t)1 << 31; /* the kernel divides 32 bits */
}
static Heads heads_of(const NormRope *n) {
    return {
        any_of(n->y), any_of(n->raw), any_of(n->g), rows_of<float>(n->rstd), n->raw.rows * n->s.heads, n->s.heads
    };
}
bool cuda_norm_rope2(Dev *d, const NormRope *q, const NormRope *k, Tensor cossin, float eps) {
    if (!both_fit(q, k, cossin)) return false;
    Turn p = { heads_of(q), heads_of(k), any_of(cossin), q->s.width, eps };
    launch_teams(d, norm_rope_k<false>, p.q.rows + p.k.rows, q->s.width, p);
    return true;
}
bool cuda_norm_rope_put(Dev *d, const NormRope *q, const NormRope *k, Tensor cossin, float eps, Kv kv, Tensor v,
                        Paged rows) {
    const int width = q->s.width;
    const Pages pages = pages_of(d, &kv, &rows);
    if (!both_fit(q, k, cossin) || v.dtype != DT_BF16 || v.rows > GATHER_ROWS || kv.latent || kv.dk != width
        || kv.dv != width || kv.kv_heads != k->s.heads || pages.es != 2 || pages.page_bytes % 16 || pages.slice_k % 8
        || pages.slice_v % 8 || !wide_all(width, v))
        return false;
    Turn p = { heads_of(q), heads_of(k), any_of(cossin), width, eps };
    p.at = (const int *)rows.rows.at.data, p.start = (const int *)rows.start.data, p.n = rows.rows.n;
    p.v = rows_of<const bf16>(v), p.p = pages, p.early = cu(d)->capturing;
    launch_teams(d, norm_rope_k<true>, p.q.rows + 2 * p.k.rows, width, p);
    return true;
}
