/* attn_one.cu - a step of decoding of so few sequences that most of the card has nothing to do: attention of one query
 * row each, heads of 128 columns in groups of at most eight, with the sums of attn_sums.cuh, hence the bits of
 * attn_fwd.cuh.  What counts is how many steps wait for one another.
 *
 * Two CTAs a span of a sequence's kv head, each with half of the values' columns and all keys in shared memory before
 * there are queries.  Keys, and then values, are wgmma's M, a group's queries its N.  A warpgroup has a block of keys;
 * what the order says of a block after the other are maxima, which are found for all of them at once, and the sum of
 * values, which one warpgroup makes while another adds up the weights. */
#include "op/cuda/sm90/attn_fwd.cuh"

enum {
    ONE_BLOCKS = ATTN_SPAN / ATTN_BLOCK, ONE_WORKERS = ONE_BLOCKS * 128, ONE_THREADS = ONE_WORKERS + 32,
    ONE_ROW = ATTN_SPAN + 4,                                            /* weights of a query: no bank conflicts */
    ONE_K = ATTN_BLOCK * 256, ONE_V = ATTN_BLOCK * 128                  /* bytes of a block */
};
struct OneRoom {
    uint8_t k[ONE_BLOCKS][ONE_K], v[ONE_BLOCKS][ONE_V], q[2][8 * 128], p[ATTN_SPAN / 64][8 * 128];
    float weight[8][ONE_ROW], most[ONE_BLOCKS][4][8], a[ONE_BLOCKS][8], m[ONE_BLOCKS][8], sum[ONE_BLOCKS][32];
    uint64_t k_full[ONE_BLOCKS], v_full[ONE_BLOCKS];
};
/* What a warp of its own asks for: blocks 'from' to 'to' of a span.  base: the first slice of the page of each lane's
 * piece of keys. */
DEV void one_load(OneRoom *r, const CUtensorMap *m, const AttnPar &p, const Item &x, int half, int from, int to,
                  int base) {
    const int pieces = ATTN_BLOCK / p.keys.piece, lane = threadIdx.x & 31;
#pragma unroll 1
    for (int j = from; j < to; j++) {
        const uint32_t k = smem_of(r->k[j]), v = smem_of(r->v[j]), k_full = smem_of(&r->k_full[j]),
                       v_full = smem_of(&r->v_full[j]);
        if (lane == 0) bar_expect(k_full, ONE_K), bar_expect(v_full, ONE_V);
#pragma unroll
        for (int values = 0; values < 2; values++)
#pragma unroll 1
            for (int i = 0; i < pieces; i++) {
                const int at = i * p.keys.piece, s0 = __shfl_sync(~0u, base, j * pieces + i),
                          in_page = (x.span * ATTN_SPAN + j * ATTN_BLOCK + at) % p.keys.page;
                if (lane) continue;
                if (values) tma_load(v + at * 128, m, 0, in_page, s0 + (p.kv_heads + x.head) * 2 + half, v_full);
                else
                    for (int h = 0; h < 2; h++)
                        tma_load(k + h * ATTN_BLOCK * 128 + at * 128, m, 0, in_page, s0 + x.head * 2 + h, k_full);
            }
    }
}
__global__ void __launch_bounds__(ONE_THREADS)
    attn_one(const __grid_constant__ CUtensorMap pages, const __grid_constant__ AttnPar p, const bf16 *queries,
             int64_t ld_q) {
    extern __shared__ __align__(1024) uint8_t raw[];
    OneRoom *r = (OneRoom *)raw;
    const int lane = threadIdx.x & 31, warp = uniform(threadIdx.x >> 5), half = blockIdx.x & 1;
    const Item x = p.list.get(blockIdx.x >> 1);
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int j = 0; j < ONE_BLOCKS; j++) bar_init(smem_of(&r->k_full[j]), 1), bar_init(smem_of(&r->v_full[j]), 1);
        bar_fence_init();
    }
    pdl_let_next();
    __syncthreads();
    if (!p.early) pdl_wait();
    const int pos = p.start[x.seq], row = p.at[x.seq], j0 = x.span * ONE_BLOCKS,
              blocks = min(pos / ATTN_BLOCK + 1 - j0, (int)ONE_BLOCKS);
    if (blocks <= 0 || p.at[x.seq + 1] == row) return pdl_wait(); /* that sequence has fewer spans */
    if (warp == ONE_WORKERS / 32) {
        const SeqKeys keys = seq_keys(p.keys, x.seq, row, pos);
        const int mine = lane * p.keys.piece,
                  base = mine < ATTN_SPAN ? keys.slice(p.keys, x.span * ATTN_SPAN + mine) : 0;
        const int old = p.early ? min(max(pos / ATTN_BLOCK - j0, 0), blocks) : 0; /* without this step's keys */
        one_load(r, &pages, p, x, half, 0, old, base);
        pdl_wait();
        one_load(r, &pages, p, x, half, old, blocks, base);
        return;
    }
    const int w = uniform(warp >> 2), ww = warp & 3, quad = lane & 3;
    const int64_t at = (((int64_t)x.seq * p.kv_heads + x.head) * p.max_spans + x.span) * p.group;
    const int key0 = w * ATTN_BLOCK + ww * 16 + (lane >> 2);            /* + 64 t + 8 h, of query 2 quad + b */
    float s[2][4];
    if (w == 0) {
        const int h = threadIdx.x / 16, c = threadIdx.x % 16;
        uint4 u = make_uint4(0, 0, 0, 0);
        pdl_wait();
        if (h < p.group) u = *(const uint4 *)(queries + row * ld_q + (x.head * p.group + h) * 128 + c * 8);
        *(uint4 *)(r->q[c / 8] + h * 128 + ((c % 8 ^ h) << 4)) = u;
        fence_async();
    }
    named_sync(1, ONE_WORKERS);
    if (w < blocks) {
        const uint32_t k = smem_of(r->k[w]), q = smem_of(r->q);
        bar_await(smem_of(&r->k_full[w]), 0);
        wg_fence();
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                wgmma<0, 0>(s[t], operand(k + i / 4 * (ATTN_BLOCK * 128) + t * 8192 + i % 4 * 32),
                            operand(q + i / 4 * 1024 + i % 4 * 32), i > 0);
        wg_commit();
        wg_wait<0>();
        float most[2] = { NEG, NEG };
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float &y = s[i / 4][i % 4];
            if (j0 * ATTN_BLOCK + key0 + i / 4 * 64 + i % 4 / 2 * 8 > pos) y = NEG;
            most[i % 2] = fmaxf(most[i % 2], y);
        }
#pragma unroll
        for (int b = 0; b < 2; b++) {
#pragma unroll
            for (int d = 4; d < 32; d *= 2) most[b] = fmaxf(most[b], __shfl_xor_sync(~0u, most[b], d));
            if (lane < 4) r->most[w][ww][2 * lane + b] = most[b];
        }
    }
    named_sync(1, ONE_WORKERS);
    if (w < blocks) {
        float m[2] = { NEG, NEG }, before[2] = { NEG, NEG };
#pragma unroll 1
        for (int j = 0; j <= w; j++)
#pragma unroll
            for (int b = 0; b < 2; b++) {
                const float *o = &r->most[j][0][2 * quad + b];
                before[b] = m[b];
                m[b] = fmaxf(m[b], __fmul_rn(fmaxf(fmaxf(o[0], o[8]), fmaxf(o[16], o[24])), p.c));
            }
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const int q = 2 * quad + b;
            const float ref = ref_of(m[b]);
            if (ww == 0 && lane < 4) r->a[w][q] = ex2(__fsub_rn(before[b], ref)), r->m[w][q] = m[b];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int key = key0 + i / 2 * 64 + i % 2 * 8;
                const float y = ex2(__fmaf_rn(s[i / 2][i % 2 * 2 + b], p.c, -ref));
                r->weight[q][key] = y;
                *(uint16_t *)(r->p[key / 64] + q * 128 + ((key % 64 / 8 ^ q) << 4) + key % 8 * 2) =
                    (uint16_t)bf2(y, y);
            }
        }
        fence_async();
    }
    named_sync(1, ONE_WORKERS);
    if (w == 0) {
        float o[4] = {};
#pragma unroll 1
        for (int j = 0; j < blocks; j++) {
            const uint32_t v = smem_of(r->v[j]), y = smem_of(r->p[2 * j]);
            if (j)
#pragma unroll
                for (int i = 0; i < 4; i++) o[i] = __fmul_rn(o[i], r->a[j][2 * quad + i % 2]);
            bar_await(smem_of(&r->v_full[j]), 0);
            wg_fence();
#pragma unroll
            for (int k = 0; k < 8; k++)
                wgmma<1, 0>(o, operand(v + k * 2048, ONE_V), operand(y + k / 4 * 1024 + k % 4 * 32), 1);
            wg_commit();
            wg_wait<0>();
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int q = 2 * quad + i % 2, c = half * 64 + ww * 16 + (lane >> 2) + i / 2 * 8;
            if (q < p.group) p.part_o[(at + q) * 128 + c] = o[i];
        }
    } else if (w == 1 && half == 0) {                                   /* a warp a block, four lanes a query */
        const int q = lane >> 2;
        if (ww < blocks) {
            float sum[4];
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const float y = r->weight[q][ww * ATTN_BLOCK + i / 2 * 8 + 2 * quad + i % 2];
                sum[i / 8] = i % 8 == 0 ? y : __fadd_rn(sum[i / 8], y);
            }
            r->sum[ww][lane] = __fadd_rn(__fadd_rn(sum[0], sum[1]), __fadd_rn(sum[2], sum[3]));
        }
        named_sync(2, 128);
        if (ww == 0) {
            float l = 0;
#pragma unroll 1
            for (int j = 0; j < blocks; j++) l = __fmaf_rn(l, r->a[j][q], r->sum[j][lane]);
            l = quad_sum(l);
            if (quad == 0 && q < p.group) p.part_ml[at + q] = make_float2(r->m[blocks - 1][q], l);
        }
    }
}
bool attn_one_go(Dev *d, const CUtensorMap &pages, AttnPar p, Tensor q, int width) {
    const int64_t items = (int64_t)p.list.seqs * p.list.heads * p.list.spans;
    if (width != 128 || p.group > 8 || 2 * items > cu(d)->sms || p.keys.piece < 16 || !p.keys.table || p.list.at
        || q.ld % 8 || (uintptr_t)q.data % 16)
        return false;
    p.early = cu(d)->capturing;
    CU(cudaFuncSetAttribute(attn_one, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(OneRoom)));
    launch_pdl(d, attn_one, dim3((unsigned)(2 * items)), dim3(ONE_THREADS), sizeof(OneRoom), pages, p,
                 (const bf16 *)q.data, q.ld);
    return true;
}
