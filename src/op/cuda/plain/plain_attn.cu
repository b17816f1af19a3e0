/* plain_attn.cu - attention of any head width, F32 or BF16, packed or paged, forward and backward: what serves where
 * no fast kernel does.
 *
 * Order of sums, for one query row over keys 0..last of its own sequence (without a mask: all of it; q is scaled first,
 * in float32):
 *   keys in blocks of PLAIN_BLOCK from position 0; m = -inf, l = 0, acc = 0
 *   s_k = chain over columns ascending of fma(q_d, k_d);  m' = max(m, max s);  a = e^(m - m');  p_k = e^(s_k - m')
 *   l = l a + sum of p: keys 16 apart (0+1)+(2+3), then a tree over 16
 *   acc = acc a, then fma(p_k, v_k, acc) over live k ascending
 *   o = acc (1 / l) + 0;  lse = m + log l
 * Dead keys are never touched, so no row depends on what lies behind it, nor on the tile, the chunk, the page.  The
 * backward has one chain a number too: dq over keys, dk and dv over query rows (position, then head of the group),
 * both ascending.
 *
 * Threads: a tile of 16 rows by a block of 64 others; 16 threads a row, each with 4 scores and every sixteenth
 * column of the sums. */
#include "op/cuda/common/attn.h"

namespace {

enum { ROWS = 16, COLS = 64, PITCH = COLS + 1, THREADS = 256, EACH = PLAIN_BLOCK / 16 };
static_assert(PLAIN_BLOCK == 64 && EACH == 4, "the sum of p below is written for four keys a thread");

struct Any { /* rows of F32 or BF16 */
    const char *data;
    int64_t ld;
    bool half;
    __device__ float get(int64_t row, int64_t col) const {
        int64_t i = row * ld + col;
        return half ? __bfloat162float(((const __nv_bfloat16 *)data)[i]) : ((const float *)data)[i];
    }
    __device__ void set(int64_t row, int64_t col, float x) const {
        int64_t i = row * ld + col;
        if (half) ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn(x);
        else ((float *)data)[i] = x;
    }
};
Any any(Tensor x) { return { (const char *)x.data, x.ld, x.dtype == DT_BF16 }; }

struct Par {
    Any q, k, v, o, dO, dq, dk, dv;
    float *lse, *row_sum; /* [T,heads] with strides ld_lse, heads */
    int64_t ld_lse;
    const int *at, *start; /* start null: sequences begin at 0 and their keys are rows of k, v */
    const int *from;       /* where those begin, as Attn has it; null: with the sequence's own row */
    Pages pages;
    int seqs, heads, kv_heads, group, wk, wv, tiles;
    float scale;
    bool all; /* no mask: every row sees all keys of its sequence */
};

/* What the block works on: rows i = (position - start) * group + head of the group, 16 of them from i0. */
struct Tile {
    int seq, head, i0, n;
    int64_t row0, key0; /* key0: the row of its first key, without pages */
    int start;
};
__device__ bool tile_of(Tile *t, const Par &p) {
    t->seq = blockIdx.x / p.tiles, t->head = blockIdx.y, t->i0 = (blockIdx.x % p.tiles) * ROWS;
    t->row0 = p.at[t->seq], t->n = (int)(p.at[t->seq + 1] - t->row0) * p.group,
    t->start = p.start ? p.start[t->seq] : 0, t->key0 = p.from ? p.from[t->seq] : t->row0;
    return t->i0 < t->n;
}
/* the last key that row i of the tile's sequence sees */
__device__ int last_key(const Tile &t, const Par &p, int i) {
    return p.all ? t.n / p.group - 1 : t.start + i / p.group;
}

/* s[e] += sum over columns ascending of a[row][c] b(j, c), for j = lane + 16 e; have: how many j exist */
template <class Get>
__device__ void dots(float (&s)[EACH], const float *a, int width, int have, float *chunk, Get get) {
    const int r = threadIdx.x / 16, lane = threadIdx.x % 16;
#pragma unroll
    for (int e = 0; e < EACH; e++) s[e] = 0;
    for (int c0 = 0; c0 < width; c0 += COLS) {
        const int w = min(COLS, width - c0);
        __syncthreads(); /* the chunk before this one has been read */
        for (int i = threadIdx.x; i < PLAIN_BLOCK * COLS; i += THREADS) {
            const int j = i / COLS, c = i % COLS;
            if (c < w) chunk[j * PITCH + c] = j < have ? get(j, c0 + c) : 0.f;
        }
        __syncthreads();
        for (int c = 0; c < w; c++) {
            const float x = a[r * width + c0 + c];
#pragma unroll
            for (int e = 0; e < EACH; e++) s[e] = __fmaf_rn(x, chunk[(lane + 16 * e) * PITCH + c], s[e]);
        }
    }
}
/* acc[j] += sum over k in [k0, k1) ascending of weight[row][k] b(k, lane + 16 j) */
template <int NV, class Get>
__device__ void sums(float (&acc)[NV], const float *weight, int k0, int k1, int width, int have, float *chunk,
                     Get get) {
    const int r = threadIdx.x / 16, lane = threadIdx.x % 16;
#pragma unroll
    for (int j0 = 0; j0 < NV; j0 += COLS / 16) {
        const int c0 = 16 * j0, w = min(COLS, width - c0);
        if (w <= 0) break;
        __syncthreads();
        for (int i = threadIdx.x; i < PLAIN_BLOCK * COLS; i += THREADS) {
            const int j = i / COLS, c = i % COLS;
            if (c < w) chunk[j * PITCH + c] = j < have ? get(j, c0 + c) : 0.f;
        }
        __syncthreads();
        for (int k = k0; k < k1; k++) {
            const float p = weight[r * PITCH + k];
#pragma unroll
            for (int e = 0; e < COLS / 16; e++)
                if (j0 + e < NV) acc[j0 + e] = __fmaf_rn(p, chunk[k * PITCH + lane + 16 * e], acc[j0 + e]);
        }
    }
}
template <class Get> __device__ void load_rows(float *to, int n, int width, Get get) {
    for (int i = threadIdx.x; i < ROWS * width; i += THREADS) to[i] = i / width < n ? get(i / width, i % width) : 0.f;
}
/* over the 16 threads of a row */
__device__ float row_max(float x) {
    for (int d = 8; d; d /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}
__device__ float row_add(float x) {
    for (int d = 8; d; d /= 2) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

struct Smem {
    float *a, *b, *w1, *w2, *chunk;
};
__device__ Smem smem_of(float *base, int wa, int wb) {
    Smem s;
    s.chunk = base, s.w1 = s.chunk + PLAIN_BLOCK * PITCH, s.w2 = s.w1 + ROWS * PITCH, s.a = s.w2 + ROWS * PITCH,
    s.b = s.a + ROWS * wa;
    return s;
}
size_t smem_bytes(int wa, int wb) {
    return (size_t)((int)PLAIN_BLOCK * PITCH + 2 * (int)ROWS * PITCH + ROWS * (wa + wb)) * 4;
}

/* Keys and values of a tile's sequence: rows of k and v, or pages. */
struct Keys {
    const Par &p;
    const Tile &t;
    const int *table;
    __device__ Keys(const Par &par, const Tile &tile)
        : p(par), t(tile), table(par.pages.table ? par.pages.table + (int64_t)tile.seq * par.pages.ld_table : nullptr) {
    }
    __device__ bool there(int end) const { /* its pages exist */
        if (end / p.pages.page >= p.pages.n_table) return fault_at(p.pages.fault, FAULT_LENGTH, t.row0), false;
        int bad = 0;
        for (int i = threadIdx.x; i <= end / p.pages.page; i += THREADS)
            bad |= (unsigned)table[i] >= (unsigned)p.pages.n_pages;
        if (bad) fault_at(p.pages.fault, FAULT_PAGE, t.row0);
        return !__syncthreads_or(bad);
    }
    __device__ float key(int pos, int c) const {
        if (!table) return p.k.get(t.key0 + pos, (int64_t)t.head * p.wk + c);
        return p.pages.key(table, pos, t.head, c);
    }
    __device__ float value(int pos, int c) const {
        if (!table) return p.v.get(t.key0 + pos, (int64_t)t.head * p.wv + c);
        return p.pages.value(table, pos, t.head, c);
    }
};

template <int NV> __global__ void __launch_bounds__(THREADS) plain_fwd(const Par p) {
    extern __shared__ float base[];
    Tile t;
    if (!tile_of(&t, p)) return;
    const Smem s = smem_of(base, p.wk, 0);
    const Keys keys(p, t);
    const int r = threadIdx.x / 16, lane = threadIdx.x % 16, i = min(t.i0 + r, t.n - 1), n = min(ROWS, t.n - t.i0);
    const int last = last_key(t, p, i), end = last_key(t, p, t.i0 + n - 1);
    auto col = [&](int row) { return (int64_t)(t.head * p.group + row % p.group); };
    load_rows(s.a, n, p.wk, [&](int row, int c) {
        const int x = t.i0 + row;
        return __fmul_rn(p.q.get(t.row0 + x / p.group, col(x) * p.wk + c), p.scale);
    });
    float m = -INFINITY, l = 0, acc[NV];
#pragma unroll
    for (int j = 0; j < NV; j++) acc[j] = 0;
    if (keys.table && !keys.there(end)) return;
    for (int k0 = 0; k0 <= end; k0 += PLAIN_BLOCK) {
        const int have = min((int)PLAIN_BLOCK, end + 1 - k0), live = min((int)PLAIN_BLOCK, last + 1 - k0);
        float x[EACH];
        dots(x, s.a, p.wk, have, s.chunk, [&](int j, int c) { return keys.key(k0 + j, c); });
        float most = -INFINITY;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            if (lane + 16 * e >= live) x[e] = -INFINITY;
            most = fmaxf(most, x[e]);
        }
        most = row_max(most);
        if (live > 0) {
            const float now = fmaxf(m, most), a = expf(__fsub_rn(m, now));
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                x[e] = lane + 16 * e < live ? expf(__fsub_rn(x[e], now)) : 0.f;
                s.w1[r * PITCH + lane + 16 * e] = x[e];
            }
            m = now, l = __fmul_rn(l, a);
#pragma unroll
            for (int j = 0; j < NV; j++) acc[j] = __fmul_rn(acc[j], a);
        }
        const float sum = row_add(__fadd_rn(__fadd_rn(x[0], x[1]), __fadd_rn(x[2], x[3])));
        if (live > 0) l = __fadd_rn(l, sum);
        sums(acc, s.w1, 0, live, p.wv, have, s.chunk, [&](int j, int c) { return keys.value(k0 + j, c); });
    }
    if (t.i0 + r >= t.n) return;
    const float inv = __frcp_rn(l);
    const int64_t row = t.row0 + i / p.group;
#pragma unroll
    for (int j = 0; j < NV; j++) {
        const int c = lane + 16 * j;
        if (c < p.wv)
            p.o.set(row, col(i) * p.wv + c, __fadd_rn(__fmul_rn(acc[j], inv), 0.f)); /* + 0: no negative zero */
    }
    if (p.lse && lane == 0) p.lse[row * p.ld_lse + col(i)] = __fadd_rn(m, logf(l));
}

/* row_sum[t][h] = sum over columns of dO o: a warp a row and head, columns 32 apart in a chain, then a tree */
__global__ void plain_row_sum(const Par p, int64_t rows) {
    const int64_t i = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32, row = i / p.heads, h = i % p.heads;
    if (row >= rows) return;
    float s = 0;
    for (int c = threadIdx.x % 32; c < p.wv; c += 32)
        s = __fmaf_rn(p.dO.get(row, h * p.wv + c), p.o.get(row, h * p.wv + c), s);
    for (int d = 16; d; d /= 2) s = __fadd_rn(s, __shfl_xor_sync(~0u, s, d));
    if (threadIdx.x % 32 == 0) p.row_sum[i] = s;
}

/* dq of 16 rows over all their keys: dS = p (dO v' - row sum), dq = scale dS k */
template <int NV> __global__ void __launch_bounds__(THREADS) plain_dq(const Par p) {
    extern __shared__ float base[];
    Tile t;
    if (!tile_of(&t, p)) return;
    const Smem s = smem_of(base, p.wk, p.wv);
    const Keys keys(p, t);
    const int r = threadIdx.x / 16, lane = threadIdx.x % 16, i = min(t.i0 + r, t.n - 1), n = min(ROWS, t.n - t.i0);
    const int last = last_key(t, p, i), end = last_key(t, p, t.i0 + n - 1);
    const int64_t row = t.row0 + i / p.group, h = t.head * p.group + i % p.group;
    auto col = [&](int x) { return (int64_t)(t.head * p.group + x % p.group); };
    load_rows(s.a, n, p.wk, [&](int y, int c) {
        const int x = t.i0 + y;
        return __fmul_rn(p.q.get(t.row0 + x / p.group, col(x) * p.wk + c), p.scale);
    });
    load_rows(s.b, n, p.wv, [&](int y, int c) {
        const int x = t.i0 + y;
        return p.dO.get(t.row0 + x / p.group, col(x) * p.wv + c);
    });
    const float lse = p.lse[row * p.ld_lse + h], sum = p.row_sum[row * p.heads + h];
    float acc[NV];
#pragma unroll
    for (int j = 0; j < NV; j++) acc[j] = 0;
    for (int k0 = 0; k0 <= end; k0 += PLAIN_BLOCK) {
        const int have = min((int)PLAIN_BLOCK, end + 1 - k0), live = min((int)PLAIN_BLOCK, last + 1 - k0);
        float x[EACH], dp[EACH];
        dots(x, s.a, p.wk, have, s.chunk, [&](int j, int c) { return keys.key(k0 + j, c); });
        dots(dp, s.b, p.wv, have, s.chunk, [&](int j, int c) { return keys.value(k0 + j, c); });
#pragma unroll
        for (int e = 0; e < EACH; e++)
            s.w1[r * PITCH + lane + 16 * e] = __fmul_rn(expf(__fsub_rn(x[e], lse)), __fsub_rn(dp[e], sum));
        sums(acc, s.w1, 0, live, p.wk, have, s.chunk, [&](int j, int c) { return keys.key(k0 + j, c); });
    }
    if (t.i0 + r >= t.n) return;
#pragma unroll
    for (int j = 0; j < NV; j++)
        if (lane + 16 * j < p.wk) p.dq.set(row, h * p.wk + lane + 16 * j, __fmul_rn(acc[j], p.scale));
}

/* dk and dv of 16 keys over all later rows of the group: dv = p' dO, dk = dS' (scale q).  Parts of one sequence that
 * share its keys are gone through by the first of them. */
template <int NV> __global__ void __launch_bounds__(THREADS) plain_dkv(const Par p) {
    extern __shared__ float base[];
    const int seq = blockIdx.x / p.tiles, head = blockIdx.y, key0 = (blockIdx.x % p.tiles) * ROWS;
    const int64_t first = p.from ? p.from[seq] : p.at[seq];
    const int len = p.from ? keys_of(p.at, p.start, p.from, p.seqs, seq) : p.at[seq + 1] - p.at[seq];
    if (key0 >= len) return;
    const Smem s = smem_of(base, p.wk, p.wv);
    const int r = threadIdx.x / 16, lane = threadIdx.x % 16, key = min(key0 + r, len - 1),
              n = min((int)ROWS, len - key0);
    load_rows(s.a, n, p.wk, [&](int y, int c) { return p.k.get(first + key0 + y, (int64_t)head * p.wk + c); });
    load_rows(s.b, n, p.wv, [&](int y, int c) { return p.v.get(first + key0 + y, (int64_t)head * p.wv + c); });
    float dk[NV], dv[NV];
#pragma unroll
    for (int j = 0; j < NV; j++) dk[j] = dv[j] = 0;
    for (int q_seq = seq; q_seq < p.seqs; q_seq = next_part(p.from, p.seqs, q_seq)) {
        const int64_t row0 = p.at[q_seq];
        const int start = p.start ? p.start[q_seq] : 0, rows = (int)(p.at[q_seq + 1] - row0) * p.group;
        for (int i0 = p.all ? 0 : max(key0 - start, 0) * p.group; i0 < rows; i0 += PLAIN_BLOCK) {
            const int have = min((int)PLAIN_BLOCK, rows - i0),
                      from = p.all ? 0 : min(max((key - start) * p.group - i0, 0), have);
            auto q = [&](int j, int c) {
                const int x = i0 + j;
                return __fmul_rn(p.q.get(row0 + x / p.group, (int64_t)(head * p.group + x % p.group) * p.wk + c),
                                 p.scale);
            };
            auto dO = [&](int j, int c) {
                const int x = i0 + j;
                return p.dO.get(row0 + x / p.group, (int64_t)(head * p.group + x % p.group) * p.wv + c);
            };
            float x[EACH], dp[EACH];
            dots(x, s.a, p.wk, have, s.chunk, q);
            dots(dp, s.b, p.wv, have, s.chunk, dO);
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int j = min(lane + 16 * e, have - 1), y = i0 + j;
                const int64_t row = row0 + y / p.group, h = head * p.group + y % p.group;
                const float w = expf(__fsub_rn(x[e], p.lse[row * p.ld_lse + h]));
                s.w1[r * PITCH + lane + 16 * e] = w;
                s.w2[r * PITCH + lane + 16 * e] = __fmul_rn(w, __fsub_rn(dp[e], p.row_sum[row * p.heads + h]));
            }
            sums(dv, s.w1, from, have, p.wv, have, s.chunk, dO);
            sums(dk, s.w2, from, have, p.wk, have, s.chunk, q);
        }
    }
    if (key0 + r >= len) return;
#pragma unroll
    for (int j = 0; j < NV; j++) {
        const int c = lane + 16 * j;
        if (c < p.wk) p.dk.set(first + key, (int64_t)head * p.wk + c, dk[j]);
        if (c < p.wv) p.dv.set(first + key, (int64_t)head * p.wv + c, dv[j]);
    }
}

typedef void Kernel(const Par);
/* by the widest head that fits: what a thread holds is static */
struct Size {
    int columns;
    Kernel *attend, *dq, *dkv;
};
#define SIZE(n)                                                                                                        \
    { 16 * (n), plain_fwd<n>, plain_dq<n>, plain_dkv<n> }
const Size sizes[] = { SIZE(2), SIZE(4), SIZE(8), SIZE(16), SIZE(36) };
const Size *size_for(int columns) {
    for (const Size &s : sizes)
        if (columns <= s.columns) return &s;
    die("heads of %d columns", columns);
}
void run(Dev *d, Kernel *k, Par p, int seqs, int tiles, int wa, int wb) {
    p.tiles = tiles;
    launch(d, k, dim3((unsigned)seqs * (unsigned)tiles, (unsigned)p.kv_heads), dim3(THREADS), smem_bytes(wa, wb), p);
}
int tiles_of(int n) { return (n + ROWS - 1) / ROWS; }
Par par_of(const Attn *a, bool all) {
    Par p = {};
    p.all = all;
    p.q = any(a->q), p.k = any(a->k), p.v = any(a->v), p.o = any(a->o);
    p.lse = (float *)a->lse.data, p.ld_lse = a->lse.ld, p.at = (const int *)a->seqs.at.data;
    p.start = (const int *)a->start.data, p.from = (const int *)a->from.data, p.seqs = a->seqs.n;
    p.heads = a->heads, p.kv_heads = a->kv_heads, p.group = a->heads / a->kv_heads, p.wk = a->dk, p.wv = a->dv,
    p.scale = a->scale;
    return p;
}

} // namespace

void plain_attn_open() {
    for (const Size &s : sizes)
        for (Kernel *k : { s.attend, s.dq, s.dkv })
            CU(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem_bytes(576, 576)));
}

void plain_attend(Dev *d, const Attn *a, bool all) {
    Par p = par_of(a, all);
    run(d, size_for(a->dv)->attend, p, a->seqs.n, tiles_of(a->seqs.longest * p.group), a->dk, 0);
}
void plain_attend_kv(Dev *d, Tensor o, Tensor q, const Kv *kv, const Paged *rows, int heads, float scale) {
    Par p = {};
    p.q = any(q), p.o = any(o), p.at = (const int *)rows->rows.at.data, p.start = (const int *)rows->start.data;
    p.pages = pages_of(d, kv, rows);
    p.heads = heads, p.kv_heads = kv->kv_heads, p.group = heads / kv->kv_heads, p.wk = kv->dk, p.wv = kv->dv,
    p.scale = scale;
    run(d, size_for(kv->dv)->attend, p, rows->rows.n, tiles_of(rows->rows.longest * p.group), kv->dk, 0);
}

size_t plain_attend_bwd_tmp(const Attn *a) { return arena_round((size_t)a->q.rows * (size_t)a->heads * 4); }
void plain_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a, bool all) {
    size_t mark = arena_mark(&d->tmp);
    Par p = par_of(a, all);
    p.dO = any(dO), p.dq = any(dq), p.dk = any(dk), p.dv = any(dv);
    p.row_sum = (float *)arena_push(&d->tmp, (size_t)a->q.rows * (size_t)a->heads * 4);
    const Size *s = size_for(a->dk > a->dv ? a->dk : a->dv);
    launch(d, plain_row_sum, dim3(blocks_of(a->q.rows * a->heads, THREADS / 32)), dim3(THREADS), 0, p, a->q.rows);
    run(d, s->dq, p, a->seqs.n, tiles_of(a->seqs.longest * p.group), a->dk, a->dv);
    run(d, s->dkv, p, a->seqs.n, tiles_of(a->from.data ? (int)a->k.rows : a->seqs.longest), a->dk, a->dv);
    arena_pop(&d->tmp, mark);
}
