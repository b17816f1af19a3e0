/* pack.c - see pack.h.  Balancing alone does not know the budget: parts that came out too full hand sequences to parts
 * with room; where that does not help there is one more part.  With as many parts as sequences it always ends. */
#include "train/pack.h"
#include "base/rng.h"
#include "base/sort.h"
#include "train/balance.h"

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
    return arena_round((size_t)(n + 1) * sizeof(int64_t)) + arena_round((size_t)n * sizeof(int32_t));
}
size_t pack_scratch(int64_t n) {
    return balance_scratch(n, n) + 4 * arena_round((size_t)n * 8) + arena_round((size_t)n * sizeof(int32_t));
}

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

/* Parts by falling cost, equal ones by their number. */
static void write_out(Pack *out, const Plan *p, Arena *keep, Arena *tmp) {
    uint64_t *order = arena_push(tmp, (size_t)p->k * 8);
    for (int64_t j = 0; j < p->k; j++) order[j] = (uint64_t)~sort_key_f32((float)p->part_cost[j]) << 32 | (uint64_t)j;
    sort_u64(order, (size_t)p->k);
    out->n_micro = p->k, out->max_tokens = 0;
    out->first = arena_push(keep, (size_t)(p->k + 1) * sizeof(int64_t));
    out->item = arena_push(keep, (size_t)p->n * sizeof(int32_t));
    int64_t at = 0;
    double all = 0, most = 0;
    for (int64_t j = 0; j < p->k; j++) {
        int32_t part = (int32_t)(order[j] & 0xFFFFFFFFu);
        out->first[j] = at;
        for (int64_t i = 0; i < p->n; i++)
            if (p->part[i] == part) out->item[at++] = (int32_t)i;
        if (p->tokens[part] > out->max_tokens) out->max_tokens = p->tokens[part];
        if (p->part_cost[part] > most) most = p->part_cost[part];
        all += p->part_cost[part];
    }
    out->first[p->k] = at;
    out->imbalance = all > 0 ? most * (double)p->k / all : 1;
}

bool pack(Pack *out, const int64_t *lens, int64_t n, int64_t budget, PackCost cost, Arena *keep, Arena *tmp, Err *err) {
    CHECK(n > 0, "pack: nothing to pack");
    int64_t total = 0, wide = 0; /* wide: no two of them fit together */
    for (int64_t i = 0; i < n; i++) {
        CHECK(lens[i] > 0, "pack: sequence %lld has %lld tokens", (long long)i, (long long)lens[i]);
        if (lens[i] > budget)
            return err_set(
                err,
                "sequence %lld has %lld tokens, more than a micro-batch may hold (%lld): raise train.micro_tokens "
                "or lower data.max_response_length",
                (long long)i, (long long)lens[i], (long long)budget);
        total += lens[i];
        wide += lens[i] > budget / 2;
    }
    size_t mark = arena_mark(tmp);
    Plan p = { .lens = lens, .n = n, .budget = budget };
    p.cost = arena_push(tmp, (size_t)n * 8), p.part_cost = arena_push(tmp, (size_t)n * 8),
    p.tokens = arena_push(tmp, (size_t)n * 8);
    p.part = arena_push(tmp, (size_t)n * sizeof(int32_t));
    for (int64_t i = 0; i < n; i++)
        p.cost[i] = cost.linear * (double)lens[i] + cost.square * (double)lens[i] * (double)lens[i];
    p.k = (total + budget - 1) / budget;
    if (p.k < wide) p.k = wide;
    for (;; p.k += 1 + p.k / 64) {
        if (p.k > n) p.k = n;
        balance(p.part, p.cost, n, p.k, false, tmp);
        count(&p);
        if (repair(&p)) break;
    }
    write_out(out, &p, keep, tmp);
    arena_pop(tmp, mark);
    return true;
}
