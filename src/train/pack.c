/* pack.c - mini-batches in an order that the seed names, packed into micro-batches of a token budget.
 * Balancing alone does not know the budget: parts that came out too full hand sequences to parts
 * with room; where that does not help there is one more part.  With as many parts as sequences it always ends. */
#include "train/pack.h"
#include "base/rng.h"
#include "base/sort.h"
#include "train/balance.h"

#include <string.h>

void minibatch_order(int32_t *order, int64_t groups, bool shuffle, uint64_t seed, uint32_t step, uint32_t epoch) {
    for (int64_t i = 0; i < groups; i++) order[i] = (int32_t)i;
    for (int64_t i = groups - 1; shuffle && i > 0;
         i--) { /* Fisher-Yates; a number is named by its place, so nothing is carried */
        int64_t j = (int64_t)(rng_u64(seed, RNG_MINIBATCH, step, epoch, 0, (uint32_t)i) % (uint64_t)(i + 1));
        int32_t x = order[i];
        order[i] = order[j], order[j] = x;
    }
}

size_t pack_keep(int64_t n) {
    return arena_round((size_t)(n + 1) * sizeof(int64_t)) + 2 * arena_round((size_t)n * sizeof(int32_t));
}
size_t pack_scratch(int64_t n, int64_t parts) {
    return balance_scratch(n, n > parts ? n : parts) + 6 * arena_round((size_t)n * 8)
           + 2 * arena_round((size_t)n * sizeof(int32_t)) + arena_round((size_t)(parts + 1) * 8);
}

/* One part's sequences, and the micro-batches they are put into. */
typedef struct {
    const int64_t *lens;
    int64_t n, k, budget;
    double *cost, *part_cost; /* [n], [k] */
    int64_t *tokens;          /* [k] */
    int32_t *part;            /* [n] */
} Plan;

static void count(Plan *p) {
    for (int64_t j = 0; j < p->k; j++) p->tokens[j] = 0, p->part_cost[j] = 0;
    for (int64_t i = 0; i < p->n; i++) p->tokens[p->part[i]] += p->lens[i], p->part_cost[p->part[i]] += p->cost[i];
}

/* From each part that is too full, its shortest sequences go to the emptiest part, while they fit. */
static bool repair(Plan *p) {
    for (int64_t from = 0; from < p->k; from++)
        while (p->tokens[from] > p->budget) {
            int64_t item = -1, to = from;
            for (int64_t i = 0; i < p->n; i++)
                if (p->part[i] == from && (item < 0 || p->lens[i] < p->lens[item])) item = i;
            for (int64_t j = 0; j < p->k; j++)
                if (p->tokens[j] < p->tokens[to]) to = j;
            if (to == from || p->tokens[to] + p->lens[item] > p->budget) return false;
            p->part[item] = (int32_t)to;
            p->tokens[from] -= p->lens[item], p->tokens[to] += p->lens[item];
            p->part_cost[from] -= p->cost[item], p->part_cost[to] += p->cost[item];
        }
    return true;
}

/* As few as the balance allows. */
static void cut_part(Plan *p, Arena *tmp) {
    int64_t total = 0, wide = 0; /* wide: no two of them fit together */
    for (int64_t i = 0; i < p->n; i++) total += p->lens[i], wide += p->lens[i] > p->budget / 2;
    p->k = (total + p->budget - 1) / p->budget;
    if (p->k < wide) p->k = wide;
    for (;; p->k += 1 + p->k / 64) {
        if (p->k > p->n) p->k = p->n;
        balance(p->part, p->cost, p->n, p->k, false, tmp);
        count(p);
        if (repair(p)) return;
    }
}

/* By falling cost, equal ones by their number; name: the sequences' indices. */
static void write_out(Pack *out, const Plan *p, const int32_t *name, Arena *tmp) {
    size_t mark = arena_mark(tmp);
    uint64_t *order = arena_push(tmp, (size_t)p->k * 8);
    for (int64_t j = 0; j < p->k; j++) order[j] = (uint64_t)~sort_key_f32((float)p->part_cost[j]) << 32 | (uint64_t)j;
    sort_u64(order, (size_t)p->k);
    int64_t at = 0;
    for (int64_t j = 0; j < p->k; j++) {
        int32_t part = (int32_t)(order[j] & 0xFFFFFFFFu);
        out->first[j] = at;
        for (int64_t i = 0; i < p->n; i++)
            if (p->part[i] == part) out->item[at++] = name[i];
    }
    out->first[p->k] = at;
    arena_pop(tmp, mark);
}

/* The sequences of each part side by side, in the order they came: those of part k are
 * name[at[k]] .. name[at[k+1]-1]. */
static void sort_by_part(int32_t *name, int64_t *at, const int32_t *part, int64_t n, int parts) {
    for (int k = 0; k <= parts; k++) at[k] = 0;
    for (int64_t i = 0; i < n; i++) at[part[i] + 1]++;
    for (int k = 0; k < parts; k++) at[k + 1] += at[k];
    for (int64_t i = 0; i < n; i++) name[at[part[i]]++] = (int32_t)i;
    for (int k = parts; k > 0; k--) at[k] = at[k - 1];
    at[0] = 0;
}

static bool fits(const int64_t *lens, int64_t n, int64_t budget, Err *err) {
    for (int64_t i = 0; i < n; i++) {
        CHECK(lens[i] > 0, "pack: sequence %lld has %lld tokens", (long long)i, (long long)lens[i]);
        if (lens[i] > budget)
            return err_set(
                err,
                "sequence %lld has %lld tokens, more than a micro-batch may hold (%lld): raise train.micro_tokens "
                "or lower data.max_response_length",
                (long long)i, (long long)lens[i], (long long)budget);
    }
    return true;
}

bool pack(Pack *out, const int64_t *lens, int64_t n, const PackConf *c, Arena *keep, Arena *tmp, Err *err) {
    CHECK(n > 0 && c->parts > 0 && c->mine < c->parts, "pack: %lld sequences, part %d of %d", (long long)n, c->mine,
          c->parts);
    TRY(fits(lens, n, c->budget, err));
    *out = (Pack){ .first = arena_push(keep, (size_t)(n + 1) * sizeof(int64_t)),
                   .item = arena_push(keep, (size_t)n * sizeof(int32_t)),
                   .part = arena_push(keep, (size_t)n * sizeof(int32_t)) };
    size_t mark = arena_mark(tmp);
    double *cost = arena_push(tmp, (size_t)n * 8), *sum = arena_push(tmp, (size_t)n * 8);
    int64_t *tokens = arena_push(tmp, (size_t)n * 8), *len = arena_push(tmp, (size_t)n * 8),
            *at = arena_push(tmp, (size_t)(c->parts + 1) * 8), micros = 0, own = 0;
    int32_t *name = arena_push(tmp, (size_t)n * sizeof *name), *part = arena_push(tmp, (size_t)n * sizeof *part);
    double *each = arena_push(tmp, (size_t)n * 8), all = 0, most = 0, most_part = 0;
    for (int64_t i = 0; i < n; i++)
        each[i] = c->cost.linear * (double)lens[i] + c->cost.square * (double)lens[i] * (double)lens[i];
    if (c->parts > 1) balance(out->part, each, n, c->parts, false, tmp);
    else memset(out->part, 0, (size_t)n * sizeof *out->part);
    sort_by_part(name, at, out->part, n, c->parts);
    for (int k = 0; k < c->parts; k++) {
        Plan p = { len, at[k + 1] - at[k], 0, c->budget, cost, sum, tokens, part };
        double whole = 0;
        int64_t has = 0;
        for (int64_t i = 0; i < p.n; i++) len[i] = lens[name[at[k] + i]], cost[i] = each[name[at[k] + i]];
        if (p.n) cut_part(&p, tmp);
        for (int64_t j = 0; j < p.k; j++) {
            whole += sum[j], has += tokens[j];
            if (sum[j] > most) most = sum[j];
            if (tokens[j] > out->max_tokens) out->max_tokens = tokens[j];
        }
        all += whole, micros += p.k;
        if (whole > most_part) most_part = whole;
        if (has > out->part_most) out->part_most = has;
        if (k == 0 || has < out->part_least) out->part_least = has;
        if (p.k > out->n_micro) out->n_micro = p.k;
        if (k == c->mine) write_out(out, &p, name + at[k], tmp), own = p.k;
    }
    for (int64_t j = own + 1; j <= out->n_micro; j++) out->first[j] = out->first[own];
    out->imbalance = all > 0 ? most * (double)micros / all : 1;
    out->spread = all > 0 ? most_part * (double)c->parts / all : 1;
    arena_pop(tmp, mark);
    return true;
}
