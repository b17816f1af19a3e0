/* numa.c - lists of cores out of sysfs, and two calls of the kernel's. */
#include "base/numa.h"
#include "base/file.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES = 1024, PREFERRED = 1, DEFAULT = 0 }; /* of linux/mempolicy.h, whose package need not be there */

struct NumaWas {
    cpu_set_t cores;
};

/* A file's text, of some bytes. */
static bool says(Buf *out, const char *sysfs, const char *format, const char *name, int number) {
    char rest[160], path[4096];
    Err err;
    snprintf(rest, sizeof rest, format, name, number);
    snprintf(path, sizeof path, "%.3900s/%s", sysfs, rest);
    return file_read(out, path, &err) && out->n;
}
static int number_in(const char *sysfs, const char *format, const char *name, int number) {
    Buf text = { 0 };
    char *end = NULL;
    long n = says(&text, sysfs, format, name, number) ? strtol(text.data, &end, 10) : -1;
    bool ok = end && end != text.data && n >= 0 && n < NODES * 64;
    buf_free(&text);
    return ok ? (int)n : -1;
}

/* "0-3,8,10-11" as a set; what is no such list ends it. */
static void list_in(cpu_set_t *set, const char *text) {
    CPU_ZERO(set);
    for (const char *s = text; isdigit((unsigned char)*s);) {
        char *end;
        long from = strtol(s, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        for (long i = from; i <= to && i < CPU_SETSIZE; i++) CPU_SET((int)i, set);
        if (*end != ',') break;
        s = end + 1;
    }
}
static bool cores_of(cpu_set_t *set, const char *sysfs, int node) {
    Buf text = { 0 };
    bool there = says(&text, sysfs, "devices/system/node/%s%d/cpulist", "node", node);
    if (there) list_in(set, text.data);
    buf_free(&text);
    return there && CPU_COUNT(set);
}

int numa_of(const char *sysfs, const char *pci) {
    char low[32];
    size_t n = strlen(pci);
    if (n >= sizeof low) return -1;
    for (size_t i = 0; i <= n; i++) low[i] = (char)tolower((unsigned char)pci[i]); /* the driver writes 0000:3B:00.0 */
    return number_in(sysfs, "bus/pci/devices/%s/numa_node", low, 0);
}

int numa_socket(const char *sysfs, int node) {
    cpu_set_t cores;
    if (!cores_of(&cores, sysfs, node)) return -1;
    int first = 0;
    while (!CPU_ISSET(first, &cores)) first++;
    return number_in(sysfs, "devices/system/cpu/%s%d/topology/physical_package_id", "cpu", first);
}

/* The cores of a node's socket; how many nodes there are in it. */
static int socket_cores(cpu_set_t *all, const char *sysfs, int node) {
    int socket = numa_socket(sysfs, node), nodes = 1;
    if (!cores_of(all, sysfs, node)) return 0;
    for (int i = 0; i < NODES && socket >= 0; i++) {
        cpu_set_t other;
        if (i == node || !cores_of(&other, sysfs, i) || numa_socket(sysfs, i) != socket) continue;
        CPU_OR(all, all, &other);
        nodes++;
    }
    return nodes;
}

NumaWas *numa_was(Mem *mem) {
    NumaWas *was = MEM_NEW(mem, NumaWas);
    return sched_getaffinity(0, sizeof was->cores, &was->cores) ? NULL : was;
}
void numa_back(const NumaWas *was) {
    sched_setaffinity(0, sizeof was->cores, &was->cores);
    syscall(SYS_set_mempolicy, DEFAULT, NULL, 0);
}

bool numa_bind(NumaBound *out, const char *sysfs, int node, Err *err) {
    cpu_set_t may, near;
    *out = (NumaBound){ .node = node };
    if (sched_getaffinity(0, sizeof may, &may)) return err_set(err, "sched_getaffinity: %s", strerror(errno));
    int nodes = node >= 0 && node < NODES ? socket_cores(&near, sysfs, node) : 0;
    if (!nodes) return err_set(err, "the system names no cores of node %d", node);
    out->of = CPU_COUNT(&may);
    CPU_AND(&near, &near, &may);
    out->cores = CPU_COUNT(&near);
    if (!out->cores)
        return err_set(err, "the launcher bound it to %d cores, none of which is near node %d", out->of, node);
    if (sched_setaffinity(0, sizeof near, &near)) return err_set(err, "sched_setaffinity: %s", strerror(errno));
    unsigned long mask[NODES / (8 * sizeof(unsigned long))] = { 0 };
    mask[(size_t)node / (8 * sizeof *mask)] |= 1UL << ((size_t)node % (8 * sizeof *mask));
    /* Preferred, not bound: where the node is full the other's memory is better than none.  Containers may forbid it;
     * several nodes are shared by who touches first. */
    out->memory = nodes == 1 && !syscall(SYS_set_mempolicy, PREFERRED, mask, (unsigned long)NODES + 1);
    return true;
}
