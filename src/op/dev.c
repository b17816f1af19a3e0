/* dev.c - a device's memory: blocks of its backend, and arenas over them. */
#include "op/op.h"

#include <string.h>

void *dev_block(Dev *d, size_t bytes) {
    if (bytes == 0) bytes = 1;
    CHECK(d->n_blocks < (int)COUNT(d->block), "more than %d device blocks", (int)COUNT(d->block));
    void *p = d->ops->block(d, bytes);
    if (!p) die_memory(bytes);
    d->block[d->n_blocks].at = p;
    d->block[d->n_blocks++].bytes = bytes;
    return p;
}

void dev_free(Dev *d, void *block) {
    for (int i = 0; i < d->n_blocks; i++)
        if (d->block[i].at == block) {
            d->ops->give(d, block, d->block[i].bytes);
            d->block[i] = d->block[--d->n_blocks];
            return;
        }
    CHECK(false, "%p is not a block of this device", block);
}

Arena dev_arena(Dev *d, const char *name, size_t bytes) { return arena_over(name, dev_block(d, bytes), bytes); }

void dev_touch(Dev *d) { d->ops->touch(d); }
DevAbout dev_about(const Dev *d) {
    DevAbout a = { 0 };
    d->ops->about(d, &a);
    return a;
}
void dev_chain(Dev *d, bool on) { d->ops->chain(d, on); }

void dev_close(Dev *d) {
    if (!d->ops) return; /* never opened */
    while (d->n_blocks > 0) dev_free(d, d->block[0].at);
    d->ops->close(d);
    mem_free(&d->mem);
    memset(d, 0, sizeof *d);
}
