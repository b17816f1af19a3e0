/* taken.c - what each rank holds, as --memory counts it and as it was taken: the same lines. */
#include "step/job.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

RankLine rank_line(const Shard *s, int rank, const Need *need, int n) {
    RankLine l;
    GridAt at = s->at;
    int k = snprintf(l.text, sizeof l.text, "rank %d tp%d cp%d dp%d pp%d ep%d etp%d:", rank, at.tp, at.cp, at.dp, at.pp,
                     at.ep, at.etp);
    for (int i = 0; i < n && k < (int)sizeof l.text; i++)
        k += snprintf(l.text + k, sizeof l.text - (size_t)k, " %s %zu,", need[i].name, need[i].bytes);
    if (k < (int)sizeof l.text)
        snprintf(l.text + k, sizeof l.text - (size_t)k, " in all %zu bytes\n", needs_sum(need, n, false));
    return l;
}

/* The arenas that there are, in place of what was counted for them. */
static void put_taken(const Job *j, Need *need, int n) {
    const Policy *p = &j->policy, *q = j->beside;
    const Model *m = &j->o.model;
    size_t packing = p->host.size + p->sort.size + (q ? q->host.size + q->sort.size : 0);
    const struct {
        int id;
        size_t bytes;
    } taken[] = {
        { NEED_WEIGHTS, m->w.arena.size },
        { NEED_ADAPTER, m->lora.arena.size + (j->sampled_adapter ? j->sampled_adapter->arena.size : 0) },
        { NEED_ROLLOUT_WEIGHTS, j->sampled ? j->sampled->arena.size : 0 },
        { NEED_REFERENCE, q && !m->desc->adapter ? q->m->w.arena.size : 0 },
        { NEED_GRADIENTS, p->grads.arena.size },
        { NEED_OPTIMIZER, p->opt.dev.size },
        { NEED_OPTIMIZER_HOST, p->opt.host.size },
        { NEED_ACTIVATIONS, p->block.memory.size - (p->grads.borrowed ? p->grads.arena.size : 0)
                                - (p->opt.borrowed ? p->opt.dev.size : 0) - (m->w.borrowed ? m->w.arena.size : 0) },
        { NEED_KV, p->block.memory.size - (j->sampled ? j->sampled->arena.size : 0) },
        { NEED_OFFLOADED_STATES, p->opt.borrowed ? p->opt.dev.size : 0 },
        { NEED_OFFLOADED_WEIGHTS, m->w.borrowed ? m->w.arena.size : 0 },
        { NEED_SCRATCH, j->o.dev.tmp.size },
        { NEED_MICRO_BATCHES, p->io.size + (q ? q->io.size : 0) },
        { NEED_PACKING, packing },
    };
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < COUNT(taken); k++)
            if (need[i].id == taken[k].id) need[i].bytes = taken[k].bytes;
}

bool job_tell_memory(const Job *j, Err *err) {
    Mem mem = { 0 };
    Need need[MOST_NEEDS];
    memcpy(need, j->need, sizeof need);
    put_taken(j, need, j->needs);
    int ranks = ranks_count(&j->ranks);
    RankLine mine = rank_line(&j->ranks.shard, j->ranks.world.all.rank, need, j->needs),
             *all = MEM_ARRAY(&mem, RankLine, (size_t)ranks);
    comm_gather_host(&j->ranks.world.all, all, &mine, sizeof mine);
    Buf text = { 0 };
    for (int r = 0; r < ranks; r++) buf_puts(&text, all[r].text);
    char path[4200];
    snprintf(path, sizeof path, "%.4000s/memory.txt", j->c.trainer.run_dir);
    bool ok = !ranks_first(&j->ranks) || file_write(path, text.data, text.n, err);
    buf_free(&text);
    mem_free(&mem);
    return job_agree(j, ok, err);
}
