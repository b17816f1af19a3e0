/* bench_prod.c - products as a share of what the machine can do, measured in the same run: percent of the FMA peak for
 * linear, linear_dx, linear_dw and grouped, percent of read bandwidth for few rows over weights beyond the caches.
 *   bench_prod [threads] [seconds per figure] [instruction set]
 * The limit is measured before and after every repeat; a figure is the median of the ratios, in brackets
 * what the best tenth reaches.  The last column is what multiply-adds with operands from the first cache
 * reach beside it: how much of its core the program has. */
#include "bench.h"

typedef struct {
    int M, I, O;
} Shape;

/* Figures of products of 64 rows and more, for the closing line. */
typedef struct {
    double least, most, median[256];
    int n, good;
    double near[64]; /* beside every line */
    int lines;
} Tally;
static void tell(Tally *all, Share s, bool counts) {
    printf(" %4.0f (%2.0f)", s.share, s.best);
    if (!counts) return;
    all->median[all->n++] = s.share, all->good += s.share >= 80;
    if (s.share < all->least) all->least = s.share;
    if (s.share > all->most) all->most = s.share;
}

static void tell_near(Tally *all, Dev *d) {
    all->near[all->lines] = bench_near(d);
    printf(" | %4.0f\n", all->near[all->lines++]);
}

int main(int argc, char **argv) {
    int th = argc > 1 ? atoi(argv[1]) : 1;
    double budget = argc > 2 ? atof(argv[2]) : 0.15;
    Dev d;
    dev_open(&d, (DevOpts){ .threads = th, .isa = argc > 3 ? atoi(argv[3]) : 0 });
    Tally all = { .least = 1e9 };
    printf("%s, %d thread%s: FMA peak %.0f GFLOP/s\n", cpu_kern(&d)->name, th, th > 1 ? "s" : "", bench_peak(&d));
    printf("%6s %6s %6s | %9s %9s %9s %9s | per cent of peak: linear, with 8 pieces, dx, dw | operands in the first "
           "cache\n",
           "rows", "in", "out", "lin", "lin/8", "dx", "dw");
    /* clang-format off */
    static const Shape dense[] = {
        { 1, 1024, 1024 }, { 4, 1024, 1024 }, { 16, 1024, 1024 }, { 64, 256, 256 }, { 64, 256, 768 },
        { 64, 1024, 1024 }, { 64, 2048, 2048 }, { 64, 4096, 4096 }, { 512, 256, 256 }, { 512, 256, 768 },
        { 512, 1024, 1024 }, { 512, 2048, 2048 }, { 512, 4096, 1024 }, { 2048, 256, 512 }, { 8192, 128, 64 },
        { 8192, 128, 128 }, { 2048, 256, 384 }, { 2048, 384, 256 }, { 2048, 256, 128 }
    };
    /* clang-format on */
    Arena a = dev_arena(&d, "bench", (size_t)1200 << 20);
    for (size_t i = 0; i < COUNT(dense); i++) {
        Shape s = dense[i];
        size_t mark = arena_mark(&a);
        Tensor x = bench_fill(&a, s.M, s.I, 1), w = bench_fill(&a, s.O, s.I, 0.1f), y = bench_fill(&a, s.M, s.O, 1),
               dx = bench_fill(&a, s.M, s.I, 0), dw = bench_fill(&a, s.O, s.I, 0);
        double f = 2.0 * s.M * s.I * s.O * 1e-9;
        Share t[4];
        SHARE(t[0], &d, budget, bench_peak_once(&d), f, op_linear(&d, y, x, w, TENSOR_NONE, leaves_one(s.I)));
        SHARE(t[1], &d, budget, bench_peak_once(&d), f, op_linear(&d, y, x, w, TENSOR_NONE, leaves_all(8, s.I, 1)));
        SHARE(t[2], &d, budget, bench_peak_once(&d), f, op_linear_dx(&d, dx, y, w, leaves_one(s.O)));
        SHARE(t[3], &d, budget, bench_peak_once(&d), f, op_linear_dw(&d, dw, TENSOR_NONE, y, x));
        printf("%6d %6d %6d |", s.M, s.I, s.O);
        for (int k = 0; k < 4; k++) tell(&all, t[k], s.M >= 64);
        tell_near(&all, &d);
        arena_pop(&a, mark);
    }
    printf("%6s %6s %6s %6s | %9s %9s %9s | experts x rows each: grouped, dx, dw\n", "E", "rows", "in", "out", "grp",
           "dx", "dw");
    static const struct {
        int E, M, I, O;
    } moe[] = {
        { 16, 16, 256, 96 },   { 16, 32, 256, 96 },   { 16, 32, 96, 256 },   { 16, 64, 256, 96 },
        { 16, 64, 96, 256 },   { 16, 128, 256, 96 },  { 8, 64, 1024, 768 },  { 8, 64, 768, 1024 },
        { 4, 64, 2048, 2048 }, { 8, 2048, 128, 128 }, { 32, 256, 256, 160 }, { 32, 256, 160, 256 },
    };
    for (size_t i = 0; i < COUNT(moe); i++) {
        int E = moe[i].E, M = moe[i].M, I = moe[i].I, O = moe[i].O;
        size_t mark = arena_mark(&a);
        Tensor x = bench_fill(&a, E * M, I, 1), w = bench_fill(&a, E * O, I, 0.1f), y = bench_fill(&a, E * M, O, 1),
               dx = bench_fill(&a, E * M, I, 0), dw = bench_fill(&a, E * O, I, 0);
        Tensor at = tensor_push(&a, DT_I32, 1, E + 1);
        for (int e = 0; e <= E; e++) ((int32_t *)at.data)[e] = e * M;
        Seqs ex = { E, M, at };
        double f = 2.0 * E * M * I * O * 1e-9;
        Share t[3];
        SHARE(t[0], &d, budget, bench_peak_once(&d), f, op_grouped(&d, y, x, w, ex, leaves_one(I)));
        SHARE(t[1], &d, budget, bench_peak_once(&d), f, op_grouped_dx(&d, dx, y, w, ex, leaves_one(O)));
        SHARE(t[2], &d, budget, bench_peak_once(&d), f, op_grouped_dw(&d, dw, y, x, ex));
        printf("%6d %6d %6d %6d |", E, M, I, O);
        for (int k = 0; k < 3; k++) tell(&all, t[k], M >= 64);
        tell_near(&all, &d);
        arena_pop(&a, mark);
    }
    qsort(all.median, (size_t)all.n, sizeof all.median[0], bench_by_size);
    printf("from 64 rows up: %.0f to %.0f, half of them above %.0f; %d of %d at 80 or more\n", all.least, all.most,
           all.median[all.n / 2], all.good, all.n);
    qsort(all.near, (size_t)all.lines, sizeof all.near[0], bench_by_size);
    printf("operands from the first cache: %.0f to %.0f, median %.0f\n", all.near[0], all.near[all.lines - 1],
           all.near[all.lines / 2]);
    /* few rows: weights of 512 MiB in f32, beyond the caches */
    enum { BI = 2048, BO = 65536, FEW = 4 };
    Tensor w = bench_fill(&a, BO, BI, 0.1f);
    const int64_t n = (int64_t)BO * BI;
    Share t[2][FEW];
    for (int half = 0; half < 2;
         half++) { /* the same bytes again as bf16, which are to be ordinary numbers: denormals are slow */
        Tensor v = half ? tensor_over(w.data, DT_BF16, 2 * BO, BI) : w;
        for (int64_t i = 0; half && i < 2 * n; i++)
            ((uint16_t *)v.data)[i] = (uint16_t)(0x3C00 + (i * 2654435761u >> 7) % 0x300);
        for (int i = 0; i < FEW; i++) {
            size_t mark = arena_mark(&a);
            Tensor x = bench_fill(&a, 1 << i, BI, 1), y = bench_fill(&a, 1 << i, v.rows, 0);
            SHARE(t[half][i], &d, 8 * budget, bench_read_once(&d, w.data, n), 4e-9 * (double)n,
                  op_linear(&d, y, x, v, TENSOR_NONE, leaves_one(BI)));
            arena_pop(&a, mark);
        }
    }
    printf("per cent of reading the same %d MiB, %.1f GB/s:\n", BO / 1024 * BI / 256, bench_read_once(&d, w.data, n));
    for (int i = 0; i < FEW; i++)
        printf("%6d rows: f32 %.0f (%.0f), bf16 %.0f (%.0f)\n", 1 << i, t[0][i].share, t[0][i].best, t[1][i].share,
               t[1][i].best);
    dev_close(&d);
    return 0;
}
