/* dev.c - the CPU as a device: blocks straight from the system, zeroed, on huge pages where it gives them.
 * In checking mode a block can be touched only while an op runs, as on a device whose memory the host cannot see. */
#include "op/cpu/chain.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 1 << 21 };
static size_t mapped(size_t bytes) { return (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1); }

/* Huge pages are advice: without them the same bytes are only slower.  NULL: the system has no more. */
static void *map(size_t bytes) {
    size_t size = mapped(bytes);
    char *p = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t skip = (size_t)(-(uintptr_t)p & (HUGE_PAGE - 1));
    if (skip) munmap(p, skip);
    if (skip < HUGE_PAGE) munmap(p + skip + size, HUGE_PAGE - skip);
    if (bytes >= HUGE_PAGE) madvise(p + skip, size, MADV_HUGEPAGE);
    return p + skip;
}

static size_t work_bytes(const Dev *d) { return (size_t)threads_count(d->threads) * CPU_EACH * sizeof(float); }

void dev_open(Dev *d, DevOpts o) {
    memset(d, 0, sizeof *d);
    CpuDev *c = MEM_NEW(&d->mem, CpuDev);
    c->isa = o.isa == ISA_BEST ? cpu_isa_best() : o.isa;
    CHECK(c->isa >= ISA_C && c->isa <= cpu_isa_best(), "instruction set %d asked for, this machine has up to %d", o.isa,
          cpu_isa_best());
    d->ops = &ops_cpu;
    d->impl = c;
    d->act = DT_F32;
    d->guard = o.guard;
    d->threads = threads_open(o.threads > 0 ? o.threads : threads_default());
    c->work = map(work_bytes(d) + chain_bytes());
    if (!c->work) die_memory(work_bytes(d) + chain_bytes());
    c->chain = (Chain *)(void *)((char *)c->work + work_bytes(d));
}

DevKind dev_kind_cpu(void) { return (DevKind){ &ops_cpu, DT_F32 }; }

void cpu_close(Dev *d) {
    munmap(cpu_dev(d)->work, mapped(work_bytes(d) + chain_bytes()));
    threads_close(d->threads);
}

static void allow(const Dev *d, int access) {
    for (int i = 0; i < d->n_blocks; i++)
        CHECK(!mprotect(d->block[i].at, mapped(d->block[i].bytes), access), "mprotect of %zu bytes", d->block[i].bytes);
}

void *cpu_block(Dev *d, size_t bytes) {
    void *p = map(bytes);
    if (p && d->guard && d->depth == 0) CHECK(!mprotect(p, mapped(bytes), PROT_NONE), "mprotect of %zu bytes", bytes);
    return p;
}
void cpu_free(Dev *d, void *at, size_t bytes) {
    (void)d;
    munmap(at, mapped(bytes));
}

static void touch_piece(void *arg, int i, int worker) {
    const Dev *d = arg;
    (void)worker;
    for (int b = 0; b < d->n_blocks; b++)
        for (size_t at = (size_t)i * HUGE_PAGE; at < d->block[b].bytes;
             at += (size_t)threads_count(d->threads) * HUGE_PAGE)
            for (size_t page = at; page < at + HUGE_PAGE && page < d->block[b].bytes; page += 4096) {
                volatile char *c = (char *)d->block[b].at + page;
                *c = *c;
            }
}
/* A run that was planned to fit takes its memory at its start: no step is slower or larger than the one before. */
void cpu_touch(Dev *d) {
    cpu_enter(d, false);
    threads_run(d->threads, threads_count(d->threads), touch_piece, d);
    cpu_leave(d);
}

void cpu_enter(Dev *d, bool join) {
    if (d->depth++ == 0 && d->guard) allow(d, PROT_READ | PROT_WRITE);
    if (!join) chain_end(d);
}
void cpu_leave(Dev *d) {
    if (--d->depth == 0 && d->guard) allow(d, PROT_NONE);
}

void cpu_chain(Dev *d, bool on) {
    cpu_dev(d)->chains = on;
    if (on || !cpu_dev(d)->queued) return;
    cpu_enter(d, false);
    cpu_leave(d);
}

void cpu_about(const Dev *d, DevAbout *out) { snprintf(out->name, sizeof out->name, "CPU (%s)", cpu_kern(d)->name); }
