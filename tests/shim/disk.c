/* disk.c - a file system that is slow, and counted: preloaded, all processes together read and write files of
 * checkpoints (paths with "/checkpoints") at DISK_RATE bytes a second, one after the other as they come.  DISK_CLOCK is
 * a file of 8 bytes that they share: when the disk is free again.  At its end a process adds a line to
 * DISK_COUNT-RANK: bytes read, bytes written, calls that a metadata server would get. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FDS = 4096 };
static atomic_char ours[FDS];
static _Atomic int64_t *free_at; /* nanoseconds of the monotonic clock */
static double rate;
static atomic_llong got, put, calls;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void take(size_t n) {
    if (!free_at || rate <= 0) return;
    int64_t from, until, was = atomic_load(free_at);
    do {
        from = was > now() ? was : now();
        until = from + (int64_t)((double)n / rate * 1e9);
    } while (!atomic_compare_exchange_weak(free_at, &was, until));
    struct timespec at = { until / 1000000000LL, until % 1000000000LL };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) {}
}

static bool is_ours(const char *path) {
    if (!path || !strstr(path, "/checkpoints")) return false;
    atomic_fetch_add(&calls, 1);
    return true;
}
static int note(const char *path, int fd) {
    bool is = is_ours(path);
    if (fd >= 0 && fd < FDS) ours[fd] = is && strstr(path, ".safetensors");
    return fd;
}
static bool slow(int fd) { return fd >= 0 && fd < FDS && ours[fd]; }

#define NEXT(name, ...) ((__extension__(__typeof__(&name)) dlsym(RTLD_NEXT, #name))(__VA_ARGS__))
int open(const char *path, int flags, ...) {
    va_list a;
    va_start(a, flags);
    int mode = va_arg(a, int);
    va_end(a);
    return note(path, NEXT(open, path, flags, mode));
}
int open64(const char *path, int flags, ...) {
    va_list a;
    va_start(a, flags);
    int mode = va_arg(a, int);
    va_end(a);
    return note(path, NEXT(open64, path, flags, mode));
}
FILE *fopen(const char *path, const char *how) { return is_ours(path), NEXT(fopen, path, how); }
int access(const char *path, int how) { return is_ours(path), NEXT(access, path, how); }
int stat(const char *path, struct stat *s) { return is_ours(path), NEXT(stat, path, s); }
int lstat(const char *path, struct stat *s) { return is_ours(path), NEXT(lstat, path, s); }
int rename(const char *a, const char *b) { return is_ours(a), NEXT(rename, a, b); }
int unlink(const char *path) { return is_ours(path), NEXT(unlink, path); }
int mkdir(const char *path, mode_t mode) { return is_ours(path), NEXT(mkdir, path, mode); }

ssize_t pread(int fd, void *to, size_t n, off_t at) {
    if (slow(fd)) take(n), atomic_fetch_add(&got, (long long)n);
    return NEXT(pread, fd, to, n, at);
}
ssize_t read(int fd, void *to, size_t n) {
    if (slow(fd)) take(n), atomic_fetch_add(&got, (long long)n);
    return NEXT(read, fd, to, n);
}
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    if (slow(fd)) take(n), atomic_fetch_add(&put, (long long)n);
    return NEXT(pwrite, fd, from, n, at);
}
ssize_t write(int fd, const void *from, size_t n) {
    if (slow(fd)) take(n), atomic_fetch_add(&put, (long long)n);
    return NEXT(write, fd, from, n);
}

__attribute__((constructor)) static void begin(void) {
    const char *r = getenv("DISK_RATE"), *clock = getenv("DISK_CLOCK");
    int fd = clock ? NEXT(open, clock, O_RDWR | O_CREAT, 0644) : -1;
    rate = r ? atof(r) : 0;
    if (fd < 0 || ftruncate(fd, 8)) return;
    void *at = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) free_at = at;
    close(fd);
}
__attribute__((destructor)) static void end(void) {
    const char *to = getenv("DISK_COUNT"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    char path[4096];
    if (!to || (!got && !put)) return;
    snprintf(path, sizeof path, "%s-%s", to, rank ? rank : "0");
    FILE *f = NEXT(fopen, path, "a");
    if (f) fprintf(f, "%lld %lld %lld\n", (long long)got, (long long)put, (long long)calls), fclose(f);
}
