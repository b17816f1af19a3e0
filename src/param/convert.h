/* convert.h - elements between the formats of files and of memory, on the host.  Pointers need no alignment. */
#ifndef PARAM_CONVERT_H
#define PARAM_CONVERT_H

#include "tensor/tensor.h"

/* One tensor as a file has it, seen as rows x cols.  F8_E4M3 is multiplied by its block's scale (128 x 128).
 * turn: rows of a head whose halves lie in turns in the file, as llama.cpp wants them for its rope; 0: they do not. */
typedef struct {
    const char *data;
    DType       dtype;
    int         turn;
    int64_t     rows, cols;
    const char *scale;              /* F8: [ceil(rows/128), ceil(cols/128)], F32 or BF16 */
    DType       scale_dtype;
} Source;

/* The row of the file that is row r of the matrix, and the other way round. */
static inline int64_t source_row(const Source *s, int64_t r) {
    if (!s->turn) return r;
    int64_t at = r % s->turn, half = s->turn / 2;
    return r - at + at % half * 2 + at / half;
}
static inline int64_t source_row_back(const Source *s, int64_t r) {
    if (!s->turn) return r;
    int64_t at = r % s->turn, half = s->turn / 2;
    return r - at + at % 2 * half + at / 2;
}

/* Elements [from, from+n), in row-major order, to F32 or BF16. */
void convert_from(void *to, DType t, const Source *s, int64_t from, int64_t n);
void convert_f32(void *to, DType t, const void *from, DType from_t, int64_t n);      /* between F32 and BF16 */
/* the first NaN or infinity; -1: none.  F32, BF16 */
int64_t convert_not_finite(const void *x, DType t, int64_t n);

#endif
