/* test_watch.c - ranks find the first one among strangers: connections that say nothing, half a greeting, another
 * program's words, or hang up.  The functions that meet are the file's own, so it is part of this one. */
#include "../../src/comm/watch.c"
#include "test.h"

enum { RANKS = 5, SILENT = 200 };

typedef struct {
    Watch w;
    Peer peer[RANKS];
    const Where *to;
    bool ok;
    Err err;
} Rank;

static void rank_open(Rank *r, int rank, const Where *at) {
    *r = (Rank){ .w = { .rank = rank, .size = RANKS, .token = at->token }, .to = at };
    r->w.peer = r->peer;
    for (int i = 0; i < RANKS; i++) r->peer[i].fd = -1;
}

static int stranger(const Where *to) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = to->port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&at, sizeof at), "no stranger: %d", errno);
    return fd;
}

static void *welcome(void *arg) {
    Rank *r = ((void **)arg)[0];
    r->ok = welcome_all(&r->w, *(int *)((void **)arg)[1], &r->err);
    return NULL;
}
static void *come(void *arg) {
    Rank *r = arg;
    r->ok = reach(&r->w, r->to, &r->err);
    return NULL;
}

int main(void) {
    Where at = { 0 }, loop;
    Rank rank[RANKS];
    int fd = listen_anywhere(&at), silent[SILENT];
    CHECK(fd >= 0 && at.n, "no port");
    loop = at;
    loop.n = 1, loop.at[0] = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < RANKS; i++) rank_open(&rank[i], i, &loop);
    pthread_t first, other[RANKS];
    void *arg[] = { &rank[0], &fd };
    CHECK(!pthread_create(&first, NULL, welcome, arg), "no thread");

    Frame wrong = { .token = at.token + 1, .kind = HELLO, .rank = 1 },
          far = { .token = at.token, .kind = HELLO, .rank = RANKS };
    for (int i = 0; i < SILENT; i++) {
        silent[i] = stranger(&at);
        if (i % 5 == 1) send_frame(silent[i], &wrong);
        if (i % 5 == 2) send(silent[i], &far, 100, MSG_NOSIGNAL);
        if (i % 5 == 3) send(silent[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
        if (i % 5 == 4) send_frame(silent[i], &far);
        if (i % 9 == 0) close(silent[i]), silent[i] = -1;
        if (i == SILENT - 20)
            for (int r = 1; r < RANKS; r++) CHECK(!pthread_create(&other[r], NULL, come, &rank[r]), "no thread");
    }
    for (int r = 1; r < RANKS; r++) pthread_join(other[r], NULL);
    pthread_join(first, NULL);
    EXPECT(rank[0].ok, "%s", rank[0].err.msg);
    for (int r = 1; r < RANKS; r++) {
        EXPECT(rank[r].ok, "rank %d: %s", r, rank[r].err.msg);
        EXPECT(rank[0].peer[r].fd >= 0, "rank %d was not welcomed", r);
    }
    close(fd);    /* as meet does: those who were not let in are cut off */
    int open = 0; /* nobody else is kept: a stranger reads the end, or that it was cut off */
    for (int i = 0; i < SILENT; i++) {
        char c;
        if (silent[i] < 0) continue;
        ssize_t n = recv(silent[i], &c, 1, 0);
        open += n > 0;
        close(silent[i]);
    }
    EXPECT(!open, "%d strangers were answered", open);

    EXPECT(!reach(&rank[1].w, &(Where){ .n = 0 }, &rank[1].err) && strstr(rank[1].err.msg, "no address"), "%s",
           rank[1].err.msg);
    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < RANKS; k++)
            if (rank[i].peer[k].fd >= 0) close(rank[i].peer[k].fd);
    return test_end();
}
