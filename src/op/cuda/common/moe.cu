/* moe.cu - choosing experts, gathering rows by expert and putting them back.  T tokens, E experts, k chosen.
 * Ties go to the lower id; weights and sums over the chosen run in ascending id, with the CPU's own steps, so equal
 * logits are routed equally on both.  Rows of an expert are in token order: counting sort, which is stable. */
#include "op/cuda/common/route.cuh"

/* ---- choosing: route.cuh ----------------------------------------------------------------------------------------- */
static __global__ void route_k(Routing p) {
    extern __shared__ float smem[];
    int64_t row = (int64_t)blockIdx.x * p.warps + threadIdx.x / 32;
    if (row < p.T) route_row(p, row, (char *)smem + route_bytes(p.E, p.groups) * (threadIdx.x / 32), NULL);
}
void cuda_route(Dev *d, const Route *r) {
    Routing p = routing_of(r);
    CU(cudaFuncSetAttribute(route_k, cudaFuncAttributeMaxDynamicSharedMemorySize, ROUTE_MOST)); /* 4096 groups of one */
    launch(d, route_k, dim3(blocks_of(p.T, p.warps)), (unsigned)p.warps * 32,
           route_bytes(p.E, p.groups) * (size_t)p.warps, p);
}

static __global__ void route_bwd_k(Routing p) {
    extern __shared__ float smem[];
    int lane = threadIdx.x % 32, E = p.E;
    int64_t row = (int64_t)blockIdx.x * p.warps + threadIdx.x / 32;
    if (row >= p.T) return;
    float *s = (float *)((char *)smem + route_bytes(E, p.groups) * (threadIdx.x / 32)), *dl = p.dlogits.row(row),
          sum = 0, dot = 0;
    const float *q = p.dweight.row(row);
    const int32_t *pick = p.pick.row(row);
    scores(s, p.logits.row(row), E, p.softmax);
    for (int j = 0; j < p.topk; j++) sum += s[pick[j]];
    if (!p.softmax) sum += 1e-20f;
    float over = p.renorm ? sum : 1;
    for (int j = 0; j < p.topk; j++) dot = __fmaf_rn(s[pick[j]] / over, q[j] * p.factor, dot);
    for (int e = lane; e < E; e += 32) dl[e] = p.softmax && !p.renorm ? -(s[e] * dot) : 0.0f;
    __syncwarp(); /* the chosen ones are written once more, below */
    for (int j = lane; j < p.topk; j += 32) {
        int e = pick[j];
        float n = s[e] / over, g = q[j] * p.factor;
        dl[e] = p.softmax ? n * (g - dot) : (p.renorm ? (g - dot) / over : g) * (s[e] * (1.0f - s[e]));
    }
}
void cuda_route_bwd(Dev *d, Tensor dlogits, Tensor dweight, const Route *r) {
    Routing p = routing_of(r);
    p.dlogits = rows_of<float>(dlogits), p.dweight = rows_of<float>(dweight);
    CU(cudaFuncSetAttribute(route_bwd_k, cudaFuncAttributeMaxDynamicSharedMemorySize, ROUTE_MOST));
    launch(d, route_bwd_k, dim3(blocks_of(p.T, p.warps)), (unsigned)p.warps * 32,
           route_bytes(p.E, p.groups) * (size_t)p.warps, p);
}

/* ---- sorting: runs of choices, each counted by one warp, then placed by one warp --------------------------------- */
/* Short runs where choices are few: a warp takes some 20 us for a long one. */
enum { SORT_RUN = 1024, SORT_RUN_FEW = 64, SORT_FEW = 8192, SORT_SCAN = 1024 };
static int sort_run(int64_t n) { return n <= SORT_FEW ? SORT_RUN_FEW : SORT_RUN; }
typedef struct {
    int64_t n;
    int k, E, run;
    Rows<const int32_t> pick;
    Rows<int32_t> slot;
    int32_t *from, *count;
    volatile Fault *fault;
} Sort;

/* count[run][e]: how often e is chosen in the run.  An expert that is not there counts as the first, and is a fault. */
__device__ __forceinline__ int expert_at(const Sort &p, int64_t i) {
    int e = p.pick.row(i / p.k)[i % p.k];
    if (e >= 0 && e < p.E) return e;
    fault_at(p.fault, FAULT_EXPERT, i / p.k);
    return 0;
}
static __global__ void sort_count_k(Sort p) {
    extern __shared__ int32_t have[];
    for (int e = threadIdx.x; e < p.E; e += 32) have[e] = 0;
    __syncwarp();
    for (int i = threadIdx.x; i < p.run; i += 32) {
        int64_t at = (int64_t)blockIdx.x * p.run + i;
        if (at < p.n) atomicAdd(&have[expert_at(p, at)], 1); /* whole numbers: any order gives the same */
    }
    __syncwarp();
    for (int e = threadIdx.x; e < p.E; e += 32) p.count[(int64_t)blockIdx.x * p.E + e] = have[e];
}
/* count becomes where the run's first row of the expert goes, at[e] where the expert's rows start.  One block. */
static __global__ void sort_scan_k(Sort p, int32_t *at, int64_t runs) {
    __shared__ int32_t sum[SORT_SCAN];
    int each = (p.E + SORT_SCAN - 1) / SORT_SCAN, e0 = threadIdx.x * each, e1 = min(e0 + each, p.E);
    int32_t mine = 0;
    for (int e = e0; e < e1; e++) {
        int32_t total = 0;
#pragma unroll 8
        for (int64_t r = 0; r < runs; r++) total += p.count[r * p.E + e];
        mine += total;
    }
    sum[threadIdx.x] = mine;
    for (int h = 1; h < SORT_SCAN; h *= 2) {
        __syncthreads();
        int32_t before = threadIdx.x >= h ? sum[threadIdx.x - h] : 0;
        __syncthreads();
        sum[threadIdx.x] += before;
    }
    int32_t next = sum[threadIdx.x] - mine;
    for (int e = e0; e < e1; e++) {
        at[e] = next;
#pragma unroll 4
        for (int64_t r = 0; r < runs; r++) {
            int32_t n = p.count[r * p.E + e];
            p.count[r * p.E + e] = next;
            next += n;
        }
    }
    if (threadIdx.x == SORT_SCAN - 1) at[p.E] = sum[threadIdx.x];
}
static __global__ void sort_place_k(Sort p) {
    extern __shared__ int32_t next[];
    int lane = threadIdx.x;
    for (int e = lane; e < p.E; e += 32) next[e] = p.count[(int64_t)blockIdx.x * p.E + e];
    __syncwarp();
    for (int i = lane; i < p.run; i += 32) {
        int64_t at = (int64_t)blockIdx.x * p.run + i;
        int e = at < p.n ? expert_at(p, at) : -1;
        unsigned same = __match_any_sync(0xFFFFFFFFu, e);
        int rank = __popc(same & ((1u << lane) - 1)), s = e >= 0 ? next[e] + rank : 0;
        __syncwarp();
        if (e >= 0) {
            if (rank == 0) next[e] += __popc(same);
            p.from[s] = (int32_t)(at / p.k);
            p.slot.row(at / p.k)[at % p.k] = s;
        }
        __syncwarp();
    }
}
size_t cuda_tmp_moe_sort(Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int experts) {
    (void)d, (void)at, (void)from, (void)slot;
    /* of more choices never less: memory is planned for the most */
    const int64_t n = pick.rows * pick.cols, runs = (n + SORT_RUN - 1) / SORT_RUN,
                  few = ((n < SORT_FEW ? n : (int64_t)SORT_FEW) + SORT_RUN_FEW - 1) / SORT_RUN_FEW;
    return (size_t)(runs > few ? runs : few) * (size_t)experts * 4;
}
void cuda_moe_sort(Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int experts) {
    size_t mark = arena_mark(&d->tmp), smem = (size_t)experts * 4;
    int64_t n = pick.rows * pick.cols, run = sort_run(n), runs = (n + run - 1) / run;
    Sort p = { n,
               (int)pick.cols,
               experts,
               (int)run,
               rows_of<const int32_t>(pick),
               rows_of<int32_t>(slot),
               (int32_t *)from.data,
               (int32_t *)arena_push(&d->tmp, cuda_tmp_moe_sort(d, at, from, slot, pick, experts)),
               cu(d)->fault };
    CHECK(smem <= 48 << 10, "moe_sort: %d experts", experts);
    launch(d, sort_count_k, dim3((unsigned)runs), 32, smem, p);
    launch(d, sort_scan_k, dim3(1), SORT_SCAN, 0, p, (int32_t *)at.data, runs);
    launch(d, sort_place_k, dim3((unsigned)runs), 32, smem, p);
    arena_pop(&d->tmp, mark);
}

/* ---- both for few tokens, as a step of decoding has: one block, a warp to a token -------------------------------- */
enum { FEW_TOKENS = 32 };
static __host__ __device__ size_t route_sort_bytes(const Routing &p) {
    return route_bytes(p.E, p.groups) * (size_t)p.T + (size_t)(p.T * p.topk + 2 * p.E) * 4;
}
typedef struct { int32_t *at, *from; Rows<int32_t> slot; } Sorted;
/* By a block of T warps or more; smem: route_sort_bytes. */
static __device__ void route_sort_rows(const Routing &p, const Sorted &to, char *smem) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = (int)p.T * p.topk;
    int32_t *chosen = (int32_t *)(smem + route_bytes(p.E, p.groups) * (size_t)p.T), *count = chosen + n,
            *first = count + p.E;
    for (int e = threadIdx.x; e < p.E; e += blockDim.x) count[e] = 0;
    if (warp < p.T) route_row(p, warp, smem + route_bytes(p.E, p.groups) * (size_t)warp, chosen + warp * p.topk);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&count[chosen[i]], 1);
    __syncthreads();
    if (warp == 0) {
        int sum = 0;
        for (int e0 = 0; e0 < p.E; e0 += 32) {
            int e = e0 + lane, c = e < p.E ? count[e] : 0, x = c;
#pragma unroll
            for (int h = 1; h < 32; h *= 2) {
                int o = __shfl_up_sync(0xFFFFFFFFu, x, h);
                if (lane >= h) x += o;
            }
            if (e < p.E) to.at[e] = first[e] = sum + x - c;
            sum += __shfl_sync(0xFFFFFFFFu, x, 31);
        }
        if (lane == 0) to.at[p.E] = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int e = chosen[i], s = first[e];
        for (int j = 0; j < i; j++) s += chosen[j] == e;
        to.from[s] = i / p.topk;
        to.slot.row(i / p.topk)[i % p.topk] = s;
    }
}
/* early: it goes through its instructions once (fused_rows.cu), from and into shared memory, for one token. */
static __global__ void route_sort_k(Routing p, Sorted to, bool early) {
    extern __shared__ float smem[];
    char *room = (char *)smem + route_sort_bytes(p);
    pdl_let_next();
    for (int real = !early; real < 2; real++) {
        Routing r = p;
        Sorted s = to;
        if (real) pdl_wait();
        else {
            for (int e = threadIdx.x; e < p.E; e += blockDim.x) ((float *)room)[e] = 0;
            __syncthreads();
            char *out = room + p.E * 4;
            r.T = 1, r.logits.at = (const float *)room, r.pick.at = (int32_t *)out;
            r.weight.at = (float *)(out + p.topk * 4), s.slot.at = (int32_t *)(out + p.topk * 8);
            s.from = (int32_t *)(out + p.topk * 12), s.at = (int32_t *)(out + p.topk * 16);
        }
        route_sort_rows(r, s, (char *)smem);
        __syncthreads();
    }
}
bool cuda_route_sort(Dev *d, const Route *r, Tensor at, Tensor from, Tensor slot) {
    Routing p = routing_of(r);
    const size_t bytes = route_sort_bytes(p) + (size_t)(2 * p.E + 1 + 4 * p.topk) * 4; /* a rehearsal's rows behind */
    if (p.T > FEW_TOKENS || p.T == 0 || bytes > ROUTE_SMEM) return false;
    Sorted to = { (int32_t *)at.data, (int32_t *)from.data, rows_of<int32_t>(slot) };
    launch_pdl(d, route_sort_k, dim3(1), (unsigned)p.T * 32, bytes, p, to, cu(d)->capturing);
    return true;
}

/* ---- rows to experts and back ------------------------------------------------------------------------------------ */
__device__ __forceinline__ bool row_there(int64_t i, int64_t rows, int64_t at, volatile Fault *fault) {
    if (i >= 0 && i < rows) return true;
    fault_at(fault, FAULT_ROW, at);
    return false;
}
static __global__ void permute_k(Cells g, Any y, Any x, const int32_t *from, int64_t rows, volatile Fault *fault) {
    EACH_EIGHT(g, r, c) {
        float v[8] = { 0 };
        int n = eights_left(g.cols, c);
        if (row_there(from[r], rows, r, fault)) load8(v, x, from[r], c, n, g.wide);
        store8(y, r, c, n, g.wide, v);
    }
}
void cuda_permute(Dev *d, Tensor y, Tensor x, Tensor from) {
    Cells g = { y.rows, y.cols, wide_all(y.cols, y, x) };
    launch_cells(d, permute_k, g, any_of(y), any_of(x), (const int32_t *)from.data, x.rows, cu(d)->fault);
}
/* The same by tokens: each is read once. */
static __global__ void permute_slots_k(Cells g, Any y, Any x, Rows<const int32_t> slot, int k, int64_t rows,
                                       volatile Fault *fault) {
    EACH_EIGHT(g, r, c) {
        float v[8];
        int n = eights_left(g.cols, c);
        load8(v, x, r, c, n, g.wide);
        for (int j = 0; j < k; j++)
            if (row_there(slot.row(r)[j], rows, r, fault)) store8(y, slot.row(r)[j], c, n, g.wide, v);
    }
}
bool cuda_permute_slots(Dev *d, Tensor y, Tensor x, Tensor from, Tensor slot) {
    (void)from;
    if (x.rows < 1024) return false; /* few tokens: more threads by rows */
    Cells g = { x.rows, x.cols, wide_all(x.cols, y, x) };
    launch_cells(d, permute_slots_k, g, any_of(y), any_of(x), rows_of<const int32_t>(slot), (int)slot.cols, y.rows,
                 cu(d)->fault);
    return true;
}
static __global__ void scatter_k(Cells g, Any x, Any y, const int32_t *from, int64_t rows, volatile Fault *fault) {
    EACH_EIGHT(g, r, c) {
        float v[8];
        int n = eights_left(g.cols, c);
        load8(v, y, r, c, n, g.wide);
        if (row_there(from[r], rows, r, fault)) store8(x, from[r], c, n, g.wide, v);
    }
}
void cuda_scatter_rows(Dev *d, Tensor x, Tensor y, Tensor from) {
    Cells g = { y.rows, y.cols, wide_all(y.cols, y, x) };
    cuda_zero(d, x);
    launch_cells(d, scatter_k, g, any_of(x), any_of(y), (const int32_t *)from.data, x.rows, cu(d)->fault);
}
/* dx[t] = sum_j dy[slot[t,j]], or with weights y[t] = sum_j w[t,j] rows[slot[t,j]]: chains in float32, rounded once. */
/* AT_ONCE rows are asked for before the first is added: of a few tokens all of them, since nothing else hides the way
 * to memory; of many tokens one, since other threads do. */
template <int AT_ONCE>
static __global__ void gather_sum_k(Cells g, Any y, Any x, Rows<const int32_t> slot, Rows<const float> w, int k,
                                    int64_t rows, volatile Fault *fault) {
    EACH_EIGHT(g, r, c) {
        float sum[8] = { 0 };
        int n = eights_left(g.cols, c);
        const int32_t *s = slot.row(r);
        for (int j0 = 0; j0 < k; j0 += AT_ONCE) { /* loads first: the sums wait for one another */
            float v[AT_ONCE][8], f[AT_ONCE];
            bool there[AT_ONCE];
#pragma unroll
            for (int b = 0; b < AT_ONCE; b++) {
                int j = j0 + b;
                there[b] = j < k && row_there(s[j], rows, r, fault);
                f[b] = there[b] && w.at ? w.row(r)[j] : 0.0f;
                if (there[b]) load8(v[b], x, s[j], c, n, g.wide);
            }
#pragma unroll
            for (int b = 0; b < AT_ONCE; b++)
                if (there[b])
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[i] = w.at ? __fmaf_rn(f[b], v[b][i], sum[i]) : sum[i] + v[b][i];
        }
        store8(y, r, c, n, g.wide, sum);
    }
}
static void gather_sum(Dev *d, Tensor y, Tensor x, Tensor slot, Tensor weight) {
    Cells g = { y.rows, y.cols, wide_all(y.cols, y, x) };
    launch_cells(d, y.rows < 1024 ? gather_sum_k<8> : gather_sum_k<1>, g, any_of(y), any_of(x),
                 rows_of<const int32_t>(slot), rows_of<const float>(weight), (int)slot.cols, x.rows, cu(d)->fault);
}
void cuda_permute_bwd(Dev *d, Tensor dx, Tensor dy, Tensor slot) { gather_sum(d, dx, dy, slot, TENSOR_NONE); }
void cuda_combine(Dev *d, Tensor y, Tensor rows, Tensor slot, Tensor weight) { gather_sum(d, y, rows, slot, weight); }

/* A team to a token: dweight = dy . rows[s], drows[s] = w dy for its k slots s, four at a time, dy read once. */
typedef struct {
    int64_t T, cols, rows;
    int k;
    bool wide;
    Any drows, dy, x;
    Rows<const int32_t> slot;
    Rows<const float> w;
    Rows<float> dw;
    volatile Fault *fault;
} Back;
enum { BACK_AT_ONCE = 4 };
template <class K> static __global__ void combine_bwd_k(int team, Back p) {
    Team m = team_of(team);
    bool mine = m.row < p.T;
    float dy[K::N][8], x[8], out[8];
#pragma unroll
    for (int i = 0; i < K::N; i++) {
        int64_t c = 8 * (int64_t)(m.me + i * m.n);
        if (K::KEEPS && mine && c < p.cols) load8(dy[i], p.dy, m.row, c, eights_left(p.cols, c), p.wide);
    }
    for (int j0 = 0; j0 < p.k; j0 += BACK_AT_ONCE) {
        float sum[BACK_AT_ONCE] = { 0 };
#pragma unroll
        for (int b = 0; b < BACK_AT_ONCE; b++) {
            int j = j0 + b;
            int64_t s = mine && j < p.k ? p.slot.row(m.row)[j] : -1;
            if (!mine || j >= p.k || !row_there(s, p.rows, m.row, p.fault)) continue;
            float w = p.w.row(m.row)[j];
            auto one = [&](float(&e)[8], int64_t c) {
                int n = eights_left(p.cols, c);
                load8(x, p.x, s, c, n, p.wide);
#pragma unroll
                for (int k = 0; k < 8; k++) sum[b] = __fmaf_rn(e[k], x[k], sum[b]), out[k] = e[k] * w;
                store8(p.drows, s, c, n, p.wide, out);
            };
#pragma unroll
            for (int i = 0; i < K::N; i++) {
                int64_t c = 8 * (int64_t)(m.me + i * m.n);
                if (K::KEEPS && c < p.cols) one(dy[i], c);
            }
            for (int64_t c = 8 * m.me; !K::KEEPS && c < p.cols; c += 8 * m.n) {
                load8(dy[0], p.dy, m.row, c, eights_left(p.cols, c), p.wide);
                one(dy[0], c);
            }
        }
#pragma unroll
        for (int b = 0; b < BACK_AT_ONCE; b++) {
            float all = team_sum(team, sum[b]);
            if (mine && m.me == 0 && j0 + b < p.k) p.dw.row(m.row)[j0 + b] = all;
        }
    }
}
void cuda_combine_bwd(Dev *d, Tensor drows, Tensor dweight, Tensor dy, Tensor rows, Tensor slot, Tensor weight) {
    Back p = { dy.rows, dy.cols, rows.rows, (int)slot.cols, wide_all(dy.cols, drows, dy, rows), any_of(drows),
               any_of(dy), any_of(rows), rows_of<const int32_t>(slot), rows_of<const float>(weight),
               rows_of<float>(dweight), cu(d)->fault };
    with_kept(dy.cols, [&](auto k) { launch_teams(d, combine_bwd_k<decltype(k)>, dy.rows, dy.cols, p); });
}
