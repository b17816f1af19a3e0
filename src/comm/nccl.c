/* nccl.c - groups of ranks whose tensors NCCL moves, on streams beside the device's queue;
 * calls under way, and their errors.  What moves is waited for by the device: its queue goes on when the bytes are
 * there, and the host has asked for what comes next long before.  What the queue stands behind is remembered, and
 * looked after by whoever waits on the host next: for the queue (Dev.beside), for a call, or for room in that list. */
#include "comm/nccl_int.h"
#include "base/clock.h"
#include "base/last_words.h"
#include "comm/watch.h"
#include "op/profile.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* NCCL fails because a peer is gone, and may know it before the watch does, which will say who it was and end this
 * rank: it is waited for, a while. */
NORETURN void nccl_failed(const NcclLib *lib, const char *what, int e, void *comm) {
    nanosleep(&(struct timespec){ 3, 0 }, NULL);
    die_outside("NCCL: %s: %s (%s)", what, lib->ncclGetErrorString(e), lib->ncclGetLastError(comm));
}

static Call *begin(Nccl *n) {
    Call *c = n->free;
    if (!c) die("comm/nccl: more than %d calls are under way", CALLS);
    n->free = c->next, n->under_way++;
    c->device = NULL, c->next = NULL;
    if (!c->ready) CUDA(n, cuEventCreate(&c->ready, CU_EVENT_NO_TIMING));
    if (!c->done) CUDA(n, cuEventCreate(&c->done, CU_EVENT_TIMED));
    c->awaited = false;
    return c;
}
static void over(Call *c) {
    Nccl *n = c->n;
    if (c->host) c->host->used = false;
    c->stage = FREE, c->host = NULL;
    c->next = n->free, n->free = c, n->under_way--;
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
    over(c);
    return true;
}
static void *bundle(const Comm *c, const char *name, void *to, const CommPart *get, const char *const *from,
                    const size_t *bytes) {
    const Group *g = c->impl;
    Nccl *n = g->n;
    Call *call = begin(n);
    size_t sum = 0;
    call->stage = ON_DEVICE, call->comm = g->comm;
    behind_queue(call, n->stream);
    for (int r = 0; r < c->size; r++) sum += get[r].bytes;
    Note *x = note(n, name, sum, n->stream);
    NCCL(n, ncclGroupStart());
    for (int k = 1; k < c->size; k++) {
        int in = (c->rank - k + c->size) % c->size, out = (c->rank + k) % c->size;
        if (bytes[out]) NCCL(n, ncclSend(from[out], bytes[out], NCCL_BYTES, g->at[out], g->comm, n->stream));
        if (get[in].bytes)
            NCCL(n, ncclRecv((char *)to + get[in].at, get[in].bytes, NCCL_BYTES, g->at[in], g->comm, n->stream));
    }
    NCCL(n, ncclGroupEnd());
    char *own = (char *)to + get[c->rank].at;
    if (bytes[c->rank] && own != from[c->rank])
        CUDA(n, cuMemcpyDtoDAsync_v2(device_at(own), device_at(from[c->rank]), bytes[c->rank], n->stream));
    noted(n, x, n->stream);
    CUDA(n, cuEventRecord(call->done, n->stream));
    return recorded(call) ? &n->over : call;
}
static void *n_all_to_all(const Comm *c, void *to, const CommPart *get, const void *from, const CommPart *give) {
    const char *at[COMM_MOST];
    size_t bytes[COMM_MOST];
    CHECK(c->size <= COMM_MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) at[r] = (const char *)from + give[r].at, bytes[r] = give[r].bytes;
    return bundle(c, "exchange", to, get, at, bytes);
}
static void *n_all_gather(const Comm *c, void *to, const CommPart *get, const void *mine, size_t n) {
    const char *at[COMM_MOST];
    size_t bytes[COMM_MOST];
    CHECK(c->size <= COMM_MOST, "a group of %d ranks", c->size);
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
/* Taking pinned memory may wait for the device, and giving it back does: it is kept, and what a run needs is there from
 * the start (comm_read_room). */
Pinned *nccl_pinned(Nccl *n, size_t bytes) {
    enum { LEAST = 1 << 16 };
    int i = 0;
    while (i < n->n_pinned && (n->pinned[i].used || n->pinned[i].room < bytes)) i++;
    Pinned *p = &n->pinned[i];
    if (i == n->n_pinned) {
        CHECK(n->n_pinned < CALLS, "more than %d messages go by the host", CALLS);
        for (p->room = LEAST; p->room < bytes;) p->room *= 2;
        CUDA(n, cuMemHostAlloc((void **)&p->at, p->room, 0));
        n->n_pinned++;
    }
    p->used = true;
    return p;
}
static void take_host(Call *c, size_t bytes) { c->host = nccl_pinned(c->n, bytes), c->bytes = bytes; }
static Call *message(const Comm *c, int peer, int tag, const void *device, size_t bytes) {
    Group *g = c->impl;
    Call *call = begin(g->n);
    take_host(call, bytes);
    call->by = &g->mpi, call->peer = peer, call->tag = tag, call->device = (char *)(uintptr_t)device, call->comm = NULL;
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
    if (n->to_mpi) n->to_mpi_last->next = call;
    else n->to_mpi = call;
    n->to_mpi_last = call;
    if (bytes) CUDA(n, cuMemcpyDtoHAsync_v2(call->host->at, device_at(from), bytes, n->copies));
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
    call->mpi = call->by->via->recv(call->by, peer, tag, call->host->at, bytes);
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
    const char *at[COMM_MOST];
    size_t each[COMM_MOST];
    CommPart get[COMM_MOST];
    CHECK(c->size <= COMM_MOST, "a group of %d ranks", c->size);
    for (int r = 0; r < c->size; r++) at[r] = mine, each[r] = bytes, get[r] = (CommPart){ (size_t)r * bytes, bytes };
    Call *call = bundle(c, "counts", received, get, at, each);
    Nccl *n = call->n;
    CHECK(call->stage == ON_DEVICE, "values are read while calls are noted%s", "");
    take_host(call, bytes * (size_t)c->size);
    CUDA(n, cuMemcpyDtoHAsync_v2(call->host->at, device_at(received), call->bytes, n->stream));
    CUDA(n, cuEventRecord(call->done, n->stream));
    call->stage = TO_HOST, call->all = all;
    return call;
}
/* Two may be under way. */
static void n_read_room(const Comm *c, size_t bytes) {
    Nccl *n = ((Group *)c->impl)->n;
    Pinned *p[2] = { nccl_pinned(n, bytes * (size_t)c->size), nccl_pinned(n, bytes * (size_t)c->size) };
    p[0]->used = p[1]->used = false;
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
    nccl_failed(lib, "a call under way", e ? e : late, c->comm);
}
/* TO_MPI: has it come from the device, it goes. */
static int hand_over(Call *c) {
    int done = device_test(c);
    if (done <= 0) return done;
    c->stage = BY_MPI;
    c->mpi = c->by->via->send(c->by, c->peer, c->tag, c->host->at, c->bytes);
    return c->mpi ? 1 : -1;
}
/* Also those that this rank does not wait for just now: another may be waiting for them. */
static int hand_over_all(Nccl *n) {
    while (n->to_mpi) {
        int done = hand_over(n->to_mpi);
        if (done <= 0) return done;
        n->to_mpi = n->to_mpi->next;
    }
    return 0;
}

/* ---- what the device stands still for others: from where its queue was when the waiting began, to the call's end.  In
 * a replayed step nobody sees it. */
static bool n_awaits(void *x) {
    Call *c = x;
    if (c->stage != ON_DEVICE && c->stage != TO_HOST) return false;
    if (c->awaited) return true;
    if (!c->idle) CUDA(c->n, cuEventCreate(&c->idle, CU_EVENT_TIMED));
    CUDA(c->n, cuEventRecord(c->idle, c->n->queue));
    return c->awaited = true;
}
static void add_stood(const Call *c) {
    float ms;
    if (!c->awaited || c->n->lib.cuEventQuery(c->idle)) return; /* it still computes: it has not stood still */
    CUDA(c->n, cuEventElapsedTime(&ms, c->idle, c->done));
    if (ms > 0) watch_add_waited(c->n->watch, 1e-3 * (double)ms);
}

/* ---- what the device waits for */
/* Takes off the list what is over.  Was anything? */
static bool passed(Nccl *n) {
    bool any = false;
    for (; n->n_behind; n->n_behind--, any = true) {
        Behind *b = &n->behind[n->first_behind];
        if (!device_test(b->w.call)) break;
        add_stood(b->w.call);
        over(b->w.call);
        n->first_behind = (n->first_behind + 1) % BEHIND;
    }
    return any;
}
bool nccl_look(void *x) {
    Nccl *n = x;
    Comm c = n->behind[n->first_behind].c; /* that which the pause was told of */
    if (hand_over_all(n) < 0) die("comm/nccl: MPI refuses a sending%s", "");
    if (passed(n)) comm_went_on(&c, &n->pause);
    if (!n->n_behind) return false;
    Behind *b = &n->behind[n->first_behind];
    CommAbout now = comm_about_now(&b->c);
    comm_about(&b->c, b->about.tensor, b->about.index);
    b->w.c = &b->c;
    comm_pause(&b->w, &n->pause);
    comm_about(&b->c, now.tensor, now.index);
    return true;
}
/* More than so many ahead of the device the host does not go: the driver would make it wait, and not say so. */
static bool n_follow(const CommCall *w) {
    Call *c = w->call;
    Nccl *n = c->n;
    if (c->stage == OVER) return true;
    if (c->stage != ON_DEVICE) return false;
    while (n->n_behind == BEHIND) nccl_look(n);
    n_awaits(c);
    CUDA(n, cuStreamWaitEvent(n->queue, c->done, 0));
    n->behind[(n->first_behind + n->n_behind++) % BEHIND] =
        (Behind){ .c = *w->c, .w = *w, .about = comm_about_now(w->c) };
    return true;
}
/* At the end, when the run may have failed: a while. */
void nccl_settle(Nccl *n) {
    enum { A_WHILE_MS = 3000 };
    for (int ms = 0; n->n_behind && ms < A_WHILE_MS && (passed(n), n->n_behind); ms++)
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

static int n_test(void *x) {
    Call *c = x;
    Nccl *n = c->n;
    if (c->stage == OVER) return 1;
    if (hand_over_all(n) < 0) return -1;
    passed(n);
    if (c->stage == TO_MPI) return 0;
    int done = c->stage == ON_DEVICE || c->stage == TO_HOST ? device_test(c) : c->by->via->test(c->mpi);
    if (done <= 0) return done;
    add_stood(c);
    if (c->stage == TO_HOST) memcpy(c->all, c->host->at, c->bytes);
    if (c->stage != TO_DEVICE) {
        over(c);
        return 1;
    }
    c->stage = ON_DEVICE;
    if (c->bytes) CUDA(n, cuMemcpyHtoDAsync_v2(device_at(c->device), c->host->at, c->bytes, n->copies));
    CUDA(n, cuEventRecord(c->done, n->copies));
    return 0;
}
const CommBackend nccl_backend = { "nccl",        n_all_to_all,     n_all_gather, n_send,      n_recv,
                                   n_gather_host, n_broadcast_host, n_send_host,  n_recv_host, n_read,
                                   n_test,        n_together,       n_follow,     n_read_room, n_awaits };
