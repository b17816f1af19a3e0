/* out.cuh - what becomes of a tile's sums (gemm.cuh): out.put(sums, product, place), for a thread's share of a
 * warpgroup's 64 x BN. SPACE: bytes of shared memory it wants.  ADD: c is added to through the ring, see gemm. */
#ifndef OP_CUDA_OUT_CUH
#define OP_CUDA_OUT_CUH

#include "op/cuda/sm90/gemm.cuh"

struct Bias {
    const void *at;                     /* [N] or NULL */
    bool        is_bf16;
    template <int N> __device__ __forceinline__ void add(float (&v)[N], const Gemm &p, const Place &t) const {
        if (!at) return;
        #pragma unroll
        for (int j = 0; j < N / 4; j++)
            #pragma unroll
            for (int b = 0; b < 2; b++) {
                const int n = t.n0 + j * 8 + (t.lane & 3) * 2 + b;
                const float x = n >= p.N ? 0 : is_bf16 ? load((const bf16 *)at + n) : ((const float *)at)[n];
                v[4 * j + b] += x, v[4 * j + 2 + b] += x;
            }
    }
};
/* Columns of c that are tensors of their own: from n1 on and from n2 on (linear3).  n1 0: c is one. */
struct Split {
    void   *y1, *y2;
    int64_t ld1, ld2;
    int     n1, n2;
    struct Part { void *y; int64_t ld; int from; };
    __device__ __forceinline__ Part part(void *y, int64_t ld, int n) const {
        if (!n1 || n < n1) return { y, ld, 0 };
        return n < n2 ? Part{ y1, ld1, n1 } : Part{ y2, ld2, n2 };
    }
};
/* Up to 8, or 4, columns of a row, of which 'left' are there (prod.cu: padded). */
DEV void store_to(bf16 *to, uint4 q, int left) {
    if (left >= 8) *(uint4 *)to = q;
    else {
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
        #pragma unroll
        for (int i = 0; i < 7; i++)
            if (i < left) *(uint16_t *)(to + i) = (uint16_t)(w[i / 2] >> (i % 2 * 16));
    }
}
DEV void store_to(float *to, float4 q, int left) {
    if (left >= 4) *(float4 *)to = q;
    else {
        to[0] = q.x;
        if (left > 1) to[1] = q.y;
        if (left > 2) to[2] = q.z;
    }
}
struct OutBf16 { /* up to 64 columns at a time through shared memory, so that rows are written whole */
    static constexpr int ROW = 64 * 2 + 16, SPACE = 8 * 16 * ROW;       /* 16 rows a warp; padded: no bank conflicts */
    static constexpr bool ADD = false;
    bf16   *y;
    int64_t ld, step;
    Bias    bias;
    Split   split;                      /* no tile may lie on both sides of its borders */
    template <int N> __device__ __forceinline__ void put(float (&v)[N], const Gemm &p, const Place &t) const {
        const Split::Part o = split.part(y, ld, t.n0);
        constexpr int PART = N < 32 ? N : 32,
                      EACH = PART / 4; /* sums a thread at a time; lanes that write a row, 16 bytes each */
        bias.add(v, p, t);
        const uint32_t buf = t.space + (t.w * 4 + t.warp) * 16 * ROW,
                       to = buf + (t.lane & 15) * ROW + (t.lane >> 4) * 16;
        bf16 *c = (bf16 *)o.y + t.e * step + (int64_t)(t.row + t.warp * 16) * o.ld;
        #pragma unroll
        for (int i0 = 0; i0 < N; i0 += PART) {
            #pragma unroll
            for (int j = 0; j < PART / 8; j++) {
                const int i = i0 + j * 8;
                stmatrix4(to + j * 32, pack(v[i], v[i + 1]), pack(v[i + 2], v[i + 3]), pack(v[i + 4], v[i + 5]),
                          pack(v[i + 6], v[i + 7]));
            }
            __syncwarp();
            #pragma unroll
            for (int i = 0; i < EACH / 2; i++) {
                const int r = i * (32 / EACH) + t.lane / EACH, n = t.n0 + i0 * 2 + t.lane % EACH * 8;
                uint4 q;
                asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                             : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w) : "r"(buf + r * ROW + t.lane % EACH * 16));
                if (t.row + t.warp * 16 + r < t.row_end && n < p.N) store_to(c + r * o.ld + n - o.from, q, p.N - n);
            }
            __syncwarp();
        }
    }
};
struct OutMore : OutBf16 { More more_k; };
struct OutF32 {                         /* pairs of lanes exchange, so that each writes 16 bytes of a row */
    static constexpr int SPACE = 0;
    static constexpr bool ADD = false;
    float  *y;
    int64_t ld, step;
    Bias    bias;
    bool    more;                       /* += */
    template <int N> __device__ __forceinline__ void put(float (&v)[N], const Gemm &p, const Place &t) const {
        bias.add(v, p, t);
        const bool odd = t.lane & 1;
        const int r = t.row + t.warp * 16 + t.lane / 4 + (odd ? 8 : 0), cl = (t.lane & 2) * 2;
        float *c = y + t.e * step + r * ld + t.n0 + cl;
        #pragma unroll
        for (int j = 0; j < N / 4; j++) {
            const float a = v[4 * j], b = v[4 * j + 1], g = v[4 * j + 2], h = v[4 * j + 3];
            const float x = __shfl_xor_sync(~0u, odd ? a : g, 1), z = __shfl_xor_sync(~0u, odd ? b : h, 1);
            if (r < t.row_end && t.n0 + j * 8 + cl < p.N) {
                float4 q = odd ? make_float4(x, z, g, h) : make_float4(a, b, x, z);
                if (more) {
                    const float4 o = *(const float4 *)(c + j * 8);
                    q = make_float4(o.x + q.x, o.y + q.y, o.z + q.z, o.w + q.w);
                }
                store_to(c + j * 8, q, p.N - (t.n0 + j * 8 + cl));
            }
        }
    }
};
struct OutAdd {                         /* DW: through the ring, see gemm */
    static constexpr int SPACE = 0;
    static constexpr bool ADD = true;
    template <int N> __device__ __forceinline__ void put(float (&)[N], const Gemm &, const Place &) const {}
};

#endif
