/* watch.c - who is alive: beats between ranks beside their work.
 * Frames have one size, and a sender never waits: a beat that finds no room is not missed. */
#include "comm/watch.h"
#include "base/clock.h"
#include "base/last_words.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    WORDS = 228,
    MOST_ADDRESSES = 16,
    REACH_MS = 2000,
    GATHER_S = 60,
    GUESTS = 64,
    AT_ONCE = 16,
    GOODBYE_S = 2,
    LINGER_MS = 500
};
typedef enum { HELLO = 1, BEAT, BYE, END } Kind;
typedef struct {
    uint64_t token; /* of this run: a stranger has another */
    uint32_t kind;
    int32_t rank;
    float idle, waits; /* seconds without having done anything; in one wait, negative: in none */
    char text[WORDS];
    int32_t logged; /* of an end: the reason is in the run's log */
} Frame;
_Static_assert(sizeof(Frame) == 256, "one size");

/* Another rank as this one's thread sees it. */
typedef struct {
    int fd;
    bool left;    /* said farewell */
    double heard; /* when its last frame came, by this thread's clock */
    float idle, waits;
    char text[WORDS];
    size_t have; /* bytes of a frame that is not whole yet */
    Frame in;
} Peer;

struct Watch {
    Mem mem;
    int rank, size;
    double wait, every;
    uint64_t token;
    Peer *peer; /* the first rank: [size], itself unused; others: [1], the first rank */
    int peers, first;
    struct pollfd *poll;
    pthread_t thread;
    int wake[2];
    bool begun;
    atomic_bool closing, ending;

    pthread_mutex_t lock; /* of the lines to peers, and of what follows, which the main thread writes */
    const char *phase;
    char what[WORDS]; /* of the wait; "": none */
    double since;     /* the wait's begin */
    uint64_t moves;   /* counts phases and waits */

    const char *about; /* the main thread's own */
    int about_index;
    double waited;

    uint64_t moves_seen; /* the watching thread's own */
    double cpu_seen, moved;
    double clock; /* seconds that it has watched */
};

/* ---- the main thread's side */
static void send_frame(int fd, const Frame *f) {
    if (fd < 0) return;
    ssize_t ignore = send(fd, f, sizeof *f, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignore;
}

/* This rank now; idle: the caller knows. */
static Frame frame_of(Watch *w, Kind kind, double idle) {
    Frame f = { .token = w->token, .kind = kind, .rank = w->rank, .idle = (float)idle, .waits = -1 };
    pthread_mutex_lock(&w->lock);
    if (w->what[0]) f.waits = (float)(clock_now() - w->since);
    snprintf(f.text, sizeof f.text, "%s%s%s", w->phase, w->what[0] ? ", waiting for " : "", w->what);
    pthread_mutex_unlock(&w->lock);
    return f;
}

/* To all that this rank has a line to, or to the first of them.  A line that ends is taken
 * away under the same lock: its number may be given to another file at once. */
static void tell_some(Watch *w, const Frame *f, bool all) {
    pthread_mutex_lock(&w->lock);
    for (int i = w->first; i < (all ? w->peers : w->first + 1); i++)
        if (!w->peer[i].left) send_frame(w->peer[i].fd, f);
    pthread_mutex_unlock(&w->lock);
}
static void tell(Watch *w, Frame f) { tell_some(w, &f, true); }

void watch_phase(Watch *w, const char *name) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    bool same = !strcmp(w->phase, name);
    w->phase = name, w->moves++;
    pthread_mutex_unlock(&w->lock);
    w->about = NULL;
    if (same || !w->begun) return;
    Frame f = frame_of(w, BEAT, 0); /* who dies now died in this phase: whoever would have to say it knows */
    tell_some(w, &f, false);
    char short_name[16];
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(w->thread, short_name);
}

const char *watch_phase_name(const Watch *w) { return w ? w->phase : "starting"; }

void watch_about(Watch *w, const char *tensor, int index) {
    if (w) w->about = tensor, w->about_index = index;
}

void watch_about_now(const Watch *w, const char **tensor, int *index) {
    if (w && w->about) *tensor = w->about, *index = w->about_index;
}

void watch_put_about(const Watch *w, char *text, size_t room) {
    size_t n = strlen(text);
    if (!w || !w->about) return;
    if (w->about_index < 0) snprintf(text + n, room - n, ", %s", w->about);
    else snprintf(text + n, room - n, ", %s %d", w->about, w->about_index);
}

void watch_waits(Watch *w, const char *what) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    snprintf(w->what, sizeof w->what, "%s", what ? what : "");
    w->since = clock_now(), w->moves++;
    pthread_mutex_unlock(&w->lock);
}

void watch_moved(Watch *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->moves++;
    pthread_mutex_unlock(&w->lock);
}

double watch_waited(const Watch *w) { return w ? w->waited : 0; }
void watch_add_waited(Watch *w, double seconds) {
    if (w) w->waited += seconds;
}

void watch_end(Watch *w, const char *why) {
    if (!w || !w->begun || atomic_exchange(&w->ending, true)) return;
    Frame f = { .token = w->token, .kind = END, .rank = w->rank, .logged = last_words_logged() };
    snprintf(f.text, sizeof f.text, "%s", why);
    tell(w, f);
    if (!f.logged) poll(NULL, 0, 200); /* the first rank does it, if it is not ended before */
}

/* ---- verdicts, by the watching thread */
/* Another rank is at its end and has said why.  The launcher ends everybody, the stopped too;
 * where it does not, this does. */
static void others_end(Watch *w, const Frame *why) {
    if (atomic_exchange(&w->ending, true)) return; /* so is this one */
    char line[WORDS + 32];
    snprintf(line, sizeof line, "rank %d: %.*s", why->rank, WORDS, why->text);
    if (w->rank == 0 && !why->logged) last_words_log(line);
    tell(w, *why);
    poll(NULL, 0, 2000);
    _exit(1);
}

#define VERDICT(w, ...)                                                                                                \
    do {                                                                                                               \
        if (atomic_load(&(w)->ending)) return;                                                                         \
        die_outside(__VA_ARGS__);                                                                                      \
    } while (0)

/* Of the first rank all others see it: the second speaks, the next ones if that is gone too. */
static void wait_turn(const Watch *w) { poll(NULL, 0, w->rank < 2 ? 0 : w->rank == 2 ? 4000 : 7000); }

static void is_gone(Watch *w, int rank, const Peer *p) {
    wait_turn(w);
    VERDICT(w,
            "rank %d is gone without a word, as after a kill or for want of memory; it was in %s. What was saved is "
            "whole: the same command goes on",
            rank, p->text);
}

static void judge(Watch *w, double now) {
    const Peer *late = NULL, *stalls = NULL;
    double most = 0;
    int in_time = 0, mute = -1;
    for (int r = 0; r < w->size; r++) {
        const Peer *p = &w->peer[r];
        if (p->left) continue;
        if (now - p->heard > w->wait) {
            if (mute < 0 || p->heard < w->peer[mute].heard) mute = r;
        } else if (p->waits > w->wait) {
            if (!late || p->waits > late->waits) late = p;
        } else if (p->waits < 0 && p->idle > w->wait) {
            if (p->idle > most) stalls = p, most = p->idle;
        } else in_time++;
    }
    if (mute >= 0)
        VERDICT(w,
                "rank %d has given no sign of life for %.0f s (trainer.wait_seconds), as if stopped; it was in %s%s%s",
                mute, now - w->peer[mute].heard, w->peer[mute].text, late ? ". Another is in " : "",
                late ? late->text : "");
    if (!late || (!stalls && in_time)) return;
    int l = (int)(late - w->peer);
    if (stalls)
        VERDICT(w, "rank %d has done nothing for %.0f s (trainer.wait_seconds), in %s. Rank %d is in %s",
                (int)(stalls - w->peer), most, stalls->text, l, late->text);
    VERDICT(w,
            "all ranks have waited for more than %.0f s (trainer.wait_seconds) for each other; rank %d is in %s, rank "
            "%d in %s",
            w->wait, l, late->text, l ? 0 : 1, w->peer[l ? 0 : 1].text);
}

/* ---- the watching thread */
static void leaves(Watch *w, Peer *p) {
    pthread_mutex_lock(&w->lock);
    p->left = true;
    pthread_mutex_unlock(&w->lock);
}

static void hear(Watch *w, int i, const Frame *f) {
    Peer *p = &w->peer[i];
    if (f->token != w->token) return;
    p->heard = w->clock, p->idle = f->idle, p->waits = f->waits;
    if (f->kind == END) others_end(w, f);
    else if (f->kind == BYE) leaves(w, p);
    else memcpy(p->text, f->text, sizeof p->text), p->text[WORDS - 1] = 0;
}

static void receive(Watch *w, int i) {
    Peer *p = &w->peer[i];
    for (;;) {
        ssize_t n = recv(p->fd, (char *)&p->in + p->have, sizeof p->in - p->have, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) break;
        if ((p->have += (size_t)n) < sizeof p->in) continue;
        p->have = 0;
        hear(w, i, &p->in);
    }
    pthread_mutex_lock(&w->lock);
    close(p->fd);
    p->fd = -1;
    if (atomic_load(&w->closing)) p->left = true;
    pthread_mutex_unlock(&w->lock);
    if (!p->left) is_gone(w, i, p);
}

static bool all_left(const Watch *w) {
    for (int i = w->first; i < w->peers; i++)
        if (!w->peer[i].left) return false;
    return true;
}

/* Seconds since this rank last did something: another wait or phase, or, not waiting, a
 * millisecond of the processor's. */
static double idle_here(Watch *w, double now) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    double cpu = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - clock_thread();
    pthread_mutex_lock(&w->lock);
    bool waits = w->what[0], other = w->moves != w->moves_seen;
    w->moves_seen = w->moves;
    pthread_mutex_unlock(&w->lock);
    if (other || (!waits && cpu - w->cpu_seen > 1e-3)) w->moved = now;
    if (waits || w->moved == now) w->cpu_seen = cpu;
    return now - w->moved;
}

static void beat(Watch *w, double now) {
    Frame f = frame_of(w, BEAT, idle_here(w, now));
    tell(w, f);
    if (w->rank == 0) hear(w, 0, &f);
    if (w->wait <= 0) return;
    if (w->rank == 0) judge(w, now);
    else if (!w->peer[0].left && now - w->peer[0].heard > w->wait) {
        wait_turn(w);
        VERDICT(w, "rank 0 has given no sign of life for %.0f s (trainer.wait_seconds); it was in %s",
                now - w->peer[0].heard, w->peer[0].text);
    }
}

static void *look(void *arg) {
    Watch *w = arg;
    double last = clock_now(), next = last, end = 0;
    for (;;) {
        double now = clock_now(), away = now - last;
        w->clock += away < 2 * w->every ? away : 2 * w->every; /* longer: it was this process that stood still */
        last = now;
        if (atomic_load(&w->closing)) { /* all say farewell before one hangs up: else what was said
                                 * could be lost with the line */
            if (!end) end = now + GOODBYE_S;
            if (all_left(w) || now > end) return NULL;
        } else if (now >= next) beat(w, w->clock), next = now + w->every;
        int n = 0;
        w->poll[n++] = (struct pollfd){ .fd = end ? -1 : w->wake[0], .events = POLLIN };
        for (int i = w->first; i < w->peers; i++)
            w->poll[n++] = (struct pollfd){ .fd = w->peer[i].fd, .events = POLLIN };
        poll(w->poll, (nfds_t)n, end ? 100 : (int)(1000 * (next - now)) + 1);
        for (int i = w->first; i < w->peers; i++)
            if (w->poll[1 + i - w->first].revents) receive(w, i);
    }
}

/* ---- finding each other */
typedef struct {
    uint64_t token;
    uint16_t port;
    int32_t n; /* of addresses, loopback last; 0: there is none */
    uint32_t at[MOST_ADDRESSES];
} Where;

static void find_addresses(Where *at) {
    struct ifaddrs *all = NULL, *i;
    if (getifaddrs(&all)) return;
    for (int loop = 0; loop < 2; loop++)
        for (i = all; i; i = i->ifa_next) {
            bool is_loop = i->ifa_flags & IFF_LOOPBACK;
            if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) || is_loop != loop)
                continue;
            struct sockaddr_in in;
            memcpy(&in, i->ifa_addr, sizeof in);
            if (at->n < MOST_ADDRESSES) at->at[at->n++] = in.sin_addr.s_addr;
        }
    freeifaddrs(all);
}

static int listen_anywhere(Where *at) {
    struct sockaddr_in any = { .sin_family = AF_INET };
    socklen_t n = sizeof any;
    struct rlimit files; /* a connection for each rank */
    if (!getrlimit(RLIMIT_NOFILE, &files)) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&any, sizeof any) && !listen(fd, SOMAXCONN)
        && !getsockname(fd, (struct sockaddr *)&any, &n)) {
        at->port = any.sin_port;
        if (getrandom(&at->token, sizeof at->token, 0) == sizeof at->token) find_addresses(at);
    }
    return fd;
}

/* A whole frame within the time that a stranger is given. */
static bool frame_in(int fd, Frame *f) {
    size_t have = 0;
    for (double end = clock_now() + REACH_MS / 1e3; have < sizeof *f;) {
        int ms = (int)(1e3 * (end - clock_now()));
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (ms <= 0 || poll(&p, 1, ms) <= 0) return false;
        ssize_t n = recv(fd, (char *)f + have, sizeof *f - have, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (n > 0) have += (size_t)n;
    }
    return true;
}

static Frame hello(const Watch *w) {
    return (Frame){ .token = w->token, .kind = HELLO, .rank = w->rank, .waits = -1, .text = "starting" };
}

/* ---- who knocks while ranks gather: anybody who finds the port.  A rank speaks as soon as it is there, so many are
 * listened to at once; one that says something else is sent away at once, one that says nothing when its time is over
 * or when others want its place, the longest there first. */
typedef struct {
    int fd;
    double until;
    size_t have;
    Frame in;
} Guest;
typedef struct {
    Guest at[GUESTS]; /* in the order they came */
    int n;
} Door;

static void guest_leaves(Door *d, int i) {
    d->n--;
    memmove(&d->at[i], &d->at[i + 1], (size_t)(d->n - i) * sizeof d->at[0]);
}

typedef enum { SILENT_YET, STRANGER, A_RANK } Heard;
static Heard hear_guest(const Watch *w, Guest *g) {
    ssize_t n = recv(g->fd, (char *)&g->in + g->have, sizeof g->in - g->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return SILENT_YET;
    if (n <= 0) return STRANGER;
    g->have += (size_t)n;
    if (g->have >= sizeof g->in.token && g->in.token != w->token) return STRANGER;
    if (g->have < sizeof g->in) return SILENT_YET;
    int rank = g->in.rank;
    return g->in.kind == HELLO && rank > 0 && rank < w->size && w->peer[rank].fd < 0 ? A_RANK : STRANGER;
}

/* Returns how many ranks there are among those that have spoken. */
static int hear_guests(Watch *w, Door *d) {
    int received = 0;
    Frame mine = hello(w);
    for (int i = 0; i < d->n;) {
        Guest *g = &d->at[i];
        Heard h = hear_guest(w, g);
        if (h == SILENT_YET && clock_now() < g->until) {
            i++;
            continue;
        }
        if (h == A_RANK) send_frame(w->peer[g->in.rank].fd = g->fd, &mine), received++;
        else close(g->fd);
        guest_leaves(d, i);
    }
    return received;
}

/* A few at a time: who has come is heard before the next ones are let in. */
static void let_in(Door *d, int fd) {
    for (int k = 0; k < AT_ONCE; k++) {
        int in = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (in < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) poll(NULL, 0, 10); /* no file left, say */
            return;
        }
        if (d->n == GUESTS) close(d->at[0].fd), guest_leaves(d, 0);
        d->at[d->n++] = (Guest){ .fd = in, .until = clock_now() + REACH_MS / 1e3 };
    }
}

static bool welcome_all(Watch *w, int fd, Err *err) {
    Door d = { .n = 0 };
    struct pollfd p[GUESTS + 1];
    int come = 1;
    for (double end = clock_now() + GATHER_S, now; come < w->size && (now = clock_now()) < end;) {
        double next = d.n && d.at[0].until < end ? d.at[0].until : end;
        p[0] = (struct pollfd){ .fd = fd, .events = POLLIN };
        for (int i = 0; i < d.n; i++) p[1 + i] = (struct pollfd){ .fd = d.at[i].fd, .events = POLLIN };
        if (poll(p, (nfds_t)d.n + 1, next > now ? (int)(1e3 * (next - now)) + 1 : 0) < 0 && errno != EINTR) break;
        come += hear_guests(w, &d);
        let_in(&d, fd);
    }
    for (int i = 0; i < d.n; i++) close(d.at[i].fd);
    return come == w->size || err_set(err, "%d of %d ranks came to the first one's port", come, w->size);
}

static bool reach(Watch *w, const Where *to, Err *err) {
    err_set(err, "the first rank has no address");
    for (int i = 0; i < to->n; i++) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = to->port, .sin_addr.s_addr = to->at[i] };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        Frame f, mine = hello(w);
        if (fd >= 0 && (!connect(fd, (struct sockaddr *)&at, sizeof at) || errno == EINPROGRESS)
            && poll(&p, 1, REACH_MS) > 0) {
            send_frame(fd, &mine);
            if (frame_in(fd, &f) && f.token == w->token && f.kind == HELLO) return w->peer[0].fd = fd, true;
        }
        if (fd >= 0) close(fd);
        char name[INET_ADDRSTRLEN];
        err_set(err, "the first rank was not reached, last tried at %s port %d",
                inet_ntop(AF_INET, &at.sin_addr, name, sizeof name), ntohs(to->port));
    }
    return false;
}

static bool meet(Watch *w, const Comm *all, Err *err) {
    Where at = { 0 };
    int fd = -1;
    if (w->rank == 0) fd = listen_anywhere(&at);
    comm_broadcast(all, 0, &at, sizeof at);
    w->token = at.token;
    bool ok = w->rank == 0 ? at.n && welcome_all(w, fd, err) : reach(w, &at, err);
    if (fd >= 0) close(fd);
    return comm_agree(all, ok, err);
}

/* A launcher ends everybody as soon as one rank has died, and may be quicker than the thread that would say which: that
 * thread, which takes no signals, has a moment for it.  Launchers wait a second or more before they kill. */
static void linger(int sig) {
    poll(NULL, 0, LINGER_MS);
    signal(sig, SIG_DFL);
    raise(sig);
}
static void linger_when_ended(void) {
    struct sigaction was, sa = { .sa_handler = linger };
    if (!sigaction(SIGTERM, NULL, &was) && was.sa_handler == SIG_DFL) sigaction(SIGTERM, &sa, NULL);
}

static bool start(Watch *w) {
    sigset_t none, was; /* signals are for the main thread */
    sigfillset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &was);
    bool ok = !pthread_create(&w->thread, NULL, look, w);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (ok) pthread_setname_np(w->thread, w->phase);
    return ok;
}

Watch *watch_open(const Comm *all) {
    Mem mem = { 0 };
    Err err;
    Watch *w = MEM_NEW(&mem, Watch);
    bool first = all->rank == 0;
    w->rank = all->rank, w->size = all->size, w->wait = all->wait;
    w->every = w->wait > 0 && w->wait < 5 ? w->wait / 5 : 1;
    w->phase = "starting";
    w->first = first, w->peers = first ? w->size : 1;
    w->peer = MEM_ARRAY(&mem, Peer, (size_t)w->peers);
    w->poll = MEM_ARRAY(&mem, struct pollfd, (size_t)w->peers + 1);
    w->mem = mem;
    for (int i = 0; i < w->peers; i++) w->peer[i] = (Peer){ .fd = -1, .waits = -1, .text = "starting" };
    pthread_mutex_init(&w->lock, NULL);
    bool ok = meet(w, all, &err), own = ok && !pipe2(w->wake, O_CLOEXEC) && start(w);
    w->begun = own;
    if (ok && !own) err_set(&err, "the watch's thread could not be started");
    if (own) linger_when_ended();
    if (comm_agree(all, own, &err)) return w;
    if (first)
        fprintf(stderr,
                "hone: %s: the death of a rank will be noticed by the launcher, or when its deadline has passed\n",
                err.msg);
    watch_close(w);
    return NULL;
}

bool watch_begun(const Watch *w) { return w && w->begun; }

void watch_close(Watch *w) {
    if (!w) return;
    if (w->begun) {
        atomic_store(&w->closing, true);
        tell(w, frame_of(w, BYE, 0));
        ssize_t ignore = write(w->wake[1], "", 1);
        (void)ignore;
        pthread_join(w->thread, NULL);
        close(w->wake[0]), close(w->wake[1]);
    }
    for (int i = 0; i < w->peers; i++)
        if (w->peer[i].fd >= 0) close(w->peer[i].fd);
    pthread_mutex_destroy(&w->lock);
    Mem mem = w->mem;
    mem_free(&mem);
}
