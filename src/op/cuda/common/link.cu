/* link.cu - AdamW for states that lie in the host's memory: gradients and weights come over in chunks, the host's cores
 * step one while the next ones are on their way and the last one's weights go back.
 *
 * Three queues: what computes, what comes, what goes.  A chunk lies in one of SLOTS places of pinned memory, which are
 * taken once; a place is free when its weights have gone.  The host's arithmetic is op/cpu's, which has the device's
 * bits (op/adam.h), so the share that is left to the host changes none. */
#include "op/cuda/common/cuda.h"

enum { SLOTS = 4, CHUNK = 4 << 20 };            /* 0.3 ms of the link each: far more than a wait costs */
typedef struct {
    char       *at;                             /* gradients, then weights: CHUNK float32 each */
    cudaEvent_t come, gone;
} Slot;
struct Link {
    cudaStream_t down, up;
    cudaEvent_t  asked;                         /* what was asked of the device before */
    Slot         slot[SLOTS];
    int          next;
};

void cuda_link(Dev *d) {
    Link *l = cu(d)->link = MEM_NEW(&d->mem, Link);
    CU(cudaSetDevice(cu(d)->gpu));
    CU(cudaStreamCreateWithFlags(&l->down, cudaStreamNonBlocking));
    CU(cudaStreamCreateWithFlags(&l->up, cudaStreamNonBlocking));
    CU(cudaEventCreateWithFlags(&l->asked, cudaEventDisableTiming));
    for (int i = 0; i < SLOTS; i++) {
        CU(cudaMallocHost((void **)&l->slot[i].at, (size_t)CHUNK * 8));
        CU(cudaEventCreateWithFlags(&l->slot[i].come, cudaEventDisableTiming));
        CU(cudaEventCreateWithFlags(&l->slot[i].gone, cudaEventDisableTiming));
    }
}
void link_close(Dev *d) {
    Link *l = cu(d)->link;
    if (!l) return;
    CU(cudaStreamSynchronize(l->up));
    for (int i = 0; i < SLOTS; i++) {
        cudaFreeHost(l->slot[i].at);
        cudaEventDestroy(l->slot[i].come);
        cudaEventDestroy(l->slot[i].gone);
    }
    cudaEventDestroy(l->asked);
    cudaStreamDestroy(l->down);
    cudaStreamDestroy(l->up);
    cu(d)->link = NULL;
}

/* Elements from.. of x, which has no gaps: here, or where they wait in a slot. */
static Tensor piece(Tensor x, int64_t from, int64_t n, void *at) {
    x.data = at ? at : (char *)x.data + (size_t)from * dtype_size(x.dtype);
    x.rows = 1, x.cols = x.ld = n;
    return x;
}
/* reads: what is stepped is w itself, or part of it */
typedef struct { Tensor w, master, m, v, g; Adam a; int64_t n; bool reads; } Work;
static int64_t count(const Work *k, int64_t from) { return k->n - from < CHUNK ? k->n - from : CHUNK; }

static void come(Link *l, const Work *k, int64_t from, Slot *s) {
    int64_t n = count(k, from);
    Tensor g = piece(k->g, from, n, NULL), w = piece(k->w, from, n, NULL);
    CU(cudaStreamWaitEvent(l->down, s->gone, 0));
    CU(cudaMemcpyAsync(s->at, g.data, (size_t)n * 4, cudaMemcpyDeviceToHost, l->down));
    if (k->reads)
        CU(cudaMemcpyAsync(s->at + (size_t)CHUNK * 4, w.data, (size_t)n * dtype_size(w.dtype), cudaMemcpyDeviceToHost,
                           l->down));
    CU(cudaEventRecord(s->come, l->down));
}
static void step(Dev *d, Link *l, const Work *k, int64_t from, Slot *s) {
    int64_t n = count(k, from);
    Tensor w = piece(k->w, from, n, s->at + (size_t)CHUNK * 4), master = k->master;
    if (master.data) master = piece(master, from, n, NULL);
    Adam a = k->a;
    a.first += from;
    cuda_event_wait(d, s->come);
    d->host->ops->adamw(d->host, w, master, piece(k->m, from, n, NULL), piece(k->v, from, n, NULL),
                        piece(k->g, from, n, s->at), a);
    CU(cudaMemcpyAsync(piece(k->w, from, n, NULL).data, w.data, (size_t)n * dtype_size(w.dtype), cudaMemcpyHostToDevice,
                       l->up));
    CU(cudaEventRecord(s->gone, l->up));
}
void link_adamw(Dev *d, Tensor w, Tensor master, Tensor m, Tensor v, Tensor g, Adam a) {
    Link *l = cu(d)->link;
    Work k = { w, master, m, v, g, a, w.rows * w.cols, !master.data || master.dtype != DT_F32 };
    CHECK(on_host(d, v.data) && (!master.data || on_host(d, master.data)), "adamw: states partly on the device%s", "");
    CU(cudaSetDevice(cu(d)->gpu));
    CU(cudaEventRecord(l->asked, stream_of(d)));
    CU(cudaStreamWaitEvent(l->down, l->asked, 0));
    int64_t asked = 0;
    Slot *last = NULL;
    for (int64_t from = 0; from < k.n; from += CHUNK) {
        for (; asked < k.n && asked < from + (int64_t)(SLOTS - 1) * CHUNK; asked += CHUNK)
            come(l, &k, asked, &l->slot[(l->next + asked / CHUNK) % SLOTS]);
        last = &l->slot[(l->next + from / CHUNK) % SLOTS];
        step(d, l, &k, from, last);
    }
    l->next = (int)((l->next + (k.n + CHUNK - 1) / CHUNK) % SLOTS);
    if (last) CU(cudaStreamWaitEvent(stream_of(d), last->gone, 0));
}

void link_copy(Dev *d, Tensor to, Tensor from);
/* One of both lies on the host, or both do: through a slot, whose weights have gone. */
void link_copy(Dev *d, Tensor to, Tensor from) {
    Link *l = cu(d)->link;
    const bool in = on_host(d, to.data), out = on_host(d, from.data);
    const int64_t n = to.rows * to.cols;
    CHECK((to.rows <= 1 || to.ld == to.cols) && (from.rows <= 1 || from.ld == from.cols),
          "copy: a tensor of the host's with gaps%s", "");
    if (in && out) return d->host->ops->copy(d->host, to, from);
    CU(cudaStreamSynchronize(l->up));
    for (int64_t at = 0; at < n; at += CHUNK) {
        const int64_t len = n - at < CHUNK ? n - at : CHUNK;
        const Tensor a = piece(to, at, len, NULL), b = piece(from, at, len, NULL),
                     slot = piece(in ? from : to, 0, len, l->slot[0].at);
        if (in) cuda_get(d, slot.data, b), d->host->ops->copy(d->host, a, slot);
        else d->host->ops->copy(d->host, slot, b), cuda_put(d, a, slot.data);
    }
}
