/* bench_reduce_mpi.c - the sum of gradients over ranks in a fixed order (train/reduce.h) beside MPI_Reduce_scatter,
 * which adds in an order of its own:  mpirun -n 4 build/bench/bench_reduce_mpi [millions of elements].  Prints
 * milliseconds on the clock of the slowest rank, the best of nine, taken in turn. */
#include "base/clock.h"
#include "comm/world.h"
#include "train/reduce.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 9 };

int main(int argc, char **argv) {
    World w;
    Err err;
    if (!world_open(&w, 60, &err)) return fprintf(stderr, "%s\n", err.msg), 1;
    if (w.all.size == 1) return fprintf(stderr, "bench_reduce_mpi: start it with mpirun -n N\n"), 1;
    int64_t n = (argc > 1 ? atoi(argv[1]) : 8) * 1000000LL / 4096 * 4096;
    Dev d;
    Groups par = groups_self();
    dev_open(&d, (DevOpts){ .threads = 1 });
    Param one = { 0 };
    Params g = { .shard = { .g = { 1, 1, 1, 1, 1, 1, w.all.size, { 0 } },
                            .at = { .dp = w.all.rank, .edp = w.all.rank } },
                 .arena = dev_arena(&d, "gradients", (size_t)n * 4),
                 .at = &one,
                 .n = 1,
                 .first = { 0, 1, 1, 1 } };
    one.t = g.flat = tensor_over(g.arena.base, DT_F32, 1, n);
    par.dense = par.dp = par.edp = w.all;
    d.tmp = dev_arena(&d, "tmp", 8 << 20);
    Span own = reduce_own(&g, REGION_WHOLE);
    float *from = malloc((size_t)n * 4), *to = malloc((size_t)n * 4), *got = malloc((size_t)n * 4);
    int *counts = malloc((size_t)w.all.size * sizeof *counts);
    for (int r = 0; r < w.all.size; r++) {
        g.shard.at.dp = r;
        Span p = reduce_own(&g, REGION_WHOLE);
        counts[r] = (int)(p.to - p.from);
    }
    g.shard.at.dp = w.all.rank;
    double best[2] = { 1e9, 1e9 }, apart = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int64_t i = 0; i < n; i++) from[i] = (float)((w.all.rank * 7919 + i * 104729) % 1000003) * 1e-6f - 0.5f;
        op_put(&d, g.flat, from);
        comm_barrier(&w.all);
        double t0 = clock_now();
        reduce_grads(&g, &par, &d);
        double ours = comm_max(&w.all, clock_now() - t0);
        comm_barrier(&w.all);
        t0 = clock_now();
        MPI_Reduce_scatter(from, to, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double theirs = comm_max(&w.all, clock_now() - t0);
        if (ours < best[0]) best[0] = ours;
        if (theirs < best[1]) best[1] = theirs;
        op_get(&d, got, tensor_cols(g.flat, own.from, own.to - own.from));
        for (int64_t i = 0; i < own.to - own.from; i++) {
            double x = (double)got[i] - (double)to[i];
            if (x > apart || -x > apart) apart = x < 0 ? -x : x;
        }
    }
    if (w.all.rank == 0)
        printf("%d ranks, %.1f M elements: in order %.1f ms, MPI_Reduce_scatter %.1f ms: %.2f x MPI's speed; results "
               "apart by %.1e\n",
               w.all.size, (double)n / 1e6, 1e3 * best[0], 1e3 * best[1], best[1] / best[0], apart);
    free(from), free(to), free(got), free(counts);
    dev_close(&d);
    world_close(&w);
    return 0;
}
