/* norm_bwd.cu - backward of norms: over rows, with a gradient that is added, and over heads that were turned
 * (op_fused_list.h: those have the bits of their parts).  A gain's gradient is a sum over all rows: in runs, each of
 * one order, and then over the runs. */
#include "op/cuda/common/eights.cuh"

typedef struct {
    int64_t rows, cols;
    bool wide;
    Any dx, x, g, dy;
    Rows<float> rstd;
    Any more;                           /* added to dx where it would be kept; or none */
} Norm;

/* dx = rstd (dz - z mean(dz z)), z = x rstd, dz = g dy; dx may be dy */
template <class K> static __global__ void norm_dx_k(int team, Norm p) {
    Team m = team_of(team);
    bool mine = m.row < p.rows;
    float z[K::N][8], dz[K::N][8], g[8], sum = 0, rstd = mine ? *p.rstd.row(m.row) : 0;
    auto look = [&](float(&a)[8], float(&b)[8], int64_t c) {
        int n = eights_left(p.cols, c);
        load8(a, p.x, m.row, c, n, p.wide), load8(b, p.dy, m.row, c, n, p.wide), load8(g, p.g, 0, c, n, p.wide);
#pragma unroll
        for (int k = 0; k < 8; k++) a[k] *= rstd, b[k] = g[k] * b[k];
    };
    auto write = [&](float(&a)[8], float(&b)[8], int64_t c, float mean) {
#pragma unroll
        for (int k = 0; k < 8; k++) a[k] = rstd * (b[k] - a[k] * mean);
        if (p.more.at) {
            load8(b, p.more, m.row, c, eights_left(p.cols, c), p.wide);
#pragma unroll
            for (int k = 0; k < 8; k++) a[k] = as_kept(a[k], p.dx.half) + b[k];
        }
        store8(p.dx, m.row, c, eights_left(p.cols, c), p.wide, a);
    };
#pragma unroll
    for (int i = 0; i < K::N; i++) {
        int64_t c = 8 * (int64_t)(m.me + i * m.n);
        if (K::KEEPS && mine && c < p.cols) {
            look(z[i], dz[i], c);
#pragma unroll
            for (int k = 0; k < 8; k++) sum = __fmaf_rn(dz[i][k], z[i][k], sum);
        }
    }
    for (int64_t c = 8 * m.me; !K::KEEPS && mine && c < p.cols; c += 8 * m.n) {
        look(z[0], dz[0], c);
#pragma unroll
        for (int k = 0; k < 8; k++) sum = __fmaf_rn(dz[0][k], z[0][k], sum);
    }
    float mean = team_sum(team, sum) / (float)p.cols;
#pragma unroll
    for (int i = 0; i < K::N; i++) {
        int64_t c = 8 * (int64_t)(m.me + i * m.n);
        if (K::KEEPS && mine && c < p.cols) write(z[i], dz[i], c, mean);
    }
    for (int64_t c = 8 * m.me; !K::KEEPS && mine && c < p.cols; c += 8 * m.n)
        look(z[0], dz[0], c), write(z[0], dz[0], c, mean);
}

/* dg += sum over rows of dy x rstd.  A block has a run of rows and up to 2048 columns: where columns are few, several
 * rows at a time, each thread a chain over its rows, then the tree over those.  The runs are added by chains over every
 * 32nd and the tree over those 32. */
enum { DG_EACH = 32, DG_COLS = 32 };                            /* rows of a chain; columns of a block that adds runs */
static int dg_rows(int64_t cols) {                              /* rows at a time: a power of two */
    int y = 1;
    while (2 * y * ((cols + 7) / 8) <= CELL_THREADS) y *= 2;
    return y;
}
static int64_t dg_runs(int64_t rows, int64_t cols) {
    return (rows + DG_EACH * dg_rows(cols) - 1) / (DG_EACH * dg_rows(cols));
}
static __global__ void norm_dg_k(Norm p, float *part, int64_t runs) {
    __shared__ float s[CELL_THREADS * 8];
    int64_t c = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    int n = eights_left(p.cols, c), y = threadIdx.y, ys = blockDim.y, xs = 8 * blockDim.x, x0 = 8 * threadIdx.x;
    bool mine = c < p.cols;
    for (int64_t run = blockIdx.y; run < runs; run += gridDim.y) {
        float sum[8] = { 0 }, x[8], dy[8];
        int64_t r0 = run * DG_EACH * ys + y;
#pragma unroll 4
        for (int i = 0; i < DG_EACH; i++) {
            int64_t r = r0 + (int64_t)i * ys;
            if (!mine || r >= p.rows) continue;
            load8(x, p.x, r, c, n, p.wide), load8(dy, p.dy, r, c, n, p.wide);
            float rstd = *p.rstd.row(r);
#pragma unroll
            for (int k = 0; k < 8; k++) sum[k] = __fmaf_rn(dy[k], x[k] * rstd, sum[k]);
        }
        for (int h = ys / 2; h; h /= 2) {
            __syncthreads();
            for (int k = 0; y >= h && y < 2 * h && k < 8; k++) s[y * xs + x0 + k] = sum[k];
            __syncthreads();
            for (int k = 0; y < h && k < 8; k++) sum[k] += s[(y + h) * xs + x0 + k];
        }
        for (int k = 0; mine && y == 0 && k < n; k++) part[run * p.cols + c + k] = sum[k];
    }
}
static __global__ void norm_dg_sum_k(float *dg, const float *part, int64_t runs, int64_t cols) {
    __shared__ float s[32][DG_COLS];
    int64_t c = (int64_t)blockIdx.x * DG_COLS + threadIdx.x;
    float sum = 0;
#pragma unroll 4
    for (int64_t r = threadIdx.y; r < runs; r += 32)
        if (c < cols) sum += part[r * cols + c];
    s[threadIdx.y][threadIdx.x] = sum;
    for (int h = 16; h; h /= 2) {
        __syncthreads();
        if (threadIdx.y < h) s[threadIdx.y][threadIdx.x] += s[threadIdx.y + h][threadIdx.x];
    }
    if (threadIdx.y == 0 && c < cols) dg[c] += s[0][threadIdx.x];
}
size_t cuda_tmp_rmsnorm_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g) {
    (void)d, (void)dx, (void)dy, (void)rstd, (void)g;
    return dg.data ? (size_t)(dg_runs(x.rows, x.cols) * x.cols) * 4 : 0;
}
/* Both at once, of rows that take a whole block: it has a run's 32 rows, one after the other, and asks for the next one
 * before it adds this one up. */
template <class K> static __global__ void __launch_bounds__(ROW_THREADS, 4 / K::N) norm_both_k(Norm p, float *part) {
    pdl_begin();
    float x[K::N][8], dy[K::N][8], z[K::N][8], dz[K::N][8], more[K::N][8], dg[K::N][8] = { 0 };
    const int64_t r0 = (int64_t)blockIdx.x * DG_EACH, end = r0 + DG_EACH < p.rows ? r0 + DG_EACH : p.rows;
    auto ask = [&](int64_t r) {
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            const int64_t c = 8 * (int64_t)(threadIdx.x + i * ROW_THREADS);
            if (r >= end || c >= p.cols) continue;
            const int n = eights_left(p.cols, c);
            load8(x[i], p.x, r, c, n, p.wide), load8(dy[i], p.dy, r, c, n, p.wide);
        }
    };
    ask(r0);
    for (int64_t r = r0; r < end; r++) {
        float sum = 0, g[8];
        const float rstd = *p.rstd.row(r);
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            const int64_t c = 8 * (int64_t)(threadIdx.x + i * ROW_THREADS);
            if (c >= p.cols) continue;
            const int n = eights_left(p.cols, c);
            load8(g, p.g, 0, c, n, p.wide);
            if (p.more.at) load8(more[i], p.more, r, c, n, p.wide);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                z[i][k] = x[i][k] * rstd, dz[i][k] = g[k] * dy[i][k];
                dg[i][k] = __fmaf_rn(dy[i][k], z[i][k], dg[i][k]);
                sum = __fmaf_rn(dz[i][k], z[i][k], sum);
            }
        }
        ask(r + 1);
        const float mean = team_sum(ROW_THREADS, sum) / (float)p.cols;
#pragma unroll
        for (int i = 0; i < K::N; i++) {
            const int64_t c = 8 * (int64_t)(threadIdx.x + i * ROW_THREADS);
            if (c >= p.cols) continue;
#pragma unroll
            for (int k = 0; k < 8; k++) z[i][k] = rstd * (dz[i][k] - z[i][k] * mean);
            if (p.more.at) {
                keep8(z[i], p.dx.half);
#pragma unroll
                for (int k = 0; k < 8; k++) z[i][k] += more[i][k];
            }
            store8(p.dx, r, c, eights_left(p.cols, c), p.wide, z[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < K::N; i++) {
        const int64_t c = 8 * (int64_t)(threadIdx.x + i * ROW_THREADS);
        for (int k = 0; k < 8 && c + k < p.cols; k++) part[blockIdx.x * p.cols + c + k] = dg[i][k];
    }
}
static void add_runs(Dev *d, Tensor dg, const float *part, int64_t runs, int64_t cols) {
    launch(d, norm_dg_sum_k, dim3(blocks_of(cols, DG_COLS)), dim3(DG_COLS, 32), 0, (float *)dg.data, part, runs, cols);
}
static void norm_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g, Tensor more) {
    Norm p = { x.rows, x.cols, wide_all(x.cols, dx, x, g, dy, more), any_of(dx), any_of(x), any_of(g), any_of(dy),
               rows_of<float>(rstd), any_of(more) };
    if (dg.data && x.rows > 0 && x.cols > 0) {                  /* before dx, which may be dy */
        size_t mark = arena_mark(&d->tmp);
        float *part = (float *)arena_push(&d->tmp, cuda_tmp_rmsnorm_bwd(d, dx, dg, dy, x, rstd, g));
        int64_t runs = dg_runs(x.rows, x.cols), eights = (x.cols + 7) / 8,
                wide = eights < CELL_THREADS ? eights : CELL_THREADS;
        bool both = false;
        if (dx.data && team_size(x.cols) == ROW_THREADS)
            with_kept(x.cols, [&](auto k) {
                if constexpr (decltype(k)::KEEPS && decltype(k)::N <= 2) { /* more would not stay in registers */
                    launch_pdl(d, norm_both_k<decltype(k)>, dim3((unsigned)runs), ROW_THREADS, 0, p, part);
                    both = true;
                }
            });
        if (!both)
            launch(d, norm_dg_k, dim3(blocks_of(eights, wide), (unsigned)(runs < 65535 ? runs : 65535)),
                   dim3((unsigned)wide, (unsigned)dg_rows(x.cols)), 0, p, part, runs);
        add_runs(d, dg, part, runs, x.cols);
        arena_pop(&d->tmp, mark);
        if (both) return;
    }
    if (dx.data) with_kept(x.cols, [&](auto k) { launch_teams(d, norm_dx_k<decltype(k)>, x.rows, x.cols, p); });
}
void cuda_rmsnorm_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g) {
    norm_bwd(d, dx, dg, dy, x, rstd, g, TENSOR_NONE);
}
bool cuda_rmsnorm_bwd_add(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g, Tensor more) {
    norm_bwd(d, dx, dg, dy, x, rstd, g, more);
    return true;
}

/* ---- back: turned, then a norm's backward over heads.  A block has a run of norm_dg_k's rows, in its order -- */
typedef struct {
    Norm n; /* rows are (token, head), and lie as those of tensors [T, heads * width] do */
    Any cs;
    unsigned heads;
} TurnBack;
enum { BACK_AHEAD = 2 };
static __global__ void __launch_bounds__(ROW_THREADS, 3) norm_rope_bwd_k(int team, TurnBack p, float *part) {
    __shared__ float s[ROW_THREADS * 8];
    pdl_begin();
    const int me = threadIdx.x % team, y = threadIdx.x / team, ys = ROW_THREADS / team, c = 8 * me,
              half = (int)p.n.cols / 2, xs = (int)p.n.cols;
    const bool low = c < half;
    const int64_t r0 = (int64_t)blockIdx.x * DG_EACH * ys + y;
    float dg[8] = { 0 }, g[8];
    load8(g, p.n.g, 0, c, 8, true);
#pragma unroll 1
    for (int i0 = 0; i0 < DG_EACH; i0 += BACK_AHEAD) {
        float x[BACK_AHEAD][8] = { 0 }, dy[BACK_AHEAD][8] = { 0 }, rstd[BACK_AHEAD] = { 0 };
#pragma unroll
        for (int i = 0; i < BACK_AHEAD; i++) {
            const int64_t r = r0 + (int64_t)(i0 + i) * ys;
            if (r >= p.n.rows) continue;
            const unsigned t = (unsigned)r / p.heads, h = (unsigned)r - t * p.heads;
            load8(x[i], p.n.x, t, h * xs + c, 8, true), load8(dy[i], p.n.dy, t, h * xs + c, 8, true);
            rstd[i] = *p.n.rstd.row(r);
        }
#pragma unroll
        for (int i = 0; i < BACK_AHEAD; i++) {
            const int64_t r = r0 + (int64_t)(i0 + i) * ys;
            const unsigned t = (unsigned)r / p.heads, h = (unsigned)r - t * p.heads;
            const bool mine = r < p.n.rows;
            float co[8] = { 0 }, si[8] = { 0 }, sum = 0;
            if (mine) load8(co, p.cs, t, c % half, 8, true), load8(si, p.cs, t, half + c % half, 8, true);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const float o = __shfl_xor_sync(0xFFFFFFFFu, dy[i][k], team / 2);
                dy[i][k] = dy[i][k] * co[k] + o * (low ? si[k] : -si[k]);
            }
            keep8(dy[i], p.n.dy.half);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const float z = x[i][k] * rstd[i];
                if (mine) dg[k] = __fmaf_rn(dy[i][k], z, dg[k]);
                x[i][k] = z, dy[i][k] = g[k] * dy[i][k];
                sum = __fmaf_rn(dy[i][k], z, sum);
            }
            const float mean = team_sum(team, sum) / (float)p.n.cols;
#pragma unroll
            for (int k = 0; k < 8; k++) x[i][k] = rstd[i] * (dy[i][k] - x[i][k] * mean);
            if (mine) store8(p.n.dx, t, h * xs + c, 8, true, x[i]);
        }
    }
    for (int h = ys / 2; h; h /= 2) {
        __syncthreads();
        for (int k = 0; y >= h && y < 2 * h && k < 8; k++) s[y * xs + c + k] = dg[k];
        __syncthreads();
        for (int k = 0; y < h && k < 8; k++) dg[k] += s[(y + h) * xs + c + k];
    }
    for (int k = 0; y == 0 && k < 8; k++) part[(int64_t)blockIdx.x * xs + c + k] = dg[k];
}
bool cuda_norm_rope_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor raw, Tensor rstd, Tensor g, Tensor cossin,
                        RopeShape s) {
    const int64_t rows = raw.rows * s.heads;
    if (s.pairs || s.from || s.dim != s.width || (s.width != 64 && s.width != 128 && s.width != 256) || !dg.data
        || !wide_all(s.width, dx, dy, raw, g, cossin) || rows == 0 || rows >= (int64_t)1 << 31)
        return false;
    const Norm n = { rows, s.width, true, any_of(dx), any_of(raw), any_of(g), any_of(dy), rows_of<float>(rstd), {} };
    const int64_t runs = dg_runs(rows, s.width);
    const size_t mark = arena_mark(&d->tmp);
    float *part = (float *)arena_push(&d->tmp, (size_t)(runs * s.width) * 4);
    launch_pdl(d, norm_rope_bwd_k, dim3((unsigned)runs), ROW_THREADS, 0, team_size(s.width),
                 TurnBack{ n, any_of(cossin), (unsigned)s.heads }, part);
    add_runs(d, dg, part, runs, s.width);
    arena_pop(&d->tmp, mark);
    return true;
}
