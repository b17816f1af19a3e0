/* places.c - which cores and which memory ranks have: one that is far from its GPU, or has few cores, would be slow
 * without a word. */
#include "step/job.h"
#include "base/threads.h"

#include <stdio.h>

typedef struct {
    Near near;
    int threads, may, share;
} Place;

static void tell_cores(Job *j, const Place *all, int ranks) {
    int few = 0, which = -1;
    char line[320];
    for (int r = 0; r < ranks; r++)
        if (all[r].may < all[r].share && !few++) which = r;
    if (!few || j->c.trainer.threads) return;
    snprintf(line, sizeof line,
             "%d of %d ranks may use fewer cores than their share: rank %d %d of %d. Start them with srun "
             "--cpus-per-task=%d, or mpirun --bind-to none",
             few, ranks, which, all[which].may, all[which].share, all[which].share);
    run_dir_log(j->dir, line);
}

static void tell_sides(Job *j, const Place *all, int ranks) {
    int known = 0, done = 0, memory = 0, far = -1;
    char line[400];
    for (int r = 0; r < ranks; r++) {
        const Near *n = &all[r].near;
        known += n->known, done += n->done, memory += n->done && n->bound.memory;
        if (n->known && !n->done && far < 0) far = r;
    }
    if (!known) return; /* one node, no GPU, or nobody says */
    const NumaBound *b = &all[0].near.bound;
    if (done)
        snprintf(
            line, sizeof line,
            "%d of %d ranks compute on the cores beside their GPUs, %d with that node's memory first; rank 0 on %d "
            "of %d cores, at node %d, with %d threads",
            done, ranks, memory, b->cores, b->of, b->node, all[0].threads);
    if (done) run_dir_log(j->dir, line);
    if (far >= 0) {
        snprintf(line, sizeof line, "rank %d is not bound to its GPU's side of the machine: %s", far,
                 all[far].near.why);
        run_dir_log(j->dir, line);
    }
}

void job_tell_places(Job *j) {
    Mem mem = { 0 };
    int ranks = ranks_count(&j->ranks);
    if (ranks == 1) return;
    Place mine = { j->o.near, threads_count(j->o.dev.threads), j->o.may, j->o.share },
          *all = MEM_ARRAY(&mem, Place, (size_t)ranks);
    comm_gather_host(&j->ranks.world.all, all, &mine, sizeof mine);
    tell_cores(j, all, ranks);
    tell_sides(j, all, ranks);
    mem_free(&mem);
}
