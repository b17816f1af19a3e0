/* test_threads.c - every task once, whatever the number of threads, tasks and calls, and
 * however late a thread comes. */
#include "base/threads.h"
#include "test.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 3000 };
typedef struct {
    atomic_int did[MOST];
    atomic_int wrong;
    int threads, slow; /* this task sleeps */
} Job;

static void nap(long ns) { nanosleep(&(struct timespec){ 0, ns }, NULL); }

static void task(void *arg, int i, int worker) {
    Job *j = arg;
    atomic_fetch_add(&j->did[i], 1);
    if (worker < 0 || worker >= j->threads) atomic_fetch_add(&j->wrong, 1);
    if (i == j->slow) nap(300000);
}

static Job job;
static bool once(int n) {
    bool ok = atomic_load(&job.wrong) == 0;
    for (int i = 0; i < MOST; i++) ok &= atomic_exchange(&job.did[i], 0) == (i < n);
    return ok;
}

static atomic_llong sum, count;
static void add(void *arg, int i, int worker) {
    (void)arg, (void)worker;
    if (i % 4096 == 0) atomic_fetch_add(&sum, i), atomic_fetch_add(&count, 1);
}
/* More tasks than one call's tickets number. */
static void many(void) {
    enum { N = (1 << 23) + 4097 };
    Threads *pool = threads_open(2);
    threads_run(pool, N, add, NULL);
    int64_t k = (N + 4095) / 4096;
    EXPECT(count == k && sum == 4096 * (k * (k - 1) / 2), "%d tasks: %lld of %lld were met", N, (long long)count,
           (long long)k);
    threads_close(pool);
}

/* A system that gives no more threads: fewer do the same.  In a process of its own, whose
 * user may have one (root may have all). */
static void no_more(void) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        struct rlimit one = { 1, 1 };
        if ((!getuid() && setresuid(65534, 65534, 65534)) || setrlimit(RLIMIT_NPROC, &one)) _exit(77);
        Threads *pool = threads_open(8);
        job.threads = threads_count(pool), job.slow = -1;
        threads_run(pool, 100, task, &job);
        _exit(job.threads == 8 ? 77 : !once(100)); /* the pool stays open: nothing is to be learned from closing it */
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("this system gives threads without end");
    else EXPECT(WIFEXITED(status) && !WEXITSTATUS(status), "threads that could not be started: status %d", status);
}

/* Calls are numbered in 16 bits: more of them than there are numbers; and pools that are opened and never used. */
static void around(void) {
    Threads *pool = threads_open(2);
    bool ok = true;
    job.threads = 2, job.slow = -1;
    for (int call = 0; call < 140000; call++) {
        threads_run(pool, 2, task, &job);
        ok &= atomic_exchange(&job.did[0], 0) == 1 && atomic_exchange(&job.did[1], 0) == 1;
    }
    EXPECT(ok, "140000 calls");
    threads_close(pool);
    for (int i = 1; i < 40; i++) threads_close(threads_open(i));
    threads_close(NULL);
}

int main(void) {
    no_more();
    around();
    many();
    static const int threads[] = { 1, 2, 3, 7 }, tasks[] = { 0, 1, 2, 3, 8, 100, MOST };
    for (size_t t = 0; t < COUNT(threads); t++) {
        Threads *pool = threads_open(threads[t]);
        job.threads = threads[t], job.slow = -1;
        bool ok = true;
        for (int call = 0; call < 2000; call++) {
            int n = tasks[call % 5];
            threads_run(pool, n, task, &job);
            for (int i = 0; i < n; i++) ok &= atomic_exchange(&job.did[i], 0) == 1;
        }
        EXPECT(ok, "%d threads, 2000 short calls", threads[t]);
        for (size_t k = 0; k < COUNT(tasks); k++) {
            nap(2000000); /* the others sleep by now */
            job.slow = (int)k % 3;
            threads_run(pool, tasks[k], task, &job);
            EXPECT(once(tasks[k]), "%d threads, %d tasks after a pause", threads[t], tasks[k]);
        }
        threads_close(pool);
    }
    return test_end();
}
