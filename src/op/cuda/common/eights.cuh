/* eights.cuh - rows of float32 or bfloat16, eight columns at a time: what the row kernels read and write.
 *
 * Which thread takes which eight depends on the columns alone, never on where the row lies, so sums have one order;
 * 'wide' only says that eights may be moved as 16-byte words.  The dtype is asked at run time: the branch is the same
 * for all threads, and these kernels wait for memory. */
#ifndef OP_CUDA_EIGHTS_CUH
#define OP_CUDA_EIGHTS_CUH

#include "op/cuda/common/pdl.cuh"

typedef struct {
    char   *at;
    int64_t ld;
    bool    half;                   /* bfloat16 */
} Any;
__device__ __forceinline__ float as_kept(float x, bool half) {          /* what is read back after a store */
    return half ? __uint_as_float((unsigned)bf16_bits(x) << 16) : x;
}
/* Eight at once.  Two are rounded by one instruction; that NaNs keep their bits is seen to where there are any. */
__device__ __forceinline__ void pack8(unsigned (&w)[4], const float (&v)[8]) {
    bool odd = false;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w[i]) : "f"(v[2 * i + 1]), "f"(v[2 * i]));
        odd |= v[2 * i] != v[2 * i] || v[2 * i + 1] != v[2 * i + 1];
    }
    if (odd)
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = (unsigned)bf16_bits(v[2 * i]) | (unsigned)bf16_bits(v[2 * i + 1]) << 16;
}
__device__ __forceinline__ void unpack8(float (&v)[8], const unsigned (&w)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[2 * i] = __uint_as_float(w[i] << 16), v[2 * i + 1] = __uint_as_float(w[i] & 0xFFFF0000u);
}
__device__ __forceinline__ void keep8(float (&v)[8], bool half) {       /* as_kept */
    unsigned w[4];
    if (half) pack8(w, v), unpack8(v, w);
}
static inline Any any_of(Tensor x) { return { (char *)x.data, x.ld, x.dtype == DT_BF16 }; }

static inline bool wide_one(Tensor x) {
    size_t es = dtype_size(x.dtype);
    return !x.data || ((uintptr_t)x.data % 16 == 0 && (x.rows <= 1 || (size_t)x.ld * es % 16 == 0));
}
template <class... X> static inline bool wide_all(int64_t cols, X... x) {
    return cols % 8 == 0 && (... && wide_one(x));
}

/* Columns c..c+n of row r, n <= 8; the others are 0. */
__device__ __forceinline__ void load8(float (&v)[8], const Any &x, int64_t r, int64_t c, int n, bool wide) {
    if (x.half) {
        const bf16 *p = (const bf16 *)x.at + r * x.ld + c;
        if (wide && n == 8) {
            uint4 u = *(const uint4 *)p;
            const unsigned w[4] = { u.x, u.y, u.z, u.w };
            unpack8(v, w);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = i < n ? load(p + i) : 0.0f;
        }
    } else {
        const float *p = (const float *)x.at + r * x.ld + c;
        if (wide && n == 8) {
            float4 a = *(const float4 *)p, b = *(const float4 *)(p + 4);
            v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = i < n ? p[i] : 0.0f;
        }
    }
}
__device__ __forceinline__ void store8(const Any &x, int64_t r, int64_t c, int n, bool wide, const float (&v)[8]) {
    if (x.half) {
        bf16 *p = (bf16 *)x.at + r * x.ld + c;
        if (wide && n == 8) {
            unsigned w[4];
            pack8(w, v);
            *(uint4 *)p = make_uint4(w[0], w[1], w[2], w[3]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < n) store(p + i, v[i]);
        }
    } else {
        float *p = (float *)x.at + r * x.ld + c;
        if (wide && n == 8) {
            *(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
            *(float4 *)(p + 4) = make_float4(v[4], v[5], v[6], v[7]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < n) p[i] = v[i];
        }
    }
}
__device__ __forceinline__ int eights_left(int64_t cols, int64_t c) { return cols - c < 8 ? (int)(cols - c) : 8; }

/* ---- A grid over [rows, cols], eight columns a thread; short rows share a block ---------------------------------- */
/* Nothing is read before EACH_EIGHT. */
enum { CELL_THREADS = 256 };
typedef struct { int64_t rows, cols; bool wide; } Cells;
#define EACH_EIGHT(g, r, c)                                                                                   \
    pdl_begin();                                                                                                  \
    for (int64_t c = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x),                                    \
                 r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;                                          \
         c < (g).cols && r < (g).rows; r += (int64_t)gridDim.y * blockDim.y)

static inline bool no_gaps(Tensor x) { return !x.data || x.rows <= 1 || x.ld == x.cols; }
/* Rows without gaps are one long row, so that short ones fill blocks too.  With gaps, the last words of a row may be
 * narrow ones. */
template <class... X> static inline Cells cells_of(int64_t rows, int64_t cols, X... x) {
    if ((... && no_gaps(x))) return { rows * cols > 0, rows * cols, wide_all(cols, x...) };
    return { rows, cols, (... && wide_one(x)) };
}
template <class... P, class... A>
static inline void launch_cells(const Dev *d, void (*kernel)(Cells, P...), Cells g, A... a) {
    if (g.rows <= 0 || g.cols <= 0) return;
    int64_t eights = (g.cols + 7) / 8, x = eights < CELL_THREADS ? eights : CELL_THREADS, y = CELL_THREADS / x;
    int64_t down = (g.rows + y - 1) / y;
    launch_pdl(d, kernel, dim3(blocks_of(eights, x), (unsigned)(down < 65535 ? down : 65535)),
                 dim3((unsigned)x, (unsigned)y), 0, g, a...);
}

/* ---- A row to a team: 4, 8, 16 or 32 threads of a warp, or a whole block, as its columns are many ---------------- */
enum { ROW_THREADS = 256, ROW_KEPT = 4 };                /* eights of a row that a thread keeps in registers, at most */
static inline int team_size(int64_t cols) {
    int64_t eights = (cols + 7) / 8;
    return eights <= 4 ? 4 : eights <= 8 ? 8 : eights <= 16 ? 16 : eights <= 32 * ROW_KEPT ? 32 : ROW_THREADS;
}
/* How many threads the team has, which of them this is, which row. */
typedef struct { int n, me; int64_t row; } Team;
__device__ __forceinline__ Team team_of(int n) {
    pdl_begin(); /* nothing is read before */
    return { n, (int)threadIdx.x % n, (int64_t)blockIdx.x * (ROW_THREADS / n) + threadIdx.x / n };
}
/* The sum over a team: the tree over a warp's lanes, then over the warps.  All threads of the block come here. */
__device__ __forceinline__ float team_sum(int n, float x) {
    __shared__ float part[ROW_THREADS / 32];
    for (int h = (n < 32 ? n : 32) / 2; h; h /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, h);
    if (n <= 32) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
/* KEPT eights of the row stay in registers between two looks at it; 0: too long, it is read again. */
template <int K> struct Kept { enum { N = K ? K : 1, KEEPS = K > 0 }; };
template <class F> static inline void with_kept(int64_t cols, F f) {
    int64_t each = ((cols + 7) / 8 + team_size(cols) - 1) / team_size(cols);
    if (each <= 1) f(Kept<1>());
    else if (each <= 2) f(Kept<2>());
    else if (each <= 4) f(Kept<4>());
    else f(Kept<0>());
}
template <class... P, class... A>
static inline void launch_teams(const Dev *d, void (*kernel)(int, P...), int64_t rows, int64_t cols, A... a) {
    int n = team_size(cols);
    launch_pdl(d, kernel, dim3(blocks_of(rows, ROW_THREADS / n)), ROW_THREADS, 0, n, a...);
}

/* e^x by the CPU's own steps (op/cpu/lanes.h: v_exp), hence with its bits. */
__device__ __forceinline__ float exp_f(float x) {
    const float big = 12582912.0f;
    float t = __fmaf_rn(x, 1.44269504f, big), n = t - big;
    float r = __fmaf_rn(n, 2.12194440e-4f, __fmaf_rn(n, -0.693359375f, x));
    float p = 1.9875691500e-4f;
    p = __fmaf_rn(p, r, 1.3981999507e-3f);
    p = __fmaf_rn(p, r, 8.3334519073e-3f);
    p = __fmaf_rn(p, r, 4.1665795894e-2f);
    p = __fmaf_rn(p, r, 1.6666665459e-1f);
    p = __fmaf_rn(p, r, 5.0000001201e-1f);
    p = __fmaf_rn(p, r, 1.0f);
    p = __fmaf_rn(p, r, 1.0f);
    return x < -87.33654f ? 0.0f : __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
}
__device__ __forceinline__ float sigmoid_f(float x) { return 1.0f / (1.0f + exp_f(-fminf(fmaxf(x, -88.0f), 88.0f))); }

#endif
