/* count.c - the memory of ranks that are not there, for --memory N.
 * Counting one runs its code on the dry device, which takes milliseconds; ranks of one kind, whose memory cannot
 * differ, are counted once.  What a rank's memory depends on is its Kind: add to it what comes to depend on more. */
#include "step/job.h"
#include "train/reduce.h"

#include <stdio.h>
#include <string.h>

/* A rank's place as far as sizes go: experts, how many it has.  Of ep nothing else matters: its ranks are served alike,
 * and of dp and edp what Kind has. */
typedef struct {
    int tp, cp, pp, etp, experts;
} Place;

/* The gradients of a place, laid out as its ranks have them, to see what each of them answers for. */
typedef struct {
    Place at;
    Params grads;
} Table;

/* Bytes of weights that the sampler has beside the trainer's, by both places. */
typedef struct {
    Place from, to;
    int ep, to_ep; /* which experts: slices coincide or not */
    size_t bytes;
} Beside;

typedef struct {
    Place from, to;           /* in the trainer's grid; in the sampler's, or zeros */
    int64_t zero, dense, edp; /* rank 0; first of dp x cp in its stage; of edp: they keep and save what others do not */
    int64_t own[REGIONS];
    size_t saved, beside; /* bytes of a save's buffer; of the sampler's weights beside the trainer's */
} Kind;

/* Ranks that need the same: of one kind or of several. */
typedef struct {
    Need need[MOST_NEEDS];
    int n, ranks, first;
    bool *tp, *pp; /* which of each are among them */
} Alike;

typedef struct {
    Job *j;
    JobShape *shape;
    void *user;
    RunShape any; /* rank 0's: what all have in common */
    VEC(Table *)
    table;
    VEC(Beside)
    beside;
    VEC(Kind)
    kind;
    VEC(int)
    alike_of; /* [kind] */
    VEC(Alike *)
    alike;
    Mem mem;
} Count;

static Place place_of(const ModelDesc *m, const GridShape *g, GridAt at) {
    int64_t from, to;
    grid_cut(m->d.experts, at.ep, g->ep, &from, &to);
    return (Place){ at.tp, at.cp, at.pp, at.etp, (int)(to - from) };
}
static bool same_place(const Place *a, const Place *b) { return !memcmp(a, b, sizeof *a); }

static Params *grads_at(Count *c, const Place *p, const Shard *s) {
    for (size_t i = 0; i < c->table.n; i++)
        if (same_place(&c->table.at[i]->at, p)) return &c->table.at[i]->grads;
    Table *t = MEM_NEW(&c->mem, Table);
    t->at = *p;
    Arena nowhere = arena_over("gradients", (void *)((uintptr_t)1 << 60), (size_t)1 << 60); /* nobody touches it */
    params_open_in(&t->grads, c->any.m, s, nowhere, DT_F32, true, &c->mem);
    VEC_PUSH(c->table, t);
    return &t->grads;
}

static size_t beside_at(Count *c, const Place *from, const Place *to, const Shard *s, const Shard *sampler) {
    for (size_t i = 0; i < c->beside.n; i++) {
        const Beside *b = &c->beside.at[i];
        if (b->ep == s->at.ep && b->to_ep == sampler->at.ep && same_place(&b->from, from) && same_place(&b->to, to))
            return b->bytes;
    }
    Beside b = { *from, *to, s->at.ep, sampler->at.ep,
                 params_bytes_beside(c->any.m, sampler, s, run_weights_dtype(&c->any)) };
    VEC_PUSH(c->beside, b);
    return b.bytes;
}

static Kind kind_of(Count *c, const Shard *s, int rank) {
    Kind k;
    const ModelDesc *m = c->any.m;
    memset(&k, 0, sizeof k); /* kinds are compared as bytes */
    k.from = place_of(m, &s->g, s->at);
    k.zero = rank == 0, k.dense = !s->at.dp && !s->at.cp, k.edp = !s->at.edp;
    Params *grads = grads_at(c, &k.from, s);
    grads->shard.at = s->at;
    for (Region i = 0; i < REGIONS; i++) {
        Span own = reduce_own(grads, i);
        k.own[i] = own.to - own.from;
    }
    k.saved = checkpoint_bytes(m, s, c->any.save_buffer, c->any.save_moments);
    if (!c->any.sampler) return k;
    Shard sampler = { c->any.sampler->g, grid_at(&c->any.sampler->g, rank) };
    k.to = place_of(m, &sampler.g, sampler.at);
    if (memcmp(&sampler.g, &s->g, sizeof sampler.g)) k.beside = beside_at(c, &k.from, &k.to, s, &sampler);
    return k;
}

static void set_rank(Job *j, int rank) {
    j->ranks.shard.at = grid_at(&j->ranks.shard.g, rank);
    j->ranks.world.all.rank = rank;
}

static int needs_of(Count *c, Need need[MOST_NEEDS], int rank) {
    set_rank(c->j, rank);
    RunShape x = c->shape(c->user);
    return run_needs(need, &x);
}

static bool same_needs(const Alike *a, const Need *need, int n) {
    bool same = a->n == n;
    for (int i = 0; same && i < n; i++) same = a->need[i].id == need[i].id && a->need[i].bytes == need[i].bytes;
    return same;
}

/* The ranks that need what this one does; counted, where it is the first of its kind. */
static Alike *alike_of(Count *c, int rank) {
    Shard *s = &c->j->ranks.shard;
    s->at = grid_at(&s->g, rank);
    Kind k = { 0 };
    if (!c->j->listed) k = kind_of(c, s, rank);
    size_t i = 0;
    for (; i < c->kind.n && !c->j->listed; i++)
        if (!memcmp(&c->kind.at[i], &k, sizeof k)) return c->alike.at[c->alike_of.at[i]];
    Need need[MOST_NEEDS];
    int n = needs_of(c, need, rank);
    for (i = 0; i < c->alike.n && !same_needs(c->alike.at[i], need, n); i++) {}
    if (i == c->alike.n) {
        Alike *a = MEM_NEW(&c->mem, Alike);
        memcpy(a->need, need, sizeof need);
        a->tp = MEM_ARRAY(&c->mem, bool, (size_t)s->g.tp), a->pp = MEM_ARRAY(&c->mem, bool, (size_t)s->g.pp);
        a->n = n, a->first = rank;
        VEC_PUSH(c->alike, a);
    }
    VEC_PUSH(c->kind, k);
    VEC_PUSH(c->alike_of, (int)i);
    return c->alike.at[i];
}

/* "pp0-5,7" */
static void put_set(Buf *out, const char *name, const bool *in, int n) {
    buf_printf(out, "%s", name);
    bool any = false;
    for (int i = 0, k; i < n; i = k + 1) {
        for (k = i; k < n && in[k]; k++) {}
        if (k == i) continue;
        buf_printf(out, k - i > 1 ? "%s%d-%d" : "%s%d", any ? "," : "", i, k - 1);
        any = true;
    }
}

static void tell_kinds(const Count *c) {
    Buf text = { 0 };
    Shard *s = &c->j->ranks.shard;
    for (size_t i = 0; i < c->alike.n; i++) {
        const Alike *a = c->alike.at[i];
        buf_printf(&text, "%d rank%s, ", a->ranks, a->ranks > 1 ? "s" : "");
        put_set(&text, "tp", a->tp, s->g.tp);
        put_set(&text, " pp", a->pp, s->g.pp);
        s->at = grid_at(&s->g, a->first);
        buf_printf(&text, ", as %s", rank_line(s, a->first, a->need, a->n).text);
    }
    fputs(text.data, stdout);
    buf_free(&text);
}

/* Judged: the fullest rank on its GPU, the fullest node's ranks in its memory.  What a driver takes is not known. */
static bool judge(const Job *j, const Alike *fullest, double most_node, Err *err) {
    const Machine *gpu = &j->cluster.gpu;
    if (!open_on_gpu(&j->o) || !j->cluster.gpus) return true;
    char where[64];
    snprintf(where, sizeof where, "%s ", gpu->name);
    if (!needs_fit(fullest->need, fullest->n, false, gpu->memory, where, err))
        return err_wrap(err, "rank %d does not fit", fullest->first);
    if (most_node > gpu->host_memory)
        return err_set(err, "a node's ranks need %.0f GB of host memory, it has %.0f", most_node / 1e9,
                       gpu->host_memory / 1e9);
    double device =
        (double)needs_sum(fullest->need, fullest->n, false) - (double)needs_sum(fullest->need, fullest->n, true);
    printf("fits %s: rank %d takes most, %.1f of %.0f GB; a node's ranks %.0f of %.0f GB of its memory\n", gpu->name,
           fullest->first, device / 1e9, gpu->memory / 1e9, most_node / 1e9, gpu->host_memory / 1e9);
    return true;
}

bool job_count(Job *j, JobShape *shape, void *user, Err *err) {
    Count c = { .j = j, .shape = shape, .user = user };
    const Alike *fullest = NULL;
    double most = -1, node = 0, most_node = 0;
    set_rank(j, 0);
    c.any = shape(user);
    for (int r = 0; r < j->counted; r++) {
        Alike *a = alike_of(&c, r);
        const GridAt *at = &j->ranks.shard.at;
        a->ranks++, a->tp[at->tp] = a->pp[at->pp] = true;
        if (j->listed) fputs(rank_line(&j->ranks.shard, r, a->need, a->n).text, stdout);
        double host = (double)needs_sum(a->need, a->n, true), device = (double)needs_sum(a->need, a->n, false) - host;
        if (device > most) most = device, fullest = a;
        node = j->cluster.gpus && r % j->cluster.gpu.per_node ? node + host : host;
        if (node > most_node) most_node = node;
    }
    if (!j->listed) tell_kinds(&c);
    bool ok = judge(j, fullest, most_node, err);
    vec_free(c.table.at), vec_free(c.beside.at), vec_free(c.kind.at), vec_free(c.alike_of.at), vec_free(c.alike.at);
    mem_free(&c.mem);
    return ok;
}
