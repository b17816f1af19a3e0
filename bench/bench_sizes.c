/* bench_sizes.c [CONFIG GRID RANKS MICRO_TOKENS] - seconds for the memory of every rank of a
 * grid, counted by running its code on the dry device. */
#include "base/clock.h"
#include "train/policy.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const char *config = argc > 1 ? argv[1] : "tests/data/configs/DeepSeek-V3.json",
               *grid = argc > 2 ? argv[2] : "tp=8,pp=12,ep=8";
    int ranks = argc > 3 ? atoi(argv[3]) : 96;
    int64_t micro = argc > 4 ? atoi(argv[4]) : 4096;
    Mem mem = { 0 };
    Err err;
    ModelDesc m;
    GridShape g;
    CHECK(model_desc_load(&m, config, &mem, &err) && grid_parse(&g, grid, &err)
              && grid_fill(&g, &m, ranks, NULL, 8, &err),
          "%s", err.msg);
    PolicyConf c = { .micro_tokens = micro, .max_seqs = 256, .trains = true, .trained.recompute = RECOMPUTE_FULL };
    double t0 = clock_now(), sum = 0, weights = 0;
    for (int r = 0; r < ranks; r++) {
        Shard s = { g, grid_at(&g, r) };
        PolicySizes z = policy_sizes(&m, &s, &c, dev_kind_cpu());
        weights += (double)params_bytes(&m, &s, DT_F32, false);
        sum += (double)(z.grads + z.optim_dev + z.act + z.tmp + z.io);
    }
    printf("%d ranks: %.3f s; weights %.1f GB, the rest %.1f GB\n", ranks, clock_now() - t0, weights / 1e9, sum / 1e9);
    mem_free(&mem);
    return 0;
}
