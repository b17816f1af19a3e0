/* tensor.c - the names of the dtypes. */
#include "tensor/tensor.h"

const char *dtype_name(DType t) {
    static const char *const name[] = { "F32", "BF16", "F16", "F8_E4M3", "I32", "I64", "U8", "I16" };
    return name[t];
}
