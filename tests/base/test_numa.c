/* test_numa.c - a machine of two sockets as sysfs would show it, made of files: where devices hang, which cores are
 * near, and that a thread and those it starts are bound to them.  The cores that are bound to are this machine's. */
#include "base/numa.h"
#include "base/file.h"
#include "base/threads.h"
#include "test.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static void put(const char *path, const char *text) {
    char at[512];
    Err err;
    snprintf(at, sizeof at, "%s/%s", root, path);
    for (char *s = at + strlen(root) + 1; (s = strchr(s, '/')); *s++ = '/') *s = 0, mkdir(at, 0777);
    CHECK(file_write(at, text, strlen(text), &err), "%s", err.msg);
}

/* The k-th core that this process may use. */
static int own_core(const cpu_set_t *may, int k) {
    int i = 0;
    for (;; i++)
        if (CPU_ISSET(i, may) && !k--) return i;
}
static void put_number(const char *format, int a, int b) {
    char path[200], text[32];
    snprintf(path, sizeof path, format, a);
    snprintf(text, sizeof text, "%d\n", b);
    put(path, text);
}

static void count_cores(void *arg, int index, int worker) {
    (void)worker;
    ((int *)arg)[index] = threads_default();
}

int main(void) {
    cpu_set_t may, now;
    Mem mem = { 0 };
    Err err;
    NumaBound b;
    snprintf(root, sizeof root, "%s", "/tmp/test_numa.XXXXXX");
    CHECK(mkdtemp(root) && !sched_getaffinity(0, sizeof may, &may), "%s", root);
    int mine = CPU_COUNT(&may), first = own_core(&may, 0), last = own_core(&may, mine - 1);

    /* two sockets: nodes 0 and 1 are one core each of the first, node 2 is of the second, whose core nobody has here */
    put("bus/pci/devices/0000:3b:00.0/numa_node", "0\n");
    put("bus/pci/devices/0000:86:00.0/numa_node", "2\n");
    put("bus/pci/devices/0000:af:00.0/numa_node", "-1\n");
    put("bus/pci/devices/0000:d8:00.0/numa_node", "much\n");
    put("bus/pci/devices/0000:d9:00.0/numa_node", "");
    put_number("devices/system/node/node%d/cpulist", 0, first);
    put_number("devices/system/node/node%d/cpulist", 1, last);
    put("devices/system/node/node2/cpulist", "1000-1003,1010\n");
    put("devices/system/node/node3/cpulist", "\n");
    put_number("devices/system/cpu/cpu%d/topology/physical_package_id", first, 0);
    put_number("devices/system/cpu/cpu%d/topology/physical_package_id", last, 0);
    put_number("devices/system/cpu/cpu%d/topology/physical_package_id", 1000, 1);
    EXPECT(numa_of(root, "0000:3B:00.0") == 0 && numa_of(root, "0000:86:00.0") == 2, "nodes %d and %d",
           numa_of(root, "0000:3B:00.0"), numa_of(root, "0000:86:00.0"));
    static const char *const unknown[] = { "0000:af:00.0",
                                           "0000:d8:00.0",
                                           "0000:d9:00.0",
                                           "0000:00:00.0",
                                           "",
                                           "../../../../../../../../../../../../../etc/passwd" };
    for (size_t i = 0; i < COUNT(unknown); i++)
        EXPECT(numa_of(root, unknown[i]) == -1, "'%s' is at node %d", unknown[i], numa_of(root, unknown[i]));
    EXPECT(numa_socket(root, 0) == 0 && numa_socket(root, 1) == 0 && numa_socket(root, 2) == 1, "sockets%s", "");
    EXPECT(numa_socket(root, 3) == -1 && numa_socket(root, 4) == -1, "a node without cores has a socket%s", "");

    /* what cannot be bound changes nothing */
    static const struct {
        int node;
        const char *why;
    } refused[] = { { 2, "none of which is near node 2" },
                    { 3, "no cores of node 3" },
                    { 7, "no cores of node 7" },
                    { -1, "no cores of node -1" },
                    { 1 << 20, "no cores of node" } };
    for (size_t i = 0; i < COUNT(refused); i++) {
        err.msg[0] = 0;
        EXPECT(!numa_bind(&b, root, refused[i].node, &err) && strstr(err.msg, refused[i].why), "node %d: %s",
               refused[i].node, err.msg);
        EXPECT(threads_default() == mine, "node %d: %d cores", refused[i].node, threads_default());
    }

    /* node 0's socket has node 1's core too */
    NumaWas *was = numa_was(&mem);
    int want = first == last ? 1 : 2;
    EXPECT(numa_bind(&b, root, 0, &err) && b.node == 0 && b.cores == want && b.of == mine && !b.memory,
           "bound to %d of %d cores: %s", b.cores, b.of, err.msg);
    EXPECT(threads_default() == want, "%d cores after it", threads_default());
    numa_back(was);
    EXPECT(threads_default() == mine, "%d cores of %d again", threads_default(), mine);

    /* alone in its socket: one core, and its memory where the system lets it */
    put_number("devices/system/cpu/cpu%d/topology/physical_package_id", last, last == first ? 0 : 5);
    EXPECT(numa_bind(&b, root, 0, &err) && b.cores == 1, "bound to %d cores: %s", b.cores, err.msg);
    EXPECT(!sched_getaffinity(0, sizeof now, &now) && CPU_COUNT(&now) == 1 && CPU_ISSET(first, &now), "another core%s",
           "");
    int seen[64] = { 0 };
    Threads *t = threads_open(4);
    threads_run(t, 64, count_cores, seen);
    for (int i = 0; i < 64; i++) EXPECT(seen[i] == 1, "a thread may use %d cores", seen[i]);
    threads_close(t);
    char *page = mem_push(&mem, 1 << 20); /* whatever the policy, memory can be had */
    memset(page, 1, 1 << 20);
    numa_back(was);

    /* this machine's own tree is read without an accident */
    for (int node = 0; node < 4; node++) numa_socket("/sys", node);
    EXPECT(numa_of("/sys", "ffff:ff:1f.7") == -1, "there is such a device%s", "");
    mem_free(&mem);
    char gone[128];
    snprintf(gone, sizeof gone, "rm -rf %s", root);
    EXPECT(!system(gone), "%s", gone);
    return test_end();
}
