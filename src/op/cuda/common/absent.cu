/* absent.cu - ops that this backend does not have yet, each of which dies by its name; families that have them are
 * refused before (Arch.untried). */
#include "op/cuda/common/cuda.h"

#define ABSENT(name, ...)                                                                                              \
    void cuda_##name(__VA_ARGS__) {                                                                                    \
        die_at(__FILE__, __LINE__, "%s: the CUDA backend does not have this op yet", #name);                           \
    }
ABSENT(gate, Dev *, Tensor, Tensor, Tensor)
ABSENT(gate_bwd, Dev *, Tensor, Tensor, Tensor, Tensor, Tensor)
ABSENT(plus_one, Dev *, Tensor, Tensor)
ABSENT(conv, Dev *, Tensor, Tensor, Tensor, const Remembered *)
ABSENT(conv_bwd, Dev *, Tensor, Tensor, Tensor, Tensor, Tensor, const Remembered *)
ABSENT(unit, Dev *, Tensor, Tensor, Tensor, int, float)
ABSENT(unit_bwd, Dev *, Tensor, Tensor, Tensor, Tensor, int, float)
ABSENT(decay, Dev *, Tensor, Tensor, const Decay *)
ABSENT(decay_bwd, Dev *, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, const Decay *)
ABSENT(delta, Dev *, Tensor, const Delta *)
ABSENT(delta_bwd, Dev *, const DeltaGrad *, Tensor, const Delta *)
ABSENT(norm_gate, Dev *, Tensor, Tensor, Tensor, Tensor, Tensor, int, float)
ABSENT(norm_gate_bwd, Dev *, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int)
