/* score.c - log-probs of the weights as they are: given, or compared with those that the sampler wrote down. */
#include "train/policy_int.h"

#include <math.h>
#include <string.h>

/* Columns of the sequences of a part, from one rank of a group to all of it, through one
 * micro-batch's worth of memory. */
static void hand_round(Policy *p, const Comm *c, int root, int part, const Pack *pk, const TrainSeq *seqs, int n,
                       float *const *out) {
    size_t mark = arena_mark(&p->host);
    int64_t room = p->c.micro_tokens;
    float *buf = arena_push(&p->host, (size_t)room * 4);
    for (int i = 0, next; i < n; i = next) {
        int64_t used = 0;
        for (next = i; next < n; next++) { /* as many as fit */
            int64_t len = seqs[next].n - seqs[next].prompt;
            if (pk->part[next] != part) continue;
            if (used + len > room) break;
            if (c->rank == root) memcpy(buf + used, out[next], (size_t)len * 4);
            used += len;
        }
        if (used) comm_broadcast(c, root, buf, (size_t)used * 4);
        used = 0;
        for (int j = i; j < next; j++) {
            int64_t len = seqs[j].n - seqs[j].prompt;
            if (pk->part[j] != part) continue;
            if (c->rank != root) memcpy(out[j], buf + used, (size_t)len * 4);
            used += len;
        }
    }
    arena_pop(&p->host, mark);
}

/* The last stage of each part of dp computed its sequences; now all have all. */
static void share(Policy *p, const Pack *pk, const TrainSeq *seqs, int n, float *const *out) {
    const Comm *dp = &p->m->par.dp, *pp = &p->m->par.pp;
    if (pp->size > 1) hand_round(p, pp, pp->size - 1, p->m->shard.at.dp, pk, seqs, n, out);
    for (int r = 0; r < dp->size && dp->size > 1; r++) hand_round(p, dp, r, r, pk, seqs, n, out);
}

typedef void Scored(void *user, const Micro *mb, const float *lp, const float *ent);

static void score_micro(Policy *p, const TrainSeq *seqs, const Pack *pk, int64_t k, int v, Scored *scored, void *user) {
    Dev *d = p->m->dev;
    size_t host = arena_mark(&p->host), io = arena_mark(&p->io);
    Micro mb = micro_put(p, seqs, pk, k, &p->io, &p->host);
    pipeline_forward(&p->pipe, p->m, (int)k, v, &mb.batch, mb.lp, mb.ent);
    if (model_ends(p->m, v)) {
        size_t bytes = (size_t)mb.batch.outputs * 4;
        float *lp = arena_push(&p->host, bytes), *ent = arena_push(&p->host, bytes);
        op_get(d, lp, mb.lp);
        op_get(d, ent, mb.ent);
        scored(user, &mb, lp, ent);
    }
    arena_pop(&p->host, host);
    arena_pop(&p->io, io);
}

/* Every micro-batch of this rank's part, each told where the model ends.  Between stages several are under way, and
 * whether to go on is asked once. */
static bool score_pack(Policy *p, const TrainSeq *seqs, const Pack *pk, Scored *scored, void *user) {
    const Shard *s = &p->m->shard;
    int run = pipeline_run_of(s);
    bool going = true;
    block_for(&p->block, BLOCK_SCORE);
    for (int64_t from = 0; from < pk->n_micro; from += run) {
        if ((s->g.pp == 1 || !from) && !(going = micro_go_on(p))) break;
        for (int v = 0; v < s->g.vpp; v++)
            for (int64_t k = from; k < from + run && k < pk->n_micro; k++)
                if (!micro_passes(p, pk, k)) score_micro(p, seqs, pk, k, v, scored, user);
    }
    pipeline_sent(&p->pipe);
    return going;
}

typedef struct {
    float *const *lp, *const *ent;
} Columns;
static void to_columns(void *user, const Micro *mb, const float *lp, const float *ent) {
    const Columns *c = user;
    for (int i = 0; i < mb->n; i++) {
        size_t one = (size_t)(mb->at[i + 1] - mb->at[i]) * 4;
        memcpy(c->lp[mb->item[i]], lp + mb->at[i], one);
        if (c->ent) memcpy(c->ent[mb->item[i]], ent + mb->at[i], one);
    }
}

bool policy_logprob(Policy *p, const TrainSeq *seqs, int n, float *const *lp, float *const *ent, Err *err) {
    Pack pk;
    Columns out = { lp, ent };
    size_t all = arena_mark(&p->host);
    TRY(micro_pack(p, seqs, n, &pk, err));
    if (score_pack(p, seqs, &pk, to_columns, &out) && n) {
        share(p, &pk, seqs, n, lp);
        if (ent) share(p, &pk, seqs, n, ent);
    }
    arena_pop(&p->host, all);
    return true;
}

/* NaN stays. */
static void raise_to(double *most, double x) {
    if (!(x <= *most) && !isnan(*most)) *most = x;
}

typedef struct {
    const Policy *p;
    const TrainSeq *seqs;
    Exact sum;
} Comparing;
static void compare_micro(void *user, const Micro *mb, const float *lp, const float *ent) {
    Comparing *c = user;
    (void)ent;
    micro_given(c->p, c->seqs, mb, lp, false);
    for (int i = 0; i < mb->n; i++) {
        const TrainSeq *s = &c->seqs[mb->item[i]];
        for (int64_t t = mb->at[i], k = 0; t < mb->at[i + 1]; t++, k++) {
            if (s->mask && !s->mask[k]) continue;
            raise_to(&c->sum.max_diff, fabs((double)lp[t] - (double)s->old[k]));
            c->sum.tokens++;
        }
    }
}

bool policy_compare(Policy *p, const TrainSeq *seqs, int n, Exact *sum, Err *err) {
    Pack pk;
    Comparing own = { .p = p, .seqs = seqs };
    const Groups *g = &p->m->par;
    size_t all = arena_mark(&p->host);
    TRY(micro_pack(p, seqs, n, &pk, err));
    score_pack(p, seqs, &pk, compare_micro, &own);
    arena_pop(&p->host, all);
    sum->tokens += comm_sum_i64(&g->pp, comm_sum_i64(&g->dp, own.sum.tokens));
    raise_to(&sum->max_diff, comm_max(&g->pp, comm_max(&g->dp, own.sum.max_diff)));
    return true;
}
