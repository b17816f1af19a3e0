/* tensor.h - a typed, shaped view of memory that somebody else owns. */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "base/base.h"

/* DT_I16 is never on disk; those from DT_Q4_0 on are nowhere else: blocks of quantised numbers (param/blocks.h). */
typedef enum {
    DT_F32, DT_BF16, DT_F16, DT_F8E4M3, DT_I32, DT_I64, DT_U8, DT_I16,
    DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1, DT_Q8_0, DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K, DTYPES
} DType;

static inline size_t dtype_size(DType t) {
    return t == DT_I64 ? 8 : t == DT_F32 || t == DT_I32 ? 4 : t == DT_BF16 || t == DT_F16 || t == DT_I16 ? 2 : 1;
}
const char *dtype_name(DType t);                       /* "F32", "BF16", ... as safetensors and GGUF spell it */
static inline bool dtype_blocks(DType t) { return t >= DT_Q4_0; }
typedef struct { int elements, bytes; } DTypeBlock;
DTypeBlock dtype_block(DType t);                       /* of what has no blocks: one element */
/* n elements, in whole blocks, of anything that is on disk */
static inline size_t dtype_bytes(DType t, int64_t n) {
    DTypeBlock b = dtype_block(t);
    return (size_t)(n / b.elements) * (size_t)b.bytes;
}

/* Passed by value: a Tensor owns nothing, so copying one is free of meaning.  Row-major, rows x cols; rows may be
 * strided by ld elements (a column slice of a fused projection is a Tensor), columns are always contiguous.  Heads,
 * experts and time are rows or columns as the op says: [T,N,D] is a Tensor of T rows and N*D cols. */
typedef struct {
    void   *data;
    DType   dtype;
    int64_t rows, cols, ld;
} Tensor;

#define TENSOR_NONE ((Tensor){ 0 })          /* "no bias", "do not want dx" */

static inline Tensor tensor_over(void *data, DType t, int64_t rows, int64_t cols) {
    return (Tensor){ .data = data, .dtype = t, .rows = rows, .cols = cols, .ld = cols };
}

static inline size_t tensor_bytes(DType t, int64_t rows, int64_t cols) {
    CHECK(rows >= 0 && cols >= 0 && (cols == 0 || rows <= INT64_MAX / 8 / cols), "tensor of %ld x %ld", (long)rows,
          (long)cols);
    return (size_t)(rows * cols) * dtype_size(t);
}

static inline Tensor tensor_push(Arena *a, DType t, int64_t rows, int64_t cols) {
    return tensor_over(arena_push(a, tensor_bytes(t, rows, cols)), t, rows, cols);
}

static inline Tensor tensor_rows(Tensor x, int64_t from, int64_t n) {
    CHECK(from >= 0 && n >= 0 && from + n <= x.rows, "rows [%ld,+%ld) of %ld", (long)from, (long)n, (long)x.rows);
    x.data = mem_past(x.data, (size_t)(from * x.ld) * dtype_size(x.dtype));
    x.rows = n;
    return x;
}

static inline Tensor tensor_cols(Tensor x, int64_t from, int64_t n) {
    CHECK(from >= 0 && n >= 0 && from + n <= x.cols, "cols [%ld,+%ld) of %ld", (long)from, (long)n, (long)x.cols);
    x.data = mem_past(x.data, (size_t)from * dtype_size(x.dtype));
    x.cols = n;
    return x;
}

/* The same elements as rows x cols; only for a tensor without gaps. */
static inline Tensor tensor_shape(Tensor x, int64_t rows, int64_t cols) {
    CHECK((x.ld == x.cols || x.rows <= 1) && rows * cols == x.rows * x.cols, "[%ld,%ld] (row stride %ld) as [%ld,%ld]",
          (long)x.rows, (long)x.cols, (long)x.ld, (long)rows, (long)cols);
    return tensor_over(x.data, x.dtype, rows, cols);
}

#endif
