/* cpu.c - the CPU backend's table, its choice of instruction set, and how work reaches threads. */
#include "op/cpu/cpu.h"

#include <string.h>

int cpu_isa_best(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
                  && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return avx512 ? ISA_AVX512 : avx2 ? ISA_AVX2 : ISA_C;
#else
    return ISA_C;
#endif
}

const Kern *cpu_kern(const Dev *d) {
#if defined(__x86_64__)
    static const Kern *const of[] = { &kern_c, &kern_c, &kern_avx2, &kern_avx512 };
    return of[d->isa];
#else
    (void)d;
    return &kern_c;
#endif
}

/* Threads that wait awake take work over in half a microsecond; waking one that sleeps costs some ten.  Below a few times that it is
 * quicker to do the work than to ask for help. */
double cpu_worth(const Dev *d) { return threads_awake(d->threads) ? 3000 : 30000; }

void cpu_run(Dev *d, int n, double cost, ThreadFn *fn, void *arg) {
    if (cost < cpu_worth(d))
        for (int i = 0; i < n; i++) fn(arg, i, 0);
    else threads_run(d->threads, n, fn, arg);
}

typedef struct {
    Dev *d;
    RowsFn *fn;
    const void *arg;
    int64_t rows;
    int pieces;
} RowsJob;

static void rows_piece(void *arg, int i, int worker) {
    const RowsJob *j = arg;
    j->fn(j->arg, j->rows * i / j->pieces, j->rows * (i + 1) / j->pieces, cpu_kern(j->d), cpu_work(j->d, worker));
}

void cpu_rows(Dev *d, int64_t rows, double cost_per_row, RowsFn *fn, const void *arg) {
    int n = threads_count(d->threads);
    double cost = cost_per_row * (double)rows;
    int pieces = cost < cpu_worth(d) || n == 1 ? 1 : cost < 400000 ? n : 4 * n;
    RowsJob j = { d, fn, arg, rows, pieces > rows ? (int)rows : pieces };
    if (rows > 0) cpu_run(d, j.pieces, cost, rows_piece, &j);
}

/* clang-format off */
const Ops ops_cpu = {
    .name = "cpu",
    .put = cpu_put, .get = cpu_get, .copy = cpu_copy, .zero = cpu_zero,
    .linear = cpu_linear, .linear_dx = cpu_linear_dx, .linear_dw = cpu_linear_dw,
    .grouped = cpu_grouped, .grouped_dx = cpu_grouped_dx, .grouped_dw = cpu_grouped_dw,
    .headwise = cpu_headwise, .headwise_dw = cpu_headwise_dw, .copy_heads = cpu_copy_heads, .tree_add = cpu_tree_add,
    .embed = cpu_embed, .embed_bwd = cpu_embed_bwd, .rmsnorm = cpu_rmsnorm, .rmsnorm_bwd = cpu_rmsnorm_bwd,
    .swiglu = cpu_swiglu, .swiglu_bwd = cpu_swiglu_bwd, .add = cpu_add, .rope_table = cpu_rope_table, .rope = cpu_rope,
    .attend = cpu_attend, .attend_bwd = cpu_attend_bwd,
    .kv_bytes = cpu_kv_bytes, .kv_put = cpu_kv_put, .kv_copy = cpu_kv_copy, .attend_kv = cpu_attend_kv,
    .route = cpu_route, .route_bwd = cpu_route_bwd, .moe_sort = cpu_moe_sort, .permute = cpu_permute,
    .permute_bwd = cpu_permute_bwd, .combine = cpu_combine, .combine_bwd = cpu_combine_bwd, .scatter_rows = cpu_scatter_rows,
    .logprob = cpu_logprob, .logprob_bwd = cpu_logprob_bwd, .sample = cpu_sample,
    .sumsq = cpu_sumsq, .adamw = cpu_adamw,
};
