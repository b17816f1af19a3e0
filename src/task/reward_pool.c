/* reward_pool.c - samples are judged on threads of their own while others are still being generated: see reward.h.
 *
 * A command's deadline is kept by external_command.c.  A library's cannot be kept by its own thread, so whoever waits
 * watches the clock: a call that is late is given up, its sample fails, its thread is left behind (it finds out when it
 * comes back) and a new one takes its place. */
#include "task/reward.h"

#include "base/clock.h"
#include "task/external.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static const double PYTHON_READY_S = 300; /* what a scorer may take to import */
enum { MAX_POOL = 1024, MAX_STUCK = 64 }; /* threads left behind before samples fail without being tried */
enum { MAX_TOGETHER = 64 };               /* samples of one call, where a scorer takes many */

typedef struct Job Job;
struct Job {
    Job *next;
    int64_t ticket;
    Buf text; /* all strings of the sample, each with a 0 behind it */
    RewardSample sample;
    RewardResult result;
    const Reward *reward;
};

typedef struct Worker {
    Rewards *pool;
    int index;
    pthread_t thread;
    Job *job; /* what it judges now */
    double deadline;
    bool left_behind;
} Worker;

typedef struct {
    Job *first, *last;
    int64_t n;
} Queue;

struct Rewards {
    Mem mem;
    const Reward *fixed;
    Command *command;
    Library *library;
    double timeout_s;
    int n;
    Worker **worker; /* [n] */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    Queue waiting, finished, spare;
    int64_t in_flight, judged;
    RewardCounts counts;
    bool stop;
};

static void queue_put(Queue *q, Job *j) {
    j->next = NULL;
    if (q->last) q->last->next = j;
    else q->first = j;
    q->last = j;
    q->n++;
}

static Job *queue_take(Queue *q) {
    Job *j = q->first;
    if (j && !(q->first = j->next)) q->last = NULL;
    q->n -= j != NULL;
    return j;
}

static void finish(Rewards *p, Job *j) {
    queue_put(&p->finished, j);
    p->judged++;
    p->counts.done++;
    p->counts.failed += j->result.failed;
    pthread_cond_signal(&p->done);
}

static void fail_late(const Rewards *p, Job *j) {
    reward_fail(&j->result, "the scorer's library did not return within %g s", p->timeout_s);
}

static void too_large(RewardResult *r) {
    if (!r->failed && !(fabs(r->score) <= REWARD_MOST))
        reward_fail(r, "the scorer gave %g as score; at most %g, either sign, is taken for one", r->score, REWARD_MOST);
}

static void begin(RewardResult *r) {
    buf_clear(&r->extra);
    *r = (RewardResult){ .acc = NAN, .extra = r->extra };
}

/* All in one call, as many of them as that went well for. */
static int judge_many(Worker *w, Job **j, int n) {
    const RewardSample *s[MAX_TOGETHER];
    RewardResult *r[MAX_TOGETHER];
    for (int i = 0; i < n; i++) {
        s[i] = &j[i]->sample, r[i] = &j[i]->result;
        begin(r[i]);
    }
    return n > 1 ? command_score_many(w->pool->command, w->index, s, r, n) : 0;
}

static void judge_one(Worker *w, Job *j) {
    const Rewards *p = w->pool;
    RewardResult *r = &j->result;
    begin(r);
    if (p->command) command_score(p->command, w->index, &j->sample, r);
    else if (p->library) library_score(p->library, &j->sample, r);
    else reward_score(j->reward, &j->sample, r);
}

static void judge(Worker *w, Job **j, int n) {
    for (int i = judge_many(w, j, n); i < n; i++) judge_one(w, j[i]);
    for (int i = 0; i < n; i++) too_large(&j[i]->result);
}

/* What a worker takes up: one sample, or its share of those that wait. */
static int take_jobs(Rewards *p, Job **j) {
    int64_t share = p->command && command_takes_many(p->command) ? (p->waiting.n + p->n - 1) / (p->n ? p->n : 1) : 1;
    int n = 0;
    while (n < MAX_TOGETHER && n < share && (j[n] = queue_take(&p->waiting))) n++;
    return n;
}

static void *worker_main(void *arg) {
    Worker *w = arg;
    Rewards *p = w->pool;
    pthread_mutex_lock(&p->lock);
    while (!p->stop && !w->left_behind) {
        Job *j[MAX_TOGETHER];
        int n = take_jobs(p, j);
        if (!n) {
            pthread_cond_wait(&p->work, &p->lock);
            continue;
        }
        w->job = j[0];
        w->deadline = clock_now() + p->timeout_s;
        pthread_mutex_unlock(&p->lock);
        judge(w, j, n);
        pthread_mutex_lock(&p->lock);
        if (!w->left_behind) {
            if (p->library && clock_now() > w->deadline)
                fail_late(p, j[0]); /* late is late, whether or not anybody looked */
            for (int i = 0; i < n; i++) finish(p, j[i]);
        } else { /* its sample was failed long ago; libraries take one at a time */
            p->counts.stuck--;
            queue_put(&p->spare, j[0]);
            pthread_cond_signal(&p->done); /* whoever waits may start another thread now */
        }
        w->job = NULL;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* A thread for slot i, whose old one is left behind, if there was one.  False: the system gives none. */
static bool start_worker(Rewards *p, int i) {
    Worker *w = MEM_NEW(&p->mem, Worker);
    w->pool = p;
    w->index = i;
    if (pthread_create(&w->thread, NULL, worker_main, w)) return false;
    p->worker[i] = w;
    return true;
}

static Job *new_job(Rewards *p) {
    Job *j = queue_take(&p->spare);
    return j ? j : MEM_NEW(&p->mem, Job);
}

static void give_up_call(Rewards *p, Worker *w) {
    Job *j = new_job(p);
    j->ticket = w->job->ticket;
    fail_late(p, j);
    finish(p, j);
    w->left_behind = true;
    p->counts.stuck++;
    pthread_detach(w->thread);
}

/* Slots without a thread get one while few are stuck: also one that was left empty when too many were. */
static int fill_slots(Rewards *p) {
    int living = 0;
    for (int i = 0; i < p->n; i++)
        living += !p->worker[i]->left_behind || (p->counts.stuck <= MAX_STUCK && start_worker(p, i));
    return living;
}

/* Gives up library calls that are late; the time of the next one that may become so.  With
 * too many threads stuck, or none to be had, what still waits fails. */
static double give_up_late(Rewards *p) {
    double now = clock_now(), next = now + p->timeout_s;
    if (!p->library) return next;
    for (int i = 0; i < p->n; i++) {
        Worker *w = p->worker[i];
        if (!w->job || w->left_behind) continue;
        if (w->deadline <= now) give_up_call(p, w);
        else if (w->deadline < next) next = w->deadline;
    }
    int living = fill_slots(p);
    while ((p->counts.stuck > MAX_STUCK || !living) && p->waiting.first) {
        Job *j = queue_take(&p->waiting);
        reward_fail(&j->result, "%d calls of the scorer's library hang: given up", (int)p->counts.stuck);
        finish(p, j);
    }
    return next;
}

/* Waits for the workers, but not beyond 'latest' and never beyond the next deadline that is this thread's to keep. */
static void wait_some(Rewards *p, double latest) {
    int64_t before = p->judged;
    double until = give_up_late(p);
    if (p->judged != before) return;
    if (until > latest) until = latest;
    struct timespec t = { (time_t)until, (long)((until - (double)(time_t)until) * 1e9) };
    pthread_cond_timedwait(&p->done, &p->lock, &t);
}

static bool open_command(Rewards *p, const RewardOptions *o, int threads, Err *err) {
    if (o->command) return (p->command = command_open(o->command, threads, p->timeout_s, NULL, 0, err)) != NULL;
    const char *line = python_line(o->python, o->python_function, o->python_args, &p->mem);
    Buf hello = { 0 };
    bool ok = python_hello(&hello, o, err);
    if (ok) ok = (p->command = command_open(line, threads, p->timeout_s, &hello, PYTHON_READY_S, err)) != NULL;
    buf_free(&hello);
    if (!ok) return false;
    if (command_ready(p->command, err)) return true; /* what is wrong is said before anything is drawn */
    command_close(p->command);
    return err_wrap(err, "%s", o->python);
}

Rewards *rewards_open(const RewardOptions *o, int threads, Err *err) {
    CHECK(threads >= 1 && threads <= MAX_POOL, "%d scorer threads; 1 to %d can be had", threads, MAX_POOL);
    if (!!o->scorer + !!o->command + !!o->library + !!o->python > 1) {
        err_set(err, "a scorer, a command, a library and a Python file exclude each other");
        return NULL;
    }
    const Reward *fixed = NULL;
    if (o->scorer && !reward_need(&fixed, o->scorer, err)) return NULL;
    Library *library = NULL;
    if (o->library && !(library = library_open(o->library, err))) return NULL;
    Mem mem = { 0 };
    Rewards *p = MEM_NEW(&mem, Rewards);
    p->mem = mem;
    p->fixed = fixed;
    p->library = library;
    p->timeout_s = o->timeout_s > 0 ? o->timeout_s : 10;
    if ((o->command || o->python) && !open_command(p, o, threads, err)) {
        mem = p->mem;
        mem_free(&mem);
        return NULL;
    }
    pthread_condattr_t mono;
    pthread_condattr_init(&mono);
    pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, &mono);
    pthread_condattr_destroy(&mono);
    p->worker = MEM_ARRAY(&p->mem, Worker *, (size_t)threads);
    pthread_mutex_lock(&p->lock);
    p->n = 0;
    while (p->n < threads && start_worker(p, p->n)) p->n++;
    pthread_mutex_unlock(&p->lock);
    if (p->n == threads) return p;
    err_set(err, "scorer thread %d of %d could not be started", p->n + 1, threads);
    rewards_close(p);
    return NULL;
}

/* The texts move when the buffer grows, so they are pointed at only when all are there. */
static void copy_sample(Job *j, const RewardSample *s) {
    struct {
        const char *at;
        size_t n, to;
    } part[4] = {
        { s->data_source, strlen(s->data_source), 0 },
        { s->solution, s->solution_n, 0 },
        { s->ground_truth, s->ground_truth_n, 0 },
        { s->extra_info, s->extra_info ? s->extra_info_n : 0, 0 },
    };
    buf_clear(&j->text);
    for (int i = 0; i < 4; i++) {
        part[i].to = j->text.n;
        buf_put(&j->text, part[i].at ? part[i].at : "", part[i].n);
        buf_putc(&j->text, 0);
    }
    const char *base = j->text.data;
    j->sample = *s;
    j->sample.data_source = base + part[0].to;
    j->sample.solution = base + part[1].to;
    j->sample.ground_truth = base + part[2].to;
    if (s->extra_info) j->sample.extra_info = base + part[3].to;
}

bool rewards_submit(Rewards *p, int64_t ticket, const RewardSample *s, Err *err) {
    const Reward *reward = p->fixed;
    if (!reward && !p->command && !p->library) TRY(reward_need(&reward, s->data_source, err));
    pthread_mutex_lock(&p->lock);
    Job *j = new_job(p);
    pthread_mutex_unlock(&p->lock);
    j->ticket = ticket;
    j->reward = reward;
    copy_sample(j, s);
    pthread_mutex_lock(&p->lock);
    queue_put(&p->waiting, j);
    p->in_flight++;
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    return true;
}

int rewards_poll(Rewards *p, int64_t *ticket, RewardResult *out, double wait_s) {
    double latest = clock_now() + wait_s;
    pthread_mutex_lock(&p->lock);
    Job *j = NULL;
    bool any = p->in_flight > 0;
    while (any && !(j = queue_take(&p->finished)) && clock_now() < latest) wait_some(p, latest);
    if (j) {
        RewardResult mine = *out;
        *out = j->result;
        j->result = (RewardResult){ .extra = mine.extra };
        *ticket = j->ticket;
        p->in_flight--;
        p->judged--;
        queue_put(&p->spare, j);
    }
    pthread_mutex_unlock(&p->lock);
    return j ? 1 : any ? 0 : -1;
}

bool rewards_collect(Rewards *p, int64_t *ticket, RewardResult *out) {
    int got;
    while (!(got = rewards_poll(p, ticket, out, 3600))) {}
    return got > 0;
}

void rewards_give_up(Rewards *p) {
    pthread_mutex_lock(&p->lock);
    for (Job *j; (j = queue_take(&p->waiting));) {
        reward_fail(&j->result, "given up: the run was told to stop");
        finish(p, j);
    }
    if (p->command) command_give_up(p->command);
    pthread_mutex_unlock(&p->lock);
}

bool rewards_lowest_known(const Rewards *p) { return !p->command && !p->library; }

RewardCounts rewards_counts(Rewards *p) {
    pthread_mutex_lock(&p->lock);
    RewardCounts c = p->counts;
    pthread_mutex_unlock(&p->lock);
    if (p->command) c.restarts = command_restarts(p->command);
    return c;
}

static void free_jobs(Queue *q) {
    for (Job *j; (j = queue_take(q));) {
        buf_free(&j->text);
        reward_result_free(&j->result);
    }
}

void rewards_close(Rewards *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    for (Job *j; (j = queue_take(&p->waiting));) {
        p->in_flight--;
        queue_put(&p->spare, j);
    }
    while (p->judged < p->in_flight) wait_some(p, clock_now() + p->timeout_s);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    bool stuck = p->counts.stuck > 0;
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n; i++)
        if (!p->worker[i]->left_behind) pthread_join(p->worker[i]->thread, NULL);
    command_close(p->command);
    free_jobs(&p->waiting);
    free_jobs(&p->finished);
    free_jobs(&p->spare);
    if (stuck) return; /* a thread may still come back and look for the lock: the pool stays where it is */
    library_close(p->library);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
    Mem mem = p->mem;
    mem_free(&mem);
}
