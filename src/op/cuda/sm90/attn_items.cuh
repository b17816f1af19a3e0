/* attn_items.cuh - what the fast attention kernels work through: items (a tile of rows of one sequence and head, all
 * its spans of keys or one), where its keys lie, and the small kernel that lists the items, so that the host need
 * not know the lengths.  The list and its order decide who computes when, never what. */
#ifndef OP_CUDA_ATTN_ITEMS_CUH
#define OP_CUDA_ATTN_ITEMS_CUH

#include "op/cuda/common/pdl.cuh"
#include "op/cuda/common/attn.h"
#include "op/cuda/sm90/ptx.cuh"

/* q0: first new row of the tile; head: kv head, or block of heads; span -1: all */
struct Item {
    int seq, head, q0, span;
};

struct ItemList {
    const Item *at; /* null: decode, every sequence has one row, and item i is (span, sequence, head) counted through */
    const int *count;       /* how many there are, with a list */
    int *taken;             /* how many are taken: 0 before and after a kernel */
    int seqs, heads, spans; /* without a list; spans 0: all of a sequence together */
    const int *one;         /* where its rows are, if there is one sequence: tiles of 'positions', longest first ... */
    int positions, each;    /* ... of so many heads at a time */
    __device__ int tiles() const { return (one[1] - one[0] + positions - 1) / positions; }
    __device__ int total() const { return at ? *count : one ? tiles() * heads : seqs * heads * (spans ? spans : 1); }
    __device__ Item get(int i) const {
        if (at) return at[i];
        if (one) {
            const int all = tiles(), h0 = i / (all * each) * each, h = min(each, heads - h0), k = i - h0 * all;
            return { 0, h0 + k % h, (all - 1 - k / h) * positions, -1 };
        }
        const int n = i % (seqs * heads);
        return { n / heads, n % heads, 0, spans ? i / (seqs * heads) : -1 };
    }
    __device__ bool next(Item *x) const {
        const int i = atomicAdd(taken, 1), all = total();
        if (i < all) *x = get(i);
        if (i == all + (int)gridDim.x - 1) *taken = 0; /* every block asks once in vain: this was the last of them */
        return i < all;
    }
};

/* Keys of all sequences: pages of slices [position][64], or rows of a tensor (table null). */
struct KeyPages {
    const int *table;
    const int *from; /* without a table: the row of each sequence's first key; null: its own first row */
    int64_t ld_table;
    int page, piece, slices, n_pages, n_table; /* piece: positions a box brings; slices a page */
    volatile Fault *fault;
};
struct SeqKeys { /* of one sequence; past its last page the last one is read again: those keys are masked */
    const int *table;
    int first, last_page; /* first: the first key's row, without a table */
    __device__ int slice(const KeyPages &k, int pos) const { /* the first slice of the page that holds pos */
        const int n = table[min(pos / k.page, last_page)];
        if ((unsigned)n >= (unsigned)k.n_pages) fault_at(k.fault, FAULT_PAGE, n);
        return n * k.slices;
    }
};
DEV SeqKeys seq_keys(const KeyPages &k, int seq, int row0, int last) {
    SeqKeys s = { k.table + seq * k.ld_table, k.from ? k.from[seq] : row0, 0 };
    if (!k.table) return s;
    s.last_page = last / k.page;
    if (s.last_page >= k.n_table) fault_at(k.fault, FAULT_LENGTH, seq), s.last_page = k.n_table - 1;
    return s;
}

/* Lists the tiles of 'positions' rows each, by sections of keys that fit the L2 cache together and longest first
 * within a section: a counting sort by one block, which takes a few microseconds. */
enum { ITEM_SECTIONS = 32, ITEM_LEVELS = 64, ITEM_THREADS = 1024 };
/* Whole tiles of keys of one head are listed so many side by side, as if all were as long as the first: blocks that
 * begin together then read the same rows.  Short ones go by their own length, to fill the last round. */
enum { ITEM_TILES = 4 };
struct ItemWork {
    /* as in AttnPar; from: tiles are of keys, and parts of one sequence have them together */
    const int *at, *start, *from;
    int seqs, positions, heads;
    int longest;      /* most keys of a sequence */
    unsigned section; /* rows x heads a section has; 0: all */
    bool later;       /* the work of a tile is the rows behind it, not the keys before it */
    int spans, block; /* spans > 0: so many items of a tile, at most; positions a block of rows has */
    int *first;       /* [seqs + 1]: for the kernel itself, the first tile of each sequence */
    int *count;
    Item *out;
};
/* x of all threads before this one, and of all */
DEV int sum_before(int x, int *warps, int *all) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int upto = x;
    for (int d = 1; d < 32; d *= 2) {
        const int y = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += y;
    }
    __syncthreads(); /* the last use of warps is over */
    if (lane == 31) warps[warp] = upto;
    __syncthreads();
    int before = upto - x, sum = 0;
    for (int i = 0; i < ITEM_THREADS / 32; i++) {
        if (i < warp) before += warps[i];
        sum += warps[i];
    }
    *all = sum;
    return before;
}
DEV void list_items(const ItemWork &w) {
    __shared__ int bin[ITEM_SECTIONS * ITEM_LEVELS], warps[ITEM_THREADS / 32];
    constexpr int EACH = ITEM_SECTIONS * ITEM_LEVELS / ITEM_THREADS;
    int tiles = 0, all;
    auto rows_of = [&](int s) {
        return w.from ? keys_of(w.at, w.start, w.from, w.seqs, s) : w.at[s + 1] - w.at[s];
    };
    for (int s0 = 0; s0 < w.seqs; s0 += ITEM_THREADS) {
        const int s = s0 + threadIdx.x, n = s < w.seqs ? rows_of(s) : 0;
        const int before = sum_before((n + w.positions - 1) / w.positions, warps, &all);
        if (s < w.seqs) w.first[s] = tiles + before;
        tiles += all;
    }
    for (int i = 0; i < EACH; i++) bin[threadIdx.x * EACH + i] = 0;
    __syncthreads();
    auto each_item = [&](auto take) {
        const int spans = max(w.spans, 1);
        const bool beside = w.later && !w.spans && !w.section;
        for (int i = threadIdx.x; i < tiles * w.heads * spans; i += ITEM_THREADS) {
            int tile = i / (w.heads * spans), h = i / spans % w.heads;
            if (beside) {
                const int t0 = i / (ITEM_TILES * w.heads) * ITEM_TILES, k = i - t0 * w.heads;
                const int m = min((int)ITEM_TILES, tiles - t0);
                tile = t0 + k % m, h = k / m;
            }
            int lo = 0, hi = w.seqs; /* first[lo] <= tile < first[hi]; of empty sequences the last is taken */
            while (hi - lo > 1) {
                const int mid = (lo + hi) / 2;
                if (w.first[mid] <= tile) lo = mid;
                else hi = mid;
            }
            const int q0 = (tile - w.first[lo]) * w.positions, n = rows_of(lo), start = w.start ? w.start[lo] : 0;
            unsigned work = w.later ? n - q0 : start + min(q0 + w.positions, n);
            if (beside && 4 * work > (unsigned)w.longest) work += q0 % (ITEM_TILES * w.positions);
            int span = -1;
            if (w.spans) { /* its rows: a tile sees nothing of the spans before it, of others all */
                const int each = back_span(n, w.heads, w.positions, w.block) * w.block;
                span = i % spans;
                const int rows = min(n, (span + 1) * each) - max(q0, span * each);
                if (rows <= 0) continue;
                work = rows;
            }
            const unsigned level = ITEM_LEVELS - 1 - min((work - 1) * ITEM_LEVELS / w.longest, ITEM_LEVELS - 1u);
            const unsigned section = w.section ? ((unsigned)(w.at[lo] - w.at[0]) * w.heads + h * n) / w.section : 0;
            take(min(section, ITEM_SECTIONS - 1u) * ITEM_LEVELS + level, Item{ lo, h, q0, span });
        }
    };
    each_item([&](int b, Item) { atomicAdd(&bin[b], 1); });
    __syncthreads();
    int sum = 0; /* bins -> where each begins */
    for (int i = 0; i < EACH; i++) sum += bin[threadIdx.x * EACH + i];
    int before = sum_before(sum, warps, &all);
    for (int i = 0; i < EACH; i++) {
        const int n = bin[threadIdx.x * EACH + i];
        bin[threadIdx.x * EACH + i] = before;
        before += n;
    }
    if (threadIdx.x == 0) *w.count = all;
    __syncthreads();
    each_item([&](int b, Item x) { w.out[atomicAdd(&bin[b], 1)] = x; });
}
/* One list a block. */
static __global__ void __launch_bounds__(ITEM_THREADS) attn_list(const ItemWork a, const ItemWork b) {
    pdl_let_next();
    list_items(blockIdx.x ? b : a);
}

#endif
