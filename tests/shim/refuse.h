/* refuse.h - which calls for memory are refused, as the environment says; see failing.c. */
#ifndef TESTS_SHIM_REFUSE_H
#define TESTS_SHIM_REFUSE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool armed;
static atomic_long calls;
static long at, from;
static const char *count_to;

static int refused(void) {
    if (!atomic_load(&armed)) return 0;
    long k = atomic_fetch_add(&calls, 1) + 1;
    return (at && k == at) || (from && k >= from);
}

static void tell(void) {
    long n = atomic_load(&calls);
    char text[32];
    atomic_store(&armed, 0);
    int fd = open(count_to, O_WRONLY | O_CREAT | O_TRUNC, 0644), len = snprintf(text, sizeof text, "%ld\n", n);
    if (fd < 0 || write(fd, text, (size_t)len) != len) perror(count_to);
}

static void arm(void) {
    const char *a = getenv("SHIM_AT"), *f = getenv("SHIM_FROM");
    at = a ? atol(a) : 0, from = f ? atol(f) : 0;
    count_to = getenv("SHIM_COUNT");
    if (count_to) atexit(tell);
    atomic_store(&armed, 1);
}

#endif
