/* ranks.c - a program on several ranks: opened, arranged, failing together. */
#include "comm/ranks.h"
#include "comm/alike.h"
#include "comm/watch.h"
#include "base/file.h"
#include "base/threads.h"

#include <string.h>
#include <unistd.h>

bool ranks_open(Ranks *r, double wait, const char *asked, Err *err) {
    *r = (Ranks){ .groups = groups_self() };
    TRY(world_open(&r->world, wait, err));
    if (ranks_alike(r, asked, err)) return true;
    ranks_close(r);
    return false;
}

void ranks_close(Ranks *r) { world_close(&r->world); }

bool ranks_device(Ranks *r, Dev *d, Err *err) {
    const Comm *all = &r->world.all;
    int64_t gpus = comm_sum_i64(all, d->ops->queue != NULL);
    if (gpus && gpus < all->size)
        return err_set(err,
                       "%d of %d ranks have a GPU: start as many as there are, let ranks of a machine share one "
                       "(trainer.share_gpu=true), or compute on the CPU (device cpu)",
                       (int)gpus, all->size);
    return world_device(&r->world, d, r->share_gpu, err);
}

bool ranks_grid(Ranks *r, const GridShape *axes, const char *split, const ModelDesc *m, int leaves, Err *err) {
    GridShape g = *axes;
    if (!ranks_agree(r, grid_fill(&g, m, ranks_count(r), split, leaves, err), err)) return false;
    r->shard = (Shard){ g, grid_at(&g, r->world.all.rank) };
    if (ranks_count(r) > 1) world_groups(&r->world, &g, &r->groups);
    return true;
}

bool ranks_agree(const Ranks *r, bool ok, Err *err) { return comm_agree(&r->world.all, ok, err); }
void ranks_phase(const Ranks *r, const char *name) { world_phase(&r->world, name); }
double ranks_waited(const Ranks *r) { return watch_waited(r->world.all.watch); }
bool ranks_any(const Ranks *r, bool x) { return comm_sum_i64(&r->world.all, x) > 0; }

void ranks_same(const Ranks *r, Buf *text) {
    const Comm *all = &r->world.all;
    int64_t n = (int64_t)text->n;
    comm_broadcast(all, 0, &n, sizeof n);
    if (!ranks_first(r)) {
        buf_clear(text);
        buf_reserve(text, (size_t)n + 1);
        text->n = (size_t)n;
        text->data[n] = 0;
    }
    if (n) comm_broadcast(all, 0, text->data, (size_t)n);
}

/* The first rank reads: standard input is its alone, and a file may be only where it is. */
bool ranks_text(const Ranks *ranks, Buf *text, const char *in, Err *err) {
    bool ok = true;
    if (ranks_first(ranks)) {
        LineReader *lines = lines_open(in, err);
        const char *line;
        size_t n;
        while (lines && lines_next(lines, &line, &n)) {
            buf_put(text, line, n);
            buf_putc(text, '\n');
        }
        ok = lines && lines_close(lines, err);
    }
    if (!ranks_agree(ranks, ok, err)) return false;
    ranks_same(ranks, text);
    return true;
}

/* A launcher may have bound this rank to some of the cores: then those are its own. */
int ranks_threads(const Ranks *r, int64_t asked) {
    if (asked > 0) return (int)asked;
    int mine = threads_default(), share = (int)sysconf(_SC_NPROCESSORS_ONLN) / r->world.local_size;
    if (r->world.local_size > 1 && share < mine) mine = share;
    return mine < 1 ? 1 : mine;
}
