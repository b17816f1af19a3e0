/* head.cu - log-probs, entropies and drawing, from hidden rows and the head's weights; [T,V] never exists whole.
 *
 * Scoring whole distributions keeps three numbers per row and leaf of 128 ids, made where the product leaves its
 * sums.  Rows that may be cut, and drawing, want all logits of a row at once: a chunk of rows has them in d->tmp,
 * and a block of threads turns each row into its distribution.  All ways end in the same whole numbers (head.cuh),
 * so a row has the same bits alone, in any batch, scored or drawn. */
#include "op/cuda/sm90/head.cuh"
#include "op/cuda/sm90/gemm_go.cuh"

/* FULL_FLOATS, FUSED_LEAVES: in d->tmp at a time; the first is 256 rows of 164,000 ids, whole tiles of the product */
enum { FULL_FLOATS = 41 << 20, FUSED_LEAVES = 1 << 22, FEW_DRAWN = 16 };

typedef struct {
    Rows<float>         lp, ent;        /* ent, stat, kept: or none */
    Rows<unsigned char> stat;
    Rows<int>           id, next;
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
HeadIn head_in(Dev *d, const Dist *p, Tensor banned, Tensor ban, int64_t V, Part vocab) {
    HeadIn a = { col_of<float>(p->inv_temp), col_of<float>(p->top_p), col_of<float>(p->min_p), col_of<int>(p->top_k) };
    a.V = V, a.first = vocab.first, a.all = vocab.of ? vocab.of : V, a.fault = cu(d)->fault;
    a.ban = col_of<int>(ban), a.banned = ban_of(d, banned, ban, a.all);
    if (a.banned) a.banned += a.first / 32; /* parts begin with a leaf */
    return a;
}
HeadIn head_of(Dev *d, const Head *h) {
    HeadIn a = head_in(d, &h->dist, h->banned, h->ban, h->w.rows, h->vocab);
    a.ids = col_of<int>(h->ids), a.kept = (const uint32_t *)h->kept.data, a.ld_kept = h->kept.ld;
    return a;
}

/* ---- leaves, where the product leaves its sums ----------------------------------------------------------------- */
struct OutLeaf {
    static constexpr int SPACE = 0;
    static constexpr bool ADD = false;
    HeadIn  a;
    float4 *leaf;                       /* [rows][leaves]: LeafSum */
    float  *want;                       /* [rows]: the wanted id's logit; or NULL */
    float  *raw;                        /* [rows][ld]: logits; or NULL */
    int64_t ld, t0;
    int     leaves;
    template <int N> __device__ __forceinline__ void put(float (&v)[N], const Gemm &p, const Place &t) const {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = t.row + t.warp * 16 + t.lane / 4 + 8 * h, c0 = t.n0 + t.lane % 4 * 2;
            const bool live = r < t.row_end;
            const int64_t row = t0 + (live ? r : t.row);
            const Shaped x = shaped_of(a, row, NULL, NULL, a.kept && !trunc_off(head_trunc(a, row)));
            if (live && raw)
                #pragma unroll
                for (int i = 0; i < N / 4; i++)
                    if (c0 + i * 8 < p.N)
                        *(float2 *)(raw + r * ld + c0 + i * 8) = make_float2(v[i * 4 + h * 2], v[i * 4 + h * 2 + 1]);
            #pragma unroll
            for (int i = 0; i < N / 2; i++)
                v[i / 2 * 4 + h * 2 + i % 2] = __fmul_rn(v[i / 2 * 4 + h * 2 + i % 2], x.f);
            if (x.ban || x.given || t.n0 + 2 * N > p.N)
                #pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    const int c = c0 + i / 2 * 8 + i % 2;
                    if (c >= p.N || (x.ban && bit_of(x.ban, c)) || (x.given && !bit_of(x.given, c)))
                        v[i / 2 * 4 + h * 2 + i % 2] = -INFINITY;
                }
            if (want) {
                const int id = live ? a.ids.get(row, -1) - (int)a.first - c0 : -1;
                if ((unsigned)id < 2 * N) /* in one tile of hundreds */
                    #pragma unroll
                    for (int i = 0; i < N / 2; i++)
                        if (i / 2 * 8 + i % 2 == id) want[r] = v[i / 2 * 4 + h * 2 + i % 2];
            }
            #pragma unroll
            for (int q = 0; q < N / 64; q++) {
                const LeafSum s = leaf_sum([&](int i) { return v[q * 64 + i / 2 * 4 + h * 2 + i % 2]; });
                if (live && t.lane % 4 == 0 && t.n0 + q * LEAF < p.N)
                    leaf[(int64_t)r * leaves + t.n0 / LEAF + q] = make_float4(s.max, s.z, s.u, 0);
            }
        }
    }
};
/* ... from logits in memory, with the same bits: four lanes a leaf */
__global__ void __launch_bounds__(256)
    leaves_of_logits(const HeadIn a, float4 *leaf, const float *logits, int64_t ld, int64_t t0, int leaves) {
    const int64_t r = blockIdx.y, n = (int64_t)blockIdx.x * 64 + threadIdx.x / 4;
    const Shaped x = shaped_of(a, t0 + r, logits + r * ld, NULL, !trunc_off(head_trunc(a, t0 + r)));
    const LeafSum s = leaf_sum([&](int i) {
        const int64_t id = n * LEAF + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
        return id < a.V ? x.at(id) : -INFINITY;
    });
    if (threadIdx.x % 4 == 0 && n < leaves) leaf[r * leaves + n] = make_float4(s.max, s.z, s.u, 0);
}

/* ---- rows from leaves ------------------------------------------------------------------------------------------ */
/* lp, ent and stat of row t, whose distribution is known and whose id's logit is l, -inf outside the kept set */
DEV void put_row(const HeadOut &o, const HeadIn &a, HeadRow *r, int64_t t, int id, float l) {
    if (id < -1 || id >= a.all) fault_at(a.fault, FAULT_ID, t), id = -1;
    r->chosen = id >= 0 && l > -INFINITY;
    *o.lp.row(t) = id < 0 ? (o.id.at ? head_lp(*r, 0) : 0) : r->chosen || head_none(*r) ? head_lp(*r, l) : -INFINITY;
    if (o.ent.at) *o.ent.row(t) = head_ent(*r);
    if (o.stat.at) memcpy(o.stat.row(t), r, sizeof *r);
}
/* The row's largest logit; NaN where there is no distribution.  Threads 'from' of 'n' of a warp or a block look at
 * part of it. */
DEV float leaves_max(const float4 *leaf, int leaves, int from, int n) {
    float m = -INFINITY;
    bool clean = true;
    for (int i = from; i < leaves; i += n) {
        const float4 s = leaf[i];
        m = s.x > m ? s.x : m, clean = clean && s.z == s.z;
    }
    return clean ? m : NAN;
}
DEV float max_or_nan(float a, float b) { return b > a || b != b ? b : a; }
DEV float warp_max_or_nan(float m) {
    for (int h = 16; h; h /= 2) m = max_or_nan(m, __shfl_xor_sync(~0u, m, h));
    return m;
}
DEV bool finite_max(float m) { return m > -INFINITY && m < INFINITY; }

/* Whole distributions, scored: a warp a row. */
__global__ void __launch_bounds__(256) score_rows(const HeadIn a, const HeadOut o, const float4 *leaf,
                                                  const float *want, int64_t t0, int rows, int leaves) {
    const int r = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= rows) return;
    const int64_t t = t0 + r;
    leaf += (int64_t)r * leaves;
    HeadRow row = { warp_max_or_nan(leaves_max(leaf, leaves, lane, 32)), a.inv_temp.get(t, 1.0f) };
    row.ban = a.ban.get(t, 0) != 0, row.key = UINT32_MAX, row.tie_last = -1;
    if (finite_max(row.max))
        for (int i = lane; i < leaves; i += 32) leaf_add(&row.z, &row.u, { leaf[i].x, leaf[i].y, leaf[i].z }, row.max);
    row.z = warp_sum64(row.z), row.u = warp_sum64(row.u);
    const int id = a.ids.get(t, -1);
    if (lane == 0) put_row(o, a, &row, t, id, id >= 0 && id < a.V ? want[r] : 0);
}

/* Drawing: the inverse of the distribution's sum, in the order of ids: where the running mass passes a random part
 * of the whole.  Of whole distributions leaves are walked by their shares, then the ids of one leaf; of cut ones
 * all kept ids. */
DEV int64_t sum_before(HeadShared *s, int64_t mine) {           /* of the threads before this one */
    int64_t up = mine;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int h = 1; h < 32; h *= 2) {
        const int64_t x = __shfl_up_sync(~0u, up, h);
        if (lane >= h) up += x;
    }
    __syncthreads();
    if (lane == 31) s->part[warp] = up;
    __syncthreads();
    for (int w = 0; w < warp; w++) up += s->part[w];
    return up - mine;
}
DEV int draw_whole(HeadShared *s, const HeadRow &r, const Shaped &x, const float4 *leaf, int leaves, int64_t V,
                   uint64_t random) {
    const int each = (leaves + HEAD_THREADS - 1) / HEAD_THREADS, from = threadIdx.x * each,
              to = min(from + each, leaves);
    const int64_t at = (int64_t)__umul64hi(random, (uint64_t)r.z);
    int64_t sum = 0, u = 0;
    for (int i = from; i < to; i++) leaf_add(&sum, &u, { leaf[i].x, leaf[i].y, leaf[i].z }, r.max);
    int64_t before = sum_before(s, sum);
    __syncthreads();
    if (at >= before && at < before + sum)
        for (int i = from; i < to; i++) {
            int64_t share = 0;
            leaf_add(&share, &u, { leaf[i].x, leaf[i].y, leaf[i].z }, r.max);
            if (at - before < share) {
                s->last = i, s->part[0] = at - before;
                break;
            }
            before += share;
        }
    __syncthreads();
    if (threadIdx.x < 32) {
        const int64_t v = (int64_t)s->last * LEAF + threadIdx.x * 4, left = s->part[0];
        int64_t q[4], up = 0, best = -1;
        for (int i = 0; i < 4; i++) {
            const float l = v + i < V ? x.at(v + i) : -INFINITY;
            q[i] = head_mass(l, r.max), up += q[i];
            const int64_t k = (int64_t)head_key(l) << 31 | (0x7FFFFFFF - (v + i));
            best = k > best ? k : best;
        }
        const int64_t mine = up;
        for (int h = 1; h < 32; h *= 2) {
            const int64_t y = __shfl_up_sync(~0u, up, h);
            if (threadIdx.x >= h) up += y;
        }
        /* the leaf's share was rounded as a whole: what is left past its ids' masses goes to the likeliest of them */
        for (int h = 16; h; h /= 2) {
            const int64_t y = __shfl_xor_sync(~0u, best, h);
            best = y > best ? y : best;
        }
        int id = (int)(0x7FFFFFFF - (best & 0x7FFFFFFF));
        int64_t b = up - mine;
        const bool here = left >= b && left < up;
        if (here)
            for (int i = 0; i < 4; i++) {
                if (left < b + q[i]) {
                    id = (int)(v + i);
                    break;
                }
                b += q[i];
            }
        const unsigned who = __ballot_sync(~0u, here);
        if (who ? here : threadIdx.x == 0) s->id[0] = id;
    }
    __syncthreads();
    return s->id[0];
}
DEV int draw_cut(HeadShared *s, const HeadRow &r, const Shaped &x, int64_t V, uint64_t random) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, leaves = (int)((V + LEAF - 1) / LEAF);
    const int each = (leaves + HEAD_WARPS - 1) / HEAD_WARPS, from = warp * each, to = min(from + each, leaves);
    auto masses = [&](int n, int64_t(&q)[4]) -> int64_t {       /* of this lane's four ids of leaf n; their sum */
        int64_t sum = 0;
        for (int k = 0; k < 4; k++) {
            const int64_t i = (int64_t)n * LEAF + lane * 4 + k;
            const float l = i < V ? x.at(i) : -INFINITY;
            q[k] = i < V ? head_mass(l, r.max) : 0;
            if (q[k] && !head_kept(r, l, q[k], i)) q[k] = 0;
            sum += q[k];
        }
        return sum;
    };
    int64_t run = 0, before = 0, q[4];
    for (int n = from; n < to; n++)
        if (head_key(x.leaf[n].x) >= r.key) run += masses(n, q);
    run = warp_sum64(run);
    __syncthreads();
    if (lane == 0) s->part[warp] = run;
    __syncthreads();
    for (int w = 0; w < warp; w++) before += s->part[w];
    int64_t at = (int64_t)__umul64hi(random, (uint64_t)r.z) - before;
    if (at >= 0 && at < run)
        for (int n = from; n < to; n++) {
            if (head_key(x.leaf[n].x) < r.key) continue;
            const int64_t mine = masses(n, q);
            int64_t up = mine;
            for (int h = 1; h < 32; h *= 2) {
                const int64_t y = __shfl_up_sync(~0u, up, h);
                if (lane >= h) up += y;
            }
            const int64_t all = __shfl_sync(~0u, up, 31);
            if (at >= all) {
                at -= all;
                continue;
            }
            int64_t left = at - (up - mine);
            if (left >= 0 && left < mine)
                for (int k = 0; k < 4; k++) {
                    if (left < q[k]) {
                        s->id[0] = n * LEAF + lane * 4 + k;
                        break;
                    }
                    left -= q[k];
                }
            break;
        }
    __syncthreads();
    return s->id[0];
}

/* Any distribution, scored or drawn: a block a row. */
template <bool DRAW>
__global__ void __launch_bounds__(HEAD_THREADS) any_rows(const HeadIn a, const HeadOut o, const float4 *leaf,
                                                         const float *logits, int64_t ld, int64_t t0, int leaves) {
    __shared__ HeadShared s;
    const int64_t t = t0 + blockIdx.x, V = a.V;
    const bool greedy = DRAW && a.greedy.get(t, 0);
    Trunc cut = head_trunc(a, t);
    if (greedy) cut = { 0, 1.0f, 0.0f };
    leaf += (int64_t)blockIdx.x * leaves;
    const Shaped x = shaped_of(a, t, logits + blockIdx.x * ld, leaf, !trunc_off(cut));

    float m = warp_max_or_nan(leaves_max(leaf, leaves, threadIdx.x, HEAD_THREADS));
    if (threadIdx.x % 32 == 0) s.l[threadIdx.x / 32] = m;
    __syncthreads();
    m = warp_max_or_nan(s.l[threadIdx.x % 32]);
    __syncthreads();
    HeadRow r = { m, x.f };
    r.ban = a.ban.get(t, 0) != 0, r.key = UINT32_MAX, r.tie_last = -1;
    r.cut = trunc_off(cut) ? CUT_NONE : x.given ? CUT_GIVEN : CUT_FOUND;
    const bool some = finite_max(m);
    int64_t z = 0, u = 0;
    if (some)
        for (int i = threadIdx.x; i < leaves; i += HEAD_THREADS)
            leaf_add(&z, &u, { leaf[i].x, leaf[i].y, leaf[i].z }, m);
    z = block_sum(s.part, z), u = block_sum(s.part, u);
    if (some && r.cut == CUT_FOUND) {
        r.qmin = cut.min_p > 0 ? __double2ll_rn((cut.min_p < 1 ? (double)cut.min_p : 1) * HEAD_ONE) : 0;
        const Prefix p = keep(&s, x, V, m, r.qmin, cut, z);
        r.key = p.key, r.tie_last = last_tie(&s, x, V, p);
    }
    if (some && r.cut != CUT_NONE) {
        z = u = 0;
        each_from(x, V, r.cut == CUT_FOUND ? key_logit(r.key) : __fsub_rn(m, 32.0f), [&](float l, int i) {
            const int64_t q = head_mass(l, m);                          /* 32 below the largest it is 0 */
            if (q == 0 || (r.cut == CUT_FOUND && !head_kept(r, l, q, i))) return;
            z += q, u += __double2ll_rn((double)__fsub_rn(l, m) * (double)q);
        });
        z = block_sum(s.part, z), u = block_sum(s.part, u);
    }
    r.z = z, r.u = u;

    int id = -1;
    if (!DRAW) id = a.ids.get(t, -1);
    else if (
        some
        && greedy) { /* of the raw logits: a temperature could make ties.  The largest are in leaves whose maximum is */
        int64_t best = -1;
        for (int n = threadIdx.x / 32; n < leaves; n += HEAD_WARPS)
            if (__fadd_rn(leaf[n].x, 0.0f) == m)
                for (int64_t i = (int64_t)n * LEAF + threadIdx.x % 32; i < (n + 1) * LEAF && i < V; i += 32)
                    if (!(x.ban && bit_of(x.ban, i))) {
                        const int64_t k = (int64_t)head_key(x.raw[i]) << 31 | (0x7FFFFFFF - i);
                        best = k > best ? k : best;
                    }
        for (int h = 16; h; h /= 2) {
            const int64_t y = __shfl_xor_sync(~0u, best, h);
            best = y > best ? y : best;
        }
        __syncthreads();                                                /* block_sum's part may still be read */
        if (threadIdx.x % 32 == 0) s.part[threadIdx.x / 32] = best;
        __syncthreads();
        for (int w = 0; w < HEAD_WARPS; w++) best = s.part[w] > best ? s.part[w] : best;
        id = (int)(0x7FFFFFFF - (best & 0x7FFFFFFF));
    } else if (some && DRAW) {
        const uint64_t random = (uint64_t)*o.random.row(t);
        id = r.cut == CUT_NONE ? draw_whole(&s, r, x, leaf, leaves, V, random) : draw_cut(&s, r, x, V, random);
    }
    if (DRAW && o.kept.at)
        for (int64_t i0 = threadIdx.x / 32 * 32; i0 < V; i0 += HEAD_THREADS) {
            const int64_t i = i0 + threadIdx.x % 32;
            bool in = i < V;
            if (r.cut == CUT_FOUND && head_key(leaf[i0 / LEAF].x) < r.key) in = false;
            if (in && r.cut == CUT_FOUND) {
                const float l = x.at(i);
                in = head_kept(r, l, r.qmin > 0 ? head_mass(l, m) : 0, i);
            }
            const unsigned bits = __ballot_sync(~0u, in);
            if (threadIdx.x % 32 == 0) o.kept.row(t)[i0 / 32] = bits;
        }
    if (threadIdx.x != 0) return;
    const float l = id >= 0 && id < V ? x.at(id) : 0;
    const bool in = r.cut != CUT_FOUND || !some || head_kept(r, l, head_mass(l, m), id);
    if (DRAW) *o.id.row(t) = id;
    if (DRAW && o.next.at) *o.next.row(t) = id < 0 ? 0 : id;
    put_row(o, a, &r, t, id, in ? l : -INFINITY);
}

/* ---- chunks of rows -------------------------------------------------------------------------------------------- */
/* What a call holds in d->tmp: leaves of some rows, and their logits where they are asked for or the product
 * cannot make leaves. */
typedef struct {
    bool fused, logits;
    int64_t rows, ld;
    int leaves;
    size_t leaf_bytes, raw_bytes, want_bytes, prod_bytes;
} Plan;
static Plan plan_of(const Dev *d, Tensor h, Tensor w, int64_t words, bool logits) {
    Plan c = { false, logits, h.rows, round8(w.rows), (int)((w.rows + LEAF - 1) / LEAF) };
    const Prod p = prod_nt({ (void *)(uintptr_t)ARENA_ALIGN, DT_F32, h.rows, w.rows, c.ld }, h, w, TENSOR_NONE,
                           leaves_one(h.cols));
    /* Of few rows that want all their logits the weights are only streamed (few.cuh). */
    c.fused = prod_fast(&p) && !head_odd(words) && !(logits && h.rows <= FEW_DRAWN), c.logits = logits || !c.fused;
    int64_t n = c.logits ? FULL_FLOATS / c.ld : FUSED_LEAVES / c.leaves / 256 * 256;
    if (n > 128) n = n / 128 * 128;
    c.rows = least(h.rows, n < 1 ? 1 : n > 65535 ? 65535 : n); /* a grid has no more rows */
    c.leaf_bytes = arena_round((size_t)(c.rows * c.leaves) * 16), c.want_bytes = arena_round((size_t)c.rows * 4);
    c.raw_bytes = c.logits ? arena_round((size_t)(c.rows * c.ld) * 4) : 0;
    Prod one = p;
    one.rows = c.rows;
    c.prod_bytes = c.fused || head_odd(words) ? 0 : prod_tmp(d, &one);
    return c;
}
static size_t plan_bytes(const Plan &c) { return c.leaf_bytes + c.want_bytes + c.raw_bytes + c.prod_bytes; }

/* then(leaves, the wanted ids' logits, all logits, first row, rows) for chunk after chunk: of the two logits one
 * is there.  keep: all of them stay there as well. */
template <class F>
static void chunks(Dev *d, const Plan &c, const HeadIn &a, Tensor h, Tensor w, Tensor keep, F then) {
    const size_t mark = arena_mark(&d->tmp);
    float4 *leaf = (float4 *)arena_push(&d->tmp, c.leaf_bytes);
    float *want = (float *)arena_push(&d->tmp, c.want_bytes);
    float *raw = c.logits ? (float *)arena_push(&d->tmp, c.raw_bytes) : NULL;
    for (int64_t t = 0; t < h.rows; t += c.rows) {
        const int64_t n = least(c.rows, h.rows - t);
        const Prod p = prod_nt({ raw ? raw : want, DT_F32, n, w.rows, c.ld }, tensor_rows(h, t, n), w, TENSOR_NONE,
                               leaves_one(h.cols));
        if (c.fused)
            gemm_go<FWD, 256, OutLeaf, false>(d, &p,
                                              { a, leaf, raw ? NULL : want,
                                                keep.data ? (float *)keep.data + t * keep.ld : raw,
                                                keep.data ? keep.ld : c.ld, t, c.leaves });
        else {
            head_logits(d, &p, a.all);
            launch(d, leaves_of_logits, dim3(blocks_of(c.leaves, 64), (unsigned)n), dim3(256), 0, a, leaf, raw, c.ld, t,
                   c.leaves);
        }
        then(leaf, raw ? NULL : want, raw, t, n);
    }
    arena_pop(&d->tmp, mark);
}
template <bool DRAW>
static void run(Dev *d, const HeadIn &a, const HeadOut &o, Tensor h, Tensor w, Tensor keep, bool logits) {
    const Plan c = plan_of(d, h, w, a.all, logits);
    chunks(d, c, a, h, w, keep, [&](float4 *leaf, float *want, float *raw, int64_t t, int64_t n) {
        if (raw)
            launch(d, any_rows<DRAW>, dim3((unsigned)n), dim3(HEAD_THREADS), 0, a, o, leaf, raw, c.ld, t, c.leaves);
        else launch(d, score_rows, dim3(blocks_of(n, 8)), dim3(256), 0, a, o, leaf, want, t, (int)n, c.leaves);
    });
}

/* Whether a row is cut is known on the device alone; that none is, here too. */
bool may_cut(const Dist *p) { return p->top_k.data || p->top_p.data || p->min_p.data; }

size_t cuda_tmp_logprob(Dev *d, const Head *h) {
    return head_ban_bytes(h->banned, h->ban, head_words(h))
           + plan_bytes(plan_of(d, h->h, h->w, head_words(h), may_cut(&h->dist)));
}
void cuda_logprob(Dev *d, const Head *h) {
    if (h->h.rows == 0) return;
    const size_t mark = arena_mark(&d->tmp);
    const HeadIn a = head_of(d, h);
    const HeadOut o = { rows_of<float>(h->lp), rows_of<float>(h->ent), rows_of<unsigned char>(h->stat) };
    run<false>(d, a, o, h->h, h->w, head_keeps(h) ? h->logits : TENSOR_NONE, may_cut(&h->dist));
    arena_pop(&d->tmp, mark);
}

/* ---- a vocabulary in parts: this rank's leaves, then everybody's ----------------------------------------------- */
/* part [rows, 3 leaves + 1]: its leaves, and the wanted id's logit where this part has it, else 0 */
__global__ void put_part(Rows<float> part, const HeadIn a, const float4 *leaf, const float *want, const float *logits,
                         int64_t ld, int64_t t0, int leaves) {
    const int64_t r = blockIdx.x, t = t0 + r;
    float *to = part.row(t);
    for (int n = threadIdx.x; n < leaves; n += blockDim.x) {
        const float4 s = leaf[r * leaves + n];
        to[3 * n] = s.x, to[3 * n + 1] = s.y, to[3 * n + 2] = s.z;
    }
    if (threadIdx.x != 0) return;
    const int64_t id = a.ids.get(t, -1) - a.first;
    const bool here = a.ids.get(t, -1) >= 0 && id >= 0 && id < a.V;
    to[3 * leaves] = !here ? 0 : want ? want[r] : shaped_of(a, t, logits + r * ld, NULL, false).at(id);
}
size_t cuda_tmp_logprob_part(Dev *d, Tensor part, const Head *h) {
    (void)part;
    const size_t ban = head_ban_bytes(h->banned, h->ban, head_words(h));
    return h->w.rows == 0 ? ban : ban + plan_bytes(plan_of(d, h->h, h->w, head_words(h), false));
}
void cuda_logprob_part(Dev *d, Tensor part, const Head *h) {
    if (h->h.rows == 0) return;
    if (h->w.rows == 0) { /* no leaves, and no id */
        cuda_zero(d, part);
        return;
    }
    const size_t mark = arena_mark(&d->tmp);
    const HeadIn a = head_of(d, h);
    const Plan c = plan_of(d, h->h, h->w, a.all, false);
    chunks(d, c, a, h->h, h->w, TENSOR_NONE, [&](float4 *leaf, float *want, float *raw, int64_t t, int64_t n) {
        launch(d, put_part, dim3((unsigned)n), dim3(256), 0, rows_of<float>(part), a, leaf, want, raw, c.ld, t,
               c.leaves);
    });
    arena_pop(&d->tmp, mark);
}

enum { PARTS = 32 };
typedef struct { const float *at[PARTS]; int leaves[PARTS], n; } Parts;
/* A warp a row, as score_rows, over all parts. */
__global__ void __launch_bounds__(256) end_rows(const HeadIn a, const HeadOut o, const Parts p, int64_t rows) {
    const int64_t t = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (t >= rows) return;
    HeadRow row = { -INFINITY, a.inv_temp.get(t, 1.0f) };
    row.ban = a.ban.get(t, 0) != 0, row.key = UINT32_MAX, row.tie_last = -1;
    auto each = [&](auto f) {
        for (int i = 0; i < p.n; i++) {
            const float *s = p.at[i] + t * (3 * (int64_t)p.leaves[i] + 1);
            for (int n = lane; n < p.leaves[i]; n += 32) f(LeafSum{ s[3 * n], s[3 * n + 1], s[3 * n + 2] });
        }
    };
    bool clean = true;
    each([&](LeafSum s) { row.max = s.max > row.max ? s.max : row.max, clean = clean && s.u == s.u; });
    row.max = warp_max_or_nan(clean ? row.max : NAN);
    if (finite_max(row.max)) each([&](LeafSum s) { leaf_add(&row.z, &row.u, s, row.max); });
    row.z = warp_sum64(row.z), row.u = warp_sum64(row.u);
    if (lane != 0) return;
    const int id = a.ids.get(t, -1);
    float l = 0;
    int64_t at = 0;
    for (int i = 0; i < p.n; i++) {
        if (id >= at * LEAF && id < (at + p.leaves[i]) * LEAF)
            l = p.at[i][t * (3 * (int64_t)p.leaves[i] + 1) + 3 * (int64_t)p.leaves[i]];
        at += p.leaves[i];
    }
    put_row(o, a, &row, t, id, l);
}
void cuda_logprob_end(Dev *d, const Tensor *part, int n, const Head *h) {
    CHECK(n <= PARTS, "logprob_end: %d parts; at most %d", n, PARTS);
    Parts p = { { NULL }, { 0 }, n };
    for (int i = 0; i < n; i++) p.at[i] = (const float *)part[i].data, p.leaves[i] = (int)((part[i].cols - 1) / 3);
    Head all = *h; /* no part of it is looked at for bans: they are in the leaves */
    all.banned = TENSOR_NONE;
    const HeadIn a = head_of(d, &all);
    const HeadOut o = { rows_of<float>(h->lp), rows_of<float>(h->ent), rows_of<unsigned char>(h->stat) };
    launch(d, end_rows, dim3(blocks_of(h->h.rows, 8)), dim3(256), 0, a, o, p, h->h.rows);
}

/* ---- drawing --------------------------------------------------------------------------------------------------- */
static HeadOut draw_out(const Sample *s) {
    return { rows_of<float>(s->lp), rows_of<float>(s->ent), {}, rows_of<int>(s->id), rows_of<int>(s->next),
             rows_of<uint32_t>(s->kept), rows_of<const int64_t>(s->random) };
}
size_t cuda_tmp_sample(Dev *d, const Sample *s) {
    return head_ban_bytes(s->banned, s->ban, s->w.rows) + plan_bytes(plan_of(d, s->h, s->w, s->w.rows, true));
}
void cuda_sample(Dev *d, const Sample *s) {
    if (s->h.rows == 0) return;
    const size_t mark = arena_mark(&d->tmp);
    HeadIn a = head_in(d, &s->dist, s->banned, s->ban, s->w.rows, part_whole(s->w.rows));
    a.greedy = col_of<int>(s->greedy);
    run<true>(d, a, draw_out(s), s->h, s->w, TENSOR_NONE, true);
    arena_pop(&d->tmp, mark);
}

/* ---- rows whose logits are there ------------------------------------------------------------------------------- */
/* They are read 16 bytes at a time: a chunk of rows that do not lie so is copied first. */
static Plan rows_plan(Tensor logits) {
    Plan c = { false, logits.ld % 4 != 0 || (uintptr_t)logits.data % 16 != 0, logits.rows, logits.ld,
               (int)((logits.cols + LEAF - 1) / LEAF) };
    if (c.logits) c.ld = round8(logits.cols);
    int64_t n = c.logits ? FULL_FLOATS / c.ld : FUSED_LEAVES / c.leaves;
    c.rows = least(logits.rows, n < 1 ? 1 : n > 65535 ? 65535 : n);
    c.leaf_bytes = arena_round((size_t)(c.rows * c.leaves) * 16);
    c.raw_bytes = c.logits ? arena_round((size_t)(c.rows * c.ld) * 4) : 0;
    return c;
}
template <bool DRAW> static void run_rows(Dev *d, const HeadIn &a, const HeadOut &o, Tensor logits) {
    const Plan c = rows_plan(logits);
    float4 *leaf = (float4 *)arena_push(&d->tmp, c.leaf_bytes);
    float *copy = c.logits ? (float *)arena_push(&d->tmp, c.raw_bytes) : NULL;
    for (int64_t t = 0; t < logits.rows; t += c.rows) {
        const int64_t n = least(c.rows, logits.rows - t);
        const Tensor x = tensor_rows(logits, t, n);
        if (copy) cuda_copy(d, { copy, DT_F32, n, x.cols, c.ld }, x);
        const float *raw = copy ? copy : (const float *)x.data;
        launch(d, leaves_of_logits, dim3(blocks_of(c.leaves, 64), (unsigned)n), dim3(256), 0, a, leaf, raw, c.ld, t,
               c.leaves);
        launch(d, any_rows<DRAW>, dim3((unsigned)n), dim3(HEAD_THREADS), 0, a, o, leaf, raw, c.ld, t, c.leaves);
    }
}
static size_t rows_bytes(Tensor logits, Tensor banned, Tensor ban) {
    return logits.rows ? head_ban_bytes(banned, ban, logits.cols) + plan_bytes(rows_plan(logits)) : 0;
}
size_t cuda_tmp_logprob_rows(Dev *d, Tensor logits, const Head *h) {
    (void)d;
    return rows_bytes(logits, h->banned, h->ban);
}
void cuda_logprob_rows(Dev *d, Tensor logits, const Head *h) {
    if (logits.rows == 0) return;
    const size_t mark = arena_mark(&d->tmp);
    HeadIn a = head_in(d, &h->dist, h->banned, h->ban, logits.cols, part_whole(logits.cols));
    a.ids = col_of<int>(h->ids), a.kept = (const uint32_t *)h->kept.data, a.ld_kept = h->kept.ld;
    run_rows<false>(d, a, { rows_of<float>(h->lp), rows_of<float>(h->ent), rows_of<unsigned char>(h->stat) }, logits);
    arena_pop(&d->tmp, mark);
}
size_t cuda_tmp_sample_rows(Dev *d, Tensor logits, const Sample *s) {
    (void)d;
    return rows_bytes(logits, s->banned, s->ban);
}
void cuda_sample_rows(Dev *d, Tensor logits, const Sample *s) {
    if (logits.rows == 0) return;
    const size_t mark = arena_mark(&d->tmp);
    HeadIn a = head_in(d, &s->dist, s->banned, s->ban, logits.cols, part_whole(logits.cols));
    a.greedy = col_of<int>(s->greedy);
    run_rows<true>(d, a, draw_out(s), logits);
    arena_pop(&d->tmp, mark);
}

cudaError_t head_allow(void) { return allow_gemm<FWD, 256, OutLeaf, false>(); }
