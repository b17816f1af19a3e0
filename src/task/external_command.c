/* external_command.c - a scorer that is a command.  Each slot is a process in a group of its own, with a pipe to it and
 * a pipe from it, both non-blocking on this side: every wait is a poll that ends at the sample's deadline.
 *
 * A process that misses a deadline, dies, or says what it was not asked is killed with its whole group, without asking
 * it first (it may ignore SIGTERM), and the next sample gets a fresh one. */
#include "task/external.h"

#include "base/clock.h"
#include "base/json.h"
#include "task/external_guard.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_LIMIT = 1 << 16 }; /* bytes of a reply */
static const double KILL_WAIT_S = 2, CLOSE_WAIT_S = 0.5;

typedef struct {
    pid_t pid; /* 0: none runs; else also its group's id */
    int to, from;
    Buf request, reply;
    size_t sent;      /* of the request */
    int64_t answered; /* by this process */
    bool started;     /* one ran in this slot before */
    bool greeted;     /* it said that it is ready */
    VEC(pid_t)
    unreaped; /* killed, but not gone yet when last seen: a process may hang in the kernel for a while */
} Slot;

struct Command {
    Mem mem;
    const char *shell_line;
    double timeout_s, ready_s;
    int n;
    Slot *slot;
    Guard guard;
    ScorerFiles *files; /* of a command that does not greet */
    Buf hello;          /* what a process that greets is told before */
    atomic_llong ids, restarts;
    atomic_bool given_up, many;
};

typedef enum { DONE, TIMED_OUT, DIED, WAS_SILENT, FLOODED, BAD_START, GIVEN_UP } Outcome;
enum { LOOK_UP_MS = 100 }; /* how long a wait goes on before it looks whether anybody still wants the answer */

/* ---- Start and end */
static bool start(Command *c, int slot) {
    Slot *s = &c->slot[slot];
    if (!shell_start(&s->pid, &s->to, &s->from, c->shell_line)) return false;
    guard_tell(&c->guard, slot, s->pid);
    shell_go(s->to);
    s->answered = 0;
    s->greeted = false;
    if (s->started) atomic_fetch_add(&c->restarts, 1);
    s->started = true;
    buf_clear(&s->reply);
    return true;
}

/* Waits for the leader to be dead, but leaves it as a zombie: its group's id cannot be taken
 * by another process then. */
static bool gone(pid_t pid, double wait_s) {
    for (double end = clock_now() + wait_s;;) {
        siginfo_t info = { 0 };
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) || info.si_pid) return true;
        if (clock_now() >= end) return false;
        poll(NULL, 0, 1);
    }
}

static void reap(Slot *s) {
    size_t left = 0;
    for (size_t i = 0; i < s->unreaped.n; i++)
        if (waitpid(s->unreaped.at[i], NULL, WNOHANG) == 0) s->unreaped.at[left++] = s->unreaped.at[i];
    s->unreaped.n = left;
}

/* Ends the slot's process and all of its group; *status is how the leader ended, -1 if that is not known. */
static void stop(Command *c, Slot *s, double grace_s, int *status) {
    *status = -1;
    if (!s->pid) return;
    if (s->to >= 0) close(s->to);
    if (grace_s > 0) gone(s->pid, grace_s);
    close(s->from);
    siginfo_t info = { 0 };
    bool dead = !waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOWAIT | WNOHANG) && info.si_pid;
    kill(-s->pid, SIGKILL);
    if (!dead) gone(s->pid, KILL_WAIT_S);
    guard_tell(&c->guard, (int)(s - c->slot), 0); /* before its number may be another's */
    int how;
    if (waitpid(s->pid, &how, WNOHANG) == 0) VEC_PUSH(s->unreaped, s->pid);
    else if (dead) *status = how;
    s->pid = 0;
}

/* ---- One sample */
/* JSON text as one line: a newline in it can only be white space. */
static void put_json(Buf *b, const char *text, size_t n) {
    size_t from = b->n;
    buf_put(b, text, n);
    for (char *p = b->data + from; (p = memchr(p, '\n', (size_t)(b->data + b->n - p)));) *p++ = ' ';
}

static void put_request(Buf *b, const RewardSample *s, int64_t id) {
    buf_printf(b, "{\"id\":%lld,\"data_source\":", (long long)id);
    json_put_str(b, s->data_source, strlen(s->data_source));
    buf_puts(b, ",\"solution_str\":");
    json_put_str(b, s->solution, s->solution_n);
    buf_puts(b, ",\"ground_truth\":");
    if (s->ground_truth_is_json) put_json(b, s->ground_truth, s->ground_truth_n);
    else json_put_str(b, s->ground_truth, s->ground_truth_n);
    buf_puts(b, ",\"extra_info\":");
    if (s->extra_info) put_json(b, s->extra_info, s->extra_info_n);
    else buf_puts(b, "null");
    buf_putc(b, '}');
}

/* Did the process speak, or die, while nobody asked it anything? */
static bool out_of_turn(const Slot *s) {
    struct pollfd p = { s->from, POLLIN, 0 };
    return s->reply.n || poll(&p, 1, 0) != 0;
}

/* Reads what is there.  DONE: a whole line; TIMED_OUT: not yet. */
static Outcome take(Slot *s) {
    for (;;) {
        char *end = s->reply.n ? memchr(s->reply.data, '\n', s->reply.n) : NULL;
        if (end) return DONE;
        if (s->reply.n >= LINE_LIMIT) return FLOODED;
        buf_reserve(&s->reply, 4096);
        ssize_t got = read(s->from, s->reply.data + s->reply.n, 4096);
        if (got > 0) s->reply.n += (size_t)got;
        else if (got < 0 && (errno == EAGAIN || errno == EINTR)) return TIMED_OUT;
        else return s->reply.n ? DIED : WAS_SILENT;
    }
}

/* Nobody reads the request any more.  What was said before that may still be on its way. */
static Outcome deaf(Slot *s, double deadline) {
    struct pollfd last = { s->from, POLLIN, 0 };
    double left = deadline - clock_now();
    poll(&last, 1, left > 0.1 ? 100 : left > 0 ? (int)(left * 1000) : 0);
    Outcome o = take(s);
    return o != TIMED_OUT ? o : s->reply.n ? DIED : WAS_SILENT;
}

/* Sends what is left of the request and waits for a line. */
static Outcome exchange(const Command *c, Slot *s, double deadline) {
    for (bool listens = true;;) {
        Outcome o = take(s);
        if (o != TIMED_OUT) return o;
        bool writing = s->sent < s->request.n;
        struct pollfd p[2] = { { s->from, POLLIN, 0 }, { s->to, writing ? POLLOUT : 0, 0 } };
        double left = deadline - clock_now();
        if (left <= 0) return TIMED_OUT;
        if (atomic_load(&c->given_up)) return GIVEN_UP;
        int ms = left * 1000 < LOOK_UP_MS ? (int)(left * 1000) + 1 : LOOK_UP_MS;
        if (poll(p, listens ? 2 : 1, ms) < 0 && errno != EINTR) return DIED;
        int unread = 0;
        if (listens && (p[1].revents & POLLERR)) {
            if (writing || ioctl(s->to, FIONREAD, &unread) || unread) return deaf(s, deadline);
            listens = false; /* it has read its request and wants no other: it may still answer */
        } else if (writing && (p[1].revents & POLLOUT)) {
            ssize_t n = write(s->to, s->request.data + s->sent, s->request.n - s->sent);
            if (n > 0) s->sent += (size_t)n;
            else if (errno == EPIPE) return deaf(s, deadline);
        }
    }
}

static void say_why(RewardResult *out, Outcome o, int status, double timeout_s) {
    if (o == GIVEN_UP) reward_fail(out, "given up: the run was told to stop");
    else if (o == TIMED_OUT) reward_fail(out, "the scorer did not answer within %g s", timeout_s);
    else if (o == FLOODED) reward_fail(out, "the scorer wrote %d bytes without a newline", LINE_LIMIT);
    else if (o == BAD_START) reward_fail(out, "the scorer could not be started: %s", strerror(errno));
    else if (status == -1) reward_fail(out, "the scorer closed its input or output without an answer");
    else if (WIFSIGNALED(status)) reward_fail(out, "the scorer died of signal %d", WTERMSIG(status));
    else reward_fail(out, "the scorer exited with code %d without an answer", WEXITSTATUS(status));
}

/* The next line of the reply; it has come whole. */
static const char *line_of(const Slot *s, size_t *n) {
    *n = (size_t)((char *)memchr(s->reply.data, '\n', s->reply.n) - s->reply.data);
    return s->reply.data;
}

static void drop_line(Slot *s, size_t n) {
    memmove(s->reply.data, s->reply.data + n + 1, s->reply.n - n - 1);
    s->reply.n -= n + 1;
}

/* The greeting of a new process.  False: out says why it is of no use, and it is gone. */
static bool greeted(Command *c, Slot *s, RewardResult *out) {
    if (c->ready_s <= 0 || s->greeted) return true;
    Buf asked = s->request;
    size_t n;
    s->request = c->hello, s->sent = 0;
    Outcome o = exchange(c, s, clock_now() + c->ready_s);
    s->request = asked, s->sent = 0;
    int status;
    if (o == DONE) {
        const char *line = line_of(s, &n);
        Mem mem = { 0 };
        Json v;
        Err err;
        const Json *failed = json_parse(&v, line, n, &mem, &err) ? json_get(&v, "failed") : NULL;
        s->greeted = json_get(&v, "ready") != NULL;
        const Json *many = json_get(&v, "many");
        if (many && many->kind == JSON_BOOL && many->flag) atomic_store(&c->many, true);
        if (failed && failed->kind == JSON_STRING) reward_fail(out, "%s", failed->str);
        else if (!s->greeted) reward_fail(out, "the scorer did not greet: %.60s", line);
        mem_free(&mem);
        drop_line(s, n);
        if (s->greeted) return true;
        stop(c, s, 0, &status);
        return false;
    }
    if (o == DIED || o == WAS_SILENT) gone(s->pid, 0.05);
    stop(c, s, 0, &status);
    say_why(out, o, status, c->ready_s);
    return false;
}

/* What a sample or several have in common: no old word is taken for theirs. */
static void make_ready(Command *c, Slot *s) {
    int status;
    reap(s);
    if (s->pid && out_of_turn(s)) stop(c, s, 0, &status);
    s->sent = 0;
}

static void score(Command *c, Slot *s, const RewardSample *sample, RewardResult *out) {
    double deadline = clock_now() + c->timeout_s;
    int64_t id = atomic_fetch_add(&c->ids, 1);
    int status;
    if (atomic_load(&c->given_up)) {
        say_why(out, GIVEN_UP, 0, 0);
        return;
    }
    buf_clear(&s->request);
    put_request(&s->request, sample, id);
    buf_putc(&s->request, '\n');
    make_ready(c, s);
    for (;;) {
        const char *other = s->pid || !c->files ? NULL : scorer_files_changed(c->files);
        if (other) { /* two scorers would judge one run */
            reward_fail(out,
                        "%.80s has changed since the scorer was first started: put it back, or start again to go on "
                        "with it as it is",
                        other);
            return;
        }
        if (!s->pid && !start(c, (int)(s - c->slot))) {
            say_why(out, BAD_START, 0, 0);
            return;
        }
        if (!s->greeted && c->ready_s > 0) {
            if (!greeted(c, s, out)) return;
            deadline = clock_now() + c->timeout_s;
        }
        Outcome o = exchange(c, s, deadline);
        if (o == DONE) {
            size_t n;
            const char *line = line_of(s, &n);
            bool stale = !reply_read(out, line, n && line[n - 1] == '\r' ? n - 1 : n, id);
            drop_line(s, n);
            if (stale) continue; /* a second line about an earlier sample */
            s->answered++;
            if (out->failed && !out->told)
                stop(c, s, 0, &status); /* whatever it says next may not be about the next sample */
            return;
        }
        bool used = s->answered > 0;
        if (o == DIED || o == WAS_SILENT) gone(s->pid, 0.05); /* its output closes a little before it is dead */
        stop(c, s, 0, &status);
        /* A process may answer once and end: if it had answered before and died without a word, the sample was not why.
         * One that greets means to stay. */
        s->sent = 0;
        if (o == WAS_SILENT && used && c->ready_s <= 0) continue;
        say_why(out, o, status, c->timeout_s);
        return;
    }
}

static int score_many(Command *c, Slot *s, const RewardSample *const *sample, RewardResult *const *out, int n) {
    int64_t first = atomic_fetch_add(&c->ids, n);
    int status, done = 0;
    buf_clear(&s->request);
    for (int i = 0; i < n; i++) {
        buf_putc(&s->request, i ? ',' : '[');
        put_request(&s->request, sample[i], first + i);
    }
    buf_puts(&s->request, "]\n");
    make_ready(c, s);
    if ((!s->pid && !start(c, (int)(s - c->slot))) || !greeted(c, s, out[0])) return 0;
    for (double deadline = clock_now() + c->timeout_s; done < n;) {
        Outcome o = exchange(c, s, deadline);
        if (o != DONE) {
            stop(c, s, 0, &status);
            return done;
        }
        size_t len;
        const char *line = line_of(s, &len);
        bool stale = !reply_read(out[done], line, len, first + done);
        drop_line(s, len);
        if (stale) continue;
        if (out[done]->failed && !out[done]->told) {
            stop(c, s, 0, &status);
            return done;
        }
        s->answered++, done++;
    }
    return done;
}

/* A write to a process that is gone raises SIGPIPE in this thread; a program that does not ignore it would die. */
typedef struct {
    sigset_t pipe_only, before;
    bool pending;
} Quiet;

static Quiet quiet(void) {
    Quiet q;
    sigset_t pending;
    sigemptyset(&q.pipe_only);
    sigaddset(&q.pipe_only, SIGPIPE);
    sigpending(&pending);
    q.pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &q.pipe_only, &q.before);
    return q;
}

static void loud(const Quiet *q) {
    if (!q->pending) sigtimedwait(&q->pipe_only, NULL, &(struct timespec){ 0 });
    pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

void command_score(Command *c, int slot, const RewardSample *s, RewardResult *out) {
    Quiet q = quiet();
    score(c, &c->slot[slot], s, out);
    loud(&q);
}

int command_score_many(Command *c, int slot, const RewardSample *const *s, RewardResult *const *out, int n) {
    Quiet q = quiet();
    int done = score_many(c, &c->slot[slot], s, out, n);
    loud(&q);
    return done;
}

bool command_takes_many(const Command *c) { return atomic_load(&c->many); }

void command_give_up(Command *c) { atomic_store(&c->given_up, true); }

bool command_ready(Command *c, Err *err) {
    RewardResult r = { 0 };
    Quiet q = quiet();
    bool ok = start(c, 0) ? greeted(c, &c->slot[0], &r) : err_set(err, "the scorer could not be started");
    loud(&q);
    if (!ok && *r.reason) err_set(err, "%s", r.reason);
    reward_result_free(&r);
    return ok;
}

Command *command_open(const char *shell_line, int slots, double timeout_s, const Buf *hello, double ready_s, Err *err) {
    Guard guard;
    if (!guard_open(&guard, slots)) return err_set(err, "no process can be started: %s", strerror(errno)), NULL;
    Mem mem = { 0 };
    Command *c = MEM_NEW(&mem, Command);
    c->guard = guard;
    if (hello) buf_put(&c->hello, hello->data, hello->n);
    if (ready_s <= 0) c->files = scorer_files(shell_line);
    c->shell_line = mem_str(&mem, shell_line, strlen(shell_line));
    c->timeout_s = timeout_s;
    c->ready_s = ready_s;
    c->n = slots;
    c->slot = MEM_ARRAY(&mem, Slot, (size_t)slots);
    c->mem = mem;
    return c;
}

int64_t command_restarts(Command *c) { return atomic_load(&c->restarts); }

void command_close(Command *c) {
    if (!c) return;
    int status;
    Quiet q = quiet();
    double end = clock_now() + CLOSE_WAIT_S; /* the end of its input is a scorer's chance to end by itself */
    for (int i = 0; i < c->n; i++)
        if (c->slot[i].pid) {
            close(c->slot[i].to);
            c->slot[i].to = -1;
        }
    for (int i = 0; i < c->n; i++) {
        Slot *s = &c->slot[i];
        double left = end - clock_now();
        stop(c, s, left > 0 ? left : 0, &status);
        reap(s);
        buf_free(&s->request);
        buf_free(&s->reply);
        vec_free(s->unreaped.at);
    }
    guard_close(&c->guard);
    loud(&q);
    buf_free(&c->hello);
    scorer_files_close(c->files);
    Mem mem = c->mem;
    mem_free(&mem);
}
