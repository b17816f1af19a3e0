/* attn.h - inside attention: pages, and the plain kernels that stand behind the fast ones.
 *
 * A page holds, in the device's activation dtype, the keys of all kv heads and then the values (a latent: only
 * keys), in slices of columns: [kv head][columns / slice][position][slice].  The slice is 64 where both widths are
 * multiples of it, so that one box of the copy engine is one contiguous piece; else a slice is a whole head. */
#ifndef OP_CUDA_ATTN_H
#define OP_CUDA_ATTN_H

#include "op/cuda/common/attn_order.h"
#include "op/cuda/common/cuda.h"

struct Pages {                               /* table null: keys are rows of a tensor */
    const char *pool;
    const int  *table;
    int64_t     ld_table, page_bytes;
    int         page, n_pages, n_table;      /* positions a page; pages; entries a sequence has in the table */
    int         kv_heads, wk, wv, slice_k, slice_v, es; /* es: bytes an element; slice_v 0: values are in the key */
    volatile Fault *fault;

    __device__ int64_t element(int pos, int head, int c, int width, int slice) const {
        return (((int64_t)head * (width / slice) + c / slice) * page + pos % page) * slice + c % slice;
    }
    __device__ char *at(const int *seq_table, int pos, int64_t i) const {
        return (char *)pool + seq_table[pos / page] * page_bytes + i * es;
    }
    __device__ char *key_at(const int *seq_table, int pos, int head, int c) const {
        return at(seq_table, pos, element(pos, head, c, wk, slice_k));
    }
    __device__ char *value_at(const int *seq_table, int pos, int head, int c) const {
        if (!slice_v) return key_at(seq_table, pos, head, c);
        return at(seq_table, pos, (int64_t)kv_heads * page * wk + element(pos, head, c, wv, slice_v));
    }
    __device__ float get(const char *p) const { return es == 2 ? load((const bf16 *)p) : load((const float *)p); }
    __device__ float key(const int *seq_table, int pos, int head, int c) const {
        return get(key_at(seq_table, pos, head, c));
    }
    __device__ float value(const int *seq_table, int pos, int head, int c) const {
        return get(value_at(seq_table, pos, head, c));
    }
};
/* Whose row it is: at[s] <= row < at[s+1], or -1.  Of a step of decoding every sequence has one, which is looked at
 * first: halving is a chain of reads, half a microsecond each. */
static __device__ __forceinline__ int seq_of_row(const int *at, int n, int64_t row) {
    if (row < n && at[row] == row && at[row + 1] == row + 1) return (int)row;
    if (row < at[0] || row >= at[n]) return -1;
    int lo = 0;
    for (int hi = n; hi - lo > 1;) {
        const int mid = (lo + hi) / 2;
        if (at[mid] <= row) lo = mid;
        else hi = mid;
    }
    return lo;
}
/* Parts of one sequence, which share its keys (Attn.from), stand in the order of their positions, others between
 * them. */
/* The part behind s, or seqs: by a whole warp. */
static __device__ __forceinline__ int next_part(const int *from, int seqs, int s) {
    for (int t0 = s + 1; from && t0 < seqs; t0 += 32) {
        const int t = t0 + (int)(threadIdx.x & 31);
        const unsigned there = __ballot_sync(~0u, t < seqs && from[min(t, seqs - 1)] == from[s]);
        if (there) return t0 + __ffs(there) - 1;
    }
    return seqs;
}
/* Keys of sequence s where it is the first of its parts: up to where the last of them ends; else 0. */
static __device__ __forceinline__ int keys_of(const int *at, const int *start, const int *from, int seqs, int s) {
    int last = s;
    for (int t = 0; t < seqs; t++) {
        if (from[t] != from[s]) continue;
        if (t < s) return 0;
        last = t;
    }
    return start[last] + at[last + 1] - at[last];
}
/* Blocks of rows that are one sum of dk and dv: the largest power of two that leaves a sequence some BACK_WORK items of
 * spans.  Of the sequence and the heads alone: what else is in the pack must not change its sums. */
static inline __host__ __device__ int back_span(int len, int kv_heads, int tile, int positions) {
    const int64_t tiles = (len + tile - 1) / tile, blocks = (len + positions - 1) / positions,
                  most = tiles * kv_heads * blocks / BACK_WORK;
    int span = BACK_SPAN;
    while (2 * (int64_t)span <= most) span *= 2;
    return span;
}
Pages pages_of(const Dev *d, const Kv *kv, const Paged *rows);

void   plain_attn_open(void);
void   plain_attend(Dev *d, const Attn *a, bool all);                     /* all: attend_all */
void   plain_attend_kv(Dev *d, Tensor o, Tensor q, const Kv *kv, const Paged *rows, int heads, float scale);
size_t plain_attend_bwd_tmp(const Attn *a);
void   plain_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a, bool all);

#endif
