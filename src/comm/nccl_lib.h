/* nccl_lib.h - the entries of libcuda.so.1 and libnccl.so.2 that nccl.c calls, found at run time.  The few declarations
 * that are needed stand here by hand: both are stable C interfaces. */
#ifndef COMM_NCCL_LIB_H
#define COMM_NCCL_LIB_H

#include "base/base.h"

typedef struct { char bytes[128]; } NcclId;
/* ncclConfig_t of NCCL 2.28: an older library reads the front of it, a newer one takes what is behind as not said. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} NcclConfig;
enum { NCCL_MAGIC = (int)0xcafebeef, NCCL_2_28 = 22800, NCCL_NOT_SAID = -0x7fffffff - 1 };
enum {
    CU_NOT_READY = 600,
    CU_EVENT_TIMED = 0,
    CU_EVENT_NO_TIMING = 2,
    CU_STREAM_APART = 1,
    NCCL_BYTES = 1,
    NCCL_NO_COLOR = -1
};
typedef int Cu;
typedef unsigned long long CuAt;        /* device memory */
typedef struct {
    Cu (*cuEventCreate)(void **event, unsigned flags);
    Cu (*cuEventRecord)(void *event, void *stream);
    Cu (*cuEventQuery)(void *event);
    Cu (*cuEventSynchronize)(void *event);
    Cu (*cuEventElapsedTime)(float *ms, void *from, void *to);
    Cu (*cuEventDestroy_v2)(void *event);
    Cu (*cuStreamCreate)(void **stream, unsigned flags);
    Cu (*cuStreamWaitEvent)(void *stream, void *event, unsigned flags);
    Cu (*cuStreamIsCapturing)(void *stream, int *status);
    Cu (*cuStreamDestroy_v2)(void *stream);
    Cu (*cuMemHostAlloc)(void **host, size_t bytes, unsigned flags);
    Cu (*cuMemFreeHost)(void *host);
    Cu (*cuMemcpyDtoHAsync_v2)(void *host, CuAt from, size_t bytes, void *stream);
    Cu (*cuMemcpyHtoDAsync_v2)(CuAt to, const void *host, size_t bytes, void *stream);
    Cu (*cuMemcpyDtoDAsync_v2)(CuAt to, CuAt from, size_t bytes, void *stream);
    int (*ncclGetVersion)(int *version);
    int (*ncclGetUniqueId)(NcclId *id);
    int (*ncclCommInitRankConfig)(void **comm, int size, NcclId id, int rank, NcclConfig *config);
    int (*ncclCommSplit)(void *comm, int color, int key, void **part, NcclConfig *config);
    int (*ncclCommDestroy)(void *comm);
    int (*ncclCommAbort)(void *comm);
    int (*ncclCommGetAsyncError)(void *comm, int *error);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    int (*ncclSend)(const void *from, size_t count, int type, int peer, void *comm, void *stream);
    int (*ncclRecv)(void *to, size_t count, int type, int peer, void *comm, void *stream);
    const char *(*ncclGetErrorString)(int error);
    const char *(*ncclGetLastError)(void *comm);
} NcclLib;
bool nccl_load(NcclLib *lib, Err *err);

#endif
