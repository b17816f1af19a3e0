/* head.cu - log-probs, entropies and drawing, from hidden rows and the head's weights; [T,V] never exists whole.
 *
 * Scoring whole distributions keeps three numbers per row and leaf of 128 ids, made where the product leaves its
 * sums.  Rows that may be cut, and drawing, want all logits of a row at once: a chunk of rows has them in d->tmp,
 * and a block of threads turns each row into its distribution.  All ways end in the same whole numbers (head.cuh),
 * so a row has the same bits alone, in any batch, scored or drawn. */
#include "op/cuda/head.cuh"
#include "op/cuda/gemm_go.cuh"

enum { FULL_FLOATS = 1 << 25, FUSED_LEAVES = 1 << 22 };            /* in d->tmp at a time */

static int64_t full_rows(int64_t rows, int64_t V) {
    const int64_t n = FULL_FLOATS / round8(V);
    return least(rows, n < 1 ? 1 : n);
}

typedef struct {
    Rows<float>         lp, ent;        /* ent, stat, kept: or none */
    Rows<unsigned char> stat;
    Rows<int>           id;
    Rows<uint32_t>      kept;
    Rows<const int64_t> random;
} HeadOut;

/* ---- bans as bits ---------------------------------------------------------------------------------------------- */
__global__ void ban_bits(uint32_t *bits, Rows<const int> banned, int64_t n, int64_t V) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int id = *banned.row(i);
    if (id >= 0 && id < V) atomicOr(bits + id / 32, 1u << id % 32);
}
size_t head_ban_bytes(Tensor banned, Tensor ban, int64_t V) {
    return ban.data && banned.rows > 0 ? arena_round((size_t)kept_words(V) * 4) : 0;
}
static const uint32_t *ban_of(Dev *d, Tensor banned, Tensor ban, int64_t V) {
    const size_t bytes = head_ban_bytes(banned, ban, V);
    if (!bytes) return NULL;
    uint32_t *bits = (uint32_t *)arena_push(&d->tmp, bytes);
    CU(cudaMemsetAsync(bits, 0, bytes, stream_of(d)));
    launch(d, ban_bits, dim3(blocks_of(banned.rows, 256)), dim3(256), 0, bits, rows_of<const int>(banned), banned.rows,
           V);
    return bits;
}
HeadIn head_in(Dev *d, const Dist *p, Tensor banned, Tensor ban, int64_t V) {
    HeadIn a = { col_of<float>(p->inv_temp), col_of<float>(p->top_p), col_of<float>(p->min_p), col_of<int>(p->top_k) };
    a.ban = col_of<int>(ban), a.banned = ban_of(d, banned, ban, V), a.V = V, a.fault = cu(d)->fault;
    return a;
}

/* ---- a block makes a row's distribution from its logits, then scores an id or draws one ------------------------ */
/* The inverse of the distribution's sum in the order of ids: where the running mass of kept ids passes a random
 * part of their whole mass. A warp has a run of leaves. */
DEV int draw(HeadShared *s, const HeadIn &a, const float *l, uint64_t random) {
    const HeadRow &r = s->row;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t leaves = (a.V + LEAF - 1) / LEAF, each = (leaves + HEAD_WARPS - 1) / HEAD_WARPS;
    auto mass = [&](int64_t i) -> int64_t {
        if (i >= a.V) return 0;
        const int64_t q = head_mass(l[i], r.max);
        return r.cut == CUT_FOUND && !head_kept(r, l[i], q, i) ? 0 : q;
    };
    auto leaf = [&](int64_t v, int64_t *mine) { /* this lane's four ids, and the leaf's whole mass */
                                                int64_t sum = 0;
                                                for (int i = 0; i < 4; i++)
                                                    sum += mine[i] = mass(v * LEAF + lane * 4 + i);
                                                for (int h = 16; h; h /= 2) sum += __shfl_xor_sync(~0u, sum, h);
                                                return sum;
    };
    int64_t q[4], run = 0, total = 0, before = 0;
    for (int64_t v = warp * each; v < (warp + 1) * each && v < leaves; v++) run += leaf(v, q);
    __syncthreads();
    if (lane == 0) s->red.i[warp] = run;
    if (threadIdx.x == 0) s->id = -1;
    __syncthreads();
    for (int w = 0; w < HEAD_WARPS; w++) {
        if (w < warp) before += s->red.i[w];
        total += s->red.i[w];
    }
    int64_t at = (int64_t)__umul64hi(random, (uint64_t)total) - before;
    if (at >= 0 && at < run)
        for (int64_t v = warp * each;; v++) {
            const int64_t sum = leaf(v, q);
            if (at >= sum) {
                at -= sum;
                continue;
            }
            int64_t up = q[0] + q[1] + q[2] + q[3];                     /* of the lanes up to this one */
            for (int h = 1; h < 32; h *= 2) {
                const int64_t o = __shfl_up_sync(~0u, up, h);
                if (lane >= h) up += o;
            }
            int64_t left = at - (up - q[0] - q[1] - q[2] - q[3]);
            if (left >= 0 && at < up)
                for (int i = 0; i < 4; i++) {
                    if (left < q[i]) {
                        s->id = (int)(v * LEAF + lane * 4 + i);
                        break;
                    }
                    left -= q[i];
                }
            break;
        }
    __syncthreads();
    return s->id;
}

/* lp, ent and stat of row t, whose distribution is known and whose id's logit is l, -inf outside the kept set */
DEV void put_row(const HeadOut &o, const HeadIn &a, HeadRow *r, int64_t t, int id, float l) {
    if (id < -1 || id >= a.V) fault_at(a.fault, FAULT_ID, t), id = -1;
    r->chosen = id >= 0 && l > -INFINITY;
    *o.lp.row(t) = id < 0 ? (o.id.at ? head_lp(*r, 0) : 0) : r->chosen || head_none(*r) ? head_lp(*r, l) : -INFINITY;
    if (o.ent.at) *o.ent.row(t) = head_ent(*r);
    if (o.stat.at) memcpy(o.stat.row(t), r, sizeof *r);
}

template <bool DRAW>
__global__ void __launch_bounds__(HEAD_THREADS)
    head_full(const HeadIn a, const HeadOut o, float *logits, int64_t ld, int64_t t0) {
    __shared__ HeadShared s;
    float *l = logits + blockIdx.x * ld;
    const int64_t t = t0 + blockIdx.x, V = a.V;
    const float f = a.inv_temp.get(t, 1.0f);
    const bool ban = a.banned && a.ban.get(t, 0), greedy = DRAW && a.greedy.get(t, 0);
    Trunc cut = head_trunc(a, t);
    if (greedy) cut = { 0, 1.0f, 0.0f };
    const uint32_t *given = a.kept && !trunc_off(cut) ? a.kept + t * a.ld_kept : NULL;

    float m = -INFINITY;
    int64_t best = -1; /* of the raw logits: a temperature could make ties */
    for (int64_t i = threadIdx.x; i < V; i += HEAD_THREADS) {
        float x = ban && bit_of(a.banned, i) ? -INFINITY : l[i];
        if (greedy) {
            const int64_t k = (int64_t)head_key(x) << 31 | (0x7FFFFFFF - i);
            best = k > best ? k : best;
        }
        x = given && !bit_of(given, i) ? -INFINITY : __fmul_rn(x, f);
        m = x > m || x != x ? x : m;
        l[i] = x;
    }
    m = block_max(&s.red, m);
    if (greedy) best = block_max64(&s.red, best);
    row_dist(&s, a, t, l, m, cut);
    HeadRow r = s.row;
    int id = -1;
    if (!DRAW) id = a.ids.get(t, -1);
    else if (!head_none(r))
        id = greedy ? (int)(0x7FFFFFFF - (best & 0x7FFFFFFF)) : draw(&s, a, l, (uint64_t)*o.random.row(t));
    if (DRAW && o.kept.at)
        for (int64_t i0 = threadIdx.x / 32 * 32; i0 < V; i0 += HEAD_THREADS) {
            const int64_t i = i0 + threadIdx.x % 32;
            const unsigned bits =
                __ballot_sync(~0u, i < V && (r.cut == CUT_NONE || head_kept(r, l[i], head_mass(l[i], r.max), i)));
            if (threadIdx.x % 32 == 0) o.kept.row(t)[i0 / 32] = bits;
        }
    if (threadIdx.x != 0) return;
    const float x = id >= 0 && id < V ? l[id] : 0;
    const bool in = r.cut != CUT_FOUND || head_none(r) || head_kept(r, x, head_mass(x, r.max), id);
    if (DRAW) *o.id.row(t) = id;
    put_row(o, a, &r, t, id, in ? x : -INFINITY);
}

template <bool DRAW> static void full(Dev *d, const HeadIn &a, const HeadOut &o, Tensor h, Tensor w) {
    const int64_t T = h.rows, V = w.rows, n = full_rows(T, V), ld = round8(V);
    const size_t mark = arena_mark(&d->tmp);
    float *logits = (float *)arena_push(&d->tmp, (size_t)(n * ld) * 4);
    for (int64_t t = 0; t < T; t += n) {
        const int64_t rows = least(n, T - t);
        Tensor l = { logits, DT_F32, rows, V, ld };
        const Prod p = prod_nt(l, tensor_rows(h, t, rows), w, TENSOR_NONE, leaves_one(h.cols));
        prod_run(d, &p);
        launch(d, head_full<DRAW>, dim3((unsigned)rows), dim3(HEAD_THREADS), 0, a, o, logits, ld, t);
    }
    arena_pop(&d->tmp, mark);
}
static size_t full_tmp(Tensor h, Tensor w) {
    return arena_round((size_t)(full_rows(h.rows, w.rows) * round8(w.rows)) * 4);
}

/* ---- scoring without logits: leaves from the product's sums, rows from leaves ---------------------------------- */
struct OutLeaf {
    static constexpr int SPACE = 0;
    static constexpr bool ADD = false;
    HeadIn  a;
    float4 *leaf;                       /* [leaves][rows]: LeafSum */
    float  *want;                       /* [rows]: the wanted id's logit */
    int64_t t0;
    int     rows;
    template <int N> __device__ __forceinline__ void put(float (&v)[N], const Gemm &p, const Place &t) const {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = t.row + t.warp * 16 + t.lane / 4 + 8 * h, c0 = t.n0 + t.lane % 4 * 2;
            const bool live = r < t.row_end;
            const float f = live ? a.inv_temp.get(t0 + r, 1.0f) : 1;
            const bool ban = live && a.banned && a.ban.get(t0 + r, 0);
            const int id = live ? a.ids.get(t0 + r, -1) : -1;
            #pragma unroll
            for (int i = 0; i < N / 2; i++) v[i / 2 * 4 + h * 2 + i % 2] = __fmul_rn(v[i / 2 * 4 + h * 2 + i % 2], f);
            if (ban || t.n0 + 2 * N > p.N)
                #pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    const int c = c0 + i / 2 * 8 + i % 2;
                    if (c >= p.N || (ban && bit_of(a.banned, c))) v[i / 2 * 4 + h * 2 + i % 2] = -INFINITY;
                }
            #pragma unroll
            for (int i = 0; i < N / 2; i++) if (i / 2 * 8 + i % 2 == id - c0) want[r] = v[i / 2 * 4 + h * 2 + i % 2];
            #pragma unroll
            for (int q = 0; q < N / 64; q++) {
                const LeafSum s = leaf_sum([&](int i) { return v[q * 64 + i / 2 * 4 + h * 2 + i % 2]; });
                if (live && t.lane % 4 == 0 && t.n0 + q * LEAF < p.N)
                    leaf[(int64_t)(t.n0 / LEAF + q) * rows + r] = make_float4(s.max, s.z, s.u, 0);
            }
        }
    }
};
/* 8 rows a block, 32 threads a row. */
__global__ void __launch_bounds__(256)
    leaf_rows(const HeadIn a, const HeadOut o, const float4 *leaf, const float *want, int64_t t0, int rows) {
    __shared__ float sm[32][8];
    __shared__ int64_t sz[32][8], su[32][8];
    const int i = threadIdx.x % 8, part = threadIdx.x / 8, r = blockIdx.x * 8 + i;
    const int64_t leaves = (a.V + LEAF - 1) / LEAF, t = t0 + r;
    float m = -INFINITY;
    bool clean = true;
    if (r < rows)
        for (int64_t n = part; n < leaves; n += 32) {
            const float4 s = leaf[n * rows + r];
            m = s.x > m ? s.x : m, clean = clean && s.z == s.z;
        }
    sm[part][i] = clean ? m : NAN;
    __syncthreads();
    for (int q = 0; q < 32; q++) {
        const float x = sm[q][i];
        m = x > m || x != x ? x : m;
    }
    int64_t z = 0, u = 0;
    const bool none = !(m > -INFINITY && m < INFINITY);
    if (r < rows && !none)
        for (int64_t n = part; n < leaves; n += 32) {
            const float4 s = leaf[n * rows + r];
            leaf_add(&z, &u, { s.x, s.y, s.z }, m);
        }
    sz[part][i] = z, su[part][i] = u;
    __syncthreads();
    if (part != 0 || r >= rows) return;
    HeadRow row = { m, a.inv_temp.get(t, 1.0f) };
    row.ban = a.ban.get(t, 0) != 0, row.key = UINT32_MAX, row.tie_last = -1;
    for (int q = 0; q < 32; q++) row.z += sz[q][i], row.u += su[q][i];
    const int id = a.ids.get(t, -1);
    put_row(o, a, &row, t, id, id >= 0 && id < a.V ? want[r] : 0);
}
static int64_t fused_rows(int64_t rows, int64_t V) {
    int64_t n = FUSED_LEAVES / ((V + LEAF - 1) / LEAF) / 256 * 256;
    return least(rows, n < 256 ? 256 : n);
}
static bool fused(const Head *h) {
    const bool cut = h->dist.top_k.data || h->dist.top_p.data || h->dist.min_p.data;
    if (cut || h->h.rows == 0) return false;
    const Prod p = prod_nt({ h->h.data, DT_F32, h->h.rows, h->w.rows, round8(h->w.rows) }, h->h, h->w, TENSOR_NONE,
                           leaves_one(h->h.cols));
    return prod_fast(&p);
}
static size_t fused_tmp(const Head *h) {
    const int64_t n = fused_rows(h->h.rows, h->w.rows);
    return arena_round((size_t)(n * ((h->w.rows + LEAF - 1) / LEAF)) * 16) + arena_round((size_t)n * 4);
}
static void fused_run(Dev *d, const HeadIn &a, const HeadOut &o, const Head *h) {
    const int64_t T = h->h.rows, V = h->w.rows, n = fused_rows(T, V);
    float4 *leaf = (float4 *)arena_push(&d->tmp, (size_t)(n * ((V + LEAF - 1) / LEAF)) * 16);
    float *want = (float *)arena_push(&d->tmp, (size_t)n * 4);
    for (int64_t t = 0; t < T; t += n) {
        const int64_t rows = least(n, T - t);
        const Prod p =
            prod_nt({ want, DT_F32, rows, V, V }, tensor_rows(h->h, t, rows), h->w, TENSOR_NONE, leaves_one(h->h.cols));
        gemm_go<FWD, 256, OutLeaf, false>(d, &p, { a, leaf, want, t, (int)rows });
        launch(d, leaf_rows, dim3(blocks_of(rows, 8)), dim3(256), 0, a, o, leaf, want, t, (int)rows);
    }
}

size_t cuda_tmp_logprob(Dev *d, const Head *h) {
    (void)d;
    return head_ban_bytes(h->banned, h->ban, h->w.rows) + (fused(h) ? fused_tmp(h) : full_tmp(h->h, h->w));
}
void cuda_logprob(Dev *d, const Head *h) {
    const size_t mark = arena_mark(&d->tmp);
    HeadIn a = head_in(d, &h->dist, h->banned, h->ban, h->w.rows);
    a.ids = col_of<int>(h->ids), a.kept = (const uint32_t *)h->kept.data, a.ld_kept = h->kept.ld;
    HeadOut o = { rows_of<float>(h->lp), rows_of<float>(h->ent), rows_of<unsigned char>(h->stat) };
    if (fused(h)) fused_run(d, a, o, h);
    else if (h->h.rows > 0) full<false>(d, a, o, h->h, h->w);
    arena_pop(&d->tmp, mark);
}

size_t cuda_tmp_sample(Dev *d, const Sample *s) {
    (void)d;
    return head_ban_bytes(s->banned, s->ban, s->w.rows) + full_tmp(s->h, s->w);
}
void cuda_sample(Dev *d, const Sample *s) {
    const size_t mark = arena_mark(&d->tmp);
    HeadIn a = head_in(d, &s->dist, s->banned, s->ban, s->w.rows);
    a.greedy = col_of<int>(s->greedy);
    HeadOut o = { rows_of<float>(s->lp), rows_of<float>(s->ent), {}, rows_of<int>(s->id), rows_of<uint32_t>(s->kept),
                  rows_of<const int64_t>(s->random) };
    if (s->h.rows > 0) full<true>(d, a, o, s->h, s->w);
    arena_pop(&d->tmp, mark);
}

cudaError_t head_allow(void) { return allow_gemm<FWD, 256, OutLeaf, false>(); }
