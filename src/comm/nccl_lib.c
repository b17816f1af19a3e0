/* nccl_lib.c - finds the entries of the driver's and NCCL's libraries by their names. */
#include "comm/nccl_lib.h"

#include <dlfcn.h>
#include <string.h>

#define ENTRY(name)                                                                                                    \
    { #name, offsetof(NcclLib, name) }
static const struct {
    const char *name;
    size_t at;
} cuda_names[] = { ENTRY(cuEventCreate),        ENTRY(cuEventRecord),        ENTRY(cuEventQuery),
                   ENTRY(cuEventSynchronize),   ENTRY(cuEventElapsedTime),   ENTRY(cuEventDestroy_v2),
                   ENTRY(cuStreamCreate),       ENTRY(cuStreamWaitEvent),    ENTRY(cuStreamIsCapturing),
                   ENTRY(cuStreamDestroy_v2),   ENTRY(cuMemHostAlloc),       ENTRY(cuMemFreeHost),
                   ENTRY(cuMemcpyDtoHAsync_v2), ENTRY(cuMemcpyHtoDAsync_v2), ENTRY(cuMemcpyDtoDAsync_v2) },
  nccl_names[] = { ENTRY(ncclGetVersion),  ENTRY(ncclGetUniqueId), ENTRY(ncclCommInitRankConfig),
                   ENTRY(ncclCommSplit),   ENTRY(ncclCommDestroy), ENTRY(ncclCommAbort),
                   ENTRY(ncclGroupStart),  ENTRY(ncclGroupEnd),    ENTRY(ncclCommGetAsyncError),
                   ENTRY(ncclSend),        ENTRY(ncclRecv),        ENTRY(ncclGetErrorString),
                   ENTRY(ncclGetLastError) };

static bool find(NcclLib *lib, void *from, const char *name, size_t at, Err *err) {
    void *symbol = dlsym(from, name);
    if (!symbol) return err_set(err, "%s is not in the library: install a newer one", name);
    memcpy((char *)lib + at, &symbol, sizeof symbol);
    return true;
}
bool nccl_load(NcclLib *lib, Err *err) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!cuda || !nccl)
        return err_set(err, "ranks on GPUs need %s, which cannot be loaded: install libnccl2, or use --device cpu",
                       cuda ? "libnccl.so.2" : "libcuda.so.1");
    for (size_t i = 0; i < COUNT(cuda_names); i++) TRY(find(lib, cuda, cuda_names[i].name, cuda_names[i].at, err));
    for (size_t i = 0; i < COUNT(nccl_names); i++) TRY(find(lib, nccl, nccl_names[i].name, nccl_names[i].at, err));
    return true;
}
