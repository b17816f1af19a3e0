/* fused_rows.cu - row by row, more than one op of the list at once (op_fused_list.h), each with the bits of its parts:
 * what a part would have written is rounded as it would be, and sums have the order of rows.cu. */
#include "op/cuda/eights.cuh"

extern "C" {
#include "op/op_fused.h"
}

bool cuda_add_rmsnorm(Dev *d, Tensor sum, Tensor y, Tensor rstd, Tensor a, Tensor b, Tensor g, float eps);
bool cuda_norm_rope2(Dev *d, const NormRope *q, const NormRope *k, Tensor cossin, float eps);

/* ---- sum = a + b, y = sum normed: a team a row, as norm_k -------------------------------------------------------- */
typedef struct {
    int64_t rows, cols;
    float eps;
    Any sum, y, a, b, g;
    Rows<float> rstd;
} AddNorm;
template <class K> static __global__ void add_norm_k(int team, AddNorm p) {
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

/* ---- heads normed and turned: eight columns a thread, half a head's threads away lies what they turn with -------- */
typedef struct {
    Any y, raw, g;
    Rows<float> rstd;
    int64_t rows; /* tokens x heads */
    int heads;
} Heads;
typedef struct {
    Heads q, k;
    Any cs;
    int width;
    float eps;
} Turn;
static __global__ void __launch_bounds__(ROW_THREADS) norm_rope_k(int team, Turn p) {
    Team m = team_of(team);
    const bool is_q = m.row < p.q.rows;
    const Heads &h = is_q ? p.q : p.k;
    const int64_t row = is_q ? m.row : m.row - p.q.rows;
    const unsigned t = (unsigned)row / (unsigned)h.heads; /* rows are fewer than 2^31, and long division is long */
    const int at = (int)((unsigned)row - t * (unsigned)h.heads) * p.width + 8 * m.me;
    const bool mine = row < h.rows;
    const int half = p.width / 2;
    float v[8] = { 0 }, sum = 0, g[8], co[8], si[8];
    if (mine) {
        load8(v, h.raw, t, at, 8, true);
#pragma unroll
        for (int k = 0; k < 8; k++) sum = __fmaf_rn(v[k], v[k], sum);
    }
    sum = team_sum(team, sum);
    const float rstd = 1.0f / sqrtf(sum / (float)p.width + p.eps);
    if (mine) {
        if (m.me == 0 && h.rstd.at) *h.rstd.row(row) = rstd;
        load8(g, h.g, 0, 8 * m.me, 8, true);
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = v[k] * rstd * g[k];
        keep8(v, h.y.half);
        const int c = 8 * m.me % half;
        load8(co, p.cs, t, c, 8, true), load8(si, p.cs, t, half + c, 8, true);
    }
    const bool low = 8 * m.me < half;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const float o = __shfl_xor_sync(0xFFFFFFFFu, v[k], team / 2);
        v[k] = v[k] * co[k] + o * (low ? -si[k] : si[k]);
    }
    if (mine) store8(h.y, t, at, 8, true, v);
}
static bool fits(const NormRope *n) {
    const RopeShape s = n->s;
    return !s.pairs && s.from == 0 && s.dim == s.width && (s.width == 64 || s.width == 128 || s.width == 256)
           && wide_all(s.width, n->y, n->raw, n->g);
}
static Heads heads_of(const NormRope *n) {
    return {
        any_of(n->y), any_of(n->raw), any_of(n->g), rows_of<float>(n->rstd), n->raw.rows * n->s.heads, n->s.heads
    };
}
bool cuda_norm_rope2(Dev *d, const NormRope *q, const NormRope *k, Tensor cossin, float eps) {
    if (!fits(q) || !fits(k) || q->s.width != k->s.width || !wide_all(8, cossin)) return false;
    if (q->raw.rows * (q->s.heads + k->s.heads) >= (int64_t)1 << 31) return false;
    Turn p = { heads_of(q), heads_of(k), any_of(cossin), q->s.width, eps };
    launch_teams(d, norm_rope_k, p.q.rows + p.k.rows, q->s.width, p);
    return true;
}
