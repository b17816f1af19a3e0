/* kv.cu - keys and values go into pages: layout in attn.h. */
#include "op/cuda/after.cuh"
#include "op/cuda/attn.h"

static int slice_of(const Kv *kv) { return kv->dk % 64 == 0 && kv->dv % 64 == 0 ? 64 : 0; }

size_t cuda_kv_bytes(const Dev *d, const Kv *kv) {
    return (size_t)kv->page * (size_t)kv->kv_heads * (size_t)(kv->dk + (kv->latent ? 0 : kv->dv)) * dtype_size(d->act);
}
Pages pages_of(const Dev *d, const Kv *kv, const Paged *rows) {
    int slice = slice_of(kv);
    Pages p = {};
    p.pool = (const char *)kv->pool.data, p.page_bytes = kv->pool.ld, p.n_pages = (int)kv->pool.rows;
    p.table = (const int *)rows->table.data, p.ld_table = rows->table.ld, p.n_table = (int)rows->table.cols;
    p.page = kv->page, p.kv_heads = kv->kv_heads, p.wk = kv->dk, p.wv = kv->dv, p.es = (int)dtype_size(d->act);
    p.slice_k = slice ? slice : kv->dk, p.slice_v = kv->latent ? 0 : slice ? slice : kv->dv;
    p.fault = cu(d)->fault;
    return p;
}

/* A block a row: its sequence is found by halving, its page looked up once.  The fast kernels multiply what lies behind
 * a sequence in its last page by 0, so that must be finite: whoever begins a page leaves zeros behind its own rows. */
struct Put {
    const int *at, *start;
    int n;
    Tensor k, v;
    Pages p;
    bool wide; /* eight columns at once: 16 bytes, there and here */
};
static __device__ void put_row(const Put &x, const int *table, int pos, Tensor from, int64_t row, int width,
                               bool value) {
    for (int i = threadIdx.x * (x.wide ? 8 : 1); i < x.p.kv_heads * width; i += blockDim.x * (x.wide ? 8 : 1)) {
        const int head = i / width, c = i % width;
        char *to = value ? x.p.value_at(table, pos, head, c) : x.p.key_at(table, pos, head, c);
        const int64_t at = row * from.ld + i;
        if (x.wide) *(uint4 *)to = *(const uint4 *)((const bf16 *)from.data + at);
        else {
            const float y =
                from.dtype == DT_BF16 ? load((const bf16 *)from.data + at) : load((const float *)from.data + at);
            if (x.p.es == 2) store((bf16 *)to, y);
            else store((float *)to, y);
        }
    }
}
static __device__ void zero_behind(const Put &x, const int *table, int pos) {
    const int left = x.p.page - 1 - pos % x.p.page, width = x.p.wk + (x.p.slice_v ? x.p.wv : 0);
    for (int64_t i = threadIdx.x; i < (int64_t)left * x.p.kv_heads * width; i += blockDim.x) {
        const int c = (int)(i % width), head = (int)(i / width % x.p.kv_heads),
                  at = pos + 1 + (int)(i / width / x.p.kv_heads);
        char *to = c < x.p.wk ? x.p.key_at(table, at, head, c) : x.p.value_at(table, at, head, c - x.p.wk);
        if (x.p.es == 2) store((bf16 *)to, 0.f);
        else store((float *)to, 0.f);
    }
}
static __global__ void kv_put_rows(const Put x) {
    after();
    const int64_t row = blockIdx.x;
    int lo = 0, hi = x.n; /* at[lo] <= row < at[hi] */
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (x.at[mid] <= row) lo = mid;
        else hi = mid;
    }
    if (row < x.at[0] || row >= x.at[x.n]) return;
    const int *table = x.p.table + lo * x.p.ld_table;
    const int start = x.start[lo], pos = start + (int)(row - x.at[lo]), first = pos - pos % x.p.page;
    if (pos / x.p.page >= x.p.n_table) return fault_at(x.p.fault, FAULT_LENGTH, row);
    if ((unsigned)table[pos / x.p.page] >= (unsigned)x.p.n_pages) return fault_at(x.p.fault, FAULT_PAGE, row);
    put_row(x, table, pos, x.k, row, x.p.wk, false);
    if (x.p.slice_v) put_row(x, table, pos, x.v, row, x.p.wv, true);
    if (row + 1 == x.at[lo + 1] && first >= start) zero_behind(x, table, pos);
}
static bool wide_rows(Tensor t, int width, int slice) {
    return t.dtype == DT_BF16 && (uintptr_t)t.data % 16 == 0 && t.ld % 8 == 0 && width % 8 == 0 && slice % 8 == 0;
}
void cuda_kv_put(Dev *d, Kv kv, Tensor k, Tensor v, Paged rows) {
    Pages p = pages_of(d, &kv, &rows);
    bool wide = p.es == 2 && p.page_bytes % 16 == 0 && wide_rows(k, kv.dk, p.slice_k);
    if (!kv.latent) wide = wide && wide_rows(v, kv.dv, p.slice_v);
    Put x = { (const int *)rows.rows.at.data, (const int *)rows.start.data, rows.rows.n, k, v, p, wide };
    launch_after(d, kv_put_rows, dim3((unsigned)k.rows), dim3(128), 0, x);
}
void cuda_kv_copy(Dev *d, Kv kv, int to_page, int from_page) {
    if (to_page == from_page) return;
    char *pool = (char *)kv.pool.data;
    CU(cudaMemcpyAsync(pool + to_page * kv.pool.ld, pool + from_page * kv.pool.ld, cuda_kv_bytes(d, &kv),
                       cudaMemcpyDeviceToDevice, stream_of(d)));
}
