/* machine.c - the machine as this process may use it: cores, instruction sets, memory, limits, what else runs. */
#include "base/file.h"
#include "base/threads.h"
#include "cmd/doctor/doctor.h"
#include "op/cpu/cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

void find(Patient *p, const char *name, State s, const char *todo, const char *fmt, ...) {
    CHECK(p->n < FINDINGS_MOST, "more findings than places for them");
    Finding *f = &p->at[p->n++];
    va_list ap;
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->todo, sizeof f->todo, "%s", s == STATE_OK ? "" : todo);
    f->state = s;
    va_start(ap, fmt);
    vsnprintf(f->found, sizeof f->found, fmt, ap);
    va_end(ap);
}

/* "KEY : value" of a file of /proc. */
static bool proc_line(char *out, size_t n, const char *path, const char *key) {
    char line[512];
    bool found = false;
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key))) continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = 0;
        found = snprintf(out, n, "%s", colon) > 0;
    }
    if (f) fclose(f);
    return found;
}

static double proc_kb(const char *key) {
    char text[64];
    return proc_line(text, sizeof text, "/proc/meminfo", key) ? 1024 * strtod(text, NULL) : 0;
}

/* What the group of processes that this one is in may take (a container's limit); 0: no limit. */
static double group_limit(void) {
    static const char *const files[] = { "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
    for (size_t i = 0; i < COUNT(files); i++) {
        Buf b = { 0 };
        Err none;
        double x = file_read(&b, files[i], &none) && b.n ? strtod(b.data, NULL) : 0;
        buf_free(&b);
        if (x > 0) return x;
    }
    return 0;
}

static void limits(Patient *p) {
    static const struct {
        int which;
        const char *name, *todo;
        double least;
    } at[] = {
        { RLIMIT_NOFILE, "open files", "ulimit -n 4096", 1024 },
        { RLIMIT_AS, "address space", "ulimit -v unlimited: files are mapped", 1e15 },
        { RLIMIT_NPROC, "processes", "ulimit -u 4096: threads count", 1024 },
    };
    for (size_t i = 0; i < COUNT(at); i++) {
        struct rlimit l;
        if (getrlimit((__rlimit_resource_t)at[i].which, &l)) continue;
        bool none = l.rlim_cur == RLIM_INFINITY;
        State s = none || (double)l.rlim_cur >= at[i].least ? STATE_OK : STATE_SLOW;
        if (none) find(p, at[i].name, s, at[i].todo, "no limit");
        else find(p, at[i].name, s, at[i].todo, "at most %llu", (unsigned long long)l.rlim_cur);
    }
}

void look_at_machine(Patient *p, const Ranks *r) {
    static const char *const isa[] = { "", "C alone", "AVX2", "AVX-512" };
    char cpu[100] = "not known";
    int mine = threads_default(), all = (int)sysconf(_SC_NPROCESSORS_ONLN), best = cpu_isa_best();
    proc_line(cpu, sizeof cpu, "/proc/cpuinfo", "model name");
    gethostname(p->host, sizeof p->host - 1);
    find(p, "processor", STATE_OK, "", "%s", cpu);
    bool bound = ranks_count(r) > 1 && mine * r->world.local_size < all;
    find(p, "cores", bound ? STATE_SLOW : STATE_OK,
         "ranks are bound to fewer cores than there are: mpirun --bind-to none", "%d of %d%s", mine, all,
         ranks_count(r) > 1 ? " for a rank" : "");
    find(p, "instructions", best > 1 ? STATE_OK : STATE_SLOW, "a CPU with AVX2 and FMA is several times as quick", "%s",
         best >= 0 && best < (int)COUNT(isa) ? isa[best] : "not known");
    double total = proc_kb("MemTotal"), there = proc_kb("MemAvailable"), limit = group_limit();
    if (limit > 0 && limit < total) total = limit;
    p->m.host_memory = p->m.memory = total;
    find(p, "memory", there > 0.5 * total ? STATE_OK : STATE_SLOW,
         "other programs have the rest; `hone train CONFIG --memory 1` counts what a run takes",
         "%.1f GB, %.1f GB of it free%s", total / 1e9, there / 1e9,
         limit > 0 && limit <= total ? " (a container's limit)" : "");
    double load = 0;
    getloadavg(&load, 1);
    find(p, "other load", load < 0.5 * all + 1 ? STATE_OK : STATE_SLOW,
         "other programs compute here: a run is slower by that, and what is measured below too", "%.1f of %d cores",
         load, all);
    limits(p);
    struct statvfs v;
    double room = statvfs("/dev/shm", &v) ? 0 : (double)v.f_bavail * (double)v.f_frsize;
    find(p, "shared memory", room >= 256e6 ? STATE_OK : STATE_SLOW,
         "ranks of a machine talk through /dev/shm: podman and docker give more by --shm-size 1g", "%.0f MB free",
         room / 1e6);
}
