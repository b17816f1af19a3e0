/* bench_turns.c - one product for each line on standard input, in turns with a peer (bench/peers/products.py).
 *   bench_turns [threads]     linear|dx|dw ROWS IN OUT -> {"seconds": of one call, "peak":
 *                             GFLOP/s of bare multiply-adds before and after} */
#include "bench.h"

int main(int argc, char **argv) {
    int th = argc > 1 ? atoi(argv[1]) : 1;
    Dev d;
    dev_open(&d, (DevOpts){ .threads = th });
    Arena a = dev_arena(&d, "bench", (size_t)512 << 20);
    char line[128], what[16];
    while (fgets(line, sizeof line, stdin)) {
        int M, I, O;
        CHECK(sscanf(line, "%15s %d %d %d", what, &M, &I, &O) == 4, "linear|dx|dw ROWS IN OUT, not '%s'", line);
        size_t mark = arena_mark(&a);
        Tensor x = bench_fill(&a, M, I, 1), w = bench_fill(&a, O, I, 0.1f), y = bench_fill(&a, M, O, 1),
               dw = bench_fill(&a, O, I, 0);
        double gflop = 2e-9 * M * I * O;
        Share s;
        double before = bench_peak_once(&d);
        if (!strcmp(what, "linear"))
            SHARE(s, &d, 0.03, bench_peak_once(&d), gflop, op_linear(&d, y, x, w, TENSOR_NONE, leaves_one(I)));
        else if (!strcmp(what, "dx"))
            SHARE(s, &d, 0.03, bench_peak_once(&d), gflop, op_linear_dx(&d, x, y, w, leaves_one(O)));
        else SHARE(s, &d, 0.03, bench_peak_once(&d), gflop, op_linear_dw(&d, dw, TENSOR_NONE, y, x));
        printf("{\"seconds\":%.9f,\"peak\":%.2f,\"share\":%.2f}\n", s.sec, 0.5 * (before + bench_peak_once(&d)),
               s.share);
        fflush(stdout);
        arena_pop(&a, mark);
    }
    dev_close(&d);
    return 0;
}
