/* nccl_open.c - NCCL's communicators: of all ranks, of those of a machine, and of neighbours in a pipeline. */
#include "comm/nccl_int.h"
#include "comm/watch.h"

#include <stdio.h>
#include <stdlib.h>

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

/* NCCL gives every peer as many channels as the one with the fewest, and one of another machine has 2, fewer where
 * ranks are many: NET_CHANNELS fill a port.  Within a machine a communicator of its own has as many as it may. */
static NcclConfig configured(const char *name, int net, int most) {
    enum { NONE = NCCL_NOT_SAID };
    return (NcclConfig){ .size = sizeof(NcclConfig),
                         .magic = (unsigned)NCCL_MAGIC,
                         .version = NCCL_2_28,
                         .blocking = NONE,
                         .cgaClusterSize = NONE,
                         .minCTAs = NONE,
                         .maxCTAs = most ? most : NONE,
                         .splitShare = NONE,
                         .trafficClass = NONE,
                         .commName = name,
                         .collnetEnable = NONE,
                         .CTAPolicy = NONE,
                         .shrinkShare = NONE,
                         .nvlsCTAs = NONE,
                         .nChannelsPerNetPeer = net ? net : NONE,
                         .nvlinkCentricSched = NONE };
}
static void find_machines(Nccl *n, const Comm *all, int node) {
    n->rank = all->rank, n->size = all->size;
    n->node = MEM_ARRAY(&n->mem, int, (size_t)all->size);
    n->inside = MEM_ARRAY(&n->mem, int, (size_t)all->size);
    int *ranks = MEM_ARRAY(&n->mem, int, (size_t)all->size); /* of the machine whose first rank that is */
    comm_gather_host(all, n->node, &node, sizeof node);
    for (int r = 0; r < all->size; r++) {
        n->inside[r] = ranks[n->node[r]]++;
        n->nodes += !n->inside[r];
        if (ranks[n->node[r]] > n->largest) n->largest = ranks[n->node[r]];
    }
}

static bool start(Nccl *n, const Comm *all, int node, bool shared, Err *err) {
    NcclId id = { { 0 } };
    int e = 0;
    if (shared) each_a_machine(all->rank);
    if (!comm_agree(all, nccl_load(&n->lib, err), err)) return false;
    n->lib.ncclGetVersion(&n->version);
    find_machines(n, all, node);
    char channels[16];
    snprintf(channels, sizeof channels, "%d", NCCL_NET_CHANNELS);
    if (n->version < NCCL_2_28) setenv("NCCL_NCHANNELS_PER_NET_PEER", channels, 0); /* not in its configuration yet */
    NcclConfig config = configured("all", NCCL_NET_CHANNELS, 0);
    if (all->rank == 0) e = n->lib.ncclGetUniqueId(&id);
    comm_broadcast(all, 0, &id, sizeof id);
    watch_waits(all->watch, "NCCL's start");
    if (!e) e = n->lib.ncclCommInitRankConfig(&n->comm, all->size, id, all->rank, &config);
    watch_waits(all->watch, NULL);
    if (e) err_set(err, "NCCL %d does not start: %s", n->version, n->lib.ncclGetErrorString(e));
    if (!comm_agree(all, !e, err)) return false;
    CUDA(n, cuStreamCreate(&n->stream, CU_STREAM_APART));
    CUDA(n, cuStreamCreate(&n->copies, CU_STREAM_APART));
    return true;
}
Nccl *nccl_open(const Comm *all, Dev *d, int node, bool shared, Err *err) {
    Mem mem = { 0 };
    Nccl *n = MEM_NEW(&mem, Nccl);
    n->mem = mem;
    n->over = (Call){ .n = n, .stage = OVER };
    n->watch = all->watch;
    for (int i = CALLS - 1; i >= 0; i--) n->call[i].n = n, n->call[i].next = n->free, n->free = &n->call[i];
    n->dev = d, n->queue = d->ops->queue(d);
    if (start(n, all, node, shared, err)) {
        d->beside.look = nccl_look, d->beside.of = n;
        return n;
    }
    mem = n->mem;
    mem_free(&mem);
    return NULL;
}
/* Where a call is still under way, since the run failed, others may never come to it: those are broken off. */
static void comm_end(Nccl *n, void *comm) {
    if (!n->under_way) NCCL(n, ncclCommDestroy(comm));
    else NCCL(n, ncclCommAbort(comm));
}
void nccl_close(Nccl *n) {
    if (!n) return;
    nccl_settle(n);
    n->dev->beside.look = NULL;
    for (int i = 0; i < n->links; i++) {
        comm_end(n, n->link[i].comm);
        CUDA(n, cuStreamDestroy_v2(n->link[i].stream));
    }
    if (n->near) comm_end(n, n->near);
    comm_end(n, n->comm);
    for (int i = 0; i < CALLS; i++) {
        Call *c = &n->call[i];
        if (c->ready) CUDA(n, cuEventDestroy_v2(c->ready));
        if (c->done) CUDA(n, cuEventDestroy_v2(c->done));
        if (c->idle) CUDA(n, cuEventDestroy_v2(c->idle));
    }
    for (int i = 0; i < n->n_pinned; i++) CUDA(n, cuMemFreeHost(n->pinned[i].at));
    CUDA(n, cuStreamDestroy_v2(n->stream));
    CUDA(n, cuStreamDestroy_v2(n->copies));
    Mem mem = n->mem;
    mem_free(&mem);
}

void nccl_near(Nccl *n, const Comm *all) {
    if (n->near || n->nodes == 1 || n->largest == 1) return; /* the same on all ranks */
    NcclConfig config = configured("node", 0, NCCL_NODE_CHANNELS);
    watch_waits(all->watch, "NCCL's communicators of machines");
    NCCL(n, ncclCommSplit(n->comm, n->node[n->rank], n->rank, &n->near, &config));
    watch_waits(all->watch, NULL);
}

int nccl_machine(const Nccl *n) { return n->node[n->rank]; }

Comm nccl_group(Nccl *n, const Comm *mpi) {
    Comm c = *mpi;
    if (c.size == 1) return c;
    Group *g = MEM_NEW(&n->mem, Group);
    *g = (Group){ .n = n, .mpi = *mpi, .comm = n->near };
    g->world = g->at = MEM_ARRAY(&n->mem, int, (size_t)mpi->size);
    comm_gather_host(mpi, g->world, &mpi->world, sizeof mpi->world);
    for (int r = 0; r < mpi->size; r++)
        if (n->node[g->world[r]] != n->node[n->rank]) g->comm = NULL;
    if (g->comm) g->at = MEM_ARRAY(&n->mem, int, (size_t)mpi->size);
    for (int r = 0; r < mpi->size && g->comm; r++) g->at[r] = n->inside[g->world[r]];
    if (!g->comm) g->comm = n->comm;
    c.via = &nccl_backend, c.impl = g;
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
        NcclConfig config = configured("link", NCCL_NET_CHANNELS, NCCL_LINK_CHANNELS);
        NCCL(n, ncclCommSplit(n->comm, edge < 0 ? NCCL_NO_COLOR : low, rank != l.from, &l.comm, &config));
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
