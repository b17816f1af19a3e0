/* table.cu - the CUDA backend's table.  An op that no file defines yet dies when it is called. */
#include "op/cuda/cuda.h"

#define OP(how, name, params, args, outs)                                                                              \
    __attribute__((weak)) void cuda_##name params { die("op/cuda: " #name " is not there yet"); }
#include "op/op_list.h"
#undef OP
__attribute__((weak)) size_t cuda_kv_bytes(const Dev *d, const Kv *kv) { die("op/cuda: kv_bytes is not there yet"); }
__attribute__((weak)) double cuda_sumsq(Dev *d, Tensor x) { die("op/cuda: sumsq is not there yet"); }
__attribute__((weak)) bool prods_open(Dev *d, Err *err) { return true; }
__attribute__((weak)) void prods_close(Dev *d) {}
__attribute__((weak)) void prods_about(char *text, size_t size) { text[0] = 0; }
__attribute__((weak)) void attns_about(char *text, size_t size) { text[0] = 0; }
__attribute__((weak)) bool attns_open(Dev *d, Err *err) { return true; }
__attribute__((weak)) void attns_close(Dev *d) {}

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
