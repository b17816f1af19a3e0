/* threads.c - see threads.h.  A call is published by a generation number; workers claim indices from a shared counter.
 * A waiting thread spins a few microseconds (a decode step is hundreds of calls long), then sleeps on a futex-backed
 * condition, so that an idle program uses no core. */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MAX_THREADS = 256, SPIN = 2000 };

struct Threads {
    int n;
    pthread_t thread[MAX_THREADS];
    ThreadFn *fn;
    void *arg;
    int tasks;
    atomic_int next, generation, busy;
    atomic_bool stop;
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

static void work(Threads *t, int worker) {
    for (int i; (i = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < t->tasks;)
        t->fn(t->arg, i, worker);
}

static void *worker_main(void *p) {
    Start *s = p;
    Threads *t = s->t;
    int seen = 0;
    for (;;) {
        int spin = 0;
        while (atomic_load_explicit(&t->generation, memory_order_acquire) == seen && spin++ < SPIN) relax();
        if (atomic_load_explicit(&t->generation, memory_order_acquire) == seen) {
            pthread_mutex_lock(&t->lock);
            while (atomic_load(&t->generation) == seen) pthread_cond_wait(&t->wake, &t->lock);
            pthread_mutex_unlock(&t->lock);
        }
        seen = atomic_load_explicit(&t->generation, memory_order_acquire);
        if (atomic_load(&t->stop)) return NULL;
        work(t, s->worker);
        if (atomic_fetch_sub_explicit(&t->busy, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&t->lock);
            pthread_cond_signal(&t->done);
            pthread_mutex_unlock(&t->lock);
        }
    }
}

Threads *threads_open(int n) {
    CHECK(n >= 1 && n <= MAX_THREADS, "%d threads; 1 to %d can be had", n, MAX_THREADS);
    Mem mem = { 0 };
    Threads *t = MEM_NEW(&mem, Threads);
    t->n = n;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    Start *s = MEM_ARRAY(&mem, Start, (size_t)n);
    t->mem = mem;
    for (int i = 1; i < n; i++) {
        s[i] = (Start){ t, i };
        CHECK(!pthread_create(&t->thread[i], NULL, worker_main, &s[i]), "thread %d of %d could not be started", i, n);
    }
    return t;
}

void threads_close(Threads *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->stop, true);
    atomic_fetch_add(&t->generation, 1);
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

void threads_run(Threads *t, int n, ThreadFn *fn, void *arg) {
    if (t->n == 1 || n <= 1) {
        for (int i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    t->fn = fn;
    t->arg = arg;
    t->tasks = n;
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    atomic_store_explicit(&t->busy, t->n - 1, memory_order_relaxed);
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add_explicit(&t->generation, 1, memory_order_release);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    work(t, 0);
    int spin = 0;
    while (atomic_load_explicit(&t->busy, memory_order_acquire) && spin++ < SPIN) relax();
    if (atomic_load_explicit(&t->busy, memory_order_acquire)) {
        pthread_mutex_lock(&t->lock);
        while (atomic_load(&t->busy)) pthread_cond_wait(&t->done, &t->lock);
        pthread_mutex_unlock(&t->lock);
    }
}

int threads_default(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}
