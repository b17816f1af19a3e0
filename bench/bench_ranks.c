/* bench_ranks.c CONFIG GRID [SEQUENCES LENGTH MICRO_TOKENS] - a training step over ranks beside the same step on one:
 *   mpirun -n 2 build/bench/bench_ranks bench/models/moe_29m.json dp=2
 * Rank 0 takes a step alone with one thread while the others sleep, then all take one on the grid, in
 * turns.  Prints the seconds of both, by the clock and by the processor time of the busiest rank, and how
 * they compare with an even share of the one: 1.00 would be a cut that costs nothing.  PP of p stages and m
 * micro-batches cannot be below (m + p - 1) / m. */
#include "base/clock.h"
#include "comm/world.h"
#include "train/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3 };

typedef struct {
    Dev dev;
    Model model;
    Policy policy;
} Side;

static void side_open(Side *s, const ModelDesc *desc, const Shard *shard, const Groups *par, const PolicyConf *c,
                      Mem *mem) {
    dev_open(&s->dev, (DevOpts){ .threads = 1 });
    s->dev.tmp = dev_arena(&s->dev, "tmp", policy_sizes(desc, shard, c, dev_kind_cpu()).tmp);
    model_open_shard(&s->model, &s->dev, desc, shard, par, DT_F32, 8, mem);
    params_random(&s->model.w, &s->dev, 1);
    policy_open(&s->policy, &s->model, c, mem);
}

typedef struct {
    double seconds, cpu, loss;
} Took;

static double cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Took step(Side *s, const TrainSeq *seqs, int n) {
    LossConf loss = { .kind = LOSS_GPG, .agg = AGG_TOKEN_MEAN };
    AdamConf adam = { .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01, .clip = 1 };
    UpdateStats st;
    Err err;
    double t = clock_now(), c = cpu_now();
    CHECK(policy_update(&s->policy, seqs, n, &loss, &adam, false, &st, &err), "%s", err.msg);
    return (Took){ clock_now() - t, cpu_now() - c, st.total };
}

/* Log-probs alone: several micro-batches are under way between stages. */
static Took score(Side *s, const TrainSeq *seqs, int n, float *const *lp) {
    Err err;
    double t = clock_now(), c = cpu_now();
    CHECK(policy_logprob(&s->policy, seqs, n, lp, NULL, &err), "%s", err.msg);
    return (Took){ clock_now() - t, cpu_now() - c, 0 };
}

static void least(Took *best, Took x) {
    if (!best->seconds || x.seconds < best->seconds) best->seconds = x.seconds;
    if (!best->cpu || x.cpu < best->cpu) best->cpu = x.cpu;
    best->loss = x.loss;
}

int main(int argc, char **argv) {
    CHECK(argc > 2, "bench_ranks CONFIG GRID [SEQUENCES LENGTH MICRO_TOKENS]");
    int n = argc > 3 ? atoi(argv[3]) : 8, len = argc > 4 ? atoi(argv[4]) : 256, micro = argc > 5 ? atoi(argv[5]) : len;
    World w;
    Err err;
    Mem mem = { 0 };
    ModelDesc desc;
    Shard shard;
    Groups par, alone = groups_self();
    CHECK(world_open(&w, 300, &err) && model_desc_load(&desc, argv[1], &mem, &err)
              && grid_parse(&shard.g, strtok(argv[2], "@"), &err)
              && grid_fill(&shard.g, &desc, w.all.size, strtok(NULL, ""), 8, &err),
          "%s", err.msg);
    shard.at = grid_at(&shard.g, w.all.rank);
    world_groups(&w, &shard.g, &par);
    int32_t *tokens = MEM_ARRAY(&mem, int32_t, (size_t)n * (size_t)len);
    float *zero = MEM_ARRAY(&mem, float, (size_t)len), *one = MEM_ARRAY(&mem, float, (size_t)len);
    TrainSeq *seqs = MEM_ARRAY(&mem, TrainSeq, (size_t)n);
    uint32_t x = 1;
    for (int i = 0; i < n * len; i++)
        x = x * 1664525u + 1013904223u, tokens[i] = (int32_t)((x >> 8) % (uint32_t)desc.d.vocab);
    for (int i = 0; i < len; i++) one[i] = 1;
    for (int i = 0; i < n; i++)
        seqs[i] = (TrainSeq){ .tokens = tokens + (size_t)i * (size_t)len,
                              .n = len,
                              .prompt = 1,
                              .draw = DRAW_PLAIN,
                              .old = zero,
                              .adv = one };
    PolicyConf c = { .micro_tokens = micro, .max_seqs = n, .trains = true };
    Shard whole = shard_whole(&desc);
    Side by_one, cut;
    if (w.all.rank == 0) side_open(&by_one, &desc, &whole, &alone, &c, &mem);
    side_open(&cut, &desc, &shard, &par, &c, &mem);
    float **lp = MEM_ARRAY(&mem, float *, (size_t)n);
    for (int i = 0; i < n; i++) lp[i] = MEM_ARRAY(&mem, float, (size_t)len);
    Took best[2] = { { 0 }, { 0 } }, scored[2] = { { 0 }, { 0 } };
    for (int round = 0; round <= ROUNDS; round++) { /* the first warms up */
        Took a = { 0 };
        if (w.all.rank == 0) a = step(&by_one, seqs, n);
        comm_barrier(&w.all);
        Took b = step(&cut, seqs, n);
        b.seconds = comm_max(&w.all, b.seconds), b.cpu = comm_max(&w.all, b.cpu);
        if (round) least(&best[0], a), least(&best[1], b);
        if (w.all.rank == 0) a = score(&by_one, seqs, n, lp);
        comm_barrier(&w.all);
        b = score(&cut, seqs, n, lp);
        b.seconds = comm_max(&w.all, b.seconds);
        if (round) least(&scored[0], a), least(&scored[1], b);
    }
    if (w.all.rank == 0) {
        printf("%s: one rank %.3f s (cpu %.3f), grid %.3f s (cpu of the busiest rank %.3f): %.2f x an even share by "
               "the clock, %.2f x by "
               "processor time; losses %.6f, %.6f\n",
               argv[2], best[0].seconds, best[0].cpu, best[1].seconds, best[1].cpu,
               best[1].seconds * w.all.size / best[0].seconds, best[1].cpu * w.all.size / best[0].cpu, best[0].loss,
               best[1].loss);
        printf("%s: log-probs alone: one rank %.3f s, grid %.3f s: %.2f x an even share\n", argv[2], scored[0].seconds,
               scored[1].seconds, scored[1].seconds * w.all.size / scored[0].seconds);
    }
    world_close(&w);
    return 0;
}
