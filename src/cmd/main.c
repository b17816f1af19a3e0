/* main.c - `hone VERB ...`: finds the verb and runs it. */
#include "base/file.h"
#include "cmd/groups.h"
#include "comm/world.h"
#include "run/version.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char hone_commit[] =
#include "commit.inc"
    ;

/* What a verb printed may not have arrived: a full disk is said, a reader that went away is not. */
static int flushed(const char *verb, int rc) {
    struct pollfd out = { .fd = STDOUT_FILENO };
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout)) return rc;
    bool gone =
        errno == EPIPE || (!errno && poll(&out, 1, 0) > 0 && (out.revents & POLLERR)); /* errno: it failed just now */
    if (!gone)
        fprintf(stderr, "hone %s: standard output: cannot write: %s\n", verb,
                errno ? strerror(errno) : "a part is missing");
    return rc ? rc : 1;
}

/* Of the processes that a launcher started, one speaks.  (Before MPI is there: what is wrong
 * with a command line is said once.) */
static Launch one_voice(void) {
    Launch l = world_launch();
    if (l.size < 2) return l;
    die_among(l.rank, NULL);
    if (!speaks() && !freopen("/dev/null", "w", stdout)) die("/dev/null cannot be written");
    static char room[1 << 16]; /* whole lines: a launcher puts what others say between two writes */
    setvbuf(stdout, room, _IOLBF, sizeof room);
    return l;
}

static int run(const Launch *launch, int argc, char **argv) {
    if (argc < 2) {
        if (speaks()) fputs("hone: a verb is missing: hone VERB [options]; `hone --help` lists them\n", stderr);
        return 2;
    }
    bool help_of = !strcmp(argv[1], "help") && argc > 2; /* `hone help VERB` */
    if (help_of) argv[1] = argv[2], argv[2] = "--help", argc = 3;
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return verbs_help(), flushed("--help", 0);
    if (!strcmp(argv[1], "--version")) return puts("hone " HONE_VERSION), flushed("--version", 0);
    const Verb *v = verb_find(argv[1]);
    if (v && launch->size > 1 && !v->ranks)
        return cmd_usage(v, "is one process's work, and %s started %d: start it alone", launch->by, launch->size);
    if (v) return flushed(v->name, v->run(v, argc - 2, argv + 2));
    const char *near = verb_nearest(argv[1]);
    if (speaks() && near) fprintf(stderr, "hone: there is no verb '%s'; the nearest is %s\n", argv[1], near);
    else if (speaks()) fprintf(stderr, "hone: there is no verb '%s'; `hone --help` lists them\n", argv[1]);
    return 2;
}

/* A file that is opened must not become the standard stream that was closed, and take what is printed. */
static void streams_open(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd) _exit(1);
}

int main(int argc, char **argv) {
    streams_open();
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away is an error code, not a death */
    signal(SIGXFSZ, SIG_IGN); /* likewise a file that may not grow */
    file_map_guard();
    Launch launch = one_voice();
    int rc = run(&launch, argc, argv);
    /* mpirun ends all when one fails: the one that speaks must not be ended before it has spoken */
    return speaks() || !world_tried() ? rc : 0;
}
