/* nccl.c - groups of ranks whose tensors NCCL moves, on streams beside the device's queue;
 * calls under way, and their errors. */
#include "comm/nccl.h"
#include "base/clock.h"
#include "base/last_words.h"
#include "comm/nccl_lib.h"
#include "comm/watch.h"
#include "op/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- calls under way */
typedef enum {
    FREE,
    ON_DEVICE,
    BY_MPI,
    TO_DEVICE,
    TO_MPI,
    TO_HOST,
    OVER
} Stage; /* where it is now; TO_...: and where it goes then */
typedef struct {
    Nccl *n;
    Stage stage;
    void *ready, *done; /* events: the queue had come so far; the call is over */
    void *comm;         /* ON_DEVICE: NCCL's, or NULL */
    void *mpi;          /* MPI's call */
    const Comm *by;     /* its group */
    int peer, tag;
    char *host, *device; /* host: pinned, kept for the next call */
    void *all;           /* TO_HOST: whose memory it is for */
    size_t bytes, room;
    long long number; /* TO_MPI: they go in the order in which they were begun */
} Call;
/* From one stage of a pipeline to the next, or back: a communicator and a stream of its own, so that what waits there
 * for its receipt holds up nothing else.  from, to: numbers among all. */
typedef struct {
    int from, to, lane;
    void *comm, *stream;
} Link;
typedef struct {
    const char *name;
    void *from, *to; /* events with times */
    size_t bytes;
} Note;
enum { CALLS = 1024, LINKS = 64, SHAPES = 16, NOTES = 1 << 13 };
struct Nccl {
    NcclLib lib;
    void *queue, *stream, *copies; /* the device's; bundles'; messages' through the host */
    void *comm;
    int version;
    Call call[CALLS], over;
    Link link[LINKS];
    int links;
    struct {
        int stages, each;
        bool ring;
    } linked[SHAPES];
    int shapes;
    Call *together[COMM_TOGETHER]; /* messages of the bundle that is being made */
    int n_together;
    bool is_together;
    long long begun; /* messages so far */
    Note *note;      /* [NOTES] for a profile, or NULL */
    int notes;
    void *zero; /* an event, and when that was */
    double zero_at;
    Mem mem;
};
typedef struct {
    Nccl *n;
    Comm mpi;
    int *world;  /* [size]: everybody's number among all */
    bool staged; /* a pipeline's: neighbours have links */
} Group;

#define CUDA(n, what)                                                                                                  \
    do {                                                                                                               \
        int e_ = (n)->lib.what;                                                                                        \
        CHECK(e_ == 0, "comm/nccl: %s: CUDA's error %d", #what, e_);                                                   \
    } while (0)
#define NCCL(n, what)                                                                                                  \
    do {                                                                                                               \
        int e_ = (n)->lib.what;                                                                                        \
        if (e_) failed(&(n)->lib, #what, e_, NULL);                                                                    \
    } while (0)

/* NCCL fails because a peer is gone, and may know it before the watch does, which will say who it was and end this
 * rank: it is waited for, a while. */
NORETURN static void failed(const NcclLib *lib, const char *what, int e, void *comm) {
    nanosleep(&(struct timespec){ 3, 0 }, NULL);
    die_outside("NCCL: %s: %s (%s)", what, lib->ncclGetErrorString(e), lib->ncclGetLastError(comm));
}

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
static CuAt device_at(const void *p) { return (CuAt)(uintptr_t)p; }

/* ---- a profile's notes: between two events with times */
static Note *note(Nccl *n, const char *name, size_t bytes, void *stream) {
    if (!n->note || n->notes == NOTES) return NULL;
    Note *x = &n->note[n->notes++];
    *x = (Note){ .name = name, .bytes = bytes };
    CUDA(n, cuEventCreate(&x->from, CU_EVENT_TIMED));
    CUDA(n, cuEventCreate(&x->to, CU_EVENT_TIMED));
    CUDA(n, cuEventRecord(x->from, stream));
    return x;
}
static void noted(Nccl *n, Note *x, void *stream) {
    if (x) CUDA(n, cuEventRecord(x->to, stream));
}
void nccl_note(Nccl *n) {
    n->note = MEM_ARRAY(&n->mem, Note, NOTES);
    CUDA(n, cuEventCreate(&n->zero, CU_EVENT_TIMED));
    CUDA(n, cuEventRecord(n->zero, n->stream));
    CUDA(n, cuEventSynchronize(n->zero));
    n->zero_at = clock_now();
}
void nccl_notes(Nccl *n, Dev *d) {
    for (int i = 0; i < n->notes; i++) {
        Note *x = &n->note[i];
        float from, to;
        CUDA(n, cuEventSynchronize(x->to));
        CUDA(n, cuEventElapsedTime(&from, n->zero, x->from));
        CUDA(n, cuEventElapsedTime(&to, n->zero, x->to));
        profile_beside(d, x->name, (int64_t)x->bytes, n->zero_at + 1e-3 * (double)from, n->zero_at + 1e-3 * (double)to);
        CUDA(n, cuEventDestroy_v2(x->from));
        CUDA(n, cuEventDestroy_v2(x->to));
    }
    n->notes = 0;
}

/* ---- bundles */
/* The device notes its calls to run them again (Ops.record): then this one is among them,
 * behind what was asked before it and before what comes, and nobody waits. */
static bool recorded(Call *c) {
    Nccl *n = c->n;
    int status = 0;
    CUDA(n, cuStreamIsCapturing(n->queue, &status));
    if (!status) return false;
    CUDA(n, cuStreamWaitEvent(n->queue, c->done, 0));
    c->stage = FREE;
    return true;
}
static void *bundle(const Comm *c, const char *name, void *to, const CommPart *get, const char *const *from,
                    const size_t *bytes) {
    const Group *g = c->impl;
    Nccl *n = g->n;
    Call *call = begin(n);
    size_t sum = 0;
    call->stage = ON_DEVICE, call->comm = n->comm;
    behind_queue(call, n->stream);
    for (int r = 0; r < c->size; r++) sum += get[r].bytes;
    Note *x = note(n, name, sum, n->stream);
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
    noted(n, x, n->stream);
    CUDA(n, cuEventRecord(call->done, n->stream));
    return recorded(call) ? &n->over : call;
}
enum { MOST = 1024 };
static void *n_all_to_all(const Comm *c, void *to, const CommPart *get, const void *from, const CommPart *give) {
    const char *at[MOST];
    size_t bytes[MOST];
    CHECK(c->size <= MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) at[r] = (const char *)from + give[r].at, bytes[r] = give[r].bytes;
    return bundle(c, "exchange", to, get, at, bytes);
}
static void *n_all_gather(const Comm *c, void *to, const CommPart *get, const void *mine, size_t n) {
    const char *at[MOST];
    size_t bytes[MOST];
    CHECK(c->size <= MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) at[r] = mine, bytes[r] = n;
    return bundle(c, "gather", to, get, at, bytes);
}

/* ---- messages of a pipeline: a link's, in the order of the calls */
static void *by_link(Nccl *n, const Link *l, void *at, size_t bytes, bool send) {
    Call *call = begin(n);
    call->stage = ON_DEVICE, call->comm = l->comm;
    behind_queue(call, l->stream);
    Note *x = note(n, send ? "send" : "receive", bytes, l->stream);
    if (bytes && send) NCCL(n, ncclSend(at, bytes, NCCL_BYTES, 1, l->comm, l->stream));
    if (bytes && !send) NCCL(n, ncclRecv(at, bytes, NCCL_BYTES, 0, l->comm, l->stream));
    noted(n, x, l->stream);
    CUDA(n, cuEventRecord(call->done, l->stream));
    return call;
}
static const Link *link_of(const Group *g, int peer, int tag, bool send) {
    int me = g->mpi.world, other = g->world[peer];
    for (int i = 0; g->staged && i < g->n->links; i++) {
        const Link *l = &g->n->link[i];
        if (l->lane == tag % 2 && l->from == (send ? me : other) && l->to == (send ? other : me)) return l;
    }
    return NULL;
}

/* ---- messages in an order that all have: bundles of them, one behind the other */
static void n_together(const Comm *c, bool begins) {
    Nccl *n = ((Group *)c->impl)->n;
    n->is_together = begins;
    if (begins) {
        n->n_together = 0;
        NCCL(n, ncclGroupStart());
        return;
    }
    size_t bytes = 0;
    for (int i = 0; i < n->n_together; i++) {
        behind_queue(n->together[i], n->stream);
        bytes += n->together[i]->bytes;
    }
    Note *x = note(n, "move", bytes, n->stream);
    NCCL(n, ncclGroupEnd());
    noted(n, x, n->stream);
    for (int i = 0; i < n->n_together; i++) CUDA(n, cuEventRecord(n->together[i]->done, n->stream));
}
static void *by_bundle(const Group *g, int peer, void *at, size_t bytes, bool send) {
    Nccl *n = g->n;
    Call *call = begin(n);
    CHECK(n->n_together < COMM_TOGETHER, "more than %d messages together", COMM_TOGETHER);
    call->stage = ON_DEVICE, call->comm = n->comm, call->bytes = bytes;
    n->together[n->n_together++] = call;
    if (send) NCCL(n, ncclSend(at, bytes, NCCL_BYTES, g->world[peer], n->comm, n->stream));
    else NCCL(n, ncclRecv(at, bytes, NCCL_BYTES, g->world[peer], n->comm, n->stream));
    return call;
}

/* ---- other messages, through pinned memory and MPI */
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
    call->by = &g->mpi, call->peer = peer, call->tag = tag, call->device = (char *)(uintptr_t)device, call->comm = NULL;
    call->number = g->n->begun++;
    behind_queue(call, g->n->copies);
    return call;
}
static void *n_send(const Comm *c, int peer, int tag, const void *from, size_t bytes) {
    const Group *g = c->impl;
    const Link *l = link_of(g, peer, tag, true);
    void *at = (void *)(uintptr_t)from;
    if (l) return by_link(g->n, l, at, bytes, true);
    if (g->n->is_together) return by_bundle(g, peer, at, bytes, true);
    Call *call = message(c, peer, tag, from, bytes);
    Nccl *n = call->n;
    call->stage = TO_MPI;
    if (bytes) CUDA(n, cuMemcpyDtoHAsync_v2(call->host, device_at(from), bytes, n->copies));
    CUDA(n, cuEventRecord(call->done, n->copies));
    return call;
}
static void *n_recv(const Comm *c, int peer, int tag, void *to, size_t bytes) {
    const Group *g = c->impl;
    const Link *l = link_of(g, peer, tag, false);
    if (l) return by_link(g->n, l, to, bytes, false);
    if (g->n->is_together) return by_bundle(g, peer, to, bytes, false);
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
static void *n_gather_host(const Comm *c, void *all, const CommPart *get, const void *mine, size_t bytes) {
    const Comm *mpi = &((Group *)c->impl)->mpi;
    return by_mpi(c, mpi->via->gather_host(mpi, all, get, mine, bytes));
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

/* What the device has made goes round by NCCL and comes over: nothing that the device does then is waited for. */
static void *n_read(const Comm *c, void *all, void *received, const void *mine, size_t bytes) {
    const char *at[MOST];
    size_t each[MOST];
    CommPart get[MOST];
    CHECK(c->size <= MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) at[r] = mine, each[r] = bytes, get[r] = (CommPart){ (size_t)r * bytes, bytes };
    Call *call = bundle(c, "counts", received, get, at, each);
    Nccl *n = call->n;
    CHECK(call->stage == ON_DEVICE, "values are read while calls are noted%s", "");
    take_host(call, bytes * (size_t)c->size);
    CUDA(n, cuMemcpyDtoHAsync_v2(call->host, device_at(received), call->bytes, n->stream));
    CUDA(n, cuEventRecord(call->done, n->stream));
    call->stage = TO_HOST, call->all = all;
    return call;
}

/* ---- how far it is */
static int device_test(Call *c) {
    const NcclLib *lib = &c->n->lib;
    int e = lib->cuEventQuery(c->done), late = 0;
    if (e == 0) return 1;
    if (e != CU_NOT_READY) die("comm/nccl: a call failed on the GPU: CUDA's error %d", e);
    if (!c->comm) return 0;
    e = lib->ncclCommGetAsyncError(c->comm, &late);
    if (!e && !late) return 0;
    failed(lib, "a call under way", e ? e : late, c->comm);
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
static int hand_over_all(Nccl *n) {
    for (;;) {
        Call *first = NULL;
        for (int i = 0; i < CALLS; i++)
            if (n->call[i].stage == TO_MPI && (!first || n->call[i].number < first->number)) first = &n->call[i];
        int done = first ? hand_over(first) : 0;
        if (done <= 0) return done;
    }
}
static int n_test(void *x) {
    Call *c = x;
    Nccl *n = c->n;
    if (c->stage == OVER) return 1;
    if (hand_over_all(n) < 0) return -1;
    if (c->stage == TO_MPI) return 0;
    int done = c->stage == ON_DEVICE || c->stage == TO_HOST ? device_test(c) : c->by->via->test(c->mpi);
    if (done <= 0) return done;
    if (c->stage == TO_HOST) memcpy(c->all, c->host, c->bytes);
    if (c->stage != TO_DEVICE) {
        c->stage = FREE;
        return 1;
    }
    c->stage = ON_DEVICE;
    if (c->bytes) CUDA(n, cuMemcpyHtoDAsync_v2(device_at(c->device), c->host, c->bytes, n->copies));
    CUDA(n, cuEventRecord(c->done, n->copies));
    return 0;
}
static const CommBackend backend = { "nccl",           n_all_to_all, n_all_gather, n_send, n_recv, n_gather_host,
                                     n_broadcast_host, n_send_host,  n_recv_host,  n_read, n_test, n_together };

/* ---- open */
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
    if (!comm_agree(all, nccl_load(&n->lib, err), err)) return false;
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
    n->over = (Call){ .n = n, .stage = OVER };
    if (start(n, all, queue, shared, err)) return n;
    mem = n->mem;
    mem_free(&mem);
    return NULL;
}
/* Where a call is still under way, since the run failed, others may never come to it: those are broken off. */
static void comm_end(Nccl *n, void *comm) {
    bool idle = true;
    for (int i = 0; i < CALLS; i++) idle = idle && n->call[i].stage == FREE;
    if (idle) NCCL(n, ncclCommDestroy(comm));
    else NCCL(n, ncclCommAbort(comm));
}
void nccl_close(Nccl *n) {
    if (!n) return;
    for (int i = 0; i < n->links; i++) {
        comm_end(n, n->link[i].comm);
        CUDA(n, cuStreamDestroy_v2(n->link[i].stream));
    }
    comm_end(n, n->comm);
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

Comm nccl_group(Nccl *n, const Comm *mpi) {
    Comm c = *mpi;
    if (c.size == 1) return c;
    Group *g = MEM_NEW(&n->mem, Group);
    *g = (Group){ n, *mpi, MEM_ARRAY(&n->mem, int, (size_t)mpi->size), false };
    comm_gather_host(mpi, g->world, &mpi->world, sizeof mpi->world);
    c.via = &backend, c.impl = g;
    return c;
}

/* Edges of one class have no stage in common, so one split makes them all: 0 and 1 those from an even and an odd stage
 * to the next, 2 from the last to the first.  Each goes both ways, by a link of its own. */
static void add_links(Nccl *n, int rank, int stages, int each, int class) {
    int at = rank / each, edge = -1;
    if (class == 2) edge = at == 0 || at == stages - 1 ? stages - 1 : -1;
    else if (at % 2 == class && at + 1 < stages) edge = at;
    else if (at % 2 != class && at > 0) edge = at - 1;
    int low = edge < 0 ? -1 : edge * each + rank % each,
        high = edge < 0 ? -1 : (edge + 1) % stages * each + rank % each;
    for (int lane = 0; lane < 2; lane++) {
        Link l = { lane ? high : low, lane ? low : high, lane, NULL, NULL };
        NCCL(n, ncclCommSplit(n->comm, edge < 0 ? NCCL_NO_COLOR : low, rank != l.from, &l.comm, NULL));
        if (edge < 0) continue;
        CHECK(n->links < LINKS, "more than %d links of pipelines", LINKS);
        CUDA(n, cuStreamCreate(&l.stream, CU_STREAM_APART));
        n->link[n->links++] = l;
    }
}
void nccl_stages(Nccl *n, Comm *pp, int rank, int stages, int each, bool ring) {
    if (stages == 1) return;
    ((Group *)pp->impl)->staged = true;
    for (int i = 0; i < n->shapes; i++)
        if (n->linked[i].stages == stages && n->linked[i].each == each && n->linked[i].ring >= ring) return;
    CHECK(n->shapes < SHAPES, "more than %d pipelines", SHAPES);
    n->linked[n->shapes].stages = stages, n->linked[n->shapes].each = each, n->linked[n->shapes++].ring = ring;
    watch_waits(pp->watch, "NCCL's links between stages");
    for (int class = 0; class < 3; class ++)
        if (class == 2 ? ring : class < stages - 1) add_links(n, rank, stages, each, class);
    watch_waits(pp->watch, NULL);
}
