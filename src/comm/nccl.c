/* nccl.c - see nccl.h.  The few declarations of libcuda's and libnccl's that are needed stand here by hand: both are stable C interfaces. */
#include "comm/nccl.h"
#include "comm/watch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the libraries */
typedef struct {
    char bytes[128];
} NcclId;
enum { CU_NOT_READY = 600, CU_EVENT_NO_TIMING = 2, CU_STREAM_APART = 1, NCCL_BYTES = 1 };
typedef int Cu;
typedef struct {
    Cu (*cuEventCreate)(void **event, unsigned flags);
    Cu (*cuEventRecord)(void *event, void *stream);
    Cu (*cuEventQuery)(void *event);
    Cu (*cuStreamCreate)(void **stream, unsigned flags);
    Cu (*cuStreamWaitEvent)(void *stream, void *event, unsigned flags);
    Cu (*cuStreamDestroy_v2)(void *stream);
    Cu (*cuEventDestroy_v2)(void *event);
    Cu (*cuMemHostAlloc)(void **host, size_t bytes, unsigned flags);
    Cu (*cuMemFreeHost)(void *host);
    Cu (*cuMemcpyDtoHAsync_v2)(void *host, unsigned long long from, size_t bytes, void *stream);
    Cu (*cuMemcpyHtoDAsync_v2)(unsigned long long to, const void *host, size_t bytes, void *stream);
    Cu (*cuMemcpyDtoDAsync_v2)(unsigned long long to, unsigned long long from, size_t bytes, void *stream);
    int (*ncclGetVersion)(int *version);
    int (*ncclGetUniqueId)(NcclId *id);
    int (*ncclCommInitRank)(void **comm, int size, NcclId id, int rank);
    int (*ncclCommDestroy)(void *comm);
    int (*ncclCommGetAsyncError)(void *comm, int *error);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    int (*ncclSend)(const void *from, size_t count, int type, int peer, void *comm, void *stream);
    int (*ncclRecv)(void *to, size_t count, int type, int peer, void *comm, void *stream);
    const char *(*ncclGetErrorString)(int error);
} Lib;
#define ENTRY(name)                                                                                                    \
    { #name, offsetof(Lib, name) }
static const struct {
    const char *name;
    size_t at;
} cuda_names[] = { ENTRY(cuEventCreate),        ENTRY(cuEventRecord),        ENTRY(cuEventQuery),
                   ENTRY(cuStreamCreate),       ENTRY(cuStreamWaitEvent),    ENTRY(cuStreamDestroy_v2),
                   ENTRY(cuEventDestroy_v2),    ENTRY(cuMemHostAlloc),       ENTRY(cuMemFreeHost),
                   ENTRY(cuMemcpyDtoHAsync_v2), ENTRY(cuMemcpyHtoDAsync_v2), ENTRY(cuMemcpyDtoDAsync_v2) },
  nccl_names[] = { ENTRY(ncclGetVersion),
                   ENTRY(ncclGetUniqueId),
                   ENTRY(ncclCommInitRank),
                   ENTRY(ncclCommDestroy),
                   ENTRY(ncclCommGetAsyncError),
                   ENTRY(ncclGroupStart),
                   ENTRY(ncclGroupEnd),
                   ENTRY(ncclSend),
                   ENTRY(ncclRecv),
                   ENTRY(ncclGetErrorString) };

/* ---- calls under way */
typedef enum { FREE, ON_DEVICE, BY_MPI, TO_DEVICE, TO_MPI } Stage; /* where it is now; TO_...: and where it goes then */
typedef struct {
    Nccl *n;
    Stage stage;
    void *ready, *done; /* events: the queue had come so far; the call is over */
    void *mpi;          /* MPI's call */
    const Comm *by;     /* its group */
    int peer, tag;
    char *host, *device; /* host: pinned, kept for the next call */
    size_t bytes, room;
} Call;
enum { CALLS = 1024 };
struct Nccl {
    Lib lib;
    void *queue, *stream, *copies; /* the device's; bundles'; messages' */
    void *comm;
    int version;
    Call call[CALLS];
    Mem mem;
};
typedef struct {
    Nccl *n;
    Comm mpi;
    int *world; /* [size]: everybody's number among all */
} Group;

#define CUDA(n, what)                                                                                                  \
    do {                                                                                                               \
        int e_ = (n)->lib.what;                                                                                        \
        CHECK(e_ == 0, "comm/nccl: %s: CUDA's error %d", #what, e_);                                                   \
    } while (0)
#define NCCL(n, what)                                                                                                  \
    do {                                                                                                               \
        int e_ = (n)->lib.what;                                                                                        \
        CHECK(e_ == 0, "comm/nccl: %s: %s", #what, (n)->lib.ncclGetErrorString(e_));                                   \
    } while (0)

static Call *begin(Nccl *n) {
    for (int i = 0; i < CALLS; i++) {
        Call *c = &n->call[i];
        if (c->stage != FREE) continue;
        c->n = n;
        if (!c->ready) CUDA(n, cuEventCreate(&c->ready, CU_EVENT_NO_TIMING));
        if (!c->done) CUDA(n, cuEventCreate(&c->done, CU_EVENT_NO_TIMING));
        return c;
    }
    die("comm/nccl: more than %d calls are under way", CALLS);
}
/* What 'stream' does from now on comes behind what the device was asked for before. */
static void behind_queue(Call *c, void *stream) {
    CUDA(c->n, cuEventRecord(c->ready, c->n->queue));
    CUDA(c->n, cuStreamWaitEvent(stream, c->ready, 0));
}
static unsigned long long device_at(const void *p) { return (unsigned long long)(uintptr_t)p; }

/* ---- bundles */
static void *bundle(const Comm *c, void *to, const CommPart *get, const char *const *from, const size_t *bytes) {
    const Group *g = c->impl;
    Nccl *n = g->n;
    Call *call = begin(n);
    call->stage = ON_DEVICE;
    behind_queue(call, n->stream);
    NCCL(n, ncclGroupStart());
    for (int k = 1; k < c->size; k++) {
        int in = (c->rank - k + c->size) % c->size, out = (c->rank + k) % c->size;
        if (bytes[out]) NCCL(n, ncclSend(from[out], bytes[out], NCCL_BYTES, g->world[out], n->comm, n->stream));
        if (get[in].bytes)
            NCCL(n, ncclRecv((char *)to + get[in].at, get[in].bytes, NCCL_BYTES, g->world[in], n->comm, n->stream));
    }
    NCCL(n, ncclGroupEnd());
    char *own = (char *)to + get[c->rank].at;
    if (bytes[c->rank] && own != from[c->rank])
        CUDA(n, cuMemcpyDtoDAsync_v2(device_at(own), device_at(from[c->rank]), bytes[c->rank], n->stream));
    CUDA(n, cuEventRecord(call->done, n->stream));
    return call;
}
enum { MOST = 1024 };
static void *n_all_to_all(const Comm *c, void *to, const CommPart *get, const void *from, const CommPart *give) {
    const char *at[MOST];
    size_t bytes[MOST];
    CHECK(c->size <= MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) at[r] = (const char *)from + give[r].at, bytes[r] = give[r].bytes;
    return bundle(c, to, get, at, bytes);
}
static void *n_all_gather(const Comm *c, void *to, const CommPart *get, const void *mine, size_t n) {
    const char *at[MOST];
    size_t bytes[MOST];
    CHECK(c->size <= MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) at[r] = mine, bytes[r] = n;
    return bundle(c, to, get, at, bytes);
}

/* ---- messages, through pinned memory */
static void take_host(Call *c, size_t bytes) {
    if (bytes > c->room) {
        if (c->host) CUDA(c->n, cuMemFreeHost(c->host));
        c->room = arena_round(bytes);
        CUDA(c->n, cuMemHostAlloc((void **)&c->host, c->room, 0));
    }
    c->bytes = bytes;
}
static Call *message(const Comm *c, int peer, int tag, const void *device, size_t bytes) {
    Group *g = c->impl;
    Call *call = begin(g->n);
    take_host(call, bytes);
    call->by = &g->mpi, call->peer = peer, call->tag = tag, call->device = (char *)(uintptr_t)device;
    behind_queue(call, g->n->copies);
    return call;
}
static void *n_send(const Comm *c, int peer, int tag, const void *from, size_t bytes) {
    Call *call = message(c, peer, tag, from, bytes);
    Nccl *n = call->n;
    call->stage = TO_MPI;
    if (bytes) CUDA(n, cuMemcpyDtoHAsync_v2(call->host, device_at(from), bytes, n->copies));
    CUDA(n, cuEventRecord(call->done, n->copies));
    return call;
}
static void *n_recv(const Comm *c, int peer, int tag, void *to, size_t bytes) {
    Call *call = message(c, peer, tag, to, bytes);
    call->stage = TO_DEVICE;
    call->mpi = call->by->via->recv(call->by, peer, tag, call->host, bytes);
    CHECK(call->mpi, "comm/nccl: MPI refuses a receipt of %zu bytes", bytes);
    return call;
}

/* ---- the host's values are MPI's */
static void *by_mpi(const Comm *c, void *mpi) {
    Group *g = c->impl;
    Call *call = begin(g->n);
    call->stage = BY_MPI, call->by = &g->mpi, call->mpi = mpi;
    return mpi ? call : NULL;
}
static void *n_gather_host(const Comm *c, void *all, const void *mine, size_t bytes) {
    const Comm *mpi = &((Group *)c->impl)->mpi;
    return by_mpi(c, mpi->via->gather_host(mpi, all, mine, bytes));
}
static void *n_broadcast_host(const Comm *c, int from, void *data, size_t bytes) {
    const Comm *mpi = &((Group *)c->impl)->mpi;
    return by_mpi(c, mpi->via->broadcast_host(mpi, from, data, bytes));
}

static void *n_send_host(const Comm *c, int peer, int tag, const void *from, size_t bytes) {
    const Comm *mpi = &((Group *)c->impl)->mpi;
    return by_mpi(c, mpi->via->send_host(mpi, peer, tag, from, bytes));
}
static void *n_recv_host(const Comm *c, int peer, int tag, void *to, size_t bytes) {
    const Comm *mpi = &((Group *)c->impl)->mpi;
    return by_mpi(c, mpi->via->recv_host(mpi, peer, tag, to, bytes));
}

/* ---- how far it is */
static int device_test(Call *c) {
    int e = c->n->lib.cuEventQuery(c->done), failed = 0;
    if (e == 0) return 1;
    if (e != CU_NOT_READY) return -1;
    return c->n->lib.ncclCommGetAsyncError(c->n->comm, &failed) || failed ? -1 : 0;
}
/* TO_MPI: has it come from the device, it goes. */
static int hand_over(Call *c) {
    int done = device_test(c);
    if (done <= 0) return done;
    c->stage = BY_MPI;
    c->mpi = c->by->via->send(c->by, c->peer, c->tag, c->host, c->bytes);
    return c->mpi ? 1 : -1;
}
/* Also those that this rank does not wait for just now: another may be waiting for them. */
static int n_test(void *x) {
    Call *c = x;
    Nccl *n = c->n;
    for (int i = 0; i < CALLS; i++)
        if (n->call[i].stage == TO_MPI && hand_over(&n->call[i]) < 0) return -1;
    if (c->stage == TO_MPI) return 0;
    int done = c->stage == ON_DEVICE ? device_test(c) : c->by->via->test(c->mpi);
    if (done <= 0) return done;
    if (c->stage != TO_DEVICE) {
        c->stage = FREE;
        return 1;
    }
    c->stage = ON_DEVICE;
    if (c->bytes) CUDA(n, cuMemcpyHtoDAsync_v2(device_at(c->device), c->host, c->bytes, n->copies));
    CUDA(n, cuEventRecord(c->done, n->copies));
    return 0;
}
static const CommBackend backend = { "nccl",        n_all_to_all,     n_all_gather, n_send,      n_recv,
                                     n_gather_host, n_broadcast_host, n_send_host,  n_recv_host, n_test };

/* ---- open */
static bool find(Lib *lib, void *from, const char *name, size_t at, Err *err) {
    void *symbol = dlsym(from, name);
    if (!symbol) return err_set(err, "%s is not in the library: install a newer one", name);
    memcpy((char *)lib + at, &symbol, sizeof symbol);
    return true;
}
static bool load(Lib *lib, Err *err) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!cuda || !nccl)
        return err_set(err, "ranks on GPUs need %s, which cannot be loaded: install libnccl2, or use --device cpu",
                       cuda ? "libnccl.so.2" : "libcuda.so.1");
    for (size_t i = 0; i < COUNT(cuda_names); i++) TRY(find(lib, cuda, cuda_names[i].name, cuda_names[i].at, err));
    for (size_t i = 0; i < COUNT(nccl_names); i++) TRY(find(lib, nccl, nccl_names[i].name, nccl_names[i].at, err));
    return true;
}
/* NCCL refuses two ranks of one machine on one GPU.  As machines of their own they are allowed, over sockets. */
static void each_a_machine(int rank) {
    char host[32];
    snprintf(host, sizeof host, "hone-%d", rank);
    setenv("NCCL_HOSTID", host, 0);
    setenv("NCCL_NET", "Socket", 0);
    setenv("NCCL_P2P_DISABLE", "1", 0);
    setenv("NCCL_SHM_DISABLE", "1", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

static bool start(Nccl *n, const Comm *all, void *queue, bool shared, Err *err) {
    NcclId id = { { 0 } };
    int e = 0;
    if (shared) each_a_machine(all->rank);
    if (!comm_agree(all, load(&n->lib, err), err)) return false;
    n->queue = queue;
    n->lib.ncclGetVersion(&n->version);
    if (all->rank == 0) e = n->lib.ncclGetUniqueId(&id);
    comm_broadcast(all, 0, &id, sizeof id);
    watch_waits(all->watch, "NCCL's start");
    if (!e) e = n->lib.ncclCommInitRank(&n->comm, all->size, id, all->rank);
    watch_waits(all->watch, NULL);
    if (e) err_set(err, "NCCL %d does not start: %s", n->version, n->lib.ncclGetErrorString(e));
    if (!comm_agree(all, !e, err)) return false;
    CUDA(n, cuStreamCreate(&n->stream, CU_STREAM_APART));
    CUDA(n, cuStreamCreate(&n->copies, CU_STREAM_APART));
    return true;
}
Nccl *nccl_open(const Comm *all, void *queue, bool shared, Err *err) {
    Mem mem = { 0 };
    Nccl *n = MEM_NEW(&mem, Nccl);
    n->mem = mem;
    if (start(n, all, queue, shared, err)) return n;
    mem = n->mem;
    mem_free(&mem);
    return NULL;
}
void nccl_close(Nccl *n) {
    if (!n) return;
    NCCL(n, ncclCommDestroy(n->comm));
    for (int i = 0; i < CALLS; i++) {
        Call *c = &n->call[i];
        if (c->ready) CUDA(n, cuEventDestroy_v2(c->ready));
        if (c->done) CUDA(n, cuEventDestroy_v2(c->done));
        if (c->host) CUDA(n, cuMemFreeHost(c->host));
    }
    CUDA(n, cuStreamDestroy_v2(n->stream));
    CUDA(n, cuStreamDestroy_v2(n->copies));
    Mem mem = n->mem;
    mem_free(&mem);
}
int nccl_version(const Nccl *n) { return n->version; }

Comm nccl_group(Nccl *n, const Comm *mpi) {
    Comm c = *mpi;
    if (c.size == 1) return c;
    Group *g = MEM_NEW(&n->mem, Group);
    *g = (Group){ n, *mpi, MEM_ARRAY(&n->mem, int, (size_t)mpi->size) };
    comm_gather_host(mpi, g->world, &mpi->world, sizeof mpi->world);
    c.via = &backend, c.impl = g;
    return c;
}
