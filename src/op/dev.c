/* dev.c - device memory of the CPU: blocks straight from the system, zeroed, on huge pages where it gives them.
 * In checking mode a block can be touched only while an op runs, as on a device whose memory the host cannot see. */
#include "op/op_check.h"
#include "op/cpu/chain.h"

#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 1 << 21 };

/* Huge pages are advice: without them the same bytes are only slower. */
static void *map(size_t bytes) {
    size_t size = (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    char *p = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) die_memory(bytes);
    size_t skip = (size_t)(-(uintptr_t)p & (HUGE_PAGE - 1));
    if (skip) munmap(p, skip);
    if (skip < HUGE_PAGE) munmap(p + skip + size, HUGE_PAGE - skip);
    if (bytes >= HUGE_PAGE) madvise(p + skip, size, MADV_HUGEPAGE);
    return p + skip;
}
static size_t mapped(size_t bytes) { return (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1); }

static size_t scratch_bytes(const Dev *d) { return (size_t)threads_count(d->threads) * CPU_EACH * sizeof(float); }

void dev_open(Dev *d, DevOpts o) {
    memset(d, 0, sizeof *d);
    d->ops = &ops_cpu;
    d->guard = o.guard;
    d->isa = o.isa == ISA_BEST ? cpu_isa_best() : o.isa;
    CHECK(d->isa >= ISA_C && d->isa <= cpu_isa_best(), "instruction set %d asked for, this machine has up to %d", o.isa,
          cpu_isa_best());
    d->threads = threads_open(o.threads > 0 ? o.threads : threads_default());
    d->scratch = map(scratch_bytes(d) + chain_bytes());
    d->chain = (char *)d->scratch + scratch_bytes(d);
}

void dev_open_dry(Dev *d, int threads) {
    dev_open(d, (DevOpts){ .threads = threads });
    d->ops = &ops_dry;
}

/* The dry device's memory is only counted: addresses that nobody touches, and nothing to give back. */
static void *dry_block(Dev *d, size_t bytes) {
    uintptr_t at = ((uintptr_t)1 << 44) + d->dry;
    d->dry += mapped(bytes);
    return (void *)at;
}

void *dev_block(Dev *d, size_t bytes) {
    if (bytes == 0) bytes = 1;
    if (d->ops == &ops_dry) return dry_block(d, bytes);
    CHECK(d->n_blocks < (int)COUNT(d->block), "more than %d device blocks", (int)COUNT(d->block));
    void *p = map(bytes);
    d->block[d->n_blocks].at = p;
    d->block[d->n_blocks].asked = bytes;
    d->block[d->n_blocks++].bytes = mapped(bytes);
    if (d->guard && d->depth == 0) CHECK(!mprotect(p, mapped(bytes), PROT_NONE), "mprotect of %zu bytes", bytes);
    return p;
}

void dev_free(Dev *d, void *block) {
    if (d->ops == &ops_dry) return;
    for (int i = 0; i < d->n_blocks; i++)
        if (d->block[i].at == block) {
            munmap(block, d->block[i].bytes);
            d->block[i] = d->block[--d->n_blocks];
            return;
        }
    CHECK(false, "%p is not a block of this device", block);
}

Arena dev_arena(Dev *d, const char *name, size_t bytes) { return arena_over(name, dev_block(d, bytes), bytes); }

static void touch_piece(void *arg, int i, int worker) {
    const Dev *d = arg;
    (void)worker;
    for (int b = 0; b < d->n_blocks; b++)
        for (size_t at = (size_t)i * HUGE_PAGE; at < d->block[b].asked;
             at += (size_t)threads_count(d->threads) * HUGE_PAGE)
            for (size_t page = at; page < at + HUGE_PAGE && page < d->block[b].asked; page += 4096) {
                volatile char *c = (char *)d->block[b].at + page;
                *c = *c;
            }
}
/* A run that was planned to fit takes its memory at its start: no step is slower or larger than the one before. */
void dev_touch(Dev *d) {
    if (d->ops == &ops_dry) return;
    dev_enter(d);
    threads_run(d->threads, threads_count(d->threads), touch_piece, d);
    dev_leave(d);
}

void dev_close(Dev *d) {
    if (!d->threads) return; /* never opened */
    while (d->n_blocks > 0) dev_free(d, d->block[0].at);
    munmap(d->scratch, mapped(scratch_bytes(d) + chain_bytes()));
    threads_close(d->threads);
    memset(d, 0, sizeof *d);
}

void dev_join(Dev *d) {
    if (d->depth++ || !d->guard) return;
    for (int i = 0; i < d->n_blocks; i++)
        CHECK(!mprotect(d->block[i].at, d->block[i].bytes, PROT_READ | PROT_WRITE), "mprotect of %zu bytes",
              d->block[i].bytes);
}
void dev_enter(Dev *d) {
    dev_join(d);
    chain_end(d);
}
void dev_leave(Dev *d) {
    if (--d->depth || !d->guard) return;
    for (int i = 0; i < d->n_blocks; i++)
        CHECK(!mprotect(d->block[i].at, d->block[i].bytes, PROT_NONE), "mprotect of %zu bytes", d->block[i].bytes);
}

void dev_chain(Dev *d, bool on) {
    d->chains = on;
    if (on || !d->queued) return;
    dev_enter(d);
    dev_leave(d);
}
