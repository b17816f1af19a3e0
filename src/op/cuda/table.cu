/* table.cu - the CUDA backend's table. */
#include "op/cuda/cuda.h"

/* No library whose version changes bits is used: products and attention are ours. */
__attribute__((weak)) void prods_about(char *text, size_t size) { (void)size, text[0] = 0; }
__attribute__((weak)) void attns_about(char *text, size_t size) { (void)size, text[0] = 0; }

const Ops ops_cuda = {
    .name = "cuda",
    .expands = true,
    .close = cuda_close, .block = cuda_block, .give = cuda_give, .touch = cuda_touch,
    .enter = cuda_enter, .leave = cuda_leave, .chain = cuda_chain, .about = cuda_about, .kv_bytes = cuda_kv_bytes, .sumsq = cuda_sumsq,
#define OP(how, name, params, args, outs) .name = cuda_##name,
#include "op/op_list.h"
#undef OP
    .tmp = {
#define OP(how, name, params, args, outs) .name = cuda_tmp_##name,
#include "op/op_list.h"
#undef OP
    },
};
