/* table.cu - the CUDA backend's table. */
#include "op/cuda/common/cuda.h"

static const Fused fused_cuda = {
    .defers_norms = cuda_defers_norms,
#define FUSED(name, params, args) .name = cuda_##name,
#include "op/op_fused_list.h"
#undef FUSED
};

const Ops ops_cuda = {
    .name = "cuda",
    .expands = true,
    .close = cuda_close, .block = cuda_block, .give = cuda_give, .room = cuda_room, .queue = cuda_queue,
    .touch = cuda_touch, .enter = cuda_enter, .leave = cuda_leave, .chain = cuda_chain, .about = cuda_about,
    .stamp = cuda_stamp, .stamped = cuda_stamped, .ask = cuda_ask, .asked = cuda_asked,
    .record = cuda_record, .recorded = cuda_recorded, .replay = cuda_replay, .forget = cuda_forget,
    .link = cuda_link,
    .fused = &fused_cuda, .kv_bytes = cuda_kv_bytes, .sumsq = cuda_sumsq,
#define OP(how, name, params, args, outs) .name = cuda_##name,
#include "op/op_list.h"
#undef OP
    .tmp = {
#define OP(how, name, params, args, outs) .name = cuda_tmp_##name,
#include "op/op_list.h"
#undef OP
    },
};
