/* test_pack.c - budgets are never exceeded, everything is packed once, the number of micro-batches is near the least;
 * the choice of mini-batches depends on the seed alone; the learning rate's shape. */
#include "base/rng.h"
#include "test.h"
#include "train/lr.h"
#include "train/pack.h"

#include <math.h>

enum { MAX = 600 };

static void check(const char *what, const int64_t *lens, int64_t n, int64_t budget, double slack) {
    Mem mem = { 0 };
    Arena keep = arena_in(&mem, "keep", pack_keep(n)), tmp = arena_in(&mem, "tmp", pack_scratch(n, 1));
    Pack p;
    Err err = { { 0 } };
    bool ok = pack(&p, lens, n, &(PackConf){ budget, { 1000, 1 }, 1, 0 }, &keep, &tmp, &err);
    EXPECT(ok, "%s: %s", what, err.msg);
    int seen[MAX] = { 0 };
    int64_t total = 0, over = 0, most = 0, out_of_order = 0;
    for (int64_t m = 0; ok && m < p.n_micro; m++) {
        int64_t tokens = 0;
        for (int64_t j = p.first[m]; j < p.first[m + 1]; j++) {
            seen[p.item[j]]++, tokens += lens[p.item[j]];
            out_of_order += j > p.first[m] && p.item[j] <= p.item[j - 1];
        }
        total += tokens, over += tokens > budget;
        if (tokens > most) most = tokens;
    }
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += seen[i] != 1;
    EXPECT(!wrong && !over && !out_of_order && most == p.max_tokens, "%s: %lld not packed once, %lld over budget", what,
           (long long)wrong, (long long)over);
    double least = ceil((double)total / (double)budget);
    EXPECT((double)p.n_micro <= ceil(least * slack), "%s: %lld micro-batches, at least %g", what, (long long)p.n_micro,
           least);
    EXPECT(tmp.used == 0, "%s: scratch is given back", what);
    mem_free(&mem);
}

static void packing(void) {
    int64_t lens[MAX];
    for (int64_t n = 1; n <= MAX; n = n * 3 + 1) {
        for (int64_t i = 0; i < n; i++) { /* many short, few long, as answers are */
            double u = rng_unit(rng_u64(5, RNG_INIT, (uint32_t)n, (uint32_t)i, 0, 0));
            lens[i] = 1 + (int64_t)(2000 * u * u * u);
        }
        check("skewed", lens, n, 2100, 1.35);
        check("skewed, wide", lens, n, 16384, 1.2);
        for (int64_t i = 0; i < n; i++) lens[i] = 1001;
        check("just over half", lens, n, 2000, 2.01);
        for (int64_t i = 0; i < n; i++) lens[i] = i % 7 ? 3 : 2000;
        check("two kinds", lens, n, 2000, 1.6);
    }
    Mem mem = { 0 };
    Arena keep = arena_in(&mem, "keep", pack_keep(3)), tmp = arena_in(&mem, "tmp", pack_scratch(3, 1));
    Pack p;
    Err err;
    int64_t bad[] = { 10, 33, 20 };
    EXPECT(!pack(&p, bad, 3, &(PackConf){ 32, { 1, 0 }, 1, 0 }, &keep, &tmp, &err)
               && strstr(err.msg, "sequence 1 has 33 tokens"),
           "%s", err.msg);
    mem_free(&mem);
}

/* Over ranks: all make the same plan, each reads its own part of it. */
static void over_ranks(const char *what, const int64_t *lens, int64_t n, int64_t budget, int parts, double spread) {
    int seen[MAX] = { 0 }, last[MAX];
    int64_t micros = 0, wrong = 0, most = 0, part_most = 0, part_least = INT64_MAX;
    double cost[64] = { 0 }, all = 0, dearest = 0;
    for (int mine = 0; mine < parts; mine++) {
        Mem mem = { 0 };
        Arena keep = arena_in(&mem, "keep", pack_keep(n)), tmp = arena_in(&mem, "tmp", pack_scratch(n, parts));
        Pack p;
        Err err = { "" };
        bool ok = pack(&p, lens, n, &(PackConf){ budget, { 1000, 1 }, parts, mine }, &keep, &tmp, &err);
        EXPECT(ok && !tmp.used, "%s: %s", what, err.msg);
        if (!mine) micros = p.n_micro;
        wrong += p.n_micro != micros;
        bool empty = false;
        int64_t has = 0;
        for (int64_t m = 0; m < p.n_micro; m++) {
            int64_t tokens = 0;
            for (int64_t j = p.first[m]; j < p.first[m + 1]; j++) {
                int32_t i = p.item[j];
                seen[i]++, tokens += lens[i], has += lens[i],
                    cost[mine] += 1000.0 * (double)lens[i] + (double)(lens[i] * lens[i]);
                wrong += p.part[i] != mine;
            }
            wrong += tokens > budget || (empty && tokens);
            empty = !tokens;
            if (tokens > most) most = tokens;
        }
        for (int64_t i = 0; i < n; i++) wrong += mine && last[i] != p.part[i], last[i] = p.part[i];
        all += cost[mine], dearest = fmax(dearest, cost[mine]);
        EXPECT(mine < parts - 1 || fabs(p.spread - dearest * parts / all) < 1e-9, "%s: spread %g", what, p.spread);
        EXPECT(mine < parts - 1 || most == p.max_tokens, "%s: fullest", what);
        part_most = has > part_most ? has : part_most, part_least = has < part_least ? has : part_least;
        EXPECT(mine < parts - 1 || (part_most == p.part_most && part_least == p.part_least), "%s: tokens of parts",
               what);
        mem_free(&mem);
    }
    for (int64_t i = 0; i < n; i++) wrong += seen[i] != 1;
    EXPECT(!wrong, "%s: %lld wrong over %d ranks", what, (long long)wrong, parts);
    EXPECT(dearest * parts / all <= spread, "%s: the dearest of %d parts is %g of the mean", what, parts,
           dearest * parts / all);
}

static void ranks(void) {
    int64_t lens[MAX];
    for (int parts = 2; parts <= 64; parts *= 2) {
        for (int64_t i = 0; i < MAX; i++) {
            double u = rng_unit(rng_u64(6, RNG_INIT, (uint32_t)parts, (uint32_t)i, 0, 0));
            lens[i] = 1 + (int64_t)(2000 * u * u * u);
        }
        over_ranks("skewed", lens, MAX, 2100, parts, parts < 32 ? 1.001 : 1.05);
        over_ranks("fewer than ranks", lens, parts - 1, 2100, parts, 64);
        over_ranks("one", lens, 1, 2100, parts, 64);
        for (int64_t i = 0; i < MAX; i++) lens[i] = 1001;
        over_ranks("equal", lens, MAX, 2000, parts, 1.07); /* 10 of 9.4 */
    }
    over_ranks("three", lens, 100, 2000, 3, 1.05);
}

static void minibatches(void) {
    int32_t a[100], b[100];
    minibatch_order(a, 100, true, 7, 3, 0);
    minibatch_order(b, 100, true, 7, 3, 0);
    EXPECT(!memcmp(a, b, sizeof a), "the same seed and step give the same order");
    int seen[100] = { 0 }, moved = 0;
    for (int i = 0; i < 100; i++) seen[a[i]]++, moved += a[i] != i;
    for (int i = 0; i < 100; i++) EXPECT(seen[i] == 1, "a permutation");
    EXPECT(moved > 80, "shuffled");
    minibatch_order(b, 100, true, 7, 3, 1);
    EXPECT(memcmp(a, b, sizeof a), "another epoch, another order");
    minibatch_order(b, 100, false, 7, 3, 0);
    for (int i = 0; i < 100; i++) EXPECT(b[i] == i, "not shuffled");
    EXPECT(minibatch_count(7, 2) == 4 && minibatch_count(8, 2) == 4, "counts");
}

static void rates(void) {
    LrConf c = { LR_CONSTANT, 1e-3, 0.1, 10, 100, 20 };
    EXPECT(fabs(lr_at(&c, 0) - 1e-4) < 1e-18 && lr_at(&c, 9) == 1e-3 && lr_at(&c, 99) == 1e-3,
           "warm-up: the first step learns");
    c.kind = LR_LINEAR;
    EXPECT(lr_at(&c, 10) == 1e-3 && fabs(lr_at(&c, 55) - 1e-3 * 0.55) < 1e-15 && fabs(lr_at(&c, 100) - 1e-4) < 1e-15,
           "linear");
    EXPECT(fabs(lr_at(&c, 1000) - 1e-4) < 1e-15, "it stays at the end");
    c.kind = LR_COSINE;
    EXPECT(fabs(lr_at(&c, 55) - 1e-3 * 0.55) < 1e-12 && lr_at(&c, 30) > 1e-3 * (0.1 + 0.9 * 0.777), "cosine %g",
           lr_at(&c, 30));
    c.kind = LR_WSD;
    EXPECT(lr_at(&c, 79) == 1e-3 && lr_at(&c, 80) == 1e-3 && fabs(lr_at(&c, 90) - 1e-3 * 0.55) < 1e-15, "wsd");
    c.warmup = 0;
    EXPECT(lr_at(&c, 0) == 1e-3, "no warm-up");
    for (int kind = LR_CONSTANT; kind <= LR_WSD; kind++)
        for (int64_t warm = 0; warm < 5; warm++) {
            LrConf d = { (LrKind)kind, 1, 0, warm, 3, 2 };
            EXPECT(lr_at(&d, 0) > 0, "kind %d, warm-up %lld: the first step runs at rate %g", kind, (long long)warm,
                   lr_at(&d, 0));
        }
}

int main(void) {
    packing();
    ranks();
    minibatches();
    rates();
    return test_end();
}
