/* gpu.h - GPUs of this machine as their driver tells (NVML, loaded where it is): use, memory, temperature, power. */
#ifndef PAGE_GPU_H
#define PAGE_GPU_H

#include "base/base.h"

void gpu_put(Buf *out);         /* [{"name","use","memory","memory_bytes","celsius","watts"},...]; [] where none is */

#endif
