/* dev.cu - one GPU as a device: its stream, its memory, and the way in and out through pinned memory.
 * put has copied when it returns: bytes go to a pinned ring and on from there while the host goes on.  get waits for
 * all that was asked before it, and dies if a kernel reported a fault. */
#include "op/cuda/common/cuda.h"
#include "op/cuda_found.h"

#include <stdio.h>

/* ---- waiting: what the queue waits for beside the device is looked after meanwhile (dev_look) -------------------- */
static bool looked(Dev *d, cudaError_t e) {
    if (e != cudaErrorNotReady) return false;
    (void)cudaGetLastError(); /* which is no error */
    return dev_look(d);
}
void cuda_event_wait(Dev *d, cudaEvent_t e) {
    while (d->beside.look && looked(d, cudaEventQuery(e))) {}
    CU(cudaEventSynchronize(e));
}
static void drain(Dev *d) {
    while (d->beside.look && looked(d, cudaStreamQuery(stream_of(d)))) {}
    CU(cudaStreamSynchronize(stream_of(d)));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
void *cuda_block(Dev *d, size_t bytes) {
    void *at = NULL;
    CU(cudaSetDevice(cu(d)->gpu));
    cudaError_t e = cudaMalloc(&at, bytes);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return NULL;
    }
    CU(e);
    if (!cu(d)->raw) CU(cudaMemsetAsync(at, 0, bytes, stream_of(d)));
    return at;
}
void cuda_give(Dev *d, void *at, size_t bytes) {
    (void)bytes;
    drain(d);
    CU(cudaFree(at));
}
void *cuda_queue(Dev *d) { return stream_of(d); }
void cuda_touch(Dev *d) { (void)d; } /* cudaMalloc has taken every page */
static cudaGraphExec_t graph_end(Dev *d);
static void graph_begin(Dev *d) { CU(cudaStreamBeginCapture(stream_of(d), cudaStreamCaptureModeThreadLocal)); }
/* Launching a graph of hundreds of kernels takes the host longer than the first of them take the device: they are a
 * graph of their own. */
enum { FIRST_CALLS = 48 };
void cuda_enter(Dev *d, bool join) {
    (void)join;
    if (!cu(d)->capturing || ++cu(d)->captured != FIRST_CALLS) return;
    cu(d)->first = graph_end(d);
    graph_begin(d);
}
void cuda_leave(Dev *d) { (void)d; }
void cuda_chain(Dev *d, bool on) { (void)d, (void)on; } /* all calls wait on the stream anyway */

/* ---- in and out -------------------------------------------------------------------------------------------------- */
static bool ring_open(Ring *r, Err *err) {
    cudaError_t e = cudaMallocHost((void **)&r->at, (size_t)RING * RING_BYTES);
    for (int i = 0; e == cudaSuccess && i < RING; i++)
        e = cudaEventCreateWithFlags(&r->done[i], cudaEventDisableTiming);
    return e == cudaSuccess || err_set(err, "pinned memory for copies: %s", cudaGetErrorString(e));
}
static void ring_close(Ring *r) {
    for (int i = 0; i < RING; i++)
        if (r->done[i]) cudaEventDestroy(r->done[i]);
    if (r->at) cudaFreeHost(r->at);
}
static void ring_next(Dev *d, Ring *r) {
    CU(cudaEventRecord(r->done[r->now], stream_of(d)));
    r->now = (r->now + 1) % RING;
    r->used = 0;
    cuda_event_wait(d, r->done[r->now]);
}
/* Room for some of 'want' bytes, whole units of 'unit' (at most a piece); *got says how much. */
static char *ring_room(Dev *d, Ring *r, size_t want, size_t unit, size_t *got) {
    if (RING_BYTES - r->used < unit || (RING_BYTES - r->used < want && r->used > 0)) ring_next(d, r);
    size_t n = RING_BYTES - r->used;
    *got = n < want ? n / unit * unit : want;
    char *at = r->at + (size_t)r->now * RING_BYTES + r->used;
    r->used += (*got + RING_SMALL - 1) / RING_SMALL * RING_SMALL;
    if (r->used > RING_BYTES) r->used = RING_BYTES;
    return at;
}

/* One core copies about 10 GB/s, the link takes five times that: large pieces are copied by all. */
typedef struct {
    char *to;
    const char *from;
    size_t bytes;
    int n;
} HostCopy;
static void copy_piece(void *arg, int i, int worker) {
    const HostCopy *c = (const HostCopy *)arg;
    size_t a = c->bytes * (size_t)i / (size_t)c->n, b = c->bytes * (size_t)(i + 1) / (size_t)c->n;
    (void)worker;
    memcpy(c->to + a, c->from + a, b - a);
}
static void host_copy(Dev *d, char *to, const char *from, size_t bytes) {
    HostCopy c = { to, from, bytes, bytes < (1 << 20) ? 1 : threads_count(d->threads) };
    if (c.n == 1) memcpy(to, from, bytes);
    else threads_run(d->threads, c.n, copy_piece, &c);
}

/* x as rows of bytes; one row where there are no gaps, cut rows where one is longer than a piece of the ring. */
typedef struct {
    char *at;
    size_t rows, row, ld;
} Bytes;
static Bytes bytes_of(Tensor x) {
    size_t es = dtype_size(x.dtype), row = (size_t)x.cols * es;
    if (x.rows <= 1 || x.ld == x.cols)
        return { (char *)x.data, x.rows > 0 && row > 0, (size_t)x.rows * row, (size_t)x.rows * row };
    return { (char *)x.data, row > 0 ? (size_t)x.rows : 0, row, (size_t)x.ld * es };
}
void *cuda_room(Dev *d, size_t bytes) {
    Ring *r = &cu(d)->put;
    CU(cudaSetDevice(cu(d)->gpu));
    if (r->used) ring_next(d, r);
    r->used = bytes;
    return r->at + (size_t)r->now * RING_BYTES;
}
/* What is put from a room goes as it is.  Other puts may have taken the next piece meanwhile, so the room's event is
 * set again. */
static bool put_room(Dev *d, Tensor to, const char *from) {
    Ring *r = &cu(d)->put;
    if (from < r->at || from >= r->at + (size_t)RING * RING_BYTES) return false;
    Bytes b = bytes_of(to);
    if (b.rows == 1) CU(cudaMemcpyAsync(b.at, from, b.row, cudaMemcpyHostToDevice, stream_of(d)));
    else if (b.rows)
        CU(cudaMemcpy2DAsync(b.at, b.ld, from, b.row, b.row, b.rows, cudaMemcpyHostToDevice, stream_of(d)));
    CU(cudaEventRecord(r->done[(size_t)(from - r->at) / RING_BYTES], stream_of(d)));
    return true;
}

static void put_bytes(Dev *d, char *to, size_t ld, const char *from, size_t rows, size_t row) {
    for (size_t got, left = rows * row; left > 0; left -= got, from += got) {
        char *room = ring_room(d, &cu(d)->put, left, rows > 1 ? row : 1, &got);
        host_copy(d, room, from, got);
        if (rows <= 1) {
            CU(cudaMemcpyAsync(to, room, got, cudaMemcpyHostToDevice, stream_of(d)));
            to += got;
        } else {
            CU(cudaMemcpy2DAsync(to, ld, room, row, row, got / row, cudaMemcpyHostToDevice, stream_of(d)));
            to += got / row * ld;
        }
    }
}
void cuda_put(Dev *d, Tensor to, const void *from) {
    Bytes b = bytes_of(to);
    if (on_host(d, to.data)) return d->host->ops->put(d->host, to, from);
    CU(cudaSetDevice(cu(d)->gpu));
    if (put_room(d, to, (const char *)from)) return;
    if (b.row <= RING_BYTES || b.rows <= 1) put_bytes(d, b.at, b.ld, (const char *)from, b.rows, b.row);
    else
        for (size_t r = 0; r < b.rows; r++)
            put_bytes(d, b.at + r * b.ld, b.row, (const char *)from + r * b.row, 1, b.row);
}

/* Pieces are asked for up to RING - 1 ahead of the one that is waited for. */
static void get_bytes(Dev *d, char *to, const char *from, size_t ld, size_t rows, size_t row) {
    Ring *r = &cu(d)->get;
    size_t unit = rows > 1 ? row : 1, each = RING_BYTES / unit * unit, total = rows * row;
    for (size_t asked = 0, had = 0; had < total;) {
        for (; asked < total && asked - had < (RING - 1) * each; asked += each) {
            size_t n = total - asked < each ? total - asked : each;
            int at = (int)(asked / each % RING);
            char *room = r->at + (size_t)at * RING_BYTES;
            if (rows <= 1) CU(cudaMemcpyAsync(room, from + asked, n, cudaMemcpyDeviceToHost, stream_of(d)));
            else
                CU(cudaMemcpy2DAsync(room, row, from + asked / row * ld, ld, row, n / row, cudaMemcpyDeviceToHost,
                                     stream_of(d)));
            CU(cudaEventRecord(r->done[at], stream_of(d)));
        }
        int at = (int)(had / each % RING);
        size_t n = total - had < each ? total - had : each;
        cuda_event_wait(d, r->done[at]);
        host_copy(d, to + had, r->at + (size_t)at * RING_BYTES, n);
        had += n;
    }
}
void cuda_get(Dev *d, void *to, Tensor from) {
    Bytes b = bytes_of(from);
    if (on_host(d, from.data)) return d->host->ops->get(d->host, to, from);
    CU(cudaSetDevice(cu(d)->gpu));
    if (b.row <= RING_BYTES || b.rows <= 1) get_bytes(d, (char *)to, b.at, b.ld, b.rows, b.row);
    else
        for (size_t r = 0; r < b.rows; r++) get_bytes(d, (char *)to + r * b.row, b.at + r * b.ld, b.row, 1, b.row);
    cuda_wait(d);
}

static void die_of_fault(const Dev *d) {
    static const char *const what[FAULT_KINDS] = { "",
                                                   "a token id outside the vocabulary",
                                                   "an expert that is not there",
                                                   "a row index outside the tensor",
                                                   "a page outside the pool",
                                                   "a sequence longer than its pages" };
    Fault f = *cu(d)->fault;
    if (f) die("op/cuda: %s, met at row %llu", what[f >> 48 < FAULT_KINDS ? f >> 48 : 0], f & 0xFFFFFFFFFFFFull);
}
void cuda_wait(Dev *d) {
    drain(d);
    die_of_fault(d);
}
void cuda_ask(Dev *d, int i, Tensor from) {
    const Bytes b = bytes_of(from);
    CHECK(b.rows <= 1 && b.row <= DEV_ASK, "ask: %zu rows of %zu bytes", b.rows, b.row);
    CU(cudaMemcpyAsync(cu(d)->readback + (size_t)i * DEV_ASK, b.at, b.row, cudaMemcpyDeviceToHost, stream_of(d)));
    CU(cudaEventRecord(cu(d)->readback_done[i], stream_of(d)));
}
void cuda_asked(Dev *d, int i, void *to, size_t bytes) {
    cuda_event_wait(d, cu(d)->readback_done[i]);
    die_of_fault(d);
    memcpy(to, cu(d)->readback + (size_t)i * DEV_ASK, bytes);
}

/* ---- stamps: events of the stream -------------------------------------------------------------------------------- */
void cuda_stamp(Dev *d, int i) {
    CudaDev *c = cu(d);
    CHECK(i >= 0 && i < CUDA_STAMPS, "stamp %d of %d", i, CUDA_STAMPS);
    if (!c->stamps) c->stamps = MEM_ARRAY(&d->mem, cudaEvent_t, CUDA_STAMPS);
    if (!c->stamps[i]) CU(cudaEventCreate(&c->stamps[i]));
    CU(cudaEventRecord(c->stamps[i], stream_of(d)));
}
double cuda_stamped(Dev *d, int i) {
    float ms = 0;
    cuda_event_wait(d, cu(d)->stamps[i]);
    CU(cudaEventElapsedTime(&ms, cu(d)->stamps[0], cu(d)->stamps[i]));
    return 1e-3 * (double)ms;
}

/* ---- calls that come again: a graph ------------------------------------------------------------------------------ */
struct CudaGraph {
    cudaGraphExec_t part[2];        /* the first may be none */
    CudaGraph *next;                    /* of those that were forgotten */
};
static cudaGraphExec_t graph_end(Dev *d) {
    cudaGraph_t graph;
    cudaGraphExec_t run;
    CU(cudaStreamEndCapture(stream_of(d), &graph));
    CU(cudaGraphInstantiate(&run, graph, 0));
    CU(cudaGraphDestroy(graph));
    return run;
}
void cuda_record(Dev *d) {
    graph_begin(d);
    cu(d)->capturing = true, cu(d)->captured = 0, cu(d)->first = NULL;
}
void *cuda_recorded(Dev *d) {
    CudaGraph *n = cu(d)->forgotten;
    if (n) cu(d)->forgotten = n->next;
    else n = MEM_NEW(&d->mem, CudaGraph);
    cu(d)->capturing = false;
    *n = { { cu(d)->first, graph_end(d) } };
    return n;
}
void cuda_replay(Dev *d, void *captured) {
    for (cudaGraphExec_t g : ((CudaGraph *)captured)->part)
        if (g) CU(cudaGraphLaunch(g, stream_of(d)));
}
void cuda_forget(Dev *d, void *captured) {
    CudaGraph *n = (CudaGraph *)captured;
    drain(d);
    for (cudaGraphExec_t g : n->part)
        if (g) CU(cudaGraphExecDestroy(g));
    n->next = cu(d)->forgotten, cu(d)->forgotten = n;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */
void cuda_close(Dev *d) {
    CudaDev *c = cu(d);
    link_close(d);
    attns_close(d);
    prods_close(d);
    ring_close(&c->put);
    ring_close(&c->get);
    if (c->sums) cudaFree(c->sums);
    if (c->readback) cudaFreeHost(c->readback);
    for (cudaEvent_t done : c->readback_done)
        if (done) cudaEventDestroy(done);
    for (int i = 0; c->stamps && i < CUDA_STAMPS; i++)
        if (c->stamps[i]) cudaEventDestroy(c->stamps[i]);
    if (c->fault) cudaFreeHost((void *)c->fault);
    if (c->stream) cudaStreamDestroy(c->stream);
    threads_close(d->threads);
}

typedef struct {                    /* what only dev_about asks for: asking the driver takes milliseconds */
    CudaDev c;
    char name[64];
    int driver;
} Card;
void cuda_about(const Dev *d, DevAbout *out) {
    const Card *card = (const Card *)d->impl;
    int driver = card->driver;
    CU(cudaMemGetInfo(&out->free, &out->total));
    out->base = cu(d)->base;
    snprintf(out->name, sizeof out->name, "%s", card->name);
    /* no library whose version changes bits: products and attention are ours */
    snprintf(out->libraries, sizeof out->libraries, "CUDA %d.%d, driver for %d.%d", CUDART_VERSION / 1000,
             CUDART_VERSION % 1000 / 10, driver / 1000, driver % 1000 / 10);
}

static CudaState find_gpu(int gpu, cudaDeviceProp *p, Err *err) {
    CudaFound f = {};
    CudaState s;
    f.wanted = gpu, f.needs = CUDART_VERSION, f.name = p->name;
    cudaDriverGetVersion(&f.driver);
    cudaError_t e = cudaGetDeviceCount(&f.count);
    f.none = e == cudaErrorNoDevice, f.old = e == cudaErrorInsufficientDriver;
    if (e != cudaSuccess) f.counting = cudaGetErrorString(e);
    if (!cuda_counted(&f, &s, err)) return s;
    e = cudaGetDeviceProperties(p, gpu);
    if (e != cudaSuccess) f.asking = cudaGetErrorString(e);
    f.major = p->major, f.minor = p->minor;
    cuda_answered(&f, &s, err);
    return s;
}

static bool open_parts(Dev *d, CudaDev *c, Err *err) {
    cudaError_t e = cudaSetDevice(c->gpu);
    if (e == cudaSuccess) e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess) e = cudaMallocHost((void **)&c->fault, sizeof *c->fault);
    if (e == cudaSuccess) e = cudaMalloc((void **)&c->sums, CUDA_SUMS * sizeof(double));
    if (e == cudaSuccess) e = cudaMallocHost((void **)&c->readback, 2 * DEV_ASK);
    for (int i = 0; e == cudaSuccess && i < 2; i++)
        e = cudaEventCreateWithFlags(&c->readback_done[i], cudaEventDisableTiming);
    if (e != cudaSuccess)
        return err_set(err, "GPU %d: %s: see nvidia-smi, or use --device cpu", c->gpu, cudaGetErrorString(e));
    *c->fault = FAULT_NONE;
    return ring_open(&c->put, err) && ring_open(&c->get, err) && prods_open(d, err) && attns_open(d, err);
}

extern "C" __attribute__((visibility("default"))) CudaState hone_cuda_open(Dev *d, const CudaOpts *o, size_t sizes,
                                                                           Err *err) {
    cudaDeviceProp p;
    if (sizes != CUDA_SIZES) {
        err_set(err, "libhone_cuda.so is of another build than the program: build both again");
        return CUDA_FAILS;
    }
    if (!d) return CUDA_READY;
    CudaState s = find_gpu(o->gpu, &p, err);
    if (s != CUDA_READY) return s;
    d->threads = threads_open(o->threads > 0 ? o->threads : threads_default());
    Card *card = MEM_NEW(&d->mem, Card);
    CudaDev *c = &card->c;
    c->gpu = o->gpu, c->sms = p.multiProcessorCount, c->smem = p.sharedMemPerBlockOptin;
    c->raw = o->raw;
    snprintf(card->name, sizeof card->name, "%.63s", p.name);
    cudaDriverGetVersion(&card->driver);
    d->ops = &ops_cuda;
    d->impl = c;
    d->act = o->act;
    size_t here = 0, all = 0;
    if (open_parts(d, c, err)) {
        CU(cudaMemGetInfo(&here, &all));
        c->base = all - here;
        return CUDA_READY;
    }
    cuda_close(d);
    mem_free(&d->mem);
    memset(d, 0, sizeof *d);
    return CUDA_FAILS;
}
extern "C" __attribute__((visibility("default"))) const Ops *hone_cuda_ops(void) { return &ops_cuda; }
