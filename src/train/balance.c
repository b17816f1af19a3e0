/* balance.c - largest differencing.
 *
 * A state is k sets of items, in falling order of sum; its spread is largest minus smallest.  The two states of largest
 * spread are merged, largest set with smallest, until one is left.  Sets that are still empty are not stored: a set is
 * named by its first item and a state is a list of sets, so the whole takes O(n) memory whatever k is. */
#include "train/balance.h"
#include "base/sort.h"

#include <string.h>

typedef struct {
    int64_t n, k, states;
    double *sum;                         /* [n] of the set named by this item */
    int32_t *next, *last, *size, *least; /* [n] the set's items as a list; its length; its smallest item */
    int32_t *next_set;                   /* [n] the state's sets as a list */
    int32_t *head, *sets, *heap;         /* [states]: first set, number of sets; heap of states */
    double *spread;                      /* [states] */
    int32_t *pair;                       /* [2k] */
} Kk;

size_t balance_scratch(int64_t n, int64_t k) {
    size_t d = arena_round((size_t)n * sizeof(double)), i = arena_round((size_t)n * sizeof(int32_t));
    return 3 * d + 8 * i + arena_round((size_t)k * 2 * sizeof(int32_t));
}

/* The larger sum, then the more items, then the larger first item. */
static bool above(const Kk *s, int32_t a, int32_t b) {
    if (s->sum[a] != s->sum[b]) return s->sum[a] > s->sum[b];
    if (s->size[a] != s->size[b]) return s->size[a] > s->size[b];
    return s->least[a] > s->least[b];
}

static bool pops_first(const Kk *s, int32_t a, int32_t b) {
    if (s->spread[a] != s->spread[b]) return s->spread[a] > s->spread[b];
    return above(s, s->head[a], s->head[b]);
}

static void sift_down(Kk *s, int64_t i, int64_t n) {
    int32_t x = s->heap[i];
    for (int64_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && pops_first(s, s->heap[c + 1], s->heap[c])) c++;
        if (!pops_first(s, s->heap[c], x)) break;
        s->heap[i] = s->heap[c];
    }
    s->heap[i] = x;
}

/* Falling order: heapsort, the smallest popped to the end. */
static void sort_sets(const Kk *s, int32_t *set, int64_t m) {
    for (int64_t i = m / 2, end = m; end > 1;) {
        int32_t x;
        if (i) x = set[--i];
        else x = set[--end], set[end] = set[0];
        int64_t hole = i;
        for (int64_t c; (c = 2 * hole + 1) < end; hole = c) {
            if (c + 1 < end && above(s, set[c], set[c + 1])) c++;
            if (!above(s, x, set[c])) break;
            set[hole] = set[c];
        }
        set[hole] = x;
    }
}

/* set[0..m-1], in falling order, becomes the state. */
static void relink(Kk *s, int32_t state, const int32_t *set, int64_t m) {
    for (int64_t i = 0; i + 1 < m; i++) s->next_set[set[i]] = set[i + 1];
    s->next_set[set[m - 1]] = -1;
    s->head[state] = set[0];
    s->sets[state] = (int32_t)m;
    s->spread[state] = s->sum[set[0]] - (m < s->k ? 0 : s->sum[set[m - 1]]);
}

static void join(Kk *s, int32_t a, int32_t b) { /* b's items move into a */
    s->sum[a] += s->sum[b];
    s->next[s->last[a]] = b;
    s->last[a] = s->last[b];
    s->size[a] += s->size[b];
    if (s->least[b] < s->least[a]) s->least[a] = s->least[b];
}

/* Set i of a meets set k-1-i of b.  Those that meet nobody, the largest of both, are in order already: only
 * the joined ones are sorted, then the three lists are merged.  (With many parts most merges join few:
 * sorting all took 2 s for 8192 items in 1131 parts.) */
static void merge(Kk *s, int32_t a, int32_t b) {
    int64_t na = s->sets[a], nb = s->sets[b], joined = na + nb > s->k ? na + nb - s->k : 0, m = 0;
    int32_t *pair = s->pair, *out = s->pair + s->k;
    int32_t x = s->head[a], y = s->head[b], alone_a = x, alone_b = y;
    for (int64_t i = 0; i < na - joined; i++) x = s->next_set[x];
    for (int64_t i = 0; i < nb - joined; i++) y = s->next_set[y];
    for (int64_t i = 0; i < joined; i++, y = s->next_set[y]) out[joined - 1 - i] = y; /* b's smallest first */
    for (int64_t i = 0; i < joined; i++) {
        pair[i] = x;
        x = s->next_set[x];
        join(s, pair[i], out[i]);
    }
    sort_sets(s, pair, joined);
    for (int64_t ia = na - joined, ib = nb - joined, ij = 0; ia || ib || ij < joined;) {
        int32_t best = -1, from = 0;
        if (ia) best = alone_a, from = 0;
        if (ib && (best < 0 || above(s, alone_b, best))) best = alone_b, from = 1;
        if (ij < joined && (best < 0 || above(s, pair[ij], best))) best = pair[ij], from = 2;
        if (from == 0) ia--, alone_a = s->next_set[alone_a];
        else if (from == 1) ib--, alone_b = s->next_set[alone_b];
        else ij++;
        out[m++] = best;
    }
    relink(s, a, out, m);
}

/* Items in rising order of cost; `each` of them form one state. */
static void first_states(Kk *s, const double *cost, bool equal_size, Arena *tmp) {
    size_t mark = arena_mark(tmp);
    uint64_t *order = arena_push(tmp, (size_t)s->n * 8);
    for (int64_t i = 0; i < s->n; i++) order[i] = (uint64_t)sort_key_f32((float)cost[i]) << 32 | (uint64_t)i;
    sort_u64(order, (size_t)s->n);
    for (int64_t i = 1; i < s->n; i++) /* costs that one float cannot tell apart: insertion puts them right */
        for (int64_t j = i; j > 0 && cost[order[j] & 0xFFFFFFFFu] < cost[order[j - 1] & 0xFFFFFFFFu]; j--) {
            uint64_t x = order[j];
            order[j] = order[j - 1], order[j - 1] = x;
        }
    int64_t each = equal_size ? s->k : 1;
    for (int64_t i = 0; i < s->n; i += each) {
        for (int64_t j = 0; j < each; j++) {
            int32_t x = (int32_t)(order[i + j] & 0xFFFFFFFFu);
            s->sum[x] = cost[x];
            s->next[x] = -1;
            s->last[x] = s->least[x] = x;
            s->size[x] = 1;
            s->pair[s->k + j] = x;
        }
        s->heap[s->states] = (int32_t)s->states;
        sort_sets(s, s->pair + s->k, each);
        relink(s, (int32_t)s->states++, s->pair + s->k, each);
    }
    arena_pop(tmp, mark);
}

void balance(int32_t *part, const double *cost, int64_t n, int64_t k, bool equal_size, Arena *tmp) {
    CHECK(n > 0 && k > 0 && n < INT32_MAX, "balance: %lld items into %lld parts", (long long)n, (long long)k);
    CHECK(!equal_size || n % k == 0, "balance: %lld items do not make %lld equal parts", (long long)n, (long long)k);
    size_t mark = arena_mark(tmp);
    Kk s = { .n = n, .k = k };
    s.sum = arena_push(tmp, (size_t)n * sizeof(double)), s.spread = arena_push(tmp, (size_t)n * sizeof(double));
    int32_t **array[] = { &s.next, &s.last, &s.size, &s.least, &s.next_set, &s.head, &s.sets, &s.heap };
    for (size_t i = 0; i < COUNT(array); i++) *array[i] = arena_push(tmp, (size_t)n * sizeof(int32_t));
    s.pair = arena_push(tmp, (size_t)k * 2 * sizeof(int32_t));

    first_states(&s, cost, equal_size, tmp);
    int64_t left = s.states;
    for (int64_t i = left / 2; i-- > 0;) sift_down(&s, i, left);
    while (left > 1) {
        int32_t a = s.heap[0];
        s.heap[0] = s.heap[--left];
        sift_down(&s, 0, left);
        merge(&s, a, s.heap[0]);
        s.heap[0] = a;
        sift_down(&s, 0, left);
    }
    for (int64_t i = 0; i < n; i++) part[i] = -1;
    for (int32_t set = s.head[s.heap[0]]; set >= 0; set = s.next_set[set])
        for (int32_t x = set; x >= 0; x = s.next[x]) part[x] = s.least[set];
    int32_t *number = s.last; /* reuse: least item -> part number, in order of the least items */
    int32_t parts = 0;
    for (int64_t i = 0; i < n; i++) {
        if (part[i] == i) number[i] = parts++;
        part[i] = number[part[i]];
    }
    arena_pop(tmp, mark);
}
