/* cpu.c - the CPU backend's table, its choice of instruction set, and how work reaches threads. */
#include "op/cpu/cpu.h"
#include "op/op_fused.h"

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
    return of[cpu_dev(d)->isa];
#else
    (void)d;
    return &kern_c;
#endif
}

/* Threads that wait awake take work over in half a microsecond; waking one that sleeps costs some ten.  Below a few
 * times that it is quicker to do the work than to ask for help. */
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

static const Fused fused_cpu = {
    .linear2 = cpu_linear2,
    .linear3 = cpu_linear3,
    .grouped_swiglu = cpu_grouped_swiglu,
    .linear_dw_first = cpu_linear_dw_first,
    .grouped_dw_first = cpu_grouped_dw_first,
};
/* clang-format off */
const Ops ops_cpu = {
    .name = "cpu",
    .keeps_f32 = true,
    .close = cpu_close, .block = cpu_block, .give = cpu_free, .touch = cpu_touch,
    .enter = cpu_enter, .leave = cpu_leave, .chain = cpu_chain, .about = cpu_about,
    .fused = &fused_cpu, .kv_bytes = cpu_kv_bytes, .sumsq = cpu_sumsq,
#define OP(how, name, params, args, outs) .name = cpu_##name,
#include "op/op_list.h"
#undef OP
    .tmp = { .logprob = cpu_tmp_logprob, .logprob_part = cpu_tmp_logprob_part, .logprob_end = cpu_tmp_logprob_end,
             .sample = cpu_tmp_sample, .logprob_bwd = cpu_tmp_logprob_bwd, .delta_bwd = cpu_tmp_delta_bwd },
};
