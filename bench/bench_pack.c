/* bench_pack.c - the methods that know no model, at the size of a large step: balancing, packing,
 * advantages and losses of 8192 answers.  verl does the same in Python on the driver.  Prints milliseconds
 * of processor time, the best of five. */
#include "algo/advantage.h"
#include "algo/loss.h"
#include "base/rng.h"
#include "train/balance.h"
#include "train/pack.h"

#include <stdio.h>
#include <time.h>

enum { ANSWERS = 8192, GROUP = 16, BUDGET = 16384 };

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double unit(uint32_t what, uint32_t i) { return rng_unit(rng_u64(1, RNG_INIT, what, i, 0, 0)); }

int main(void) {
    Mem mem = { 0 };
    static int64_t lens[ANSWERS], at[ANSWERS + 1];
    static int32_t part[ANSWERS], group[ANSWERS];
    static double cost[ANSWERS];
    for (int i = 0; i < ANSWERS; i++) {
        double u = unit(0, (uint32_t)i);
        lens[i] = 200 + (int64_t)(8000 * u * u * u);
        cost[i] = verl_workload(lens[i]);
        at[i + 1] = at[i] + lens[i];
        group[i] = i / GROUP;
    }
    int64_t T = at[ANSWERS];
    float *lp = MEM_ARRAY(&mem, float, (size_t)T), *old = MEM_ARRAY(&mem, float, (size_t)T),
          *adv = MEM_ARRAY(&mem, float, (size_t)T);
    float *reward = MEM_ARRAY(&mem, float, (size_t)T), *dlp = MEM_ARRAY(&mem, float, (size_t)T);
    for (int64_t t = 0; t < T; t++)
        old[t] = (float)-unit(1, (uint32_t)t), lp[t] = old[t] + (float)(0.1 * unit(2, (uint32_t)t));
    for (int i = 0; i < ANSWERS; i++) reward[at[i + 1] - 1] = unit(3, (uint32_t)i) < 0.4;
    Arena keep = arena_in(&mem, "keep", pack_keep(ANSWERS)),
          tmp = arena_in(&mem, "tmp", adv_scratch(ANSWERS, T) + pack_scratch(ANSWERS, 64));
    double best[5] = { 1e9, 1e9, 1e9, 1e9, 1e9 };
    Pack p = { 0 }, ranks = { 0 };
    Err err;
    for (int round = 0; round < 5; round++) {
        double t[6] = { cpu() };
        balance(part, cost, ANSWERS, 128, true, &tmp);
        t[1] = cpu();
        keep.used = 0;
        if (!pack(&ranks, lens, ANSWERS, &(PackConf){ BUDGET, { 24576, 1 }, 64, 0 }, &keep, &tmp, &err))
            return printf("%s\n", err.msg), 1;
        t[2] = cpu();
        keep.used = 0;
        if (!pack(&p, lens, ANSWERS, &(PackConf){ BUDGET, { 24576, 1 }, 1, 0 }, &keep, &tmp, &err))
            return printf("%s\n", err.msg), 1;
        t[3] = cpu();
        AdvConf ac = { .kind = ADV_GRPO, .norm_by_std = true };
        AdvIn ai = { .a = { ANSWERS, at, at + 1, NULL }, .reward = reward, .group = group };
        if (!advantage(adv, NULL, &ac, &ai, &tmp, &err)) return printf("%s\n", err.msg), 1;
        t[4] = cpu();
        LossConf lc = { .clip_low = 0.2, .clip_high = 0.28, .clip_c = 3 };
        LossIn li = { .a = ai.a, .lp = lp, .old = old, .adv = adv };
        LossCounts n = { 0 };
        LossSum s = { 0 };
        loss_count(&n, &li.a);
        loss_piece(&s, dlp, NULL, &lc, &n, &li);
        t[5] = cpu();
        for (int i = 0; i < 5; i++)
            if (t[i + 1] - t[i] < best[i]) best[i] = t[i + 1] - t[i];
    }
    printf("%d answers, %.1f M tokens\n", ANSWERS, (double)T / 1e6);
    printf("balance over 128 ranks     %8.2f ms\n", 1e3 * best[0]);
    printf("parts over 64 ranks, cut into micro-batches %8.2f ms (worst / mean %.4f)\n", 1e3 * best[1], ranks.spread);
    printf("pack into %4d micro-batches of %d  %8.2f ms (imbalance %.3f)\n", (int)p.n_micro, BUDGET, 1e3 * best[2],
           p.imbalance);
    printf("advantages (grpo)          %8.2f ms\n", 1e3 * best[3]);
    printf("losses and derivatives     %8.2f ms\n", 1e3 * best[4]);
    mem_free(&mem);
    return 0;
}
