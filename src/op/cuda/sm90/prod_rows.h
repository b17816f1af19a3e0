/* prod_rows.h - what the choice of a product's kernel and its launch both reckon with: sizes, and copies of operands
 * that do not lie as the copy engine takes them.  C, and no device. */
#ifndef OP_CUDA_PROD_ROWS_H
#define OP_CUDA_PROD_ROWS_H

#include "op/cuda/common/prod.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- gemm.cuh ---------------------------------------------------------------------------------------------------- */
static inline int blocks_of_sms(int sms) { return sms < PROD_BLOCKS ? sms & ~1 : PROD_BLOCKS; }
static inline int levels_of(const Prod *p) {
    int l = 0;
    while (1 << l < p->n_pieces) l++;
    return l;
}
/* Sums of pieces that wait for others, of all blocks. */
static inline size_t gemm_fold_bytes(int bn, int levels, int blocks) {
    return (size_t)blocks * 2 * levels * 64 * bn * 4;
}
/* prod_dw.cu's tile */
enum { TALL_ROWS = 256, TALL_COLS = 160 };

/* ---- one.cu: a product of one token's row, in blocks of 'cols' rows of the weight -------------------------------- */
enum { ROW_BOX = 8 * 128, ROW_BOXES = 4, ROW_TEAM = 256 }; /* a box of the row; boxes a barrier; threads of norm_k's */
/* wgmma reads 64 rows of the last box too */
static inline int row_bytes(int cols, int64_t K) {
    return (int)(1024 + K / 64 * (cols * 128 + ROW_BOX) + (64 - cols) * 128 + K / 64 / ROW_BOXES * 8
                 + ROW_TEAM / 32 * 4);
}
/* A block's share fits, and all blocks are there at once. */
static inline bool row_room(int sms, size_t smem, int64_t N, int64_t K, int cols) {
    return K % (64 * ROW_BOXES) == 0 && (N + cols - 1) / cols <= sms && (size_t)row_bytes(cols, K) <= smem;
}
bool row_fits(const Prod *p, int sms, size_t smem, int cols);

/* ---- a float32 operand beside a bf16 one (the router's gradients, a float32 router) ------------------------------ */
/* A float32 is the sum of three bf16, exactly, but for numbers near the ends of the range: its copy has its smallest
 * parts first, then the middle, then the largest, and the sum goes on over all three while the other operand is read
 * three times.  DW adds three sums.  Only where the device computes in bf16: else chains, as op/cpu. */
typedef struct {
    bool    a, side;                    /* which operand; parts side by side, else one below the other */
    int64_t rows, cols, wide, ld, part;
    size_t  bytes;
} Three;
Three split_of(const Prod *p);
Prod  split_prod(const Prod *p, const Three *s, const void *parts, int i);      /* FWD, DX: the whole; DW: part i */
/* A small DW over many rows (the router's) would be one wave of a few tiles: its rows are cut into pieces, each summed
 * for itself, and dw += the chain over parts, smallest first, and pieces.  0: it is not cut. */
enum { PIECE_ROWS = 1024 };
int64_t pieces_of(const Prod *p);
size_t  pieces_bytes(const Prod *p);

/* ---- widths that are no multiples of 8, by rows that are 16 bytes apart (a tower's 3420 columns) ----------------- */
/* The copy engine brings zeros for columns past the end, and what lies there is not written.  Weights lie as they do on
 * disk, without gaps: they are copied to rows that the copy engine takes, which costs some percent of a product with
 * many rows. */
Prod   padded_of(const Prod *p, int64_t *rows, int64_t *cols);          /* of b: 0 where it lies well */
size_t padded_bytes(const Prod *p);

#ifdef __cplusplus
}
#endif
#endif
