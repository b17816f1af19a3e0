/* dev.c - a device's memory: blocks of its backend, and arenas over them. */
#include "op/op.h"

#include <string.h>

/* Pieces of the whole begin on the borders that a backend's own blocks would. */
static size_t piece(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

static void *of_backend(Dev *d, size_t bytes) {
    void *p = d->ops->block(d, bytes);
    if (!p) die_memory(bytes);
    d->taken++;
    return p;
}
/* A piece of the whole may have been used before: it is zeroed again. */
static void *of_whole(Dev *d, size_t bytes) {
    void *p = arena_push(&d->whole, piece(bytes));
    d->ops->zero(d, tensor_over(p, DT_U8, 1, (int64_t)bytes));
    return p;
}

void *dev_block(Dev *d, size_t bytes) {
    if (bytes == 0) bytes = 1;
    CHECK(d->n_blocks < (int)COUNT(d->block), "more than %d device blocks", (int)COUNT(d->block));
    bool inside = d->whole.base && d->whole.size - d->whole.used >= piece(bytes);
    void *p = inside ? of_whole(d, bytes) : of_backend(d, bytes);
    d->block[d->n_blocks].at = p;
    d->block[d->n_blocks].inside = inside;
    d->block[d->n_blocks++].bytes = bytes;
    return p;
}

void dev_reserve(Dev *d, size_t bytes) {
    CHECK(!d->whole.base, "a device has one whole block, and it is taken");
    void *p = of_backend(d, bytes);
    d->whole = arena_over("whole", p, bytes);
}

/* Pieces of the whole are opened and closed as a stack, or all of them go before others come:
 * what lies last is room again. */
static void give_inside(Dev *d) {
    size_t used = 0;
    for (int i = 0; i < d->n_blocks; i++) {
        size_t end = (size_t)((char *)d->block[i].at - (char *)d->whole.base) + piece(d->block[i].bytes);
        if (d->block[i].inside && end > used) used = end;
    }
    d->whole.used = used;
}

void dev_free(Dev *d, void *block) {
    for (int i = 0; i < d->n_blocks; i++)
        if (d->block[i].at == block) {
            bool inside = d->block[i].inside;
            if (!inside) d->ops->give(d, block, d->block[i].bytes);
            d->block[i] = d->block[--d->n_blocks];
            if (inside) give_inside(d);
            return;
        }
    if (d->host) {
        dev_free(d->host, block);
        return;
    }
    CHECK(false, "%p is not a block of this device", block);
}

Arena dev_arena(Dev *d, const char *name, size_t bytes) { return arena_over(name, dev_block(d, bytes), bytes); }

void *dev_room(Dev *d, size_t bytes) {
    CHECK(bytes <= DEV_ROOM, "dev_room: %zu bytes, at most %d", bytes, DEV_ROOM);
    return d->ops->room ? d->ops->room(d, bytes) : NULL;
}
Arena dev_host_arena(Dev *d, const char *name, size_t bytes) {
    if (!d->ops->link) return dev_arena(d, name, bytes);
    if (!d->host) {
        d->host = MEM_NEW(&d->mem, Dev);
        dev_open(d->host, (DevOpts){ .threads = threads_count(d->threads) });
        d->ops->link(d);
    }
    return dev_arena(d->host, name, bytes);
}

void dev_touch(Dev *d) {
    d->ops->touch(d);
    if (d->host) d->host->ops->touch(d->host);
}
size_t dev_taken(const Dev *d) {
    size_t sum = 0;
    for (int i = 0; i < d->n_blocks; i++) sum += d->block[i].bytes;
    return sum;
}
DevAbout dev_about(const Dev *d) {
    DevAbout a = { 0 };
    d->ops->about(d, &a);
    return a;
}
void dev_chain(Dev *d, bool on) { d->ops->chain(d, on && !d->profile && !d->watch); }

void dev_close(Dev *d) {
    if (!d->ops) return; /* never opened */
    while (d->n_blocks > 0) dev_free(d, d->block[0].at);
    if (d->whole.base) d->ops->give(d, d->whole.base, d->whole.size);
    d->ops->close(d);
    if (d->host) dev_close(d->host);
    mem_free(&d->mem);
    memset(d, 0, sizeof *d);
}
