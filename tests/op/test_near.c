/* test_near.c - ranks of one machine bound to their GPUs' sides of it: who shares a side shares its cores. */
#include "base/file.h"
#include "base/threads.h"
#include "op/near.h"
#include "test.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];
static void put(const char *format, int a, const char *text) {
    char path[128], at[256];
    Err err;
    snprintf(path, sizeof path, format, a);
    snprintf(at, sizeof at, "%s/%s", root, path);
    for (char *s = at + strlen(root) + 1; (s = strchr(s, '/')); *s++ = '/') *s = 0, mkdir(at, 0777);
    CHECK(file_write(at, text, strlen(text), &err), "%s", err.msg);
}

int main(void) {
    cpu_set_t may;
    Mem mem = { 0 };
    Near near;
    char list[64];
    snprintf(root, sizeof root, "%s", "/tmp/test_near.XXXXXX");
    CHECK(mkdtemp(root) && !sched_getaffinity(0, sizeof may, &may), "%s", root);
    int mine = CPU_COUNT(&may), first = 0;
    while (!CPU_ISSET(first, &may)) first++;
    snprintf(list, sizeof list, "0-%d", CPU_SETSIZE - 25);
    put("devices/system/node/node%d/cpulist", 0, list); /* all cores that are here */
    put("devices/system/node/node%d/cpulist", 1, "1000-1007\n");
    put("devices/system/node/node%d/cpulist", 2, "1008-1015\n"); /* of node 1's socket */
    put("devices/system/cpu/cpu%d/topology/physical_package_id", 0, "0\n");
    put("devices/system/cpu/cpu%d/topology/physical_package_id", 1000, "1\n");
    put("devices/system/cpu/cpu%d/topology/physical_package_id", 1008, "1\n");
    NumaWas *was = numa_was(&mem);
    static const struct {
        int node[8], which, n, sharers; /* sharers 0: nothing is bound */
        bool known;
        const char *why;
    } cases[] = {
        { { 0, 0, 0, 0, 1, 1, 2, 2 }, 1, 8, 4, true, "" },
        { { 0 }, 0, 1, 1, true, "" },
        { { 0, -1, 1, 0 }, 3, 4, 2, true, "" },
        { { 0, -1 }, 1, 2, 0, false, "" },
        { { 0, 2, 1 }, 1, 3, 0, true, "none of which is near node 2" },
        { { 0, 5 }, 1, 2, 0, true, "the system names no cores of node 5" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        near_bind_nodes(&near, root, cases[i].node, cases[i].which, cases[i].n);
        int want = cases[i].sharers ? mine / cases[i].sharers : 0;
        if (cases[i].sharers && want < 1) want = 1;
        EXPECT(near.known == cases[i].known && near.done == (cases[i].sharers > 0) && near.threads == want
                   && strstr(near.why, cases[i].why) && !*near.why == !*cases[i].why,
               "case %zu: %d threads of %d, %s", i, near.threads, want, near.why);
        EXPECT(!near.done || (near.bound.cores == mine && near.bound.of == mine), "case %zu: %d of %d cores", i,
               near.bound.cores, near.bound.of);
        numa_back(was);
        EXPECT(threads_default() == mine, "case %zu: %d cores are left", i, threads_default());
    }
    near_bind(&near, root, 0, 0, 2); /* with a driver or without: a tree that knows no device of it binds nothing */
    EXPECT(!near.known && !near.done && threads_default() == mine, "a GPU of no tree is bound to node %d",
           near.bound.node);
    mem_free(&mem);
    char gone[128];
    snprintf(gone, sizeof gone, "rm -rf %s", root);
    EXPECT(!system(gone), "%s", gone);
    return test_end();
}
