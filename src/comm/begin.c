/* begin.c - a thread that sleeps while others begin: the one that begins is in MPI and cannot look at a clock. */
#include "comm/begin.h"
#include "base/last_words.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <time.h>

struct Begin {
    Mem mem;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool over;
    double seconds;
    int ranks;
    struct timespec until;
};

static void *wait_for_it(void *arg) {
    Begin *b = arg;
    int late = 0;
    pthread_mutex_lock(&b->lock);
    while (!b->over && late != ETIMEDOUT) late = pthread_cond_timedwait(&b->done, &b->lock, &b->until);
    bool over = b->over;
    pthread_mutex_unlock(&b->lock);
    if (!over)
        die_outside("of %d ranks not all have begun within %g s (trainer.wait_seconds): one ended before it began, or "
                    "was given another command",
                    b->ranks, b->seconds);
    return NULL;
}

Begin *begin_watch(double seconds, int ranks) {
    Mem mem = { 0 };
    if (seconds <= 0) return NULL;
    Begin *b = MEM_NEW(&mem, Begin);
    b->seconds = seconds, b->ranks = ranks;
    pthread_condattr_t mono;
    pthread_condattr_init(&mono);
    pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->done, &mono);
    pthread_condattr_destroy(&mono);
    clock_gettime(CLOCK_MONOTONIC, &b->until);
    double whole = floor(seconds);
    b->until.tv_sec += (time_t)whole, b->until.tv_nsec += (long)((seconds - whole) * 1e9);
    if (b->until.tv_nsec >= 1000000000) b->until.tv_sec++, b->until.tv_nsec -= 1000000000;
    b->mem = mem;
    if (!pthread_create(&b->thread, NULL, wait_for_it, b)) return b;
    pthread_cond_destroy(&b->done);
    pthread_mutex_destroy(&b->lock);
    mem_free(&mem);
    return NULL;
}

void begin_done(Begin *b) {
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->over = true;
    pthread_cond_signal(&b->done);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->done);
    pthread_mutex_destroy(&b->lock);
    Mem mem = b->mem;
    mem_free(&mem);
}
