/* tensor.c - the names of the dtypes, and the blocks of those that have some. */
#include "tensor/tensor.h"

const char *dtype_name(DType t) {
    static const char *const name[DTYPES] = {
        "F32",  "BF16", "F16",  "F8_E4M3", "I32",  "I64",  "U8",   "I16",  "Q4_0",
        "Q4_1", "Q5_0", "Q5_1", "Q8_0",    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"
    };
    return name[t];
}

DTypeBlock dtype_block(DType t) {
    static const DTypeBlock of[DTYPES] = {
        [DT_Q4_0] = { 32, 18 },   [DT_Q4_1] = { 32, 20 },   [DT_Q5_0] = { 32, 22 },   [DT_Q5_1] = { 32, 24 },
        [DT_Q8_0] = { 32, 34 },   [DT_Q2_K] = { 256, 84 },  [DT_Q3_K] = { 256, 110 }, [DT_Q4_K] = { 256, 144 },
        [DT_Q5_K] = { 256, 176 }, [DT_Q6_K] = { 256, 210 },
    };
    return dtype_blocks(t) ? of[t] : (DTypeBlock){ 1, (int)dtype_size(t) };
}
