/* external_guard.c - starting shells, and the one that ends them all: see external_guard.h. */
#include "task/external_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* argv in a group of its own, with pipes for standard input and, unless 'from' is NULL, output. */
static bool spawn(pid_t *pid, int *to, int *from, char *const argv[]) {
    int in[2], out[2] = { -1, -1 };
    if (pipe2(in, O_CLOEXEC)) return false;
    if (from && pipe2(out, O_CLOEXEC)) return close(in[0]), close(in[1]), false;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], 0);
    if (from) posix_spawn_file_actions_adddup2(&files, out[1], 1);
    else { /* whoever waits for the end of this program's output does not wait for the guard */
        posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&files, 1, 2);
    }
    posix_spawn_file_actions_addclosefrom_np(&files, 3); /* nothing of a training run is a scorer's business */
    posix_spawnattr_init(&attr);
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE); /* this program ignores it, and that would be inherited */
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &usual);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn(pid, "/bin/sh", &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    close(in[0]);
    if (from) close(out[1]);
    *to = in[1];
    if (from) *from = out[0];
    if (!rc) return true;
    *pid = 0;
    close(*to);
    if (from) close(*from);
    errno = rc;
    return false;
}

bool shell_start(pid_t *pid, int *to, int *from, const char *line) {
    char *argv[] = { "sh", "-c", "read -r go && exec /bin/sh -c \"$1\"", "sh", (char *)line, NULL };
    if (!spawn(pid, to, from, argv)) return false;
    fcntl(*to, F_SETFL, O_NONBLOCK);
    fcntl(*from, F_SETFL, O_NONBLOCK);
    return true;
}

void shell_go(int to) { /* one byte into an empty pipe; whoever died meanwhile is found out by what is asked next */
    ssize_t n = write(to, "\n", 1);
    (void)n;
}

bool guard_open(Guard *g, int slots) {
    char n[16];
    snprintf(n, sizeof n, "%d", slots);
    /* A variable for each slot: p0, p1, ... */
    char *argv[] = { "sh",
                     "-c",
                     "while read -r i p; do eval \"p$i=$p\"; done; i=0; while [ $i -lt $1 ]; do eval \"p=\\${p$i:-0}\";"
                     " [ $p = 0 ] || kill -s KILL -- -$p; i=$((i + 1)); done",
                     "sh",
                     n,
                     NULL };
    *g = (Guard){ .to = -1 };
    return spawn(&g->pid, &g->to, NULL, argv);
}

void guard_tell(const Guard *g, int slot, pid_t group) {
    if (g->to < 0) return;
    char line[48];
    int n = snprintf(line, sizeof line, "%d %d\n", slot, (int)group); /* short: whole, whoever else writes */
    ssize_t done = write(g->to, line, (size_t)n);                     /* a guard that somebody killed guards no more */
    (void)done;
}

void guard_close(Guard *g) {
    if (g->to < 0) return;
    kill(-g->pid, SIGKILL);
    close(g->to);
    waitpid(g->pid, NULL, 0);
    *g = (Guard){ .to = -1 };
}
