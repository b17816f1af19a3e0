/* rows.cu - moving, embedding, norms forward, SwiGLU, rope: what works on rows alone.  T tokens, V vocabulary.
 * All of it waits for memory, so a thread moves eight columns at once where they lie on 16-byte borders. */
#include "op/cuda/common/eights.cuh"
#include "op/gelu.h"

/* ---- moving ------------------------------------------------------------------------------------------------------ */
static __global__ void copy_k(Cells g, Any y, Any x) {
    EACH_EIGHT(g, r, c) {
        float v[8];
        int n = eights_left(g.cols, c);
        load8(v, x, r, c, n, g.wide);
        store8(y, r, c, n, g.wide, v);
    }
}
void link_copy(Dev *d, Tensor to, Tensor from); /* of link.cu: one lies on the host */
void cuda_copy(Dev *d, Tensor to, Tensor from) {
    size_t es = dtype_size(to.dtype), row = (size_t)to.cols * es;
    if (to.rows == 0 || to.cols == 0) return;
    if (on_host(d, to.data) || on_host(d, from.data)) return link_copy(d, to, from);
    if (to.dtype != from.dtype) launch_cells(d, copy_k, cells_of(to.rows, to.cols, to, from), any_of(to), any_of(from));
    else if (no_gaps(to) && no_gaps(from))
        CU(cudaMemcpyAsync(to.data, from.data, (size_t)to.rows * row, cudaMemcpyDeviceToDevice, stream_of(d)));
    else
        CU(cudaMemcpy2DAsync(to.data, (size_t)to.ld * es, from.data, (size_t)from.ld * es, row, (size_t)to.rows,
                             cudaMemcpyDeviceToDevice, stream_of(d)));
}
void cuda_zero(Dev *d, Tensor x) {
    size_t es = dtype_size(x.dtype), row = (size_t)x.cols * es;
    if (x.rows == 0 || x.cols == 0) return;
    if (on_host(d, x.data)) return d->host->ops->zero(d->host, x);
    if (no_gaps(x)) CU(cudaMemsetAsync(x.data, 0, (size_t)x.rows * row, stream_of(d)));
    else CU(cudaMemset2DAsync(x.data, (size_t)x.ld * es, 0, row, (size_t)x.rows, stream_of(d)));
}

typedef struct {
    Any at[32];
    int n;
} Parts;
static __global__ void tree_add_k(Cells g, Any y, Parts p) {
    EACH_EIGHT(g, r, c) {
        /* as a counter: whenever part i ends a pair, the pair's sum joins the sum before it */
        float wait[6][8], v[8];
        int n = eights_left(g.cols, c);
        for (int i = 0; i < p.n; i++) {
            load8(v, p.at[i], r, c, n, g.wide);
#pragma unroll
            for (int l = 0; l < 6; l++) {
                if (!(i >> l & 1)) {
#pragma unroll
                    for (int k = 0; k < 8; k++) wait[l][k] = v[k];
                    break;
                }
#pragma unroll
                for (int k = 0; k < 8; k++) v[k] = wait[l][k] + v[k];
            }
        }
        store8(y, r, c, n, g.wide, v);
    }
}
void cuda_tree_add(Dev *d, Tensor y, const Tensor *part, int n) {
    Parts p = { .n = n };
    bool wide = wide_all(y.cols, y), flat = no_gaps(y);
    for (int i = 0; i < n; i++)
        p.at[i] = any_of(part[i]), wide = wide && wide_one(part[i]), flat = flat && no_gaps(part[i]);
    Cells g = { y.rows, y.cols, wide };
    if (flat) g.rows = y.rows * y.cols > 0, g.cols = y.rows * y.cols;
    launch_cells(d, tree_add_k, g, any_of(y), p);
}

/* Rows are (token, head); the part of each head begins x_from into it. */
static __global__ void copy_heads_k(Cells g, Any y, Any x, HeadMap m) {
    EACH_EIGHT(g, r, c) {
        float v[8];
        int n = eights_left(g.cols, c);
        int64_t t = r / m.heads, h = r % m.heads;
        load8(v, x, t, h * m.x_width + m.x_from + c, n, g.wide);
        store8(y, t, h * m.y_width + m.y_from + c, n, g.wide, v);
    }
}
void cuda_copy_heads(Dev *d, Tensor y, Tensor x, HeadMap m) {
    bool even = m.x_width % 8 == 0 && m.x_from % 8 == 0 && m.y_width % 8 == 0 && m.y_from % 8 == 0;
    Cells g = { y.rows * m.heads, m.in, even && wide_all(m.in, y, x) };
    launch_cells(d, copy_heads_k, g, any_of(y), any_of(x), m);
}

static __global__ void sum_heads_k(Cells g, Any y, Any x, HeadMap m) {
    EACH_EIGHT(g, r, c) {
        float v[8], w[8];
        int n = eights_left(g.cols, c);
        load8(v, x, r, m.x_from + c, n, g.wide);
        for (int h = 1; h < m.heads; h++) {
            load8(w, x, r, (int64_t)h * m.x_width + m.x_from + c, n, g.wide);
#pragma unroll
            for (int k = 0; k < 8; k++) v[k] = v[k] + w[k];
        }
        store8(y, r, m.y_from + c, n, g.wide, v);
    }
}
void cuda_sum_heads(Dev *d, Tensor y, Tensor x, HeadMap m) {
    bool even = m.x_width % 8 == 0 && m.x_from % 8 == 0 && m.y_from % 8 == 0;
    Cells g = { y.rows, m.in, even && wide_all(m.in, y, x) };
    launch_cells(d, sum_heads_k, g, any_of(y), any_of(x), m);
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */
/* An id outside the vocabulary gives a row of zeros, and a fault; one of another rank's part a row of -0. */
static __global__ void embed_k(Cells g, Any y, Rows<const int32_t> ids, Any w, int64_t rows, Part part,
                               volatile Fault *fault) {
    EACH_EIGHT(g, r, c) {
        float v[8] = { 0 };
        int n = eights_left(g.cols, c);
        int64_t id = *ids.row(r);
        if (id < 0 || id >= part.of) fault_at(fault, FAULT_ID, r);
        else if (id >= part.first && id < part.first + rows) load8(v, w, id - part.first, c, n, g.wide);
        else
            for (int i = 0; i < 8; i++) v[i] = -0.0f;
        store8(y, r, c, n, g.wide, v);
    }
}
void cuda_embed(Dev *d, Tensor y, Tensor ids, Tensor w, Part part) {
    Cells g = { y.rows, y.cols, wide_all(y.cols, y, w) };
    launch_cells(d, embed_k, g, any_of(y), rows_of<const int32_t>(ids), any_of(w), w.rows, part, cu(d)->fault);
}

/* dw[id] += dy of every token with that id, tokens ascending: one chain, as on the CPU.
 * A block per token and 2048 columns.  It looks through the ids before its own: if one is equal, an earlier block has
 * the row.  Else it walks on through the later ones and adds in their order.  That reads T^2/2 ids, all of them from
 * the cache: 16k tokens, 0.5 GB. */
enum { EMBED_THREADS = 256, EMBED_COLS = 8 * EMBED_THREADS };
static __global__ void embed_bwd_k(Any dw, Any dy, Rows<const int32_t> ids, int64_t T, int64_t cols, int64_t rows,
                                   Part part, bool wide, volatile Fault *fault) {
    __shared__ int hit[EMBED_THREADS], hits[EMBED_THREADS / 32];
    int64_t mine = blockIdx.x, c = (int64_t)blockIdx.y * EMBED_COLS + 8 * threadIdx.x;
    int id = *ids.row(mine), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (id < 0 || id >= part.of) {
        if (threadIdx.x == 0) fault_at(fault, FAULT_ID, mine);
        return;
    }
    int64_t row = id - part.first;
    if (row < 0 || row >= rows) return;
    auto among = [&](int64_t t0, int64_t end) {                 /* is the id among those of 8 x EMBED_THREADS tokens? */
        bool equal = false;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int64_t t = t0 + i * EMBED_THREADS + threadIdx.x;
            equal |= t < end && *ids.row(t) == id;
        }
        return __syncthreads_or(equal);
    };
    for (int64_t t0 = 0; t0 < mine; t0 += 8 * EMBED_THREADS)
        if (among(t0, mine)) return;
    float sum[8], v[8];
    int n = eights_left(cols, c);
    if (c < cols) load8(sum, dw, row, c, n, wide);
    for (int64_t t0 = mine; t0 < T; t0 += EMBED_THREADS) {
        if ((t0 - mine) % (8 * EMBED_THREADS) == 0 && !among(t0, T)) {
            t0 += 7 * EMBED_THREADS;
            continue;
        }
        int64_t t = t0 + threadIdx.x;
        bool equal = t < T && *ids.row(t) == id;
        unsigned mask = __ballot_sync(0xFFFFFFFFu, equal);
        if (lane == 0) hits[warp] = __popc(mask);
        __syncthreads();
        int before = 0, all = 0;
        for (int w = 0; w < EMBED_THREADS / 32; w++) before += w < warp ? hits[w] : 0, all += hits[w];
        if (equal) hit[before + __popc(mask & ((1u << lane) - 1))] = (int)(t - t0);
        __syncthreads();
        if (c < cols)
            for (int i = 0; i < all; i++) {
                load8(v, dy, t0 + hit[i], c, n, wide);
#pragma unroll
                for (int k = 0; k < 8; k++) sum[k] += v[k];
            }
        __syncthreads();
    }
    if (c < cols) store8(dw, row, c, n, wide, sum);
}
void cuda_embed_bwd(Dev *d, Tensor dw, Tensor dy, Tensor ids, Part part) {
    launch(d, embed_bwd_k, dim3((unsigned)dy.rows, blocks_of(dy.cols, EMBED_COLS)), EMBED_THREADS, 0, any_of(dw),
           any_of(dy), rows_of<const int32_t>(ids), dy.rows, dy.cols, dw.rows, part, wide_all(dy.cols, dw, dy),
           cu(d)->fault);
}

/* ---- norm -------------------------------------------------------------------------------------------------------- */
typedef struct {
    int64_t rows, cols;
    bool wide;
    float eps;
    Any y, x, g;
    Rows<float> rstd;
} Norm;

/* y = x rstd g, rstd = 1 / sqrt(mean(x^2) + eps). */
template <class K> static __global__ void norm_k(int team, Norm p) {
    Team m = team_of(team);
    bool mine = m.row < p.rows;
    float v[K::N][8], sum = 0;
#pragma unroll
    for (int i = 0; i < K::N; i++) {
        int64_t c = 8 * (int64_t)(m.me + i * m.n);
        if (K::KEEPS && mine && c < p.cols) {
            load8(v[i], p.x, m.row, c, eights_left(p.cols, c), p.wide);
#pragma unroll
            for (int k = 0; k < 8; k++) sum = __fmaf_rn(v[i][k], v[i][k], sum);
        }
    }
    for (int64_t c = 8 * m.me; !K::KEEPS && mine && c < p.cols; c += 8 * m.n) {
        load8(v[0], p.x, m.row, c, eights_left(p.cols, c), p.wide);
#pragma unroll
        for (int k = 0; k < 8; k++) sum = __fmaf_rn(v[0][k], v[0][k], sum);
    }
    sum = team_sum(team, sum);
    float rstd = 1.0f / sqrtf(sum / (float)p.cols + p.eps), g[8];
    if (mine && m.me == 0 && p.rstd.at) *p.rstd.row(m.row) = rstd;
#pragma unroll
    for (int i = 0; i < K::N; i++) {
        int64_t c = 8 * (int64_t)(m.me + i * m.n);
        if (K::KEEPS && mine && c < p.cols) {
            int n = eights_left(p.cols, c);
            load8(g, p.g, 0, c, n, p.wide);
#pragma unroll
            for (int k = 0; k < 8; k++) v[i][k] = v[i][k] * rstd * g[k];
            store8(p.y, m.row, c, n, p.wide, v[i]);
        }
    }
    for (int64_t c = 8 * m.me; !K::KEEPS && mine && c < p.cols; c += 8 * m.n) {
        int n = eights_left(p.cols, c);
        load8(v[0], p.x, m.row, c, n, p.wide), load8(g, p.g, 0, c, n, p.wide);
#pragma unroll
        for (int k = 0; k < 8; k++) v[0][k] = v[0][k] * rstd * g[k];
        store8(p.y, m.row, c, n, p.wide, v[0]);
    }
}
void cuda_rmsnorm(Dev *d, Tensor y, Tensor rstd, Tensor x, Tensor g, float eps) {
    Norm p = {
        x.rows, x.cols, wide_all(x.cols, y, x, g), eps, any_of(y), any_of(x), any_of(g), rows_of<float>(rstd)
    };
    with_kept(x.cols, [&](auto k) { launch_teams(d, norm_k<decltype(k)>, x.rows, x.cols, p); });
}

/* ---- SwiGLU, addition -------------------------------------------------------------------------------------------- */
static __global__ void swiglu_k(Cells g, Any y, Any gate, Any up) {
    EACH_EIGHT(g, r, c) {
        float a[8], u[8];
        int n = eights_left(g.cols, c);
        load8(a, gate, r, c, n, g.wide), load8(u, up, r, c, n, g.wide);
#pragma unroll
        for (int k = 0; k < 8; k++) a[k] = a[k] * sigmoid_f(a[k]) * u[k];
        store8(y, r, c, n, g.wide, a);
    }
}
void cuda_swiglu(Dev *d, Tensor y, Tensor gate, Tensor up) {
    launch_cells(d, swiglu_k, cells_of(y.rows, y.cols, y, gate, up), any_of(y), any_of(gate), any_of(up));
}
static __global__ void swiglu_bwd_k(Cells g, Any dgate, Any dup, Any dy, Any gate, Any up) {
    EACH_EIGHT(g, r, c) {
        float a[8], u[8], e[8];
        int n = eights_left(g.cols, c);
        load8(a, gate, r, c, n, g.wide), load8(u, up, r, c, n, g.wide), load8(e, dy, r, c, n, g.wide);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float s = sigmoid_f(a[k]), da = e[k] * u[k] * (s * __fmaf_rn(a[k], 1.0f - s, 1.0f));
            u[k] = e[k] * (a[k] * s);
            a[k] = da;
        }
        store8(dup, r, c, n, g.wide, u);
        store8(dgate, r, c, n, g.wide, a);
    }
}
void cuda_swiglu_bwd(Dev *d, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up) {
    launch_cells(d, swiglu_bwd_k, cells_of(dy.rows, dy.cols, dgate, dup, dy, gate, up), any_of(dgate), any_of(dup),
                 any_of(dy), any_of(gate), any_of(up));
}
/* ---- GELU: the CPU's own function, in double; a merger has few of them ------------------------------------------- */
static __global__ void gelu_k(Cells g, Any y, Any x) {
    EACH_EIGHT(g, r, c) {
        float v[8];
        int n = eights_left(g.cols, c);
        load8(v, x, r, c, n, g.wide);
#pragma unroll 1
        for (int k = 0; k < 8; k++) v[k] = gelu_of(v[k]);
        store8(y, r, c, n, g.wide, v);
    }
}
void cuda_gelu(Dev *d, Tensor y, Tensor x) {
    launch_cells(d, gelu_k, cells_of(y.rows, y.cols, y, x), any_of(y), any_of(x));
}
static __global__ void gelu_bwd_k(Cells g, Any dx, Any dy, Any x) {
    EACH_EIGHT(g, r, c) {
        float v[8], e[8];
        int n = eights_left(g.cols, c);
        load8(v, x, r, c, n, g.wide), load8(e, dy, r, c, n, g.wide);
#pragma unroll 1
        for (int k = 0; k < 8; k++) v[k] = gelu_back(e[k], v[k]);
        store8(dx, r, c, n, g.wide, v);
    }
}
void cuda_gelu_bwd(Dev *d, Tensor dx, Tensor dy, Tensor x) {
    launch_cells(d, gelu_bwd_k, cells_of(dx.rows, dx.cols, dx, dy, x), any_of(dx), any_of(dy), any_of(x));
}
static __global__ void add_k(Cells g, Any y, Any a, Any b) {
    EACH_EIGHT(g, r, c) {
        float u[8], v[8];
        int n = eights_left(g.cols, c);
        load8(u, a, r, c, n, g.wide), load8(v, b, r, c, n, g.wide);
#pragma unroll
        for (int k = 0; k < 8; k++) u[k] += v[k];
        store8(y, r, c, n, g.wide, u);
    }
}
void cuda_add(Dev *d, Tensor y, Tensor a, Tensor b) {
    launch_cells(d, add_k, cells_of(y.rows, y.cols, y, a, b), any_of(y), any_of(a), any_of(b));
}

static __global__ void add_row_k(Cells g, Any y, Any b) {
    EACH_EIGHT(g, r, c) {
        float u[8], v[8];
        int n = eights_left(g.cols, c);
        load8(u, y, r, c, n, g.wide), load8(v, b, 0, c, n, g.wide);
#pragma unroll
        for (int k = 0; k < 8; k++) u[k] += v[k];
        store8(y, r, c, n, g.wide, u);
    }
}
static __global__ void scale_k(Cells g, Any y, Any x, float by) {
    EACH_EIGHT(g, r, c) {
        float u[8];
        int n = eights_left(g.cols, c);
        load8(u, x, r, c, n, g.wide);
#pragma unroll
        for (int k = 0; k < 8; k++) u[k] *= by;
        store8(y, r, c, n, g.wide, u);
    }
}
void cuda_scale(Dev *d, Tensor y, Tensor x, float by) {
    Cells g = { y.rows, y.cols, wide_all(y.cols, y, x) };
    launch_cells(d, scale_k, g, any_of(y), any_of(x), by);
}
void cuda_add_row(Dev *d, Tensor y, Tensor b) {
    Cells g = { y.rows, y.cols, wide_all(y.cols, y, b) }; /* rows stay rows: b has one */
    launch_cells(d, add_row_k, g, any_of(y), any_of(b));
}

/* ---- rope -------------------------------------------------------------------------------------------------------- */
/* The angle is a float32 product, as in the models' own code; its sine and cosine are taken in double, at any
 * position. */
static __global__ void rope_table_k(Rows<float> cs, Rows<const int32_t> pos, Rows<const float> freq, int axes,
                                    int64_t rows, int half, float amp) {
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)
        for (int i = threadIdx.x; i < half; i += blockDim.x) {
            double s, c;
            float angle = (float)*pos.row(r) * freq.row(0)[i];
            for (int p = 1; p < axes; p++) angle += (float)pos.row(r)[p] * freq.row(p)[i]; /* all but one are 0 */
            sincos((double)angle, &s, &c);
            cs.row(r)[i] = (float)c * amp, cs.row(r)[half + i] = (float)s * amp;
        }
}
void cuda_rope_table(Dev *d, Tensor cossin, Tensor pos, Tensor freq, float amp) {
    int64_t half = cossin.cols / 2;
    if (half > 0)
        launch(d, rope_table_k, dim3((unsigned)(cossin.rows < 1 << 20 ? cossin.rows : 1 << 20)), half < 64 ? 32 : 64, 0,
               rows_of<float>(cossin), rows_of<const int32_t>(pos), rows_of<const float>(freq), (int)pos.cols,
               cossin.rows, (int)half, amp);
}

/* a' = a cos - b sin, b' = b cos + a sin with two roundings each, as on the CPU.  Rows are (token, head); halves: eight
 * pairs a thread; neighbours: four. */
static __global__ void rope_k(Cells g, Any x, Any cs, RopeShape s, float sign) {
    int half = s.dim / 2;
    EACH_EIGHT(g, r, c) {
        float a[8], b[8], co[8], si[8];
        int64_t t = r / s.heads, at = r % s.heads * s.width + s.from;
        int n = eights_left(g.cols, c);
        if (!s.pairs) {
            load8(a, x, t, at + c, n, g.wide), load8(b, x, t, at + half + c, n, g.wide);
            load8(co, cs, t, c, n, g.wide), load8(si, cs, t, half + c, n, g.wide);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                float u = a[k], v = b[k], q = si[k] * sign;
                a[k] = u * co[k] - v * q, b[k] = v * co[k] + u * q;
            }
            store8(x, t, at + c, n, g.wide, a), store8(x, t, at + half + c, n, g.wide, b);
        } else {
            load8(a, x, t, at + c, n, g.wide);
            load8(co, cs, t, c / 2, n / 2, false), load8(si, cs, t, half + c / 2, n / 2, false);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float u = a[2 * k], v = a[2 * k + 1], q = si[k] * sign;
                a[2 * k] = u * co[k] - v * q, a[2 * k + 1] = v * co[k] + u * q;
            }
            store8(x, t, at + c, n, g.wide, a);
        }
    }
}
void cuda_rope(Dev *d, Tensor x, Tensor cossin, RopeShape s, int turn) {
    int64_t cols = s.pairs ? s.dim : s.dim / 2;
    Cells g = { x.rows * s.heads, cols, s.width % 8 == 0 && s.from % 8 == 0 && wide_all(cols, x, cossin) };
    launch_cells(d, rope_k, g, any_of(x), any_of(cossin), s, (float)turn);
}
