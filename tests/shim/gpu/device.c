/* device.c - the CPU as a device with a queue (linked with --wrap=dev_open): a call of an op is kept with its arguments
 * and done later, in order, by a stream's thread.  Ranks then move their tensors by comm/nccl.c, and the engine asks
 * ahead and replays its steps, as on a GPU.  It knows the driver by its own calls alone (driver.c): an op is a
 * cuLaunchHostFunc, and what it asks of Dev.tmp is what was free when it was called, as on a GPU.
 *
 * GPU_COUNT=FILE: steps of decoding of a rank, how many of them were replayed, and the bytes that NCCL sent in each
 * phase of the run (linked with --wrap=watch_phase) are told in FILE.RANK. */
#include "comm/nccl.h"
#include "comm/nccl_lib.h"
#include "comm/watch.h"
#include "op/op.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Nccl *__real_nccl_open(const Comm *all, Dev *d, int node, bool shared, Err *err);
Nccl *__wrap_nccl_open(const Comm *all, Dev *d, int node, bool shared, Err *err);
/* GPU_NODE: so many ranks are a machine. */
Nccl *__wrap_nccl_open(const Comm *all, Dev *d, int node, bool shared, Err *err) {
    const char *ranks = getenv("GPU_NODE");
    return __real_nccl_open(all, d, ranks ? all->rank / atoi(ranks) * atoi(ranks) : node, shared, err);
}
void __real_dev_open(Dev *d, DevOpts o);
void __wrap_dev_open(Dev *d, DevOpts o);

typedef struct {
    int (*cuLaunchHostFunc)(void *stream, void (*fn)(void *), void *arg);
    int (*cuStreamSynchronize)(void *stream);
    int (*cuStreamBeginCapture_v2)(void *stream, int mode);
    int (*cuStreamEndCapture)(void *stream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **run, void *graph, unsigned long long flags);
    int (*cuGraphLaunch)(void *run, void *stream);
    int (*cuGraphExecDestroy)(void *run);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamDestroy_v2)(void *stream);
    int (*cuEventCreate)(void **event, unsigned flags);
    int (*cuEventRecord)(void *event, void *stream);
    int (*cuEventSynchronize)(void *event);
    int (*cuEventQuery)(void *event);
    size_t (*gpuBytesSent)(void); /* the shim's own */
} Driver;
#define ENTRY(name)                                                                                                    \
    { #name, offsetof(Driver, name) }
static const struct {
    const char *name;
    size_t at;
} entries[] = { ENTRY(cuLaunchHostFunc),
                ENTRY(cuStreamSynchronize),
                ENTRY(cuStreamBeginCapture_v2),
                ENTRY(cuStreamEndCapture),
                ENTRY(cuGraphInstantiateWithFlags),
                ENTRY(cuGraphLaunch),
                ENTRY(cuGraphExecDestroy),
                ENTRY(cuStreamCreate),
                ENTRY(cuStreamDestroy_v2),
                ENTRY(cuEventCreate),
                ENTRY(cuEventRecord),
                ENTRY(cuEventSynchronize),
                ENTRY(cuEventQuery),
                ENTRY(gpuBytesSent) };

typedef struct Call Call;
typedef struct {
    Dev cpu;   /* what computes, in the stream's thread; its tmp is its own */
    void *own; /* what the CPU keeps for the device that is seen */
    Dev *seen;
    void *end; /* an event */
    Driver cu;
    void *stream;
    Call *noted; /* between record and recorded */
    bool notes;
    char late[2][DEV_ASK];
    void *readback_done[2];
    bool is_run; /* it was asked for its stream: tensors will move beside it */
    bool begun;  /* a model's forward, by its angles; so far it has not looked at pages */
} Queue;
static Queue *queue_of(const Dev *d) { return d->impl; }

/* of a rank's device, not of those that only measure the machine */
static struct { long steps, replayed; } decoding;

/* ---- bytes sent in each phase */
void __real_watch_phase(Watch *w, const char *name);
void __wrap_watch_phase(Watch *w, const char *name);
enum { MOST_PHASES = 32 };
static struct {
    int n, now;
    size_t before; /* what was sent before this one */
    struct {
        const char *name;
        size_t bytes;
    } of[MOST_PHASES];
    size_t (*sent)(void);
} phases = { .n = 1, .of[0].name = "starting" };
static void phase_ends(void) {
    size_t all = phases.sent ? phases.sent() : 0;
    phases.of[phases.now].bytes += all - phases.before;
    phases.before = all;
}
void __wrap_watch_phase(Watch *w, const char *name) {
    phase_ends();
    int i = 0;
    while (i < phases.n && strcmp(phases.of[i].name, name)) i++;
    CHECK(i < MOST_PHASES, "more than %d phases", MOST_PHASES);
    if (i == phases.n) phases.of[phases.n++].name = name;
    phases.now = i;
    __real_watch_phase(w, name);
}

/* ---- a call, kept: its arguments lie behind it, and behind them what those point at */
struct Call {
    Queue *q;
    void (*run)(Call *c);
    Call *next;
    bool stays; /* it is in a graph, and comes again */
    Arena tmp;  /* what was free when it was asked for, and is again when it is done */
    _Alignas(16) char at[];
};
static void call_run(void *x) {
    Call *c = x;
    c->run(c);
    if (!c->stays) free(c);
}
static void call_push(Queue *q, Call *c) {
    c->q = q, c->stays = q->notes;
    if (q->notes) c->next = q->noted, q->noted = c;
    CHECK(!q->cu.cuLaunchHostFunc(q->stream, call_run, c), "cuLaunchHostFunc%s", "");
}
static size_t round16(size_t bytes) { return (bytes + 15) & ~(size_t)15; }
/* The pointer in 'field' shows on a copy from now on. */
static void keep(void *field, size_t bytes, char **room) {
    const void *from;
    if (!bytes) return;
    memcpy(&from, field, sizeof from);
    memcpy(*room, from, bytes);
    memcpy(field, room, sizeof *room);
    *room += round16(bytes);
}
static void look(Queue *q, const Paged *rows) {
    if (!rows) return;
    if (q->begun && !q->notes && q->is_run) decoding.steps += rows->rows.longest == 1;
    q->begun = false;
}
static void take(Dev *d, size_t scratch) { /* counted where plans are */
    size_t mark = arena_mark(&d->tmp);
    arena_push(&d->tmp, scratch);
    arena_pop(&d->tmp, mark);
}
static Arena rest(const Dev *d) {
    return arena_over(d->tmp.name, d->tmp.base + d->tmp.used, d->tmp.size - d->tmp.used);
}
/* As op/cuda does: what the queue waits for beside the device is looked after (dev_look). */
static void event_wait(Queue *q, void *event) {
    while (q->seen->beside.look && q->cu.cuEventQuery(event) == CU_NOT_READY && dev_look(q->seen)) {}
    CHECK(!q->cu.cuEventSynchronize(event), "cuEventSynchronize%s", "");
}
static void drain(Queue *q) {
    CHECK(!q->cu.cuEventRecord(q->end, q->stream), "cuEventRecord%s", "");
    event_wait(q, q->end);
    CHECK(!q->cu.cuStreamSynchronize(q->stream), "cuStreamSynchronize%s", "");
}

/* ---- for each op of op_list.h: its arguments as a struct, a function that keeps them, one that runs it.  The list's
 * words are read twice: the parameters as fields, the arguments as what is copied and passed on. */
/* clang-format off */
#define ELEVENTH(a, b, c, d, e, f, g, h, i, j, k, ...) k
#define EACH(F, ...)                                                                                                   \
    ELEVENTH(__VA_ARGS__, EACH10, EACH9, EACH8, EACH7, EACH6, EACH5, EACH4, EACH3, EACH2, EACH1, none)(F, __VA_ARGS__)
#define EACH1(F, x)      F(x)
#define EACH2(F, x, ...) F(x) EACH1(F, __VA_ARGS__)
#define EACH3(F, x, ...) F(x) EACH2(F, __VA_ARGS__)
#define EACH4(F, x, ...) F(x) EACH3(F, __VA_ARGS__)
#define EACH5(F, x, ...) F(x) EACH4(F, __VA_ARGS__)
#define EACH6(F, x, ...) F(x) EACH5(F, __VA_ARGS__)
#define EACH7(F, x, ...) F(x) EACH6(F, __VA_ARGS__)
#define EACH8(F, x, ...) F(x) EACH7(F, __VA_ARGS__)
#define EACH9(F, x, ...) F(x) EACH8(F, __VA_ARGS__)
#define EACH10(F, x, ...) F(x) EACH9(F, __VA_ARGS__)

#define FIELD(param)    param;
#define FIELDS(...)     EACH(FIELD, __VA_ARGS__)
#define PASS(x)         , its->x
#define PASSED(d, ...)  EACH(PASS, __VA_ARGS__)
#define COPY(x)         its->x = x;
#define COPIED(...)     EACH(COPY, __VA_ARGS__)
/* many: of the op's tensors; an op has one number of them, or none */
#define LOOK(x)                                                                                                        \
    many = _Generic((x), int: (x), default: many);                                                                     \
    look(q_, _Generic((x), Paged: &(x), default: NULL));
#define LOOKED(...)     EACH(LOOK, __VA_ARGS__)
/* bytes that the argument points at, and that are kept with it; get's void * is where it writes */
#define POINTED(x) _Generic((x), const Attn *: sizeof(Attn), const Route *: sizeof(Route), const Head *: sizeof(Head), \
    const Sample *: sizeof(Sample), const Decay *: sizeof(Decay), const Delta *: sizeof(Delta),                        \
    const DeltaGrad *: sizeof(DeltaGrad), const Remembered *: sizeof(Remembered), \
    const Tensor *: (size_t)many * sizeof(Tensor), const void *: host_bytes, default: 0)
#define ROOM(x)         + round16(POINTED(x))
#define ROOMS(...)      EACH(ROOM, __VA_ARGS__)
#define KEEP(x)         keep(&its->x, POINTED(x), &room);
#define KEPT(...)       EACH(KEEP, __VA_ARGS__)

static __thread size_t host_bytes; /* of what put takes */
#define OP(how, name, params, args, outs)                                                                              \
    typedef struct { FIELDS params } Args_##name;                                                                      \
    static void run_##name(Call *c_) {                                                                                 \
        Args_##name *its = (Args_##name *)(void *)c_->at;                                                              \
        c_->q->cpu.tmp = c_->tmp;                                                                                      \
        ops_cpu.enter(&c_->q->cpu, false);                                                                             \
        ops_cpu.name(&c_->q->cpu PASSED args);                                                                         \
        ops_cpu.leave(&c_->q->cpu);                                                                                    \
    }                                                                                                                  \
    static void queue_##name params {                                                                                  \
        Queue *q_ = queue_of(d);                                                                                       \
        int many = 0;                                                                                                  \
        q_->begun = q_->begun || !strcmp(#name, "rope_table");                                                         \
        LOOKED args                                                                                                    \
        (void)many;                                                                                                    \
        Call *c_ = malloc(sizeof *c_ + round16(sizeof(Args_##name)) ROOMS args);                                       \
        CHECK(c_, "no memory for a call%s", "");                                                                       \
        Args_##name *its = (Args_##name *)(void *)c_->at;                                                              \
        char *room = c_->at + round16(sizeof *its);                                                                    \
        COPIED args                                                                                                    \
        KEPT args                                                                                                      \
        if (ops_cpu.tmp.name) take(d, ops_cpu.tmp.name args);                                                          \
        c_->tmp = rest(d), c_->run = run_##name;                                                                       \
        call_push(q_, c_);                                                                                             \
    }
/* clang-format on */
#include "op/op_list.h"
#undef OP

static void put(Dev *d, Tensor to, const void *from) {
    CHECK(!queue_of(d)->notes, "put while calls are noted%s", "");
    host_bytes = tensor_bytes(to.dtype, to.rows, to.cols);
    queue_put(d, to, from);
}
static void get(Dev *d, void *to, Tensor from) {
    CHECK(!queue_of(d)->notes, "get while calls are noted%s", "");
    queue_get(d, to, from);
    drain(queue_of(d));
}
static double sumsq(Dev *d, Tensor x) {
    CHECK(!queue_of(d)->notes, "sumsq while calls are noted%s", "");
    drain(queue_of(d));
    return ops_cpu.sumsq(&queue_of(d)->cpu, x);
}

/* ---- the rest of the table */
static void *block(Dev *d, size_t bytes) { return ops_cpu.block(&queue_of(d)->cpu, bytes); }
static void give(Dev *d, void *at, size_t bytes) {
    drain(queue_of(d));
    ops_cpu.give(&queue_of(d)->cpu, at, bytes);
}
static void *queue(Dev *d) {
    queue_of(d)->is_run = true;
    return queue_of(d)->stream;
}
static void touch(Dev *d) { (void)d; }
static void enter(Dev *d, bool join) { (void)d, (void)join; }
static void leave(Dev *d) { (void)d; }
static void chain(Dev *d, bool on) { (void)d, (void)on; }
static void about(const Dev *d, DevAbout *out) { ops_cpu.about(&queue_of(d)->cpu, out); }

static void ask(Dev *d, int i, Tensor from) {
    Queue *q = queue_of(d);
    CHECK(tensor_bytes(from.dtype, from.rows, from.cols) <= DEV_ASK, "ask for %ld rows", (long)from.rows);
    queue_get(d, q->late[i], from);
    CHECK(!q->cu.cuEventRecord(q->readback_done[i], q->stream), "cuEventRecord%s", "");
}
static void asked(Dev *d, int i, void *to, size_t bytes) {
    Queue *q = queue_of(d);
    event_wait(q, q->readback_done[i]);
    memcpy(to, q->late[i], bytes);
}

typedef struct {
    void *run;
    Call *calls;
} CudaGraph;
static void record(Dev *d) {
    Queue *q = queue_of(d);
    CHECK(!q->notes && !q->cu.cuStreamBeginCapture_v2(q->stream, 1), "cuStreamBeginCapture%s", "");
    q->notes = true, q->noted = NULL;
}
static void *recorded(Dev *d) {
    Queue *q = queue_of(d);
    void *graph;
    CudaGraph *n = malloc(sizeof *n);
    CHECK(n && q->notes && !q->cu.cuStreamEndCapture(q->stream, &graph)
              && !q->cu.cuGraphInstantiateWithFlags(&n->run, graph, 0),
          "cuStreamEndCapture%s", "");
    n->calls = q->noted, q->notes = false;
    return n;
}
static void replay(Dev *d, void *noted) {
    Queue *q = queue_of(d);
    decoding.steps += q->is_run, decoding.replayed += q->is_run;
    CHECK(!q->cu.cuGraphLaunch(((CudaGraph *)noted)->run, q->stream), "cuGraphLaunch%s", "");
}
static void forget(Dev *d, void *noted) {
    CudaGraph *n = noted;
    drain(queue_of(d));
    queue_of(d)->cu.cuGraphExecDestroy(n->run);
    for (Call *c = n->calls, *next; c; c = next) next = c->next, free(c);
    free(n);
}

__attribute__((destructor)) static void tell(void) {
    const char *to = getenv("GPU_COUNT"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    char path[4096];
    if (!to) return;
    snprintf(path, sizeof path, "%s.%s", to, rank ? rank : "0");
    FILE *f = fopen(path, "w");
    CHECK(f, "%s cannot be written", path);
    fprintf(f, "%ld of %ld steps of decoding were replayed\n", decoding.replayed, decoding.steps);
    phase_ends();
    for (int i = 0; i < phases.n; i++) fprintf(f, "sent in %s %zu\n", phases.of[i].name, phases.of[i].bytes);
    fclose(f);
}
static void close_queue(Dev *d) {
    Queue *q = queue_of(d);
    drain(q);
    q->cu.cuStreamDestroy_v2(q->stream);
    d->impl = q->own, d->ops = &ops_cpu;
    dev_close(&q->cpu);
    free(q);
    ops_cpu.close(d);
}

static const Ops ops_queue = {
    .name = "cpu", /* runs of one go on in the other */
    .keeps_f32 = true,
    .close = close_queue,
    .block = block,
    .give = give,
    .queue = queue,
    .touch = touch,
    .enter = enter,
    .leave = leave,
    .chain = chain,
    .about = about,
    .ask = ask,
    .asked = asked,
    .record = record,
    .recorded = recorded,
    .replay = replay,
    .forget = forget,
    .sumsq = sumsq,
#define OP(how, name, params, args, outs) .name = queue_##name,
#include "op/op_list.h"
#undef OP
};
/* What it computes with, and what that takes, is the CPU's. */
static const Ops *table(void) {
    static Ops ops;
    if (ops.name) return &ops;
    ops = ops_queue;
    ops.keeps_f32 = ops_cpu.keeps_f32, ops.expands = ops_cpu.expands;
    ops.kv_bytes = ops_cpu.kv_bytes, ops.put = put, ops.get = get;
    memcpy(&ops.tmp, &ops_cpu.tmp, sizeof ops.tmp);
    return &ops;
}

static void find_driver(Driver *cu) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(lib, "the shim's libcuda.so.1 is not beside the program: %s", dlerror());
    for (size_t i = 0; i < COUNT(entries); i++) {
        void *symbol = dlsym(lib, entries[i].name);
        CHECK(symbol, "libcuda.so.1 has no %s", entries[i].name);
        memcpy((char *)cu + entries[i].at, &symbol, sizeof symbol);
    }
}
void __wrap_dev_open(Dev *d, DevOpts o) {
    Queue *q = calloc(1, sizeof *q);
    CHECK(q, "no memory%s", "");
    o.guard = false;
    __real_dev_open(d, o);
    __real_dev_open(&q->cpu, o);
    find_driver(&q->cu);
    phases.sent = q->cu.gpuBytesSent;
    CHECK(!q->cu.cuStreamCreate(&q->stream, CU_STREAM_APART), "cuStreamCreate%s", "");
    for (int i = 0; i < 2; i++)
        CHECK(!q->cu.cuEventCreate(&q->readback_done[i], CU_EVENT_NO_TIMING), "cuEventCreate%s", "");
    CHECK(!q->cu.cuEventCreate(&q->end, CU_EVENT_NO_TIMING), "cuEventCreate%s", "");
    q->seen = d, q->own = d->impl, d->impl = q, d->ops = table();
}
