/* kv.cu - keys and values go into pages: layout in attn.h. */
#include "op/cuda/common/pdl.cuh"
#include "op/cuda/common/attn.h"

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

/* A block a row: its sequence is found once, and its page.  The fast kernels multiply what lies behind
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
/* Behind pos the rows of a slice lie one behind the other, so zeros go there as one piece. */
static __device__ void zero_behind(const Put &x, const int *table, int pos) {
    const int left = x.p.page - 1 - pos % x.p.page, unit = x.wide ? 16 / x.p.es : 1;
    for (int value = 0; value < (x.p.slice_v ? 2 : 1); value++) {
        const int width = value ? x.p.wv : x.p.wk, slice = value ? x.p.slice_v : x.p.slice_k, run = left * slice / unit;
        const int n = x.p.kv_heads * (width / slice) * run;
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const int piece = i / run, head = piece / (width / slice), c = piece % (width / slice) * slice;
            char *to = value ? x.p.value_at(table, pos + 1, head, c) : x.p.key_at(table, pos + 1, head, c);
            to += (int64_t)(i - piece * run) * unit * x.p.es;
            if (x.wide) *(uint4 *)to = make_uint4(0, 0, 0, 0);
            else if (x.p.es == 2) store((bf16 *)to, 0.f);
            else store((float *)to, 0.f);
        }
    }
}
static __global__ void kv_put_rows(const Put x) {
    pdl_begin();
    const int64_t row = blockIdx.x;
    const int s = seq_of_row(x.at, x.n, row);
    if (s < 0) return;
    const int *table = x.p.table + s * x.p.ld_table;
    const int start = x.start[s], pos = start + (int)(row - x.at[s]), first = pos - pos % x.p.page;
    if (pos / x.p.page >= x.p.n_table) return fault_at(x.p.fault, FAULT_LENGTH, row);
    if ((unsigned)table[pos / x.p.page] >= (unsigned)x.p.n_pages) return fault_at(x.p.fault, FAULT_PAGE, row);
    put_row(x, table, pos, x.k, row, x.p.wk, false);
    if (x.p.slice_v) put_row(x, table, pos, x.v, row, x.p.wv, true);
    if (row + 1 == x.at[s + 1] && first >= start && pos + 1 < first + x.p.page) zero_behind(x, table, pos);
}
static bool wide_rows(Tensor t, int width, int slice) {
    return t.dtype == DT_BF16 && (uintptr_t)t.data % 16 == 0 && t.ld % 8 == 0 && width % 8 == 0 && slice % 8 == 0;
}
void cuda_kv_put(Dev *d, Kv kv, Tensor k, Tensor v, Paged rows) {
    Pages p = pages_of(d, &kv, &rows);
    bool wide = p.es == 2 && p.page_bytes % 16 == 0 && wide_rows(k, kv.dk, p.slice_k);
    if (!kv.latent) wide = wide && wide_rows(v, kv.dv, p.slice_v);
    Put x = { (const int *)rows.rows.at.data, (const int *)rows.start.data, rows.rows.n, k, v, p, wide };
    launch_pdl(d, kv_put_rows, dim3((unsigned)k.rows), dim3(128), 0, x);
}
void cuda_kv_copy(Dev *d, Kv kv, int to_page, int from_page) {
    if (to_page == from_page) return;
    char *pool = (char *)kv.pool.data;
    CU(cudaMemcpyAsync(pool + to_page * kv.pool.ld, pool + from_page * kv.pool.ld, cuda_kv_bytes(d, &kv),
                       cudaMemcpyDeviceToDevice, stream_of(d)));
}
