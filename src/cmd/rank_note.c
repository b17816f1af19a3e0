/* rank_note.c - a table of what each rank of a grid reads, holds and computes. */
#include "cmd/rank_note.h"
#include "cut/flops.h"

#include <stdio.h>
#include <string.h>

double rank_flops(const Model *m, const int64_t *lens, int n) {
    const GridShape *s = &m->shard.g;
    const Dims *d = &m->desc->d;
    double own = 0, outputs = 0, pairs = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        own += (double)lens[i] / s->cp, outputs += (double)(lens[i] - 1) / s->cp;
        pairs += (double)lens[i] * (double)(lens[i] + 1) / s->cp;
    }
    double all = comm_sum(&m->par.dp, own * s->cp); /* of the stage; those of its group of experts: */
    double met = all * s->ep * s->etp / grid_stage_ranks(s),
           each = d->experts ? met * (double)d->topk / (double)d->experts : 0;
    int layers = 0;
    for (int i = 0; i < m->w.n; i++) {
        const Param *q = &m->w.at[i];
        bool embed = q->desc->id == P_EMBED,
             head = q->desc->id == P_HEAD || (embed && d->tied && model_ends(m, s->vpp - 1));
        bool cut = q->desc->cut == BY_ROWS || q->desc->cut == BY_COLS;
        layers += q->desc->id == P_NORM1;
        if (q->desc->vector || (embed && !head)) continue; /* an embedding is looked up */
        double rows = head ? outputs : q->desc->where == IN_EXPERT ? each : cut ? own : own / s->tp;
        sum += 2 * rows * (double)slice_count(&q->slice);
    }
    TokenFlops f = token_flops(d);
    sum += f.pair * pairs * layers / (double)d->layers * (double)m->local.heads / (double)d->heads;
    return 3 * sum;
}

void rank_whole_tell(const Model *m) {
    const GridShape *s = &m->shard.g;
    size_t bytes[P_COUNT] = { 0 }, sum = 0;
    const char *name[P_COUNT] = { 0 };
    for (int i = 0; i < m->w.n; i++) {
        const ParamDesc *q = m->w.at[i].desc;
        bool cut = q->where == IN_EXPERT ? s->ep * s->etp > 1 : q->cut != WHOLE;
        if (cut) continue;
        size_t n = (size_t)slice_count(&m->w.at[i].slice) * dtype_size(m->w.at[i].t.dtype);
        const char *of_layer = strstr(q->name, "%d.");
        bytes[q->id] += n, sum += n, name[q->id] = of_layer ? of_layer + 3 : q->name;
    }
    printf("  whole on each rank of tp, %zu bytes:", sum);
    for (int i = 0; i < P_COUNT; i++) {
        if (!bytes[i]) continue;
        const char *expert = strstr(name[i], "%d"); /* all of them */
        if (expert) printf(" %.*s*%s %zu", (int)(expert - name[i]), name[i], expert + 2, bytes[i]);
        else printf(" %s %zu", name[i], bytes[i]);
    }
    printf("\n");
}

void rank_notes_tell(const Comm *all, const Shard *shard, const RankNote *mine) {
    Mem mem = { 0 };
    RankNote *note = MEM_ARRAY(&mem, RankNote, (size_t)all->size);
    comm_gather_host(all, note, mine, sizeof *mine);
    printf("  %-31s %10s %10s %10s %10s %10s %10s %10s %9s\n", "rank: bytes read, of arenas", "read", "weights",
           "gradients", "optimizer", "kept", "scratch", "batches", "GFLOP");
    for (int r = 0; r < all->size; r++) {
        const RankNote *n = &note[r];
        GridAt at = grid_at(&shard->g, r);
        char place[64];
        snprintf(place, sizeof place, "tp%d cp%d dp%d pp%d ep%d etp%d", at.tp, at.cp, at.dp, at.pp, at.ep, at.etp);
        printf("  %4d %-26s %10lld %10zu %10zu %10zu %10zu %10zu %10zu %9.4f\n", r, place, (long long)n->read,
               n->weights, n->grads, n->states, n->act, n->tmp, n->io, n->flops / 1e9);
    }
    mem_free(&mem);
}
