/* alert_call.c - what the rules ask of the machine, and the user's command that is told of an alert. */
#include "run/alerts.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static double meminfo(const char *text, const char *name) {
    const char *at = strstr(text, name);
    double kb;
    return at && sscanf(at + strlen(name), ": %lf", &kb) == 1 ? 1024 * kb : NAN;
}

static double memory_share(void) {
    char text[2048];
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return NAN;
    text[n] = 0;
    return 1 - meminfo(text, "MemAvailable") / meminfo(text, "MemTotal");
}

AlertHost alert_host(const char *run_dir, int64_t checkpoint) {
    AlertHost h = { NAN, checkpoint > 0 ? (double)checkpoint : NAN, memory_share() };
    struct statvfs s;
    if (!statvfs(run_dir, &s)) h.disk_free = (double)s.f_bavail * (double)s.f_frsize;
    return h;
}

void alert_reap(AlertCommands *c) {
    for (int i = 0; i < ALERT_COMMANDS; i++)
        if (c->pid[i] > 0 && waitpid(c->pid[i], NULL, WNOHANG) != 0) c->pid[i] = 0;
}

/* The line fits a pipe's room, so writing it waits for nobody. */
bool alert_call(AlertCommands *c, const char *line, const char *json, size_t n) {
    int i = 0, in[2];
    alert_reap(c);
    while (i < ALERT_COMMANDS && c->pid[i] > 0) i++;
    if (i == ALERT_COMMANDS || pipe2(in, O_CLOEXEC)) return false;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_init(&attr);
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE); /* this program ignores it, and that would be inherited */
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &usual);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char *argv[] = { "sh", "-c", (char *)(uintptr_t)line, NULL };
    pid_t pid;
    bool ok = !posix_spawn(&pid, "/bin/sh", &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (ok) c->pid[i] = pid;
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    ok = ok && write(in[1], json, n) == (ssize_t)n;
    close(in[0]), close(in[1]);
    return ok;
}
