/* driver.c - libcuda.so.1's streams, events, copies and graphs: see gpu.h. */
#include "shim/gpu/gpu.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double gpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
long gpu_env(const char *name, long otherwise) {
    const char *s = getenv(name);
    return s ? atol(s) : otherwise;
}

void gpu_say(const char *format, ...) {
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "gpu shim: %s\n", text);
}

/* ---- planted faults */
static struct {
    char kind[16];
    long at, rank;
} plant = { .rank = -1 };
__attribute__((constructor)) static void read_plant(void) {
    const char *s = getenv("GPU_PLANT");
    if (s && sscanf(s, "%15[a-z]:%ld:%ld", plant.kind, &plant.at, &plant.rank) != 3) BAD("GPU_PLANT=%s", s);
}
bool gpu_plants(const char *kind) {
    return plant.rank == gpu_env("OMPI_COMM_WORLD_RANK", 0) && !strcmp(plant.kind, kind);
}
static atomic_long times; /* that the fault could have come */
bool gpu_planted(const char *kind) { return gpu_plants(kind) && atomic_fetch_add(&times, 1) + 1 == plant.at; }

/* ---- events */
struct Event {
    atomic_long asked, done;
    long was_late; /* the last one asked for that had not come */
    double at;
    bool dead, of_copy;  /* of_copy: it was recorded behind one */
    struct Graph *graph; /* in which it was recorded last, or NULL; as whom it is known there: */
    Event *noted;
};
/* What was captured: tasks in the order of the calls. */
typedef struct Graph {
    Task *first, *last;
    Stream *begun; /* others came to it by waiting for its events */
} Graph;
struct Stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, idle;
    Task *first, *last;
    Task *held, *held_last; /* "order" is planted: what waits for the next bundle to overtake it */
    unsigned seed;
    bool busy, dead, holds;
    bool computes; /* ops run here: the device's queue */
    bool copied;   /* last */
    Graph *capture;
};

static void sleep_us(long us) { nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL); }
/* What a wait is left out for is late, the first few times from where that is planted: later than a thread of a busy
 * machine is by itself. */
static bool is_due(const char *kind) {
    enum { FEW = 40 };
    static atomic_int done;
    return gpu_plants(kind) && atomic_load(&times) >= plant.at - 1 && atomic_fetch_add(&done, 1) < FEW;
}
/* Now and then; calls of ops are many, so seldom there. */
static void be_late(Stream *s, const Task *t) {
    enum { LATE_US = 3000, DUE_US = 50000 };
    long most = gpu_env("GPU_JITTER_US", 200);
    int seldom = t->kind == CALL ? 16 : 4;
    bool late_copy = gpu_plants("early"), late_bundle = late_copy || gpu_plants("noted");
    bool due = (t->kind == CALL && is_due("wait")) || (t->kind == BUNDLE && is_due("queue"));
    if (due) sleep_us(DUE_US);
    else if ((t->kind == COPY && late_copy) || (t->kind == BUNDLE && late_bundle)) sleep_us(LATE_US);
    else if (most > 0 && t->kind != STOP && rand_r(&s->seed) % seldom == 0) sleep_us(rand_r(&s->seed) % most);
}
static void wait_for(const Task *t) {
    double since = gpu_now();
    while (atomic_load(&t->event->done) < t->upto) {
        sleep_us(5);
        if (gpu_now() - since > 2 * (double)gpu_env("GPU_STUCK_S", 120)) /* bundles first say whom they wait for */
            BAD("a stream waits for an event that does not come");
    }
}
static void run(const Task *t) {
    switch (t->kind) {
    case RECORD:
        t->event->at = gpu_now();
        atomic_store(&t->event->done, t->upto);
        break;
    case WAIT: wait_for(t); break;
    case COPY: memcpy(t->to, t->from, t->bytes); break;
    case CALL: t->fn(t->arg); break;
    case BUNDLE:
        bundle_run(t->bundle);
        bundle_free(t->bundle);
        break;
    case STOP: break;
    }
}
static void *stream_main(void *x) {
    Stream *s = x;
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        while (!s->first) {
            pthread_cond_broadcast(&s->idle);
            pthread_cond_wait(&s->more, &s->lock);
        }
        Task *t = s->first;
        if (!(s->first = t->next)) s->last = NULL;
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        be_late(s, t);
        run(t);
        stop = t->kind == STOP;
        free(t);
    }
    return NULL;
}

static void append(Task **first, Task **last, Task *t) {
    t->next = NULL;
    if (*last) (*last)->next = t;
    else *first = t;
    *last = t;
}
/* Holds a bundle, and what comes behind it, until the next one went ahead. */
static bool holds(Stream *s, Task *t) {
    bool overtakes = s->holds && t->kind == BUNDLE;
    if (!s->holds && t->kind == BUNDLE && gpu_planted("order")) s->holds = true;
    if (!s->holds) return false;
    append(overtakes ? &s->first : &s->held, overtakes ? &s->last : &s->held_last, t);
    if (overtakes) {
        s->last->next = s->held, s->last = s->held_last;
        s->held = s->held_last = NULL, s->holds = false;
    }
    return true;
}
static Task *task_new(Stream *s, Task t) {
    Task *x = malloc(sizeof *x);
    if (!x) BAD("no memory");
    *x = t, x->on = s;
    return x;
}
/* Bytes that were sent so far: by the order of the calls, replayed ones too. */
static atomic_size_t sent;
size_t gpuBytesSent(void) { return atomic_load(&sent); }

void gpu_push(Stream *s, Task t) {
    Task *x = task_new(s, t);
    if (t.kind == COPY || t.kind == BUNDLE) s->copied = t.kind == COPY;
    if (s->dead) BAD("work for a stream that was destroyed");
    if (s->capture) {
        append(&s->capture->first, &s->capture->last, x);
        return;
    }
    if (t.kind == BUNDLE) sent += bundle_bytes(t.bundle);
    pthread_mutex_lock(&s->lock);
    if (!holds(s, x)) append(&s->first, &s->last, x);
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
}

int cuEventCreate(void **out, unsigned flags) {
    (void)flags;
    *out = calloc(1, sizeof(Event));
    return *out ? 0 : 2;
}
static void record(Event *e, Stream *s) {
    gpu_push(s, (Task){ .kind = RECORD, .event = e, .upto = atomic_fetch_add(&e->asked, 1) + 1 });
}
int cuEventRecord(void *event, void *stream) {
    Event *e = event;
    Stream *s = stream;
    if (e->dead) BAD("an event that was destroyed is recorded");
    e->graph = s->capture, e->noted = NULL, e->of_copy = s->copied;
    if (!s->capture) record(e, s);
    else if (!(e->noted = calloc(1, sizeof *e))) BAD("no memory");
    else gpu_push(s, (Task){ .kind = RECORD, .event = e->noted });
    return 0;
}
int cuEventQuery(void *event) {
    Event *e = event;
    enum { NOT_READY = 600 };
    if (e->dead || e->noted) BAD("an event is asked that was %s", e->dead ? "destroyed" : "captured");
    if (atomic_load(&e->done) >= atomic_load(&e->asked)) return 0;
    bool again = e->was_late == atomic_load(&e->asked);
    e->was_late = atomic_load(&e->asked);
    return !again && e->of_copy && gpu_planted("early") ? 0 : NOT_READY;
}
int cuEventSynchronize(void *event) {
    Event *e = event;
    if (e->dead || e->noted) BAD("an event is waited for that was %s", e->dead ? "destroyed" : "captured");
    while (atomic_load(&e->done) < atomic_load(&e->asked)) sleep_us(10);
    return 0;
}
int cuEventElapsedTime(float *ms, void *from, void *to) {
    *ms = (float)(1e3 * (((Event *)to)->at - ((Event *)from)->at));
    return 0;
}
int cuEventDestroy_v2(void *event) { /* its memory stays, so that who still uses it is seen */
    Event *e = event;
    if (e->dead) BAD("an event is destroyed twice");
    e->dead = true;
    return 0;
}

int cuStreamCreate(void **out, unsigned flags) {
    static atomic_uint made;
    (void)flags;
    Stream *s = calloc(1, sizeof *s);
    if (!s) return 2;
    s->seed = (unsigned)(gpu_env("GPU_SEED", 0) * 1000 + gpu_env("OMPI_COMM_WORLD_RANK", 0)) * 64
              + atomic_fetch_add(&made, 1);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->idle, NULL);
    s->busy = true;
    *out = s;
    return pthread_create(&s->thread, NULL, stream_main, s) ? 2 : 0;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)flags;
    Stream *s = stream;
    Event *e = event;
    if (e->dead) BAD("an event that was destroyed is waited for");
    if (s->capture && s->capture != e->graph) BAD("a stream that captures waits for what is not captured with it");
    if (gpu_planted(s->computes ? "queue" : "wait") || ((s->capture || e->graph) && gpu_planted("noted"))) return 0;
    if (e->graph && !s->capture) s->capture = e->graph; /* it captures too, from now on */
    gpu_push(s, (Task){ .kind = WAIT, .event = e->graph ? e->noted : e, .upto = atomic_load(&e->asked) });
    return 0;
}
int cuStreamSynchronize(void *stream) {
    Stream *s = stream;
    if (s->capture) BAD("a stream that captures is waited for");
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy) pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return 0;
}
int cuStreamDestroy_v2(void *stream) {
    Stream *s = stream;
    gpu_push(s, (Task){ .kind = STOP });
    pthread_join(s->thread, NULL);
    s->dead = true;
    return 0;
}
int cuLaunchHostFunc(void *stream, void (*fn)(void *), void *arg) {
    ((Stream *)stream)->computes = true;
    gpu_push(stream, (Task){ .kind = CALL, .fn = fn, .arg = arg });
    return 0;
}

/* ---- memory */
int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    *out = malloc(bytes);
    return *out ? 0 : 2;
}
int cuMemFreeHost(void *at) {
    free(at);
    return 0;
}
static int copy(void *to, const void *from, size_t bytes, void *stream) {
    gpu_push(stream, (Task){ .kind = COPY, .to = to, .from = from, .bytes = bytes });
    return 0;
}
typedef unsigned long long At;
static void *at(At device) { return (void *)(uintptr_t)device; }
int cuMemcpyDtoHAsync_v2(void *to, At from, size_t bytes, void *stream) { return copy(to, at(from), bytes, stream); }
int cuMemcpyHtoDAsync_v2(At to, const void *from, size_t bytes, void *stream) {
    return copy(at(to), from, bytes, stream);
}
int cuMemcpyDtoDAsync_v2(At to, At from, size_t bytes, void *stream) { return copy(at(to), at(from), bytes, stream); }

/* ---- graphs */
int cuStreamIsCapturing(void *stream, int *status) {
    *status = ((Stream *)stream)->capture != NULL;
    return 0;
}
int cuStreamBeginCapture_v2(void *stream, int mode) {
    Stream *s = stream;
    (void)mode;
    if (s->capture) BAD("a stream that captures begins to");
    s->capture = calloc(1, sizeof(Graph));
    if (!s->capture) return 2;
    s->capture->begun = s;
    return 0;
}
/* Does another stream wait for that task's event behind it? */
static bool is_joined(const Task *end) {
    for (const Task *t = end->next; t; t = t->next)
        if (t->kind == WAIT && t->event == end->event && t->on != end->on) return true;
    return false;
}
static void leave_capture(Graph *g, Stream *s) {
    const Task *end = NULL;
    for (const Task *t = g->first; t; t = t->next)
        if (t->on == s) end = t;
    if (s != g->begun && (end->kind != RECORD || !is_joined(end)))
        BAD("a stream that captures ends before another came back to it");
    s->capture = NULL;
}
int cuStreamEndCapture(void *stream, void **out) {
    Stream *s = stream;
    Graph *g = s->capture;
    if (!g || g->begun != s) BAD("a stream ends a capture that it did not begin");
    leave_capture(g, s);
    for (Task *t = g->first; t; t = t->next)
        if (t->on->capture == g) leave_capture(g, t->on);
    *out = g;
    return 0;
}
int cuGraphInstantiateWithFlags(void **run, void *graph, unsigned long long flags) {
    (void)flags;
    *run = graph;
    return 0;
}
/* Each task to its own stream again: the waits that were captured say what is beside what. */
int cuGraphLaunch(void *run, void *stream) {
    const Graph *g = run;
    if (stream != g->begun) BAD("a graph is launched on another stream than it was captured on");
    for (const Task *t = g->first; t; t = t->next) {
        Task again = *t;
        if (t->kind == RECORD) record(t->event, t->on);
        else if (t->kind == WAIT) again.upto = atomic_load(&t->event->asked);
        else if (t->kind == BUNDLE) again.bundle = bundle_again(t->bundle);
        if (t->kind != RECORD) gpu_push(t->on, again);
    }
    return 0;
}
/* Events stay, as those that are destroyed do. */
int cuGraphExecDestroy(void *run) {
    Graph *g = run;
    for (Task *t = g->first, *next; t; t = next) {
        next = t->next;
        if (t->kind == BUNDLE) bundle_free(t->bundle);
        free(t);
    }
    free(g);
    return 0;
}
