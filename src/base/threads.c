/* threads.c - a pool of threads that hand indices of a loop to each other.
 * Each thread has a ticket for its share of a call, one 64-bit word: the call's number, where the
 * share ends, the next task.  Taking a task is one addition to it, which gives all three at once, so a thread that
 * comes late finds either a task of the call now running or none: nobody waits for threads, only for tasks.  Who is
 * done with his own share helps the next.  Shares are the same stretch of every call, so rows stay in the cache of the
 * core that made them.  A waiting thread spins for about a tenth of a millisecond (a decode step is hundreds of calls
 * long), then sleeps on a futex-backed condition, so that an idle program uses no core. */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MAX_THREADS = THREADS_MOST, SPIN = 2500, TASK_BITS = 24 };
static const uint64_t TASK_MASK = ((uint64_t)1 << TASK_BITS) - 1;

typedef struct {
    _Atomic uint64_t is; /* number, end, next: 16, 24, 24 bits */
    char apart[56];      /* what threads wait for is in cache lines of their own */
} Ticket;

struct Threads {
    int n, spin;
    ThreadFn *fn; /* of the call now running; read only by who holds a task of it */
    void *arg;
    char apart0[64];
    Ticket ticket[MAX_THREADS];
    atomic_int left; /* tasks not yet done */
    char apart1[64];
    atomic_int asleep;       /* workers */
    atomic_bool waits, stop; /* the caller sleeps; the pool closes */
    pthread_t thread[MAX_THREADS];
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    Mem mem;
};

typedef struct {
    Threads *t;
    int worker;
} Start;

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}
static inline uint64_t number(uint64_t ticket) { return ticket >> 2 * TASK_BITS; }

/* Tasks until there are none, the thread's own first; true if the last one of the call was among them. */
static bool work(Threads *t, int worker) {
    int did = 0;
    for (int k = 0; k < t->n; k++) {
        _Atomic uint64_t *share = &t->ticket[(worker + k) % t->n].is;
        for (;;) {
            uint64_t got = atomic_load(share);
            if ((got & TASK_MASK) < (got >> TASK_BITS & TASK_MASK)) got = atomic_fetch_add(share, 1);
            if ((got & TASK_MASK) >= (got >> TASK_BITS & TASK_MASK)) break;
            t->fn(t->arg, (int)(got & TASK_MASK), worker);
            did++;
        }
    }
    return did && atomic_fetch_sub(&t->left, did) == did;
}

static void *worker_main(void *p) {
    Start *s = p;
    Threads *t = s->t;
    _Atomic uint64_t *own = &t->ticket[s->worker].is;
    uint64_t seen = 0;
    for (;;) {
        int spin = 0;
        while (number(atomic_load(own)) == seen && spin++ < t->spin) relax();
        if (number(atomic_load(own)) == seen) {
            pthread_mutex_lock(&t->lock);
            atomic_fetch_add(&t->asleep, 1); /* before the last look: a call published after it sees the sleeper */
            while (number(atomic_load(own)) == seen) pthread_cond_wait(&t->wake, &t->lock);
            atomic_fetch_sub(&t->asleep, 1);
            pthread_mutex_unlock(&t->lock);
        }
        seen = number(atomic_load(own));
        if (atomic_load(&t->stop)) return NULL;
        if (work(t, s->worker) && atomic_load(&t->waits)) {
            pthread_mutex_lock(&t->lock);
            pthread_cond_signal(&t->done);
            pthread_mutex_unlock(&t->lock);
        }
    }
}

static void publish(Threads *t, int tasks) {
    uint64_t next = number(atomic_load(&t->ticket[0].is)) + 1;
    for (int w = 0; w < t->n; w++) {
        uint64_t from = (uint64_t)tasks * (uint64_t)w / (uint64_t)t->n,
                 to = (uint64_t)tasks * (uint64_t)(w + 1) / (uint64_t)t->n;
        atomic_store(&t->ticket[w].is, next << 2 * TASK_BITS | to << TASK_BITS | from);
    }
}

Threads *threads_open(int n) {
    CHECK(n >= 1 && n <= MAX_THREADS, "%d threads; 1 to %d can be had", n, MAX_THREADS);
    Mem mem = { 0 };
    Threads *t = MEM_NEW(&mem, Threads);
    t->n = n;
    t->spin = n <= threads_default() ? SPIN : 0; /* more threads than cores: who spins keeps another from working */
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    Start *s = MEM_ARRAY(&mem, Start, (size_t)n);
    t->mem = mem;
    for (int i = 1; i < t->n; i++) {
        s[i] = (Start){ t, i };
        int why = pthread_create(&t->thread[i], NULL, worker_main, &s[i]);
        if (!why) continue;
        if (speaks())
            fprintf(stderr, "hone: %d of %d threads could be started (%s): these do the work\n", i, n, strerror(why));
        t->n = i; /* nobody reads it before the first call */
    }
    return t;
}

void threads_close(Threads *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stop, true);
    publish(t, 0);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    for (int i = 1; i < t->n; i++) pthread_join(t->thread[i], NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->done);
    Mem mem = t->mem;
    mem_free(&mem);
}

int threads_count(const Threads *t) { return t->n; }

/* More tasks than a ticket has numbers for: some at a time. */
typedef struct {
    ThreadFn *fn;
    void *arg;
    int from;
} Later;

static void later(void *arg, int index, int worker) {
    const Later *l = arg;
    l->fn(l->arg, l->from + index, worker);
}

void threads_run(Threads *t, int n, ThreadFn *fn, void *arg) {
    enum { MOST = 1 << (TASK_BITS - 2) };
    if (t->n == 1 || n <= 1) {
        for (int i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    if (n > MOST) {
        for (int from = 0; n > 0; from += MOST, n -= MOST) {
            Later l = { fn, arg, from };
            threads_run(t, n < MOST ? n : MOST, later, &l);
        }
        return;
    }
    t->fn = fn;
    t->arg = arg;
    atomic_store(&t->left, n);
    publish(t, n);
    if (atomic_load(&t->asleep)) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_broadcast(&t->wake);
        pthread_mutex_unlock(&t->lock);
    }
    if (work(t, 0)) return;
    int spin = 0;
    while (atomic_load(&t->left) && spin++ < t->spin) relax();
    if (!atomic_load(&t->left)) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->waits, true);
    while (atomic_load(&t->left)) pthread_cond_wait(&t->done, &t->lock);
    atomic_store(&t->waits, false);
    pthread_mutex_unlock(&t->lock);
}

bool threads_awake(const Threads *t) { return !atomic_load_explicit(&t->asleep, memory_order_relaxed); }

int threads_default(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}
